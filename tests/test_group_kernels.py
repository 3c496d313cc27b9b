"""Kernels on rotations, angles, rankings and matrices: closed forms, invariances, chains recovered."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import logm
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation as Turn
from scipy.stats import kendalltau, ortho_group

import kernelbp as kb
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.inference.reading import centre, distances, entropy, expected_distance
from kernelbp.kernels import (
    Geometric,
    Jaccard,
    Kendall,
    Kernel,
    Mallows,
    PositiveDefinite,
    Rotation,
    Sphere,
    Torus,
    check_values,
    domain,
    from_spec,
    resolve,
    to_spec,
)
from kernelbp.kernels.groups import frechet_mean
from kernelbp.testing import check_kernel

RANDOM = np.random.default_rng(0)
TURNS = Turn.random(40, random_state=1)
QUATERNIONS = TURNS.as_quat()
MATRICES = TURNS.as_matrix()
ANGLES = RANDOM.uniform(-7.0, 7.0, size=(30, 2))
HOURS = RANDOM.uniform(0.0, 24.0, size=25)
RANKS = RANDOM.permuted(np.tile(np.arange(5), (40, 1)), axis=1)
TIED = RANDOM.integers(0, 3, size=(30, 4))
ROOTS = RANDOM.normal(size=(25, 3, 3))
COVARIANCES = ROOTS @ ROOTS.transpose(0, 2, 1) + 0.1 * np.eye(3)

CASES: list[tuple[Kernel, Any]] = [
    (Rotation(), QUATERNIONS),
    (Rotation(3.0), MATRICES),
    (Rotation(50.0), MATRICES.reshape(-1, 9)),
    (Rotation(), list(MATRICES)),
    (Torus(), ANGLES),
    (Torus(4.0, period=24.0), HOURS),
    (Torus(0.3), [0.0, 1.0, 7.0]),
    (Kendall(), RANKS),
    (Kendall(), TIED),
    (Mallows(), RANKS),
    (Mallows(0.4), TIED),
    (Mallows(3.0), RANKS.tolist()),
    (PositiveDefinite(), COVARIANCES),
    (PositiveDefinite("median", scale=0.3), COVARIANCES.reshape(-1, 9)),
    (PositiveDefinite(2.0), COVARIANCES[:, :1, :1]),
    (2 * Rotation() + Rotation(1.0) * Rotation(2.0), QUATERNIONS),
]
every_kernel = pytest.mark.parametrize(
    ("kernel", "values"), CASES, ids=[f"{kernel!r}"[:40] for kernel, _ in CASES]
)


# what all share


@every_kernel
def test_keeps_the_contract(kernel: Kernel, values: Any) -> None:
    check_kernel(kernel, values)


@every_kernel
def test_is_described_as_data_and_has_no_words_left_once_resolved(kernel: Kernel, values: Any) -> None:
    assert from_spec(json.loads(json.dumps(to_spec(kernel)))) == kernel
    resolved = resolve(kernel, values)
    assert "median" not in repr(resolved)
    assert resolve(resolved, values) == resolved
    assert domain(kernel) == "other"


@every_kernel
def test_checked_values_give_the_same_gram(kernel: Kernel, values: Any) -> None:
    kernel = resolve(kernel, values)
    np.testing.assert_allclose(kernel(check_values(kernel, values, "values")), kernel(values), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sharpness", [0.05, 1.0, 30.0])
def test_is_positive_semidefinite_at_every_width_on_random_values(sharpness: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    roots = random.normal(size=(120, 2, 2))
    ranks = random.permuted(np.tile(np.arange(6), (120, 1)), axis=1)
    for kernel, values in [
        (Rotation(sharpness), Turn.random(120, random_state=seed).as_quat()),
        (Torus(sharpness), random.uniform(-9, 9, size=(120, 3))),
        (Mallows(1 / sharpness), ranks),
        (Kendall(), random.integers(0, 5, size=(120, 6))),
        (PositiveDefinite(1 / sharpness), roots @ roots.transpose(0, 2, 1)),
    ]:
        smallest = np.linalg.eigvalsh(kernel(values))[0]
        assert smallest > -1e-10, kernel


# closed forms


def test_rotation_is_the_exponential_of_the_trace() -> None:
    angle = (TURNS[:1].inv() * TURNS).magnitude()
    trace = np.einsum("ij,nij->n", MATRICES[0], MATRICES)
    np.testing.assert_allclose(
        Rotation(2.5)(QUATERNIONS[:1], QUATERNIONS)[0], np.exp(2.5 * (np.cos(angle) - 1))
    )
    np.testing.assert_allclose(Rotation(2.5)(MATRICES[:1], MATRICES)[0], np.exp(2.5 * (trace - 3) / 2))
    np.testing.assert_allclose(Rotation().distance(MATRICES[:1], MATRICES)[0], angle, atol=1e-7)
    np.testing.assert_allclose(Rotation().distance(QUATERNIONS[:1], QUATERNIONS)[0], angle, atol=1e-7)


def test_torus_is_the_exponential_of_cosines() -> None:
    apart = ANGLES[:, None] - ANGLES
    np.testing.assert_allclose(Torus(1.7)(ANGLES), np.exp(1.7 * (np.cos(apart) - 1).sum(axis=2)), rtol=1e-10)
    short = np.abs(np.angle(np.exp(1j * apart)))
    np.testing.assert_allclose(Torus().distance(ANGLES), np.sqrt((short**2).sum(axis=2)), atol=1e-9)


@pytest.mark.parametrize("ranks", [RANKS, TIED], ids=["strict", "tied"])
def test_kendall_equals_scipy(ranks: Any) -> None:
    some = ranks[ranks.std(axis=1) > 0]
    expected = [[kendalltau(x, y).statistic for y in some[:9]] for x in some[:12]]
    np.testing.assert_allclose(Kendall()(some[:12], some[:9]), expected, atol=1e-12)


def test_mallows_counts_pairs_in_another_order() -> None:
    def discordant(x: Any, y: Any) -> float:
        pairs = itertools.combinations(range(len(x)), 2)
        apart = [abs(np.sign(x[i] - x[j]) - np.sign(y[i] - y[j])) / 2 for i, j in pairs]
        return float(sum(apart))

    for ranks in (RANKS[:15], TIED[:15]):
        expected = np.array([[discordant(x, y) for y in ranks] for x in ranks])
        np.testing.assert_array_equal(Mallows().distance(ranks), expected)
        np.testing.assert_allclose(Mallows(2.0)(ranks), np.exp(-expected / 2.0))


def test_many_items_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = RANDOM.permuted(np.tile(np.arange(30), (7, 1)), axis=1)
    whole = Mallows().distance(ranks), Kendall()(ranks)
    monkeypatch.setattr("kernelbp.kernels.groups.CELLS", 50)
    np.testing.assert_array_equal(Mallows().distance(ranks), whole[0])
    np.testing.assert_array_equal(Kendall()(ranks), whole[1])


def test_positive_definite_compares_matrix_logarithms() -> None:
    logs = np.array([logm(matrix) for matrix in COVARIANCES])
    apart = np.linalg.norm(logs[:, None] - logs, axis=(2, 3))
    np.testing.assert_allclose(PositiveDefinite().distance(COVARIANCES), apart, atol=1e-8)
    np.testing.assert_allclose(PositiveDefinite(1.5)(COVARIANCES), np.exp(-(apart**2) / 4.5), atol=1e-8)


@pytest.mark.parametrize(
    "values", [QUATERNIONS[:20], ANGLES[:20], RANKS[:20]], ids=["turns", "angles", "ranks"]
)
def test_median_makes_a_typical_pair_one_over_e(values: Any) -> None:
    kernel = {4: Rotation(), 2: Torus(), 5: Mallows()}[values.shape[1]]
    upper = np.triu_indices(len(values), 1)
    assert np.median(-np.log(resolve(kernel, values)(values)[upper])) == pytest.approx(1.0)


# invariances


@given(st.integers(0, 2**32 - 1))
def test_rotations_may_all_be_multiplied_from_either_side(seed: int) -> None:
    more = Turn.random(random_state=seed)
    expected = Rotation(5.0)(QUATERNIONS)
    for moved in (more * TURNS, TURNS * more, TURNS.inv()):
        np.testing.assert_allclose(Rotation(5.0)(moved.as_quat()), expected, atol=1e-10)
        np.testing.assert_allclose(Rotation(5.0)(moved.as_matrix()), expected, atol=1e-10)


def test_the_sign_of_a_quaternion_is_free() -> None:
    flipped = QUATERNIONS * RANDOM.choice([-1.0, 1.0], size=(len(QUATERNIONS), 1))
    np.testing.assert_array_equal(Rotation(5.0)(flipped), Rotation(5.0)(QUATERNIONS))
    np.testing.assert_array_equal(
        Rotation(5.0)(QUATERNIONS[:, [3, 0, 1, 2]]).round(12), Rotation(5.0)(QUATERNIONS).round(12)
    )


@given(st.floats(-50, 50), st.integers(-3, 3))
def test_angles_may_all_be_shifted_and_any_be_wound(shift: float, turns: int) -> None:
    moved = ANGLES + shift
    moved[::2] += 2 * np.pi * turns
    np.testing.assert_allclose(Torus(3.0)(moved), Torus(3.0)(ANGLES), atol=1e-10)


@given(st.permutations(range(5)))
def test_items_may_be_renamed(order: list[int]) -> None:
    np.testing.assert_array_equal(Kendall()(RANKS[:, order]), Kendall()(RANKS))
    np.testing.assert_array_equal(Mallows(2.0)(RANKS[:, order]), Mallows(2.0)(RANKS))


def test_matrices_may_be_inverted_scaled_and_turned_but_not_sheared() -> None:
    kernel = PositiveDefinite(1.5)
    expected = kernel(COVARIANCES)
    turn = ortho_group.rvs(3, random_state=0)
    for moved in (np.linalg.inv(COVARIANCES), 7.0 * COVARIANCES, turn @ COVARIANCES @ turn.T):
        np.testing.assert_allclose(kernel(moved), expected, atol=1e-8)
    shear = np.eye(3) + np.triu(np.ones((3, 3)), 1)
    assert np.abs(kernel(shear @ COVARIANCES @ shear.T) - expected).max() > 0.05


# centres


@pytest.mark.parametrize("dimension", [2, 3, 6])
def test_frechet_mean_on_the_sphere_is_what_an_optimiser_finds(dimension: int) -> None:
    random = np.random.default_rng(dimension)
    points = random.normal(size=(12, dimension)) + 2.0 * np.eye(dimension)[0]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    weights = random.dirichlet(np.ones(12), size=3)
    found = frechet_mean(points, weights)

    def cost(z: Any, w: Any) -> float:
        return float(w @ np.arccos(np.clip(points @ z / np.linalg.norm(z), -1, 1)) ** 2)

    for mean, w in zip(found, weights, strict=True):
        best = minimize(cost, points[w.argmax()], args=(w,), tol=1e-12)
        assert cost(mean, w) <= best.fun + 1e-9
        np.testing.assert_allclose(mean, best.x / np.linalg.norm(best.x), atol=1e-4)


def test_frechet_mean_of_rotations_is_what_an_optimiser_finds_in_either_form() -> None:
    some = Turn.from_rotvec(RANDOM.normal(0, 0.6, size=(15, 3))) * TURNS[0]
    weights = np.random.default_rng(3).dirichlet(np.ones(15), size=2)
    signs = RANDOM.choice([-1.0, 1.0], size=(15, 1))
    found = Rotation().centre(signs * some.as_quat(), weights)
    for mean, w in zip(found, weights, strict=True):
        best = minimize(
            lambda v, w=w: w @ (some.inv() * Turn.from_rotvec(v)).magnitude() ** 2,  # type: ignore[misc]
            some[int(w.argmax())].as_rotvec(),
            tol=1e-12,
        )
        assert (Turn.from_rotvec(best.x).inv() * Turn.from_quat(mean)).magnitude() < 1e-4
    matrices = Rotation().centre(some.as_matrix(), weights)
    assert Rotation().distance(matrices, Turn.from_quat(found).as_matrix()).diagonal().max() < 1e-6


def test_frechet_mean_of_opposite_points_is_one_of_the_shortest() -> None:
    found = frechet_mean([[1.0, 0.0], [-1.0, 0.0]], [0.5, 0.5])
    assert np.linalg.norm(found) == pytest.approx(1.0)


def test_centre_of_angles_goes_the_short_way_and_keeps_to_the_users_range() -> None:
    assert Torus(period=24).centre([23.0, 1.0, 2.0], [0.5, 0.5, 0.0])[0, 0] % 24 == pytest.approx(
        0.0, abs=1e-9
    )
    assert Torus(period=360).centre([350.0, 340.0], [0.5, 0.5]) == pytest.approx(345.0)
    assert Torus(period=360).centre([-10.0, -20.0], [0.5, 0.5]) == pytest.approx(-15.0)


def test_centre_of_matrices_is_the_log_euclidean_mean() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(25))
    mean = PositiveDefinite().centre(COVARIANCES, weights).reshape(3, 3)
    expected = np.einsum("n,nij->ij", weights, [logm(matrix) for matrix in COVARIANCES])
    np.testing.assert_allclose(logm(mean), expected, atol=1e-8)


def test_consensus_of_rankings_is_kemenys_where_all_are_candidates() -> None:
    everything = np.array(list(itertools.permutations(range(4))), dtype=float)
    weights = np.random.default_rng(1).dirichlet(np.full(24, 0.3), size=20)
    costs = weights @ Mallows().distance(everything)
    found = Mallows().centre(everything, weights)
    ours = (weights * Mallows().distance(found, everything)).sum(axis=1)
    np.testing.assert_allclose(ours, costs.min(axis=1))


def test_consensus_may_be_a_ranking_that_nobody_gave() -> None:
    votes = np.array([[1, 2, 3, 4, 6, 5], [1, 2, 4, 3, 5, 6], [2, 1, 3, 4, 5, 6]], dtype=float)
    np.testing.assert_array_equal(Kendall().centre(votes, [1, 1, 1]), [[1, 2, 3, 4, 5, 6]])


# chains with a known process


def _rotation_data(seed: int) -> tuple[Any, ...]:
    """Training pairs of a random walk anywhere on SO(3), and one walk of 100 steps to recover."""
    random = np.random.default_rng(seed)

    def jolt(scale: float, count: int) -> Turn:
        return Turn.from_rotvec(random.normal(0.0, scale, size=(count, 3)))

    now = Turn.random(800, random_state=random.integers(2**31))
    then, read = now * jolt(0.15, 800), now * jolt(0.5, 800)
    walk = [Turn.random(random_state=random.integers(2**31))]
    for _ in range(99):
        walk.append(walk[-1] * jolt(0.15, 1)[0])
    truth = Turn.concatenate(walk)
    return now.as_quat(), then.as_quat(), read.as_quat(), truth.as_quat(), (truth * jolt(0.5, 100)).as_quat()


def _ranking_data(seed: int) -> tuple[Any, ...]:
    """The same for rankings of five items that swap neighbours: seldom from step to step, often when read."""
    random = np.random.default_rng(seed)

    def swapped(ranks: Any, mean: float) -> Any:
        items = np.argsort(ranks)
        for place in random.integers(0, len(ranks) - 1, size=random.poisson(mean)):
            items[[place, place + 1]] = items[[place + 1, place]]
        return np.argsort(items)

    now = np.array([random.permutation(5) for _ in range(1000)])
    then, read = (np.array([swapped(ranks, mean) for ranks in now]) for mean in (0.3, 3.0))
    walk = [random.permutation(5)]
    for _ in range(99):
        walk.append(swapped(walk[-1], 0.3))
    return now, then, read, np.array(walk), np.array([swapped(ranks, 3.0) for ranks in walk])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("data", "kernel"),
    [(_rotation_data, Rotation()), (_ranking_data, Mallows())],
    ids=["rotations", "rankings"],
)
def test_a_chain_is_recovered_better_than_by_the_nearest_value_or_without_the_graph(
    data: Callable[[int], tuple[Any, ...]], kernel: Any, seed: int
) -> None:
    """The mean error is at most 0.75 of that of either, and less than that of the readings themselves."""
    now, then, read, truth, observed = data(seed)
    model = kb.Model(
        {"hidden": kernel, "reading": kernel},
        {"then": kb.Relation("hidden", "hidden"), "read as": kb.Relation("hidden", "reading")},
    ).fit({"then": (now, then), "read as": (now, read)})
    chain = kb.Graph.chain(len(truth), variable="hidden", relation="then")
    apart = kb.Graph.from_edges([], variables=["hidden"] * len(truth))
    beliefs, alone = (model.infer(graph.observe("read as", observed)) for graph in (chain, apart))
    assert beliefs.converged

    def error(values: Any) -> float:
        return float(kernel.distance(values, truth).diagonal().mean())

    for ours, without in (
        (beliefs.mode(), alone.mode()),
        (centre(beliefs["hidden"], kernel), centre(alone["hidden"], kernel)),
    ):
        assert error(ours) < 0.75 * error(without)
        assert error(ours) < 0.75 * error(now[kernel.distance(observed, read).argmin(axis=1)])
        assert error(ours) < error(observed)
    assert entropy(beliefs["hidden"]).mean() < entropy(alone["hidden"]).mean()
    assert (
        expected_distance(beliefs["hidden"], kernel).mean()
        < expected_distance(alone["hidden"], kernel).mean()
    )


def test_angles_are_followed_across_the_seam() -> None:
    random = np.random.default_rng(0)
    now = random.uniform(0, 24, 2000)
    model = kb.Model({"hour": Torus(period=24)}, {"then": kb.Relation("hour", "hour")})
    model.fit({"then": (now, (now + 1 + random.normal(0, 0.2, 2000)) % 24)})
    beliefs = model.infer(kb.Graph.chain(3, variable="hour", relation="then").fix([0], [23.0]))
    assert beliefs.converged
    off = Torus(period=24).distance(centre(beliefs["hour"], Torus(period=24)), [23.0, 0.0, 1.0]).diagonal()
    assert off.max() < 0.4  # support points lie 0.5 apart


@pytest.mark.parametrize("kernel", [Rotation(), Torus(), Mallows(), PositiveDefinite()], ids=repr)
def test_a_model_with_it_is_stored(kernel: Kernel, tmp_path: Path) -> None:
    values = {"Rotation": QUATERNIONS, "Torus": ANGLES, "Mallows": RANKS}.get(
        type(kernel).__name__, COVARIANCES.reshape(-1, 9)
    )
    model = kb.Model({"x": kernel}, {"then": kb.Relation("x", "x")}).fit({"then": (values[:-1], values[1:])})
    model.save(tmp_path / "model.kbp")
    chain = kb.Graph.chain(4, variable="x", relation="then").fix([0], values[:1])
    again = kb.Model.load(tmp_path / "model.kbp").infer(chain)
    np.testing.assert_array_equal(again.probabilities(), model.infer(chain).probabilities())


# reading beliefs


class _Table:
    """Beliefs as a table, to be read."""

    def __init__(self, atoms: Any, mass: Any) -> None:
        self.atoms = np.asarray(atoms)
        self._mass = np.asarray(mass, dtype=float)

    def probabilities(self) -> Any:
        return self._mass

    def mode(self, candidates: Any = None) -> Any:
        return self.atoms[self._mass.argmax(axis=1)]


def test_entropy_is_that_of_the_table() -> None:
    mass = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3] * 3]
    np.testing.assert_allclose(entropy(_Table([1.0, 2.0, 3.0], mass)), [0.0, np.log(2), np.log(3)])


def test_expected_distance_is_in_the_units_of_the_domain() -> None:
    beliefs = _Table([23.0, 1.0], [[0.75, 0.25]])
    assert expected_distance(beliefs, Torus(period=24)) == pytest.approx(0.5)
    assert expected_distance(beliefs, kb.kernels.Gaussian()) == pytest.approx(5.5)
    assert expected_distance(beliefs, Torus(period=24), to=[0.0]) == pytest.approx(1.0)
    with pytest.raises(InputError, match="to: expected 1 values, one per node, got 2"):
        expected_distance(beliefs, Torus(period=24), to=[0.0, 1.0])


def test_centre_is_that_of_the_domain_or_the_best_candidate() -> None:
    mass = [[0.5, 0.5, 0.0]]
    numbers = _Table([1.0, 3.0, 4.0], mass)
    assert centre(numbers, kb.kernels.Gaussian()) == pytest.approx(2.0)
    assert centre(numbers, kb.kernels.Gaussian(), candidates=[0.0, 2.1, 9.0]) == pytest.approx(2.1)
    directions = _Table([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], mass)
    np.testing.assert_allclose(centre(directions, Sphere()), [[np.sqrt(0.5)] * 2])
    sets = _Table(
        np.array([frozenset("ab"), frozenset("b"), frozenset("bc")], dtype=object), [[0.4, 0.2, 0.4]]
    )
    assert centre(sets, Jaccard()).tolist() == [frozenset("b")]
    ranks = _Table([[0, 1, 2], [1, 0, 2], [2, 1, 0]], [[0.55, 0.25, 0.2]])
    # distances favour the first, 0.25 + 3 * 0.2 < 0.55 + 2 * 0.2; their squares would favour the second
    np.testing.assert_array_equal(centre(ranks, Mallows(), candidates=[[0, 1, 2], [1, 0, 2]]), [[0, 1, 2]])
    with pytest.raises(InputError, match="candidates: expected at least one value"):
        centre(numbers, kb.kernels.Gaussian(), candidates=[])


def test_distances_of_a_kernel_that_offers_none_are_those_of_its_features() -> None:
    class Product:
        def __call__(self, X: Any, Y: Any = None) -> Any:
            return np.multiply.outer(np.asarray(X, float), np.asarray(X if Y is None else Y, float))

        def diag(self, X: Any) -> Any:
            return np.asarray(X, float) ** 2

    np.testing.assert_allclose(distances(Product(), [1.0, 4.0], [2.0]), [[1.0], [2.0]])
    assert distances(kb.kernels.Delta(), ["a", "b"], ["a"]).tolist() == [[0.0], [1.0]]


# GeometricKernels


def test_geometric_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "geometric_kernels", None)
    monkeypatch.setitem(sys.modules, "geometric_kernels.spaces", None)
    kernel = Geometric("Hypersphere(4)")
    with pytest.raises(UnsupportedError, match=r'Hypersphere\(4\).*pip install "kernelbp\[manifolds\]"'):
        kernel([[1.0, 0.0, 0.0, 0.0, 0.0]])


def test_geometric_is_described_by_the_name_of_its_space() -> None:
    kernel = Geometric("Hypersphere(2)", lengthscale=0.5)
    assert from_spec(json.loads(json.dumps(to_spec(kernel)))) == kernel
    assert from_spec(to_spec(Geometric("Circle()", smoothness=1.5))).smoothness == 1.5  # type: ignore[attr-defined]

    class Foreign:
        K = K_diag = space = None

    with pytest.raises(UnsupportedError, match="name its space"):
        to_spec(Geometric(Foreign()))
    for wrong in ("Sphere(2)", "Hypersphere", "Circle(1)", "Hypersphere(-1)", 3):
        with pytest.raises(InputError, match="space: expected"):
            Geometric(wrong)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Circle()", HOURS[:, None]),
        ("Hypersphere(2)", MATRICES[:, 0]),
        ("SpecialOrthogonal(3)", MATRICES.reshape(-1, 9)),
        ("SpecialOrthogonal(3)", MATRICES),
        ("Hypercube(5)", (RANKS > 1).astype(float)),
    ],
)
def test_geometric_keeps_the_contract(name: str, values: Any) -> None:
    pytest.importorskip("geometric_kernels.spaces")
    check_kernel(Geometric(name, 0.7, 2.5), values)


def test_geometric_of_a_sharp_heat_kernel_on_rotations_nears_ours() -> None:
    """At a small lengthscale h the heat kernel is exp(-angle^2 / 2 h^2) up to the metric: so is ours."""
    pytest.importorskip("geometric_kernels.spaces")
    near = (Turn.from_rotvec([[0.0, 0.0, a] for a in (0.0, 0.1, 0.2)]) * TURNS[0]).as_matrix()
    ratio = np.log(Geometric("SpecialOrthogonal(3)", 0.5)(near[:1], near[1:])) / np.log(
        Rotation(4.0)(near[:1], near[1:])
    )
    assert ratio[0, 0] == pytest.approx(ratio[0, 1], rel=0.05)


# errors


@pytest.mark.parametrize(
    ("kernel", "values", "message"),
    [
        (Rotation(), [[1.0, 0.0, 0.0]], "expected rotations as unit quaternions"),
        (Rotation(), [[1.0, 0.1, 0.0, 0.0]], "expected unit quaternions .* at position 0"),
        (Rotation(), -np.eye(3)[None], "expected orthogonal matrices of determinant 1 .* at position 0"),
        (Rotation(), [np.eye(3), np.eye(2)], "all of one shape"),
        (Rotation(), [[np.nan] * 4], "expected finite numbers"),
        (Torus(), ["noon"], "expected real numbers"),
        (Torus(), [np.inf], "expected finite numbers"),
        (Kendall(), [[1.0], [2.0]], "expected rankings of at least 2 items"),
        (Mallows(), [[1.0, np.nan]], "expected finite numbers"),
        (PositiveDefinite(), [[1.0, 0.0, 1.0]], "expected square matrices"),
        (PositiveDefinite(), [[[1.0, 2.0], [0.0, 1.0]]], "expected symmetric matrices"),
        (PositiveDefinite(), [np.eye(2), -np.eye(2)], "expected positive definite matrices .* at position 1"),
    ],
)
def test_values_outside_the_domain_are_refused(kernel: Kernel, values: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^poses: .*{message}"):
        check_values(kernel, values, "poses")


@pytest.mark.parametrize("kind", [Rotation, Torus, Mallows, PositiveDefinite])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "mean", True])
def test_widths_must_be_positive_or_median(kind: Any, value: Any) -> None:
    with pytest.raises(InputError, match='expected a positive finite number or "median"'):
        kind(value)


def test_period_must_be_positive() -> None:
    with pytest.raises(InputError, match="period: expected a positive finite number"):
        Torus(period=0)


def test_weights_of_a_centre_must_fit() -> None:
    for weights in ([[1.0, 1.0]], [[-1.0, 1.0, 1.0]], [[0.0, 0.0, 0.0]], "even"):
        with pytest.raises(InputError, match="weights: expected rows of 3 numbers of at least 0"):
            Rotation().centre(QUATERNIONS[:3], weights)
