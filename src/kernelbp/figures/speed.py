"""One picture of a benchmark: every ratio as a dot, what was aimed for as a bar beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelbp.errors import InputError
from kernelbp.speed.rows import Row, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["speed"]

HOLDS, FAILS, PLAIN = "#0072b2", "#d55e00", "#666666"
"""Told apart by colour-blind readers too (Okabe and Ito)."""
ROW_INCHES = 0.23
PANEL_INCHES = 0.95
"""Of a panel's title and axis."""
LABEL_LENGTH = 96
"""Letters of a label before it is cut."""


def speed(rows: Sequence[Row], titles: Mapping[str, str], *, subtitle: str = "") -> Figure:
    """Draw the ratios of a benchmark, a panel for each group.

    Parameters
    ----------
    rows : sequence of `kernelbp.speed.Row`
        Those without a ratio are left out.
    titles : mapping from group to what it shows
    subtitle : str
        The machine and the run.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If there is no ratio to draw.

    Examples
    --------
    >>> row = Row("iteration", "sgemm", 1.2, 1.0, most=1.6, group="iteration")
    >>> figure = speed([row], {"iteration": "One iteration against sgemm"})
    >>> figure.axes[0].get_title(loc="left")
    'One iteration against sgemm'
    """
    from matplotlib.figure import Figure

    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.ratio is not None:
            groups.setdefault(row.group, []).append(row)
    if not groups:
        raise InputError("rows: no ratio to draw among them")
    columns = _columns(groups)
    height = max(sum(_inches(groups[name]) for name in column) for column in columns)
    figure = Figure(figsize=(10.5 * len(columns), height + 1.3), layout="constrained")
    figure.suptitle("How fast kernelbp is: ratios to something fixed, measured in the same run", fontsize=15)
    parts: Any = figure.subfigures(1, len(columns), squeeze=False)[0]
    for part, column in zip(parts, columns, strict=True):
        panels = part.subplots(
            len(column), 1, squeeze=False, height_ratios=[_inches(groups[name]) for name in column]
        )[:, 0]
        for axes, name in zip(panels, column, strict=True):
            _panel(axes, groups[name], titles.get(name, name))
    _legend(figure, subtitle)
    return figure


def _inches(rows: Sequence[Row]) -> float:
    return PANEL_INCHES + ROW_INCHES * len(rows)


def _columns(groups: Mapping[str, Sequence[Row]]) -> list[list[str]]:
    """Groups in order, cut into two columns of about equal height; one will do for few."""
    names, heights = list(groups), [_inches(rows) for rows in groups.values()]
    if len(names) < 3:
        return [names]
    cut = min(range(1, len(names)), key=lambda cut: max(sum(heights[:cut]), sum(heights[cut:])))
    return [names[:cut], names[cut:]]


def _panel(axes: Any, rows: Sequence[Row], title: str) -> None:
    """A dot for each ratio, tied to 1; what is wanted as a gray tick."""
    low = min([1.0] + [_shown(row) for row in rows] + [t for row in rows for t in _targets(row)])
    high = max([1.0] + [_shown(row) for row in rows] + [t for row in rows for t in _targets(row)])
    margin = max(high / low, 1.2)
    axes.axvline(1.0, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        color = {None: PLAIN, True: HOLDS, False: FAILS}[row.holds]
        ratio = _shown(row)
        axes.plot([1.0, ratio], [place, place], color=color, linewidth=1.4, alpha=0.5)
        axes.plot([ratio], [place], "o", color=color, markersize=5)
        for target in _targets(row):
            axes.plot([target], [place], "|", color="black", markersize=11, markeredgewidth=2.0)
        rightmost = max([ratio, 1.0, *_targets(row)])
        axes.annotate(
            f"{number(row.ratio)} x" + (" as fast" if row.gain and row.unit == "s" else ""),
            (rightmost, place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=color,
        )
    axes.set_xscale("log")
    axes.set_xlim(low / margin**0.05, high * margin**0.25)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    shared = len({row.against for row in rows}) == 1
    axes.set_yticks(range(len(rows)), [_label(row, alone=shared) for row in rows], fontsize=8)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    said = (f"compared with: {rows[0].against}" if shared else "", _direction(rows))
    axes.set_xlabel(",  ".join(part for part in said if part), fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    _few_ticks(axes, high / low)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _few_ticks(axes: Any, span: float) -> None:
    """Powers of ten where they are several; a few numbers between where they are not."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    axes.xaxis.set_minor_formatter(NullFormatter())
    if span < 3:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_minor_locator(NullLocator())
    elif span < 30:
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 1.5, 2.0, 3.0, 5.0), numticks=12))
        axes.xaxis.set_minor_locator(NullLocator())


def _shown(row: Row) -> float:
    """The ratio, with one of zero drawn at the left end."""
    least = 1e-6
    return max(row.ratio or 0.0, least)


def _targets(row: Row) -> list[float]:
    return [target for target in (row.least, row.most) if target is not None]


def _label(row: Row, *, alone: bool) -> str:
    """What was measured, and against what unless the panel says so."""
    joined = " against " if row.gain else " / "
    text = row.what.strip() + ("" if alone else joined + row.against)
    return text if len(text) <= LABEL_LENGTH else text[: LABEL_LENGTH - 1] + "…"


def _direction(rows: Sequence[Row]) -> str:
    """Which side is the better one, where it is one and the same for all."""
    right = {row.gain or (row.least is not None and row.most is None) for row in rows}
    if len(right) > 1 or any(len(_targets(row)) > 1 for row in rows):
        return ""
    return "right is better →" if right == {True} else "← left is better"


def _legend(figure: Any, subtitle: str) -> None:
    from matplotlib.lines import Line2D

    def dot(color: str, label: str) -> Line2D:
        return Line2D([], [], color=color, marker="o", linestyle="none", label=label)

    figure.legend(
        handles=[
            dot(HOLDS, "target holds"),
            dot(FAILS, "target missed"),
            dot(PLAIN, "no target"),
            Line2D(
                [],
                [],
                color="black",
                marker="|",
                markersize=11,
                markeredgewidth=2,
                linestyle="none",
                label="target",
            ),
            Line2D([], [], color="black", linewidth=0.8, label="1: as much as the reference"),
        ],
        title="Ratios of time are ours / reference (left is better), or how many times as fast where it says so (right is better)."
        + (f"\n{subtitle}" if subtitle else ""),
        title_fontsize=9,
        fontsize=9,
        loc="outside lower center",
        ncols=5,
        frameon=False,
    )
