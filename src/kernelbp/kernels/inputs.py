"""Reading what a kernel is given: parameters, rows of numbers, and a sample to take medians of."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SAMPLE_SIZE = 1000
"""Values used for a median over pairs: half a million pairs, a few milliseconds."""
FEW = 100
"""The same where a whole kernel is evaluated for every setting tried."""


def describe(values: Any) -> str:
    """Say in a few words what was given."""
    if isinstance(values, np.ndarray):
        return f"an array of shape {values.shape} and dtype {values.dtype}"
    text = repr(values)
    return f"{type(values).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def positive_number(value: Any, name: str, *, or_word: str = "") -> float:
    """Return `value` as a float if it is a positive, finite, normal number, else raise `InputError`."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        # a smaller (denormal) number has no finite inverse
        if sys.float_info.min <= number < math.inf:
            return number
    raise InputError(f"{name}: expected a positive finite number{or_word}, got {describe(value)}")


def nonnegative_number(value: Any, name: str) -> float:
    """Return `value` as a float if it is a finite number of at least 0, else raise `InputError`."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        if 0.0 <= number < math.inf:
            return number
    raise InputError(f"{name}: expected a finite number of at least 0, got {describe(value)}")


def whole_number(value: Any, name: str, *, least: int, or_word: str = "") -> int:
    """Return `value` as an int if it is an integer of at least `least`, else raise `InputError`."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise InputError(f"{name}: expected an integer of at least {least}{or_word}, got {describe(value)}")


def is_numeric(values: Any) -> bool:
    """Tell whether `values` is an array of real numbers (not of objects or text)."""
    return isinstance(values, np.ndarray) and values.dtype.kind in "biuf"


def as_rows(values: Any, name: str = "values") -> NDArray[np.float64]:
    """Return numeric values as float rows: ``(n,)`` and ``(n, d)`` in, ``(n, d)`` out.

    Text and complex numbers are refused rather than converted.
    """
    expected = "expected real numbers, an array of shape (n,) or (n, d)"
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise InputError(f"{name}: {expected}, got {describe(values)}") from None
    if array.dtype.kind == "O" and all(isinstance(value, numbers.Real) for value in array.flat):
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise InputError(f"{name}: {expected}, got {describe(values)}")
    rows = array.astype(np.float64, copy=False)
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.shape[1] == 0 and len(rows) > 0:
        raise InputError(f"{name}: {expected} with at least one column, got {describe(values)}")
    return rows


def row_pair(X: Any, Y: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both arguments of a kernel as rows of the same length; `Y` of None is `X`."""
    left = as_rows(X, "X")
    right = left if Y is None else as_rows(Y, "Y")
    columns = right.shape[1] if len(left) == 0 else left.shape[1]
    # nothing at all has no columns to disagree about
    left = left if len(left) else np.empty((0, columns))
    right = right if len(right) else np.empty((0, columns))
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"Y: expected rows of length {left.shape[1]}, as those of X, got rows of length {right.shape[1]}"
        )
    return left, right


def finite_rows(values: Any, name: str) -> NDArray[np.float64]:
    """Return numeric values as float rows ``(n, d)``, refusing NaN and infinity."""
    rows = as_rows(values, name)
    refuse_not_finite(rows, name)
    return rows


def refuse_not_finite(array: NDArray[Any], name: str) -> None:
    """Raise `InputError` if an entry of a float array is NaN or infinite."""
    finite = np.isfinite(array)
    if not finite.all():
        position = int(np.argmin(finite.reshape(len(array), -1).all(axis=1)))
        raise InputError(f"{name}: expected finite numbers, got {array[position]} at position {position}")


def weighted_sample(values: Any, counts: Any = None) -> NDArray[np.float64]:
    """Return at most `SAMPLE_SIZE` rows of `values`, each drawn as often as its count deserves.

    The values, each repeated `counts` times, are lined up and read at evenly spaced places: no
    randomness, and pooling equal neighbours into one value with a count changes nothing.

    Parameters
    ----------
    values : (n,) or (n, d) numbers
    counts : (n,) integers, optional
        How often each value occurred; once each if not given.

    Returns
    -------
    (s, d) array, s at most `SAMPLE_SIZE`
    """
    rows = finite_rows(values, "values")
    return rows[sample_places(len(rows), counts)]


def sample_places(number: int, counts: Any = None, *, most: int = SAMPLE_SIZE) -> NDArray[np.intp]:
    """Places of at most `most` of a number of values, as `weighted_sample` chooses them, of any kind.

    Parameters
    ----------
    number : how many values there are
    counts : (number,) integers, optional
    most : int

    Examples
    --------
    >>> sample_places(3, [1, 4, 1], most=3)
    array([1, 1, 2])
    """
    if number == 0:
        raise InputError("values: expected at least one value to take a median of, got none")
    weights = np.ones(number, dtype=np.int64) if counts is None else np.asarray(counts)
    if weights.shape != (number,) or weights.dtype.kind not in "iu" or weights.min() < 0 or not weights.any():
        raise InputError(
            f"counts: expected {number} integers of at least 0, not all 0, one per value, "
            f"got {describe(counts)}"
        )
    ends = np.cumsum(weights, dtype=np.int64)
    total = int(ends[-1])
    size = min(total, most)
    places = np.array([(2 * index + 1) * total // (2 * size) for index in range(size)])
    return np.searchsorted(ends, places, side="right")


AnyKernel = TypeVar("AnyKernel", bound="DataclassInstance")


def resolved_by_likeness(
    kernel: AnyKernel, name: str, ladder: Sequence[Any], values: Any, counts: Any = None
) -> AnyKernel:
    r"""A kernel whose setting "median" is replaced by that of a ladder at which a typical pair is most nearly 1/e alike.

    What "median" means for settings that are no distances: the median of the kernel over pairs of different
    ones of at most `FEW` training values is as near to 1/e as the ladder allows. Of settings that are as near,
    the first.

    Parameters
    ----------
    kernel : a kernel that is a dataclass, one on the diagonal
    name : of the setting; unless it is "median" the kernel comes back as it is
    ladder : settings to try
    values : n values
    counts : (n,) integers, optional
        How often each value occurred; once each if not given.

    Examples
    --------
    >>> from kernelbp.kernels import Spectrum
    >>> resolved_by_likeness(Spectrum("median"), "k", [1, 2, 3], ["banana", "bandana", "canal"])
    Spectrum(k=3)
    """
    if not is_median(getattr(kernel, name)):
        return kernel
    places = sample_places(len(values), counts, most=FEW)
    sample = values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]
    first, second = np.triu_indices(len(places), 1)
    different = places[first] != places[second]
    made = [replace(kernel, **{name: setting}) for setting in ladder]
    if not different.any():
        return made[0]
    typical = [np.median(tried(sample)[first[different], second[different]]) for tried in made]  # type: ignore[operator]
    # rounded, so that settings that are as near stay so
    return made[int(np.argmin(np.round(np.abs(np.array(typical) - math.exp(-1.0)), 12)))]


def is_median(value: Any) -> bool:
    """Tell whether a setting is left to the data."""
    return isinstance(value, str) and value == "median"
