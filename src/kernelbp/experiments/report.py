"""What an experiment shows: tables, pictures and claims; on the terminal, as files, and as one HTML page."""

from __future__ import annotations

import base64
import csv
import html
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbp import __version__
from kernelbp.experiments.study import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

__all__ = ["Claim", "Picture", "Report", "Table", "save", "show"]

PAGE = "index.html"
MOST_SHOWN = 40
"""Rows of a table that is printed; longer ones are for the files."""
RESOLUTION = 110
"""Dots per inch of a PNG."""
PACKAGES = ("numpy", "scipy", "scikit-learn", "scikit-image", "numba", "matplotlib")
"""Whose versions stand on the page."""
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; } .lead { max-width: 48rem; }
table { border-collapse: collapse; margin: .6rem 0; font-size: .9rem; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } th { border-bottom: 2px solid #888; vertical-align: bottom; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; } figcaption, .note { color: #555; font-size: .9rem; }
.yes { color: #087f23; } .no { color: #b00020; }
"""


@dataclass(frozen=True)
class Table:
    """Rows with the same columns, those of the first row.

    Attributes
    ----------
    name : of its file, ``<name>.csv``
    title : what it shows, for someone who sees only the table
    rows : see `Row`; None where there is nothing to say
    note : how it was measured, where that is not plain
    """

    name: str
    title: str
    rows: Sequence[Row]
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in the order they first appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files (``<name>.png``, ``<name>.svg``), and what a reader should see in it."""

    name: str
    figure: Figure
    caption: str


@dataclass(frozen=True)
class Claim:
    """One thing an experiment is to show, with what was measured."""

    what: str
    measured: str
    wanted: str
    holds: bool


@dataclass(frozen=True)
class Report:
    """All an experiment shows.

    Attributes
    ----------
    title, lead : what was done, in a line and in a paragraph
    tables, pictures, claims : see there
    settings : what was asked and chosen, by name
    """

    title: str
    lead: str
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    claims: Sequence[Claim] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def save(report: Report, folder: Path) -> Path:
    """Write all tables (CSV), pictures (PNG and SVG) and one page that holds everything.

    Returns
    -------
    Path of the page
    """
    folder.mkdir(parents=True, exist_ok=True)
    for table in report.tables:
        _save_csv(table, folder / f"{table.name}.csv")
    for picture in report.pictures:
        for ending in ("png", "svg"):
            picture.figure.savefig(folder / f"{picture.name}.{ending}", dpi=RESOLUTION)
    page = folder / PAGE
    page.write_text(_page(report, folder), encoding="utf-8")
    return page


def show(report: Report, console: Console) -> None:
    """Print tables that fit the console, and claims; what is too long or too wide stands in its file and on the page."""
    import rich.table
    from rich.markup import escape
    from rich.text import Text

    for table in report.tables:
        if len(table.rows) > MOST_SHOWN or _width(table) > console.width:
            console.print(
                f"{escape(table.title)}: {len(table.rows)} rows, in {escape(table.name)}.csv", highlight=False
            )
            continue
        shown = rich.table.Table(
            title=escape(table.title), caption=escape(table.note) or None, title_justify="left"
        )
        for index, name in enumerate(table.columns):
            shown.add_column(escape(name), justify="right" if index else "left", overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(cell(row.get(name))) for name in table.columns))
        console.print(shown)
    for claim in report.claims:
        verdict = "[green]holds[/]" if claim.holds else "[red]does not hold[/]"
        said = escape(f"{claim.what}: {claim.measured} (wanted {claim.wanted})")
        console.print(f"{said} {verdict}", highlight=False)


def _width(table: Table) -> int:
    """Letters that the longest words of each column take, side by side: below that a console would break words."""
    words = {name: [name, *(cell(row.get(name)) for row in table.rows)] for name in table.columns}
    longest = [max(len(word) for text in texts for word in text.split() or [""]) for texts in words.values()]
    return sum(longest) + 3 * len(longest) + 1


def cell(value: Any) -> str:
    """A value as text; four digits are enough to read.

    Examples
    --------
    >>> [cell(value) for value in (3.14159, 0.00001234, 12345, True, None, "text")]
    ['3.142', '1.234e-05', '12,345', 'yes', '-', 'text']
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def versions() -> dict[str, str]:
    """Of this library, of Python and of what it computes with."""
    found = {"kernelbp": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "machine": f"{platform.system()} {platform.machine()}"}


def _save_csv(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        for row in table.rows:
            values = [row.get(name) for name in table.columns]
            writer.writerow(["" if value is None else value for value in values])


def _page(report: Report, folder: Path) -> str:
    """Pictures are held inside, so that the page can be sent as one file."""
    say = html.escape
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{say(report.title)}</title><style>{STYLE}</style></head><body>",
        f'<h1>{say(report.title)}</h1><p class="lead">{say(report.lead)}</p>',
    ]
    if report.claims:
        parts.append(
            "<h2>What it shows</h2><table><tr><th>claim</th><th>measured</th><th>wanted</th><th></th></tr>"
        )
        for claim in report.claims:
            word = "yes" if claim.holds else "no"
            cells = "".join(f"<td>{say(text)}</td>" for text in (claim.what, claim.measured, claim.wanted))
            parts.append(
                f'<tr>{cells}<td class="{word}">{"holds" if claim.holds else "does not hold"}</td></tr>'
            )
        parts.append("</table>")
    for picture in report.pictures:
        content = base64.b64encode((folder / f"{picture.name}.png").read_bytes()).decode()
        caption = say(picture.caption)
        parts.append(
            f'<figure><img alt="{caption}" src="data:image/png;base64,{content}">'
            f'<figcaption>{caption} (<a href="{say(picture.name)}.svg">SVG</a>)</figcaption></figure>'
        )
    for table in report.tables:
        head = "".join(f"<th>{say(name)}</th>" for name in table.columns)
        parts.append(f"<h2>{say(table.title)}</h2><table><tr>{head}</tr>")
        for row in table.rows:
            cells = "".join(f"<td>{say(cell(row.get(name)))}</td>" for name in table.columns)
            parts.append(f"<tr>{cells}</tr>")
        note = f"{say(table.note)} " if table.note else ""
        parts.append(f'</table><p class="note">{note}(<a href="{say(table.name)}.csv">CSV</a>)</p>')
    for title, content_of in (("Settings", report.settings), ("Versions", versions())):
        parts.append(f"<h2>{title}</h2><table>")
        for name, value in content_of.items():
            parts.append(f"<tr><td>{say(str(name))}</td><td>{say(cell(value))}</td></tr>")
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>", ""])
