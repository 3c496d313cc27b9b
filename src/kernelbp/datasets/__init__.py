"""Problems to try the library on: generators, and loaders of the formats real data comes in."""

from __future__ import annotations

from kernelbp.datasets.grids import grid_pairs
from kernelbp.datasets.sunsets import SUNSET_COLORS, load_sunset, sunset

__all__ = ["SUNSET_COLORS", "grid_pairs", "load_sunset", "sunset"]
