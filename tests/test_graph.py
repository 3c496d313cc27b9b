"""Graphs: who is tied to whom, judged by networkx and by brute force; and every refusal's text."""

from __future__ import annotations

import dataclasses
import itertools
import warnings

import networkx as nx
import numpy as np
import pytest

import kernelbp as kb
from kernelbp import Graph
from kernelbp.errors import InputError
from kernelbp.graph import Fixed, Readings, Softened

NAN = float("nan")


def edge_set(graph: Graph) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in graph.edges.tolist()}


def named_edges(graph: Graph) -> list[tuple[int, int, str]]:
    return [
        (int(a), int(b), graph.relations[r])
        for (a, b), r in zip(graph.edges, graph.edge_relation, strict=True)
    ]


def chessboard_edges(shape: tuple[int, ...]) -> set[frozenset[int]]:
    """All pairs of cells a king's move apart, by trying every pair."""
    cells = list(itertools.product(*map(range, shape)))
    return {
        frozenset((i, j))
        for (i, a), (j, b) in itertools.combinations(enumerate(cells), 2)
        if max(abs(x - y) for x, y in zip(a, b, strict=True)) == 1
    }


def networkx_edges(shape: tuple[int, ...]) -> set[frozenset[int]]:
    # networkx lists the sizes from the last axis to the first
    return {
        frozenset(int(np.ravel_multi_index(np.atleast_1d(end), shape)) for end in edge)
        for edge in nx.grid_graph(dim=shape[::-1]).edges
    }


# ---------------------------------------------------------------------- building


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (1, 1), (4, 5), (5, 1), (1, 6), (3, 4, 2), (1, 1, 4), (2, 2, 2)]
)
def test_grid_edges_equal_those_of_networkx(shape):
    graph = Graph.grid(shape, variable="v", relation="r")
    assert graph.n_nodes == np.prod(shape)
    assert edge_set(graph) == (networkx_edges(shape) if len(shape) > 1 else edge_set_of_path(shape[0]))
    assert len(edge_set(graph)) == graph.n_edges, "every edge once"
    assert graph.shape == shape


def edge_set_of_path(length: int) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in nx.path_graph(length).edges}


@pytest.mark.parametrize(("shape", "neighbors"), [((4, 5), 8), ((1, 5), 8), ((3, 4, 2), 26), ((2, 1, 3), 26)])
def test_grid_with_diagonals_joins_all_cells_a_kings_move_apart(shape, neighbors):
    graph = Graph.grid(shape, variable="v", relation="r", neighbors=neighbors)
    assert edge_set(graph) == chessboard_edges(shape)
    assert len(edge_set(graph)) == graph.n_edges, "every edge once"


@pytest.mark.parametrize(("shape", "neighbors"), [((9, 9), 4), ((9, 9), 8), ((5, 5, 5), 6), ((5, 5, 5), 26)])
def test_an_inner_cell_has_as_many_neighbours_as_asked_for(shape, neighbors):
    graph = Graph.grid(shape, variable="v", relation="r", neighbors=neighbors)
    assert graph.degrees()[np.ravel_multi_index(tuple(s // 2 for s in shape), shape)] == neighbors
    assert graph.degrees().sum() == 2 * graph.n_edges


def test_chain_ties_each_node_to_the_next():
    graph = Graph.chain(5, variable="state", relation="then")
    assert named_edges(graph) == [(i, i + 1, "then") for i in range(4)]
    assert Graph.chain(1, variable="state", relation="then").n_edges == 0


def test_each_direction_has_its_own_relation_and_runs_away_from_the_origin():
    graph = Graph.grid((3, 4), variable="v", relation={"down": "below", "right": "beside"})
    cells = np.arange(12).reshape(3, 4)
    expected = {(int(a), int(b), "below") for a, b in zip(cells[:-1].flat, cells[1:].flat, strict=True)}
    expected |= {
        (int(a), int(b), "beside") for a, b in zip(cells[:, :-1].flat, cells[:, 1:].flat, strict=True)
    }
    assert set(named_edges(graph)) == expected


def test_diagonal_directions_are_named_by_their_parts():
    names = {"down": "d", "right": "r", "down-right": "dr", "down-left": "dl"}
    graph = Graph.grid((3, 3), variable="v", relation=names, neighbors=8)
    steps = {"d": (1, 0), "r": (0, 1), "dr": (1, 1), "dl": (1, -1)}
    for first, second, name in named_edges(graph):
        assert tuple(np.subtract(divmod(second, 3), divmod(first, 3))) == steps[name]


def test_three_axes_are_called_deep_down_right():
    graph = Graph.grid((2, 3, 4), variable="v", relation={"deep": "z", "down": "y", "right": "x"})
    for first, second, name in named_edges(graph):
        step = np.subtract(np.unravel_index(second, (2, 3, 4)), np.unravel_index(first, (2, 3, 4)))
        assert step.tolist() == {"z": [1, 0, 0], "y": [0, 1, 0], "x": [0, 0, 1]}[name]


def test_one_relation_per_row_as_in_the_papers_depth_model():
    rows = [f"row {i}" for i in range(3)]
    graph = Graph.grid((3, 4), variable="v", relation={"down": ["0-1", "1-2"], "right": rows})
    for first, second, name in named_edges(graph):
        row = first // 4
        expected = f"row {row}" if second == first + 1 else f"{row}-{row + 1}"
        assert name == expected


def test_from_edges_keeps_order_orientation_and_names():
    edges = [(2, 0, "a"), (1, 2, "b"), (0, 1, "a")]
    graph = Graph.from_edges(iter(edges), variables=["x", "y", "x"])
    assert named_edges(graph) == edges
    assert [graph.variables[v] for v in graph.node_variable] == ["x", "y", "x"]
    assert graph.nodes_of("x").tolist() == [0, 2]
    assert graph.shape is None


def test_from_edges_takes_an_array_with_one_relation_and_leaves_it_alone():
    array = np.array([[0, 1], [1, 2]], dtype=np.intp)
    graph = Graph.from_edges(array, variables=["x"] * 3, relation="r")
    assert named_edges(graph) == [(0, 1, "r"), (1, 2, "r")]
    array[0] = 2
    assert named_edges(graph)[0] == (0, 1, "r"), "the graph has its own copy"


def test_from_edges_fills_in_the_relation_where_none_is_named():
    graph = Graph.from_edges([(0, 1), (1, 2, "other")], variables=["x"] * 3, relation="r")
    assert named_edges(graph) == [(0, 1, "r"), (1, 2, "other")]


def test_a_graph_without_edges_has_isolated_nodes():
    graph = Graph.from_edges([], variables=["x", "y"])
    assert (graph.n_nodes, graph.n_edges, graph.degrees().tolist()) == (2, 0, [0, 0])


def test_from_networkx_keeps_nodes_names_and_attributes():
    given = nx.DiGraph()
    given.add_node("b", variable="pixel")
    given.add_node("a", variable="label")
    given.add_node(("c", 1))
    given.add_edge("a", "b", relation="shows")
    given.add_edge(("c", 1), "a")
    graph = Graph.from_networkx(given)
    assert graph.names == ("b", "a", ("c", 1))
    assert [graph.variables[v] for v in graph.node_variable] == ["pixel", "label", "variable"]
    assert set(named_edges(graph)) == {(1, 0, "shows"), (2, 1, "relation")}


def test_nodes_of_networkx_are_known_by_their_names():
    given = nx.DiGraph([("oslo", "bergen"), ("bergen", "voss")])
    graph = Graph.from_networkx(given, variable="rain", relation="then")
    assert graph.fix("bergen", 1.0).evidence[0].nodes.tolist() == [1]
    assert graph.observe("read", [2.0, 3.0], nodes=["voss", "oslo"]).evidence[0].nodes.tolist() == [2, 0]
    assert graph.observe("read", [2.0, 3.0], nodes=[2, 0]).evidence[0].nodes.tolist() == [2, 0]
    assert len(graph.observe("read", [1.0, 2.0, 3.0], nodes="rain").evidence[0].nodes) == 3
    with pytest.raises(InputError, match="no node is called 'paris'; the graph has variables rain"):
        graph.fix(["oslo", "paris"], [1.0, 2.0])


@pytest.mark.parametrize(
    "kind",
    [
        kb.Model,
        kb.rivals.DiscreteModel,
        kb.rivals.GaussianModel,
        kb.rivals.GaussianMixtureModel,
        kb.rivals.ParticleModel,
    ],
)
def test_edges_without_a_direction_are_warned_of_where_it_matters(kind):
    x = np.random.default_rng(0).standard_normal(200)
    for symmetric, warned in ((False, True), (True, False)):
        model = kind({"s": kb.kernels.Gaussian()}, {"r": kb.Relation("s", "s", symmetric=symmetric)})
        model.fit({"r": (x, x + 3.0)})
        for given, may_warn in ((nx.path_graph(2), warned), (nx.DiGraph([(0, 1)]), False)):
            graph = Graph.from_networkx(given, variable="s", relation="r").fix(0, 0.0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.infer(graph)
            said = [(str(w.message)[:23], w.filename) for w in caught if w.category is UserWarning]
            assert said == [("graph: edges of 'r' com", __file__)] * may_warn


def test_an_image_is_observed_on_the_grid_of_its_pixels():
    image = np.arange(6.0).reshape(2, 3)
    graph = Graph.grid((2, 3), variable="pixel", relation="beside")
    np.testing.assert_array_equal(
        graph.observe("read as", image).evidence[0].values,
        graph.observe("read as", image.ravel()).evidence[0].values,
    )
    with pytest.raises(InputError, match="expected one reading for each of the 6 nodes, got 3"):
        graph.observe("read as", image.T)


@pytest.mark.parametrize("seed", range(3))
def test_from_networkx_has_the_same_edges_and_degrees(seed):
    given = nx.gnp_random_graph(40, 0.1, seed=seed)
    graph = Graph.from_networkx(given, variable="x", relation="r")
    assert edge_set(graph) == {frozenset(edge) for edge in given.edges}
    assert graph.degrees().tolist() == [d for _, d in given.degree]


def test_graphs_are_told_in_a_line():
    graph = Graph.from_edges([], variables=["x"])
    assert repr(graph) == "Graph(1 nodes, 0 edges, variables: x, relations: none)"
    assert repr(graph.fix([0], [1.0])).endswith("1 kinds of evidence)")


# ---------------------------------------------------------------------- immutability


def test_a_graph_cannot_be_changed():
    graph = Graph.grid((2, 2), variable="v", relation="r")
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.variables = ("w",)  # type: ignore[misc]
    for array in (graph.edges, graph.edge_relation, graph.node_variable):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_evidence_makes_a_new_graph_that_shares_the_arrays():
    graph = Graph.chain(3, variable="v", relation="r")
    more = graph.observe("seen", [1.0, 2.0, 3.0]).fix([0], [1.0]).soften([1], [0.0, 1.0], [1.0, 2.0])
    assert graph.evidence == ()
    assert [type(said) for said in more.evidence] == [Readings, Fixed, Softened]
    assert more.edges is graph.edges


def test_evidence_is_not_changed_through_the_callers_arrays():
    readings, values, points, likelihood = (
        np.ones(3),
        np.ones(1),
        np.array([0.0, 1.0]),
        np.array([[1.0, 2.0]]),
    )
    nodes = np.array([0])
    graph = Graph.chain(3, variable="v", relation="r").observe("seen", readings)
    graph = graph.fix(nodes, values).soften([1], points, likelihood)
    for mine in (readings, values, points, likelihood, nodes):
        mine[...] = 2
    seen, fixed, soft = graph.evidence
    assert seen.values.ravel().tolist() == [1.0, 1.0, 1.0]
    assert (fixed.nodes.tolist(), fixed.values.ravel().tolist()) == ([0], [1.0])
    assert (soft.points.ravel().tolist(), soft.likelihood.tolist()) == ([0.0, 1.0], [[1.0, 2.0]])


# ---------------------------------------------------------------------- evidence


@pytest.mark.parametrize(
    ("values", "observed"),
    [
        ([1.0, NAN, 3.0], [0, 2]),
        ([[1.0, 2.0], [NAN, NAN], [3.0, 4.0]], [0, 2]),
        (["a", None, "b"], [0, 2]),
        ([NAN, NAN, NAN], []),
        ([1, 2, 3], [0, 1, 2]),
    ],
)
def test_nan_and_none_mean_not_observed(values, observed):
    graph = Graph.chain(3, variable="v", relation="r").observe("seen", values)
    assert graph.evidence[0].nodes.tolist() == observed
    assert len(graph.evidence[0].values) == len(observed)


def test_nodes_are_named_by_numbers_a_mask_or_a_variable():
    graph = Graph.from_edges([(0, 1, "r")], variables=["x", "y", "x"])
    for nodes in ([0, 2], np.array([True, False, True]), "x"):
        assert graph.observe("seen", [1.0, 2.0], nodes=nodes).evidence[0].nodes.tolist() == [0, 2]
    assert graph.fix(2, [1.0]).evidence[0].nodes.tolist() == [2]
    assert graph.observe("seen", [], nodes=[]).evidence[0].nodes.tolist() == []


def test_a_likelihood_for_all_nodes_alike_is_repeated():
    graph = Graph.chain(3, variable="v", relation="r").soften([0, 2], [0.0, 1.0], [1.0, 3.0])
    assert graph.evidence[0].likelihood.tolist() == [[1.0, 3.0], [1.0, 3.0]]


# ---------------------------------------------------------------------- refusals

CHAIN = Graph.chain(3, variable="v", relation="r")
MIXED = Graph.from_edges([(0, 1, "r")], variables=["x", "y"])


def grid(shape=(2, 2), variable="v", relation="r", **more):
    return Graph.grid(shape, variable=variable, relation=relation, **more)


REFUSALS = {
    "neighbors of a plane": (
        lambda: grid(neighbors=6),
        "neighbors: a grid of 2 axes takes 4 or 8, got 6",
    ),
    "neighbors of a volume": (
        lambda: grid((2, 2, 2), neighbors=8),
        "neighbors: a grid of 3 axes takes 6 or 26, got 8",
    ),
    "a shape that is a word": (
        lambda: grid("ab"),
        "shape: expected sizes such as (100, 100), got 'ab'",
    ),
    "a shape that is a number": (lambda: grid(5), "shape: expected sizes such as (100, 100), got 5"),
    "four axes": (
        lambda: grid((2, 2, 2, 2)),
        "shape: expected one to three sizes of at least 1, got (2, 2, 2, 2)",
    ),
    "an empty axis": (lambda: grid((0, 3)), "shape: expected one to three sizes of at least 1, got (0, 3)"),
    "an empty chain": (
        lambda: Graph.chain(0, variable="v", relation="r"),
        "shape: expected one to three sizes of at least 1, got (0,)",
    ),
    "a direction left out": (
        lambda: grid(relation={"down": "below"}),
        "relation: no relation given for the direction 'right'; got down",
    ),
    "a direction too many": (
        lambda: grid(relation={"down": "a", "right": "b", "deep": "c"}),
        "relation: no direction 'deep' in this grid; it has down, right",
    ),
    "too few rows": (
        lambda: grid((3, 2), relation={"down": "a", "right": ["b", "c"]}),
        "relation['right']: expected 3 names, one per row, got 2",
    ),
    "a variable that is no name": (
        lambda: grid(variable=3),
        "variable: expected a name (non-empty text), got 3",
    ),
    "an empty name": (lambda: grid(variable=""), "variable: expected a name (non-empty text), got ''"),
    "one name for all nodes": (
        lambda: Graph.from_edges([], variables="pixel"),
        "variables: expected one name per node, got 'pixel'",
    ),
    "a node without a name": (
        lambda: Graph.from_edges([], variables=["pixel", None]),
        "variables: expected a name (non-empty text), got None",
    ),
    "an array without relation": (
        lambda: Graph.from_edges(np.array([[0, 1]]), variables=["x"] * 2),
        "relation: an array of edges needs relation='...'",
    ),
    "an array of triples": (
        lambda: Graph.from_edges(np.array([[0, 1, 2]]), variables=["x"] * 3, relation="r"),
        "edges: expected an (edges, 2) array of node numbers, got int64 (1, 3)",
    ),
    "an array of fractions": (
        lambda: Graph.from_edges(np.array([[0.0, 1.0]]), variables=["x"] * 2, relation="r"),
        "edges: expected an (edges, 2) array of node numbers, got float64 (1, 2)",
    ),
    "an edge without relation": (
        lambda: Graph.from_edges([(0, 1, "r"), (0, 1)], variables=["x"] * 2),
        "edges: edge 1 should be (first, second, relation name), got (0, 1)",
    ),
    "an edge to a missing node": (
        lambda: Graph.from_edges([(0, 1, "r"), (1, 5, "r")], variables=["x"] * 3),
        "edges: edge 1 is (1, 5), but the nodes are 0 ... 2 (variables names 3 of them)",
    ),
    "an edge to a negative node": (
        lambda: Graph.from_edges([(0, -1, "r")], variables=["x"] * 3),
        "edges: edge 0 is (0, -1), but the nodes are 0 ... 2",
    ),
    "a loop": (
        lambda: Graph.from_edges([(1, 1, "r")], variables=["x"] * 3),
        "edges: edge 0 ties node 1 to itself",
    ),
    "a reading too few": (
        lambda: CHAIN.observe("seen", [1.0, 2.0]),
        "values: expected one reading for each of the 3 nodes, got 2; give NaN (or None) where nothing was observed, "
        "or name the nodes with nodes=",
    ),
    "readings in one number": (
        lambda: CHAIN.observe("seen", 1.0),
        "values: expected an array or a sequence of values, got float",
    ),
    "readings in one text": (
        lambda: CHAIN.observe("seen", "abc"),
        "values: expected an array or a sequence of values, got str",
    ),
    "an infinite reading": (
        lambda: CHAIN.observe("seen", [1.0, np.inf, 2.0]),
        "values: value 1 is infinite; give NaN for 'not observed'",
    ),
    "half a vector": (
        lambda: CHAIN.observe("seen", [[1.0, 1.0], [1.0, NAN], [0.0, 0.0]]),
        "values: vector 1 has some entries missing; give NaN in all of them (not observed) or in none",
    ),
    "complex readings": (
        lambda: CHAIN.observe("seen", np.array([1j, 2, 3])),
        "values: complex numbers are not supported; give real and imaginary parts as a vector",
    ),
    "readings of four axes": (
        lambda: CHAIN.observe("seen", np.zeros((3, 2, 2, 2))),
        "values: expected one axis (n numbers) or two (n vectors), got shape (3, 2, 2, 2)",
    ),
    "vectors of nothing": (
        lambda: CHAIN.observe("seen", np.zeros((3, 0))),
        "values: vectors have no entries, shape (3, 0)",
    ),
    "a table of words": (
        lambda: CHAIN.observe("seen", np.array([["a", "b"]] * 3)),
        "values: objects must come as a one-dimensional array, got shape (3, 2)",
    ),
    "a relation without name": (
        lambda: CHAIN.observe(None, [1.0, 2.0, 3.0]),
        "relation: expected a name (non-empty text), got None",
    ),
    "a node out of range": (
        lambda: CHAIN.observe("seen", [1.0, 2.0], nodes=[0, 3]),
        "nodes: numbers must lie in 0 ... 2, got 0 ... 3",
    ),
    "nodes that are fractions": (
        lambda: CHAIN.fix([0.5], [1.0]),
        "nodes: expected node numbers, a mask of all nodes or a variable's name, got [0.5]",
    ),
    "a mask of another length": (
        lambda: CHAIN.fix([True, False], [1.0]),
        "nodes: expected node numbers, a mask of all nodes or a variable's name, got [True, False]",
    ),
    "nodes of no variable": (lambda: CHAIN.fix("w", [1.0]), "variable: no node of 'w'; this graph has v"),
    "a fixed value too many": (
        lambda: CHAIN.fix([0], [1.0, 2.0]),
        "values: expected one value for each of the 1 nodes, got 2",
    ),
    "a missing fixed value": (lambda: CHAIN.fix([0], [NAN]), "values: value 0 is NaN or infinite (nan)"),
    "a missing fixed object": (lambda: CHAIN.fix([0, 1], ["a", None]), "values: value 1 is missing (None)"),
    "a node fixed twice": (lambda: CHAIN.fix([1, 1], [1.0, 1.0]), "nodes: a node is named twice"),
    "fixing two variables": (
        lambda: MIXED.fix([0, 1], [1.0, 1.0]),
        "nodes: all must be of one variable, got x, y; call once for each variable",
    ),
    "softening two variables": (
        lambda: MIXED.soften([0, 1], [1.0, 2.0], [1.0, 1.0]),
        "nodes: all must be of one variable, got x, y; call once for each variable",
    ),
    "a likelihood of another shape": (
        lambda: CHAIN.soften([0, 1], [1.0, 2.0], np.ones((2, 3))),
        "likelihood: expected shape (2,) or (2, 2), got (2, 3)",
    ),
    "a negative likelihood": (
        lambda: CHAIN.soften([0], [1.0, 2.0], [1.0, -1.0]),
        "likelihood: expected finite numbers of at least 0",
    ),
    "a likelihood that is not a number": (
        lambda: CHAIN.soften([0], [1.0, 2.0], [1.0, NAN]),
        "likelihood: expected finite numbers of at least 0",
    ),
    "an impossible likelihood": (
        lambda: CHAIN.soften([0, 2], [1.0, 2.0], [[1.0, 1.0], [0.0, 0.0]]),
        "likelihood: all zero at node 2; no value would be possible there",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_graphs_and_evidence_are_refused_with_the_argument_the_given_and_the_expected(case):
    make, text = REFUSALS[case]
    with pytest.raises(InputError) as refusal:
        make()
    assert text in str(refusal.value)
