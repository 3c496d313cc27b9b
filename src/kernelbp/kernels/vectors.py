"""Kernels on R^d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain
from kernelbp.kernels.inputs import (
    as_rows,
    finite_rows,
    nonnegative_number,
    positive_number,
    row_pair,
    weighted_sample,
)


@dataclass(frozen=True, repr=False)
class Gaussian(Algebra):
    r"""The Gaussian kernel on R^d.

    .. math:: k(x, y) = \exp\left( -\frac{\lVert x - y \rVert^2}{2 h^2} \right),

    with bandwidth h = scale * bandwidth.

    Parameters
    ----------
    bandwidth : float or "median"
        In the units of the values. "median" is the median distance between two values of the training
        sample; if that is 0, the mean of the distances that are not; if there are none, 1. It is replaced
        by its number in `kernelbp.kernels.resolve`. Called before that, the kernel takes the median of
        the X of the call, which is convenient to look at data but differs from call to call.
    scale : float
        A positive factor, to ask for a part of the median: ``Gaussian("median", scale=0.3)``.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian
    >>> Gaussian(2.0)([0.0, 2.0, 4.0]).round(3)
    array([[1.   , 0.607, 0.135],
           [0.607, 1.   , 0.607],
           [0.135, 0.607, 1.   ]])
    >>> Gaussian("median").resolve([[0.0, 0.0], [3.0, 4.0]])
    Gaussian(bandwidth=5.0)
    >>> Gaussian("median", scale=0.5).resolve([[0.0, 0.0], [3.0, 4.0]])
    Gaussian(bandwidth=2.5)
    """

    bandwidth: float | Literal["median"] = "median"
    scale: float = 1.0

    domain: ClassVar[Domain] = "real"

    def __post_init__(self) -> None:
        if not (isinstance(self.bandwidth, str) and self.bandwidth == "median"):
            number = positive_number(self.bandwidth, "bandwidth", or_word=' or "median"')
            object.__setattr__(self, "bandwidth", number)
        object.__setattr__(self, "scale", positive_number(self.scale, "scale"))

    def __repr__(self) -> str:
        scale = "" if self.scale == 1.0 else f", scale={self.scale!r}"
        return f"Gaussian(bandwidth={self.bandwidth!r}{scale})"

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of ``(n, d)`` against ``(m, d)`` values."""
        left, right = row_pair(X, Y)
        if len(left) == 0:
            return np.empty((0, len(right)))
        bandwidth = self.resolve(left).bandwidth
        assert not isinstance(bandwidth, str)
        return gaussian_of_distances(distances(left, right), bandwidth)

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Ones ``(n,)``."""
        return np.ones(len(as_rows(X, "X")))

    def resolve(self, values: Any, counts: Any = None) -> Gaussian:
        """Replace "median" by its number, times the scale: see `kernelbp.kernels.resolve`."""
        if isinstance(self.bandwidth, str):
            return Gaussian(self.scale * typical_size(_between_pairs(weighted_sample(values, counts))))
        return self if self.scale == 1.0 else Gaussian(self.scale * self.bandwidth)

    def check_values(self, values: Any, name: str) -> NDArray[np.float64]:
        """Return finite rows ``(n, d)``: see `kernelbp.kernels.check_values`."""
        return finite_rows(values, name)


@dataclass(frozen=True)
class Linear(Algebra):
    r"""The linear kernel on R^d with a constant.

    .. math:: k(x, y) = c + \langle x, y \rangle.

    With c > 0 the powers of the kernel are nested: the functions of :math:`k^p` include those of k.

    Parameters
    ----------
    constant : float
        c, at least 0.

    Examples
    --------
    >>> from kernelbp.kernels import Linear
    >>> Linear()([[1.0, 2.0], [3.0, 4.0]])
    array([[ 6., 12.],
           [12., 26.]])
    """

    constant: float = 1.0

    domain: ClassVar[Domain] = "real"

    def __post_init__(self) -> None:
        object.__setattr__(self, "constant", nonnegative_number(self.constant, "constant"))

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of ``(n, d)`` against ``(m, d)`` values."""
        left, right = row_pair(X, Y)
        block: NDArray[np.float64] = left @ right.T
        block += self.constant
        return block

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        rows = as_rows(X, "X")
        squares: NDArray[np.float64] = np.square(rows).sum(axis=1)
        return squares + self.constant

    def check_values(self, values: Any, name: str) -> NDArray[np.float64]:
        """Return finite rows ``(n, d)``: see `kernelbp.kernels.check_values`."""
        return finite_rows(values, name)


def distances(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances ``(n, m)`` between rows, up to sign, from differences: exactly 0 between equal rows."""
    if left.shape[1] == 1:
        return np.subtract(left, right.T)
    block: NDArray[np.float64] = scipy.spatial.distance.cdist(left, right)
    return block


def _between_pairs(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances between the rows of every pair, (n (n - 1) / 2,)."""
    if rows.shape[1] == 1:  # numbers are not worth the tenth of a second that SciPy's distances take to load
        apart: NDArray[np.float64] = np.abs(np.subtract(rows, rows.T))[np.tri(len(rows), k=-1, dtype=bool)]
        return apart
    pairs: NDArray[np.float64] = scipy.spatial.distance.pdist(rows)
    return pairs


def gaussian_of_distances(block: NDArray[np.float64], bandwidth: float) -> NDArray[np.float64]:
    """Overwrite distances by the Gaussian kernel of them."""
    # scaled before squared, so that neither the bandwidth nor the distance has to have a square
    with np.errstate(over="ignore", under="ignore"):
        block *= 1.0 / bandwidth
        np.square(block, out=block)
        block *= -0.5
        np.exp(block, out=block)
    return block


def typical_size(sizes: NDArray[np.float64]) -> float:
    """The median of non-negative numbers; if 0 the mean of the positive ones; if none, 1."""
    positive = sizes[sizes > 0]
    if len(positive) == 0:
        return 1.0
    median = float(np.median(sizes))
    return median if median > 0 else float(positive.mean())
