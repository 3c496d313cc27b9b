r"""Conditional operators: what turns a product of messages at one node into a message to its neighbour.

A message from t to s is passed as its values at the support points of s. With V the values of the
product at the support points of t, every update of the library is

.. math:: v_{ts} = M_{ts} V, \qquad M_{ts} = E_s T_{ts},

and only the making of :math:`M` differs:

========  ==============================  =========================================================
update    support points                  operator
========  ==============================  =========================================================
full      all training values             equations (11), (12): :math:`L (L + \lambda m I)^{-1}`
linear    all training values             low-rank kernel matrices only (appendix 3)
constant  pivots of :math:`k^p`           :math:`T = (R_s R_s' + \lambda m I)^{-1} R_s W_t'`, Section 5.3
========  ==============================  =========================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray

from kernelbp.learning.embedding import Embedding, Moments
from kernelbp.learning.examples import Table
from kernelbp.lowrank import ROUNDING

__all__ = [
    "Conditional",
    "EdgeOperator",
    "constant_conditional",
    "full_conditional",
    "linear_conditional",
    "ridge_solve",
]

Matrix = NDArray[np.float64]


class EdgeOperator(Protocol):
    """What is applied to products of messages: the same for all edges, or one for each."""

    def apply(self, products: NDArray[np.floating], edges: NDArray[np.intp]) -> NDArray[np.floating]:
        """Messages (n, q_s) from products (n, q_t) along n edges of the graph."""


@dataclass(frozen=True)
class Conditional:
    """The operator M of one relation in one direction, whole or as two thin factors.

    Attributes
    ----------
    right : (q_s, q_t), or (l, q_t) if there is a left factor
    left : (q_s, l) or None
    """

    right: NDArray[np.floating]
    left: NDArray[np.floating] | None = None

    @classmethod
    def of(cls, left: Matrix, right: Matrix) -> Conditional:
        """Keep the product of two factors in whichever form is cheaper to apply."""
        rank, (rows, columns) = left.shape[1], (left.shape[0], right.shape[1])
        if rank * (rows + columns) < rows * columns:
            return cls(right, left)
        return cls(left @ right)

    def apply(
        self, products: NDArray[np.floating], edges: NDArray[np.intp] | None = None
    ) -> NDArray[np.floating]:
        """Messages (n, q_s) from products (n, q_t): one matrix product, or two thin ones."""
        sent: NDArray[np.floating] = products @ self.right.T
        return sent if self.left is None else sent @ self.left.T

    def matrix(self) -> NDArray[np.floating]:
        """M as one matrix, (q_s, q_t)."""
        return self.right if self.left is None else self.left @ self.right

    def astype(self, dtype: DTypeLike) -> Conditional:
        """The same operator in another precision."""
        return Conditional(self.right.astype(dtype), None if self.left is None else self.left.astype(dtype))


def ridge_solve(gram: Matrix, ridge: float, right: Matrix) -> Matrix:
    """(gram + ridge I)^{-1} right for a positive semidefinite matrix; the pseudo-inverse if ridge is 0."""
    if ridge > 0:
        try:
            solved: Matrix = scipy.linalg.cho_solve(
                scipy.linalg.cho_factor(gram + ridge * np.eye(len(gram))), right
            )
            return solved
        except np.linalg.LinAlgError:
            pass  # the ridge is lost in the rounding of a large gram: its eigenvectors tell them apart
    values, vectors = scipy.linalg.eigh(gram)
    kept = values + ridge > len(gram) * ROUNDING * max(values[-1], 0.0)
    projected: Matrix = vectors[:, kept] @ ((vectors[:, kept].T @ right) / (values[kept, None] + ridge))
    return projected


def constant_conditional(
    moments: Moments, toward: int, receiver: Embedding, regularization: float
) -> Conditional:
    """Section 5.3: cost independent of the number of pairs. `toward` is the end (0 or 1) that receives."""
    ridge = regularization * moments.total
    return Conditional.of(
        receiver.at_support, ridge_solve(moments.auto[toward], ridge, moments.tensor[toward])
    )


def linear_conditional(table: Table, receiver: Embedding, regularization: float) -> Conditional:
    """Appendix 3: low-rank kernel matrices, products over all training values. Rows of `table` receive."""
    coordinates = receiver.basis.coordinates(receiver.examples.values)
    counts = table.sum(axis=1)
    gram = (coordinates * counts) @ coordinates.T
    right = ridge_solve(gram, regularization * float(table.sum()), (table.T @ coordinates.T).T)
    return Conditional(right, coordinates.T.copy())


def full_conditional(table: Table, receiver: Embedding, regularization: float) -> Conditional:
    """Equations (11) and (12), with equal values merged. Rows of `table` receive.

    With P the matrix that repeats distinct values as often as they occur and N = P'P, the push-through
    identity gives P' (P L P' + c I)^{-1} = N^{1/2} (N^{1/2} L N^{1/2} + c I)^{-1} N^{-1/2} P'.
    """
    counts = table.sum(axis=1)
    seen = np.flatnonzero(counts)
    root = np.sqrt(counts[seen])
    gram = np.asarray(
        receiver.kernel(receiver.examples.values, receiver.examples.values[seen]), dtype=np.float64
    )
    scaled = root[:, None] * gram[seen] * root
    solved = ridge_solve(scaled, regularization * float(table.sum()), table[seen].toarray() / root[:, None])
    return Conditional((gram * root) @ solved)
