"""Numbers that threads agree by, in compiled code: who works on what, and what is done.

A phase of an inference on a small graph takes less time than the system takes to wake a thread. So helpers that have
begun wait by looking again and again at a number in memory, for a while, and what is to be done is
taken block by block from a counter by whoever comes first. A helper that was not woken in time takes nothing and
holds up nobody.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

__all__ = ["DONE", "LEAVE", "LIMIT", "NEXT", "SWAPPED", "add", "board", "claim", "look", "put"]

Board = NDArray[np.int64]

LINE = 16
"""Numbers from one entry to the next, so that no two share a line of a cache."""
NEXT, LIMIT, DONE, LEAVE, SWAPPED = (np.uint64(LINE * place) for place in range(5))
"""Where on the board it says: the next block to be taken, the first that may not be yet, how many are done (all
counted on from iteration to iteration), whether helpers are to leave, and whether the two buffers have
changed places."""

# Numba's own types take what these make for functions of the compiler's context.
intrinsic: Any = numba.extending.intrinsic
ALIGNED = 8


def board() -> Board:
    """One on which nothing is to be done yet."""
    return np.zeros(LINE * 5, dtype=np.int64)


def _entry(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@intrinsic
def look(_: Any, board: Any, at: Any) -> Any:
    """board[at] as it is now, and with it all that was written before it was put there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_entry(context, builder, signature, arguments), "acquire", ALIGNED)

    return types.int64(board, at), generate


@intrinsic
def put(_: Any, board: Any, at: Any, value: Any) -> Any:
    """board[at] = value, after all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entry = _entry(context, builder, signature, arguments)
        builder.store_atomic(arguments[2], entry, "release", ALIGNED)
        return context.get_dummy_value()

    return types.void(board, at, types.int64), generate


@intrinsic
def claim(_: Any, board: Any, at: Any, seen: Any) -> Any:
    """Count board[at] up by one, if it still is what was seen there; whether it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entry = _entry(context, builder, signature, arguments)
        seen = arguments[2]
        following = builder.add(seen, ir.Constant(seen.type, 1))
        return builder.extract_value(builder.cmpxchg(entry, seen, following, "acq_rel", "acquire"), 1)

    return types.boolean(board, at, types.int64), generate


@intrinsic
def add(_: Any, board: Any, at: Any) -> Any:
    """Count board[at] up by one, after all that was written before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        entry = _entry(context, builder, signature, arguments)
        builder.atomic_rmw("add", entry, ir.Constant(ir.IntType(64), 1), "acq_rel")
        return context.get_dummy_value()

    return types.void(board, at), generate
