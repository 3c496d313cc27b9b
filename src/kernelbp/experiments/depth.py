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

Where images are frames of a film, the test comes later in time than training, and settings are chosen on the last third of the
training frames. There patches are tied to those of the frame before that show the same, too, and the likelihood of a word depends on how near
look-alikes are: the same things come into view again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import DEPTH_FEATURES
from kernelbp.errors import InputError
from kernelbp.experiments.depth_evidence import LIKELIHOODS, TOGETHER, Evidence, Said, Weighing, best_of
from kernelbp.experiments.depth_lookalikes import ALIKE, ALIKE_WORDS, NEAR, find_look_alikes
from kernelbp.experiments.depth_model import (
    depth_name,
    grained,
    grid_of,
    learn,
    median_of,
    pairs_of,
    parts_of,
    quietly,
    softened,
)
from kernelbp.experiments.depth_predictors import ESTIMATORS, predict
from kernelbp.experiments.depth_predictors import SETTINGS as PREDICTOR_SETTINGS
from kernelbp.experiments.depth_rivals import (
    FOR_RIVALS,
    PAPER,
    SEARCHED_IMAGES,
    SEARCHED_ITERATIONS,
    SEARCHED_PART,
    TRIED,
    WAYS,
    compare,
)
from kernelbp.experiments.depth_scenes import (
    FULL,
    LEAST_KNOWN,
    QUICK,
    TUNED_PART,
    Fold,
    Scene,
    Sizes,
    bands_of,
    error_of,
    every_row_known,
    few_images,
    judged,
    load,
    middle_of,
    scored,
)
from kernelbp.experiments.depth_sequence import TIES_WORDS, Clip, Ties, answers, find_ties, posed
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Result, Row, Study
from kernelbp.graph import Graph
from kernelbp.kernels import Linear
from kernelbp.model import Model, Relation

__all__ = ["run"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

POWERS = (3.0, 1.0, 0.3, 0.1)
COUNTS = (None, 0.0, 0.3, 1.0, 3.0)
CHOICES = tuple(Weighing(*choice) for choice in product(POWERS, COUNTS, LIKELIHOODS))
"""Ways to weigh the evidence, tried on training images: powers, counts of look-alikes (None: not heard), likelihoods."""
GRID_ONLY = f"kernel BP, no {ALIKE}"
UNTIED = "kernel BP, each frame by itself"
TUNED_TOLERANCE = 1e-2
"""Settings are chosen by messages that have nearly settled."""
PAPER_ITERATIONS, PAPER_DAMPING = 10, 0.9


def run(study: Study, sizes: Sizes | None = None) -> Report:
    """Figure 2."""
    sizes = sizes or (QUICK if study.options.quick else FULL)
    form, scenes, folds = load(study, sizes)
    bands = tied_bands(scenes, folds, sizes)
    sizes = replace(sizes, bands=len(np.unique(bands)))

    predicted = study.finish(
        [
            Case(f"{kind} alone, {fold.name}", lambda k=kind, f=fold: predict(k, scenes, f, sizes, study), 10)  # type: ignore[misc]
            for fold, kind in product(folds, ESTIMATORS)
        ]
        + [
            Case(f"{ALIKE} alone, {fold.name}", lambda f=fold: find_look_alikes(scenes, f), 10)  # type: ignore[misc]
            for fold in folds
        ]
        + [
            Case(f"ties, {fold.name}", lambda f=fold: find_ties(scenes, f), 10)  # type: ignore[misc]
            for fold in folds
            if fold.test_is_later
        ]
    )

    @cache
    def said_of(fold: Fold) -> Said:
        """What was said of a fold's scenes, from the finished cases."""
        words: dict[str, dict[int, Matrix]] = {}
        near: dict[int, Matrix] | None = None
        for kind in (*ESTIMATORS, ALIKE):
            arrays = predicted[f"{kind} alone, {fold.name}"].arrays
            numbers = [name for name in arrays if not name.startswith(NEAR)]
            words[kind] = {int(name): np.asarray(arrays[name], dtype=np.float64) for name in numbers}
            if kind == ALIKE and fold.test_is_later:
                near = {int(name): arrays[f"{NEAR} {name}"] for name in numbers}
        alike = words.pop(ALIKE)
        return Said.of(scenes, fold, words, alike, near)

    @cache
    def ties_of(fold: Fold) -> Ties:
        """Between the frames of a fold, from the finished cases; none where images are no film."""
        if not fold.test_is_later:
            return Ties({})
        arrays = predicted[f"ties, {fold.name}"].arrays
        return Ties({int(name): np.asarray(array, dtype=np.intp) for name, array in arrays.items()})

    tuned = study.finish(
        [
            Case(
                f"settings, {fold.name}",
                lambda f=fold: tune(scenes, f, said_of(f), ties_of(f), bands, sizes),  # type: ignore[misc]
                20,
            )
            for fold in folds
        ]
    )
    ours = study.finish(
        [
            Case(
                f"kernel BP, {fold.name}",
                lambda f=fold: infer(  # type: ignore[misc]
                    scenes, f, said_of(f), ties_of(f), bands, sizes, tuned[f"settings, {f.name}"]
                ),
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
                    r,
                    w,
                    scenes,
                    whole[f.name],
                    f.test,
                    said_of(whole[f.name]),
                    ties_of(whole[f.name]),
                    bands,
                    sizes,
                    tuned[f"settings, {f.name}"],
                    study.options.seed,
                ),
                {"discrete": 5, "particle": 60, "Gaussian-mixture": 60}[rival],
            )
            for rival, way in product(("discrete", "particle", "Gaussian-mixture"), WAYS)
            for fold in (folds if rival == "discrete" else few)
        ]
        + [
            Case(
                f"kernel BP, paper's preset, {fold.name}",
                lambda f=fold: as_in_the_paper(scenes, f, sizes),  # type: ignore[misc]
                60,
            )
            for fold in few_images(folds, 1)
            if sizes.per_row and every_row_known([scenes[i] for i in fold.train])
        ]
    )
    return _report(study, sizes, form, scenes, folds, [predicted, ours, others], tuned, ours)


def tied_bands(scenes: Sequence[Scene], folds: Sequence[Fold], sizes: Sizes) -> Indices:
    """The band of each row: as many bands as asked, or as many as have pairs for every relation wherever one is learned."""
    learned = [
        [scenes[i] for i in known]
        for fold in folds
        for known in (fold.train, *(known for known, _ in judged(scenes, fold, sizes.tuned)))
    ]
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


def tune(scenes: Sequence[Scene], fold: Fold, said: Said, ties: Ties, bands: Indices, sizes: Sizes) -> Result:
    """Choose how evidence is weighed on training images, each left out when relations are learned.

    Returns
    -------
    Result with a row for each estimator and each of `CHOICES`
    """
    errors = {kind: np.zeros(len(CHOICES)) for kind in said.alone}
    jobs = judged(scenes, fold, sizes.tuned)
    for known, images in jobs:
        evidence = Evidence(said, scenes, known)
        again = ties.pairs(bands, scenes, known)
        model = learn(bands, [scenes[i] for i in known], sizes, again)
        middles = {i: middle_of(scenes[i], TUNED_PART) for i in images}
        for clip in ties.clips(images, known):
            graph_of = posed(clip, evidence, ties, again, bands, scenes, TUNED_PART)
            for kind, (number, weighing) in product(errors, enumerate(CHOICES)):
                graph = graph_of(kind, weighing)
                beliefs = quietly(model.infer, graph, tolerance=TUNED_TOLERANCE)
                for i, found in answers(beliefs, graph, clip, middles[clip.images[0]].depth.shape).items():
                    if np.isfinite(middles[i].depth).any():  # else there is nothing to judge by
                        errors[kind][number] += error_of(found, middles[i]) / (len(images) * len(jobs))
    rows: list[Row] = [
        {
            "fold": fold.name,
            "evidence": kind,
            "power": weighing.power,
            "look-alikes count": weighing.count,
            "likelihood": weighing.likelihood,
            "MAE": found[number],
            "chosen": number == int(np.argmin(found)),
        }
        for kind, found in errors.items()
        for number, weighing in enumerate(CHOICES)
    ]
    return Result(rows)


def infer(
    scenes: Sequence[Scene],
    fold: Fold,
    said: Said,
    ties: Ties,
    bands: Indices,
    sizes: Sizes,
    tuned: Result,
) -> Result:
    """Kernel belief propagation on the test images, on top of each estimator."""
    train = [scenes[i] for i in fold.train]
    evidence = Evidence(said, scenes, fold.train)
    points = evidence.points
    again = ties.pairs(bands, scenes, fold.train)
    began = time.perf_counter()
    model = learn(bands, train, sizes, again)
    fitted = time.perf_counter() - began
    # Compiled once for all, for frames of this size: that is no part of an inference.
    first = ties.clips(fold.test, fold.train)[0]
    for clip in (Clip(first.images[:2], first.before), Clip(first.images[:1])):
        blank = grid_of(bands, scenes[fold.test[0]].depth.shape, ties.links(clip, 1), again)
        quietly(
            model.infer, softened(blank, points, np.zeros((blank.n_nodes, len(points)))), max_iterations=2
        )
    rows: list[Row] = []
    for i in fold.test:
        rows.append(scored(f"{TOGETHER} alone", TOGETHER, scenes[i], said.alone[TOGETHER][i]))
        rows.extend(scored(_pooled(kind), kind, scenes[i], word[i]) for kind, word in said.pooled.items())
    arrays: dict[str, NDArray[Any]] = {"points": points}
    for method in ("kernel BP", GRID_ONLY, UNTIED) if ties.before else ("kernel BP", GRID_ONLY):
        for clip in ties.clips(fold.test, fold.train, tied=method != UNTIED):
            for kind in said.alone:
                weighing = best_of(tuned, kind, alike=method != GRID_ONLY)
                # Made anew each time: how its edges are laid out is part of an inference, as it is of the rivals'.
                graph = posed(clip, evidence, ties, again, bands, scenes)(kind, weighing)
                began = time.perf_counter()
                beliefs = quietly(model.infer, graph)
                seconds = (time.perf_counter() - began) / len(clip.images)
                for i, found in answers(beliefs, graph, clip, scenes[clip.images[0]].depth.shape).items():
                    rows.append(
                        scored(
                            method,
                            kind,
                            scenes[i],
                            found,
                            fit=fitted,
                            seconds=seconds,
                            iterations=beliefs.iterations,
                            converged=beliefs.converged,
                            settings=str(weighing),
                        )
                    )
                    if method == "kernel BP":
                        arrays[f"found {kind} {i}"] = found.astype(np.float32)
                if method == "kernel BP" and kind == FOR_RIVALS and fold.test[0] in clip.images:
                    arrays |= _histogram(beliefs, graph, clip, scenes, train, bands, points)
    for i in fold.test:
        shape, logs = scenes[i].depth.shape, evidence.of(i)
        lone = Graph.from_edges([], variables=[depth_name(band) for band in np.repeat(bands, shape[1])])
        for kind in said.alone:
            plain = best_of(tuned, kind, power=1.0)
            heard = softened(lone, points, logs(kind, plain))
            unaided = median_of(model.infer(heard), heard, shape)
            rows.append(scored(_unaided(kind), kind, scenes[i], unaided, settings=str(plain)))
        arrays[f"truth {i}"] = scenes[i].depth.astype(np.float32)
        arrays[f"image {i}"] = scenes[i].image
    return Result(rows, arrays)


def _histogram(
    beliefs: Any,
    graph: Graph,
    clip: Clip,
    scenes: Sequence[Scene],
    train: Sequence[Scene],
    bands: Indices,
    points: Matrix,
) -> dict[str, NDArray[Any]]:
    """How depth is distributed in training, and the belief of the patch of the first image that is most torn between two depths."""
    scene = scenes[clip.images[0]]
    depths = np.concatenate([s.depth[np.isfinite(s.depth)] for s in train])
    counts, edges = np.histogram(depths, bins=40)
    spread = np.empty(graph.n_nodes)
    for name in graph.variables:
        spread[graph.nodes_of(name)] = beliefs[name].std()
    first = clip.frames.index(clip.images[0]) * scene.depth.size
    mine = np.where(np.isfinite(scene.depth).ravel(), spread[first : first + scene.depth.size], -np.inf)
    patch = int(np.argmax(mine))
    row, column = divmod(patch, scene.depth.shape[1])
    name = depth_name(bands[row])
    density = beliefs[name].density(points)[np.searchsorted(graph.nodes_of(name), first + patch)]
    band = np.concatenate([s.depth[bands == bands[row]].ravel() for s in train])
    band_counts = np.histogram(band[np.isfinite(band)], bins=edges)[0]
    return {
        "edges": edges,
        "counts": counts,
        "band counts": band_counts,
        "density": density,
        "patch": np.array([row, column]),
        "patch image": scene.image,
        "patch truth": scene.depth,
    }


def as_in_the_paper(scenes: Sequence[Scene], fold: Fold, sizes: Sizes) -> Result:
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


def _report(
    study: Study,
    sizes: Sizes,
    form: str,
    scenes: Sequence[Scene],
    folds: Sequence[Fold],
    finished: Sequence[Mapping[str, Result]],
    tuned: Mapping[str, Result],
    ours: Mapping[str, Result],
) -> Report:
    from kernelbp.figures.depth import depth_bars, depth_distribution, depth_maps

    every = [row for part in finished for result in part.values() for row in result.rows]
    table = summary(every)
    first = folds[0]
    arrays = ours[f"kernel BP, {first.name}"].arrays
    best = min(
        (row for row in table if row["method"] == "kernel BP" and row["evidence"] != TOGETHER),
        key=lambda row: _error(row["MAE log10"]),
    )["evidence"]
    shown: list[dict[str, NDArray[Any]]] = []
    for fold in folds[:3]:
        kept = ours[f"kernel BP, {fold.name}"].arrays
        words = finished[0][f"{best} alone, {fold.name}"].arrays
        for i in fold.test[:: max(len(fold.test) // 2, 1)][: 1 if len(folds) > 1 else 3]:
            shown.append(
                {
                    "image": kept[f"image {i}"],
                    "truth": kept[f"truth {i}"],
                    "local": words[str(i)],
                    "found": kept[f"found {best} {i}"],
                }
            )
    pictures = [
        Picture(
            "depth_maps",
            depth_maps(shown, str(best)),
            "Test images, their true depth (white where unknown), the depth a local predictor gives each patch by itself, "
            "and the median of the belief when look-alikes are heard and neighbours speak to each other. As the paper's "
            "Figure 2 (a).",
        ),
        Picture(
            "depth_distribution",
            depth_distribution(arrays),
            "As the paper's Figure 2 (b): depth has several modes. Left: all training depths. Right: the belief of the patch "
            "(marked in the first test image) that is most torn between depths, with the training depths of its band of rows.",
        ),
        Picture(
            "depth_bars",
            depth_bars(table),
            "As the paper's Figure 2 (c) and (d): mean absolute error in log10 depth, and seconds of inference for an image "
            "(logarithmic). Faded: run on some of the images only, so that their errors do not compare with the others'.",
        ),
    ]
    return Report(
        title=f"Depth from single images: {form}",
        lead=(
            "Each image is a grid of patches with a hidden log10 depth. The paper learned, for every row, how depths of "
            "neighbours are related and how depth shows in 273 features of a patch, from all images but one, and compared "
            "belief propagation methods on the one left out (274 images of Make3D; kernel BP's mean absolute error 0.145). "
            "Here local predictors are trained on the features, and kernel belief propagation takes their word as evidence, "
            "averaged with the depths of patches of training images that look alike, and weighed by how they fare on images "
            "they have not seen. Where images are frames of a film, patches are tied to those of the frame before that show the "
            "same, and all test frames are inferred together."
        ),
        tables=[
            Table(
                "depth",
                "Mean absolute error in log10 depth, mean over test images",
                table,
                f"Wall seconds, measured in this run. The rivals get the evidence of {FOR_RIVALS}, with {ALIKE}, as kernel BP "
                "does, and the same training pairs; at the paper's settings it is not raised to a power, and frames of a film are "
                "not tied to each other. They are slow: see the column of images. Seconds of tied frames are those of all of them, "
                "divided by their number; where each frame is by itself, kernel BP has the settings chosen for tied ones.",
            ),
            Table("depth_images", "Every test image", every),
            Table(
                "depth_power",
                "Power of the evidence, what look-alikes count in it (empty: they are not heard), and its form, tried on training "
                "images: mean absolute error there",
                [row for result in tuned.values() for row in result.rows],
            ),
        ],
        pictures=pictures,
        claims=claims(table, every),
        settings=settings_of(sizes, form, scenes, folds, study),
    )


def summary(rows: Sequence[Row]) -> list[Row]:
    """Averages over images for each method and its evidence."""
    found: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        found.setdefault((row["method"], row["evidence"]), []).append(row)

    def mean(mine: Sequence[Row], name: str) -> float | None:
        values = [float(value) for row in mine if (value := row[name]) is not None]
        return float(np.mean(values)) if values else None

    return [
        {
            "method": method,
            "evidence": evidence,
            # An image without an answer is not left out of a mean.
            "MAE log10": mean(mine, "MAE") if all(row["MAE"] is not None for row in mine) else None,
            "images": len(mine),
            "seconds to fit": mean(mine, "seconds to fit"),
            "seconds an image": mean(mine, "seconds an image"),
            "seconds an iteration": mean(mine, "seconds an iteration"),
            "iterations": mean(mine, "iterations"),
            "converged": None
            if mine[0]["converged"] is None
            else f"{sum(bool(row['converged']) for row in mine)} of {len(mine)}",
        }
        for (method, evidence), mine in found.items()
    ]


def _against_rivals(rows: Sequence[Row]) -> Iterator[tuple[float, str]]:
    """Our error over each rival's, on the images that rival ran on."""
    found: dict[tuple[Any, Any], dict[Any, float]] = {}
    for row in rows:
        found.setdefault((row["method"], row["evidence"]), {})[row["image"]] = _error(row["MAE"])
    ours = found["kernel BP", FOR_RIVALS]
    for (method, _), theirs in found.items():
        if str(method).split(" BP")[0] in PAPER:
            mine, other = np.mean([ours[image] for image in theirs]), np.mean(list(theirs.values()))
            images = f"{len(theirs)} image{'s' if len(theirs) > 1 else ''}"
            ratio = float(mine / other) if np.isfinite(mine) else np.inf
            yield ratio, f"{ratio:.4f} ({mine:.4f} to {other:.4f} of {method}, {images})"


def _error(value: Any) -> float:
    """Of a table; an answer that is missing is infinitely wrong."""
    return np.inf if value is None else float(value)


def _pooled(kind: str) -> str:
    """The name of what is said without a graph: the best weighted mean of predictors and look-alikes."""
    return f"{kind} and {ALIKE} alone"


def _unaided(kind: str) -> str:
    """The name of what is believed of each patch by itself: evidence times the marginal."""
    return f"{kind}'s evidence, no grid"


def claims(table: Sequence[Row], rows: Sequence[Row]) -> list[Claim]:
    """What this experiment is to show; `table` averages the `rows` of single images."""
    error = {(row["method"], row["evidence"]): _error(row["MAE log10"]) for row in table}
    made = []
    for kind, alone in (
        *((kind, f"{kind} alone") for kind in (*ESTIMATORS, TOGETHER)),
        *((kind, _pooled(kind)) for kind in (*ESTIMATORS, TOGETHER)),
        *((kind, _unaided(kind)) for kind in (*ESTIMATORS, TOGETHER)),
        (TOGETHER, f"{ALIKE} alone"),
    ):
        with_graph = error["kernel BP", kind]
        without = error[alone, ALIKE if alone == f"{ALIKE} alone" else kind]
        made.append(
            Claim(
                f"kernel BP on {kind} below {alone}",
                f"{with_graph:.4f}",
                f"< {without:.4f}",
                with_graph < without,
            )
        )
    ratio, text = max(_against_rivals(rows))
    made.append(
        Claim(
            f"kernel BP on {FOR_RIVALS} below every rival, on the images it ran on (largest ratio)",
            text,
            "below 1",
            ratio < 1.0,
        )
    )
    seconds = {
        str(row["method"]): float(row["seconds an iteration"] or 0)
        for row in table
        if row["evidence"] == FOR_RIVALS
    }
    discrete, kernel = seconds["discrete BP, paper's settings"], seconds["kernel BP"]
    slow = min(seconds[f"{name} BP, paper's settings"] for name in ("particle", "Gaussian-mixture"))
    made.append(
        Claim(
            "an iteration costs about discrete BP's, particle and Gaussian-mixture BP's cost more (the paper's order)",
            f"{kernel:.3g} s against {discrete:.3g} (discrete), {slow:.3g} (the faster of the two)",
            "at most 3 times discrete, below both others",
            kernel < 3 * discrete and kernel < slow,
        )
    )
    return made


def settings_of(
    sizes: Sizes, form: str, scenes: Sequence[Scene], folds: Sequence[Fold], study: Study
) -> dict[str, Any]:
    """All that was asked and fixed; what was chosen stands in the tables."""
    rows, columns = scenes[folds[0].test[0]].depth.shape
    return {
        "data": form,
        "images": len(scenes),
        "patches": f"{rows} x {columns}",
        "features": DEPTH_FEATURES,
        "folds": len(folds),
        "test images": sum(len(fold.test) for fold in folds),
        "seed": study.options.seed,
        "bands of rows": sizes.bands,
        "states of a band's depth": sizes.states,
        "powers, counts of look-alikes and likelihoods tried": "; ".join(
            ", ".join("not heard" if value is None else str(value) for value in values)
            for values in (POWERS, COUNTS, LIKELIHOODS)
        ),
        "settings chosen on": "the middle half of the columns of "
        + (
            "the last third of the training frames (weights of predictors and look-alikes: of all)"
            if folds[0].test_is_later
            else f"at most {sizes.tuned} training images"
        ),
        "slow rivals' settings searched on": (
            f"the middle half of the columns of {SEARCHED_IMAGES} frames in the middle of these"
            if folds[0].test_is_later
            else f"one in {TUNED_PART * SEARCHED_PART} columns, in the middle, of at most {SEARCHED_IMAGES} training images"
        )
        + f", with {SEARCHED_ITERATIONS['particle']} iterations of particle and {SEARCHED_ITERATIONS['Gaussian-mixture']} of Gaussian-mixture BP",
        "images left out": f"those with depth for at most {LEAST_KNOWN:.0%} of their patches",
        ALIKE: ALIKE_WORDS,
        **({"a patch of a frame is tied to": TIES_WORDS} if folds[0].test_is_later else {}),
        "patches learned from": sizes.patches,
        "boosting rounds, MLP epochs": f"{sizes.rounds}, {sizes.epochs}",
        **PREDICTOR_SETTINGS,
        **{
            f"{name} BP, paper's settings": ", ".join(f"{key} {value}" for key, value in PAPER[name].items())
            + f", iterations {sizes.particle_iterations if name == 'particle' else sizes.iterations}"
            for name in PAPER
        },
        **{
            f"{name} BP, tried in search": "; ".join(
                ", ".join(f"{key} {value}" for key, value in options.items()) or "as in the paper"
                for options in tried
            )
            for name, tried in TRIED.items()
        },
    }
