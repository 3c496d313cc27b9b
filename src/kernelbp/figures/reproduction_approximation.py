"""The figures of the paper's appendix 3 drawn anew: errors, seconds and ranks of approximate updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["bars", "lines"]

STYLES = (("#0072b2", "o"), ("#009e73", "s"), ("#d55e00", "^"), ("#cc79a7", "D"))
"""Of one precision after another; told apart by colour-blind readers too (Okabe and Ito)."""
OF_UPDATE = {"constant": "#d55e00", "linear": "#0072b2", "full": "#555555"}


def lines(epsilons: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw errors, seconds of one iteration and ranks against the number of colours.

    Parameters
    ----------
    epsilons : precisions, a line each
    rows : sequence of mappings
        With ``colours``, ``eps``, ``RMSE linear``, ``RMSE constant``, ``linear s``, ``constant s``, ``rank``
        and ``tensor rank``.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> row = {"colours": 10, "eps": 0.1, "RMSE linear": 9.0, "RMSE constant": 9.0, "linear s": 1.0, "constant s": 0.1}
    >>> figure = lines([0.1], [{**row, "rank": 5, "tensor rank": 8}])
    >>> [axes.get_title(loc="left") for axes in figure.axes][:2]
    ['error, linear update', 'one iteration, linear update']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 7.6), layout="constrained")
    panels: Any = figure.subplots(2, 3)
    shown = (
        ("RMSE linear", "error, linear update", "RMSE of the mode, gray levels"),
        ("linear s", "one iteration, linear update", "seconds"),
        ("rank", "rank of features", "basis functions"),
        ("RMSE constant", "error, constant update", "RMSE of the mode, gray levels"),
        ("constant s", "one iteration, constant update", "seconds"),
        ("tensor rank", "rank of tensor features", "support points"),
    )
    for axes, (name, title, label) in zip(panels.ravel(), shown, strict=True):
        for epsilon, (color, marker) in zip(epsilons, STYLES, strict=False):
            at = [row for row in rows if row["eps"] == epsilon]
            axes.plot(
                [row["colours"] for row in at],
                [row[name] for row in at],
                color=color,
                marker=marker,
                markersize=5,
                linewidth=1.6,
                label=f"eps = {epsilon:g}",
            )
        _finish(axes, title, label)
        axes.set_xlabel("colours (gray levels) in the image", fontsize=10.5)
        axes.set_ylim(bottom=0.0)
    # Errors share an axis, so that the two updates can be compared by eye; so do ranks.
    for above, below in ((panels[0, 0], panels[1, 0]), (panels[0, 2], panels[1, 2])):
        top = max(above.get_ylim()[1], below.get_ylim()[1])
        above.set_ylim(0.0, top)
        below.set_ylim(0.0, top)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=11)
    return figure


def bars(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw error and seconds of one iteration of each update.

    Parameters
    ----------
    rows : sequence of mappings
        With ``update``, ``eps`` (None for the full update), ``RMSE`` and ``s``.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> figure = bars([{"update": "full", "eps": None, "RMSE": 9.0, "s": 12.0}])
    >>> [text.get_text() for axes in figure.axes for text in axes.texts]
    ['9.00', '12']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    panels: Any = figure.subplots(1, 2)
    names = [row["update"] if row["eps"] is None else f"{row['update']}\n{row['eps']:g}" for row in rows]
    for axes, (name, title, label, number) in zip(
        panels,
        (
            ("RMSE", "error", "RMSE of the mode, gray levels", "{:.2f}"),
            ("s", "one iteration (logarithmic)", "seconds", "{:.2g}"),
        ),
        strict=True,
    ):
        heights = [row[name] for row in rows]
        drawn = axes.bar(names, heights, color=[OF_UPDATE[row["update"]] for row in rows], width=0.7)
        axes.bar_label(drawn, [number.format(height) for height in heights], fontsize=10, padding=2)
        if name == "s":
            axes.set_yscale("log")
        axes.margins(y=0.12)
        _finish(axes, title, label)
        axes.set_xlabel("update, and eps of its approximation", fontsize=10.5)
    return figure


def _finish(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=12, loc="left")
    axes.set_ylabel(label, fontsize=10.5)
    axes.grid(alpha=0.25, axis="y")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9.5)
