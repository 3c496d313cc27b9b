"""How a column of values is held: float rows for numbers, an object array for everything else.

Inside the library a column is always one of

- ``(n, d)`` float64: n vectors of R^d; scalars are d = 1,
- ``(n,)`` object: n values of any other kind (strings, frozensets, graphs, ...),

so that ``column[indices]`` and ``len(column)`` work for all of them. `Kind` remembers how the
user wrote them, so that answers come back in the same form.

Rows of whole numbers may be vectors, strings written in numbers or sets: only the variable's kernel knows. So
values are brought into form in two steps. `as_column` looks at the values alone, which is all that a graph can
do; `taken_up`, once the kernel is at hand, holds them the way the kernel's attribute ``takes`` asks for (see
`kernelbp.kernels.contract`). `column_of` does both.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError

__all__ = [
    "Column",
    "Kind",
    "as_column",
    "column_of",
    "distinct",
    "is_number",
    "is_whole",
    "missing_rows",
    "taken_up",
]

Column = NDArray[Any]

LARGEST_WHOLE = 2.0**53
"""Beyond it float64 does not tell neighbouring whole numbers apart, and so not two symbols or labels."""


@dataclass(frozen=True)
class Kind:
    """How a user writes the values of one variable.

    Attributes
    ----------
    form : "scalar", "vector" or "object"
    dimension : length of a vector; 1 for scalars, 0 for objects
    integer : whether scalars were given as whole numbers
    shape : (rows, columns) of matrices, which are held as vectors of their entries; else ()
    listed : whether vectors were written as a sequence of sequences and not as an array; for `taken_up` only
    """

    form: str
    dimension: int
    integer: bool = False
    shape: tuple[int, ...] = ()
    listed: bool = field(default=False, compare=False, repr=False)

    def restore(self, column: Column) -> NDArray[Any]:
        """Give a column back as the user writes it: scalars lose their second axis, matrices regain theirs."""
        if self.shape:
            return column.reshape(*column.shape[:-1], *self.shape)
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
        return Kind(self.form, self.dimension, self.integer and other.integer, self.shape or other.shape)

    def describe(self) -> str:
        """In words, for error texts."""
        if self.shape:
            return f"matrices of shape {self.shape}"
        return {"scalar": "numbers", "object": "objects"}.get(
            self.form, f"vectors of length {self.dimension}"
        )


def as_column(given: Any, name: str, *, allow_missing: bool = False) -> tuple[Column, Kind]:
    """Bring values into the library's form.

    Parameters
    ----------
    given : array or sequence of n values
        Numbers ``(n,)``, vectors ``(n, d)``, matrices ``(n, r, c)``, or a sequence of anything else.
    name : str
        What to call the argument in an error.
    allow_missing : bool
        Whether NaN (or None) is let through.

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
    # a set has no order, and a networkx graph (which has a length) is one value
    one = isinstance(given, str | bytes | dict | set | frozenset) or hasattr(given, "is_directed")
    if one or not hasattr(given, "__len__"):
        raise InputError(f"{name}: expected an array or a sequence of values, got {type(given).__name__}")
    if isinstance(given, np.ma.MaskedArray):
        given = _unmasked(given, name)
    array = given if isinstance(given, np.ndarray) else _from_sequence(given)
    if array.dtype.kind not in "fiub":
        return _object_column(array, name, allow_missing)
    if array.ndim not in (1, 2, 3):
        raise InputError(_axes_text(name, array.shape))
    listed = not isinstance(given, np.ndarray)
    if array.ndim > 1 and 0 in array.shape[1:] and not (listed and array.ndim == 2):
        raise InputError(f"{name}: vectors have no entries, shape {array.shape}")
    shape = array.shape[1:] if array.ndim == 3 else ()
    if array.ndim == 1:
        kind = Kind("scalar", 1, array.dtype.kind in "iub")
    else:
        kind = Kind("vector", int(np.prod(array.shape[1:])), False, shape, listed)
    column = np.ascontiguousarray(array, dtype=np.float64).reshape(len(array), kind.dimension)
    if not allow_missing and not np.isfinite(column).all():
        bad = int(np.flatnonzero(~np.isfinite(column).all(axis=1))[0])
        raise InputError(
            f"{name}: value {bad} is NaN or infinite ({array[bad]}); remove missing examples before learning"
        )
    if allow_missing and np.isinf(column).any():
        bad = int(np.flatnonzero(np.isinf(column).any(axis=1))[0])
        raise InputError(f"{name}: value {bad} is infinite; give NaN for 'not observed'")
    return column, kind


def column_of(kernel: Any, given: Any, name: str, like: Kind | None = None) -> tuple[Column, Kind]:
    """Bring values into the form a kernel takes: `as_column`, then `taken_up`.

    Parameters
    ----------
    kernel : Kernel
        That of the values' variable.
    given : array or sequence of n values
    name : str
        What to call the argument in an error.
    like : Kind, optional
        That of the variable's other values, once known.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, Spectrum
    >>> column_of(Gaussian(), [(1, 2), (3, 4)], "x")[0]
    array([[1., 2.],
           [3., 4.]])
    >>> column_of(Spectrum(2), [(1, 2), (3, 4)], "x")[0]
    array([(1, 2), (3, 4)], dtype=object)
    """
    return taken_up(kernel, *as_column(given, name), name, like)


def taken_up(
    kernel: Any, column: Column, kind: Kind, name: str, like: Kind | None = None
) -> tuple[Column, Kind]:
    """Hold a column of `as_column`, nothing missing in it, the way a kernel asks for.

    Parameters
    ----------
    kernel : Kernel
        Whose attribute ``takes`` is read, "rows" if it has none; see `kernelbp.kernels.contract`.
    column, kind : as `as_column` returns them
    name : str
        What to call the argument in an error.
    like : Kind, optional
        That of the variable's other values, once known: sets in lists are read as indicators where it has those.
    """
    takes = getattr(kernel, "takes", "rows")
    if takes == "matrices" and kind.form == "object":
        column, kind = _matrices(column, kind)
    if kind.shape and takes != "matrices":
        raise InputError(_axes_text(name, (len(column), *kind.shape)))
    if takes == "sequences":
        if kind.form == "scalar" and len(column):
            raise InputError(
                f"{name}: expected strings or sequences of whole numbers, got numbers; "
                "write a sequence of one as a tuple"
            )
        return _objects([_as_sequence(value) for value in _whole_rows(column, name)]), Kind("object", 0)
    indicators = kind.form == "vector" and (not kind.listed or (like is not None and like.form == "vector"))
    if takes == "sets" and kind.form != "scalar" and not indicators:
        if kind.form == "vector" and _may_be_indicators(column):
            raise InputError(
                f"{name}: lists of 0 and 1 may be indicators or labels; give indicators as an array, "
                "numpy.array(...), and sets of labels as frozensets"
            )
        return _objects([_as_set(value) for value in _whole_rows(column, name)]), Kind("object", 0)
    if kind.form == "vector" and not kind.dimension:
        raise InputError(f"{name}: vectors have no entries, shape {column.shape}")
    return column, replace(kind, listed=False)


def _axes_text(name: str, shape: tuple[int, ...]) -> str:
    return f"{name}: expected one axis (n numbers) or two (n vectors), got shape {shape}"


def _objects(values: Sequence[Any]) -> Column:
    column = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        column[index] = value
    return column


def _whole_rows(column: Column, name: str) -> Iterable[Any]:
    """The values of a column one by one, rows as tuples of whole numbers."""
    if column.dtype == object:
        return column
    wrong = ((column != np.rint(column)) | (np.abs(column) >= LARGEST_WHOLE)).any(axis=1)
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise InputError(
            f"{name}: expected whole numbers below 2**53, got {column[bad].tolist()!r:.80} at position {bad}"
        )
    return [tuple(row) for row in column.astype(np.int64).tolist()]


def _as_sequence(value: Any) -> Any:
    """A sequence of whole numbers as a tuple, which can be compared and stored; what is none as it is."""
    if not isinstance(value, list | tuple | range | np.ndarray):
        return value
    if isinstance(value, np.ndarray) and value.ndim != 1:
        return value
    try:
        made = tuple(int(symbol) for symbol in value)
        return made if all(map(_equal, made, value)) else value
    except (TypeError, ValueError, OverflowError):
        return value


def _equal(made: int, given: Any) -> bool:
    return not isinstance(given, bool | np.bool_ | str | bytes) and bool(made == given)


def _as_set(value: Any) -> Any:
    """A collection as a frozenset, which can be compared and stored; what is none as it is."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple | set | range):
        return value
    try:
        return frozenset(member.item() if isinstance(member, np.generic) else member for member in value)
    except TypeError:  # a member that cannot be hashed
        return value


def _may_be_indicators(column: Column) -> bool:
    """Whether rows hold nothing but 0 and 1, and some the same one twice: no one writes a set so."""
    zeros, ones = (column == 0).sum(axis=1), (column == 1).sum(axis=1)
    return bool((zeros + ones == column.shape[1]).all() and ((zeros > 1) | (ones > 1)).any())


def _matrices(column: Column, kind: Kind) -> tuple[Column, Kind]:
    """Objects that are all matrices of one shape, as rows of their entries; others as they are."""
    try:
        array = np.asarray([np.asarray(value, dtype=np.float64) for value in column])
    except (TypeError, ValueError):
        return column, kind
    if array.ndim != 3 or array.size == 0:
        return column, kind
    shape = array.shape[1:]
    return array.reshape(len(array), -1), Kind("vector", shape[0] * shape[1], False, shape)


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
    sizes = {len(value) if _is_row(value) else -1 for value in given if value is not None}
    if len(sizes) == 1 and -1 not in sizes:
        missing = [np.nan] * sizes.pop()
        return np.asarray([missing if value is None else value for value in given], dtype=np.float64)
    return _objects(given)


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
