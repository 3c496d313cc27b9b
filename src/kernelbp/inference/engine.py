"""Runs phases of updates: compiled, on several threads, where that pays; in plain NumPy elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from kernelbp.inference.program import Layout, Program, make_program, padded
from kernelbp.inference.update import FLOORS, Flat, State, update_plainly
from kernelbp.inference.wiring import Phase, Wiring
from kernelbp.learning.conditionals import Conditional

__all__ = ["Engine", "available_threads", "blas_for", "blas_on"]

Made = TypeVar("Made")

SMALL = 1 << 15
"""Message values up to which plain NumPy takes no longer than loading the compiled code does."""
MANY = 1 << 18
"""Message values that are many: a compiled iteration then takes longer than finding out who has heard nothing new."""
WORTH_HELPING = 2
"""Blocks of a phase for each thread, at least."""
FEW_NODES = 1 << 16
"""Nodes up to which BLAS gets one thread before and after an inference, too: its others would go on waiting for more
products, for about as long as all of inference takes, on the cores inference needs."""


class Engine:
    """Updates the messages of one state.

    Parameters
    ----------
    state : State
    wiring : Wiring
    n_jobs : int
        Threads that share the blocks of a phase. Results do not depend on their number.
    ranks : (nodes,), optional
        The phase each node sends in, if that is the same in all iterations; messages are laid out by it.

    Attributes
    ----------
    messages : as of the state, but in the engine's own order while it runs
    many : whether there are many messages
    rests : whether nodes that have heard nothing new need not send
    """

    def __init__(
        self, state: State, wiring: Wiring, n_jobs: int, ranks: NDArray[np.intp] | None = None
    ) -> None:
        self.state, self._wiring, self._n_jobs, self._ranks = state, wiring, n_jobs, ranks
        self.compiled = state.messages.values.size > SMALL and not state.functions and _whole(state)
        self._kept: tuple[Sequence[Phase], Program] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._fresh: Flat | None = None
        self._crew: _Crew | None = None
        self._pending = np.empty(0, dtype=np.float32)
        self._workspaces: dict[int, tuple[Any, ...]] = {}
        self.messages, self._evidence, self._weights = state.messages, state.evidence, state.weights
        if self.compiled:
            sizes = [messages.shape[1] for messages in state.messages]
            self._layout = self._lasting("layout", ranks, lambda: Layout.of(wiring, sizes, ranks))
            self._operators = np.concatenate(
                [_padded(o.right.T).ravel() for o in state.operators if isinstance(o, Conditional)]
            )
        self._moved = self.compiled and (
            ranks is not None or bool(np.any(self._layout.sizes != self._layout.values))
        )
        if self._moved:
            rows, places = self._layout.rows, self._layout.row_places
            # What an update makes of the padding, so that it never changes.
            silent = FLOORS[state.messages.values.dtype] if state.weights else 0.0
            self.messages = _laid_out(state.messages, rows, places, silent)
            self._weights = _laid_out(state.weights, rows, places, None)
            self._evidence = _laid_out(state.evidence, self._layout.nodes, self._layout.node_places, 0.0)
        self.many = self.messages.values.size > MANY
        self.rests = self.many and self.compiled and ranks is not None

    @contextmanager
    def running(self) -> Iterator[Engine]:
        """Threads of this engine and of BLAS, never both at once; messages are in the state afterwards."""
        with blas_on(1 if self.compiled else self._n_jobs):
            try:
                yield self
            finally:
                self._dismiss()
                if self._threads is not None:
                    self._threads.shutdown()
                    self._threads = None
                if self._moved:
                    for mine, theirs, first in zip(
                        self.messages, self.state.messages, self._layout.rows, strict=True
                    ):
                        places = self._layout.row_places[first : first + len(mine)]
                        # Places need no check, for which NumPy would take them twice.
                        np.take(mine[:, : theirs.shape[1]], places, axis=0, out=theirs, mode="clip")

    def update(
        self,
        phases: Sequence[Phase],
        damping: float,
        changes: NDArray[np.float64],
        enough: float | None = None,
    ) -> float:
        """Run phases one after another, as `update_plainly` does each.

        Parameters
        ----------
        phases : in their order
        damping : float
            The share of the old message that is kept.
        changes : (messages,) or (0,)
            Written for the messages of the phases: the largest change of a value, relative to the message's
            largest. Empty if only the largest of all is wanted.
        enough : float, optional
            What a message must have changed by since its receiver last sent for the receiver to send again; 0 lets
            all send, and takes note of changes. Only heeded if `rests`.

        Returns
        -------
        float
            The largest change.
        """
        if not self.compiled:
            noted = changes if len(changes) else np.zeros(self._wiring.n_messages)
            for phase in phases:
                update_plainly(self.state, phase, damping, noted)
            return max((float(noted[phase.messages].max(initial=0.0)) for phase in phases), default=0.0)
        if self._kept is None or self._kept[0] is not phases:
            program = self._lasting(
                "program", phases, lambda: make_program(self._wiring, self._layout, phases)
            )
            self._kept = phases, program
            self._dismiss()
        program = self._kept[1]
        if self.rests and enough is not None and not len(self._pending):
            self._pending = np.zeros(self._wiring.n_messages, dtype=np.float32)
            self._dismiss()
        if not program.independent and self._fresh is None:
            self._fresh = Flat.of(list(self.messages), self.messages.values.dtype)
        if self._crew is None or self._crew.changes is not changes:
            self._dismiss()
            self._crew = self._assembled(program, changes)
        if program.independent or self._fresh is None:
            return self._crew.run(0, len(phases), damping, enough or 0.0)
        from kernelbp.inference import compiled

        largest = 0.0
        for place, (begin, end) in enumerate(pairwise(program.cuts.tolist())):
            largest = max(largest, self._crew.run(place, place + 1, damping, 0.0))
            if len(phases) == 1 and program.targets.shape[1] == self._wiring.n_messages:
                self.messages.exchange(self._fresh)  # all are new: nothing to copy
                self._crew.swap()
                continue
            part = program.segments[int(program.blocks[begin, 1]) : int(program.blocks[end, 1]) + 1]
            compiled.copy_messages(self._fresh.values, self.messages.values, part, program.targets)
        return largest

    def _lasting(self, name: str, given: Any, make: Callable[[], Made]) -> Made:
        """Kept with the wiring if phases are always the same; what it was made of too, for its address to stay its own."""
        if self._ranks is None:
            return make()
        key = (name, id(given), *(messages.shape[1] for messages in self.state.messages))
        return self._wiring.kept.once(key, lambda: (make(), given))[0]

    def awake(self, enough: float) -> float:
        """The share of messages that have changed by so much since their receivers last sent."""
        return float(np.mean(self._pending >= enough)) if len(self._pending) else 1.0

    def _assembled(self, program: Program, changes: NDArray[np.float64]) -> _Crew:
        """Threads for a program, as many as have something to do."""
        most = int(np.diff(program.cuts).max(initial=0))
        threads = max(1, min(self._n_jobs, available_cores(), most // WORTH_HELPING))
        if threads > 1 and self._threads is None:
            self._threads = ThreadPoolExecutor(min(self._n_jobs, available_cores()) - 1)
        messages = self.messages.values
        fresh = messages if program.independent or self._fresh is None else self._fresh.values
        known = self._evidence.values, self._weights.values, self._operators
        rules = FLOORS[messages.dtype], self.state.signed
        workspaces = [self._workspace(thread, program) for thread in range(threads)]
        return _Crew(
            program, (*known, messages, fresh, *rules), changes, self._pending, workspaces, self._threads
        )

    def _dismiss(self) -> None:
        if self._crew is not None:
            self._crew.leave()
            self._crew = None

    def _workspace(self, thread: int, program: Program) -> tuple[Any, ...]:
        """A thread's own, made anew if a program needs more than those before it."""
        from kernelbp.inference.compiled import workspace

        rows, size = (int(count) for count in program.room)
        held = self._workspaces.get(thread)
        if held is None or len(held[0]) < rows * size or len(held[2]) < rows or len(held[3]) < 2 * size:
            held = self._workspaces[thread] = workspace(rows, size, self.messages.values.dtype)
        return held


class _Crew:
    """Threads that run a program together: the caller's, which leads, and helpers that wait for it to go on.

    Parameters
    ----------
    program : Program
    arguments : of `kernelbp.inference.compiled.run_phases`, from the evidence to whether values are signed
    changes, pending : as there
    workspaces : one for each thread
    pool : where helpers run; not needed if there are none
    """

    def __init__(
        self,
        program: Program,
        arguments: tuple[Any, ...],
        changes: NDArray[np.float64],
        pending: NDArray[np.float32],
        workspaces: Sequence[tuple[Any, ...]],
        pool: ThreadPoolExecutor | None,
    ) -> None:
        from kernelbp.inference import sharing

        self.changes = changes
        self._board, self._numbers = sharing.board(), np.zeros(2)
        self._found = np.zeros((len(workspaces), sharing.LINE))
        self._workspaces, self._pool = workspaces, pool
        self._helpers: list[Future[None] | None] = [None] * (len(workspaces) - 1)
        self._shared = (
            program.cuts,
            self._board,
            self._found,
            self._numbers,
            program.blocks,
            program.senders,
            program.answers,
            program.segments,
            program.targets,
            *arguments,
            changes,
            pending,
        )

    def run(self, first: int, last: int, damping: float, enough: float) -> float:
        """Phases first ... last; the largest change."""
        from kernelbp.inference.compiled import run_phases

        self._numbers[:] = damping, enough
        self._found[:] = 0.0
        for place, helper in enumerate(self._helpers):
            if self._pool is not None and (helper is None or helper.done()):
                thread = place + 1
                self._helpers[place] = self._pool.submit(
                    run_phases,
                    thread,
                    0,
                    0,
                    *self._shared,
                    *self._workspaces[thread],
                )
        run_phases(0, first, last, *self._shared, *self._workspaces[0])
        return float(self._found.max())

    def swap(self) -> None:
        """From now on read what was written, and write what was read."""
        from kernelbp.inference.sharing import SWAPPED

        self._board[SWAPPED] ^= 1

    def leave(self) -> None:
        """Have helpers stop waiting."""
        from kernelbp.inference.sharing import LEAVE

        self._board[LEAVE] = 1


def _laid_out(
    arrays: Flat, starts: NDArray[np.int64], places: NDArray[np.int64], padding: float | None
) -> Flat:
    """A copy with the rows of each variable's array at their places, padded unless they are single numbers."""
    shapes = [array.shape if padding is None else (len(array), padded(array.shape[1])) for array in arrays]
    made = Flat(shapes, arrays.values.dtype)
    for mine, array, first in zip(made, arrays, starts, strict=False):
        at = places[first : first + len(array)]
        if padding is None:
            mine[at] = array
        else:
            mine[at, : array.shape[1]] = array
            mine[:, array.shape[1] :] = padding
    return made


def _padded(table: NDArray[Any]) -> NDArray[Any]:
    """With zeros after its rows and columns."""
    return np.pad(table, [(0, padded(size) - size) for size in table.shape])


def available_cores() -> int:
    """Those this thread may run on: helpers without one would only be waited for."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_threads() -> int:
    """As many as BLAS may use: OMP_NUM_THREADS and threadpoolctl's limits are heeded, other inferences' are not."""
    with _lock:
        return _running[0] if _running else _blas_threads()


def _blas_threads() -> int:
    return max(
        (int(found["num_threads"]) for found in _controller().select(user_api="blas").info()), default=1
    )


_lock = Lock()
_running: list[int] = []
"""For each inference under way, how many threads BLAS may use when there is none."""
_limits: list[Any] = []
"""What the first of them limited BLAS by."""


def blas_for(n_nodes: int, n_jobs: int | None = None) -> AbstractContextManager[None]:
    """While it lasts, BLAS has as many threads as an inference on so many nodes is worth being set up and read with."""
    return blas_on(1 if n_nodes <= FEW_NODES else available_threads() if n_jobs is None else n_jobs)


@contextmanager
def blas_on(threads: int) -> Iterator[None]:
    """Limit BLAS while any inference runs: the first to begin says to how many threads, the last to end frees it."""
    with _lock:
        _running.append(_running[0] if _running else _blas_threads())
        if len(_running) == 1:
            _limits.append(_controller().limit(limits=threads, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            _running.pop()
            if not _running:
                _limits.pop().restore_original_limits()


def _whole(state: State) -> bool:
    """Whether each operator is one matrix for all its edges."""
    return all(isinstance(o, Conditional) and o.left is None for o in state.operators)


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 - so that its BLAS, which compiled code uses, is among those found

    return ThreadpoolController()
