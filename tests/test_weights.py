"""Edge weights, judged by listing all spanning trees and by the dense inverse of the Laplacian."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelbp import Graph, Model, Relation
from kernelbp.inference import weights as module
from kernelbp.inference.setup import edge_weights
from kernelbp.inference.weights import (
    SAMPLED_TREES,
    _exact,
    _random_forest,
    _sampled,
    spanning_tree_weights,
)
from kernelbp.inference.wiring import wire
from kernelbp.kernels import Delta


def edge_array(graph: nx.Graph) -> np.ndarray:
    return np.array(graph.edges, dtype=np.intp).reshape(-1, 2)


def labels_of(graph: nx.Graph) -> np.ndarray:
    labels = np.empty(len(graph), dtype=np.intp)
    for index, part in enumerate(nx.connected_components(graph)):
        labels[list(part)] = index
    return labels


def by_listing(n_nodes: int, edges: np.ndarray) -> np.ndarray:
    """The share of all spanning forests (of as many edges as any has) that hold each edge."""

    def components(chosen: tuple[int, ...]) -> int:
        graph = nx.empty_graph(n_nodes)
        graph.add_edges_from(edges[list(chosen)].tolist())
        return nx.number_connected_components(graph)

    parts = components(tuple(range(len(edges))))
    counts, total = np.zeros(len(edges)), 0
    for chosen in itertools.combinations(range(len(edges)), n_nodes - parts):
        if components(chosen) == parts:
            counts[list(chosen)] += 1
            total += 1
    return counts / total


def by_dense_inverse(n_nodes: int, edges: np.ndarray) -> np.ndarray:
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(edges.tolist())
    inverse = np.linalg.pinv(nx.laplacian_matrix(graph).toarray().astype(float))
    a, b = edges.T
    return inverse[a, a] + inverse[b, b] - 2 * inverse[a, b]


@pytest.mark.parametrize("seed", range(15))
def test_weights_equal_the_share_of_all_spanning_trees(seed):
    given_graph = nx.gnp_random_graph(6, 0.5, seed=seed)
    edges = edge_array(given_graph)
    found = spanning_tree_weights(6, edges)
    if len(edges):
        assert np.allclose(found, by_listing(6, edges), rtol=0, atol=1e-12)


def test_parallel_edges_share_their_weight():
    edges = np.array([[0, 1], [1, 0], [0, 1], [1, 2]])
    assert np.allclose(spanning_tree_weights(3, edges), [1 / 3, 1 / 3, 1 / 3, 1.0])
    assert np.allclose(spanning_tree_weights(3, edges), by_listing(3, edges))


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (7, 4), (1, 6), (2, 3, 4), (3, 1, 3)])
def test_the_closed_form_of_grids_equals_the_dense_inverse(shape):
    graph = Graph.grid(shape, variable="x", relation="r")
    found = spanning_tree_weights(graph.n_nodes, graph.edges, graph.shape)
    assert np.allclose(found, by_dense_inverse(graph.n_nodes, graph.edges), rtol=0, atol=1e-11)
    assert found.sum() == pytest.approx(graph.n_nodes - 1)


def test_the_closed_form_does_not_depend_on_how_edges_are_listed():
    graph = Graph.grid((4, 5), variable="x", relation="r")
    order = np.random.default_rng(0).permutation(graph.n_edges)
    turned = graph.edges[order][:, ::-1]
    found = spanning_tree_weights(20, turned, (4, 5))
    assert np.allclose(found, spanning_tree_weights(20, graph.edges, (4, 5))[order], rtol=0, atol=1e-13)


def test_a_large_grid_weighs_about_one_half_in_the_middle():
    graph = Graph.grid((60, 60), variable="x", relation="r")
    found = spanning_tree_weights(3600, graph.edges, graph.shape)
    middle = np.flatnonzero(
        (np.abs(graph.edges // 60 - 30) < 5).all(axis=1) & (np.abs(graph.edges % 60 - 30) < 5).all(axis=1)
    )
    assert np.allclose(found[middle], 0.5, atol=1e-3)
    assert found.sum() == pytest.approx(3599)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("length", [30, 5000])
def test_trees_weigh_exactly_one(seed, length):
    edges = edge_array(nx.random_labeled_tree(length, seed=seed))
    assert (spanning_tree_weights(length, edges) == 1).all()


def test_a_chain_weighs_exactly_one():
    """Not nearly: weights of exactly one are ordinary belief propagation, exact in two passes."""
    chain = Graph.chain(50, variable="x", relation="r")
    assert (spanning_tree_weights(50, chain.edges, chain.shape) == 1).all()


@pytest.mark.parametrize("seed", range(10))
def test_bridges_weigh_one_and_weights_sum_to_nodes_less_components(seed):
    tied = nx.gnp_random_graph(40, 0.06, seed=seed)
    edges = edge_array(tied)
    found = spanning_tree_weights(40, edges)
    bridges = {tuple(sorted(edge)) for edge in nx.bridges(tied)}
    for edge, weight in zip(edges.tolist(), found, strict=True):
        assert (weight > 1 - 1e-10) == (tuple(sorted(edge)) in bridges)
    assert found.sum() == pytest.approx(40 - nx.number_connected_components(tied))
    assert ((found > 0) & (found <= 1)).all()


@given(seed=st.integers(0, 10**6), nodes=st.integers(2, 25), density=st.floats(0.05, 1.0))
@settings(max_examples=30)
def test_relabelling_nodes_relabels_weights(seed, nodes, density):
    tied = nx.gnp_random_graph(nodes, density, seed=seed)
    edges = edge_array(tied)
    new = np.random.default_rng(seed).permutation(nodes)
    assert np.allclose(spanning_tree_weights(nodes, edges), spanning_tree_weights(nodes, new[edges]))


def test_sampled_weights_are_within_their_monte_carlo_error():
    tied = nx.gnm_random_graph(300, 700, seed=3)
    edges, labels = edge_array(tied), labels_of(tied)
    exact, sampled = _exact(300, edges, labels), _sampled(300, edges, labels)
    error = np.sqrt(np.maximum(exact * (1 - exact), 1e-9) / SAMPLED_TREES)
    standard = (sampled - exact) / np.maximum(error, 1 / SAMPLED_TREES / 4)
    assert np.abs(standard).max() < 5
    assert np.sqrt(np.mean(standard**2)) < 1.2, "the spread of 64 independent trees, no more"
    assert abs(np.mean(sampled - exact)) < 1e-3, "unbiased"
    bridges = [tuple(sorted(edge)) for edge in nx.bridges(tied)]
    at = [i for i, edge in enumerate(edges.tolist()) if tuple(sorted(edge)) in bridges]
    assert at and (sampled[at] == 1).all()


def test_sampled_weights_repeat(monkeypatch):
    monkeypatch.setattr(module, "EXACT_NODES", 10)
    edges = edge_array(nx.gnm_random_graph(50, 100, seed=1))
    first = spanning_tree_weights(50, edges)
    assert np.array_equal(first, spanning_tree_weights(50, edges))
    assert ((first > 0) & (first <= 1)).all()


def test_a_long_cycle_falls_back_on_random_forests(monkeypatch):
    """Loop-erased walks around a long cycle take the square of its length: they are given up."""
    taken = []
    plain = _random_forest
    monkeypatch.setattr(module, "_random_forest", lambda *given: (taken.append(1), plain(*given))[1])
    edges = edge_array(nx.cycle_graph(4000))
    found = spanning_tree_weights(4000, edges)
    assert len(taken) == SAMPLED_TREES
    assert found.sum() == pytest.approx(3999)
    assert (found > 0.9).all() and (found <= 1).all()


def test_random_forests_span_and_have_no_cycle():
    rng = np.random.default_rng(0)
    tied = nx.gnm_random_graph(60, 90, seed=5)
    edges = np.concatenate([edge_array(tied), edge_array(tied)[:7, ::-1]])  # some edges given twice
    parts = nx.number_connected_components(tied)
    for _ in range(20):
        chosen = _random_forest(60, edges, rng)
        forest = nx.empty_graph(60)
        forest.add_edges_from(edges[chosen].tolist())
        assert len(chosen) == len(forest.edges) == 60 - parts
        assert nx.number_connected_components(forest) == parts


def test_no_edges_have_no_weights():
    assert spanning_tree_weights(5, np.empty((0, 2), dtype=np.intp)).shape == (0,)


# ---------------------------------------------------------------------- as inference uses them


def model_of_tables() -> Model:
    table = np.array([[2.0, 1.0], [1.0, 2.0]])
    relation = Relation("x", "x", symmetric=True, potential=table)
    return Model({"x": Delta()}, {"r": relation}, landmarks={"x": [0, 1]}).fit()


def weights_used(graph: Graph) -> np.ndarray:
    """The weight inference gave each of the graph's edges; NaN where no messages run."""
    source = model_of_tables().infer(graph)._source
    found = np.full(graph.n_edges, np.nan)
    rows = source.wiring.row
    found[source.wiring.edge] = source.state.weights[0][rows] if source.state.weights else 1.0
    return found


def test_eight_neighbours_weigh_as_their_own_graph():
    graph = Graph.grid((5, 6), variable="x", relation="r", neighbors=8)
    expected = by_dense_inverse(30, graph.edges)
    assert np.allclose(spanning_tree_weights(30, graph.edges, graph.shape), expected, rtol=0, atol=1e-12)
    assert np.allclose(weights_used(graph), expected, rtol=0, atol=1e-6)


def test_fixed_nodes_take_their_edges_out_before_weights_are_worked_out():
    graph = Graph.grid((4, 4), variable="x", relation="r").fix([5, 6, 15], [0, 1, 1])
    left = ~np.isin(graph.edges, [5, 6, 15]).any(axis=1)
    found = weights_used(graph)
    assert np.isnan(found[~left]).all()
    assert np.allclose(found[left], by_dense_inverse(16, graph.edges[left]), rtol=0, atol=1e-6)


def test_fixing_a_node_of_every_cycle_leaves_ordinary_belief_propagation():
    graph = Graph.grid((2, 4), variable="x", relation="r").fix([1, 2], [0, 1])
    beliefs = model_of_tables().infer(graph)
    assert len(beliefs._source.state.weights) == 0 and beliefs.iterations == 1


@pytest.mark.parametrize("scale", [0.9, 1.0, 1.1])
def test_scaled_weights_of_a_large_grid_are_alike_in_its_middle_and_near_the_trees(scale):
    graph = Graph.grid((60, 60), variable="x", relation="same")
    wiring = wire(graph, {"same": Relation("x", "x", symmetric=True)}, np.empty(0, dtype=np.intp))
    found = edge_weights(graph, wiring, None, False, scale)
    exact = scale * spanning_tree_weights(graph.n_nodes, graph.edges, graph.shape)
    assert found is not None
    assert np.mean(found == 0.5 * scale) > 0.8
    assert np.abs(found - exact).max() < 0.011 * scale
