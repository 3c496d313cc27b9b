"""What every benchmark shares: tables that print and save themselves, and a unit of time."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import rich.table

SGEMM_SIZE = 1024
"""The unit of time: one product of two float32 matrices of this many rows and columns."""
SGEMM_REPEATS = 7


@dataclass(frozen=True)
class Claim:
    """One thing a benchmark is to show, with what was measured."""

    what: str
    measured: str
    wanted: str
    holds: bool


@dataclass(frozen=True)
class Results:
    """A table of measurements."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    claims: Sequence[Claim] = field(default_factory=tuple)
    note: str = ""

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        index = list(self.columns).index(name)
        return [row[index] for row in self.rows]

    def table(self) -> rich.table.Table:
        """For the terminal."""
        table = rich.table.Table(title=self.title, caption=self.note or None, title_justify="left")
        for name in self.columns:
            table.add_column(name, justify="right")
        for row in self.rows:
            table.add_row(*map(shown, row))
        return table

    def save(self, folder: Path) -> Path:
        """Write ``<name>.csv``."""
        path = folder / f"{self.name}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows([["" if cell is None else cell for cell in row] for row in self.rows])
        return path


class Tracker(Protocol):
    """What a benchmark uses of ``rich.progress.Progress``."""

    def track(self, sequence: Iterable[Any], *, description: str) -> Iterable[Any]:
        """Go through a sequence with a progress bar."""


@dataclass(frozen=True)
class Settings:
    """How to run: quick or full, and where the paper's images are, if anywhere."""

    quick: bool
    images: Path
    progress: Tracker


def shown(cell: Any) -> str:
    """A cell as text: four digits are enough to read."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return str(cell)


def seconds(function: Callable[[], Any]) -> float:
    """Processor time of one call: all runs on one thread, and what else a busy machine does is not counted."""
    began = time.process_time()
    function()
    return time.process_time() - began


def sgemm_seconds() -> float:
    """Time of the unit product now, the least of a few tries: machine and load as they are at this moment."""
    rng = np.random.default_rng(0)
    left = rng.standard_normal((SGEMM_SIZE, SGEMM_SIZE), dtype=np.float32)
    right = rng.standard_normal((SGEMM_SIZE, SGEMM_SIZE), dtype=np.float32)
    product = np.empty_like(left)
    return min(seconds(lambda: np.matmul(left, right, out=product)) for _ in range(SGEMM_REPEATS))


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The p of times ~ sizes^p, by least squares on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
