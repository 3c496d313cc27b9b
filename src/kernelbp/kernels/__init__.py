"""How two values of a variable compare.

Every kernel is called as ``k(X, Y=None)`` for a Gram block and ``k.diag(X)`` for its diagonal, the convention
of ``sklearn.gaussian_process.kernels``, whose kernels work unchanged. `Kernel` is the contract. Kernels add,
multiply and take whole powers:

>>> from kernelbp.kernels import Gaussian, Linear
>>> 0.5 * Gaussian(2.0) + Linear() ** 2
0.5 * Gaussian(bandwidth=2.0) + Linear(constant=1.0) ** 2

================== ==========================================
`Gaussian`         numbers and vectors
`Linear`           vectors of features
`Sphere`           directions
`Delta`            finitely many values of any kind
`RandomProjection` label sets
`Precomputed`      anything whose comparison comes as a table
================== ==========================================
"""

from __future__ import annotations

from kernelbp.kernels.algebra import Power, Product, Scaled, Sum
from kernelbp.kernels.contract import Domain, Kernel, check_values, domain, require_kernel, resolve
from kernelbp.kernels.finite import Delta
from kernelbp.kernels.labels import RandomProjection
from kernelbp.kernels.precomputed import Precomputed
from kernelbp.kernels.specification import from_spec, to_spec
from kernelbp.kernels.sphere import Sphere
from kernelbp.kernels.vectors import Gaussian, Linear

__all__ = [
    "Delta",
    "Domain",
    "Gaussian",
    "Kernel",
    "Linear",
    "Power",
    "Precomputed",
    "Product",
    "RandomProjection",
    "Scaled",
    "Sphere",
    "Sum",
    "check_values",
    "domain",
    "from_spec",
    "require_kernel",
    "resolve",
    "to_spec",
]
