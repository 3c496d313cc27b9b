"""Training pairs, merged: the distinct values of each variable and a table of counts for each relation.

Pooled pairs repeat (a 100 x 100 image has 39,600 of them, a few thousand distinct), and everything
learned is a sum over pairs. So a relation's examples are kept as a sparse table whose entry (i, j)
counts the pairs of distinct values i and j; the order and the splitting of pairs cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels import Kernel, check_values
from kernelbp.values import Column, Kind, as_column, distinct, taken_up

__all__ = ["Ends", "VariableExamples", "collect"]


class Ends(Protocol):
    """What learning needs to know of a relation."""

    @property
    def first(self) -> str:
        """The variable of its first end."""

    @property
    def second(self) -> str:
        """The variable of its second end."""

    @property
    def symmetric(self) -> bool:
        """Whether a pair may be read either way."""


@dataclass(frozen=True)
class VariableExamples:
    """The distinct training values of a variable.

    Attributes
    ----------
    values : (u, d) or (u,) column
    counts : (u,) how often each occurred, over all relations
    kind : how the user writes them
    """

    values: Column
    counts: NDArray[np.float64]
    kind: Kind


Table: TypeAlias = Any
"""A ``scipy.sparse.csr_array`` of counts of pairs, (distinct values of the first variable, of the second)."""


def collect(
    relations: Mapping[str, Ends],
    pairs: Mapping[str, tuple[Any, Any]],
    *,
    merge: bool = True,
    kernels: Mapping[str, Kernel] | None = None,
    on_a_line: Callable[[str], bool] = lambda variable: False,
) -> tuple[dict[str, VariableExamples], dict[str, Table]]:
    """Check the pairs of every relation and merge them.

    Parameters
    ----------
    relations : the relations by name
    pairs : for each relation (m first values, m second values)
    merge : bool
        Equal values are counted together; and where a variable has more than 260,000 numbers hardly two of which are
        equal, those that agree to 1/4096 of the distance between the quartiles. False keeps every value apart, as
        the paper writes it: slower, and the same up to the residual of the bases, whose greedy choice may break
        ties otherwise.
    kernels : by variable, optional
        They say how values are held, and refuse those they cannot take. Without them values are held as
        `kernelbp.values.as_column` does.
    on_a_line : callable
        Whether a variable's numbers may be read off a ruler: those of R, not those that only name something.

    Returns
    -------
    examples : by variable
    tables : by relation; a symmetric relation's table is symmetric
    """
    _check_names(relations, pairs)
    columns: dict[str, list[Column]] = {}
    kinds: dict[str, Kind] = {}
    lengths: dict[str, int] = {}
    for name, ends in relations.items():
        sides = _checked_sides(name, pairs[name])
        lengths[name] = len(sides[0][0])
        for index, (variable, (column, kind)) in enumerate(
            zip((ends.first, ends.second), sides, strict=True)
        ):
            if kernels is not None:
                column, kind = taken_up(kernels[variable], column, kind, f"pairs[{name!r}][{index}]")
            columns.setdefault(variable, []).append(column)
            label = f"pairs[{name!r}], variable {variable!r}"
            kinds[variable] = kinds[variable].merged(kind, label) if variable in kinds else kind
            if kernels is not None:
                check_values(kernels[variable], column, f"pairs[{name!r}][{index}]")

    examples: dict[str, VariableExamples] = {}
    codes: dict[str, NDArray[np.intp]] = {}
    for variable, parts in columns.items():
        column = np.concatenate(parts)
        if kernels is not None and len(parts) > 1 and column.dtype == object:
            # each part may be fine and yet not go with another: text and numbers
            check_values(kernels[variable], column, f"pairs, variable {variable!r}")
        if merge and on_a_line(variable) and _is_fine(column):
            column, codes[variable] = _merged_finely(column)
        elif merge:
            first, codes[variable] = distinct(column)
            column = column[first]
        else:
            codes[variable] = np.arange(len(column), dtype=np.intp)
        counts = np.bincount(codes[variable], minlength=len(column)).astype(np.float64)
        examples[variable] = VariableExamples(column, counts, kinds[variable])

    used = dict.fromkeys(columns, 0)
    tables: dict[str, Table] = {}
    for name, ends in relations.items():
        ends_codes = []
        for variable in (ends.first, ends.second):
            begin = used[variable]
            used[variable] = begin + lengths[name]
            ends_codes.append(codes[variable][begin : used[variable]])
        shape = (len(examples[ends.first].values), len(examples[ends.second].values))
        table = scipy.sparse.coo_array((np.ones(lengths[name]), tuple(ends_codes)), shape=shape).tocsr()
        tables[name] = table + table.T.tocsr() if ends.symmetric else table
    return examples, tables


def _is_fine(column: Column) -> bool:
    """Whether there are so many numbers, hardly two of them equal, that a fine ruler tells all there is."""
    if column.dtype == object or column.shape[1] > 1 or len(column) < FINE_FROM:
        return False
    sample = column[:: len(column) // SAMPLE, 0]
    low, high = np.quantile(sample, [0.25, 0.75])
    usual = NARROWEST < high - low < 1 / NARROWEST
    whole = bool((sample == np.floor(sample)).all())
    return bool(usual and not whole and len(np.unique(sample)) > 0.9 * len(sample))


def _merged_finely(column: Column) -> tuple[Column, NDArray[np.intp]]:
    """Means of the numbers in each division of a ruler, and for each number its division."""
    values = column[:, 0]
    low, high = np.quantile(values, [0.25, 0.75])
    divisions = np.floor((values - low) * (DIVISIONS / (high - low)))
    # Far out the ruler ends: what lies beyond keeps divisions of its own.
    inside = np.abs(divisions) < MOST_DIVISIONS
    if not inside.all():
        codes = distinct(divisions[:, None])[1]
    else:
        places = (divisions - divisions.min()).astype(np.intp)
        number = np.cumsum(np.bincount(places) > 0) - 1
        codes = number[places]
    counts = np.bincount(codes)
    return (np.bincount(codes, weights=values) / counts)[:, None], codes


FINE_FROM = 1 << 18
"""So many numbers of one variable are read off a ruler instead of kept one by one, if hardly two are equal;"""
DIVISIONS = 1 << 12
"""the ruler has this many divisions between the quartiles,"""
MOST_DIVISIONS = 1 << 24
"""and ends this many from the first."""
NARROWEST = 1e-100
"""Quartiles that lie closer, or further apart than one over this, have no ruler."""
SAMPLE = 10_000


def _check_names(relations: Mapping[str, Ends], pairs: Mapping[str, Any]) -> None:
    if not isinstance(pairs, Mapping):
        raise InputError(
            "pairs: expected a mapping from relation name to (first values, second values), "
            f"got {type(pairs).__name__}"
        )
    for name in pairs:
        if name not in relations:
            raise InputError(f"pairs: unknown relation {name!r}; the model has {', '.join(relations)}")
    for name in relations:
        if name not in pairs:
            raise InputError(f"pairs: no examples of relation {name!r}")


def _checked_sides(name: str, given: Any) -> list[tuple[Column, Kind]]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(
            f"pairs[{name!r}]: expected (first values, second values), got {type(given).__name__}"
        )
    sides = [as_column(side, f"pairs[{name!r}][{index}]") for index, side in enumerate(given)]
    sizes = [len(column) for column, _ in sides]
    if sizes[0] != sizes[1]:
        raise InputError(f"pairs[{name!r}]: the two sides differ in length, {sizes[0]} and {sizes[1]}")
    if sizes[0] == 0:
        raise InputError(f"pairs[{name!r}]: no pairs; give at least one")
    return sides
