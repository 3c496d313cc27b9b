r"""Samples from products of Gaussian mixtures, for many products at once.

A product of d mixtures of b Gaussians is a mixture of b^d Gaussians, one for every way to take one component
of each. With diagonal covariances, precisions :math:`p_i` and means :math:`\mu_i` of the components taken, its weight is

.. math:: \prod_i w_i \cdot \prod_{\mathrm{axes}} \sqrt{\tfrac{\prod_i p_i}{\sum_i p_i}}\,
          \exp\Big(-\tfrac12 \sum_{i<j} \tfrac{p_i p_j}{\sum_k p_k} (\mu_i - \mu_j)^2\Big).

Four ways to draw from it (Sudderth, Ihler, Freeman and Willsky 2003; Ihler, Sudderth, Freeman and Willsky 2004):

- ``"exact"``: all b^d weights are worked out;
- ``"gibbs"``: one component after another is redrawn given the others, from a start that ignores them;
- ``"multiscale"``: the same on the nodes of KD-trees over the components, from coarse to fine, so that chains start
  in the right region and pass between modes while these are still wide;
- ``"epsilon"``: blocks of the b^d weights (one tree node for each mixture) are split until the bounds of
  each block are so close that the drawn distribution over components is within `epsilon` of the exact one in
  total variation.

Every product has its own seed, so what is drawn depends neither on the number of threads nor on the other products.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.compiling import jit
from kernelbp.errors import InputError
from kernelbp.values import is_number, is_whole

__all__ = ["Draws", "Gaussians", "MixtureSet", "ProductSampler", "product_weights", "sample_products"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
ProductSampler = Literal["auto", "exact", "gibbs", "multiscale", "epsilon"]

ENUMERATION_GAIN = 6.0
"""How many components are enumerated in the time a multiscale walk looks at one: measured, about 5 to 10."""
MOST_WEIGHTS = 1 << 24
"""Products of more components cannot be enumerated at all."""
MOST_BLOCKS = 1 << 20
"""Blocks after which the epsilon-exact sampler stops refining; the bound it returns says what was reached."""


@dataclass(frozen=True)
class MixtureSet:
    """Many mixtures of Gaussians with diagonal covariances, one after another in flat arrays.

    Attributes
    ----------
    means, variances : (components, d)
    weights : (components,) summing to one within each mixture
    begin : (mixtures + 1,) mixture i has the components begin[i] ... begin[i + 1]

    Examples
    --------
    >>> pair = MixtureSet.stack([[[0.0], [4.0]], [[1.0], [4.0]]], [[[1.0], [1.0]], [[1.0], [1.0]]])
    >>> len(pair), pair.begin.tolist()
    (2, [0, 2, 4])
    """

    means: Matrix
    variances: Matrix
    weights: Matrix
    begin: Indices

    @classmethod
    def stack(cls, means: ArrayLike, variances: ArrayLike, weights: ArrayLike | None = None) -> MixtureSet:
        """Mixtures of equally many components: arrays (n, b, d), (n, b, d) and (n, b), all weights alike if None."""
        centres = np.ascontiguousarray(means, dtype=np.float64)
        n, size, dimension = centres.shape
        spread = np.broadcast_to(np.asarray(variances, dtype=np.float64), centres.shape)
        share = np.full((n, size), 1.0 / size) if weights is None else np.asarray(weights, dtype=np.float64)
        return cls(
            centres.reshape(-1, dimension),
            np.ascontiguousarray(spread).reshape(-1, dimension),
            np.ascontiguousarray(share).reshape(-1),
            np.arange(n + 1, dtype=np.intp) * size,
        )

    def __len__(self) -> int:
        return len(self.begin) - 1

    @property
    def dimension(self) -> int:
        """Numbers in a mean."""
        return self.means.shape[1]


@dataclass(frozen=True)
class Gaussians:
    """One more factor of each product, an unnormalised Gaussian; precision 0 leaves it out.

    Attributes
    ----------
    means, precisions : (products, d)
    """

    means: Matrix
    precisions: Matrix


@dataclass(frozen=True)
class Draws:
    """What was drawn.

    Attributes
    ----------
    points : (products, samples, d)
    components : (products, samples, most factors) the component taken of each factor, counted within it; -1 beyond
    bound : (products,) how far the distribution over components may be from the exact one in total variation: 0 when
        enumerated, NaN for walks, which have none
    """

    points: Matrix
    components: Indices
    bound: Matrix


def sample_products(
    mixtures: MixtureSet,
    factors: ArrayLike,
    begin: ArrayLike,
    n_samples: int,
    *,
    seeds: ArrayLike,
    method: ProductSampler = "auto",
    epsilon: float = 0.01,
    sweeps: int = 5,
    gaussians: Gaussians | None = None,
    stratified: bool = False,
    threads: int | None = None,
) -> Draws:
    """Draw from many products of mixtures.

    Parameters
    ----------
    mixtures : MixtureSet
    factors : (total,) numbers of mixtures, product after product
    begin : (products + 1,)
        Product i is that of the mixtures ``factors[begin[i] : begin[i + 1]]``, at least one.
    n_samples : int
        From each product.
    seeds : (products,) whole numbers
    method : "auto", "exact", "gibbs", "multiscale" or "epsilon"
        "auto" enumerates where that takes no longer than a multiscale walk, and walks where it would.
    epsilon : float
        Total variation distance allowed to ``"epsilon"``, between 0 and 1.
    sweeps : int
        Passes of a Gibbs walk over the factors (at each scale).
    gaussians : Gaussians, optional
    stratified : bool
        Spread the draws evenly over the components ("exact" and "epsilon" only): moments are nearer, draws of one
        product are no longer independent of each other.
    threads : int, optional
        As many as there are processors if not given; the result is the same.

    Returns
    -------
    Draws

    Examples
    --------
    >>> import numpy as np
    >>> pair = MixtureSet.stack([[[0.0], [4.0]], [[1.0], [4.0]]], [[[1.0], [1.0]], [[1.0], [1.0]]])
    >>> draws = sample_products(pair, [0, 1], [0, 2], 5000, seeds=[7])
    >>> draws.points.shape, draws.bound
    ((1, 5000, 1), array([0.]))
    >>> bool(abs(draws.points.mean() - 2.465) < 0.1)
    True
    """
    which, cuts = np.asarray(factors, dtype=np.intp), np.asarray(begin, dtype=np.intp)
    own_seeds = np.asarray(seeds).astype(np.uint64)
    count = len(cuts) - 1
    _check(mixtures, which, cuts, own_seeds, method, n_samples, epsilon, sweeps)
    dimension = mixtures.dimension
    widest = int(np.diff(cuts).max(initial=0))
    if gaussians is None:
        gaussians = Gaussians(np.zeros((count, dimension)), np.zeros((count, dimension)))
    points = np.empty((count, n_samples, dimension))
    components = np.full((count, n_samples, widest), -1, dtype=np.intp)
    bound = np.full(count, np.nan)
    ways = _chosen_methods(mixtures, which, cuts, method, float(n_samples * sweeps))
    trees = (
        grow_trees(mixtures.means, mixtures.variances, mixtures.weights, mixtures.begin)
        if (ways >= MULTISCALE).any()
        else grow_trees(mixtures.means[:0], mixtures.variances[:0], mixtures.weights[:0], mixtures.begin[:1])
    )
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixtures.weights)
    precisions = 1.0 / mixtures.variances

    def work(jobs: tuple[int, int]) -> None:
        _sample(
            jobs[0],
            jobs[1],
            mixtures.means,
            precisions,
            log_weights,
            mixtures.begin,
            which,
            cuts,
            gaussians.means,
            gaussians.precisions,
            own_seeds,
            ways,
            epsilon,
            sweeps,
            stratified,
            trees,
            points,
            components,
            bound,
        )

    in_threads(work, count, threads)
    return Draws(points, components, bound)


def product_weights(
    mixtures: MixtureSet,
    factors: ArrayLike,
    *,
    gaussian: tuple[ArrayLike, ArrayLike] | None = None,
    epsilon: float | None = None,
) -> Matrix:
    """The probability of every way to take one component of each factor, shape (b_1, ..., b_d), summing to one.

    Parameters
    ----------
    mixtures : MixtureSet
    factors : (d,) numbers of mixtures
    gaussian : (mean, precision), optional
    epsilon : float, optional
        Give the probabilities that the epsilon-exact sampler draws with instead of the exact ones.

    Examples
    --------
    >>> pair = MixtureSet.stack([[[0.0], [4.0]], [[1.0], [4.0]]], [[[1.0], [1.0]], [[1.0], [1.0]]])
    >>> product_weights(pair, [0, 1]).round(3)
    array([[0.409, 0.01 ],
           [0.055, 0.526]])
    """
    which = np.asarray(factors, dtype=np.intp)
    sizes = np.diff(mixtures.begin)[which]
    if np.prod(sizes.astype(np.float64)) > MOST_WEIGHTS:
        raise InputError(
            f"factors: a product of {' x '.join(map(str, sizes))} components is too large to list"
        )
    d = mixtures.dimension
    mean, precision = (
        (np.zeros(d), np.zeros(d)) if gaussian is None else (np.asarray(g, float) for g in gaussian)
    )
    with np.errstate(divide="ignore"):
        log_weights = np.log(mixtures.weights)
    precisions = 1.0 / mixtures.variances
    if epsilon is None:
        logs = np.empty(int(np.prod(sizes)))
        _enumerate(mixtures.means, precisions, log_weights, mixtures.begin, which, mean, precision, logs)
        found = np.exp(logs - logs.max())
        return (found / found.sum()).reshape(sizes)
    trees = grow_trees(mixtures.means, mixtures.variances, mixtures.weights, mixtures.begin)
    nodes, masses, count, _ = _refine(trees, mixtures.begin, which, mean, precision, epsilon)
    result = np.zeros(sizes)
    for block in range(count):
        shares = []
        for factor, node in zip(which, nodes[block], strict=True):
            own = np.zeros(mixtures.begin[factor + 1] - mixtures.begin[factor])
            members = trees.order[trees.low[node] : trees.high[node]]
            own[members - mixtures.begin[factor]] = mixtures.weights[members]
            shares.append(own / own.sum() if own.sum() > 0 else own)
        block_share = shares[0]
        for share in shares[1:]:
            block_share = np.multiply.outer(block_share, share)
        result += masses[block] * block_share
    normalised: Matrix = result / result.sum()
    return normalised


# ---------------------------------------------------------------------- choosing and checking

EXACT, GIBBS, MULTISCALE, EPSILON = 0, 1, 2, 3
METHODS = {"exact": EXACT, "gibbs": GIBBS, "multiscale": MULTISCALE, "epsilon": EPSILON}


def _chosen_methods(
    mixtures: MixtureSet, factors: Indices, begin: Indices, method: str, passes: float
) -> NDArray[np.int64]:
    """One number for each product: how it is drawn."""
    sizes = np.diff(mixtures.begin)[factors].astype(np.float64)
    logs = np.add.reduceat(np.log2(sizes), begin[:-1]) if len(begin) > 1 else np.empty(0)
    if method == "exact" and (logs > np.log2(MOST_WEIGHTS)).any():
        worst = int(logs.argmax())
        raise InputError(
            f"method: product {worst} has 2^{logs[worst]:.0f} components, too many to enumerate; "
            "use 'epsilon' or 'multiscale'"
        )
    if method != "auto":
        return np.full(len(begin) - 1, METHODS[method], dtype=np.int64)
    looked_at = passes * np.add.reduceat(sizes, begin[:-1]) if len(begin) > 1 else np.empty(0)
    most = np.minimum(np.log2(ENUMERATION_GAIN * looked_at), np.log2(MOST_WEIGHTS))
    # One factor alone is its own product.
    return np.where((logs <= most) | (np.diff(begin) == 1), EXACT, MULTISCALE).astype(np.int64)


def _check(
    mixtures: MixtureSet,
    factors: Indices,
    begin: Indices,
    seeds: Array,
    method: str,
    n_samples: int,
    epsilon: float,
    sweeps: int,
) -> None:
    if method not in get_args(ProductSampler):
        raise InputError(f"method: expected one of {', '.join(get_args(ProductSampler))}, got {method!r}")
    if not (is_whole(n_samples) and n_samples >= 1):
        raise InputError(f"n_samples: expected a whole number of at least 1, got {n_samples!r}")
    if not (is_whole(sweeps) and sweeps >= 1):
        raise InputError(f"sweeps: expected a whole number of at least 1, got {sweeps!r}")
    if not (is_number(epsilon) and 0 < epsilon < 1):
        raise InputError(f"epsilon: expected a number between 0 and 1, got {epsilon!r}")
    if begin.ndim != 1 or len(begin) < 1 or (np.diff(begin) < 1).any() or begin[-1] != len(factors):
        raise InputError(
            "begin: expected increasing positions from 0 to the number of factors, at least one each"
        )
    if len(factors) and (factors.min() < 0 or factors.max() >= len(mixtures)):
        raise InputError(f"factors: expected numbers of mixtures, 0 ... {len(mixtures) - 1}")
    if seeds.shape != (len(begin) - 1,):
        raise InputError(
            f"seeds: expected one for each of the {len(begin) - 1} products, got shape {seeds.shape}"
        )
    if not (mixtures.variances > 0).all():
        raise InputError("mixtures: expected variances above 0")
    if not ((mixtures.weights >= 0).all() and np.isfinite(mixtures.means).all()):
        raise InputError("mixtures: expected finite means and weights of at least 0")


def in_threads(work: Any, count: int, threads: int | None) -> None:
    """Call ``work((first, last))`` on pieces of 0 ... count."""
    wanted = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(wanted if threads is None else threads, count)
    if wanted <= 1:
        work((0, count))
        return
    # More pieces than threads, since products take unequal time.
    cuts = np.linspace(0, count, min(count, 4 * wanted) + 1).astype(int).tolist()
    with ThreadPoolExecutor(wanted) as pool:
        list(pool.map(work, itertools.pairwise(cuts)))


# ---------------------------------------------------------------------- random numbers
# One generator for each product (splitmix64): a state of one number, so that seeding costs nothing.

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST_MIX, SECOND_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@jit
def scrambled(number: Any) -> Any:
    """Spread the bits of a 64-bit number (splitmix64's last step)."""
    z = np.uint64(number)
    z = (z ^ (z >> np.uint64(30))) * FIRST_MIX
    z = (z ^ (z >> np.uint64(27))) * SECOND_MIX
    return z ^ (z >> np.uint64(31))


@jit
def uniform(state: Array) -> Any:
    """A number in (0, 1); `state` is an array of one uint64."""
    state[0] += GAMMA
    return (float(scrambled(state[0]) >> np.uint64(11)) + 0.5) * 2.0**-53


@jit
def normal(state: Array) -> Any:
    """A standard normal number, by Marsaglia's polar method."""
    while True:
        a, b = 2 * uniform(state) - 1, 2 * uniform(state) - 1
        s = a * a + b * b
        if 0 < s < 1:
            return a * np.sqrt(-2 * np.log(s) / s)


@jit
def ordered_uniforms(state: Array, out: Array, stratified: bool) -> None:
    """Uniform numbers from smallest to largest; stratified, one in each of as many equal parts."""
    n = len(out)
    if stratified:
        for i in range(n):
            out[i] = (i + uniform(state)) / n
        return
    total = 0.0
    for i in range(n):
        total -= np.log(uniform(state))
        out[i] = total
    total -= np.log(uniform(state))
    for i in range(n):
        out[i] /= total


@jit
def shuffle(state: Array, order: Array) -> None:
    """Fill `order` with a random permutation."""
    for i in range(len(order)):
        order[i] = i
    for i in range(len(order) - 1, 0, -1):
        j = int(uniform(state) * (i + 1))
        order[i], order[j] = order[j], order[i]


# ---------------------------------------------------------------------- trees


class Trees(NamedTuple):
    """A balanced binary tree over the components of every mixture, one after another in flat arrays.

    Node 0 of a tree is its root; nodes follow level by level. Mixture i has the nodes 2 begin[i] - i and on.

    Attributes
    ----------
    means, precisions : (nodes, d) of the one Gaussian that stands for all components under a node (moments matched)
    scores : (nodes,) log of the weight under a node plus half the logs of these precisions
    weights : (nodes,)
    left, right : (nodes,) children, -1 at a leaf
    low, high : (nodes,) components ``order[low : high]`` are under a node
    box_low, box_high : (nodes, d) between which the means lie
    precision_low, precision_high : (nodes, d) between which the precisions lie
    scale_low, scale_high : (nodes,) half the sum of the logs of these
    order : (components,)
    leaf : (components,) the leaves of each tree, from left to right
    """

    means: Any
    precisions: Any
    scores: Any
    weights: Any
    left: Any
    right: Any
    low: Any
    high: Any
    box_low: Any
    box_high: Any
    precision_low: Any
    precision_high: Any
    scale_low: Any
    scale_high: Any
    order: Any
    leaf: Any


@jit
def grow_trees(means: Array, variances: Array, weights: Array, begin: Array) -> Any:
    """Trees over the components of all mixtures, split at the median of the longest side."""
    total, d = means.shape
    n_mixtures = len(begin) - 1
    size = max(2 * total - n_mixtures, 0)
    t = Trees(
        np.zeros((size, d)),
        np.zeros((size, d)),
        np.zeros(size),
        np.zeros(size),
        np.full(size, -1, np.int64),
        np.full(size, -1, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros((size, d)),
        np.zeros((size, d)),
        np.zeros((size, d)),
        np.zeros((size, d)),
        np.zeros(size),
        np.zeros(size),
        np.arange(total),
        np.zeros(total, np.int64),
    )
    for mixture in range(n_mixtures):
        first = 2 * begin[mixture] - mixture
        t.low[first], t.high[first] = begin[mixture], begin[mixture + 1]
        free = first + 1
        for node in range(first, first + 2 * (begin[mixture + 1] - begin[mixture]) - 1):
            _summarise(t, node, means, variances, weights)
            low, high = t.low[node], t.high[node]
            if high - low == 1:
                t.leaf[low] = node
                continue
            axis = np.argmax(t.box_high[node] - t.box_low[node])
            keys = np.empty(high - low)
            for i in range(high - low):
                keys[i] = means[t.order[low + i], axis]
            # Stable, so that equal means keep their order.
            t.order[low:high] = t.order[low:high][np.argsort(keys, kind="mergesort")]
            middle = low + (high - low + 1) // 2
            t.left[node], t.right[node] = free, free + 1
            t.low[free], t.high[free] = low, middle
            t.low[free + 1], t.high[free + 1] = middle, high
            free += 2
    return t


@jit
def _summarise(t: Trees, node: int, means: Array, variances: Array, weights: Array) -> None:
    low, high = t.low[node], t.high[node]
    weight = 0.0
    for i in range(low, high):
        weight += weights[t.order[i]]
    t.weights[node] = weight
    t.scores[node] = np.log(weight)
    for axis in range(means.shape[1]):
        # Without any weight all components count alike, so that nothing is divided by zero.
        mean, norm = 0.0, 0.0
        for i in range(low, high):
            share = weights[t.order[i]] if weight > 0 else 1.0
            mean += share * means[t.order[i], axis]
            norm += share
        mean /= norm
        variance = 0.0
        box_low = box_high = means[t.order[low], axis]
        least = most = variances[t.order[low], axis]
        for i in range(low, high):
            j = t.order[i]
            share = (weights[j] if weight > 0 else 1.0) / norm
            variance += share * (variances[j, axis] + (means[j, axis] - mean) ** 2)
            box_low, box_high = min(box_low, means[j, axis]), max(box_high, means[j, axis])
            least, most = min(least, variances[j, axis]), max(most, variances[j, axis])
        t.means[node, axis], t.precisions[node, axis] = mean, 1 / variance
        t.scores[node] -= 0.5 * np.log(variance)
        t.box_low[node, axis], t.box_high[node, axis] = box_low, box_high
        t.precision_low[node, axis], t.precision_high[node, axis] = 1 / most, 1 / least
        t.scale_low[node] -= 0.5 * np.log(most)
        t.scale_high[node] -= 0.5 * np.log(least)


# ---------------------------------------------------------------------- enumeration


@jit
def _multiplied(precision: float, mean: float, other_precision: float, other_mean: float) -> Any:
    """Precision, mean and log height (without the parts of single factors) of a product of two Gaussians on a line."""
    if precision == 0:
        return other_precision, other_mean, 0.0
    if other_precision == 0:
        return precision, mean, 0.0
    total = precision + other_precision
    apart = other_mean - mean
    share = other_precision / total
    return total, mean + share * apart, -0.5 * precision * share * apart * apart


@jit
def _enumerate(
    means: Array,
    precisions: Array,
    log_weights: Array,
    begin: Array,
    factors: Array,
    gaussian_mean: Array,
    gaussian_precision: Array,
    out: Array,
) -> None:
    """Log weights of all ways to take one component of each factor, the last factor's changing fastest."""
    d, n_factors = means.shape[1], len(factors)
    last = n_factors - 1
    # Level k holds the product of the Gaussian factor and the components taken of the first k factors.
    precision, mean = np.empty((n_factors, d)), np.empty((n_factors, d))
    log = np.zeros(n_factors)
    precision[0], mean[0] = gaussian_precision, gaussian_mean
    taken = np.zeros(n_factors, np.int64)
    # Components of one factor often share their precisions, and then the logarithm of the total.
    seen, halved = -1.0, 0.0
    written, level = 0, 0
    while True:
        while level < last:
            c = begin[factors[level]] + taken[level]
            height = log[level] + log_weights[c]
            for axis in range(d):
                p, m, h = _multiplied(
                    precision[level, axis], mean[level, axis], precisions[c, axis], means[c, axis]
                )
                precision[level + 1, axis], mean[level + 1, axis] = p, m
                height += h + 0.5 * np.log(precisions[c, axis])
            level += 1
            log[level] = height
        for c in range(begin[factors[last]], begin[factors[last] + 1]):
            height = log[last] + log_weights[c]
            ratio = 1.0
            for axis in range(d):
                own = precisions[c, axis]
                total = precision[last, axis] + own
                apart = means[c, axis] - mean[last, axis]
                height -= 0.5 * precision[last, axis] * own / total * apart * apart
                ratio *= own / total
            if ratio != seen:
                seen, halved = ratio, 0.5 * np.log(ratio)
            out[written] = height + halved
            written += 1
        level -= 1
        while level >= 0:
            taken[level] += 1
            if taken[level] < begin[factors[level] + 1] - begin[factors[level]]:
                break
            taken[level] = 0
            level -= 1
        if level < 0:
            return


@jit
def _accumulate(logs: Array) -> Any:
    """Turn log weights into their running sums, in place; the total."""
    largest = -np.inf
    for i in range(len(logs)):
        largest = max(largest, logs[i])
    total = 0.0
    for i in range(len(logs)):
        # What cannot be told from zero beside the largest is zero: a comparison costs less than an exponential.
        apart = logs[i] - largest
        if apart > -745.0:
            total += np.exp(apart)
        logs[i] = total
    return total


# ---------------------------------------------------------------------- walks


@jit
def _redraw(
    means: Array,
    precisions: Array,
    scores: Array,
    labels: Array,
    which: int,
    candidates: Array,
    count: int,
    gaussian_mean: Array,
    gaussian_precision: Array,
    scratch: Array,
    state: Array,
) -> None:
    """Draw one label anew among candidates, given all others."""
    d = means.shape[1]
    precision, mean, weight = scratch[0], scratch[1], scratch[2]
    for axis in range(d):
        p, m = gaussian_precision[axis], gaussian_mean[axis]
        for other in range(len(labels)):
            if other != which:
                p, m, _ = _multiplied(p, m, precisions[labels[other], axis], means[labels[other], axis])
        precision[axis], mean[axis] = p, m
    largest = -np.inf
    seen, halved = -1.0, 0.0
    for i in range(count):
        c = candidates[i]
        height = scores[c]
        totals = 1.0
        for axis in range(d):
            total = precision[axis] + precisions[c, axis]
            apart = means[c, axis] - mean[axis]
            height -= 0.5 * precision[axis] * precisions[c, axis] / total * apart * apart
            totals *= total
        if totals != seen:
            seen, halved = totals, 0.5 * np.log(totals)
        weight[i] = height - halved
        largest = max(largest, weight[i])
    total = 0.0
    for i in range(count):
        total += np.exp(weight[i] - largest)
        weight[i] = total
    wanted = uniform(state) * total
    chosen = 0
    while chosen < count - 1 and weight[chosen] < wanted:
        chosen += 1
    labels[which] = candidates[chosen]


@jit
def _walk(
    means: Array,
    precisions: Array,
    scores: Array,
    begin: Array,
    factors: Array,
    gaussian_mean: Array,
    gaussian_precision: Array,
    sweeps: int,
    labels: Array,
    candidates: Array,
    scratch: Array,
    state: Array,
) -> None:
    """Gibbs sampling of the components themselves; labels come out as numbers of components."""
    for k in range(len(factors)):
        first, last = begin[factors[k]], begin[factors[k] + 1]
        for i in range(last - first):
            candidates[k, i] = first + i
        # The start: each factor on its own. Labels not yet drawn are left out by a view that ends before them.
        _redraw(
            means,
            precisions,
            scores,
            labels[: k + 1],
            k,
            candidates[k],
            last - first,
            gaussian_mean,
            gaussian_precision,
            scratch,
            state,
        )
    for _ in range(sweeps):
        for k in range(len(factors)):
            count = begin[factors[k] + 1] - begin[factors[k]]
            _redraw(
                means,
                precisions,
                scores,
                labels,
                k,
                candidates[k],
                count,
                gaussian_mean,
                gaussian_precision,
                scratch,
                state,
            )


@jit
def _walk_down(
    trees: Trees,
    begin: Array,
    factors: Array,
    gaussian_mean: Array,
    gaussian_precision: Array,
    sweeps: int,
    labels: Array,
    candidates: Array,
    scratch: Array,
    state: Array,
) -> None:
    """Gibbs sampling of tree nodes, level by level; labels come out as leaves."""
    n_factors = len(factors)
    largest = 0
    for k in range(n_factors):
        labels[k] = 2 * begin[factors[k]] - factors[k]
        largest = max(largest, begin[factors[k] + 1] - begin[factors[k]])
    width = 1
    while width < largest:
        width *= 2
        # Into one of the two children of where the coarser level stood.
        for k in range(n_factors):
            node = labels[k]
            if trees.left[node] >= 0:
                candidates[k, 0], candidates[k, 1] = trees.left[node], trees.right[node]
                _redraw(
                    trees.means,
                    trees.precisions,
                    trees.scores,
                    labels,
                    k,
                    candidates[k],
                    2,
                    gaussian_mean,
                    gaussian_precision,
                    scratch,
                    state,
                )
        for k in range(n_factors):
            first, last = begin[factors[k]], begin[factors[k] + 1]
            root = 2 * first - factors[k]
            for i in range(min(width, last - first)):
                candidates[k, i] = root + width - 1 + i if width < last - first else trees.leaf[first + i]
        for _ in range(sweeps):
            for k in range(n_factors):
                count = min(width, begin[factors[k] + 1] - begin[factors[k]])
                _redraw(
                    trees.means,
                    trees.precisions,
                    trees.scores,
                    labels,
                    k,
                    candidates[k],
                    count,
                    gaussian_mean,
                    gaussian_precision,
                    scratch,
                    state,
                )


# ---------------------------------------------------------------------- bounds


@jit
def _log_bounds(trees: Trees, nodes: Array, gaussian_mean: Array, gaussian_precision: Array) -> Any:
    """Between which numbers the log height of every product of components under these nodes lies."""
    low = high = 0.0
    for node in nodes:
        low += trees.scale_low[node]
        high += trees.scale_high[node]
    n_factors = len(nodes)
    for axis in range(len(gaussian_mean)):
        fixed = gaussian_precision[axis]
        least = most = fixed
        for node in nodes:
            least += trees.precision_low[node, axis]
            most += trees.precision_high[node, axis]
        # The height rises with each precision, the pull between two rises with theirs and falls with all others.
        low -= 0.5 * np.log(least)
        high -= 0.5 * np.log(most)
        for i in range(n_factors):
            a = nodes[i]
            a_low, a_high = trees.box_low[a, axis], trees.box_high[a, axis]
            weak_a, strong_a = trees.precision_low[a, axis], trees.precision_high[a, axis]
            if fixed > 0:
                at = gaussian_mean[axis]
                near = max(0.0, a_low - at, at - a_high)
                far = max(at - a_low, a_high - at)
                high -= 0.5 * weak_a * fixed / (most - strong_a + weak_a) * near * near
                low -= 0.5 * strong_a * fixed / (least - weak_a + strong_a) * far * far
            for j in range(i):
                b = nodes[j]
                b_low, b_high = trees.box_low[b, axis], trees.box_high[b, axis]
                weak_b, strong_b = trees.precision_low[b, axis], trees.precision_high[b, axis]
                near = max(0.0, a_low - b_high, b_low - a_high)
                far = max(a_high - b_low, b_high - a_low)
                high -= 0.5 * weak_a * weak_b / (most - strong_a + weak_a - strong_b + weak_b) * near * near
                low -= 0.5 * strong_a * strong_b / (least - weak_a + strong_a - weak_b + strong_b) * far * far
    return low, max(low, high)


@jit
def _to_split(trees: Trees, nodes: Array) -> int:
    """The factor whose node is widest beside its components' own width; -1 if all are leaves."""
    chosen, widest = -1, -1.0
    for k in range(len(nodes)):
        node = nodes[k]
        if trees.left[node] >= 0:
            width = 0.0
            for axis in range(trees.means.shape[1]):
                extent = trees.box_high[node, axis] - trees.box_low[node, axis]
                width += extent * extent * trees.precision_low[node, axis]
                width += trees.precision_high[node, axis] / trees.precision_low[node, axis] - 1
            if width > widest:
                chosen, widest = k, width
    return chosen


@jit
def _weight_of(trees: Trees, nodes: Array) -> float:
    weight = 1.0
    for node in nodes:
        weight *= trees.weights[node]
    return weight


@jit
def _a_large_one(trees: Trees, nodes: Array, gaussian_mean: Array, gaussian_precision: Array) -> Any:
    """Log height and weight of one large product, found by always going where the bound is higher."""
    high = _log_bounds(trees, nodes, gaussian_mean, gaussian_precision)[1]
    while True:
        k = _to_split(trees, nodes)
        if k < 0:
            return high, _weight_of(trees, nodes)
        left, right = trees.left[nodes[k]], trees.right[nodes[k]]
        nodes[k] = left
        left_high = _log_bounds(trees, nodes, gaussian_mean, gaussian_precision)[1]
        nodes[k] = right
        right_high = _log_bounds(trees, nodes, gaussian_mean, gaussian_precision)[1]
        if left_high + np.log(trees.weights[left]) >= right_high + np.log(trees.weights[right]):
            nodes[k] = left
            high = left_high
        else:
            high = right_high


LARGEST_EXPONENT = 700.0


@jit
def _refine(
    trees: Trees,
    begin: Array,
    factors: Array,
    gaussian_mean: Array,
    gaussian_precision: Array,
    epsilon: float,
) -> Any:
    """Blocks of components (a node of each factor's tree) with their masses, within `epsilon` in total variation.

    A block with weight w may err by w ``delta`` times what the whole product is known to weigh at least, plus
    what earlier blocks left unused. As weights sum to one, all errors then sum to at most ``delta`` of the whole.

    Returns
    -------
    nodes : (at least count, factors)
    masses : (at least count,)
    count : number of blocks
    bound : the total variation distance reached
    """
    n_factors = len(factors)
    delta = epsilon / (1 + epsilon)
    deepest = 8
    for factor in factors:
        size, depth = begin[factor + 1] - begin[factor], 1
        while size > 1:
            size, depth = (size + 1) // 2, depth + 1
        deepest += depth
    stack = np.empty((deepest, n_factors), np.int64)
    stack_low, stack_high, stack_weight = np.empty(deepest), np.empty(deepest), np.empty(deepest)
    capacity = 256
    blocks, masses = np.empty((capacity, n_factors), np.int64), np.empty(capacity)
    for k in range(n_factors):
        stack[0, k] = 2 * begin[factors[k]] - factors[k]
    scale, known = _a_large_one(
        trees, stack[0].copy(), gaussian_mean, gaussian_precision
    )  # its height is then 1
    low, high = _log_bounds(trees, stack[0], gaussian_mean, gaussian_precision)
    stack_low[0] = np.exp(low - scale)
    stack_high[0] = np.exp(min(high - scale, LARGEST_EXPONENT))
    stack_weight[0] = _weight_of(trees, stack[0])
    at_least = stack_weight[0] * stack_low[0]
    depth, count = 1, 0
    total = error = done = 0.0
    while depth > 0:
        depth -= 1
        low, high, weight = stack_low[depth], stack_high[depth], stack_weight[depth]
        if weight == 0:
            continue
        k = -1
        own_error = weight * 0.5 * (high - low)
        if error + own_error > delta * max(at_least, known) * (done + weight) and count < MOST_BLOCKS:
            k = _to_split(trees, stack[depth])
        if k < 0:
            done += weight
            if count == capacity:
                capacity *= 2
                more, more_masses = np.empty((capacity, n_factors), np.int64), np.empty(capacity)
                more[:count], more_masses[:count] = blocks[:count], masses[:count]
                blocks, masses = more, more_masses
            blocks[count] = stack[depth]
            masses[count] = weight * 0.5 * (low + high)
            total += masses[count]
            if _to_split(trees, stack[depth]) >= 0:
                error += own_error
            count += 1
            continue
        at_least -= weight * low
        node = stack[depth, k]
        stack[depth + 1] = stack[depth]
        stack[depth, k], stack[depth + 1, k] = trees.left[node], trees.right[node]
        for child in range(depth, depth + 2):
            child_low, child_high = _log_bounds(trees, stack[child], gaussian_mean, gaussian_precision)
            stack_low[child] = max(low, np.exp(child_low - scale))
            stack_high[child] = min(high, np.exp(min(child_high - scale, LARGEST_EXPONENT)))
            stack_weight[child] = _weight_of(trees, stack[child])
            at_least += stack_weight[child] * stack_low[child]
        # The one that may weigh more goes first: what is known to be there then tells what need not be refined.
        if stack_high[depth] * stack_weight[depth] > stack_high[depth + 1] * stack_weight[depth + 1]:
            for j in range(n_factors):
                stack[depth, j], stack[depth + 1, j] = stack[depth + 1, j], stack[depth, j]
            stack_low[depth], stack_low[depth + 1] = stack_low[depth + 1], stack_low[depth]
            stack_high[depth], stack_high[depth + 1] = stack_high[depth + 1], stack_high[depth]
            stack_weight[depth], stack_weight[depth + 1] = stack_weight[depth + 1], stack_weight[depth]
        depth += 2
    return blocks, masses, count, error / total


# ---------------------------------------------------------------------- all products


@jit
def _draw_point(
    means: Array,
    precisions: Array,
    labels: Array,
    gaussian_mean: Array,
    gaussian_precision: Array,
    state: Array,
    out: Array,
) -> None:
    """A point of the product of the components (or leaves) named."""
    for axis in range(len(out)):
        p, m = gaussian_precision[axis], gaussian_mean[axis]
        for label in labels:
            p, m, _ = _multiplied(p, m, precisions[label, axis], means[label, axis])
        out[axis] = m + normal(state) / np.sqrt(p)


@jit
def _sample(
    first_job: int,
    last_job: int,
    means: Array,
    precisions: Array,
    log_weights: Array,
    begin: Array,
    all_factors: Array,
    job_begin: Array,
    gaussian_means: Array,
    gaussian_precisions: Array,
    seeds: Array,
    ways: Array,
    epsilon: float,
    sweeps: int,
    stratified: bool,
    trees: Trees,
    points: Array,
    components: Array,
    bound: Array,
) -> None:
    """Draw for the products ``first_job ... last_job``."""
    n_samples, d = points.shape[1], points.shape[2]
    widest = components.shape[2]
    largest = 1
    for i in range(len(begin) - 1):
        largest = max(largest, begin[i + 1] - begin[i])
    state = np.empty(1, np.uint64)
    uniforms, place = np.empty(n_samples), np.empty(n_samples, np.int64)
    labels, candidates = np.empty(widest, np.int64), np.empty((widest, largest), np.int64)
    scratch = np.empty((3, max(largest, d)))
    scores = np.empty(0)
    logs = np.empty(0)
    for job in range(first_job, last_job):
        factors = all_factors[job_begin[job] : job_begin[job + 1]]
        n_factors = len(factors)
        own = labels[:n_factors]
        g_mean, g_precision = gaussian_means[job], gaussian_precisions[job]
        state[0] = scrambled(seeds[job] + GAMMA)
        if ways[job] == EXACT:
            size = 1
            for factor in factors:
                size *= begin[factor + 1] - begin[factor]
            if size > len(logs):
                logs = np.empty(size)
            _enumerate(means, precisions, log_weights, begin, factors, g_mean, g_precision, logs[:size])
            total = _accumulate(logs[:size])
            ordered_uniforms(state, uniforms, stratified)
            shuffle(state, place)
            at = 0
            for i in range(n_samples):
                while at < size - 1 and logs[at] < uniforms[i] * total:
                    at += 1
                rest = at
                for k in range(n_factors - 1, -1, -1):
                    count = begin[factors[k] + 1] - begin[factors[k]]
                    components[job, place[i], k] = rest % count
                    own[k] = begin[factors[k]] + rest % count
                    rest //= count
                _draw_point(means, precisions, own, g_mean, g_precision, state, points[job, place[i]])
            bound[job] = 0.0
        elif ways[job] == EPSILON:
            blocks, masses, count, bound[job] = _refine(trees, begin, factors, g_mean, g_precision, epsilon)
            total = 0.0
            for i in range(count):
                total += masses[i]
                masses[i] = total
            ordered_uniforms(state, uniforms, stratified)
            shuffle(state, place)
            at = 0
            for i in range(n_samples):
                while at < count - 1 and masses[at] < uniforms[i] * total:
                    at += 1
                for k in range(n_factors):
                    node = blocks[at, k]
                    while trees.left[node] >= 0:
                        left, right = trees.left[node], trees.right[node]
                        share = trees.weights[left] / (trees.weights[left] + trees.weights[right])
                        node = left if uniform(state) < share else right
                    own[k] = trees.order[trees.low[node]]
                    components[job, place[i], k] = own[k] - begin[factors[k]]
                _draw_point(means, precisions, own, g_mean, g_precision, state, points[job, place[i]])
        elif ways[job] == GIBBS:
            if not len(scores):
                scores = log_weights.copy()
                for c in range(len(scores)):
                    for axis in range(d):
                        scores[c] += 0.5 * np.log(precisions[c, axis])
            for i in range(n_samples):
                _walk(
                    means,
                    precisions,
                    scores,
                    begin,
                    factors,
                    g_mean,
                    g_precision,
                    sweeps,
                    own,
                    candidates,
                    scratch,
                    state,
                )
                for k in range(n_factors):
                    components[job, i, k] = own[k] - begin[factors[k]]
                _draw_point(means, precisions, own, g_mean, g_precision, state, points[job, i])
        else:
            for i in range(n_samples):
                _walk_down(
                    trees, begin, factors, g_mean, g_precision, sweeps, own, candidates, scratch, state
                )
                for k in range(n_factors):
                    own[k] = trees.order[trees.low[own[k]]]
                    components[job, i, k] = own[k] - begin[factors[k]]
                _draw_point(means, precisions, own, g_mean, g_precision, state, points[job, i])
