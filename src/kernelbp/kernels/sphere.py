"""A kernel on directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain
from kernelbp.kernels.inputs import as_rows, finite_rows, positive_number, row_pair, weighted_sample
from kernelbp.kernels.vectors import distances, gaussian_of_distances, typical_size

NORM_TOLERANCE = 1e-6
"""How far from 1 the norm of a direction may be: rounding of single precision and of text files."""


@dataclass(frozen=True)
class Sphere(Algebra):
    r"""The exponential kernel on unit vectors of any dimension.

    .. math:: k(x, y) = \exp(\sigma \langle x, y \rangle) / \exp(\sigma)
              = \exp\left( -\tfrac{\sigma}{2} \lVert x - y \rVert^2 \right),

    with concentration :math:`\sigma`. The second form is the one computed: it is 1 exactly at x = y and a
    kernel even where norms are rounded.

    Parameters
    ----------
    concentration : float or "median"
        :math:`\sigma`. "median" sets :math:`\sigma (1 - m) = 1` with m the median inner product between two
        values of the training sample, so that the kernel is 1/e for a typical pair; if m is 1, the mean of
        the inner products that are not 1 stands in for it; if there are none, :math:`\sigma = 1`. It is
        replaced by its number in `kernelbp.kernels.resolve`; called before that, the kernel takes the
        median of the X of the call.

    Examples
    --------
    >>> from kernelbp.kernels import Sphere
    >>> Sphere(1.0)([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]).round(3)
    array([[1.   , 0.368, 0.135],
           [0.368, 1.   , 0.368],
           [0.135, 0.368, 1.   ]])
    >>> Sphere("median").resolve([[1.0, 0.0], [-1.0, 0.0]])
    Sphere(concentration=0.5)
    """

    concentration: float | Literal["median"] = "median"

    domain: ClassVar[Domain] = "sphere"

    def __post_init__(self) -> None:
        if not (isinstance(self.concentration, str) and self.concentration == "median"):
            number = positive_number(self.concentration, "concentration", or_word=' or "median"')
            object.__setattr__(self, "concentration", number)

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of ``(n, d)`` against ``(m, d)`` unit vectors."""
        left, right = row_pair(X, Y)
        if len(left) == 0:
            return np.empty((0, len(right)))
        concentration = self.resolve(left).concentration
        assert not isinstance(concentration, str)
        return gaussian_of_distances(distances(left, right), 1.0 / math.sqrt(concentration))

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Ones ``(n,)``."""
        return np.ones(len(as_rows(X, "X")))

    def resolve(self, values: Any, counts: Any = None) -> Sphere:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        if not isinstance(self.concentration, str):
            return self
        # on the sphere 1 - <x, y> = |x - y|^2 / 2
        shortfalls = 0.5 * scipy.spatial.distance.pdist(weighted_sample(values, counts), "sqeuclidean")
        return Sphere(1.0 / typical_size(shortfalls))

    def check_values(self, values: Any, name: str) -> NDArray[np.float64]:
        """Return unit vectors as rows ``(n, d)``: see `kernelbp.kernels.check_values`."""
        rows = finite_rows(values, name)
        norms = np.linalg.norm(rows, axis=1)
        off = np.abs(norms - 1.0) > NORM_TOLERANCE
        if off.any():
            position = int(np.argmax(off))
            raise InputError(
                f"{name}: expected unit vectors (norm 1 within {NORM_TOLERANCE:g}), "
                f"got norm {norms[position]:.8g} at position {position}"
            )
        return rows
