"""The archive on the disk: a document in JSON and arrays, written whole or not at all, read with every check.

Only this module opens files and knows of zip, of checksums and of the format's version. It knows nothing of
models: what the document means is for `kernelbp.storage.reading`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

import kernelbp
from kernelbp.errors import ModelFileError, UnsupportedError
from kernelbp.storage.limits import (
    DTYPES,
    MOST_AXES,
    MOST_BYTES,
    MOST_DIRECTORY,
    MOST_HEADER,
    MOST_MEMBERS,
    MOST_TEXT,
    as_index,
    as_list,
    require,
)

__all__ = ["MALFORMED", "read_file", "write_file"]

FORMAT = "kernelbp model"
VERSION = 1
"""Raised when a file of the new kind would be misread by an older library. New fields do not need it: a
library that does not know a field refuses the file by itself."""
PARTS = ("settings", "fitted", "own kernels", "kernels")
"""What a document holds, besides what this module adds to it."""

MANIFEST = "model.json"
MEMBER_START = b"PK\x03\x04"
COMMENT_START = b"kernelbp-model sha256:"
COMMENT = re.compile(COMMENT_START + rb"([0-9a-f]{64})")
COMMENT_LENGTH = len(COMMENT_START) + 64
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that equal models make equal files."""
CHUNK = 1 << 20
"""Bytes read and summed at a time."""

MALFORMED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""What Python's and NumPy's readers raise on input they do not understand."""


# ---------------------------------------------------------------------- writing


def write_file(path: str | os.PathLike[str], parts: dict[str, Any], arrays: list[NDArray[Any]]) -> None:
    """Write a document and arrays to a file, which appears whole or not at all.

    Parameters
    ----------
    path : path of the file
    parts : what the document holds, by the names in `PARTS`
        As text and numbers.
    arrays : of any shape, with a dtype of `DTYPES`
    """
    text = _document_text(parts, arrays)
    _check_sizes(text, arrays)
    _replace_file(Path(os.path.realpath(path)), text, arrays)


def _document_text(parts: dict[str, Any], arrays: list[NDArray[Any]]) -> bytes:
    document = {
        "format": FORMAT,
        "version": VERSION,
        "written by": kernelbp.__version__,
        **{name: parts[name] for name in PARTS},
        "arrays": [_described(array) for array in arrays],
    }
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")


def _described(array: NDArray[Any]) -> dict[str, Any]:
    total = _Sum()
    npy.write_array(total, array, version=(1, 0), allow_pickle=False)
    return {
        "dtype": array.dtype.newbyteorder("<").str,
        "shape": list(array.shape),
        # Products of matrices differ in their last bits between the two orders: keep the one there was.
        "order": "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C",
        "sha256": total.sha256.hexdigest(),
    }


class _Sum:
    """A place to write to that keeps the SHA-256 only."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)


def _check_sizes(text: bytes, arrays: list[NDArray[Any]]) -> None:
    total = len(text) + sum(array.nbytes + MOST_HEADER for array in arrays)
    for what, size, most in (
        ("bytes of text", len(text), MOST_TEXT),
        ("arrays", len(arrays), MOST_MEMBERS),
        ("bytes", total, MOST_BYTES),
    ):
        if size > most:
            raise UnsupportedError(
                f"this model is too large for a file: {size:,} {what}, at most {most:,} are read back"
            )


def _replace_file(path: Path, text: bytes, arrays: list[NDArray[Any]]) -> None:
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(unfinished, "xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.comment = COMMENT_START + hashlib.sha256(text).hexdigest().encode("ascii")
                with archive.open(_info(MANIFEST, len(text)), "w") as member:
                    member.write(text)
                for number, array in enumerate(arrays):
                    info = _info(_member(number), array.nbytes + MOST_HEADER)
                    with archive.open(info, "w") as member:
                        npy.write_array(member, array, version=(1, 0), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _member(number: int) -> str:
    return f"arrays/{number}.npy"


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # the same bytes on Windows
    info.external_attr = 0o644 << 16
    info.file_size = size  # at most; tells zipfile whether a member needs the large form
    return info


def _flush_folder(folder: Path) -> None:
    """Bring the new name to the disk too, where the system allows to."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    except OSError:
        pass
    finally:
        os.close(number)


# ---------------------------------------------------------------------- reading


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """The document and the arrays of a file: its sums are checked, what its document says is not yet."""
    with open(path, "rb") as file:
        return _read_open(file, os.fstat(file.fileno()).st_size)


def _read_open(file: IO[bytes], size: int) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    require(size <= MOST_BYTES, f"has {size:,} bytes, more than the {MOST_BYTES:,} allowed")
    checksum = _checked_end(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            members = _checked_members(archive, size)
            document = _read_document(archive, members[MANIFEST], checksum)
            entries = document["arrays"]
            require(type(entries) is list, "its arrays are not a list")
            require(
                set(members) == {MANIFEST} | {_member(number) for number in range(len(entries))},
                "does not hold exactly the members it lists",
            )
            arrays = [
                _read_array(archive, members[_member(number)], entry) for number, entry in enumerate(entries)
            ]
    except ModelFileError:
        raise
    except MALFORMED as error:
        raise ModelFileError(f"is damaged ({type(error).__name__}: {error!s:.200})") from error
    return document, arrays


def _checked_end(file: IO[bytes], size: int) -> bytes:
    """The SHA-256 of model.json, from the archive's end; refuses before zipfile reads a long directory.

    zipfile believes the large (zip64) end record if there is one before the plain one, so both are looked at.
    """
    require(file.read(4) == MEMBER_START, "is not a kernelbp model file")
    file.seek(max(0, size - COMMENT_LENGTH - 22 - 20 - 56))
    tail = file.read()
    end, large = tail[-COMMENT_LENGTH - 22 :], tail[: -COMMENT_LENGTH - 22]
    match = COMMENT.fullmatch(end[22:])
    if match is None or end[:4] != b"PK\x05\x06":
        raise ModelFileError("is truncated, or not a kernelbp model file")
    sizes = [struct.unpack("<2HL", end[8:16])]
    if large[-20:-16] == b"PK\x06\x07" and len(large) == 76:
        sizes.append(struct.unpack("<3Q", large[24:48]))
    for here, members, directory in sizes:
        require(
            here == members and members <= MOST_MEMBERS + 1 and directory <= MOST_DIRECTORY,
            f"has {members:,} members, more than the {MOST_MEMBERS:,} allowed, or a directory too long for them",
        )
    return match[1]


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members = {info.filename: info for info in archive.infolist()}
    require(len(members) == len(archive.infolist()), "holds two members of one name")
    require(MANIFEST in members, f"holds no {MANIFEST}: it is not a kernelbp model file")
    for name, info in members.items():
        # As nothing is compressed, no member can be larger than its share of the file.
        require(
            info.compress_type == zipfile.ZIP_STORED
            and info.flag_bits == 0
            and info.file_size == info.compress_size,
            f"member {name!r:.60} is compressed or encrypted, which those of a model file are not",
        )
        require(0 <= info.header_offset < size, f"is damaged (member {name!r:.60} lies outside of it)")
    require(sum(info.file_size for info in members.values()) <= size, "its members are larger than the file")
    require(
        members[MANIFEST].file_size <= MOST_TEXT,
        f"its {MANIFEST} is larger than the {MOST_TEXT:,} bytes allowed",
    )
    return members


def _read_document(archive: zipfile.ZipFile, info: zipfile.ZipInfo, checksum: bytes) -> dict[str, Any]:
    text = archive.read(info)
    require(
        hashlib.sha256(text).hexdigest().encode("ascii") == checksum,
        f"was altered: {MANIFEST} does not have its checksum",
    )
    document = json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_no_constant)
    require(type(document) is dict and document.get("format") == FORMAT, "is not a kernelbp model file")
    version = document.get("version")
    require(type(version) is int and version >= 1, "does not say its version")
    if version > VERSION:
        raise ModelFileError(
            f"is of format version {version}, written by kernelbp {document.get('written by')!s:.20}; "
            f"this kernelbp reads up to version {VERSION}: update it"
        )
    expected = {"format", "version", "written by", *PARTS, "arrays"}
    require(set(document) == expected, f"its {MANIFEST} does not have the parts it should")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    require(len(made) == len(pairs), f"its {MANIFEST} names something twice")
    return made


def _finite(text: str) -> float:
    number = float(text)
    require(math.isfinite(number), f"its {MANIFEST} holds a number out of range")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ModelFileError(f"its {MANIFEST} holds {text}, which is not JSON")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, entry: Any) -> NDArray[Any]:
    name = info.filename
    require(
        type(entry) is dict
        and set(entry) == {"dtype", "shape", "order", "sha256"}
        and entry["dtype"] in DTYPES
        and entry["order"] in ("C", "F")
        and type(entry["sha256"]) is str,
        f"{name} is not described as an array of numbers",
    )
    shape = tuple(as_index(size, MOST_BYTES) for size in as_list(entry["shape"]))
    require(len(shape) <= MOST_AXES, f"{name} has more than {MOST_AXES} axes")
    dtype, fortran = np.dtype(entry["dtype"]), entry["order"] == "F"
    expected = math.prod(shape) * dtype.itemsize
    require(
        expected < info.file_size <= expected + MOST_HEADER,
        f"{name} has {info.file_size:,} bytes, which an array of shape {shape} and dtype {dtype} has not",
    )
    total = hashlib.sha256()
    with archive.open(info) as member:
        header = member.read(info.file_size - expected)
        total.update(header)
        _check_header(header, shape, dtype, fortran, name)
        flat = np.empty(expected, dtype=np.uint8)
        view, filled = flat.data, 0
        while filled < expected:
            read = member.readinto(view[filled : filled + CHUNK])  # type: ignore[attr-defined]
            require(read, f"{name} is truncated")
            total.update(view[filled : filled + read])
            filled += read
        require(not member.read(1), f"{name} is longer than it says")  # and zipfile compares the CRC
    require(total.hexdigest() == entry["sha256"], f"was altered: {name} does not have its checksum")
    require(dtype != np.bool_ or not (flat > 1).any(), f"{name} holds truth values that are none")
    array = flat.view(dtype).reshape(shape, order="F" if fortran else "C")
    array = array.astype(dtype.newbyteorder("="), order="K", copy=False)
    require(array.dtype.kind != "f" or not np.isnan(array).any(), f"{name} holds NaN")
    return array


def _check_header(
    header: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, name: str
) -> None:
    """Compare an array's own header with what model.json says of it.

    NumPy's reader parses the header as Python; here it is only compared with the one text that is right,
    whatever its padding.
    """
    expected = f"{{'descr': '{dtype.str}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode("ascii")
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) - 10 if len(header) >= 10 else 0)
    require(
        header.startswith(start) and header[len(start) :].rstrip(b" \n") == expected,
        f"{name} has another shape or dtype than {MANIFEST} says",
    )
