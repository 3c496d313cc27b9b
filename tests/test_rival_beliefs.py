"""Mixture beliefs against SciPy, quadrature and their own samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.graph import Graph
from kernelbp.inference.beliefs import Beliefs, VariableBeliefs
from kernelbp.inference.run import Verdict
from kernelbp.rivals import beliefs as module
from kernelbp.rivals.beliefs import MixtureBeliefs, Mixtures, MixtureVariableBeliefs, draw_on_sphere
from kernelbp.values import Kind

DONE = Verdict(True, (0.5, 0.0), 0.0)
NUMBERS = Kind("scalar", 1)


def as_beliefs(mixtures: Mixtures, kind: Kind) -> MixtureBeliefs:
    graph = Graph.chain(len(mixtures.points), variable="x", relation="r")
    return MixtureBeliefs(graph, {"x": mixtures}, {"x": kind}, DONE)


def on_line(nodes: int = 5, size: int = 4, seed: int = 0) -> MixtureBeliefs:
    rng = np.random.default_rng(seed)
    points = 2 * rng.standard_normal((nodes, size, 1))
    weights = rng.dirichlet(np.ones(size), nodes)
    covariances = rng.uniform(0.1, 1.0, (nodes, size, 1, 1))
    return as_beliefs(Mixtures(points, weights, covariances=covariances), NUMBERS)


def in_space(nodes: int = 3, size: int = 4, dimension: int = 2, seed: int = 0) -> MixtureBeliefs:
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((nodes, size, dimension, dimension))
    covariances = roots @ roots.transpose(0, 1, 3, 2) + 0.1 * np.eye(dimension)
    mixtures = Mixtures(
        2 * rng.standard_normal((nodes, size, dimension)),
        rng.dirichlet(np.ones(size), nodes),
        covariances=covariances,
    )
    return as_beliefs(mixtures, Kind("vector", dimension))


def on_sphere(nodes: int = 3, size: int = 4, dimension: int = 3, seed: int = 0) -> MixtureBeliefs:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((nodes, size, dimension))
    points /= np.linalg.norm(points, axis=2, keepdims=True)
    mixtures = Mixtures(
        points, rng.dirichlet(np.ones(size), nodes), concentrations=rng.uniform(0.0, 20.0, (nodes, size))
    )
    return as_beliefs(mixtures, Kind("vector", dimension))


def sphere_grid(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of a rule that integrates over the sphere of R^3."""
    heights, lengths = np.polynomial.legendre.leggauss(n)
    angles = 2 * np.pi * np.arange(2 * n) / (2 * n)
    around = np.sqrt(1 - heights**2)
    points = np.stack(
        [
            np.outer(around, np.cos(angles)),
            np.outer(around, np.sin(angles)),
            np.outer(heights, np.ones(2 * n)),
        ],
        axis=-1,
    )
    return points.reshape(-1, 3), np.repeat(lengths * np.pi / n, 2 * n)


def by_scipy(beliefs: MixtureBeliefs, node: int):  # type: ignore[no-untyped-def]
    mine = beliefs["x"].mixtures
    parts = stats.norm(mine.points[node, :, 0], np.sqrt(mine.covariances[node, :, 0, 0]))
    return (
        lambda x: float(parts.pdf(x) @ mine.weights[node]),
        lambda x: float(parts.cdf(x) @ mine.weights[node]),
    )


def test_every_reading_method_of_beliefs_is_there() -> None:
    for ours, theirs in ((MixtureVariableBeliefs, VariableBeliefs), (MixtureBeliefs, Beliefs)):
        for name in ("density", "expect", "mean", "std", "mode", "quantile", "interval", "sample"):
            assert hasattr(ours, name) and hasattr(theirs, name)


def test_density_on_numbers_equals_scipy() -> None:
    beliefs, points = on_line(), np.linspace(-5, 5, 11)
    expected = [[by_scipy(beliefs, node)[0](x) for x in points] for node in range(5)]
    np.testing.assert_allclose(beliefs.density(points), expected, rtol=1e-12)


def test_density_in_blocks_and_of_chosen_nodes_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    beliefs, points = on_line(7), np.linspace(-5, 5, 11)
    whole, middle = beliefs.density(points), beliefs.quantile([0.1, 0.6])
    monkeypatch.setattr(module, "READ_CELLS", 100)
    np.testing.assert_array_equal(beliefs.density(points), whole)
    np.testing.assert_array_equal(beliefs.density(points, nodes=[4, 1]), whole[[4, 1]])
    np.testing.assert_array_equal(beliefs.quantile([0.1, 0.6]), middle)


def test_density_of_vectors_equals_scipy() -> None:
    beliefs = in_space()
    mine, points = beliefs["x"].mixtures, np.random.default_rng(1).standard_normal((6, 2))
    expected = [
        sum(
            w * stats.multivariate_normal(m, c).pdf(points)
            for w, m, c in zip(mine.weights[s], mine.points[s], mine.covariances[s], strict=True)
        )
        for s in range(3)
    ]
    np.testing.assert_allclose(beliefs.density(points), expected, rtol=1e-10)


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_density_on_the_sphere_equals_scipy(dimension: int) -> None:
    beliefs = on_sphere(dimension=dimension)
    mine = beliefs["x"].mixtures
    points = np.random.default_rng(1).standard_normal((6, dimension))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    expected = [
        sum(
            w * stats.vonmises_fisher(m, k).pdf(points)
            for w, m, k in zip(mine.weights[s], mine.points[s], mine.concentrations[s], strict=True)
        )
        for s in range(3)
    ]
    np.testing.assert_allclose(beliefs.density(points), expected, rtol=1e-8)


def test_density_on_the_sphere_integrates_to_one() -> None:
    points, weights = sphere_grid(60)
    np.testing.assert_allclose(on_sphere().density(points) @ weights, 1.0, rtol=1e-9)


def test_moments_on_numbers_equal_integration() -> None:
    beliefs = on_line()
    for node in range(5):
        density = by_scipy(beliefs, node)[0]
        mean = integrate.quad(lambda x, f=density: x * f(x), -15, 15, limit=200)[0]
        second = integrate.quad(lambda x, f=density, m=mean: (x - m) ** 2 * f(x), -15, 15, limit=200)[0]
        assert beliefs.mean()[node] == pytest.approx(mean, abs=1e-8)
        assert beliefs.std()[node] == pytest.approx(np.sqrt(second), abs=1e-8)


def test_moments_on_the_sphere_equal_quadrature() -> None:
    beliefs = on_sphere()
    points, weights = sphere_grid(60)
    mass = beliefs.density(points) * weights
    np.testing.assert_allclose(beliefs.mean(), mass @ points, atol=1e-9)
    np.testing.assert_allclose(beliefs.std(), np.sqrt(mass @ points**2 - (mass @ points) ** 2), atol=1e-9)


def test_quantiles_invert_the_distribution_function() -> None:
    beliefs, wanted = on_line(), [0.001, 0.2, 0.5, 0.9]
    found = beliefs.quantile(wanted)
    for node in range(5):
        cdf = by_scipy(beliefs, node)[1]
        np.testing.assert_allclose([cdf(x) for x in found[node]], wanted, atol=1e-10)
    np.testing.assert_array_equal(beliefs.quantile(0.2), found[:, 1])
    np.testing.assert_array_equal(beliefs.interval(0.8), beliefs.quantile([0.1, 0.9]))
    assert (beliefs.quantile(0.0) == -np.inf).all() and (beliefs.quantile(1.0) == np.inf).all()


def test_mode_is_the_highest_point_on_numbers() -> None:
    beliefs = on_line(20, 6)
    grid = np.linspace(-8, 8, 4001)
    highest = beliefs.density(grid).max(axis=1)
    reached = np.array([by_scipy(beliefs, s)[0](x) for s, x in enumerate(beliefs.mode())])
    assert (reached >= highest - 1e-9).all()
    np.testing.assert_array_equal(beliefs.mode(grid), grid[beliefs.density(grid).argmax(axis=1)])


def test_mode_among_candidates_all_far_away_is_the_nearest() -> None:
    one = Mixtures(np.zeros((1, 1, 1)), np.ones((1, 1)), covariances=np.full((1, 1, 1, 1), 1e-4))
    assert as_beliefs(one, NUMBERS).mode([90.0, 50.0, 70.0])[0] == 50


def test_mode_of_vectors_is_a_highest_point() -> None:
    beliefs = in_space(size=3)
    found = beliefs.mode()
    for node in range(3):
        start = -np.inf
        for centre in beliefs["x"].mixtures.points[node]:
            best = optimize.minimize(lambda x, s=node: -beliefs.density(x[None], nodes=[s])[0, 0], centre)
            start = max(start, -best.fun)
        assert beliefs.density(found[node][None], nodes=[node])[0, 0] == pytest.approx(start, rel=1e-6)


def test_mode_on_the_sphere_is_a_highest_point() -> None:
    beliefs = on_sphere(5)
    points, _ = sphere_grid(100)
    found = beliefs.mode()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    reached = np.array([beliefs.density(x[None], nodes=[s])[0, 0] for s, x in enumerate(found)])
    assert (reached >= beliefs.density(points).max(axis=1) - 1e-9).all()


def test_many_components_climb_from_the_tallest() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(-5, 5, (1, 100, 1)), np.full((1, 1, 1), 7.0)], axis=1)
    covariances = np.concatenate([np.full((1, 100, 1, 1), 1.0), np.full((1, 1, 1, 1), 1e-4)], axis=1)
    mixtures = Mixtures(points, np.full((1, 101), 1 / 101), covariances=covariances)
    assert as_beliefs(mixtures, NUMBERS).mode()[0] == pytest.approx(7.0, abs=1e-3)


def test_expectations_on_numbers_and_vectors() -> None:
    beliefs = on_line()
    np.testing.assert_allclose(beliefs.expect(lambda x: x), beliefs.mean(), atol=1e-12)
    both = beliefs.expect(lambda x: np.stack([x, x**2], axis=1))
    np.testing.assert_allclose(np.sqrt(both[:, 1] - both[:, 0] ** 2), beliefs.std(), rtol=1e-10)
    positive = beliefs.expect(lambda x: np.cos(x))
    for node in range(5):
        density = by_scipy(beliefs, node)[0]
        exact = integrate.quad(lambda x, f=density: np.cos(x) * f(x), -15, 15, limit=200)[0]
        assert positive[node] == pytest.approx(exact, abs=1e-8)
    for dimension in (2, 5):
        vectors = in_space(dimension=dimension)
        np.testing.assert_allclose(vectors.expect(lambda x: x), vectors.mean(), atol=1e-10)
        np.testing.assert_allclose(
            vectors.expect(lambda x: x**2), vectors.mean() ** 2 + vectors.std() ** 2, rtol=1e-10
        )


@pytest.mark.parametrize("dimension", [2, 3, 5])
def test_expectations_on_the_sphere(dimension: int) -> None:
    beliefs = on_sphere(dimension=dimension)
    np.testing.assert_allclose(beliefs.expect(lambda x: x), beliefs.mean(), atol=2e-6)
    np.testing.assert_allclose(
        beliefs.expect(lambda x: x**2), beliefs.mean() ** 2 + beliefs.std() ** 2, atol=2e-6
    )


@pytest.mark.parametrize("make", [on_line, in_space, on_sphere])
def test_samples_have_the_moments(make) -> None:  # type: ignore[no-untyped-def]
    beliefs, size = make(), 20_000
    drawn = beliefs.sample(size, seed=1)
    assert drawn.shape[:2] == (beliefs.graph.n_nodes, size)
    # Five standard errors of a mean of that many draws.
    assert (np.abs(drawn.mean(axis=1) - beliefs.mean()) < 5 * beliefs.std() / np.sqrt(size)).all()
    np.testing.assert_allclose(drawn.std(axis=1), beliefs.std(), rtol=0.05)
    np.testing.assert_array_equal(drawn, beliefs.sample(size, seed=1))


@pytest.mark.parametrize("dimension", [1, 2, 3, 6])
@pytest.mark.parametrize("concentration", [0.0, 0.7, 30.0, 1e7])
def test_draws_on_the_sphere_have_the_mean(dimension: int, concentration: float) -> None:
    centre = np.zeros(dimension)
    centre[0] = 1.0
    size = 4000
    drawn = draw_on_sphere(np.tile(centre, (size, 1)), np.full(size, concentration), np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0)
    one = Mixtures(centre[None, None], np.ones((1, 1)), concentrations=np.full((1, 1), concentration))
    beliefs = as_beliefs(one, Kind("vector", dimension))
    error = np.abs(drawn.mean(axis=0) - beliefs.mean()[0])
    assert (error <= 5 * beliefs.std()[0] / np.sqrt(size) + 1e-9).all()


def test_fixed_nodes_are_atoms() -> None:
    rng = np.random.default_rng(0)
    points, covariances = rng.standard_normal((3, 4, 1)), np.full((3, 4, 1, 1), 0.25)
    points[1], covariances[1] = 0.3, 0.0
    beliefs = as_beliefs(Mixtures(points, np.full((3, 4), 0.25), covariances=covariances), NUMBERS)
    assert beliefs.mean()[1] == beliefs.mode()[1] == beliefs.quantile(0.01)[1] == 0.3
    assert beliefs.mode([5.0, 6.0])[1] == 0.3
    assert beliefs.std()[1] == pytest.approx(0.0, abs=1e-8)
    assert (beliefs.sample(5, seed=0)[1] == 0.3).all()
    assert beliefs.expect(lambda x: x**3)[1] == pytest.approx(0.027)
    # Shown as a window as wide as the others' components.
    assert beliefs.density([0.3, 0.8])[1] == pytest.approx(stats.norm(0.3, 0.5).pdf([0.3, 0.8]))


def test_fixed_directions_are_atoms() -> None:
    points = np.tile([[[0.0, 0.6, 0.8]]], (2, 1, 1))
    mixtures = Mixtures(points, np.ones((2, 1)), concentrations=np.array([[np.inf], [3.0]]))
    beliefs = as_beliefs(mixtures, Kind("vector", 3))
    np.testing.assert_array_equal(beliefs.mean()[0], [0.0, 0.6, 0.8])
    np.testing.assert_allclose(beliefs.sample(3, seed=0)[0], points[0].repeat(3, axis=0))
    np.testing.assert_allclose(beliefs.std()[0], 0.0, atol=1e-8)
    np.testing.assert_allclose(beliefs.expect(lambda x: x)[0], [0.0, 0.6, 0.8])
    assert np.isfinite(beliefs.density(points[0])).all()


def test_an_atom_among_windows_has_its_quantiles() -> None:
    mixtures = Mixtures(
        np.array([[[0.0], [2.0]]]),
        np.full((1, 2), 0.5),
        covariances=np.array([[[[1.0]], [[0.0]]]]),
    )
    beliefs = as_beliefs(mixtures, NUMBERS)
    below = 0.5 * stats.norm.cdf(2.0)
    assert beliefs.quantile(below + 0.25)[0] == pytest.approx(2.0)
    assert beliefs.quantile(0.25)[0] == pytest.approx(0.0, abs=1e-9)


def test_several_variables_and_the_verdict() -> None:
    graph = Graph.from_edges([(0, 1, "r")], variables=["a", "b"])
    one = Mixtures(np.zeros((1, 1, 1)), np.ones((1, 1)), covariances=np.ones((1, 1, 1, 1)))
    kinds = {"a": NUMBERS, "b": NUMBERS}
    beliefs = MixtureBeliefs(graph, {"a": one, "b": one}, kinds, Verdict(False, (0.5, 0.2), 0.0))
    assert beliefs["b"].mean().shape == (1,)
    assert (beliefs.converged, beliefs.iterations) == (False, 2)
    np.testing.assert_array_equal(beliefs.residuals, [0.5, 0.2])
    assert repr(beliefs) == "MixtureBeliefs(2 nodes, not converged in 2 iterations)"
    with pytest.raises(InputError, match=r"several variables; choose one, such as beliefs\['a'\]"):
        beliefs.mean()
    with pytest.raises(InputError, match="no node of 'c'; the graph has a, b"):
        beliefs["c"]


def test_bad_requests_are_named() -> None:
    numbers, directions = on_line(), on_sphere()
    with pytest.raises(InputError, match=r"probability: expected numbers between 0 and 1, got 1\.5"):
        numbers.quantile(1.5)
    with pytest.raises(UnsupportedError, match="quantile is for variables of numbers; 'x' holds vectors"):
        directions.quantile(0.5)
    with pytest.raises(InputError, match="coverage: expected a number between 0 and 1, got 1"):
        numbers.interval(1)
    with pytest.raises(InputError, match="size: expected a whole number of at least 0, got -1"):
        numbers.sample(-1)
    with pytest.raises(InputError, match="candidates: expected at least one value"):
        numbers.mode([])
    with pytest.raises(InputError, match=r"nodes: expected numbers in 0 ... 4, got \[7\]"):
        numbers.density([0.0], nodes=[7])
    with pytest.raises(
        InputError, match="points of variable 'x': values of one variable must be of one kind"
    ):
        numbers.density([[0.0, 1.0]])
    with pytest.raises(InputError, match="points of variable 'x': expected unit vectors"):
        directions.density([[0.0, 1.0, 1.0]])
    with pytest.raises(InputError, match=r"function: expected \d+ numbers or rows"):
        numbers.expect(lambda x: 1.0)


def test_bad_mixtures_are_named() -> None:
    points, weights = np.zeros((2, 1, 1)), np.ones((2, 1))
    with pytest.raises(InputError, match="either covariances"):
        Mixtures(points, weights)
    with pytest.raises(InputError, match=r"covariances: expected shape \(2, 1, 1, 1\), got \(2, 1\)"):
        Mixtures(points, weights, covariances=np.ones((2, 1)))
    with pytest.raises(InputError, match="weights: expected numbers of at least 0 that sum to one"):
        Mixtures(points, 2 * weights, covariances=np.ones((2, 1, 1, 1)))
    with pytest.raises(InputError, match=r"mixtures\['x'\]: expected one for each of 3 nodes, got 2"):
        MixtureBeliefs(
            Graph.chain(3, variable="x", relation="r"),
            {"x": Mixtures(points, weights, covariances=np.ones((2, 1, 1, 1)))},
            {"x": NUMBERS},
            DONE,
        )
