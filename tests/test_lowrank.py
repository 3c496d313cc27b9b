"""Pivoted Cholesky, judged by LAPACK's and by the dense kernel matrix."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from sklearn.gaussian_process.kernels import RBF, Matern

from kernelbp.errors import InputError
from kernelbp.kernels import Delta, Gaussian, Linear, Precomputed
from kernelbp.lowrank import pivoted_cholesky

RANDOM = np.random.default_rng(0)
SCALARS = RANDOM.normal(size=(80, 1))
VECTORS = RANDOM.normal(size=(60, 3))
WORDS = np.array(["sun", "rain", "sun", "snow", "rain", "fog"], dtype=object)

CASES: list[tuple[Any, Any]] = [
    (Gaussian(0.5), SCALARS),
    (Gaussian(1.5), VECTORS),
    (Gaussian(1.5) * Linear(), VECTORS),
    (Linear(2.0), VECTORS),
    (Matern(length_scale=0.8, nu=1.5), SCALARS),
    (RBF(length_scale=2.0), VECTORS),
]


def lapack(K: NDArray[np.float64], residual: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Pivots and the factor R (l, m), columns in the order of K."""
    factor, order, rank, _ = dpstrf(K, tol=residual**2)
    pivots = order - 1
    R = np.empty((rank, len(K)))
    R[:, pivots] = np.triu(factor)[:rank]
    return pivots[:rank], R


def projection_error(K: NDArray[np.float64], indices: NDArray[np.intp]) -> NDArray[np.float64]:
    """|| phi(x_i) - its projection on the span of the chosen ||^2, from the normal equations."""
    weights = np.linalg.lstsq(K[np.ix_(indices, indices)], K[indices], rcond=None)[0]
    return np.maximum(K.diagonal() - (K[indices] * weights).sum(axis=0), 0.0)


@pytest.mark.parametrize(("kernel", "values"), CASES)
@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("residual", [0.3, 1e-2, 1e-4])
def test_pivots_and_factor_equal_lapack(kernel: Any, values: Any, power: int, residual: float) -> None:
    K = np.asarray(kernel(values)) ** power
    residual *= np.sqrt(K.diagonal().max())
    found = pivoted_cholesky(kernel, values, power=power, residual=residual)
    pivots, R = lapack(K, residual)
    np.testing.assert_array_equal(found.indices, pivots)
    np.testing.assert_allclose(found.coefficients, R, atol=1e-9 * K.diagonal().max() / residual)
    assert found.rank == len(pivots) == len(found.basis)


@pytest.mark.parametrize(("kernel", "values"), CASES)
@pytest.mark.parametrize("residual", [0.3, 1e-2, 1e-3])
def test_residual_is_the_largest_distance_from_the_span(kernel: Any, values: Any, residual: float) -> None:
    K = np.asarray(kernel(values))
    found = pivoted_cholesky(kernel, values, residual=residual)
    largest = np.sqrt(projection_error(K, found.indices).max())
    assert found.residual <= residual
    assert found.residual == pytest.approx(largest, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("kernel", "values"), CASES)
@pytest.mark.parametrize("residual", [0.3, 1e-2, 1e-5])
def test_reconstruction_error_is_bounded_by_the_squared_residual(
    kernel: Any, values: Any, residual: float
) -> None:
    K = np.asarray(kernel(values))
    found = pivoted_cholesky(kernel, values, residual=residual)
    error = K - found.coefficients.T @ found.coefficients
    rounding = 1e-13 * K.diagonal().max()
    assert np.abs(error).max() <= found.residual**2 + rounding
    # What is left is itself a kernel matrix, and nothing of it is left at the chosen points.
    assert np.linalg.eigvalsh(error).min() >= -1e-12 * K.diagonal().max()
    assert np.abs(error[found.indices]).max() <= rounding


@pytest.mark.parametrize("power", [1, 2, 4, 7])
def test_a_power_equals_factoring_the_kernel_matrix_to_that_power(power: int) -> None:
    K = np.asarray(Gaussian(1.0)(VECTORS))
    found = pivoted_cholesky(Gaussian(1.0), VECTORS, power=power, residual=1e-2)
    table = Precomputed(K**power)
    expected = pivoted_cholesky(table, np.arange(len(K), dtype=float)[:, None], residual=1e-2)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-12)
    assert found.residual == pytest.approx(expected.residual)
    assert found.basis.power == power


def test_a_power_of_a_gaussian_is_a_narrower_gaussian() -> None:
    found = pivoted_cholesky(Gaussian(1.0), SCALARS, power=4, residual=1e-3)
    narrow = pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-3)
    np.testing.assert_array_equal(found.indices, narrow.indices)
    np.testing.assert_allclose(found.coefficients, narrow.coefficients, atol=1e-10)


@pytest.mark.parametrize(("kernel", "values"), CASES)
@pytest.mark.parametrize("power", [1, 3])
def test_a_basis_places_new_values_as_it_placed_those_it_was_made_from(
    kernel: Any, values: Any, power: int
) -> None:
    found = pivoted_cholesky(kernel, values, power=power, residual=1e-3)
    basis, K = found.basis, np.asarray(kernel(values)) ** power
    scale = np.sqrt(K.diagonal().max())
    np.testing.assert_allclose(basis.coordinates(values), found.coefficients, atol=1e-8 * scale)
    np.testing.assert_allclose(
        basis.triangle.T @ basis.triangle, K[np.ix_(found.indices, found.indices)], atol=1e-12 * scale**2
    )
    # W is what the paper calls it: xi(x) ~ sum over j of W_j xi(x_j), exact at the chosen points.
    weights = basis.weights(values)
    np.testing.assert_allclose(basis.triangle @ weights, found.coefficients, atol=1e-8 * scale)
    np.testing.assert_allclose(weights[:, found.indices], np.eye(found.rank), atol=1e-7)
    left = (
        K - 2 * K[:, found.indices] @ weights + weights.T @ K[np.ix_(found.indices, found.indices)] @ weights
    )
    assert left.diagonal().max() <= found.residual**2 + 1e-9 * scale**2


def test_values_never_seen_are_projected_on_the_span() -> None:
    kernel, new = Gaussian(0.8), RANDOM.normal(size=(25, 1))
    basis = pivoted_cholesky(kernel, SCALARS, residual=1e-2).basis
    K_II, K_I = np.asarray(kernel(basis.points)), np.asarray(kernel(basis.points, new))
    np.testing.assert_allclose(basis.weights(new), np.linalg.solve(K_II, K_I), atol=1e-8)
    r = basis.coordinates(new)
    np.testing.assert_allclose(r.T @ r, K_I.T @ np.linalg.solve(K_II, K_I), atol=1e-10)


def test_it_says_why_it_stopped() -> None:
    reached = pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-2)
    assert reached.stopped == "residual" and reached.residual <= 1e-2

    cut = pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-2, max_rank=3)
    assert (cut.stopped, cut.rank) == ("max_rank", 3) and cut.residual > 1e-2
    np.testing.assert_array_equal(cut.indices, reached.indices[:3])
    np.testing.assert_allclose(cut.coefficients, reached.coefficients[:3])

    given = pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-2, landmarks=[4, 2])
    assert (given.stopped, given.rank) == ("landmarks", 2)

    # Three features in rounded arithmetic: after three points only rounding is left, and it is not a basis.
    spent = pivoted_cholesky(Linear(0.0), VECTORS, residual=0.0)
    assert (spent.stopped, spent.rank) == ("exhausted", 3) and spent.residual < 1e-6


def test_reaching_the_residual_at_the_largest_rank_allowed_counts_as_reached() -> None:
    rank = pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-2).rank
    assert pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-2, max_rank=rank).stopped == "residual"
    assert pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-2, max_rank=rank - 1).stopped == "max_rank"


def test_landmarks_are_taken_in_their_order_and_those_that_add_nothing_are_left_out() -> None:
    kernel, values = Gaussian(0.5), np.array([[0.0], [1.0], [0.0], [3.0]])
    found = pivoted_cholesky(kernel, values, landmarks=[3, 0, 2, 0, 1])
    assert found.indices.tolist() == [3, 0, 1]
    assert found.stopped == "landmarks"
    error = np.asarray(kernel(values)) - found.coefficients.T @ found.coefficients
    np.testing.assert_allclose(error, 0.0, atol=1e-14)


def test_landmarks_give_the_projection_on_their_span() -> None:
    landmarks = [7, 30, 2, 55]
    K = np.asarray(Gaussian(1.5)(VECTORS))
    found = pivoted_cholesky(Gaussian(1.5), VECTORS, landmarks=np.array(landmarks))
    expected = K[:, landmarks] @ np.linalg.solve(K[np.ix_(landmarks, landmarks)], K[landmarks])
    np.testing.assert_allclose(found.coefficients.T @ found.coefficients, expected, atol=1e-12)
    assert found.residual == pytest.approx(np.sqrt((K - expected).diagonal().max()))
    assert pivoted_cholesky(Gaussian(1.5), VECTORS, landmarks=landmarks, max_rank=2).indices.tolist() == [
        7,
        30,
    ]


def test_objects_with_a_delta_kernel_give_one_point_per_distinct_value() -> None:
    found = pivoted_cholesky(Delta(), WORDS, power=4)
    assert found.basis.points.tolist() == ["sun", "rain", "snow", "fog"]
    assert (found.stopped, found.residual) == ("residual", 0.0)
    expected = [[float(a == b) for b in WORDS] for a in found.basis.points]
    np.testing.assert_array_equal(found.coefficients, expected)
    np.testing.assert_array_equal(
        found.basis.coordinates(np.array(["fog", "hail"], dtype=object))[:, 0], [0, 0, 0, 1]
    )


def test_a_kernel_of_zeros_needs_no_points() -> None:
    found = pivoted_cholesky(Linear(0.0), np.zeros((4, 2)))
    assert (found.rank, found.residual, found.stopped) == (0, 0.0, "residual")
    assert found.basis.coordinates(np.ones((3, 2))).shape == (0, 3)
    assert found.basis.weights(np.ones((3, 2))).shape == (0, 3)


def test_the_scale_of_a_kernel_does_not_matter() -> None:
    plain = pivoted_cholesky(Gaussian(0.5), SCALARS, residual=1e-3)
    for factor in (1e-12, 1e12):
        scaled = pivoted_cholesky(factor * Gaussian(0.5), SCALARS, residual=1e-3 * factor**0.5)
        np.testing.assert_array_equal(scaled.indices, plain.indices)
        np.testing.assert_allclose(
            scaled.coefficients, factor**0.5 * plain.coefficients, rtol=1e-6, atol=1e-8 * factor**0.5
        )


class Spy:
    """A Gaussian kernel that remembers the largest block it was asked for."""

    def __init__(self) -> None:
        self.cells: list[int] = []

    def __call__(self, X: Any, Y: Any = None) -> Any:
        block = Gaussian(0.3)(X, Y)
        self.cells.append(block.size)
        return block

    def diag(self, X: Any) -> Any:
        return np.ones(len(X))


def test_the_kernel_matrix_is_never_formed() -> None:
    spy, values = Spy(), np.linspace(0, 1, 5000)[:, None]
    found = pivoted_cholesky(spy, values, residual=1e-4)
    assert max(spy.cells) <= len(values)
    assert len(spy.cells) == found.rank


def test_two_million_values_take_seconds() -> None:
    values = np.random.default_rng(1).normal(size=(2_000_000, 1))
    begin = time.perf_counter()
    found = pivoted_cholesky(Gaussian(4.0), values, residual=1e-2)
    assert time.perf_counter() - begin < 20
    assert found.stopped == "residual" and 3 <= found.rank <= 10
    some = values[::20_011]
    r = found.coefficients[:, ::20_011]
    assert np.abs(np.asarray(Gaussian(4.0)(some)) - r.T @ r).max() <= found.residual**2 + 1e-12


def test_coefficients_grow_past_their_first_allotment_of_rows() -> None:
    values = np.linspace(0, 1, 300)[:, None]
    found = pivoted_cholesky(Gaussian(0.002), values, residual=1e-3)
    assert found.rank > 128
    K = np.asarray(Gaussian(0.002)(values))
    np.testing.assert_allclose(found.coefficients.T @ found.coefficients, K, atol=1e-6)


features = arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 6)),
    elements=st.floats(-4, 4, allow_nan=False).map(lambda x: round(x, 2)),
)


@given(features, st.integers(1, 3), st.sampled_from([1.0, 0.1, 1e-3]))
def test_any_positive_semidefinite_matrix_is_factored(
    values: NDArray[np.float64], power: int, residual: float
) -> None:
    K = (values @ values.T) ** power
    scale = max(K.diagonal().max(), 1e-300)
    found = pivoted_cholesky(Linear(0.0), values, power=power, residual=residual)
    rounding = 1e-12 * scale
    error = K - found.coefficients.T @ found.coefficients
    assert np.abs(error).max() <= found.residual**2 + rounding
    assert found.residual <= residual or found.stopped == "exhausted"
    assert len(set(found.indices.tolist())) == found.rank <= np.linalg.matrix_rank(K, tol=1e-14 * scale)
    chosen = found.coefficients[:, found.indices]
    np.testing.assert_array_equal(chosen, np.triu(chosen))
    assert (chosen.diagonal() > 0).all()
    # Greedy: each new point was the worst represented, so that the diagonal falls.
    assert (np.diff(chosen.diagonal()) <= rounding**0.5).all()


@given(features, st.randoms(use_true_random=False))
def test_the_order_of_values_does_not_change_how_well_they_are_represented(
    values: NDArray[np.float64], random: Any
) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    for each in (values, values[order]):
        found = pivoted_cholesky(Gaussian(1.0), each, residual=1e-2)
        error = np.asarray(Gaussian(1.0)(each)) - found.coefficients.T @ found.coefficients
        assert np.abs(error).max() <= 1e-4 + 1e-12


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"power": 0}, "power: expected a whole number of at least 1, got 0"),
        ({"power": 1.5}, "power: expected a whole number of at least 1, got 1.5"),
        ({"residual": -1.0}, "residual: expected a number of at least 0, got -1.0"),
        ({"residual": float("nan")}, "residual: expected a number of at least 0, got nan"),
        ({"max_rank": 0}, "max_rank: expected at least 1, got 0"),
        ({"landmarks": []}, r"landmarks: expected positions of values as whole numbers, got \[\]"),
        ({"landmarks": [0.5]}, r"landmarks: expected positions of values as whole numbers, got \[0.5\]"),
        ({"landmarks": [[1]]}, r"landmarks: expected positions of values as whole numbers, got \[\[1\]\]"),
        ({"landmarks": [0, 80]}, r"landmarks: positions must lie in 0 \.\.\. 79, got 0 \.\.\. 80"),
        ({"landmarks": [-1]}, r"landmarks: positions must lie in 0 \.\.\. 79, got -1 \.\.\. -1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=f"^{text}$"):
        pivoted_cholesky(Gaussian(1.0), SCALARS, **settings)


def test_no_values_are_refused() -> None:
    with pytest.raises(InputError, match=r"^values: expected at least one value, got none$"):
        pivoted_cholesky(Gaussian(1.0), np.empty((0, 1)))
