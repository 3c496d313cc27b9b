"""Many short rows times one small table, in compiled code.

BLAS copies rows and table into an order of its own before it multiplies them. For tables of a few dozen columns, which the
nearest cache holds as they are, that takes a fifth of the time.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit
from kernelbp.inference.lanes import EIGHT, fused, load, spread, store

__all__ = ["LARGEST", "SIX", "multiply"]

Array = NDArray[Any]

NONE, TWO, THREE, FOUR, FIVE, SIX = (np.uint64(n) for n in (0, 2, 3, 4, 5, 6))


HALVES = ("znver4",)
"""Processors with registers of sixteen numbers that work on them by eights."""


def _largest() -> int:
    """Sixty-four where a processor works on eight numbers at once, as below; elsewhere BLAS knows better."""
    known = llvmlite.binding.get_host_cpu_features()
    by_eights = not known.get("avx512f") or llvmlite.binding.get_host_cpu_name() in HALVES
    return 64 if known.get("avx2") and known.get("fma") and by_eights else 0


LARGEST = np.uint64(_largest())
"""Rows and columns, at most, of a table in single precision that is multiplied by here; none on some machines."""


@jit
def multiply(
    rows: Array, at: Any, count: Any, size: Any, table: Array, begin: Any, to: Any, out: Array
) -> None:
    """out[: count * to] = rows[at :] (count, size) times table[begin :] (size, to), all flat; sizes in eights.

    Each number is summed in the same order, whatever rows stand beside it.
    """
    wide = to - to % (TWO * EIGHT)
    first = NONE
    while count >= SIX and first < count:
        first = min(first, count - SIX)  # the last six overlap those before
        for j in range(NONE, wide, TWO * EIGHT):
            _six(rows, at + first * size, size, table, begin + j, to, out, first * to + j)
        if wide < to:
            _six_narrow(rows, at + first * size, size, table, begin + wide, to, out, first * to + wide)
        first += SIX
    for i in range(first, count):
        for j in range(NONE, to, EIGHT):
            total = spread(out.dtype.type(0))
            for k in range(size):
                total = fused(spread(rows[at + i * size + k]), load(table, begin + k * to + j), total)
            store(out, i * to + j, total)


@jit
def _six(rows: Array, at: Any, size: Any, table: Array, column: Any, to: Any, out: Array, here: Any) -> None:
    """Six rows times sixteen columns: as many sums as registers hold, none of which waits for another."""
    a0 = a1 = a2 = a3 = a4 = a5 = b0 = b1 = b2 = b3 = b4 = b5 = spread(out.dtype.type(0))
    for k in range(at, at + size):
        a, b = load(table, column), load(table, column + EIGHT)
        column += to
        value = spread(rows[k])
        a0, b0 = fused(value, a, a0), fused(value, b, b0)
        value = spread(rows[k + size])
        a1, b1 = fused(value, a, a1), fused(value, b, b1)
        value = spread(rows[k + TWO * size])
        a2, b2 = fused(value, a, a2), fused(value, b, b2)
        value = spread(rows[k + THREE * size])
        a3, b3 = fused(value, a, a3), fused(value, b, b3)
        value = spread(rows[k + FOUR * size])
        a4, b4 = fused(value, a, a4), fused(value, b, b4)
        value = spread(rows[k + FIVE * size])
        a5, b5 = fused(value, a, a5), fused(value, b, b5)
    for a, b in ((a0, b0), (a1, b1), (a2, b2), (a3, b3), (a4, b4), (a5, b5)):
        store(out, here, a)
        store(out, here + EIGHT, b)
        here += to


@jit
def _six_narrow(
    rows: Array, at: Any, size: Any, table: Array, column: Any, to: Any, out: Array, here: Any
) -> None:
    """Six rows times eight columns."""
    a0 = a1 = a2 = a3 = a4 = a5 = spread(out.dtype.type(0))
    for k in range(at, at + size):
        a = load(table, column)
        column += to
        a0 = fused(spread(rows[k]), a, a0)
        a1 = fused(spread(rows[k + size]), a, a1)
        a2 = fused(spread(rows[k + TWO * size]), a, a2)
        a3 = fused(spread(rows[k + THREE * size]), a, a3)
        a4 = fused(spread(rows[k + FOUR * size]), a, a4)
        a5 = fused(spread(rows[k + FIVE * size]), a, a5)
    for a in (a0, a1, a2, a3, a4, a5):
        store(out, here, a)
        here += to
