"""Nodes, edges and evidence, as flat integer arrays.

A `Graph` is immutable: every method returns a new one that shares the arrays of the old. It knows
variables and relations only by name; the model gives them meaning when it infers.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError
from kernelbp.keeping import Kept
from kernelbp.values import Column, Kind, as_column, missing_rows

if TYPE_CHECKING:
    import networkx

__all__ = ["Fixed", "Graph", "Readings", "Softened"]

Indices = NDArray[np.intp]

GRID_NEIGHBORS = {1: (2,), 2: (4, 8), 3: (6, 26)}
"""Which numbers of neighbours a grid of one, two or three axes can have."""

AXIS_NAMES = {1: ("right",), 2: ("down", "right"), 3: ("deep", "down", "right")}
"""What a step along each axis of a grid is called in ``relation={...}``."""


@dataclass(frozen=True, eq=False)
class Readings:
    """Observed values of a leaf variable, one for each of some nodes."""

    relation: str
    nodes: Indices
    values: Column
    kind: Kind


@dataclass(frozen=True, eq=False)
class Fixed:
    """Hidden nodes whose value is known."""

    nodes: Indices
    values: Column
    kind: Kind


@dataclass(frozen=True, eq=False)
class Softened:
    """Virtual evidence: a likelihood of each node, given at points. ``likelihood`` is (nodes, points)."""

    nodes: Indices
    points: Column
    kind: Kind
    likelihood: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph of variables tied by relations, with evidence.

    Build one with `grid`, `chain`, `from_edges` or `from_networkx`, then add evidence with
    `observe`, `fix` and `soften`.

    Attributes
    ----------
    variables : names of the variables that occur
    node_variable : (nodes,) index into `variables`
    relations : names of the relations that occur
    edges : (edges, 2) the two ends; the first end belongs to the relation's first variable
    edge_relation : (edges,) index into `relations`
    shape : the grid's shape, or None
    names : what the nodes are called if not 0, 1, 2, ... (nodes of a networkx graph)
    evidence : what is known, in the order it was said
    readings : (edges, ...) what known relations measured along each edge, or None
    directed : whether someone said which end of an edge is the first; not so in undirected networkx graphs
    kept : how inference has laid the edges out, for the next on this graph or one that differs in evidence only

    Examples
    --------
    >>> graph = Graph.grid((2, 3), variable="pixel", relation="beside")
    >>> graph
    Graph(6 nodes, 7 edges, variables: pixel, relations: beside)
    >>> graph.observe("read as", [1.0, 2.0, float("nan"), 4.0, 5.0, 6.0]).evidence[0].nodes
    array([0, 1, 3, 4, 5])
    """

    variables: tuple[str, ...]
    node_variable: Indices
    relations: tuple[str, ...]
    edges: Indices
    edge_relation: Indices
    shape: tuple[int, ...] | None = None
    names: tuple[Hashable, ...] | None = None
    evidence: tuple[Readings | Fixed | Softened, ...] = field(default=())
    readings: NDArray[Any] | None = None
    directed: bool = True
    kept: Kept = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for array in (self.node_variable, self.edges, self.edge_relation):
            array.flags.writeable = False
        object.__setattr__(self, "kept", Kept(4, self.n_edges))

    # ------------------------------------------------------------------ building

    @classmethod
    def grid(
        cls,
        shape: Sequence[int],
        *,
        variable: str,
        relation: str | Mapping[str, str | Sequence[str]],
        neighbors: int | None = None,
    ) -> Graph:
        """A grid of one, two or three axes; nodes are numbered as ``array.ravel()`` numbers them.

        Parameters
        ----------
        shape : sequence of int
            For instance ``image.shape``.
        variable : str
            The variable of every node.
        relation : str or mapping
            One relation for all edges, or one per direction: ``{"down": "below", "right": "beside"}``
            on two axes (``"deep"`` is added on three). A sequence in place of a name gives one relation
            per index of the first axis, such as one per row of an image; an edge between two rows takes
            the entry of the upper. With diagonal neighbours a step is called by its parts:
            ``"down-right"``, ``"down-left"``.
        neighbors : int, optional
            4 or 8 on two axes, 6 or 26 on three. The smaller is the default.

        Returns
        -------
        Graph

        Examples
        --------
        >>> per_row = {"down": "below", "right": ["sky", "ground"]}
        >>> graph = Graph.grid((2, 2), variable="depth", relation=per_row)
        >>> [(int(a), int(b), graph.relations[r]) for (a, b), r in zip(graph.edges, graph.edge_relation)]
        [(0, 2, 'below'), (1, 3, 'below'), (0, 1, 'sky'), (2, 3, 'ground')]
        """
        sizes = _checked_shape(shape)
        if not isinstance(relation, Mapping):
            _checked_name(relation, "relation")
        allowed = GRID_NEIGHBORS[len(sizes)]
        if neighbors is None:
            neighbors = allowed[0]
        if neighbors not in allowed:
            raise InputError(
                f"neighbors: a grid of {len(sizes)} axes takes {' or '.join(map(str, allowed))}, got {neighbors}"
            )
        numbers = np.arange(int(np.prod(sizes)), dtype=np.intp).reshape(sizes)
        names: dict[str, int] = {}
        blocks: list[Indices] = []
        kinds: list[Indices] = []
        for step in _grid_steps(len(sizes), diagonal=neighbors != allowed[0]):
            before, after = _shifted(numbers, step), _shifted(numbers, tuple(-s for s in step))
            wanted = relation if isinstance(relation, str) else _relation_of_step(relation, step, sizes)
            blocks.append(np.stack([before.ravel(), after.ravel()], axis=1))
            if isinstance(wanted, str):
                kinds.append(np.full(before.size, names.setdefault(wanted, len(names)), dtype=np.intp))
            else:
                row_kinds = np.asarray([names.setdefault(name, len(names)) for name in wanted], dtype=np.intp)
                rows = before.ravel() // max(int(np.prod(sizes[1:])), 1)
                kinds.append(row_kinds[rows])
        if not isinstance(relation, str):
            known = {_step_name(s) for s in _grid_steps(len(sizes), diagonal=neighbors != allowed[0])}
            _refuse_unknown(relation, known)
        return cls(
            (_checked_name(variable, "variable"),),
            np.zeros(numbers.size, dtype=np.intp),
            tuple(names),
            np.concatenate(blocks),
            np.concatenate(kinds),
            shape=sizes,
        )

    @classmethod
    def chain(cls, length: int, *, variable: str, relation: str) -> Graph:
        """A chain of `length` nodes, each related to the next.

        Examples
        --------
        >>> Graph.chain(4, variable="state", relation="then").edges.tolist()
        [[0, 1], [1, 2], [2, 3]]
        """
        return cls.grid((length,), variable=variable, relation=relation)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[int, int, str]],
        *,
        variables: Sequence[str],
        relation: str | None = None,
        readings: ArrayLike | None = None,
    ) -> Graph:
        """A graph from a list of edges.

        Parameters
        ----------
        edges : iterable of (first, second, relation name), or an (edges, 2) integer array
            An array needs `relation`.
        variables : sequence of str
            The variable of each node, in order.
        relation : str, optional
            The relation of edges that do not name one.
        readings : array with one entry (number or vector) for each edge, optional
            What was measured along it, such as a distance, for known relations
            ``Relation(..., potential=f)`` with a third argument.

        Examples
        --------
        >>> Graph.from_edges([(0, 1, "likes"), (1, 2, "likes")], variables=["person"] * 3)
        Graph(3 nodes, 2 edges, variables: person, relations: likes)
        """
        if isinstance(variables, str) or not hasattr(variables, "__len__"):
            raise InputError(f"variables: expected one name per node, got {variables!r}")
        variable_names: dict[str, int] = {}
        node_variable = np.asarray(
            [
                variable_names.setdefault(_checked_name(v, "variables"), len(variable_names))
                for v in variables
            ],
            dtype=np.intp,
        )
        relation_names: dict[str, int] = {}
        if isinstance(edges, np.ndarray):
            if relation is None:
                raise InputError("relation: an array of edges needs relation='...'")
            ends = _checked_ends(edges)
            relation_names[_checked_name(relation, "relation")] = 0
            kinds = np.zeros(len(ends), dtype=np.intp)
        else:
            listed = [_checked_edge(edge, index, relation) for index, edge in enumerate(edges)]
            ends = _checked_ends(np.asarray([edge[:2] for edge in listed], dtype=np.intp).reshape(-1, 2))
            kinds = np.asarray(
                [relation_names.setdefault(edge[2], len(relation_names)) for edge in listed], dtype=np.intp
            )
        if len(ends) and (ends.min() < 0 or ends.max() >= len(node_variable)):
            bad = int(np.flatnonzero((ends < 0).any(axis=1) | (ends >= len(node_variable)).any(axis=1))[0])
            raise InputError(
                f"edges: edge {bad} is ({ends[bad, 0]}, {ends[bad, 1]}), but the nodes are "
                f"0 ... {len(node_variable) - 1} (variables names {len(node_variable)} of them)"
            )
        loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
        if len(loops):
            raise InputError(f"edges: edge {loops[0]} ties node {ends[loops[0], 0]} to itself")
        return cls(
            tuple(variable_names),
            node_variable,
            tuple(relation_names),
            ends,
            kinds,
            readings=_checked_readings(readings, len(ends)),
        )

    @classmethod
    def from_networkx(
        cls, graph: networkx.Graph, *, variable: str = "variable", relation: str = "relation"
    ) -> Graph:
        """A graph from networkx; nodes keep its order, are numbered by it, and `names` holds what it calls them.

        Parameters
        ----------
        graph : networkx.Graph or DiGraph
            A directed edge (a, b) makes a the relation's first end. Without directions the end that networkx names first
            is, which inference warns of where the relation is not symmetric.
        variable, relation : str
            The attribute of a node (an edge) that holds the name of its variable (relation). Where a
            node or edge has no such attribute, this is the name itself.

        Examples
        --------
        >>> import networkx as nx
        >>> Graph.from_networkx(nx.path_graph(3), variable="state", relation="then")
        Graph(3 nodes, 2 edges, variables: state, relations: then)
        """
        names = tuple(graph.nodes)
        number = {name: index for index, name in enumerate(names)}
        variables = [str(data.get(variable, variable)) for _, data in graph.nodes(data=True)]
        edges = [
            (number[a], number[b], str(data.get(relation, relation))) for a, b, data in graph.edges(data=True)
        ]
        made = cls.from_edges(edges, variables=variables)
        return replace(made, names=names, directed=graph.is_directed())

    # ------------------------------------------------------------------ evidence

    def observe(self, relation: str, values: Any, *, nodes: ArrayLike | str | None = None) -> Graph:
        """Say what was read at nodes through a relation whose second variable is the reading.

        Parameters
        ----------
        relation : str
            For instance "read as" for ``Relation("pixel", "reading")``.
        values : one reading per node, or an array of the grid's shape
            NaN (None among objects) means not observed.
        nodes : array of node numbers, list of their names in networkx, or the name of a variable (all its nodes), optional
            By default all nodes.

        Returns
        -------
        Graph
            Another graph: this one stays as it is.

        Examples
        --------
        >>> graph = Graph.chain(3, variable="state", relation="then")
        >>> graph.observe("seen as", ["a", None, "b"]).evidence[0].nodes
        array([0, 2])
        """
        _checked_name(relation, "relation")
        where = self._nodes(nodes)
        if (
            nodes is None
            and self.shape is not None
            and isinstance(values, np.ndarray)
            and values.shape == self.shape
        ):
            values = values.ravel()  # an image on the grid of its pixels
        column, kind = as_column(values, "values", allow_missing=True)
        if len(column) != len(where):
            raise InputError(
                f"values: expected one reading for each of the {len(where)} nodes, got {len(column)}; "
                "give NaN (or None) where nothing was observed, or name the nodes with nodes="
            )
        present = ~missing_rows(column, "values")
        if kind.form == "scalar" and not present.all():
            kind = replace(kind, integer=False)
        return self._with(Readings(relation, where[present], column[present], kind))

    def fix(self, nodes: ArrayLike | str, values: Any) -> Graph:
        """Say the value of hidden nodes (all of one variable).

        Examples
        --------
        >>> graph = Graph.chain(3, variable="state", relation="then").fix([0], [1.5])
        >>> graph.evidence[0].nodes
        array([0])
        """
        where = self._nodes(nodes)
        if np.isscalar(values) and len(where) == 1:
            values = [values]
        column, kind = as_column(values, "values")
        if len(column) != len(where):
            raise InputError(
                f"values: expected one value for each of the {len(where)} nodes, got {len(column)}"
            )
        if len(np.unique(where)) != len(where):
            raise InputError("nodes: a node is named twice")
        self._one_variable(where)
        return self._with(Fixed(where, column.copy(), kind))

    def soften(self, nodes: ArrayLike | str, points: Any, likelihood: ArrayLike) -> Graph:
        """Give nodes virtual evidence: how likely something seen is, for each value they might have.

        Parameters
        ----------
        nodes : array of node numbers, or the name of a variable
        points : values of the nodes' variable at which the likelihood is given
            Between points of R it is interpolated; on finite variables they must cover every value.
        likelihood : (points,) for all nodes alike, or (nodes, points)
            Non-negative, not all zero; its scale does not matter.

        Examples
        --------
        >>> graph = Graph.chain(3, variable="state", relation="then")
        >>> graph.soften([1], points=[0.0, 1.0], likelihood=[0.2, 0.8]).evidence[0].likelihood
        array([[0.2, 0.8]])
        """
        where = self._nodes(nodes)
        self._one_variable(where)
        column, kind = as_column(points, "points")
        table = np.array(likelihood, dtype=np.float64)
        if table.ndim == 1:
            table = np.broadcast_to(table, (len(where), len(table)))
        if table.shape != (len(where), len(column)):
            raise InputError(
                f"likelihood: expected shape ({len(column)},) or ({len(where)}, {len(column)}), got {table.shape}"
            )
        if not np.isfinite(table).all() or (table < 0).any():
            raise InputError("likelihood: expected finite numbers of at least 0")
        if (table.sum(axis=1) <= 0).any():
            bad = int(where[np.flatnonzero(table.sum(axis=1) <= 0)[0]])
            raise InputError(f"likelihood: all zero at node {bad}; no value would be possible there")
        return self._with(Softened(where, column.copy(), kind, table))

    # ------------------------------------------------------------------ looking

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_variable)

    @property
    def n_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.edges)

    def degrees(self) -> Indices:
        """Number of edges at each node (readings not counted), shape (nodes,)."""
        return np.bincount(self.edges.ravel(), minlength=self.n_nodes)

    def nodes_of(self, variable: str) -> Indices:
        """Numbers of the nodes of a variable."""
        if variable not in self.variables:
            raise InputError(f"variable: no node of {variable!r}; this graph has {', '.join(self.variables)}")
        return np.flatnonzero(self.node_variable == self.variables.index(variable))

    def __repr__(self) -> str:
        told = f", {len(self.evidence)} kinds of evidence" if self.evidence else ""
        return (
            f"Graph({self.n_nodes} nodes, {self.n_edges} edges, variables: {', '.join(self.variables)}, "
            f"relations: {', '.join(self.relations) or 'none'}{told})"
        )

    # ------------------------------------------------------------------ inside

    def _with(self, said: Readings | Fixed | Softened) -> Graph:
        made = replace(self, evidence=(*self.evidence, said))
        object.__setattr__(made, "kept", self.kept)
        return made

    def _nodes(self, nodes: ArrayLike | str | None) -> Indices:
        if nodes is None:
            return np.arange(self.n_nodes, dtype=np.intp)
        if isinstance(nodes, str) and (self.names is None or nodes in self.variables):
            return self.nodes_of(nodes)
        if self.names is not None and (called := self._called(nodes)) is not None:
            return called
        array = np.atleast_1d(np.asarray(nodes))
        if array.dtype == bool and array.shape == (self.n_nodes,):
            return np.flatnonzero(array)
        if array.size == 0:
            return np.empty(0, dtype=np.intp)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(
                f"nodes: expected node numbers, a mask of all nodes or a variable's name, got {nodes!r:.80}"
            )
        if array.min() < 0 or array.max() >= self.n_nodes:
            raise InputError(
                f"nodes: numbers must lie in 0 ... {self.n_nodes - 1}, got {int(array.min())} ... {int(array.max())}"
            )
        return array.astype(np.intp)

    def _called(self, nodes: Any) -> Indices | None:
        """The numbers of nodes that are given by their names in networkx; None if they are numbers or a mask."""
        listed = [nodes] if isinstance(nodes, str) else nodes
        if isinstance(listed, np.ndarray) or not isinstance(listed, Sequence):
            return None
        if all(isinstance(name, (int, np.integer, bool, np.bool_)) for name in listed):
            return None
        number = {name: index for index, name in enumerate(self.names or ())}
        unknown = [name for name in listed if name not in number]
        if unknown:
            raise InputError(
                f"nodes: no node is called {unknown[0]!r}; the graph has variables {', '.join(self.variables)}"
            )
        return np.array([number[name] for name in listed], dtype=np.intp)

    def _one_variable(self, nodes: Indices) -> None:
        kinds = np.unique(self.node_variable[nodes])
        if len(kinds) > 1:
            raise InputError(
                "nodes: all must be of one variable, got "
                + ", ".join(self.variables[k] for k in kinds)
                + "; call once for each variable"
            )


def _checked_name(name: Any, argument: str) -> str:
    if not isinstance(name, str) or not name:
        raise InputError(f"{argument}: expected a name (non-empty text), got {name!r:.80}")
    return name


def _checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in shape)
    except (TypeError, ValueError):
        raise InputError(f"shape: expected sizes such as (100, 100), got {shape!r}") from None
    if len(sizes) not in GRID_NEIGHBORS or min(sizes, default=0) < 1:
        raise InputError(f"shape: expected one to three sizes of at least 1, got {shape!r}")
    return sizes


def _checked_ends(edges: NDArray[Any]) -> Indices:
    if not edges.size:
        return np.empty((0, 2), dtype=np.intp)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError(
            f"edges: expected an (edges, 2) array of node numbers, got {edges.dtype} {edges.shape}"
        )
    return edges.astype(np.intp)


def _checked_readings(readings: ArrayLike | None, n_edges: int) -> NDArray[Any] | None:
    if readings is None:
        return None
    try:
        array = np.array(readings, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"readings: expected numbers, got {readings!r:.80}") from None
    if array.ndim == 0 or len(array) != n_edges:
        raise InputError(f"readings: expected one for each of the {n_edges} edges, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(
            "readings: expected finite numbers; leave out edges along which nothing was measured"
        )
    return array


def _checked_edge(edge: Any, index: int, relation: str | None) -> tuple[int, int, str]:
    edge = tuple(edge) if isinstance(edge, list) else edge
    if isinstance(edge, tuple) and len(edge) == 2 and relation is not None:
        edge = (*edge, relation)
    whole = (int, np.integer)
    if not (
        isinstance(edge, tuple)
        and len(edge) == 3
        and isinstance(edge[0], whole)
        and isinstance(edge[1], whole)
        and isinstance(edge[2], str)
    ):
        raise InputError(f"edges: edge {index} should be (first, second, relation name), got {edge!r:.80}")
    return int(edge[0]), int(edge[1]), edge[2]


def _grid_steps(axes: int, *, diagonal: bool) -> list[tuple[int, ...]]:
    """Each direction once: steps whose first non-zero entry is +1."""
    if not diagonal:
        return [tuple(int(a == axis) for a in range(axes)) for axis in range(axes)]
    steps = itertools.product((-1, 0, 1), repeat=axes)
    return [s for s in steps if any(s) and next(x for x in s if x) == 1]


def _step_name(step: tuple[int, ...]) -> str:
    words = [
        name if move > 0 else {"right": "left", "down": "up"}[name]
        for name, move in zip(AXIS_NAMES[len(step)], step, strict=True)
        if move
    ]
    return "-".join(words)


def _shifted(numbers: Indices, step: tuple[int, ...]) -> Indices:
    """The nodes that have a neighbour one `step` further on."""
    cut = tuple(slice(None, -1) if s > 0 else slice(1, None) if s < 0 else slice(None) for s in step)
    return numbers[cut]


def _relation_of_step(
    relation: Mapping[str, str | Sequence[str]], step: tuple[int, ...], sizes: tuple[int, ...]
) -> str | Sequence[str]:
    name = _step_name(step)
    if name not in relation:
        raise InputError(f"relation: no relation given for the direction {name!r}; got {', '.join(relation)}")
    wanted = relation[name]
    needed = sizes[0] - step[0]
    if not isinstance(wanted, str) and len(wanted) < needed:
        raise InputError(f"relation[{name!r}]: expected {needed} names, one per row, got {len(wanted)}")
    return wanted


def _refuse_unknown(relation: Mapping[str, Any], known: set[str]) -> None:
    for name in relation:
        if name not in known:
            raise InputError(
                f"relation: no direction {name!r} in this grid; it has {', '.join(sorted(known))}"
            )
