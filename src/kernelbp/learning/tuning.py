r"""Settings from the data: how far a relation's counts are smoothed and how much independence is mixed in.

The score is the mean log-density of held-out pairs given their other end. With density ratio table R and
base measure p, the conditional is :math:`p(x_t \mid x_s) = p(x_t)\, w(x_s)^\top R\, w(x_t)`, which integrates to
one, so :math:`\log w(x_s)^\top R\, w(x_t)` scores settings properly and comparably: it is the
held-out pointwise mutual information, in nats a pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.kernels import domain
from kernelbp.learning.examples import Table
from kernelbp.learning.probability import States, blurs, joint_table

__all__ = ["LOOPY_SHARE", "Fold", "Smoothing", "dealt", "fit_smoothing", "sampled", "smoothed_joint"]

Matrix = NDArray[np.float64]
Fold: TypeAlias = tuple[Table, Table]
"""Counts of pairs to learn from, and of those held out."""

FOLDS = 3
WIDTHS = (0.0, 0.5, 0.8, 1.2, 1.8, 2.7, 4.0, 6.0)
"""Smoothing widths tried, in units of the distance between neighbouring states."""
LEAST_MARGIN = 1e-150
"""A state with less, the far end of a blur, never occurs: two such in a ratio would overflow."""
SHARES = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Shares of independence tried."""
LOOPY_SHARE = 0.003
"""Least share on graphs with cycles, where messages may not settle with none (measured on the sunsets)."""
EVIDENCE_SHARES = (0.0001, 0.0003, 0.001, 0.003, 0.01)
"""The same for relations through which values are only read: an outlying reading may say little, but what
readings say is not to be drowned by neighbours."""
MOST_SCORED = 20_000
"""Distinct held-out pairs scored in each fold."""
SEED = 20110411


@dataclass(frozen=True)
class Smoothing:
    """Fitted settings of one relation.

    Attributes
    ----------
    widths : smoothing along the first and second end, in units of the distance between states
    mixing : share of independence mixed in
    score : held-out mean log density ratio, nats a pair; None if the settings were given
    """

    widths: tuple[float, float]
    mixing: float
    score: float | None


def smoothed_joint(joint: Matrix, first: Matrix, second: Matrix) -> Matrix:
    """Spread a joint table along both ends by row-stochastic matrices."""
    return first.T @ joint @ second


def fit_smoothing(
    table: Table,
    states: tuple[States, States],
    measures: tuple[scipy.sparse.csr_array, scipy.sparse.csr_array],
    *,
    symmetric: bool,
    only_read: bool,
    folds: list[Fold] | None = None,
    widths: tuple[float, float] | None = None,
    mixing: float | None = None,
) -> Smoothing:
    """Choose widths and mixing by K-fold held-out log-density; what is given stays as given.

    Parameters
    ----------
    table : counts of pairs
    states : the states of both ends
    measures : w(x) of every distinct value of both ends, (u, q)
    symmetric : whether both ends are smoothed alike
    only_read : whether the second end has no nodes, only readings
    folds : the table as `dealt`, if it was already
    """
    if widths is not None and mixing is not None:
        return Smoothing(widths, mixing, None)
    tried = [
        WIDTHS if widths is None and domain(end.kernel) != "finite" else ((widths or (0.0, 0.0))[side],)
        for side, end in enumerate(states)
    ]
    first_blurs = blurs(states[0], tried[0])
    second_blurs = first_blurs if symmetric else blurs(states[1], tried[1])
    tried_shares = EVIDENCE_SHARES if only_read else SHARES
    shares = np.asarray(tried_shares if mixing is None else (mixing,))
    scores = np.zeros((len(first_blurs), len(second_blurs), len(shares)))
    total = 0.0
    for training, held_out in dealt(table) if folds is None else folds:
        if not held_out.nnz or not training.nnz:
            continue
        joint = joint_table(training, *measures)
        rows, columns, counts = sampled(held_out)
        # w(x_s)' R w(x_t) with R = B_s' J B_t over its margins: what depends on one end is made once for it.
        first, second = measures[0][rows], measures[1][columns]
        left = (_read(first, blur, joint.sum(axis=1)) for blur in first_blurs)
        right = [_read(second, blur, joint.sum(axis=0)) for blur in second_blurs]
        for i, one in enumerate(left):
            seen = one.weights @ joint
            for j, other in enumerate(right):
                if symmetric and i != j:
                    continue
                # A state that never occurs is as likely as not.
                value = np.einsum("ij,ij->i", seen, other.weights) + 1 - one.known * other.known
                mixed = (1 - shares) * value[:, None] + shares
                scores[i, j] += counts @ np.log(np.maximum(mixed, np.finfo(np.float64).tiny))
        total += counts.sum()
    if not total:
        return Smoothing(widths or (0.0, 0.0), tried_shares[2] if mixing is None else mixing, None)
    if symmetric:
        scores[~np.eye(len(first_blurs), dtype=bool)] = -np.inf
    best = np.unravel_index(int(np.argmax(scores)), scores.shape)
    chosen = (tried[0][best[0]], tried[1][best[1]])
    return Smoothing(chosen, float(shares[best[2]]), float(scores[best] / total))


class _Read(NamedTuple):
    """One end of n pairs: its measures through a blur over the margin that makes, and their mass on states that occur."""

    weights: Matrix
    known: Matrix


def _read(measures: scipy.sparse.csr_array, blur: Matrix, margin: Matrix) -> _Read:
    made = margin @ blur
    occurs = made > LEAST_MARGIN
    over = np.divide(blur, made, out=np.zeros_like(blur), where=occurs)
    return _Read(measures @ over.T, measures @ occurs.astype(np.float64))


def dealt(table: Table) -> list[Fold]:
    """Counts dealt out at random to folds: (all others, this one) for each. Symmetric tables stay so."""
    random = np.random.default_rng(SEED)
    upper = scipy.sparse.triu(table, format="csr") if _symmetric(table) else None
    base = (table if upper is None else upper).tocoo()
    left = base.data.astype(np.int64)
    parts = []
    for fold in range(FOLDS):
        taken = random.binomial(left, 1 / (FOLDS - fold))
        left = left - taken
        part = scipy.sparse.csr_array((taken.astype(np.float64), (base.row, base.col)), shape=table.shape)
        if upper is not None:
            part = part + scipy.sparse.triu(part, k=1, format="csr").T.tocsr()
        part.eliminate_zeros()
        parts.append(part)
    return [
        (sum(parts[:i] + parts[i + 1 :], start=scipy.sparse.csr_array(table.shape)), parts[i])
        for i in range(FOLDS)
    ]


def _symmetric(table: Table) -> bool:
    return table.shape[0] == table.shape[1] and (table != table.T).nnz == 0


def sampled(table: Table) -> tuple[NDArray[np.intp], NDArray[np.intp], Matrix]:
    """Rows, columns and counts of the entries of a table, or of so many as are scored."""
    entries = table.tocoo()
    if entries.nnz <= MOST_SCORED:
        return entries.row, entries.col, entries.data
    chosen = np.random.default_rng(SEED).choice(entries.nnz, MOST_SCORED, replace=False)
    return entries.row[chosen], entries.col[chosen], entries.data[chosen]
