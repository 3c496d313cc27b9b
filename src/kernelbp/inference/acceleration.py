"""Anderson acceleration: fewer iterations to the same fixed point.

Tree-reweighted messages settle surely but, on strongly coupled graphs, slowly. From the last few
iterations (where they began, how far they moved) the acceleration extrapolates, in logarithms, to where
they are heading. What an ordinary iteration changes from there is the residual, so the verdict is as
honest as without; a leap that makes matters worse is taken back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.inference.update import State, log_magnitude

__all__ = ["Anderson"]

Array = NDArray[Any]

MEMORY = 5
"""Iterations remembered."""
WARM_UP = 3
"""Iterations run plainly before the first leap, and after one that was taken back."""
PATIENCE = 25
"""Iterations run plainly first where there are so many messages that a leap costs more than an iteration."""
MANY = 1 << 18
"""Message values that are many."""
WORSE = 2.0
"""A leap is taken back if it leaves the residual this much larger than the best so far."""
RIDGE = 1e-10


class Anderson:
    """Extrapolates the messages of a state with positive messages.

    Call `begin` before and `leap` after every iteration.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._starts: list[Array] = []
        self._moves: list[Array] = []
        self._before: Array | None = None
        self._best = np.inf
        self._safe: Array | None = None
        self._rest = WARM_UP if sum(m.size for m in state.messages) <= MANY else PATIENCE

    def begin(self) -> None:
        """Remember where an iteration starts."""
        if self._rest <= MEMORY:
            self._before = self._logs()

    def leap(self, residual: float) -> None:
        """Learn from the iteration that just ended with this residual, and extrapolate."""
        if self._before is None:
            self._rest -= 1
            return
        after = self._logs()
        if residual > WORSE * self._best and self._safe is not None:
            # The last leap did harm: go back to where it left from, and forget.
            self._set(self._safe)
            self._starts, self._moves, self._safe, self._rest = [], [], None, WARM_UP
            return
        self._best = min(self._best, residual)
        self._starts = [*self._starts, self._before][-MEMORY - 1 :]
        self._moves = [*self._moves, after - self._before][-MEMORY - 1 :]
        self._rest -= 1
        if self._rest > 0 or len(self._moves) < 2:
            return
        self._safe = after
        self._set(self._extrapolated(after))

    def _extrapolated(self, after: Array) -> Array:
        differences = [b - a for a, b in zip(self._moves, self._moves[1:], strict=False)]
        gram = np.array([[float(a @ b) for b in differences] for a in differences])
        right = np.array([float(d @ self._moves[-1]) for d in differences])
        gram += RIDGE * np.trace(gram) * np.eye(len(gram))
        shares = np.linalg.lstsq(gram, right, rcond=None)[0]
        result = after.copy()
        for share, start, following, difference in zip(
            shares, self._starts, self._starts[1:], differences, strict=False
        ):
            result -= result.dtype.type(share) * (following - start + difference)
        return result

    def _logs(self) -> Array:
        return np.concatenate([log_magnitude(m).ravel() for m in self._state.messages])

    def _set(self, logs: Array) -> None:
        begin = 0
        for messages in self._state.messages:
            part = logs[begin : begin + messages.size].reshape(messages.shape)
            begin += messages.size
            np.exp(part - part.max(axis=1, keepdims=True), out=messages)
