"""Plain (ASCII, "P2") PGM images, read without trusting the file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError

__all__ = ["read_plain_pgm"]

# Room for a value of up to three digits, its separator, and line ends of two characters: five bytes a pixel
# holds any sane file. The rest is for the header and its comments.
_BYTES_PER_PIXEL = 5
_BYTES_OF_HEADER = 4096

_COMMENT = re.compile(rb"#[^\r\n]*")
_MAGIC, _HEADER_WORDS = b"P2", 4


def read_plain_pgm(path: Path, *, shape: tuple[int, int], maximum: int = 255) -> NDArray[np.float64]:
    """Read a plain PGM image whose shape is known beforehand.

    Knowing the shape, nothing the file says decides how much is read or allocated.

    Parameters
    ----------
    path : Path
        The file.
    shape : (rows, columns)
        What the header must say.
    maximum : int
        The value of white; the header must say the same, and no pixel may be above it.

    Returns
    -------
    ndarray of shape (rows, columns)
        The gray levels as float64.

    Raises
    ------
    InputError
        If there is no such file, or it is not such an image, whole.
    """
    rows, columns = shape
    pixels = rows * columns
    limit = _BYTES_OF_HEADER + _BYTES_PER_PIXEL * pixels
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a plain PGM image of {columns} x {rows} pixels")
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(
            f"{path}: larger than {limit} bytes; too large for a PGM image of {columns} x {rows} pixels"
        )

    words = _COMMENT.sub(b"", content).split()
    if not words or words[0] != _MAGIC:
        found = words[0][:8] if words else b""
        raise InputError(
            f"{path}: not a plain PGM image: expected it to begin with 'P2', found {_show(found)}"
        )
    if len(words) < _HEADER_WORDS:
        raise InputError(f"{path}: truncated in its header; expected 'P2', width, height and maximum")
    for name, expected, word in zip(
        ("width", "height", "maximum"), (columns, rows, maximum), words[1:4], strict=True
    ):
        if not word.isdigit() or word.lstrip(b"0") != str(expected).encode():
            raise InputError(f"{path}: the header's {name} is {_show(word)}; expected {expected}")

    raster = words[_HEADER_WORDS:]
    if len(raster) < pixels:
        raise InputError(f"{path}: truncated: {len(raster)} of {pixels} pixels")
    if len(raster) > pixels:
        raise InputError(f"{path}: {len(raster)} pixels; expected {pixels}, as the header says")
    longest = len(str(maximum))
    for position, word in enumerate(raster):
        if len(word) > longest or not word.isdigit() or int(word) > maximum:
            raise InputError(
                f"{path}: the pixel at row {position // columns}, column {position % columns} "
                f"is {_show(word)}; expected an integer from 0 to {maximum}"
            )
    return np.array([int(word) for word in raster], dtype=np.float64).reshape(shape)


def _show(word: bytes) -> str:
    """Give the beginning of a word from a file in a form fit for an error's text."""
    longest_shown = 12
    shown = word[:longest_shown].decode("ascii", errors="backslashreplace")
    return repr(shown) + ("..." if len(word) > longest_shown else "")
