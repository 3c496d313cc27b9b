"""Tables of numbers from MATLAB 5 files, read without trusting the file.

SciPy's reader is compiled and can crash the whole process on a damaged file; here every length is checked against
what is there before anything is made of it.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelbp.errors import InputError

__all__ = ["read_tables"]

_HEADER = 128
_TAG = 8
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_SPARSE = 5
_DENSE = range(6, 16)
"""Classes of arrays: double, single and the integers."""
_COMPLEX = 0x0800
_MOST_NAME, _MOST_SEEN = 64, 20
_MOST_PARTS = 7
"""Parts of a table: flags, shape, name, and up to four lists of numbers. A small file can unpack to millions."""
_CHUNK = 1 << 22

Table: TypeAlias = Any
"""An array or a sparse array."""


class _Broken(Exception):
    """Why a file is no whole MATLAB 5 file."""


def read_tables(path: Path, names: tuple[str, ...], *, most_bytes: int, axes: int = 2) -> dict[str, Table]:
    """Read some tables of real numbers.

    Parameters
    ----------
    path : Path
    names : of the variables wanted; others are passed over
    most_bytes : of the file, and of all its variables unpacked
    axes : of each table

    Returns
    -------
    dict from name to array or sparse array

    Raises
    ------
    InputError
        If the file is damaged, too large, or lacks a variable, or one is not such a table.
    """
    expected = f"a MATLAB 5 file (saved with -v7 or older) with {', '.join(names)}"
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected {expected}")
    if path.stat().st_size > most_bytes:
        raise InputError(f"{path}: larger than {most_bytes:,} bytes; expected a smaller file")
    content = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(content[126:_HEADER])
    if order is None:
        raise InputError(f"{path}: not {expected}: it does not begin like one")
    found: dict[str, Table] = {}
    seen: list[str] = []
    left = most_bytes
    try:
        for kind, data in _elements(memoryview(content)[_HEADER:], order, top=True):
            if kind == _COMPRESSED:
                unpacked = memoryview(_unpacked(data, left))
                left -= len(unpacked)
                inner = list(islice(_elements(unpacked, order), 1))
            else:
                inner = [(kind, data)]
            for kind_inside, matrix in inner:
                if kind_inside != _MATRIX:
                    continue
                name, parts, flags, shape = _head(matrix, order)
                if len(seen) < _MOST_SEEN:
                    seen.append(name[:_MOST_NAME])
                if name in names:
                    found[name] = _table(name, parts, flags, shape, order, axes)
    except (_Broken, ValueError, OverflowError) as error:  # the latter two of shapes no array can have
        raise InputError(f"{path}: not a whole MATLAB 5 file: {error}; expected {expected}") from error
    for name in names:
        if name not in found:
            raise InputError(
                f"{path}: no variable {name!r}; expected {', '.join(names)}, found {', '.join(seen) or 'none'}"
            )
    return found


def _elements(data: memoryview, order: str, *, top: bool = False) -> Iterator[tuple[int, memoryview]]:
    """Types and contents of the elements that follow each other."""
    at = 0
    while at + _TAG <= len(data):
        kind, length = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # the small form: both in four bytes, then up to four of content
            kind, length, begin, after = kind & 0xFFFF, kind >> 16, at + 4, at + _TAG
            if length > 4:
                raise _Broken("an element is longer than it can be")
        else:
            begin = at + _TAG
            after = begin + length
            if not (top and kind == _COMPRESSED):
                after += -length % 8
        if begin + length > len(data):
            raise _Broken("truncated")
        yield kind, data[begin : begin + length]
        at = after


def _unpacked(data: memoryview, most: int) -> bytes:
    """Decompressed a piece at a time, so that what is too much is never held."""
    unpack = zlib.decompressobj()
    parts, total, packed = [], 0, bytes(data)
    try:
        while packed and not unpack.eof:
            parts.append(unpack.decompress(packed, _CHUNK))
            total += len(parts[-1])
            if total > most:
                raise _Broken(f"unpacks to more than {most:,} bytes")
            packed = unpack.unconsumed_tail
    except zlib.error as error:
        raise _Broken(str(error)) from error
    if not unpack.eof:
        raise _Broken("truncated")
    return b"".join(parts)


def _head(matrix: memoryview, order: str) -> tuple[str, list[tuple[int, memoryview]], int, tuple[int, ...]]:
    """Name, further elements, flags and shape of a matrix."""
    parts = list(islice(_elements(matrix, order), _MOST_PARTS))
    if len(parts) < 3 or len(parts[0][1]) < 4:
        raise _Broken("a variable has no head")
    (flags,) = struct.unpack_from(f"{order}I", parts[0][1])
    shape = _numbers(parts[1], order)
    if shape.dtype.kind not in "iu" or (shape < 0).any():
        raise _Broken("a variable has no shape")
    return bytes(parts[2][1]).decode("ascii", "replace"), parts[3:], flags, tuple(int(size) for size in shape)


def _numbers(part: tuple[int, memoryview], order: str) -> NDArray[Any]:
    kind, data = part
    if kind not in _TYPES:
        raise _Broken(f"numbers of an unknown type {kind}")
    form = np.dtype(order + _TYPES[kind])
    if len(data) % form.itemsize:
        raise _Broken("half a number")
    return np.frombuffer(data, dtype=form).astype(form.newbyteorder("="))


def _table(
    name: str, parts: list[tuple[int, memoryview]], flags: int, shape: tuple[int, ...], order: str, axes: int
) -> Table:
    kind = flags & 0xFF
    if len(shape) != axes or (kind != _SPARSE and kind not in _DENSE) or flags & _COMPLEX:
        raise _Broken(f"{name} is not a table of real numbers with {axes} axes")
    if kind != _SPARSE:
        values = _numbers(parts[0], order) if parts else np.empty(0)
        if len(values) != math.prod(shape):
            raise _Broken(f"{name} has {len(values):,} numbers for {' x '.join(map(str, shape))}")
        return values.reshape(shape, order="F")
    if len(parts) < 3:
        raise _Broken(f"{name} lacks a part")
    rows, ends, values = (_numbers(part, order) for part in parts[:3])
    if rows.dtype.kind not in "iu" or ends.dtype.kind not in "iu":
        raise _Broken(f"{name} has no whole numbers for places")
    rows, ends = rows.astype(np.int64), ends.astype(np.int64)
    if len(ends) != shape[1] + 1 or ends[0] != 0 or (np.diff(ends) < 0).any():
        raise _Broken(f"{name} has columns that do not follow each other")
    count = int(ends[-1])
    if count > min(len(rows), len(values)):
        raise _Broken(f"{name} is truncated")
    rows, values = rows[:count], values[:count]  # what MATLAB keeps in reserve is dropped
    if count and not 0 <= rows.min() <= rows.max() < shape[0]:
        raise _Broken(f"{name} has places outside of it")
    return sparse.csc_array((values, rows, ends), shape=shape)
