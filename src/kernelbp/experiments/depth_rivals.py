"""Rivals on the depth experiment: the same relations, training pairs and evidence.

With the paper's settings the evidence is the best, for kernel belief propagation, of those not raised to a power. A search for
better settings tries that evidence, and all powers and forms of the likelihood that ours does; what look-alikes count in it, and
from which pairs relations are learned, is taken from kernel belief propagation. Frames of a film are inferred each by itself with the
paper's settings; a search also tries to tie them, as ours are, with the best it has found without. Discrete belief propagation is
searched for on the images that kernel belief propagation is, the others, which are slow, on a strip of some of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from kernelbp.experiments.depth_evidence import AS_SEEN, LIKELIHOODS, TOGETHER, Weighing, best_of
from kernelbp.experiments.depth_model import quietly
from kernelbp.experiments.depth_problem import Lesson, Problem
from kernelbp.experiments.depth_scenes import TUNED_PART, scored, tuned_part
from kernelbp.experiments.depth_sequence import Clip
from kernelbp.experiments.study import Result, Row
from kernelbp.graph import Graph

__all__ = [
    "FOR_RIVALS",
    "PAPER",
    "SEARCHED_FRAMES",
    "SEARCHED_IMAGES",
    "SEARCHED_ITERATIONS",
    "SEARCHED_PART",
    "TRIED",
    "WAYS",
    "compare",
    "learned",
]

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
SEARCHED_ITERATIONS = {"discrete": 100, "particle": 20, "Gaussian-mixture": 5}
SEARCHED_IMAGES, SEARCHED_PART = 5, 4
"""For rivals that are slow: images at most, and of the columns kernel belief propagation is tuned on one of this many, in the
middle."""
SEARCHED_FRAMES = 3
"""Likewise of a film, in the middle of each question; they follow each other, and have one of `TUNED_PART` columns."""
OF_INFER = {"weighting", "schedule", "damping", "max_iterations", "tolerance"}
UNLEARNED = OF_INFER | {"mixing"}
"""Settings that change nothing in what is learned."""


def compare(
    problem: Problem, tuned: Result, rival: str, way: str, few: Sequence[int], seed: int = 0
) -> Result:
    """A rival with the predictions and the training pairs that kernel belief propagation has.

    It is run on a `few` of the fold's test images or, if they are tied to each other, on all, mixtures on the first.
    """
    scenes, fold, sizes = problem.scenes, problem.fold, problem.sizes
    limit = sizes.particle_iterations if rival == "particle" else sizes.iterations
    settings: dict[str, Any] = {**PAPER[rival], "max_iterations": limit, "tolerance": 0.0}
    weighing, tied = _of_the_paper(tuned), False
    if way == "best found":
        settings, weighing, tied = _searched(problem, tuned, rival, settings, seed)
    lesson = Lesson(problem, fold.train)
    began = time.perf_counter()
    model = learned(rival, settings, lesson, weighing.relations, tied=tied)
    fitted = time.perf_counter() - began
    asked = {name: value for name, value in settings.items() if name in OF_INFER}
    if tied:
        few = fold.test[: sizes.mixture_frames] if rival == "Gaussian-mixture" else fold.test
    clips = lesson.clips(few, tied=tied)
    # Compiled once for all: that is no part of an inference, as it is none of ours.
    small = lesson.graphs(Clip(clips[0].images[:1]), SEARCHED_PART)
    quietly(model.infer, small(FOR_RIVALS, weighing), seed=seed, **{**asked, "max_iterations": 1})
    rows: list[Row] = []
    for clip in clips:
        graph = lesson.graphs(clip)(FOR_RIVALS, weighing)
        began = time.perf_counter()
        beliefs = quietly(model.infer, graph, seed=seed, **asked)
        seconds = (time.perf_counter() - began) / len(clip.images)
        used = ", ".join(
            [
                *(f"{name} {value}" for name, value in settings.items()),
                str(weighing),
                *(["frames tied" if tied else "frames not tied"] if problem.ties.before else []),
            ]
        )
        rows.extend(
            scored(
                f"{rival} BP, {way}",
                FOR_RIVALS,
                scenes[i],
                found,
                fit=fitted,
                seconds=seconds,
                iterations=beliefs.iterations,
                converged=beliefs.converged,
                settings=used,
            )
            for i, found in lesson.answers(beliefs, graph, clip).items()
        )
    return Result(rows)


def _searched(
    problem: Problem, tuned: Result, rival: str, settings: dict[str, Any], seed: int
) -> tuple[dict[str, Any], Weighing, bool]:
    """The settings and the evidence with the least error on training images, and whether frames are tied for it."""
    sizes, film = problem.sizes, problem.fold.test_is_later
    slow = rival != "discrete"
    jobs = problem.jobs(SEARCHED_IMAGES if slow else sizes.tuned)
    part = tuned_part(problem.fold)
    if slow and film:
        part, jobs = TUNED_PART, [(lesson, _middle_frames(images)) for lesson, images in jobs]
    elif slow:
        part *= SEARCHED_PART
    ours = best_of(tuned, FOR_RIVALS)
    powers = {float(row["power"] or 0) for row in tuned.rows}
    tried = [{**settings, **changed} for changed in TRIED[rival][: sizes.tried]]
    weighings = [
        _of_the_paper(tuned),
        *(
            replace(ours, power=power, likelihood=likelihood)
            for power, likelihood in product(sorted(powers, reverse=True), LIKELIHOODS)
        ),
    ]
    models: dict[tuple[Any, ...], Any] = {}
    graphs: dict[tuple[int, Clip], Callable[[str, Weighing], Graph]] = {}

    def error(options: Mapping[str, Any], weighing: Weighing, *, tied: bool) -> float:
        asked = {name: value for name, value in options.items() if name in OF_INFER}
        # A search need not run as long as a test.
        asked["max_iterations"] = min(options["max_iterations"], SEARCHED_ITERATIONS[rival])
        own = tuple(value for name, value in options.items() if name not in UNLEARNED)
        total = 0.0
        for number, (lesson, images) in enumerate(jobs):
            key = (number, tied, weighing.relations, *own)
            if key not in models:
                models[key] = learned(rival, options, lesson, weighing.relations, tied=tied)
            model = models[key]
            if "mixing" in options:
                model.mixing = options["mixing"]
            for clip in lesson.clips(images, tied=tied):
                if (number, clip) not in graphs:
                    graphs[number, clip] = lesson.graphs(clip, part)
                graph = graphs[number, clip](FOR_RIVALS, weighing)
                beliefs = quietly(model.infer, graph, seed=seed, **asked)
                total += lesson.error(beliefs, graph, clip, part) / (len(images) * len(jobs))
        return total

    errors = [
        (error(options, weighing, tied=False), options, weighing)
        for options, weighing in product(tried, dict.fromkeys(weighings))
    ]
    least, options, weighing = min(errors, key=lambda found: found[0])
    tied = all(lesson.ties_frames for lesson, _ in jobs) and error(options, weighing, tied=True) < least
    return options, weighing, tied


def _middle_frames(images: Sequence[int]) -> tuple[int, ...]:
    begin = max(len(images) - SEARCHED_FRAMES, 0) // 2
    return tuple(images[begin : begin + SEARCHED_FRAMES])


def _of_the_paper(tuned: Result) -> Weighing:
    """The best evidence that is not raised to a power, with relations of scenes as they were seen."""
    return best_of(tuned, FOR_RIVALS, power=1.0, relations=AS_SEEN)


def learned(rival: str, settings: Mapping[str, Any], lesson: Lesson, relations: str, *, tied: bool) -> Any:
    """A rival that has learned relations from a lesson; settings of inference are not its own."""
    from kernelbp import rivals

    make = {
        "discrete": rivals.DiscreteModel,
        "particle": rivals.ParticleModel,
        "Gaussian-mixture": rivals.GaussianMixtureModel,
    }[rival]
    own = {name: value for name, value in settings.items() if name not in OF_INFER}
    return make(*lesson.parts(tied=tied), **own).fit(lesson.pairs(relations, tied=tied))
