"""The order in which messages are updated: how an iteration is cut into phases."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from kernelbp.graph import Graph
from kernelbp.inference.wiring import Phase, Wiring

__all__ = ["Schedule", "is_forest_wiring", "make_phases"]

Indices = NDArray[np.intp]
Schedule = Literal["auto", "flooding", "sweep", "tree"]


def make_phases(graph: Graph, wiring: Wiring, schedule: Schedule) -> list[Phase]:
    """Cut an iteration into phases.

    - ``flooding``: all messages at once.
    - ``sweep``: on grids and chains along each axis, there and back, one slice after another; on other
      graphs one colour of nodes after another, no two neighbours sharing a colour.
    - ``tree``: from the leaves to the root of every tree and back, exact in one iteration.
    - ``auto``: ``tree`` on forests, else ``sweep``.
    """
    if wiring.n_messages == 0:
        return []
    ids = np.arange(wiring.n_messages)
    if schedule == "flooding":
        return [wiring.phase(ids)]
    source, target = _node_numbers(wiring)
    if schedule == "tree" or (schedule == "auto" and is_forest(graph.n_nodes, source, target)):
        order = _tree_order(graph.n_nodes, source, target)
    elif graph.shape is not None:
        order = _grid_order(graph.shape, source, target)
    else:
        order = _colouring(graph.n_nodes, source, target)[source]
    return [wiring.phase(group) for group in _groups(order)]


def is_forest_wiring(graph: Graph, wiring: Wiring) -> bool:
    """Whether messages run along no cycle."""
    return is_forest(graph.n_nodes, *_node_numbers(wiring))


def is_forest(n_nodes: int, source: Indices, target: Indices) -> bool:
    """Whether the graph of these messages (each edge both ways) has no cycle."""
    return len(source) // 2 == n_nodes - _components(n_nodes, source, target)[0]


def _node_numbers(wiring: Wiring) -> tuple[Indices, Indices]:
    """The graph's node numbers of every message's two ends."""
    source, target = np.empty_like(wiring.source), np.empty_like(wiring.target)
    for variable, members in enumerate(wiring.nodes):
        mine = wiring.source_variable == variable
        source[mine] = members[wiring.source[mine]]
        mine = wiring.target_variable == variable
        target[mine] = members[wiring.target[mine]]
    return source, target


def _groups(order: Indices) -> list[Indices]:
    """Message numbers grouped by ascending `order`."""
    ranked = np.argsort(order, kind="stable")
    cuts = np.flatnonzero(np.diff(order[ranked])) + 1
    return list(np.split(ranked, cuts))


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


def _components(n_nodes: int, source: Indices, target: Indices) -> tuple[int, Indices]:
    graph = sparse.csr_array((np.ones(len(source), dtype=bool), (source, target)), shape=(n_nodes, n_nodes))
    number, labels = csgraph.connected_components(graph, directed=False)
    return int(number), labels


def _tree_order(n_nodes: int, source: Indices, target: Indices) -> Indices:
    """Messages towards the root from the deepest first, then away from it."""
    depth = _depths(n_nodes, source, target)
    deepest = int(depth.max())
    up = depth[source] > depth[target]
    return np.where(up, deepest - depth[source], deepest + depth[source])


def _depths(n_nodes: int, source: Indices, target: Indices) -> Indices:
    """Distance of each node from the root of its component (its first node), layer by layer."""
    graph = sparse.csr_array((np.ones(len(source), dtype=bool), (source, target)), shape=(n_nodes, n_nodes))
    _, labels = csgraph.connected_components(graph, directed=False)
    _, roots = np.unique(labels, return_index=True)
    depth = np.full(n_nodes, -1, dtype=np.intp)
    depth[roots] = 0
    layer, level = roots, 0
    while len(layer):
        level += 1
        begin, length = graph.indptr[layer], np.diff(graph.indptr)[layer]
        offsets = np.cumsum(length) - length
        reached = graph.indices[np.arange(length.sum()) + np.repeat(begin - offsets, length)]
        layer = np.unique(reached[depth[reached] < 0])
        depth[layer] = level
    return depth


def _colouring(n_nodes: int, source: Indices, target: Indices) -> Indices:
    """A colouring of the nodes by repeated maximal independent sets of locally largest priority.

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
        colour[ready] = _smallest_free(ready, colour, source, target, n_nodes)
        left = left[(colour[source[left]] < 0) & (colour[target[left]] < 0)]
    return colour


def _smallest_free(
    ready: Indices, colour: Indices, source: Indices, target: Indices, n_nodes: int
) -> Indices:
    """For nodes without mutual edges, the smallest colour none of their neighbours has."""
    number = np.full(n_nodes, -1, dtype=np.intp)
    number[ready] = np.arange(len(ready))
    touching = (number[target] >= 0) & (colour[source] >= 0)
    pairs = np.unique(np.stack([number[target[touching]], colour[source[touching]]]), axis=1)
    # Colours of one node's neighbours, ascending: the first that differs from its rank is free below.
    begins = np.searchsorted(pairs[0], np.arange(len(ready)))
    rank = np.arange(pairs.shape[1]) - begins[pairs[0]]
    taken = np.bincount(pairs[0][pairs[1] == rank], minlength=len(ready))
    return taken.astype(np.intp)
