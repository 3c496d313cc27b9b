"""The hot loops of an update, compiled: products of messages before the operator, scaling after it.

Arrays are as in `kernelbp.inference.update.State`; for each of n messages to be sent, the rows
``begin[i] ... end[i]`` hold what arrives at its sender, and ``own[i]`` is the one to leave out.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["cavities", "settle", "settle_weighted", "weighted_cavities"]

Array = NDArray[Any]
Indices = NDArray[np.intp]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def cavities(
    messages: Array, evidence: Array, begin: Indices, end: Indices, nodes: Indices, own: Indices, out: Array
) -> None:
    """Evidence times all arriving messages but one's own, scaled to largest magnitude 1, into (n, q) `out`."""
    count, size = out.shape
    for i in range(count):
        row = out[i]
        start = evidence[nodes[i]]
        for j in range(size):
            row[j] = start[j]
        for r in range(begin[i], end[i]):
            if r != own[i]:
                factor = messages[r]
                for j in range(size):
                    row[j] *= factor[j]
        if not _can_scale(row):
            # Too small for one product: start again, scaling after every factor.
            for j in range(size):
                row[j] = start[j]
            for r in range(begin[i], end[i]):
                if r != own[i]:
                    factor = messages[r]
                    for j in range(size):
                        row[j] *= factor[j]
                    _scale(row)
        _scale(row)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def weighted_cavities(
    messages: Array,
    powers: Array,
    evidence: Array,
    begin: Indices,
    end: Indices,
    nodes: Indices,
    own: Indices,
    out: Array,
) -> None:
    """Evidence times all arriving messages to their powers, divided by one's own message."""
    count, size = out.shape
    for i in range(count):
        row = out[i]
        start = evidence[nodes[i]]
        divisor = messages[own[i]]
        for j in range(size):
            row[j] = start[j] / divisor[j]
        for r in range(begin[i], end[i]):
            factor = powers[r]
            for j in range(size):
                row[j] *= factor[j]
        if not _can_scale(row):
            for j in range(size):
                row[j] = start[j] / divisor[j]
            for r in range(begin[i], end[i]):
                factor = powers[r]
                _scale(row)
                for j in range(size):
                    row[j] *= factor[j]
        _scale(row)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def settle(
    made: Array,
    messages: Array,
    rows: Indices,
    numbers: Indices,
    damping: float,
    changes: NDArray[np.float64],
) -> None:
    """Scale, damp and store new messages; `changes` of each is the largest change of a value."""
    for i in range(len(rows)):
        changes[numbers[i]] = _settle_row(made[i], messages[rows[i]], damping)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def settle_weighted(
    made: Array,
    messages: Array,
    powers: Array,
    weights: Array,
    rows: Indices,
    numbers: Indices,
    damping: float,
    floor: float,
    changes: NDArray[np.float64],
) -> None:
    """As `settle`, and keep the messages' powers up to date.

    Positive messages only, kept above `floor` relative to their largest value.
    """
    size = messages.shape[1]
    for i in range(len(rows)):
        row = messages[rows[i]]
        fresh = made[i]
        _scale(fresh)  # first, so that the floor of a small message does not vanish itself
        least = row.dtype.type(floor)
        for j in range(size):
            fresh[j] = max(fresh[j], least)
        if damping != 0:
            # A geometric mean: what settles are logarithms of messages.
            keep = row.dtype.type(damping)
            for j in range(size):
                fresh[j] = np.exp((row.dtype.type(1) - keep) * np.log(fresh[j]) + keep * np.log(row[j]))
        changes[numbers[i]] = _settle_row(fresh, row, 0.0)
    scratch = np.empty((2, size), messages.dtype)
    for i in range(len(rows)):
        _power(messages[rows[i]], weights[rows[i]], powers[rows[i]], scratch)


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
MANTISSA, ONE, BIAS, SHIFT = 0x7FFFFF, 0x3F800000, 127, 23


def _power(row: Array, weight: Any, out: Array, scratch: Array) -> None:
    """Raise a positive row to a power, into `out`; `scratch` has two rows of the same size."""
    raise TypeError("compiled code only")


@numba.extending.overload(_power)
def _power_by_type(row: Any, weight: Any, out: Any, scratch: Any) -> Any:
    if row.dtype == numba.float32:
        return _power_single
    return _power_double


def _power_double(row: Any, weight: Any, out: Any, scratch: Any) -> Any:
    for j in range(len(row)):
        out[j] = np.exp(weight * np.log(row[j]))


def _power_single(row: Any, weight: Any, out: Any, scratch: Any) -> Any:
    """By exponent and mantissa bits, in loops a compiler turns into vector instructions."""
    size = len(row)
    bits, target = row.view(np.int32), out.view(np.int32)
    exponent, fraction = scratch[0], scratch[1]
    for j in range(size):
        exponent[j] = np.float32((bits[j] >> SHIFT) - BIAS)
        target[j] = (bits[j] & MANTISSA) | ONE
    for j in range(size):
        t = out[j] - np.float32(1)
        total = LOGARITHM[8]
        total = total * t + LOGARITHM[7]
        total = total * t + LOGARITHM[6]
        total = total * t + LOGARITHM[5]
        total = total * t + LOGARITHM[4]
        total = total * t + LOGARITHM[3]
        total = total * t + LOGARITHM[2]
        total = total * t + LOGARITHM[1]
        total = total * t + LOGARITHM[0]
        fraction[j] = weight * (exponent[j] + total * t)
    for j in range(size):
        whole = np.floor(fraction[j])
        fraction[j] -= whole
        target[j] = (np.int32(whole) + BIAS) << SHIFT
    for j in range(size):
        t = fraction[j]
        total = EXPONENTIAL[6]
        total = total * t + EXPONENTIAL[5]
        total = total * t + EXPONENTIAL[4]
        total = total * t + EXPONENTIAL[3]
        total = total * t + EXPONENTIAL[2]
        total = total * t + EXPONENTIAL[1]
        total = total * t + EXPONENTIAL[0]
        out[j] *= total


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz", "reassoc"})
def _largest(row: Array) -> Any:
    """The entry of largest magnitude, with its sign."""
    high, low = row[0], row[0]
    for j in range(len(row)):
        high = max(high, row[j])
        low = min(low, row[j])
    return high if high >= -low else low


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _can_scale(row: Array) -> bool:
    """Whether the largest magnitude is one that can be divided by."""
    return TINY < abs(_largest(row)) < HUGE


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _scale(row: Array) -> None:
    """Divide by the entry of largest magnitude; a row that has none (all zero, not finite) becomes ones."""
    if not _can_scale(row):
        row[:] = 1
        return
    scale = row.dtype.type(1) / _largest(row)
    for j in range(len(row)):
        row[j] *= scale


TINY, HUGE = 1e-37, 1e37
"""Magnitudes between which a row can be scaled in float32."""


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _settle_row(fresh: Array, row: Array, damping: float) -> Any:
    size = len(row)
    _scale(fresh)
    if damping > 0:
        keep = row.dtype.type(damping)
        for j in range(size):
            fresh[j] = keep * row[j] + (row.dtype.type(1) - keep) * fresh[j]
        _scale(fresh)
    for j in range(size):
        old = row[j]
        row[j] = fresh[j]
        fresh[j] -= old
    return abs(_largest(fresh))
