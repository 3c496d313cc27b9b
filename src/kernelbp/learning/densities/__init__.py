r"""Conditional densities :math:`p(y \mid x)` learned from pairs, as the paper's rivals need them (its appendix 1).

`ConditionalDensity` is least-squares conditional density estimation: a mixture

.. math:: p(y \mid x) \propto \sum_l \alpha_l\, \varphi_l(x)\, \psi_l(y), \qquad
          \alpha = \big[ (\hat H + \lambda I)^{-1} \hat h \big]_+ ,

with :math:`\hat H = \sum_j \int \varphi(x_j) \psi(y)\, (\varphi(x_j) \psi(y))^\top dy` and :math:`\hat h = \sum_j \varphi(x_j)
\psi(y_j)`; the products of vectors are entry by entry. Each :math:`\varphi_l` and :math:`\psi_l` is a bump around one training
pair :math:`(q_l, r_l)`: a Gaussian on R^d, :math:`\exp(\sigma \langle y, r_l \rangle)` on the sphere. Since :math:`\sigma \langle y, r \rangle
= \sigma - \tfrac{\sigma}{2} \lVert y - r \rVert^2` there, both are Gaussians of the distance, with :math:`\sigma = 1 / w^2`, and only their integrals differ.

`RidgeDensity` is a regression with noise around it, the form in which the paper gives its rivals their evidence.

============ ===========================================================
`mixtures`   `ConditionalDensity`
`regression` `RidgeDensity`
`bumps`      Gaussians and their like on the sphere, in closed form
`pairs`      training pairs: checks, merging, folds, scales, centres
============ ===========================================================
"""

from __future__ import annotations

from kernelbp.learning.densities.mixtures import ConditionalDensity
from kernelbp.learning.densities.regression import RidgeDensity

__all__ = ["ConditionalDensity", "RidgeDensity"]
