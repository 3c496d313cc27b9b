r"""A few basis points instead of m: pivoted Cholesky of a kernel matrix that is never formed.

With features :math:`\phi(x_i)` of m values, the greedy Gram-Schmidt procedure of the paper's
Section 5.1 picks points :math:`I` and an orthonormal basis :math:`Q = \Phi_I R_I^{-1}` of their span,
with coefficients :math:`R` (l x m), so that :math:`\Phi \approx Q R` and :math:`K \approx R^\top R`. In
terms of the kernel matrix this is Cholesky with diagonal pivoting, and needs only one kernel column
per step. The same on :math:`k^p` serves the tensor features of Section 5.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels import Kernel
from kernelbp.values import Column

__all__ = ["Basis", "LowRank", "pivoted_cholesky"]

Stop = Literal["residual", "max_rank", "landmarks", "exhausted"]

ROUNDING = 8 * np.finfo(np.float64).eps
"""A squared residual under this times the largest k(x, x) is rounding error, not signal."""

GROWTH = 32
"""Rows by which the coefficient array grows, so that memory follows the rank and not `max_rank`."""


@dataclass(frozen=True)
class Basis:
    """Orthonormal functions spanned by a few points: all that is needed to place new values.

    Attributes
    ----------
    kernel : the kernel k
    power : the basis is for k^power
    points : (l,) or (l, d) column, the paper's x_I
    triangle : (l, l) upper triangular, the paper's R_I, with R_I' R_I = k^p(x_I, x_I)
    """

    kernel: Kernel
    power: int
    points: Column
    triangle: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.points)

    def coordinates(self, values: Column) -> NDArray[np.float64]:
        """Coefficients r(x) = R_I^{-T} k^p(x_I, x) of new values, shape (l, n)."""
        return _triangular(
            self.triangle, _gram(self.kernel, self.points, values, self.power), transposed=True
        )

    def weights(self, values: Column) -> NDArray[np.float64]:
        """Interpolation weights W = R_I^{-1} r(x) with xi(x) ~ sum_j W_j xi(x_I_j), shape (l, n)."""
        return _triangular(self.triangle, self.coordinates(values), transposed=False)


@dataclass(frozen=True)
class LowRank:
    """The factorisation of a kernel matrix, K ~ R' R.

    Attributes
    ----------
    indices : (l,) the pivots, the paper's index set I, in the order they were chosen
    basis : Basis on those points
    coefficients : (l, m) the paper's R
    residual : the paper's epsilon, max_i || phi(x_i) - Q r(x_i) ||
    stopped : why it ended: "residual" (reached), "max_rank", "landmarks" (the user's own were used)
        or "exhausted" (what was left is rounding error)
    """

    indices: NDArray[np.intp]
    basis: Basis
    coefficients: NDArray[np.float64]
    residual: float
    stopped: Stop

    @property
    def rank(self) -> int:
        """Number of basis points, the paper's l."""
        return len(self.indices)


def pivoted_cholesky(
    kernel: Kernel,
    values: Column,
    *,
    power: int = 1,
    residual: float = 1e-3,
    max_rank: int | None = None,
    landmarks: Sequence[int] | NDArray[np.integer] | None = None,
) -> LowRank:
    r"""Factor the kernel matrix of k^power on `values` without forming it.

    Greedily takes the value worst represented so far, until
    :math:`\max_i \|\phi(x_i) - Q r(x_i)\| \le` `residual` (the paper's epsilon, Section 5.1).
    O(m l^2) time, O(m l) memory, one kernel column a step.

    Parameters
    ----------
    kernel : Kernel
    values : (m, d) float or (m,) object column
    power : int
        Factor k^power, elementwise.
    residual : float
        Stop when every value is represented this well.
    max_rank : int, optional
        Stop at this many basis points.
    landmarks : sequence of int, optional
        Positions to use as basis points instead of choosing greedily. Those that add nothing to the
        ones before them are left out.

    Returns
    -------
    LowRank

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.kernels import Gaussian
    >>> x = np.linspace(0, 1, 1000)[:, None]
    >>> found = pivoted_cholesky(Gaussian(0.5), x, residual=1e-3)
    >>> found.rank, found.stopped, found.residual <= 1e-3
    (7, 'residual', True)
    >>> error = Gaussian(0.5)(x) - found.coefficients.T @ found.coefficients
    >>> bool(abs(error).max() <= 1e-6)
    True
    """
    size = len(values)
    if size == 0:
        raise InputError("values: expected at least one value, got none")
    if power < 1 or int(power) != power:
        raise InputError(f"power: expected a whole number of at least 1, got {power}")
    if not residual >= 0:
        raise InputError(f"residual: expected a number of at least 0, got {residual}")
    if max_rank is not None and max_rank < 1:
        raise InputError(f"max_rank: expected at least 1, got {max_rank}")
    chosen_by_user = None if landmarks is None else _checked_landmarks(landmarks, size)

    remaining = np.asarray(kernel.diag(values), dtype=np.float64) ** power
    negligible = ROUNDING * max(float(remaining.max(initial=0.0)), np.finfo(np.float64).tiny)
    limit = size if max_rank is None else min(max_rank, size)
    if chosen_by_user is not None:
        limit = min(limit, len(chosen_by_user))
    coefficients = np.empty((min(limit, GROWTH), size))
    indices: list[int] = []
    stopped: Stop = "landmarks" if chosen_by_user is not None else "max_rank"
    candidates = iter(()) if chosen_by_user is None else iter(chosen_by_user.tolist())

    while len(indices) < limit:
        if chosen_by_user is None:
            pivot = int(np.argmax(remaining))
            if remaining[pivot] <= residual**2:
                stopped = "residual"
                break
            if remaining[pivot] <= negligible:
                stopped = "exhausted"
                break
        else:
            following = next((c for c in candidates if remaining[c] > negligible), None)
            if following is None:
                break
            pivot = following
        rank = len(indices)
        if rank == len(coefficients):
            grown = np.empty((min(limit, max(GROWTH, 2 * rank)), size))
            grown[:rank] = coefficients
            coefficients = grown
        row = coefficients[rank]
        row[:] = _gram(kernel, values[pivot : pivot + 1], values, power)[0]
        if rank:
            row -= coefficients[:rank, pivot] @ coefficients[:rank]
        root = np.sqrt(remaining[pivot])
        row /= root
        row[indices] = 0.0
        row[pivot] = root
        remaining -= row * row
        np.maximum(remaining, 0.0, out=remaining)
        remaining[pivot] = 0.0
        indices.append(pivot)

    if chosen_by_user is None and remaining.max(initial=0.0) <= residual**2:
        stopped = "residual"
    taken = np.asarray(indices, dtype=np.intp)
    kept = coefficients[: len(taken)]
    basis = Basis(kernel, int(power), values[taken], np.triu(kept[:, taken]))
    return LowRank(taken, basis, kept, float(np.sqrt(remaining.max(initial=0.0))), stopped)


def _checked_landmarks(landmarks: Sequence[int] | NDArray[np.integer], size: int) -> NDArray[np.intp]:
    array = np.asarray(landmarks)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError(f"landmarks: expected positions of values as whole numbers, got {landmarks!r:.80}")
    if array.min() < 0 or array.max() >= size:
        raise InputError(
            f"landmarks: positions must lie in 0 ... {size - 1}, got {int(array.min())} ... {int(array.max())}"
        )
    return array.astype(np.intp)


def _gram(kernel: Kernel, first: Column, second: Column, power: int) -> NDArray[np.float64]:
    block = np.asarray(kernel(first, second), dtype=np.float64)
    return block if power == 1 else block**power


def _triangular(
    triangle: NDArray[np.float64], right: NDArray[np.float64], *, transposed: bool
) -> NDArray[np.float64]:
    if not len(triangle):
        return np.zeros((0, right.shape[1]))
    solved: NDArray[np.float64] = scipy.linalg.solve_triangular(
        triangle, right, trans=int(transposed), check_finite=False
    )
    return solved
