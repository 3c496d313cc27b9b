"""Dynamic programmes over pairs of strings, compiled: several pairs at a time, one to a lane.

Symbols come as arrays ``(positions, LANES)``, one pair of strings to a column, shorter strings filled up with
`LEFT_FILL` and `RIGHT_FILL`, which equal nothing. A pair's result does not depend on what stands in the other
lanes. A compiler that must allow for arrays that overlap does not find the vector instructions in loops over
lanes; the steps of the two recursions are therefore spelled out in them, at the end of this page, and each
stands as a formula in the docstring of the loop that uses it.
"""

from __future__ import annotations

import math
from typing import Any

import llvmlite.ir
import numba
import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit

__all__ = ["LANES", "alignment_block", "alignment_diagonal", "subsequence_block", "subsequence_diagonal"]

LANES = 16
"""Pairs of strings worked on together: four vector registers of AVX2, enough to hide how long each takes."""
LEFT_FILL, RIGHT_FILL = -1, -2
"""Symbols that fill up shorter strings; they differ, so that even fillings do not match."""
LARGE, DOWN, LOG_DOWN = 2.0**400, 2.0**-400, 400 * math.log(2.0)
"""Beyond which a row of the alignment recursion is scaled, by what, and the logarithm of that."""

Symbols = NDArray[np.int32]
Starts = NDArray[np.int64]
Matrix = NDArray[np.float64]


@jit
def _load(symbols: Symbols, starts: Starts, number: int, lane: int, lanes: Symbols, fill: int) -> None:
    """Write one string into one lane, and fill it up."""
    begin, end = starts[number], starts[number + 1]
    for position in range(lanes.shape[0]):
        lanes[position, lane] = symbols[begin + position] if begin + position < end else fill


@jit
def _longest(starts: Starts, first: int, last: int) -> int:
    longest = 0
    for number in range(first, last):
        longest = max(longest, starts[number + 1] - starts[number])
    return longest


@jit
def _subsequences(
    left: Symbols, right: Symbols, length: int, decay: float, weights: Matrix, shorter: bool, room: Matrix
) -> Matrix:
    """Lodhi et al.'s recursion for one pair to a lane.

    With w(a, b) the weight of a match of symbol a of the left and b of the right string,

        K''_i(a, b) = decay K''_i(a, b - 1) + w(a, b) K'_{i-1}(a - 1, b - 1)
        K'_i(a, b)  = decay K'_i(a - 1, b) + K''_i(a, b),    K'_0 = 1
        K_i         = sum over a, b of w(a, b) K'_{i-1}(a - 1, b - 1)

    Parameters
    ----------
    left, right : (positions, LANES)
    length : subsequences have this many symbols
    decay : factor for every symbol left out within a subsequence
    weights : (LANES,) of a match
    shorter : whether shorter subsequences count too
    room : (at least positions of `right`, length, LANES) to work in

    Returns
    -------
    (LANES,) K_length, or the sum of K_1 ... K_length
    """
    positions = right.shape[0]
    state = np.empty((2 + 2 * length, LANES))
    total, match = 0, 1  # rows of the state; then K''_i(a, b) and K'_i(a - 1, b - 1) of each i
    along, before = 2, 2 + length
    state[total] = 0.0
    room[:positions] = 0.0
    for a in range(left.shape[0]):
        state[along:] = 0.0
        state[before] = 1.0
        for b in range(positions):
            _match(left, a, right, b, weights, state, match)  # type: ignore[call-arg]
            for i in range(0 if shorter else length - 1, length):
                _add_product(state, total, match, before + i)
            # no more symbols can have matched than there have been
            for i in range(min(length - 1, a + 1, b + 1), 0, -1):
                _grow(state, along + i, before + i, match, room, b * length + i, decay)
    return state[total]


@jit
def subsequence_block(
    left: Symbols,
    left_starts: Starts,
    left_scales: Matrix,
    right: Symbols,
    right_starts: Starts,
    right_scales: Matrix,
    length: int,
    decay: float,
    shorter: bool,
    symmetric: bool,
    block: Matrix,
) -> None:
    """Fill `block` (n, m) with the sums of `_subsequences`; n strings of `left` against m of `right`.

    Parameters
    ----------
    left, right : flat symbols
    left_starts, right_starts : (n + 1,), (m + 1,) where each string begins, and the end
    left_scales, right_scales : (n,), (m,) whose product weighs a match
    length, decay, shorter : as in `_subsequences`
    symmetric : whether both sides are the same strings, and one half will do
    block : (n, m), written
    """
    count, others = len(left_starts) - 1, len(right_starts) - 1
    room = np.empty((_longest(right_starts, 0, others), length, LANES))
    weights = np.zeros(LANES)
    for first in range(0, others, LANES):
        last = min(first + LANES, others)
        theirs = np.full((_longest(right_starts, first, last), LANES), RIGHT_FILL, np.int32)
        for number in range(first, last):
            _load(right, right_starts, number, number - first, theirs, RIGHT_FILL)
        for i in range(last if symmetric else count):
            mine = np.empty((left_starts[i + 1] - left_starts[i], LANES), np.int32)
            for lane in range(LANES):
                _load(left, left_starts, i, lane, mine, LEFT_FILL)
            for number in range(first, last):
                weights[number - first] = left_scales[i] * right_scales[number]
            found = _subsequences(mine, theirs, length, decay, weights, shorter, room)
            for number in range(first, last):
                if not symmetric:
                    block[i, number] = found[number - first]
                elif i <= number:
                    block[i, number] = block[number, i] = found[number - first]


@jit
def subsequence_diagonal(
    symbols: Symbols, starts: Starts, scales: Matrix, length: int, decay: float, shorter: bool
) -> Matrix:
    """The sums of `_subsequences` of every string with itself, shape ``(n,)``."""
    count = len(starts) - 1
    room = np.empty((_longest(starts, 0, count), length, LANES))
    weights = np.zeros(LANES)
    diagonal = np.empty(count)
    for first in range(0, count, LANES):
        last = min(first + LANES, count)
        longest = _longest(starts, first, last)
        mine = np.full((longest, LANES), LEFT_FILL, np.int32)
        theirs = np.full((longest, LANES), RIGHT_FILL, np.int32)
        for number in range(first, last):
            _load(symbols, starts, number, number - first, mine, LEFT_FILL)
            _load(symbols, starts, number, number - first, theirs, RIGHT_FILL)
            weights[number - first] = scales[number] * scales[number]
        found = _subsequences(mine, theirs, length, decay, weights, shorter, room)
        diagonal[first:last] = found[: last - first]
    return diagonal


@jit
def _alignments(
    left: Symbols, right: Symbols, same: float, other: float, opened: float, extended: float, room: Matrix
) -> Matrix:
    """Saigo et al.'s recursion for one pair to a lane.

    With s(a, b) the factor of symbol a of the left string aligned with b of the right one,

        M(a, b) = s(a, b) (1 + M(a - 1, b - 1) + X(a - 1, b - 1) + Y(a - 1, b - 1))
        X(a, b) = opened M(a - 1, b) + extended X(a - 1, b)
        Y(a, b) = opened (M(a, b - 1) + X(a, b - 1)) + extended Y(a, b - 1)
        K       = 1 + sum over a, b of M(a, b)

    Where numbers grow large, everything in a lane is scaled down by a power of two, which is exact, and the
    scalings are counted.

    Parameters
    ----------
    left, right : (positions, LANES)
    same, other : s for equal symbols and for unequal ones
    opened, extended : factor of the first symbol of a gap, and of every further one
    room : (at least positions of `right`, 3, LANES) to work in

    Returns
    -------
    (LANES,) log K
    """
    positions = right.shape[0]
    # rows: the 1 in M as scaled, the sum of M, the largest of a row, M + X + Y at (a - 1, b - 1), M, X, Y at (a, b - 1)
    state = np.zeros((7, LANES))
    start, total, most = state[0], state[1], state[2]
    start[:] = 1.0
    scalings = np.zeros(LANES)
    room[:positions] = 0.0
    for a in range(left.shape[0]):
        state[2:] = 0.0
        for b in range(positions):
            _align(left, a, right, b, state, room, same, other, opened, extended)  # type: ignore[call-arg]
        for lane in range(LANES):
            if most[lane] > LARGE:
                scalings[lane] += 1.0
                start[lane] *= DOWN
                total[lane] *= DOWN
                for b in range(positions):
                    for kept in range(3):
                        room[b, kept, lane] *= DOWN
    return np.log(start + total) + scalings * LOG_DOWN


@jit
def alignment_block(
    left: Symbols,
    left_starts: Starts,
    right: Symbols,
    right_starts: Starts,
    factors: tuple[float, float, float, float],
    symmetric: bool,
    block: Matrix,
) -> None:
    """Fill `block` (n, m) with the logarithms of `_alignments`.

    Parameters
    ----------
    left, right : flat symbols
    left_starts, right_starts : (n + 1,), (m + 1,) where each string begins, and the end
    factors : same, other, opened, extended, as in `_alignments`
    symmetric : whether both sides are the same strings, and one half will do
    block : (n, m), written
    """
    same, other, opened, extended = factors
    count, others = len(left_starts) - 1, len(right_starts) - 1
    room = np.empty((_longest(right_starts, 0, others), 3, LANES))
    for first in range(0, others, LANES):
        last = min(first + LANES, others)
        theirs = np.full((_longest(right_starts, first, last), LANES), RIGHT_FILL, np.int32)
        for number in range(first, last):
            _load(right, right_starts, number, number - first, theirs, RIGHT_FILL)
        for i in range(last if symmetric else count):
            mine = np.empty((left_starts[i + 1] - left_starts[i], LANES), np.int32)
            for lane in range(LANES):
                _load(left, left_starts, i, lane, mine, LEFT_FILL)
            found = _alignments(mine, theirs, same, other, opened, extended, room)
            for number in range(first, last):
                if not symmetric:
                    block[i, number] = found[number - first]
                elif i <= number:
                    block[i, number] = block[number, i] = found[number - first]


@jit
def alignment_diagonal(
    symbols: Symbols, starts: Starts, factors: tuple[float, float, float, float]
) -> Matrix:
    """The logarithms of `_alignments` of every string with itself, shape ``(n,)``."""
    same, other, opened, extended = factors
    count = len(starts) - 1
    room = np.empty((_longest(starts, 0, count), 3, LANES))
    diagonal = np.empty(count)
    for first in range(0, count, LANES):
        last = min(first + LANES, count)
        longest = _longest(starts, first, last)
        mine = np.full((longest, LANES), LEFT_FILL, np.int32)
        theirs = np.full((longest, LANES), RIGHT_FILL, np.int32)
        for number in range(first, last):
            _load(symbols, starts, number, number - first, mine, LEFT_FILL)
            _load(symbols, starts, number, number - first, theirs, RIGHT_FILL)
        found = _alignments(mine, theirs, same, other, opened, extended, room)
        diagonal[first:last] = found[: last - first]
    return diagonal


# ---------------------------------------------------------------------- steps of all lanes at once

DOUBLES = llvmlite.ir.VectorType(llvmlite.ir.DoubleType(), LANES)
WORDS = llvmlite.ir.VectorType(llvmlite.ir.IntType(32), LANES)


class _Lanes:
    """Reads and writes rows of LANES entries of C-ordered arrays as vectors, while code is made."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments

    def row(self, array: int, number: Any, offset: int = 0) -> Any:
        """Where row `number + offset` of the array given as argument `array` begins, as a vector's place."""
        kind = self.signature.args[array]
        data = self.context.make_array(kind)(self.context, self.builder, self.arguments[array]).data
        word = number.type
        at = self.builder.mul(self.builder.add(number, word(offset)), word(LANES))
        vector = WORDS if kind.dtype == numba.int32 else DOUBLES
        return self.builder.bitcast(self.builder.gep(data, [at]), vector.as_pointer())

    def load(self, place: Any) -> Any:
        return self.builder.load(place, align=4 if place.type.pointee is WORDS else 8)

    def store(self, value: Any, place: Any) -> None:
        self.builder.store(value, place, align=8)

    def spread(self, number: Any) -> Any:
        """A vector of one number."""
        none = llvmlite.ir.Constant(DOUBLES, llvmlite.ir.Undefined)
        one = self.builder.insert_element(none, number, llvmlite.ir.IntType(32)(0))
        return self.builder.shuffle_vector(one, none, WORDS([0] * LANES))


@numba.extending.intrinsic
def _match(_: Any, left: Any, a: Any, right: Any, b: Any, weights: Any, state: Any, match: Any) -> Any:
    """state[match] = weights where left[a] == right[b], else 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        lanes = _Lanes(context, builder, signature, arguments)
        mine, theirs = lanes.load(lanes.row(0, arguments[1])), lanes.load(lanes.row(2, arguments[3]))
        equal = builder.icmp_signed("==", mine, theirs)
        weight = lanes.load(lanes.row(4, arguments[6].type(0)))
        none = llvmlite.ir.Constant(DOUBLES, [0.0] * LANES)
        lanes.store(builder.select(equal, weight, none), lanes.row(5, arguments[6]))

    number = numba.int64
    return numba.void(left, number, right, number, weights, state, number), generate


@numba.extending.intrinsic
def _add_product(_: Any, state: Any, total: Any, match: Any, before: Any) -> Any:
    """state[total] += state[match] * state[before]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        lanes = _Lanes(context, builder, signature, arguments)
        place, match, before = (lanes.row(0, argument) for argument in arguments[1:])
        product = builder.fmul(lanes.load(match), lanes.load(before))
        lanes.store(builder.fadd(lanes.load(place), product), place)

    number = numba.int64
    return numba.void(state, number, number, number), generate


@numba.extending.intrinsic
def _grow(_: Any, state: Any, along: Any, before: Any, match: Any, room: Any, place: Any, decay: Any) -> Any:
    """K'' and K' of one cell, one length: row `place` of `room` holds K'(a - 1, b), then K'(a, b).

    state[along] = decay state[along] + state[match] state[before - 1]; state[before] = what room held;
    room = decay times that + state[along].
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        lanes = _Lanes(context, builder, signature, arguments)
        along, before, match = arguments[1:4]
        decay = lanes.spread(arguments[6])
        tail = builder.fmul(decay, lanes.load(lanes.row(0, along)))
        fresh = builder.fmul(lanes.load(lanes.row(0, match)), lanes.load(lanes.row(0, before, -1)))
        grown = builder.fadd(tail, fresh)
        held = lanes.row(4, arguments[5])
        above = lanes.load(held)
        lanes.store(grown, lanes.row(0, along))
        lanes.store(above, lanes.row(0, before))
        lanes.store(builder.fadd(builder.fmul(decay, above), grown), held)

    number = numba.int64
    return numba.void(state, number, number, number, room, number, numba.float64), generate


@numba.extending.intrinsic
def _align(
    _: Any,
    left: Any,
    a: Any,
    right: Any,
    b: Any,
    state: Any,
    room: Any,
    same: Any,
    other: Any,
    opened: Any,
    extended: Any,
) -> Any:
    """One cell of `_alignments`: rows 3 b ... 3 b + 2 of `room` hold M, X and M + X + Y at (a - 1, b), then (a, b)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        lanes = _Lanes(context, builder, signature, arguments)
        times, plus = builder.fmul, builder.fadd
        mine, theirs = lanes.load(lanes.row(0, arguments[1])), lanes.load(lanes.row(2, arguments[3]))
        same, other, opened, extended = (lanes.spread(number) for number in arguments[6:])
        none = llvmlite.ir.Constant(DOUBLES, [0.0] * LANES)
        # symbols are not negative, fillings are
        filled = builder.icmp_signed("<", builder.or_(mine, theirs), WORDS([0] * LANES))
        factor = builder.select(builder.icmp_signed("==", mine, theirs), same, other)
        factor = builder.select(filled, none, factor)
        zero = arguments[1].type(0)
        rows = [lanes.row(4, zero, number) for number in range(7)]
        start, total, most, corner, aligned, gap_left, gap_right = (lanes.load(row) for row in rows)
        held = [lanes.row(5, builder.mul(arguments[3], zero.type(3)), number) for number in range(3)]
        m_above, x_above, sum_above = (lanes.load(row) for row in held)
        m = times(factor, plus(start, corner))
        x = plus(times(opened, m_above), times(extended, x_above))
        y = plus(times(opened, plus(aligned, gap_left)), times(extended, gap_right))
        together = plus(plus(m, x), y)
        largest = builder.select(builder.fcmp_ordered(">", together, most), together, most)
        for value, row in zip((plus(total, m), largest, sum_above, m, x, y), rows[1:], strict=True):
            lanes.store(value, row)
        for value, row in zip((m, x, together), held, strict=True):
            lanes.store(value, row)

    number, real = numba.int64, numba.float64
    return numba.void(left, number, right, number, state, room, real, real, real, real), generate
