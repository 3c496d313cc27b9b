"""Rivals on the depth experiment: the same relations, training pairs and evidence.

With the paper's settings the evidence is that of kernel belief propagation, not raised to a power; with settings searched
for the power and the form of the likelihood are searched for, too, as kernel belief propagation's are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.depth_evidence import FORMS, TOGETHER, Evidence, Said, Weighing, best_of
from kernelbp.experiments.depth_model import grid_of, median_of, pairs_of, parts_of, quietly, softened
from kernelbp.experiments.depth_scenes import (
    TUNED_PART,
    Fold,
    Scene,
    Sizes,
    error_of,
    judged_parts,
    middle_of,
    scored,
    thinned,
)
from kernelbp.experiments.study import Result

__all__ = ["FOR_RIVALS", "PAPER", "TRIED", "WAYS", "compare"]

Indices = NDArray[np.intp]

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
    "particle": [{"mixing": 0.05, "damping": 0.5}, {"mixing": 0.2, "damping": 0.5}, {}],
    "Gaussian-mixture": [{"mixing": 0.05, "damping": 0.5}, {"mixing": 0.2, "damping": 0.5}, {}],
}
"""What the search changes of the paper's settings, each with several powers of the evidence."""
SEARCHED_FACTORS = (1.0, 1 / 3, 3.0)
"""On the power of the evidence that is best for kernel belief propagation."""
SEARCHED_ITERATIONS = {"discrete": 100, "particle": 20, "Gaussian-mixture": 10}
SEARCHED_PART = 4
"""Of the columns kernel belief propagation is tuned on, one of this many, in the middle: others are slow."""
OF_INFER = {"weighting", "schedule", "damping", "max_iterations", "tolerance"}


def compare(
    rival: str,
    way: str,
    scenes: Sequence[Scene],
    fold: Fold,
    said: Said,
    bands: Indices,
    sizes: Sizes,
    tuned: Result,
) -> Result:
    """A rival with the predictions and the training pairs that kernel belief propagation has."""
    limit = sizes.particle_iterations if rival == "particle" else sizes.iterations
    settings: dict[str, Any] = {**PAPER[rival], "max_iterations": limit, "tolerance": 0.0}
    weighing = replace(best_of(tuned, FOR_RIVALS), power=1.0)
    if way == "best found":
        settings, weighing = _searched(rival, settings, scenes, fold, said, bands, sizes, tuned)
    train = [scenes[i] for i in fold.train]
    evidence = Evidence(said, scenes, fold.train)
    began = time.perf_counter()
    model = _rival(rival, settings, bands, train)
    fitted = time.perf_counter() - began
    asked = {name: value for name, value in settings.items() if name in OF_INFER}
    rows = []
    for i in fold.test:
        scene, shape = scenes[i], scenes[i].depth.shape
        graph = softened(grid_of(bands, shape), evidence.points, evidence.of(i)(FOR_RIVALS, weighing))
        began = time.perf_counter()
        beliefs = quietly(model.infer, graph, **asked)
        seconds = time.perf_counter() - began
        found = median_of(beliefs, graph, shape)
        used = ", ".join([*(f"{name} {value}" for name, value in settings.items()), str(weighing)])
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
    said: Said,
    bands: Indices,
    sizes: Sizes,
    tuned: Result,
) -> tuple[dict[str, Any], Weighing]:
    """The settings and the evidence with the least error on training images.

    Look-alikes count what is best for kernel belief propagation. Discrete belief propagation is quick and searches where that
    does; others on a part of one image.
    """
    parts = judged_parts(scenes, fold)
    parts, images, part = (
        (parts, sizes.tuned // len(parts), TUNED_PART)
        if rival == "discrete"
        else (parts[-1:], 1, TUNED_PART * SEARCHED_PART)
    )
    ours = best_of(tuned, FOR_RIVALS)
    tried = [{**settings, **changed} for changed in TRIED[rival][: sizes.tried]]
    weighings = [
        Weighing(ours.power * factor, ours.count, form) for factor, form in product(SEARCHED_FACTORS, FORMS)
    ]
    errors = np.zeros((len(tried), len(weighings)))
    for left_out, (number, options) in product(parts, enumerate(tried)):
        known = [i for i in fold.train if i not in left_out]
        evidence = Evidence(said, scenes, known)
        model = _rival(rival, options, bands, [scenes[i] for i in known])
        asked = {name: value for name, value in options.items() if name in OF_INFER}
        # A search need not run as long as a test.
        asked["max_iterations"] = min(options["max_iterations"], SEARCHED_ITERATIONS[rival])
        chosen = thinned(left_out, images)
        for i, (column, weighing) in product(chosen, enumerate(weighings)):
            scene = middle_of(scenes[i], part)
            logs = evidence.of(i, part)(FOR_RIVALS, weighing)
            graph = softened(grid_of(bands, scene.depth.shape), evidence.points, logs)
            beliefs = quietly(model.infer, graph, **asked)
            error = error_of(median_of(beliefs, graph, scene.depth.shape), scene)
            errors[number, column] += error / (len(chosen) * len(parts))
    best = divmod(int(np.argmin(errors)), len(weighings))
    return tried[best[0]], weighings[best[1]]


def _rival(rival: str, settings: Mapping[str, Any], bands: Indices, train: Sequence[Scene]) -> Any:
    from kernelbp import rivals

    make = {
        "discrete": rivals.DiscreteModel,
        "particle": rivals.ParticleModel,
        "Gaussian-mixture": rivals.GaussianMixtureModel,
    }[rival]
    own = {name: value for name, value in settings.items() if name not in OF_INFER}
    return make(*parts_of(bands), **own).fit(pairs_of(bands, train))
