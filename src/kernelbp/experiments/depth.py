"""Depth of every patch of a photograph from its colours and textures (the paper's Section 7, Figure 2).

Every patch of an image is a node with a hidden log depth. A local predictor (ridge regression, boosted trees or a
neural network) says what the 273 features of the patch suggest; neighbours in the grid are tied by relations learned
from training images. As in the paper, depths in one row share a relation, depths at one height share one with those
below; rows are pooled in bands, each with its own marginal of depth. A patch has neighbours in other images too: the patches
of training images that look most like it, whose depth is known.

A predictor's word is first averaged with the median of the look-alikes' depths, with weights that suit training images it
was not trained on. What that is worth is learned there, too: how far it is off on average is the scale of a Laplace
likelihood around it, or the likelihood is how often it was said at each depth. Look-alikes' own depths have a Laplace
likelihood. Errors of neighbouring patches are alike, which no likelihood of single patches knows: evidence is therefore
raised to a power. The power, the form of the likelihood, and what look-alikes count once more beside the average, are chosen
by belief propagation on training images, or that look-alikes are not heard at all.

Where images are frames of a film, the test comes later in time than training, and settings are chosen by asking the same
question earlier: of the second third of the training frames, with everything learned from the first, and of the last, learned
from both; and the same of the training frames run backwards. What is tested may be nearer or farther than all that was trained
on: relations learned as if scenes had been seen from nearer and farther, too, are tried beside those as they were seen. Patches
of a film are tied to those of the frame before that show the same, too, and the likelihood of a word depends on how near
look-alikes are: the same things come into view again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.experiments.depth_evidence import AS_SEEN, CHOICES, FILM_CHOICES, TOGETHER, Said, best_of
from kernelbp.experiments.depth_lookalikes import ALIKE, NEAR, find_look_alikes
from kernelbp.experiments.depth_model import depth_name, median_of, pairs_of, quietly, softened
from kernelbp.experiments.depth_paper import as_in_the_paper
from kernelbp.experiments.depth_predictors import ESTIMATORS, predict
from kernelbp.experiments.depth_problem import Lesson, Problem
from kernelbp.experiments.depth_report import histogram, pooled_name, report, unaided_name
from kernelbp.experiments.depth_rivals import FOR_RIVALS, WAYS, compare
from kernelbp.experiments.depth_scenes import (
    FULL,
    QUICK,
    Fold,
    Scene,
    Sizes,
    bands_of,
    earlier_questions,
    every_row_known,
    few_images,
    judged,
    load,
    scored,
    tuned_part,
)
from kernelbp.experiments.depth_sequence import Clip, Ties, find_ties
from kernelbp.experiments.report import Report
from kernelbp.experiments.study import Case, Result, Row, Study
from kernelbp.graph import Graph
from kernelbp.model import Model

__all__ = ["bands_with_pairs", "heard", "run", "spoken"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

GRID_ONLY = f"kernel BP, no {ALIKE}"
UNTIED = "kernel BP, each frame by itself"
TUNED_TOLERANCE = 1e-2
"""Settings are chosen by messages that have nearly settled."""


def run(study: Study, sizes: Sizes | None = None) -> Report:
    """Figure 2."""
    sizes = sizes or (QUICK if study.options.quick else FULL)
    form, scenes, folds = load(study, sizes)
    bands = bands_with_pairs(scenes, folds, sizes)
    sizes = replace(sizes, bands=len(np.unique(bands)))
    earlier = {fold: earlier_questions(scenes, fold) for fold in folds}
    asked = [*((scenes, fold) for fold in folds), *(question for fold in folds for question in earlier[fold])]

    said = study.finish([case for film, fold in asked for case in spoken(study, film, fold, sizes)])
    predicted = {
        f"{kind} alone, {fold.name}": said[f"{kind} alone, {fold.name}"]
        for kind, fold in product((*ESTIMATORS, ALIKE), folds)
    }

    @cache
    def problem_of(fold: Fold) -> Problem:
        before = [Problem(film, one, *heard(said, film, one), bands, sizes) for film, one in earlier[fold]]
        return Problem(scenes, fold, *heard(said, scenes, fold), bands, sizes, before)

    tuned = study.finish(
        [Case(f"settings, {fold.name}", lambda f=fold: tune(problem_of(f)), 20) for fold in folds]  # type: ignore[misc]
    )
    ours = study.finish(
        [
            Case(
                f"kernel BP, {fold.name}",
                lambda f=fold: infer(problem_of(f), tuned[f"settings, {f.name}"]),  # type: ignore[misc]
                20,
            )
            for fold in folds
        ]
    )
    few = few_images(folds, sizes.rival_images)
    whole = {fold.name: fold for fold in folds}
    others = study.finish(
        [
            Case(
                f"{rival} BP, {way}, {fold.name}",
                lambda f=fold, r=rival, w=way: compare(  # type: ignore[misc]
                    problem_of(whole[f.name]), tuned[f"settings, {f.name}"], r, w, f.test, study.options.seed
                ),
                {"discrete": 5, "particle": 60, "Gaussian-mixture": 60}[rival],
            )
            for rival, way in product(("discrete", "particle", "Gaussian-mixture"), WAYS)
            for fold in (folds if rival == "discrete" else few)
        ]
        + [
            Case(
                f"kernel BP, paper's preset, {fold.name}",
                lambda f=fold: as_in_the_paper(scenes, f),  # type: ignore[misc]
                60,
            )
            for fold in few_images(folds, 1)
            if sizes.per_row and every_row_known([scenes[i] for i in fold.train])
        ]
    )
    return report(study, sizes, form, scenes, folds, predicted, tuned, ours, others)


def spoken(study: Study, scenes: Sequence[Scene], fold: Fold, sizes: Sizes) -> list[Case]:
    """What has to be found out about a fold before any belief is propagated: predictions, look-alikes, ties between frames."""
    cases = [
        Case(f"{kind} alone, {fold.name}", lambda k=kind: predict(k, scenes, fold, sizes, study), 10)  # type: ignore[misc]
        for kind in ESTIMATORS
    ]
    cases.append(Case(f"{ALIKE} alone, {fold.name}", lambda: find_look_alikes(scenes, fold), 10))
    if fold.test_is_later:
        cases.append(Case(f"ties, {fold.name}", lambda: find_ties(scenes, fold), 10))
    return cases


def heard(said: Mapping[str, Result], scenes: Sequence[Scene], fold: Fold) -> tuple[Said, Ties]:
    """What the finished cases of `spoken` say of a fold's scenes."""
    words: dict[str, dict[int, Matrix]] = {}
    near: dict[int, Matrix] | None = None
    for kind in (*ESTIMATORS, ALIKE):
        arrays = said[f"{kind} alone, {fold.name}"].arrays
        numbers = [name for name in arrays if not name.startswith(NEAR)]
        words[kind] = {int(name): np.asarray(arrays[name], dtype=np.float64) for name in numbers}
        if kind == ALIKE and fold.test_is_later:
            near = {int(name): arrays[f"{NEAR} {name}"] for name in numbers}
    alike = words.pop(ALIKE)
    ties = Ties.of(said[f"ties, {fold.name}"]) if fold.test_is_later else Ties({})
    return Said.of(scenes, fold, words, alike, near), ties


def bands_with_pairs(scenes: Sequence[Scene], folds: Sequence[Fold], sizes: Sizes) -> Indices:
    """The band of each row: as many bands as asked, or as many as have pairs for every relation wherever one is learned."""
    learned = [[scenes[i] for i in fold.train] for fold in folds]
    for fold in folds:
        if fold.test_is_later:
            learned += [[film[i] for i in one.train] for film, one in earlier_questions(scenes, fold)]
        else:
            learned += [[scenes[i] for i in known] for known, _ in judged(scenes, fold, sizes.tuned)]
    for count in range(sizes.bands, 0, -1):
        bands = bands_of(scenes, count)
        try:
            for part in learned:
                pairs_of(bands, part)
        except InputError:
            if count == 1:
                raise
        else:
            break
    return bands


def tune(problem: Problem) -> Result:
    """Choose how evidence is weighed on training images that were left out when all else was learned.

    Returns
    -------
    Result with a row for each estimator and each of `CHOICES`, or `FILM_CHOICES`
    """
    choices = FILM_CHOICES if problem.fold.test_is_later else CHOICES
    part = tuned_part(problem.fold)
    errors = {kind: np.zeros(len(choices)) for kind in problem.said.alone}
    jobs = problem.jobs(problem.sizes.tuned)
    for lesson, images in jobs:
        for clip in lesson.clips(images):
            graph_of = lesson.graphs(clip, part)
            for kind, (number, weighing) in product(errors, enumerate(choices)):
                graph = graph_of(kind, weighing)
                beliefs = quietly(lesson.model(weighing.relations).infer, graph, tolerance=TUNED_TOLERANCE)
                error = lesson.error(beliefs, graph, clip, part)
                errors[kind][number] += error / (len(images) * len(jobs))
    rows: list[Row] = [
        {
            "fold": problem.fold.name,
            "evidence": kind,
            "power": weighing.power,
            "look-alikes count": weighing.count,
            "likelihood": weighing.likelihood,
            "relations": weighing.relations,
            "MAE": found[number],
            "chosen": number == int(np.argmin(found)),
        }
        for kind, found in errors.items()
        for number, weighing in enumerate(choices)
    ]
    return Result(rows)


def infer(problem: Problem, tuned: Result) -> Result:
    """Kernel belief propagation on the test images, on top of each estimator."""
    scenes, fold, said, bands = problem.scenes, problem.fold, problem.said, problem.bands
    lesson = Lesson(problem, fold.train)
    points = lesson.evidence.points
    models: dict[str, Model] = {}
    fitted: dict[str, float] = {}
    for relations in dict.fromkeys(str(row["relations"]) for row in tuned.rows):
        began = time.perf_counter()
        models[relations] = lesson.model(relations)
        fitted[relations] = time.perf_counter() - began
    # Compiled once for all, for frames of this size: that is no part of an inference.
    first = lesson.clips(fold.test)[0]
    for clip in (Clip(first.images[:2], first.before), Clip(first.images[:1])):
        blank = lesson.blank(clip)
        silent = softened(blank, points, np.zeros((blank.n_nodes, len(points))))
        quietly(models[AS_SEEN].infer, silent, max_iterations=2)
    rows: list[Row] = []
    for i in fold.test:
        rows.append(scored(f"{TOGETHER} alone", TOGETHER, scenes[i], said.alone[TOGETHER][i]))
        rows.extend(scored(pooled_name(kind), kind, scenes[i], word[i]) for kind, word in said.pooled.items())
    arrays: dict[str, NDArray[Any]] = {"points": points}
    for method in ("kernel BP", GRID_ONLY, UNTIED) if problem.ties.before else ("kernel BP", GRID_ONLY):
        for clip in lesson.clips(fold.test, tied=method != UNTIED):
            for kind in said.alone:
                weighing = best_of(tuned, kind, alike=method != GRID_ONLY)
                # Made anew each time: how its edges are laid out is part of an inference, as it is of the rivals'.
                graph = lesson.graphs(clip)(kind, weighing)
                began = time.perf_counter()
                beliefs = quietly(models[weighing.relations].infer, graph)
                seconds = (time.perf_counter() - began) / len(clip.images)
                for i, found in lesson.answers(beliefs, graph, clip).items():
                    rows.append(
                        scored(
                            method,
                            kind,
                            scenes[i],
                            found,
                            fit=fitted[weighing.relations],
                            seconds=seconds,
                            iterations=beliefs.iterations,
                            converged=beliefs.converged,
                            settings=str(weighing),
                        )
                    )
                    if method == "kernel BP":
                        arrays[f"found {kind} {i}"] = found.astype(np.float32)
                if method == "kernel BP" and kind == FOR_RIVALS and fold.test[0] in clip.images:
                    arrays |= histogram(problem, beliefs, graph, clip, points)
    for i in fold.test:
        shape, logs = scenes[i].depth.shape, lesson.evidence.of(i)
        lone = Graph.from_edges([], variables=[depth_name(band) for band in np.repeat(bands, shape[1])])
        for kind in said.alone:
            plain = best_of(tuned, kind, power=1.0)
            heard = softened(lone, points, logs(kind, plain))
            unaided = median_of(models[plain.relations].infer(heard), heard, shape)
            rows.append(scored(unaided_name(kind), kind, scenes[i], unaided, settings=str(plain)))
        arrays[f"truth {i}"] = scenes[i].depth.astype(np.float32)
        arrays[f"image {i}"] = scenes[i].image
    return Result(rows, arrays)
