"""Kernels on sets and histograms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain, Takes
from kernelbp.kernels.inputs import (
    as_rows,
    describe,
    finite_rows,
    is_numeric,
    positive_number,
    row_pair,
    weighted_sample,
)
from kernelbp.kernels.vectors import typical_size

Matrix = NDArray[np.float64]

CELLS = 1 << 21
"""Cells of an intermediate array made at a time."""


@dataclass(frozen=True)
class Jaccard(Algebra):
    r"""The share of members two sets have in common.

    .. math:: k(A, B) = \frac{|A \cap B|}{|A \cup B|},

    and 1 for two empty sets. Values are a sequence of n collections of hashable members (frozensets, so
    that equal ones are merged and a model can be stored), in any order, a repeated member counted once; or
    a numeric array ``(n, members)`` of 0/1 indicator rows.

    Examples
    --------
    >>> from kernelbp.kernels import Jaccard
    >>> Jaccard()([{"sun", "wind"}, {"sun"}, {"rain", "wind"}]).round(3)
    array([[1.   , 0.5  , 0.333],
           [0.5  , 1.   , 0.   ],
           [0.333, 0.   , 1.   ]])
    >>> import numpy as np
    >>> Jaccard()(np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]])).round(3)[0]
    array([1.   , 0.5  , 0.333])
    """

    domain: ClassVar[Domain] = "other"
    takes: ClassVar[Takes] = "sets"

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n sets against m."""
        if Y is not None and len(X) and len(Y) and is_numeric(X) != is_numeric(Y):
            raise InputError(f"Y: expected sets in the form of X, got {describe(Y)} against {describe(X)}")
        codes: dict[Any, int] = {}
        left = _incidence(X, codes, "X")
        right = left if Y is None else _incidence(Y, codes, "Y")
        # members that only Y has were not known when X was coded
        width = max(left.shape[1], right.shape[1])
        left.resize((left.shape[0], width))
        right.resize((right.shape[0], width))
        common = (left @ right.T).toarray()
        union = np.add.outer(left.sum(axis=1), right.sum(axis=1)) - common
        return np.where(union > 0, common / np.maximum(union, 1.0), 1.0)

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(X))

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse what is not a set: see `kernelbp.kernels.check_values`."""
        _incidence(values, {}, name)
        return values

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """Jaccard's distance ``(n, m)``, the share of members not in common: a metric."""
        return 1.0 - self(X, Y)


@dataclass(frozen=True)
class Tanimoto(Algebra):
    r"""Jaccard's kernel for vectors of counts or amounts.

    .. math:: k(x, y) = \frac{\langle x, y \rangle}
              {\lVert x \rVert^2 + \lVert y \rVert^2 - \langle x, y \rangle},

    and 1 for two vectors of zeros. Values are rows ``(n, d)`` of numbers of at least 0. On 0/1 rows it is
    `Jaccard`.

    Examples
    --------
    >>> from kernelbp.kernels import Tanimoto
    >>> Tanimoto()([[2.0, 0.0], [1.0, 1.0], [0.0, 0.0]]).round(3)
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """

    domain: ClassVar[Domain] = "other"

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of ``(n, d)`` against ``(m, d)`` values."""
        left, right = row_pair(X, Y)
        sizes = np.add.outer(np.square(left).sum(axis=1), np.square(right).sum(axis=1))
        # from differences, so that it is exactly 1 at equal rows: with s the sizes and d the squared
        # distance, <x, y> = (s - d) / 2 and the quotient is (s - d) / (s + d)
        apart = (
            scipy.spatial.distance.cdist(left, right, "sqeuclidean")
            if len(left) and len(right)
            else np.zeros(sizes.shape)
        )
        total = sizes + apart
        return np.where(total > 0, (sizes - apart) / np.where(total > 0, total, 1.0), 1.0)

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(as_rows(X, "X")))

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return rows of numbers of at least 0: see `kernelbp.kernels.check_values`."""
        return _amounts(values, name)

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """One less the kernel, ``(n, m)``."""
        return 1.0 - self(X, Y)


@dataclass(frozen=True)
class ChiSquare(Algebra):
    r"""The exponential chi-square kernel on histograms.

    .. math:: k(x, y) = \exp\left( -\sigma \sum_j \frac{(x_j - y_j)^2}{x_j + y_j} \right),

    where a bin empty in both counts nothing. Values are rows ``(n, bins)`` of counts or shares of at least
    0; of counts the total matters, of shares it is the same for all.

    Parameters
    ----------
    concentration : float or "median"
        :math:`\sigma`. "median" makes the kernel 1/e for a typical pair of training values.

    Examples
    --------
    >>> from kernelbp.kernels import ChiSquare
    >>> ChiSquare(0.5)([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]).round(3)
    array([[1.   , 0.717, 0.368],
           [0.717, 1.   , 0.717],
           [0.368, 0.717, 1.   ]])
    """

    concentration: float | Literal["median"] = "median"

    domain: ClassVar[Domain] = "other"

    def __post_init__(self) -> None:
        if not (isinstance(self.concentration, str) and self.concentration == "median"):
            number = positive_number(self.concentration, "concentration", or_word=' or "median"')
            object.__setattr__(self, "concentration", number)

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of ``(n, bins)`` against ``(m, bins)`` values."""
        left, right = row_pair(X, Y)
        if not len(left) or not len(right):
            return np.empty((len(left), len(right)))
        concentration = self.resolve(left).concentration
        assert not isinstance(concentration, str)
        with np.errstate(under="ignore"):
            return np.exp(-concentration * _chi_square(left, right))

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(as_rows(X, "X")))

    def resolve(self, values: Any, counts: Any = None) -> ChiSquare:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        if not isinstance(self.concentration, str):
            return self
        sample = weighted_sample(values, counts)
        return ChiSquare(1.0 / typical_size(_chi_square(sample, sample)[np.triu_indices(len(sample), 1)]))

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return rows of numbers of at least 0: see `kernelbp.kernels.check_values`."""
        return _amounts(values, name)

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """The chi-square distance ``(n, m)``, the root of the sum above."""
        return np.sqrt(_chi_square(*row_pair(X, Y)))


@dataclass(frozen=True)
class Intersection(Algebra):
    r"""What two histograms have in common, :math:`k(x, y) = \sum_j \min(x_j, y_j)`.

    Values are rows ``(n, bins)`` of counts or shares of at least 0. Of shares, which sum to one, it is one
    on the diagonal.

    Examples
    --------
    >>> from kernelbp.kernels import Intersection
    >>> Intersection()([[3.0, 1.0], [1.0, 2.0]])
    array([[4., 2.],
           [2., 3.]])
    """

    domain: ClassVar[Domain] = "other"

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of ``(n, bins)`` against ``(m, bins)`` values."""
        left, right = row_pair(X, Y)
        sums = np.add.outer(left.sum(axis=1), right.sum(axis=1))
        # min(x, y) = (x + y - |x - y|) / 2
        return (sums - self.distance(left, right)) / 2.0

    def diag(self, X: Any) -> Matrix:
        """Sums of the rows ``(n,)``."""
        return as_rows(X, "X").sum(axis=1)

    def check_values(self, values: Any, name: str) -> Matrix:
        """Return rows of numbers of at least 0: see `kernelbp.kernels.check_values`."""
        return _amounts(values, name)

    def distance(self, X: Any, Y: Any = None) -> Matrix:
        """What they do not have in common, ``(n, m)``: the sum of absolute differences."""
        left, right = row_pair(X, Y)
        apart: Matrix = (
            scipy.spatial.distance.cdist(left, right, "cityblock")
            if len(left) and len(right)
            else np.zeros((len(left), len(right)))
        )
        return apart


def _chi_square(left: Matrix, right: Matrix) -> Matrix:
    """The sum over bins of (x - y)^2 / (x + y), ``(n, m)``."""
    total = np.zeros((len(left), len(right)))
    step = max(1, CELLS // max(len(right), 1))
    for begin in range(0, len(left), step):
        rows = slice(begin, begin + step)
        for x, y in zip(left[rows].T, right.T, strict=True):
            size = np.add.outer(x, y)
            apart = np.square(np.subtract.outer(x, y))
            total[rows] += np.divide(apart, size, out=np.zeros_like(size), where=size > 0)
    return total


def _amounts(values: Any, name: str) -> Matrix:
    rows = finite_rows(values, name)
    wrong = (rows < 0).any(axis=1)
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(
            f"{name}: expected counts or shares of at least 0, got {rows[position].min():g} "
            f"at position {position}"
        )
    return rows


def _incidence(values: Any, codes: dict[Any, int], name: str) -> scipy.sparse.csr_array:
    """Sets as sparse 0/1 rows ``(n, members)``; members are numbered in `codes`, new ones added to it."""
    expected = "expected 0/1 indicator rows (n, members) or a sequence of collections of hashable members"
    if is_numeric(values) and values.size > 0:
        if values.ndim != 2 or ((values != 0) & (values != 1)).any():
            raise InputError(f"{name}: {expected}, got {describe(values)}")
        return scipy.sparse.csr_array(values.astype(np.float64))
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(f"{name}: {expected}, got {describe(values)}")
    # types and members are looked at in bulk, which is quick; only if one is wrong, where the trouble is
    if not all(map(_is_collection, set(map(type, values)))):
        position = next(i for i, members in enumerate(values) if not _is_collection(type(members)))
        raise InputError(f"{name}: {expected}, got {describe(values[position])} at position {position}")
    try:
        once = [members if isinstance(members, frozenset | set) else set(members) for members in values]
    except TypeError:
        raise InputError(f"{name}: {expected}, got members that cannot be hashed") from None
    listed = list(chain.from_iterable(once))
    for member in dict.fromkeys(listed):
        codes.setdefault(member, len(codes))
    columns = np.fromiter(map(codes.__getitem__, listed), dtype=np.int64, count=len(listed))
    ends = np.concatenate([[0], np.cumsum([len(members) for members in once], dtype=np.int64)])
    return scipy.sparse.csr_array((np.ones(len(listed)), columns, ends), shape=(len(once), len(codes)))


def _is_collection(kind: type) -> bool:
    return issubclass(kind, Collection) and not issubclass(kind, str | bytes | Mapping)
