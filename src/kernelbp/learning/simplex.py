r"""Projection of many embeddings onto probability measures on a few points.

For each row, the measure :math:`w \ge 0, \sum_j w_j = 1` on points :math:`z_j` nearest to an embedding
:math:`\mu` in the kernel's norm,

.. math:: \min_w \Big\| \mu - \sum_j w_j \xi(z_j) \Big\|^2 = \min_w\; w^\top G w - 2\, b^\top w + \text{const},
   \qquad G_{ij} = k(z_i, z_j), \quad b_j = \langle \mu, \xi(z_j) \rangle.

Wide kernels give sparse answers (a handful of neighbouring points): an active-set method in compiled
code solves them exactly, with very small systems. Narrow kernels give answers spread over many points,
but then G is well conditioned: rows that outgrow the active set are finished by accelerated projected
gradients, all together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit

__all__ = ["project_onto_simplex"]

Matrix = NDArray[np.float64]

RIDGE = 1e-10
"""Added to the Gram matrix, relative to its diagonal: two points this close are one point."""
SLACK = 1e-9
"""A point enters only if it lowers the objective by more than this share of the Gram matrix's scale."""


MOST_MEMBERS = 48
"""Points after which a row is called spread out and left to projected gradients."""
GAP = 1e-4
"""Projected gradients stop when no row can be improved by more than this (duality gap, relative)."""
MOST_STEPS = 1000


def project_onto_simplex(gram: Matrix, linear: Matrix) -> Matrix:
    """Solve all rows: minimise w'Gw - 2 b'w over w >= 0, sum w = 1.

    Parameters
    ----------
    gram : (q, q) positive semidefinite
    linear : (n, q), one b a row

    Returns
    -------
    (n, q) array
        Rows are non-negative and sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> project_onto_simplex(np.eye(3), np.array([[0.6, 0.6, -1.0], [0.0, 0.0, 5.0]]))
    array([[0.5, 0.5, 0. ],
           [0. , 0. , 1. ]])
    """
    size = len(gram)
    scale = float(np.trace(gram)) / max(size, 1) or 1.0
    scaled_gram, scaled_linear = gram / scale + RIDGE * np.eye(size), np.ascontiguousarray(linear / scale)
    weights, finished = _active_set(scaled_gram, scaled_linear, SLACK, MOST_MEMBERS)
    spread = ~finished
    if spread.any():
        weights[spread] = _projected_gradients(scaled_gram, scaled_linear[spread], weights[spread])
    return weights / weights.sum(axis=1, keepdims=True)


def _projected_gradients(gram: Matrix, linear: Matrix, start: Matrix) -> Matrix:
    """Accelerated gradient steps, restarted row by row where they overshoot."""
    largest = float(np.linalg.eigvalsh(gram)[-1])
    weights, ahead = start, start
    momentum = np.ones((len(linear), 1))
    for step in range(MOST_STEPS):
        moved = _nearest_on_simplex(ahead - (ahead @ gram - linear) / largest)
        if step % 10 == 0:
            gradient = linear - moved @ gram
            if (gradient.max(axis=1) - (gradient * moved).sum(axis=1)).max() < GAP:
                return moved
        momentum[((ahead - moved) * (moved - weights)).sum(axis=1) > 0] = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - weights)
        weights, momentum = moved, following
    return weights


def _nearest_on_simplex(points: Matrix) -> Matrix:
    """Rows moved to the nearest point (in plain distance) with entries >= 0 and sum 1."""
    descending = -np.sort(-points, axis=1)
    excess = np.cumsum(descending, axis=1) - 1
    ranks = np.arange(1, points.shape[1] + 1)
    last = (descending * ranks > excess).sum(axis=1)
    threshold = excess[np.arange(len(points)), last - 1] / last
    return np.maximum(points - threshold[:, None], 0.0)


@jit
def _active_set(gram: Matrix, linear: Matrix, slack: float, most: int) -> tuple[Matrix, NDArray[np.bool_]]:
    rows, size = linear.shape
    result = np.zeros((rows, size))
    finished = np.ones(rows, dtype=np.bool_)
    members = np.empty(size, dtype=np.int64)
    for row in range(rows):
        target = linear[row]
        weights = result[row]
        first = 0
        for j in range(size):
            if target[j] - 0.5 * gram[j, j] > target[first] - 0.5 * gram[first, first]:
                first = j
        members[0] = first
        count = 1
        weights[first] = 1.0
        for _ in range(4 * size + 20):
            # Solve on the members alone, with the multiplier that keeps the sum at one.
            while True:
                system = np.empty((count + 1, count + 1))
                right = np.empty(count + 1)
                for a in range(count):
                    for b in range(count):
                        system[a, b] = gram[members[a], members[b]]
                    system[a, count] = 1.0
                    system[count, a] = 1.0
                    right[a] = target[members[a]]
                system[count, count] = 0.0
                right[count] = 1.0
                solved = np.linalg.solve(system, right)
                share = 1.0
                for a in range(count):
                    if solved[a] <= 0.0:
                        now = weights[members[a]]
                        share = min(share, now / (now - solved[a]) if now > solved[a] else 0.0)
                for a in range(count):
                    j = members[a]
                    weights[j] += share * (solved[a] - weights[j])
                if share >= 1.0:
                    break
                # A member has reached zero: leave it out and solve again.
                kept = 0
                for a in range(count):
                    if weights[members[a]] > 1e-15:
                        members[kept] = members[a]
                        kept += 1
                    else:
                        weights[members[a]] = 0.0
                count = kept
            multiplier = solved[count]
            best, entering = slack, -1
            for j in range(size):
                if weights[j] == 0.0:
                    gain = target[j] - multiplier
                    for a in range(count):
                        gain -= gram[j, members[a]] * weights[members[a]]
                    if gain > best:
                        best, entering = gain, j
            if entering < 0:
                break
            if count == most:
                finished[row] = False
                break
            members[count] = entering
            count += 1
    return result, finished
