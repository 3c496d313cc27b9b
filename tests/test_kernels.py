"""One list of kernels and values drives the tests of what all share; closed forms judge the rest."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import (
    Delta,
    Gaussian,
    Kernel,
    Linear,
    Power,
    Precomputed,
    Product,
    RandomProjection,
    Scaled,
    Sphere,
    Sum,
    check_values,
    domain,
    from_spec,
    require_kernel,
    resolve,
    to_spec,
)
from kernelbp.testing import check_kernel

RANDOM = np.random.default_rng(0)
SCALARS = np.round(RANDOM.normal(size=(12, 1)), 1)
FLAT = SCALARS[:, 0]
VECTORS = RANDOM.normal(size=(15, 3))
DIRECTIONS = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
WORDS = ["sun", "rain", "sun", "snow", "", "rain"]
OBJECTS = np.array(["a", ("b", 1), frozenset({2}), None, 3, "a"], dtype=object)
INDICATORS = RANDOM.integers(0, 2, size=(9, 6)).astype(float)
LABELS = [frozenset(np.flatnonzero(row).tolist()) for row in INDICATORS]
TABLE = VECTORS @ VECTORS.T
INDICES = np.array([3, 0, 3, 14, 7])
COUNTS = RANDOM.integers(0, 6, size=(10, 2)).astype(float)


class Overlap:
    """A kernel of one's own: the letters two words share."""

    def __call__(self, X: Any, Y: Any = None) -> Any:
        Y = X if Y is None else Y
        rows = [[len(set(x) & set(y)) for y in Y] for x in X]
        return np.array(rows, dtype=float).reshape(len(X), len(Y))

    def diag(self, X: Any) -> Any:
        return np.array([len(set(x)) for x in X], dtype=float)

    def __repr__(self) -> str:
        return "Overlap()"


# kernel, values, domain
CASES: list[tuple[Kernel, Any, str]] = [
    (Gaussian(0.7), SCALARS, "real"),
    (Gaussian(0.7), FLAT, "real"),
    (Gaussian(), VECTORS, "real"),
    (Gaussian(), [1.0, 2.0, 4.0], "real"),
    (Gaussian("median", scale=0.3), FLAT, "real"),
    (Gaussian(2.0, scale=0.5), VECTORS, "real"),
    (Linear(), SCALARS, "real"),
    (Linear(0.0), VECTORS, "real"),
    (Linear(), [[1, 2], [3, 4]], "real"),
    (Sphere(2.5), DIRECTIONS, "sphere"),
    (Sphere(), DIRECTIONS, "sphere"),
    (Delta(), WORDS, "finite"),
    (Delta(), OBJECTS, "finite"),
    (Delta(), np.array(WORDS), "finite"),
    (Delta(), FLAT, "finite"),
    (Delta(), COUNTS, "finite"),
    (Delta(), [(0, 1), (1, 0), (0, 1)], "finite"),
    (RandomProjection(), INDICATORS, "other"),
    (RandomProjection(dimension=7, seed=3, constant=0.0), LABELS, "other"),
    (Precomputed(TABLE), INDICES, "other"),
    (Precomputed(TABLE), INDICES[:, None].astype(float), "other"),
    (Gaussian() + Linear(), SCALARS, "real"),
    (Gaussian(2.0) * Linear(), VECTORS, "real"),
    (Linear() ** 5, VECTORS, "real"),
    (Gaussian() ** 3 * 0.5, FLAT, "real"),
    (2 * Sphere() + Sphere(1.0), DIRECTIONS, "sphere"),
    (Delta() + Delta() * Delta(), WORDS, "finite"),
    (Gaussian(1.0) + Delta(), COUNTS, "other"),
    (Linear(0.0) + RandomProjection(), INDICATORS, "other"),
    (Gaussian() + sk.RBF(0.5), FLAT, "real"),
    ((Gaussian() * sk.RBF([0.5, 1.0, 2.0])) ** 2, VECTORS, "real"),
    (sk.RBF(0.8), SCALARS, "real"),
    (sk.Matern(length_scale=1.2, nu=2.5), VECTORS, "real"),
    (2.0 * sk.RBF() + sk.DotProduct() ** 2, VECTORS, "real"),
    (Overlap(), WORDS, "other"),
    (Delta() + Overlap(), WORDS, "other"),
]
every_kernel = pytest.mark.parametrize(
    ("kernel", "values", "where"), CASES, ids=[f"{c[0]!r}"[:60] for c in CASES]
)


# what all kernels share


@every_kernel
def test_keeps_the_contract(kernel: Kernel, values: Any, where: str) -> None:
    check_kernel(kernel, values)


@every_kernel
def test_domain_is_that_of_the_table(kernel: Kernel, values: Any, where: str) -> None:
    assert domain(kernel) == where


@every_kernel
def test_resolved_kernel_has_no_words_left_and_resolves_to_itself(
    kernel: Kernel, values: Any, where: str
) -> None:
    resolved = resolve(kernel, values)
    assert "median" not in repr(resolved)
    assert resolve(resolved, values) is resolved or resolve(resolved, values) == resolved


@every_kernel
def test_accepted_values_give_the_same_gram(kernel: Kernel, values: Any, where: str) -> None:
    kernel = resolve(kernel, values)
    checked = check_values(kernel, values, "values")
    if getattr(values, "ndim", 2) == 2 or not type(kernel).__module__.startswith("sklearn"):
        np.testing.assert_array_equal(kernel(checked), kernel(values))


@every_kernel
def test_specification_passes_through_json(kernel: Kernel, values: Any, where: str) -> None:
    if "Overlap" in repr(kernel):
        with pytest.raises(UnsupportedError, match=r"Overlap is neither .* must be handed to load"):
            to_spec(kernel)
        return
    again = from_spec(json.loads(json.dumps(to_spec(kernel), allow_nan=False)))
    assert again == kernel
    assert type(again) is type(kernel)
    values = check_values(kernel, values, "values")
    np.testing.assert_array_equal(again(values), kernel(values))


@every_kernel
def test_copies_are_equal(kernel: Kernel, values: Any, where: str) -> None:
    if "Overlap" not in repr(kernel):
        assert copy.deepcopy(kernel) == kernel
        assert pickle.loads(pickle.dumps(kernel)) == kernel
        assert clone(kernel, safe=False) == kernel


@pytest.mark.parametrize(
    "kernel", [Gaussian(), Linear(), Sphere(), Delta(), RandomProjection(), Precomputed(TABLE)]
)
def test_a_plain_empty_list_will_do(kernel: Kernel) -> None:
    values = {Sphere: DIRECTIONS, Delta: WORDS, RandomProjection: LABELS, Precomputed: INDICES}.get(
        type(kernel), VECTORS
    )
    count = len(values)
    assert kernel([], values).shape == (0, count)
    assert kernel(values, []).shape == (count, 0)
    assert kernel([]).shape == (0, 0)
    assert kernel.diag([]).shape == (0,)
    assert len(check_values(kernel, [], "values")) == 0


# equality, hashing, repr, arithmetic


def test_kernels_are_equal_by_parameters() -> None:
    assert Gaussian(2) == Gaussian(2.0) == Gaussian(np.float64(2.0))
    assert Gaussian(2.0) != Gaussian(3.0)
    assert Gaussian() + Linear() == Gaussian() + Linear()
    assert Precomputed(TABLE) == Precomputed(TABLE.copy())
    assert Precomputed(TABLE) != Precomputed(TABLE * 2)
    assert Precomputed(TABLE) != Delta()
    assert len({Gaussian(2.0), Gaussian(2), Delta(), Delta(), Precomputed(TABLE), Precomputed(TABLE)}) == 3


def test_kernels_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Gaussian(1.0).bandwidth = 2.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        Precomputed(TABLE).matrix[0, 0] = 1.0


def test_precomputed_keeps_a_copy() -> None:
    table = np.eye(2)
    kernel = Precomputed(table)
    table[0, 0] = 7.0
    assert kernel([0])[0, 0] == 1.0


def test_repr_brackets_what_binds_less() -> None:
    a, b = Gaussian(1.0), Linear()
    assert (
        repr((a + b) * a**2)
        == "(Gaussian(bandwidth=1.0) + Linear(constant=1.0)) * Gaussian(bandwidth=1.0) ** 2"
    )
    assert repr(a + (b + a)) == "Gaussian(bandwidth=1.0) + (Linear(constant=1.0) + Gaussian(bandwidth=1.0))"
    assert repr((2 * a) ** 3) == "(2.0 * Gaussian(bandwidth=1.0)) ** 3"
    assert repr(a * (sk.RBF() + sk.RBF())) == (
        "Gaussian(bandwidth=1.0) * (RBF(length_scale=1) + RBF(length_scale=1))"
    )


@pytest.mark.parametrize(
    "kernel", [(Gaussian(1.0) + Linear()) * Linear() ** 2, 2 * Gaussian(0.5), Delta(), Sphere()]
)
def test_repr_of_our_own_can_be_evaluated(kernel: Kernel) -> None:
    assert eval(repr(kernel)) == kernel


def test_arithmetic_is_entrywise() -> None:
    a, b = Gaussian(1.3), Linear()
    A, B = a(VECTORS), b(VECTORS)
    assert isinstance(a + b, Sum) and isinstance(a * b, Product) and isinstance(a**2, Power)
    np.testing.assert_allclose((a + b)(VECTORS), A + B, rtol=1e-14)
    np.testing.assert_allclose((a * b)(VECTORS), A * B, rtol=1e-14)
    for scaled in (2.5 * a, a * 2.5, np.float64(2.5) * a, a * np.float32(2.5)):
        assert scaled == Scaled(2.5, a)
        np.testing.assert_allclose(scaled(VECTORS), 2.5 * A, rtol=1e-14)


@given(exponent=st.integers(1, 40))
def test_power_equals_numpy_power(exponent: int) -> None:
    kernel = Linear()
    np.testing.assert_allclose((kernel**exponent)(VECTORS), kernel(VECTORS) ** exponent, rtol=1e-12)
    np.testing.assert_allclose((kernel**exponent).diag(VECTORS), kernel.diag(VECTORS) ** exponent, rtol=1e-12)


def test_power_of_gaussian_is_a_narrower_gaussian() -> None:
    np.testing.assert_allclose((Gaussian(2.0) ** 4)(VECTORS), Gaussian(1.0)(VECTORS), rtol=1e-13)


def test_composites_leave_the_arrays_of_their_parts_alone() -> None:
    class Stored(Overlap):
        table = np.eye(3)

        def __call__(self, X: Any, Y: Any = None) -> Any:
            return self.table

    for kernel in (
        Stored(),
        3 * Delta(),
        Delta() + Stored(),
        Delta() * Stored(),
        Power(Stored(), 3),
        Scaled(2.0, Stored()),
    ):
        kernel(["a", "b", "c"])
        np.testing.assert_array_equal(Stored.table, np.eye(3))


@pytest.mark.parametrize(
    "operation", [lambda k: k + 1, lambda k: k + "a", lambda k: k * "a", lambda k: "a" * k, lambda k: k / 2]
)
def test_other_operands_are_refused_by_python(operation: Any) -> None:
    with pytest.raises(TypeError, match=r"unsupported operand|can't multiply"):
        operation(Gaussian())


@pytest.mark.parametrize("exponent", [0, -1, 1.5, 2.0, True, "2", None])
def test_exponent_must_be_a_whole_number(exponent: Any) -> None:
    with pytest.raises(InputError, match=r"exponent: expected an integer of at least 1, got"):
        Gaussian() ** exponent


@pytest.mark.parametrize("factor", [0, -1.0, math.nan, math.inf])
def test_factor_must_be_positive(factor: float) -> None:
    with pytest.raises(InputError, match=r"factor: expected a positive finite number, got"):
        factor * Gaussian()


# closed forms


@given(arrays(float, (4, 3), elements=st.floats(-10, 10)), st.floats(0.1, 20))
def test_gaussian_equals_scikit_learn(values: Any, bandwidth: float) -> None:
    expected = rbf_kernel(values, VECTORS, gamma=0.5 / bandwidth**2)
    np.testing.assert_allclose(Gaussian(bandwidth)(values, VECTORS), expected, rtol=1e-9, atol=1e-12)
    one = rbf_kernel(values[:, :1], SCALARS, gamma=0.5 / bandwidth**2)
    np.testing.assert_allclose(Gaussian(bandwidth)(values[:, :1], SCALARS), one, rtol=1e-9, atol=1e-12)


@given(arrays(float, (4, 3), elements=st.floats(-1e3, 1e3)), st.floats(0, 5))
def test_linear_equals_scikit_learn(values: Any, constant: float) -> None:
    expected = linear_kernel(values, VECTORS) + constant
    np.testing.assert_allclose(Linear(constant)(values, VECTORS), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("columns", [1, 3])
@given(
    offset=st.sampled_from([0.0, 1e8, -1e12, 1e200]),
    bandwidth=st.sampled_from([1e-3, 1.0, 1e-200, 1e200, 2.3e-308]),
)
def test_gaussian_is_one_at_equal_values_wherever_they_are(
    columns: int, offset: float, bandwidth: float
) -> None:
    values = VECTORS[:, :columns] + offset
    gram = Gaussian(bandwidth)(values, values.copy())
    np.testing.assert_array_equal(gram.diagonal(), 1.0)
    assert ((gram >= 0) & (gram <= 1)).all()


def test_gaussian_far_from_the_origin_keeps_its_digits() -> None:
    near, far = np.array([0.0, 0.5, 2.0]), np.array([0.0, 0.5, 2.0]) + 2.0**40
    np.testing.assert_array_equal(Gaussian(1.0)(far), Gaussian(1.0)(near))


def test_flat_numbers_and_a_column_are_the_same() -> None:
    for kernel in (Gaussian(), Linear(), Delta(), Gaussian() + sk.RBF()):
        np.testing.assert_array_equal(kernel(FLAT), kernel(SCALARS))
        np.testing.assert_array_equal(kernel(FLAT.tolist(), SCALARS[:4]), kernel(SCALARS, FLAT[:4]))
        np.testing.assert_array_equal(kernel.diag(FLAT), kernel.diag(SCALARS))


@pytest.mark.parametrize("dimension", [2, 3, 7])
@pytest.mark.parametrize("concentration", [0.1, 1.0, 50.0])
def test_sphere_equals_its_formula(dimension: int, concentration: float) -> None:
    values = np.random.default_rng(dimension).normal(size=(10, dimension))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    expected = np.array([[math.exp(concentration * (x @ y)) for y in values] for x in values])
    gram = Sphere(concentration)(values)
    np.testing.assert_allclose(gram, expected / math.exp(concentration), rtol=1e-12)
    np.testing.assert_array_equal(gram.diagonal(), 1.0)


@pytest.mark.parametrize("values", [WORDS, OBJECTS, FLAT, COUNTS, np.array(WORDS), [(0, 1), (1, 0)]])
def test_delta_equals_two_loops(values: Any) -> None:
    expected = [[float(np.all(x == y)) for y in values[1:]] for x in values]
    np.testing.assert_array_equal(Delta()(values, values[1:]), expected)


def test_delta_compares_lists_with_arrays() -> None:
    np.testing.assert_array_equal(Delta()([1, 2], np.array([[2.0], [1.0]])), [[0, 1], [1, 0]])
    np.testing.assert_array_equal(Delta()([(1, 2), (3, 4)], np.array([[3.0, 4.0]])), [[0], [1]])
    np.testing.assert_array_equal(Delta()(np.array([0.0, -0.0])), np.ones((2, 2)))


# label sets


def test_projection_equals_the_dense_product() -> None:
    kernel = RandomProjection(dimension=11, seed=5, constant=2.0)
    A = kernel.project(np.eye(6)).T
    assert A.shape == (11, 6)
    np.testing.assert_allclose(kernel.project(INDICATORS), INDICATORS @ A.T, atol=1e-14)
    np.testing.assert_allclose(kernel(INDICATORS), 2.0 + INDICATORS @ A.T @ A @ INDICATORS.T, atol=1e-12)


def test_sets_and_indicators_agree_whatever_the_number_of_labels() -> None:
    kernel = RandomProjection()
    wider = np.hstack([INDICATORS, np.zeros((len(INDICATORS), 4))])
    lists = [list(labels) + list(labels) for labels in LABELS]
    expected = kernel(INDICATORS)
    for other in (LABELS, wider, lists, INDICATORS.astype(bool), INDICATORS.astype(np.int8)):
        np.testing.assert_allclose(kernel(other), expected, atol=1e-12)
        np.testing.assert_allclose(kernel(other, INDICATORS), expected, atol=1e-12)


def test_projection_depends_on_its_seed_alone() -> None:
    np.testing.assert_array_equal(
        RandomProjection(seed=4).project(LABELS), RandomProjection(seed=4).project(LABELS)
    )
    assert not np.allclose(RandomProjection(seed=4).project(LABELS), RandomProjection(seed=5).project(LABELS))


def test_projection_counts_common_labels_on_average() -> None:
    kernel = RandomProjection(dimension=40_000, constant=0.0)
    np.testing.assert_allclose(kernel(INDICATORS), INDICATORS @ INDICATORS.T, atol=0.15)


def test_an_empty_set_is_a_value() -> None:
    kernel = RandomProjection(constant=3.0)
    np.testing.assert_array_equal(kernel([set(), set()]), np.full((2, 2), 3.0))
    np.testing.assert_array_equal(kernel.project(np.zeros((2, 5))), np.zeros((2, 100)))


# medians


def brute_force_distances(values: Any) -> Any:
    rows = np.asarray(values, dtype=float).reshape(len(values), -1)
    return np.array([np.linalg.norm(rows[i] - rows[j]) for i in range(len(rows)) for j in range(i)])


@given(arrays(float, st.integers(2, 12), elements=st.floats(-5, 5).map(lambda x: round(x, 1))), st.data())
def test_pooling_equal_values_changes_nothing(values: Any, data: Any) -> None:
    counts = data.draw(arrays(int, len(values), elements=st.integers(1, 4)))
    assert resolve(Gaussian(), values, counts) == resolve(Gaussian(), np.repeat(values, counts))


@given(arrays(float, (9, 2), elements=st.integers(-3, 3).map(float)))
def test_gaussian_median_equals_brute_force(values: Any) -> None:
    apart = brute_force_distances(values)
    expected = np.median(apart) or (apart[apart > 0].mean() if apart.any() else 1.0)
    kernel = resolve(Gaussian(), values)
    assert isinstance(kernel, Gaussian)
    assert kernel.bandwidth == pytest.approx(expected)


def test_gaussian_median_of_mostly_equal_values_uses_the_others() -> None:
    assert resolve(Gaussian(), [0.0, 3.0, 5.0], [10, 1, 1]) == Gaussian((10 * 3 + 10 * 5 + 2) / 21)
    assert resolve(Gaussian(), [4.0, 4.0, 4.0]) == Gaussian(1.0)
    assert resolve(Gaussian(), [4.0]) == Gaussian(1.0)


def test_scale_is_a_factor_of_the_bandwidth() -> None:
    assert resolve(Gaussian("median", scale=0.3), [0.0, 2.0]) == Gaussian(0.6)
    assert resolve(Gaussian(3.0, scale=0.5), [0.0, 2.0]) == Gaussian(1.5)
    np.testing.assert_array_equal(Gaussian(3.0, scale=0.5)(VECTORS), Gaussian(1.5)(VECTORS))
    assert repr(Gaussian(scale=0.3)) == "Gaussian(bandwidth='median', scale=0.3)"
    with pytest.raises(InputError, match=r"scale: expected a positive finite number, got int 0"):
        Gaussian(scale=0)


def test_median_of_many_values_is_near_that_of_all_and_repeatable() -> None:
    values = np.sort(np.random.default_rng(1).normal(size=4000))
    kernel = resolve(Gaussian(), values)
    assert isinstance(kernel, Gaussian)
    # the median distance between two standard normals
    assert kernel.bandwidth == pytest.approx(math.sqrt(2) * 0.6745, rel=0.03)
    assert resolve(Gaussian(), values) == kernel
    assert resolve(Gaussian(), values, np.full(4000, 10**12)) == kernel


def test_counts_weigh_a_large_sample() -> None:
    kernel = resolve(Gaussian(), [0.0, 1.0, 10.0], [3_000_000, 3_000_000, 1000])
    assert kernel == Gaussian(1.0)


def test_sphere_median_makes_a_typical_pair_one_over_e() -> None:
    kernel = resolve(Sphere(), DIRECTIONS)
    products = [DIRECTIONS[i] @ DIRECTIONS[j] for i in range(len(DIRECTIONS)) for j in range(i)]
    assert isinstance(kernel, Sphere) and not isinstance(kernel.concentration, str)
    assert kernel.concentration * (1 - np.median(products)) == pytest.approx(1.0)
    assert resolve(Sphere(), DIRECTIONS[[0, 0, 0]]) == Sphere(1.0)
    assert resolve(Sphere(), [[1.0, 0.0], [0.0, 1.0]], [20, 1]) == Sphere(1.0)


def test_resolving_reaches_every_part() -> None:
    kernel = (2 * Gaussian() + Linear()) ** 2 * Gaussian()
    assert resolve(kernel, [0.0, 3.0]) == (2 * Gaussian(3.0) + Linear()) ** 2 * Gaussian(3.0)


def test_kernels_without_settings_come_back_unchanged() -> None:
    for kernel in (sk.RBF(), Overlap(), Delta(), Gaussian(2.0)):
        assert resolve(kernel, WORDS) is kernel


def test_an_unresolved_kernel_takes_the_median_of_its_first_argument() -> None:
    np.testing.assert_array_equal(
        Gaussian()(VECTORS, VECTORS[:3]), resolve(Gaussian(), VECTORS)(VECTORS, VECTORS[:3])
    )
    np.testing.assert_array_equal(Sphere()(DIRECTIONS), resolve(Sphere(), DIRECTIONS)(DIRECTIONS))


@pytest.mark.parametrize(
    "counts", [[1, 2], [1.0, 1.0, 1.0], [1, -1, 1], [0, 0, 0], [[1, 1, 1]], ["a", "b", "c"]]
)
def test_odd_counts_are_refused(counts: Any) -> None:
    with pytest.raises(
        InputError, match=r"counts: expected 3 integers of at least 0, not all 0, one per value, got"
    ):
        resolve(Gaussian(), [1.0, 2.0, 3.0], counts)


def test_a_median_of_nothing_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"values: expected at least one value to take a median of, got none"
    ):
        resolve(Gaussian(), [])


# what offers of a kernel of one's own are taken up


def test_offers_of_a_foreign_kernel_are_taken_up() -> None:
    class Offering(Overlap):
        domain = "finite"

        def resolve(self, values: Any, counts: Any = None) -> Any:
            return Delta()

        def check_values(self, values: Any, name: str) -> Any:
            raise InputError(f"{name}: none will do")

    assert domain(Offering()) == "finite"
    assert resolve(Delta() + Offering(), WORDS) == Delta() + Delta()
    with pytest.raises(InputError, match="words: none will do"):
        check_values(Delta() * Offering(), WORDS, "words")


def test_a_foreign_attribute_called_domain_is_not_misread() -> None:
    class Named(Overlap):
        domain = "example.org"

    assert domain(Named()) == "other"


def test_a_scikit_learn_kernel_on_other_things_is_other() -> None:
    class Words(sk.GenericKernelMixin, sk.Kernel):  # type: ignore[misc]
        def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
            return Overlap()(X, Y)

        def diag(self, X: Any) -> Any:
            return Overlap().diag(X)

        def is_stationary(self) -> bool:
            return False

    assert domain(Words()) == "other"
    kernel = sk.Sum(Words(), Words())
    assert domain(kernel) == "other"
    assert check_values(kernel, WORDS, "words") is WORDS
    with pytest.raises(UnsupportedError, match="Words is neither"):
        to_spec(kernel)


# bad input


@pytest.mark.parametrize(
    "kernel", [Gaussian(), Linear(), Sphere(), sk.RBF(), Precomputed(TABLE), Gaussian() + sk.RBF()]
)
@pytest.mark.parametrize(
    "values", [["a", "b"], ["1", "2"], [[1.0], [1.0, 2.0]], [1j, 2.0], [None], np.zeros((2, 2, 2)), 3.0]
)
def test_what_is_not_numbers_is_refused(kernel: Kernel, values: Any) -> None:
    with pytest.raises(
        InputError, match=r"pixel: expected real numbers, an array of shape \(n,\) or \(n, d\), got"
    ):
        check_values(kernel, values, "pixel")


@pytest.mark.parametrize(
    "kernel", [Gaussian(), Linear(), Sphere(), sk.RBF(), Precomputed(TABLE), Delta(), Overlap()]
)
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_numbers_must_be_finite(kernel: Kernel, wrong: float) -> None:
    with pytest.raises(InputError, match=r"pixel: expected finite numbers, got .* at position 1"):
        check_values(kernel, np.array([1.0, wrong, 1.0]), "pixel")


def test_nan_among_objects_is_refused_by_delta() -> None:
    with pytest.raises(InputError, match=r"state: expected values that equal themselves, got NaN"):
        check_values(Delta(), ["a", math.nan], "state")


def test_rows_need_a_column() -> None:
    with pytest.raises(InputError, match=r"X: expected real numbers.* with at least one column, got"):
        Gaussian()(np.empty((3, 0)))


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear(), Sphere(1.0)])
def test_rows_of_different_length_are_refused(kernel: Kernel) -> None:
    with pytest.raises(
        InputError, match=r"Y: expected rows of length 3, as those of X, got rows of length 2"
    ):
        kernel(VECTORS, VECTORS[:, :2])


def test_values_off_the_sphere_are_refused() -> None:
    check_values(Sphere(), DIRECTIONS * (1 + 9e-7), "angle")
    check_values(Sphere(), DIRECTIONS.astype(np.float32), "angle")
    values = DIRECTIONS.copy()
    values[4] *= 1.5
    for kernel in (Sphere(), 2 * Sphere(1.0)):
        with pytest.raises(
            InputError,
            match=r"angle: expected unit vectors \(norm 1 within 1e-06\), got norm 1.5 at position 4",
        ):
            check_values(kernel, values, "angle")


def test_unhashable_values_are_refused() -> None:
    expected = r"hashable values \(a tuple for a list, a frozenset for a set\), got list \[1\] at position 1"
    with pytest.raises(InputError, match="state: expected " + expected):
        check_values(Delta(), ["a", [1]], "state")
    with pytest.raises(InputError, match="Y: expected " + expected):
        Delta()(["a"], ["a", [1]])
    for values in ("abc", 3):
        with pytest.raises(InputError, match=r"state: expected a sequence of values, got"):
            check_values(Delta(), values, "state")


@pytest.mark.parametrize(
    ("values", "given"),
    [
        (np.array([1.0, 2.0]), r"an array of shape \(2,\)"),
        (np.array([[0.0, 1.0], [1.0, 2.0]]), r"2.0 in row 1"),
        (np.array([[0.0, math.nan]]), r"nan in row 0"),
        ([{1}, 3], r"int 3 at position 1"),
        ([{1}, "12"], r"str '12' at position 1"),
        ([{1}, {"a"}], r"label 'a' at position 1"),
        ([[1], [-1]], r"label -1 at position 1"),
        ([[1], [1.5]], r"label 1.5 at position 1"),
        ([[True]], r"label True at position 0"),
        ([[], [2, 3], [None, 1]], r"label None at position 2"),
        ([[1], [[2]]], r"label \[2\] at position 1"),
        ([[1], [2**70]], r"label 1180591620717411303424 at position 1"),
        ([{1: 2}], r"dict {1: 2} at position 0"),
        ("abc", r"str 'abc'"),
        (3, r"int 3"),
    ],
)
def test_what_is_not_label_sets_is_refused(values: Any, given: str) -> None:
    expected = "expected 0/1 indicator rows .* or a sequence of collections of integer labels.*, got "
    with pytest.raises(InputError, match="topics: " + expected + given):
        check_values(RandomProjection(), values, "topics")
    with pytest.raises(InputError, match="values: " + expected + given):
        RandomProjection().project(values)


@pytest.mark.parametrize(("value", "given"), [(15, "15"), (-1, "-1"), (0.5, "0.5")])
def test_indices_must_be_in_the_table(value: float, given: str) -> None:
    message = rf"expected whole numbers from 0 to 14, indices into .* matrix, got {given} at position 1"
    with pytest.raises(InputError, match="graph: " + message):
        check_values(Precomputed(TABLE), [0, value], "graph")
    with pytest.raises(InputError, match="Y: " + message):
        Precomputed(TABLE)([0], [0, value])


def test_indices_come_one_per_value() -> None:
    with pytest.raises(
        InputError, match=r"graph: expected one index per value, shape \(n,\) or \(n, 1\), got"
    ):
        check_values(Precomputed(TABLE), [[0, 1]], "graph")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1.0, 2.0]], r"square array of real numbers, got shape \(1, 2\)"),
        ([], r"square array of real numbers, got shape \(0,\)"),
        ([["a"]], r"square array of real numbers, got list"),
        ([[math.nan]], r"finite numbers, got NaN or infinity"),
        ([[1.0, 2.0], [3.0, 1.0]], r"symmetric array, got 2 at \(0, 1\) and 3 at \(1, 0\)"),
        ([[1.0, 0.0], [0.0, -2.0]], r"positive semidefinite array, got -2 on the diagonal"),
    ],
)
def test_odd_tables_are_refused(matrix: Any, message: str) -> None:
    with pytest.raises(InputError, match="matrix: expected (a )?" + message):
        Precomputed(matrix)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "mean", None, [1.0], 1e-320])
@pytest.mark.parametrize(("kind", "name"), [(Gaussian, "bandwidth"), (Sphere, "concentration")])
def test_widths_must_be_positive_or_median(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(InputError, match=rf'{name}: expected a positive finite number or "median", got'):
        kind(value)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "a", False])
@pytest.mark.parametrize("kind", [Linear, RandomProjection])
def test_constants_must_not_be_negative(kind: Any, value: Any) -> None:
    with pytest.raises(InputError, match=r"constant: expected a finite number of at least 0, got"):
        kind(constant=value)


def test_projection_parameters_must_be_whole() -> None:
    with pytest.raises(InputError, match=r"dimension: expected an integer of at least 1, got int 0"):
        RandomProjection(dimension=0)
    with pytest.raises(InputError, match=r"seed: expected an integer of at least 0, got float 0.5"):
        RandomProjection(seed=0.5)  # type: ignore[arg-type]


def test_a_class_is_not_a_kernel() -> None:
    with pytest.raises(
        InputError, match=r"pixel: expected a kernel, got the class Gaussian; did you mean Gaussian\(\)\?"
    ):
        require_kernel(Gaussian, "pixel")
    with pytest.raises(InputError, match=r"pixel: expected a kernel \(an object with .*\), got str 'rbf'"):
        require_kernel("rbf", "pixel")
    with pytest.raises(InputError, match=r"right: expected a kernel, got the class Delta"):
        Delta() + Delta
    for function in (domain, to_spec, lambda k: resolve(k, [1.0]), lambda k: check_values(k, [1.0], "pixel")):
        with pytest.raises(InputError, match=r"kernel: expected a kernel"):
            function(Gaussian)


# descriptions as data

SCIKIT_LEARN = [
    sk.RBF([1.0, 2.0], [(1e-3, 1e3), (1e-2, 1e2)]),
    sk.RBF(2, "fixed"),
    sk.Matern(nu=math.inf),
    sk.Matern(np.array([0.5, 2.0]), nu=0.5),
    sk.RationalQuadratic(alpha=0.3),
    sk.ExpSineSquared(periodicity=2.0),
    sk.DotProduct(0.5, (0, np.inf)),
    sk.ConstantKernel(np.float64(2.0)) * sk.RBF() + sk.WhiteKernel(0.1),
    (sk.RBF() + sk.Matern()) ** 2,
    sk.PairwiseKernel(metric="poly", gamma=0.5, pairwise_kernels_kwargs={"degree": 2}),
]


@pytest.mark.parametrize("kernel", SCIKIT_LEARN, ids=repr)
def test_scikit_learn_kernels_pass_through_json(kernel: Any) -> None:
    again = from_spec(json.loads(json.dumps(to_spec(kernel), allow_nan=False)))
    assert again == kernel
    np.testing.assert_array_equal(again(VECTORS[:, :2]), kernel(VECTORS[:, :2]))
    np.testing.assert_array_equal(again.theta, kernel.theta)  # type: ignore[attr-defined]


def test_scikit_learn_kernels_with_a_function_inside_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"kernel: .* cannot be described as data \(kernel.metric: expected one of"
    ):
        to_spec(sk.PairwiseKernel(metric=lambda x, y: 0.0))
    with pytest.raises(UnsupportedError, match=r"CompoundKernel is neither"):
        to_spec(sk.CompoundKernel([sk.RBF()]))


def test_subclasses_of_ours_are_ones_own() -> None:
    class Mine(Gaussian):
        pass

    with pytest.raises(UnsupportedError, match=r"Mine is neither .* must be handed to load"):
        to_spec(Mine() + Delta())


def test_reading_needs_scikit_learn_only_for_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = to_spec(sk.RBF())
    monkeypatch.setitem(sys.modules, "sklearn.gaussian_process.kernels", None)
    assert from_spec(to_spec(Gaussian() + Delta())) == Gaussian() + Delta()
    with pytest.raises(UnsupportedError, match=r"spec: the kernel sklearn.RBF needs scikit-learn installed"):
        from_spec(spec)


RBF = {"length_scale": 1.0, "length_scale_bounds": "fixed"}
DELTA = {"name": "Delta", "parameters": {}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, r"spec: expected a mapping with the keys 'name' and 'parameters', got NoneType"),
        ([], r"spec: expected a mapping"),
        ({"name": "Delta"}, r"spec: expected a mapping"),
        ({**DELTA, "extra": 1}, r"spec: expected a mapping"),
        ({"name": 3, "parameters": {}}, r"spec: expected the name of a kernel as text, got int 3"),
        ({"name": "Delta", "parameters": []}, r"spec: expected the parameters of Delta as a mapping"),
        (
            {"name": "os.system", "parameters": {}},
            r"spec: expected the name of a known kernel, got str 'os.system'",
        ),
        ({"name": "sklearn.clone", "parameters": {}}, r"name of a known kernel, got str 'sklearn.clone'"),
        ({"name": "sklearn.CompoundKernel", "parameters": {}}, r"name of a known kernel"),
        ({"name": "Composite", "parameters": {}}, r"name of a known kernel"),
        (
            {"name": "Gaussian", "parameters": {}},
            r"spec: expected the parameters \['bandwidth', 'scale'\] of Gaussian, got \[\]",
        ),
        ({"name": "Delta", "parameters": {"a": 1}}, r"expected the parameters \[\] of Delta, got \['a'\]"),
        ({"name": "Delta", "parameters": {1: 1}}, r"expected the parameters \[\] of Delta, got \['1'\]"),
        (
            {"name": "Gaussian", "parameters": {"bandwidth": "x", "scale": 1}},
            r"spec: Gaussian: bandwidth: expected a positive",
        ),
        (
            {"name": "Gaussian", "parameters": {"bandwidth": -1, "scale": 1}},
            r"spec: Gaussian: bandwidth: expected a positive",
        ),
        ({"name": "Sum", "parameters": {"left": DELTA, "right": 3}}, r"spec.right: expected a mapping"),
        (
            {"name": "Power", "parameters": {"kernel": DELTA, "exponent": 1.5}},
            r"spec: Power: exponent: expected an integer",
        ),
        (
            {"name": "Scaled", "parameters": {"kernel": DELTA, "factor": None}},
            r"spec: Scaled: factor: expected a positive",
        ),
        (
            {"name": "Precomputed", "parameters": {"size": 1, "matrix": "!"}},
            r"spec: Precomputed: expected a size and",
        ),
        (
            {"name": "Precomputed", "parameters": {"size": 1, "matrix": "é"}},
            r"spec: Precomputed: expected a size and",
        ),
        (
            {"name": "Precomputed", "parameters": {"size": 2, "matrix": "AAAAAAAAAAA="}},
            r"expected a size and",
        ),
        (
            {"name": "Precomputed", "parameters": {"size": True, "matrix": "AAAAAAAAAAA="}},
            r"expected a size and",
        ),
        ({"name": "Precomputed", "parameters": {"size": 1, "matrix": [[1.0]]}}, r"expected a size and"),
        (
            {"name": "sklearn.RBF", "parameters": {}},
            r"expected the parameters \['length_scale', 'length_scale_bounds'\]",
        ),
        (
            {"name": "sklearn.RBF", "parameters": {**RBF, "length_scale": "a"}},
            r"spec.length_scale: expected a positive",
        ),
        (
            {"name": "sklearn.RBF", "parameters": {**RBF, "length_scale": [1, None]}},
            r"spec.length_scale: expected a pos",
        ),
        (
            {"name": "sklearn.RBF", "parameters": {**RBF, "length_scale_bounds": "free"}},
            r'expected "fixed" or pairs',
        ),
        (
            {"name": "sklearn.RBF", "parameters": {**RBF, "length_scale_bounds": [1]}},
            r'expected "fixed" or pairs',
        ),
        (
            {"name": "sklearn.RBF", "parameters": {**RBF, "length_scale_bounds": [1, "x"]}},
            r"bounds: expected a finite",
        ),
        ({"name": "sklearn.Sum", "parameters": {"k1": DELTA, "k2": {}}}, r"spec.k2: expected a mapping"),
        (
            {
                "name": "sklearn.PairwiseKernel",
                "parameters": {
                    "gamma": 1,
                    "gamma_bounds": "fixed",
                    "metric": "eval",
                    "pairwise_kernels_kwargs": None,
                },
            },
            r"spec.metric: expected one of additive_chi2, .*, got str 'eval'",
        ),
        (
            {
                "name": "sklearn.PairwiseKernel",
                "parameters": {
                    "gamma": 1,
                    "gamma_bounds": "fixed",
                    "metric": "rbf",
                    "pairwise_kernels_kwargs": [1],
                },
            },
            r"spec.pairwise_kernels_kwargs: expected numbers by name",
        ),
    ],
)
def test_odd_descriptions_are_refused(spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_spec(spec)


def test_nesting_is_limited() -> None:
    spec: dict[str, Any] = DELTA
    kernel: Any = Delta()
    for _ in range(60):
        spec = {"name": "Power", "parameters": {"kernel": spec, "exponent": 1}}
        kernel = kernel**1
    with pytest.raises(InputError, match=r"expected kernels nested at most 50 deep"):
        from_spec(spec)
    with pytest.raises(UnsupportedError, match=r"kernel: nested more than 50 deep"):
        to_spec(kernel)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["Sum", "sklearn.RBF"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "parameters", "bandwidth", "left", "right"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["Gaussian", "Sum", "Power", "Precomputed", "sklearn.RBF"]),
            "parameters": JSON,
        }
    )
    | JSON
)
def test_whatever_is_read_is_a_kernel_or_an_input_error(spec: Any) -> None:
    try:
        kernel = from_spec(spec)
    except InputError:
        return
    assert isinstance(kernel, Kernel)
