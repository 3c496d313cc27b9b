"""Where messages settle, how fast, and how good that is: judged by enumeration and by plain iteration."""

from __future__ import annotations

import warnings
from functools import cache

import networkx as nx
import numpy as np
import pytest

from kernelbp import Beliefs, ConvergenceWarning, Graph, Model, Relation
from kernelbp.errors import InputError
from kernelbp.inference import acceleration, engine
from kernelbp.inference import run as run_module
from kernelbp.inference.acceleration import Anderson
from kernelbp.inference.run import DAMPING_STEPS, PATIENCE
from kernelbp.inference.update import Flat, State, update_plainly
from kernelbp.kernels import Delta
from kernelbp.rivals import DiscreteModel

ORDINARY = {"weighting": "bethe", "damping": 0.0, "schedule": "flooding"}


@cache
def ising_model() -> Model:
    """Two states; the reading along an edge is its coupling c, the potential exp(c (2 I - 1))."""
    relation = Relation(
        "x", "x", symmetric=True, potential=lambda a, b, c: np.exp(c * np.where(a == b, 1.0, -1.0))
    )
    return Model({"x": Delta()}, {"r": relation}, landmarks={"x": [0, 1]}).fit()


class Ising:
    """A random graph with mixed couplings and weak fields, and its exact marginals."""

    def __init__(self, nodes: int, density: float, seed: int, strength: float = 2.0) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = nodes
        self.edges = np.array(nx.gnp_random_graph(nodes, density, seed=seed).edges, dtype=np.intp).reshape(
            -1, 2
        )
        self.couplings = rng.uniform(-strength, strength, len(self.edges))
        self.fields = rng.uniform(-0.1, 0.1, nodes)
        graph = Graph.from_edges(self.edges, variables=["x"] * nodes, relation="r", readings=self.couplings)
        likelihood = np.exp(np.stack([-self.fields, self.fields], axis=1))
        self.graph = graph.soften(np.arange(nodes), [0, 1], likelihood)

    def infer(self, **options) -> Beliefs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return ising_model().infer(self.graph, **options)

    def exact(self) -> np.ndarray:
        """P(x = 1) of every node, from all states at once."""
        spins = 1.0 - 2.0 * (np.arange(1 << self.nodes)[:, None] >> np.arange(self.nodes) & 1)
        energy = spins @ self.fields
        energy += (spins[:, self.edges[:, 0]] * spins[:, self.edges[:, 1]]) @ self.couplings
        mass = np.exp(energy - energy.max())
        return (mass @ (spins > 0)) / mass.sum()

    def error(self, beliefs: Beliefs) -> float:
        return float(np.abs(beliefs.density([1])[:, 0] - self.exact()).mean())


# ---------------------------------------------------------------------- the claims of the defaults


def test_the_defaults_converge_on_random_graphs_where_ordinary_propagation_does_not():
    ordinary = 0
    for seed in range(50):
        problem = Ising(12, 0.5, seed)
        beliefs = problem.infer()
        assert beliefs.converged and beliefs.iterations <= 60 and beliefs.residuals[-1] <= 1e-3
        ordinary += problem.infer(**ORDINARY).converged
    assert ordinary < 25


def test_the_defaults_are_closer_to_the_truth_than_damped_ordinary_propagation():
    errors = []
    for seed in range(200):
        problem = Ising(10 + seed % 5, 0.5, 1000 + seed)
        ordinary = problem.infer(weighting="bethe", damping=0.5, schedule="flooding")
        errors.append((problem.error(problem.infer()), problem.error(ordinary)))
    ours, theirs = np.mean(errors, axis=0)
    assert ours <= theirs
    assert ours < 0.1


# ---------------------------------------------------------------------- one fixed point, whatever the way


@pytest.mark.parametrize("seed", range(3))
def test_all_schedules_reach_the_same_tree_reweighted_fixed_point(seed):
    problem = Ising(12, 0.4, seed, strength=1.2)
    options = {"dtype": np.float64, "tolerance": 1e-7, "max_iterations": 2000, "damping": 0.0}
    found = {
        schedule: problem.infer(schedule=schedule, **options)
        for schedule in ("flooding", "sweep", "residual", "splash", "auto")
    }
    for schedule, beliefs in found.items():
        assert beliefs.converged, schedule
        assert np.allclose(beliefs.probabilities(), found["sweep"].probabilities(), rtol=0, atol=1e-4), (
            schedule
        )


@pytest.mark.parametrize("seed", range(5))
def test_on_forests_all_schedules_and_both_weightings_agree(seed):
    rng = np.random.default_rng(seed)
    forest = nx.disjoint_union(nx.random_labeled_tree(14, seed=seed), nx.random_labeled_tree(5, seed=seed))
    graph = Graph.from_edges(
        np.array(forest.edges), variables=["x"] * 19, relation="r", readings=rng.uniform(-2, 2, 17)
    ).soften(np.arange(19), [0, 1], rng.uniform(0.2, 1.0, (19, 2)))
    options = {"dtype": np.float64, "tolerance": 1e-9, "max_iterations": 100, "damping": 0.0}
    exact = ising_model().infer(graph, schedule="tree", weighting="bethe", **options)
    weighted = ising_model().infer(graph, schedule="tree", weighting="tree-reweighted", **options)
    assert np.array_equal(weighted.probabilities(), exact.probabilities()), "the weights are exactly one"
    assert exact.iterations == weighted.iterations == 1
    for schedule in ("flooding", "sweep", "residual", "splash", "auto"):
        beliefs = ising_model().infer(graph, schedule=schedule, **options)
        assert beliefs.converged
        assert np.allclose(beliefs.probabilities(), exact.probabilities(), rtol=0, atol=1e-4)


def test_a_tree_with_weights_below_one_is_iterated_to_its_fixed_point():
    """Two passes are exact only for weights of one: a weighted message depends on the one that answers it."""
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        np.array([[i, i + 1] for i in range(7)]),
        variables=["x"] * 8, relation="r", readings=rng.uniform(-2, 2, 7),
    ).soften(np.arange(8), [0, 1], rng.uniform(0.2, 1.0, (8, 2)))  # fmt: skip
    options = {"weighting": np.full(7, 0.6), "dtype": np.float64, "tolerance": 1e-10, "max_iterations": 500}
    flooded = ising_model().infer(graph, schedule="flooding", **options)
    for schedule in ("auto", "tree"):
        beliefs = ising_model().infer(graph, schedule=schedule, **options)
        assert beliefs.converged and beliefs.iterations > 1
        assert np.allclose(beliefs.probabilities(), flooded.probabilities(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("damping", [0.0, 0.3, 0.6])
def test_damping_does_not_move_the_fixed_point(damping):
    problem = Ising(10, 0.5, 3)
    options = {"dtype": np.float64, "tolerance": 1e-9, "max_iterations": 3000}
    plain, damped = problem.infer(damping=0.0, **options), problem.infer(damping=damping, **options)
    assert plain.converged and damped.converged
    assert np.allclose(plain.probabilities(), damped.probabilities(), rtol=0, atol=1e-6)


def test_a_warm_start_ends_where_it_began():
    problem = Ising(12, 0.5, 4, strength=1.0)
    cold = problem.infer(tolerance=1e-5, max_iterations=500)
    warm = problem.infer(tolerance=1e-5, start=cold)
    assert cold.converged and warm.converged
    assert warm.iterations <= 3 < cold.iterations
    assert np.allclose(cold.probabilities(), warm.probabilities(), rtol=0, atol=1e-4)


# ---------------------------------------------------------------------- acceleration


@pytest.mark.parametrize("seed", range(4))
def test_acceleration_reaches_the_fixed_point_of_plain_iteration(monkeypatch, seed):
    problem = Ising(12, 0.5, seed, strength=1.0)
    options = {"dtype": np.float64, "tolerance": 1e-10, "max_iterations": 5000, "damping": 0.0}
    fast = problem.infer(**options)
    monkeypatch.setattr(run_module, "MOST_ACCELERATED", 0)
    plain = problem.infer(**options)
    assert fast.converged and plain.converged
    assert fast.iterations < plain.iterations
    assert np.allclose(fast.probabilities(), plain.probabilities(), rtol=0, atol=1e-7)


def test_a_harmful_leap_is_taken_back(monkeypatch):
    """Leaps to a wrong place every time: inference still ends at the right one, if later."""
    problem = Ising(10, 0.5, 0, strength=1.0)
    options = {"tolerance": 1e-6, "max_iterations": 2000, "dtype": np.float64, "damping": 0.0}
    honest = problem.infer(**options)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(Anderson, "_shares", lambda self, count: 3.0 * rng.standard_normal(count))
    misled = problem.infer(**options)
    assert honest.converged and misled.converged
    assert np.allclose(misled.probabilities(), honest.probabilities(), rtol=0, atol=1e-4)


def test_after_a_harmful_leap_messages_are_where_it_left_from():
    given = np.exp(np.random.default_rng(0).normal(size=(4, 3)))
    state = State(
        Flat.of([given / given.max(axis=1, keepdims=True)], np.float64),
        Flat([], np.float64),
        Flat.of([np.array([0.3, 0.5, 0.7, 0.9])], np.float64),
        (),
        (),
        False,
        0.0,
    )
    messages = state.messages[0]
    leaps = Anderson(state.messages, weighted=True, compiled=False)
    leaps.begin()
    for step, residual in enumerate([0.5, 0.4, 0.3, 0.2]):
        messages *= np.array([1.0, 0.9, 0.8 + 0.01 * step])
        before = messages / messages.max(axis=1, keepdims=True)
        leaps.leap(residual)
    assert not np.allclose(messages, before), "a leap was made"
    leaps.leap(0.2 * acceleration.WORSE * 1.01)
    assert np.allclose(messages, before, rtol=1e-12)


# ---------------------------------------------------------------------- nodes that rest


@pytest.mark.parametrize("weighting", ["tree-reweighted", "bethe"])
@pytest.mark.parametrize("damping", ["auto", 0.3])
def test_where_nodes_rest_no_message_changes_by_more_than_the_tolerance(monkeypatch, weighting, damping):
    rng = np.random.default_rng(0)
    place = np.arange(12) / 12
    potential = np.exp(-3.0 * np.abs(place[:, None] - place))
    model = DiscreteModel(
        {"x": Delta()}, {"r": Relation("x", "x", potential=potential)}, levels={"x": np.arange(12)}
    ).fit()
    graph = Graph.grid((60, 60), variable="x", relation="r").soften(
        np.arange(1800), np.arange(12), np.exp(-20.0 * (place - rng.random((1800, 1))) ** 2)
    )
    options = {"weighting": weighting, "damping": damping, "tolerance": 1e-4, "max_iterations": 500}
    sent = model.infer(graph, **options)
    assert sent.converged
    monkeypatch.setattr(engine, "MANY", 0)
    rested = model.infer(graph, **options)
    assert rested.converged
    assert np.allclose(sent.probabilities(), rested.probabilities(), rtol=0, atol=2e-3)
    source = rested._source
    changes = np.zeros(source.wiring.n_messages)
    update_plainly(source.state, source.wiring.phase(np.arange(len(changes))), 0.0, changes)
    assert changes.max() <= options["tolerance"]


# ---------------------------------------------------------------------- automatic damping


def frustrated() -> Graph:
    """A complete graph of strongly repelling nodes: flooded, its ordinary messages swing for ever."""
    edges = np.array(nx.complete_graph(6).edges)
    graph = Graph.from_edges(edges, variables=["x"] * 6, relation="r", readings=np.full(len(edges), -0.9))
    return graph.soften([0, 1], [0, 1], [1.0, 0.8])


def test_automatic_damping_engages_where_ordinary_propagation_oscillates(monkeypatch):
    monkeypatch.setattr(run_module, "MOST_ACCELERATED", 0)  # which would find the way on its own
    with pytest.warns(ConvergenceWarning):
        plain = ising_model().infer(frustrated(), **ORDINARY)
    assert not plain.converged and plain.residuals[-1] > 0.1
    damped = ising_model().infer(frustrated(), **ORDINARY | {"damping": "auto"}, max_iterations=300)
    assert damped.converged
    assert damped._verdict.damping in DAMPING_STEPS[1:]
    assert damped.iterations > PATIENCE


def test_automatic_damping_stays_off_where_nothing_oscillates():
    graph = Graph.from_edges(
        np.array(nx.cycle_graph(6).edges), variables=["x"] * 6, relation="r", readings=np.full(6, 0.2)
    ).soften([0], [0, 1], [1.0, 0.5])
    beliefs = ising_model().infer(graph, tolerance=1e-6)
    assert beliefs.converged and beliefs._verdict.damping == 0


# ---------------------------------------------------------------------- weights of one's own, and what is said


def test_weights_of_ones_own_are_taken():
    problem = Ising(8, 0.6, 1)
    n_edges = len(problem.edges)
    options = {"dtype": np.float64, "tolerance": 1e-10, "max_iterations": 3000}
    ours = problem.infer(**options)
    weights = np.empty(n_edges)
    wiring = ours._source.wiring
    weights[wiring.edge] = ours._source.state.weights[0][wiring.row]
    given = problem.infer(weighting=weights, **options)
    assert np.allclose(given.probabilities(), ours.probabilities(), rtol=0, atol=1e-8)
    ones, bethe = (problem.infer(weighting=w, max_iterations=7) for w in (np.ones(n_edges).tolist(), "bethe"))
    assert np.array_equal(ones.probabilities(), bethe.probabilities())


@pytest.mark.parametrize(
    "bad", [[0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 1.1, 0.5], [0.5, -0.1, 0.5], [0.5, np.nan, 0.5]]
)
def test_weights_that_are_none_are_refused(bad):
    graph = Graph.from_edges(
        np.array([[0, 1], [1, 2], [2, 0]]), variables=["x"] * 3, relation="r", readings=np.ones(3)
    )
    with pytest.raises(
        InputError,
        match=rf"weighting: expected 3 numbers above 0 and at most 1, one for each edge, got shape \({len(bad)},\)",
    ):
        ising_model().infer(graph, weighting=bad)


def test_unknown_weightings_are_refused():
    graph = Graph.from_edges(np.array([[0, 1]]), variables=["x"] * 2, relation="r", readings=[1.0])
    with pytest.raises(
        InputError,
        match="weighting: expected 'tree-reweighted', 'bethe' or a weight for each edge, got 'heavy'",
    ):
        ising_model().infer(graph, weighting="heavy")


def test_embeddings_cannot_be_weighted():
    rng = np.random.default_rng(0)
    values = rng.integers(2, size=200)
    model = Model({"x": Delta()}, {"r": Relation("x", "x", symmetric=True)}).fit(
        {"r": (values, np.where(rng.random(200) < 0.8, values, 1 - values))}
    )
    graph = Graph.grid((3, 3), variable="x", relation="r")
    for weighting in ("tree-reweighted", np.full(12, 0.5)):
        with pytest.raises(
            InputError,
            match="weighting: edges can only be weighted where messages are positive; use conditionals=",
        ):
            model.infer(graph, conditionals="embedding", weighting=weighting)
    assert model.infer(graph, conditionals="embedding", weighting=np.ones(12)).converged


def test_messages_that_do_not_settle_are_said_to(monkeypatch):
    monkeypatch.setattr(run_module, "MOST_ACCELERATED", 0)
    with pytest.warns(
        ConvergenceWarning,
        match=r"Inference stopped after 30 iterations with messages still changing by \S+ \(tolerance 1e-03\)",
    ):
        beliefs = ising_model().infer(frustrated(), **ORDINARY, max_iterations=30)
    assert not beliefs.converged
    assert beliefs.iterations == len(beliefs.residuals) == 30


def test_without_a_tolerance_nothing_is_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beliefs = ising_model().infer(frustrated(), **ORDINARY, max_iterations=5, tolerance=0.0)
    assert beliefs.iterations == 5
