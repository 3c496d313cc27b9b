"""One line of the benchmark, and all of them as a table and as a file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Row", "number", "save_csv", "table"]

COLUMNS = (
    "group",
    "what",
    "against",
    "ours",
    "reference",
    "unit",
    "ratio",
    "ratio is",
    "target",
    "holds",
    "note",
)


@dataclass(frozen=True)
class Row:
    """What was measured next to what it is compared with.

    Attributes
    ----------
    what : what of ours was measured
    against : what it is compared with
    ours, reference : both in `unit`; None where nothing could be measured, and the note says why
    unit : "s" or another
    gain : whether the ratio says how many times better ours is (reference / ours) instead of how many
        times as much it takes (ours / reference)
    least, most : the ratio wanted, if any
    note : how it was measured, where that is not plain
    group : the name of its group
    """

    what: str
    against: str
    ours: float | None
    reference: float | None
    unit: str = "s"
    gain: bool = False
    least: float | None = None
    most: float | None = None
    note: str = ""
    group: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the reference, or the other way round where it is a gain."""
        if self.ours is None or self.reference is None:
            return None
        over, under = (self.reference, self.ours) if self.gain else (self.ours, self.reference)
        return over / under

    @property
    def target(self) -> str:
        """The ratio wanted, in words."""
        if self.least is not None and self.most is not None:
            return f"{number(self.least)} to {number(self.most)}"
        if self.least is not None:
            return f"at least {number(self.least)}"
        return "" if self.most is None else f"at most {number(self.most)}"

    @property
    def holds(self) -> bool | None:
        """Whether the ratio is what is wanted; None where nothing is, or nothing was measured."""
        if self.ratio is None or not self.target:
            return None
        low = self.least is None or self.ratio >= self.least
        return low and (self.most is None or self.ratio <= self.most)


def number(value: float | None) -> str:
    """Three digits are enough to read.

    Examples
    --------
    >>> [number(value) for value in (1.6, 12345.6, 0.00123, 0.0000123, None)]
    ['1.6', '12,346', '0.00123', '1.23e-05', '-']
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(rows: Iterable[Row], *, narrow: bool = False) -> Table:
    """All rows for the terminal, groups apart; a narrow one tells of times and of the reference within a row."""
    from rich.table import Table
    from rich.text import Text

    made = Table()
    made.add_column("what", overflow="fold")
    if not narrow:
        made.add_column("against", overflow="fold")
        made.add_column("ours", justify="right")
        made.add_column("reference", justify="right")
    for name in ("ratio", "target"):
        made.add_column(name, justify="right")
    made.add_column("holds")
    group = None
    for row in rows:
        if group is not None and row.group != group:
            made.add_section()
        group = row.group
        ours, reference = (
            f"{number(value)} {row.unit if value is not None else ''}".strip()
            for value in (row.ours, row.reference)
        )
        what = Text(row.what)
        for more in (f"{ours} against {reference}: {row.against}" if narrow else "", row.note):
            if more:
                what.append(f"\n{more}", style="dim")
        made.add_row(
            *((what,) if narrow else (what, row.against, ours, reference)),
            number(row.ratio) + (" x" if row.ratio is not None else ""),
            row.target,
            {None: "", True: "[green]yes", False: "[red]no"}[row.holds],
        )
    return made


def save_csv(rows: Sequence[Row], path: Path) -> None:
    """Write all rows, with all digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            said = {None: "", True: "yes", False: "no"}[row.holds]
            formed = "reference / ours" if row.gain else "ours / reference"
            cells = (row.group, row.what, row.against, row.ours, row.reference, row.unit, row.ratio, formed)
            writer.writerow(["" if cell is None else cell for cell in (*cells, row.target, said, row.note)])
