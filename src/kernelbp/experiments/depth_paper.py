"""The depth experiment as the paper's authors ran it: a relation and a likelihood for every row of patches."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import DEPTH_FEATURES
from kernelbp.experiments.depth_model import (
    depth_name,
    grained,
    grid_of,
    median_of,
    pairs_of,
    parts_of,
    quietly,
)
from kernelbp.experiments.depth_scenes import Fold, Scene, scored
from kernelbp.experiments.study import Result
from kernelbp.kernels import Linear
from kernelbp.model import Model, Relation

__all__ = ["as_in_the_paper"]

Matrix = NDArray[np.float64]

PAPER_ITERATIONS, PAPER_DAMPING = 10, 0.9


def as_in_the_paper(scenes: Sequence[Scene], fold: Fold) -> Result:
    """The preset of the authors' program: a relation and a likelihood for every row, a linear kernel on the features.

    As in their depth program, messages are damped by 0.9; ten iterations, as in the paper.
    """
    train = [scenes[i] for i in fold.train]
    n_rows = len(scenes[0].depth)
    bands = np.arange(n_rows)
    variables, relations = parts_of(bands)
    variables["features"] = Linear()
    pairs = pairs_of(bands, train)
    centre, scale = _scaling(train)
    for row in bands:
        relations[f"looks like {row}"] = Relation(depth_name(row), "features", evidence="posterior")
        known = [np.isfinite(scene.depth[row]) for scene in train]
        depths = np.concatenate([grained(s.depth[row][k]) for s, k in zip(train, known, strict=True)])
        features = np.concatenate([s.features()[row][k] for s, k in zip(train, known, strict=True)])
        pairs[f"looks like {row}"] = (depths, _with_constant((features - centre) / scale))
    model = Model.paper(variables, relations, residual=1e-3)
    model.inference = {
        **(model.inference or {}),
        "max_iterations": PAPER_ITERATIONS,
        "damping": PAPER_DAMPING,
    }
    began = time.perf_counter()
    model.fit(pairs)
    fitted = time.perf_counter() - began
    rows = []
    for i in fold.test:
        scene, shape = scenes[i], scenes[i].depth.shape
        graph = grid_of(bands, shape)
        features = _with_constant((scene.features().reshape(-1, DEPTH_FEATURES) - centre) / scale)
        for row in bands:
            nodes = graph.nodes_of(depth_name(row))
            graph = graph.observe(f"looks like {row}", features[nodes], nodes=nodes)
        began = time.perf_counter()
        beliefs = quietly(model.infer, graph)
        seconds = time.perf_counter() - began
        rows.append(
            scored(
                "kernel BP, paper's preset, per row",
                "linear kernel",
                scene,
                median_of(beliefs, graph, shape),
                fit=fitted,
                seconds=seconds,
                iterations=beliefs.iterations,
                converged=beliefs.converged,
            )
        )
    return Result(rows)


def _scaling(train: Sequence[Scene]) -> tuple[Matrix, Matrix]:
    features = np.concatenate([scene.features().reshape(-1, DEPTH_FEATURES)[::7] for scene in train])
    return features.mean(axis=0), np.maximum(features.std(axis=0), 1e-6)


def _with_constant(features: Matrix) -> Matrix:
    """Features of about unit length, and a one: a linear kernel has no intercept of its own."""
    scaled = features / np.sqrt(features.shape[1])
    return np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1).astype(np.float64)
