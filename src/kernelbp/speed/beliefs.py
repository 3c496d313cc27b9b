"""Reading beliefs, and whether they are the same whatever the threads and the precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernelbp.inference.beliefs import Beliefs
from kernelbp.speed.problems import Sunset, iterating, noisy_grid, series_model
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings
from kernelbp.speed.timing import blas_threads, interleaved, seconds

__all__ = ["agreement", "reading"]

SUPPORT = 32
COVERAGE = 0.9
MOST_APART = 1e-3
"""Difference of means in float32 and float64, in standard deviations."""


def reading(settings: Settings) -> Iterator[Row]:
    """Mean, mode and interval of all nodes of a grid against one iteration on it, all cores, by the wall clock."""
    side, n_jobs = settings.sizes.beliefs, settings.n_jobs
    model = series_model(10_000, SUPPORT, settings.seed)
    graph = noisy_grid(side, settings.seed)
    beliefs = model.infer(graph, max_iterations=2, tolerance=0.0, n_jobs=n_jobs)
    readers: dict[str, Callable[[], Any]] = {
        "mean": beliefs.mean,
        "mode": beliefs.mode,
        f"{COVERAGE:.0%} interval": lambda: beliefs.interval(COVERAGE),
    }
    iteration = iterating.of(beliefs, n_jobs, wall=True)
    with iteration.running():
        (unit,) = interleaved([iteration], settings.sizes)
    for name, read in readers.items():
        with blas_threads(n_jobs):
            (spent,) = interleaved([lambda read=read: seconds(read)], settings.sizes)  # type: ignore[misc]
        each = f"{1e6 * spent / graph.n_nodes:.2f} microseconds a node"
        yield Row(
            f"{name} of {graph.n_nodes:,} beliefs", "one iteration on the same grid", spent, unit, note=each
        )


def agreement(settings: Settings) -> Iterator[Row]:
    """The sunset with defaults: on one and two threads, and in single and double precision."""
    image = Sunset(settings.sizes.sunset, settings.seed)
    model = image.model().fit(image.pairs)

    def infer(n_jobs: int, dtype: Any = np.float32) -> Beliefs:
        return model.infer(image.graph, n_jobs=n_jobs, dtype=dtype)

    one, two, double = infer(1), infer(2), infer(1, np.float64)
    name = f"sunset {image.side} x {image.side}"
    same = (one.probabilities() == two.probabilities()).all(axis=1)
    yield Row(
        f"beliefs equal bit for bit on one and two threads, {name}",
        "all beliefs",
        float(same.sum()),
        float(same.size),
        unit="nodes",
        least=1.0,
    )
    apart, spread = np.abs(one.mean() - double.mean()), double.std()
    worst = int((apart / spread).argmax())
    yield Row(
        f"means in float32 from those in float64, {name}, the worst",
        "its standard deviation",
        float(apart[worst]),
        float(spread[worst]),
        unit="levels",
        most=MOST_APART,
    )
