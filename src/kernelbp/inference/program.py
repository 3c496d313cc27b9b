"""Phases laid out for the compiled update: who sends what through which operator, as flat offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.inference.wiring import Phase, Wiring

__all__ = ["LANES", "Layout", "Program", "make_program", "padded"]

Table = NDArray[np.int64]
Unsigned = NDArray[np.uint64]

LANES = 8
"""Values that are worked on at once."""
BLOCK_CELLS = 1 << 15
"""Message values a block makes, about: products and new messages stay in a core's own cache."""
BLOCK_ROWS = 512
"""Messages a block makes, at least, about: BLAS lays out the operator anew for each block."""


def padded(size: int) -> int:
    """Room for a row: the least multiple of `LANES` that is not below its size.

    Examples
    --------
    >>> padded(8), padded(9)
    (8, 16)
    """
    return -(-size // LANES) * LANES


@dataclass(frozen=True)
class Layout:
    """Where things stand in flat arrays.

    Nodes that send in one phase, and the messages that arrive at them, stand together: a phase then reads one
    part of the memory from end to end and writes the other.

    Attributes
    ----------
    values : (variables,) values of a message
    sizes : (variables,) room of a message: its values and what pads them
    messages : (variables,) offset of each variable's first message
    evidence : (variables,) offset of each variable's first node
    rows : (variables,) number of each variable's first message
    nodes : (variables,) number of each variable's first node
    operators : (operators,) offset of each operator, stored as (sending, receiving)
    row_places : (messages,) for each message, variable by variable, its place among those of its variable
    node_places : (nodes,) the same for nodes
    """

    values: Table
    sizes: Table
    messages: Table
    evidence: Table
    rows: Table
    nodes: Table
    operators: Table
    row_places: Table
    node_places: Table

    @classmethod
    def of(cls, wiring: Wiring, sizes: Sequence[int], ranks: NDArray[np.intp] | None = None) -> Layout:
        """For the messages and nodes of a wiring, with `sizes` values each.

        `ranks` has for each node of the graph the phase it sends in; None leaves all as they are.
        """
        values = np.asarray(sizes, dtype=np.int64)
        size: Table = np.array([padded(count) for count in sizes], dtype=np.int64)
        row_places: list[Table] = [np.empty(0, dtype=np.int64)]
        node_places: list[Table] = [np.empty(0, dtype=np.int64)]
        for members, start in zip(wiring.nodes, wiring.start, strict=True):
            order = np.arange(len(members)) if ranks is None else np.argsort(ranks[members], kind="stable")
            degrees = np.diff(start)
            first = np.empty(len(members), dtype=np.int64)
            first[order] = _starts(degrees[order])
            row_places.append(np.arange(start[-1]) + np.repeat(first - start[:-1], degrees))
            node_places.append(_inverse(order))
        rows = np.array([int(start[-1]) for start in wiring.start], dtype=np.int64)
        nodes: Table = np.array([len(members) for members in wiring.nodes], dtype=np.int64)
        # A message of each operator; every operator that is numbered has one.
        some = np.unique(wiring.operator, return_index=True)[1]
        shapes = size[wiring.source_variable[some]] * size[wiring.target_variable[some]]
        return cls(
            values,
            size,
            _starts(rows * size),
            _starts(nodes * size),
            _starts(rows),
            _starts(nodes),
            _starts(shapes),
            np.concatenate(row_places),
            np.concatenate(node_places),
        )

    def offsets(self, variable: Table, row: Table) -> Table:
        """Where messages begin."""
        return self.messages[variable] + self.row_places[self.rows[variable] + row] * self.sizes[variable]


@dataclass(frozen=True)
class Program:
    """Phases one after another, cut into blocks of senders.

    The tables of blocks, senders and segments have one more row, which ends the last. Those of answers and targets lie on
    their side: most of their rows are rarely read.

    Attributes
    ----------
    blocks : (blocks + 1, 3) first sender, first segment, room of a message at the senders
    senders : (senders + 1, 5) offset of the evidence; offset and number in the layout of the first message that
        arrives; how many arrive; first answer
    answers : (2, messages) one for each message sent, sender by sender in the order of what it answers: its place
        in the block, offset of the message it answers
    segments : (segments + 1, 5) first target, offset of the operator, room of a message at the receivers, place
        of the first in the block, values of a message
    targets : (4, messages) block by block, operator by operator: offset of the message, its number in the wiring,
        its number and that of the message it answers in the layout
    cuts : (phases + 1,) first block of each phase
    room : (2,) most messages a block sends, most room of a message
    independent : whether no phase reads what it writes
    """

    blocks: Unsigned
    senders: Unsigned
    answers: Unsigned
    segments: Unsigned
    targets: Unsigned
    cuts: Table
    room: Unsigned
    independent: bool


def make_program(wiring: Wiring, layout: Layout, phases: Sequence[Phase]) -> Program:
    """Lay out phases that are to be run one after another."""
    lengths = np.array([len(phase.messages) for phase in phases], dtype=np.int64)
    messages = np.concatenate([np.empty(0, dtype=np.intp), *(phase.messages for phase in phases)])
    phase = np.repeat(np.arange(len(phases)), lengths)

    # By phase and sender, and for each sender in the order of the messages that are answered: these stand
    # sender by sender in their array.
    answered = layout.rows[wiring.source_variable[messages]] + wiring.row[wiring.reverse[messages]]
    order = np.argsort(phase * wiring.n_messages + answered, kind="stable")
    messages, phase = messages[order], phase[order]
    answered = layout.row_places[answered[order]] + layout.rows[wiring.source_variable[messages]]
    variable, node = wiring.source_variable[messages], wiring.source[messages]
    opens = _opens(phase, variable, node)
    first_answer = np.flatnonzero(opens)
    sender = np.cumsum(opens) - 1
    variable, node, phase = variable[opens], node[opens], phase[opens]
    start = np.concatenate([np.empty(0, dtype=np.intp), *(part[:-1] for part in wiring.start)])
    degree = np.concatenate([np.empty(0, dtype=np.intp), *wiring.degrees])
    place = layout.nodes[variable] + node
    arriving = start[place]
    senders = np.stack(
        [
            layout.evidence[variable] + layout.node_places[place] * layout.sizes[variable],
            layout.offsets(variable, arriving),
            layout.rows[variable] + layout.row_places[layout.rows[variable] + arriving],
            degree[place],
            first_answer,
        ],
        axis=1,
    )

    # Blocks: senders of one phase and variable, as many as send about what fits the cache.
    run_opens = _opens(phase, variable)
    run_begin = first_answer[run_opens][np.cumsum(run_opens) - 1]
    share = (first_answer - run_begin) // np.maximum(BLOCK_CELLS // layout.sizes[variable], BLOCK_ROWS)
    block_opens = run_opens | _opens(share)
    first_sender = np.flatnonzero(block_opens)
    block = (np.cumsum(block_opens) - 1)[sender]
    block_begin = first_answer[first_sender]

    # Segments: within a block, messages of one operator together, in the order in which they stand in memory.
    operator = wiring.operator[messages]
    segment = block * max(len(wiring.operators), 1) + operator
    receiver = wiring.target_variable[messages]
    target = layout.rows[receiver] + layout.row_places[layout.rows[receiver] + wiring.row[messages]]
    order = np.argsort(segment * max(wiring.n_messages, 1) + target)
    answers = np.stack(
        [
            _inverse(order) - block_begin[block],
            layout.offsets(wiring.source_variable[messages], wiring.row[wiring.reverse[messages]]),
        ]
    )
    messages, block, operator = messages[order], block[order], operator[order]
    receiver = wiring.target_variable[messages]
    targets = np.stack(
        [layout.offsets(receiver, wiring.row[messages]), messages, target[order], answered[order]]
    )
    first_target = np.flatnonzero(_opens(block, operator))
    segments = np.stack(
        [
            first_target,
            layout.operators[operator[first_target]],
            layout.sizes[receiver[first_target]],
            first_target - block_begin[block[first_target]],
            layout.values[receiver[first_target]],
        ],
        axis=1,
    )
    blocks = np.stack(
        [
            first_sender,
            np.searchsorted(block[first_target], np.arange(len(first_sender))),
            layout.sizes[variable[first_sender]],
        ],
        axis=1,
    )
    return Program(
        blocks=_ended(blocks, len(senders), len(segments), 0),
        senders=_ended(senders, 0, 0, 0, 0, len(messages)),
        answers=answers.astype(np.uint64),
        segments=_ended(segments, len(messages), 0, 0, 0, 0),
        targets=targets.astype(np.uint64),
        cuts=np.searchsorted(phase[first_sender], np.arange(len(phases) + 1)).astype(np.int64),
        room=np.array(
            [
                np.diff(np.append(block_begin, len(messages))).max(initial=1),
                layout.sizes.max(initial=1),
            ],
            dtype=np.uint64,
        ),
        independent=all(part.independent for part in phases),
    )


def _opens(*keys: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Where a run of equal keys begins."""
    opens = np.ones(len(keys[0]), dtype=bool)
    opens[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return opens


def _ended(table: NDArray[np.integer[Any]], *last: int) -> Unsigned:
    return np.vstack([table, [last]]).astype(np.uint64)


def _inverse(order: NDArray[np.intp]) -> Table:
    """Where each entry of a permutation went."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def _starts(lengths: Table) -> Table:
    return np.cumsum(lengths) - lengths
