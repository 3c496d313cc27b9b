"""Kernels on graphs with labelled nodes: molecules, parse trees, small networks.

A value is a networkx graph whose nodes carry a label as an attribute, or the same as plain data, a pair
``(labels, edges)`` of tuples: the labels of nodes 0, 1, ... and pairs of node numbers, as `graph_as_tuple` makes
it. Plain data is hashable, so that equal examples are pooled; networkx graphs are each on its own. A model file
holds either, networkx graphs with all their attributes. Graphs are undirected, without parallel edges; weights are not read.

`WeisfeilerLehman` and `ShortestPath` are one on the diagonal. Graphs in which a kernel finds nothing to compare
(without nodes, or without paths) are like each other and like no others.
"""

from __future__ import annotations

import importlib
import numbers
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain
from kernelbp.kernels.inputs import describe, is_median, resolved_by_likeness, whole_number
from kernelbp.kernels.strings import inner_products, normalised

if TYPE_CHECKING:
    import networkx

__all__ = ["GraKeL", "ShortestPath", "WeisfeilerLehman", "graph_as_tuple", "graph_from_tuple"]

Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_ITERATIONS = 6
"""Rounds that "median" chooses from."""

EXPECTED = "expected networkx graphs or pairs (labels, edges) of tuples"


@dataclass(frozen=True)
class Graphs:
    """Several graphs side by side, their nodes numbered through.

    Attributes
    ----------
    count : number of graphs
    owners : (nodes,) the graph of each node
    labels : (nodes,) equal where the labels are
    edges : (2, directed edges) from, to; every edge in both directions, each once
    """

    count: int
    owners: Integers
    labels: Integers
    edges: Integers


class GraphKernel(Algebra):
    """What kernels on graphs share: reading the values, inner products of counts, one on the diagonal."""

    label: str | None
    domain: ClassVar[Domain] = "other"

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n graphs against m."""
        codes: dict[Any, int] = {}
        parts = [_read_graphs(X, self.label, "X", codes)]
        if Y is not None:
            parts.append(_read_graphs(Y, self.label, "Y", codes))
        both = parts[0] if Y is None else _side_by_side(*parts)
        if not parts[0].count:
            return np.zeros((0, parts[-1].count))
        counts = self.resolve(X)._counts(both)
        mine = counts[: parts[0].count]
        theirs = mine if Y is None else counts[parts[0].count :]
        left_sizes, right_sizes = (np.asarray(part.multiply(part).sum(axis=1)) for part in (mine, theirs))
        block = np.minimum(normalised(inner_products(mine, theirs), left_sizes, right_sizes), 1.0)
        block[np.ix_(left_sizes == 0, right_sizes == 0)] = 1.0
        if Y is None:
            np.fill_diagonal(block, 1.0)
        return block

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        _require_sequence(X, "X")
        return np.ones(len(X))

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse what is not a labelled graph: see `kernelbp.kernels.check_values`."""
        _read_graphs(values, self.label, name, {})
        return values

    def resolve(self, values: Any, counts: Any = None) -> Self:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        return self

    @abstractmethod
    def _counts(self, graphs: Graphs) -> scipy.sparse.csr_array:
        """How often each of some features occurs in each graph, ``(count, features)``."""


@dataclass(frozen=True)
class WeisfeilerLehman(GraphKernel):
    r"""Neighbourhoods that two graphs share.

    .. math:: K(G, H) = \sum_{i=0}^{h} \langle c_i(G), c_i(H) \rangle, \qquad
              k(G, H) = \frac{K(G, H)}{\sqrt{K(G, G) K(H, H)}},

    where :math:`c_0` counts the labels of nodes, and :math:`c_i` counts them after i rounds in which every node takes
    its own label together with those of its neighbours for its new label: the subtree kernel of Shervashidze,
    Schweitzer, van Leeuwen, Mehlhorn and Borgwardt (2011).

    Parameters
    ----------
    iterations : int or "median"
        h, at least 0. "median" is the number, up to 6, at which a typical pair of different training values
        compares most nearly as 1/e.
    label : str, optional
        Name of the attribute of nodes that holds their labels, anything hashable. None takes all nodes for alike.

    Notes
    -----
    Labels are compared exactly, without hashing. Equal to GraKeL's ``WeisfeilerLehman(n_iter=h, normalize=True)``.

    Examples
    --------
    >>> import networkx as nx
    >>> from kernelbp.kernels.graphs import WeisfeilerLehman
    >>> WeisfeilerLehman(1, label=None)([nx.path_graph(3), nx.cycle_graph(3), nx.path_graph(2)]).round(3)
    array([[1.   , 0.756, 0.945],
           [0.756, 1.   , 0.5  ],
           [0.945, 0.5  , 1.   ]])
    >>> WeisfeilerLehman(1)([(("C", "O"), ((0, 1),))], [(("C", "C"), ((0, 1),))]).round(3)
    array([[0.354]])
    """

    iterations: int | Literal["median"] = 3
    label: str | None = "label"

    def __post_init__(self) -> None:
        if not is_median(self.iterations):
            rounds = whole_number(self.iterations, "iterations", least=0, or_word=' or "median"')
            object.__setattr__(self, "iterations", rounds)
        _check_attribute(self.label, "label")

    def resolve(self, values: Any, counts: Any = None) -> Self:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        return resolved_by_likeness(self, "iterations", range(MOST_ITERATIONS + 1), values, counts)

    def _counts(self, graphs: Graphs) -> scipy.sparse.csr_array:
        assert isinstance(self.iterations, int)
        labels = graphs.labels
        columns = [labels]
        for _ in range(self.iterations):
            labels = _refined(labels, graphs.edges)
            columns.append(labels)
        sizes = [int(column.max(initial=-1)) + 1 for column in columns]
        keys = np.concatenate([c + sum(sizes[:i]) for i, c in enumerate(columns)])
        return _counted(graphs, np.tile(graphs.owners, len(columns)), keys, sum(sizes))


@dataclass(frozen=True)
class ShortestPath(GraphKernel):
    r"""Shortest paths that two graphs share: as many edges, between nodes of the same labels.

    .. math:: k(G, H) = \frac{\langle c(G), c(H) \rangle}{\lVert c(G) \rVert \, \lVert c(H) \rVert},

    where c(G) counts, over ordered pairs of different nodes with a path between them, the labels of both and the
    number of edges of a shortest path (Borgwardt and Kriegel 2005).

    Parameters
    ----------
    label : str, optional
        Name of the attribute of nodes that holds their labels, anything hashable. None takes all nodes for alike.

    Notes
    -----
    Memory and time grow with the square of a graph's number of nodes. Equal to GraKeL's
    ``ShortestPath(normalize=True)`` on graphs whose edges have weight one.

    Examples
    --------
    >>> import networkx as nx
    >>> from kernelbp.kernels.graphs import ShortestPath
    >>> ShortestPath(label=None)([nx.path_graph(3), nx.cycle_graph(3), nx.path_graph(2)]).round(3)
    array([[1.   , 0.894, 0.894],
           [0.894, 1.   , 1.   ],
           [0.894, 1.   , 1.   ]])
    """

    label: str | None = "label"

    def __post_init__(self) -> None:
        _check_attribute(self.label, "label")

    def _counts(self, graphs: Graphs) -> scipy.sparse.csr_array:
        begins, ends, distances = _distances(graphs)
        size = int(graphs.labels.max(initial=0)) + 1
        # two steps of numbering keep the keys small
        pairs = np.unique(graphs.labels[begins] * size + graphs.labels[ends], return_inverse=True)[1]
        keys = pairs.reshape(-1) * (int(distances.max(initial=0)) + 1) + distances
        distinct, keys = np.unique(keys, return_inverse=True)
        return _counted(graphs, graphs.owners[begins], keys.reshape(-1), len(distinct))


@dataclass(frozen=True, eq=False)
class GraKeL(Algebra):
    """Any graph kernel of the GraKeL library, as one of ours.

    Parameters
    ----------
    kernel : object of ``grakel``
        Such as ``grakel.RandomWalkLabeled(normalize=True)``. It is copied before every use.
    label : str, optional
        Name of the attribute of nodes that holds their labels; None hands over graphs without labels.
    edge_label : str, optional
        The same of edges.
    weight : str, optional
        Name of the attribute of edges that holds their weights; one each if None.

    Notes
    -----
    Needs ``pip install "kernelbp[graphs]"``. Some of GraKeL's kernels draw random numbers, or compare graphs by what
    else is in the sample: they break the contract, and `kernelbp.testing.check_kernel` tells. A model
    with this kernel is saved without it; hand it to ``Model.load(..., kernels={...})`` again.

    Examples
    --------
    >>> import networkx as nx
    >>> from kernelbp.kernels.graphs import GraKeL
    >>> import grakel  # doctest: +SKIP
    >>> kernel = GraKeL(grakel.VertexHistogram(normalize=True), label="element")  # doctest: +SKIP
    >>> water = nx.star_graph(2)
    >>> nx.set_node_attributes(water, {0: "O", 1: "H", 2: "H"}, "element")
    >>> kernel([water])  # doctest: +SKIP
    array([[1.]])
    """

    kernel: Any
    label: str | None = "label"
    edge_label: str | None = None
    weight: str | None = None

    domain: ClassVar[Domain] = "other"

    def __post_init__(self) -> None:
        wanted = ("fit", "transform", "fit_transform")
        if isinstance(self.kernel, type) or not all(hasattr(self.kernel, method) for method in wanted):
            raise InputError(
                f"kernel: expected a kernel of GraKeL (an object with {', '.join(wanted)}), got {describe(self.kernel)}"
            )
        for name in ("label", "edge_label", "weight"):
            _check_attribute(getattr(self, name), name)

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n graphs against m."""
        left = self._converted(X, "X")
        right = None if Y is None else self._converted(Y, "Y")
        others = left if right is None else right
        if not left or not others:
            return np.zeros((len(left), len(others)))
        kernel = self._copied()
        block = kernel.fit_transform(left) if right is None else kernel.fit(right).transform(left)
        return self._finite(np.array(block, dtype=np.float64))

    def diag(self, X: Any) -> Matrix:
        """Diagonal ``(n,)``."""
        graphs = self._converted(X, "X")
        found = [float(self._copied().fit_transform([graph])[0, 0]) for graph in graphs]
        return self._finite(np.array(found, dtype=np.float64))

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse what is not a graph: see `kernelbp.kernels.check_values`."""
        self._converted(values, name)
        return values

    def _copied(self) -> Any:
        try:
            importlib.import_module("grakel")
        except ImportError:
            raise UnsupportedError(
                'GraKeL: needs the library grakel; pip install "kernelbp[graphs]"'
            ) from None
        from sklearn.base import clone

        return clone(self.kernel)

    def _finite(self, result: Matrix) -> Matrix:
        if not np.isfinite(result).all():
            raise UnsupportedError(
                f"{type(self.kernel).__name__}: gives NaN or infinity on these graphs, as normalised kernels of GraKeL do "
                "where a graph has nothing they compare; leave those out, or set normalize=False"
            )
        return result

    def _converted(self, values: Any, name: str) -> list[Any]:
        """Graphs as GraKeL takes them: neighbours with weights by node, labels by node, labels by edge."""
        _require_sequence(values, name)
        converted = []
        for position, value in enumerate(values):
            graph = value
            if isinstance(value, tuple):
                _read_graphs([value], self.label, name, {})
                graph = graph_from_tuple(value, label=self.label or "label")
            _check_graph(graph, name, position)
            neighbours = {
                node: {
                    other: 1.0
                    if self.weight is None
                    else _attribute(data, self.weight, "edge", name, position)
                    for other, data in graph.adj[node].items()
                }
                for node in graph
            }
            labels: dict[Any, Any] = {}
            if self.label is not None:
                labels = {
                    v: _attribute(d, self.label, "node", name, position) for v, d in graph.nodes.items()
                }
            edge_labels = {}
            if self.edge_label is not None:
                for (first, second), data in graph.edges.items():
                    found = _attribute(data, self.edge_label, "edge", name, position)
                    edge_labels[first, second] = edge_labels[second, first] = found
            converted.append([neighbours, labels, edge_labels])
        return converted


# ---------------------------------------------------------------------- reading graphs


def graph_as_tuple(graph: networkx.Graph, label: str | None = "label") -> tuple[Any, ...]:
    """Return a networkx graph as plain data: ``(labels, edges)``.

    Parameters
    ----------
    graph : networkx.Graph
        Undirected.
    label : str, optional
        Name of the attribute of nodes that holds their labels; None labels all nodes 0.

    Examples
    --------
    >>> import networkx as nx
    >>> from kernelbp.kernels.graphs import graph_as_tuple
    >>> graph_as_tuple(nx.path_graph(["a", "b", "c"]), label=None)
    ((0, 0, 0), ((0, 1), (1, 2)))
    """
    _check_graph(graph, "graph", None)
    places = {node: place for place, node in enumerate(graph)}
    if label is None:
        labels: tuple[Any, ...] = (0,) * len(places)
    else:
        labels = tuple(_attribute(data, label, "node", "graph", None) for data in graph.nodes.values())
    edges = sorted(tuple(sorted((places[first], places[second]))) for first, second in graph.edges)
    return labels, tuple(edges)


def graph_from_tuple(value: Any, label: str = "label") -> networkx.Graph:
    """Return the networkx graph of ``(labels, edges)``: the inverse of `graph_as_tuple`, nodes numbered from 0.

    Parameters
    ----------
    value : pair (labels, edges)
    label : str
        Name of the attribute that will hold the labels.

    Examples
    --------
    >>> from kernelbp.kernels.graphs import graph_from_tuple
    >>> graph_from_tuple((("O", "H", "H"), ((0, 1), (0, 2)))).nodes(data="label")
    NodeDataView({0: 'O', 1: 'H', 2: 'H'}, data='label')
    """
    import networkx

    labels, edges = _parts(value, None, "value", None)
    graph = networkx.Graph()
    graph.add_nodes_from((number, {label: found}) for number, found in enumerate(labels))
    graph.add_edges_from(edges)
    return graph


def _require_sequence(values: Any, name: str) -> None:
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__len__") or hasattr(values, "nodes"):
        raise InputError(f"{name}: expected a sequence of graphs, got {describe(values)}")


def _read_graphs(values: Any, label: str | None, name: str, codes: dict[Any, int]) -> Graphs:
    """Lay graphs side by side; labels get the numbers of `codes`, and new ones are added to it."""
    _require_sequence(values, name)
    owners: list[int] = []
    labels: list[int] = []
    edges: list[tuple[int, int]] = []
    for position, value in enumerate(values):
        found, pairs = _parts(value, label, name, position)
        offset = len(labels)
        owners.extend([position] * len(found))
        edges.extend((offset + begin, offset + end) for begin, end in pairs)
        for entry in found:
            try:
                labels.append(codes.setdefault(entry, len(codes)))
            except TypeError:
                raise InputError(
                    f"{name}: expected hashable labels of nodes, got {describe(entry)} at position {position}"
                ) from None
    first, second = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    nodes = max(len(labels), 1)
    both_ways = np.unique(np.concatenate([first * nodes + second, second * nodes + first]))
    owned, coded = np.array(owners, dtype=np.int64), np.array(labels, dtype=np.int64)
    return Graphs(len(values), owned, coded, np.stack(np.divmod(both_ways, nodes)))


def _parts(value: Any, label: str | None, name: str, position: int | None) -> tuple[Any, Any]:
    """Labels of the nodes of a graph, and its edges as pairs of their numbers."""
    if not isinstance(value, tuple):
        _check_graph(value, name, position)
        places = {node: place for place, node in enumerate(value)}
        if label is None:
            labels: Any = [None] * len(places)
        else:
            labels = [_attribute(data, label, "node", name, position) for data in value.nodes.values()]
        return labels, [(places[first], places[second]) for first, second in value.edges]
    where = "" if position is None else f" at position {position}"
    if len(value) != 2 or not all(isinstance(part, list | tuple) for part in value):
        raise InputError(f"{name}: {EXPECTED}, got {describe(value)}{where}")
    found, edges = value
    for edge in edges:
        if (
            not isinstance(edge, list | tuple)
            or len(edge) != 2
            or not all(_is_place(end, len(found)) for end in edge)
        ):
            raise InputError(
                f"{name}: expected edges as pairs of node numbers from 0 to {len(found) - 1}, got {describe(edge)}{where}"
            )
    return found if label is not None or position is None else [None] * len(found), edges


def _is_place(end: Any, size: int) -> bool:
    return isinstance(end, numbers.Integral) and not isinstance(end, bool) and 0 <= int(end) < size


def _check_graph(graph: Any, name: str, position: int | None) -> None:
    where = "" if position is None else f" at position {position}"
    if not (hasattr(graph, "nodes") and hasattr(graph, "edges") and hasattr(graph, "is_directed")):
        raise InputError(f"{name}: {EXPECTED}, got {describe(graph)}{where}")
    if graph.is_directed() or graph.is_multigraph():
        kind = "directed" if graph.is_directed() else "parallel"
        raise UnsupportedError(
            f"{name}: {kind} edges are not compared by kernels on graphs, got {describe(graph)}{where}; "
            "make it a networkx.Graph"
        )


def _attribute(data: Any, wanted: str, of: str, name: str, position: int | None) -> Any:
    if wanted not in data:
        where = "" if position is None else f" at position {position}"
        raise InputError(
            f"{name}: expected the attribute {wanted!r} on every {of}, got {of}s with "
            f"{sorted(map(str, data)) or 'none'}{where}"
        )
    return data[wanted]


def _check_attribute(given: Any, name: str) -> None:
    if given is not None and not isinstance(given, str):
        raise InputError(f"{name}: expected the name of an attribute as text or None, got {describe(given)}")


def _side_by_side(left: Graphs, right: Graphs) -> Graphs:
    return Graphs(
        left.count + right.count,
        np.concatenate([left.owners, right.owners + left.count]),
        np.concatenate([left.labels, right.labels]),
        np.concatenate([left.edges, right.edges + len(left.labels)], axis=1),
    )


# ---------------------------------------------------------------------- features of graphs


def _counted(graphs: Graphs, owners: Integers, keys: Integers, size: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(
        (np.ones(len(keys)), (owners, keys)), shape=(graphs.count, size), dtype=np.float64
    )


def _refined(labels: Integers, edges: Integers) -> Integers:
    """New labels ``(nodes,)``: equal where the old ones are, and those of the neighbours, as often each."""
    senders, neighbours = edges[0], labels[edges[1]]
    order = np.lexsort((neighbours, senders))
    neighbours = neighbours[order]
    degrees = np.bincount(senders, minlength=len(labels))
    firsts = np.cumsum(degrees) - degrees
    size = int(labels.max(initial=0)) + 1
    keys = labels.copy()
    # one more neighbour at a time, in order of labels, for those nodes that have one more
    for step in range(int(degrees.max(initial=0))):
        nodes = np.flatnonzero(degrees > step)
        longer = keys[nodes] * size + neighbours[firsts[nodes] + step]
        keys[nodes] = np.unique(longer, return_inverse=True)[1].reshape(-1)
    # nodes of one degree took the same steps; others may have come by the same number
    together = keys * (int(degrees.max(initial=0)) + 1) + degrees
    return np.unique(together, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _distances(graphs: Graphs) -> tuple[Integers, Integers, Integers]:
    """Ordered pairs of different connected nodes, ``(pairs,)`` each, and the edges between them on a shortest path."""
    nodes = len(graphs.labels)
    ones = np.ones(graphs.edges.shape[1])
    neighbours = scipy.sparse.csr_array((ones, (graphs.edges[0], graphs.edges[1])), shape=(nodes, nodes))
    before = scipy.sparse.csr_array((nodes, nodes))
    here = scipy.sparse.eye_array(nodes, format="csr")
    found: list[Integers] = [np.empty((3, 0), np.int64)]
    while here.nnz:
        # a neighbour of a node at distance d is at distance d - 1, d or d + 1
        ahead = here @ neighbours
        ahead.data[:] = 1.0
        ahead = ahead - ahead.multiply(here) - ahead.multiply(before)
        ahead.eliminate_zeros()
        before, here = here, scipy.sparse.csr_array(ahead)
        pairs = here.tocoo()
        found.append(np.stack([pairs.row, pairs.col, np.full(pairs.nnz, len(found))]).astype(np.int64))
    begins, ends, distances = np.concatenate(found, axis=1)
    return begins, ends, distances
