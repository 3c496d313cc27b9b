"""A graph compiled once into flat integer arrays, and the phases an iteration is made of.

Every undirected edge carries two messages. Messages are numbered so that those arriving at one node
stand together, and those arriving at nodes of one variable stand in one array:

    messages[v] : (messages arriving at nodes of variable v, q_v)

A `Phase` is a set of messages that are updated at the same time. An iteration is a list of phases
that holds every message once: one phase when flooding, one for each column of a grid when sweeping along its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.graph import Graph
from kernelbp.keeping import Kept
from kernelbp.learning.examples import Ends

__all__ = ["Gather", "Phase", "Send", "Wiring", "wire"]

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Wiring:
    """Who sends to whom.

    Nodes are numbered within their variable. Attributes with one entry per message:

    Attributes
    ----------
    variables : names; position in this list is a variable's number
    nodes : for each variable, the graph's node numbers (n_v,)
    source_variable, source : the sending node, as (variable, number within it)
    target_variable, target : the receiving node
    row : where the message stands in messages[target_variable]
    reverse : the number of the message going the other way
    operator : index into `operators`
    edge : the graph's edge it belongs to
    operators : the (relation, toward) pairs that occur
    start : for each variable (n_v + 1,), rows start[i] ... start[i + 1] arrive at node i
    kept : what has been laid out for it
    """

    variables: tuple[str, ...]
    nodes: tuple[Indices, ...]
    source_variable: Indices
    source: Indices
    target_variable: Indices
    target: Indices
    row: Indices
    reverse: Indices
    operator: Indices
    edge: Indices
    operators: tuple[tuple[str, int], ...]
    start: tuple[Indices, ...]
    kept: Kept = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", Kept(8, self.n_messages // 2))

    @property
    def n_messages(self) -> int:
        """Number of directed edges."""
        return len(self.source)

    @cached_property
    def ends(self) -> tuple[Indices, Indices]:
        """The graph's node numbers of every message's sender and receiver."""
        source, target = np.empty_like(self.source), np.empty_like(self.target)
        for variable, members in enumerate(self.nodes):
            mine = self.source_variable == variable
            source[mine] = members[self.source[mine]]
            mine = self.target_variable == variable
            target[mine] = members[self.target[mine]]
        return source, target

    @cached_property
    def is_forest(self) -> bool:
        """Whether the messages run along no cycle."""
        source, target = self.ends
        count = sum(map(len, self.nodes))
        if len(source) // 2 >= count:
            return False  # more edges than any forest has
        graph = scipy.sparse.csr_array(
            (np.ones(len(source), dtype=bool), (source, target)), shape=(count, count)
        )
        return bool(
            len(source) // 2 == count - scipy.sparse.csgraph.connected_components(graph, directed=False)[0]
        )

    @cached_property
    def degrees(self) -> tuple[Indices, ...]:
        """Messages arriving at each node, for each variable."""
        return tuple(np.diff(start) for start in self.start)

    def phase(self, messages: Indices) -> Phase:
        """Messages to be updated together."""
        return Phase(self, messages)


@dataclass(frozen=True)
class Phase:
    """Messages updated at the same time: all are computed before any is written.

    Attributes
    ----------
    wiring : what they are part of
    messages : (n,) their numbers
    """

    wiring: Wiring
    messages: Indices

    @cached_property
    def independent(self) -> bool:
        """Whether none of its receivers also sends, so that no message is read that is written."""
        source, target = self.wiring.ends
        sends = np.zeros(sum(map(len, self.wiring.nodes)), dtype=bool)
        sends[source[self.messages]] = True
        return not bool(sends[target[self.messages]].any())

    @property
    def gathers(self) -> tuple[Gather, ...]:
        """Senders, and what arrives there."""
        return self._parts[0]

    @property
    def sends(self) -> tuple[Send, ...]:
        """What is sent, by operator."""
        return self._parts[1]

    @cached_property
    def _parts(self) -> tuple[tuple[Gather, ...], tuple[Send, ...]]:
        wiring, messages = self.wiring, self.messages
        gathers: list[Gather] = []
        sends: list[Send] = []
        for variable in np.unique(wiring.source_variable[messages]).tolist():
            mine = messages[wiring.source_variable[messages] == variable]
            sources, which = np.unique(wiring.source[mine], return_inverse=True)
            begin = wiring.start[variable][sources]
            length = wiring.degrees[variable][sources]
            offsets = np.cumsum(length) - length
            rows = np.arange(length.sum()) + np.repeat(begin - offsets, length)
            for operator in np.unique(wiring.operator[mine]).tolist():
                chosen = wiring.operator[mine] == operator
                sent = mine[chosen]
                sends.append(
                    Send(
                        operator=operator,
                        gather=len(gathers),
                        source=which.reshape(-1)[chosen],
                        own=wiring.row[wiring.reverse[sent]],
                        target_variable=int(wiring.target_variable[sent[0]]),
                        rows=wiring.row[sent],
                        messages=sent,
                        edges=wiring.edge[sent],
                        nodes=wiring.source[sent],
                        begin=wiring.start[variable][wiring.source[sent]],
                        end=wiring.start[variable][wiring.source[sent] + 1],
                    )
                )
            gathers.append(Gather(variable, sources, rows, offsets))
        return tuple(gathers), tuple(sends)


@dataclass(frozen=True)
class Gather:
    """Sending nodes of one variable and the rows of all messages that arrive there.

    Attributes
    ----------
    variable : number of the variable
    nodes : (k,) node numbers within it
    rows : all arriving messages, node after node
    offsets : (k,) where each node's rows begin in `rows`
    """

    variable: int
    nodes: Indices
    rows: Indices
    offsets: Indices


@dataclass(frozen=True)
class Send:
    """Messages sent through one operator.

    Attributes
    ----------
    operator : number of the operator
    gather : which gather of the phase the senders are in
    source : (n,) position of each sender in that gather
    own : (n,) row of the message the receiver sent to the sender, to be left out
    target_variable : variable of the receivers
    rows : (n,) where the new messages go
    messages : (n,) their numbers in the wiring
    edges : (n,) the graph's edges they run along
    nodes : (n,) the sender's number within its variable
    begin, end : (n,) the rows that arrive at the sender
    """

    operator: int
    gather: int
    source: Indices
    own: Indices
    target_variable: int
    rows: Indices
    messages: Indices
    edges: Indices
    nodes: Indices
    begin: Indices
    end: Indices


def wire(graph: Graph, relations: Mapping[str, Ends], fixed: Indices) -> Wiring:
    """Compile a graph; edges at `fixed` nodes carry no messages (their evidence is put in elsewhere).

    Raises
    ------
    InputError
        If an edge joins variables its relation does not.
    """
    edges = oriented_edges(graph, relations)
    is_fixed = np.zeros(graph.n_nodes, dtype=bool)
    is_fixed[fixed] = True
    kept = np.flatnonzero(~is_fixed[edges].any(axis=1))
    ends, kinds = edges[kept], graph.edge_relation[kept]
    count = len(kept)

    number_in_variable = np.empty(graph.n_nodes, dtype=np.intp)
    nodes = tuple(np.flatnonzero(graph.node_variable == v) for v in range(len(graph.variables)))
    for members in nodes:
        number_in_variable[members] = np.arange(len(members))

    # Message 2-column layout: the first `count` go to the first end, the others to the second.
    target_node = np.concatenate([ends[:, 0], ends[:, 1]])
    source_node = np.concatenate([ends[:, 1], ends[:, 0]])
    toward = np.repeat([0, 1], count)
    relation_of = np.tile(kinds, 2)
    partner = np.concatenate([np.arange(count, 2 * count), np.arange(count)])

    order = np.lexsort((target_node, graph.node_variable[target_node]))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    target_node, source_node = target_node[order], source_node[order]
    target_variable = graph.node_variable[target_node]
    per_variable = np.bincount(target_variable, minlength=len(graph.variables))
    first_row = np.cumsum(per_variable) - per_variable

    symmetric = np.asarray([relations[name].symmetric for name in graph.relations], dtype=bool)
    code = 2 * relation_of[order] + np.where(
        symmetric[relation_of[order]] if len(symmetric) else False, 0, toward[order]
    )
    used = np.flatnonzero(np.bincount(code))
    starts = []
    for variable, members in enumerate(nodes):
        begin, end = first_row[variable], first_row[variable] + per_variable[variable]
        arrivals = np.bincount(number_in_variable[target_node[begin:end]], minlength=len(members))
        starts.append(np.concatenate([[0], np.cumsum(arrivals)]).astype(np.intp))
    return Wiring(
        variables=graph.variables,
        nodes=nodes,
        source_variable=graph.node_variable[source_node],
        source=number_in_variable[source_node],
        target_variable=target_variable,
        target=number_in_variable[target_node],
        row=np.arange(2 * count) - first_row[target_variable],
        reverse=place[partner[order]],
        operator=np.searchsorted(used, code),
        edge=np.tile(kept, 2)[order],
        operators=tuple((graph.relations[c // 2], int(c % 2)) for c in used.tolist()),
        start=tuple(starts),
    )


def oriented_edges(graph: Graph, relations: Mapping[str, Ends]) -> Indices:
    """The edges (edges, 2) turned, where need be, so that each begins at its relation's first variable."""
    edges = graph.edges.copy()
    for index, name in enumerate(graph.relations):
        if name not in relations:
            raise InputError(f"graph: unknown relation {name!r}; the model has {', '.join(relations)}")
        relation = relations[name]
        mine = np.flatnonzero(graph.edge_relation == index)
        wanted = [
            graph.variables.index(end) if end in graph.variables else -1
            for end in (relation.first, relation.second)
        ]
        found = graph.node_variable[edges[mine]]
        as_given = (found == wanted).all(axis=1)
        turned = (found == wanted[::-1]).all(axis=1) & ~as_given
        wrong = np.flatnonzero(~as_given & ~turned)
        if len(wrong):
            bad = mine[wrong[0]]
            got = [graph.variables[v] for v in graph.node_variable[edges[bad]]]
            raise InputError(
                f"graph: edge {bad} joins {got[0]!r} and {got[1]!r}, but relation {name!r} is between "
                f"{relation.first!r} and {relation.second!r}"
            )
        edges[mine[turned]] = edges[mine[turned]][:, ::-1]
    return edges
