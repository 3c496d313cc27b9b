"""How time and memory grow: learning with pairs, an iteration with pairs (not at all) and with edges.

Pairs are neighbours in time of a Gaussian autoregression, seen through the normal distribution function: so
their range, and with a fixed kernel the number of support points, stay the same however many there are.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import SGEMM_SIZE, Claim, Results, Settings, exponent, seconds, sgemm_seconds
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import norm

import kernelbp as kb
import kernelbp.model

BANDWIDTH = 0.25
CORRELATION = 0.9
NOISE = 0.15
LANDMARKS = np.linspace(0.0, 1.0, 24)
"""Support points given by hand where models of different m must cost the same."""
STEEPEST = 1.1
"""Largest exponent that counts as linear."""
FLATTEST = 0.10
"""Largest relative difference that counts as constant."""
STAGES = {
    "merge s": "collect",
    "bases s": "embed_variable",
    "moments s": "relation_moments",
    "smoothing s": "fit_smoothing",
}
"""Stages of learning, and the function of `kernelbp.model` that each is (left out where there is none)."""
PLAIN: dict[str, Any] = {
    "conditionals": "embedding",
    "weighting": "bethe",
    "schedule": "flooding",
    "tolerance": 0.0,
    "damping": 0.5,
}
"""The plain update, never stopped early, so that iterations can be counted on."""

Values = NDArray[np.float64]


def run(settings: Settings) -> Iterator[Results]:
    """All three tables."""
    yield learning(settings)
    yield iteration_by_pairs(settings)
    yield iteration_by_edges(settings)


# ---------------------------------------------------------------------- learning


def learning(settings: Settings) -> Results:
    """Time of `fit`, and of what is made on first use, against the number of pairs."""
    sizes = (10_000, 30_000, 100_000, 300_000)
    if not settings.quick:
        sizes += (1_000_000, 2_000_000)
    rows = []
    fit_once(1000)
    for size in settings.progress.track(sizes, description="scaling: learning"):
        repeats = 3 if size <= 300_000 else 2
        unit = sgemm_seconds()
        # The least total of a few runs, with its own stages.
        total, fit, first_use, stages = min(
            (fit_once(size) for _ in range(repeats)), key=lambda measured: measured[0]
        )
        rest = fit - sum(stages.values())
        rows.append(
            (size, total, total / unit, fit, *(stages.get(stage) for stage in STAGES), rest, first_use)
        )
    totals = [row[1] for row in rows]
    # Over all sizes, and over the larger ones, where fixed costs no longer flatter the slope.
    slopes = {
        f"learning time ~ m^p, m from {part[0]:,}": exponent(part, totals[-len(part) :])
        for part in (sizes, sizes[2:])
    }
    return Results(
        "scaling_learning",
        "Learning against m, one symmetric relation of continuous values",
        ("pairs m", "total s", "total / sgemm", "fit s", *STAGES, "rest of fit s", "first use s"),
        rows,
        [
            Claim(what, f"p = {slope:.3f}", f"at most {STEEPEST}", slope <= STEEPEST)
            for what, slope in slopes.items()
        ],
        note=f"first use: operators and marginals made by the first inference; sgemm: {SGEMM_SIZE}^2 float32",
    )


def fit_once(pairs: int) -> tuple[float, float, float, dict[str, float]]:
    """Seconds in all, of `fit`, of the first use, and of each stage."""
    first, second = autoregression(pairs)
    model = kb.Model(
        {"state": kb.kernels.Gaussian(BANDWIDTH)}, {"then": kb.Relation("state", "state", symmetric=True)}
    )
    graph = kb.Graph.chain(2, variable="state", relation="then")
    with stage_clock() as stages:
        fit = seconds(lambda: model.fit({"then": (first, second)}))
    first_use = seconds(lambda: model.infer(graph, max_iterations=1, **PLAIN).mean())
    return fit + first_use, fit, first_use, stages


@contextmanager
def stage_clock() -> Iterator[dict[str, float]]:
    """Time the stages of learning, by wrapping the functions `fit` calls."""
    spent: dict[str, float] = {}
    originals = {
        stage: getattr(kernelbp.model, name)
        for stage, name in STAGES.items()
        if hasattr(kernelbp.model, name)
    }

    def timed(stage: str, function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments, **keywords)
            finally:
                spent[stage] = spent.get(stage, 0.0) + time.process_time() - began

        return call

    try:
        for stage, function in originals.items():
            setattr(kernelbp.model, STAGES[stage], timed(stage, function))
        yield spent
    finally:
        for stage, function in originals.items():
            setattr(kernelbp.model, STAGES[stage], function)


# ---------------------------------------------------------------------- an iteration, by pairs


def iteration_by_pairs(settings: Settings) -> Results:
    """Time of an iteration on one grid, with models learned from more and more pairs."""
    sizes = (10_000, 100_000) if settings.quick else (10_000, 100_000, 1_000_000)
    side, more, rounds = (100, 30, 5) if settings.quick else (150, 30, 12)
    graph = noisy_grid(side)
    models = [fitted_model(size) for size in sizes]
    short, long = np.full(len(sizes), np.inf), np.full(len(sizes), np.inf)
    unit = np.inf
    # Round after round over all models, so that a slow moment of the machine strikes them alike.
    for _ in settings.progress.track(range(rounds), description="scaling: iteration by m"):
        unit = min(unit, sgemm_seconds())
        for number, model in enumerate(models):
            short[number] = min(short[number], infer_seconds(model, graph, 2))
            long[number] = min(long[number], infer_seconds(model, graph, 2 + more))
    times = (long - short) / more
    rows = [
        (size, len(model.support("pixel")), float(spent), float(spent / unit))
        for size, model, spent in zip(sizes, models, times, strict=True)
    ]
    spread = float(times.max() / times.min() - 1)
    return Results(
        "scaling_iteration_pairs",
        f"An iteration on a {side} x {side} grid against m",
        ("pairs m", "support points", "iteration s", "iteration / sgemm"),
        rows,
        (
            Claim(
                "time of an iteration does not depend on m",
                f"varies by {spread:.1%}",
                f"at most {FLATTEST:.0%}",
                spread <= FLATTEST,
            ),
        ),
        note=f"least of {rounds} interleaved rounds; flooding, plain embedding",
    )


def infer_seconds(model: kb.Model, graph: kb.Graph, iterations: int) -> float:
    """Seconds of a whole inference of this many iterations."""
    return seconds(lambda: model.infer(graph, max_iterations=iterations, **PLAIN))


# ---------------------------------------------------------------------- an iteration, by edges


def iteration_by_edges(settings: Settings) -> Results:
    """Time of an iteration and peak memory on larger and larger grids, each in a process of its own."""
    sides = (100, 180, 320, 560) if settings.quick else (100, 180, 320, 560, 1000)
    rows = []
    for side in settings.progress.track(sides, description="scaling: iteration by edges"):
        found = measured_apart(side, iterations=20 if side < 500 else 10)
        rows.append(
            (
                f"{side} x {side}",
                found["edges"],
                found["iteration"],
                found["iteration"] / found["sgemm"],
                1e6 * found["iteration"] / (2 * found["edges"]),
                found["setup"],
                found["peak_before"],
                found["peak_inference"],
                found["peak_reading"],
            )
        )
    slope = exponent([row[1] for row in rows], [row[2] for row in rows])
    return Results(
        "scaling_iteration_edges",
        f"An iteration against edges: grids, flooding, {len(LANDMARKS)} support points, float32",
        (
            "grid",
            "edges",
            "iteration s",
            "iteration / sgemm",
            "us per message",
            "set-up s",
            "MB before",
            "peak MB inference",
            "peak MB with mean()",
        ),
        rows,
        (
            Claim(
                "time of an iteration ~ edges^p",
                f"p = {slope:.3f}",
                f"at most {STEEPEST}",
                slope <= STEEPEST,
            ),
        ),
        note="peak resident memory of a process of its own; set-up: wiring, evidence and first messages",
    )


def measured_apart(side: int, iterations: int) -> dict[str, float]:
    """One grid in a fresh process: memory once taken is not given back, so sizes must not share one."""
    command = [sys.executable, str(Path(__file__)), "--side", str(side), "--iterations", str(iterations)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, float] = json.loads(answer.stdout)
    return measured


def measure_grid(side: int, iterations: int) -> dict[str, float]:
    """Time and memory of inference on one grid."""
    model = fitted_model(10_000)
    infer_seconds(model, noisy_grid(10), 1)
    graph = noisy_grid(side)
    before = peak_megabytes()
    rounds = 3 if side < 500 else 2
    unit = sgemm_seconds()
    short = min(infer_seconds(model, graph, 1) for _ in range(rounds))
    long = min(infer_seconds(model, graph, 1 + iterations) for _ in range(rounds))
    unit = min(unit, sgemm_seconds())
    inference = peak_megabytes()
    model.infer(graph, max_iterations=1, **PLAIN).mean()
    iteration = (long - short) / iterations
    return {
        "edges": graph.n_edges,
        "iteration": iteration,
        "setup": max(short - iteration, 0.0),
        "sgemm": unit,
        "peak_before": before,
        "peak_inference": inference,
        "peak_reading": peak_megabytes(),
    }


def peak_megabytes() -> float:
    """The most resident memory this process has had.

    Linux counts the memory of the parent into ``ru_maxrss`` of a child it starts, so its own count for
    the program now running is preferred where there is one.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / 1024


# ---------------------------------------------------------------------- the data


def autoregression(pairs: int, seed: int = 0) -> tuple[Values, Values]:
    """This many pairs of successive values in (0, 1), evenly spread there."""
    rng = np.random.default_rng(seed)
    pushes = np.sqrt(1 - CORRELATION**2) * rng.standard_normal(pairs + 1)
    pushes[0] = rng.standard_normal()
    path = norm.cdf(lfilter([1.0], [1.0, -CORRELATION], pushes))
    return path[:-1], path[1:]


def fitted_model(pairs: int) -> kb.Model:
    """Pixels and readings learned from this many pairs, with support points given."""
    first, second = autoregression(pairs)
    readings = first + NOISE * np.random.default_rng(1).standard_normal(pairs)
    kernel = kb.kernels.Gaussian(BANDWIDTH)
    model = kb.Model(
        {"pixel": kernel, "reading": kernel},
        {
            "beside": kb.Relation("pixel", "pixel", symmetric=True),
            "read as": kb.Relation("pixel", "reading"),
        },
        landmarks={"pixel": LANDMARKS, "reading": LANDMARKS},
    )
    return model.fit({"beside": (first, second), "read as": (first, readings)})


def noisy_grid(side: int) -> kb.Graph:
    """A grid with a reading at every node."""
    readings = np.random.default_rng(2).random(side * side)
    return kb.Graph.grid((side, side), variable="pixel", relation="beside").observe("read as", readings)


if __name__ == "__main__":
    from threadpoolctl import threadpool_limits

    parser = argparse.ArgumentParser(description="Measure inference on one grid; prints JSON.")
    parser.add_argument("--side", type=int, required=True)
    parser.add_argument("--iterations", type=int, default=3)
    chosen = parser.parse_args()
    with threadpool_limits(1):
        print(json.dumps(measure_grid(chosen.side, chosen.iterations)))
