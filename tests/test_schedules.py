"""Schedules: each is an order of the same messages, and all lead to the same beliefs."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from kernelbp import Graph, Model, Relation
from kernelbp.errors import InputError
from kernelbp.inference.schedules import _colouring, make_plan
from kernelbp.inference.wiring import Phase, Wiring, wire
from kernelbp.kernels import Delta

ORDINARY = {"conditionals": "embedding", "weighting": "bethe", "dtype": np.float64}
NONE_FIXED = np.empty(0, dtype=np.intp)
SAME = {"r": Relation("x", "x", symmetric=True)}


def random_graph(seed: int) -> Graph:
    """A random graph of two variables and three relations, with isolated nodes and several parts."""
    rng = np.random.default_rng(seed)
    variables = rng.choice(["x", "y"], 60).tolist()
    edges = []
    for a, b in nx.gnp_random_graph(60, 0.05, seed=seed).edges:
        pair = variables[a] + variables[b]
        edges.append((a, b, {"xx": "r", "yy": "s"}.get(pair, "t")))
    return Graph.from_edges(edges, variables=variables)


MANY = {"r": SAME["r"], "s": Relation("y", "y"), "t": Relation("x", "y")}

GRAPHS = {
    "chain": (Graph.chain(7, variable="x", relation="r"), SAME),
    "plane": (Graph.grid((4, 5), variable="x", relation="r"), SAME),
    "plane with diagonals": (Graph.grid((4, 5), variable="x", relation="r", neighbors=8), SAME),
    "volume": (Graph.grid((3, 2, 4), variable="x", relation="r"), SAME),
    "volume with diagonals": (Graph.grid((3, 2, 4), variable="x", relation="r", neighbors=26), SAME),
    "tree": (Graph.from_networkx(nx.random_labeled_tree(30, seed=1), variable="x", relation="r"), SAME),
    "two variables": (random_graph(0), MANY),
    "two edges between two nodes": (
        Graph.from_edges([(0, 1, "r"), (0, 1, "r"), (1, 0, "r")], variables=["x"] * 2),
        SAME,
    ),
    "no edges": (Graph.from_edges([], variables=["x"] * 3), SAME),
}


TREES = {"chain", "tree", "no edges"}


def phases_of(graph: Graph, wiring: Wiring, schedule: str, *, complete: bool = True) -> list[Phase]:
    """The phases of one iteration, in which every message changes by a random amount."""
    rng, changes, phases = np.random.default_rng(0), np.zeros(wiring.n_messages), []
    plan = make_plan(schedule, wiring, graph.n_nodes, graph.shape)
    for group in plan.iteration(changes, complete=complete):
        for phase in group:
            changes[phase.messages] = rng.random(len(phase.messages))
            phases.append(phase)
    return phases


def sent(phase: Phase) -> list[tuple[int, int]]:
    """The messages a phase writes, as (variable of the receiver, row)."""
    return [(send.target_variable, int(row)) for send in phase.sends for row in send.rows]


def ends(graph: Graph, wiring: Wiring) -> dict[tuple[int, int], tuple[int, int]]:
    """(sending node, receiving node) of every message."""
    return {
        (int(wiring.target_variable[i]), int(wiring.row[i])): (
            int(wiring.nodes[wiring.source_variable[i]][wiring.source[i]]),
            int(wiring.nodes[wiring.target_variable[i]][wiring.target[i]]),
        )
        for i in range(wiring.n_messages)
    }


# ---------------------------------------------------------------------- the wiring


@pytest.mark.parametrize("name", GRAPHS)
def test_wiring_has_both_messages_of_every_edge_through_the_right_operator(name):
    graph, relations = GRAPHS[name]
    wiring = wire(graph, relations, NONE_FIXED)
    expected = Counter()
    for (a, b), kind in zip(graph.edges.tolist(), graph.edge_relation, strict=True):
        expected[a, b, graph.relations[kind]] += 1
        expected[b, a, graph.relations[kind]] += 1
    places = ends(graph, wiring)
    assert len(places) == wiring.n_messages, "every message has a row of its own"
    found = Counter()
    for i in range(wiring.n_messages):
        source, target = places[int(wiring.target_variable[i]), int(wiring.row[i])]
        relation, toward = wiring.operators[wiring.operator[i]]
        found[source, target, relation] += 1
        receiver = (relations[relation].first, relations[relation].second)[toward]
        assert receiver == graph.variables[graph.node_variable[target]]
        if relation == "s":  # both ends are of one variable: only the order of the edge tells them apart
            assert toward == (0 if (target, source) in map(tuple, graph.edges.tolist()) else 1)
        back = int(wiring.reverse[i])
        assert wiring.edge[back] == wiring.edge[i]
        assert places[int(wiring.target_variable[back]), int(wiring.row[back])] == (target, source)
        start = wiring.start[wiring.target_variable[i]]
        assert start[wiring.target[i]] <= wiring.row[i] < start[wiring.target[i] + 1]
    assert found == expected


def test_edges_at_fixed_nodes_carry_no_messages():
    graph = Graph.grid((3, 3), variable="x", relation="r")
    wiring = wire(graph, SAME, np.array([4]))
    assert wiring.n_messages == 2 * (graph.n_edges - 4)
    assert not any(4 in pair for pair in ends(graph, wiring).values())


# ---------------------------------------------------------------------- the orders


@pytest.mark.parametrize("schedule", ["auto", "flooding", "sweep", "tree"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_message_is_updated_exactly_once_in_an_iteration(name, schedule):
    graph, relations = GRAPHS[name]
    wiring = wire(graph, relations, NONE_FIXED)
    if schedule == "tree" and name not in TREES:
        with pytest.raises(
            InputError, match="schedule: 'tree' needs a graph without cycles; use 'auto' or 'sweep'"
        ):
            phases_of(graph, wiring, schedule)
        return
    counted = Counter(message for phase in phases_of(graph, wiring, schedule) for message in sent(phase))
    assert set(counted) == set(ends(graph, wiring))
    assert set(counted.values()) <= {1}


@pytest.mark.parametrize("schedule", ["residual", "splash"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_complete_dynamic_iteration_leaves_no_message_out(name, schedule):
    graph, relations = GRAPHS[name]
    if not graph.n_edges:
        return
    wiring = wire(graph, relations, NONE_FIXED)
    counted = Counter(message for phase in phases_of(graph, wiring, schedule) for message in sent(phase))
    assert set(counted) == set(ends(graph, wiring))


@pytest.mark.parametrize("schedule", ["residual", "splash"])
@pytest.mark.parametrize("name", [*GRAPHS])
def test_a_dynamic_iteration_is_about_as_many_updates_as_there_are_messages(name, schedule):
    graph, relations = GRAPHS[name]
    if not graph.n_edges:
        return
    wiring = wire(graph, relations, NONE_FIXED)
    updates = sum(len(sent(phase)) for phase in phases_of(graph, wiring, schedule, complete=False))
    assert 0.9 * wiring.n_messages <= updates <= 3 * wiring.n_messages + 8


@pytest.mark.parametrize("schedule", ["residual", "splash"])
def test_dynamic_schedules_end_where_little_is_left_to_do(schedule):
    """One edge among isolated and fixed nodes: nothing a message changes is ever out of date."""
    graph = Graph.from_edges([(3, 4, "r"), (1, 3, "r")], variables=["x"] * 6).fix([1], [2])
    graph = graph.observe("seen", [0], nodes=[4])
    beliefs = weakly_coupled_model(0.5).infer(
        graph, schedule=schedule, tolerance=1e-12, damping=0.0, **ORDINARY
    )
    assert beliefs.converged


@pytest.mark.parametrize("name", GRAPHS)
def test_a_phase_gathers_all_that_arrives_at_its_senders(name):
    graph, relations = GRAPHS[name]
    wiring = wire(graph, relations, NONE_FIXED)
    places = ends(graph, wiring)
    arriving = {}
    for message, (_, target) in places.items():
        arriving.setdefault(target, set()).add(message)
    for phase in phases_of(graph, wiring, "sweep"):
        for send in phase.sends:
            gather = phase.gathers[send.gather]
            stops = np.append(gather.offsets[1:], len(gather.rows))
            for source, own, row in zip(send.source, send.own, send.rows, strict=True):
                node, receiver = places[send.target_variable, int(row)]
                rows = gather.rows[gather.offsets[source] : stops[source]]
                assert {(gather.variable, int(r)) for r in rows} == arriving[node]
                assert places[gather.variable, int(own)] == (receiver, node), "what is left out"


def graphs_to_colour():
    yield "scale-free", nx.barabasi_albert_graph(2000, 3, seed=0)
    yield "star", nx.star_graph(450)
    yield "complete", nx.complete_graph(12)
    yield "bipartite", nx.complete_bipartite_graph(15, 25)
    yield "ring", nx.cycle_graph(101)
    for seed in range(5):
        yield f"random {seed}", nx.gnp_random_graph(200, 0.05, seed=seed)


@pytest.mark.parametrize("given", [pytest.param(graph, id=name) for name, graph in graphs_to_colour()])
def test_no_two_neighbours_share_a_colour(given):
    edges = np.array(given.edges)
    source, target = np.concatenate([edges, edges[:, ::-1]]).T
    colours = _colouring(len(given), source, target)
    assert (colours >= 0).all()
    assert (colours[source] != colours[target]).all()
    degree = max(d for _, d in given.degree)
    assert set(colours) == set(range(colours.max() + 1)), "no colour is skipped"
    assert colours.max() <= degree, "at most one colour more than the largest degree, as greedy colouring has"


def test_a_star_has_two_colours_and_a_scale_free_graph_few():
    graph = Graph.from_networkx(nx.star_graph(450), variable="x", relation="r")
    assert len(phases_of(graph, wire(graph, SAME, NONE_FIXED), "sweep")) == 2
    graph = Graph.from_networkx(nx.barabasi_albert_graph(2000, 3, seed=0), variable="x", relation="r")
    assert len(phases_of(graph, wire(graph, SAME, NONE_FIXED), "sweep")) <= 12


def test_colour_phases_send_from_nodes_without_mutual_edges():
    graph, relations = GRAPHS["two variables"]
    wiring = wire(graph, relations, NONE_FIXED)
    places = ends(graph, wiring)
    for phase in phases_of(graph, wiring, "sweep"):
        senders = {places[message][0] for message in sent(phase)}
        assert not any(set(edge) <= senders for edge in graph.edges.tolist())


def test_a_grid_is_swept_along_each_axis_there_and_back():
    graph = Graph.grid((3, 4), variable="x", relation="r")
    wiring = wire(graph, SAME, NONE_FIXED)
    places = ends(graph, wiring)
    order = []
    for phase in phases_of(graph, wiring, "sweep"):
        moves = [tuple(np.subtract(divmod(b, 4), divmod(a, 4))) for a, b in map(places.get, sent(phase))]
        froms = [divmod(places[message][0], 4) for message in sent(phase)]
        step = moves[0]
        assert set(moves) == {step}, "one direction at a time"
        axis = 0 if step[0] else 1
        assert len({place[axis] for place in froms}) == 1, "one slice at a time"
        assert len(froms) == (4, 3)[axis], "the whole slice"
        order.append((step, froms[0][axis]))
    down, up, right, left = (1, 0), (-1, 0), (0, 1), (0, -1)
    assert order == [(down, 0), (down, 1), (up, 2), (up, 1)] + [
        (right, 0), (right, 1), (right, 2), (left, 3), (left, 2), (left, 1)
    ]  # fmt: skip


def test_a_grid_left_to_itself_has_the_colours_of_a_chessboard():
    graph = Graph.grid((3, 4), variable="x", relation="r")
    wiring = wire(graph, SAME, NONE_FIXED)
    places = ends(graph, wiring)
    colours = [
        {sum(divmod(places[message][0], 4)) % 2 for message in sent(phase)}
        for phase in phases_of(graph, wiring, "auto")
    ]
    assert colours == [{0}, {1}]


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("plane", "auto"), ("plane", "sweep"), ("volume with diagonals", "auto"), ("tree", "tree")],
)
def test_phases_of_a_fixed_order_read_nothing_they_write(name, schedule):
    graph, relations = GRAPHS[name]
    wiring = wire(graph, relations, NONE_FIXED)
    assert all(phase.independent for phase in phases_of(graph, wiring, schedule))
    assert not any(phase.independent for phase in phases_of(graph, wiring, "flooding"))


@pytest.mark.parametrize("seed", range(5))
def test_in_a_tree_every_message_waits_for_those_it_is_made_of(seed):
    given = nx.disjoint_union(nx.random_labeled_tree(40, seed=seed), nx.random_labeled_tree(11, seed=seed))
    given.add_node(999)
    graph = Graph.from_networkx(given, variable="x", relation="r")
    wiring = wire(graph, SAME, NONE_FIXED)
    places = ends(graph, wiring)
    done: set[tuple[int, int]] = set()
    for phase in phases_of(graph, wiring, "tree"):
        now = [places[message] for message in sent(phase)]
        for source, target in now:
            needed = {(b, a) for a, b in places.values() if a == source and b != target}
            assert needed <= done
        done.update(now)


@pytest.mark.parametrize("seed", range(10))
def test_forests_are_recognised_as_networkx_does(seed):
    given = nx.gnp_random_graph(30, 0.035, seed=seed)
    graph = Graph.from_networkx(given, variable="x", relation="r")
    assert wire(graph, SAME, NONE_FIXED).is_forest == nx.is_forest(given)


def test_two_edges_between_two_nodes_are_a_cycle():
    graph = Graph.from_edges([(0, 1, "r"), (0, 1, "r")], variables=["x"] * 2)
    assert not wire(graph, SAME, NONE_FIXED).is_forest


# ---------------------------------------------------------------------- where they lead


def weakly_coupled_model(strength: float) -> Model:
    rng = np.random.default_rng(0)
    values = rng.integers(3, size=2000)
    others = np.where(rng.random(2000) < strength, values, rng.integers(3, size=2000))
    seen = np.where(rng.random(2000) < 0.6, values, rng.integers(3, size=2000))
    relations = {"r": SAME["r"], "seen": Relation("x", "y")}
    model = Model({"x": Delta(), "y": Delta()}, relations, regularization=0.0)
    return model.fit({"r": (values, others), "seen": (values, seen)})


@pytest.mark.parametrize("name", ["chain", "tree"])
def test_all_schedules_reach_the_same_beliefs_on_trees(name):
    graph = GRAPHS[name][0]
    graph = graph.observe("seen", np.random.default_rng(1).integers(3, size=graph.n_nodes))
    model = weakly_coupled_model(0.8)
    found = {
        schedule: model.infer(graph, schedule=schedule, tolerance=1e-13, max_iterations=200, **ORDINARY)
        for schedule in ("auto", "flooding", "sweep", "residual", "splash", "tree")
    }
    assert all(beliefs.converged for beliefs in found.values())
    assert found["tree"].iterations == found["auto"].iterations == 1
    for beliefs in found.values():
        assert np.allclose(beliefs.probabilities(), found["tree"].probabilities(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["plane", "plane with diagonals", "volume"])
@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_all_schedules_reach_the_same_fixed_point_on_a_weakly_coupled_loopy_graph(name, damping):
    graph = GRAPHS[name][0]
    graph = graph.observe("seen", np.random.default_rng(2).integers(3, size=graph.n_nodes))
    model = weakly_coupled_model(0.2)
    found = [
        model.infer(
            graph, schedule=schedule, tolerance=1e-12, max_iterations=300, damping=damping, **ORDINARY
        )
        for schedule in ("auto", "flooding", "sweep", "residual", "splash")
    ]
    for beliefs in found:
        assert beliefs.converged
        assert np.allclose(beliefs.probabilities(), found[0].probabilities(), rtol=0, atol=1e-9)


def test_a_sweep_carries_evidence_further_than_flooding_in_one_iteration():
    graph = Graph.chain(30, variable="x", relation="r").observe("seen", [2], nodes=[0])
    model = weakly_coupled_model(0.8)
    one = {"max_iterations": 1, "tolerance": 0.0, "damping": 0.0, **ORDINARY}
    prior = model.infer(Graph.from_edges([], variables=["x"]), **ORDINARY).probabilities()[0]
    swept = model.infer(graph, schedule="sweep", **one).probabilities()
    flooded = model.infer(graph, schedule="flooding", **one).probabilities()
    assert abs(swept[9] - prior).max() > 1e-3
    assert abs(flooded[2:] - prior).max() < 1e-12
