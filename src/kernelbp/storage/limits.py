"""How large a model file and its parts may be, and how one that is not as it should be is refused.

The other modules of this package take their limits from here, so that what is written is what is read back.
Nothing here touches models or the disk.
"""

from __future__ import annotations

from typing import Any

from kernelbp.errors import ModelFileError

MOST_BYTES = 16 << 30
"""Largest file, and so largest model, taken."""
MOST_MEMBERS = 60_000
"""Most arrays; below what a plain zip directory can count."""
MOST_DIRECTORY = MOST_MEMBERS * 128
"""Largest zip directory in bytes: an entry of ours takes 63 to 91."""
MOST_TEXT = 256 << 20
"""Largest model.json in bytes. Parsed, it may take some twenty times as much memory."""
MOST_ENTRIES = 1 << 16
"""Largest array that may be one value of a variable."""
MOST_DEPTH = 64
"""Nodes within nodes; what we write stays under ten unless a user's own values are deeper."""
MOST_AXES = 8
"""Most axes of an array."""
MOST_HEADER = 1000
"""Largest header of an array in bytes; ours have 118."""
MOST_BITS = 4096
"""Largest whole number among a user's values; Python reads decimals of some 14,000 bits at most."""

DTYPES = ("<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")
"""Arrays are of these types, in this order of bytes."""


def require(condition: object, text: str) -> None:
    """Refuse a file, for the reason that `text` gives, unless a condition holds."""
    if not condition:
        raise ModelFileError(text)


def as_index(number: Any, size: int) -> int:
    """A whole number from 0 to `size` - 1, or the file is refused."""
    if type(number) is not int or not 0 <= number < size:
        raise ModelFileError(f"has {number!r:.60} where a whole number from 0 to {size - 1} belongs")
    return number


def as_list(body: Any) -> list[Any]:
    """A list, or the file is refused."""
    if type(body) is not list:
        raise ModelFileError(f"has {body!r:.60} where a list belongs")
    return body
