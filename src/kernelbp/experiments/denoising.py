"""Figure 1 of the paper: sunsets of 10 to 250 gray levels, cleaned by kernel BP and its rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets import SUNSET_COLORS, sunset
from kernelbp.errors import InputError
from kernelbp.experiments.denoisers import (
    COUNTED,
    ESTIMATES,
    NOISE,
    OURS,
    RIVALS,
    Chosen,
    Method,
    Sample,
    Training,
    chosen,
    limited,
    measure,
    paper_image,
    search_case,
    with_noise,
    with_seed,
    written,
)
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Result, Row, Study

__all__ = ["FULL", "QUICK", "TINY", "Sizes", "run"]

Image = NDArray[np.float64]
Results = Mapping[tuple[int, str], Result]

SLOW = "Gaussian-mixture BP"
"""The slowest rival."""
MANY, VERY_MANY, FEW = 50, 200, 25
"""Numbers of colours that the claims speak of."""
SEARCH, TRAIN = 1000, 0
"""Numbers of random draws: of the image that settings are searched on, and of the copy that is learned from."""
SMALL_COLORS, LARGE_COLORS = 75, 90
"""Of the two images searched on."""
SEARCHED_SMALL = (SLOW, "particle BP")
"""Searched on the small one."""
NOT_SHOWN = ("pairs only", "counted tables")
"""Kernel BP's settings whose pictures are left out."""


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes
    ----------
    side : rows and columns of the images
    colors : their numbers of gray levels
    draws : noisy copies cleaned, by method and settings; `other_draws` where not named
    other_draws : see there
    iterations : of the rivals and of the paper's preset
    search_side : of the image on which settings of slow rivals are searched; others' are on one of `side`
    search_stages : how many grids are searched (None: all)
    """

    side: int
    colors: tuple[int, ...]
    draws: Mapping[str, int]
    other_draws: int
    iterations: int
    search_side: int
    search_stages: int | None


FULL = Sizes(
    side=100,
    colors=SUNSET_COLORS,
    draws={
        "Gaussian-mixture BP, paper": 1,
        "Gaussian-mixture BP, best found": 1,
        "particle BP, paper": 3,
        "particle BP, best found": 1,
        "kernel BP, paper": 3,
    },
    other_draws=10,
    iterations=30,
    search_side=50,
    search_stages=None,
)
"""The paper's images; fewer draws for the slow, so that all takes an hour on two cores."""
QUICK = Sizes(60, (10, 250), {}, 1, 10, 20, 1)
TINY = Sizes(12, (4, 60), {}, 1, 2, 10, 1)
"""For tests."""


def run(study: Study, photos: Path | None = None, sizes: Sizes | None = None) -> Report:
    """Clean the sunsets by every method; or, with `photos`, photographs (see `experiments.photographs`)."""
    if photos is not None:
        if study.options.data is not None:
            raise InputError("data: the paper's images are not used with photos; give one of the two")
        from kernelbp.experiments import photographs

        return photographs.run(study, photos)
    sizes = sizes or (QUICK if study.options.quick else FULL)
    seed = study.options.seed
    methods = [with_seed(limited(method, sizes.iterations), seed) for method in (*RIVALS, *OURS, COUNTED)]
    images = {colors: paper_image(study, colors, sizes.side) for colors in sizes.colors}

    tried = study.finish(_searches(study, methods, sizes))
    entrants = chosen([row for result in tried.values() for row in result.rows], methods)

    cases: dict[tuple[int, str], Case] = {}
    for colors, clean in images.items():
        for entrant in entrants:
            cases[colors, entrant.name] = _case(study, colors, clean, entrant, sizes)
    finished = study.finish(list(cases.values()))
    results = {key: finished[case.name] for key, case in cases.items()}
    return _report(study, sizes, images, entrants, results)


# ---------------------------------------------------------------------- load, learn, infer, score


def _searches(study: Study, methods: Sequence[Method], sizes: Sizes) -> list[Case]:
    """On images that are not tested: a small one for the slow, one of full size for all others."""
    small = _searched_on(study, SMALL_COLORS, sizes.search_side)
    large = _searched_on(study, LARGE_COLORS, sizes.side)
    costs = {"discrete BP": 60.0, SLOW: 90.0, "particle BP": 60.0}
    return [
        search_case(
            f"search {method.name}, {' and '.join(method.settings)}",
            method,
            *(small if method.name in SEARCHED_SMALL else large),
            stages=sizes.search_stages,
            seconds=costs.get(method.name, 5.0) * (sizes.side / FULL.side) ** 2,
        )
        for method in methods
    ]


def _searched_on(study: Study, colors: int, side: int) -> tuple[Training, list[Sample]]:
    clean = sunset(colors, side, noise=0.0)[0]
    training = Training.of(clean, with_noise(clean, study.rng(SEARCH, TRAIN)))
    return training, [Sample(clean, with_noise(clean, study.rng(SEARCH, 1)))]


def _draws(entrant: Chosen, sizes: Sizes) -> int:
    return sizes.draws.get(entrant.name, sizes.other_draws)


def _case(study: Study, colors: int, clean: Image, entrant: Chosen, sizes: Sizes) -> Case:
    work = partial(_clean, study, colors, clean, entrant, _draws(entrant, sizes))
    one = {"discrete BP": 1e-4 * colors**2, SLOW: 70.0, "particle BP": 12.0, "kernel BP": 3.0}
    seconds = one.get(entrant.method.name, 0.4) * _draws(entrant, sizes) * (sizes.side / FULL.side) ** 2
    return Case(f"{colors} colours, {entrant.name}", work, 1.0 + seconds)


def _clean(study: Study, colors: int, clean: Image, entrant: Chosen, draws: int) -> Result:
    """One method on one image: learned from one noisy copy, others cleaned."""
    training = Training.of(clean, with_noise(clean, study.rng(colors, TRAIN)))
    samples = [Sample(clean, with_noise(clean, study.rng(colors, draw))) for draw in range(1, draws + 1)]
    runs = measure(entrant.method, entrant.options, training, samples)
    rows = [
        {
            "colours": colors,
            "method": entrant.method.name,
            "settings": entrant.kind,
            "draw": draw,
            **{f"RMSE {estimate}": found.error(estimate, clean) for estimate in ESTIMATES},
            "iterations": found.iterations,
            "converged": found.converged,
            "fit s": found.fit_seconds,
            "inference s": found.seconds,
            "iteration s": found.iteration_seconds,
        }
        for draw, found in enumerate(runs, start=1)
    ]
    arrays = {
        "clean": clean.astype(np.float32),
        "noisy": samples[0].noisy.astype(np.float32),
        "mean": runs[0].mean.astype(np.float32),
        "mode": runs[0].mode.astype(np.float32),
    }
    return Result(rows, arrays)


# ---------------------------------------------------------------------- the report


def _average(result: Result, column: str, draws: int | None = None) -> float | None:
    """Over draws, or the first of them; None if one was not answered.

    The mean of errors, the median of seconds, and of those of an iteration the least that could be told: what else the machine
    does can only add to them, and an iteration of a millisecond is soon lost in it.
    """
    values = [row[column] for row in result.rows[:draws]]
    numbers = [float(value) for value in values if value is not None]
    if not numbers or (len(numbers) < len(values) and column != "iteration s"):
        return None
    over = np.min if column == "iteration s" else np.median if column.endswith(" s") else np.mean
    return float(over(numbers))


def _report(
    study: Study,
    sizes: Sizes,
    images: Mapping[int, Image],
    entrants: Sequence[Chosen],
    results: Results,
) -> Report:
    from kernelbp.figures.reproduction_denoising import curves, gallery

    shown = 100 if 100 in images else sizes.colors[-1]
    lines = {
        entrant.name: {
            "method": entrant.method.name,
            "settings": entrant.kind,
            "error": [_average(results[c, entrant.name], f"RMSE {entrant.estimate}") for c in images],
            "seconds": [_average(results[c, entrant.name], "inference s") for c in images],
            "iteration": [_average(results[c, entrant.name], "iteration s") for c in images],
        }
        for entrant in entrants
    }
    panels = [
        (entrant.method.name, entrant.kind, results[shown, entrant.name].arrays[entrant.estimate])
        for entrant in entrants
        if entrant.kind not in NOT_SHOWN
    ]
    any_result = results[shown, "kernel BP, default"].arrays
    truth, noisy = any_result["clean"], any_result["noisy"]
    return Report(
        title="Denoising sunsets: kernel BP beside discrete, Gaussian-mixture and particle BP (Figure 1)",
        lead=_lead(sizes),
        tables=_tables(sizes, images, entrants, results),
        pictures=[
            Picture(
                "denoising",
                curves(truth, noisy, list(images), list(lines.values()), colors=shown),
                f"As Figure 1 of the paper: a sunset of {shown} colours, the same with noise of sigma {NOISE:g}, and, against "
                "the number of colours, the error (RMSE in gray levels, of mean or mode, whichever was better on another "
                "image), the seconds of an inference, and the seconds of one iteration (all logarithmic).",
            ),
            Picture(
                "images",
                gallery(truth, noisy, panels),
                f"One noisy sunset of {shown} colours cleaned by every method: with the paper's settings above, with the best "
                "found on another image (ours: the default, nothing set by hand) below.",
            ),
        ],
        claims=_claims(study, sizes, images, entrants, results),
        settings={
            "images": "the paper's files" if study.options.data else "generated, pixel for pixel the paper's",
            "size": f"{sizes.side} x {sizes.side}",
            "sigma": NOISE,
            "seed": study.options.seed,
            "searched on": _searched_text(sizes),
            **{entrant.name: f"{written(entrant.options)}; {entrant.estimate}" for entrant in entrants},
        },
    )


def _searched_text(sizes: Sizes) -> str:
    small, large = sizes.search_side, sizes.side
    return (
        f"a sunset of {LARGE_COLORS} colours, {large} x {large}; for {' and '.join(SEARCHED_SMALL)} one of {SMALL_COLORS}, "
        f"{small} x {small}; other noise"
    )


def _lead(sizes: Sizes) -> str:
    return (
        f"The paper's sunsets of {sizes.side} x {sizes.side} pixels and {sizes.colors[0]} to {sizes.colors[-1]} gray levels get "
        f"Gaussian noise of sigma {NOISE:g} and are cleaned by belief propagation on the grid of pixels. As in the paper, every "
        "method learns how neighbouring pixels relate from the clean image of the same number of colours; the rivals are "
        "told the true likelihood of a reading, and discrete BP the true gray levels, while kernel BP learns its likelihood "
        f"from one noisy copy. Methods with the paper's settings run {sizes.iterations} iterations. Each rival also runs with the "
        "best settings found on another image; where that was better there, discrete BP's edge weights, iterations and temperature "
        "are tuned on the training image, as kernel BP's are. Kernel BP has nothing set by hand: from pairs only, it runs until messages "
        "settle; by default it is given the training image as a graph as well, fits mixing, edge weights, when to stop "
        "and the temperature of its beliefs on it, and refines its table of neighbouring pixels and a power of the evidence by the "
        "gradient of the error there ('counted tables': without that last step). Errors are of the mean or the mode of beliefs, whichever was better for that "
        "method on that other image; both stand in the tables."
    )


def _tables(
    sizes: Sizes, images: Mapping[int, Image], entrants: Sequence[Chosen], results: Results
) -> list[Table]:
    def by_colors(column: str, entrant: Chosen) -> dict[str, float | None]:
        return {str(c): _average(results[c, entrant.name], column) for c in images}

    def head(entrant: Chosen) -> dict[str, Any]:
        return {"method": entrant.method.name, "settings": entrant.kind}

    title = f"{sizes.side} x {sizes.side} sunsets, sigma {NOISE:g}, by number of colours"
    tables = [
        Table(
            "error",
            f"RMSE: {title}",
            [
                {
                    **head(e),
                    "estimate": e.estimate,
                    "draws": _draws(e, sizes),
                    **by_colors(f"RMSE {e.estimate}", e),
                }
                for e in entrants
            ],
            "The estimate of each line is the one that was better on the image settings were searched on. Slow methods get "
            "fewer noise draws.",
        )
    ]
    for estimate in ESTIMATES:
        rows: list[Row] = [{**head(e), **by_colors(f"RMSE {estimate}", e)} for e in entrants]
        tables.append(Table(f"error_{estimate}", f"RMSE of the {estimate}: {title}", rows))
    for name, column, what in (
        ("iteration_seconds", "iteration s", "one iteration"),
        ("inference_seconds", "inference s", "a whole inference"),
        ("fit_seconds", "fit s", "learning"),
    ):
        note = (
            "By the clock, the least of the draws (and, of inferences that take less than half a second, the median of up to five on each), every "
            "method on as many threads as it uses. One iteration: a whole inference less one of a single iteration, by the iterations between. "
            "Of whole inferences, below, the median of the draws."
        )
        tables.append(
            Table(
                name,
                f"Seconds of {what}: {title}",
                [{**head(e), **by_colors(column, e)} for e in entrants],
                note if column == "iteration s" else "",
            )
        )
    tables.append(
        Table(
            "iterations",
            f"Iterations run, and whether messages settled: {title}",
            [{**head(e), **{str(c): _iterations(results[c, e.name]) for c in images}} for e in entrants],
            "An asterisk: settled within the tolerance on all draws.",
        )
    )
    tables.append(
        Table(
            "searched",
            f"Settings, and errors on the image they were searched on ({_searched_text(sizes)})",
            [
                {
                    **head(e),
                    "tried": e.tried,
                    "RMSE there": e.error,
                    "estimate": e.estimate,
                    "options": written(e.options),
                }
                for e in entrants
            ],
        )
    )
    return tables


def _iterations(result: Result) -> str:
    counts = sorted(int(row["iterations"] or 0) for row in result.rows)
    shown = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]}-{counts[-1]}"
    return shown + ("*" if all(row["converged"] for row in result.rows) else "")


def _claims(
    study: Study, sizes: Sizes, images: Mapping[int, Image], entrants: Sequence[Chosen], results: Results
) -> list[Claim]:
    (ours,) = (entrant for entrant in entrants if entrant.kind == "default")
    rivals = [entrant for entrant in entrants if entrant.method.name != ours.method.name]
    claims = []
    if study.options.data is not None:
        same = [np.array_equal(sunset(c, sizes.side, noise=0.0)[0], image) for c, image in images.items()]
        claims.append(
            Claim(
                "sunsets drawn by kernelbp.datasets.sunset equal the paper's files, pixel for pixel",
                f"{sum(same)} of {len(same)}",
                "all",
                all(same),
            )
        )
    for what, counts, most in (
        (
            f"{MANY} colours and more: RMSE of kernel BP, default, below every rival's",
            [c for c in images if c >= MANY],
            1.0,
        ),
        (
            f"{FEW} colours and fewer: RMSE of kernel BP, default, at most 10% above the best rival's",
            [c for c in images if c <= FEW],
            1.1,
        ),
    ):
        if counts:
            worst, text = max(_against(ours, rivals, colors, results) for colors in counts)
            wanted = "below 1" if most == 1.0 else f"at most {most:g}"
            claims.append(
                Claim(
                    f"{what}, on the same draws (largest ratio, both settings of each)",
                    text,
                    wanted,
                    worst < most if most == 1.0 else worst <= most,
                )
            )
    for name, least, counts in (
        (SLOW, 100.0, list(images)),
        ("particle BP", 100.0, list(images)),
        ("discrete BP", 5.0, [c for c in images if c >= VERY_MANY]),
    ):
        ratios = []
        for colors in counts:
            mine = _average(results[colors, ours.name], "iteration s")
            theirs = _average(results[colors, f"{name}, paper"], "iteration s")
            # What could not be told lets no claim hold.
            ratios.append((theirs / mine if mine and theirs else 0.0, colors))
        if ratios:
            where = "" if len(counts) == len(images) else f" at {VERY_MANY} colours and more"
            least_ratio, colors = min(ratios)
            claims.append(
                Claim(
                    f"one iteration of kernel BP, {ours.kind}, faster than {name}'s with the paper's settings{where}",
                    f"{least_ratio:.0f} to {max(ratios)[0]:.0f} times (least at {colors} colours)"
                    if least_ratio
                    else f"could not be told at {colors} colours",
                    f"at least {least:g} times",
                    least_ratio >= least,
                )
            )
    settled = [
        bool(row["converged"]) for c in images for row in results[c, f"{ours.method.name}, pairs only"].rows
    ]
    claims.append(
        Claim(
            "kernel BP learned from pairs only settles on every draw",
            f"{sum(settled)} of {len(settled)}",
            "all",
            all(settled),
        )
    )
    return claims


def _against(ours: Chosen, rivals: Sequence[Chosen], colors: int, results: Results) -> tuple[float, str]:
    """Our error over that of the best rival, each on the draws that rival had."""
    ratios = []
    for rival in rivals:
        theirs = results[colors, rival.name]
        draws = len(theirs.rows)
        mine, other = (
            np.inf if error is None else error
            for error in (
                _average(results[colors, ours.name], f"RMSE {ours.estimate}", draws),
                _average(theirs, f"RMSE {rival.estimate}", draws),
            )
        )
        ratio = mine / other if other and np.isfinite(mine) else np.inf
        text = f"{ratio:.2f} ({mine:.2f} to {other:.2f} of {rival.name}, {colors} colours)"
        ratios.append((ratio, text))
    return max(ratios)
