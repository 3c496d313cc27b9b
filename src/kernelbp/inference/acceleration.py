"""Anderson acceleration: fewer iterations to the same fixed point.

Tree-reweighted messages settle surely but, on strongly coupled graphs, slowly. From the last few
iterations (how far they moved, where they ended) the acceleration extrapolates, in logarithms, to where
they are heading: to the mean of the ends, weighted so that the moves cancel as well as they can. What an
ordinary iteration changes from there is the residual, so the verdict is as honest as without; a leap that
makes matters worse is taken back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.inference.update import FLOORS, Flat

__all__ = ["Anderson"]

Array = NDArray[Any]

MEMORY = 6
"""Iterations remembered."""
WARM_UP = 3
"""Iterations run plainly before the first leap, and after one that was taken back."""
PERIOD = 3
"""Iterations of many messages, of which a leap costs as much as an iteration, from one leap to the next."""
WORSE = 2.0
"""A leap is taken back if it leaves the residual this much larger than the best so far."""
RIDGE = 1e-10


class Anderson:
    """Extrapolates positive messages.

    Call `begin` before the first iteration it is to learn from and `leap` after that and all that follow.

    Attributes
    ----------
    begun : whether it has
    """

    def __init__(self, messages: Flat, *, weighted: bool, compiled: bool, period: int = 1) -> None:
        self._messages, self._compiled, self._period = messages, compiled, period
        self._floor = FLOORS[messages.values.dtype] if weighted else 0.0
        self._gram = np.zeros((MEMORY, MEMORY))
        self._known = 0
        self._best = np.inf
        self._safe = -1
        self._rest = WARM_UP
        self.begun = False

    def begin(self) -> None:
        """Remember where an iteration starts."""
        values = self._messages.values
        self._moves = np.empty((MEMORY, values.size), values.dtype)
        self._ends = np.empty_like(self._moves)
        self._before = np.empty_like(values)
        self._to_logarithms(self._before)
        self.begun = True

    def leap(self, residual: float) -> None:
        """Learn from the iteration that just ended with this residual, and extrapolate."""
        if residual > WORSE * self._best and self._safe >= 0:
            # The last leap did harm: go back to where it left from, and forget.
            self._set(self._ends[self._safe].copy())
            self._known, self._safe, self._rest = 0, -1, WARM_UP
            return
        self._best = min(self._best, residual)
        row = self._known % MEMORY
        self._to_logarithms(self._ends[row])
        np.subtract(self._ends[row], self._before, out=self._moves[row])
        self._known += 1
        self._rest -= 1
        count = min(self._known, MEMORY)
        self._gram[row, :count] = self._gram[:count, row] = self._moves[:count] @ self._moves[row]
        if self._rest > 0 or count < 2:
            self._before[:] = self._ends[row]
            return
        self._safe = row
        self._set(self._shares(count) @ self._ends[:count])
        self._rest = self._period

    def _shares(self, count: int) -> Array:
        """Weights that sum to one and make the weighted moves as small as can be."""
        gram = self._gram[:count, :count]
        # Each move relative to its own size, so that none is lost to rounding.
        scale = np.sqrt(np.maximum(gram.diagonal(), np.finfo(np.float64).tiny))
        scaled = gram / np.outer(scale, scale) + RIDGE * np.eye(count)
        shares = np.linalg.lstsq(scaled, 1.0 / scale, rcond=None)[0] / scale
        return (shares / shares.sum()).astype(self._ends.dtype)

    def _to_logarithms(self, out: Array) -> None:
        """Of all messages, to whichever base."""
        values = self._messages.values
        if self._compiled:
            from kernelbp.inference import compiled

            compiled.to_logarithms(values, out)
        else:
            np.maximum(values, np.finfo(values.dtype).tiny, out=out)
            np.log(out, out=out)

    def _set(self, logarithms: Array) -> None:
        """Make these the messages, scaled, and the start of the next iteration."""
        begin = 0
        for messages in self._messages:
            part = logarithms[begin : begin + messages.size].reshape(messages.shape)
            begin += messages.size
            if self._compiled:
                from kernelbp.inference import compiled

                compiled.from_logarithms(part, messages, self._floor)
            else:
                part -= part.max(axis=1, keepdims=True)
                if self._floor:
                    np.maximum(part, np.log(self._floor), out=part)
                np.exp(part, out=messages)
        self._before = logarithms
