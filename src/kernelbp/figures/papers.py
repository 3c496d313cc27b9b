"""The picture of the papers experiment: recall@k of all methods, and how many citations papers have."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["papers"]

KINDS = {
    "one": "one of a paper's labels is among the first k",
    "all": "share of a paper's labels among the first k",
}
OURS = ("#0072b2", "#56b4e9", "#004c78", "#7a5195", "#00a6a6", "#5b5bd6")
THEIRS = (
    "#d55e00",
    "#e69f00",
    "#999999",
    "#009e73",
    "#cc79a7",
    "#8c564b",
    "#bcbd22",
    "#444444",
    "#e377c2",
    "#a50026",
    "#6b8e23",
)
"""Cold colours for kernel belief propagation, warm and gray ones for the others."""
MARKERS = "osD^vP*Xd<>"
WIDEST = 52
"""Letters of a name in one line."""
FEW_LABELS = 5
"""With no more labels than this, curves would all end in one corner: the first two ranks are shown as dots."""


def papers(
    curves: Mapping[str, Mapping[str, NDArray[Any]]], degrees: NDArray[Any], *, title: str = ""
) -> Figure:
    """Draw recall against k for every method (at k = 1 and 2 where labels are few), and the tail of the degrees.

    Parameters
    ----------
    curves : for each method, ``one`` and ``all``: recall@k (splits, k)
    degrees : (papers,) citations of each paper
    title : what network it is

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If there is no method to draw.

    Examples
    --------
    >>> curve = {"one": np.array([[0.5, 0.8]]), "all": np.array([[0.4, 0.7]])}
    >>> len(papers({"kernel BP": curve}, np.array([1, 2, 5])).axes)
    3
    """
    from matplotlib.figure import Figure

    if not curves:
        raise InputError("curves: expected at least one method, got none")
    few = max(np.shape(curve["one"])[1] for curve in curves.values()) <= FEW_LABELS
    figure = Figure(figsize=(15, 6.4), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=15)
    one, every, tail = figure.subplots(1, 3, width_ratios=(5, 5, 2.6), sharey=False)
    for axes, kind in ((one, "one"), (every, "all")):
        (_dots if few else _lines)(axes, {name: np.asarray(curve[kind]) for name, curve in curves.items()})
        axes.set_title(f"recall@k ({kind}):\n{KINDS[kind]}", fontsize=11, loc="left")
    if few:
        every.set_yticklabels([])
    else:
        one.set_ylabel("recall@k, mean over splits", fontsize=12)
    _degrees(tail, np.asarray(degrees))
    for axes in (one, every, tail):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=11)
    handles, names = one.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=11, frameon=False)
    return figure


def _lines(axes: Any, curves: Mapping[str, NDArray[Any]]) -> None:
    """Recall against k, a line for each method, a band from the lowest split to the highest."""
    from matplotlib.ticker import MaxNLocator

    cold, warm = 0, 0
    for name, values in curves.items():
        ours = name.startswith("kernel BP")
        color = OURS[cold % len(OURS)] if ours else THEIRS[warm % len(THEIRS)]
        marker = MARKERS[(cold if ours else warm) % len(MARKERS)]
        cold, warm = cold + ours, warm + (not ours)
        k = np.arange(1, values.shape[1] + 1)
        style = {"linewidth": 2.2, "linestyle": "-"} if ours else {"linewidth": 1.4, "linestyle": "--"}
        axes.plot(
            k,
            values.mean(axis=0),
            color=color,
            marker=marker,
            markersize=5,
            label=name,
            zorder=2 + ours,
            **style,
        )
        axes.fill_between(k, values.min(axis=0), values.max(axis=0), color=color, alpha=0.12, linewidth=0)
    axes.set_xlabel("k, labels guessed", fontsize=12)
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _dots(axes: Any, curves: Mapping[str, NDArray[Any]]) -> None:
    """With few labels a row for each method: recall@1 and recall@2 as dots on bars from the lowest split to the highest."""
    rows = np.arange(len(curves))[::-1]
    for k, (marker, color) in enumerate((("o", "#0072b2"), ("D", "#d55e00"))):
        for row, values in zip(rows, curves.values(), strict=True):
            if values.shape[1] <= k:
                continue
            mean = float(values[:, k].mean())
            axes.plot(
                [values[:, k].min(), values[:, k].max()], [row, row], color=color, linewidth=2, alpha=0.5
            )
            label = f"recall@{k + 1}" if row == rows[0] else None
            axes.plot([mean], [row], color=color, marker=marker, linestyle="none", label=label)
            axes.annotate(
                f"{mean:.3f}", (mean, row), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=9
            )
    axes.set_yticks(rows, [textwrap.fill(name, WIDEST) for name in curves])
    for text, name in zip(axes.get_yticklabels(), curves, strict=True):
        text.set_fontweight("bold" if name.startswith("kernel BP") else "normal")
    axes.set_ylim(-0.6, len(curves) - 0.2)
    axes.set_xlim(right=1.0)
    axes.set_xlabel("recall@k, mean over splits", fontsize=12)


def _degrees(axes: Any, degrees: NDArray[Any]) -> None:
    """Papers with at least so many citations, both axes logarithmic."""
    largest = max(int(degrees.max(initial=0)), 1)
    at = np.arange(1, largest + 1)
    tail = np.cumsum(np.bincount(degrees, minlength=largest + 1)[::-1])[::-1][1:]
    axes.step(at, tail, where="post", color="black")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axvline(10, color="gray", linestyle=":")
    axes.text(10.8, max(tail[0], 1), "always\nlabelled", fontsize=10, color="gray", va="top")
    axes.set_title("papers with so many\ncitations or more", fontsize=11, loc="left")
    axes.set_xlabel("citations of a paper", fontsize=12)
