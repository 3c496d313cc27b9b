"""Marginals: what a node would believe with no neighbours, and the points beliefs are read at.

The belief of a node is its marginal times its messages (paper, Section 4.2). On R^d the marginal is a
Parzen window estimate; on finite values it is the table of frequencies; elsewhere, where no density
exists, the belief is the training sample reweighted by the messages, that is, an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kernelbp.kernels import domain
from kernelbp.learning.embedding import Embedding
from kernelbp.learning.probability import REPEATS
from kernelbp.values import Column

__all__ = ["Marginal", "MarginalForm", "Parzen", "Tabulated", "learn_marginal"]

Matrix = NDArray[np.float64]
MarginalForm = Literal["parzen", "embedding"]

GRID_POINTS = 512
"""Points of the line at which a belief over numbers is tabulated."""
GRID_REACH = 4.0
"""How many window widths the table goes past the smallest and largest training value."""
MOST_ATOMS = 1024
"""Most training values at which a belief is read where no grid can be laid."""
MOST_CENTRES = 4096
"""Most windows in a Parzen estimate; more values are pooled (on R) or thinned (elsewhere)."""
QUADRATURE_POINTS = 8192
"""Points of R^d, d > 1, over which a belief is integrated to normalise its density."""
QUADRATURE_SEED = 20110411


@dataclass(frozen=True)
class Parzen:
    """A density on R^d: Gaussian windows of one width per axis.

    Attributes
    ----------
    centres : (c, d)
    weights : (c,) summing to one
    widths : (d,)
    """

    centres: Matrix
    weights: Matrix
    widths: Matrix

    def __call__(self, points: Matrix) -> Matrix:
        """Density at points (n, d), shape (n,)."""
        norm = np.prod(self.widths) * (2 * np.pi) ** (len(self.widths) / 2)
        scaled = self.centres / self.widths
        result = np.empty(len(points))
        block = max(1, (1 << 22) // max(self.centres.size, 1))
        for begin in range(0, len(points), block):
            apart = points[begin : begin + block, None, :] / self.widths - scaled
            result[begin : begin + block] = (
                np.exp(-0.5 * np.einsum("ncd,ncd->nc", apart, apart)) @ self.weights
            )
        return result / norm


@dataclass(frozen=True)
class Tabulated:
    """A density on R by linear interpolation between evenly spaced points, zero beyond them.

    Attributes
    ----------
    points : (g,)
    heights : (g,) integrating to one
    widths : (1,) of the window that stands for a value known exactly
    """

    points: Matrix
    heights: Matrix
    widths: Matrix

    def __call__(self, points: Matrix) -> Matrix:
        """Density at points (n, 1), shape (n,)."""
        return np.interp(points[:, 0], self.points, self.heights, left=0.0, right=0.0)


@dataclass(frozen=True)
class Marginal:
    """The marginal of a variable, ready to be multiplied by messages.

    Attributes
    ----------
    atoms : the a values at which beliefs are read
    weights : (a,) the marginal's mass on each, summing to one
    heights : (a,) the marginal's density at each, up to scale; what a mode maximises
    spacing : distance of neighbouring atoms if they tabulate a density on R, else None
    density : a function on columns, or None where the variable has none
    quadrature : points and weights with E[f(X)] ~ sum_j w_j f(x_j), to normalise a density
    """

    atoms: Column
    weights: Matrix
    heights: Matrix
    spacing: float | None
    density: Parzen | Tabulated | None
    quadrature: tuple[Column, Matrix]


def learn_marginal(embedding: Embedding, form: MarginalForm) -> Marginal:
    """Estimate the marginal of a variable from its training values."""
    examples = embedding.examples
    kind = domain(embedding.kernel)
    if kind != "real" or examples.values.dtype == object:
        atoms, weights = _thinned(
            examples.values, examples.counts, len(examples.values) if kind == "finite" else MOST_ATOMS
        )
        return Marginal(atoms, weights, weights, None, None, (atoms, weights))
    parzen = _parzen(embedding)
    scalar = examples.values.shape[1] == 1
    if not scalar:
        atoms, weights = _thinned(examples.values, examples.counts, MOST_ATOMS)
        return Marginal(atoms, weights, parzen(atoms), None, parzen, _drawn(parzen))
    grid, spacing = _grid(parzen)
    heights = _heights(embedding, parzen, grid, form)
    weights = heights / heights.sum()
    on_grid = (grid, weights)
    density = parzen if form == "parzen" else Tabulated(grid[:, 0], weights / spacing, parzen.widths)
    repeated = len(examples.values) <= MOST_ATOMS and examples.counts.sum() >= REPEATS * len(examples.values)
    if not repeated:
        return Marginal(grid, weights, heights, spacing, density, on_grid)
    weights = examples.counts if form == "parzen" else _heights(embedding, parzen, examples.values, form)
    weights = weights / weights.sum()
    return Marginal(examples.values, weights, weights, None, density, on_grid)


def _drawn(parzen: Parzen) -> tuple[Matrix, Matrix]:
    """Points drawn from a Parzen estimate, as many from each window, and their weights."""
    times = max(1, QUADRATURE_POINTS // len(parzen.centres))
    noise = np.random.default_rng(QUADRATURE_SEED).standard_normal((times, *parzen.centres.shape))
    points = (parzen.centres + parzen.widths * noise).reshape(-1, parzen.centres.shape[1])
    return points, np.tile(parzen.weights / times, times)


def _heights(embedding: Embedding, parzen: Parzen, points: Column, form: MarginalForm) -> Matrix:
    if form == "parzen":
        return parzen(points)
    smooth = np.maximum(embedding.embedding_of_marginal(points), 0.0)
    return smooth if smooth.sum() > 0 else np.ones(len(points))


def _parzen(embedding: Embedding) -> Parzen:
    values, counts = embedding.examples.values, embedding.examples.counts
    total = counts.sum()
    centres, weights = (
        _pooled(values, counts) if values.shape[1] == 1 else _thinned(values, counts, MOST_CENTRES)
    )
    return Parzen(centres, weights, _widths(values, counts, total))


def _widths(values: Matrix, counts: Matrix, total: float) -> Matrix:
    """Scott's rule per axis, with the smaller of standard deviation and interquartile range."""
    dimension = values.shape[1]
    mean = counts @ values / total
    spread = np.sqrt(np.maximum(counts @ (values - mean) ** 2 / total, 0.0))
    for axis in range(dimension):
        order = np.argsort(values[:, axis], kind="stable")
        cumulative = np.cumsum(counts[order]) / total
        low, high = np.interp([0.25, 0.75], cumulative, values[order, axis])
        if high > low:
            spread[axis] = min(spread[axis], (high - low) / 1.349)
    factor = (0.9 if dimension == 1 else 1.0) * total ** (-1 / (dimension + 4))
    # Values that are all equal have no spread: a window a millionth of their size (of 1, if they are 0). Others get
    # at least what keeps the points of a grid apart in floating point.
    size = np.abs(values).max(axis=0)
    size = np.where(size > 0, size, 1.0)
    return np.maximum(np.where(spread > 0, spread * factor, 1e-6 * size), 1e-12 * size)


def _grid(parzen: Parzen) -> tuple[Matrix, float]:
    reach = GRID_REACH * parzen.widths[0]
    points = np.linspace(parzen.centres.min() - reach, parzen.centres.max() + reach, GRID_POINTS)
    return points[:, None], float(points[1] - points[0])


def _pooled(values: Matrix, counts: Matrix) -> tuple[Matrix, Matrix]:
    """At most MOST_CENTRES numbers with weights: neighbours in order are pooled into their mean."""
    if len(values) <= MOST_CENTRES:
        return values, counts / counts.sum()
    order = np.argsort(values[:, 0], kind="stable")
    begins = np.linspace(0, len(values), MOST_CENTRES + 1).astype(np.intp)[:-1]
    mass = np.add.reduceat(counts[order], begins)
    centres = np.add.reduceat(counts[order] * values[order, 0], begins) / mass
    return centres[:, None], mass / mass.sum()


def _thinned(values: Column, counts: Matrix, most: int) -> tuple[Column, Matrix]:
    """At most `most` values: all of them with their frequencies, or evenly through the pooled sample."""
    if len(values) <= most:
        return values, counts / counts.sum()
    cumulative = np.cumsum(counts)
    ranks = (np.arange(most) + 0.5) / most * cumulative[-1]
    kept, times = np.unique(np.searchsorted(cumulative, ranks), return_counts=True)
    return values[kept], times / times.sum()
