"""Reading many beliefs: what is asked of all nodes of a variable, block by block on all threads.

Nodes times points are never held at once. Where every point lies between two support points, messages are taken from there
as they stand; elsewhere the interpolation is a product of matrices, block by block. `VariableBeliefs` has the same in plain
NumPy, which it uses for few nodes and for messages that may be negative; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.inference.engine import blas_on
from kernelbp.inference.evidence import Evidence
from kernelbp.inference.program import LANES, padded
from kernelbp.inference.update import ZERO

if TYPE_CHECKING:
    from kernelbp.inference.beliefs import Source
    from kernelbp.inference.summaries_compiled import Factors, Points

__all__ = ["BASE", "Summaries"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Ask = Callable[["Factors", "Points", Array, slice], None]

BLOCK_NODES = 1 << 13
"""Nodes read at a time."""
BLOCK_CELLS = 1 << 19
"""Cells (rows x points) of what is evaluated at points at a time."""
MOST_MOMENTS = 8
"""Functions up to which expectations are summed row by row; of more, the masses are multiplied as matrices."""
BASE = 1.1
"""Widths of windows are rounded to powers of this, so that nodes can share a window."""
REACH = 5.5
"""How many of its widths a window goes to each side; what is beyond is below rounding."""


@dataclass(frozen=True)
class Chunks:
    """Points in chunks, as `kernelbp.inference.summaries_compiled.Points` has them."""

    at: list[int]
    ends: list[tuple[int, int]]
    low: Matrix
    high: Matrix

    @classmethod
    def between(cls, interpolation: Matrix) -> Chunks | None:
        """Points (rows of the interpolation) next to each other that lie between the same two support points.

        None if there are points with a share in more than two.
        """
        used = interpolation != 0
        if (used.sum(axis=1) > 2).any():
            return None
        at: list[int] = []
        ends: list[set[int]] = []
        for point, row in enumerate(used):
            here = set(np.flatnonzero(row).tolist())
            if at and point - at[-1] < LANES and len(ends[-1] | here) <= 2:
                ends[-1] |= here
            else:
                at.append(point)
                ends.append(here)
        pairs = [(min(end, default=0), max(end, default=0)) for end in ends]
        shares = np.zeros((2, len(at), LANES))
        for chunk, (first, last, pair) in enumerate(
            zip(at, [*at[1:], len(interpolation)], pairs, strict=True)
        ):
            shares[0, chunk, : last - first] = interpolation[first:last, pair[0]]
            if pair[1] != pair[0]:
                shares[1, chunk, : last - first] = interpolation[first:last, pair[1]]
        return cls(at, pairs, shares[0], shares[1])

    @classmethod
    def in_order(cls, count: int) -> Chunks:
        """Points one after another."""
        at = list(range(0, count, LANES))
        return cls(at, [(0, 0)] * len(at), np.zeros((len(at), LANES)), np.zeros((len(at), LANES)))


@dataclass(frozen=True)
class Summaries:
    """Beliefs of all nodes of one variable, with positive messages, on given points.

    Attributes
    ----------
    source : what was inferred
    variable : its number
    points : (a, ...) column
    prior : (a,) the marginal's mass on each
    threads : how many to use; answers do not depend on it
    """

    source: Source
    variable: int
    points: Array
    prior: Matrix
    threads: int

    def moments(self, table: Matrix) -> Matrix:
        """Expectations (nodes, k) of functions by their values (a, k) at the points."""
        from kernelbp.inference.summaries_compiled import moments

        result = np.empty((self._n_nodes, table.shape[1]))
        if table.shape[1] > MOST_MOMENTS:
            for part, mass in self.masses():
                np.matmul(mass, table, out=result[part])
            return result
        values = self._wide(table.T).ravel()
        self._run(lambda factors, points, row, part: moments(factors, points, row, values, result[part]))
        return result

    def quantiles(self, probability: Matrix, spacing: float | None) -> Matrix:
        """Values (nodes, k) of points in ascending order at which probabilities (nodes or 1, k) are reached."""
        from kernelbp.inference.summaries_compiled import quantiles

        result = np.empty((self._n_nodes, probability.shape[1]))
        values, apart = np.ascontiguousarray(self.points[:, 0]), spacing or 0.0

        def ask(factors: Factors, points: Points, row: Array, part: slice) -> None:
            wanted = probability if len(probability) == 1 else probability[part]
            quantiles(factors, points, row, np.empty(len(row) // LANES), wanted, values, apart, result[part])

        self._run(ask)
        return result

    def modes(self, spacing: float) -> NDArray[np.intp]:
        """For each node the number of the evenly spaced point that is highest in its smoothed belief."""
        from kernelbp.inference.summaries_compiled import modes

        values = self.points[:, 0] - self.points[:, 0].mean()
        table = self._wide(np.stack([values, values**2])).ravel()
        span = float(np.ptp(values))
        least = span * 1e-3
        first, last = (int(np.rint(np.log(width) / np.log(BASE))) for width in (least, span))
        widths = BASE ** np.arange(first, last + 1, dtype=np.float64) / spacing
        reaches = np.minimum(np.ceil(REACH * widths).astype(np.int64), len(values))
        offset = np.arange(2 * reaches.max() + 1 + LANES) - reaches[:, None]
        windows = np.exp(-0.5 * (offset / widths[:, None]) ** 2) * (offset <= reaches[:, None])
        shapes = windows.ravel().astype(self._dtype)
        result = np.empty(self._n_nodes, dtype=np.intp)

        def ask(factors: Factors, points: Points, row: Array, part: slice) -> None:
            modes(
                factors,
                points,
                row,
                np.empty_like(row),
                table,
                shapes,
                reaches,
                widths,
                first,
                BASE,
                least,
                result[part],
            )

        self._run(ask)
        return result

    def masses(self, dtype: Any = np.float64) -> Iterator[tuple[slice, Array]]:
        """Blocks of nodes in their order with their masses (n, a)."""
        from kernelbp.inference.summaries_compiled import tabulate

        made: dict[int, Array] = {}

        def ask(factors: Factors, points: Points, row: Array, part: slice) -> None:
            mass = np.empty((part.stop - part.start, len(self.points)), self._dtype)
            tabulate(factors, points, row, mass)
            made[part.start] = mass.astype(dtype, copy=False)
            if dtype != self._dtype:
                made[part.start] /= made[part.start].sum(axis=1, keepdims=True)

        blocks = self._blocks(held=True)
        for group in range(0, len(blocks), self.threads):
            parts = blocks[group : group + self.threads]
            self._run(ask, parts)
            for part in parts:
                yield part, made.pop(part.start)

    # ------------------------------------------------------------------ inside

    @property
    def _n_nodes(self) -> int:
        return len(self.source.wiring.nodes[self.variable])

    @property
    def _dtype(self) -> np.dtype[Any]:
        return self.source.state.messages.values.dtype

    def _wide(self, rows: Array) -> Array:
        """Rows with zeros behind them, and room for eight to be stored from the last point on."""
        wide = np.zeros((len(rows), padded(rows.shape[1]) + LANES), rows.dtype)
        wide[:, : rows.shape[1]] = rows
        return wide

    @cached_property
    def _interpolation(self) -> Matrix:
        name = self.source.wiring.variables[self.variable]
        return self.source.operators.interpolation(name, self.points)

    @cached_property
    def _chunks(self) -> Chunks | None:
        return Chunks.between(self._interpolation)

    @cached_property
    def _points(self) -> Points:
        from kernelbp.inference.summaries_compiled import Points

        between, dtype = self._chunks, self._dtype
        chunks = Chunks.in_order(len(self.points)) if between is None else between
        unit = np.log(2.0) if dtype == np.float32 else 1.0
        with np.errstate(divide="ignore"):
            # Finite, so that what has no mass never becomes a number that is none.
            log_prior = np.maximum(np.log(self.prior) / unit, -1e30)
        ends = np.array(chunks.ends, dtype=np.uint64).reshape(-1, 2)
        return Points(
            len(self.points),
            between is not None,
            np.array(chunks.at, dtype=np.uint64),
            np.ascontiguousarray(ends[:, 0]),
            np.ascontiguousarray(ends[:, 1]),
            chunks.low.ravel().astype(dtype),
            chunks.high.ravel().astype(dtype),
            self._wide(self.prior[None])[0].astype(dtype),
            self._wide(log_prior[None])[0].astype(dtype),
        )

    @cached_property
    def _evidence(self) -> tuple[Evidence, Evidence]:
        """That which is read between support points as messages are, and the rest."""
        return self.source.evidence.parted(self.source.operators)

    @cached_property
    def _is_as_inferred(self) -> bool:
        """Whether a node's evidence at the support points is that of one piece, which inference has evaluated."""
        as_messages, others = self._evidence
        pieces = as_messages.pieces[self.variable]
        if not pieces or others.pieces[self.variable] or self.source.state.functions:
            return False
        return int(np.bincount(np.concatenate([piece.nodes for piece in pieces])).max(initial=0)) <= 1

    def _factors(self, begin: int, end: int) -> Factors:
        from kernelbp.inference.summaries_compiled import Factors

        source, variable, dtype = self.source, self.variable, self._dtype
        start = source.wiring.start[variable][begin : end + 1]
        rows = slice(int(start[0]), int(start[-1]))
        as_messages, others = self._evidence
        said: Array = np.empty((0, self._interpolation.shape[1]), dtype)
        first_said = np.zeros(end - begin + 1, dtype=np.intp)
        if self._is_as_inferred:
            said, first_said = source.state.evidence[variable][begin:end], np.arange(end - begin + 1)
        elif as_messages.pieces[variable]:
            said, first_said = as_messages.rows_at(source.operators, variable, begin, end)
        known = np.empty((0, 0), dtype)
        if others.pieces[variable]:
            known, _ = others.log_at(
                source.operators, variable, begin, end, self.points, len(self.points), dtype
            )
            known = self._wide(known - known.max(axis=1, keepdims=True))
        weights = source.state.weights[variable][rows] if source.state.weights else np.empty(0, dtype)
        width = self._interpolation.shape[1] if self._points.between else self._wide_interpolation.shape[1]
        return Factors(
            np.uint64(width),
            self._at_points(source.state.messages[variable][rows]),
            (start - start[0]).astype(np.uint64),
            weights,
            self._at_points(said.astype(dtype, copy=False)),
            first_said.astype(np.uint64),
            known.ravel(),
            1.0 / source.temperature,
            ZERO[dtype],
        )

    def _at_points(self, rows: Array) -> Array:
        """Values as `Points` wants them, one row after another."""
        return (rows if self._points.between else rows @ self._wide_interpolation).ravel()

    @cached_property
    def _wide_interpolation(self) -> Array:
        return self._wide(self._interpolation.T).astype(self._dtype)

    def _blocks(self, *, held: bool = False) -> list[slice]:
        """Nodes in blocks whose cells, where any are held, stay within bounds."""
        start = self.source.wiring.start[self.variable]
        held = held or not self._points.between or bool(self._evidence[1].pieces[self.variable])
        room = max(BLOCK_CELLS // max(len(self.points), 1), 1) if held else BLOCK_NODES
        blocks, begin = [], 0
        while begin < self._n_nodes:
            end = min(begin + room, self._n_nodes)
            if not self._points.between:
                fitting = int(np.searchsorted(start, start[begin] + room, side="right")) - 1
                end = min(end, max(fitting, begin + 1))
            blocks.append(slice(begin, end))
            begin = end
        return blocks

    def _run(self, ask: Ask, blocks: list[slice] | None = None) -> None:
        """Ask about all nodes, or those of some blocks, on all threads."""

        def work(part: slice) -> None:
            ask(self._factors(part.start, part.stop), points, np.empty(size, self._dtype), part)

        with blas_on(1):
            parts = self._blocks() if blocks is None else blocks
            points, size = self._points, padded(len(self.points)) + LANES
            self._factors(0, 0)  # so that what all blocks share is made once, by this thread
            if self.threads == 1 or len(parts) == 1:
                for part in parts:
                    work(part)
                return
            with ThreadPoolExecutor(self.threads) as pool:
                for _ in pool.map(work, parts):
                    pass
