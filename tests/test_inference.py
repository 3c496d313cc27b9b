"""Inference judged by enumeration, by a Kalman smoother, by numerical integration and by its own symmetries."""

from __future__ import annotations

import itertools
from functools import cache

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

import kernelbp as kb
from kernelbp import Beliefs, ConvergenceWarning, Graph, Model, Relation
from kernelbp.errors import UnsupportedError
from kernelbp.kernels import Delta, Gaussian

ORDINARY = {"conditionals": "embedding", "weighting": "bethe", "dtype": np.float64}

# ---------------------------------------------------------------------- finite trees, by enumeration


class FiniteForest:
    """A random forest of finite variables, each node and each edge of its own kind, and its exact beliefs.

    All relations are counted on one joint sample, so their marginals agree. Even nodes hold numbers, odd
    ones words. Node i has a leaf variable "y i" through which it can be read.
    """

    def __init__(self, seed: int, n_nodes: int = 6, pairs: int = 400) -> None:
        rng = self.rng = np.random.default_rng(seed)
        self.n_nodes = n_nodes
        tree = nx.random_labeled_tree(n_nodes, seed=seed)
        edges = [edge if rng.random() < 0.5 else edge[::-1] for edge in tree.edges]
        self.edges = [edge for edge in edges if rng.random() < 0.85]  # several parts, isolated nodes
        self.sizes = rng.integers(2, 5, n_nodes)
        self.leaf_sizes = rng.integers(2, 4, n_nodes)
        hidden = np.empty((pairs, n_nodes), dtype=int)
        common = rng.random(pairs)
        for node, size in enumerate(self.sizes):
            blurred = np.clip(common + 0.35 * rng.standard_normal(pairs), 0, 0.999)
            hidden[:, node] = rng.permutation(size)[(blurred * size).astype(int)]
        noise = rng.integers(0, 4, hidden.shape) * (rng.random(hidden.shape) < 0.5)
        self.hidden, self.leaves = hidden, (hidden + noise) % self.leaf_sizes
        variables = {f"{kind} {i}": Delta() for i in range(n_nodes) for kind in "xy"}
        relations = {f"edge {a}-{b}": Relation(f"x {a}", f"x {b}") for a, b in self.edges}
        relations |= {f"seen {i}": Relation(f"x {i}", f"y {i}") for i in range(n_nodes)}
        data = {f"edge {a}-{b}": (self.column(a), self.column(b)) for a, b in self.edges}
        data |= {f"seen {i}": (self.column(i), self.leaves[:, i]) for i in range(n_nodes)}
        self.model = Model(variables, relations, regularization=0.0).fit(data)
        self.graph = Graph.from_edges(
            [(a, b, f"edge {a}-{b}") for a, b in self.edges], variables=[f"x {i}" for i in range(n_nodes)]
        )
        self.fixed: set[int] = set()
        self.factors = np.ones(self.sizes)
        for node in range(n_nodes):
            self.multiply((node,), self.frequency(node))
        for a, b in self.edges:
            self.multiply((a, b), self.frequency(a, b) / np.outer(self.frequency(a), self.frequency(b)))

    def values(self, node: int) -> list:
        numbers = range(self.sizes[node])
        return [f"value {k}" for k in numbers] if node % 2 else list(numbers)

    def column(self, node: int) -> np.ndarray:
        return np.array(self.values(node))[self.hidden[:, node]]

    def frequency(self, *nodes: int) -> np.ndarray:
        """The empirical distribution of one or two nodes."""
        table = np.zeros(self.sizes[list(nodes)])
        np.add.at(table, tuple(self.hidden[:, nodes].T), 1.0)
        return table / len(self.hidden)

    def multiply(self, nodes: tuple[int, ...], table: np.ndarray) -> None:
        if len(nodes) == 2 and nodes[0] > nodes[1]:
            nodes, table = nodes[::-1], table.T
        shape = np.ones(self.n_nodes, dtype=int)
        shape[list(nodes)] = self.sizes[list(nodes)]
        self.factors = self.factors * table.reshape(shape)

    def add_evidence(self) -> None:
        """Read some nodes, soften some, fix some, anything but contradict what was sampled together."""
        truth = self.rng.integers(len(self.hidden))
        for node in range(self.n_nodes):
            if self.rng.random() < 0.5:
                seen = self.leaves[truth, node]
                self.graph = self.graph.observe(f"seen {node}", [seen], nodes=[node])
                match = self.leaves[:, node] == seen
                counts = np.bincount(self.hidden[:, node], match, minlength=self.sizes[node])
                self.multiply((node,), counts / np.bincount(self.hidden[:, node]))
            if self.rng.random() < 0.3:
                order = self.rng.permutation(self.sizes[node])
                likelihood = self.rng.uniform(0.1, 1.0, self.sizes[node])
                points = [self.values(node)[k] for k in order]
                self.graph = self.graph.soften([node], points, likelihood[order])
                self.multiply((node,), likelihood)
            if self.rng.random() < 0.2:
                known = self.hidden[truth, node]
                self.fixed.add(node)
                self.graph = self.graph.fix([node], [self.values(node)[known]])
                self.multiply((node,), np.arange(self.sizes[node]) == known)

    def exact(self, *nodes: int) -> np.ndarray:
        """The belief of one or two nodes, by summing the whole table."""
        others = tuple(i for i in range(self.n_nodes) if i not in nodes)
        table = self.factors.sum(axis=others) / self.factors.sum()
        return table.T if len(nodes) == 2 and nodes[0] > nodes[1] else table

    def assert_node_beliefs_are_exact(self, beliefs: Beliefs) -> None:
        for node in range(self.n_nodes):
            mine, expected = beliefs[f"x {node}"], self.exact(node)
            assert np.allclose(mine.density(self.values(node))[0], expected, rtol=0, atol=1e-10)
            places = [self.values(node).index(atom) for atom in mine.atoms.tolist()]
            assert np.allclose(mine.probabilities()[0], expected[places], rtol=0, atol=1e-10)

    def assert_edge_beliefs_are_exact(self, beliefs: Beliefs) -> None:
        for edge, (a, b) in enumerate(self.edges):
            if self.fixed & {a, b}:
                continue
            rows, columns = (
                [self.values(n).index(point) for point in self.model.support(f"x {n}").tolist()]
                for n in (a, b)
            )
            expected = self.exact(a, b)[np.ix_(rows, columns)]
            assert np.allclose(beliefs.pair(edge), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(25))
def test_tree_beliefs_equal_enumeration_whatever_the_evidence(seed):
    forest = FiniteForest(seed)
    forest.add_evidence()
    beliefs = forest.model.infer(forest.graph, **ORDINARY)
    assert beliefs.converged
    forest.assert_node_beliefs_are_exact(beliefs)
    forest.assert_edge_beliefs_are_exact(beliefs)


@pytest.mark.parametrize("seed", range(5))
def test_without_evidence_beliefs_are_the_marginals(seed):
    forest = FiniteForest(seed)
    beliefs = forest.model.infer(forest.graph, **ORDINARY)
    for node in range(forest.n_nodes):
        found = beliefs[f"x {node}"].density(forest.values(node))[0]
        assert np.allclose(found, forest.frequency(node), rtol=0, atol=1e-12)
    for edge, (a, b) in enumerate(forest.edges):
        found = beliefs.pair(edge)
        expected = forest.frequency(a, b)
        rows, columns = (
            [forest.values(n).index(point) for point in forest.model.support(f"x {n}").tolist()]
            for n in (a, b)
        )
        assert np.allclose(found, expected[np.ix_(rows, columns)], rtol=0, atol=1e-12)


@pytest.mark.parametrize("update", ["linear", "full"])
def test_all_three_updates_are_exact_on_finite_trees(update):
    forest = FiniteForest(3)
    forest.add_evidence()
    forest.assert_node_beliefs_are_exact(forest.model.infer(forest.graph, update=update, **ORDINARY))


def test_an_isolated_node_believes_its_marginal_times_its_evidence():
    forest = FiniteForest(0)
    alone = Graph.from_edges([], variables=["x 0"]).soften(
        [0], forest.values(0), 1.0 + np.arange(forest.sizes[0])
    )
    expected = forest.frequency(0) * (1.0 + np.arange(forest.sizes[0]))
    found = forest.model.infer(alone, **ORDINARY).density(forest.values(0))[0]
    assert np.allclose(found, expected / expected.sum(), rtol=0, atol=1e-12)


def test_an_edge_given_from_its_second_end_is_turned():
    forest = FiniteForest(1)
    (a, b), name = forest.edges[0], f"edge {forest.edges[0][0]}-{forest.edges[0][1]}"
    both = [
        Graph.from_edges([(0, 1, name)], variables=[f"x {a}", f"x {b}"]),
        Graph.from_edges([(1, 0, name)], variables=[f"x {a}", f"x {b}"]),
    ]
    straight, turned = (forest.model.infer(graph, **ORDINARY).pair(0) for graph in both)
    assert np.allclose(straight, turned.T, rtol=0, atol=1e-14)


def test_readings_at_one_node_multiply():
    forest = FiniteForest(2)
    once = np.array(
        [np.mean(forest.leaves[forest.hidden[:, 0] == k, 0] == 0) for k in range(forest.sizes[0])]
    )
    graph = Graph.from_edges([], variables=["x 0"])
    repeated = graph.observe("seen 0", [0, 0, 0], nodes=[0, 0, 0])
    apart = graph.observe("seen 0", [0]).observe("seen 0", [0]).observe("seen 0", [0])
    expected = forest.frequency(0) * once**3
    for told in (repeated, apart):
        found = forest.model.infer(told, **ORDINARY).density(forest.values(0))[0]
        assert np.allclose(found, expected / expected.sum(), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- a star of high degree


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)])
@pytest.mark.parametrize("strength", [0.03, 0.5])
def test_a_hub_of_450_leaves_believes_the_exact_product(dtype, tolerance, strength):
    rng = np.random.default_rng(7)
    hub = rng.integers(4, size=20_000)
    leaf = np.where(rng.random(hub.size) < strength, hub % 3, rng.integers(3, size=hub.size))
    seen = np.where(rng.random(hub.size) < 0.7, leaf, rng.integers(3, size=hub.size))
    model = Model(
        {"hub": Delta(), "leaf": Delta(), "reading": Delta()},
        {"has": Relation("hub", "leaf"), "seen": Relation("leaf", "reading")},
        regularization=0.0,
    ).fit({"has": (hub, leaf), "seen": (leaf, seen)})
    readings = rng.integers(3, size=450)
    graph = Graph.from_edges([(0, i, "has") for i in range(1, 451)], variables=["hub"] + ["leaf"] * 450)
    beliefs = model.infer(
        graph.observe("seen", readings, nodes="leaf"),
        conditionals="embedding", weighting="bethe", dtype=dtype,
    )  # fmt: skip

    def given(first, second, rows):
        table = np.zeros((rows, 3))
        np.add.at(table, (first, second), 1.0)
        return table / table.sum(axis=1, keepdims=True)

    to_hub = np.log(given(hub, leaf, 4) @ given(leaf, seen, 3)[:, readings])  # (hub values, leaves)
    logs = np.log(np.bincount(hub) / hub.size) + to_hub.sum(axis=1)
    assert np.allclose(beliefs["hub"].density([0, 1, 2, 3])[0], softmax(logs), rtol=0, atol=tolerance)

    # and what the hub says back to each leaf: all it knows but from that leaf
    cavity = (logs[:, None] - to_hub)[:, :, None] + np.log(given(hub, leaf, 4))[:, None, :]
    leaf_logs = logsumexp(cavity, axis=0) + np.log(given(leaf, seen, 3)[:, readings]).T
    expected = softmax(leaf_logs, axis=1)
    assert np.allclose(beliefs["leaf"].density([0, 1, 2]), expected, rtol=0, atol=tolerance)


# ---------------------------------------------------------------------- numbers, by a Kalman smoother

DECAY, READING_NOISE = 0.9, 0.5
STEP_NOISE = np.sqrt(1 - DECAY**2)  # the chain is stationary with variance 1


def kalman_smoother(readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of all states given all readings (Rauch, Tung, Striebel)."""
    filtered, predicted = [], [(0.0, 1.0)]
    for reading in readings:
        mean, variance = predicted[-1]
        gain = variance / (variance + READING_NOISE**2)
        filtered.append((mean + gain * (reading - mean), (1 - gain) * variance))
        predicted.append((DECAY * filtered[-1][0], DECAY**2 * filtered[-1][1] + STEP_NOISE**2))
    smoothed = [filtered[-1]]
    for (mean, variance), (ahead, spread) in zip(filtered[-2::-1], predicted[-2:0:-1], strict=True):
        gain = DECAY * variance / spread
        after_mean, after_variance = smoothed[-1]
        smoothed.append((mean + gain * (after_mean - ahead), variance + gain**2 * (after_variance - spread)))
    means, variances = np.array(smoothed[::-1]).T
    return means, np.sqrt(variances)


def linear_gaussian_chain(seed: int) -> tuple[Model, np.ndarray]:
    """A model learned from 5,000 pairs and 50 new readings.

    Settings by hand: a state bandwidth of half the states' spread, a reading bandwidth well under the
    reading's noise (a wider one adds its square to the noise's variance), the default lambda and residual.
    """
    rng = np.random.default_rng(seed)
    now = rng.standard_normal(5000)
    following = DECAY * now + STEP_NOISE * rng.standard_normal(5000)
    model = Model(
        {"state": Gaussian(0.5), "reading": Gaussian(0.2)},
        {"then": Relation("state", "state"), "seen": Relation("state", "reading", evidence="likelihood")},
        regularization=1e-4,
        residual=1e-3,
    ).fit({"then": (now, following), "seen": (now, now + READING_NOISE * rng.standard_normal(5000))})
    states = [rng.standard_normal()]
    for _ in range(49):
        states.append(DECAY * states[-1] + STEP_NOISE * rng.standard_normal())
    return model, np.array(states) + READING_NOISE * rng.standard_normal(50)


@pytest.mark.parametrize("seed", [10, 11, 12])
def test_a_learned_linear_gaussian_chain_agrees_with_the_kalman_smoother(seed):
    model, readings = linear_gaussian_chain(seed)
    graph = Graph.chain(50, variable="state", relation="then").observe("seen", readings)
    beliefs = model.infer(graph, **ORDINARY)
    means, deviations = kalman_smoother(readings)
    assert np.mean(np.abs(beliefs.mean() - means) / deviations) < 0.1
    assert np.mean(np.abs(beliefs.std() / deviations - 1)) < 0.15


# ---------------------------------------------------------------------- two modes, by integration


def test_both_roots_of_a_square_are_found_where_a_gaussian_answer_has_neither():
    """y -> x = y^2 + noise -> z = x + noise, with z known: y is +1 or -1, and more often +1."""
    rng = np.random.default_rng(0)
    noise, positive = 0.1, 0.7
    root = rng.uniform(0, 2, 8000) * np.where(rng.random(8000) < positive, 1, -1)
    square = root**2 + noise * rng.standard_normal(8000)
    copy = square + noise * rng.standard_normal(8000)
    model = Model(
        {"root": Gaussian(0.15), "square": Gaussian(0.15), "copy": Gaussian(0.1)},
        {"squared": Relation("root", "square"), "copied": Relation("square", "copy")},
    ).fit({"squared": (root, square), "copied": (square, copy)})
    graph = Graph.from_edges([(0, 1, "squared"), (1, 2, "copied")], variables=["root", "square", "copy"]).fix(
        [2], [1.0]
    )
    belief = model.infer(graph, **ORDINARY)["root"]

    line = np.linspace(-2, 2, 4001)
    exact = np.exp(-0.5 * (1.0 - line**2) ** 2 / (2 * noise**2)) * np.where(line > 0, positive, 1 - positive)
    exact /= exact.sum()
    found = belief.density(line)[0]
    for side in (line < 0, line > 0):
        peak = line[side][found[side].argmax()]
        assert abs(peak - line[side][exact[side].argmax()]) < 0.1
        mass = np.trapezoid(found[side], line[side])
        assert abs(mass - exact[side].sum()) < 0.1 * exact[side].sum()
    assert found[abs(line) < 0.3].max() < 0.05 * found.max(), "and nothing between them"

    covariance = np.cov(root, copy)
    gaussian_mode = root.mean() + covariance[0, 1] / covariance[1, 1] * (1.0 - copy.mean())
    assert min(abs(gaussian_mode - 1), abs(gaussian_mode + 1)) > 0.3, "a Gaussian peaks at neither root"


# ---------------------------------------------------------------------- symmetries (hypothesis)

POINTS = np.linspace(-2.5, 2.5, 41)
WORDS = ["low", "middle", "high"]
RELATIONS = {
    "near": Relation("number", "number", symmetric=True),
    "then": Relation("number", "number"),
    "called": Relation("number", "word"),
    "rhymes": Relation("word", "word", symmetric=True),
    "seen": Relation("number", "reading", evidence="likelihood"),
}
FIVE_ROUNDS = {"schedule": "flooding", "max_iterations": 5, "tolerance": 0.0, **ORDINARY}
seeds = st.integers(0, 2**32 - 1)


def word_of(numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    blurred = numbers + 0.3 * rng.standard_normal(len(numbers))
    return np.array(WORDS, dtype=object)[np.digitize(blurred, [-0.5, 0.5])]


def training_pairs(seed: int = 0, size: int = 120) -> dict:
    rng = np.random.default_rng(seed)
    # to one decimal, so that pairs repeat
    numbers = np.round(rng.standard_normal(size), 1)
    others = np.round(0.6 * numbers + 0.8 * rng.standard_normal(size), 1)
    return {
        "near": (numbers, others),
        "then": (numbers, np.round(0.5 - numbers + 0.3 * rng.standard_normal(size), 1)),
        "called": (numbers, word_of(numbers, rng)),
        "rhymes": (word_of(numbers, rng), word_of(others, rng)),
        "seen": (numbers, numbers + 0.5 * rng.standard_normal(size)),
    }


def symmetry_model(**settings) -> Model:
    kernels = {"number": Gaussian(0.8), "word": Delta(), "reading": Gaussian(0.5)}
    return Model(kernels, RELATIONS, regularization=1e-3, residual=1e-2, **settings)


@cache
def fitted_symmetry_model() -> Model:
    return symmetry_model().fit(training_pairs())


class Draft:
    """A random graph with evidence, kept as lists so that it can be written down in any order."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = int(rng.integers(2, 9))
        self.variables = rng.choice(["number", "word"], size, p=[0.7, 0.3]).tolist()
        self.edges = []
        for a, b in itertools.combinations(range(size), 2):
            if rng.random() > 2.0 / size:
                continue
            kinds = (self.variables[a], self.variables[b])
            if kinds == ("number", "number"):
                self.edges.append((a, b, str(rng.choice(["near", "then"]))))
            elif kinds == ("word", "word"):
                self.edges.append((a, b, "rhymes"))
            else:
                self.edges.append((a, b, "called"))
        numbers = [i for i in range(size) if self.variables[i] == "number"]
        words = [i for i in range(size) if self.variables[i] == "word"]
        self.readings = {i: rng.uniform(-2, 2) for i in numbers if rng.random() < 0.6}
        self.fixed = {i: rng.uniform(-1, 1) for i in numbers if rng.random() < 0.15}
        self.soft = {i: rng.uniform(0.1, 1, len(WORDS)) for i in words if rng.random() < 0.5}

    def graph(self, label: np.ndarray | None = None, order: np.ndarray | None = None) -> Graph:
        size = len(self.variables)
        label = np.arange(size) if label is None else label
        order = np.arange(len(self.edges)) if order is None else order
        variables = [""] * size
        for node, name in enumerate(self.variables):
            variables[label[node]] = name
        edges = [(int(label[a]), int(label[b]), name) for a, b, name in (self.edges[i] for i in order)]
        graph = Graph.from_edges(edges, variables=variables)
        for node, value in self.readings.items():
            graph = graph.observe("seen", [value], nodes=[label[node]])
        for node, value in self.fixed.items():
            graph = graph.fix([label[node]], [value])
        for node, likelihood in self.soft.items():
            graph = graph.soften([label[node]], WORDS, likelihood)
        return graph


def densities(beliefs: Beliefs) -> list[np.ndarray]:
    """One row for every node, in the order of the graph."""
    graph = beliefs.graph
    rows: list[np.ndarray] = [np.empty(0)] * graph.n_nodes
    for variable in graph.variables:
        points = POINTS if variable == "number" else WORDS
        for node, row in zip(graph.nodes_of(variable), beliefs[variable].density(points), strict=True):
            rows[node] = row
    return rows


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for one, other in zip(first, second, strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-6)


@settings(max_examples=120)
@given(seed=seeds, shuffle=seeds)
def test_relabelling_nodes_relabels_beliefs_and_changes_nothing_else(seed, shuffle):
    draft, model = Draft(seed), fitted_symmetry_model()
    label = np.random.default_rng(shuffle).permutation(len(draft.variables))
    plain = densities(model.infer(draft.graph(), **FIVE_ROUNDS))
    moved = densities(model.infer(draft.graph(label), **FIVE_ROUNDS))
    assert_same(plain, [moved[label[node]] for node in range(len(plain))])


@settings(max_examples=120)
@given(seed=seeds, shuffle=seeds)
def test_the_order_of_edges_does_not_matter(seed, shuffle):
    draft, model = Draft(seed), fitted_symmetry_model()
    order = np.random.default_rng(shuffle).permutation(len(draft.edges))
    first = model.infer(draft.graph(), **FIVE_ROUNDS)
    second = model.infer(draft.graph(order=order), **FIVE_ROUNDS)
    assert_same(densities(first), densities(second))
    carried = set(first._source.wiring.edge.tolist())
    for place, edge in enumerate(order):
        if edge in carried and draft.edges[edge][2] in ("rhymes", "near"):
            assert np.allclose(first.pair(edge), second.pair(place), rtol=0, atol=1e-6)


@settings(max_examples=15)
@given(seed=seeds, shuffle=seeds)
def test_the_order_of_pooled_pairs_does_not_matter(seed, shuffle):
    graph, rng = Draft(seed).graph(), np.random.default_rng(shuffle)
    mixed = {}
    for name, (first, second) in training_pairs().items():
        order = rng.permutation(len(first))
        first, second = first[order], second[order]
        if RELATIONS[name].symmetric:  # either way round, too
            turn = rng.random(len(first)) < 0.5
            first, second = np.where(turn, second, first), np.where(turn, first, second)
        mixed[name] = (first, second)
    plain = fitted_symmetry_model().infer(graph, **FIVE_ROUNDS)
    assert_same(densities(plain), densities(symmetry_model().fit(mixed).infer(graph, **FIVE_ROUNDS)))


def test_merging_equal_pairs_changes_nothing():
    """Under the full update, where the choice of basis points plays no part."""
    apart = symmetry_model(merge=False).fit(training_pairs())
    for seed in range(4):
        graph = Draft(seed).graph()
        pair = [
            model.infer(graph, update="full", **FIVE_ROUNDS) for model in (fitted_symmetry_model(), apart)
        ]
        assert_same(*map(densities, pair))


def test_pooling_two_samples_is_the_same_as_giving_the_counts_together():
    parts = [training_pairs(seed) for seed in (0, 1)]
    pooled = {
        name: tuple(np.concatenate([part[name][end] for part in parts]) for end in (0, 1))
        for name in RELATIONS
    }
    swapped = {
        name: tuple(np.concatenate([part[name][end] for part in parts[::-1]]) for end in (0, 1))
        for name in RELATIONS
    }
    models = [symmetry_model().fit(pairs) for pairs in (pooled, swapped)]
    for seed in range(10):
        graph = Draft(seed).graph()
        pair = [model.infer(graph, **FIVE_ROUNDS) for model in models]
        assert_same(*map(densities, pair))


@pytest.mark.parametrize("seed", range(5))
def test_the_scale_of_a_likelihood_does_not_matter(seed):
    model, table = fitted_symmetry_model(), np.random.default_rng(seed).uniform(0.1, 1, 3)
    graph = Graph.chain(4, variable="word", relation="rhymes")
    found = [
        densities(model.infer(graph.soften([1], WORDS, scale * table), **ORDINARY))
        for scale in (1.0, 1e-30, 1e30)
    ]
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


# ---------------------------------------------------------------------- convergence


def loopy_graph() -> Graph:
    graph = Graph.grid((5, 5), variable="number", relation="near")
    return graph.observe("seen", np.random.default_rng(0).uniform(-1.5, 1.5, 25))


def test_residuals_are_the_largest_change_of_any_message():
    model, graph = fitted_symmetry_model(), loopy_graph()
    rounds = {"schedule": "flooding", "tolerance": 0.0, "damping": 0.3, **ORDINARY}
    ran = [model.infer(graph, max_iterations=k, **rounds) for k in range(1, 6)]
    before = np.ones_like(ran[0]._source.state.messages[0])
    for count, beliefs in enumerate(ran, start=1):
        now = beliefs._source.state.messages[0]
        assert beliefs.iterations == len(beliefs.residuals) == count
        assert np.isclose(beliefs.residuals[-1], abs(now - before).max(), rtol=1e-12)
        assert np.allclose(abs(now).max(axis=1), 1.0)
        before = now
    for earlier, later in itertools.pairwise(ran):
        assert np.array_equal(later.residuals[:-1], earlier.residuals)


def test_inference_stops_at_the_first_iteration_within_tolerance():
    model = fitted_symmetry_model()
    rounds = {"schedule": "sweep", "damping": 0.0, "max_iterations": 300}
    beliefs = model.infer(loopy_graph(), tolerance=1e-4, **rounds, **ORDINARY)
    assert beliefs.converged
    assert beliefs.iterations == len(beliefs.residuals) < 300
    assert beliefs.residuals[-1] <= 1e-4
    assert (beliefs.residuals[:-1] > 1e-4).all()


def test_a_tree_takes_one_iteration_and_a_graph_without_edges_none():
    model = fitted_symmetry_model()
    chain = model.infer(Graph.chain(9, variable="number", relation="near"), **ORDINARY)
    assert (chain.converged, chain.iterations) == (True, 1)
    alone = model.infer(Graph.from_edges([], variables=["number"] * 2), **ORDINARY)
    assert (alone.converged, alone.iterations, alone.residuals.shape) == (True, 0, (0,))


def test_stopping_early_warns_and_says_what_to_try():
    with pytest.warns(ConvergenceWarning) as caught:
        beliefs = fitted_symmetry_model().infer(loopy_graph(), max_iterations=2, tolerance=1e-9, **ORDINARY)
    assert not beliefs.converged
    assert beliefs.iterations == 2
    text = str(caught[0].message)
    assert f"stopped after 2 iterations with messages still changing by {beliefs.residuals[-1]:.1e}" in text
    for advice in ("tolerance 1e-09", "max_iterations=", "damping=0.5", "conditionals='probability'"):
        assert advice in text
    assert caught[0].filename == __file__, "the warning points at the caller's line"


def test_no_tolerance_means_run_all_iterations_without_a_warning():
    beliefs = fitted_symmetry_model().infer(loopy_graph(), max_iterations=3, tolerance=0.0, **ORDINARY)
    assert (beliefs.converged, beliefs.iterations) == (False, 3)


def test_a_warm_start_at_the_fixed_point_ends_at_once_with_the_same_beliefs():
    model, graph = fitted_symmetry_model(), loopy_graph()
    tight = {"max_iterations": 500, "tolerance": 1e-10, "damping": 0.0, **ORDINARY}
    cold = model.infer(graph, **tight)
    messages = [m.copy() for m in cold._source.state.messages]
    warm = model.infer(graph, start=cold, **tight)
    assert cold.iterations > 5
    assert warm.iterations == 1
    assert_same(densities(cold), densities(warm))
    assert all(np.array_equal(a, b) for a, b in zip(messages, cold._source.state.messages, strict=True))


def test_a_warm_start_after_a_small_change_takes_fewer_iterations():
    model, graph = fitted_symmetry_model(), loopy_graph()
    tight = {"max_iterations": 500, "tolerance": 1e-8, "damping": 0.0, **ORDINARY}
    earlier = model.infer(graph, **tight)
    changed = graph.observe("seen", [0.3], nodes=[12])
    cold, warm = model.infer(changed, **tight), model.infer(changed, start=earlier, **tight)
    assert warm.iterations < cold.iterations
    assert_same(densities(cold), densities(warm))


def test_the_belief_of_an_edge_with_a_fixed_end_is_refused():
    graph = Graph.chain(3, variable="number", relation="near").fix([0], [0.5])
    beliefs = fitted_symmetry_model().infer(graph, **ORDINARY)
    with pytest.raises(
        UnsupportedError, match="edge 0 has a fixed end; the belief of the other end says all"
    ):
        beliefs.pair(0)
    assert np.isclose(beliefs.pair(1).sum(), 1.0)


# ---------------------------------------------------------------------- found in review


def letters() -> kb.Model:
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=4000)
    second = np.where(rng.random(4000) < 0.9, first, 1 - first)
    names = np.array(["a", "b"], dtype=object)
    return kb.Model(
        {"x": kb.kernels.Delta(), "seen": kb.kernels.Delta()},
        {"r": kb.Relation("x", "x", symmetric=True), "read": kb.Relation("x", "seen")},
    ).fit({"r": (names[first], names[second]), "read": (names[first], names[second])})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("schedule", ["splash", "residual"])
def test_dynamic_schedules_are_exact_on_a_chain_at_any_tolerance(schedule, dtype):
    """An iteration in which nothing is left to do must not be taken for a step towards somewhere."""
    model = letters()
    graph = kb.Graph.chain(60, variable="x", relation="r").fix([0], ["a"])
    exact = model.infer(graph, schedule="tree", dtype=dtype).probabilities()
    found = model.infer(graph, schedule=schedule, dtype=dtype, tolerance=1e-6, max_iterations=500)
    assert found.converged
    assert np.allclose(found.probabilities(), exact, atol=1e-4)


@pytest.mark.parametrize("contrary", [5, 40, 60, 300])
def test_what_is_impossible_stays_so_however_much_speaks_for_it(contrary):
    graph = kb.Graph.chain(2, variable="x", relation="r").soften([0], ["a", "b"], [[1.0, 0.0]])
    for _ in range(contrary):
        graph = graph.observe("read", ["b"], nodes=[0])
    assert letters().infer(graph).probabilities()[0].max() > 0.999
    assert letters().infer(graph).mode()[0] == "a"


def test_inferences_side_by_side_leave_the_threads_of_blas_as_they_were():
    from concurrent.futures import ThreadPoolExecutor

    from kernelbp.inference.engine import available_threads

    model, before = letters(), available_threads()
    graphs = [kb.Graph.grid((40, 40), variable="x", relation="r").fix([node], ["a"]) for node in range(6)]
    alone = [model.infer(graph).probabilities() for graph in graphs]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda graph: model.infer(graph).probabilities(), graphs))
    assert available_threads() == before
    for one, other in zip(alone, together, strict=True):
        assert np.allclose(one, other, atol=1e-6)
