"""How the time of an iteration grows: not at all with pairs, in proportion with edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from kernelbp.speed.problems import Grid, iterating, noisy_grid, series_model
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings
from kernelbp.speed.timing import interleaved

__all__ = ["edges", "exponent", "pairs"]

SUPPORT = 32
FLAT = 0.05
"""How much an iteration may differ between numbers of pairs."""
MORE_ROUNDS = 5
"""Times as many rounds as elsewhere, since a few percent are to be told."""
STEEPEST = 1.05
"""Largest exponent of edges."""


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The p of times ~ sizes^p, by least squares on logarithms.

    Examples
    --------
    >>> exponent([1, 10, 100], [2.0, 20.0, 200.0])
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def pairs(settings: Settings) -> Iterator[Row]:
    """Iterations on one grid with models learned from more and more pairs, one thread."""
    counts, side = settings.sizes.pairs, settings.sizes.pairs_side
    graph = noisy_grid(side, settings.seed)
    with ExitStack() as stack:
        measures = []
        for count in counts:
            model = series_model(count, SUPPORT, settings.seed)
            beliefs = model.infer(graph, max_iterations=1, tolerance=0.0, n_jobs=1)
            measures.append(stack.enter_context(iterating.of(beliefs, 1).running()))
        times = interleaved(measures, replace(settings.sizes, fewest=MORE_ROUNDS * settings.sizes.fewest))
    for count, spent in zip(counts[1:], times[1:], strict=True):
        yield Row(
            f"iteration, grid {side} x {side}, learned from {count:,} pairs",
            f"the same, learned from {counts[0]:,}",
            spent,
            times[0],
            least=1 - FLAT,
            most=1 + FLAT,
        )
    slope = exponent(counts, times)
    yield Row(
        f"exponent of an iteration in m, {counts[0]:,} to {counts[-1]:,} pairs",
        "constant: m to the power 0",
        float(max(counts) / min(counts)) ** slope,
        1.0,
        unit="",
        least=1 - FLAT,
        most=1 + FLAT,
        note=f"fitted exponent {slope:+.4f}: the growth it means over the whole range",
    )


def edges(settings: Settings) -> Iterator[Row]:
    """Iterations on larger and larger grids, tree-reweighted, one thread; the smallest sets the pace."""
    counts, times = [], []
    for side in settings.sizes.edges:
        grid = Grid(side)
        state = replace(grid.state(SUPPORT, settings.seed), weights=grid.tree_weights())
        with iterating(state, grid.wiring, grid.plan, 1).running() as ours:
            times.extend(interleaved([ours], settings.sizes))
        counts.append(grid.graph.n_edges)
        if len(counts) > 1:
            yield Row(
                f"iteration, {counts[-1]:,} edges",
                f"the pace of {counts[0]:,} edges",
                times[-1],
                times[0] * counts[-1] / counts[0],
            )
    yield Row(
        f"exponent of an iteration in edges, {counts[0]:,} to {counts[-1]:,}",
        "linear: edges to the power 1",
        exponent(counts, times),
        1.0,
        unit="",
        most=STEEPEST,
    )
