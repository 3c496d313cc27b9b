"""A kernel on finitely many values of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain
from kernelbp.kernels.inputs import describe, is_numeric, refuse_not_finite


@dataclass(frozen=True)
class Delta(Algebra):
    r"""Equal or not: :math:`k(x, y) = 1` if x = y, else 0.

    Values are anything hashable (words, numbers, tuples, frozensets), or rows of a numeric array, equal if
    all their entries are.

    Examples
    --------
    >>> from kernelbp.kernels import Delta
    >>> Delta()(["sun", "rain", "sun"], ["rain", "sun"])
    array([[0., 1.],
           [1., 0.],
           [0., 1.]])
    """

    domain: ClassVar[Domain] = "finite"

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of n values against m."""
        if _is_column(X) and (Y is None or _is_column(Y)):
            # numbers are their own codes
            equal: NDArray[np.bool_] = np.equal(X.reshape(-1, 1), (X if Y is None else Y).reshape(-1))
            return equal.astype(np.float64)
        codes: dict[Any, int] = {}
        left = _codes(X, codes, "X")
        right = left if Y is None else _codes(Y, codes, "Y")
        return np.equal(left[:, None], right).astype(np.float64)

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Ones ``(n,)``."""
        return np.ones(len(X))

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse values that cannot be hashed, and NaN: see `kernelbp.kernels.check_values`."""
        if is_numeric(values):
            refuse_not_finite(values, name)
        codes: dict[Any, int] = {}
        _codes(values, codes, name)
        if any(isinstance(value, float) and value != value for value in codes):
            raise InputError(f"{name}: expected values that equal themselves, got NaN")
        return values


def _is_column(values: Any) -> bool:
    return is_numeric(values) and (values.ndim == 1 or values.shape[1:] == (1,))


def _codes(values: Any, codes: dict[Any, int], name: str) -> NDArray[np.int64]:
    """Give equal values equal numbers ``(n,)``, those of `codes` first; new ones are added to it."""
    if is_numeric(values) and values.size > 0:
        # a numeric array is coded by its few distinct rows, not value by value
        rows = values.reshape(len(values), -1)
        rows = rows[:, 0] if rows.shape[1] == 1 else rows
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        return _codes(_hashable(distinct), codes, name)[inverse.reshape(-1)]
    listed = _hashable(values) if isinstance(values, np.ndarray) else values
    if isinstance(listed, str | bytes) or not hasattr(listed, "__len__"):
        raise InputError(f"{name}: expected a sequence of values, got {describe(listed)}")
    numbered = np.empty(len(listed), dtype=np.int64)
    for position, value in enumerate(listed):
        try:
            numbered[position] = codes.setdefault(value, len(codes))
        except TypeError:
            raise InputError(
                f"{name}: expected hashable values (a tuple for a list, a frozenset for a set), "
                f"got {describe(value)} at position {position}"
            ) from None
    return numbered


def _hashable(array: NDArray[Any]) -> list[Any]:
    """The values of an array as a list: entries of ``(n,)`` and ``(n, 1)``, else rows as tuples."""
    if array.ndim == 1 or array.shape[1:] == (1,):
        listed: list[Any] = array.reshape(-1).tolist()
        return listed
    return [tuple(row) for row in array.tolist()]
