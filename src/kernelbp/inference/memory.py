"""Whether a problem will fit, said before it is begun."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelbp.errors import TooLargeError
from kernelbp.inference.program import padded
from kernelbp.inference.run import MOST_ACCELERATED
from kernelbp.inference.wiring import Wiring

__all__ = ["available_bytes", "bytes_needed", "check_memory"]

BYTES_PER_MESSAGE = 200
"""Index arrays of the program, and what is needed while they are made."""
COPIES = 2
"""Messages and evidence stand in the graph's order and in the engine's."""


def bytes_needed(wiring: Wiring, sizes: Sequence[int], dtype: np.dtype[Any]) -> int:
    """About how much memory inference takes beside the wiring: messages, evidence, who sends to whom.

    Extrapolation keeps a dozen more copies where there are up to 2^24 message values.
    """
    cells = sum(
        (int(start[-1]) + len(nodes)) * padded(size)
        for start, nodes, size in zip(wiring.start, wiring.nodes, sizes, strict=True)
    )
    copies = COPIES + (13 if cells <= MOST_ACCELERATED else 0)
    return copies * cells * dtype.itemsize + wiring.n_messages * BYTES_PER_MESSAGE


def check_memory(wiring: Wiring, sizes: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Refuse a problem that needs more memory than there is.

    Raises
    ------
    TooLargeError
        With what it needs, what there is and what to do.
    """
    needed, available = bytes_needed(wiring, sizes, dtype), available_bytes()
    if available is not None and needed > available:
        raise TooLargeError(
            f"graph: inference needs about {needed / 1e9:.3g} GB ({wiring.n_messages:,} messages of up to {max(sizes)} "
            f"{dtype.name} values), and {available / 1e9:.3g} GB are free. Use fewer support points (Model(budget=...)), "
            "dtype=np.float32, or infer parts of the graph one after another"
        )


def available_bytes() -> int | None:
    """Memory that can be taken without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
