r"""Edge weights: how often each edge appears in a random spanning tree.

Tree-reweighted belief propagation needs for each edge the probability :math:`\rho_e` that it is part of
a spanning tree drawn at random. For the uniformly random spanning tree that is the edge's effective
resistance, with every edge a unit resistor: 1 on bridges and trees, about 1/2 on a large grid.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = ["spanning_tree_weights"]

Indices = NDArray[np.intp]
Matrix = NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)

EXACT_NODES = 2000
"""Up to this many nodes the Laplacian is inverted as it stands."""
SAMPLED_TREES = 64
"""Spanning trees drawn where the graph is larger."""
MOST_STEPS = 400
"""Random steps per node after which loop-erased walks are given up: the graph has very long paths."""


def spanning_tree_weights(n_nodes: int, edges: Indices, shape: tuple[int, ...] | None = None) -> Matrix:
    """Appearance probabilities of the edges, shape (edges,), each in (0, 1].

    Exact on grids (by the Laplacian's known eigenvectors) and on graphs of up to 2,000 nodes;
    estimated from 64 uniformly random spanning trees (Wilson's algorithm) on larger ones, which are
    valid weights whatever their number.

    Parameters
    ----------
    n_nodes : int
    edges : (edges, 2) array of node numbers
    shape : the grid's shape, if the edges are those of a grid without diagonals and none is missing

    Examples
    --------
    >>> import numpy as np
    >>> triangle_with_tail = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])
    >>> spanning_tree_weights(4, triangle_with_tail).round(3)
    array([0.667, 0.667, 0.667, 1.   ])
    """
    if not len(edges):
        return np.empty(0)
    if shape is not None and _is_plain_grid(shape, edges):
        tree = len(edges) < n_nodes
        return np.ones(len(edges)) if tree else np.clip(_grid_resistances(shape, edges), TINY, 1.0)
    components, labels = scipy.sparse.csgraph.connected_components(_adjacency(n_nodes, edges), directed=False)
    if len(edges) == n_nodes - components:
        return np.ones(len(edges))
    if n_nodes <= EXACT_NODES:
        weights = _exact(n_nodes, edges, labels)
    else:
        weights = _sampled(n_nodes, edges, labels)
    return np.clip(weights, TINY, 1.0)


def _adjacency(n_nodes: int, edges: Indices) -> scipy.sparse.csr_array:
    ones = np.ones(len(edges))
    return scipy.sparse.csr_array((ones, (edges[:, 0], edges[:, 1])), shape=(n_nodes, n_nodes))


def _is_plain_grid(shape: tuple[int, ...], edges: Indices) -> bool:
    expected = sum(int(np.prod(shape)) // size * (size - 1) for size in shape)
    if len(edges) != expected:
        return False
    step = np.abs(
        np.stack(np.unravel_index(edges[:, 1], shape)) - np.stack(np.unravel_index(edges[:, 0], shape))
    )
    return bool((step.sum(axis=0) == 1).all())


def _grid_resistances(shape: tuple[int, ...], edges: Indices) -> Matrix:
    """Sum over eigenvectors of (difference across the edge)^2 / eigenvalue, axis by axis."""
    values, vectors = zip(*(_path_spectrum(size) for size in shape), strict=True)
    total = values[0]
    for other in values[1:]:
        total = np.add.outer(total, other)
    with np.errstate(divide="ignore"):
        inverse = np.where(total > 0, 1.0 / total, 0.0)
    inverse.flat[0] = 0.0
    start = np.unravel_index(edges.min(axis=1), shape)
    end = np.unravel_index(edges.max(axis=1), shape)
    resistance = np.empty(len(edges))
    for axis in range(len(shape)):
        along = end[axis] != start[axis]
        if not along.any():
            continue
        table = inverse
        for other in range(len(shape)):
            squares = np.diff(vectors[other], axis=0) ** 2 if other == axis else vectors[other] ** 2
            table = np.moveaxis(np.tensordot(squares, table, axes=(1, other)), 0, other)
        resistance[along] = table[tuple(index[along] for index in start)]
    return resistance


def _path_spectrum(size: int) -> tuple[Matrix, Matrix]:
    """Eigenvalues and orthonormal eigenvectors (nodes, modes) of the Laplacian of a path."""
    modes = np.arange(size)
    values = 2 - 2 * np.cos(np.pi * modes / size)
    vectors = np.cos(np.pi * np.outer(np.arange(size) + 0.5, modes) / size) * np.sqrt(2 / size)
    vectors[:, 0] = np.sqrt(1 / size)
    return values, vectors


def _exact(n_nodes: int, edges: Indices, labels: Indices) -> Matrix:
    """From the inverse of the Laplacian plus the projection on each component's constants."""
    laplacian = np.zeros((n_nodes, n_nodes))
    np.add.at(laplacian, (edges[:, 0], edges[:, 1]), -1.0)
    laplacian += laplacian.T
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    sizes = np.bincount(labels)
    laplacian += (labels[:, None] == labels) / sizes[labels]
    inverse = np.linalg.inv(laplacian)
    first, second = edges.T
    return inverse[first, first] + inverse[second, second] - 2 * inverse[first, second]


def _sampled(n_nodes: int, edges: Indices, labels: Indices) -> Matrix:
    """The share of random spanning trees that hold each edge; an edge never met gets half a tree."""
    both = np.concatenate([edges, edges[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(both[:, 0], minlength=n_nodes))]).astype(np.int64)
    neighbours = both[order, 1].astype(np.int64)
    edge_of = np.tile(np.arange(len(edges)), 2)[order].astype(np.int64)
    degree = np.diff(begin)
    by_degree = np.lexsort((-degree, labels))
    roots = by_degree[np.unique(labels[by_degree], return_index=True)[1]]
    from kernelbp.inference.walks import count_spanning_trees

    counts = np.zeros(len(edges), dtype=np.int64)
    done = count_spanning_trees(
        begin, neighbours, edge_of, roots, SAMPLED_TREES, MOST_STEPS * n_nodes, counts
    )
    if done < SAMPLED_TREES:
        counts[:] = 0
        random = np.random.default_rng(0)
        for _ in range(SAMPLED_TREES):
            counts[_random_forest(n_nodes, edges, random)] += 1
    return np.maximum(counts, 0.5) / SAMPLED_TREES


def _random_forest(n_nodes: int, edges: Indices, random: np.random.Generator) -> Indices:
    """Edges of the spanning forest of least total weight, for random weights."""
    place = random.permutation(len(edges)) + 1.0
    low, high = edges.min(axis=1), edges.max(axis=1)
    # Parallel edges: keep the lightest of each pair, since a sparse matrix would add them up.
    order = np.lexsort((place, high, low))
    first = np.ones(len(edges), dtype=bool)
    first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    kept = order[first]
    weighted = scipy.sparse.csr_array((place[kept], (low[kept], high[kept])), shape=(n_nodes, n_nodes))
    chosen = scipy.sparse.csgraph.minimum_spanning_tree(weighted).tocoo().data.astype(np.intp) - 1
    by_weight = np.argsort(place)
    return by_weight[chosen]
