"""Gaussian belief propagation against exact joint solves, a Kalman smoother and closed forms."""

import networkx as nx
import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError, UnsupportedError
from kernelbp.rivals import GaussianModel

REAL = kb.kernels.Gaussian(1.0)


def random_covariance(rng, size):
    root = rng.standard_normal((size, size + 2))
    return root @ root.T / size


def joint_of_tree(edges, n, A, b, Q, mean, covariance):
    """Precision and shift of a linear-Gaussian tree whose edges run (parent, child), root 0, written out densely."""
    d = len(mean)
    J, h = np.zeros((n * d, n * d)), np.zeros(n * d)
    root = np.linalg.inv(covariance)
    J[:d, :d] += root
    h[:d] += root @ mean
    noise = np.linalg.inv(Q)
    for parent, child in edges:
        G = np.zeros((d, n * d))
        G[:, parent * d : parent * d + d] = -A
        G[:, child * d : child * d + d] = np.eye(d)
        J += G.T @ noise @ G
        h += G.T @ noise @ b
    return J, h


def dense_moments(J, h, d):
    covariance = np.linalg.inv(J)
    mean = (covariance @ h).reshape(-1, d)
    blocks = np.stack([covariance[i * d : i * d + d, i * d : i * d + d] for i in range(len(mean))])
    return mean, blocks


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("schedule", ["auto", "flooding"])
@pytest.mark.parametrize("seed", range(3))
def test_random_trees_equal_the_joint_solve(dimension, schedule, seed):
    rng = np.random.default_rng(seed)
    n, d = 12, dimension
    edges = [(int(rng.integers(i)), i) for i in range(1, n)]
    A, b, Q = rng.standard_normal((d, d)), rng.standard_normal(d), random_covariance(rng, d)
    C, c, R = rng.standard_normal((3, d)), rng.standard_normal(3), random_covariance(rng, 3)
    mean, covariance = 5 + rng.standard_normal(d), random_covariance(rng, d)
    model = GaussianModel(
        {"x": REAL, "y": REAL},
        {"then": kb.Relation("x", "x"), "seen as": kb.Relation("x", "y")},
        linear={"then": (A, b, Q), "seen as": (C, c, R)},
        prior={"x": (mean, covariance)},
    ).fit()
    graph = kb.Graph.from_edges([(p, q, "then") for p, q in edges], variables=["x"] * n)
    where, readings = np.array([2, 5, 5, 9]), rng.standard_normal((4, 3))
    graph = graph.observe("seen as", readings, nodes=where)
    J, h = joint_of_tree(edges, n, A, b, Q, mean, covariance)
    precision = np.linalg.inv(R)
    for node, reading in zip(where, readings, strict=True):
        part = slice(node * d, node * d + d)
        J[part, part] += C.T @ precision @ C
        h[part] += C.T @ precision @ (reading - c)
    exact_mean, exact_covariance = dense_moments(J, h, d)
    beliefs = model.infer(graph, schedule=schedule, tolerance=1e-12)
    assert beliefs.converged
    np.testing.assert_allclose(beliefs.mean().reshape(n, d), exact_mean, rtol=1e-8, atol=1e-8)
    spread = np.sqrt(np.einsum("nii->ni", exact_covariance))
    np.testing.assert_allclose(beliefs.std().reshape(n, d), spread, rtol=1e-8)
    if schedule == "auto":
        assert beliefs.iterations == 1


def test_several_variables_of_different_dimension():
    rng = np.random.default_rng(0)
    A, b, Q = rng.standard_normal((1, 2)), np.array([0.5]), np.array([[0.3]])
    mean, covariance = rng.standard_normal(2), random_covariance(rng, 2)
    model = GaussianModel(
        {"place": REAL, "height": REAL},
        {"rises to": kb.Relation("place", "height")},
        linear={"rises to": (A, b, Q)},
        prior={"place": (mean, covariance)},
    ).fit()
    graph = kb.Graph.from_edges(
        [(1, 0, "rises to"), (1, 2, "rises to")], variables=["height", "place", "height"]
    )
    beliefs = model.infer(graph.fix([0], [2.0]))
    gain = covariance @ A.T / (A @ covariance @ A.T + Q)
    after = mean + gain[:, 0] * (2.0 - (A @ mean + b)[0])
    np.testing.assert_allclose(beliefs["place"].mean()[0], after, rtol=1e-10)
    np.testing.assert_allclose(beliefs["height"].mean(), [2.0, (A @ after + b)[0]], rtol=1e-10)
    assert beliefs["height"].std()[0] == 0.0


def test_chain_equals_the_kalman_smoother():
    rng = np.random.default_rng(1)
    steps, A, C = 200, np.array([[1.0, 0.1], [0.0, 0.95]]), np.array([[1.0, 0.0]])
    Q, R, mean, covariance = np.diag([1e-3, 1e-2]), np.array([[0.05]]), np.zeros(2), np.eye(2)
    y = np.cumsum(rng.standard_normal(steps)) * 0.1
    y[rng.random(steps) < 0.3] = np.nan
    # The filter, then Rauch, Tung and Striebel's pass back.
    predicted, filtered = [], []
    m, P = mean, covariance
    for t in range(steps):
        if t:
            m, P = A @ m, A @ P @ A.T + Q
        predicted.append((m, P))
        if not np.isnan(y[t]):
            gain = P @ C.T / (C @ P @ C.T + R)
            m, P = m + gain[:, 0] * (y[t] - (C @ m)[0]), P - gain @ C @ P
        filtered.append((m, P))
    smoothed = [filtered[-1]]
    for t in range(steps - 2, -1, -1):
        (m, P), (pm, pP), (sm, sP) = filtered[t], predicted[t + 1], smoothed[-1]
        gain = P @ A.T @ np.linalg.inv(pP)
        smoothed.append((m + gain @ (sm - pm), P + gain @ (sP - pP) @ gain.T))
    smoothed.reverse()
    model = GaussianModel(
        {"state": REAL, "reading": REAL},
        {"then": kb.Relation("state", "state"), "read as": kb.Relation("state", "reading")},
        linear={"then": (A, 0.0, Q), "read as": (C, 0.0, R)},
        prior={"state": (mean, covariance)},
    ).fit()
    beliefs = model.infer(kb.Graph.chain(steps, variable="state", relation="then").observe("read as", y))
    np.testing.assert_allclose(beliefs.mean(), [m for m, _ in smoothed], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(beliefs.std(), [np.sqrt(np.diag(P)) for _, P in smoothed], rtol=1e-8)


def stationary_pairs(count, rho, seed=0):
    """Pairs whose sample moments are those of a stationary chain to rounding, far from zero and widely spread."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((count, 2))
    z -= z.mean(axis=0)
    z = z @ np.linalg.inv(np.linalg.cholesky(z.T @ z / count)).T
    return 100 + 7 * z[:, 0], 100 + 7 * (rho * z[:, 0] + np.sqrt(1 - rho**2) * z[:, 1])


def learned_chain(rho=0.8, regularization=0.0, symmetric=False):
    pairs = stationary_pairs(500, rho)
    rng = np.random.default_rng(3)
    hidden = pairs[0]
    readings = 2 * hidden - 30 + 4 * rng.standard_normal(500)
    model = GaussianModel(
        {"x": REAL, "y": REAL},
        {"then": kb.Relation("x", "x", symmetric=symmetric), "read as": kb.Relation("x", "y")},
        regularization=regularization,
    )
    return model.fit({"then": pairs, "read as": (hidden, readings)}), hidden, readings


def test_a_learned_chain_is_exact_where_marginals_agree():
    rho, n = 0.8, 8
    model, hidden, readings = learned_chain(rho)
    slope, intercept = np.polyfit(hidden, readings, 1)
    noise = np.var(readings - slope * hidden - intercept)
    y = np.array([150.0, np.nan, np.nan, 190.0, np.nan, 160.0, np.nan, np.nan])
    graph = kb.Graph.chain(n, variable="x", relation="then").observe("read as", y)
    covariance = 49 * rho ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    J, h = np.linalg.inv(covariance), np.linalg.inv(covariance) @ np.full(n, 100.0)
    seen = ~np.isnan(y)
    J[seen, seen] += slope**2 / noise
    h[seen] += slope * (y[seen] - intercept) / noise
    mean, spread = dense_moments(J, h, 1)
    beliefs = model.infer(graph)
    np.testing.assert_allclose(beliefs.mean(), mean[:, 0], rtol=1e-8)
    np.testing.assert_allclose(beliefs.std() ** 2, spread[:, 0, 0], rtol=1e-8)
    assert beliefs.graph is graph and beliefs.residuals.shape == (1,)


def test_a_fixed_node_is_its_value_and_evidence_for_its_neighbours():
    rho = 0.8
    model, _, _ = learned_chain(rho)
    graph = kb.Graph.chain(3, variable="x", relation="then").fix([1], [114.0])
    beliefs = model.infer(graph)
    np.testing.assert_allclose(beliefs.mean(), [100 + rho * 14, 114.0, 100 + rho * 14], rtol=1e-8)
    np.testing.assert_allclose(beliefs.std(), [7 * 0.6, 0.0, 7 * 0.6], rtol=1e-8, atol=1e-12)


def test_softened_nodes_take_the_gaussian_of_the_table():
    model, _, _ = learned_chain()
    points = np.linspace(50, 150, 2001)
    likelihood = np.exp(-0.5 * ((points - 110) / 3.0) ** 2)
    beliefs = model.infer(kb.Graph.chain(2, variable="x", relation="then").soften([0], points, likelihood))
    precision = 1 / 49 + 1 / 9
    # A Gaussian on a grid this fine has the moments of the Gaussian to rounding.
    np.testing.assert_allclose(beliefs.mean()[0], (100 / 49 + 110 / 9) / precision, rtol=1e-8)
    np.testing.assert_allclose(beliefs.std()[0], precision**-0.5, rtol=1e-6)
    uneven = np.sort(np.concatenate([points, np.linspace(100, 110, 4000)]))
    again = model.infer(
        kb.Graph.chain(2, variable="x", relation="then").soften(
            [0], uneven, np.exp(-0.5 * ((uneven - 110) / 3.0) ** 2)
        )
    )
    np.testing.assert_allclose(again.mean(), beliefs.mean(), rtol=1e-4)


def test_loopy_means_are_exact_when_converged():
    # rho = 0.25 on a grid is walk-summable: diagonally dominant.
    model, hidden, readings = learned_chain(0.25, symmetric=True)
    slope, intercept = np.polyfit(hidden, readings, 1)
    noise = np.var(readings - slope * hidden - intercept)
    shape = (5, 6)
    graph = kb.Graph.grid(shape, variable="x", relation="then")
    y = 170 + 20 * np.random.default_rng(5).standard_normal(30)
    rho = 0.25
    J, h = np.eye(30) / 49, np.full(30, 100 / 49)
    ratio = np.linalg.inv(49 * np.array([[1, rho], [rho, 1]])) - np.eye(2) / 49
    for s, t in graph.edges:
        J[np.ix_([s, t], [s, t])] += ratio
        h[[s, t]] += ratio @ np.full(2, 100.0)
    J += np.eye(30) * slope**2 / noise
    h += slope * (y - intercept) / noise
    exact = np.linalg.solve(J, h)
    for settings in ({}, {"damping": 0.3}, {"schedule": "sweep"}):
        beliefs = model.infer(graph.observe("read as", y), tolerance=1e-11, **settings)
        assert beliefs.converged and beliefs.iterations > 3
        np.testing.assert_allclose(beliefs.mean(), exact, rtol=1e-8)
        # Loops make messages count evidence more than once.
        assert (beliefs.std() <= np.sqrt(np.diag(np.linalg.inv(J))) + 1e-12).all()


def test_divergence_is_said_and_leaves_finite_beliefs():
    model, _, _ = learned_chain(0.9, symmetric=True)
    graph = kb.Graph.grid((5, 5), variable="x", relation="then").soften([0], [90.0, 100.0, 120.0], [1, 2, 1])
    with pytest.warns(ConvergenceWarning, match="standard deviations"):
        beliefs = model.infer(graph)
    assert not beliefs.converged
    assert np.isfinite(beliefs.mean()).all() and (beliefs.std() > 0).all()


def test_node_numbers_do_not_matter():
    rng = np.random.default_rng(0)
    model, _, _ = learned_chain(0.3, symmetric=True)
    tree = nx.random_labeled_tree(15, seed=2)
    edges = np.array(tree.edges)
    y = 170 + 15 * rng.standard_normal(15)
    order = rng.permutation(15)
    place = np.argsort(order)
    one = kb.Graph.from_edges(edges, variables=["x"] * 15, relation="then").observe("read as", y)
    other = kb.Graph.from_edges(place[edges], variables=["x"] * 15, relation="then").observe(
        "read as", y[order]
    )
    np.testing.assert_allclose(model.infer(one).mean()[order], model.infer(other).mean(), rtol=1e-12)


def test_beliefs_are_gaussians_with_all_methods():
    model, _, _ = learned_chain()
    beliefs = model.infer(kb.Graph.chain(2, variable="x", relation="then"))
    low, high = beliefs.interval(0.9)[0]
    np.testing.assert_allclose([low, high], 100 + 7 * np.array([-1.6448536, 1.6448536]), rtol=1e-6)
    np.testing.assert_allclose(beliefs.density([100.0])[0, 0], 1 / (7 * np.sqrt(2 * np.pi)), rtol=1e-8)
    np.testing.assert_allclose(beliefs.mode(), [100.0, 100.0], rtol=1e-8)
    np.testing.assert_allclose(beliefs.expect(lambda x: x**2), [10049.0] * 2, rtol=1e-6)
    # Error of a mean of 4000 draws: 7 / sqrt(4000) = 0.11; four of them.
    assert abs(beliefs.sample(4000, seed=0).mean() - 100) < 0.45


def test_isolated_nodes_and_graphs_without_edges():
    model, _, _ = learned_chain()
    beliefs = model.infer(kb.Graph.from_edges([], variables=["x", "x"]))
    np.testing.assert_allclose(beliefs.mean(), [100.0, 100.0])
    assert beliefs.converged and beliefs.iterations == 0


def test_a_relation_that_loses_a_direction_keeps_it_open():
    # The parent's first coordinate alone is passed on: before its prior arrives, its second must not blow up.
    model = GaussianModel(
        {"x": REAL, "s": REAL},
        {"first of": kb.Relation("x", "s")},
        linear={"first of": ([[1.0, 0.0]], 0.0, 1.0)},
        prior={"x": ([1.0, 2.0], np.eye(2))},
    ).fit()
    graph = kb.Graph.from_edges([(0, 1, "first of"), (0, 2, "first of")], variables=["x", "s", "s"])
    beliefs = model.infer(
        graph.soften([1], np.linspace(-20, 30, 5001), np.exp(-0.5 * (np.linspace(-20, 30, 5001) - 4) ** 2))
    )
    # s1 = x1 + noise read as 4 with noise: x1 has prior N(1, 1) and reading 4 of variance 2.
    np.testing.assert_allclose(beliefs["x"].mean()[0], [1 + 3 / 3, 2.0], rtol=1e-6)


MODELS = {"x": REAL, "y": REAL}
RELATIONS = {"then": kb.Relation("x", "x"), "read as": kb.Relation("x", "y")}


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: GaussianModel({}, RELATIONS), InputError, "variables: expected a mapping"),
        (lambda: GaussianModel({"x": kb.kernels.Delta()}, {"r": kb.Relation("x", "x")}), UnsupportedError, "DiscreteModel"),
        (lambda: GaussianModel({"x": kb.kernels.Sphere()}, {"r": kb.Relation("x", "x")}), UnsupportedError, "ParticleModel"),
        (
            lambda: GaussianModel(MODELS, {"r": kb.Relation("x", "y", potential=lambda a, b: a * b)}),
            UnsupportedError,
            "DiscreteModel or rivals.ParticleModel",
        ),
        (lambda: GaussianModel(MODELS, {"r": kb.Relation("x", "z")}), InputError, "unknown variable 'z'"),
        (lambda: GaussianModel(MODELS, RELATIONS, linear={"no": (1, 0, 1)}), InputError, "linear: unknown relation 'no'"),
        (lambda: GaussianModel(MODELS, RELATIONS, linear={"then": (1, 0)}), InputError, r"expected \(A, b, Q\)"),
        (lambda: GaussianModel(MODELS, RELATIONS, linear={"then": (1, 0, -1)}), InputError, "positive eigenvalues"),
        (lambda: GaussianModel(MODELS, RELATIONS, linear={"then": (np.eye(2), [0, 0, 0], np.eye(2))}), InputError, "b should have 2"),
        (lambda: GaussianModel(MODELS, RELATIONS, prior={"z": (0, 1)}), InputError, "prior: unknown variable 'z'"),
        (lambda: GaussianModel(MODELS, RELATIONS, prior={"x": ([0, 0], 1)}), InputError, r"shape \(2, 2\)"),
        (
            lambda: GaussianModel(
                MODELS, RELATIONS, linear={"then": (1, 0, 1), "read as": (np.eye(2), 0, np.eye(2))}
            ),
            InputError,
            "variable 'x' holds numbers, got 2",
        ),
        (
            lambda: GaussianModel({"x": REAL}, {"r": kb.Relation("x", "x", symmetric=True)}, linear={"r": (1, 0, 1)}),
            InputError,
            "cannot be symmetric",
        ),
        (lambda: GaussianModel(MODELS, RELATIONS, regularization=-1), InputError, "regularization: expected"),
        (lambda: GaussianModel(MODELS, RELATIONS), InputError, "no examples of relation"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_said(build, error, text):
    with pytest.raises(error, match=text):
        build().fit()


def test_values_that_cannot_be_learned_from_are_said():
    model = GaussianModel({"x": REAL}, {"r": kb.Relation("x", "x")}, regularization=0.0)
    with pytest.raises(InputError, match="regularization: pairs determine each other"):
        model.fit({"r": ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])})
    with pytest.raises(InputError, match="NaN"):
        model.fit({"r": ([1.0, np.nan], [1.0, 2.0])})
    with pytest.raises(NotFittedError, match="fit"):
        model.infer(kb.Graph.chain(2, variable="x", relation="r"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"schedule": "splash"}, "schedule: expected one of"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"damping": 1.0}, "damping"),
    ],
)
def test_bad_settings_of_infer_are_said(settings, text):
    model, _, _ = learned_chain()
    with pytest.raises(InputError, match=text):
        model.infer(kb.Graph.chain(2, variable="x", relation="then"), **settings)


def test_graphs_that_do_not_fit_are_said():
    model, _, _ = learned_chain()
    with pytest.raises(InputError, match=r"graph: expected a kernelbp\.Graph"):
        model.infer([1, 2])
    with pytest.raises(InputError, match="unknown variable 'z'"):
        model.infer(kb.Graph.chain(2, variable="z", relation="then"))
    with pytest.raises(InputError, match="unknown relation 'no'"):
        model.infer(kb.Graph.chain(2, variable="x", relation="no"))
    with pytest.raises(InputError, match="has no spread"):
        model.infer(kb.Graph.chain(2, variable="x", relation="then").soften([0], [1.0, 2.0], [0.0, 1.0]))
    open_ended = GaussianModel({"x": REAL}, {"r": kb.Relation("x", "x")}, linear={"r": (1, 0, 1)}).fit()
    with pytest.raises(InputError, match="nothing says where node 0"):
        open_ended.infer(kb.Graph.chain(2, variable="x", relation="r"))
