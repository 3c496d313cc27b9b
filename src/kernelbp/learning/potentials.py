r"""Known relations: potentials the user writes down instead of showing examples.

A potential is a non-negative function :math:`f(x_s, x_t)` of the two ends, or
:math:`f(x_s, x_t, r)` where every edge carries a reading r of its own (a measured distance, say), or a table over
finite values. On the states of both ends it becomes the operator

.. math:: M_{ts}[i, j] = \big( f(z_i, z_j) / \max f \big)^{1/\rho}\, \pi_t(z_j),

with :math:`\pi_t` the marginal of the sender and :math:`\rho` the edge's weight (1 for ordinary BP).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelbp.errors import InputError
from kernelbp.learning.conditionals import Conditional, EdgeOperator
from kernelbp.values import Column, Kind

__all__ = ["KnownRelation", "Potential", "log_scales", "potential_operator"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

CACHE_BYTES = 1 << 29
"""Potentials of single edges are kept if all of them take no more than this, else made anew in blocks."""
BLOCK_BYTES = 1 << 26


@dataclass(frozen=True)
class Potential:
    """A known relation between two variables.

    Attributes
    ----------
    given : the user's function or table
    kinds : how the values of both ends are written
    landmarks : for a table, the values its rows and columns stand for; else None
    name : of the relation, for errors
    """

    given: Callable[..., Any] | Matrix
    kinds: tuple[Kind, Kind]
    landmarks: tuple[Column, Column] | None
    name: str

    def own_readings(self, readings: Array | None) -> Array | None:
        """The graph's readings if the function takes a third argument, else None."""
        if not callable(self.given) or _arguments(self.given) < 3:
            return None
        if readings is None:
            raise InputError(
                f"relations[{self.name!r}]: potential takes a reading for each edge; give them with "
                "Graph.from_edges(..., readings=...)"
            )
        return readings

    def at(self, first: Column, second: Column, readings: Array | None) -> Matrix:
        """Values (n, q_first, q_second) for n readings, or (1, q_first, q_second) without."""
        if not callable(self.given):
            return self._looked_up(first, second)
        left, right = self.kinds[0].restore(first), self.kinds[1].restore(second)
        left, right = left[None, :, None], right[None, None, :]
        if readings is None:
            value = self._called(left, right)
            shape: tuple[int, ...] = (1, len(first), len(second))
        else:
            along = readings.reshape(len(readings), 1, 1, *readings.shape[1:])
            value = self._called(left, right, along)
            shape = (len(readings), len(first), len(second))
        return self._checked(value, shape)

    def paired(self, toward: int, points: Column, values: Column, readings: Array | None) -> Matrix:
        """What n known values of one end say about points of the other, (n, q): entry by entry."""
        if not callable(self.given):
            ends = (points, values) if toward == 0 else (values, points)
            table = self._looked_up(*ends)[0]
            return table.T if toward == 0 else table
        where = self.kinds[toward].restore(points)[None, :]
        known = self.kinds[1 - toward].restore(values)[:, None]
        readings = self.own_readings(readings)
        arguments: tuple[Array, ...] = (where, known) if toward == 0 else (known, where)
        if readings is not None:
            arguments = (*arguments, readings.reshape(len(readings), 1, *readings.shape[1:]))
        return self._checked(self._called(*arguments), (len(values), len(points))).copy()

    def _called(self, *arguments: Array) -> Any:
        """What the user's function returns; it is handed arrays, which functions of single numbers do not take."""
        assert callable(self.given)
        try:
            return self.given(*arguments)
        except TypeError as error:
            shapes = " and ".join(str(np.shape(argument)) for argument in arguments)
            raise InputError(
                f"relations[{self.name!r}]: potential failed on arrays of shapes {shapes} ({error}); it should take arrays "
                "that broadcast, with functions such as np.exp in place of math.exp"
            ) from error

    def _checked(self, value: Any, shape: tuple[int, ...]) -> Matrix:
        """What the user's function returned, broadcast to a shape (a view)."""
        try:
            table = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
        except (TypeError, ValueError):
            raise InputError(
                f"relations[{self.name!r}]: potential should return numbers of shape {shape} by broadcasting, "
                f"got shape {np.shape(value)}"
            ) from None
        if not np.isfinite(table).all() or (table < 0).any():
            raise InputError(
                f"relations[{self.name!r}]: potential should return finite numbers of at least 0"
            )
        return table

    def _looked_up(self, first: Column, second: Column) -> Matrix:
        assert self.landmarks is not None
        rows, columns = (
            _positions(own, wanted) for own, wanted in zip(self.landmarks, (first, second), strict=True)
        )
        table: Matrix = np.asarray(self.given)[np.ix_(rows, columns)][None]
        return table


def _arguments(function: Callable[..., Any]) -> int:
    """How many arguments a function takes by position; 2 if it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in by_position and p.default is inspect.Parameter.empty for p in parameters)


def _positions(values: Column, wanted: Column) -> NDArray[np.intp]:
    """Where each wanted value stands among `values`, which are distinct."""
    if wanted is values:
        return np.arange(len(values))
    if values.dtype == object:
        place = {value: index for index, value in enumerate(values)}
        return np.asarray([place[value] for value in wanted], dtype=np.intp)
    return np.asarray(
        [int(np.flatnonzero((values == value).all(axis=1))[0]) for value in wanted], dtype=np.intp
    )


@dataclass(frozen=True)
class _PotentialByEdge:
    """One operator for each edge, kept if they fit, else evaluated in blocks."""

    potential: Potential
    toward: int
    ends: tuple[Column, Column]
    sender: Matrix
    readings: Array | None
    exponents: Matrix
    dtype: DTypeLike
    kept: dict[int, Array] = field(default_factory=dict)

    def apply(self, products: NDArray[np.floating], edges: NDArray[np.intp]) -> NDArray[np.floating]:
        """Messages (n, q_s) from products (n, q_t), each through its own edge's potential."""
        receiving, sending = len(self.ends[self.toward]), len(self.ends[1 - self.toward])
        result = np.empty((len(products), receiving), dtype=products.dtype)
        size = receiving * sending * np.dtype(np.float64).itemsize
        block = max(1, BLOCK_BYTES // size)
        keep = len(self.exponents) * size // 2 <= CACHE_BYTES
        for begin in range(0, len(products), block):
            part = slice(begin, begin + block)
            tables = self._kept(edges[part]) if keep else self._made(edges[part])
            result[part] = np.matmul(tables, products[part, :, None])[..., 0]
        return result

    def _made(self, edges: NDArray[np.intp]) -> Array:
        tables = self.potential.at(*self.ends, None if self.readings is None else self.readings[edges])
        tables = (tables / largest(tables)[:, None, None]) ** self.exponents[edges, None, None]
        tables = tables if self.toward == 0 else tables.transpose(0, 2, 1)
        return (tables * self.sender).astype(self.dtype)

    def _kept(self, edges: NDArray[np.intp]) -> Array:
        missing = [int(edge) for edge in edges if int(edge) not in self.kept]
        if missing:
            self.kept.update(zip(missing, self._made(np.asarray(missing, dtype=np.intp)), strict=True))
        return np.stack([self.kept[int(edge)] for edge in edges])


def largest(tables: Matrix) -> Matrix:
    """The largest value of each table (n,), by which operators are scaled; 1 for a table of zeros."""
    values = tables.max(axis=(1, 2))
    return np.where(values > 0, values, 1.0)


def log_scales(
    potential: Potential, ends: tuple[Column, Column], readings: Array | None, edges: NDArray[np.intp]
) -> Matrix:
    """Logarithm of what the operators of these edges were divided by (before the power 1/rho), (n,)."""
    own = potential.own_readings(readings)
    if own is None:
        return np.repeat(np.log(largest(potential.at(*ends, None))), len(edges))
    block = max(1, BLOCK_BYTES // (8 * len(ends[0]) * len(ends[1])))
    parts = [
        np.log(largest(potential.at(*ends, own[edges[begin : begin + block]])))
        for begin in range(0, len(edges), block)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def potential_operator(
    potential: Potential,
    toward: int,
    ends: tuple[Column, Column],
    sender: Matrix,
    readings: Array | None,
    weights: Matrix | None,
    dtype: DTypeLike,
) -> EdgeOperator:
    """The operator of a known relation towards one end.

    Parameters
    ----------
    potential : Potential
    toward : the end (0 or 1) that receives
    ends : states of the first and second variable
    sender : (q_t,) marginal of the sending end
    readings : (edges, ...) readings of all edges of the graph, or None
    weights : (edges,) weights of all edges, or None if all are one
    """
    readings = potential.own_readings(readings)
    if readings is None and (weights is None or (weights == weights[0]).all()):
        tables = potential.at(*ends, None)
        table = (tables[0] / largest(tables)) ** (1.0 if weights is None else 1.0 / weights[0])
        table = table if toward == 0 else table.T
        return Conditional((table * sender).astype(dtype))
    count = len(readings) if readings is not None else len(weights if weights is not None else ())
    exponents = np.ones(count) if weights is None else 1.0 / weights
    return _PotentialByEdge(potential, toward, ends, sender, readings, exponents, dtype)


@dataclass(frozen=True)
class KnownRelation:
    """A relation the user has written down: its ends and its potential."""

    first: str
    second: str
    potential: Potential

    def ends(self, toward: int) -> tuple[str, str]:
        """(receiving variable, sending variable)."""
        return (self.first, self.second) if toward == 0 else (self.second, self.first)
