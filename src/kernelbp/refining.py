r"""Tables of relations refined through inference itself, on training graphs whose hidden values are known.

A table counted from pairs is right for pairs. Inference that stops after a few iterations on a graph with cycles asks
something else of it: that what comes out at the nodes is right, although neighbours know the same things by different
ways and depend on more than each other. After a fixed number of iterations the beliefs are a smooth function of the
tables, so the tables follow the gradient of the beliefs' error: each probability of a pair of states is multiplied by
:math:`e^{s}`, and the :math:`s`, the power that evidence is raised to and the temperature of the beliefs are sought by
L-BFGS. An iteration is undone phase by phase for the gradient; only the messages it replaced are remembered.

How far a table may leave its counts is what the counts themselves leave open: a probability counted from :math:`c` pairs
is known to about :math:`1/\sqrt{c}` of itself, so with n known nodes, whose loss is a log-likelihood over n, the loss gets

.. math:: \frac{1}{2 n} \sum_{ij} c_{ij} s_{ij}^2 .
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.inference.beliefs import Beliefs
from kernelbp.inference.engine import blas_on
from kernelbp.inference.schedules import FixedPlan, make_plan
from kernelbp.inference.update import FLOORS
from kernelbp.inference.wiring import Phase, Send
from kernelbp.learning.operators import LearnedRelation, ProbabilityOperators

__all__ = ["KnownNodes", "Refined", "can_refine", "masses", "refine", "score_of"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

MOST_STEPS = 15
"""Of L-BFGS, at most; each is an inference and its gradient, about."""
WORTH_REFINING = 0.01
"""What the score must gain for the counted tables to be given up: one percent of the error."""
POWERS, TEMPERATURES = (0.6, 1.6), (0.3, 3.0)
"""Of the evidence and of the beliefs: from where to where they are sought. A smaller power suits the very graph learned from,
and no other: see docs/design.md."""
LEAST_KNOWN = 1000
"""Nodes with known values, at least, and as many as there are probabilities in the tables: fewer cannot tell so much."""
MOST_REMEMBERED = 1 << 28
"""Message values, at most, of all iterations on all graphs: a gigabyte."""
TINY = float(np.finfo(np.float32).tiny)
LEAST = 1e-300
"""Keeps the logarithm of an error finite."""
LOG_FLOOR = np.float32(np.log(FLOORS[np.dtype(np.float32)]))


@dataclass(frozen=True)
class KnownNodes:
    """Nodes of one variable whose value is known.

    Attributes
    ----------
    variable : its name
    nodes : (n,) numbers within the variable, ascending
    measures : (n, q) what each value is on the states
    values : (n,) numbers as the states have them, means of `measures`; None of anything else
    """

    variable: str
    nodes: Indices
    measures: scipy.sparse.csr_array
    values: Matrix | None


@dataclass(frozen=True)
class Refined:
    """Tables that take the place of counted ones, and what was found to go with them.

    Attributes
    ----------
    joints : by relation, (q_first, q_second) probabilities of pairs of states
    power : of the evidence
    temperature : of the beliefs
    score : as `kernelbp.calibration.GraphCalibration` has it, over all that is known
    """

    joints: Mapping[str, NDArray[np.float64]]
    power: float
    temperature: float
    score: float


def can_refine(graphs: Sequence[tuple[Beliefs, Sequence[KnownNodes]]], iterations: int) -> bool:
    """Whether inference on training graphs is of the kind that is refined here, and small enough.

    All edges are of learned relations and weighted, no evidence comes through these relations (it would change with their
    tables), no two neighbours send at the same time, and enough is known.
    """
    known = sum(len(part.nodes) for _, truth in graphs for part in truth)
    size = sum(beliefs._source.state.messages.values.size for beliefs, _ in graphs)
    if known < LEAST_KNOWN or size * iterations > MOST_REMEMBERED:
        return False
    for beliefs, _ in graphs:
        source = beliefs._source
        learned = source.operators.relations if isinstance(source.operators, ProbabilityOperators) else {}
        used = {relation for relation, _ in source.wiring.operators}
        heard = {getattr(piece, "relation", None) for pieces in source.evidence.pieces for piece in pieces}
        if (
            not source.state.weights
            or not used <= set(learned)
            or used & heard
            or not all(phase.independent for phase in _phases(beliefs))
        ):
            return False
    return known >= sum(int((table.joint > 0).sum()) for table in _learned(graphs).values())


def refine(
    graphs: Sequence[tuple[Beliefs, Sequence[KnownNodes]]],
    *,
    iterations: int,
    damping: float,
    temperature: float,
    step: Callable[[str], None],
) -> Refined | None:
    """Refine the tables of all relations between nodes; None where too little is gained.

    Parameters
    ----------
    graphs : beliefs that inference found on each training graph under the settings to begin with, which hold all that
        is needed of it, and what is known there
    iterations, damping : of the inference; the geometric mean of old and new messages is taken
    temperature : of the beliefs, to begin with
    step : called with a note after every step

    Returns
    -------
    Refined or None
    """
    operators = graphs[0][0]._source.operators  # of all graphs, which have cycles
    assert isinstance(operators, ProbabilityOperators)
    problems = [_Unrolled(beliefs, truth, iterations, damping) for beliefs, truth in graphs]
    learned = _learned(graphs)
    symmetric = frozenset(name for name, table in learned.items() if _is_symmetric(table.joint))
    start = _Tables(
        {name: table.joint for name, table in learned.items()},
        {name: operators.mixings[name] for name in learned},
        symmetric,
    )
    known = sum(len(part.nodes) for _, truth in graphs for part in truth)
    # The table of a symmetric relation holds every pair both ways.
    ridges = {
        name: float(table.table.sum()) / (2 if name in symmetric else 1) / (2 * known)
        for name, table in learned.items()
    }

    def loss_of(vector: Matrix) -> tuple[float, Matrix]:
        changes, power, heat = start.unpacked(vector)
        tables = start.changed(changes)
        slopes = {name: np.zeros_like(joint) for name, joint in start.joints.items()}
        total, of_power, of_heat = 0.0, 0.0, 0.0
        for problem in problems:
            found = problem.loss(tables, power, heat)
            total += found.loss / len(problems)
            of_power += found.of_power / len(problems)
            of_heat += found.of_temperature / len(problems)
            for key, slope in found.of_tables.items():
                slopes[key[0]] += tables.pulled(*key, slope) / len(problems)
        for name, joint in start.joints.items():
            total += ridges[name] * float((joint * changes[name] ** 2).sum())
            slopes[name] = slopes[name] * tables.joints[name] + 2 * ridges[name] * joint * changes[name]
        return total, start.packed_slopes(slopes, of_power * power, of_heat * heat)

    begin = start.packed(temperature)
    with blas_on(1):  # products are small, and BLAS's own threads would wait for each other
        found = scipy.optimize.minimize(
            loss_of,
            begin,
            jac=True,
            method="L-BFGS-B",
            bounds=start.limits(),
            callback=lambda _: step("refining tables"),
            options={"maxiter": MOST_STEPS},
        )
        changes, power, heat = start.unpacked(found.x)
        tables = start.changed(changes)
        before, after = (
            float(np.mean([problem.loss(*where, slopes=False).loss for problem in problems]))
            for where in ((start, 1.0, temperature), (tables, power, heat))
        )
    if not before - after > WORTH_REFINING:
        return None
    return Refined(tables.joints, power, heat, -after)


def _learned(graphs: Sequence[tuple[Beliefs, Sequence[KnownNodes]]]) -> dict[str, LearnedRelation]:
    """The learned relations between nodes of the graphs."""
    operators = graphs[0][0]._source.operators
    assert isinstance(operators, ProbabilityOperators)
    used = {relation for beliefs, _ in graphs for relation, _ in beliefs._source.wiring.operators}
    return {name: operators.relations[name] for name in sorted(used)}


def _is_symmetric(joint: Matrix) -> bool:
    return joint.shape[0] == joint.shape[1] and bool(np.allclose(joint, joint.T, rtol=1e-6, atol=0))


# ---------------------------------------------------------------------- tables and what they are changed by


@dataclass(frozen=True)
class _Tables:
    """Probabilities of pairs of states by relation, with a share of independence in each.

    Attributes
    ----------
    joints : (q_first, q_second), which sum to one
    mixings : shares
    symmetric : names of relations whose table equals its own transpose
    """

    joints: Mapping[str, Matrix]
    mixings: Mapping[str, float]
    symmetric: frozenset[str]

    def limits(self) -> list[tuple[float | None, float | None]]:
        """Of the vector's numbers: none of changes."""
        free = sum(joint.size for joint in self.joints.values())
        return [(None, None)] * free + [
            (float(np.log(low)), float(np.log(high))) for low, high in (POWERS, TEMPERATURES)
        ]

    def packed(self, temperature: float) -> Matrix:
        """The vector to begin with: no changes, evidence as it is, a temperature."""
        sizes = sum(joint.size for joint in self.joints.values())
        return np.concatenate([np.zeros(sizes), [0.0, np.log(temperature)]])

    def unpacked(self, vector: Matrix) -> tuple[dict[str, Matrix], float, float]:
        """Changes s of each table, the power of the evidence and the temperature."""
        changes, begin = {}, 0
        for name, joint in self.joints.items():
            own = vector[begin : begin + joint.size].reshape(joint.shape)
            changes[name] = (own + own.T) / 2 if name in self.symmetric else own
            begin += joint.size
        return changes, float(np.exp(vector[-2])), float(np.exp(vector[-1]))

    def packed_slopes(self, steepness: Mapping[str, Matrix], of_power: float, of_heat: float) -> Matrix:
        """The gradient by the vector from that by changes, log power and log temperature."""
        flat = [
            ((slope + slope.T) / 2 if name in self.symmetric else slope).ravel()
            for name, slope in steepness.items()
        ]
        return np.concatenate([*flat, [of_power, of_heat]])

    def changed(self, changes: Mapping[str, Matrix]) -> _Tables:
        """Each probability multiplied by e^s, all scaled to sum to one."""
        made = {name: joint * np.exp(changes[name]) for name, joint in self.joints.items()}
        return _Tables(
            {name: joint / joint.sum() for name, joint in made.items()}, self.mixings, self.symmetric
        )

    def conditional(self, relation: str, toward: int) -> Matrix:
        """As `ProbabilityOperators.conditional`: of the sender's states, given one of the receiver, (receiver, sender)."""
        joint = self.joints[relation] if toward == 0 else self.joints[relation].T
        receiver, sender = joint.sum(axis=1, keepdims=True), joint.sum(axis=0)
        share = self.mixings[relation]
        alone = np.where(receiver > 0, joint / np.where(receiver > 0, receiver, 1.0), sender)
        table: Matrix = (1 - share) * alone + share * sender
        return table

    def pulled(self, relation: str, toward: int, slope: Matrix) -> Matrix:
        """The gradient by a joint table, which sums to one, from that by its conditional in one direction."""
        joint = self.joints[relation] if toward == 0 else self.joints[relation].T
        receiver = joint.sum(axis=1, keepdims=True)
        share, seen = self.mixings[relation], receiver > 0
        own = np.where(seen, slope / np.where(seen, receiver, 1.0), 0.0)
        mean = np.where(seen, (own * joint).sum(axis=1, keepdims=True) / np.where(seen, receiver, 1.0), 0.0)
        unseen = np.where(seen, 0.0, slope).sum(axis=0)
        found = (1 - share) * (own - mean + unseen) + share * slope.sum(axis=0)
        found -= (found * joint).sum()  # scaling to a sum of one takes back what all share
        return found if toward == 0 else found.T


# ---------------------------------------------------------------------- an inference and its gradient


@dataclass(frozen=True)
class _Loss:
    """Of one graph, and its gradient."""

    loss: float
    of_tables: Mapping[tuple[str, int], Matrix]
    of_power: float
    of_temperature: float


@dataclass(frozen=True)
class _Gathered:
    """Senders of one variable and, as a sparse matrix, the weighted sum of what arrives there."""

    variable: int
    nodes: Indices
    rows: Indices
    lengths: Indices
    weights: Array
    sums: scipy.sparse.csr_array


@dataclass(frozen=True)
class _Sent:
    """Messages through one operator; `spread` (senders, messages) sums over the messages of each sender."""

    send: Send
    spread: scipy.sparse.csr_array


class _Unrolled:
    """A fixed number of iterations on one graph, in logarithms, with its gradient.

    Parameters
    ----------
    beliefs : of an inference on the graph, which holds its evidence, edge weights and wiring
    truth : what is known there
    iterations, damping : of the inference
    """

    def __init__(
        self, beliefs: Beliefs, truth: Sequence[KnownNodes], iterations: int, damping: float
    ) -> None:
        source = beliefs._source
        state, self._wiring = source.state, source.wiring
        self.operators = self._wiring.operators
        self._truth, self._iterations, self._damping = truth, iterations, np.float32(damping)
        self._evidence = [
            source.evidence.log_at(source.operators, variable, 0, len(nodes), None, part.shape[1])[0]
            for variable, (nodes, part) in enumerate(zip(self._wiring.nodes, state.evidence, strict=True))
        ]
        self._evidence = [
            (part - part.max(axis=1, keepdims=True)).astype(np.float32) for part in self._evidence
        ]
        self._weights = [part.astype(np.float32) for part in state.weights]
        self._priors = {
            known.variable: np.log(source.operators.support_weights(known.variable)) for known in truth
        }
        self._points = {known.variable: source.operators.support(known.variable) for known in truth}
        self._shapes = [part.shape for part in state.messages]
        self._phases = [self._laid_out(phase) for phase in _phases(beliefs)]

    def _laid_out(self, phase: Phase) -> tuple[list[_Gathered], list[_Sent]]:
        gathered, sent = [], []
        for gather in phase.gathers:
            lengths = np.diff(np.append(gather.offsets, len(gather.rows)))
            weights = self._weights[gather.variable][gather.rows]
            shape = (len(gather.nodes), self._shapes[gather.variable][0])
            sums = scipy.sparse.csr_array(
                (weights, gather.rows, np.append(gather.offsets, len(gather.rows))), shape=shape
            )
            gathered.append(_Gathered(gather.variable, gather.nodes, gather.rows, lengths, weights, sums))
        for send in phase.sends:
            count = len(send.rows)
            spread = scipy.sparse.csr_array(
                (np.ones(count, np.float32), (send.source, np.arange(count))),
                shape=(len(gathered[send.gather].nodes), count),
            )
            sent.append(_Sent(send, spread))
        return gathered, sent

    def loss(self, tables: _Tables, power: float, temperature: float, *, slopes: bool = True) -> _Loss:
        """The loss, with its gradient by the operators' tables, the power and the temperature, if that is wanted."""
        made = [tables.conditional(*key).astype(np.float32) for key in self.operators]
        messages, remembered = self._run(made, np.float32(power))
        grown = [np.zeros(shape, np.float32) for shape in self._shapes]
        total, of_power, of_heat = 0.0, 0.0, 0.0
        count = sum(len(known.nodes) for known in self._truth)
        for known in self._truth:
            variable, share = self._wiring.variables.index(known.variable), len(known.nodes) / count
            product = self._products(variable, messages, power)[known.nodes]
            mass = masses(product / temperature + self._priors[known.variable])
            total -= share * score_of(mass, self._points[known.variable], known)
            if slopes:
                slope = _slope_of(mass, self._points[known.variable], known) * (share / temperature)
                of_heat -= float((slope * product).sum()) / temperature
                of_power += float((slope * self._evidence[variable][known.nodes]).sum())
                everywhere = np.zeros((len(self._wiring.nodes[variable]), slope.shape[1]), np.float32)
                everywhere[known.nodes] = slope
                grown[variable][:] = np.repeat(everywhere, self._wiring.degrees[variable], axis=0)
                grown[variable] *= self._weights[variable][:, None]
        of_tables: dict[tuple[str, int], Matrix] = {}
        if slopes:
            found, more = self._undone(made, np.float32(power), messages, remembered, grown)
            of_tables = dict(zip(self.operators, found, strict=True))
            of_power += more
        return _Loss(total, of_tables, of_power, of_heat)

    def _products(self, variable: int, messages: list[Array], power: float) -> Matrix:
        """Log of evidence times all messages that arrive, (nodes, q)."""
        total = power * self._evidence[variable].astype(np.float64)
        start = self._wiring.start[variable]
        some = np.flatnonzero(np.diff(start))
        weighted = messages[variable] * self._weights[variable][:, None]
        total[some] += np.add.reduceat(weighted, start[some], axis=0)
        return total

    def _run(self, made: list[Array], power: np.float32) -> tuple[list[Array], list[Array]]:
        """Logarithms of the messages after all iterations, and of each that was replaced, in order."""
        messages = [np.zeros(shape, np.float32) for shape in self._shapes]
        remembered: list[Array] = []
        keep = self._damping
        for _ in range(self._iterations):
            for gathered, sent in self._phases:
                totals = self._totals(gathered, messages, power)
                for send in (part.send for part in sent):
                    products = _products_of(send, gathered, totals, messages)
                    fresh = np.log(np.maximum(products @ made[send.operator].T, TINY))
                    old = messages[send.target_variable][send.rows]
                    remembered.append(old)
                    fresh *= 1 - keep
                    fresh += keep * old
                    fresh -= fresh.max(axis=1, keepdims=True)
                    messages[send.target_variable][send.rows] = np.maximum(fresh, LOG_FLOOR, out=fresh)
        return messages, remembered

    def _totals(self, gathered: list[_Gathered], messages: list[Array], power: np.float32) -> list[Array]:
        return [
            part.sums @ messages[part.variable] + power * self._evidence[part.variable][part.nodes]
            for part in gathered
        ]

    def _undone(
        self,
        made: list[Array],
        power: np.float32,
        messages: list[Array],
        remembered: list[Array],
        grown: list[Array],
    ) -> tuple[list[Matrix], float]:
        """The gradient by the operators' tables and the power, from that by the last messages.

        `messages` become the first ones again, `grown` the gradient by them. What scales a message changes nothing
        that comes after it, so scaling has no part in the gradient.
        """
        slopes = [np.zeros(table.shape) for table in made]
        of_power, keep = 0.0, self._damping
        for _ in range(self._iterations):
            for gathered, sent in reversed(self._phases):
                fresh = []
                for part in reversed(sent):
                    target, rows = part.send.target_variable, part.send.rows
                    slope = grown[target][rows]
                    slope[messages[target][rows] <= LOG_FLOOR] = 0
                    messages[target][rows] = remembered.pop()
                    grown[target][rows] = keep * slope
                    slope *= 1 - keep
                    fresh.append((part, slope))
                totals = self._totals(gathered, messages, power)
                of_totals = [np.zeros_like(total) for total in totals]
                for part, slope in fresh:
                    send = part.send
                    products = _products_of(send, gathered, totals, messages)
                    sent_on = products @ made[send.operator].T
                    slope = np.where(sent_on > TINY, slope / np.maximum(sent_on, TINY), 0)
                    slopes[send.operator] += slope.T @ products
                    back = slope @ made[send.operator]
                    back *= products
                    of_totals[send.gather] += part.spread @ back
                    grown[gathered[send.gather].variable][send.own] -= back
                for here, total in zip(gathered, of_totals, strict=True):
                    weighted = np.repeat(total, here.lengths, axis=0)
                    weighted *= here.weights[:, None]
                    grown[here.variable][here.rows] += weighted
                    of_power += float((total * self._evidence[here.variable][here.nodes]).sum())
        return slopes, of_power


def _phases(beliefs: Beliefs) -> tuple[Phase, ...]:
    """Of an iteration, as inference takes them by default on graphs with cycles."""
    source = beliefs._source
    plan = make_plan("auto", source.wiring, source.graph.n_nodes, source.graph.shape)
    assert isinstance(plan, FixedPlan)
    return plan.phases


def _products_of(send: Send, gathered: list[_Gathered], totals: list[Array], messages: list[Array]) -> Array:
    """What each message is made of: all that arrives but one's own, the largest 1, (messages, q)."""
    made = totals[send.gather][send.source]
    made -= messages[gathered[send.gather].variable][send.own]
    made -= made.max(axis=1, keepdims=True)
    return np.exp(made, out=made)


def masses(logs: Matrix) -> Matrix:
    """Probabilities (n, q) from their logarithms, up to a constant of each row."""
    mass: Matrix = np.exp(logs - logs.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    return mass


def score_of(mass: Matrix, points: Array, known: KnownNodes) -> float:
    """Of masses (nodes, q) on the states: minus the log of the mean's root mean squared error, or the mean log-probability."""
    if known.values is not None:
        apart = mass @ points[:, 0] - known.values
        return -0.5 * float(np.log(apart @ apart / len(apart) + LEAST))
    return float(np.log(_found(mass, known)).mean())


def _slope_of(mass: Matrix, points: Array, known: KnownNodes) -> Matrix:
    """The gradient (nodes, q) of minus the score by the logarithms of the masses."""
    if known.values is not None:
        mean = mass @ points[:, 0]
        apart = mean - known.values
        weight = apart / (apart @ apart + LEAST)
        return mass * (points[:, 0] - mean[:, None]) * weight[:, None]
    shared = np.asarray(known.measures.multiply(mass).todense()) / _found(mass, known)[:, None]
    return (mass - shared) / len(mass)


def _found(mass: Matrix, known: KnownNodes) -> Matrix:
    """The probability of each node's true value, (nodes,)."""
    found = np.asarray(known.measures.multiply(mass).sum(axis=1)).reshape(-1)
    return np.maximum(found, np.finfo(np.float64).tiny)
