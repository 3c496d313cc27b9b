"""Rivals on the depth experiment: the same relations and training pairs.

With the paper's settings they pass messages over the paper's graph, a grid, and what predictors say is their evidence. With
settings searched for they are given the look-alikes of kernel belief propagation, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.depth_lookalikes import ALIKE
from kernelbp.experiments.depth_model import (
    TOGETHER,
    best_of,
    evidence_of,
    grid_of,
    median_of,
    pairs_of,
    parts_of,
    points_of,
    quietly,
    scale_of,
    softened,
)
from kernelbp.experiments.depth_scenes import (
    TUNED_PART,
    Fold,
    Scene,
    Sizes,
    error_of,
    inner_parts,
    middle_columns,
    middle_of,
    scored,
    thinned,
)
from kernelbp.experiments.study import Result

__all__ = ["FOR_RIVALS", "PAPER", "TRIED", "WAYS", "compare"]

Indices = NDArray[np.intp]
Matrix = NDArray[np.float64]

FOR_RIVALS = TOGETHER
"""Whose evidence the rivals get, too."""
WAYS = ("paper's settings", "best found")
PAPER: dict[str, dict[str, Any]] = {
    "discrete": {"levels": 30, "spacing": "even", "weighting": "bethe", "schedule": "splash", "damping": 0.0},
    "particle": {
        "n_particles": 20,
        "resample_every": 10,
        "mcmc_steps": 10,
        "mixing": 0.0,
        "damping": 0.0,
        "schedule": "sweep",
    },
    "Gaussian-mixture": {"n_samples": 12, "mixing": 0.0, "damping": 0.0},
}
"""Of the paper and its appendix 5; all run 10 iterations, particles 100."""
SETTLED = {"schedule": "auto", "damping": "auto", "max_iterations": 100, "tolerance": 1e-3}
"""Discrete belief propagation is quick: it may run until messages settle, as ours does."""
TRIED: dict[str, list[dict[str, Any]]] = {
    "discrete": [
        {**SETTLED, "spacing": "even", "weighting": "tree-reweighted"},
        {**SETTLED, "spacing": "quantiles", "weighting": "tree-reweighted"},
        {**SETTLED, "spacing": "quantiles", "weighting": "bethe", "damping": 0.5},
    ],
    "particle": [
        {"mixing": 0.05, "damping": 0.5},
        {"mixing": 0.2, "damping": 0.5},
    ],
    "Gaussian-mixture": [
        {"mixing": 0.05, "damping": 0.5},
        {"mixing": 0.2, "damping": 0.5},
    ],
}
"""What the search tries in place of the paper's settings, each with several powers of the evidence."""
SEARCHED_FACTORS = (1.0, 1 / 3, 3.0)
"""On the power of the evidence that is best for kernel belief propagation."""
SEARCHED_ITERATIONS = {"discrete": 100, "particle": 20, "Gaussian-mixture": 10}
SEARCHED_PART = 2
"""Of the columns kernel belief propagation is tuned on, one of this many, in the middle: others are slow."""
OF_INFER = {"weighting", "schedule", "damping", "max_iterations", "tolerance"}


def compare(
    rival: str,
    way: str,
    scenes: Sequence[Scene],
    fold: Fold,
    words: Mapping[str, Mapping[int, Matrix]],
    bands: Indices,
    sizes: Sizes,
    tuned: Result,
) -> Result:
    """A rival with the predictions and the training pairs that kernel belief propagation has."""
    limit = sizes.particle_iterations if rival == "particle" else sizes.iterations
    settings: dict[str, Any] = {**PAPER[rival], "max_iterations": limit, "tolerance": 0.0}
    power, share = 1.0, 0.0
    if way == "best found":
        settings, power, share = _searched(rival, settings, scenes, fold, words, bands, sizes, tuned)
    train = [scenes[i] for i in fold.train]
    points, scales = points_of(train), _scales(scenes, fold.train, words)
    began = time.perf_counter()
    model = _rival(rival, settings, bands, train)
    fitted = time.perf_counter() - began
    asked = {name: value for name, value in settings.items() if name in OF_INFER}
    rows = []
    for i in fold.test:
        scene, shape = scenes[i], scenes[i].depth.shape
        said, alike = (evidence_of(words[kind][i], points, scale) for kind, scale in scales.items())
        logs = said + share * alike
        graph = softened(grid_of(bands, shape), points, logs, power)
        began = time.perf_counter()
        beliefs = quietly(model.infer, graph, **asked)
        seconds = time.perf_counter() - began
        found = median_of(beliefs, graph, shape)
        used = ", ".join(
            f"{name} {value}" for name, value in {**settings, "power": power, "look-alikes": share}.items()
        )
        rows.append(
            scored(
                f"{rival} BP, {way}",
                FOR_RIVALS,
                scene,
                found,
                fit=fitted,
                seconds=seconds,
                iterations=beliefs.iterations,
                converged=beliefs.converged,
                settings=used,
            )
        )
    return Result(rows)


def _searched(
    rival: str,
    settings: dict[str, Any],
    scenes: Sequence[Scene],
    fold: Fold,
    words: Mapping[str, Mapping[int, Matrix]],
    bands: Indices,
    sizes: Sizes,
    tuned: Result,
) -> tuple[dict[str, Any], float, float]:
    """The settings and the power of evidence with the least error on training images, and what look-alikes count in it.

    They count what is best for kernel belief propagation. Discrete belief propagation is quick and searches where that does;
    others on a part of one image.
    """
    parts = inner_parts(scenes, fold)
    parts, images, part = (
        (parts, sizes.tuned, TUNED_PART)
        if rival == "discrete"
        else (parts[-1:], 1, TUNED_PART * SEARCHED_PART)
    )
    ours, share, _ = best_of(tuned, FOR_RIVALS)
    tried = [{**settings, **changed} for changed in TRIED[rival][: sizes.tried]]
    powers = [ours * factor for factor in SEARCHED_FACTORS]
    errors = np.zeros((len(tried), len(powers)))
    for left_out, (number, options) in product(parts, enumerate(tried)):
        known = [i for i in fold.train if i not in left_out]
        points = points_of([scenes[i] for i in known])
        scales = _scales(scenes, known, words)
        model = _rival(rival, options, bands, [scenes[i] for i in known])
        asked = {name: value for name, value in options.items() if name in OF_INFER}
        # A search need not run as long as a test.
        asked["max_iterations"] = min(options["max_iterations"], SEARCHED_ITERATIONS[rival])
        chosen = thinned(left_out, images)
        for i, (column, power) in product(chosen, enumerate(powers)):
            scene = middle_of(scenes[i], part)
            said, alike = (
                evidence_of(middle_columns(words[kind][i], part), points, scale)
                for kind, scale in scales.items()
            )
            graph = softened(grid_of(bands, scene.depth.shape), points, said + share * alike, power)
            beliefs = quietly(model.infer, graph, **asked)
            error = error_of(median_of(beliefs, graph, scene.depth.shape), scene)
            errors[number, column] += error / (len(chosen) * len(parts))
    best = divmod(int(np.argmin(errors)), len(powers))
    return tried[best[0]], powers[best[1]], share


def _scales(
    scenes: Sequence[Scene], known: Sequence[int], words: Mapping[str, Mapping[int, Matrix]]
) -> dict[str, float]:
    """Of the likelihoods around what predictors and look-alikes say."""
    return {
        kind: scale_of([scenes[i] for i in known], [words[kind][i] for i in known])
        for kind in (FOR_RIVALS, ALIKE)
    }


def _rival(rival: str, settings: Mapping[str, Any], bands: Indices, train: Sequence[Scene]) -> Any:
    from kernelbp import rivals

    make = {
        "discrete": rivals.DiscreteModel,
        "particle": rivals.ParticleModel,
        "Gaussian-mixture": rivals.GaussianMixtureModel,
    }[rival]
    own = {name: value for name, value in settings.items() if name not in OF_INFER}
    return make(*parts_of(bands), **own).fit(pairs_of(bands, train))
