"""What is known at nodes, ready to be evaluated at any points: readings, known neighbours, likelihoods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelbp.errors import InputError
from kernelbp.graph import Fixed, Graph, Readings, Softened
from kernelbp.inference.update import ZERO
from kernelbp.inference.wiring import oriented_edges
from kernelbp.kernels import Kernel, check_values, domain
from kernelbp.learning.examples import Ends
from kernelbp.learning.operators import Operators
from kernelbp.values import Column, Kind, taken_up

__all__ = ["Evidence", "FixedNodes", "VariableFacts", "gather_evidence"]

Array = NDArray[Any]
Indices = NDArray[np.intp]


class VariableFacts(Protocol):
    """What evidence needs to know of a fitted variable to check values of it."""

    @property
    def kernel(self) -> Kernel:
        """Its kernel."""

    @property
    def kind(self) -> Kind:
        """How its values are written."""

    @property
    def values(self) -> Column:
        """Its distinct training values."""


class Piece(Protocol):
    """Evidence at some nodes of one variable."""

    @property
    def nodes(self) -> Indices:
        """Node numbers within the variable, sorted; a node may repeat."""

    def at(self, operators: Operators, chosen: slice, points: Column | None) -> Array:
        """Values (n, q) for the chosen nodes at the support points or at others."""

    def interpolated(self, operators: Operators) -> bool:
        """Whether those at others are interpolated from those at the support points, as messages are."""


@dataclass(frozen=True)
class Observed:
    """Known values at the far end of a relation, one for each entry of `nodes` (sorted, may repeat)."""

    relation: str
    toward: int
    nodes: Indices
    values: Column
    readings: Array | None = None

    def at(self, operators: Operators, chosen: slice, points: Column | None) -> Array:
        """The relation's evidence operator, applied to the known values."""
        readings = None if self.readings is None else self.readings[chosen]
        return operators.evidence(self.relation, self.toward, self.values[chosen], points, readings)

    def interpolated(self, operators: Operators) -> bool:
        """As its relation has it."""
        return operators.interpolates(self.relation)


@dataclass(frozen=True)
class Likelihood:
    """Virtual evidence: a table of likelihoods at given points."""

    variable: str
    kernel: Kernel
    nodes: Indices
    points: Column
    table: NDArray[np.float64]

    def at(self, operators: Operators, chosen: slice, points: Column | None) -> Array:
        """Interpolated between points of R, looked up elsewhere (at the most similar point)."""
        where = operators.support(self.variable) if points is None else points
        if domain(self.kernel) == "real" and where.dtype != object and where.shape[1] == 1:
            order = np.argsort(self.points[:, 0])
            knots = self.points[order, 0]
            right = np.clip(np.searchsorted(knots, where[:, 0]), 1, max(len(knots) - 1, 1))
            if len(knots) == 1:
                return np.repeat(self.table[chosen], len(where), axis=1)
            span = np.maximum(knots[right] - knots[right - 1], np.finfo(np.float64).tiny)
            share = np.clip((where[:, 0] - knots[right - 1]) / span, 0.0, 1.0)
            table = self.table[chosen][:, order]
            return (1 - share) * table[:, right - 1] + share * table[:, right]
        nearest = np.asarray(self.kernel(where, self.points)).argmax(axis=1)
        return self.table[chosen][:, nearest]

    def interpolated(self, operators: Operators) -> bool:
        """It has points of its own."""
        return False


@dataclass(frozen=True)
class Raised:
    """Evidence to a power: how far it is trusted."""

    variable: str
    piece: Piece
    power: float

    @property
    def nodes(self) -> Indices:
        """Those of the evidence."""
        return self.piece.nodes

    def at(self, operators: Operators, chosen: slice, points: Column | None) -> Array:
        """Raised at the support points where that between them is interpolated, else at the points themselves."""
        between = points if points is not None and self.interpolated(operators) else None
        values, largest = _speaking(self.piece, operators, chosen, points if between is None else None)
        raised: Array = largest**self.power * (values / largest) ** self.power
        return raised if between is None else raised @ operators.interpolation(self.variable, between).T

    def interpolated(self, operators: Operators) -> bool:
        """As the evidence is."""
        return self.piece.interpolated(operators)


@dataclass(frozen=True)
class FixedNodes:
    """Hidden nodes whose value is known, of one variable: numbers within the variable, and values."""

    nodes: Indices
    values: Column


@dataclass(frozen=True)
class Evidence:
    """All evidence of a graph, by variable.

    Attributes
    ----------
    pieces : for each variable number, its pieces
    fixed : for each variable number, its fixed nodes (sorted)
    """

    pieces: tuple[tuple[Piece, ...], ...]
    fixed: tuple[FixedNodes, ...]

    def log_at(
        self,
        operators: Operators,
        variable: int,
        begin: int,
        end: int,
        points: Column | None,
        size: int,
        dtype: DTypeLike = np.float64,
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Log magnitude and sign of the product of all evidence at nodes begin ... end, each (n, size).

        Evidence that is nowhere above rounding error (an observation unlike all training values) says
        nothing. In single precision, whose logarithms are four times as fast, the product is known up to a factor
        of each node.
        """
        logs = np.zeros((end - begin, size), dtype=dtype)
        negative = np.zeros((end - begin, size), dtype=bool)
        for piece in self.pieces[variable]:
            low, high = np.searchsorted(piece.nodes, [begin, end])
            if low == high:
                continue
            values, largest = _speaking(piece, operators, slice(low, high), points)
            if operators.signed:
                below, values = values < 0, np.abs(values)
            magnitude = (values / largest).astype(dtype)
            faint = magnitude < np.finfo(magnitude.dtype).tiny
            np.log(magnitude, out=magnitude, where=~faint)
            if faint.any():  # zero, or too small for single precision
                exact = (values / largest)[faint]
                logs_of = np.log(np.maximum(exact, np.finfo(np.float64).tiny))
                magnitude[faint] = np.where(exact > 0, logs_of, ZERO[magnitude.dtype])
            if magnitude.dtype == np.float64:
                magnitude += np.log(largest)
            nodes = piece.nodes[low:high] - begin
            if _is_each(nodes, end - begin):
                logs += magnitude
                if operators.signed:
                    negative ^= below
                continue
            at, first = np.unique(nodes, return_index=True)
            logs[at] += np.add.reduceat(magnitude, first, axis=0)
            if operators.signed:
                negative[at] ^= np.add.reduceat(below, first, axis=0, dtype=np.int32) % 2 == 1
        return logs, negative

    def scaled_at(
        self, operators: Operators, variable: int, begin: int, end: int, size: int
    ) -> tuple[Array, Array]:
        """The product of all evidence at nodes begin ... end and the support points, (n, size), with rows scaled.

        The largest magnitude of each is 1; second come the logarithms (n, 1) of what it was.
        """
        if len(self.pieces[variable]) == 1:
            # Most often each node has one reading: nothing to multiply, so no need for logarithms.
            (piece,) = self.pieces[variable]
            low, high = np.searchsorted(piece.nodes, [begin, end])
            if _is_each(piece.nodes[low:high] - begin, end - begin):
                values, largest = _speaking(piece, operators, slice(low, high), None)
                return values / largest, np.log(largest)
        logs, negative = self.log_at(operators, variable, begin, end, None, size)
        most = logs.max(axis=1, keepdims=True)
        made = np.exp(logs - most)
        return np.where(negative, -made, made), most

    def raised(self, variables: Sequence[str], power: float) -> Evidence:
        """All of it to a power, where none of it can be negative; `variables` are their names."""
        if power == 1:
            return self
        return replace(
            self,
            pieces=tuple(
                tuple(Raised(name, piece, power) for piece in pieces)
                for name, pieces in zip(variables, self.pieces, strict=True)
            ),
        )

    def parted(self, operators: Operators) -> tuple[Evidence, Evidence]:
        """The pieces that are interpolated from the support points, and those that are not."""
        alike, others = (
            tuple(
                tuple(piece for piece in pieces if piece.interpolated(operators) == wanted)
                for pieces in self.pieces
            )
            for wanted in (True, False)
        )
        return replace(self, pieces=alike), replace(self, pieces=others)

    def rows_at(
        self, operators: Operators, variable: int, begin: int, end: int
    ) -> tuple[Array, NDArray[np.intp]]:
        """Each piece by itself at the support points, largest value 1, for nodes begin ... end.

        Returns
        -------
        rows : (m, q) node by node
        first : (nodes + 1,) number of each node's first row
        """
        found, nodes = [], []
        for piece in self.pieces[variable]:
            low, high = np.searchsorted(piece.nodes, [begin, end])
            values, largest = _speaking(piece, operators, slice(low, high), None)
            found.append(values / largest)
            nodes.append(piece.nodes[low:high] - begin)
        at = np.concatenate(nodes)
        first = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=end - begin))])
        return np.concatenate(found)[np.argsort(at, kind="stable")], first


def _is_each(nodes: Indices, count: int) -> bool:
    return len(nodes) == count and bool((nodes == np.arange(count)).all())


def _speaking(
    piece: Piece, operators: Operators, chosen: slice, points: Column | None
) -> tuple[Array, Array]:
    """Values (n, q) of a piece and their largest magnitudes (n, 1); ones where it says nothing."""
    values = np.array(piece.at(operators, chosen, points), dtype=np.float64)
    largest = (np.abs(values) if operators.signed else values).max(axis=1, keepdims=True)
    silent = largest[:, 0] <= (SILENCE if isinstance(piece, Observed) else 0.0)
    values[silent] = largest[silent] = 1.0
    return values, largest


SILENCE = 1e-200
"""Evidence whose largest value is under this carries no information."""


def gather_evidence(
    graph: Graph, relations: Mapping[str, Ends], variables: Mapping[str, VariableFacts]
) -> Evidence:
    """Check a graph's evidence against the model and sort it by variable.

    Raises
    ------
    InputError
        If a relation or value does not fit.
    """
    number = np.empty(graph.n_nodes, dtype=np.intp)
    for index in range(len(graph.variables)):
        members = np.flatnonzero(graph.node_variable == index)
        number[members] = np.arange(len(members))
    pieces: list[list[Piece]] = [[] for _ in graph.variables]
    fixed_parts: list[list[tuple[Indices, Column]]] = [[] for _ in graph.variables]
    for said in graph.evidence:
        if isinstance(said, Readings):
            for variable, piece in _reading_pieces(graph, said, relations, variables, number):
                pieces[variable].append(piece)
        elif len(said.nodes):
            variable = int(graph.node_variable[said.nodes[0]])
            facts = variables[graph.variables[variable]]
            if isinstance(said, Fixed):
                values = _checked(
                    said.values, said.kind, facts, graph.variables[variable], "fix: values", known=True
                )
                fixed_parts[variable].append((said.nodes, values))
            else:
                pieces[variable].append(_likelihood(graph.variables[variable], facts, said, number))
    fixed = tuple(_merge_fixed(parts, number) for parts in fixed_parts)
    for variable, piece in _neighbour_pieces(graph, relations, fixed, number):
        pieces[variable].append(piece)
    return Evidence(tuple(map(tuple, pieces)), fixed)


def _checked(
    values: Column, kind: Kind, facts: VariableFacts, variable: str, name: str, *, known: bool
) -> Column:
    """Values of the variable's kind, held as its kernel takes them; where asked, finite values must have been seen."""
    if not len(values):
        # nothing at all is of every kind
        return facts.values[:0]
    label = f"{name} of variable {variable!r}"
    values, kind = taken_up(facts.kernel, values, kind, label, facts.kind)
    facts.kind.merged(kind, label)
    check_values(facts.kernel, values, label)
    if kind.form == "object" and len(facts.values):
        try:
            facts.kernel(facts.values[:1], values[:1])
        except InputError as error:
            raise InputError(f"{label}: cannot be compared with training values ({error})") from None
    if known and domain(facts.kernel) == "finite" and len(values):
        seen = np.asarray(facts.kernel(values, facts.values)).max(axis=1) > 0
        if not seen.all():
            stranger = facts.kind.restore(values[np.flatnonzero(~seen)[:1]])[0]
            raise InputError(
                f"{name} of variable {variable!r}: {stranger!r} was not among the training values, so "
                "nothing is known about it"
            )
    return values


def _reading_pieces(
    graph: Graph,
    said: Readings,
    relations: Mapping[str, Ends],
    variables: Mapping[str, VariableFacts],
    number: Indices,
) -> list[tuple[int, Piece]]:
    if said.relation not in relations:
        raise InputError(f"observe: unknown relation {said.relation!r}; the model has {', '.join(relations)}")
    ends = relations[said.relation]
    found = np.unique(graph.node_variable[said.nodes])
    for index in found:
        if graph.variables[index] != ends.first:
            raise InputError(
                f"observe: relation {said.relation!r} reads {ends.second!r} at nodes of {ends.first!r}, but a node "
                f"given is of {graph.variables[index]!r}; name the nodes with nodes="
            )
    values = _checked(
        said.values, said.kind, variables[ends.second], ends.second, "observe: values", known=True
    )
    if not len(found):
        return []
    order = np.argsort(number[said.nodes], kind="stable")
    return [(int(found[0]), Observed(said.relation, 0, number[said.nodes][order], values[order]))]


def _likelihood(variable: str, facts: VariableFacts, said: Softened, number: Indices) -> Likelihood:
    points = _checked(said.points, said.kind, facts, variable, "soften: points", known=True)
    if domain(facts.kernel) == "finite":
        missing = np.asarray(facts.kernel(facts.values, points)).max(axis=1) == 0
        if missing.any():
            example = facts.kind.restore(facts.values[np.flatnonzero(missing)[:1]])[0]
            raise InputError(
                f"soften: points of variable {variable!r} must cover all its values, {example!r} is missing"
            )
    order = np.argsort(number[said.nodes], kind="stable")
    return Likelihood(variable, facts.kernel, number[said.nodes][order], points, said.likelihood[order])


def _merge_fixed(parts: list[tuple[Indices, Column]], number: Indices) -> FixedNodes:
    if not parts:
        return FixedNodes(np.empty(0, dtype=np.intp), np.empty((0, 1)))
    nodes = np.concatenate([part[0] for part in parts])
    values = np.concatenate([part[1] for part in parts])
    kept, first = np.unique(nodes, return_index=True)
    if len(kept) != len(nodes):
        twice = int(np.flatnonzero(np.bincount(nodes) > 1)[0])
        raise InputError(f"fix: node {twice} is fixed twice")
    return FixedNodes(number[kept], values[first])


def _neighbour_pieces(
    graph: Graph, relations: Mapping[str, Ends], fixed: tuple[FixedNodes, ...], number: Indices
) -> list[tuple[int, Piece]]:
    """A fixed node is an observation for each neighbour that is not fixed."""
    if not any(len(part.nodes) for part in fixed):
        return []
    edges = oriented_edges(graph, relations)
    place = np.full(graph.n_nodes, -1, dtype=np.intp)
    for index, part in enumerate(fixed):
        place[np.flatnonzero(graph.node_variable == index)[part.nodes]] = np.arange(len(part.nodes))
    found: list[tuple[int, Piece]] = []
    for index, name in enumerate(graph.relations):
        for toward in (0, 1):
            receiver, sender = edges[:, toward], edges[:, 1 - toward]
            chosen = np.flatnonzero(
                (graph.edge_relation == index) & (place[receiver] < 0) & (place[sender] >= 0)
            )
            if len(chosen):
                nodes, known = number[receiver[chosen]], place[sender[chosen]]
                order = np.argsort(nodes, kind="stable")
                values = fixed[int(graph.node_variable[sender[chosen[0]]])].values[known[order]]
                variable = int(graph.node_variable[receiver[chosen[0]]])
                readings = None if graph.readings is None else graph.readings[chosen[order]]
                found.append((variable, Observed(name, toward, nodes[order], values, readings)))
    return found
