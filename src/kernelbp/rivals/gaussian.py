r"""Gaussian belief propagation: every relation linear with Gaussian noise, every message a Gaussian.

In information form (the paper's appendix 7) a message is :math:`\exp(-\tfrac12 x^\top J x + h^\top x)`. A relation is the factor
:math:`\exp(-\tfrac12 (x_1, x_2) K (x_1, x_2)^\top + k^\top (x_1, x_2))`, and a message from t to s is

.. math:: J_{ts} = K_{ss} - K_{st} P^{-1} K_{ts}, \qquad h_{ts} = k_s - K_{st} P^{-1} (k_t + h_{t \setminus s}), \qquad
          P = K_{tt} + J_{t \setminus s},

where :math:`t \setminus s` stands for all that t knows but from s. All is done in standardised coordinates, for all messages
of a relation at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError, UnsupportedError
from kernelbp.graph import Graph
from kernelbp.inference.evidence import Evidence, Likelihood, Observed, gather_evidence
from kernelbp.inference.progress import Progress
from kernelbp.inference.propagation import wire_hidden
from kernelbp.inference.run import Verdict
from kernelbp.inference.schedules import make_plan
from kernelbp.inference.wiring import Phase, Wiring, oriented_edges
from kernelbp.kernels import Kernel, domain
from kernelbp.learning.estimators import is_estimator
from kernelbp.learning.examples import collect
from kernelbp.model import Relation
from kernelbp.rivals.beliefs import MixtureBeliefs, Mixtures
from kernelbp.rivals.setup import check_inference
from kernelbp.values import Column, Kind, is_number

__all__ = ["GaussianModel"]

Matrix = NDArray[np.float64]
Schedule = Literal["auto", "flooding", "sweep", "tree"]
SCHEDULES = ("auto", "flooding", "sweep", "tree")

FLAT = 1e-12
"""Precision, relative to the largest of a matrix, under which a direction is taken to be unknown."""
BLOWN_UP = 1e12
"""Standard deviations of a variable beyond which a mean says that messages diverge."""


@dataclass(frozen=True, eq=False)
class _Variable:
    """A variable's values, and the coordinates messages live in: z = (x - centre) / scale.

    `precision` (d, d) and `shift` (d,) are its node potential there, zero if nothing is known of it.
    """

    kernel: Kernel
    kind: Kind
    values: Column
    centre: Matrix
    scale: Matrix
    precision: Matrix
    shift: Matrix


@dataclass(frozen=True, eq=False)
class _Factor:
    """A relation in information form, in standardised coordinates.

    blocks[i][j] is K between ends i and j; shifts[i] is k at end i; `directed` says that it is the density of
    its second end given the first, which then has no node potential of its own.
    """

    blocks: tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]
    shifts: tuple[Matrix, Matrix]
    directed: bool


@dataclass(frozen=True, eq=False)
class _Fitted:
    variables: Mapping[str, _Variable]
    factors: Mapping[str, _Factor]


class GaussianModel:
    """Variables of numbers and vectors that are jointly Gaussian.

    A relation is learned as the joint Gaussian of its pairs. A node has the Gaussian of its variable as potential and
    an edge P(first, second) / (P(first) P(second)), so that beliefs are exact on trees whose marginals agree with those
    of the pairs. On graphs with cycles, means are exact once messages converge, and standard deviations usually too small.

    Parameters
    ----------
    variables : mapping from name to kernel
        The kernel only says what values a variable has; they must be numbers or vectors.
    relations : mapping from name to `Relation`
    linear : mapping from relation name to (A, b, Q), optional
        Relations that are known: second = A first + b + noise of covariance Q. They take no pairs. A node that is
        the second end of such a relation takes its distribution from the first, as in a state-space model,
        and has no potential of its own.
    prior : mapping from variable name to (mean, covariance), optional
        The distribution of a variable, in place of that of its training values. A variable with neither
        is left open: evidence or a relation must say where its nodes lie.
    regularization : float
        Added to the variances of learned relations, in proportion to them, so that pairs which determine each other (or are
        fewer than their dimensions) have a Gaussian too. A relation's own `regularization` overrides it.

    Examples
    --------
    >>> import kernelbp as kb
    >>> model = kb.rivals.GaussianModel(
    ...     {"state": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
    ...     {"then": kb.Relation("state", "state"), "read as": kb.Relation("state", "reading")},
    ...     linear={"then": (1.0, 0.0, 1.0), "read as": (1.0, 0.0, 1.0)},
    ...     prior={"state": (0.0, 1.0)},
    ... )
    >>> graph = kb.Graph.chain(2, variable="state", relation="then").observe("read as", [3.0], nodes=[1])
    >>> model.fit().infer(graph).mean()
    array([1., 2.])
    """

    def __init__(
        self,
        variables: Mapping[str, Kernel],
        relations: Mapping[str, Relation],
        *,
        linear: Mapping[str, tuple[Any, Any, Any]] | None = None,
        prior: Mapping[str, tuple[Any, Any]] | None = None,
        regularization: float = 1e-6,
    ) -> None:
        self.variables = variables
        self.relations = relations
        self.linear = linear
        self.prior = prior
        self.regularization = regularization
        self._fitted: _Fitted | None = None

    # ------------------------------------------------------------------ learning

    def fit(
        self, pairs: Mapping[str, tuple[Any, Any]] | None = None, *, progress: bool = False
    ) -> GaussianModel:
        """Learn every relation that is not in `linear`.

        Parameters
        ----------
        pairs : mapping
            For each relation ``(first values, second values)``, equally long.
        progress : bool
            Show a progress bar.

        Returns
        -------
        GaussianModel
            Itself.
        """
        self._check_settings()
        linear = {name: _checked_linear(name, given) for name, given in (self.linear or {}).items()}
        prior = {name: _checked_prior(name, given) for name, given in (self.prior or {}).items()}
        to_learn = {name: r for name, r in self.relations.items() if name not in linear}
        given = {} if pairs is None else pairs
        examples, tables = collect(
            to_learn,
            given,
            kernels=self.variables,
        )
        for name, example in examples.items():
            if example.kind.form == "object":
                raise InputError(f"pairs: variable {name!r} should hold numbers or vectors, got objects")
        kinds = {name: example.kind for name, example in examples.items()}
        self._add_kinds(kinds, linear, prior)
        with Progress("learning", len(kinds) + len(self.relations), shown=progress) as bar:
            variables = {}
            for name, kind in kinds.items():
                moments = None
                if name in examples:
                    counts = examples[name].counts / examples[name].counts.sum()
                    centre = counts @ examples[name].values
                    apart = examples[name].values - centre
                    spread = (apart * counts[:, None]).T @ apart
                    moments = centre, _regularized(spread, centre, self.regularization)
                values = examples[name].values if name in examples else np.empty((0, kind.dimension))
                moments = prior.get(name, moments)
                variables[name] = _variable(self.variables[name], kind, values, moments)
                bar.advance(f"variable {name}")
            factors = {}
            for name, relation in self.relations.items():
                ends = variables[relation.first], variables[relation.second]
                if name in linear:
                    factors[name] = _linear_factor(*linear[name], ends)
                else:
                    amount = relation.regularization
                    amount = self.regularization if amount is None else amount
                    sides = examples[relation.first].values, examples[relation.second].values
                    factors[name] = _learned_factor(tables[name], sides, ends, amount)
                bar.advance(f"relation {name}")
        self._fitted = _Fitted(variables, factors)
        return self

    # ------------------------------------------------------------------ inference

    def infer(
        self,
        graph: Graph,
        *,
        schedule: Schedule = "auto",
        max_iterations: int = 500,
        tolerance: float = 1e-8,
        damping: float = 0.0,
        seed: int = 0,
        progress: bool = False,
    ) -> MixtureBeliefs:
        """Work out the belief of every node, a Gaussian.

        Parameters
        ----------
        graph : Graph
            With its evidence. A likelihood given by ``graph.soften`` enters as the Gaussian of its mean and covariance.
        schedule : "auto", "flooding", "sweep" or "tree"
            "auto" passes twice over trees, which is exact, and floods elsewhere.
        max_iterations : int
        tolerance : float
            Stop when no mean moves by more than this share of its standard deviation, and no standard deviation
            changes by more than this share.
        damping : float
            Share of the old message kept in each update, from 0 to below 1.
        seed : int
            Not used: nothing is drawn. Here so that an experiment is one loop over methods.
        progress : bool
            Show a progress bar.

        Returns
        -------
        MixtureBeliefs
        """
        if self._fitted is None:
            raise NotFittedError("this model has not been fitted; call fit(pairs) first")
        _check_inference(graph, schedule, max_iterations, tolerance, damping)
        fitted = self._fitted
        for name in graph.variables:
            if name not in fitted.variables:
                raise InputError(
                    f"graph: unknown variable {name!r}; the model has {', '.join(fitted.variables)}"
                )
        evidence = gather_evidence(graph, self.relations, fitted.variables)
        wiring = wire_hidden(graph, self.relations, evidence)
        forest = wiring.is_forest
        if schedule == "auto":
            schedule = "tree" if forest else "flooding"
        exact = schedule == "tree" and forest
        messages = _Messages.started(wiring, fitted, *self._local(graph, evidence, fitted))
        plan = make_plan(schedule, wiring, graph.n_nodes, graph.shape)
        verdict = self._run(
            messages, plan, wiring, max_iterations, tolerance, 0.0 if exact else damping, exact, progress
        )
        return self._beliefs(graph, evidence, fitted, messages, verdict)

    def _local(self, graph: Graph, evidence: Evidence, fitted: _Fitted) -> tuple[list[Matrix], list[Matrix]]:
        """Node potential times evidence: precisions (n_v, d, d) and shifts (n_v, d) for each variable."""
        edges = oriented_edges(graph, self.relations)
        child = np.zeros(graph.n_nodes, dtype=bool)
        for index, name in enumerate(graph.relations):
            if fitted.factors[name].directed:
                child[edges[graph.edge_relation == index, 1]] = True
        precisions, shifts = [], []
        for number, name in enumerate(graph.variables):
            variable = fitted.variables[name]
            own = ~child[graph.nodes_of(name)]
            J = own[:, None, None] * variable.precision
            h = own[:, None] * variable.shift
            for piece in evidence.pieces[number]:
                if isinstance(piece, Observed):
                    relation, factor = self.relations[piece.relation], fitted.factors[piece.relation]
                    other = fitted.variables[(relation.second, relation.first)[piece.toward]]
                    here, there = piece.toward, 1 - piece.toward
                    z = (piece.values - other.centre) / other.scale
                    adds = np.broadcast_to(factor.blocks[here][here], (len(z), *J.shape[1:]))
                    moves = factor.shifts[here] - z @ factor.blocks[here][there].T
                else:
                    assert isinstance(piece, Likelihood)
                    adds, moves = _matched(piece, variable, graph.nodes_of(name))
                np.add.at(J, piece.nodes, adds)
                np.add.at(h, piece.nodes, moves)
            precisions.append(J)
            shifts.append(h)
        return precisions, shifts

    def _run(
        self,
        messages: _Messages,
        plan: Any,
        wiring: Wiring,
        max_iterations: int,
        tolerance: float,
        damping: float,
        exact: bool,
        progress: bool,
    ) -> Verdict:
        residuals: list[float] = []
        converged = wiring.n_messages == 0
        changes = np.ones(wiring.n_messages)
        means, spreads = messages.moments()
        with Progress("inference", max_iterations, shown=progress) as bar, np.errstate(all="ignore"):
            while not converged and len(residuals) < max_iterations:
                before = messages.copied()
                for phase in chain.from_iterable(plan.iteration(changes, complete=True)):
                    messages.update(phase, damping)
                new_means, new_spreads = messages.moments()
                if any((np.abs(part) > BLOWN_UP).any() for part in new_means):
                    residuals.append(np.inf)
                    messages.restore(before)
                    break
                change = max(
                    _largest_change(*parts)
                    for parts in zip(means, new_means, spreads, new_spreads, strict=True)
                )
                means, spreads = new_means, new_spreads
                residuals.append(change)
                bar.advance(f"largest change {change:.1e}")
                converged = exact or change <= tolerance * (1 - damping)
            if converged:
                bar.finish("exact in one pass" if exact else "converged")
        if not converged and tolerance > 0:
            warnings.warn(
                f"Inference stopped after {len(residuals)} iterations with beliefs still changing by "
                f"{residuals[-1]:.1e} standard deviations (tolerance {tolerance:.0e}): means may be wrong. Try more "
                "iterations (max_iterations=) or damping (damping=0.5); where relations are so strong that cycles "
                "amplify them, kernelbp.Model converges.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Verdict(converged, tuple(residuals), damping)

    def _beliefs(
        self, graph: Graph, evidence: Evidence, fitted: _Fitted, messages: _Messages, verdict: Verdict
    ) -> MixtureBeliefs:
        mixtures = {}
        for number, name in enumerate(graph.variables):
            variable, fixed = fitted.variables[name], evidence.fixed[number]
            precision = messages.precision[number].copy()
            precision[fixed.nodes] = np.eye(len(variable.scale))
            unknown = np.flatnonzero(~_proper(precision))
            if len(unknown):
                raise InputError(
                    f"graph: nothing says where node {graph.nodes_of(name)[unknown[0]]} of {name!r} lies; give "
                    f"prior={{{name!r}: (mean, covariance)}} or evidence that reaches it"
                )
            covariance = np.linalg.inv(precision)
            mean = np.einsum("nij,nj->ni", covariance, messages.shift[number])
            mean = variable.centre + mean * variable.scale
            covariance = covariance * np.outer(variable.scale, variable.scale)
            covariance = 0.5 * (covariance + covariance.transpose(0, 2, 1))
            if len(fixed.nodes):
                mean[fixed.nodes], covariance[fixed.nodes] = fixed.values, 0.0
            mixtures[name] = Mixtures(mean[:, None], np.ones((len(mean), 1)), covariances=covariance[:, None])
        kinds = {name: fitted.variables[name].kind for name in graph.variables}
        return MixtureBeliefs(graph, mixtures, kinds, verdict)

    def __repr__(self) -> str:
        state = "not fitted" if self._fitted is None else "fitted"
        return f"GaussianModel(variables: {', '.join(self.variables)}; relations: {', '.join(self.relations)}; {state})"

    # ------------------------------------------------------------------ checking

    def _check_settings(self) -> None:
        for label in ("variables", "relations"):
            given = getattr(self, label)
            if not isinstance(given, Mapping) or not given:
                raise InputError(
                    f"{label}: expected a mapping by name with at least one entry, got {given!r:.80}"
                )
        for name, kernel in self.variables.items():
            if isinstance(kernel, type) or not isinstance(kernel, Kernel):
                raise InputError(f"variables[{name!r}]: expected a kernel, got {kernel!r:.80}")
            where = domain(kernel)
            if where != "real":
                able = {"sphere": "rivals.ParticleModel or Model", "finite": "rivals.DiscreteModel or Model"}
                raise UnsupportedError(
                    f"variables[{name!r}]: a Gaussian is for numbers and vectors, and {kernel!r} compares values of "
                    f"another kind ({where}); use {able.get(where, 'Model')}"
                )
        for label in ("linear", "prior"):
            stated = getattr(self, label)
            if stated is not None and not isinstance(stated, Mapping):
                raise InputError(f"{label}: expected a mapping by name, got {type(stated).__name__}")
        for name, relation in self.relations.items():
            if not isinstance(relation, Relation):
                raise InputError(f"relations[{name!r}]: expected a Relation, got {type(relation).__name__}")
            for end in (relation.first, relation.second):
                if end not in self.variables:
                    raise InputError(
                        f"relations[{name!r}]: unknown variable {end!r}; the model has {', '.join(self.variables)}"
                    )
            if relation.potential is not None:
                raise UnsupportedError(
                    f"relations[{name!r}]: GaussianModel cannot use a potential, which need not be Gaussian; state the "
                    f"relation as linear={{{name!r}: (A, b, Q)}}, or use rivals.DiscreteModel or rivals.ParticleModel"
                )
            if is_estimator(relation.evidence):
                raise UnsupportedError(
                    f"relations[{name!r}]: GaussianModel takes no estimator as evidence; use Model"
                )
        for name in self.linear or {}:
            if name not in self.relations:
                raise InputError(
                    f"linear: unknown relation {name!r}; the model has {', '.join(self.relations)}"
                )
            if self.relations[name].symmetric:
                raise InputError(
                    f"linear[{name!r}]: it says how the second follows from the first, so the relation cannot be symmetric"
                )
        for name in self.prior or {}:
            if name not in self.variables:
                raise InputError(
                    f"prior: unknown variable {name!r}; the model has {', '.join(self.variables)}"
                )
        if not (is_number(self.regularization) and 0 <= self.regularization < np.inf):
            raise InputError(f"regularization: expected a number of at least 0, got {self.regularization!r}")

    def _add_kinds(
        self,
        kinds: dict[str, Kind],
        linear: Mapping[str, tuple[Matrix, Matrix, Matrix]],
        prior: Mapping[str, tuple[Matrix, Matrix]],
    ) -> None:
        """Kinds of variables without pairs, from the sizes of what is stated; all must agree."""
        stated = [(name, len(mean), f"prior[{name!r}]") for name, (mean, _) in prior.items()]
        for name, (A, _, _) in linear.items():
            relation = self.relations[name]
            stated += [
                (relation.first, A.shape[1], f"linear[{name!r}]: A has {A.shape[1]} columns"),
                (relation.second, A.shape[0], f"linear[{name!r}]: A has {A.shape[0]} rows"),
            ]
        for variable, size, where in stated:
            kind = kinds.setdefault(variable, Kind("scalar", 1) if size == 1 else Kind("vector", size))
            if kind.dimension != size:
                raise InputError(
                    f"{where}: variable {variable!r} holds {kind.describe()}, got {size} numbers"
                )


@dataclass(eq=False)
class _Messages:
    """All messages and, for each node, the sum of what it knows; lists are by variable.

    J : (messages arriving, d, d), h : (messages arriving, d), precision : (nodes, d, d), shift : (nodes, d)
    """

    wiring: Wiring
    fitted: _Fitted
    J: list[Matrix]
    h: list[Matrix]
    precision: list[Matrix]
    shift: list[Matrix]
    local: tuple[list[Matrix], list[Matrix]]

    @classmethod
    def started(
        cls, wiring: Wiring, fitted: _Fitted, precisions: list[Matrix], shifts: list[Matrix]
    ) -> _Messages:
        counts = [int(start[-1]) for start in wiring.start]
        return cls(
            wiring,
            fitted,
            [np.zeros((n, *p.shape[1:])) for n, p in zip(counts, precisions, strict=True)],
            [np.zeros((n, *s.shape[1:])) for n, s in zip(counts, shifts, strict=True)],
            [p.copy() for p in precisions],
            [s.copy() for s in shifts],
            (precisions, shifts),
        )

    def update(self, phase: Phase, damping: float) -> None:
        """Send the messages of a phase: all are computed before any is written."""
        made = []
        for send in phase.sends:
            name, toward = self.wiring.operators[send.operator]
            factor = self.fitted.factors[name]
            source = int(self.wiring.source_variable[send.messages[0]])
            to, fro = toward, 1 - toward
            P = factor.blocks[fro][fro] + self.precision[source][send.nodes] - self.J[source][send.own]
            q = factor.shifts[fro] + self.shift[source][send.nodes] - self.h[source][send.own]
            across = factor.blocks[to][fro]
            pull = across @ _inverse(P)
            made.append(
                (
                    send,
                    factor.blocks[to][to] - pull @ across.T,
                    factor.shifts[to] - np.einsum("nij,nj->ni", pull, q),
                )
            )
        for send, J, h in made:
            v, rows = send.target_variable, send.rows
            nodes = self.wiring.target[send.messages]
            J = (1 - damping) * J + damping * self.J[v][rows]
            h = (1 - damping) * h + damping * self.h[v][rows]
            np.add.at(self.precision[v], nodes, J - self.J[v][rows])
            np.add.at(self.shift[v], nodes, h - self.h[v][rows])
            self.J[v][rows], self.h[v][rows] = J, h

    def moments(self) -> tuple[list[Matrix], list[Matrix]]:
        """Means and standard deviations (nodes, d) of the beliefs by variable; NaN where a node's is not a Gaussian."""
        means, spreads = [], []
        for v, start in enumerate(self.wiring.start):
            if start[-1]:
                # Sums are made anew, so that differences do not pile up over iterations.
                used = np.flatnonzero(np.diff(start))
                self.precision[v], self.shift[v] = self.local[0][v].copy(), self.local[1][v].copy()
                self.precision[v][used] += np.add.reduceat(self.J[v], start[used], axis=0)
                self.shift[v][used] += np.add.reduceat(self.h[v], start[used], axis=0)
            proper = _proper(self.precision[v])
            covariance = np.full_like(self.precision[v], np.nan)
            covariance[proper] = np.linalg.inv(self.precision[v][proper])
            means.append(np.einsum("nij,nj->ni", covariance, self.shift[v]))
            spreads.append(np.sqrt(np.einsum("nii->ni", covariance)))
        return means, spreads

    def copied(self) -> tuple[list[Matrix], ...]:
        return tuple(
            [part.copy() for part in parts] for parts in (self.J, self.h, self.precision, self.shift)
        )

    def restore(self, saved: tuple[list[Matrix], ...]) -> None:
        self.J, self.h, self.precision, self.shift = saved


def _largest_change(mean: Matrix, new_mean: Matrix, spread: Matrix, new_spread: Matrix) -> float:
    """Of means in standard deviations and of standard deviations; infinite while a belief is not a Gaussian."""
    if not len(mean):
        return 0.0
    moved = np.abs(new_mean - mean) / new_spread
    changed = np.abs(new_spread - spread) / new_spread
    # A belief that was open and still is has not changed; the end of inference names it.
    both = np.isnan(mean) & np.isnan(new_mean)
    change = np.where(both, 0.0, np.maximum(moved, changed))
    return float(np.where(np.isnan(change), np.inf, change).max())


def _inverse(P: Matrix) -> Matrix:
    """Inverse (n, d, d) of symmetric matrices, zero in directions of no precision: a relation says nothing there."""
    if P.shape[-1] == 1:
        return np.where(np.abs(P) > np.finfo(np.float64).tiny, 1.0 / P, 0.0)
    values, vectors = np.linalg.eigh(P)
    flat = np.abs(values) <= FLAT * np.abs(values).max(axis=-1, keepdims=True)
    inverse = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, values))
    return (vectors * inverse[:, None, :]) @ vectors.transpose(0, 2, 1)


def _proper(P: Matrix) -> NDArray[np.bool_]:
    """Which of (n, d, d) precisions are those of a Gaussian."""
    values = np.linalg.eigvalsh(np.where(np.isfinite(P), P, 0.0))
    largest = np.maximum(np.abs(values).max(axis=1), 1e-200)
    return np.asarray(np.isfinite(P).all(axis=(1, 2)) & (values.min(axis=1) > FLAT * largest))


# ---------------------------------------------------------------------- factors


def _variable(kernel: Kernel, kind: Kind, values: Column, moments: tuple[Matrix, Matrix] | None) -> _Variable:
    size = kind.dimension
    if moments is None:
        zeros = np.zeros((size, size)), np.zeros(size)
        return _Variable(kernel, kind, values, np.zeros(size), np.ones(size), *zeros)
    centre, covariance = moments
    scale = np.sqrt(np.diag(covariance))
    precision = np.linalg.inv(covariance / np.outer(scale, scale))
    return _Variable(kernel, kind, values, centre, scale, precision, np.zeros(size))


def _learned_factor(
    table: Any, sides: tuple[Matrix, Matrix], ends: tuple[_Variable, _Variable], amount: float
) -> _Factor:
    """P(first, second) / (P(first) P(second)) of the joint Gaussian of counted pairs."""
    first, second = ((side - end.centre) / end.scale for side, end in zip(sides, ends, strict=True))
    total = table.sum()
    left, right = table.sum(axis=1) / total, table.sum(axis=0) / total
    mean = np.concatenate([left @ first, right @ second])
    split = first.shape[1]
    a, b = first - mean[:split], second - mean[split:]
    across = a.T @ (table @ b) / total
    joint = np.block([[(a * left[:, None]).T @ a, across], [across.T, (b * right[:, None]).T @ b]])
    joint = _regularized(joint, mean, amount)
    K: Matrix = np.asarray(np.linalg.inv(joint), dtype=np.float64)
    K[:split, :split] -= np.linalg.inv(joint[:split, :split])
    K[split:, split:] -= np.linalg.inv(joint[split:, split:])
    return _factor(K, K @ mean, split, directed=False)


def _linear_factor(A: Matrix, b: Matrix, Q: Matrix, ends: tuple[_Variable, _Variable]) -> _Factor:
    """The density of second = A first + b + noise, given the first."""
    first, second = ends
    slope = A * first.scale / second.scale[:, None]
    offset = (A @ first.centre + b - second.centre) / second.scale
    precision: Matrix = np.asarray(np.linalg.inv(Q / np.outer(second.scale, second.scale)), dtype=np.float64)
    # The residual is G (first, second) - offset with G = (-slope, 1).
    G = np.hstack([-slope, np.eye(len(slope))])
    return _factor(G.T @ precision @ G, G.T @ precision @ offset, slope.shape[1], directed=True)


def _factor(K: Matrix, k: Matrix, split: int, *, directed: bool) -> _Factor:
    K = 0.5 * (K + K.T)
    parts = slice(None, split), slice(split, None)
    blocks = tuple(tuple(K[i, j] for j in parts) for i in parts)
    return _Factor(blocks, (k[parts[0]], k[parts[1]]), directed)  # type: ignore[arg-type]


def _regularized(covariance: Matrix, centre: Matrix, amount: float) -> Matrix:
    """Variances raised in proportion; where there is none, to rounding of the value's size."""
    variances = np.diag(covariance)
    least = (1e-6 * np.maximum(np.abs(centre), 1e-3)) ** 2
    raised = covariance + np.diag(amount * variances + np.where(variances > 0, 0.0, least))
    scale = np.sqrt(np.diag(raised))
    if np.linalg.eigvalsh(raised / np.outer(scale, scale)).min() <= FLAT:
        raise InputError(
            "regularization: pairs determine each other exactly, which has no density; "
            f"expected a number above 0, such as 1e-6, got {amount!r}"
        )
    return raised


def _matched(piece: Likelihood, variable: _Variable, members: NDArray[np.intp]) -> tuple[Matrix, Matrix]:
    """The Gaussian with the mean and covariance of a likelihood table, as a function of its points.

    Of all Gaussians it is the nearest to the table in Kullback-Leibler divergence. Evidence a user tabulates is mostly close to a
    Gaussian, which refusing tables would shut out; one with several modes is better served by another model.
    """
    points = (piece.points - variable.centre) / variable.scale
    width = np.ones(len(points))
    if points.shape[1] == 1 and len(points) > 1:
        # Points stand for the stretch of the line around them.
        order = np.argsort(points[:, 0])
        width[order] = np.gradient(points[order, 0])
    weights = piece.table * width
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    mean = weights @ points
    apart = points[None] - mean[:, None]
    covariance = np.einsum("np,npi,npj->nij", weights, apart, apart)
    bad = np.flatnonzero(~_proper(covariance))
    if len(bad):
        raise InputError(
            f"soften: likelihood at node {int(members[piece.nodes[bad[0]]])} of {piece.variable!r} has no spread, so no Gaussian "
            "matches it; give it at more points, or use fix(nodes, values) for a value that is known"
        )
    precision = np.linalg.inv(covariance)
    return precision, np.einsum("nij,nj->ni", precision, mean)


# ---------------------------------------------------------------------- checking


def _array(given: Any, name: str, axes: int) -> Matrix:
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: expected numbers, got {given!r:.80}") from None
    if not np.isfinite(array).all() or array.ndim not in (0, axes) or not array.size:
        raise InputError(
            f"{name}: expected finite numbers, one or an array of {axes} axes, got {given!r:.80}"
        )
    return array.reshape((1,) * axes) if array.ndim == 0 else array


def _checked_covariance(given: Any, name: str, size: int) -> Matrix:
    covariance = _array(given, name, 2)
    if covariance.shape != (size, size) or not np.allclose(covariance, covariance.T):
        raise InputError(f"{name}: expected a symmetric array of shape ({size}, {size}), got {given!r:.80}")
    if np.linalg.eigvalsh(covariance).min() <= 0:
        raise InputError(f"{name}: expected a covariance with positive eigenvalues, got {given!r:.80}")
    return covariance


def _checked_linear(name: str, given: Any) -> tuple[Matrix, Matrix, Matrix]:
    label = f"linear[{name!r}]"
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise InputError(f"{label}: expected (A, b, Q): second = A first + b + noise, got {given!r:.80}")
    A, b = _array(given[0], f"{label}: A", 2), _array(given[1], f"{label}: b", 1)
    if len(b) == 1 and np.ndim(given[1]) == 0:
        b = np.repeat(b, len(A))
    if len(b) != len(A):
        raise InputError(f"{label}: b should have {len(A)} numbers, as A has rows, got {len(b)}")
    return A, b, _checked_covariance(given[2], f"{label}: Q", len(A))


def _checked_prior(name: str, given: Any) -> tuple[Matrix, Matrix]:
    label = f"prior[{name!r}]"
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InputError(f"{label}: expected (mean, covariance), got {given!r:.80}")
    mean = _array(given[0], f"{label}: mean", 1)
    return mean, _checked_covariance(given[1], f"{label}: covariance", len(mean))


def _check_inference(graph: Any, schedule: Any, max_iterations: Any, tolerance: Any, damping: Any) -> None:
    if schedule not in SCHEDULES:
        raise InputError(f"schedule: expected one of {', '.join(SCHEDULES)}, got {schedule!r}")
    check_inference(graph, max_iterations, tolerance, damping)
