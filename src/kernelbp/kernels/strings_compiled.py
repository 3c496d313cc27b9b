"""Dynamic programmes over pairs of strings, compiled: several pairs at a time, one to a lane.

Symbols come as arrays ``(positions, LANES)``, one pair of strings to a column, shorter strings filled up with
`LEFT_FILL` and `RIGHT_FILL`, which equal nothing. The lanes of a step are independent, so that the compiler
makes vector instructions of them, and a pair's result does not depend on what stands in the other lanes.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["LANES", "alignment_block", "alignment_diagonal", "subsequence_block", "subsequence_diagonal"]

LANES = 8
"""Pairs of strings worked on together: one or two vector registers of float64."""
LEFT_FILL, RIGHT_FILL = -1, -2
"""Symbols that fill up shorter strings; they differ, so that even fillings do not match."""
LARGE, DOWN, LOG_DOWN = 2.0**400, 2.0**-400, 400 * math.log(2.0)
"""Beyond which a row of the alignment recursion is scaled, by what, and the logarithm of that."""

Symbols = NDArray[np.int32]
Starts = NDArray[np.int64]
Matrix = NDArray[np.float64]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _load(symbols: Symbols, starts: Starts, number: int, lane: int, lanes: Symbols, fill: int) -> None:
    """Write one string into one lane, and fill it up."""
    begin, end = starts[number], starts[number + 1]
    for position in range(lanes.shape[0]):
        lanes[position, lane] = symbols[begin + position] if begin + position < end else fill


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _longest(starts: Starts, first: int, last: int) -> int:
    longest = 0
    for number in range(first, last):
        longest = max(longest, starts[number + 1] - starts[number])
    return longest


@numba.njit(cache=True, nogil=True, error_model="numpy")
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
    total = np.zeros(LANES)
    match = np.empty(LANES)
    along = np.empty((length, LANES))  # K''_i(a, b)
    before = np.empty((length, LANES))  # K'_i(a - 1, b - 1)
    positions = right.shape[0]
    room[:positions] = 0.0
    for a in range(left.shape[0]):
        along[:] = 0.0
        before[:] = 0.0
        for lane in range(LANES):
            before[0, lane] = 1.0
        for b in range(positions):
            for lane in range(LANES):
                match[lane] = weights[lane] if left[a, lane] == right[b, lane] else 0.0
            for i in range(0 if shorter else length - 1, length):
                for lane in range(LANES):
                    total[lane] += match[lane] * before[i, lane]
            for i in range(length - 1, 0, -1):
                for lane in range(LANES):
                    grown = decay * along[i, lane] + match[lane] * before[i - 1, lane]
                    above = room[b, i, lane]
                    along[i, lane] = grown
                    before[i, lane] = above
                    room[b, i, lane] = decay * above + grown
    return total


@numba.njit(cache=True, nogil=True, error_model="numpy")
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
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
    room : (3, at least positions of `right`, LANES) to work in

    Returns
    -------
    (LANES,) log K
    """
    total = np.zeros(LANES)
    start = np.ones(LANES)  # the 1 in M, as scaled
    scalings = np.zeros(LANES)
    corner = np.empty(LANES)  # M + X + Y at (a - 1, b - 1)
    aligned, gap_left, gap_right = np.empty(LANES), np.empty(LANES), np.empty(LANES)  # M, X, Y at (a, b - 1)
    most = np.empty(LANES)
    positions = right.shape[0]
    room[:, :positions] = 0.0
    for a in range(left.shape[0]):
        for lane in range(LANES):
            corner[lane] = aligned[lane] = gap_left[lane] = gap_right[lane] = most[lane] = 0.0
        for b in range(positions):
            for lane in range(LANES):
                factor = same if left[a, lane] == right[b, lane] else other
                factor = 0.0 if left[a, lane] < 0 or right[b, lane] < 0 else factor
                m = factor * (start[lane] + corner[lane])
                x = opened * room[0, b, lane] + extended * room[1, b, lane]
                y = opened * (aligned[lane] + gap_left[lane]) + extended * gap_right[lane]
                corner[lane] = room[2, b, lane]
                aligned[lane], gap_left[lane], gap_right[lane] = m, x, y
                room[0, b, lane] = m
                room[1, b, lane] = x
                room[2, b, lane] = m + x + y
                total[lane] += m
                most[lane] = max(most[lane], m + x + y)
        for lane in range(LANES):
            if most[lane] > LARGE:
                scalings[lane] += 1.0
                start[lane] *= DOWN
                total[lane] *= DOWN
                for b in range(positions):
                    room[0, b, lane] *= DOWN
                    room[1, b, lane] *= DOWN
                    room[2, b, lane] *= DOWN
    return np.log(start + total) + scalings * LOG_DOWN


@numba.njit(cache=True, nogil=True, error_model="numpy")
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
    room = np.empty((3, _longest(right_starts, 0, others), LANES))
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def alignment_diagonal(
    symbols: Symbols, starts: Starts, factors: tuple[float, float, float, float]
) -> Matrix:
    """The logarithms of `_alignments` of every string with itself, shape ``(n,)``."""
    same, other, opened, extended = factors
    count = len(starts) - 1
    room = np.empty((3, _longest(starts, 0, count), LANES))
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
