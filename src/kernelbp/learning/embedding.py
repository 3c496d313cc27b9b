r"""From merged pairs to the few matrices that every conditional embedding operator is made of.

A variable is represented by two bases (paper, Section 5): one of its features :math:`\phi` (kernel k),
in which messages live, and one of its tensor features :math:`\xi` (kernel :math:`k^p`), whose points
Z are the *support points* at which products of messages are evaluated. A relation is then summed up by
its `Moments`, which no longer depend on the number of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.kernels import Kernel, resolve
from kernelbp.learning.examples import Table, VariableExamples
from kernelbp.learning.probability import States, choose_states, mean_measure
from kernelbp.lowrank import Basis, LowRank, pivoted_cholesky
from kernelbp.values import Column

__all__ = ["Embedding", "Moments", "embed_variable", "relation_moments"]

Matrix = NDArray[np.float64]

CHUNK = 1 << 16
"""Pairs taken at a time when summing over a table: coordinates of a chunk stay a few megabytes."""


@dataclass(frozen=True)
class Embedding:
    """How one variable is represented.

    Attributes
    ----------
    kernel : its kernel, with every setting a number
    examples : its distinct training values
    basis : l points, orthonormal basis of the features (the paper's I)
    support : q points, basis of the tensor features (the paper's I')
    residuals : how well the two represent every training value (the paper's epsilon)
    stopped : why each of the two ended
    states : support points of the probability conditionals
    state_weights : (q,) the marginal as probabilities of the states
    only_read : whether it is a long vector of features that is never inferred: then there is but one state
    """

    kernel: Kernel
    examples: VariableExamples
    basis: Basis
    support: Basis
    residuals: tuple[float, float]
    stopped: tuple[str, str]
    states: States
    state_weights: Matrix
    only_read: bool = False

    @cached_property
    def at_support(self) -> Matrix:
        """Basis functions at the support points, E = r(Z)', shape (q, l)."""
        return self.basis.coordinates(self.support.points).T

    @cached_property
    def mean(self) -> Matrix:
        """The marginal's embedding in the basis, mu = E[r(X)], shape (l,)."""
        return _weighted_mean(self.basis, self.examples)

    @cached_property
    def support_weights(self) -> Matrix:
        """The marginal as a measure on the support points, with E[f(X)] ~ sum_j w_j f(z_j), shape (q,)."""
        total = np.zeros(len(self.support))
        for rows in _blocks(len(self.examples.values)):
            total += self.support.weights(self.examples.values[rows]) @ self.examples.counts[rows]
        return total / self.examples.counts.sum()

    def embedding_of_marginal(self, values: Column) -> Matrix:
        """<mu_X, phi(x)>, the kernel-smoothed marginal up to scale, shape (n,)."""
        smooth: Matrix = self.mean @ self.basis.coordinates(values)
        return smooth


def embed_variable(
    kernel: Kernel,
    examples: VariableExamples,
    *,
    power: int,
    residual: float,
    max_rank: int | None,
    budget: int,
    landmarks: Column | None = None,
    only_read: bool = False,
) -> Embedding:
    """Choose the basis and the support points of a variable.

    Parameters
    ----------
    kernel : Kernel
        Settings such as ``"median"`` are worked out from the examples first.
    examples : VariableExamples
    power : int
        The paper's d - 1, for the largest degree the variable's nodes are meant to have.
    residual : float
        The paper's epsilon, relative to the largest ||phi(x)||.
    max_rank : int, optional
    budget : int
        Most states of the probability conditionals.
    landmarks : column, optional
        The user's own points for both bases and the states.
    only_read : bool
        No support points or states are chosen for it.
    """
    kernel = resolve(kernel, examples.values, examples.counts.astype(np.intp))
    largest = float(np.sqrt(max(np.max(kernel.diag(examples.values)), 0.0))) or 1.0
    values = examples.values if landmarks is None else np.concatenate([landmarks, examples.values])
    own = None if landmarks is None else np.arange(len(landmarks))

    def factor(exponent: int) -> LowRank:
        return pivoted_cholesky(
            kernel,
            values,
            power=exponent,
            residual=residual * largest**exponent,
            max_rank=max_rank,
            landmarks=own,
        )

    plain = factor(1)
    tensor = plain if power == 1 or only_read else factor(power)
    if only_read:
        states = States(kernel, 1, examples.values[:1])
    elif landmarks is None:
        states = choose_states(kernel, examples.values, budget)
    else:
        states = choose_states(kernel, landmarks, len(landmarks))
    return Embedding(
        kernel,
        examples,
        plain.basis,
        tensor.basis,
        (plain.residual, tensor.residual),
        (plain.stopped, tensor.stopped),
        states,
        np.ones(1) if only_read else mean_measure(states, examples.values, examples.counts),
        only_read,
    )


@dataclass(frozen=True)
class Moments:
    """All that a relation's pairs contribute, for first variable s and second variable t.

    Attributes
    ----------
    total : number of pairs, the paper's m
    auto : sums over pairs of r_s r_s' (l_s, l_s) and of r_t r_t' (l_t, l_t)
    cross : sum over pairs of r_s r_t', shape (l_s, l_t)
    tensor : sums over pairs of r_s w_t' (l_s, q_t) and of r_t w_s' (l_t, q_s), with w the weights on
        the other end's support points (the paper's W^tensor)
    """

    total: float
    auto: tuple[Matrix, Matrix]
    cross: Matrix
    tensor: tuple[Matrix, Matrix]


def relation_moments(table: Table, first: Embedding, second: Embedding) -> Moments:
    """Sum a relation's pairs up, in chunks: O(m l q) time, memory independent of m."""
    symmetric = first is second
    auto_first = np.zeros((len(first.basis), len(first.basis)))
    cross = np.zeros((len(first.basis), len(second.basis)))
    to_first = np.zeros((len(first.basis), len(second.support)))
    to_second = np.zeros((len(second.basis), len(first.support)))
    auto_second = np.zeros((len(second.basis), len(second.basis)))
    for rows in _row_blocks(table):
        block = scipy.sparse.csr_array(table[rows])
        columns, local = np.unique(block.indices, return_inverse=True)
        block = scipy.sparse.csr_array(
            (block.data, local.reshape(-1), block.indptr), shape=(block.shape[0], len(columns))
        )
        first_values, second_values = first.examples.values[rows], second.examples.values[columns]
        first_features, second_features = (
            first.basis.coordinates(first_values),
            second.basis.coordinates(second_values),
        )
        auto_first += (first_features * block.sum(axis=1)) @ first_features.T
        auto_second += (second_features * block.sum(axis=0)) @ second_features.T
        cross += first_features @ (block @ second_features.T)
        to_first += first_features @ (block @ second.support.weights(second_values).T)
        to_second += second_features @ (block.T @ first.support.weights(first_values).T)
    if symmetric and abs(table - table.T).max() == 0:
        # The same sums in another order: keep one, so that both directions agree to the last bit.
        auto_second, to_second, cross = auto_first, to_first, (cross + cross.T) / 2
    return Moments(float(table.sum()), (auto_first, auto_second), cross, (to_first, to_second))


def _weighted_mean(basis: Basis, examples: VariableExamples) -> Matrix:
    total = np.zeros(len(basis))
    for rows in _blocks(len(examples.values)):
        total += basis.coordinates(examples.values[rows]) @ examples.counts[rows]
    return total / examples.counts.sum()


def _blocks(size: int) -> list[slice]:
    return [slice(begin, min(begin + CHUNK, size)) for begin in range(0, size, CHUNK)]


def _row_blocks(table: Table) -> list[slice]:
    """Slices of rows holding about CHUNK entries each (a single row may hold more)."""
    wanted = np.arange(0, table.nnz, CHUNK)
    begins = np.unique(np.searchsorted(table.indptr, wanted, side="right") - 1)
    ends = np.append(begins[1:], table.shape[0])
    return [slice(int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)]
