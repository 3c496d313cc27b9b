"""The graph of depths: a variable for each band of rows, relations within and between bands, and evidence for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
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
    "LEARNED",
    "POINTS",
    "RESIDUAL",
    "TOGETHER",
    "all_evidence",
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
    "scales_of",
    "softened",
]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

TOGETHER = "all three"
"""Evidence that is the geometric mean of what the three estimators say."""
RESIDUAL, LEARNED = "residual", "learned"
"""Forms of evidence: a Laplace likelihood around a prediction, or what is predicted at which depth, learned by band."""
GRAIN = 0.01
"""Depths and predictions are learned from in steps of this much log10 depth (2%): equal pairs are merged."""
POINTS = 48
"""Depths at which evidence is handed on."""
FLOOR = 1e-9
"""Least density in a ratio of two."""


def parts_of(bands: Indices) -> tuple[dict[str, Any], dict[str, Relation]]:
    """A depth for each band of rows and a prediction for each estimator; relations within and between bands."""
    variables: dict[str, Any] = {depth_name(band): Gaussian() for band in np.unique(bands)}
    relations: dict[str, Relation] = {}
    for row, band in enumerate(bands):
        relations[f"beside {band}"] = Relation(depth_name(band), depth_name(band), symmetric=True)
        if row + 1 < len(bands):
            relations[below_name(bands, row)] = Relation(depth_name(band), depth_name(bands[row + 1]))
    return variables, relations


def add_words(
    variables: dict[str, Any], relations: dict[str, Relation], bands: Indices, kinds: Sequence[str]
) -> None:
    """Add what estimators say of depth: a likelihood for each band."""
    for kind in kinds:
        variables[kind] = Gaussian()
        for band in np.unique(bands):
            relations[f"{kind} says {band}"] = Relation(depth_name(band), kind, evidence="likelihood")


def pairs_of(
    bands: Indices, scenes: Sequence[Scene], words: Mapping[str, Sequence[Matrix]] | None = None
) -> dict[str, tuple[Matrix, Matrix]]:
    """Training pairs of all relations, in steps of `GRAIN`."""
    found: dict[str, tuple[list[Matrix], list[Matrix]]] = {}

    def add(name: str, first: Matrix, second: Matrix) -> None:
        known = np.isfinite(first) & np.isfinite(second)
        kept = found.setdefault(name, ([], []))
        kept[0].append(grained(first[known]))
        kept[1].append(grained(second[known]))

    for number, scene in enumerate(scenes):
        depth = scene.depth
        for row, band in enumerate(bands):
            add(f"beside {band}", depth[row, :-1], depth[row, 1:])
            if row + 1 < len(bands):
                add(below_name(bands, row), depth[row], depth[row + 1])
            for kind, said in (words or {}).items():
                add(f"{kind} says {band}", depth[row], said[number][row])
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


def evidence_of(model: Model, bands: Indices, kind: str, said: Matrix, points: Matrix) -> Matrix:
    """Log-likelihood of an estimator's word at depths `points`, (nodes, points): belief without neighbours, over marginal."""
    names = [depth_name(band) for band in bands]
    alone = Graph.from_edges([], variables=[name for name in names for _ in range(said.shape[1])])
    read = alone
    flat = grained(said).ravel()
    for band in np.unique(bands):
        nodes = alone.nodes_of(depth_name(band))
        read = read.observe(f"{kind} says {band}", flat[nodes], nodes=nodes)
    believed = model.infer(read)
    prior = model.infer(Graph.from_edges([], variables=list(dict.fromkeys(names))))
    logs = np.empty((read.n_nodes, len(points)))
    for name in read.variables:
        ratio = np.log(believed[name].density(points) + FLOOR) - np.log(prior[name].density(points) + FLOOR)
        logs[read.nodes_of(name)] = ratio
    return logs - logs.max(axis=1, keepdims=True)


def all_evidence(
    model: Model,
    bands: Indices,
    words: Mapping[str, Matrix],
    points: Matrix,
    scales: Mapping[str, float],
) -> dict[str, dict[str, Matrix]]:
    """Log-likelihoods (nodes, points), in both forms, by what each estimator says and by all of them together."""
    residual = {kind: -np.abs(points - said.reshape(-1, 1)) / scales[kind] for kind, said in words.items()}
    learned = {kind: evidence_of(model, bands, kind, said, points) for kind, said in words.items()}
    return {RESIDUAL: _with_mean(residual), LEARNED: _with_mean(learned)}


def _with_mean(logs: Mapping[str, Matrix]) -> dict[str, Matrix]:
    mean = sum(logs.values(), start=np.zeros(1)) / len(logs)
    return {**logs, TOGETHER: mean - mean.max(axis=1, keepdims=True)}


def scales_of(scenes: Sequence[Scene], words: Mapping[str, Sequence[Matrix]]) -> dict[str, float]:
    """How far each estimator is off, on average, on images it was not trained on: the scale of a Laplace likelihood."""
    truth = np.concatenate([scene.depth.ravel() for scene in scenes])
    return {
        kind: max(float(np.nanmean(np.abs(np.concatenate([one.ravel() for one in said]) - truth))), GRAIN)
        for kind, said in words.items()
    }


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


def learn(
    bands: Indices, scenes: Sequence[Scene], words: Mapping[str, Sequence[Matrix]], sizes: Sizes
) -> Model:
    """Our model with all its settings by default, but for the number of states."""
    variables, relations = parts_of(bands)
    add_words(variables, relations, bands, list(words))
    return Model(variables, relations, budget=sizes.states).fit(pairs_of(bands, scenes, words))


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
