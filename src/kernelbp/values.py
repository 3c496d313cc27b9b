"""How a column of values is held: float rows for numbers, an object array for everything else.

Inside the library a column is always one of

- ``(n, d)`` float64: n vectors of R^d; scalars are d = 1,
- ``(n,)`` object: n values of any other kind (strings, frozensets, graphs, ...),

so that ``column[indices]`` and ``len(column)`` work for all of them. `Kind` remembers how the
user wrote them, so that answers come back in the same form.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError

__all__ = ["Column", "Kind", "as_column", "distinct", "is_number", "is_whole", "missing_rows"]

Column = NDArray[Any]


@dataclass(frozen=True)
class Kind:
    """How a user writes the values of one variable.

    Attributes
    ----------
    form : "scalar", "vector" or "object"
    dimension : length of a vector; 1 for scalars, 0 for objects
    integer : whether scalars were given as whole numbers
    """

    form: str
    dimension: int
    integer: bool = False

    def restore(self, column: Column) -> NDArray[Any]:
        """Give a column back as the user writes it: scalars lose their second axis."""
        if self.form != "scalar":
            return column
        flat = column[..., 0]
        whole = self.integer and bool((flat == np.rint(flat)).all())
        return flat.astype(np.int64) if whole else flat

    def merged(self, other: Kind, name: str) -> Kind:
        """The kind of two columns of one variable together, or an error if they cannot be mixed."""
        if (self.form, self.dimension) != (other.form, other.dimension):
            raise InputError(
                f"{name}: values of one variable must be of one kind, got {self.describe()} and "
                f"{other.describe()}"
            )
        return Kind(self.form, self.dimension, self.integer and other.integer)

    def describe(self) -> str:
        """In words, for error texts."""
        return {"scalar": "numbers", "object": "objects"}.get(
            self.form, f"vectors of length {self.dimension}"
        )


def as_column(given: Any, name: str, *, allow_missing: bool = False) -> tuple[Column, Kind]:
    """Bring values into the library's form.

    Parameters
    ----------
    given : array or sequence of n values
        Numbers ``(n,)``, vectors ``(n, d)``, or a sequence of anything else.
    name : str
        What to call the argument in an error.
    allow_missing : bool
        Whether NaN (or None among objects) is let through.

    Returns
    -------
    column : (n, d) float64 or (n,) object
    kind : Kind

    Examples
    --------
    >>> as_column([1, 2, 3], "ages")[0].shape
    (3, 1)
    >>> as_column(["ab", "c"], "words")[0]
    array(['ab', 'c'], dtype=object)
    """
    if isinstance(given, str | bytes | dict) or not hasattr(given, "__len__"):
        raise InputError(f"{name}: expected an array or a sequence of values, got {type(given).__name__}")
    if isinstance(given, np.ma.MaskedArray):
        given = _unmasked(given, name)
    array = given if isinstance(given, np.ndarray) else _from_sequence(given)
    if array.dtype.kind not in "fiub":
        return _object_column(array, name, allow_missing)
    if array.ndim not in (1, 2):
        raise InputError(f"{name}: expected one axis (n numbers) or two (n vectors), got shape {array.shape}")
    if array.ndim == 2 and array.shape[1] == 0:
        raise InputError(f"{name}: vectors have no entries, shape {array.shape}")
    kind = Kind("scalar", 1, array.dtype.kind in "iub") if array.ndim == 1 else Kind("vector", array.shape[1])
    column = np.ascontiguousarray(array, dtype=np.float64).reshape(
        len(array), -1 if len(array) else kind.dimension
    )
    if not allow_missing and not np.isfinite(column).all():
        bad = int(np.flatnonzero(~np.isfinite(column).all(axis=1))[0])
        raise InputError(
            f"{name}: value {bad} is NaN or infinite ({array[bad]}); remove missing examples before learning"
        )
    if allow_missing and np.isinf(column).any():
        bad = int(np.flatnonzero(np.isinf(column).any(axis=1))[0])
        raise InputError(f"{name}: value {bad} is infinite; give NaN for 'not observed'")
    return column, kind


def _unmasked(given: Any, name: str) -> NDArray[Any]:
    """A masked array with NaN where it is masked."""
    if not np.ma.is_masked(given):
        return np.asarray(given.data)
    if given.dtype.kind not in "fiub":
        raise InputError(
            f"{name}: masked arrays should hold numbers, got {given.dtype}; give None where missing"
        )
    filled: NDArray[Any] = given.astype(np.float64).filled(np.nan)
    return filled


def is_number(value: Any) -> bool:
    """Whether a setting is a real number (and not a truth value)."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether a setting is a whole number (and not a truth value)."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _from_sequence(given: Sequence[Any]) -> NDArray[Any]:
    if all(_is_number(value) or value is None for value in given):
        some_missing = any(value is None for value in given)
        filled = [np.nan if value is None else value for value in given] if some_missing else given
        return np.asarray(filled) if len(given) else np.empty(0)
    if all(_is_row(value) for value in given) and len({len(value) for value in given}) == 1:
        return np.asarray(given, dtype=np.float64)
    objects = np.empty(len(given), dtype=object)
    for index, value in enumerate(given):
        objects[index] = value
    return objects


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "fiub"
    return isinstance(value, (numbers.Real, np.bool_))


def _is_row(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "fiub"
    return isinstance(value, list | tuple) and all(_is_number(x) for x in value)


def _object_column(array: NDArray[Any], name: str, allow_missing: bool) -> tuple[Column, Kind]:
    if array.dtype.kind == "c":
        raise InputError(
            f"{name}: complex numbers are not supported; give real and imaginary parts as a vector"
        )
    if array.ndim != 1:
        raise InputError(f"{name}: objects must come as a one-dimensional array, got shape {array.shape}")
    column = array.astype(object)
    if not allow_missing:
        for index, value in enumerate(column):
            if _is_missing(value):
                raise InputError(
                    f"{name}: value {index} is missing ({value}); remove missing examples before learning"
                )
    return column, Kind("object", 0)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def missing_rows(column: Column, name: str) -> NDArray[np.bool_]:
    """Which values are missing: NaN (all entries of a vector) or None. Shape ``(n,)``."""
    if column.dtype == object:
        return np.fromiter((_is_missing(value) for value in column), dtype=bool, count=len(column))
    absent = np.isnan(column)
    whole, some = absent.all(axis=1), absent.any(axis=1)
    if (whole != some).any():
        bad = int(np.flatnonzero(whole != some)[0])
        raise InputError(
            f"{name}: vector {bad} has some entries missing; give NaN in all of them (not observed) or in none"
        )
    return np.asarray(whole)


def distinct(column: Column) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First positions of the distinct values, and for each value the number of its class.

    Numbers and vectors come out sorted, so the answer does not depend on the order they came in;
    objects come out in order of appearance, equal if their hashes and ``==`` say so, and each on its
    own if they cannot be hashed.

    Returns
    -------
    first : (u,) positions
    classes : (n,) with ``column[first][classes]`` equal to ``column``
    """
    if column.dtype != object:
        rows = column[:, 0] if column.shape[1] == 1 else column
        _, first, classes = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return first, classes.reshape(-1)
    numbers_of: dict[Any, int] = {}
    first_positions: list[int] = []
    classes = np.empty(len(column), dtype=np.intp)
    for position, value in enumerate(column):
        try:
            key = value
            found = numbers_of.get(key)
        except TypeError:
            key = ("unhashable", id(value))
            found = numbers_of.get(key)
        if found is None:
            found = numbers_of[key] = len(first_positions)
            first_positions.append(position)
        classes[position] = found
    return np.asarray(first_positions, dtype=np.intp), classes
