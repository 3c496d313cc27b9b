"""Kernels on groups and manifolds: rotations, angles, rankings, positive definite matrices.

Each compares values by what the group's action leaves alone, so that turning all values, shifting all angles
or renaming all items changes nothing. Besides what `kernelbp.kernels.contract` asks for they offer

``distance(X, Y=None)``
    distances ``(n, m)`` in units a person reads: radians, pairs of items in another order, ...;
``centre(values, weights)``
    for each row of weights ``(nodes, n)`` the value nearest to the weighted values: a Frechet mean, or the
    best of some candidates.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain, Takes
from kernelbp.kernels.inputs import (
    as_rows,
    describe,
    finite_rows,
    is_median,
    positive_number,
    resolved_by_likeness,
    row_pair,
    weighted_sample,
)
from kernelbp.kernels.vectors import distances, gaussian_of_distances, typical_size

Matrix = NDArray[np.float64]

TOLERANCE = 1e-6
"""How far a rotation may be from one, a symmetric matrix from its transpose: rounding of single precision."""
CELLS = 1 << 21
"""Cells of an intermediate array made at a time."""
MOST_STEPS = 100
"""Steps towards a Frechet mean; from the chordal mean, where they start, a handful do."""
STEP = 1e-10
"""Radians of a step that end them."""


@dataclass(frozen=True)
class Concentrated(Algebra):
    r"""Kernels :math:`\exp(-\sigma \lVert f(x) - f(y) \rVert^2 / 2)`, of features that the group turns."""

    concentration: float | Literal["median"] = "median"

    domain: ClassVar[Domain] = "other"

    def __post_init__(self) -> None:
        _set_number_or_median(self, "concentration")

    @abstractmethod
    def features(self, values: Any, name: str = "values") -> Matrix:
        """Features ``(n, k)``."""

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n values against m."""
        left = self.features(X, "X")
        right = left if Y is None else self.features(Y, "Y")
        left, right = row_pair(left, right)
        if not len(left) or not len(right):
            return np.empty((len(left), len(right)))
        concentration = self._number(left)
        return gaussian_of_distances(distances(left, right), 1.0 / math.sqrt(concentration))

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(X))

    def resolve(self, values: Any, counts: Any = None) -> Self:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        if not isinstance(self.concentration, str):
            return self
        return replace(self, concentration=self._number(self.features(values), counts))

    def _number(self, features: Matrix, counts: Any = None) -> float:
        if not isinstance(self.concentration, str):
            return self.concentration
        return 1.0 / typical_size(
            0.5 * scipy.spatial.distance.pdist(weighted_sample(features, counts), "sqeuclidean")
        )


@dataclass(frozen=True)
class Rotation(Concentrated):
    r"""The exponential of the trace, on rotations of space, SO(3).

    .. math:: k(R, S) = \exp(\sigma (\operatorname{tr} R^\top S - 3) / 2) = \exp(-\sigma (1 - \cos \theta)),

    with :math:`\theta` the angle of the rotation that takes R to S. The trace is a character of the group,
    so the kernel stays the same when all rotations are multiplied by one more, from the left or the right.

    Parameters
    ----------
    concentration : float or "median"
        :math:`\sigma`. Rotations :math:`\theta` radians apart compare as :math:`\exp(-\sigma \theta^2 / 2)`
        while :math:`\theta` is small. "median" makes the kernel 1/e for a typical pair of training values.

    Notes
    -----
    Values are unit quaternions ``(n, 4)``, of which q and -q are the same rotation, scalar first or last as
    you like; or matrices, ``(n, 3, 3)`` or ``(n, 9)``. A `kernelbp.Model` gives them back as they were given.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.kernels import Rotation
    >>> half = np.sqrt(0.5)
    >>> quaternions = [[1.0, 0.0, 0.0, 0.0], [half, half, 0.0, 0.0], [-half, -half, 0.0, 0.0]]
    >>> Rotation(1.0)(quaternions).round(3)
    array([[1.   , 0.368, 0.368],
           [0.368, 1.   , 1.   ],
           [0.368, 1.   , 1.   ]])
    >>> Rotation().distance(quaternions[:1], quaternions).round(3)
    array([[0.   , 1.571, 1.571]])
    """

    takes: ClassVar[Takes] = "matrices"

    def features(self, values: Any, name: str = "values") -> Matrix:
        """Features ``(n, 16)`` of quaternions or ``(n, 9)`` of matrices, 2 sin(angle / 2) apart."""
        rows = _element_rows(values, name)
        if rows.shape[1] == 4:
            # products of two components do not know the sign
            return math.sqrt(2.0) * (rows[:, :, None] * rows[:, None, :]).reshape(-1, 16)
        if rows.shape[1] != 9 and len(rows):
            raise InputError(
                f"{name}: expected rotations as unit quaternions (n, 4) or matrices (n, 3, 3) or (n, 9), "
                f"got {describe(values)}"
            )
        return rows / math.sqrt(2.0)

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return rotations as rows ``(n, 4)`` or ``(n, 9)``: see `kernelbp.kernels.check_values`."""
        self.features(values, name)
        rows = _element_rows(values, name)
        finite_rows(rows, name)
        if rows.shape[1] == 4:
            _refuse(np.abs(np.linalg.norm(rows, axis=1) - 1.0) > TOLERANCE, name, "unit quaternions", rows)
        elif len(rows):
            matrices = rows.reshape(-1, 3, 3)
            off = np.abs(matrices @ matrices.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2)) > TOLERANCE
            _refuse(off | (np.linalg.det(matrices) < 0), name, "orthogonal matrices of determinant 1", rows)
        return rows

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """Angles ``(n, m)`` in radians, from 0 to pi, of the rotations from one to the other."""
        left = self.features(X, "X")
        right = left if Y is None else self.features(Y, "Y")
        return _angle_of_chord(scipy.spatial.distance.cdist(*row_pair(left, right)))

    def centre(self, values: Any, weights: Any) -> Matrix:
        """Frechet means ``(nodes, 4)`` or ``(nodes, 9)`` of n rotations, for weights ``(nodes, n)``.

        The rotation with the least mean squared angle, sought from the principal axis of the weighted
        quaternions.
        """
        rows = self.check_values(values, "values")
        if rows.shape[1] == 4:
            return frechet_mean(rows, weights, sign_free=True)
        from scipy.spatial.transform import Rotation as Turn

        quaternions = Turn.from_matrix(rows.reshape(-1, 3, 3)).as_quat()
        found = frechet_mean(quaternions, weights, sign_free=True)
        return Turn.from_quat(found).as_matrix().reshape(-1, 9)


@dataclass(frozen=True)
class Torus(Concentrated):
    r"""The von Mises kernel on angles: the circle for one, the torus for several.

    .. math:: k(x, y) = \exp\left( -\sigma \sum_j (1 - \cos(2 \pi (x_j - y_j) / \text{period})) \right)

    The same when all values are shifted by an angle, and when any value is wound round once more.

    Parameters
    ----------
    concentration : float or "median"
        :math:`\sigma`. "median" makes the kernel 1/e for a typical pair of training values.
    period : float
        Where values begin again: :math:`2 \pi` for radians, 360 for degrees, 24 for hours.

    Notes
    -----
    Values are numbers ``(n,)`` or rows of several angles ``(n, d)``.

    Examples
    --------
    >>> from kernelbp.kernels import Torus
    >>> Torus(1.0, period=360)([0.0, 90.0, 180.0, 360.0]).round(3)
    array([[1.   , 0.368, 0.135, 1.   ],
           [0.368, 1.   , 0.368, 0.368],
           [0.135, 0.368, 1.   , 0.135],
           [1.   , 0.368, 0.135, 1.   ]])
    >>> Torus(period=24).distance([23.0], [1.0])
    array([[2.]])
    """

    period: float = 2.0 * math.pi

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "period", positive_number(self.period, "period"))

    def features(self, values: Any, name: str = "values") -> Matrix:
        """Features ``(n, 2 d)``: cosines and sines."""
        angles = as_rows(values, name) * (2.0 * math.pi / self.period)
        return np.hstack([np.cos(angles), np.sin(angles)])

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return finite rows ``(n, d)``: see `kernelbp.kernels.check_values`."""
        return finite_rows(values, name)

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """Distances ``(n, m)`` the short way round, in units of the values; of several angles Euclidean."""
        left, right = row_pair(X, Y)
        total = np.zeros((len(left), len(right)))
        for x, y in zip(left.T, right.T, strict=True):
            apart = np.abs(np.subtract.outer(x, y)) % self.period
            total += np.minimum(apart, self.period - apart) ** 2
        return np.sqrt(total)

    def centre(self, values: Any, weights: Any) -> Matrix:
        """Mean directions ``(nodes, d)``, angle by angle, of n values for weights ``(nodes, n)``.

        From 0 up to the period if no value is negative, else within half a period of 0.
        """
        rows = finite_rows(values, "values")
        given = _checked_weights(weights, len(rows))
        turn = 2.0 * math.pi / self.period
        angle = np.arctan2(given @ np.sin(turn * rows), given @ np.cos(turn * rows)) / turn
        return angle if (rows < 0).any() else angle % self.period


@dataclass(frozen=True)
class PositiveDefinite(Algebra):
    r"""The log-Euclidean Gaussian kernel on symmetric positive definite matrices.

    .. math:: k(A, B) = \exp\left( -\frac{\lVert \log A - \log B \rVert_F^2}{2 h^2} \right),

    with bandwidth h = scale * bandwidth. It stays the same when all matrices are inverted, multiplied by
    one positive number, or turned, :math:`A \to Q A Q^\top` with orthogonal Q. Under other congruences
    :math:`A \to M A M^\top` it changes: no Gaussian kernel of the affine-invariant distance is positive
    semidefinite at every bandwidth.

    Parameters
    ----------
    bandwidth : float or "median"
        "median" is the median distance :math:`\lVert \log A - \log B \rVert_F` between two training values.
    scale : float
        A positive factor, to ask for a part of the median.

    Notes
    -----
    Values are matrices ``(n, d, d)``, or rows ``(n, d * d)`` of their entries.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.kernels import PositiveDefinite
    >>> matrices = np.array([np.eye(2), np.e * np.eye(2), np.eye(2) / np.e])
    >>> PositiveDefinite(1.0)(matrices).round(3)
    array([[1.   , 0.368, 0.368],
           [0.368, 1.   , 0.018],
           [0.368, 0.018, 1.   ]])
    """

    bandwidth: float | Literal["median"] = "median"
    scale: float = 1.0

    domain: ClassVar[Domain] = "other"
    takes: ClassVar[Takes] = "matrices"

    def __post_init__(self) -> None:
        _set_number_or_median(self, "bandwidth")
        object.__setattr__(self, "scale", positive_number(self.scale, "scale"))

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n matrices against m."""
        left = self.features(X, "X")
        left, right = row_pair(left, left if Y is None else self.features(Y, "Y"))
        if not len(left) or not len(right):
            return np.empty((len(left), len(right)))
        return gaussian_of_distances(scipy.spatial.distance.cdist(left, right), self._number(left))

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(X))

    def features(self, values: Any, name: str = "values") -> Matrix:
        """Logarithms of the matrices, as rows ``(n, d * d)``."""
        matrices = _square_matrices(values, name)
        if not len(matrices):
            return np.empty((0, 1))
        sizes, axes = np.linalg.eigh(matrices)
        _refuse(~(sizes[:, 0] > 0), name, "positive definite matrices", matrices)
        logs = (axes * np.log(sizes)[:, None, :]) @ axes.transpose(0, 2, 1)
        return logs.reshape(len(matrices), -1)

    def resolve(self, values: Any, counts: Any = None) -> PositiveDefinite:
        """Replace "median" by its number, times the scale: see `kernelbp.kernels.resolve`."""
        if not isinstance(self.bandwidth, str) and self.scale == 1.0:
            return self
        return PositiveDefinite(self._number(self.features(values), counts))

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return the matrices as rows ``(n, d * d)``: see `kernelbp.kernels.check_values`."""
        matrices = _square_matrices(values, name)
        finite_rows(matrices.reshape(len(matrices), -1), name)
        if len(matrices):
            size = np.abs(matrices).max(axis=(1, 2))
            apart = np.abs(matrices - matrices.transpose(0, 2, 1)).max(axis=(1, 2))
            _refuse(apart > TOLERANCE * size, name, "symmetric matrices", matrices)
            self.features(values, name)
        return matrices.reshape(len(matrices), -1)

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """Distances ``(n, m)`` between the logarithms."""
        left = self.features(X, "X")
        return scipy.spatial.distance.cdist(*row_pair(left, left if Y is None else self.features(Y, "Y")))

    def centre(self, values: Any, weights: Any) -> Matrix:
        """Frechet means ``(nodes, d * d)`` of n matrices, for weights ``(nodes, n)``: exp of the mean log."""
        logs = self.features(values)
        size = math.isqrt(logs.shape[1])
        mean = (_checked_weights(weights, len(logs)) @ logs).reshape(-1, size, size)
        sizes, axes = np.linalg.eigh(mean)
        made = (axes * np.exp(sizes)[:, None, :]) @ axes.transpose(0, 2, 1)
        return made.reshape(len(mean), -1)

    def _number(self, features: Matrix, counts: Any = None) -> float:
        if not isinstance(self.bandwidth, str):
            return self.scale * self.bandwidth
        return self.scale * typical_size(scipy.spatial.distance.pdist(weighted_sample(features, counts)))


class Rankings(Algebra):
    """What kernels on rankings share: pairs of items and the order they stand in."""

    domain: ClassVar[Domain] = "other"
    centre_exponent: ClassVar[int] = 1
    """A consensus has the least mean distance, not the least mean square."""

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return ranks as finite rows ``(n, items)``: see `kernelbp.kernels.check_values`."""
        rows = finite_rows(values, name)
        if rows.shape[1] < 2 and len(rows):
            raise InputError(
                f"{name}: expected rankings of at least 2 items, one rank for each, got {describe(values)}"
            )
        return rows

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """Kendall's distance ``(n, m)``: how many pairs of items stand in another order.

        A pair tied in one ranking and not in the other counts half.
        """
        left, right = row_pair(X, Y)
        both, same_order = _pair_products(left, right)
        return (_strict_pairs(left)[:, None] + _strict_pairs(right)) / 2 - (both + same_order) / 2

    def centre(self, values: Any, weights: Any) -> Matrix:
        """For weights ``(nodes, n)`` rankings ``(nodes, items)`` of least mean distance to the n values.

        The best of the values themselves and of the items sorted by their mean rank (Borda's count): a Kemeny
        consensus over these candidates. Sorted ranks begin at the smallest rank among the values.
        """
        rows = self.check_values(values, "values")
        given = _checked_weights(weights, len(rows))
        costs = given @ self.distance(rows)
        best = costs.argmin(axis=1)
        chosen = rows[best].copy()
        sorted_items = np.argsort(given @ rows, axis=1, kind="stable")
        sums = np.empty_like(chosen)
        np.put_along_axis(
            sums, sorted_items, np.broadcast_to(np.arange(rows.shape[1]) + rows.min(), sums.shape), axis=1
        )
        for begin, end in _row_blocks(len(given), len(rows)):
            mean = (given[begin:end] * self.distance(sums[begin:end], rows)).sum(axis=1)
            better = mean < costs[np.arange(begin, end), best[begin:end]]
            chosen[begin:end][better] = sums[begin:end][better]
        return chosen


@dataclass(frozen=True)
class Kendall(Rankings):
    r"""Kendall's tau as a kernel on rankings.

    .. math:: k(x, y) = (\text{pairs of items in the same order} - \text{pairs in the other})
              / \sqrt{P(x) P(y)},

    with P the number of pairs that are not tied: Kendall's tau-b, 1 for equal rankings and -1 for reversed
    ones (Jiao and Vert, 2015). Renaming the items changes nothing.

    Notes
    -----
    Values are rank vectors ``(n, items)``: entry i is the rank of item i, and only the order of entries
    matters. Equal entries are ties. A permutation given as the list of its items in order is another thing:
    ``numpy.argsort`` turns the one into the other.

    Examples
    --------
    >>> from kernelbp.kernels import Kendall
    >>> Kendall()([[0, 1, 2], [1, 0, 2], [2, 1, 0]]).round(3)
    array([[ 1.   ,  0.333, -1.   ],
           [ 0.333,  1.   , -0.333],
           [-1.   , -0.333,  1.   ]])
    """

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n rankings against m."""
        left, right = row_pair(X, Y)
        strict = np.outer(_strict_pairs(left), _strict_pairs(right))
        return _pair_products(left, right)[1] / np.sqrt(np.maximum(strict, 1.0))

    def diag(self, X: Any) -> Matrix:
        """Diagonal ``(n,)``: ones, and 0 for a ranking all tied."""
        return (_strict_pairs(as_rows(X, "X")) > 0).astype(np.float64)


@dataclass(frozen=True)
class Mallows(Rankings):
    r"""The Mallows kernel on rankings, :math:`k(x, y) = \exp(-d(x, y) / \text{scale})`.

    d is Kendall's distance, the number of pairs of items in another order. It is a kernel for every scale
    (Jiao and Vert, 2015), and renaming the items changes nothing.

    Parameters
    ----------
    scale : float or "median"
        Pairs of items. "median" is the median distance between two training values.

    Notes
    -----
    Values are rank vectors ``(n, items)``, as for `Kendall`.

    Examples
    --------
    >>> from kernelbp.kernels import Mallows
    >>> Mallows(1.0)([[0, 1, 2], [1, 0, 2], [2, 1, 0]]).round(3)
    array([[1.   , 0.368, 0.05 ],
           [0.368, 1.   , 0.135],
           [0.05 , 0.135, 1.   ]])
    >>> Mallows().resolve([[0, 1, 2], [1, 0, 2], [2, 1, 0]])
    Mallows(scale=2.0)
    """

    scale: float | Literal["median"] = "median"

    def __post_init__(self) -> None:
        _set_number_or_median(self, "scale")

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n rankings against m."""
        left, right = row_pair(X, Y)
        if not len(left) or not len(right):
            return np.empty((len(left), len(right)))
        scale = self.resolve(left).scale
        assert not isinstance(scale, str)
        block = self.distance(left, right)
        with np.errstate(under="ignore", over="ignore"):
            block *= -1.0 / scale
            np.exp(block, out=block)
        return block

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(X))

    def resolve(self, values: Any, counts: Any = None) -> Mallows:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        if not isinstance(self.scale, str):
            return self
        sample = weighted_sample(values, counts)
        apart = self.distance(sample)[np.triu_indices(len(sample), 1)]
        return Mallows(typical_size(apart))


def frechet_mean(points: Any, weights: Any, *, sign_free: bool = False) -> Matrix:
    r"""Points of least mean squared angle on the sphere.

    .. math:: \arg\min_z \sum_j w_j \, \angle(z, x_j)^2

    By steps along the mean of the logarithms, from the normalised mean (the principal axis where signs are
    free): a local minimum, and the only one where the weighted points lie within a quarter turn of some
    point.

    Parameters
    ----------
    points : (n, d) unit vectors
    weights : (nodes, n) numbers of at least 0, a row for each mean wanted, or (n,) for one
    sign_free : bool
        Whether x and -x are one point, as for quaternions.

    Returns
    -------
    (nodes, d) unit vectors

    Examples
    --------
    >>> from kernelbp.kernels.groups import frechet_mean
    >>> frechet_mean([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.75, 0.25]]).round(3)
    array([[0.707, 0.707],
           [0.924, 0.383]])
    """
    rows = finite_rows(points, "points")
    given = _checked_weights(weights, len(rows))
    parts = [
        _means_of_block(rows, given[begin:end], sign_free)
        for begin, end in _row_blocks(len(given), max(len(rows), rows.shape[1] ** 2))
    ]
    return np.concatenate(parts) if parts else np.empty((0, rows.shape[1]))


def _means_of_block(rows: Matrix, weights: Matrix, sign_free: bool) -> Matrix:
    heaviest = rows[weights.argmax(axis=1)]
    if sign_free:
        products = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
        mean = np.linalg.eigh((weights @ products).reshape(-1, rows.shape[1], rows.shape[1]))[1][:, :, -1]
    else:
        mean = weights @ rows
        sizes = np.linalg.norm(mean, axis=1, keepdims=True)
        # where the mean is the middle of the ball it points nowhere
        mean = np.where(sizes > TOLERANCE, mean / np.maximum(sizes, TOLERANCE), heaviest)
    for _ in range(MOST_STEPS):
        cosines = np.clip(mean @ rows.T, -1.0, 1.0)
        stretch = _angle_over_sine(np.abs(cosines) if sign_free else cosines)
        pull = weights * stretch * (np.where(cosines < 0, -1.0, 1.0) if sign_free else 1.0)
        step = pull @ rows - (pull * cosines).sum(axis=1, keepdims=True) * mean
        length = np.linalg.norm(step, axis=1, keepdims=True)
        mean = np.cos(length) * mean + np.sin(length) * step / np.maximum(length, np.finfo(np.float64).tiny)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        if length.max(initial=0.0) < STEP:
            break
    if sign_free:
        mean *= np.where((mean * heaviest).sum(axis=1, keepdims=True) < 0, -1.0, 1.0)
    return mean


def _angle_over_sine(cosines: Matrix) -> Matrix:
    """What makes a tangent of a chord: angle / sin(angle); 0 at opposite points, which pull no way."""
    angle = np.arccos(cosines)
    sine = np.sqrt(1.0 - cosines**2)
    safe = sine > TOLERANCE
    return np.where(safe, angle / np.where(safe, sine, 1.0), np.where(cosines > 0, 1.0, 0.0))


def _angle_of_chord(chords: Matrix) -> Matrix:
    return 2.0 * np.arcsin(np.minimum(chords / 2.0, 1.0))


def _set_number_or_median(kernel: Any, name: str) -> None:
    given = getattr(kernel, name)
    if not is_median(given):
        object.__setattr__(kernel, name, positive_number(given, name, or_word=' or "median"'))


def _checked_weights(weights: Any, count: int) -> Matrix:
    """Weights as rows ``(nodes, n)`` that sum to one."""
    try:
        array = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if (
        array.ndim != 2
        or array.shape[1] != count
        or not (array >= 0).all()
        or not (array.sum(axis=1) > 0).all()
    ):
        raise InputError(
            f"weights: expected rows of {count} numbers of at least 0, one per value and not all 0, "
            f"got {describe(weights)}"
        )
    return array / array.sum(axis=1, keepdims=True)


def _row_blocks(count: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, CELLS // max(width, 1))
    for begin in range(0, count, step):
        yield begin, min(begin + step, count)


def _element_rows(values: Any, name: str) -> Matrix:
    """Matrices ``(n, r, c)``, or a column of n of them, as rows ``(n, r * c)``; rows as they are."""
    array = values
    if not (isinstance(values, np.ndarray) and values.dtype != object):
        try:
            array = np.asarray([np.asarray(value, dtype=np.float64) for value in values])
        except (TypeError, ValueError):
            raise InputError(
                f"{name}: expected arrays of real numbers, all of one shape, got {describe(values)}"
            ) from None
    if array.ndim == 3:
        array = array.reshape(len(array), -1)
    return as_rows(array, name)


def _square_matrices(values: Any, name: str) -> Matrix:
    rows = _element_rows(values, name)
    size = math.isqrt(rows.shape[1])
    if size**2 != rows.shape[1] and len(rows):
        raise InputError(
            f"{name}: expected square matrices (n, d, d) or rows (n, d * d) of their entries, "
            f"got {describe(values)}"
        )
    return rows.reshape(len(rows), size, size) if len(rows) else np.empty((0, 1, 1))


def _refuse(wrong: NDArray[np.bool_], name: str, expected: str, rows: Matrix) -> None:
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(
            f"{name}: expected {expected} (within {TOLERANCE:g}), got {rows[position].tolist()} "
            f"at position {position}"
        )


def _signs(rows: Matrix, count: int) -> Iterator[Matrix]:
    """Blocks ``(n, pairs)`` of 1 where item i stands before item j, -1 after, 0 tied, over all i < j.

    `count` is the most rows of any array to be matched with these: it sets how many pairs come at a time.
    """
    first, second = np.triu_indices(rows.shape[1], 1)
    step = max(1, CELLS // max(count, 1))
    for begin in range(0, len(first), step):
        part = slice(begin, begin + step)
        yield np.sign(rows[:, second[part]] - rows[:, first[part]])


def _strict_pairs(rows: Matrix) -> Matrix:
    """How many pairs of items are not tied, ``(n,)``."""
    total = np.zeros(len(rows))
    for signs in _signs(rows, len(rows)):
        total += np.abs(signs).sum(axis=1)
    return total


def _pair_products(left: Matrix, right: Matrix) -> tuple[Matrix, Matrix]:
    """For n rankings against m: pairs tied in neither, and those in one order less the others."""
    both, same = np.zeros((len(left), len(right))), np.zeros((len(left), len(right)))
    count = max(len(left), len(right))
    for ours, theirs in zip(_signs(left, count), _signs(right, count), strict=True):
        same += ours @ theirs.T
        # without ties, the usual case, there is nothing to multiply out
        both += ours.shape[1] if ours.all() and theirs.all() else np.abs(ours) @ np.abs(theirs).T
    return both, same


SPACES = ("Circle", "Hypercube", "Hypersphere", "SpecialOrthogonal")
"""Spaces of GeometricKernels that can be named, and so stored."""
LENGTHSCALES = tuple(2.0 ** (power / 2) for power in range(-8, 7))
"""What "median" chooses from."""
SPACE = re.compile(r"(\w+)\((\d{0,4})\)")


@dataclass(frozen=True)
class Geometric(Algebra):
    r"""Heat and Matérn kernels of the GeometricKernels library, on the manifolds it knows.

    Needs ``pip install "kernelbp[manifolds]"``. For rotations, spheres and angles `Rotation`, `Sphere` and
    `Torus` have closed forms and need nothing; this is for Matérn smoothness, and for spaces they do not
    cover.

    Parameters
    ----------
    space : str or a kernel of GeometricKernels
        "Circle()", "Hypersphere(d)" in d + 1 coordinates, "SpecialOrthogonal(n)" or "Hypercube(d)". Of a
        kernel given in its place, one on a graph or a mesh for instance, a model file keeps nothing: it must
        be handed to `kernelbp.Model.load` again.
    lengthscale : float or "median"
        "median" is the one, of half powers of two from 1/16 to 8, at which a typical pair of different training
        values compares most nearly as 1/e.
    smoothness : float
        Matérn's nu; infinite for the heat kernel.

    Notes
    -----
    Values are rows; matrices come as ``(n, r, c)`` or as rows ``(n, r * c)`` of their entries. The library's
    kernels on spaces without bound (hyperbolic space, positive definite matrices) draw random features anew
    in every call, which takes seconds: too slow to learn with.

    Examples
    --------
    >>> from kernelbp.kernels import Geometric
    >>> Geometric("Hypersphere(2)", lengthscale=0.5, smoothness=2.5)
    Geometric(space='Hypersphere(2)', lengthscale=0.5, smoothness=2.5)
    """

    space: Any
    lengthscale: float | Literal["median"] = 1.0
    smoothness: float = math.inf

    domain: ClassVar[Domain] = "other"
    takes: ClassVar[Takes] = "matrices"

    def __post_init__(self) -> None:
        _set_number_or_median(self, "lengthscale")
        if self.smoothness != math.inf:
            object.__setattr__(self, "smoothness", positive_number(self.smoothness, "smoothness"))
        if isinstance(self.space, str):
            found = SPACE.fullmatch(self.space)
            if found is None or found[1] not in SPACES or (found[1] == "Circle") != (found[2] == ""):
                raise InputError(
                    f"space: expected a kernel of GeometricKernels or one of {', '.join(SPACES)} with its "
                    f"size in brackets, such as 'Hypersphere(2)', got {self.space!r}"
                )
        elif not all(hasattr(self.space, name) for name in ("K", "K_diag", "space")):
            raise InputError(
                "space: expected the name of a space or a kernel of GeometricKernels, "
                f"got {describe(self.space)}"
            )

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n values against m."""
        left = self._elements(X, "X")
        right = left if Y is None else self._elements(Y, "Y")
        if not len(left) or not len(right):
            return np.empty((len(left), len(right)))
        parameters = self.resolve(X)._parameters()
        return np.asarray(self._kernel().K(parameters, left, right), dtype=np.float64)

    def diag(self, X: Any) -> Matrix:
        """Diagonal ``(n,)``."""
        elements = self._elements(X, "X")
        if not len(elements):
            return np.empty(0)
        parameters = self.resolve(X)._parameters()
        return np.asarray(self._kernel().K_diag(parameters, elements), dtype=np.float64).reshape(-1)

    def resolve(self, values: Any, counts: Any = None) -> Geometric:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        return resolved_by_likeness(self, "lengthscale", LENGTHSCALES, values, counts)

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return finite rows of the length the space asks for: see `kernelbp.kernels.check_values`."""
        self._elements(values, name)
        return finite_rows(_element_rows(values, name), name)

    def _kernel(self) -> Any:
        return _geometric_kernel(self.space) if isinstance(self.space, str) else self.space

    def _parameters(self) -> dict[str, Matrix]:
        return {"nu": np.array([self.smoothness]), "lengthscale": np.array([self.lengthscale])}

    def _elements(self, values: Any, name: str) -> NDArray[Any]:
        """Values in the shape and of the type the space asks for."""
        rows = _element_rows(values, name)
        space = self._kernel().space
        sizes = space.element_shape
        shape = tuple(int(size) for size in (sizes() if callable(sizes) else sizes))
        if rows.shape[1] != math.prod(shape) and len(rows):
            raise InputError(
                f"{name}: expected values of shape {shape} each, for {self.space}, got {describe(values)}"
            )
        discrete = type(space).__name__ == "HypercubeGraph"
        elements = rows.reshape(len(rows), *shape) if len(rows) else np.empty((0, *shape))
        return elements.astype(bool) if discrete else elements


@functools.lru_cache(maxsize=16)
def _geometric_kernel(written: str) -> Any:
    try:
        spaces = importlib.import_module("geometric_kernels.spaces")
        make = importlib.import_module("geometric_kernels.kernels").MaternGeometricKernel
    except ImportError:
        raise UnsupportedError(
            f"the kernel Geometric({written!r}) needs the library GeometricKernels: "
            'pip install "kernelbp[manifolds]"'
        ) from None
    found = SPACE.fullmatch(written)
    assert found is not None
    own = {"Hypercube": "HypercubeGraph"}
    return make(getattr(spaces, own.get(found[1], found[1]))(*([int(found[2])] if found[2] else [])))
