"""The graph of depths: a variable for each band of rows, and relations within and between bands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.experiments.depth_scenes import Scene
from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Relation

__all__ = [
    "Again",
    "Link",
    "depth_name",
    "from_anywhere",
    "grained",
    "grid_of",
    "median_of",
    "pairs_of",
    "parts_of",
    "quietly",
    "softened",
]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

GRAIN = 0.01
"""Depths are learned from in steps of this much log10 depth (2%): equal pairs are merged."""
FARTHEST = 0.3
"""How much nearer or farther than it was, in log10 depth, a scene is thought to be seen: from half as far to twice."""
COPIES, GOLDEN = 8, (5**0.5 - 1) / 2
"""Of each pair; over all pairs their distances are spread evenly, by multiples of the golden section."""


@dataclass(frozen=True, eq=False)
class Again:
    """What is known of patches seen again in the next frame.

    Attributes
    ----------
    pairs : to learn from, by the bands of the later and of the earlier patch and the steps by which the scene receded
    steps : by which the scene receded, by frame
    """

    pairs: Mapping[tuple[int, int, int], tuple[Matrix, Matrix]] = field(default_factory=dict)
    steps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Link:
    """What ties a frame to the one before.

    Attributes
    ----------
    nodes : (nodes of a frame,) the node of the frame before that each is tied to; -1: to none
    steps : by which the scene receded
    """

    nodes: Indices
    steps: int


def parts_of(bands: Indices, again: Again | None = None) -> tuple[dict[str, Any], dict[str, Relation]]:
    """A depth for each band of rows; relations within and between bands, and between frames."""
    variables: dict[str, Any] = {depth_name(band): Gaussian() for band in np.unique(bands)}
    relations: dict[str, Relation] = {}
    for row, band in enumerate(bands):
        relations[f"beside {band}"] = Relation(depth_name(band), depth_name(band), symmetric=True)
        if row + 1 < len(bands):
            relations[below_name(bands, row)] = Relation(depth_name(band), depth_name(bands[row + 1]))
    for here, before, steps in again.pairs if again else ():
        relations[again_name(here, before, steps)] = Relation(depth_name(here), depth_name(before))
    return variables, relations


def pairs_of(
    bands: Indices, scenes: Sequence[Scene], again: Again | None = None
) -> dict[str, tuple[Matrix, Matrix]]:
    """Training pairs of all relations, in steps of `GRAIN`."""
    found: dict[str, tuple[list[Matrix], list[Matrix]]] = {}

    def add(name: str, first: Matrix, second: Matrix) -> None:
        known = np.isfinite(first) & np.isfinite(second)
        kept = found.setdefault(name, ([], []))
        kept[0].append(grained(first[known]))
        kept[1].append(grained(second[known]))

    for scene in scenes:
        depth = scene.depth
        for row, band in enumerate(bands):
            add(f"beside {band}", depth[row, :-1], depth[row, 1:])
            if row + 1 < len(bands):
                add(below_name(bands, row), depth[row], depth[row + 1])
    pairs = {name: (np.concatenate(a), np.concatenate(b)) for name, (a, b) in found.items()}
    for name, (first, _) in pairs.items():
        if not len(first):
            raise InputError(f"data: no training image has two known depths for the relation {name!r}")
    return pairs | {again_name(*ends): both for ends, both in (again.pairs if again else {}).items()}


def from_anywhere(
    pairs: Mapping[str, tuple[Matrix, Matrix]], points: Matrix
) -> dict[str, tuple[Matrix, Matrix]]:
    """Pairs as if scenes had been seen from nearer and farther: both depths of a pair change by the same factor.

    What is left to learn is how depths differ, not how deep things are.

    Parameters
    ----------
    pairs : of all relations
    points : from the least depth to the largest; pairs that leave this range are left out, but for those as they were
    """
    moved = {}
    for name, (first, second) in pairs.items():
        places = np.arange(COPIES * len(first), dtype=np.float64) * GOLDEN % 1.0
        steps = grained((2 * places - 1) * FARTHEST)
        ends = [np.tile(end, COPIES) + steps for end in (first, second)]
        inside = np.all([(points[0] <= end) & (end <= points[-1]) for end in ends], axis=0)
        moved[name] = (
            np.concatenate([first, ends[0][inside]]),
            np.concatenate([second, ends[1][inside]]),
        )
    return moved


def grid_of(
    bands: Indices, shape: tuple[int, int], links: Sequence[Link] = (), again: Again | None = None
) -> Graph:
    """One node for each patch; rows of a band are nodes of its variable.

    Parameters
    ----------
    bands : (rows,)
    shape : (rows, columns) of a frame
    links : for each further frame, whose nodes follow, what ties it to the one before
    again : ties it has no pairs for are left out
    """
    relation = {
        "right": [f"beside {band}" for band in bands],
        "down": [below_name(bands, row) for row in range(len(bands) - 1)],
    }
    frame = Graph.grid(shape, variable="depth", relation=relation)
    names = tuple(depth_name(band) for band in np.unique(bands))
    band = np.repeat(bands, shape[1]).astype(np.intp)
    frame = replace(frame, variables=names, node_variable=band)
    if not links:
        return frame
    relations = {name: number for number, name in enumerate(frame.relations)}
    count, frames = frame.n_nodes, len(links) + 1
    edges = [frame.edges + count * k for k in range(frames)]
    kinds = [np.tile(frame.edge_relation, frames)]
    for here, before, steps in again.pairs if again else ():
        number = len(relations)
        relations[again_name(here, before, steps)] = number
        for k, link in enumerate(links):
            if link.steps == steps:
                tied = (link.nodes >= 0) & (band == here) & (band[link.nodes] == before)
                nodes = np.flatnonzero(tied)
                edges.append(np.stack([nodes + count * (k + 1), link.nodes[nodes] + count * k], axis=1))
                kinds.append(np.full(len(nodes), number, dtype=np.intp))
    return Graph(names, np.tile(band, frames), tuple(relations), np.concatenate(edges), np.concatenate(kinds))


def softened(graph: Graph, points: Matrix, logs: Matrix) -> Graph:
    """The graph with evidence: log-likelihoods (nodes, points)."""
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    for name in graph.variables:
        nodes = graph.nodes_of(name)
        graph = graph.soften(nodes, points, likelihoods[nodes])
    return graph


def median_of(beliefs: Any, graph: Graph, shape: tuple[int, ...]) -> Matrix:
    """The belief's median at every patch: what a mean absolute error asks for."""
    found = np.empty(graph.n_nodes)
    for name in graph.variables:
        found[graph.nodes_of(name)] = beliefs[name].quantile(0.5)
    return found.reshape(shape)


def quietly(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Whether messages settled stands in the table; no warning is needed as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return function(*given, **named)


def grained(values: Matrix) -> Matrix:
    """Values in steps of `GRAIN`."""
    return np.round(values / GRAIN) * GRAIN


def depth_name(band: int | np.integer[Any]) -> str:
    """Of a band's variable."""
    return f"depth {band}"


def again_name(here: int, before: int, steps: int) -> str:
    """Of the relation of a band's depths to those of a band of the frame before, where the scene receded by so many steps."""
    return f"again {here} {before}, {steps:+d}"


def below_name(bands: Indices, row: int) -> str:
    here, there = bands[row], bands[row + 1]
    return f"below {here}" if here == there else f"below {here} {there}"
