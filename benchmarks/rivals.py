"""The paper's rivals on its denoising problem, 100 x 100 pixels, 100 colours, sigma 30.

Each rival is given the true likelihood of a reading and learns the relation of neighbouring pixels from the clean
image, as in the paper. It runs with the paper's settings, and with the best that a search found on another image:
a sunset of 75 colours and 50 x 50 pixels, with noise of its own. Ours learns the likelihood too, and nothing is
searched for it.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import denoising
import numpy as np
import paper_preset
from common import Claim, Results, Settings, sgemm_seconds
from numpy.typing import NDArray
from paper_preset import NOISE, image, noisy_copy, problem

import kernelbp as kb
from kernelbp.figures import root_mean_square_error

Image = NDArray[np.float64]
Options = Mapping[str, Any]

COLORS, DRAWS = 100, (1, 2, 3)
"""The image tested, and the seeds of its noise."""
SEARCH_COLORS, SEARCH_SIZE, SEARCH_DRAWS = 75, 50, (10, 11)
"""The image settings are searched on."""
WARM_SIZE = 12
"""Rows and columns of a graph on which compiled functions are made ready before anything is timed."""
OF_INFER = {"weighting", "schedule", "max_iterations", "tolerance", "damping"}
"""Settings that go to `infer`; the others go to the constructor."""
LIMITS = {"particle": 5.0, "Gaussian-mixture": 30.0}
"""Seconds of an iteration allowed on two cores, with the paper's settings."""


@dataclass(frozen=True)
class Method:
    """A rival and what is tried for it.

    Attributes
    ----------
    name : as in the tables
    make : an unfitted model, from the clean image and settings of the constructor
    paper : the paper's settings
    start : what the search starts from, where it differs from them
    stages : grids searched one after another, each around the best found so far
    draws : seeds of the noise of the image searched on
    """

    name: str
    make: Callable[..., Any]
    paper: Options
    stages: Sequence[Mapping[str, Sequence[Any]]]
    start: Options
    draws: Sequence[int] = SEARCH_DRAWS


@dataclass(frozen=True)
class Run:
    """One inference: errors, iterations, and seconds of each, by the processor's clock and by that on the wall."""

    mean: float
    mode: float
    iterations: int
    converged: bool
    processor: float
    wall: float


def likelihood(pixel: Any, reading: Any) -> Any:
    """What a reading says of its pixel: the truth, given to the rivals."""
    return np.exp(-((pixel - reading) ** 2) / (2 * NOISE**2))


def parts() -> tuple[dict[str, Any], dict[str, kb.Relation]]:
    """Variables and relations."""
    return (
        {"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        {
            "beside": kb.Relation("pixel", "pixel", symmetric=True),
            "read as": kb.Relation("pixel", "reading", potential=likelihood),
        },
    )


def discrete(clean: Image, **options: Any) -> Any:
    """With the true levels."""
    return kb.rivals.DiscreteModel(*parts(), levels={"pixel": np.unique(clean)}, **options)


def mixture(clean: Image, **options: Any) -> Any:
    """Messages of Gaussians."""
    return kb.rivals.GaussianMixtureModel(*parts(), **options)


def particle(clean: Image, **options: Any) -> Any:
    """Particles that follow beliefs."""
    return kb.rivals.ParticleModel(*parts(), **options)


def gaussian(clean: Image, **options: Any) -> Any:
    """The true likelihood is linear, which is how this one is told of it."""
    variables, relations = parts()
    relations["read as"] = kb.Relation("pixel", "reading")
    return kb.rivals.GaussianModel(variables, relations, linear={"read as": (1.0, 0.0, NOISE**2)}, **options)


THIRTY = {"max_iterations": 30, "damping": 0.0, "tolerance": 0.0}
METHODS = (
    Method(
        "discrete",
        discrete,
        {**THIRTY, "weighting": "bethe", "schedule": "flooding"},
        (
            {
                "weighting": ("bethe", "tree-reweighted"),
                "schedule": ("flooding", "sweep"),
                "damping": (0.0, 0.5),
                "smoothing": (None, 0.001, 0.1, 1.0),
            },
            # Ordinary belief propagation may be best before it goes astray.
            {"weighting": ("bethe", "tree-reweighted"), "max_iterations": (10, 30, 100)},
        ),
        {"max_iterations": 100, "tolerance": 1e-3},
    ),
    Method(
        "Gaussian-mixture",
        mixture,
        # The authors' sampler, "epsilon", draws from the same products to within 1% in three to four times the time.
        {**THIRTY, "n_samples": 12, "sampler": "auto", "mixing": 0.0, "bandwidth": 1.0},
        (
            {"mixing": (0.0, 0.05, 0.2), "damping": (0.0, 0.5)},
            {"bandwidth": (0.0, 1.0, 2.0, 4.0)},
            {"sampler": ("auto", "gibbs")},
            {"max_iterations": (3, 5, 10, 30)},
            {"n_samples": (12, 30)},
        ),
        {"max_iterations": 5},
        # Slow, so on one draw.
        SEARCH_DRAWS[:1],
    ),
    Method(
        "particle",
        particle,
        {**THIRTY, "n_particles": 30, "resample_every": 15, "mcmc_steps": 10, "mixing": 0.0},
        (
            {"mixing": (0.0, 0.05, 0.15), "damping": (0.0, 0.5), "resample_every": (5, 15)},
            {"n_particles": (30, 60), "mcmc_steps": (10, 30)},
        ),
        {},
    ),
    Method(
        "Gaussian",
        gaussian,
        {**THIRTY, "schedule": "flooding"},
        ({"damping": (0.0, 0.5), "regularization": (1e-6, 1e-3, 1e-2, 0.03, 0.1, 0.3)},),
        {"max_iterations": 500, "tolerance": 1e-8},
    ),
)


def run(settings: Settings) -> Iterator[Results]:
    """What was searched, then the comparison."""
    warm()
    # Quick: the first stage of each search, on one draw, and the small image tested too.
    small = kb.datasets.sunset(SEARCH_COLORS, size=SEARCH_SIZE, noise=0.0)[0]
    clean = (
        kb.datasets.sunset(COLORS, size=SEARCH_SIZE, noise=0.0)[0]
        if settings.quick
        else image(settings, COLORS)
    )
    draws = DRAWS[:1] if settings.quick else DRAWS
    best: dict[str, Options] = {}
    searched: list[tuple[Any, ...]] = []
    for method in settings.progress.track(METHODS, description="rivals: search"):
        best[method.name], rows = search(method, small, quick=settings.quick)
        searched += rows
    yield Results(
        "rivals_search",
        f"Settings tried on another image: {SEARCH_SIZE} x {SEARCH_SIZE}, {SEARCH_COLORS} colours, sigma {NOISE:g}",
        ("method", "stage", "settings", "noise draws", "RMSE mean", "RMSE mode"),
        searched,
    )
    yield compare(settings, clean, draws, best)


def search(
    method: Method, clean: Image, *, quick: bool
) -> tuple[Options, list[tuple[str, int, str, int, float, float]]]:
    """The settings with the least error of the mean, and all that were tried."""
    draws = method.draws[:1] if quick else method.draws
    best: Options = {**method.paper, **method.start}
    tried: dict[str, tuple[float, Options]] = {}
    rows = []
    for stage, grid in enumerate(method.stages[:1] if quick else method.stages, start=1):
        for values in itertools.product(*grid.values()):
            options = {**best, **dict(zip(grid, values, strict=True))}
            if written(options) in tried:
                continue
            runs = measure(method.make, options, clean, draws)
            error = float(np.mean([found.mean for found in runs]))
            tried[written(options)] = error, options
            mode = float(np.mean([found.mode for found in runs]))
            rows.append((method.name, stage, written(options), len(draws), error, mode))
        best = min(tried.values(), key=lambda found: found[0])[1]
    return best, rows


def compare(settings: Settings, clean: Image, draws: Sequence[int], best: Mapping[str, Options]) -> Results:
    """Every method on the image tested."""
    jobs: list[tuple[str, str, Callable[[], list[Run]], str, str]] = []
    for method in METHODS:
        tried = "; ".join(
            ", ".join(f"{name} {'/'.join(map(str, values))}" for name, values in grid.items())
            for grid in method.stages
        )
        for kind, options, note in (
            ("paper", method.paper, "-"),
            ("best found", best[method.name], tried),
        ):
            job = partial(measure, method.make, options, clean, draws)
            jobs.append((method.name, kind, job, written(options), note))
    for kind, learn in (("paper", paper_preset.learn), ("default", learn_default)):
        jobs.append(("kernelbp", kind, partial(measure_ours, learn, clean, draws), "likelihood learned", "-"))
    rows, claims = [], []
    for name, kind, job, used, tried in settings.progress.track(jobs, description="rivals: comparison"):
        runs = job()
        processor, wall = (
            float(np.mean([getattr(r, clock) for r in runs])) for clock in ("processor", "wall")
        )
        means, modes = ([getattr(r, estimate) for r in runs] for estimate in ("mean", "mode"))
        iterations = sorted(r.iterations for r in runs)
        rows.append(
            (
                name,
                kind,
                float(np.mean(means)),
                float(np.ptp(means)),
                float(np.mean(modes)),
                f"{iterations[0]}-{iterations[-1]}" if iterations[0] < iterations[-1] else iterations[0],
                "yes" if all(r.converged for r in runs) else "no",
                processor,
                wall,
                processor / sgemm_seconds(),
                used,
                tried,
            )
        )
        if kind == "paper" and name in LIMITS:
            claims.append(
                Claim(
                    f"{name}, paper's settings: seconds of an iteration",
                    f"{wall:.2f}",
                    f"< {LIMITS[name]:g}",
                    wall < LIMITS[name],
                )
            )
    return Results(
        "rivals",
        f"Denoising {clean.shape[0]} x {clean.shape[1]}, {COLORS} colours, sigma {NOISE:g}, {len(draws)} noise draw(s)",
        (
            "method",
            "settings",
            "RMSE mean",
            "its range",
            "RMSE mode",
            "iterations",
            "converged",
            "s / iteration",
            "wall s / iteration",
            "iteration / sgemm",
            "settings used",
            "searched",
        ),
        rows,
        claims,
        note="rivals are given the true likelihood; all learn from the clean image; an iteration's share of all of infer; "
        "chosen by RMSE of the mean on another image, see rivals_search",
    )


def measure(make: Callable[..., Any], options: Options, clean: Image, draws: Sequence[int]) -> list[Run]:
    """Learn from an image and denoise copies of it."""
    model = make(clean, **{name: value for name, value in options.items() if name not in OF_INFER})
    model.fit({"beside": kb.datasets.grid_pairs(clean)})
    asked = {name: value for name, value in options.items() if name in OF_INFER}
    return [timed(model, clean, seed, asked) for seed in draws]


def measure_ours(learn: Callable[[Image], kb.Model], clean: Image, draws: Sequence[int]) -> list[Run]:
    """The same for ours, whose likelihood is learned too, from another noisy copy."""
    model = learn(clean)
    return [timed(model, clean, seed, {}) for seed in draws]


def learn_default(clean: Image) -> kb.Model:
    """Nothing set by hand."""
    return denoising.learn(clean, noisy_copy(clean, 0))


def timed(model: Any, clean: Image, seed: int, asked: Options) -> Run:
    """Denoise one copy."""
    graph = problem(noisy_copy(clean, seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.ConvergenceWarning)
        clocks = time.process_time(), time.perf_counter()
        beliefs = model.infer(graph, **asked)
        spent = time.process_time() - clocks[0], time.perf_counter() - clocks[1]
    return Run(
        root_mean_square_error(beliefs.mean(), clean),
        root_mean_square_error(beliefs.mode(), clean),
        beliefs.iterations,
        beliefs.converged,
        *(seconds / beliefs.iterations for seconds in spent),
    )


def warm() -> None:
    """Compile what will be compiled: that is no part of an iteration."""
    clean = kb.datasets.sunset(10, size=WARM_SIZE, noise=0.0)[0]
    for method in METHODS:
        for options in (method.paper, {**method.paper, **method.start}):
            measure(method.make, {**options, "max_iterations": 2}, clean, (0,))
    for learn in (paper_preset.learn, learn_default):
        measure_ours(learn, clean, (0,))


def written(options: Options) -> str:
    """Settings as text."""
    return ", ".join(f"{name} {options[name]}" for name in sorted(options))
