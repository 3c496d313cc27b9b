"""The order in which messages are updated: how an iteration is cut into phases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.inference.wiring import Phase, Wiring

__all__ = ["Plan", "Schedule", "make_plan"]

Indices = NDArray[np.intp]
Schedule = Literal["auto", "flooding", "sweep", "residual", "splash", "tree"]

RESIDUAL_BATCHES = 8
"""Residual scheduling updates messages in this many batches an iteration, the most changed first."""
SPLASH_DEPTH = 4
"""How far from its root a splash grows."""
SPLASH_ROOTS = 16
"""One node in this many is the root of a splash."""


class Plan(Protocol):
    """A way to cut iterations into phases.

    An iteration of any plan holds about as many updates as there are messages; a `complete` one holds
    every message at least once, so that its largest change is a verdict on all of them.
    """

    dynamic: bool
    """Whether iterations may leave messages out unless asked to be complete."""
    ranks: Indices | None
    """For each node the phase it always sends in, if there is just one."""

    def iteration(self, changes: NDArray[np.float64], *, complete: bool) -> Iterator[Sequence[Phase]]:
        """Phases one after another, in groups.

        `changes` (messages,) is up to date whenever the next group is asked for. A plan that gives the same
        group each time gives the same object, so that it is laid out once.
        """


def make_plan(schedule: Schedule, wiring: Wiring, n_nodes: int, shape: tuple[int, ...] | None) -> Plan:
    """Choose a plan by name.

    - ``flooding``: all messages at once.
    - ``sweep``: on grids and chains along each axis, there and back, one slice after another; on other
      graphs one colour of nodes after another, no two neighbours sharing a colour.
    - ``residual``: in batches, messages whose inputs have changed most first.
    - ``splash``: out of trees grown around the nodes whose inputs have changed most, from the leaves to
      the root and back (the paper's choice for its discrete rival).
    - ``tree``: from the leaves to the root of every tree and back, exact in one iteration.
    - ``auto``: ``tree`` on forests, else one colour of nodes after another.
    """
    if schedule == "residual":
        return ResidualPlan(wiring)
    if schedule == "splash":
        return SplashPlan(wiring, n_nodes)
    return wiring.kept.once(("plan", schedule, shape), lambda: _fixed_plan(schedule, wiring, n_nodes, shape))


def _fixed_plan(schedule: Schedule, wiring: Wiring, n_nodes: int, shape: tuple[int, ...] | None) -> FixedPlan:
    source, target = wiring.ends
    forest = wiring.is_forest
    if schedule == "tree" and not forest:
        raise InputError("schedule: 'tree' needs a graph without cycles; use 'auto' or 'sweep'")
    if schedule == "flooding":
        return FixedPlan(wiring, np.zeros(wiring.n_messages, dtype=np.intp))
    if schedule == "tree" or (schedule == "auto" and forest):
        return FixedPlan(wiring, _tree_order(n_nodes, source, target))
    if shape is not None and schedule == "sweep":
        return FixedPlan(wiring, _grid_order(shape, source, target))
    colours = _colours(n_nodes, source, target, shape)
    return FixedPlan(wiring, colours[source], colours)


class FixedPlan:
    """Every message once an iteration, in the order of its rank; messages of equal rank together."""

    dynamic = False

    def __init__(self, wiring: Wiring, rank: Indices, node_ranks: Indices | None = None) -> None:
        self.ranks = node_ranks
        ordered = np.argsort(rank, kind="stable")
        cuts = np.flatnonzero(np.diff(rank[ordered])) + 1
        self.phases = tuple(wiring.phase(group) for group in np.split(ordered, cuts) if len(group))

    def iteration(self, changes: NDArray[np.float64], *, complete: bool) -> Iterator[Sequence[Phase]]:
        """The same phases each time."""
        yield self.phases


class Pending:
    """For each message, how much its inputs have changed since it was last sent."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._source, target = wiring.ends
        self._by_source = np.argsort(self._source, kind="stable")
        count = int(max(self._source.max(initial=-1), target.max(initial=-1))) + 1
        self._begin = np.concatenate([[0], np.cumsum(np.bincount(self._source, minlength=count))]).astype(
            np.intp
        )
        self._target = target
        self.amount = np.full(wiring.n_messages, np.inf)

    def sent(self, messages: Indices, changes: NDArray[np.float64]) -> None:
        """Messages were sent and changed by so much: what their receivers send is now out of date."""
        self.amount[messages] = 0.0
        moved = messages[changes[messages] > 0]
        nodes = self._target[moved]
        length = np.diff(self._begin)[nodes]
        offsets = np.cumsum(length) - length
        following = self._by_source[np.arange(length.sum()) + np.repeat(self._begin[nodes] - offsets, length)]
        cause = np.repeat(moved, length)
        onward = following != self._wiring.reverse[cause]
        np.maximum.at(self.amount, following[onward], changes[cause[onward]])

    def of_nodes(self, n_nodes: int) -> NDArray[np.float64]:
        """The largest amount among the messages each node sends."""
        largest = np.zeros(n_nodes)
        np.maximum.at(largest, self._source, self.amount)
        return largest


class ResidualPlan:
    """The messages whose inputs have changed most, a batch at a time."""

    dynamic = True
    ranks: Indices | None = None

    def __init__(self, wiring: Wiring) -> None:
        self._wiring, self._pending = wiring, Pending(wiring)
        self._everything = (wiring.phase(np.arange(wiring.n_messages)),) if wiring.n_messages else ()

    def iteration(self, changes: NDArray[np.float64], *, complete: bool) -> Iterator[Sequence[Phase]]:
        """Batches of the most changed; or all at once when a verdict is asked for."""
        pending, count = self._pending, self._wiring.n_messages
        if complete:
            yield self._everything
            pending.sent(np.arange(count), changes)
            return
        batch = max(1, -(-count // RESIDUAL_BATCHES))
        for _ in range(RESIDUAL_BATCHES):
            chosen = np.sort(np.argpartition(-pending.amount, min(batch, count - 1))[:batch])
            yield (self._wiring.phase(chosen),)
            pending.sent(chosen, changes)


class SplashPlan:
    """Trees grown around the nodes whose inputs have changed most, updated inwards and then outwards."""

    dynamic = True
    ranks: Indices | None = None

    def __init__(self, wiring: Wiring, n_nodes: int) -> None:
        self._wiring, self._n_nodes, self._pending = wiring, n_nodes, Pending(wiring)
        source, target = wiring.ends
        self._adjacency = scipy.sparse.csr_array(
            (np.ones(len(source), dtype=bool), (source, target)), shape=(n_nodes, n_nodes)
        )

    def iteration(self, changes: NDArray[np.float64], *, complete: bool) -> Iterator[Sequence[Phase]]:
        """Splash after splash, until as many messages were sent as there are (or all, if complete)."""
        source, _ = self._wiring.ends
        left, sent = np.ones(self._wiring.n_messages, dtype=bool), 0
        while left.any() if complete else sent < self._wiring.n_messages:
            amount = self._pending.of_nodes(self._n_nodes)
            if complete:
                waiting = np.zeros(self._n_nodes, dtype=bool)
                waiting[source[left]] = True
                amount[waiting] = np.inf
            elif not amount.any():
                return  # nothing is out of date
            depth = _depths(self._adjacency, self._roots(amount), SPLASH_DEPTH)
            for level in [*range(depth.max(), 0, -1), *range(depth.max() + 1)]:
                chosen = np.flatnonzero(depth[source] == level)
                if len(chosen):
                    yield (self._wiring.phase(chosen),)
                    self._pending.sent(chosen, changes)
                    left[chosen] = False
                    sent += len(chosen)

    def _roots(self, amount: NDArray[np.float64]) -> Indices:
        count = max(1, self._n_nodes // SPLASH_ROOTS)
        return np.sort(np.argsort(-amount, kind="stable")[:count])


def _grid_order(shape: tuple[int, ...], source: Indices, target: Indices) -> Indices:
    """Sweep along each axis there, then back: slice after slice of the senders' coordinate."""
    start = np.stack(np.unravel_index(source, shape))
    step = np.stack(np.unravel_index(target, shape)) - start
    axis = (step != 0).argmax(axis=0)
    along = np.take_along_axis(start, axis[None], axis=0)[0]
    forward = np.take_along_axis(step, axis[None], axis=0)[0] > 0
    longest = max(shape)
    rank: Indices = (2 * axis + ~forward) * longest + np.where(forward, along, longest - 1 - along)
    return rank


def _tree_order(n_nodes: int, source: Indices, target: Indices) -> Indices:
    """Messages towards the root of each tree (its first node) from the deepest first, then away from it."""
    graph = scipy.sparse.csr_array(
        (np.ones(len(source), dtype=bool), (source, target)), shape=(n_nodes, n_nodes)
    )
    _, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    depth = _depths(graph, np.unique(labels, return_index=True)[1], n_nodes)
    deepest = int(depth.max(initial=0))
    return np.where(depth[source] > depth[target], deepest - depth[source], deepest + depth[source])


def _depths(graph: scipy.sparse.csr_array, roots: Indices, deepest: int) -> Indices:
    """Distance of each node from the nearest root, layer by layer; -1 beyond `deepest`."""
    depth = np.full(graph.shape[0], -1, dtype=np.intp)
    depth[roots] = 0
    layer, level = roots, 0
    degree = np.diff(graph.indptr)
    while len(layer) and level < deepest:
        level += 1
        length = degree[layer]
        offsets = np.cumsum(length) - length
        reached = graph.indices[np.arange(length.sum()) + np.repeat(graph.indptr[layer] - offsets, length)]
        layer = np.unique(reached[depth[reached] < 0])
        depth[layer] = level
    return depth


def _colours(n_nodes: int, source: Indices, target: Indices, shape: tuple[int, ...] | None) -> Indices:
    """A colour for each node, none shared by neighbours: those of a chessboard where they do."""
    if shape is not None:
        chessboard = np.indices(shape, sparse=True)
        colour: Indices = np.broadcast_to(sum(chessboard) % 2, shape).ravel()
        if (colour[source] != colour[target]).all():
            return colour
    return _colouring(n_nodes, source, target)


def _colouring(n_nodes: int, source: Indices, target: Indices) -> Indices:
    """A colouring of the nodes: those of locally largest priority first, each the smallest free colour.

    Priorities are the degree, then a fixed shuffle, so that few colours do and no Python loop over
    nodes is needed.
    """
    degree = np.bincount(target, minlength=n_nodes)
    shuffle = np.random.default_rng(0).permutation(n_nodes)
    priority = np.empty(n_nodes, dtype=np.intp)
    priority[np.lexsort((shuffle, degree))] = np.arange(n_nodes)
    colour = np.full(n_nodes, -1, dtype=np.intp)
    left = np.arange(len(source))
    while (colour < 0).any():
        rival = np.full(n_nodes, -1, dtype=np.intp)
        np.maximum.at(rival, target[left], priority[source[left]])
        ready = np.flatnonzero((colour < 0) & (priority > rival))
        colour[ready] = _smallest_free(ready, colour, source, target)
        left = left[(colour[source[left]] < 0) & (colour[target[left]] < 0)]
    return colour


def _smallest_free(ready: Indices, colour: Indices, source: Indices, target: Indices) -> Indices:
    """For nodes without mutual edges, the smallest colour none of their neighbours has."""
    number = np.full(len(colour), -1, dtype=np.intp)
    number[ready] = np.arange(len(ready))
    touching = (number[target] >= 0) & (colour[source] >= 0)
    pairs = np.unique(np.stack([number[target[touching]], colour[source[touching]]]), axis=1)
    # A node's neighbours' colours, ascending and distinct: those equal to their rank fill 0, 1, 2, ...
    rank = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], np.arange(len(ready)))[pairs[0]]
    filled = np.bincount(pairs[0][pairs[1] == rank], minlength=len(ready))
    return filled.astype(np.intp)
