"""Appendix 3 of the paper: what constant and linear updates cost and gain, beside the full one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets import SUNSET_COLORS
from kernelbp.experiments.denoisers import NOISE, Training, grid_of, paper_image, parts, with_noise
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Result, Study
from kernelbp.figures import root_mean_square_error
from kernelbp.learning.conditionals import Conditional
from kernelbp.learning.operators import Update
from kernelbp.model import Model
from kernelbp.speed.settings import QUICK as QUICK_SPEED
from kernelbp.speed.updates import in_part, iteration

__all__ = ["FULL", "QUICK", "TINY", "Sizes", "run"]

Image = NDArray[np.float64]
Key = tuple[int, int, float]
"""Rows of an image, its colours, and epsilon."""

TRAIN = 0
"""Number of the random draw that is learned from."""
MOST_ABOVE = 1.03
"""How far the constant update's error may be above the linear one's."""
LEAST_GAIN: Mapping[Update, float] = {"linear": 100.0, "full": 10_000.0}
"""How many times faster the constant update is in the paper."""
FULL_EPSILON = 1e-3
"""Of the kernel from which the full update, which approximates nothing, takes its bandwidth: any will do."""


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes
    ----------
    side, colors : of the images on which constant and linear updates are compared
    full_side, full_colors : of the image on which the full update runs too
    epsilons : the paper's precision of low-rank approximations
    iterations, draws : of every inference, and noisy copies cleaned
    timing_side : of the grid that timed messages of slow updates are taken from
    linear_messages, full_messages : how many of them are timed
    seconds : spent on timing the constant update
    """

    side: int
    colors: tuple[int, ...]
    full_side: int
    full_colors: int
    epsilons: tuple[float, ...] = (1e-1, 1e-2, 1e-3)
    iterations: int = 30
    draws: int = 1
    timing_side: int = 12
    linear_messages: int = 400
    full_messages: int = 128
    seconds: float = 0.5


FULL = Sizes(100, SUNSET_COLORS, 50, 100)
QUICK = Sizes(60, (10, 100, 250), 50, 100, iterations=10, linear_messages=200, full_messages=64, seconds=0.1)
TINY = Sizes(12, (4, 30), 10, 30, (1e-1, 1e-2), 2, 1, 4, 8, 8, 0.0)
"""For tests."""


def run(study: Study, sizes: Sizes | None = None) -> Report:
    """Clean sunsets with constant and linear updates of three precisions, and one with the full update."""
    sizes = sizes or (QUICK if study.options.quick else FULL)
    cases: dict[Key, Case] = {}
    for epsilon in sizes.epsilons:
        for colors in sizes.colors:
            cases[sizes.side, colors, epsilon] = _case(study, sizes, sizes.side, colors, epsilon)
        small = sizes.full_side, sizes.full_colors, epsilon
        cases[small] = _case(study, sizes, *small)
    full = Case(
        f"full update, {sizes.full_side} x {sizes.full_side}, {sizes.full_colors} colours",
        partial(_full, study, sizes),
        20.0,
    )
    finished = study.finish([*cases.values(), full])
    return _report(
        study, sizes, {key: finished[case.name] for key, case in cases.items()}, finished[full.name]
    )


# ---------------------------------------------------------------------- load, learn, infer, score


def _case(study: Study, sizes: Sizes, side: int, colors: int, epsilon: float) -> Case:
    name = f"{side} x {side}, {colors} colours, eps {epsilon:g}"
    seconds = (side / 100) ** 2 * sizes.draws * sizes.iterations / 30 * (1 + 0.06 * min(colors, 150))
    return Case(name, partial(_compare, study, sizes, side, colors, epsilon), 2.0 + seconds)


def _training(study: Study, clean: Image, colors: int) -> dict[str, tuple[Image, Image]]:
    training = Training.of(clean, with_noise(clean, study.rng(colors, TRAIN)))
    return {"beside": training.pairs, "read as": training.readings}


def _errors(
    study: Study, sizes: Sizes, model: Model, clean: Image, colors: int, update: Update
) -> tuple[float, Image]:
    """RMSE of the most probable gray level, as the authors read beliefs, and that image of the first draw."""
    levels = np.unique(clean)
    images = []
    for draw in range(1, sizes.draws + 1):
        graph = grid_of(with_noise(clean, study.rng(colors, draw)))
        beliefs = model.infer(graph, update=update, max_iterations=sizes.iterations)
        images.append(beliefs.mode(levels).reshape(clean.shape))
    error = float(np.mean([root_mean_square_error(image, clean) for image in images]))
    return error, images[0]


def _timing(sizes: Sizes) -> Any:
    return replace(QUICK_SPEED, seconds=sizes.seconds, fewest=2)


def _messages(clean: Image) -> int:
    """Of one iteration: two for each pair of neighbours."""
    rows, columns = clean.shape
    return 2 * (rows * (columns - 1) + columns * (rows - 1))


def _compare(study: Study, sizes: Sizes, side: int, colors: int, epsilon: float) -> Result:
    """Constant and linear updates on one image at one precision.

    Errors are those of pairs merged where they are equal, which gives the same messages (a test of the library holds
    that). Seconds are of both: pairs kept apart as in the paper, and merged.
    """
    clean = paper_image(study, colors, side)
    pairs = _training(study, clean, colors)
    merged = Model.paper(*parts(), residual=epsilon).fit(pairs)
    apart = Model.paper(*parts(), residual=epsilon, merge=False).fit(pairs)
    graph = grid_of(with_noise(clean, study.rng(colors, 1)))
    operator = apart._made_operators("linear", "embedding").operator("beside", 0, None, None, np.float32)
    assert isinstance(operator, Conditional)
    values = len(apart._need_fitted().embeddings["pixel"].examples.values)
    seconds = {
        "constant": iteration(merged, graph, "constant", _timing(sizes)),
        "linear": in_part(sizes.timing_side, operator, values, sizes.linear_messages, _messages(clean)),
        "linear, merged": iteration(merged, graph, "linear", replace(_timing(sizes), seconds=0.0)),
    }
    ranks = merged.settings_["variables"]["pixel"]
    row: dict[str, Any] = {"colours": colors, "eps": epsilon}
    arrays = {}
    for update in ("constant", "linear"):
        row[f"RMSE {update}"], arrays[update] = _errors(study, sizes, merged, clean, colors, update)
    for name, measured in seconds.items():
        row[f"{name} s"], row[f"{name} values"] = measured.seconds, measured.values
    row |= {"rank": ranks["rank"], "tensor rank": ranks["tensor rank"]}
    return Result([row], {name: image.astype(np.float32) for name, image in arrays.items()})


def _full(study: Study, sizes: Sizes) -> Result:
    """The update that approximates nothing.

    Of the operator timed only its size is real: to make it takes minutes, and does not change the time of a message.
    """
    clean = paper_image(study, sizes.full_colors, sizes.full_side)
    pairs = _training(study, clean, sizes.full_colors)
    model = Model.paper(*parts(), residual=FULL_EPSILON).fit(pairs)
    error, image = _errors(study, sizes, model, clean, sizes.full_colors, "full")
    apart = 2 * len(pairs["beside"][0]) + len(pairs["read as"][0])
    random = study.rng(sizes.full_colors, TRAIN).random((apart, apart), dtype=np.float32)
    random /= apart
    timed = in_part(sizes.full_side, Conditional(random), apart, sizes.full_messages)
    merged = iteration(
        model,
        grid_of(with_noise(clean, study.rng(sizes.full_colors, 1))),
        "full",
        replace(_timing(sizes), seconds=0.0),
    )
    row = {"RMSE": error, "s": timed.seconds, "values": timed.values, "merged s": merged.seconds}
    return Result([row], {"full": image.astype(np.float32)})


# ---------------------------------------------------------------------- the report


def _report(study: Study, sizes: Sizes, results: Mapping[Key, Result], full: Result) -> Report:
    from kernelbp.figures.reproduction_approximation import bars, lines

    rows = {key: result.rows[0] for key, result in results.items()}
    large = [{**rows[sizes.side, c, e]} for e in sizes.epsilons for c in sizes.colors]
    small = _beside_full(sizes, rows, full.rows[0])
    title = f"{sizes.side} x {sizes.side} sunsets, sigma {NOISE:g}, {sizes.iterations} iterations"
    how = (
        "Seconds are those of one iteration by the processor's clock on one thread, all pairs kept apart as in the paper; "
        f"linear and full are timed on some of the messages ({sizes.linear_messages:,} and {sizes.full_messages:,} at most) "
        "and scaled to all, constant on whole iterations. 'Merged': equal training values held once, with counts, which "
        "gives the same messages. 'Values' are those of one message."
    )
    return Report(
        title="Approximate message updates: constant beside linear and full (appendix 3)",
        lead=(
            "The paper makes messages cheap in two steps: features are approximated by a few basis functions until the "
            "residual is below eps, which makes an update linear in the training pairs; then products of features are "
            "approximated as well, which makes it constant. Here both updates clean the paper's sunsets at three values "
            "of eps with the authors' preset (kernel, regularisation, damped sweeps) and nothing else changed; the errors are "
            "of the most probable gray level, on the same noise. The last table adds the full update on a small image, as "
            "the paper does."
        ),
        tables=[
            Table("updates", f"Constant and linear updates: {title}", [_tidy(row) for row in large], how),
            Table(
                "full",
                f"Beside the full update: {sizes.full_side} x {sizes.full_side}, {sizes.full_colors} colours, sigma {NOISE:g}",
                small,
                "Of the full update's operator only its size is real where it is timed.",
            ),
        ],
        pictures=[
            Picture(
                "approximation",
                lines(sizes.epsilons, large),
                "As the paper's figures of appendix 3: error and seconds of one iteration against the number of colours, for "
                "linear and constant updates at three precisions eps, and the ranks of features and of tensor features.",
            ),
            Picture(
                "full",
                bars(small),
                f"Error and seconds of one iteration at {sizes.full_side} x {sizes.full_side} pixels, {sizes.full_colors} "
                "colours: constant and linear updates at three precisions, and the full update, which approximates nothing.",
            ),
        ],
        claims=_claims(sizes, large, small),
        settings={
            "images": "the paper's files" if study.options.data else "generated, pixel for pixel the paper's",
            "sigma": NOISE,
            "seed": study.options.seed,
            "iterations": sizes.iterations,
            "noise draws": sizes.draws,
            "model": "Model.paper: median bandwidths, lambda m = 0.01, at most 100 points, k^4",
            "inference": "sweeps, damping 0.8, messages scaled to unit norm; timed flooding, one product of matrices an iteration",
        },
    )


def _tidy(row: Mapping[str, Any]) -> dict[str, Any]:
    """In the order a reader asks: errors, seconds, ranks."""
    return {
        "colours": row["colours"],
        "eps": row["eps"],
        "RMSE constant": row["RMSE constant"],
        "RMSE linear": row["RMSE linear"],
        "error ratio": row["RMSE constant"] / row["RMSE linear"],
        "constant s": row["constant s"],
        "linear s": row["linear s"],
        "times": row["linear s"] / row["constant s"],
        "linear, merged s": row["linear, merged s"],
        "constant values": row["constant values"],
        "linear values": row["linear values"],
        "rank": row["rank"],
        "tensor rank": row["tensor rank"],
    }


def _beside_full(
    sizes: Sizes, rows: Mapping[Key, Mapping[str, Any]], full: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A line for each update and precision."""
    lines: list[dict[str, Any]] = []
    for update in ("constant", "linear"):
        for epsilon in sizes.epsilons:
            row = rows[sizes.full_side, sizes.full_colors, epsilon]
            lines.append(
                {
                    "update": update,
                    "eps": epsilon,
                    "RMSE": row[f"RMSE {update}"],
                    "s": row[f"{update} s"],
                    "times the constant": row[f"{update} s"] / row["constant s"],
                    "values": row[f"{update} values"],
                }
            )
    slowest = max(line["s"] for line in lines if line["update"] == "constant")
    lines.append(
        {
            "update": "full",
            "eps": None,
            "RMSE": full["RMSE"],
            "s": full["s"],
            "times the constant": full["s"] / slowest,
            "values": full["values"],
        }
    )
    return lines


def _claims(
    sizes: Sizes, large: Sequence[Mapping[str, Any]], small: Sequence[Mapping[str, Any]]
) -> list[Claim]:
    claims = []
    for epsilon in sizes.epsilons:
        at = [row for row in large if row["eps"] == epsilon]
        ours, theirs = (float(np.mean([row[f"RMSE {u}"] for row in at])) for u in ("constant", "linear"))
        worst = max(at, key=lambda row: row["RMSE constant"] / row["RMSE linear"])
        ratio = worst["RMSE constant"] / worst["RMSE linear"]
        claims.append(
            Claim(
                f"eps {epsilon:g}: the constant update's error within 3% of the linear one's, mean over colours",
                f"{ours:.3f} to {theirs:.3f} ({100 * (ours / theirs - 1):+.2f}%; at the worst, {worst['colours']} colours, "
                f"{100 * (ratio - 1):+.2f}%)",
                "within 3%",
                ours <= MOST_ABOVE * theirs,
            )
        )
    for update, least in LEAST_GAIN.items():
        gains = [line["times the constant"] for line in small if line["update"] == update]
        shown = f"{min(gains):,.0f}" if len(gains) == 1 else f"{min(gains):,.0f} to {max(gains):,.0f}"
        claims.append(
            Claim(
                f"{sizes.full_side} x {sizes.full_side}: constant faster than {update}, pairs kept apart",
                f"{shown} times",
                f"at least {least:,.0f} times",
                min(gains) >= least,
            )
        )
    return claims
