"""Pictures of directions along protein backbones: where they lie, beliefs of some, and scores by fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["protein_bars", "protein_folds", "protein_map"]

Array = NDArray[Any]

COLORS = ("#999999", "#cc79a7", "#56b4e9", "#0072b2", "#e69f00", "#d55e00")
"""Told apart by colour-blind readers too (Okabe and Ito)."""
EXTENT = (-180.0, 180.0, 0.0, 180.0)
LEAST_SHOWN = 1e-3
"""Share of a map's largest value that still has a colour."""
OF_METHODS = {
    "predictor alone": "#999999",
    "evidence alone": "#cccccc",
    "kernel BP, the paper's embeddings": "#56b4e9",
    "kernel BP, plain edges": "#0072b2",
    "kernel BP": "#d55e00",
    "particle BP, paper's settings": "#cc79a7",
    "particle BP, best found": "#7b3f61",
}


def protein_map(angles: Array, densities: Array, truths: Array, means: Array, names: Sequence[str]) -> Figure:
    """Draw the distribution of angle and torsion, and beliefs of some residues beside it.

    Parameters
    ----------
    angles : (n, 2) theta and omega in radians
    densities : (residues, theta, omega) beliefs on a grid
    truths, means : (residues, 2) theta and omega of the true direction and of the belief's mean
    names : of the residues

    Examples
    --------
    >>> angles = np.random.default_rng(0).uniform(0.5, 2.0, (500, 2))
    >>> figure = protein_map(angles, np.ones((2, 6, 12)), angles[:2], angles[2:4], ["residue 1", "residue 2"])
    >>> figure.axes[2].get_title()
    'residue 1'
    """
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 5.2), layout="constrained")
    halves: Any = figure.subfigures(1, 2, width_ratios=(1.0, 1.35))
    left, right = halves
    axis = left.subplots()
    theta, omega = np.degrees(angles[:, 0]), np.degrees(angles[:, 1])
    counts, _, _ = np.histogram2d(
        theta, omega, bins=(60, 120), range=((EXTENT[2], EXTENT[3]), (EXTENT[0], EXTENT[1]))
    )
    shares = np.where(counts > 0, counts, np.nan) / len(angles)
    drawn = axis.imshow(shares, origin="lower", extent=EXTENT, aspect="auto", cmap="viridis", norm=LogNorm())
    left.colorbar(drawn, ax=axis, label="share of residues in a 3 x 3 degree cell", location="bottom")
    axis.set_title("all residues")
    axis.set_ylabel("theta (degrees)")
    axis.set_xlabel("omega (degrees)")
    panels: Any = right.subplots(-(-len(names) // 2), 2, sharex=True, sharey=True, squeeze=False)
    for panel in panels.flat[len(names) :]:
        panel.set_axis_off()
    for panel, density, truth, mean, name in zip(
        panels.flat, densities, np.degrees(truths), np.degrees(means), names, strict=False
    ):
        top = float(density.max())
        panel.imshow(
            np.maximum(density, LEAST_SHOWN * top),
            origin="lower",
            extent=EXTENT,
            aspect="auto",
            cmap="Greys",
            norm=LogNorm(LEAST_SHOWN * top, top),
            interpolation="nearest",
        )
        panel.plot(
            truth[1], truth[0], "x", color=COLORS[5], markersize=11, markeredgewidth=2.5, label="truth"
        )
        panel.plot(
            mean[1],
            mean[0],
            "o",
            color=COLORS[3],
            markersize=10,
            markerfacecolor="none",
            markeredgewidth=2.2,
            label="mean of the belief",
        )
        panel.set_title(name)
    for panel in panels[:, 0]:
        panel.set_ylabel("theta")
    for panel in panels[-1]:
        panel.set_xlabel("omega")
    axis.set_xticks(range(-180, 181, 60))
    panels[0, 0].set_xticks(range(-180, 181, 90))
    panels[0, 0].set_yticks(range(0, 181, 60))
    right.suptitle("beliefs of single residues (density, log scale)")
    panels[0, 0].legend(loc="lower right", fontsize=9)
    return figure


def _colors(methods: Sequence[str]) -> dict[str, str]:
    """Of each method the same in every picture; those that are in none of ours take what is left."""
    others = iter(cycle(COLORS))
    return {method: OF_METHODS.get(method) or next(others) for method in dict.fromkeys(methods)}


def protein_folds(
    scores: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], exact: Sequence[float] = ()
) -> Figure:
    """Draw scores by fold, a panel for each kind of evidence.

    Parameters
    ----------
    scores : by evidence and method, (fold, mean cosine) of those run
    exact : scores of the best possible answer, if known

    Examples
    --------
    >>> figure = protein_folds({"one residue": {"ridge": [(1, 0.4), (2, 0.42)], "kernel BP": [(1, 0.5)]}})
    >>> len(figure.axes[0].patches)
    3
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 0.6 + 2.7 * -(-len(scores) // 2)), layout="constrained")
    panels: Any = figure.subplots(-(-len(scores) // 2), min(len(scores), 2), squeeze=False, sharey=True)
    colors = _colors([method for mine in scores.values() for method in mine])
    handles: dict[str, Any] = {}
    for panel, (evidence, mine) in zip(panels.flat, scores.items(), strict=False):
        width = 0.84 / len(mine)
        for place, (method, values) in enumerate(mine.items()):
            folds, heights = np.transpose(values)
            shift = (place - (len(mine) - 1) / 2) * width
            handles[method] = panel.bar(folds + shift, heights, width, color=colors[method], label=method)
            panel.axhline(float(np.mean(heights)), color=colors[method], linewidth=1.0, zorder=0)
            panel.text(
                0.02 + 0.12 * place,
                1.0,
                f"{np.mean(heights):.3f}",
                color=colors[method],
                transform=panel.transAxes,
                va="top",
                fontsize=11,
                fontweight="bold",
            )
        if len(exact):
            handles["exact answer"] = panel.axhline(
                float(np.mean(exact)), color="black", linestyle="--", label="exact answer"
            )
        panel.set_title(evidence)
        panel.set_xticks(range(1, 1 + int(max(fold for values in mine.values() for fold, _ in values))))
        panel.set_ylabel("mean cosine")
        panel.set_xlabel("fold")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels.flat[len(scores) :]:
        panel.set_axis_off()
    highest = max(height for mine in scores.values() for values in mine.values() for _, height in values)
    panels.flat[0].set_ylim(0.0, 1.2 * max(highest, *exact, 0.0))
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(len(handles), 4),
        frameon=False,
    )
    return figure


def protein_bars(groups: Sequence[str], methods: Sequence[str], scores: Sequence[float]) -> Figure:
    """Draw one bar for each group and method, with its number.

    Parameters
    ----------
    groups, methods, scores : of each bar

    Examples
    --------
    >>> figure = protein_bars(["one", "one"], ["kernel BP", "particle BP"], [0.5, 0.3])
    >>> sorted(float(bar.get_width()) for bar in figure.axes[0].patches)
    [0.3, 0.5]
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(groups))
    figure = Figure(figsize=(13.0, 4.6), layout="constrained")
    panels: Any = figure.subplots(1, len(names), squeeze=False)
    colors = _colors(methods)
    for panel, name in zip(panels.flat, names, strict=True):
        mine = [(m, s) for g, m, s in zip(groups, methods, scores, strict=True) if g == name]
        for place, (method, score) in enumerate(reversed(mine)):
            panel.barh(place, score, color=colors[method], height=0.8)
            panel.text(max(score, 0) + 0.01, place, f"{score:.3f}", va="center", fontsize=10)
        panel.set_yticks(range(len(mine)), [method for method, _ in reversed(mine)])
        panel.tick_params(axis="y", labelleft=True, labelsize=9)
        panel.set_xlim(0, 1.18 * max(scores))
        panel.set_title(name)
        panel.set_xlabel("mean cosine")
        panel.spines[["top", "right"]].set_visible(False)
    return figure
