"""The paper's claim: constant against linear against full updates, on its own image and at its own precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kernelbp.graph import Graph
from kernelbp.inference.beliefs import Beliefs
from kernelbp.inference.update import Flat, State, update_plainly
from kernelbp.learning.conditionals import Conditional
from kernelbp.learning.operators import Update
from kernelbp.model import Model
from kernelbp.speed.problems import Grid, Sunset, iterating
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings, Sizes
from kernelbp.speed.timing import blas_threads, interleaved, seconds

__all__ = ["ALL", "FLOODING", "Measured", "in_part", "iteration", "rows"]

EPSILON = 1e-3
"""The paper's precision of low-rank approximations."""
ITERATIONS = 10
FLOODING: dict[str, Any] = {
    "schedule": "flooding",
    "damping": 0.8,
    "normalization": "largest",
    "tolerance": 0.0,
}
"""One matrix product an iteration, the kindest to the slow updates, damped as the authors do."""
LEAST_GAIN: dict[str, float] = {"linear": 100.0, "full": 10_000.0}
"""How many times faster the constant update is to be, with all pairs kept apart."""
ALL: tuple[Update, ...] = ("constant", "linear", "full")


class Measured(NamedTuple):
    """Of one update: seconds of an iteration, values of a message, and how it was timed."""

    seconds: float
    values: int
    note: str


def rows(settings: Settings) -> Iterator[Row]:
    """Seconds of an iteration on one thread: pairs kept apart as in the paper, then merged as by default."""
    image = Sunset(settings.sizes.updates, settings.seed)
    merged = _fitted(image, merge=True)
    errors = {update: _error(merged, image, update) for update in ALL}
    for pairs in ("apart", "merged"):
        model = _fitted(image, merge=False) if pairs == "apart" else merged
        constant = _measured(model, image, "constant", settings)
        for update in ALL[1:]:
            other = (_apart if pairs == "apart" else _measured)(model, image, update, settings)
            note = (
                f"RMSE {errors['constant']:.2f} against {errors[update]:.2f}; "
                f"{constant.values} against {other.values:,} values a message{other.note}"
            )
            yield Row(
                f"constant update, sunset {image.side} x {image.side}, eps = {EPSILON:g}, pairs {pairs}",
                f"{update} update",
                constant.seconds,
                other.seconds,
                gain=True,
                least=LEAST_GAIN[update] if pairs == "apart" else None,
                note=note,
            )


def _fitted(image: Sunset, *, merge: bool) -> Model:
    return Model.paper(*Sunset.parts(), residual=EPSILON, merge=merge).fit(image.pairs)


def _inferred(model: Model, image: Sunset, update: Update, iterations: int) -> Beliefs:
    return model.infer(image.graph, update=update, max_iterations=iterations, n_jobs=1, **FLOODING)


def _error(model: Model, image: Sunset, update: Update) -> float:
    """RMSE of the most probable gray level, as the authors read beliefs.

    With merged pairs, which give the same messages: a test of the library holds that.
    """
    mode = _inferred(model, image, update, ITERATIONS).mode(np.unique(image.clean))
    return float(np.sqrt(np.mean((mode - image.clean.ravel()) ** 2)))


def _measured(model: Model, image: Sunset, update: Update, settings: Settings) -> Measured:
    return iteration(model, image.graph, update, settings.sizes)


def iteration(model: Model, graph: Graph, update: Update, sizes: Sizes) -> Measured:
    """Iterations after the first of a real inference."""
    with blas_threads(1):
        beliefs = model.infer(graph, update=update, max_iterations=1, n_jobs=1, **FLOODING)
        with iterating.of(beliefs, 1, "flooding").running() as ours:
            (spent,) = interleaved([ours], sizes)
    return Measured(spent, len(beliefs["pixel"].support), "")


def in_part(side: int, operator: Conditional, values: int, wanted: int, total: int | None = None) -> Measured:
    """Some messages of a slow update, for all: a message takes as long whichever it is.

    Parameters
    ----------
    side : of the square grid the timed messages are taken from
    operator : of the update
    values : of a message
    wanted : how many messages to time
    total : messages of an iteration; those of the grid if None
    """
    grid = Grid(side)
    wiring = grid.wiring
    total = wiring.n_messages if total is None else total
    # All that some nodes send: what arrives there is gathered once for each.
    chosen = np.argsort(wiring.source, kind="stable")[:wanted]
    state = State(
        Flat([(wiring.n_messages, values)], np.float32),
        Flat([(grid.graph.n_nodes, values)], np.float32),
        Flat([], np.float32),
        (),
        (operator,),
        signed=True,
        log_scale=0.0,
    )
    phase, changes = wiring.phase(chosen), np.zeros(wiring.n_messages)
    with blas_threads(1):
        spent = min(
            seconds(lambda: update_plainly(state, phase, FLOODING["damping"], changes), 1) for _ in range(2)
        )
    part = f"; {len(chosen):,} of {total:,} messages timed"
    note = part if len(chosen) < total else ""
    return Measured(spent * total / len(chosen), values, note)


def _apart(model: Model, image: Sunset, update: Update, settings: Settings) -> Measured:
    """A slow update with all pairs kept apart.

    Of the full one only the size of the operator is real: to make it takes minutes, and does not change the time
    of a message.
    """
    values = len(model._need_fitted().embeddings["pixel"].examples.values)
    linear, full = settings.sizes.slow_messages
    if update == "full":
        random = np.random.default_rng(settings.seed).random((values, values), dtype=np.float32)
        random /= values
        return in_part(image.side, Conditional(random), values, full)
    operators = model._made_operators("linear", "embedding")
    made = operators.operator("beside", 0, None, None, np.float32)
    assert isinstance(made, Conditional)
    return in_part(image.side, made, values, linear)
