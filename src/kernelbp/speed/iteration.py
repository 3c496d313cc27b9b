"""One iteration of the engine: against BLAS, against plain NumPy, on two threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from kernelbp.inference.update import update_plainly
from kernelbp.speed.problems import Grid, iterating
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings
from kernelbp.speed.timing import Sgemm, blas_threads, interleaved, seconds

__all__ = ["plain", "sgemm", "threads"]

LARGE = 300
"""Sides from which the targets of large grids are held against a grid."""
MOST_SGEMM = {32: 2.2, 64: 1.6}
"""Times the sgemm an iteration may take on large grids, by number of support points."""
LEAST_SPEEDUP = 1.7
"""Of two threads against one."""


def sgemm(settings: Settings) -> Iterator[Row]:
    """Iterations of both weightings against one (messages, q) by (q, q) product on as many threads."""
    for side, supports in settings.sizes.grids:
        grid = Grid(side)
        for q in supports:
            for n_jobs in sorted({1, settings.n_jobs}):
                yield from _against_sgemm(grid, q, n_jobs, settings)


def _against_sgemm(grid: Grid, q: int, n_jobs: int, settings: Settings) -> Iterator[Row]:
    state = grid.state(q, settings.seed)
    states = {"tree-reweighted": replace(state, weights=grid.tree_weights()), "bethe": state}
    with ExitStack() as stack:
        ours = [
            stack.enter_context(iterating(each, grid.wiring, grid.plan, n_jobs).running())
            for each in states.values()
        ]
        reference = Sgemm(grid.wiring.n_messages, q, n_jobs, settings.seed)
        *times, unit = interleaved([*ours, reference], settings.sizes)
    for weighting, spent in zip(states, times, strict=True):
        yield Row(
            f"iteration, {_square(grid.side)}, {q} support points, {weighting}, {_threads(n_jobs)}",
            "sgemm of the same multiply-adds",
            spent,
            unit,
            most=MOST_SGEMM.get(q) if grid.side >= LARGE else None,
        )


def plain(settings: Settings) -> Iterator[Row]:
    """The compiled update against `update_plainly`, on one thread."""
    side, q = settings.sizes.plain
    grid = Grid(side)
    changes = np.zeros(grid.wiring.n_messages)
    state = grid.state(q, settings.seed)
    for weighting, each in (
        ("tree-reweighted", replace(state, weights=grid.tree_weights())),
        ("bethe", state),
    ):

        def plainly(each: object = each) -> None:
            for phases in grid.plan.iteration(changes, complete=True):
                for phase in phases:
                    update_plainly(each, phase, 0.0, changes)  # type: ignore[arg-type]

        with iterating(each, grid.wiring, grid.plan, 1).running() as ours, blas_threads(1):
            spent, reference = interleaved([ours, lambda: seconds(plainly, 1)], settings.sizes)
        what = f"iteration, {_square(side)}, {q} support points, {weighting}, one thread"
        yield Row(what, "the same in plain NumPy", spent, reference, gain=True)


def threads(settings: Settings) -> Iterator[Row]:
    """Two threads against one, by the wall clock."""
    side, q = settings.sizes.threads
    what, against = f"iteration, {_square(side)}, {q} support points, two threads", "the same on one thread"
    if settings.n_jobs < 2:
        yield Row(
            what, against, None, None, gain=True, least=LEAST_SPEEDUP, note="only one thread may be used"
        )
        return
    grid = Grid(side)
    state = grid.state(q, settings.seed)
    for weighting, each in (
        ("tree-reweighted", replace(state, weights=grid.tree_weights())),
        ("bethe", state),
    ):
        with ExitStack() as stack:
            one, two = (
                stack.enter_context(iterating(each, grid.wiring, grid.plan, count, wall=True).running())
                for count in (1, 2)
            )
            alone, shared = interleaved([one, two], settings.sizes)
        yield Row(f"{what}, {weighting}", against, shared, alone, gain=True, least=LEAST_SPEEDUP)


def _square(side: int) -> str:
    return f"grid {side} x {side}"


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"
