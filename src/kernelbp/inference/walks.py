"""Loop-erased random walks, compiled: uniformly random spanning trees by Wilson's algorithm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit

__all__ = ["count_spanning_trees"]

Integers = NDArray[np.int64]


@jit
def count_spanning_trees(
    begin: Integers,
    neighbours: Integers,
    edge_of: Integers,
    roots: Integers,
    trees: int,
    most_steps: int,
    counts: Integers,
) -> int:
    """Draw spanning trees and add 1 to `counts` for every edge of each.

    Parameters
    ----------
    begin, neighbours, edge_of : adjacency lists, with the edge each neighbour is reached by
    roots : one node of each component
    trees : how many to draw
    most_steps : give up on a tree that takes more random steps than this
    counts : (edges,) written in place

    Returns
    -------
    int
        Trees drawn; fewer than asked if one took too long.
    """
    np.random.seed(20030411)  # noqa: NPY002 - the generator that compiled code has
    nodes = len(begin) - 1
    inside = np.empty(nodes, dtype=np.bool_)
    way = np.empty(nodes, dtype=np.int64)
    for tree in range(trees):
        inside[:] = False
        inside[roots] = True
        steps = 0
        for node in range(nodes):
            here = node
            while not inside[here]:
                way[here] = begin[here] + np.random.randint(0, begin[here + 1] - begin[here])  # noqa: NPY002
                here = neighbours[way[here]]
                steps += 1
                if steps > most_steps:
                    return tree
            here = node
            while not inside[here]:
                inside[here] = True
                counts[edge_of[way[here]]] += 1
                here = neighbours[way[here]]
    return trees
