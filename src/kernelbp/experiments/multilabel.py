"""What label sets are predicted with besides belief propagation: regressions on words, and labels spread along citations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

__all__ = [
    "best_logistic",
    "beyond_neighbours",
    "correct_and_smooth",
    "logistic",
    "matching_pursuit",
    "out_of_fold",
    "recall",
    "reduced",
    "ridge",
    "spread",
    "step_along",
    "weighted_words",
]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

FOLDS = 4
"""Parts of the training papers that are held out in turn."""
RIDGES = (0.5, 1.0, 2.0, 4.0)
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""C of logistic regressions tried."""
STEPS = 50
"""Of spreading: at a share of 0.9 what is left of the start is then 0.5%."""
LEAST = 1e-6
"""Probabilities are scored from here up."""
FEW = 2.0
"""Labels around a paper count in full where there are many more than this."""
BLOCK = 2_000
"""Papers decoded at a time."""


# ---------------------------------------------------------------------- words


def weighted_words(counts: sparse.csr_array) -> Any:
    """Tf-idf weights (papers, words) of counts, rows of length 1."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return sparse.csr_matrix(TfidfTransformer(sublinear_tf=True).fit_transform(counts))


def reduced(words: Any, dimensions: int, seed: int) -> Matrix:
    """Latent semantic features (papers, dimensions) of all papers' words, labelled or not; rows of length 1."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    size = max(1, min(dimensions, min(words.shape) - 1))
    # scikit-learn takes no larger seeds.
    features: Matrix = normalize(TruncatedSVD(size, random_state=seed % 2**32).fit_transform(words))
    return features


def logistic(penalty: float) -> Any:
    """A logistic regression, not fitted, of this C."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=penalty, max_iter=500)


def best_logistic(features: Any, classes: Indices, held_out: NDArray[np.bool_]) -> tuple[Any, float]:
    """A logistic regression, not fitted, whose C the papers held out choose; and its mean log-probability of them."""
    own, others = np.flatnonzero(held_out), np.flatnonzero(~held_out)
    scores = [-np.inf]
    for penalty in PENALTIES if len(np.unique(classes[others])) > 1 else ():
        fitted = logistic(penalty).fit(features[others], classes[others])
        place = np.searchsorted(fitted.classes_, classes[own]).clip(max=len(fitted.classes_) - 1)
        known = fitted.classes_[place] == classes[own]
        told = np.where(known, fitted.predict_proba(features[own])[np.arange(len(own)), place], 0.0)
        scores.append(float(np.log(np.maximum(told, LEAST)).mean()))
        if scores[-1] < scores[-2]:  # one hill: further up it only falls
            break
    best = max(int(np.argmax(scores)) - 1, 0)
    return logistic(PENALTIES[best]), max(scores)


def ridge(words: Any, targets: Matrix, penalty: float) -> tuple[Matrix, Matrix]:
    """Weights (words, targets) and offsets (targets,) of a ridge regression on sparse words.

    By the smaller of the two Gram matrices, centred without making the words dense.
    """
    count, size = words.shape
    middle, mean = np.asarray(words.mean(axis=0)).ravel(), targets.mean(axis=0)
    if size <= count:
        gram = (words.T @ words).toarray() - count * np.outer(middle, middle)
        gram[np.diag_indices(size)] += penalty
        weights = cho_solve(cho_factor(gram), words.T @ targets - count * np.outer(middle, mean))
    else:
        shift = words @ middle
        gram = (words @ words.T).toarray() - shift[:, None] - shift + middle @ middle
        gram[np.diag_indices(count)] += penalty
        dual = cho_solve(cho_factor(gram), targets - mean)
        weights = words.T @ dual - np.outer(middle, dual.sum(axis=0))
    return weights, mean - middle @ weights


def out_of_fold(
    words: Any, targets: Matrix, rows: Indices, rng: np.random.Generator, *, folds: int = FOLDS
) -> tuple[Matrix, float]:
    """Ridge predictions (papers, targets): for the training papers `rows` by those of other folds, for the rest by all.

    The first fold chooses the penalty, by squared error. With `folds` 0 the training papers are predicted by all, too.
    """
    fold = rng.permutation(len(rows)) % (folds or FOLDS)

    def fit(part: int, penalty: float) -> Matrix:
        used = rows if part < 0 else rows[fold != part]
        weights, offsets = ridge(words[used], targets[used], penalty)
        predicted: Matrix = words @ weights + offsets
        return predicted

    first = rows[fold == 0]
    errors = [float(np.square(fit(0, penalty)[first] - targets[first]).sum()) for penalty in RIDGES]
    best = RIDGES[int(np.argmin(errors))]
    found = fit(-1, best)
    for part in range(folds):
        own = rows[fold == part]
        found[own] = fit(part, best)[own]
    return found, best


def matching_pursuit(vectors: Matrix, columns: Matrix, size: int) -> Indices:
    """The labels orthogonal matching pursuit picks for each vector, in the order it picks them.

    The first k are what it decodes to with k labels (Hsu, Kakade, Langford and Zhang, 2009).

    Parameters
    ----------
    vectors : (n, d) projected label sets
    columns : (d, labels) the projection
    size : labels wanted, at most the number of labels

    Returns
    -------
    (n, size) labels
    """
    unit = columns / np.linalg.norm(columns, axis=0)
    gram = unit.T @ unit
    order = np.zeros((len(vectors), size), dtype=np.intp)
    for begin in range(0, len(vectors), BLOCK):
        part = slice(begin, begin + BLOCK)
        along = vectors[part] @ unit
        left, taken = along, np.zeros(along.shape, dtype=bool)
        rows = np.arange(len(along))
        for place in range(size):
            order[part, place] = np.where(taken, -1.0, np.abs(left)).argmax(axis=1)
            chosen = order[part, : place + 1]
            taken[rows, chosen[:, -1]] = True
            # More labels than dimensions cannot be told apart: least squares, not an exact solution.
            block = gram[chosen[:, :, None], chosen[:, None, :]] + 1e-9 * np.eye(place + 1)
            weights = np.linalg.solve(block, np.take_along_axis(along, chosen, axis=1)[..., None])[..., 0]
            left = along - np.einsum("nk,nkl->nl", weights, gram[chosen])
    return order


# ---------------------------------------------------------------------- citations


def step_along(edges: Indices, count: int) -> sparse.csr_array:
    """The adjacency (papers, papers), both ends' degrees divided out."""
    ones = np.ones(2 * len(edges))
    both = np.concatenate([edges, edges[:, ::-1]])
    table = sparse.coo_array((ones, (both[:, 0], both[:, 1])), shape=(count, count)).tocsr()
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(np.bincount(both[:, 0], minlength=count), 1)))
    return sparse.csr_array(scale @ table @ scale)


def spread(step: sparse.csr_array, given: Matrix, share: float) -> Matrix:
    """Zhou et al. (2004): `given` (papers, labels) diffuses, a `share` of each paper's being its neighbours'."""
    table = given
    for _ in range(STEPS):
        table = share * (step @ table) + (1 - share) * given
    return table


def correct_and_smooth(
    step: sparse.csr_array,
    base: Matrix,
    truth: Matrix,
    labelled: Indices,
    correcting: float,
    smoothing: float,
) -> Matrix:
    """Huang et al. (2021): a prediction's errors at labelled papers are spread and taken off, then labels are spread.

    Parameters
    ----------
    step : see `step_along`
    base : (papers, labels) predicted shares
    truth : (papers, labels) true shares, read at `labelled` only
    correcting, smoothing : what part of a paper's is its neighbours', in the two
    """
    error = np.zeros_like(base)
    error[labelled] = truth[labelled] - base[labelled]
    carried = spread(step, error, correcting)
    # Autoscale: errors are taken to be as large as those known are on average.
    typical = np.abs(error[labelled]).sum(axis=1).mean()
    size = np.abs(carried).sum(axis=1, keepdims=True)
    factor = np.where(size > LEAST, typical / np.maximum(size, LEAST), 0.0)
    factor[factor > 1e3] = 1.0
    corrected = np.clip(base + factor * carried, 0.0, 1.0)
    corrected[labelled] = truth[labelled]
    return spread(step, corrected, smoothing)


def beyond_neighbours(edges: Indices, truth: Matrix) -> Matrix:
    """What the labels around a paper's labelled neighbours say beyond those neighbours' own labels.

    A labelled paper is known, so that belief propagation passes nothing through it. Yet papers that cite the same one
    are alike in more than its label. For each labelled neighbour the labels of its other labelled neighbours are averaged,
    less what its own label lets one expect, and drawn to 0 where they are few; these are added up.

    Parameters
    ----------
    edges : (citations, 2)
    truth : (papers, classes) 0/1 rows with a single 1, all 0 where a paper is not labelled

    Returns
    -------
    (papers, classes)
        Of a labelled paper without its own label.
    """
    known = truth.sum(axis=1)
    both = np.concatenate([edges, edges[:, ::-1]])
    middle, paper = both[known[both[:, 0]] > 0].T
    size = len(truth)
    table = sparse.coo_array((np.ones(len(middle)), (middle, paper)), shape=(size, size)).tocsr()
    around, counted = table @ truth, table @ known
    # Seen once more, in their overall shares: a class that no citation shows expects those.
    usual = truth.T @ around + truth.mean(axis=0) / max(known.mean(), LEAST)
    expected = truth @ (usual / np.maximum(usual.sum(axis=1, keepdims=True), LEAST))
    others = (counted[middle] - known[paper])[:, None]
    said = (around[middle] - truth[paper] - others * expected[middle]) / (others + FEW)
    onto = sparse.coo_array((np.ones(len(paper)), (paper, np.arange(len(paper)))), shape=(size, len(paper)))
    total: Matrix = onto.tocsr() @ said
    return total


# ---------------------------------------------------------------------- judging


def recall(order: Indices, truth: sparse.csr_array) -> tuple[Matrix, Matrix]:
    """Recall at k = 1, 2, ... of ranked labels.

    Parameters
    ----------
    order : (papers, k) labels, the likeliest first
    truth : (papers, labels) sparse 0/1 rows, none empty

    Returns
    -------
    one, all : (k,)
        How many papers have at least one of their labels among the first k; the share of a paper's labels that are.
    """
    table = truth.toarray() > 0
    found = np.cumsum(np.take_along_axis(table, order, axis=1), axis=1)
    return (found > 0).mean(axis=0), (found / table.sum(axis=1)[:, None]).mean(axis=0)
