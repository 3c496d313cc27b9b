"""What the depth experiment has found, as tables, pictures and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import DEPTH_FEATURES
from kernelbp.experiments.depth_evidence import CHOICES, FILM_CHOICES, TOGETHER
from kernelbp.experiments.depth_lookalikes import ALIKE, ALIKE_WORDS
from kernelbp.experiments.depth_model import depth_name
from kernelbp.experiments.depth_predictors import ESTIMATORS
from kernelbp.experiments.depth_predictors import SETTINGS as PREDICTOR_SETTINGS
from kernelbp.experiments.depth_problem import Problem
from kernelbp.experiments.depth_rivals import (
    FOR_RIVALS,
    PAPER,
    SEARCHED_FRAMES,
    SEARCHED_IMAGES,
    SEARCHED_ITERATIONS,
    SEARCHED_PART,
    TRIED,
)
from kernelbp.experiments.depth_scenes import LEAST_KNOWN, TUNED_PART, Fold, Scene, Sizes, earlier_questions
from kernelbp.experiments.depth_sequence import TIES_WORDS, Clip
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Result, Row, Study
from kernelbp.graph import Graph

__all__ = ["claims", "histogram", "pooled_name", "report", "settings_of", "summary", "unaided_name"]

Matrix = NDArray[np.float64]


def report(
    study: Study,
    sizes: Sizes,
    form: str,
    scenes: Sequence[Scene],
    folds: Sequence[Fold],
    predicted: Mapping[str, Result],
    tuned: Mapping[str, Result],
    ours: Mapping[str, Result],
    others: Mapping[str, Result],
) -> Report:
    """Tables, pictures and claims, from the finished cases: predictors, settings, kernel belief propagation and its rivals."""
    from kernelbp.figures.depth import depth_bars, depth_distribution, depth_maps

    every = [row for part in (predicted, ours, others) for result in part.values() for row in result.rows]
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
        words = predicted[f"{best} alone, {fold.name}"].arrays
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
                "Power of the evidence, what look-alikes count in it (empty: they are not heard), its form, and whether relations "
                "are learned from scenes as seen or as if from anywhere, tried on training images: mean absolute error there",
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


def pooled_name(kind: str) -> str:
    """The name of what is said without a graph: the best weighted mean of predictors and look-alikes."""
    return f"{kind} and {ALIKE} alone"


def unaided_name(kind: str) -> str:
    """The name of what is believed of each patch by itself: evidence times the marginal."""
    return f"{kind}'s evidence, no grid"


def claims(table: Sequence[Row], rows: Sequence[Row]) -> list[Claim]:
    """What this experiment is to show; `table` averages the `rows` of single images."""
    error = {(row["method"], row["evidence"]): _error(row["MAE log10"]) for row in table}
    made = []
    for kind, alone in (
        *((kind, f"{kind} alone") for kind in (*ESTIMATORS, TOGETHER)),
        *((kind, pooled_name(kind)) for kind in (*ESTIMATORS, TOGETHER)),
        *((kind, unaided_name(kind)) for kind in (*ESTIMATORS, TOGETHER)),
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
        "powers, counts of look-alikes, likelihoods and relations tried": "; ".join(
            ", ".join("not heard" if value is None else str(value) for value in dict.fromkeys(values))
            for values in zip(*map(astuple, FILM_CHOICES if folds[0].test_is_later else CHOICES), strict=True)
        ),
        "settings chosen on": (
            " and ".join(
                f"training frames {len(one.train) + 1} to {len(one.train) + len(one.test)}"
                f"{' counted from the last' if film is not scenes else ''}, everything learned from those before"
                for film, one in earlier_questions(scenes, folds[0])
            )
            if folds[0].test_is_later
            else f"the middle half of the columns of at most {sizes.tuned} training images"
        ),
        "slow rivals' settings searched on": (
            f"the middle half of the columns of at most {SEARCHED_FRAMES} frames in the middle of each of these"
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


def histogram(
    problem: Problem, beliefs: Any, graph: Graph, clip: Clip, points: Matrix
) -> dict[str, NDArray[Any]]:
    """How depth is distributed in training, and the belief of the patch of the first image that is most torn between two depths."""
    scene, bands = problem.scenes[clip.images[0]], problem.bands
    train = [problem.scenes[i] for i in problem.fold.train]
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
