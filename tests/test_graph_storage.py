"""networkx graphs in model files: they come back equal, and nothing else gets in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from networkx.utils import graphs_equal

import kernelbp as kb
from kernelbp.errors import ModelFileError, UnsupportedError
from kernelbp.kernels import ShortestPath, WeisfeilerLehman
from kernelbp.storage.reading import Reader
from kernelbp.storage.writing import Writer


def molecules() -> list[nx.Graph]:
    """Labelled graphs of several shapes, with attributes of all kinds."""
    made = [nx.path_graph(4), nx.cycle_graph(["x", ("y", 1), 2.5, b"z"]), nx.star_graph(3), nx.empty_graph(2)]
    made.append(nx.gnp_random_graph(8, 0.4, seed=1))
    for number, graph in enumerate(made):
        nx.set_node_attributes(graph, {node: "COH"[i % 3] for i, node in enumerate(graph)}, "label")
        nx.set_edge_attributes(graph, {edge: 0.5 + i for i, edge in enumerate(graph.edges)}, "weight")
        graph.graph["name"] = f"molecule {number}"
    made[0].nodes[0]["place"] = np.array([1.0, -2.5])
    made[0].edges[0, 1]["label"] = ("double", frozenset({1, 2}))
    made[2].add_edge(1, 1)
    return made


CHAIN = kb.Graph.chain(4, variable="x", relation="then")


def fitted(kernel: Any, graphs: list[nx.Graph]) -> kb.Model:
    random = np.random.default_rng(0)
    here, there = ([graphs[i] for i in random.integers(len(graphs), size=40)] for _ in range(2))
    return kb.Model({"x": kernel}, {"then": kb.Relation("x", "x")}).fit({"then": (here, there)})


def written(value: Any) -> Any:
    return json.loads(json.dumps(Writer(frozenset())._value(value, "place", "x", 0)))


def read(node: Any) -> Any:
    return Reader([], [], {})._value(node, 0)


@pytest.mark.parametrize(
    "kernel", [WeisfeilerLehman(2), ShortestPath(), WeisfeilerLehman(1, "label") * ShortestPath()]
)
def test_a_model_of_networkx_graphs_comes_back_with_its_beliefs(kernel: Any, tmp_path: Path) -> None:
    graphs = molecules()
    model = fitted(kernel, graphs)
    model.save(tmp_path / "m.kbp")
    loaded = kb.Model.load(tmp_path / "m.kbp")
    evidence = CHAIN.fix([0], graphs[2:3])
    beliefs, again = model.infer(evidence), loaded.infer(evidence)
    np.testing.assert_array_equal(beliefs.probabilities(), again.probabilities())
    for mine, theirs in zip(beliefs.atoms, again.atoms, strict=True):
        assert type(theirs) is nx.Graph
        np.testing.assert_array_equal(kernel([theirs], graphs), kernel([mine], graphs))
    loaded.save(tmp_path / "again.kbp")
    assert (tmp_path / "again.kbp").read_bytes() == (tmp_path / "m.kbp").read_bytes()


@pytest.mark.parametrize("number", range(5))
def test_nodes_edges_and_attributes_come_back(number: int) -> None:
    graph = molecules()[number]
    again = read(written(graph))
    place = graph.nodes[0].pop("place", None) if number == 0 else None
    if place is not None:
        np.testing.assert_array_equal(again.nodes[0].pop("place"), place)
    assert graphs_equal(graph, again)
    assert list(graph) == list(again) and graph.graph == again.graph
    assert [type(node) for node in graph] == [type(node) for node in again]


def test_equal_graphs_make_equal_text_whatever_the_order_of_their_edges() -> None:
    forth, back = nx.Graph(), nx.Graph()
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    for graph, order in ((forth, edges), (back, edges[::-1])):
        graph.add_nodes_from(range(4))
        graph.add_edges_from(order)
    assert json.dumps(written(forth)) == json.dumps(written(back))


def test_a_graph_within_a_value_and_a_view_of_one_are_stored() -> None:
    graph = molecules()[4]
    first, second = read(written(("pair", graph.subgraph([0, 1, 2]))))
    assert first == "pair" and graphs_equal(second, graph.subgraph([0, 1, 2]))


def with_attribute(of: str, name: Any, value: Any) -> nx.Graph:
    graph = nx.path_graph(2)
    holder = {"node": graph.nodes[0], "edge": graph.edges[0, 1], "graph": graph.graph}[of]
    holder[name] = value
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.DiGraph([(0, 1)]), "a value of type DiGraph is not stored; .* make it a networkx.Graph"),
        (nx.MultiGraph([(0, 1)]), "a value of type MultiGraph is not stored; .* make it a networkx.Graph"),
        (type("Own", (nx.Graph,), {})([(0, 1)]), "a value of type Own is not stored"),
        (nx.path_graph([nx.Graph, 1]), r"a node \(variable 'x'\): a value of type type is not stored"),
        (with_attribute("node", "label", ["C"]), "attribute 'label' of node 0 .*type list is not stored"),
        (with_attribute("edge", "bond", {1}), r"attribute 'bond' of edge \(0, 1\) .*type set is not stored"),
        (with_attribute("graph", "maker", len), "attribute 'maker' of the graph .*builtin_function"),
        (with_attribute("node", 7, "C"), "the name of an attribute of node 0 .*name it by text"),
    ],
)
def test_what_cannot_be_stored_is_named(graph: nx.Graph, message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^place.*{message}"):
        written(graph)


def test_labels_that_cannot_be_hashed_are_refused_in_learning() -> None:
    unhashable = [nx.empty_graph(1) for _ in range(3)]
    for graph in unhashable:
        graph.nodes[0]["label"] = ["C"]
    with pytest.raises(
        kb.errors.InputError, match=r"pairs\['then'\]\[0\]: expected hashable labels of nodes"
    ):
        fitted(WeisfeilerLehman(), [nx.empty_graph(0), *unhashable])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": None}, "where a list belongs"),
        ({"extra": 1}, "graph without its parts"),
        ({"nodes": [[0, []], [0, []]]}, "the node 0 twice"),
        ({"nodes": [[None, []]]}, "node of another kind"),
        ({"nodes": [[{"float": "nan"}, []]]}, "node of another kind"),
        ({"nodes": [[{"dict": []}, []]]}, "node of another kind"),
        ({"nodes": [0]}, "node is not a pair"),
        ({"edges": [[0, 9, []]]}, "whole number from 0 to 2"),
        ({"edges": [[0, -1, []]]}, "whole number from 0 to 2"),
        ({"edges": [[0, 1.0, []]]}, "whole number from 0 to 2"),
        ({"edges": [[0, 1, []], [1, 0, []]]}, "an edge twice"),
        ({"edges": [[0, 1]]}, "edge is not two places and more"),
        ({"edges": [[0, 1, [[1, 2]]]]}, "attributes that are not names"),
        ({"attributes": [["a", 1], ["a", 2]]}, "attributes that are not names"),
        ({"attributes": [["a", {"record": ["Kind", {}]}]]}, "value of unknown kind 'record'"),
        ({"attributes": [["a", {"array": 0}]]}, "value of unknown kind 'array'"),
    ],
)
def test_a_graph_that_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    node = written(nx.path_graph(3))
    with pytest.raises(ModelFileError, match=message):
        read({"graph": {**node["graph"], **change}})


def test_an_attribute_of_a_graph_cannot_reach_the_constructor() -> None:
    node = written(nx.path_graph(3))
    node["graph"]["attributes"] = [["incoming_graph_data", {"tuple": [1, 2]}]]
    again = read(node)
    assert len(again) == 3 and again.graph == {"incoming_graph_data": (1, 2)}


def test_a_graph_nested_too_deep_is_refused() -> None:
    deep: Any = {"graph": {"nodes": [], "edges": [], "attributes": []}}
    for _ in range(100):
        deep = {"graph": {"nodes": [], "edges": [], "attributes": [["inner", deep]]}}
    with pytest.raises(ModelFileError, match="nested more than 64 deep"):
        read(deep)
