"""How two values of a variable compare.

Every kernel is called as ``k(X, Y=None)`` for a Gram block and ``k.diag(X)`` for its diagonal, the convention
of ``sklearn.gaussian_process.kernels``, whose kernels work unchanged. `Kernel` is the contract. Kernels add,
multiply and take whole powers:

>>> from kernelbp.kernels import Gaussian, Linear
>>> 0.5 * Gaussian(2.0) + Linear() ** 2
0.5 * Gaussian(bandwidth=2.0) + Linear(constant=1.0) ** 2

================== =====================================================
`Gaussian`         numbers and vectors
`Linear`           vectors of features
`Sphere`           directions, in any dimension
`Rotation`         rotations of space: quaternions or matrices
`Torus`            angles, one or several
`Kendall`          rankings
`Mallows`          rankings, told apart as finely as you like
`PositiveDefinite` covariance matrices and their like
`Geometric`        other manifolds, by GeometricKernels
`Spectrum`         strings, by the pieces of a length they share
`Mismatch`         strings, by pieces that nearly agree
`Subsequence`      strings, by letters in the same order with gaps
`LocalAlignment`   strings, by their best alignments
`WeisfeilerLehman` graphs, by the neighbourhoods of their nodes
`ShortestPath`     graphs, by their paths
`GraKeL`           graphs, by any kernel of GraKeL
`Jaccard`          sets
`RandomProjection` sets of a few out of many labels
`Tanimoto`         vectors of counts
`ChiSquare`        histograms
`Intersection`     histograms
`Delta`            finitely many values of any kind
`Record`           records of several fields, each with its kernel
`Precomputed`      anything whose comparison comes as a table
================== =====================================================
"""

from __future__ import annotations

from kernelbp.kernels.algebra import Power, Product, Scaled, Sum
from kernelbp.kernels.contract import Domain, Kernel, check_values, domain, require_kernel, resolve
from kernelbp.kernels.finite import Delta
from kernelbp.kernels.graphs import (
    GraKeL,
    ShortestPath,
    WeisfeilerLehman,
    graph_as_tuple,
    graph_from_tuple,
)
from kernelbp.kernels.groups import Geometric, Kendall, Mallows, PositiveDefinite, Rotation, Torus
from kernelbp.kernels.labels import RandomProjection
from kernelbp.kernels.precomputed import Precomputed
from kernelbp.kernels.records import Record
from kernelbp.kernels.sets import ChiSquare, Intersection, Jaccard, Tanimoto
from kernelbp.kernels.specification import from_spec, to_spec
from kernelbp.kernels.sphere import Sphere
from kernelbp.kernels.strings import LocalAlignment, Mismatch, Spectrum, Subsequence
from kernelbp.kernels.vectors import Gaussian, Linear

__all__ = [
    "ChiSquare",
    "Delta",
    "Domain",
    "Gaussian",
    "Geometric",
    "GraKeL",
    "Intersection",
    "Jaccard",
    "Kendall",
    "Kernel",
    "Linear",
    "LocalAlignment",
    "Mallows",
    "Mismatch",
    "PositiveDefinite",
    "Power",
    "Precomputed",
    "Product",
    "RandomProjection",
    "Record",
    "Rotation",
    "Scaled",
    "ShortestPath",
    "Spectrum",
    "Sphere",
    "Subsequence",
    "Sum",
    "Tanimoto",
    "Torus",
    "WeisfeilerLehman",
    "check_values",
    "domain",
    "from_spec",
    "graph_as_tuple",
    "graph_from_tuple",
    "require_kernel",
    "resolve",
    "to_spec",
]
