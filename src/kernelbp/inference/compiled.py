"""The hot loop of an update, compiled: products of messages, the operator, scaling and change in one pass.

Messages of all variables stand in one flat array, and so do evidence and operators; everything is
addressed by offsets laid out beforehand (`kernelbp.inference.program`). Work goes block by block, a block
being as many senders as leave their products and new messages in the cache. Blocks of one phase do not touch
what others of it read, so any number of threads may share them, each block with the same result.

Rows are passed as (array, offset, size) with unsigned offsets: slices would count references, and signed
numbers might count from the end, and either keeps a compiler from using vector instructions.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir
import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["copy_messages", "run_blocks"]

Array = NDArray[Any]
Table = NDArray[np.uint64]

FEW = np.float32(10)
"""How far within the range of its type a row's largest magnitude must lie for the row to be scaled."""
NONE, ONE, TWO, THREE, FOUR = (np.uint64(n) for n in range(5))
AHEAD, LINE = np.uint64(6), np.uint64(16)
"""How many messages ahead are fetched, and float32 values in a line of the cache."""
MOST_FACTORS = np.uint64(8)
"""Senders with more neighbours than this are multiplied out in logarithms."""


@numba.njit(cache=True, nogil=True, error_model="numpy")
def run_blocks(
    first: int,
    last: int,
    blocks: Table,
    senders: Table,
    answers: Table,
    segments: Table,
    targets: Table,
    evidence: Array,
    weights: Array,
    operators: Array,
    messages: Array,
    message_bits: Array,
    fresh: Array,
    in_place: bool,
    damping: float,
    floor: float,
    signed: bool,
    changes: NDArray[np.float64],
    room: Table,
) -> float:
    """Update the messages of blocks `first` ... `last`; the largest change of a value of any.

    Parameters
    ----------
    first, last : range of blocks
    blocks, senders, answers, segments, targets, room : as `kernelbp.inference.program.Program`
    evidence, weights, operators : flat; no weights if all are one
    messages, message_bits : flat, read; the same as whole numbers
    fresh : flat, written
    in_place : whether `fresh` is `messages`, which it may be where a phase does not read what it writes
    damping, floor : share of the old message kept; least value of a weighted message relative to its largest
    signed : whether values may be negative
    changes : (messages,) written: the largest change of a value of each; none if nobody asks
    """
    largest = 0.0
    total_bits = np.empty(room[1], message_bits.dtype)
    product_bits = np.empty(room[0] * room[1], message_bits.dtype)
    made_bits = np.empty(room[0] * room[1], message_bits.dtype)
    scratch_bits = np.empty(THREE * room[1], message_bits.dtype)
    totals, products = total_bits.view(messages.dtype), product_bits.view(messages.dtype)
    scales = np.empty(room[0], messages.dtype)
    made, scratch = made_bits.view(messages.dtype), scratch_bits.view(messages.dtype)
    logs = np.empty(TWO * room[1], np.float64)
    counts = np.empty(TWO * room[1], np.int64)
    # Messages that may be negative have no least value.
    least = messages.dtype.type(floor if len(weights) else (-np.inf if signed else 0.0))
    for b in range(np.uint64(first), np.uint64(last)):
        q = blocks[b, 2]
        _leave_each_out(
            blocks[b, 0],
            blocks[b + ONE, 0],
            senders,
            answers,
            q,
            evidence,
            weights,
            messages,
            message_bits,
            signed,
            products,
            product_bits,
            totals,
            total_bits,
            scratch,
            scratch_bits,
            logs,
            counts,
        )
        for g in range(blocks[b, 1], blocks[b + ONE, 1]):
            begin, at, to = segments[g, 0], segments[g, 1], segments[g, 2]
            count, low = segments[g + ONE, 0] - begin, segments[g, 3]
            np.dot(
                products[low * q : (low + count) * q].reshape((count, q)),
                operators[at : at + q * to].reshape((q, to)),
                made[: count * to].reshape((count, to)),
            )
            change = _settle_all(
                begin,
                count,
                to,
                targets,
                made,
                made_bits,
                scales,
                messages,
                fresh,
                in_place,
                damping,
                least,
                signed,
                changes,
            )
            largest = max(largest, change)
    return largest


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _settle_all(
    begin: Any,
    count: Any,
    to: Any,
    targets: Table,
    made: Array,
    made_bits: Array,
    scales: Array,
    messages: Array,
    fresh: Array,
    in_place: bool,
    damping: float,
    least: Any,
    signed: bool,
    changes: NDArray[np.float64],
) -> float:
    """Scale, damp and store new messages, and note how much each changes; the largest change."""
    # Stage by stage: rows wait for nothing but their own last stage, which is long done.
    for i in range(count):
        scales[i] = _scale(made, made_bits, i * to, to, signed)
    if damping > 0:
        keep = made.dtype.type(damping)
        for i in range(count):
            target = targets[begin + i, 0]
            _damp(made, i * to, scales[i], messages, target, keep, least, to)
            scales[i] = _scale(made, made_bits, i * to, to, signed)
    for i in range(count):
        target = targets[begin + i, 0]
        if i + AHEAD < count:
            _prefetch(messages, targets[begin + i + AHEAD, 0], to)
        if in_place:
            _settle(made, i * to, scales[i], least, messages, target, to)
        else:
            _settle_apart(made, i * to, scales[i], least, messages, fresh, target, to)
    if len(changes):
        for i in range(count):
            changes[targets[begin + i, 1]] = np.sqrt(_peak(made_bits, i * to, to))
    return np.sqrt(_peak(made_bits, NONE, count * to))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def copy_messages(source: Array, target: Array, segments: Table, targets: Table) -> None:
    """Copy the messages a program has written from one flat array to another."""
    for g in range(np.uint64(len(segments) - 1)):
        for i in range(segments[g, 0], segments[g + ONE, 0]):
            _copy(target, targets[i, 0], source, targets[i, 0], segments[g, 2])


# ---------------------------------------------------------------------- products of messages


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _leave_each_out(
    first: Any,
    last: Any,
    senders: Table,
    answers: Table,
    q: Any,
    evidence: Array,
    weights: Array,
    messages: Array,
    message_bits: Array,
    signed: bool,
    products: Array,
    product_bits: Array,
    totals: Array,
    total_bits: Array,
    scratch: Array,
    scratch_bits: Array,
    logs: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """What senders' messages are made of: evidence and what arrives, but for one's own."""
    weighted = len(weights) > 0
    for s in range(first, last):
        degree, begin, end = senders[s, 3], senders[s, 4], senders[s + ONE, 4]
        if s + TWO < last:
            _prefetch(messages, senders[s + TWO, 1], q * senders[s + TWO, 3])
            _prefetch(evidence, senders[s + TWO, 0], q)
        if degree == FOUR and end - begin == FOUR and not signed:
            start, here = senders[s, 1], senders[s, 0]
            done = True
            if not weighted:
                _four(products, answers, begin, evidence, here, messages, start, q)
            elif _all_half(weights, senders[s, 2], degree):
                _four_halves(products, answers, begin, evidence, here, messages, start, q)
            else:
                done = False
            if done and _can_scale_all(products, product_bits, answers, begin, end, q):
                continue
        if degree > MOST_FACTORS:
            _gather_logs(senders, s, q, evidence, weights, messages, logs, counts)
        elif weighted:
            _gather(
                senders,
                s,
                q,
                evidence,
                weights,
                messages,
                message_bits,
                totals,
                total_bits,
                scratch,
                scratch_bits,
            )
        for a in range(begin, end):
            at, own = answers[a, 0] * q, answers[a, 1]
            if degree > MOST_FACTORS:
                _leave_out_log(logs, counts, messages, own, products, at, q)
            elif weighted:
                _divide(products, at, totals, NONE, messages, own, q)
            else:
                _multiply(senders, s, q, evidence, messages, own, products, product_bits, at, signed)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _four(
    out: Array, answers: Table, begin: Any, evidence: Array, here: Any, messages: Array, start: Any, q: Any
) -> None:
    """All products of a sender with four neighbours, as in the middle of a grid, in one pass."""
    a0, a1 = answers[begin, 0] * q, answers[begin + ONE, 0] * q
    a2, a3 = answers[begin + TWO, 0] * q, answers[begin + THREE, 0] * q
    m1, m2, m3 = start + q, start + TWO * q, start + THREE * q
    for j in range(q):
        v0, v1, v2, v3 = messages[start + j], messages[m1 + j], messages[m2 + j], messages[m3 + j]
        known = evidence[here + j]
        first, second = known * v0 * v1, known * v2 * v3
        out[a0 + j] = second * v1
        out[a1 + j] = second * v0
        out[a2 + j] = first * v3
        out[a3 + j] = first * v2


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _four_halves(
    out: Array, answers: Table, begin: Any, evidence: Array, here: Any, messages: Array, start: Any, q: Any
) -> None:
    """The same where all weights are 1/2."""
    a0, a1 = answers[begin, 0] * q, answers[begin + ONE, 0] * q
    a2, a3 = answers[begin + TWO, 0] * q, answers[begin + THREE, 0] * q
    m1, m2, m3 = start + q, start + TWO * q, start + THREE * q
    for j in range(q):
        v0, v1, v2, v3 = messages[start + j], messages[m1 + j], messages[m2 + j], messages[m3 + j]
        first, second = np.sqrt(v0 * v1), np.sqrt(v2 * v3)
        known = evidence[here + j]
        to_first, to_second = known * second / first, known * first / second
        out[a0 + j] = to_first * v1
        out[a1 + j] = to_first * v0
        out[a2 + j] = to_second * v3
        out[a3 + j] = to_second * v2


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _all_half(weights: Array, first: Any, count: Any) -> bool:
    half = weights.dtype.type(0.5)
    for r in range(count):
        if weights[first + r] != half:
            return False
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _can_scale_all(products: Array, bits: Array, answers: Table, begin: Any, end: Any, q: Any) -> bool:
    for a in range(begin, end):
        if not _can_scale(products, bits, answers[a, 0] * q, q, False):
            return False
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _multiply(
    senders: Table,
    s: Any,
    q: Any,
    evidence: Array,
    messages: Array,
    own: Any,
    out: Array,
    bits: Array,
    at: Any,
    signed: bool,
) -> None:
    """Evidence times all arriving messages but one's own."""
    _copy(out, at, evidence, senders[s, 0], q)
    waiting, one = False, own
    for r in range(senders[s, 3]):
        other = senders[s, 1] + r * q
        if other == own:
            continue
        if waiting:
            _times_two(out, at, messages, one, other, q)
        one, waiting = other, not waiting
    if waiting:
        _times(out, at, messages, one, q)
    if not _can_scale(out, bits, at, q, signed):
        # Too small for one product: start again, scaling after every factor.
        _copy(out, at, evidence, senders[s, 0], q)
        for r in range(senders[s, 3]):
            other = senders[s, 1] + r * q
            if other != own:
                _times(out, at, messages, other, q)
                _rescale(out, bits, at, q, signed)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _gather(
    senders: Table,
    s: Any,
    q: Any,
    evidence: Array,
    weights: Array,
    messages: Array,
    message_bits: Array,
    out: Array,
    bits: Array,
    scratch: Array,
    scratch_bits: Array,
) -> None:
    """Evidence times all arriving messages to their weights, scaled to a largest value of 1."""
    half = weights.dtype.type(0.5)
    start, first, degree = senders[s, 1], senders[s, 2], senders[s, 3]
    _copy(out, NONE, evidence, senders[s, 0], q)
    r = NONE
    while r < degree:
        one = start + r * q
        if r + ONE < degree and weights[first + r] == half and weights[first + r + ONE] == half:
            _times_roots(out, NONE, messages, one, one + q, q)
            r += TWO
        else:
            _times_power(out, messages, message_bits, one, weights[first + r], scratch, scratch_bits, q)
            r += ONE
    if not _can_scale(out, bits, NONE, q, False):
        # Too small for one product: start again, scaling after every factor.
        _copy(out, NONE, evidence, senders[s, 0], q)
        for k in range(degree):
            _times_power(
                out, messages, message_bits, start + k * q, weights[first + k], scratch, scratch_bits, q
            )
            _rescale(out, bits, NONE, q, False)
    _rescale(out, bits, NONE, q, False)


@numba.njit(cache=True, nogil=True, error_model="numpy")
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
    """The same for a node of many neighbours: logarithms, and how many factors are zero and negative."""
    weighted = len(weights) > 0
    for j in range(q):
        counts[j], counts[q + j], total[j] = 0, 0, 0.0
        _count_factor(np.float64(evidence[senders[s, 0] + j]), 1.0, total, counts, j, q)
    for r in range(senders[s, 3]):
        weight = np.float64(weights[senders[s, 2] + r]) if weighted else 1.0
        for j in range(q):
            value = np.float64(messages[senders[s, 1] + r * q + j])
            _count_factor(value, weight, total, counts, j, q)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _count_factor(
    value: float, weight: float, total: NDArray[np.float64], counts: NDArray[np.int64], j: Any, q: Any
) -> None:
    if value == 0.0:
        counts[j] += 1
    else:
        total[j] += weight * np.log(abs(value))
        if value < 0:
            counts[q + j] += 1


@numba.njit(cache=True, nogil=True, error_model="numpy")
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


# ---------------------------------------------------------------------- rows


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _copy(out: Array, at: Any, values: Array, here: Any, size: Any) -> None:
    for j in range(size):
        out[at + j] = values[here + j]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _times(out: Array, at: Any, values: Array, here: Any, size: Any) -> None:
    for j in range(size):
        out[at + j] *= values[here + j]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _times_two(out: Array, at: Any, values: Array, one: Any, other: Any, size: Any) -> None:
    for j in range(size):
        out[at + j] *= values[one + j] * values[other + j]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _times_roots(out: Array, at: Any, values: Array, one: Any, other: Any, size: Any) -> None:
    for j in range(size):
        out[at + j] *= np.sqrt(values[one + j] * values[other + j])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _divide(out: Array, at: Any, total: Array, here: Any, values: Array, own: Any, size: Any) -> None:
    for j in range(size):
        out[at + j] = total[here + j] / values[own + j]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _settle(made: Array, at: Any, scale: Any, least: Any, messages: Array, here: Any, size: Any) -> None:
    """Put a new message, scaled and kept above `least`, in place of the old; leave squared changes behind."""
    for j in range(size):
        value = made[at + j] * scale
        value = value if value > least else least
        change = value - messages[here + j]
        made[at + j] = change * change
        messages[here + j] = value


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _settle_apart(
    made: Array, at: Any, scale: Any, least: Any, messages: Array, fresh: Array, here: Any, size: Any
) -> None:
    """The same into another array, the old message being read by others yet."""
    for j in range(size):
        value = made[at + j] * scale
        value = value if value > least else least
        change = value - messages[here + j]
        made[at + j] = change * change
        fresh[here + j] = value


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _damp(
    made: Array, at: Any, scale: Any, messages: Array, here: Any, keep: Any, least: Any, size: Any
) -> None:
    """Keep a share of the old message; of weighted ones in logarithms, which is what settles."""
    rest = made.dtype.type(1) - keep
    for j in range(size):
        value, old = made[at + j] * scale, messages[here + j]
        if least > 0:
            value = np.exp(rest * np.log(max(value, least)) + keep * np.log(old))
        else:
            value = keep * old + rest * value
        made[at + j] = value


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _scale(row: Array, bits: Array, at: Any, size: Any, signed: bool) -> Any:
    """What a row's entry of largest magnitude becomes 1 by; one that has none (all zero, not finite) is made ones."""
    largest = _largest(row, bits, at, size, signed)
    if _is_magnitude(largest, row.dtype):
        return row.dtype.type(1) / largest
    for j in range(size):
        row[at + j] = 1
    return row.dtype.type(1)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _rescale(row: Array, bits: Array, at: Any, size: Any, signed: bool) -> None:
    scale = _scale(row, bits, at, size, signed)
    for j in range(size):
        row[at + j] *= scale


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _can_scale(row: Array, bits: Array, at: Any, size: Any, signed: bool) -> bool:
    """Whether the largest magnitude leaves room for smaller ones below it."""
    largest = _largest(row, bits, at, size, signed)
    return abs(largest) > np.sqrt(np.finfo(row.dtype).tiny) and _is_magnitude(largest, row.dtype)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _is_magnitude(value: Any, dtype: Any) -> bool:
    limits = np.finfo(dtype)
    return FEW * limits.tiny < abs(value) < limits.max / FEW


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _largest(row: Array, bits: Array, at: Any, size: Any, signed: bool) -> Any:
    """The entry of largest magnitude, with its sign."""
    if not signed:
        return _peak(bits, at, size)
    high, low = row[at], row[at]
    for j in range(size):
        high = max(high, row[at + j])
        low = min(low, row[at + j])
    return high if high >= -low else low


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _peak(bits: Array, at: Any, size: Any) -> Any:
    """The largest entry of a row without negative ones, from its bits: as whole numbers they compare faster."""
    high = bits[at]
    for j in range(size):
        high = max(high, bits[at + j])
    return _as_float(high)  # type: ignore[call-arg]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _prefetch(values: Array, at: Any, size: Any) -> None:
    """Have a row fetched into the cache that will be needed soon."""
    for j in range(NONE, size, LINE):
        _prefetch_line(values, at + j)  # type: ignore[call-arg]


@numba.extending.intrinsic
def _prefetch_line(context: Any, values: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        byte, word = llvmlite.ir.IntType(8).as_pointer(), llvmlite.ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [byte],
            llvmlite.ir.FunctionType(llvmlite.ir.VoidType(), [byte, word, word, word]),
        )
        builder.call(function, [builder.bitcast(place, byte), word(1), word(3), word(1)])

    return numba.void(values, at), generate


@numba.extending.intrinsic
def _as_float(context: Any, bits: Any) -> Any:
    """The floating-point number with these bits."""
    single = bits == numba.int32

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        kind = llvmlite.ir.FloatType() if single else llvmlite.ir.DoubleType()
        return builder.bitcast(arguments[0], kind)

    return (numba.float32 if single else numba.float64)(bits), generate


# ---------------------------------------------------------------------- powers

# log2(1 + t) = t (a_0 + a_1 t + ...) on [0, 1] to 3e-8, and 2^t = b_0 + b_1 t + ... on [0, 1] to 3e-9:
# Chebyshev fits, good to the last bit or two of float32.
LOGARITHM = np.array(
    [
        1.4426949983876478,
        -0.7213403288295039,
        0.48069547500537646,
        -0.3584284904104408,
        0.2757196618822178,
        -0.1972852119903621,
        0.11305197648785,
        -0.042687185249360486,
        0.00757913571505924,
    ],
    dtype=np.float32,
)
EXPONENTIAL = np.array(
    [
        1.0000000025868891,
        0.6931469286930091,
        0.2402305020452078,
        0.05548042632494658,
        0.009684580453864557,
        0.001238782146560879,
        0.00021877504814256103,
    ],
    dtype=np.float32,
)
MANTISSA, UNIT, BIAS, SHIFT = 0x7FFFFF, 0x3F800000, 127, 23


def _times_power(
    out: Array,
    values: Array,
    bits: Array,
    here: Any,
    weight: Any,
    scratch: Array,
    scratch_bits: Array,
    q: Any,
) -> None:
    """Multiply a row by a positive one to a power; `scratch` has room for three."""
    raise TypeError("compiled code only")


@numba.extending.overload(_times_power, jit_options={"error_model": "numpy"})
def _times_power_by_type(
    out: Any, values: Any, bits: Any, here: Any, weight: Any, scratch: Any, scratch_bits: Any, q: Any
) -> Any:
    if values.dtype == numba.float32:
        return _times_power_single
    return _times_power_double


def _times_power_double(
    out: Any, values: Any, bits: Any, here: Any, weight: Any, scratch: Any, scratch_bits: Any, q: Any
) -> Any:
    for j in range(q):
        out[j] *= np.exp(weight * np.log(values[here + j]))


def _times_power_single(
    out: Any, values: Any, bits: Any, here: Any, weight: Any, scratch: Any, scratch_bits: Any, q: Any
) -> Any:
    """By exponent and mantissa bits, in loops a compiler turns into vector instructions."""
    exponent, fraction = q, q + q
    for j in range(q):
        scratch[exponent + j] = np.float32((bits[here + j] >> SHIFT) - BIAS)
        scratch_bits[j] = (bits[here + j] & MANTISSA) | UNIT
    for j in range(q):
        t = scratch[j] - np.float32(1)
        power = LOGARITHM[8]
        power = power * t + LOGARITHM[7]
        power = power * t + LOGARITHM[6]
        power = power * t + LOGARITHM[5]
        power = power * t + LOGARITHM[4]
        power = power * t + LOGARITHM[3]
        power = power * t + LOGARITHM[2]
        power = power * t + LOGARITHM[1]
        power = power * t + LOGARITHM[0]
        scratch[fraction + j] = weight * (scratch[exponent + j] + power * t)
    for j in range(q):
        whole = np.floor(scratch[fraction + j])
        scratch[fraction + j] -= whole
        scratch_bits[j] = (np.int32(whole) + BIAS) << SHIFT
    for j in range(q):
        t = scratch[fraction + j]
        power = EXPONENTIAL[6]
        power = power * t + EXPONENTIAL[5]
        power = power * t + EXPONENTIAL[4]
        power = power * t + EXPONENTIAL[3]
        power = power * t + EXPONENTIAL[2]
        power = power * t + EXPONENTIAL[1]
        power = power * t + EXPONENTIAL[0]
        out[j] *= power * scratch[j]
