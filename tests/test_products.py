"""Sampling from products of Gaussian mixtures, against the product worked out component by component."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from kernelbp.errors import InputError
from kernelbp.rivals.products import Gaussians, MixtureSet, grow_trees, product_weights, sample_products

SAMPLERS = ("exact", "gibbs", "multiscale", "epsilon")
DRAWS = 8000
LEAST_P = 1e-3
"""With fixed seeds each comparison fails only if its p-value is under this."""


def random_mixtures(factors: int, size: int, dimension: int, seed: int, spread: float = 1.0) -> MixtureSet:
    rng = np.random.default_rng(seed)
    return MixtureSet.stack(
        spread * rng.standard_normal((factors, size, dimension)),
        rng.uniform(0.3, 1.5, (factors, size, dimension)),
        rng.dirichlet(np.ones(size), factors),
    )


def enumerated(mixtures: MixtureSet, factors: list[int], gaussian: tuple[Any, Any] | None = None) -> Any:
    """Weights, means and variances of every component, by the textbook product of normal densities."""
    weights, means, variances = [], [], []
    ranges = [range(mixtures.begin[f], mixtures.begin[f + 1]) for f in factors]
    for taken in itertools.product(*ranges):
        chosen = list(taken)
        mu, var = mixtures.means[chosen], mixtures.variances[chosen]
        weight = mixtures.weights[chosen].prod()
        if gaussian is not None:
            mu = np.vstack([mu, gaussian[0]])
            var = np.vstack([var, 1 / np.asarray(gaussian[1])])
        precision = (1 / var).sum(axis=0)
        centre = (mu / var).sum(axis=0) / precision
        # The height of a product of normal densities, at any point, over the normal density it is proportional to.
        height = stats.norm.logpdf(centre, mu, np.sqrt(var)).sum()
        height -= stats.norm.logpdf(centre, centre, precision**-0.5).sum()
        weights.append(weight * np.exp(height))
        means.append(centre)
        variances.append(1 / precision)
    mass = np.asarray(weights)
    return mass / mass.sum(), np.asarray(means), np.asarray(variances)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("with_gaussian", [False, True])
def test_weights_are_those_of_the_textbook(dimension: int, with_gaussian: bool) -> None:
    mixtures = random_mixtures(3, 4, dimension, seed=dimension)
    gaussian = (np.full(dimension, 0.4), np.full(dimension, 0.7)) if with_gaussian else None
    expected = enumerated(mixtures, [0, 1, 2], gaussian)[0]
    assert np.allclose(product_weights(mixtures, [0, 1, 2], gaussian=gaussian).ravel(), expected, atol=1e-12)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("dimension", [1, 2])
def test_samplers_draw_from_the_product(sampler: str, dimension: int) -> None:
    mixtures = random_mixtures(3, 5, dimension, seed=10 + dimension)
    gaussian = (np.full(dimension, 0.2), np.full(dimension, 0.3))
    weights, means, variances = enumerated(mixtures, [0, 1, 2], gaussian)
    draws = sample_products(
        mixtures,
        [0, 1, 2],
        [0, 3],
        DRAWS,
        seeds=[dimension],
        method=sampler,  # type: ignore[arg-type]
        epsilon=0.001,
        sweeps=20,
        gaussians=Gaussians(*(np.asarray(g)[None] for g in gaussian)),
    )
    points = draws.points[0]
    # Moments within four standard errors.
    mean = weights @ means
    variance = weights @ (variances + (means - mean) ** 2)
    assert (np.abs(points.mean(axis=0) - mean) < 4 * np.sqrt(variance / DRAWS)).all()
    fourth = ((points - mean) ** 4).mean(axis=0)
    error = np.sqrt((fourth - variance**2) / DRAWS)
    assert (np.abs(((points - mean) ** 2).mean(axis=0) - variance) < 4 * error).all()
    # The distribution: each axis against draws made independently, and the components taken against their weights.
    rng = np.random.default_rng(99)
    taken = rng.choice(len(weights), DRAWS, p=weights)
    others = means[taken] + np.sqrt(variances[taken]) * rng.standard_normal((DRAWS, dimension))
    for axis in range(dimension):
        assert stats.ks_2samp(points[:, axis], others[:, axis]).pvalue > LEAST_P
    sums = points.sum(axis=1), others.sum(axis=1)
    assert stats.ks_2samp(*sums).pvalue > LEAST_P
    counts = np.bincount(np.ravel_multi_index(tuple(draws.components[0].T), (5, 5, 5)), minlength=125)
    large = weights * DRAWS > 5
    observed = np.append(counts[large], counts[~large].sum())
    expected = DRAWS * np.append(weights[large], weights[~large].sum())
    assert stats.chisquare(observed, expected).pvalue > LEAST_P


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.01, 1e-4])
@pytest.mark.parametrize(
    ("factors", "size", "dimension", "spread"), [(2, 30, 1, 1.0), (3, 9, 1, 5.0), (3, 8, 2, 1.0)]
)
def test_epsilon_exact_is_within_epsilon(
    epsilon: float, factors: int, size: int, dimension: int, spread: float
) -> None:
    for seed in range(3):
        mixtures = random_mixtures(factors, size, dimension, seed=20 + seed, spread=spread)
        every = list(range(factors))
        exact = product_weights(mixtures, every)
        close = product_weights(mixtures, every, epsilon=epsilon)
        distance = 0.5 * np.abs(exact - close).sum()
        bound = sample_products(
            mixtures, every, [0, factors], 1, seeds=[0], method="epsilon", epsilon=epsilon
        ).bound[0]
        assert distance <= bound + 1e-12
        assert bound <= epsilon


def test_epsilon_exact_merges_components() -> None:
    # A bound that could only be kept by looking at every component would also pass the test above.
    mixtures = MixtureSet.stack(
        np.random.default_rng(0).standard_normal((2, 64, 1)), np.full((2, 64, 1), 4.0)
    )
    coarse = product_weights(mixtures, [0, 1], epsilon=0.3)
    assert len(np.unique(coarse.round(12))) < 500 < coarse.size


def test_bounds_survive_factors_far_apart() -> None:
    # The product's height is about exp(-5000): nothing may underflow.
    mixtures = MixtureSet.stack([[[0.0], [1.0]], [[100.0], [102.0]]], [[[1.0], [1.0]], [[1.0], [1.0]]])
    # Heights exp(-d^2 / 4) of the distances 100, 102, 99 and 101.
    heights = np.exp(-(np.array([[100.0, 102.0], [99.0, 101.0]]) ** 2 - 99.0**2) / 4)
    exact = product_weights(mixtures, [0, 1])
    assert np.allclose(exact, heights / heights.sum(), atol=1e-12)
    assert np.allclose(product_weights(mixtures, [0, 1], epsilon=1e-6), exact, atol=1e-6)
    for sampler in SAMPLERS:
        draws = sample_products(mixtures, [0, 1], [0, 2], 100, seeds=[0], method=sampler)  # type: ignore[arg-type]
        assert np.abs(draws.points.mean() - 50.5) < 4 * np.sqrt(0.5 / 100)


def test_multiscale_finds_modes_where_plain_walks_stay() -> None:
    # Two modes 40 widths apart in both factors: a walk over components never crosses, coarse nodes do.
    mixtures = MixtureSet.stack(
        [[[-20.0], [-20.5], [20.0], [20.5]]] * 2, np.full((2, 4, 1), 0.25), [[0.45, 0.45, 0.05, 0.05]] * 2
    )
    exact = product_weights(mixtures, [0, 1])
    right = exact[2:, 2:].sum()
    share = {
        sampler: (
            sample_products(mixtures, [0, 1], [0, 2], 4000, seeds=[3], method=sampler, sweeps=5).points > 0
        ).mean()
        for sampler in ("gibbs", "multiscale")
    }
    assert abs(right - 0.0122) < 0.001
    assert share["gibbs"] > 3 * right
    assert abs(share["multiscale"] - right) < abs(share["gibbs"] - right) / 2


def test_draws_depend_on_their_own_seed_only() -> None:
    mixtures = random_mixtures(6, 7, 2, seed=4)
    factors, begin, seeds = [0, 1, 2, 3, 4, 5, 0, 3], [0, 3, 4, 6, 8], [5, 6, 7, 8]
    for sampler in SAMPLERS:
        together = sample_products(mixtures, factors, begin, 20, seeds=seeds, method=sampler, threads=1)  # type: ignore[arg-type]
        threaded = sample_products(mixtures, factors, begin, 20, seeds=seeds, method=sampler, threads=3)  # type: ignore[arg-type]
        alone = sample_products(mixtures, [4, 5], [0, 2], 20, seeds=[7], method=sampler)  # type: ignore[arg-type]
        assert np.array_equal(together.points, threaded.points)
        assert np.array_equal(together.points[2], alone.points[0])
        assert not np.array_equal(together.points[0], together.points[1])


def test_mixtures_of_different_sizes_and_components_without_weight() -> None:
    mixtures = MixtureSet(
        np.array([[0.0], [50.0], [1.0], [2.0], [3.0]]),
        np.ones((5, 1)),
        np.array([1.0, 0.0, 0.2, 0.5, 0.3]),
        np.array([0, 2, 5]),
    )
    exact = product_weights(mixtures, [0, 1])
    assert exact.shape == (2, 3)
    assert exact[1].sum() == 0
    for sampler in SAMPLERS:
        draws = sample_products(mixtures, [0, 1], [0, 2], 3000, seeds=[1], method=sampler, epsilon=1e-3)  # type: ignore[arg-type]
        assert (draws.components[0, :, 0] == 0).all()
        found = np.bincount(draws.components[0, :, 1], minlength=3) / 3000
        assert np.abs(found - exact[0]).max() < 4 * np.sqrt(0.25 / 3000)


def test_stratified_draws_have_the_right_weights_with_less_noise() -> None:
    mixtures = random_mixtures(2, 6, 1, seed=8)
    exact = product_weights(mixtures, [0, 1]).ravel()
    errors = {}
    for stratified in (False, True):
        draws = sample_products(
            mixtures,
            np.tile([0, 1], 300),
            np.arange(301) * 2,
            40,
            seeds=np.arange(300),
            stratified=stratified,
        )
        codes = draws.components[..., 0] * 6 + draws.components[..., 1]
        found = np.stack([np.bincount(row, minlength=36) for row in codes]) / 40
        assert np.abs(found.mean(axis=0) - exact).max() < 4 * np.sqrt(0.25 / 12000)
        errors[stratified] = np.abs(found - exact).mean()
    assert errors[True] < 0.6 * errors[False]


def test_auto_enumerates_small_products_and_walks_through_large_ones() -> None:
    small, large = random_mixtures(3, 6, 1, seed=1), random_mixtures(5, 60, 1, seed=1)
    assert sample_products(small, [0, 1, 2], [0, 3], 10, seeds=[0]).bound[0] == 0
    assert np.isnan(sample_products(large, range(5), [0, 5], 10, seeds=[0]).bound[0])  # type: ignore[arg-type]


def test_trees_hold_every_component_within_their_boxes() -> None:
    mixtures = random_mixtures(3, 11, 2, seed=6)
    trees = grow_trees(mixtures.means, mixtures.variances, mixtures.weights, mixtures.begin)
    assert len(trees.weights) == 3 * 21
    for node in range(len(trees.weights)):
        members = trees.order[trees.low[node] : trees.high[node]]
        assert (mixtures.means[members] >= trees.box_low[node]).all()
        assert (mixtures.means[members] <= trees.box_high[node]).all()
        share = mixtures.weights[members] / mixtures.weights[members].sum()
        mean = share @ mixtures.means[members]
        variance = share @ (mixtures.variances[members] + (mixtures.means[members] - mean) ** 2)
        assert np.allclose(trees.means[node], mean)
        assert np.allclose(1 / trees.precisions[node], variance)
    roots = 2 * mixtures.begin[:-1] - np.arange(3)
    assert np.allclose(trees.weights[roots], 1.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "best"}, "method: expected one of auto, exact"),
        ({"n_samples": 0}, "n_samples: expected a whole number of at least 1, got 0"),
        ({"epsilon": 1.0}, "epsilon: expected a number between 0 and 1, got 1.0"),
        ({"sweeps": 1.5}, "sweeps: expected a whole number"),
        ({"seeds": [1, 2]}, "seeds: expected one for each of the 1 products"),
        ({"begin": [0, 0, 2]}, "begin: expected increasing positions"),
        ({"factors": [0, 5]}, "factors: expected numbers of mixtures, 0 ... 1"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"factors": [0, 1], "begin": [0, 2], "n_samples": 5, "seeds": [0]} | change
    with pytest.raises(InputError, match="^" + words.replace(".", r"\.")):
        sample_products(random_mixtures(2, 3, 1, seed=0), **given)


def test_components_without_width_are_refused() -> None:
    with pytest.raises(InputError, match="mixtures: expected variances above 0"):
        sample_products(MixtureSet.stack(np.zeros((1, 2, 1)), np.zeros((1, 2, 1))), [0], [0, 1], 5, seeds=[0])


def test_products_too_large_to_enumerate_say_so() -> None:
    mixtures = random_mixtures(5, 40, 1, seed=0)
    with pytest.raises(InputError, match="too many to enumerate; use 'epsilon' or 'multiscale'"):
        sample_products(mixtures, range(5), [0, 5], 5, seeds=[0], method="exact")  # type: ignore[arg-type]
