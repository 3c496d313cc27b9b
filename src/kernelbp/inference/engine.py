"""Runs phases of updates: compiled, on several threads, where that pays; in plain NumPy elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from kernelbp.inference.program import Layout, Program, make_program
from kernelbp.inference.update import FLOORS, State, update_plainly
from kernelbp.inference.wiring import Phase, Wiring
from kernelbp.learning.conditionals import Conditional

__all__ = ["Engine", "available_threads"]

SMALL = 1 << 15
"""Message values up to which plain NumPy takes no longer than loading the compiled code does."""
WORTH_SHARING = 6
"""Blocks a thread must get for it to be worth waking."""


class Engine:
    """Updates the messages of one state.

    Parameters
    ----------
    state : State
    wiring : Wiring
    n_jobs : int
        Threads that share the blocks of a phase. Results do not depend on their number.
    """

    def __init__(self, state: State, wiring: Wiring, n_jobs: int) -> None:
        self.state, self._wiring, self._n_jobs = state, wiring, n_jobs
        self.compiled = state.messages.values.size > SMALL and not state.functions and _whole(state)
        self._kept: tuple[Sequence[Phase], Program] | None = None
        self._threads: ThreadPoolExecutor | None = None
        if self.compiled:
            self._layout = Layout.of(wiring, [messages.shape[1] for messages in state.messages])
            tables = [o.right.T.ravel() for o in state.operators if isinstance(o, Conditional)]
            self._operators = np.concatenate(tables)
            self._fresh: NDArray[Any] | None = None

    @contextmanager
    def running(self) -> Iterator[Engine]:
        """Threads of this engine and of BLAS, never both at once."""
        with _controller().limit(limits=1 if self.compiled else self._n_jobs, user_api="blas"):
            try:
                yield self
            finally:
                if self._threads is not None:
                    self._threads.shutdown()
                    self._threads = None

    def update(self, phases: Sequence[Phase], damping: float, changes: NDArray[np.float64]) -> None:
        """Run phases one after another, as `update_plainly` does each."""
        if not self.compiled:
            for phase in phases:
                update_plainly(self.state, phase, damping, changes)
            return
        if self._kept is None or self._kept[0] is not phases:
            self._kept = phases, make_program(self._wiring, self._layout, phases)
        program = self._kept[1]
        if program.independent:
            self._run(program, 0, len(program.blocks) - 1, self.state.messages.values, damping, changes)
            return
        from kernelbp.inference import compiled

        if self._fresh is None:
            self._fresh = self.state.messages.values.copy()
        for begin, end in pairwise(program.cuts.tolist()):
            self._run(program, begin, end, self._fresh, damping, changes)
            part = program.segments[int(program.blocks[begin, 1]) : int(program.blocks[end, 1]) + 1]
            compiled.copy_messages(self._fresh, self.state.messages.values, part, program.targets)

    def _run(
        self,
        program: Program,
        first: int,
        last: int,
        fresh: NDArray[Any],
        damping: float,
        changes: NDArray[np.float64],
    ) -> None:
        """Blocks first ... last: phases with many blocks on all threads, runs of smaller ones in one go."""
        begin = first
        many = np.diff(program.cuts) >= WORTH_SHARING * self._n_jobs
        for phase in np.flatnonzero(many).tolist() if self._n_jobs > 1 else ():
            cut, following = program.cuts[phase], program.cuts[phase + 1]
            if cut < first or following > last:
                continue
            self._call(program, begin, cut, fresh, damping, changes)
            shares = np.linspace(cut, following, self._n_jobs + 1).astype(np.int64).tolist()
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._n_jobs - 1)
            others = [
                self._threads.submit(self._call, program, low, high, fresh, damping, changes)
                for low, high in pairwise(shares[1:])
            ]
            self._call(program, shares[0], shares[1], fresh, damping, changes)
            for other in others:
                other.result()
            begin = following
        self._call(program, begin, last, fresh, damping, changes)

    def _call(
        self,
        program: Program,
        first: int,
        last: int,
        fresh: NDArray[Any],
        damping: float,
        changes: NDArray[np.float64],
    ) -> None:
        if first >= last:
            return
        from kernelbp.inference import compiled

        state = self.state
        compiled.run_blocks(
            first,
            last,
            program.blocks,
            program.senders,
            program.answers,
            program.segments,
            program.targets,
            state.evidence.values,
            state.weights.values,
            self._operators,
            state.messages.values,
            state.messages.values.view(f"i{state.messages.values.itemsize}"),
            fresh,
            fresh is state.messages.values,
            float(damping),
            FLOORS[state.messages.values.dtype],
            state.signed,
            changes,
            program.room,
        )


def available_threads() -> int:
    """As many as BLAS may use now: OMP_NUM_THREADS and threadpoolctl's limits are heeded."""
    return max(
        (int(found["num_threads"]) for found in _controller().select(user_api="blas").info()), default=1
    )


def _whole(state: State) -> bool:
    """Whether each operator is one matrix for all its edges."""
    return all(isinstance(o, Conditional) and o.left is None for o in state.operators)


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 - so that its BLAS, which compiled code uses, is among those found

    return ThreadpoolController()
