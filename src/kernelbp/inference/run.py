"""The one loop that repeats an update until messages settle, whatever the schedule."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from kernelbp.errors import ConvergenceWarning
from kernelbp.inference.progress import Progress
from kernelbp.inference.update import State, update_phase
from kernelbp.inference.wiring import Phase

__all__ = ["Verdict", "run"]


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
        """Number of iterations run; each updates every message once."""
        return len(self.residuals)


def run(
    state: State,
    phases: list[Phase],
    *,
    max_iterations: int,
    tolerance: float,
    damping: float,
    exact_in_one: bool,
    progress: bool,
) -> Verdict:
    """Iterate `state.messages` in place.

    Parameters
    ----------
    state, phases : as compiled
    max_iterations : int
    tolerance : float
        Stop when the largest change of any message value falls to this.
    damping : float
    exact_in_one : bool
        A two-pass tree schedule: one iteration ends it.
    progress : bool
        Show a progress bar.
    """
    residuals: list[float] = []
    converged = not phases
    if phases:
        with Progress("inference", max_iterations, shown=progress) as bar:
            for _ in range(max_iterations):
                change = 0.0
                for phase in phases:
                    change = max(change, update_phase(state, phase, damping))
                residuals.append(change)
                bar.advance(f"largest change {change:.1e}")
                converged = change <= tolerance or exact_in_one
                if converged:
                    break
    if not converged and tolerance > 0:
        _warn(residuals[-1] if residuals else float("nan"), len(residuals), tolerance)
    return Verdict(converged, tuple(residuals), damping)


def _warn(change: float, iterations: int, tolerance: float) -> None:
    advice: Any = (
        f"Inference stopped after {iterations} iterations with messages still changing by {change:.1e} "
        f"(tolerance {tolerance:.0e}). Beliefs may not be reliable. Try more iterations (max_iterations=), "
        "more damping (damping=0.5 or above), or conditionals='probability' with "
        "weighting='tree-reweighted', which converges."
    )
    warnings.warn(advice, ConvergenceWarning, stacklevel=4)
