"""Smooth a series whose beliefs have two humps.

A state moves in a double well: it lingers near -1 or +1 and now and then crosses over. An instrument reads its
square, which cannot tell the two sides apart; only once in a while is the state itself seen. In between, a
belief should put some of its mass on either side. A Gaussian cannot say that: its mean lies on the hill
between the wells, where the state hardly ever is.

The model is told none of this. It learns from a recorded run which state follows which, and which reading goes
with which state. On a chain inference is exact in one pass forth and back.

Run ``python examples/smooth_bimodal_series.py --out bimodal.png``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import kernelbp as kb
from kernelbp import figures

STEP, SUBSTEPS = 0.5, 20
"""Time between readings, and into how many parts the simulation divides it."""
HEAT = 0.75
"""How hard the state is shaken."""
NOISE = 0.25
"""Standard deviation of a reading around the state's square."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Learn from one run, smooth another, tell how well, draw it; give the picture's path."""
    options = parse(arguments)
    console = Console()
    rng = np.random.default_rng(options.seed)

    # 1. Examples: a recorded run, states and readings together.
    recorded = double_well(1_000 if options.quick else 20_000, rng)
    recorded_readings = recorded**2 + NOISE * rng.standard_normal(len(recorded))

    # 2. The model. "then" is directed: a state and its successor, in this order.
    model = kb.Model(
        variables={"state": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        relations={"then": kb.Relation("state", "state"), "read as": kb.Relation("state", "reading")},
    )
    model.fit(
        {"then": (recorded[:-1], recorded[1:]), "read as": (recorded, recorded_readings)}, progress=True
    )

    # 3. The problem: a new run, of which only readings are known, and the state itself once in a while.
    length = 61 if options.quick else 2_001
    truth = double_well(length, rng)
    readings = truth**2 + NOISE * rng.standard_normal(length)
    seen = np.arange(0, length, 30)
    graph = kb.Graph.chain(length, variable="state", relation="then")
    graph = graph.observe("read as", readings).fix(seen, truth[seen])

    # 4. Inference.
    began = time.perf_counter()
    beliefs = model.infer(graph, progress=True)
    seconds = time.perf_counter() - began

    # 5. How good are the beliefs, wherever the state was not seen? The log-density of the truth rewards mass
    #    where the state really was, and nothing else.
    console.print(report(truth, readings, seen, beliefs, seconds))

    # 6. A stretch of the run, and the whole belief at the moment it is least sure which side it is on.
    shown = slice(0, min(length, 121))
    left = beliefs.expect(lambda state: state < 0)[shown]
    figure = figures.series(
        truth,
        beliefs,
        readings,
        seen=seen,
        shown=shown,
        moment=int(np.abs(left - 0.5).argmin()),
        reading_name="reading\n(the state's square)",
        title=(
            "A state in a double well, of which only the square is read, smoothed by kernel belief propagation.\n"
            "Which state follows which, and which reading goes with which state, was learned from another run."
        ),
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)
    console.print(f"The picture is in [bold]{options.out}[/bold]", soft_wrap=True)
    return options.out


def drift(state: np.ndarray) -> np.ndarray:
    """The pull towards the nearer of the wells at -1 and +1."""
    return 2 * (state - state**3)


def double_well(length: int, rng: np.random.Generator) -> np.ndarray:
    """A run of the state, one value for each reading."""
    shakes = HEAT * np.sqrt(STEP / SUBSTEPS) * rng.standard_normal((length, SUBSTEPS))
    run, state = np.empty(length), 1.0
    for time_, shake in enumerate(shakes):
        for push in shake:
            state += STEP / SUBSTEPS * drift(state) + push
        run[time_] = state
    return run


def exact_densities(
    truth: np.ndarray, readings: np.ndarray, seen: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """The beliefs of one who knows all equations above, by brute force on a fine grid: the best possible."""
    spacing = points[1] - points[0]
    moved = points + STEP / SUBSTEPS * drift(points)
    substep = np.exp(-0.5 * ((points - moved[:, None]) / (HEAT * np.sqrt(STEP / SUBSTEPS))) ** 2)
    following = np.linalg.matrix_power(substep / substep.sum(axis=1, keepdims=True), SUBSTEPS)
    likelihood = np.exp(-0.5 * ((readings[:, None] - points**2) / NOISE) ** 2)
    likelihood[seen] = np.exp(-0.5 * ((points - truth[seen, None]) / spacing) ** 2)
    forth, back = likelihood.copy(), np.ones_like(likelihood)
    for t in range(1, len(readings)):
        forth[t] *= forth[t - 1] @ following
        forth[t] /= forth[t].sum()
    for t in range(len(readings) - 2, -1, -1):
        back[t] = following @ (likelihood[t + 1] * back[t + 1])
        back[t] /= back[t].sum()
    product = forth * back
    return product / (spacing * product.sum(axis=1, keepdims=True))


def report(
    truth: np.ndarray, readings: np.ndarray, seen: np.ndarray, beliefs: kb.Beliefs, seconds: float
) -> Table:
    """Beliefs against a Gaussian with their mean and standard deviation, and against the exact answer."""
    hidden = np.setdiff1d(np.arange(len(truth)), seen)
    mean, std = beliefs.mean()[hidden], beliefs.std()[hidden]
    low, high = beliefs.interval(0.9)[hidden].T
    at = truth[hidden]
    points = np.linspace(-2.75, 2.75, 401)

    def log_density(densities: np.ndarray) -> float:
        """Mean log-density of the truth."""
        there = [np.interp(truth[t], points, densities[t]) for t in hidden]
        return float(np.log(there).mean())

    def inside(low: np.ndarray, high: np.ndarray) -> str:
        return f"{np.mean((low <= at) & (at <= high)):.0%}"

    exact = exact_densities(truth, readings, seen, points)
    cumulative = np.cumsum(exact[hidden], axis=1) * (points[1] - points[0])
    ends = [points[(cumulative >= share).argmax(axis=1)] for share in (0.05, 0.95)]
    gaussian = -0.5 * ((at - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))

    table = Table(
        title=f"A series of {len(truth)} readings: how well the truth is covered", title_justify="left"
    )
    table.add_column()
    table.add_column("in 90% interval", justify="right")
    table.add_column("log-density", justify="right")
    table.add_row("belief", inside(low, high), f"{log_density(beliefs.density(points)):.2f}")
    table.add_row(
        "Gaussian of the same mean and std",
        inside(mean - 1.645 * std, mean + 1.645 * std),
        f"{gaussian.mean():.2f}",
    )
    table.add_row("exact, told every equation", inside(*ends), f"{log_density(exact):.2f}")
    table.add_section()
    table.add_row("inference", "", f"{seconds:.2f} s")
    return table


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Smooth a series with two-humped beliefs by kernel belief propagation."
    )
    parser.add_argument("--seed", type=int, default=0, help="which runs (default: 0)")
    parser.add_argument("--quick", action="store_true", help="learn from less and smooth less")
    parser.add_argument(
        "--out", type=Path, default=Path("bimodal.png"), help="where the picture goes (default: %(default)s)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
