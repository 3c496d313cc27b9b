"""Kernels on graphs, judged by plain enumeration, and by GraKeL where it is installed."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx as nx
import numpy as np
import pytest
from sklearn.base import BaseEstimator

import kernelbp as kb
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import check_values, domain, from_spec, resolve, specification, to_spec
from kernelbp.kernels.graphs import (
    GraKeL,
    GraphKernel,
    ShortestPath,
    WeisfeilerLehman,
    graph_as_tuple,
    graph_from_tuple,
)
from kernelbp.testing import check_kernel


def labelled(graph: nx.Graph, labels: str) -> nx.Graph:
    nx.set_node_attributes(graph, dict(zip(graph, labels, strict=True)), "label")
    return graph


def random_graphs(count: int, seed: int = 0) -> list[nx.Graph]:
    """Sparse and dense ones, some in pieces, all with an edge."""
    random = np.random.default_rng(seed)
    made: list[nx.Graph] = []
    while len(made) < count:
        size = int(random.integers(2, 10))
        graph = nx.gnp_random_graph(size, random.choice([0.2, 0.5]), seed=int(random.integers(10**6)))
        if graph.number_of_edges():
            made.append(labelled(graph, "".join(random.choice(list("CNO"), size=size))))
    return made


GRAPHS = random_graphs(25)
ODD = [nx.Graph(), labelled(nx.empty_graph(1), "C"), labelled(nx.empty_graph(3), "CNO"), nx.Graph()]
LOOPED = labelled(nx.Graph([(0, 1), (1, 1)]), "CO")
KERNELS: list[GraphKernel] = [
    WeisfeilerLehman(0),
    WeisfeilerLehman(),
    ShortestPath(),
    WeisfeilerLehman(2, label=None),
    ShortestPath(label=None),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


@every_kernel
@pytest.mark.parametrize(
    "values",
    [GRAPHS, GRAPHS[:6] + ODD + [LOOPED] + GRAPHS[:2], [graph_as_tuple(graph) for graph in GRAPHS]],
    ids=["networkx", "odd", "plain"],
)
def test_keeps_the_contract_and_is_one_on_the_diagonal(kernel: GraphKernel, values: Any) -> None:
    check_kernel(kernel, values)
    assert (kernel.diag(values) == 1.0).all()
    np.testing.assert_allclose(kernel(values, values).diagonal(), 1.0, rtol=0, atol=1e-12)


@every_kernel
def test_names_and_order_of_nodes_do_not_matter(kernel: GraphKernel) -> None:
    random = np.random.default_rng(1)
    renamed = []
    for graph in GRAPHS:
        order = random.permutation(len(graph)).tolist()
        shuffled = nx.Graph()
        shuffled.add_nodes_from((f"node {v}", graph.nodes[v]) for v in order)
        shuffled.add_edges_from((f"node {v}", f"node {u}") for u, v in graph.edges)
        renamed.append(shuffled)
    np.testing.assert_allclose(kernel(renamed, GRAPHS), kernel(GRAPHS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel(renamed, GRAPHS).diagonal(), 1.0, rtol=0, atol=1e-12)


@every_kernel
def test_plain_data_is_the_same_graph(kernel: GraphKernel) -> None:
    plain = [graph_as_tuple(graph) for graph in GRAPHS]
    np.testing.assert_array_equal(kernel(plain), kernel(GRAPHS))
    back = [graph_from_tuple(value) for value in plain]
    assert [graph_as_tuple(graph) for graph in back] == plain


@every_kernel
def test_belongs_to_no_special_domain_and_needs_no_data(kernel: GraphKernel) -> None:
    assert domain(kernel) == "other"
    assert resolve(kernel, GRAPHS) is kernel
    assert check_values(kernel, GRAPHS, "graphs") is GRAPHS


@every_kernel
def test_is_described_as_data(kernel: GraphKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(specification.OWN, type(kernel).__name__, type(kernel))
    assert from_spec(json.loads(json.dumps(to_spec(kernel)))) == kernel


# against enumeration


def neighbourhoods(graph: nx.Graph, iterations: int) -> Counter[Any]:
    """Labels as nested tuples: nothing is numbered, nothing can be confused."""
    labels: dict[Any, Any] = dict(graph.nodes(data="label"))
    found = Counter((0, repr(label)) for label in labels.values())
    for round_ in range(1, iterations + 1):
        labels = {v: (labels[v], tuple(sorted((labels[u] for u in graph[v]), key=repr))) for v in graph}
        found.update((round_, repr(label)) for label in labels.values())
    return found


def paths(graph: nx.Graph) -> Counter[Any]:
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    label = graph.nodes(data="label")
    return Counter(
        (label[u], label[v], lengths[u][v]) for u, v in itertools.permutations(graph, 2) if v in lengths[u]
    )


def cosine(x: Counter[Any], y: Counter[Any]) -> float:
    product = sum(count * y[key] for key, count in x.items())
    return product / math.sqrt(sum(c * c for c in x.values()) * sum(c * c for c in y.values()))


@pytest.mark.parametrize("iterations", [0, 1, 2, 4])
def test_weisfeiler_lehman_equals_enumeration(iterations: int) -> None:
    graphs = [*GRAPHS, labelled(nx.star_graph(7), "OCCCNNNC"), ODD[1], ODD[2], LOOPED]
    counts = [neighbourhoods(graph, iterations) for graph in graphs]
    expected = [[cosine(x, y) for y in counts] for x in counts]
    np.testing.assert_allclose(WeisfeilerLehman(iterations)(graphs), expected, rtol=0, atol=1e-12)


def test_shortest_path_equals_enumeration() -> None:
    graphs = [*GRAPHS, labelled(nx.path_graph(9), "CNOCNOCNO"), labelled(nx.cycle_graph(6), "CCNCCN"), LOOPED]
    counts = [paths(graph) for graph in graphs]
    expected = [[cosine(x, y) for y in counts] for x in counts]
    np.testing.assert_allclose(ShortestPath()(graphs), expected, rtol=0, atol=1e-12)


def test_graphs_with_nothing_to_compare_are_like_each_other_only() -> None:
    np.testing.assert_array_equal(
        ShortestPath()([*ODD[:3], GRAPHS[0]], [ODD[2], GRAPHS[0]]), [[1, 0], [1, 0], [1, 0], [0, 1]]
    )
    np.testing.assert_array_equal(WeisfeilerLehman()(ODD[:1], [*ODD[:2], GRAPHS[0]]), [[1, 0, 0]])


def test_labels_are_any_hashable_values() -> None:
    one, other = nx.path_graph(2), nx.path_graph(2)
    nx.set_node_attributes(one, {0: ("C", 1), 1: frozenset({2})}, "label")
    nx.set_node_attributes(other, {0: None, 1: ("C", 1)}, "label")
    assert WeisfeilerLehman(0)([one], [other])[0, 0] == pytest.approx(0.5)


# GraKeL


@pytest.mark.parametrize("ours", [WeisfeilerLehman(1), WeisfeilerLehman(4), ShortestPath()], ids=repr)
def test_equals_grakel(ours: GraphKernel) -> None:
    grakel = pytest.importorskip("grakel")
    if isinstance(ours, WeisfeilerLehman):
        theirs = GraKeL(grakel.WeisfeilerLehman(n_iter=ours.iterations, normalize=True))
    else:
        theirs = GraKeL(grakel.ShortestPath(normalize=True))
    check_kernel(theirs, GRAPHS)
    np.testing.assert_allclose(theirs(GRAPHS), ours(GRAPHS), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        theirs(GRAPHS[:4], GRAPHS[2:]), ours(GRAPHS[:4], GRAPHS[2:]), rtol=0, atol=1e-12
    )
    plain = [graph_as_tuple(graph) for graph in GRAPHS]
    np.testing.assert_array_equal(theirs(plain[:4], plain), theirs(GRAPHS[:4], GRAPHS))


def test_edge_labels_and_weights_reach_grakel() -> None:
    grakel = pytest.importorskip("grakel")
    graphs = [
        nx.Graph([(0, 1, {"bond": a, "far": b}), (1, 2, {"bond": "=", "far": 2})])
        for a in "-=#"
        for b in (1, 3)
    ]
    bonds = GraKeL(grakel.EdgeHistogram(), label=None, edge_label="bond")
    check_kernel(bonds, graphs)
    # every edge is read in both directions: 2 * 2 for the shared "=", and (2 + 2)^2 for two of them
    assert bonds(graphs[:1], graphs[2:3])[0, 0] / bonds(graphs[2:3])[0, 0] == pytest.approx(2 * 4 / 16)
    lengths = GraKeL(grakel.ShortestPath(with_labels=False), label=None, weight="far")
    assert lengths(graphs[:1], graphs[1:2])[0, 0] < lengths(graphs[:1])[0, 0]


class Sizes(BaseEstimator):
    """What GraKeL asks of a kernel, for the product of numbers of nodes; NaN without any, as GraKeL's are."""

    def __init__(self, normalize: bool = False) -> None:
        self.normalize = normalize

    def fit(self, graphs: Any) -> Sizes:
        self.sizes_ = self._sizes(graphs)
        return self

    def transform(self, graphs: Any) -> Any:
        return np.outer(self._sizes(graphs), self.sizes_)

    def fit_transform(self, graphs: Any) -> Any:
        return self.fit(graphs).transform(graphs)

    def _sizes(self, graphs: Any) -> Any:
        assert all(set(labels) == set(neighbours) for neighbours, labels, _ in graphs)
        return np.array([len(neighbours) or math.nan for neighbours, _, _ in graphs])


def test_adapter_hands_over_graphs_and_takes_back_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grakel", ModuleType("grakel"))
    kernel, sizes = GraKeL(Sizes()), [float(len(graph)) for graph in GRAPHS]
    check_kernel(kernel, GRAPHS)
    np.testing.assert_array_equal(kernel(GRAPHS[:3], GRAPHS), np.outer(sizes[:3], sizes))
    assert not hasattr(kernel.kernel, "sizes_")
    with pytest.raises(UnsupportedError, match="Sizes: gives NaN or infinity on these graphs"):
        kernel(ODD[:1], GRAPHS)


def test_adapter_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grakel", None)
    with pytest.raises(UnsupportedError, match=r'needs the library grakel; pip install "kernelbp\[graphs\]"'):
        GraKeL(Sizes())(GRAPHS)


@pytest.mark.parametrize("given", [Sizes, "ShortestPath", None])
def test_adapter_refuses_what_is_no_kernel_of_grakel(given: Any) -> None:
    with pytest.raises(InputError, match="kernel: expected a kernel of GraKeL"):
        GraKeL(given)


# words of complaint


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: WeisfeilerLehman(-1),
            'iterations: expected an integer of at least 0 or "median", got int -1',
        ),
        (
            lambda: WeisfeilerLehman(2, 3),
            "label: expected the name of an attribute as text or None, got int 3",
        ),  # type: ignore[arg-type]
        (lambda: ShortestPath(label=["label"]), "label: expected the name"),  # type: ignore[arg-type]
    ],
)
def test_settings_out_of_range_are_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (GRAPHS[0], "X: expected a sequence of graphs, got Graph"),
        (3, "X: expected a sequence of graphs, got int 3"),
        ([GRAPHS[0], "abc"], r"X: expected networkx graphs or pairs \(labels, edges\) .* at position 1"),
        ([GRAPHS[0], (("C",), (), ())], "at position 1"),
        (
            [nx.path_graph(2)],
            "X: expected the attribute 'label' on every node, got nodes with none at position 0",
        ),
        (
            [(("C", "O"), ((0, 2),))],
            r"edges as pairs of node numbers from 0 to 1, got tuple \(0, 2\) at position 0",
        ),
        ([(("C", "O"), ((0, 1.0),))], "edges as pairs of node numbers"),
        ([((["C"], "O"), ((0, 1),))], r"hashable labels of nodes, got list \['C'\] at position 0"),
    ],
)
def test_what_is_not_a_labelled_graph_is_refused(values: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ShortestPath()(values)


@pytest.mark.parametrize(
    ("graph", "kind"), [(nx.DiGraph([(0, 1)]), "directed"), (nx.MultiGraph([(0, 1)]), "parallel")]
)
def test_directed_and_parallel_edges_are_refused(graph: Any, kind: str) -> None:
    with pytest.raises(UnsupportedError, match=f"X: {kind} edges are not compared"):
        WeisfeilerLehman(label=None)([graph])


# in a model


@pytest.mark.parametrize("kernel", [WeisfeilerLehman(2), ShortestPath()], ids=repr)
def test_growing_graphs_are_values_of_a_model(
    kernel: GraphKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(specification.OWN, type(kernel).__name__, type(kernel))
    grown = [graph_as_tuple(labelled(nx.path_graph(size), ("CNO" * 3)[:size])) for size in range(2, 8)]
    pairs = list(itertools.pairwise(grown)) * 20
    model = kb.Model({"molecule": kernel}, {"grows": kb.Relation("molecule", "molecule")})
    model.fit({"grows": tuple(zip(*pairs, strict=True))})  # type: ignore[dict-item]
    graph = kb.Graph.chain(4, variable="molecule", relation="grows")
    start = np.empty(1, dtype=object)
    start[0] = grown[1]
    graph = graph.fix([0], start)
    model.save(tmp_path / "grown.kbp")
    for each in (model, kb.Model.load(tmp_path / "grown.kbp")):
        assert each.infer(graph).mode().tolist() == grown[1:5]


def test_networkx_graphs_are_values_of_a_model() -> None:
    grown = [labelled(nx.path_graph(size), ("CNO" * 3)[:size]) for size in range(2, 8)]
    model = kb.Model({"molecule": WeisfeilerLehman(2)}, {"grows": kb.Relation("molecule", "molecule")})
    model.fit({"grows": (grown[:-1] * 20, grown[1:] * 20)})
    start = np.empty(1, dtype=object)
    start[0] = grown[0]
    graph = kb.Graph.chain(3, variable="molecule", relation="grows").fix([0], start)
    assert [len(found) for found in model.infer(graph).mode()] == [2, 3, 4]
