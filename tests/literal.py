"""The paper's equations transcribed letter by letter, to judge the library by: m x m matrices, edge by edge.

A message is kept as the paper keeps it, coefficients on kernel functions: beta on all training values of
its relation for the full update (12), alpha on the chosen points for the constant-time one (15). Nothing is
merged, nothing is factored but what the paper factors, and nothing is taken from the library except the
kernels and the points it chose (the paper's I, I' and J).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Column = NDArray[Any]
Message = Callable[[Column], Matrix]

# ---------------------------------------------------------------------- operators


def full_beta(L: Matrix, lam: float, products: Matrix) -> Matrix:
    """(12): beta_ts = (L + lambda m I)^{-1} (product of K beta_ut); `products` are (m,) or (m, n)."""
    m = len(L)
    return np.linalg.solve(L + lam * m * np.eye(m), products)


def gram_schmidt_weights(K_II: Matrix, K_I: Matrix) -> Matrix:
    """Section 5.1: W = R_I^{-1} R with R = R_I^{-T} K_I, where R_I'R_I = K_II; (l, m)."""
    R_I = np.linalg.cholesky(K_II).T
    R = np.linalg.solve(R_I.T, K_I)
    return np.linalg.solve(R_I, R)


def constant_W_ts(W_tensor: Matrix, W_s: Matrix, L_JJ: Matrix, lam: float) -> Matrix:
    """Section 5.3: W_ts = W_t^tensor (W_s' L_JJ W_s + lambda m I)^{-1} W_s', an m x m inverse."""
    m = W_s.shape[1]
    return W_tensor @ np.linalg.solve(W_s.T @ L_JJ @ W_s + lam * m * np.eye(m), W_s.T)


def constant_W_ts_woodbury(W_tensor: Matrix, W_s: Matrix, L_JJ: Matrix, lam: float) -> Matrix:
    """The same as the paper expands it: W_t^tensor W_s' (W_s W_s' + lambda m L_JJ^{-1})^{-1} L_JJ^{-1}."""
    m = W_s.shape[1]
    inverse = np.linalg.inv(L_JJ)
    return W_tensor @ W_s.T @ np.linalg.inv(W_s @ W_s.T + lam * m * inverse) @ inverse


# ---------------------------------------------------------------------- messages as functions


@dataclass(frozen=True)
class Function:
    """Sum over i of coefficients[i] k(points[i], .)."""

    kernel: Any
    points: Column
    coefficients: Matrix

    def __call__(self, values: Column) -> Matrix:
        return np.asarray(self.kernel(values, self.points)) @ self.coefficients

    def times(self, factor: float) -> Function:
        return Function(self.kernel, self.points, factor * self.coefficients)


def one(values: Column) -> Matrix:
    """The first message."""
    return np.ones(len(values))


def feature(kernel: Any, value: Column) -> Function:
    """The message of an observed value: phi(y)."""
    return Function(kernel, value, np.ones(1))


@dataclass(frozen=True)
class Variable:
    """A kernel and the points chosen for it: `basis` is the paper's I (or J), `support` its I'."""

    kernel: Any
    basis: Column
    support: Column
    power: int

    def gram(self, first: Column, second: Column, power: int = 1) -> Matrix:
        return np.asarray(self.kernel(first, second)) ** power


@dataclass(frozen=True)
class Sample:
    """Training pairs of one relation in one direction: x_t sends, x_s receives."""

    t: Variable
    s: Variable
    x_t: Column
    x_s: Column
    lam: float


def send_full(sample: Sample, incoming: Sequence[Message], *, evidence: bool) -> Function:
    """Equations (11) and (12)."""
    K_beta = np.ones(len(sample.x_t))
    for message in incoming:
        K_beta = K_beta * message(sample.x_t)
    L = sample.s.gram(sample.x_s, sample.x_s)
    return Function(sample.s.kernel, sample.x_s, full_beta(L, sample.lam, K_beta))


def send_linear(sample: Sample, incoming: Sequence[Message], *, evidence: bool) -> Function:
    """(12) with K and L replaced by W_t' K_II W_t and W_s' L_JJ W_s (start of Section 5.2, appendix 3)."""
    t, s = sample.t, sample.s
    W_t = gram_schmidt_weights(t.gram(t.basis, t.basis), t.gram(t.basis, sample.x_t))
    W_s = gram_schmidt_weights(s.gram(s.basis, s.basis), s.gram(s.basis, sample.x_s))
    L_JJ = s.gram(s.basis, s.basis)
    K_beta = np.ones(len(sample.x_t))
    for message in incoming:
        # <m_ut, Phi_I W_t>: the message at the chosen points, then the weights. The constant is not in
        # the space and stays as it is.
        K_beta = K_beta * (one(sample.x_t) if message is one else message(t.basis) @ W_t)
    beta = full_beta(W_s.T @ L_JJ @ W_s, sample.lam, K_beta)
    return Function(s.kernel, s.basis, W_s @ beta)


def send_constant(sample: Sample, incoming: Sequence[Message], *, evidence: bool) -> Function:
    """(15): alpha_ts = W_ts' (product of K_I'I alpha_ut).

    A reading is the only message at its node, so that its tensor features are phi itself: I' = I.
    """
    t, s = sample.t, sample.s
    points, power = (t.basis, 1) if evidence else (t.support, t.power)
    W_tensor = gram_schmidt_weights(t.gram(points, points, power), t.gram(points, sample.x_t, power))
    W_s = gram_schmidt_weights(s.gram(s.basis, s.basis), s.gram(s.basis, sample.x_s))
    W_ts = constant_W_ts(W_tensor, W_s, s.gram(s.basis, s.basis), sample.lam)
    K_alpha = np.ones(len(points))
    for message in incoming:
        K_alpha = K_alpha * message(points)
    return Function(s.kernel, s.basis, W_ts.T @ K_alpha)


RULES = {"full": send_full, "linear": send_linear, "constant": send_constant}

# ---------------------------------------------------------------------- belief propagation


@dataclass(frozen=True)
class Edge:
    """An edge whose first end belongs to the first variable of its relation."""

    first: int
    second: int
    relation: str


@dataclass(frozen=True)
class Problem:
    """A graph with evidence, and the training pairs behind it.

    Attributes
    ----------
    edges : the edges
    samples : by (relation, end that receives: 0 or 1)
    readings : (node, relation, value as a column of one), the relation's first variable being the node's
    known : node -> its value as a column of one
    scale_at : node -> the points at which its messages are scaled to a largest magnitude of 1
    """

    edges: Sequence[Edge]
    samples: Mapping[tuple[str, int], Sample]
    readings: Sequence[tuple[int, str, Column]]
    known: Mapping[int, Column]
    scale_at: Mapping[int, Column]


Messages = dict[tuple[int, int], Message]
"""By (number of the edge, end that receives)."""


def evidence_at(problem: Problem, rule: str) -> dict[int, list[Message]]:
    """What readings and known neighbours say to each node: <phi(y), U phi(x)>."""
    told: dict[int, list[Message]] = {node: [] for node in problem.scale_at}
    for node, relation, value in problem.readings:
        sample = problem.samples[relation, 0]
        told[node].append(RULES[rule](sample, [feature(sample.t.kernel, value)], evidence=True))
    for edge in problem.edges:
        ends = (edge.first, edge.second)
        for toward in (0, 1):
            receiver, sender = ends[toward], ends[1 - toward]
            if sender in problem.known and receiver not in problem.known:
                sample = problem.samples[edge.relation, toward]
                sent = feature(sample.t.kernel, problem.known[sender])
                told[receiver].append(RULES[rule](sample, [sent], evidence=True))
    return told


def propagate(problem: Problem, rule: str, iterations: int) -> Iterator[Messages]:
    """All messages at once, from messages of ones: the messages after each iteration."""
    told = evidence_at(problem, rule)
    live = [
        (number, toward)
        for number, edge in enumerate(problem.edges)
        for toward in (0, 1)
        if edge.first not in problem.known and edge.second not in problem.known
    ]
    messages: Messages = dict.fromkeys(live, one)
    for _ in range(iterations):
        new: Messages = {}
        for number, toward in live:
            edge = problem.edges[number]
            receiver, sender = (edge.first, edge.second)[:: 1 - 2 * toward]
            incoming = [
                message
                for (other, end), message in messages.items()
                if other != number
                and (problem.edges[other].first, problem.edges[other].second)[end] == sender
            ]
            sample = problem.samples[edge.relation, toward]
            sent = RULES[rule](sample, [*incoming, *told[sender]], evidence=False)
            values = sent(problem.scale_at[receiver])
            new[number, toward] = sent.times(1 / values[np.abs(values).argmax()])
        messages = new
        yield messages


def belief_product(problem: Problem, rule: str, messages: Messages, node: int, points: Column) -> Matrix:
    """Product over u of m_us at points, the evidence included."""
    product = np.ones(len(points))
    for (number, end), message in messages.items():
        edge = problem.edges[number]
        if (edge.first, edge.second)[end] == node:
            product = product * message(points)
    for message in evidence_at(problem, rule)[node]:
        product = product * message(points)
    return product
