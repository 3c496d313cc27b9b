"""Pictures of depth: maps beside each other, how depths are distributed, and errors and runtimes of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["depth_bars", "depth_distribution", "depth_maps"]

OURS, LOCAL, RIVAL, OTHER = "#d55e00", "#56b4e9", "#999999", "#009e73"
"""Colours that stay apart for colour-blind readers."""


def depth_maps(shown: Sequence[Mapping[str, NDArray[Any]]], predictor: str) -> Figure:
    """A row for each test image: the image, its depth, what a predictor says of each patch, and the beliefs.

    Parameters
    ----------
    shown : for each image "image" (height, width, 3) and log10 depths "truth", "local" and "found" (rows, columns)
    predictor : what gave the local depths

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib
    from matplotlib.figure import Figure

    height = max(np.shape(one["truth"])[0] / np.shape(one["truth"])[1] for one in shown)
    tall = min(max(2.9 * height, 2.3), 4.0)
    figure = Figure(figsize=(12.5, tall * len(shown) + 0.4), layout="constrained")
    panels: Any = figure.subplots(len(shown), 4, squeeze=False)
    colours = matplotlib.colormaps["viridis_r"].with_extremes(bad="white")
    for row, one in enumerate(shown):
        truth = np.asarray(one["truth"], dtype=np.float64)
        low, high = np.nanquantile(truth, (0.01, 0.99))
        rows, columns = truth.shape
        panels[row, 0].imshow(one["image"], extent=(0, columns, rows, 0))
        panels[row, 0].set_title("image", fontsize=12)
        for axes, name, label in zip(
            panels[row, 1:],
            ("truth", "local", "found"),
            ("true depth", f"{predictor} alone", f"kernel BP on {predictor}"),
            strict=True,
        ):
            depth = np.asarray(one[name], dtype=np.float64)
            drawn = axes.imshow(depth, cmap=colours, vmin=low, vmax=high, extent=(0, columns, rows, 0))
            error = "" if name == "truth" else f": MAE {np.nanmean(np.abs(depth - truth)):.3f}"
            axes.set_title(label + error, fontsize=12)
        for axes in panels[row]:
            axes.set_xticks([])
            axes.set_yticks([])
        bar = figure.colorbar(drawn, ax=panels[row].tolist(), shrink=0.85, pad=0.01, extend="both")
        bar.set_label("log10 depth (dark: far)", fontsize=11)
    return figure


def depth_distribution(arrays: Mapping[str, NDArray[Any]]) -> Figure:
    """All training depths, and the belief of one patch over the training depths of its band of rows.

    Parameters
    ----------
    arrays : "edges" (bins + 1,) with "counts" and "band counts" (bins,); "points" with the belief's "density" (points,);
        "patch", its row and column; "patch truth" and "patch image" of the whole image

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    truth, image = arrays["patch truth"], arrays["patch image"]
    row, column = (int(k) for k in arrays["patch"])
    edges = arrays["edges"]
    figure = Figure(figsize=(12.5, 4.0), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 0.9, 1.2))
    widths = np.diff(edges)
    for axes, name, label in (
        (left, "counts", "training depths"),
        (right, "band counts", "training depths, this band"),
    ):
        counts = np.asarray(arrays[name], dtype=np.float64)
        axes.bar(
            edges[:-1],
            counts / (counts.sum() * widths),
            widths,
            align="edge",
            color=LOCAL,
            alpha=0.6,
            label=label,
        )
        axes.set_xlabel("log10 depth", fontsize=11)
        axes.set_ylabel("density", fontsize=11)
    left.set_title("depth of all training patches", fontsize=12)
    rows, columns = np.shape(truth)
    middle.imshow(image, extent=(0, columns, rows, 0))
    middle.plot(
        column + 0.5,
        row + 0.5,
        "o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=OURS,
        markeredgewidth=2.5,
    )
    middle.set_title("a patch of the first test image", fontsize=12)
    middle.set_xticks([])
    middle.set_yticks([])
    right.plot(arrays["points"], arrays["density"], color=OURS, linewidth=2.2, label="belief of the patch")
    right.axvline(
        float(truth[row, column]), color="black", linestyle="--", linewidth=1.5, label="its true depth"
    )
    right.set_title("what kernel BP believes there", fontsize=12)
    right.legend(fontsize=10)
    return figure


def depth_bars(table: Sequence[Mapping[str, Any]]) -> Figure:
    """Errors of all methods, and seconds of inference of those that pass messages.

    Methods that were run on some of the images only stand last, faded: their errors do not compare with the others'.

    Parameters
    ----------
    table : rows with "method", "evidence", "images", "MAE log10" and "seconds an image"

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    most = max(int(row["images"]) for row in table)

    def label(row: Mapping[str, Any]) -> str:
        said = str(row["method"])
        if said.startswith("kernel BP") and row["evidence"] != "linear kernel":
            said = said.replace("kernel BP", f"kernel BP on {row['evidence']}")
        return said if is_whole(row) else f"{said} ({row['images']} of {most} images)"

    def is_whole(row: Mapping[str, Any]) -> bool:
        return int(row["images"]) == most

    def colour(row: Mapping[str, Any]) -> str:
        method = str(row["method"])
        if method == "kernel BP":
            return OURS
        if " BP" not in method:
            return LOCAL
        return OTHER if method.startswith("kernel") else RIVAL

    figure = Figure(figsize=(14.0, 0.32 * len(table) + 1.2), layout="constrained")
    errors, seconds = figure.subplots(1, 2)
    # A method that has left an image without an answer has no mean error to be drawn.
    answered = [row for row in table if row["MAE log10"] is not None]
    timed = [row for row in table if row["seconds an image"]]
    for axes, rows, name, title in (
        (
            errors,
            sorted(answered, key=lambda r: (is_whole(r), -r["MAE log10"])),
            "MAE log10",
            "MAE, log10 depth",
        ),
        (
            seconds,
            sorted(timed, key=lambda r: -r["seconds an image"]),
            "seconds an image",
            "seconds an image",
        ),
    ):
        values = [float(row[name]) for row in rows]
        bars = axes.barh([label(row) for row in rows], values, color=[colour(row) for row in rows])
        for row, bar in zip(rows, bars, strict=True):
            bar.set_alpha(1.0 if is_whole(row) else 0.5)
        axes.bar_label(bars, [f"{value:.3g}" for value in values], padding=3, fontsize=10)
        axes.set_title(title, fontsize=12)
        axes.tick_params(labelsize=10)
        axes.margins(x=0.25, y=0.01)
    errors.set_xlabel("mean absolute error of log10 depth", fontsize=11)
    seconds.set_xlabel("seconds (logarithmic)", fontsize=11)
    seconds.set_xscale("log")
    kinds = {
        "kernel BP": OURS,
        "kernel BP with parts left out": OTHER,
        "no messages: predictors alone": LOCAL,
        "rivals": RIVAL,
    }
    handles = [Patch(color=drawn, label=kind) for kind, drawn in kinds.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=11, frameon=False)
    return figure
