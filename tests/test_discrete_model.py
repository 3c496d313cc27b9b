"""Discrete belief propagation, judged by enumeration, by a plain loopy BP written here, and by a peer."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import InputError, NotFittedError, UnsupportedError
from kernelbp.rivals import DiscreteModel
from kernelbp.rivals.discrete import _smoothing

DOUBLE = {"dtype": np.float64, "weighting": "bethe"}


# ---------------------------------------------------------------------- judges


def log_sum(logs):
    """Logarithm of the sum of exponentials along the first axis."""
    return np.logaddexp.reduce(logs, axis=0)


def enumerate_all(unary, pairs):
    """Marginals, log Z and the best assignment: unary (n, q) and [(i, j, table)], by going through all of them."""
    n, q = unary.shape
    states = np.array(list(itertools.product(range(q), repeat=n)))
    logs = np.log(unary)[np.arange(n), states].sum(axis=1)
    for i, j, table in pairs:
        logs += np.log(table)[states[:, i], states[:, j]]
    weight = np.exp(logs - logs.max())
    marginals = (
        np.array([[weight[states[:, i] == k].sum() for k in range(q)] for i in range(n)]) / weight.sum()
    )
    return marginals, log_sum(logs), states[np.argmax(logs)]


def plain_loopy_bp(unary, pairs, iterations):
    """Textbook loopy BP in logarithms: a dictionary of messages, all updated at the same time."""
    log_unary = np.log(unary)
    tables, neighbours = {}, {}
    for i, j, table in pairs:
        tables[i, j], tables[j, i] = np.log(table), np.log(table).T
        neighbours.setdefault(i, []).append(j)
        neighbours.setdefault(j, []).append(i)
    messages = {edge: np.zeros(unary.shape[1]) for edge in tables}
    for _ in range(iterations):
        fresh = {}
        for i, j in tables:
            at_sender = log_unary[i] + sum(messages[u, i] for u in neighbours[i] if u != j)
            sent = log_sum(at_sender[:, None] + tables[i, j])
            fresh[i, j] = sent - log_sum(sent)
        messages = fresh
    logs = log_unary + np.array([sum(messages[u, i] for u in neighbours[i]) for i in range(len(unary))])
    return np.exp(logs - log_sum(logs.T)[:, None])


def finite_model(table, q, **settings):
    return DiscreteModel(
        {"x": kb.kernels.Delta()},
        {"r": kb.Relation("x", "x", potential=table)},
        levels={"x": np.arange(q)},
        **settings,
    ).fit()


def tree(rng, q):
    """A tree of six nodes with a table whose two ends differ, and evidence at every node."""
    edges = [(0, 1), (1, 2), (1, 3), (4, 3), (3, 5)]
    table = rng.gamma(1.0, size=(q, q)) + 0.05
    likelihood = rng.gamma(1.0, size=(6, q)) + 0.05
    graph = kb.Graph.from_edges(edges, variables=["x"] * 6, relation="r")
    graph = graph.soften(np.arange(6), np.arange(q), likelihood)
    return graph, table, likelihood, [(i, j, table) for i, j in edges]


def grid_of_ten(rng):
    """A 10 x 10 grid of 5 states, couplings weak enough for loopy BP to have one fixed point."""
    q = 5
    table = np.exp(0.4 * rng.standard_normal((q, q)))
    unary = rng.gamma(2.0, size=(100, q)) + 0.1
    graph = kb.Graph.grid((10, 10), variable="x", relation="r").soften(np.arange(100), np.arange(q), unary)
    return graph, table, unary, [(int(i), int(j), table) for i, j in graph.edges]


# ---------------------------------------------------------------------- exact where it should be


@pytest.mark.parametrize("schedule", ["auto", "flooding", "sweep", "residual", "splash"])
def test_sum_product_on_a_tree_equals_enumeration(schedule):
    graph, table, likelihood, pairs = tree(np.random.default_rng(0), 3)
    settings = {} if schedule == "auto" else {"tolerance": 1e-12}
    beliefs = finite_model(table, 3).infer(graph, schedule=schedule, **settings, **DOUBLE)
    marginals, log_z, _ = enumerate_all(likelihood / 3, pairs)  # levels without examples are all alike
    assert beliefs.converged
    np.testing.assert_allclose(beliefs.probabilities(), marginals, atol=1e-9)
    assert beliefs.log_partition() == pytest.approx(log_z, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_max_product_on_a_tree_finds_the_most_probable_assignment(seed):
    graph, table, likelihood, pairs = tree(np.random.default_rng(seed), 4)
    beliefs = finite_model(table, 4).infer(graph, product="max", **DOUBLE)
    _, _, best = enumerate_all(likelihood, pairs)
    np.testing.assert_array_equal(beliefs.mode(), best)


def test_max_product_is_not_the_mode_of_each_marginal():
    """Two nodes whose most probable pair is not made of their two most probable values."""
    table = np.array([[0.4, 0.0, 0.0], [0.0, 0.15, 0.15], [0.0, 0.15, 0.15]])
    model = finite_model(table, 3)
    graph = kb.Graph.chain(2, variable="x", relation="r").soften([0], [0, 1, 2], [[0.6, 1.0, 0.9]])
    assert model.infer(graph, product="max", **DOUBLE).mode().tolist() == [0, 0]
    assert model.infer(graph, **DOUBLE).mode()[0] == 1


def test_max_marginals_equal_enumeration_also_with_a_potential_for_each_edge():
    """Readings along edges and edge weights go through the operator that has a table for each edge."""
    rng = np.random.default_rng(1)
    q, n, edges = 3, 4, [(0, 1), (1, 2), (1, 3)]
    readings, likelihood = rng.random(3) + 0.5, rng.random((n, q)) + 0.1
    model = DiscreteModel(
        {"x": kb.kernels.Delta()},
        {"r": kb.Relation("x", "x", potential=lambda a, b, r: np.exp(-r * (a - b) ** 2 - 0.1 * a))},
        levels={"x": np.arange(q)},
    ).fit()
    graph = kb.Graph.from_edges(edges, variables=["x"] * n, relation="r", readings=readings)
    graph = graph.soften(np.arange(n), np.arange(q), likelihood)
    states = np.array(list(itertools.product(range(q), repeat=n)))
    value = likelihood[np.arange(n), states].prod(axis=1)
    for (i, j), r in zip(edges, readings, strict=True):
        value *= np.exp(-r * (states[:, i] - states[:, j]) ** 2 - 0.1 * states[:, i])
    wanted = np.array([[value[states[:, i] == k].max() for k in range(q)] for i in range(n)])
    beliefs = model.infer(graph, product="max", **DOUBLE)
    np.testing.assert_allclose(beliefs.probabilities(), wanted / wanted.sum(axis=1, keepdims=True), atol=1e-9)
    summed = np.array([[value[states[:, i] == k].sum() for k in range(q)] for i in range(n)])
    beliefs = model.infer(graph, **DOUBLE)
    np.testing.assert_allclose(beliefs.probabilities(), summed / summed.sum(axis=1, keepdims=True), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (7, 5), (9, 30)])
def test_max_product_operator_is_a_matrix_product_with_maxima(shape, dtype):
    from kernelbp.learning.conditionals import Conditional
    from kernelbp.rivals.max_product import max_product

    rng = np.random.default_rng(0)
    table, products = rng.random(shape).astype(dtype), rng.random((11, shape[1])).astype(dtype)
    made = max_product(Conditional(table)).apply(products, np.arange(11))
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, (table[None] * products[:, None]).max(axis=2))


def test_weighted_max_product_on_a_tree_keeps_the_most_probable_assignment():
    """Tree-reweighted max-product whose max-marginals have no ties is right (Wainwright et al. 2005)."""
    graph, table, likelihood, pairs = tree(np.random.default_rng(2), 3)
    beliefs = finite_model(table, 3).infer(
        graph,
        product="max",
        weighting=[0.9, 0.8, 0.9, 0.8, 0.9],
        max_iterations=500,
        tolerance=1e-9,
        damping=0.3,
        dtype=np.float64,
    )
    _, _, best = enumerate_all(likelihood, pairs)
    assert beliefs.converged
    np.testing.assert_array_equal(beliefs.mode(), best)


def test_tree_reweighted_log_partition_is_an_upper_bound_on_a_cycle():
    rng = np.random.default_rng(3)
    q, edges = 3, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    table, likelihood = np.exp(rng.standard_normal((q, q))), rng.random((4, q)) + 0.1
    graph = kb.Graph.from_edges(edges, variables=["x"] * 4, relation="r")
    graph = graph.soften(np.arange(4), np.arange(q), likelihood)
    _, log_z, _ = enumerate_all(likelihood / q, [(i, j, table) for i, j in edges])
    model = finite_model(table, q)
    settings = {"dtype": np.float64, "tolerance": 1e-10, "max_iterations": 500}
    bound = model.infer(graph, weighting="tree-reweighted", **settings).log_partition()
    assert log_z < bound < log_z + 1.0


# ---------------------------------------------------------------------- loopy, against others


def test_loopy_grid_equals_a_plain_loopy_bp():
    graph, table, unary, pairs = grid_of_ten(np.random.default_rng(4))
    beliefs = finite_model(table, 5).infer(graph, tolerance=1e-12, max_iterations=500, **DOUBLE)
    assert beliefs.converged
    np.testing.assert_allclose(beliefs.probabilities(), plain_loopy_bp(unary, pairs, 60), atol=1e-9)


def test_seven_flooding_iterations_equal_those_of_a_plain_loopy_bp():
    """Not the fixed point only: iteration for iteration."""
    graph, table, unary, pairs = grid_of_ten(np.random.default_rng(5))
    beliefs = finite_model(table, 5).infer(
        graph, schedule="flooding", max_iterations=7, tolerance=0.0, damping=0.0, **DOUBLE
    )
    assert beliefs.iterations == 7
    np.testing.assert_allclose(beliefs.probabilities(), plain_loopy_bp(unary, pairs, 7), atol=1e-12)


def test_loopy_grid_equals_pygms():
    gm = pytest.importorskip("pygms", reason="a peer, of the extra 'peers'")
    from pygms.messagepass import LBP

    graph, table, unary, _ = grid_of_ten(np.random.default_rng(6))
    names = [gm.Var(i, 5) for i in range(100)]
    factors = [gm.Factor([names[i]], unary[i]) for i in range(100)]
    for i, j in graph.edges.tolist():
        factors.append(gm.Factor([names[i], names[j]], table))
    _, marginals = LBP(gm.GraphModel(factors), maxIter=20, verbose=False)
    theirs = np.array([marginals[i].table / marginals[i].table.sum() for i in range(100)])
    ours = finite_model(table, 5).infer(graph, tolerance=1e-12, max_iterations=500, **DOUBLE)
    np.testing.assert_allclose(ours.probabilities(), theirs, atol=1e-6)


# ---------------------------------------------------------------------- linear-Gaussian trees


def gaussian_tree(prior):
    """x0 - x1 - x2, x1 - x3, neighbours 0.8 x + 0.6 noise, read with noise 0.5: the exact means and deviations.

    Nodes have the marginal N(0, 1) if there is a prior, as learned models have, else none.
    """
    edges = [(0, 1), (1, 2), (1, 3)]
    precision = np.zeros((4, 4))
    for i, j in edges:  # P(x_i, x_j) / P(x_i) P(x_j) with correlation 0.8, times P of each node
        block = np.linalg.inv([[1, 0.8], [0.8, 1]]) - np.eye(2)
        precision[np.ix_([i, j], [i, j])] += block
    precision += prior * np.eye(4) + np.eye(4) / 0.25
    readings = np.array([0.9, -0.4, 1.3, 0.2])
    covariance = np.linalg.inv(precision)
    graph = kb.Graph.from_edges(edges, variables=["x"] * 4, relation="beside").observe("read as", readings)
    return graph, covariance @ readings / 0.25, np.sqrt(np.diag(covariance))


def gaussian_model(levels, **relations):
    def reading(x, y):
        return np.exp(-2 * (x - y) ** 2)

    def beside(x, y):
        return np.exp(-((x - 0.8 * y) ** 2) / 0.72 - y**2 / 2 + (x**2 + y**2) / 2)

    return DiscreteModel(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {
            "beside": kb.Relation("x", "x", symmetric=True, potential=relations.get("potential", beside)),
            "read as": kb.Relation("x", "y", potential=reading),
        },
        levels=levels,
        smoothing=relations.get("smoothing"),
        spacing=relations.get("spacing", "even"),
    )


def test_evenly_spaced_levels_of_a_known_gaussian_tree_are_spectrally_accurate():
    """Sums over an even grid integrate Gaussians faster than any power, once it is finer than they are wide."""
    graph, mean, std = gaussian_tree(prior=False)
    errors = []
    for number in (8, 16, 32):
        levels = (np.arange(number) + 0.5) / number * 10 - 5
        beliefs = gaussian_model({"x": levels}).fit().infer(graph, **DOUBLE)
        errors.append(max(np.abs(beliefs.mean() - mean).max(), np.abs(beliefs.std() - std).max()))
    assert errors[1] < errors[0] / 30 and errors[2] < 1e-10


def test_unevenly_spaced_levels_of_a_known_gaussian_tree_are_of_second_order():
    """Levels weigh what their bins are wide: the trapezoidal rule, whose error falls fourfold with each doubling."""
    graph, mean, std = gaussian_tree(prior=False)
    errors = []
    for number in (16, 32, 64, 128):
        at = np.linspace(-1, 1, number)
        beliefs = gaussian_model({"x": 5 * (at + 0.6 * at**3) / 1.6}).fit().infer(graph, **DOUBLE)
        errors.append([np.abs(beliefs.mean() - mean).max(), np.abs(beliefs.std() - std).max()])
    rates = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(rates, 2.0, atol=0.2)


def test_learned_tables_of_a_gaussian_tree_are_of_second_order():
    """Binning moves values by at most half a bin, evenly either way: second order, down to sampling error.

    With 200,000 pairs the error of a correlation is 0.0008, of these means about 0.001.
    """
    graph, mean, _ = gaussian_tree(prior=True)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(200_000)
    pairs = {"beside": (x, 0.8 * x + 0.6 * rng.standard_normal(len(x)))}
    errors = []
    for number in (8, 16, 32):
        beliefs = gaussian_model({"x": number}, potential=None).fit(pairs).infer(graph, **DOUBLE)
        errors.append(np.abs(beliefs.mean() - mean).max())
    assert errors[0] > 2.5 * errors[1] and errors[1] > 2.5 * errors[2]
    assert errors[2] < 0.01
    at_quantiles = gaussian_model({"x": 32}, potential=None, spacing="quantiles").fit(pairs)
    assert np.abs(at_quantiles.infer(graph, **DOUBLE).mean() - mean).max() < 0.01


# ---------------------------------------------------------------------- learning


def learned(pairs, *, symmetric=False, kernel=None, **settings):
    return DiscreteModel(
        {"x": kernel or kb.kernels.Delta()},
        {"r": kb.Relation("x", "x", symmetric=symmetric)},
        **settings,
    ).fit({"r": pairs})


@pytest.mark.parametrize("symmetric", [False, True])
def test_smoothing_is_that_under_which_pairs_left_out_are_most_likely(symmetric):
    rng = np.random.default_rng(0)
    first = rng.integers(0, 4, 60)
    second = np.where(rng.random(60) < 0.7, first, rng.integers(0, 5 - symmetric, 60))

    def table(kept):
        counts = np.zeros((4, 5 - symmetric))
        np.add.at(counts, (first[kept], second[kept]), 1.0)
        return counts + counts.T if symmetric else counts

    def score(added):
        total = 0.0
        for out in range(60):
            rest = table(np.arange(60) != out) + added
            total += np.log(rest[first[out], second[out]] / rest.sum())
        return total / 60

    added, found = _smoothing(table(np.arange(60)), None, symmetric=symmetric)
    assert found == pytest.approx(score(added), abs=1e-12)
    assert found >= max(score(added / 3), score(added * 3))
    assert _smoothing(table(np.arange(60)), 0.7, symmetric=symmetric) == (0.7, None)


def test_more_pairs_need_less_smoothing_of_a_sharp_relation():
    """Pairs that are always equal: what is seen elsewhere never comes."""
    few, many = np.tile(np.arange(5), 2), np.tile(np.arange(5), 2000)
    score = [learned((x, x)).settings_["relations"]["r"]["score"] for x in (few, many)]
    assert score[0] < score[1] == pytest.approx(np.log(0.2), abs=1e-3)
    added = learned((many, many)).settings_["relations"]["r"]["smoothing"]
    assert added == pytest.approx(1e-6)


def test_beliefs_beside_a_fixed_node_are_the_conditional_counts():
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 1, 2, 2])
    model = learned((first, second), symmetric=True, smoothing=0.5)
    counts = np.zeros((3, 3))
    np.add.at(counts, (first, second), 1.0)
    counts += counts.T + 0.5
    np.testing.assert_allclose(model.probabilities("x"), counts.sum(axis=0) / counts.sum())
    beliefs = model.infer(kb.Graph.chain(2, variable="x", relation="r").fix([0], [1]), **DOUBLE)
    np.testing.assert_allclose(beliefs.probabilities()[1], counts[1] / counts[1].sum(), atol=1e-12)
    np.testing.assert_array_equal(beliefs.probabilities()[0], [0, 1, 0])


def two_relations(potentials):
    """A variable with two relations whose counts do not agree on its marginal."""
    rng = np.random.default_rng(0)
    across = (rng.integers(0, 3, 300), rng.choice(3, 300, p=[0.6, 0.3, 0.1]))
    x = rng.choice(3, 500, p=[0.2, 0.2, 0.6])
    down = (x, (x + rng.choice(3, 500, p=[0.7, 0.2, 0.1])) % 3)
    return DiscreteModel(
        {"x": kb.kernels.Delta()},
        {"across": kb.Relation("x", "x"), "down": kb.Relation("x", "x")},
        potentials=potentials,
    ).fit({"across": across, "down": down}), across


@pytest.mark.parametrize("weighting", ["bethe", "tree-reweighted"])
def test_proportional_fitting_makes_marginals_of_bp_those_of_the_data(weighting):
    graph = kb.Graph.grid((4, 4), variable="x", relation={"down": "down", "right": "across"})
    edge = int(np.flatnonzero(graph.edge_relation == graph.relations.index("across"))[0])
    settings = {"weighting": weighting, "dtype": np.float64, "tolerance": 1e-10, "max_iterations": 300}
    model, across = two_relations("fitting")
    beliefs = model.infer(graph, **settings)
    pooled = np.tile(model.probabilities("x"), (16, 1))
    np.testing.assert_allclose(beliefs.probabilities(), pooled, atol=1e-9)
    pair = beliefs.pair(edge)
    np.testing.assert_allclose(pair.sum(axis=1), pooled[0], atol=1e-9)
    np.testing.assert_allclose(pair.sum(axis=0), pooled[0], atol=1e-9)
    # Odds ratios are those of the smoothed counts: scaling rows and columns does not touch them.
    counts = np.full((3, 3), model.settings_["relations"]["across"]["smoothing"])
    np.add.at(counts, across, 1.0)
    odds = [t[0, 0] * t[1, 1] / t[0, 1] / t[1, 0] for t in (pair, counts)]
    assert odds[0] == pytest.approx(odds[1], rel=1e-8)
    moments, _ = two_relations("moments")
    assert np.abs(moments.infer(graph, **settings).probabilities() - pooled).max() > 0.01


def test_both_potentials_are_one_for_a_single_symmetric_relation():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(3000)
    pairs = (x, 0.7 * x + 0.7 * rng.standard_normal(3000))
    graph = kb.Graph.grid((3, 3), variable="x", relation="r").fix([0, 4], [1.0, -1.0])
    means = [
        learned(pairs, symmetric=True, kernel=kb.kernels.Gaussian(), levels=8, potentials=p)
        .infer(graph, dtype=np.float64)
        .mean()
        for p in ("moments", "fitting")
    ]
    np.testing.assert_allclose(*means, atol=1e-6)


def test_proportional_fitting_says_when_zeros_forbid_it():
    model = DiscreteModel(
        {"x": kb.kernels.Delta()},
        {"a": kb.Relation("x", "x"), "b": kb.Relation("x", "x")},
        potentials="fitting",
        smoothing=0.0,
    )
    with pytest.raises(InputError, match=r"no table with the zeros of relation 'a'.*smoothing above 0"):
        model.fit({"a": ([0, 1], [1, 1]), "b": ([0, 0], [0, 1])})


@pytest.mark.parametrize("potentials", ["moments", "fitting"])
def test_levels_never_seen_are_never_believed_without_smoothing(potentials):
    model = learned(
        ([0, 1, 1, 1], [1, 1, 1, 0]),
        symmetric=True,
        levels={"x": [0, 1, 2, 3]},
        smoothing=0.0,
        potentials=potentials,
    )
    graph = kb.Graph.chain(3, variable="x", relation="r").fix([0], [1])
    np.testing.assert_allclose(
        model.infer(graph, **DOUBLE).probabilities()[1], [1 / 3, 2 / 3, 0, 0], atol=1e-12
    )
    assert model.infer(graph).probabilities()[2, 2:].max() < 1e-12


# ---------------------------------------------------------------------- levels


def test_levels_at_quantiles_and_evenly_spaced():
    x = np.exp(np.random.default_rng(0).standard_normal(5000))
    gaussian = kb.kernels.Gaussian()
    at_quantiles = learned((x, x), kernel=gaussian, levels={"x": 4})
    np.testing.assert_allclose(
        at_quantiles.support("x"), np.quantile(x, [0.125, 0.375, 0.625, 0.875]), rtol=1e-2
    )
    even = learned((x, x), kernel=gaussian, levels=4, spacing="even").support("x")
    np.testing.assert_allclose(even, x.min() + np.ptp(x) * np.array([1, 3, 5, 7]) / 8)
    assert len(learned((x, x), kernel=gaussian).support("x")) == 30
    few = np.array([1, 2, 2, 7])
    assert learned((few, few), kernel=gaussian, levels=10).support("x").tolist() == [1, 2, 7]


def test_levels_keep_the_order_in_which_a_table_speaks_of_them():
    table = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 5.0], [2.0, 5.0, 0.0]])
    model = DiscreteModel(
        {"x": kb.kernels.Gaussian()},
        {"r": kb.Relation("x", "x", symmetric=True, potential=table)},
        levels={"x": [10.0, 0.0, 20.0]},
    ).fit()
    beliefs = model.infer(kb.Graph.chain(2, variable="x", relation="r").fix([0], [1.0]), **DOUBLE)
    assert model.support("x").tolist() == [10.0, 0.0, 20.0]
    np.testing.assert_allclose(beliefs.probabilities()[1], [1 / 6, 0.0, 5 / 6], atol=1e-12)
    assert beliefs.mode().tolist() == [1.0, 20.0]


def test_vectors_and_directions_are_cut_by_their_nearest_centres_on_request():
    rng = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    which = rng.integers(0, 3, 600)
    x, y = (middles[which] + 0.1 * rng.standard_normal((600, 2)) for _ in range(2))
    model = learned((x, y), kernel=kb.kernels.Gaussian(), levels={"x": 3})
    np.testing.assert_allclose(np.sort(model.support("x").sum(axis=1)), [0, 4, 4], atol=0.1)
    graph = kb.Graph.chain(2, variable="x", relation="r").fix([0], [[3.5, 0.3]])
    np.testing.assert_allclose(model.infer(graph).mean()[1], [4, 0], atol=0.1)
    with pytest.raises(UnsupportedError, match="no density"):
        model.infer(graph).density([[0.0, 0.0]])

    angle = np.where(which == 0, 0.0, np.pi / 2) + 0.1 * rng.standard_normal(600)
    u = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    model = learned((u, u), kernel=kb.kernels.Sphere(), levels={"x": 2})
    np.testing.assert_allclose(np.linalg.norm(model.support("x"), axis=1), 1.0)
    assert model.support("x").shape == (2, 2)


# ---------------------------------------------------------------------- evidence


def read_model(potential=None, **settings):
    return DiscreteModel(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {
            "beside": kb.Relation("x", "x", symmetric=True),
            "read as": kb.Relation("x", "y", potential=potential),
        },
        **settings,
    )


def noisy_pairs(seed=0, count=3000):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count)
    beside = (x, 0.8 * x + 0.6 * rng.standard_normal(count))
    return {"beside": beside, "read as": (x, x + 0.5 * rng.standard_normal(count))}


def test_learned_readings_say_what_was_counted():
    pairs = noisy_pairs()
    model = read_model(levels={"x": 6, "y": 5}, smoothing=0.1).fit(pairs)
    levels, bins = model.support("x"), model.support("y")
    x, y = pairs["read as"]
    counts = np.full((6, 5), 0.1)
    np.add.at(counts, (np.abs(x[:, None] - levels).argmin(1), np.abs(y[:, None] - bins).argmin(1)), 1.0)
    likelihood = counts / counts.sum(axis=1, keepdims=True)
    beliefs = model.infer(
        kb.Graph.chain(1, variable="x", relation="beside").observe("read as", [0.4]), **DOUBLE
    )
    wanted = model.probabilities("x") * likelihood[:, np.abs(bins - 0.4).argmin()]
    np.testing.assert_allclose(beliefs.probabilities()[0], wanted / wanted.sum(), atol=1e-9)


def test_a_true_likelihood_needs_no_levels_of_its_readings():
    pairs = noisy_pairs()
    model = read_model(lambda x, y: np.exp(-2 * (x - y) ** 2), levels={"x": 12}).fit(
        {"beside": pairs["beside"]}
    )
    graph = kb.Graph.chain(1, variable="x", relation="beside").observe("read as", [0.37])
    wanted = model.probabilities("x") * np.exp(-2 * (model.support("x") - 0.37) ** 2)
    np.testing.assert_allclose(
        model.infer(graph, **DOUBLE).probabilities()[0], wanted / wanted.sum(), atol=1e-12
    )
    with pytest.raises(InputError, match="'y' has no levels, so it cannot have nodes"):
        model.infer(kb.Graph.from_edges([], variables=["y"]))


def test_readings_that_are_not_there_say_nothing():
    model = read_model(levels=8).fit(noisy_pairs())
    graph = kb.Graph.chain(3, variable="x", relation="beside")
    some = model.infer(graph.observe("read as", [1.0, np.nan, np.nan]), **DOUBLE)
    one = model.infer(graph.observe("read as", [1.0], nodes=[0]), **DOUBLE)
    np.testing.assert_array_equal(some.probabilities(), one.probabilities())
    none = model.infer(graph.observe("read as", [np.nan] * 3), **DOUBLE)
    assert np.abs(none.probabilities() - some.probabilities()).max() > 0.1


def test_fixed_nodes_keep_their_value_and_speak_from_its_level():
    model = read_model(levels=8).fit(noisy_pairs())
    level = float(model.support("x")[6])
    graph = kb.Graph.chain(3, variable="x", relation="beside")
    near, at = (model.infer(graph.fix([1], [v]), **DOUBLE) for v in (level + 1e-3, level))
    assert near.mean()[1] == level + 1e-3 and near.std()[1] == 0
    assert near.interval()[1].tolist() == [level + 1e-3] * 2
    np.testing.assert_array_equal(near.probabilities()[[0, 2]], at.probabilities()[[0, 2]])
    assert near.mean()[0] > 0.4


def test_soft_evidence_is_read_at_the_levels():
    model = read_model(levels={"x": [-1.0, 0.0, 1.0]}, smoothing=1.0).fit(noisy_pairs())
    graph = kb.Graph.chain(1, variable="x", relation="beside").soften([0], [-2.0, 2.0], [[0.0, 1.0]])
    beliefs = model.infer(graph, **DOUBLE)
    wanted = model.probabilities("x") * [0.25, 0.5, 0.75]
    np.testing.assert_allclose(beliefs.probabilities()[0], wanted / wanted.sum(), atol=1e-12)
    inside = beliefs.density([0.6, 0.9, 1.2])[0]
    assert inside[0] == inside[1] == inside[2]


# ---------------------------------------------------------------------- beliefs


@pytest.mark.parametrize("spacing", ["quantiles", "even"])
def test_densities_are_histograms_that_integrate_to_one(spacing):
    model = read_model(levels=7, spacing=spacing).fit(noisy_pairs())
    beliefs = model.infer(
        kb.Graph.chain(3, variable="x", relation="beside").observe("read as", [1.0, np.nan, -1.0]), **DOUBLE
    )
    at = np.linspace(-6, 6, 240_001)
    density = beliefs.density(at)
    np.testing.assert_allclose(density.sum(axis=1) * (at[1] - at[0]), 1.0, atol=1e-4)
    levels = np.sort(model.support("x"))
    edges = (levels[1:] + levels[:-1]) / 2
    bins = np.searchsorted(edges, at)
    mass = np.array([density[:, bins == k].sum(axis=1) for k in range(7)]).T * (at[1] - at[0])
    np.testing.assert_allclose(mass, beliefs.probabilities(), atol=1e-4)
    assert beliefs.density([-50.0, 50.0]).max() == 0


def test_summaries_are_those_of_the_discrete_distribution():
    model = read_model(levels={"x": [3.0, -1.0, 0.5, 1.0]}).fit(noisy_pairs())
    beliefs = model.infer(
        kb.Graph.chain(2, variable="x", relation="beside").observe("read as", [1.0, np.nan]), **DOUBLE
    )
    p, x = beliefs.probabilities(), beliefs.atoms
    np.testing.assert_array_equal(x, [3.0, -1.0, 0.5, 1.0])
    mean = p @ x
    np.testing.assert_allclose(beliefs.mean(), mean)
    np.testing.assert_allclose(beliefs.std(), np.sqrt(p @ x**2 - mean**2))
    np.testing.assert_array_equal(beliefs.mode(), x[p.argmax(axis=1)])
    np.testing.assert_allclose(beliefs.expect(np.exp), p @ np.exp(x))
    order = np.argsort(x)
    wanted = [x[order][np.searchsorted(np.cumsum(row[order]), [0.2, 0.8])] for row in p]
    np.testing.assert_array_equal(beliefs.interval(0.6), wanted)
    drawn = beliefs.sample(20_000, seed=0)
    assert set(np.unique(drawn)) <= set(x)
    np.testing.assert_allclose(drawn.mean(axis=1), mean, atol=5 * beliefs.std().max() / np.sqrt(20_000))


def test_densities_of_finite_values_are_probabilities_and_words_work():
    model = learned((["a", "b", "b", "c"], ["b", "b", "c", "a"]), symmetric=True)
    beliefs = model.infer(kb.Graph.chain(3, variable="x", relation="r").fix([0], ["b"]), **DOUBLE)
    np.testing.assert_allclose(beliefs.density(["a", "b", "c"]), beliefs.probabilities())
    np.testing.assert_allclose(beliefs.probabilities().sum(axis=1), 1.0)
    assert beliefs.mode()[0] == "b"


def test_single_precision_and_warm_starts_agree_with_double():
    model = read_model(levels=10).fit(noisy_pairs())
    rng = np.random.default_rng(0)
    graph = kb.Graph.grid((6, 6), variable="x", relation="beside").observe("read as", rng.standard_normal(36))
    double = model.infer(graph, tolerance=1e-9, max_iterations=300, dtype=np.float64)
    single = model.infer(graph, tolerance=1e-5, max_iterations=300)
    np.testing.assert_allclose(single.mean(), double.mean(), atol=1e-4)
    again = model.infer(graph, start=double, tolerance=1e-8, dtype=np.float64)
    assert again.iterations < double.iterations
    np.testing.assert_array_equal(model.infer(graph, seed=3).mean(), model.infer(graph).mean())


def test_several_variables_and_relations_in_one_graph():
    """A loop-free graph of numbers and words, against enumeration."""
    rng = np.random.default_rng(0)
    mood = rng.choice(["dull", "gay"], 2000)
    height = np.where(mood == "gay", 1.0, -1.0) + rng.standard_normal(2000)
    model = DiscreteModel(
        {"height": kb.kernels.Gaussian(), "mood": kb.kernels.Delta()},
        {"shows": kb.Relation("mood", "height"), "beside": kb.Relation("height", "height", symmetric=True)},
        levels={"height": 5},
        smoothing=1.0,
    ).fit({"shows": (mood, height), "beside": (height[:-1], 0.5 * height[:-1])})
    graph = kb.Graph.from_edges(
        [(0, 1, "shows"), (1, 2, "beside")], variables=["mood", "height", "height"]
    ).fix([2], [2.0])
    beliefs = model.infer(graph, **DOUBLE)
    shows, beside = (model._fitted.ratios[name] for name in ("shows", "beside"))
    level = np.abs(model.support("height") - 2.0).argmin()
    joint = shows * np.outer(model.probabilities("mood"), model.probabilities("height")) * beside[:, level]
    joint /= joint.sum()
    np.testing.assert_allclose(beliefs["mood"].probabilities()[0], joint.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(beliefs["height"].probabilities()[0], joint.sum(axis=0), atol=1e-9)


# ---------------------------------------------------------------------- bad input


def test_errors_name_the_argument_and_what_is_expected():
    gaussian, x = kb.kernels.Gaussian(), np.arange(40.0)
    relations = {"r": kb.Relation("x", "x")}

    def refused(error, text, pairs=(x, x), kernel=gaussian, relations=relations, **settings):
        with pytest.raises(error, match=text):
            DiscreteModel({"x": kernel}, relations, **settings).fit({"r": pairs})

    refused(InputError, "spacing: expected 'quantiles' or 'even', got 'log'", spacing="log")
    refused(InputError, "potentials: expected 'moments' or 'fitting', got 'ipf'", potentials="ipf")
    refused(InputError, "smoothing: expected a number of at least 0, got -1", smoothing=-1)
    refused(InputError, "levels: unknown variable 'z'; the model has x", levels={"z": 3})
    refused(InputError, "levels: expected a mapping .* or one number, got 'many'", levels="many")
    refused(InputError, r"levels\['x'\]: expected at least 1 level, got 0", levels={"x": 0})
    refused(InputError, r"levels\['x'\]: no values given", levels={"x": []})
    refused(InputError, r"levels\['x'\]: expected distinct values", levels={"x": [1.0, 1.0]})
    refused(InputError, r"levels\['x'\]: value 1 is NaN", levels={"x": [1.0, np.nan]})
    refused(InputError, "must hold every training value", kernel=kb.kernels.Delta(), levels={"x": [0.0, 1.0]})
    refused(InputError, "finite variables are taken as they are", kernel=kb.kernels.Delta(), levels={"x": 3})
    refused(
        InputError, "'conditionals' is a setting of kernelbp.Model", inference={"conditionals": "embedding"}
    )
    refused(InputError, "the two sides differ in length", pairs=(x, x[1:]))
    refused(InputError, "unknown variable 'z'", relations={"r": kb.Relation("x", "z")})
    refused(
        UnsupportedError,
        "only on request, levels={'x': number of k-means centres}",
        pairs=(x[:, None] * [1, 2],) * 2,
    )
    refused(UnsupportedError, "take kernels.Delta.*kernelbp.Model", kernel=kb.kernels.RandomProjection())

    from sklearn.linear_model import Ridge

    refused(
        UnsupportedError,
        "evidence from an estimator.*kernelbp.Model",
        relations={"r": kb.Relation("x", "x", evidence=Ridge())},
    )
    known = {"r": kb.Relation("x", "x", potential=np.ones((2, 2)))}
    with pytest.raises(InputError, match="'x' has no training pairs, so its levels must be given"):
        DiscreteModel({"x": gaussian}, known).fit()
    with pytest.raises(InputError, match=r"expected a table of shape \(3, 3\).*got \(2, 2\)"):
        DiscreteModel({"x": gaussian}, known, levels={"x": [1.0, 2.0, 3.0]}).fit()


def test_errors_of_inference():
    model = read_model(levels=4)
    graph = kb.Graph.chain(2, variable="x", relation="beside")
    with pytest.raises(NotFittedError, match="call fit"):
        model.infer(graph)
    model.fit(noisy_pairs())
    with pytest.raises(InputError, match="product: expected 'sum' or 'max', got 'min'"):
        model.infer(graph, product="min")
    with pytest.raises(InputError, match=r"graph: expected a kernelbp\.Graph, got list"):
        model.infer([])
    with pytest.raises(InputError, match="start: expected Beliefs"):
        model.infer(graph, start=1)
    with pytest.raises(InputError, match="weighting: expected"):
        model.infer(graph, weighting="trees")
    with pytest.raises(InputError, match="schedule: expected"):
        model.infer(graph, schedule="random")
    with pytest.raises(InputError, match="'z' has no levels"):
        model.infer(kb.Graph.chain(2, variable="z", relation="beside"))
    with pytest.raises(UnsupportedError, match="infer with product='sum'"):
        model.infer(graph, product="max").log_partition()
    with pytest.raises(InputError, match="variable: unknown 'z'; there are levels of x, y"):
        model.support("z")
    assert repr(model) == "DiscreteModel(variables: x, y; relations: beside, read as; fitted)"


def test_a_missed_tolerance_is_said():
    graph, table, *_ = grid_of_ten(np.random.default_rng(8))
    with pytest.warns(kb.ConvergenceWarning, match="after 2 iterations"):
        beliefs = finite_model(table, 5).infer(graph, max_iterations=2, tolerance=1e-9)
    assert not beliefs.converged and beliefs.iterations == 2 and len(beliefs.residuals) == 2


def test_importing_kernelbp_imports_no_rival():
    code = (
        "import sys, kernelbp, kernelbp.rivals as r; "
        "assert not any(m.startswith('kernelbp.rivals.') for m in sys.modules); "
        "assert r.DiscreteModel.__name__ == 'DiscreteModel'; "
        "assert 'ParticleModel' in dir(r) and not hasattr(r, 'Nothing')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
