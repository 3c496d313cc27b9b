r"""Probability conditionals: relations as genuine probability tables on the support points.

Every value x of a variable is represented by the probability measure :math:`w(x)` on its support points
nearest to it in the kernel's norm (on R: linear interpolation between the two neighbours; on finite values:
the value itself). Averaging :math:`w(x_s) w(x_t)^\top` over training pairs gives a joint table J, and

.. math:: M_{ts} = J / (\text{row sums}), \qquad M \ge 0, \quad M 1 = 1,

the conditional embedding restricted to probability measures. A message of ones stays ones, messages
stay positive, powers are allowed, and belief propagation is that of a finite graphical model whose states
are the support points. Between them a message is read as :math:`w(x)^\top v`, which is positive too.

Two numbers are fitted for each relation, by the log-density of held-out pairs (see `tuning`): how far counts
are smoothed along each end, and the share of the marginal mixed in, an outlier model that bounds how hard
a message can push.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.kernels import Kernel, domain
from kernelbp.learning.examples import Table, VariableExamples
from kernelbp.lowrank import pivoted_cholesky
from kernelbp.values import Column, distinct

__all__ = [
    "States",
    "assign",
    "blurs",
    "choose_states",
    "default_budget",
    "density_ratio",
    "interpolate",
    "joint_table",
    "mean_measure",
]

Matrix = NDArray[np.float64]

ASSIGN_BLOCK = 1 << 14
"""Values projected onto the simplex at a time."""
STATE_POWERS = (4, 16, 64, 256, 1024, 4096)
"""Ever sharper powers of the kernel, until its greedy choice of states has filled the budget."""
STATE_RESIDUAL = 0.5
"""States are spread until every training value is at least this much like one, at the sharpest power."""
MOST_SCREENED = 20_000
"""Distinct training values among which states are chosen."""
REPEATS = 4.0
"""Numbers that occur this often each are taken as values of a finite scale."""
NEIGHBOUR = 0.5
"""Neighbouring states compare as exp(-NEIGHBOUR) in the norm in which values are projected onto them."""


@dataclass(frozen=True)
class States:
    """The support points of a variable in probability conditionals: the states of a finite model.

    Attributes
    ----------
    kernel : the variable's kernel
    power : values are projected onto the states in the norm of the normalised kernel to this power
    points : (q, d) or (q,) column
    """

    kernel: Kernel
    power: int
    points: Column

    def __len__(self) -> int:
        return len(self.points)


def default_budget(examples: VariableExamples) -> int:
    """How many states the number of examples can fill.

    On R as many as a histogram of pairs has cells along each axis at Scott's rate, m^(1/6) for m values,
    and more for numbers that hardly repeat, whose relations are smooth; elsewhere at the rate of one
    more dimension. The constants were set on images and linear chains; see docs/design.md.
    """
    total = examples.counts.sum()
    if examples.kind.form == "scalar":
        repeated = total >= REPEATS * len(examples.values)
        rate = 4.2 if repeated else 11.0
        # In eights: as many float32 values as a vector register holds.
        return int(np.clip(8 * round(rate * total ** (1 / 6) / 8), 16, 64))
    return int(np.clip(round(4 * total ** (1 / 3)), 32, 128))


def choose_states(kernel: Kernel, values: Column, budget: int) -> States:
    """Spread at most `budget` states over the training values, as the kernel sees them.

    The points are those of the paper's tensor features, pivots of k^p, for the smallest p that has use for
    the whole budget; all values, if there are no more than that. The power kept is the one
    at which neighbouring states overlap, in whose norm values are projected onto the states.
    """
    values = values[distinct(values)[0]]
    if len(values) <= budget or domain(kernel) == "finite":
        points = values
    else:
        chosen = values
        if len(values) > MOST_SCREENED:
            chosen = values[np.linspace(0, len(values) - 1, MOST_SCREENED).astype(np.intp)]
        likeness = Normalised(kernel)
        for power in STATE_POWERS:
            found = pivoted_cholesky(likeness, chosen, power=power, residual=STATE_RESIDUAL, max_rank=budget)
            if found.stopped == "max_rank":
                break
        points = chosen[np.sort(found.indices)]
    neighbour = typical_neighbour(Normalised(kernel)(points))
    power = max(1, round(-NEIGHBOUR / np.log(neighbour))) if 0 < neighbour < 1 else 1
    return States(kernel, power, points)


@dataclass(frozen=True)
class Normalised:
    """A kernel scaled to one on the diagonal: k(x, y) / sqrt(k(x, x) k(y, y)), cut to [0, 1]."""

    kernel: Kernel

    def __call__(self, X: Column, Y: Column | None = None) -> Matrix:
        """Gram block (n, m)."""
        block = np.asarray(self.kernel(X, X if Y is None else Y), dtype=np.float64)
        left, right = self._sizes(X), self._sizes(X if Y is None else Y)
        return np.clip(block / left[:, None] / right, 0.0, 1.0)

    def diag(self, X: Column) -> Matrix:
        """Ones (n,)."""
        return np.ones(len(X))

    def _sizes(self, values: Column) -> Matrix:
        return np.sqrt(np.maximum(self.kernel.diag(values), np.finfo(np.float64).tiny))


def typical_neighbour(alike: Matrix) -> float:
    """The median over points of the largest likeness to another; 0 for a single point."""
    if len(alike) < 2:
        return 0.0
    off = alike.copy()
    np.fill_diagonal(off, 0.0)
    return float(np.median(off.max(axis=1)))


def assign(support: States, values: Column) -> scipy.sparse.csr_array:
    """Represent values as probability measures on the support points, (n, q) sparse, rows summing to one."""
    points = support.points
    if points.dtype != object and points.shape[1] == 1 and domain(support.kernel) == "real":
        return interpolate(points[:, 0], values[:, 0])
    likeness = Normalised(support.kernel)
    if domain(support.kernel) == "finite":
        return scipy.sparse.csr_array(likeness(values, points))
    from kernelbp.learning.simplex import project_onto_simplex

    blocks = []
    gram = likeness(points) ** support.power
    for begin in range(0, len(values), ASSIGN_BLOCK):
        near = likeness(values[begin : begin + ASSIGN_BLOCK], points) ** support.power
        blocks.append(scipy.sparse.csr_array(project_onto_simplex(gram, near)))
    return scipy.sparse.vstack(blocks, format="csr") if blocks else scipy.sparse.csr_array((0, len(points)))


def mean_measure(states: States, values: Column, counts: Matrix) -> Matrix:
    """The average of w(x) over a sample with counts: probabilities of the states, (q,)."""
    total = np.asarray(assign(states, values).T @ counts, dtype=np.float64)
    return total / total.sum()


def interpolate(points: Matrix, values: Matrix) -> scipy.sparse.csr_array:
    """Weights on the two support points around each number; beyond the ends, on the last one."""
    order = np.argsort(points)
    knots = points[order]
    if len(knots) == 1:
        return scipy.sparse.csr_array(np.ones((len(values), 1)))
    right = np.clip(np.searchsorted(knots, values), 1, len(knots) - 1)
    share = np.clip((values - knots[right - 1]) / (knots[right] - knots[right - 1]), 0.0, 1.0)
    rows = np.repeat(np.arange(len(values)), 2)
    columns = np.stack([order[right - 1], order[right]], axis=1).ravel()
    weights = np.stack([1 - share, share], axis=1).ravel()
    return scipy.sparse.csr_array((weights, (rows, columns)), shape=(len(values), len(points)))


def blurs(states: States, widths: tuple[float, ...]) -> list[Matrix]:
    """Row-stochastic matrices (q, q) that spread mass over neighbouring states.

    `widths` are in units of the typical distance between neighbours, taken from the kernel itself: a
    power of k is chosen so that neighbours stand to each other as numbers `1 / width` standard deviations
    apart would. Width 0, and values the kernel holds wholly unlike, spread nothing.
    """
    alike = Normalised(states.kernel)(states.points)
    np.fill_diagonal(alike, 1.0)  # also where the kernel itself is zero
    neighbour = typical_neighbour(alike)
    made = []
    for width in widths:
        if width == 0 or not 0 < neighbour < 1:
            made.append(np.eye(len(alike)))
            continue
        spread = alike ** (-0.5 / (width**2 * np.log(neighbour)))
        made.append(spread / spread.sum(axis=1, keepdims=True))
    return made


def joint_table(table: Table, first: scipy.sparse.csr_array, second: scipy.sparse.csr_array) -> Matrix:
    """The average of w(x_s) w(x_t)' over pairs, (q_s, q_t), summing to one."""
    joint = np.asarray((first.T @ table @ second).todense(), dtype=np.float64)
    return joint / joint.sum()


def density_ratio(joint: Matrix, mixing: float) -> Matrix:
    """P(x_s, x_t) / P(x_s) P(x_t) on the states, with a share of independence mixed in."""
    first, second = joint.sum(axis=1), joint.sum(axis=0)
    outer = np.outer(first, second)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(outer > 0, joint / outer, 1.0)
    return (1 - mixing) * ratio + mixing
