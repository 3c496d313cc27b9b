"""The one loop that repeats an update until messages settle, whatever the schedule."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernelbp.errors import ConvergenceWarning
from kernelbp.inference.acceleration import PERIOD, Anderson
from kernelbp.inference.engine import Engine
from kernelbp.inference.progress import Progress
from kernelbp.inference.schedules import Plan

__all__ = ["Damping", "Verdict", "run"]

Damping = float | Literal["auto"]

DAMPING_STEPS = (0.0, 0.25, 0.5, 0.7, 0.85)
"""What automatic damping goes through, one step each time residuals are found to oscillate."""
PATIENCE = 12
"""Iterations over whose second half the largest change must be below that of the first, or damping is raised."""
ENOUGH = 0.9
"""By this factor at least."""

RESTING = 0.1
"""Share of the tolerance: a node sends again once a message to it has changed by that much since it last did."""
NEAR, AWAKE = 0.02, 0.4
"""Many messages are extrapolated from this largest change on; where nodes rest, only if this share of messages is still
news after an iteration (with two colours half of them are at most: the second has just heard the first)."""
MOST_ACCELERATED = 1 << 24
"""Message values up to which extrapolation, which keeps a dozen copies of them, is worth its memory."""


@dataclass(frozen=True)
class Verdict:
    """How an inference ended.

    Attributes
    ----------
    converged : whether the last iteration changed no message value by more than the tolerance
    residuals : the largest change of any message value (relative to its message's largest), by iteration
    damping : the share of old messages kept in the last iteration
    """

    converged: bool
    residuals: tuple[float, ...]
    damping: float

    @property
    def iterations(self) -> int:
        """Number of iterations run; each updates every message about once."""
        return len(self.residuals)


def run(
    engine: Engine,
    plan: Plan,
    n_messages: int,
    *,
    max_iterations: int,
    tolerance: float,
    damping: Damping,
    exact_in_one: bool,
    accelerate: bool,
    progress: bool,
) -> Verdict:
    """Iterate the messages of the engine's state in place.

    Parameters
    ----------
    engine, plan : as compiled
    n_messages : int
    max_iterations : int
    tolerance : float
        Stop when the largest change of any message value falls to this.
    damping : float or "auto"
        "auto" begins with none and adds some whenever the changes stop falling.
    exact_in_one : bool
        A two-pass tree schedule: one iteration ends it.
    accelerate : bool
        Extrapolate from iteration to iteration; for positive messages.
    progress : bool
        Show a progress bar.
    """
    residuals: list[float] = []
    converged = n_messages == 0
    kept = DAMPING_STEPS[0] if damping == "auto" else damping
    raised = 0
    changes = np.zeros(n_messages if plan.dynamic else 0)
    leaps = (
        Anderson(
            engine.messages,
            weighted=bool(engine.state.weights),
            compiled=engine.compiled,
            period=PERIOD if engine.many else 1,
        )
        if accelerate and engine.messages.values.size <= MOST_ACCELERATED and not exact_in_one
        else None
    )
    with engine.running(), Progress("inference", max_iterations, shown=progress) as bar:
        while not converged and len(residuals) < max_iterations:
            # Nodes that rest and dynamic schedules skip what seems settled: only a complete iteration can say it is.
            complete = len(residuals) == 0 or residuals[-1] <= tolerance
            changes[:] = 0.0
            enough = (0.0 if complete else RESTING * tolerance) if tolerance > 0 else None
            if leaps is not None and not leaps.begun:
                near = bool(residuals) and residuals[-1] <= NEAR
                if not engine.many or (near and engine.awake(RESTING * tolerance) >= AWAKE):
                    leaps.begin()
            if leaps is not None and leaps.begun:
                enough = 0.0  # a leap moves all messages
            largest = 0.0
            for phases in plan.iteration(changes, complete=complete):
                largest = max(largest, engine.update(phases, kept, changes, enough))
            residuals.append(largest)
            bar.advance(f"largest change {residuals[-1]:.1e}")
            # A damped step moves a message by only its undamped share.
            settled = residuals[-1] <= tolerance * (1 - kept)
            said_by_all = (complete or not plan.dynamic) and not (engine.rests and enough)
            converged = exact_in_one or (settled and said_by_all)
            if leaps is not None and leaps.begun and not converged and len(residuals) < max_iterations:
                leaps.leap(residuals[-1])
            if damping == "auto" and len(residuals) - raised >= PATIENCE:
                before = max(residuals[-PATIENCE : -PATIENCE // 2])
                if max(residuals[-PATIENCE // 2 :]) > ENOUGH * before and kept < DAMPING_STEPS[-1]:
                    kept = next(step for step in DAMPING_STEPS if step > kept)
                    raised = len(residuals)
            if converged:
                done = (
                    "exact in one pass" if exact_in_one else f"converged, largest change {residuals[-1]:.1e}"
                )
                bar.finish(done)
    if not converged and tolerance > 0:
        _warn(residuals[-1] / (1 - kept), len(residuals), tolerance)
    return Verdict(converged, tuple(residuals), kept)


def _warn(change: float, iterations: int, tolerance: float) -> None:
    warnings.warn(
        f"Inference stopped after {iterations} iterations with messages still changing by {change:.1e} "
        f"(tolerance {tolerance:.0e}). Beliefs may not be reliable. Try more iterations (max_iterations=), "
        "more damping (damping=0.5 or above), smaller edge weights (weighting= with a number for each edge), or, if "
        "they were changed, the defaults conditionals='probability' and weighting='tree-reweighted'.",
        ConvergenceWarning,
        stacklevel=5,
    )
