"""Known relations: functions, functions with readings and tables, judged by enumeration and by dense updates."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from kernelbp import Graph, Model, Relation
from kernelbp.errors import InputError
from kernelbp.inference.weights import spanning_tree_weights
from kernelbp.kernels import Delta, Gaussian
from kernelbp.learning import potentials

PRECISE = {"dtype": np.float64, "tolerance": 1e-11, "max_iterations": 2000}
LEVELS = [0, 1, 2, 5]


def closeness(a, b):
    return np.exp(-0.3 * (a - b) ** 2)


def at_distance(a, b, reading):
    return np.exp(-0.5 * (b - a - reading) ** 2)


def model_of(**relations) -> Model:
    return Model({"x": Delta()}, relations, landmarks={"x": LEVELS}).fit()


def softened(graph: Graph, seed: int) -> tuple[Graph, np.ndarray]:
    likelihood = np.random.default_rng(seed).uniform(0.1, 1.0, (graph.n_nodes, len(LEVELS)))
    return graph.soften(np.arange(graph.n_nodes), LEVELS, likelihood), likelihood


def by_enumeration(likelihood: np.ndarray, edges: list, tables: list) -> np.ndarray:
    """Beliefs (nodes, k) of the product of node and edge tables."""
    count, size = likelihood.shape
    result = np.zeros((count, size))
    for states in itertools.product(range(size), repeat=count):
        mass = np.prod(likelihood[np.arange(count), states])
        for (a, b), table in zip(edges, tables, strict=True):
            mass *= table[states[a], states[b]]
        result[np.arange(count), states] += mass
    return result / result.sum(axis=1, keepdims=True)


def dense_tree_reweighted(
    likelihood: np.ndarray, edges: list, tables: list, weights: np.ndarray, iterations: int = 3000
) -> np.ndarray:
    """Wainwright's update (2005, eq. 39) edge by edge, in the form that keeps the messages' own powers."""
    messages, weight, table = {}, {}, {}
    for (a, b), psi, rho in zip(edges, tables, weights, strict=True):
        for source, target, toward in ((a, b, psi.T), (b, a, psi)):
            messages[source, target] = np.ones(likelihood.shape[1])
            weight[source, target], table[source, target] = rho, toward ** (1 / rho)

    def product(node: int) -> np.ndarray:
        arriving = [m ** weight[e] for e, m in messages.items() if e[1] == node]
        return likelihood[node] * np.prod([np.ones(likelihood.shape[1]), *arriving], axis=0)

    for _ in range(iterations):
        change = 0.0
        for source, target in list(messages):
            made = table[source, target] @ (product(source) / messages[target, source])
            made = np.sqrt(made / made.max() * messages[source, target])
            change = max(change, np.abs(made / made.max() - messages[source, target]).max())
            messages[source, target] = made / made.max()
        if change < 1e-13:
            break
    beliefs = np.array([product(node) for node in range(len(likelihood))])
    return beliefs / beliefs.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------------- functions and tables


def test_a_function_on_a_tree_equals_enumeration():
    graph = Graph.from_networkx(nx.random_labeled_tree(5, seed=0), variable="x", relation="r")
    graph, likelihood = softened(graph, 0)
    found = model_of(r=Relation("x", "x", potential=closeness, symmetric=True)).infer(graph, **PRECISE)
    table = closeness(np.array(LEVELS)[:, None], np.array(LEVELS))
    expected = by_enumeration(likelihood, graph.edges.tolist(), [table] * 4)
    assert np.allclose(found.density(LEVELS), expected, rtol=0, atol=1e-10)


def test_a_function_knows_which_end_is_first():
    graph, likelihood = softened(Graph.from_edges([(1, 0, "r"), (1, 2, "r")], variables=["x"] * 3), 1)

    def below(a, b):
        return np.where(a < b, 1.0, 0.25) + 0.1 * a

    table = below(np.array(LEVELS)[:, None], np.array(LEVELS)[None])
    expected = by_enumeration(likelihood, [(1, 0), (1, 2)], [table, table])
    found = model_of(r=Relation("x", "x", potential=below)).infer(graph, **PRECISE)
    assert np.allclose(found.density(LEVELS), expected, rtol=0, atol=1e-10)
    expected_pair = table * likelihood[1][:, None] * likelihood[0]
    expected_pair *= (table @ likelihood[2])[:, None]
    assert np.allclose(found.pair(0), expected_pair / expected_pair.sum(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("weighting", ["bethe", "tree-reweighted"])
def test_a_table_says_the_same_as_its_function(weighting):
    graph, _ = softened(Graph.grid((3, 3), variable="x", relation="r"), 2)
    table = closeness(np.array(LEVELS)[:, None], np.array(LEVELS))
    found = [
        model_of(r=Relation("x", "x", symmetric=True, potential=given)).infer(
            graph, weighting=weighting, **PRECISE
        )
        for given in (closeness, table, table.tolist())
    ]
    for other in found[1:]:
        assert np.allclose(found[0].probabilities(), other.probabilities(), rtol=0, atol=1e-12)


def test_rows_and_columns_follow_the_landmarks_in_the_order_given():
    rng = np.random.default_rng(0)
    words, numbers = ["red", "green", "blue"], [7, 3]
    table, likelihood = rng.uniform(0.1, 1, (3, 2)), rng.uniform(0.1, 1, 2)
    model = Model(
        {"colour": Delta(), "size": Delta()},
        {"has": Relation("colour", "size", potential=table)},
        landmarks={"colour": words, "size": numbers},
    ).fit()
    graph = Graph.from_edges([(0, 1, "has")], variables=["colour", "size"]).soften([1], numbers, likelihood)
    found = model.infer(graph, dtype=np.float64)
    expected = table @ likelihood
    assert np.allclose(found["colour"].density(words)[0], expected / expected.sum(), atol=1e-12)
    fixed = model.infer(Graph.from_edges([(0, 1, "has")], variables=["colour", "size"]).fix([0], ["blue"]))
    assert np.allclose(fixed["size"].density(numbers)[0], table[2] / table[2].sum(), atol=1e-6)
    observed = model.infer(Graph.from_edges([], variables=["colour"]).observe("has", [3]))
    assert np.allclose(observed.density(words)[0], table[:, 1] / table[:, 1].sum(), atol=1e-6)


def test_a_symmetric_and_a_plain_relation_with_a_symmetric_table_agree():
    graph, _ = softened(Graph.grid((2, 3), variable="x", relation="r"), 3)
    table = closeness(np.array(LEVELS)[:, None], np.array(LEVELS))
    one, other = (
        model_of(r=Relation("x", "x", symmetric=symmetric, potential=table)).infer(graph, **PRECISE)
        for symmetric in (True, False)
    )
    assert np.allclose(one.probabilities(), other.probabilities(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-15, 1e-8, 1e8, 1e15])
def test_the_scale_of_a_potential_does_not_matter_to_beliefs(scale):
    graph, _ = softened(Graph.grid((3, 3), variable="x", relation="r"), 4)
    table = closeness(np.array(LEVELS)[:, None], np.array(LEVELS))
    one, other = (
        model_of(r=Relation("x", "x", symmetric=True, potential=given)).infer(graph, tolerance=1e-5)
        for given in (table, scale * table)
    )
    assert np.allclose(one.probabilities(), other.probabilities(), rtol=0, atol=1e-4)


def test_known_and_learned_relations_meet_in_one_model():
    """The known one multiplies the base measure, which is now the learned marginal."""
    rng = np.random.default_rng(5)
    seen_x = rng.choice(LEVELS, 3000, p=[0.4, 0.3, 0.2, 0.1])
    seen_y = np.where(rng.random(3000) < 0.7, seen_x, rng.choice(LEVELS, 3000))
    relations = {"near": Relation("x", "x", potential=closeness), "read": Relation("x", "y")}
    model = Model({"x": Delta(), "y": Delta()}, relations, landmarks={"x": LEVELS, "y": LEVELS}).fit(
        {"read": (seen_x, seen_y)}
    )
    graph = Graph.chain(2, variable="x", relation="near").observe("read", [5], nodes=[0])
    prior = np.array([(seen_x == level).mean() for level in LEVELS])
    share = model.settings_["relations"]["read"]["mixing"]
    speaking = np.array([(seen_y[seen_x == level] == 5).mean() for level in LEVELS]) / (seen_y == 5).mean()
    speaking = (1 - share) * speaking + share
    table = closeness(np.array(LEVELS)[:, None], np.array(LEVELS))
    expected = by_enumeration(np.array([prior * speaking, prior]), [(0, 1)], [table])
    found = model.infer(graph, dtype=np.float64)
    assert np.allclose(found.density(LEVELS), expected, rtol=0, atol=1e-8)


def test_numbers_on_a_grid_follow_the_function_between_known_ends():
    """A random walk of steps of variance 1 between two known values: a Brownian bridge, in closed form."""
    grid = np.linspace(-6, 6, 121)
    model = Model(
        {"x": Gaussian(1.0)},
        {"step": Relation("x", "x", symmetric=True, potential=lambda a, b: np.exp(-0.5 * (a - b) ** 2))},
        landmarks={"x": grid},
    ).fit()
    graph = Graph.chain(5, variable="x", relation="step").fix([0, 4], [-1.0, 1.0])
    beliefs = model.infer(graph)
    assert np.allclose(beliefs.mean(), [-1, -0.5, 0, 0.5, 1], atol=0.02)
    assert np.allclose(beliefs.std()[1:4] ** 2, [0.75, 1.0, 0.75], atol=0.04)


# ---------------------------------------------------------------------- readings along edges


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighting", ["bethe", "tree-reweighted"])
def test_readings_make_every_edge_a_relation_of_its_own(seed, weighting):
    rng = np.random.default_rng(seed)
    edges = [(a, b) if rng.random() < 0.5 else (b, a) for a, b in nx.cycle_graph(5).edges] + [(0, 2)]
    readings = rng.uniform(-2, 2, len(edges))
    tables = [at_distance(np.array(LEVELS)[:, None], np.array(LEVELS), reading) for reading in readings]
    measured, likelihood = softened(
        Graph.from_edges([(*e, "r") for e in edges], variables=["x"] * 5, readings=readings), seed
    )
    named, _ = softened(
        Graph.from_edges([(*e, f"r{i}") for i, e in enumerate(edges)], variables=["x"] * 5), seed
    )
    one = model_of(r=Relation("x", "x", potential=at_distance))
    many = model_of(**{f"r{i}": Relation("x", "x", potential=table) for i, table in enumerate(tables)})
    options = {**PRECISE, "weighting": weighting, "damping": 0.3}
    found = one.infer(measured, **options), many.infer(named, **options)
    assert np.allclose(found[0].probabilities(), found[1].probabilities(), rtol=0, atol=1e-8)
    for edge in range(len(edges)):
        assert np.allclose(found[0].pair(edge), found[1].pair(edge), rtol=0, atol=1e-8)
    weights = np.ones(6) if weighting == "bethe" else spanning_tree_weights(5, measured.edges)
    expected = dense_tree_reweighted(likelihood, edges, tables, weights)
    assert np.allclose(found[0].density(LEVELS), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_tree_reweighting_with_a_weight_for_each_edge_equals_the_dense_update(seed):
    """The potential enters each message to the power 1 / rho of its own edge."""
    rng = np.random.default_rng(seed)
    tied = nx.DiGraph(nx.gnp_random_graph(5, 0.8, seed=seed).edges)
    graph, likelihood = softened(Graph.from_networkx(tied, variable="x", relation="r"), seed)
    table = np.exp(rng.standard_normal((4, 4)))
    weights = rng.uniform(0.25, 0.9, graph.n_edges)
    found = model_of(r=Relation("x", "x", potential=table)).infer(graph, weighting=weights, **PRECISE)
    expected = dense_tree_reweighted(likelihood, graph.edges.tolist(), [table] * graph.n_edges, weights)
    assert found.converged
    assert np.allclose(found.density(LEVELS), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("with_readings", [True, False])
def test_potentials_made_in_blocks_equal_those_kept(monkeypatch, with_readings):
    rng = np.random.default_rng(0)
    tied = nx.gnp_random_graph(12, 0.4, seed=1)
    readings = rng.uniform(-2, 2, len(tied.edges)) if with_readings else None
    relation = Relation("x", "x", potential=at_distance if with_readings else closeness)
    graph = Graph.from_edges([(*e, "r") for e in tied.edges], variables=["x"] * 12, readings=readings)
    graph, _ = softened(graph, 0)
    options = {**PRECISE, "damping": 0.0}
    kept = model_of(r=relation).infer(graph, **options).probabilities()
    monkeypatch.setattr(potentials, "CACHE_BYTES", 0)
    monkeypatch.setattr(potentials, "BLOCK_BYTES", 3 * 16 * 8)  # three edges at a time
    made = model_of(r=relation).infer(graph, **options).probabilities()
    assert np.allclose(kept, made, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_known_neighbours_speak_through_their_own_readings(seed):
    """Anchors: a fixed end is evidence f(x, value, reading), whichever end of the edge it is."""
    rng = np.random.default_rng(seed)
    edges = [(0, 1), (2, 1), (1, 3), (3, 4), (4, 0)]
    readings = rng.uniform(-2, 2, 5)
    tables = [at_distance(np.array(LEVELS)[:, None], np.array(LEVELS), reading) for reading in readings]
    graph = Graph.from_edges([(*e, "r") for e in edges], variables=["x"] * 5, readings=readings)
    graph, likelihood = softened(graph, seed)
    graph = graph.fix([4, 2], [LEVELS[3], LEVELS[1]])
    likelihood[4], likelihood[2] = np.eye(4)[3], np.eye(4)[1]
    found = model_of(r=Relation("x", "x", potential=at_distance)).infer(graph, **PRECISE)
    expected = by_enumeration(likelihood, edges, tables)
    assert np.allclose(found.density(LEVELS), expected, rtol=0, atol=1e-10)


def test_vectors_and_vector_readings_broadcast_along_the_last_axis():
    """Positions in the plane, displacements measured: the chain's exact answer on the landmarks."""
    side = np.linspace(-1, 1, 5)
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    def moved(a, b, step):
        return np.exp(-4 * ((b - a - step) ** 2).sum(axis=-1))

    steps = np.array([[0.5, 0.0], [0.0, -0.5]])
    model = Model(
        {"place": Gaussian(0.5)},
        {"to": Relation("place", "place", potential=moved)},
        landmarks={"place": places},
    ).fit()
    graph = Graph.from_edges([(0, 1, "to"), (1, 2, "to")], variables=["place"] * 3, readings=steps)
    beliefs = model.infer(graph.fix([0], [[-0.5, 0.5]]), dtype=np.float64)
    support = model.support("place")
    arrive = moved(np.array([-0.5, 0.5]), support, steps[0])
    onward = moved(support[:, None], support[None], steps[1])
    expected = arrive[:, None] * onward
    assert np.allclose(beliefs.pair(1), expected / expected.sum(), rtol=0, atol=1e-8)
    assert np.allclose(beliefs.mode(candidates=places)[1:], [[0.0, 0.5], [0.0, 0.0]], atol=1e-12)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "given", [np.ones(3), np.ones((2, 2, 2)), [[1.0, -0.1], [0.2, 1.0]], [[1.0, np.nan], [0.2, 1.0]]]
)
def test_tables_that_are_none_are_refused(given):
    with pytest.raises(
        InputError,
        match=r"potential: expected a function or a table \(2-D array\) of finite numbers of at least 0, got \w+ of",
    ):
        Relation("x", "x", potential=given)


def test_an_asymmetric_table_of_a_symmetric_relation_is_refused():
    for table in ([[1.0, 2.0], [3.0, 1.0]], [[1.0, 2.0]]):
        with pytest.raises(
            InputError, match="potential: the table of a symmetric relation should equal its own transpose"
        ):
            Relation("x", "x", symmetric=True, potential=table)


def test_a_variable_without_pairs_needs_landmarks():
    with pytest.raises(
        InputError,
        match=r"landmarks: variable 'x' has no training pairs, so it needs support points: landmarks=\{'x': values\}",
    ):
        Model({"x": Delta()}, {"r": Relation("x", "x", potential=closeness)}).fit()


def test_a_table_must_match_its_landmarks():
    relation = Relation("x", "x", potential=np.ones((4, 3)))
    with pytest.raises(
        InputError,
        match=r"relations\['r'\]: a table of shape \(4, 3\) needs landmarks of 'x' for its columns, got 4",
    ):
        model_of(r=relation)
    pairs = {"s": ([0, 1, 2], [0, 1, 1])}
    with pytest.raises(
        InputError,
        match=r"relations\['r'\]: a table of shape \(4, 3\) needs landmarks of 'x' for its rows, got 0",
    ):
        Model({"x": Delta()}, {"r": relation, "s": Relation("x", "x")}).fit(pairs)


def test_a_function_of_the_wrong_shape_is_refused():
    graph = Graph.chain(2, variable="x", relation="r")
    with pytest.raises(
        InputError,
        match=r"relations\['r'\]: potential should return numbers of shape \(1, 4, 4\) by broadcasting, got shape \(3,\)",
    ):
        model_of(r=Relation("x", "x", potential=lambda a, b: np.ones(3))).infer(graph)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_function_with_impossible_values_is_refused(bad, fixed):
    graph = Graph.chain(2, variable="x", relation="r")
    with pytest.raises(
        InputError, match=r"relations\['r'\]: potential should return finite numbers of at least 0"
    ):
        model_of(r=Relation("x", "x", potential=lambda a, b: bad + 0 * a * b)).infer(
            graph.fix([1], [2]) if fixed else graph
        )


def test_readings_must_be_one_for_each_edge_and_finite():
    with pytest.raises(InputError, match=r"readings: expected one for each of the 2 edges, got shape \(3,\)"):
        Graph.from_edges([(0, 1, "r"), (1, 2, "r")], variables=["x"] * 3, readings=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="readings: expected finite numbers; leave out edges"):
        Graph.from_edges([(0, 1, "r"), (1, 2, "r")], variables=["x"] * 3, readings=[1.0, np.nan])


def test_pairs_of_a_known_relation_are_refused():
    model = Model({"x": Delta()}, {"r": Relation("x", "x", potential=closeness)}, landmarks={"x": LEVELS})
    with pytest.raises(InputError, match="pairs: unknown relation 'r'"):
        model.fit({"r": ([0, 1], [1, 2])})


def test_a_potential_of_single_numbers_is_told_to_take_arrays():
    model = Model(
        {"s": Gaussian()},
        {"p": Relation("s", "s", potential=lambda a, b: math.exp(-((a - b) ** 2)))},
        landmarks={"s": np.linspace(-1, 1, 5)},
    ).fit({})
    graph = Graph.chain(2, variable="s", relation="p")
    with pytest.raises(InputError, match=r"'p'.*failed on arrays of shapes .* np\.exp in place of math\.exp"):
        model.infer(graph)
