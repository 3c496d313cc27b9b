r"""One message update: gather, leave out one's own, apply the operator, normalise.

With :math:`\rho` the edge weights (all one for ordinary BP), node t sends to s

.. math:: m_{ts} \propto M_{ts} \Big( e_t \prod_u m_{ut}^{\rho_{ut}} \,/\, m_{st} \Big),

where :math:`e_t` is the node's evidence and the product runs over all neighbours, s too; with
:math:`\rho = 1` that is the leave-one-out product of the paper's (12) and (15).

`update_plainly` says it in NumPy: products are summed logarithms, with signs kept apart where messages
may be negative, so that neither a zero nor a degree of 500 does harm. `kernelbp.inference.engine` takes the
compiled way where it can; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelbp.inference.wiring import Gather, Phase, Send
from kernelbp.learning.conditionals import EdgeOperator

__all__ = ["FLOORS", "Flat", "State", "update_plainly"]

Array = NDArray[Any]

BLOCK_BYTES = 1 << 26
"""Size of the largest temporary the plain update makes for one block of messages."""
LARGEST_LOG = 80.0
"""Logarithms are cut here before they are raised again, within the range of float32."""
FLOORS = {np.dtype(np.float32): 1e-18, np.dtype(np.float64): 1e-150}
"""Least value of a weighted message relative to its largest: keeps its powers, quotients and
products of two finite."""
ZERO = {np.dtype(np.float32): -2e3, np.dtype(np.float64): -1e5}
"""The logarithm that stands for zero: finite, so that one's own zero can be taken away again, with enough
digits left for the rest of the sum."""


class Flat:
    """Arrays, one for each variable, that stand one after another in one.

    Attributes
    ----------
    values : (total,) all of them
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtype: DTypeLike) -> None:
        lengths = [int(np.prod(shape)) for shape in shapes]
        self.values: Array = np.ones(sum(lengths), dtype=dtype)
        ends = np.cumsum(lengths)
        self._parts = [
            self.values[end - length : end].reshape(shape)
            for shape, length, end in zip(shapes, lengths, ends, strict=True)
        ]

    @classmethod
    def of(cls, arrays: Sequence[Array], dtype: DTypeLike) -> Flat:
        """A copy of given arrays."""
        made = cls([array.shape for array in arrays], dtype)
        for mine, given in zip(made, arrays, strict=True):
            mine[...] = given
        return made

    def exchange(self, other: Flat) -> None:
        """Trade arrays with another of the same shapes."""
        self.values, other.values = other.values, self.values
        self._parts, other._parts = other._parts, self._parts

    def __reduce__(self) -> tuple[Any, ...]:
        return Flat.of, (list(self), self.values.dtype)

    def __getitem__(self, variable: int) -> Array:
        return self._parts[variable]

    def __iter__(self) -> Iterator[Array]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


@dataclass(frozen=True)
class State:
    """Everything an update reads, and the messages it writes.

    Attributes
    ----------
    messages : for each variable, (messages, q) values at the support points
    evidence : for each variable, (nodes, q) product of the evidence at the support points
    weights : for each variable, (messages,) the edge weights rho; empty if all are one
    functions : for each variable, (l, q) matrices from values to coefficients in an orthonormal basis;
        if given, messages are scaled to unit norm as functions, else to a largest value of 1
    operators : as numbered by the wiring
    signed : whether values may be negative
    log_scale : logarithm of what the evidence was divided by, summed over nodes
    """

    messages: Flat
    evidence: Flat
    weights: Flat
    functions: tuple[Array, ...]
    operators: tuple[EdgeOperator, ...]
    signed: bool
    log_scale: float


def update_plainly(state: State, phase: Phase, damping: float, changes: Array) -> None:
    """Update the messages of one phase in place.

    Parameters
    ----------
    state : State
    phase : Phase
    damping : float
        The share of the old message that is kept.
    changes : (messages,)
        Written for the messages of the phase: the largest change of a value, relative to the
        message's largest.
    """
    gathered = [_gather(state, gather) for gather in phase.gathers]
    fresh: list[tuple[Send, Array]] = []
    for send in phase.sends:
        variable = phase.gathers[send.gather].variable
        totals, signs = gathered[send.gather]
        made = np.empty((len(send.rows), state.messages[send.target_variable].shape[1]), totals.dtype)
        block = max(1, BLOCK_BYTES // (totals.itemsize * max(totals.shape[1], made.shape[1])))
        for begin in range(0, len(send.rows), block):
            part = slice(begin, begin + block)
            cavity, scale = _cavity(
                totals[send.source[part]],
                None if signs is None else signs[send.source[part]],
                state.messages[variable][send.own[part]],
            )
            made[part] = state.operators[send.operator].apply(cavity, send.edges[part])
            if state.functions:
                made[part] *= scale
        fresh.append((send, made))
    for send, made in fresh:
        target = send.target_variable
        function = state.functions[target] if state.functions else None
        if state.weights:
            np.maximum(made, FLOORS[made.dtype] * made.max(axis=1, keepdims=True), out=made)
        if state.weights and damping:
            # A geometric mean: what settles are logarithms of messages.
            old = log_magnitude(state.messages[target][send.rows])
            made = np.exp((1 - damping) * log_magnitude(made) + damping * old)
        kept = 0.0 if state.weights else damping
        changes[send.messages] = _write(state.messages[target], send.rows, made, kept, function)


def log_magnitude(messages: Array) -> Array:
    """Logarithm of |m|; that of zero is ZERO, which no realistic number of neighbours can outweigh."""
    magnitude = np.abs(messages)
    least = np.finfo(messages.dtype).tiny
    zero = magnitude < least
    np.maximum(magnitude, least, out=magnitude)
    np.log(magnitude, out=magnitude)
    magnitude[zero] = ZERO[magnitude.dtype]
    return magnitude


def _gather(state: State, gather: Gather) -> tuple[Array, Array | None]:
    """Log of the product of evidence and all arriving messages at each node (k, q), and its sign."""
    arriving = state.messages[gather.variable][gather.rows]
    logs = log_magnitude(arriving)
    if state.weights:
        logs *= state.weights[gather.variable][gather.rows, None]
    evidence = state.evidence[gather.variable][gather.nodes]
    totals = np.add.reduceat(logs, gather.offsets, axis=0) + log_magnitude(evidence)
    if not state.signed:
        return totals, None
    odd = np.add.reduceat(arriving < 0, gather.offsets, axis=0, dtype=np.int32) % 2 == 1
    return totals, odd ^ (evidence < 0)


def _cavity(totals: Array, signs: Array | None, own: Array) -> tuple[Array, Array]:
    """The product without the receiver's own message (n, q), largest magnitude 1, and its scale (n, 1)."""
    totals = totals - log_magnitude(own)
    largest = totals.max(axis=1, keepdims=True)
    totals -= largest
    np.exp(totals, out=totals)
    if signs is not None:
        np.negative(totals, out=totals, where=signs ^ (own < 0))
    return totals, np.exp(np.minimum(largest, LARGEST_LOG))


def normalise(messages: Array) -> None:
    """Scale each row so that its entry of largest magnitude is 1; a row of zeros becomes ones."""
    largest = np.take_along_axis(messages, np.abs(messages).argmax(axis=1)[:, None], axis=1)
    silent = ~(np.abs(largest) > np.finfo(messages.dtype).tiny)[:, 0]
    if silent.any():
        messages[silent] = 1
        largest[silent] = 1
    messages /= largest


def _write(
    messages: Array, rows: NDArray[np.intp], made: Array, damping: float, function: Array | None
) -> Array:
    """Damp and scale new messages, put them in place, and say how much each changed.

    Scaled to unit norm as functions, a new message is damped before it is scaled, as in the authors'
    program: the stronger the product, the less the old message holds it back.
    """
    old = messages[rows]
    if function is None:
        normalise(made)
    if damping:
        made *= 1 - damping
        made += damping * old
    if function is not None:
        # in double precision: squares of products of many messages leave the range of single
        size = np.linalg.norm((made @ function.T).astype(np.float64), axis=1, keepdims=True)
        made /= np.where(size > np.finfo(made.dtype).tiny, size, 1)
    elif damping:
        normalise(made)
    messages[rows] = made
    np.subtract(made, old, out=old)
    change = np.abs(old, out=old).max(axis=1)
    if function is None:
        return change
    largest = np.abs(made).max(axis=1).astype(np.float64)
    return change / np.where(largest > np.sqrt(np.finfo(made.dtype).tiny), largest, 1.0)
