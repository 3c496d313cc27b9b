r"""Max-product: the engine of sum-product with another operator.

Where sum-product sends :math:`\sum_j M[s, j]\, c[j]`, max-product sends :math:`\max_j M[s, j]\, c[j]`. Nothing else of a
message update changes, so schedules, weights, damping and beliefs are those of `kernelbp.inference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit
from kernelbp.learning.conditionals import Conditional, EdgeOperator
from kernelbp.learning.potentials import BLOCK_BYTES, _PotentialByEdge

__all__ = ["Largest", "LargestByEdge", "max_product"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Largest:
    """One table for all edges of a relation.

    Attributes
    ----------
    table : (q_t, q_s), the operator transposed: rows are the sender's levels
    """

    table: Array

    def apply(self, products: Array, edges: NDArray[np.intp] | None = None) -> Array:
        """Messages (n, q_s) from products (n, q_t)."""
        made = np.zeros((len(products), self.table.shape[1]), dtype=products.dtype)
        _largest(self.table, products, made)
        return made


@dataclass(frozen=True)
class LargestByEdge:
    """A table for each edge, made in blocks."""

    inner: _PotentialByEdge

    def apply(self, products: Array, edges: NDArray[np.intp]) -> Array:
        """Messages (n, q_s) from products (n, q_t), each through its own edge's table."""
        receiving, sending = (len(self.inner.ends[end]) for end in (self.inner.toward, 1 - self.inner.toward))
        made = np.empty((len(products), receiving), dtype=products.dtype)
        block = max(1, BLOCK_BYTES // (8 * receiving * sending))
        for begin in range(0, len(products), block):
            part = slice(begin, begin + block)
            made[part] = (self.inner._made(edges[part]) * products[part, None, :]).max(axis=2)
        return made


def max_product(operator: EdgeOperator) -> EdgeOperator:
    """The max-product counterpart of a sum-product operator."""
    if isinstance(operator, Conditional):
        return Largest(np.ascontiguousarray(operator.matrix().T))
    assert isinstance(operator, _PotentialByEdge)
    return LargestByEdge(operator)


@jit
def _largest(table: Array, products: Array, made: Array) -> None:
    """Four levels of the sender at a time: each value of the message is then read and written a quarter as often."""
    count, sending = products.shape
    receiving = table.shape[1]
    whole = sending - sending % 4
    for i in range(count):
        out = made[i]
        for j in range(0, whole, 4):
            a, b, c, d = products[i, j], products[i, j + 1], products[i, j + 2], products[i, j + 3]
            first, second, third, fourth = table[j], table[j + 1], table[j + 2], table[j + 3]
            for s in range(receiving):
                one = max(first[s] * a, second[s] * b)
                other = max(third[s] * c, fourth[s] * d)
                out[s] = max(out[s], max(one, other))
        for j in range(whole, sending):
            factor = products[i, j]
            for s in range(receiving):
                out[s] = max(out[s], table[j, s] * factor)
