"""The projection onto probability measures, judged by SciPy's solvers and by the optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls

from kernelbp.learning.simplex import GAP, MOST_MEMBERS, project_onto_simplex


def gaussian_gram(points: np.ndarray, others: np.ndarray, width: float) -> np.ndarray:
    squares = ((points[:, None] - others[None]) ** 2).sum(axis=-1)
    return np.exp(-0.5 * squares / width**2)


def objective(gram: np.ndarray, linear: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("ni,ij,nj->n", weights, gram, weights) - 2 * (linear * weights).sum(axis=1)


def by_heavy_row(features: np.ndarray, target: np.ndarray) -> np.ndarray:
    """SciPy's non-negative least squares, with a row that makes the sum one at great cost."""
    heavy = 1e5 * np.abs(features).max()
    system = np.vstack([features, np.full(features.shape[1], heavy)])
    found = nnls(system, np.append(target, heavy))[0]
    return found / found.sum()


def assert_measures(weights: np.ndarray) -> None:
    assert (weights >= 0).all()
    assert np.abs(weights.sum(axis=1) - 1).max() <= 4e-16 * weights.shape[1]


def gap(gram: np.ndarray, linear: np.ndarray, weights: np.ndarray) -> float:
    """The most by which any row could still be improved: the duality gap, an upper bound."""
    gradient = linear - weights @ gram
    return float((gradient.max(axis=1) - (gradient * weights).sum(axis=1)).max())


@pytest.mark.parametrize("seed", range(20))
def test_projection_equals_non_negative_least_squares(seed):
    """||a - F w|| over measures w: G = F'F and b = F'a."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    features = rng.standard_normal((size + 3, size))
    targets = rng.standard_normal((6, size + 3)) * rng.choice([0.3, 1.0, 5.0])
    found = project_onto_simplex(features.T @ features, targets @ features)
    expected = np.array([by_heavy_row(features, target) for target in targets])
    assert_measures(found)
    assert np.allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_projection_equals_sequential_quadratic_programming(seed):
    rng = np.random.default_rng(100 + seed)
    points = rng.uniform(-2, 2, (int(rng.integers(2, 7)), 2))
    gram = gaussian_gram(points, points, 0.7)
    linear = gaussian_gram(rng.uniform(-2.5, 2.5, (4, 2)), points, 0.7)
    found = project_onto_simplex(gram, linear)
    for row, target in zip(found, linear, strict=True):
        judged = minimize(
            lambda w, b=target: w @ gram @ w - 2 * b @ w,
            np.full(len(points), 1 / len(points)),
            jac=lambda w, b=target: 2 * (gram @ w - b),
            bounds=[(0, None)] * len(points),
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones_like(w)},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert judged.success
        assert np.allclose(row, judged.x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [0.05, 0.3, 1.0, 3.0])
def test_rows_meet_the_optimality_conditions(width):
    """Kuhn and Tucker: the gradient is the same on all points in use and no better on the others."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (25, 2))
    gram = gaussian_gram(points, points, width)
    linear = gaussian_gram(rng.uniform(-2.5, 2.5, (40, 2)), points, width)
    weights = project_onto_simplex(gram, linear)
    assert_measures(weights)
    gradient = linear - weights @ gram
    multiplier = gradient.max(axis=1, keepdims=True)
    slack = (multiplier - gradient) * (weights > 1e-9)
    assert slack.max() < 1e-7
    assert gap(gram, linear, weights) < 1e-7


def test_a_point_of_the_support_is_represented_by_itself():
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (15, 3))
    gram = gaussian_gram(points, points, 0.6)
    assert np.allclose(project_onto_simplex(gram, gram), np.eye(15), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("size", "width"), [(300, 0.02), (300, 0.3), (300, 3.0), (120, 0.1)])
def test_many_points_are_solved_spread_out_or_sparse(size, width):
    """Means of many values are spread over many points under a narrow kernel, single values over few."""
    rng = np.random.default_rng(2)
    points = rng.uniform(-1, 1, (size, 2))
    gram = gaussian_gram(points, points, width)
    values = rng.uniform(-1, 1, (400, 2))
    near = gaussian_gram(values, points, width)
    spread = near.reshape(4, 100, size).mean(axis=1)
    linear = np.concatenate([near[:10], spread])
    weights = project_onto_simplex(gram, linear)
    assert_measures(weights)
    assert gap(gram, linear, weights) < 2 * GAP
    if width < 0.1:
        assert ((weights[10:] > 0).sum(axis=1) > MOST_MEMBERS).all(), "the projected gradients were taken"


def test_a_spread_out_row_is_as_good_as_non_negative_least_squares():
    rng = np.random.default_rng(3)
    features = np.eye(80) + 0.05 * rng.standard_normal((80, 80))
    measures = rng.dirichlet(np.ones(80), 5)
    targets = measures @ features.T
    gram, linear = features.T @ features, targets @ features
    found = project_onto_simplex(gram, linear)
    assert ((found > 0).sum(axis=1) > MOST_MEMBERS).all()
    best = objective(gram, linear, np.array([by_heavy_row(features, t) for t in targets]))
    assert (objective(gram, linear, found) - best < 2 * GAP).all()


def test_points_given_twice_share_what_one_of_them_would_have():
    rng = np.random.default_rng(4)
    points = rng.uniform(-1, 1, (8, 1))
    twice = np.concatenate([points, points, points[:3]])
    values = rng.uniform(-1, 1, (30, 1))
    once = project_onto_simplex(gaussian_gram(points, points, 0.4), gaussian_gram(values, points, 0.4))
    many = project_onto_simplex(gaussian_gram(twice, twice, 0.4), gaussian_gram(values, twice, 0.4))
    assert_measures(many)
    folded = many[:, :8] + many[:, 8:16]
    folded[:, :3] += many[:, 16:]
    assert np.allclose(folded, once, rtol=0, atol=1e-4)


def test_no_rows_and_one_point_and_a_gram_of_zeros():
    assert project_onto_simplex(np.eye(3), np.empty((0, 3))).shape == (0, 3)
    assert np.array_equal(project_onto_simplex(np.eye(1), np.array([[-3.0], [0.2]])), np.ones((2, 1)))
    assert_measures(project_onto_simplex(np.zeros((4, 4)), np.zeros((2, 4))))


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-6, 1e6), rank=st.integers(1, 6))
@settings(max_examples=60)
def test_scaling_the_kernel_and_relabelling_points_change_nothing(seed, scale, rank):
    """Also where the Gram matrix has less than full rank and the answer is not unique: the objective is."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rank, 6))
    gram, linear = features.T @ features, rng.standard_normal((5, rank)) @ features
    order = rng.permutation(6)
    plain = project_onto_simplex(gram, linear)
    scaled = project_onto_simplex(scale * gram, scale * linear)
    shuffled = project_onto_simplex(gram[np.ix_(order, order)], linear[:, order])
    size = np.abs(gram).max() + np.abs(linear).max()
    for weights in (plain, scaled):
        assert_measures(weights)
        assert gap(gram, linear, weights) < 1e-7 * size
    assert gap(gram[np.ix_(order, order)], linear[:, order], shuffled) < 1e-7 * size
    assert np.allclose(
        objective(gram, linear, plain), objective(gram, linear, scaled), rtol=0, atol=1e-7 * size
    )
