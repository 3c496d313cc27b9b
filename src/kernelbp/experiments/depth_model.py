"""The graph of depths: a variable for each band of rows, relations within and between bands, and evidence for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.experiments.depth_scenes import Scene, Sizes
from kernelbp.experiments.study import Result
from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Model, Relation

__all__ = [
    "POINTS",
    "TOGETHER",
    "best_of",
    "depth_name",
    "evidence_of",
    "grained",
    "grid_of",
    "learn",
    "median_of",
    "pairs_of",
    "parts_of",
    "points_of",
    "quietly",
    "scale_of",
    "softened",
]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

TOGETHER = "all three"
"""Evidence from a weighted mean of what the three estimators say."""
GRAIN = 0.01
"""Depths are learned from in steps of this much log10 depth (2%): equal pairs are merged."""
POINTS = 48
"""Depths at which evidence is handed on."""


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


def evidence_of(said: Matrix, points: Matrix, scale: float) -> Matrix:
    """Log-likelihood (nodes, points) of what is said of patches: Laplace's, around it.

    Parameters
    ----------
    said : (rows, columns) depths, or (rows, columns, voices): what many say of a patch counts as much as what one says
    points : depths at which it is wanted
    scale : of the likelihood
    """
    voices = said.reshape(said.shape[0] * said.shape[1], -1).T
    logs = np.zeros((voices.shape[1], len(points)))
    for one in voices:
        logs -= np.abs(points - one[:, None])
    return logs / (scale * len(voices))


def scale_of(scenes: Sequence[Scene], said: Sequence[Matrix]) -> float:
    """How far off what is said is, on average, of images nobody was trained on: the scale of a Laplace likelihood."""
    off = [
        np.abs(one.reshape(*scene.depth.shape, -1) - scene.depth[..., None]).ravel()
        for one, scene in zip(said, scenes, strict=True)
    ]
    return max(float(np.nanmean(np.concatenate(off))), GRAIN)


def softened(graph: Graph, points: Matrix, logs: Matrix, power: float) -> Graph:
    """The graph with evidence, raised to a power."""
    for name in graph.variables:
        nodes = graph.nodes_of(name)
        graph = graph.soften(nodes, points, np.exp(power * logs[nodes]))
    return graph


def median_of(beliefs: Any, graph: Graph, shape: tuple[int, int]) -> Matrix:
    """The belief's median at every patch: what a mean absolute error asks for."""
    found = np.empty(graph.n_nodes)
    for name in graph.variables:
        found[graph.nodes_of(name)] = beliefs[name].quantile(0.5)
    return found.reshape(shape)


def best_of(tuned: Result, kind: str, *, alike: bool = True) -> tuple[float, float, float | None]:
    """Power, count of look-alikes and mixing with the least error on training images; without look-alikes if asked."""
    rows = [row for row in tuned.rows if row["evidence"] == kind and (alike or not row["look-alikes count"])]
    best = min(rows, key=lambda row: float(row["MAE"] or 0))
    mixing = best["mixing"]
    return (
        float(best["power"] or 0),
        float(best["look-alikes count"] or 0),
        None if mixing is None else float(mixing),
    )


def learn(bands: Indices, scenes: Sequence[Scene], sizes: Sizes, mixing: float | None = None) -> Model:
    """Our model with its settings by default, but for the number of states and perhaps the mixing."""
    return Model(*parts_of(bands), budget=sizes.states, mixing=mixing).fit(pairs_of(bands, scenes))


def points_of(scenes: Sequence[Scene]) -> Matrix:
    """Depths at which evidence is handed on: evenly from the least to the largest in training."""
    depths = np.concatenate([scene.depth.ravel() for scene in scenes])
    return np.linspace(float(np.nanmin(depths)), float(np.nanmax(depths)), POINTS)


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
