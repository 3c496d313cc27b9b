"""The hot loop of an update, compiled: products of messages, the operator, scaling and change in one pass.

Messages of all variables stand in one flat array, and so do evidence and operators; everything is addressed by
offsets laid out beforehand (`kernelbp.inference.program`), and every row is padded to a multiple of eight
(`kernelbp.inference.lanes`). Work goes block by block, a block being as many senders as leave their products and
new messages in the cache. Blocks of one phase do not touch what others of it read, so any number of threads may
share them, each block with the same result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit
from kernelbp.inference.lanes import (
    EIGHT,
    exponential,
    larger,
    load,
    logarithm,
    magnitude,
    peak,
    power,
    prefetch,
    root,
    smaller,
    spread,
    store,
    where_below,
)
from kernelbp.inference.multiplying import LARGEST, multiply
from kernelbp.inference.sharing import DONE, LEAVE, LIMIT, NEXT, SWAPPED, add, claim, look, put

__all__ = ["add_logarithms", "copy_messages", "from_logarithms", "run_phases", "to_logarithms", "workspace"]

Array = NDArray[Any]
Table = NDArray[np.uint64]

FEW = np.float32(10)
"""How far within the range of its type a row's largest magnitude must lie for the row to be scaled."""
NONE, ONE, TWO, THREE, FOUR = (np.uint64(n) for n in range(5))
SINGLE = 4
"""Bytes of a number in single precision."""
AHEAD, LINE = np.uint64(6), np.uint64(16)
"""How many messages ahead are fetched, and float32 values in a line of the cache."""
PATIENCE = 1 << 18
"""How often a helper looks for something to do before it leaves: a millisecond or so."""
MOST_FACTORS = np.uint64(8)
"""Senders with more neighbours than this are multiplied out in logarithms."""


def workspace(rows: int, size: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """What `run_phases` works in: for blocks of up to `rows` messages with room for `size` values each.

    Made once and used again: fresh memory has to be asked for page by page, which takes longer than a small phase.
    """
    return (
        np.empty(rows * size, dtype),
        np.empty(rows * size, dtype),
        np.zeros(rows, np.bool_),
        np.empty(2 * size, np.float64),
        np.empty(2 * size, np.int64),
        tuple(
            np.empty(shape, np.uint64)
            for shape in ((rows + 1, 5), (2, rows), (rows + 1, 5), (4, rows), (1, rows))
        ),
    )


@jit
def run_phases(
    thread: int,
    first: int,
    last: int,
    cuts: NDArray[np.int64],
    board: NDArray[np.int64],
    found: NDArray[np.float64],
    numbers: NDArray[np.float64],
    blocks: Table,
    senders: Table,
    answers: Table,
    segments: Table,
    targets: Table,
    evidence: Array,
    weights: Array,
    operators: Array,
    messages: Array,
    fresh: Array,
    floor: float,
    signed: bool,
    changes: NDArray[np.float64],
    pending: NDArray[np.float32],
    products: Array,
    made: Array,
    faint: NDArray[np.bool_],
    logs: NDArray[np.float64],
    counts: NDArray[np.int64],
    part: tuple[Table, Table, Table, Table, Table],
) -> None:
    """Thread 0 leads through phases `first` ... `last`; others help it until nothing has been to do for a while.

    Blocks are numbered on from phase to phase and from iteration to iteration, and taken by whoever comes first.

    Parameters
    ----------
    thread : which one this is
    first, last : range of phases, for the one that leads
    cuts, blocks, senders, answers, segments, targets : as `kernelbp.inference.program.Program`
    board : see `kernelbp.inference.sharing`
    found : (threads, ...) first of each row: written, the largest change of a value that thread has seen
    numbers : (2,) damping, the share of the old message that is kept; and what a pending change must be, at least,
        for its receiver to send again, 0 if all are to send
    evidence, weights, operators : flat; no weights if all are one
    messages : flat, read
    fresh : flat, written; may be `messages` where a phase does not read what it writes
    floor : least value of a weighted message relative to its largest
    signed : whether values may be negative
    changes : (messages,) written: the largest change of a value of each; none if nobody asks
    pending : (messages,) as the layout numbers them, how much each has changed since its receiver last sent; none
        if all are to send anyway
    products, made, faint, logs, counts, part : to work in, for one thread; see `workspace`
    """
    kind = messages.dtype.type
    # Messages that may be negative have no least value.
    least = spread(kind(floor if len(weights) else (-np.inf if signed else 0.0)))
    phase, idle = first, 0
    while idle < PATIENCE and look(board, LEAVE) == 0 and (thread > 0 or phase < last):
        if thread == 0:
            put(board, LIMIT, look(board, LIMIT) + cuts[phase + 1] - cuts[phase])
        idle += 1
        taken = look(board, NEXT)
        while taken < look(board, LIMIT):
            if claim(board, NEXT, taken):
                idle = 0
                swapped = look(board, SWAPPED) != 0
                change = _run_block(
                    np.uint64(taken % (len(blocks) - 1)),
                    blocks,
                    senders,
                    answers,
                    segments,
                    targets,
                    evidence,
                    weights,
                    operators,
                    fresh if swapped else messages,
                    messages if swapped else fresh,
                    numbers[0],
                    least,
                    signed,
                    changes,
                    pending,
                    numbers[1],
                    products,
                    made,
                    faint,
                    logs,
                    counts,
                    part,
                )
                found[thread, 0] = max(found[thread, 0], change)
                add(board, DONE)
            taken = look(board, NEXT)
        if thread == 0:
            while look(board, DONE) < look(board, LIMIT):
                pass
            phase, idle = phase + 1, 0


@jit
def _run_block(
    b: Any,
    blocks: Table,
    senders: Table,
    answers: Table,
    segments: Table,
    targets: Table,
    evidence: Array,
    weights: Array,
    operators: Array,
    messages: Array,
    fresh: Array,
    damping: float,
    least: Any,
    signed: bool,
    changes: NDArray[np.float64],
    pending: NDArray[np.float32],
    enough: float,
    products: Array,
    made: Array,
    faint: NDArray[np.bool_],
    logs: NDArray[np.float64],
    counts: NDArray[np.int64],
    part: tuple[Table, Table, Table, Table, Table],
) -> float:
    """Update the messages of a block, or of those of its senders that have heard news; the largest change of a value."""
    q, low, high = blocks[b, 2], blocks[b, 0], blocks[b + ONE, 0]
    first_segment, last_segment = blocks[b, 1], blocks[b + ONE, 1]
    table = (senders, answers, segments, targets)
    if len(pending):
        awake = _awake(senders, low, high, pending, enough, faint)
        if awake == 0:
            return 0.0
        if awake < high - low:
            # Those that send are laid out as a block of their own.
            _lay_out(table, low, high, first_segment, last_segment, faint, part)
            low, high, first_segment, last_segment = NONE, awake, NONE, last_segment - first_segment
            table = part[:4]
    return _run_senders(
        q,
        low,
        high,
        first_segment,
        last_segment,
        table[0],
        table[1],
        table[2],
        table[3],
        evidence,
        weights,
        operators,
        messages,
        fresh,
        damping,
        least,
        signed,
        changes,
        pending,
        products,
        made,
        faint,
        logs,
        counts,
    )


@jit
def _run_senders(
    q: Any,
    first: Any,
    last: Any,
    first_segment: Any,
    last_segment: Any,
    senders: Table,
    answers: Table,
    segments: Table,
    targets: Table,
    evidence: Array,
    weights: Array,
    operators: Array,
    messages: Array,
    fresh: Array,
    damping: float,
    least: Any,
    signed: bool,
    changes: NDArray[np.float64],
    pending: NDArray[np.float32],
    products: Array,
    made: Array,
    faint: NDArray[np.bool_],
    logs: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> float:
    """Messages of senders `first` ... `last`, which make up the segments `first_segment` ... `last_segment`."""
    largest = 0.0
    _leave_each_out(senders, first, last, answers, q, evidence, weights, messages, products, logs, counts)
    for g in range(first_segment, last_segment):
        begin, at, to, low = segments[g, 0], segments[g, 1], segments[g, 2], segments[g, 3]
        count = segments[g + ONE, 0] - begin
        if count == 0:
            continue
        for again in range(2):
            if made.itemsize == SINGLE and max(q, to) <= LARGEST:
                multiply(products, low * q, count, q, operators, at, to, made)
            else:
                sent = products[low * q : (low + count) * q].reshape((count, q))
                operator = operators[at : at + q * to].reshape((q, to))
                np.dot(sent, operator, made[: count * to].reshape((count, to)))
            change, faints = _settle_all(
                segments,
                g,
                targets,
                made,
                faint,
                again > 0,
                messages,
                fresh,
                damping,
                least,
                signed,
                changes,
                pending,
            )
            largest = max(largest, change)
            if faints == 0 or again > 0:
                break
            for s in range(first, last):
                _leave_out_carefully(
                    senders,
                    s,
                    answers,
                    q,
                    evidence,
                    weights,
                    messages,
                    products,
                    faint,
                    low,
                    count,
                    signed,
                )
    return largest


@jit
def _awake(
    senders: Table,
    first: Any,
    last: Any,
    pending: NDArray[np.float32],
    enough: float,
    wakes: NDArray[np.bool_],
) -> Any:
    """Note which of a block's senders are to send, take what is pending there as heard, and count them."""
    limit, awake = np.float32(enough), NONE
    for s in range(first, last):
        begin = senders[s, 2]
        end = begin + senders[s, 3]
        most = np.float32(0)
        for r in range(begin, end):
            most = max(most, pending[r])
        wakes[s - first] = most >= limit
        if most >= limit:
            awake += ONE
            for r in range(begin, end):
                pending[r] = 0
    return awake


@jit
def _lay_out(
    whole: tuple[Table, Table, Table, Table],
    first: Any,
    last: Any,
    first_segment: Any,
    last_segment: Any,
    wakes: NDArray[np.bool_],
    part: tuple[Table, Table, Table, Table, Table],
) -> None:
    """Of a block's rows of senders, answers, segments and targets, those of the senders that are awake."""
    senders, answers, segments, targets = whole
    some_senders, some_answers, some_segments, some_targets, places = part
    for s in range(first, last):
        for a in range(senders[s, 4], senders[s + ONE, 4]):
            places[0, answers[0, a]] = ONE if wakes[s - first] else NONE
    place, count = NONE, NONE
    for g in range(first_segment, last_segment):
        _copy_row(segments, g, some_segments, g - first_segment)
        some_segments[g - first_segment, 0] = some_segments[g - first_segment, 3] = count
        for i in range(segments[g, 0], segments[g + ONE, 0]):
            if places[0, place] == ONE:
                _copy_column(targets, i, some_targets, count)
                places[0, place] = count
                count += ONE
            place += ONE
    some_segments[last_segment - first_segment, 0] = count
    sender, answer = NONE, NONE
    for s in range(first, last):
        if wakes[s - first]:
            _copy_row(senders, s, some_senders, sender)
            some_senders[sender, 4] = answer
            for a in range(senders[s, 4], senders[s + ONE, 4]):
                some_answers[0, answer] = places[0, answers[0, a]]
                some_answers[1, answer] = answers[1, a]
                answer += ONE
            sender += ONE
    some_senders[sender, 4] = answer


@jit
def _copy_row(source: Table, row: Any, target: Table, place: Any) -> None:
    # Number by number: an assignment of rows takes longer than what it saves.
    for column in range(source.shape[1]):
        target[place, column] = source[row, column]


@jit
def _copy_column(source: Table, column: Any, target: Table, place: Any) -> None:
    for row in range(source.shape[0]):
        target[row, place] = source[row, column]


@jit
def copy_messages(source: Array, target: Array, segments: Table, targets: Table) -> None:
    """Copy the messages a program has written from one flat array to another."""
    for g in range(np.uint64(len(segments) - 1)):
        for i in range(segments[g, 0], segments[g + ONE, 0]):
            for j in range(NONE, segments[g, 2], EIGHT):
                store(target, targets[0, i] + j, load(source, targets[0, i] + j))


@jit
def to_logarithms(values: Array, out: Array) -> None:
    """Logarithms, to whichever base, of flat messages."""
    tiny = spread(np.finfo(values.dtype).tiny)
    for j in range(NONE, np.uint64(len(values)), EIGHT):
        store(out, j, logarithm(larger(load(values, j), tiny)))


@jit
def from_logarithms(logarithms: Array, messages: Array, floor: float) -> None:
    """Messages (n, q) with these logarithms, which are shifted so that the largest of each is zero."""
    rows, size = np.uint64(messages.shape[0]), np.uint64(messages.shape[1])
    logs, flat = logarithms.reshape(-1), messages.reshape(-1)
    # Nothing below the floor, or below what `exponential` can make.
    lowest = spread(messages.dtype.type(-120.0 if messages.itemsize == 4 else -600.0))
    if floor > 0:
        lowest = larger(lowest, logarithm(spread(messages.dtype.type(floor))))
    for i in range(rows):
        shift = spread(_largest(logs, i * size, size, False))
        for j in range(i * size, (i + ONE) * size, EIGHT):
            moved = larger(load(logs, j) - shift, lowest)
            store(logs, j, moved)
            store(flat, j, exponential(moved))


@jit
def add_logarithms(arriving: Array, weights: Array, first: Table, zero: float, out: Array) -> None:
    """Add to each node's row of `out` the natural logarithms, weighted, of the messages that arrive there.

    Parameters
    ----------
    arriving : (messages, points) sender by sender of each node, not negative; points padded
    weights : (messages,), or none if all are one
    first : (nodes + 1,) number of each node's first message
    zero : the logarithm that stands for that of zero
    out : (nodes, points)
    """
    kind, size = arriving.dtype.type, np.uint64(arriving.shape[1])
    values, sums = arriving.reshape(-1), out.reshape(-1)
    tiny = spread(np.finfo(arriving.dtype).tiny)
    # `logarithm` is to base 2 in single precision.
    unit = kind(np.log(2.0) if arriving.itemsize == 4 else 1.0)
    lowest = spread(kind(zero) / unit)
    for node in range(np.uint64(len(out))):
        for j in range(NONE, size, EIGHT):
            total = load(sums, node * size + j)
            for r in range(first[node], first[node + ONE]):
                weight = unit * weights[r] if len(weights) else unit
                value = load(values, r * size + j)
                log = where_below(value, tiny, lowest, logarithm(larger(value, tiny)))
                total = total + log * spread(weight)
            store(sums, node * size + j, total)


# ---------------------------------------------------------------------- products of messages


@jit
def _leave_each_out(
    senders: Table,
    first: Any,
    last: Any,
    answers: Table,
    q: Any,
    evidence: Array,
    weights: Array,
    messages: Array,
    products: Array,
    logs: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """What the messages of senders `first` ... `last` are made of: evidence and what arrives, but for one's own."""
    # The loop is in here because a call with so many arrays takes longer than what is done for a sender.
    for s in range(first, last):
        here, start, row = senders[s, 0], senders[s, 1], senders[s, 2]
        degree, begin, end = senders[s, 3], senders[s, 4], senders[s + ONE, 4]
        in_the_middle = degree == FOUR and end - begin == FOUR
        if degree > MOST_FACTORS:
            _gather_logs(senders, s, q, evidence, weights, messages, logs, counts)
            for a in range(begin, end):
                _leave_out_log(logs, counts, messages, answers[1, a], products, answers[0, a] * q, q)
        elif len(weights) == 0:
            if in_the_middle:
                _four(products, answers, begin, evidence, here, messages, start, q)
            else:
                _others(products, answers, begin, end, evidence, here, messages, start, degree, q)
        elif in_the_middle and _all_alike(weights, row, degree):
            if weights[row] == 0.5:
                _four_halves(products, answers, begin, evidence, here, messages, start, q)
            else:
                _four_alike(products, answers, begin, evidence, here, messages, start, weights[row], q)
        else:
            _weighted(products, answers, begin, end, evidence, here, messages, start, weights, row, degree, q)


@jit
def _four(
    out: Array, answers: Table, begin: Any, evidence: Array, here: Any, messages: Array, start: Any, q: Any
) -> None:
    """All products of a sender with four neighbours, as in the middle of a grid, in one pass."""
    a0, a1 = answers[0, begin] * q, answers[0, begin + ONE] * q
    a2, a3 = answers[0, begin + TWO] * q, answers[0, begin + THREE] * q
    for j in range(NONE, q, EIGHT):
        v0, v1 = load(messages, start + j), load(messages, start + q + j)
        v2, v3 = load(messages, start + TWO * q + j), load(messages, start + THREE * q + j)
        known = load(evidence, here + j)
        first, second = known * v0 * v1, known * v2 * v3
        store(out, a0 + j, second * v1)
        store(out, a1 + j, second * v0)
        store(out, a2 + j, first * v3)
        store(out, a3 + j, first * v2)


@jit
def _four_halves(
    out: Array, answers: Table, begin: Any, evidence: Array, here: Any, messages: Array, start: Any, q: Any
) -> None:
    """The same where all weights are 1/2."""
    a0, a1 = answers[0, begin] * q, answers[0, begin + ONE] * q
    a2, a3 = answers[0, begin + TWO] * q, answers[0, begin + THREE] * q
    for j in range(NONE, q, EIGHT):
        v0, v1 = load(messages, start + j), load(messages, start + q + j)
        v2, v3 = load(messages, start + TWO * q + j), load(messages, start + THREE * q + j)
        known = load(evidence, here + j)
        ratio = root(v2 * v3 / (v0 * v1))
        to_first, to_second = known * ratio, known / ratio
        store(out, a0 + j, to_first * v1)
        store(out, a1 + j, to_first * v0)
        store(out, a2 + j, to_second * v3)
        store(out, a3 + j, to_second * v2)


@jit
def _four_alike(
    out: Array,
    answers: Table,
    begin: Any,
    evidence: Array,
    here: Any,
    messages: Array,
    start: Any,
    weight: Any,
    q: Any,
) -> None:
    """The same where all weights are equal: two logarithms and two powers instead of four of each."""
    a0, a1 = answers[0, begin] * q, answers[0, begin + ONE] * q
    a2, a3 = answers[0, begin + TWO] * q, answers[0, begin + THREE] * q
    share = spread(weight)
    for j in range(NONE, q, EIGHT):
        v0, v1 = load(messages, start + j), load(messages, start + q + j)
        v2, v3 = load(messages, start + TWO * q + j), load(messages, start + THREE * q + j)
        known = load(evidence, here + j)
        first, second = logarithm(v0 * v1), logarithm(v2 * v3)
        total = (first + second) * share
        to_first, to_second = known * exponential(total - first), known * exponential(total - second)
        store(out, a0 + j, to_first * v1)
        store(out, a1 + j, to_first * v0)
        store(out, a2 + j, to_second * v3)
        store(out, a3 + j, to_second * v2)


@jit
def _all_alike(weights: Array, first: Any, count: Any) -> bool:
    for r in range(ONE, count):
        if weights[first + r] != weights[first]:
            return False
    return True


@jit
def _others(
    out: Array,
    answers: Table,
    begin: Any,
    end: Any,
    evidence: Array,
    here: Any,
    messages: Array,
    start: Any,
    degree: Any,
    q: Any,
) -> None:
    """Evidence times all arriving messages but one's own."""
    for a in range(begin, end):
        at, own = answers[0, a] * q, answers[1, a]
        for j in range(NONE, q, EIGHT):
            product = load(evidence, here + j)
            for r in range(degree):
                if start + r * q != own:
                    product = product * load(messages, start + r * q + j)
            store(out, at + j, product)


@jit
def _weighted(
    out: Array,
    answers: Table,
    begin: Any,
    end: Any,
    evidence: Array,
    here: Any,
    messages: Array,
    start: Any,
    weights: Array,
    first: Any,
    degree: Any,
    q: Any,
) -> None:
    """Evidence times all arriving messages to their weights, divided by one's own."""
    for j in range(NONE, q, EIGHT):
        total = load(evidence, here + j)
        for r in range(degree):
            total = total * power(load(messages, start + r * q + j), weights[first + r])
        for a in range(begin, end):
            store(out, answers[0, a] * q + j, total / load(messages, answers[1, a] + j))


@jit
def _leave_out_carefully(
    senders: Table,
    s: Any,
    answers: Table,
    q: Any,
    evidence: Array,
    weights: Array,
    messages: Array,
    products: Array,
    faint: NDArray[np.bool_],
    low: Any,
    count: Any,
    signed: bool,
) -> None:
    """The same for rows that came out too small or too large to be trusted: scaled after every factor."""
    here, start, first, degree = senders[s, 0], senders[s, 1], senders[s, 2], senders[s, 3]
    if degree > MOST_FACTORS:
        return  # logarithms were careful enough
    for a in range(senders[s, 4], senders[s + ONE, 4]):
        place, own = answers[0, a], answers[1, a]
        if place < low or place >= low + count or not faint[place - low]:
            continue
        at = place * q
        for j in range(NONE, q, EIGHT):
            store(products, at + j, load(evidence, here + j))
        _rescale(products, at, q, signed)
        for r in range(degree):
            other = start + r * q
            if len(weights) == 0:
                if other != own:
                    for j in range(NONE, q, EIGHT):
                        store(products, at + j, load(products, at + j) * load(messages, other + j))
            else:
                for j in range(NONE, q, EIGHT):
                    factor = power(load(messages, other + j), weights[first + r])
                    if other == own:
                        factor = factor / load(messages, other + j)
                    store(products, at + j, load(products, at + j) * factor)
            _rescale(products, at, q, signed)


@jit
def _gather_logs(
    senders: Table,
    s: Any,
    q: Any,
    evidence: Array,
    weights: Array,
    messages: Array,
    total: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """The total for a node of many neighbours: logarithms, and how many factors are zero and negative."""
    weighted = len(weights) > 0
    for j in range(q):
        counts[j], counts[q + j], total[j] = 0, 0, 0.0
        _count_factor(np.float64(evidence[senders[s, 0] + j]), 1.0, total, counts, j, q)
    for r in range(senders[s, 3]):
        weight = np.float64(weights[senders[s, 2] + r]) if weighted else 1.0
        for j in range(q):
            value = np.float64(messages[senders[s, 1] + r * q + j])
            _count_factor(value, weight, total, counts, j, q)


@jit
def _count_factor(
    value: float, weight: float, total: NDArray[np.float64], counts: NDArray[np.int64], j: Any, q: Any
) -> None:
    if value == 0.0:
        counts[j] += 1
    else:
        total[j] += weight * np.log(abs(value))
        if value < 0:
            counts[q + j] += 1


@jit
def _leave_out_log(
    logs: NDArray[np.float64],
    counts: NDArray[np.int64],
    messages: Array,
    own: Any,
    out: Array,
    at: Any,
    q: Any,
) -> None:
    """One's own message taken out of a product of many, scaled to a largest magnitude of 1."""
    largest = -np.inf
    for j in range(q):
        value = np.float64(messages[own + j])
        zeros = counts[j] - (1 if value == 0.0 else 0)
        left = -np.inf
        if zeros == 0:
            left = logs[j] - (0.0 if value == 0.0 else np.log(abs(value)))
        logs[q + j] = left
        largest = max(largest, left)
    for j in range(q):
        if largest == -np.inf:
            out[at + j] = 1
        else:
            negative = counts[q + j] - (1 if messages[own + j] < 0 else 0)
            value = np.exp(logs[q + j] - largest)
            out[at + j] = -value if negative % 2 == 1 else value


# ---------------------------------------------------------------------- new messages


@jit
def _settle_all(
    segments: Table,
    g: Any,
    targets: Table,
    made: Array,
    faint: NDArray[np.bool_],
    again: bool,
    messages: Array,
    fresh: Array,
    damping: float,
    least: Any,
    signed: bool,
    changes: NDArray[np.float64],
    pending: NDArray[np.float32],
) -> tuple[float, int]:
    """Scale, damp and store new messages; the largest change, and how many are too faint to be stored.

    The second time, `again`, it is those that were too faint, whatever they are now.
    """
    # All that is done for a usual message is in here: a call with several arrays takes longer than any of it.
    begin, to = segments[g, 0], segments[g, 2]
    count = segments[g + ONE, 0] - begin
    one, nothing = made.dtype.type(1), spread(made.dtype.type(0))
    rest = np.float32(damping / (1 - damping))
    halved = damping == 0.5 and peak(least) > 0
    worst, faints = nothing, 0
    for i in range(count):
        if i + AHEAD < count:
            ahead = targets[0, begin + i + AHEAD]
            for j in range(ahead, ahead + to, LINE):
                prefetch(messages, j)
        if again and not faint[i]:
            continue
        at, here = i * to, targets[0, begin + i]
        high = load(made, at)
        for j in range(EIGHT, to, EIGHT):
            high = larger(high, load(made, at + j))
        largest = _largest(made, at, to, signed) if signed else peak(high)
        if not again:
            faint[i] = not _is_clear(largest, made.dtype)
            if faint[i]:
                faints += 1
                continue
        if halved and not again:
            # Scaled once, at last.
            bound, high = least * spread(largest), nothing
            for j in range(NONE, to, EIGHT):
                mixed = root(larger(load(made, at + j), bound) * load(messages, here + j))
                high = larger(high, mixed)
                store(made, at + j, mixed)
            factor = spread(one / peak(high))
        else:
            factor = spread(_scale(made, at, segments[g, 4], to, largest) if again else one / largest)
            if damping > 0:
                largest = _damp(made, at, factor, messages, here, damping, least, signed, to)
                factor = spread(_scale(made, at, segments[g, 4], to, largest))
        change = nothing
        for j in range(NONE, to, EIGHT):
            value = larger(load(made, at + j) * factor, least)
            change = larger(change, magnitude(value - load(messages, here + j)))
            store(fresh, here + j, value)
        worst = larger(worst, change)
        if len(changes):
            changes[targets[1, begin + i]] = peak(change)
        if len(pending):
            news = np.float32(peak(change))
            pending[targets[2, begin + i]] += news
            if rest > 0:
                # Of a damped step there is more to come, even if its sender hears nothing new.
                pending[targets[3, begin + i]] += news * rest
    return np.float64(peak(worst)), faints


@jit
def _damp(
    made: Array,
    at: Any,
    factor: Any,
    messages: Array,
    here: Any,
    damping: float,
    least: Any,
    signed: bool,
    size: Any,
) -> Any:
    """Keep a share of the old message, of weighted ones in logarithms, which is what settles; its new largest."""
    keep = made.dtype.type(damping)
    old_share, new_share = spread(keep), spread(made.dtype.type(1) - keep)
    weighted, high = peak(least) > 0, spread(made.dtype.type(0))
    for j in range(NONE, size, EIGHT):
        value, old = load(made, at + j) * factor, load(messages, here + j)
        if weighted:
            mixed = exponential(logarithm(larger(value, least)) * new_share + logarithm(old) * old_share)
        else:
            mixed = value * new_share + old * old_share
        high = larger(high, mixed)
        store(made, at + j, mixed)
    return _largest(made, at, size, signed) if signed else peak(high)


@jit
def _scale(row: Array, at: Any, size: Any, room: Any, largest: Any) -> Any:
    """What a row's entry of largest magnitude becomes 1 by; one that has none (all zero, not finite) is made ones."""
    if _is_magnitude(largest, row.dtype):
        return row.dtype.type(1) / largest
    for j in range(room):
        row[at + j] = 1 if j < size else 0
    return row.dtype.type(1)


@jit
def _rescale(row: Array, at: Any, size: Any, signed: bool) -> None:
    factor = spread(_scale(row, at, size, size, _largest(row, at, size, signed)))
    for j in range(NONE, size, EIGHT):
        store(row, at + j, load(row, at + j) * factor)


@jit
def _is_magnitude(value: Any, dtype: Any) -> bool:
    limits = np.finfo(dtype)
    return FEW * limits.tiny < abs(value) < limits.max / FEW


@jit
def _is_clear(value: Any, dtype: Any) -> bool:
    """Whether a largest magnitude leaves room for smaller ones below it."""
    return _is_magnitude(value, dtype) and abs(value) > FEW * FEW * np.sqrt(np.finfo(dtype).tiny)


@jit
def _largest(row: Array, at: Any, size: Any, signed: bool) -> Any:
    """The entry of largest magnitude, with its sign."""
    high = load(row, at)
    for j in range(EIGHT, size, EIGHT):
        high = larger(high, load(row, at + j))
    top = peak(high)
    if signed:
        low = load(row, at)
        for j in range(EIGHT, size, EIGHT):
            low = smaller(low, load(row, at + j))
        bottom = peak(spread(row.dtype.type(0)) - low)
        return top if top >= bottom else -bottom
    return top
