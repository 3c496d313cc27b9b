"""The log partition function, judged by summing over all states."""

from __future__ import annotations

import itertools
from functools import cache

import networkx as nx
import numpy as np
import pytest
from scipy.special import logsumexp

from kernelbp import Graph, Model, Relation
from kernelbp.errors import UnsupportedError
from kernelbp.kernels import Delta

PRECISE = {"dtype": np.float64, "tolerance": 1e-9, "max_iterations": 3000}


def log_sum_of_states(n_states: int, nodes: np.ndarray, edges: list, tables: list) -> float:
    """log of the sum over all states of the product of node tables (n, k) and edge tables (k, k), from logs."""
    n = len(nodes)
    total = np.zeros((n_states,) * n)
    for node, logs in enumerate(nodes):
        total = total + logs.reshape([n_states if i == node else 1 for i in range(n)])
    for (a, b), logs in zip(edges, tables, strict=True):
        lower, upper = (a, b) if a < b else (b, a)
        turned = logs if a < b else logs.T
        total = total + turned.reshape([n_states if i in (lower, upper) else 1 for i in range(n)])
    return float(logsumexp(total))


class TablesOnAGraph:
    """A random graph, a random table for each of its edges, random softened evidence at some nodes."""

    def __init__(self, tied: nx.Graph, n_states: int, seed: int, kind: str = "mixed", strength: float = 1.5):
        rng = np.random.default_rng(seed)
        self.k, self.n = n_states, len(tied)
        self.edges = [edge if rng.random() < 0.5 else edge[::-1] for edge in tied.edges]
        self.values = [f"value {i}" for i in rng.permutation(n_states)]
        self.logs = []
        for _ in self.edges:
            if kind == "mixed":
                self.logs.append(strength * rng.standard_normal((n_states, n_states)))
            else:
                sign = 1.0 if kind == "attractive" else -1.0
                self.logs.append(sign * strength * rng.uniform(0.2, 1.5) * np.eye(n_states))
        relations = {f"r{i}": Relation("x", "x", potential=np.exp(logs)) for i, logs in enumerate(self.logs)}
        # Rows and columns follow the landmarks, in whatever order they are given.
        self.model = Model({"x": Delta()}, relations, landmarks={"x": self.values}).fit()
        listed = [(a, b, f"r{i}") for i, (a, b) in enumerate(self.edges)]
        self.graph = Graph.from_edges(listed, variables=["x"] * self.n)
        self.nodes = np.full((self.n, n_states), -np.log(n_states))  # the base measure
        for node in range(self.n):
            if rng.random() < 0.7:
                self.soften(node, np.exp(rng.standard_normal(n_states)) * 10.0 ** rng.integers(-3, 4))

    def soften(self, node: int, likelihood: np.ndarray) -> None:
        self.graph = self.graph.soften([node], self.values, likelihood)
        self.nodes[node] += np.log(likelihood)

    def exact(self) -> float:
        return log_sum_of_states(self.k, self.nodes, self.edges, self.logs)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("weighting", ["bethe", "tree-reweighted"])
def test_on_forests_the_partition_function_is_exact(seed, weighting):
    tied = nx.random_labeled_tree(7, seed=seed)
    if seed % 3 == 0:
        tied.remove_edge(*list(tied.edges)[seed % 6])
    problem = TablesOnAGraph(tied, 2 + seed % 3, seed)
    found = problem.model.infer(problem.graph, weighting=weighting, dtype=np.float64).log_partition()
    assert found == pytest.approx(problem.exact(), abs=1e-10)


@pytest.mark.parametrize("kind", ["mixed", "attractive", "repulsive"])
@pytest.mark.parametrize("n_states", [2, 3, 4])
def test_tree_reweighted_it_is_an_upper_bound(kind, n_states):
    """Wainwright, Jaakkola and Willsky (2005): for every choice of appearance probabilities."""
    slack = []
    for seed in range(12):
        tied = nx.gnp_random_graph(7, [0.4, 0.6, 0.9][seed % 3], seed=1000 * n_states + seed)
        problem = TablesOnAGraph(tied, n_states, seed, kind)
        beliefs = problem.model.infer(problem.graph, **PRECISE)
        assert beliefs.converged
        slack.append(beliefs.log_partition() - problem.exact())
    assert min(slack) > -1e-7
    assert max(slack) > 1e-3, "some graphs have cycles on which the bound is not tight"


@pytest.mark.parametrize("seed", range(6))
def test_any_spanning_tree_distribution_bounds_it(seed):
    """Weights of the user's own: appearance in trees drawn with edges of unequal weight."""
    problem = TablesOnAGraph(nx.cycle_graph(5), 3, seed)
    share = np.random.default_rng(seed).dirichlet(np.ones(5))  # how often each edge is the one left out
    beliefs = problem.model.infer(problem.graph, weighting=1 - share, **PRECISE)
    assert beliefs.log_partition() > problem.exact() - 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_depend_on_schedule_precision_or_where_messages_start(seed):
    problem = TablesOnAGraph(nx.gnp_random_graph(7, 0.6, seed=seed), 3, seed, strength=1.0)
    reference = problem.model.infer(problem.graph, **PRECISE)
    for schedule in ("flooding", "sweep", "residual", "splash"):
        found = problem.model.infer(problem.graph, schedule=schedule, **PRECISE)
        assert found.log_partition() == pytest.approx(reference.log_partition(), abs=1e-6)
    single = problem.model.infer(problem.graph, tolerance=1e-5, max_iterations=500)
    assert single.log_partition() == pytest.approx(reference.log_partition(), abs=1e-3)
    again = problem.model.infer(problem.graph, start=reference, **PRECISE)
    assert again.log_partition() == pytest.approx(reference.log_partition(), abs=1e-8)


@pytest.mark.parametrize("weighting", ["bethe", "tree-reweighted"])
def test_the_scale_of_evidence_and_of_potentials_counts(weighting):
    problem = TablesOnAGraph(nx.cycle_graph(4), 3, 0, strength=0.5)
    options = {**PRECISE, "weighting": weighting}
    before = problem.model.infer(problem.graph, **options).log_partition()
    told = problem.graph.soften([1, 2], problem.values, np.full(3, 1e-6))
    assert problem.model.infer(told, **options).log_partition() - before == pytest.approx(2 * np.log(1e-6))
    scaled = {
        name: Relation("x", "x", potential=7.0 * relation.potential)
        for name, relation in problem.model.relations.items()
    }
    model = Model({"x": Delta()}, scaled, landmarks={"x": problem.values}).fit()
    after = model.infer(problem.graph, **options).log_partition()
    assert after - before == pytest.approx(4 * np.log(7.0), abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_fixed_nodes_leave_the_rest_given_their_values(seed):
    """Their own base measure and evidence are constants and do not count; edges to others do."""
    problem = TablesOnAGraph(nx.random_labeled_tree(6, seed=seed), 3, seed)
    rng = np.random.default_rng(seed)
    fixed = rng.choice(6, 2, replace=False)
    known = rng.integers(3, size=2)
    graph = problem.graph.fix(fixed, [problem.values[i] for i in known])
    nodes, tables = problem.nodes.copy(), list(problem.logs)
    for node, state in zip(fixed, known, strict=True):
        nodes[node] = np.where(np.arange(3) == state, 0.0, -np.inf)
    for index, (a, b) in enumerate(problem.edges):
        if a in fixed and b in fixed:
            tables[index] = np.zeros((3, 3))
    expected = log_sum_of_states(3, nodes, problem.edges, tables)
    found = problem.model.infer(graph, dtype=np.float64).log_partition()
    assert found == pytest.approx(expected, abs=1e-10)


# ---------------------------------------------------------------------- learned relations


N_LEARNED = 6


@cache
def learned_model(mixing: float) -> tuple[Model, np.ndarray, np.ndarray]:
    """Six finite variables, their readings, a relation between any two, all counted on one joint sample."""
    rng = np.random.default_rng(0)
    noise = 0.4 * rng.standard_normal((500, N_LEARNED))
    hidden = (np.clip(rng.random(500)[:, None] + noise, 0, 0.999) * 3).astype(int)
    read = np.where(rng.random(hidden.shape) < 0.6, hidden, rng.integers(0, 3, hidden.shape))
    every = list(itertools.combinations(range(N_LEARNED), 2))
    variables = {f"{kind}{i}": Delta() for i in range(N_LEARNED) for kind in "xy"}
    relations = {f"{a}-{b}": Relation(f"x{a}", f"x{b}") for a, b in every}
    relations |= {f"seen {i}": Relation(f"x{i}", f"y{i}") for i in range(N_LEARNED)}
    pairs = {f"{a}-{b}": (hidden[:, a], hidden[:, b]) for a, b in every}
    pairs |= {f"seen {i}": (hidden[:, i], read[:, i]) for i in range(N_LEARNED)}
    return Model(variables, relations, mixing=mixing).fit(pairs), hidden, read


class LearnedOnAGraph:
    """Learned relations along the edges of a graph, readings at three nodes, and all potentials by counting."""

    def __init__(self, tied: nx.Graph, seed: int, mixing: float) -> None:
        self.model, hidden, read = learned_model(mixing)
        self.edges = [tuple(sorted(edge)) for edge in tied.edges]
        listed = [(a, b, f"{a}-{b}") for a, b in self.edges]
        self.silent = Graph.from_edges(listed, variables=[f"x{i}" for i in range(N_LEARNED)])
        self.nodes = np.log(np.stack([self.counted(hidden[:, i]) for i in range(N_LEARNED)]))
        chosen = {name: r["mixing"] for name, r in self.model.settings_["relations"].items()}
        self.logs = [
            np.log(self.ratio(hidden[:, a], hidden[:, b], chosen[f"{a}-{b}"])) for a, b in self.edges
        ]
        self.graph = self.silent
        rng = np.random.default_rng(seed)
        for node in rng.choice(N_LEARNED, 3, replace=False):
            seen = int(rng.integers(3))
            self.graph = self.graph.observe(f"seen {node}", [seen], nodes=[node])
            speaking = self.ratio(hidden[:, node], read[:, node], chosen[f"seen {node}"])
            self.nodes[node] += np.log(speaking)[:, seen]

    def counted(self, *columns: np.ndarray) -> np.ndarray:
        table = np.zeros((3,) * len(columns))
        np.add.at(table, columns, 1.0)
        return table / table.sum()

    def ratio(self, first: np.ndarray, second: np.ndarray, mixing: float) -> np.ndarray:
        outer = np.outer(self.counted(first), self.counted(second))
        return (1 - mixing) * self.counted(first, second) / outer + mixing


@pytest.mark.parametrize("mixing", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(4))
def test_on_trees_of_learned_relations_it_is_the_probability_of_the_evidence(seed, mixing):
    problem = LearnedOnAGraph(nx.random_labeled_tree(6, seed=seed), seed, mixing)
    found = problem.model.infer(problem.graph, dtype=np.float64).log_partition()
    expected = log_sum_of_states(3, problem.nodes, problem.edges, problem.logs)
    assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_learned_relations_enter_to_the_power_of_their_weight(seed):
    problem = LearnedOnAGraph(nx.gnp_random_graph(6, 0.6, seed=seed), seed, 0.05)
    beliefs = problem.model.infer(problem.graph, **PRECISE)
    source = beliefs._source
    weights = np.ones(len(problem.edges))
    for variable in range(len(source.wiring.variables)):
        mine = source.wiring.target_variable == variable
        if source.state.weights:
            weights[source.wiring.edge[mine]] = source.state.weights[variable]
    powers = [weight * logs for weight, logs in zip(weights, problem.logs, strict=True)]
    expected = log_sum_of_states(3, problem.nodes, problem.edges, powers)
    assert -1e-7 < beliefs.log_partition() - expected < 0.5


def test_without_evidence_learned_relations_have_partition_function_one():
    problem = LearnedOnAGraph(nx.complete_graph(N_LEARNED), 0, 0.05)
    for weighting in ("bethe", "tree-reweighted"):
        beliefs = problem.model.infer(problem.silent, weighting=weighting, dtype=np.float64)
        assert beliefs.log_partition() == pytest.approx(0.0, abs=1e-10)


def test_embeddings_have_no_partition_function():
    problem = LearnedOnAGraph(nx.path_graph(3), 0, 0.05)
    beliefs = problem.model.infer(problem.graph, conditionals="embedding")
    with pytest.raises(
        UnsupportedError,
        match="the partition function needs positive messages; infer with conditionals='probability'",
    ):
        beliefs.log_partition()
