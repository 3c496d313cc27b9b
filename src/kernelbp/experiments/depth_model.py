"""The graph of depths: a variable for each band of rows, and relations within and between bands."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.experiments.depth_scenes import Scene, Sizes
from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Model, Relation

__all__ = [
    "depth_name",
    "grained",
    "grid_of",
    "learn",
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


def parts_of(bands: Indices) -> tuple[dict[str, Any], dict[str, Relation]]:
    """A depth for each band of rows; relations within and between bands."""
    variables: dict[str, Any] = {depth_name(band): Gaussian() for band in np.unique(bands)}
    relations: dict[str, Relation] = {}
    for row, band in enumerate(bands):
        relations[f"beside {band}"] = Relation(depth_name(band), depth_name(band), symmetric=True)
        if row + 1 < len(bands):
            relations[below_name(bands, row)] = Relation(depth_name(band), depth_name(bands[row + 1]))
    return variables, relations


def pairs_of(bands: Indices, scenes: Sequence[Scene]) -> dict[str, tuple[Matrix, Matrix]]:
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
    return pairs


def grid_of(bands: Indices, shape: tuple[int, int]) -> Graph:
    """One node for each patch; rows of a band are nodes of its variable."""
    relation = {
        "right": [f"beside {band}" for band in bands],
        "down": [below_name(bands, row) for row in range(len(bands) - 1)],
    }
    graph = Graph.grid(shape, variable="depth", relation=relation)
    names = tuple(depth_name(band) for band in np.unique(bands))
    return replace(graph, variables=names, node_variable=np.repeat(bands, shape[1]).astype(np.intp))


def softened(graph: Graph, points: Matrix, logs: Matrix) -> Graph:
    """The graph with evidence: log-likelihoods (nodes, points)."""
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    for name in graph.variables:
        nodes = graph.nodes_of(name)
        graph = graph.soften(nodes, points, likelihoods[nodes])
    return graph


def median_of(beliefs: Any, graph: Graph, shape: tuple[int, int]) -> Matrix:
    """The belief's median at every patch: what a mean absolute error asks for."""
    found = np.empty(graph.n_nodes)
    for name in graph.variables:
        found[graph.nodes_of(name)] = beliefs[name].quantile(0.5)
    return found.reshape(shape)


def learn(bands: Indices, scenes: Sequence[Scene], sizes: Sizes) -> Model:
    """Our model with its settings by default, but for the number of states."""
    return Model(*parts_of(bands), budget=sizes.states).fit(pairs_of(bands, scenes))


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


def below_name(bands: Indices, row: int) -> str:
    here, there = bands[row], bands[row + 1]
    return f"below {here}" if here == there else f"below {here} {there}"
