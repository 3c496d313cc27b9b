"""Everything inference asks of a fitted model, for one way of making its operators.

`Operators` is the contract between learning and inference: support points, conditional operators,
evidence and the reading of messages between support points. `EmbeddingOperators` keeps it with the
paper's conditional embeddings, in its three updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray

from kernelbp.errors import UnsupportedError
from kernelbp.kernels import domain
from kernelbp.learning.conditionals import (
    Conditional,
    EdgeOperator,
    constant_conditional,
    full_conditional,
    linear_conditional,
    ridge_solve,
)
from kernelbp.learning.embedding import Embedding, Moments
from kernelbp.learning.estimators import Predictor
from kernelbp.learning.examples import Table
from kernelbp.learning.potentials import KnownRelation, log_scales, potential_operator
from kernelbp.learning.probability import Normalised, assign, density_ratio
from kernelbp.learning.readings import ReadingLikelihood
from kernelbp.learning.tuning import Smoothing
from kernelbp.values import Column

__all__ = [
    "EmbeddingOperators",
    "EvidenceForm",
    "LearnedRelation",
    "Operators",
    "ProbabilityOperators",
    "Update",
]

Matrix = NDArray[np.float64]
Update = Literal["constant", "linear", "full"]
EvidenceForm = Literal["likelihood", "posterior", "estimator"]

POSTERIOR_FLOOR = 1e-4
"""A posterior density read from an embedding is kept above this share of its maximum."""
NOWHERE = 1e-200
"""Where the marginal's embedding is at most this at all points, a posterior over it says nothing."""
FUNCTION_CUTOFF = 1e-10
"""Relative singular values under this are dropped when a function is recovered from its values."""


class Operators(Protocol):
    """What a way of making operators owes to inference.

    Messages to a node of variable v are values at ``support(v)``, q of them. ``toward`` is the end of
    a relation (0 first, 1 second) that receives.
    """

    @property
    def signed(self) -> bool:
        """Whether messages may be negative."""

    def support(self, variable: str) -> Column:
        """The q support points of a variable."""

    def support_weights(self, variable: str) -> Matrix:
        """The marginal as a measure on them, (q,)."""

    def operator(
        self,
        relation: str,
        toward: int,
        readings: NDArray[Any] | None,
        weights: Matrix | None,
        dtype: DTypeLike,
    ) -> EdgeOperator:
        """The operator of a relation in one direction, (q receiving, q sending), for all edges or by edge.

        `readings` and `weights` have an entry for each edge of the graph.
        """

    def log_scales(self, relation: str, readings: NDArray[Any] | None, edges: NDArray[np.intp]) -> Matrix:
        """Logarithm of what a relation's potential was divided by to make its operators, by edge (n,)."""

    def evidence(
        self,
        relation: str,
        toward: int,
        values: Column,
        points: Column | None = None,
        readings: NDArray[Any] | None = None,
    ) -> Matrix:
        """What n observed values of the sending end say at the support (or other points), (n, q)."""

    def interpolates(self, relation: str) -> bool:
        """Whether evidence of a relation between support points is read from that at them, as messages are."""

    def resolution(self, variable: str, atoms: Column, candidates: Column) -> Matrix | None:
        """How far apart values must lie to be told apart, as a smoothing matrix; None if it does not matter."""

    def function(self, variable: str) -> Matrix:
        """The matrix (l, q) that takes a message's values to its coefficients in an orthonormal basis."""

    def interpolation(self, variable: str, points: Column) -> Matrix:
        """The matrix (n, q) that takes a message's values at the support to its values at n points."""


@dataclass(frozen=True)
class LearnedRelation:
    """What was learned of a relation.

    Attributes
    ----------
    first, second : its variables
    table : counts of pairs
    moments : sums over pairs, for the embedding operators
    regularization : the paper's lambda
    evidence : how observed second values speak about the first
    joint : (q_first, q_second) probabilities of pairs of states, smoothed
    smoothing : how, and what was mixed in
    predictor : what tells the first from an observed second in probability conditionals; None to count
    reading : the likelihood of an observed second there by location, scale and shape; None to count
    """

    first: str
    second: str
    table: Table
    moments: Moments
    regularization: float
    evidence: EvidenceForm
    joint: Matrix
    smoothing: Smoothing
    predictor: Predictor | None = None
    reading: ReadingLikelihood | None = None

    def ends(self, toward: int) -> tuple[str, str]:
        """(receiving variable, sending variable)."""
        return (self.first, self.second) if toward == 0 else (self.second, self.first)

    def facing(self, toward: int) -> Table:
        """The table with the receiving end in its rows."""
        return self.table if toward == 0 else self.table.T.tocsr()


@dataclass(frozen=True)
class EmbeddingOperators:
    """The paper as written: conditional embedding operators, messages of either sign."""

    embeddings: Mapping[str, Embedding]
    relations: Mapping[str, LearnedRelation]
    update: Update = "constant"
    signed: bool = field(default=True, init=False)
    _made: dict[tuple[str, int], Conditional] = field(default_factory=dict, init=False, repr=False)

    def support(self, variable: str) -> Column:
        """Pivots of k^p for the constant update, else all training values."""
        embedding = self.embeddings[variable]
        return embedding.support.points if self.update == "constant" else embedding.examples.values

    def support_weights(self, variable: str) -> Matrix:
        """The marginal as a measure on the support."""
        embedding = self.embeddings[variable]
        if self.update == "constant":
            return embedding.support_weights
        return embedding.examples.counts / embedding.examples.counts.sum()

    def operator(
        self,
        relation: str,
        toward: int,
        readings: NDArray[Any] | None,
        weights: Matrix | None,
        dtype: DTypeLike,
    ) -> EdgeOperator:
        """The conditional embedding, the same for all edges."""
        return self.conditional(relation, toward).astype(dtype)

    def log_scales(self, relation: str, readings: NDArray[Any] | None, edges: NDArray[np.intp]) -> Matrix:
        """Embeddings are used as they are."""
        return np.zeros(len(edges))

    def conditional(self, relation: str, toward: int) -> Conditional:
        """Equation (12) or (15), by the update chosen."""
        key = (relation, toward)
        if key not in self._made:
            learned = self.relations[relation]
            receiver = self.embeddings[learned.ends(toward)[0]]
            if self.update == "constant":
                made = constant_conditional(learned.moments, toward, receiver, learned.regularization)
            elif self.update == "linear":
                made = linear_conditional(learned.facing(toward), receiver, learned.regularization)
            else:
                made = full_conditional(learned.facing(toward), receiver, learned.regularization)
            self._made[key] = made
        return self._made[key]

    def evidence(
        self,
        relation: str,
        toward: int,
        values: Column,
        points: Column | None = None,
        readings: NDArray[Any] | None = None,
    ) -> Matrix:
        """<phi(y), U phi(x)> (likelihood) or mu_{X|y}(x) / mu_X(x) (posterior) at the support points."""
        learned = self.relations[relation]
        receiver, sender = (self.embeddings[name] for name in learned.ends(toward))
        if learned.evidence == "estimator":
            raise UnsupportedError(
                f"relation {relation!r}: evidence from an estimator needs conditionals='probability'; "
                "with conditionals='embedding' it is 'likelihood' or 'posterior'"
            )
        if learned.evidence == "posterior":
            return self._posterior(learned, toward, values, points)
        if self.update == "full":
            # The message of an observed y is the function k(y, .) sent through the same operator.
            similar = np.asarray(sender.kernel(values, sender.examples.values), dtype=np.float64)
            sent: Matrix = np.asarray(self.conditional(relation, toward).apply(similar), dtype=np.float64)
            return sent if points is None else sent @ self.interpolation(learned.ends(toward)[0], points).T
        at = receiver.basis.coordinates(self.support(learned.ends(toward)[0]) if points is None else points)
        cross = learned.moments.cross if toward == 0 else learned.moments.cross.T
        ridge = learned.regularization * learned.moments.total
        operator = at.T @ ridge_solve(learned.moments.auto[toward], ridge, cross)
        likelihood: Matrix = sender.basis.coordinates(values).T @ operator.T
        return likelihood

    def _posterior(
        self, learned: LearnedRelation, toward: int, values: Column, points: Column | None
    ) -> Matrix:
        receiver, sender = (self.embeddings[name] for name in learned.ends(toward))
        where = self.support(learned.ends(toward)[0]) if points is None else points
        cross = learned.moments.cross if toward == 0 else learned.moments.cross.T
        ridge = learned.regularization * learned.moments.total
        at = receiver.basis.coordinates(where).T
        weights = ridge_solve(learned.moments.auto[1 - toward], ridge, cross.T)
        posterior = sender.basis.coordinates(values).T @ weights @ at.T
        prior = at @ receiver.mean
        posterior = np.maximum(posterior, POSTERIOR_FLOOR * np.abs(posterior).max(axis=1, keepdims=True))
        floor = POSTERIOR_FLOOR * np.abs(prior).max(initial=0.0)
        if not floor > NOWHERE:
            return np.ones_like(posterior)
        ratio: Matrix = posterior / np.maximum(prior, floor)
        return ratio

    def interpolates(self, relation: str) -> bool:
        """Evidence is a function of its own."""
        return False

    def resolution(self, variable: str, atoms: Column, candidates: Column) -> Matrix | None:
        """Messages are functions, known everywhere."""
        return None

    def function(self, variable: str) -> Matrix:
        """Values at the support to coefficients: E^+ for the low-rank updates, L^{+1/2} for the full one."""
        embedding = self.embeddings[variable]
        if self.update == "full":
            eigenvalues, vectors = scipy.linalg.eigh(
                np.asarray(embedding.kernel(embedding.examples.values), dtype=np.float64)
            )
            kept = eigenvalues > FUNCTION_CUTOFF * eigenvalues[-1]
            root: Matrix = vectors[:, kept].T / np.sqrt(eigenvalues[kept, None])
            return root
        recovered: Matrix = scipy.linalg.pinv(
            embedding.basis.coordinates(self.support(variable)).T, rtol=FUNCTION_CUTOFF
        )
        return recovered

    def interpolation(self, variable: str, points: Column) -> Matrix:
        """The one function of the message's space through its values: r(x)' E^+."""
        embedding = self.embeddings[variable]
        if self.update == "full":
            root = self.function(variable)
            similar = np.asarray(embedding.kernel(points, embedding.examples.values), dtype=np.float64)
            full: Matrix = similar @ root.T @ root
            return full
        low: Matrix = embedding.basis.coordinates(points).T @ self.function(variable)
        return low


@dataclass(frozen=True)
class ProbabilityOperators:
    """Conditionals that are probability tables on states: positive messages, a genuine finite model.

    `mixings` has the share of independence in each learned relation.
    """

    embeddings: Mapping[str, Embedding]
    relations: Mapping[str, LearnedRelation]
    known: Mapping[str, KnownRelation]
    mixings: Mapping[str, float]
    signed: bool = field(default=False, init=False)

    def support(self, variable: str) -> Column:
        """The states."""
        return self.embeddings[variable].states.points

    def support_weights(self, variable: str) -> Matrix:
        """Probabilities of the states."""
        return self.embeddings[variable].state_weights

    def operator(
        self,
        relation: str,
        toward: int,
        readings: NDArray[Any] | None,
        weights: Matrix | None,
        dtype: DTypeLike,
    ) -> EdgeOperator:
        """A probability table for learned relations, the potential on the states for known ones."""
        if relation not in self.known:
            return self.conditional(relation, toward).astype(dtype)
        known = self.known[relation]
        ends = (self.support(known.first), self.support(known.second))
        sender = self.support_weights(known.ends(toward)[1])
        return potential_operator(known.potential, toward, ends, sender, readings, weights, dtype)

    def log_scales(self, relation: str, readings: NDArray[Any] | None, edges: NDArray[np.intp]) -> Matrix:
        """What operators of known relations were divided by, by edge; nothing for learned ones."""
        if relation not in self.known:
            return np.zeros(len(edges))
        known = self.known[relation]
        ends = (self.support(known.first), self.support(known.second))
        return log_scales(known.potential, ends, readings, edges)

    def ratio(self, relation: str, toward: int) -> Matrix:
        """P(x_s, x_t) / P(x_s) P(x_t), receiving end in rows."""
        table = density_ratio(self.relations[relation].joint, self.mixings[relation])
        return table if toward == 0 else table.T

    def conditional(self, relation: str, toward: int) -> Conditional:
        """M >= 0 with M 1 = 1: the probability of each state of the sender, given one of the receiver."""
        learned = self.relations[relation]
        sender = learned.joint.sum(axis=toward)
        table = self.ratio(relation, toward) * sender
        return Conditional(table / table.sum(axis=1, keepdims=True))

    def evidence(
        self,
        relation: str,
        toward: int,
        values: Column,
        points: Column | None = None,
        readings: NDArray[Any] | None = None,
    ) -> Matrix:
        """w(x)' R w(y), the density ratio counted; w(x)' r(y), predicted or of readings; or a known potential."""
        if relation in self.known:
            known = self.known[relation]
            where = self.support(known.ends(toward)[0]) if points is None else points
            return known.potential.paired(toward, where, values, readings)
        learned = self.relations[relation]
        receiver, sender = (self.embeddings[name] for name in learned.ends(toward))
        if learned.predictor is not None and toward == 0:
            speaking = learned.predictor.ratio(values, sender.basis)
        elif learned.reading is not None and toward == 0:
            speaking = learned.reading.ratio(values)
        else:
            speaking = assign(sender.states, values) @ self.ratio(relation, toward).T
        return speaking if points is None else speaking @ assign(receiver.states, points).T.toarray()

    def interpolates(self, relation: str) -> bool:
        """Learned relations speak of the states; potentials are known everywhere."""
        return relation not in self.known

    def resolution(self, variable: str, atoms: Column, candidates: Column) -> Matrix | None:
        """The kernel at the power at which neighbouring states overlap."""
        states = self.embeddings[variable].states
        if domain(states.kernel) == "finite":
            return None
        return Normalised(states.kernel)(atoms, candidates) ** states.power

    def function(self, variable: str) -> Matrix:
        """Messages are tables of values: no basis but the states."""
        return np.eye(len(self.embeddings[variable].states))

    def interpolation(self, variable: str, points: Column) -> Matrix:
        """w(x): between states a message is a mean of its values there."""
        return assign(self.embeddings[variable].states, points).toarray()
