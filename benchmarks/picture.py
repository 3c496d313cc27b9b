"""One picture of all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from common import Results, exponent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, THEIRS, PLAIN = "#0072b2", "#d55e00", "gray"


def draw(results: Mapping[str, Results]) -> Figure:
    """Accuracy above, growth below; a panel without results stays away."""
    from matplotlib.figure import Figure

    panels = {
        "paper_preset_colors": accuracy_by_colors,
        "paper_preset_iterations": accuracy_by_iterations,
        "scaling_learning": learning,
        "scaling_iteration_pairs": iteration_by_pairs,
        "scaling_iteration_edges": iteration_by_edges,
    }
    drawn = [name for name in panels if name in results]
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.9 * rows), layout="constrained")
    for place, name in enumerate(drawn, start=1):
        axes = figure.add_subplot(rows, columns, place)
        panels[name](axes, results[name])
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    return figure


def accuracy_by_colors(axes: Any, found: Results) -> None:
    _ours_and_theirs(axes, found, "colours")
    axes.set(title="Sunset denoising, sigma 30, 30 iterations", xlabel="gray levels of the image")


def accuracy_by_iterations(axes: Any, found: Results) -> None:
    _ours_and_theirs(axes, found, "iterations")
    axes.set(title="The same, 100 gray levels", xlabel="iterations", xscale="log")


def _ours_and_theirs(axes: Any, found: Results, over: str) -> None:
    where = found.column(over)
    axes.plot(where, found.column("RMSE mode"), "o-", color=OURS, label="Model.paper, belief mode")
    authors = [(x, y) for x, y in zip(where, found.column("authors' RMSE"), strict=True) if y is not None]
    axes.plot(*zip(*authors, strict=True), "s--", color=THEIRS, label="the authors' program")
    axes.set_ylabel("RMSE")
    axes.set_ylim(0, 1.1 * max(found.column("RMSE mode") + [error for _, error in authors]))


def learning(axes: Any, found: Results) -> None:
    sizes, times = found.column("pairs m"), found.column("total s")
    _straight(axes, sizes, times)
    axes.set(title="Learning", xlabel="training pairs m", ylabel="seconds")


def iteration_by_pairs(axes: Any, found: Results) -> None:
    axes.plot(found.column("pairs m"), found.column("iteration s"), "o-", color=OURS, label="measured")
    axes.set(title="One iteration against m", xlabel="training pairs m", ylabel="seconds", xscale="log")
    axes.set_ylim(0, 1.5 * max(found.column("iteration s")))


def iteration_by_edges(axes: Any, found: Results) -> None:
    sizes, times = found.column("edges"), found.column("iteration s")
    _straight(axes, sizes, times)
    axes.set(title="One iteration against edges", xlabel="edges of the grid", ylabel="seconds")


def _straight(axes: Any, sizes: list[float], times: list[float]) -> None:
    """Log-log, with a line of slope 1 through the last point to compare with."""
    from matplotlib.ticker import NullFormatter

    sizes_, times_ = np.asarray(sizes, float), np.asarray(times, float)
    axes.loglog(sizes_, times_, "o-", color=OURS, label=f"measured, exponent {exponent(sizes_, times_):.2f}")
    axes.loglog(sizes_, times_[-1] * sizes_ / sizes_[-1], ":", color=PLAIN, label="linear")
    # Powers of ten are enough: labels in between run into each other.
    axes.xaxis.set_minor_formatter(NullFormatter())
