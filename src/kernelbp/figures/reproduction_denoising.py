"""The paper's Figure 1 drawn anew: errors and seconds against colours, and the cleaned images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from kernelbp.figures.denoising import WHITE, root_mean_square_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["curves", "gallery", "photographs"]

Image = NDArray[Any]

COLORS = {
    "kernel BP": "#d55e00",
    "discrete BP": "#0072b2",
    "Gaussian-mixture BP": "#009e73",
    "particle BP": "#cc79a7",
    "Gaussian BP": "#7f7f7f",
}
"""Told apart by colour-blind readers too (Okabe and Ito)."""
MARKERS = {
    "kernel BP": "o",
    "discrete BP": "s",
    "Gaussian-mixture BP": "^",
    "particle BP": "D",
    "Gaussian BP": "v",
}
DASHES = {
    "paper": (0, (4, 2)),
    "best found": "solid",
    "pairs only": (0, (1, 1)),
    "counted tables": (0, (3, 1, 1, 1)),
    "default": "solid",
}
"""Dashed: the paper's settings."""
MOST_COLUMNS = 5
"""Pictures of a photograph beside each other."""


def curves(
    clean: Image,
    noisy: Image,
    counts: Sequence[int],
    lines: Sequence[Mapping[str, Any]],
    *,
    colors: int,
) -> Figure:
    """Draw two images, and errors and seconds of every method against the number of colours.

    Parameters
    ----------
    clean, noisy : array of shape (rows, columns)
        One of the images, and with noise.
    counts : numbers of colours
    lines : sequence of mappings
        Each with ``method``, ``settings`` (a key of `DASHES`) and ``error``, ``seconds``,
        ``iteration``: one number, or None, for each of `counts`.
    colors : of the image shown

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> line = {"method": "kernel BP", "settings": "default", "error": [2.0], "seconds": [1.0], "iteration": [0.1]}
    >>> import numpy as np
    >>> image = np.zeros((4, 4))
    >>> curves(image, image + 1.0, [10], [line], colors=10).axes[0].get_title()
    '(a) sunset, 10 colours'
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure = Figure(figsize=(13.0, 7.4), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(0.62, 1.0, 1.0))
    for place, (image, label) in enumerate(
        (
            (clean, f"(a) sunset, {colors} colours"),
            (noisy, f"(b) noisy, RMSE {root_mean_square_error(noisy, clean):.1f}"),
        )
    ):
        _show(figure.add_subplot(grid[place, 0]), image, label, size=12)
    panels: list[Any] = [
        figure.add_subplot(grid[:, 1]),
        figure.add_subplot(grid[0, 2]),
        figure.add_subplot(grid[1, 2]),
    ]
    titles = (
        ("error", "(c) error", "RMSE, gray levels"),
        ("seconds", "(d) runtime of an inference", "seconds"),
        ("iteration", "(e) runtime of one iteration", "seconds"),
    )
    for axes, (name, title, label) in zip(panels, titles, strict=True):
        for line in lines:
            known = [(c, v) for c, v in zip(counts, line[name], strict=True) if v is not None]
            method, settings = line["method"], line["settings"]
            axes.plot(
                [c for c, _ in known],
                [v for _, v in known],
                color=COLORS.get(method, "black"),
                marker=MARKERS.get(method, "."),
                markersize=6,
                # The paper's settings are hollow as well as dashed.
                markerfacecolor="white" if settings == "paper" else None,
                linestyle=DASHES.get(settings, "dotted"),
                linewidth=2.6 if settings == "default" else 1.5,
                zorder=3 if settings == "default" else 2,
                label=f"{method}, {_spoken(settings)}",
            )
        axes.set_title(title, fontsize=12, loc="left")
        axes.set_ylabel(label, fontsize=11)
        axes.set_xlabel("colours (gray levels) in the image", fontsize=11)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10)
        axes.set_yscale("log")
        if name == "error":
            # From a few gray levels to a few tens: powers of ten would leave one tick.
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_formatter(NullFormatter())
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    return figure


def _spoken(settings: str) -> str:
    return "paper's settings" if settings == "paper" else settings


def gallery(clean: Image, noisy: Image, panels: Sequence[tuple[str, str, Image]]) -> Figure:
    r"""Draw one image as every method leaves it: the paper's settings above, the best found or our default below.

    Parameters
    ----------
    clean, noisy : array of shape (rows, columns)
    panels : sequence of (method, settings, image)

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> image = np.zeros((4, 4))
    >>> figure = gallery(image, image + 3.0, [("kernel BP", "default", image + 1.0)])
    >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
    ['clean', 'noisy, RMSE 3.0', 'kernel BP\ndefault, RMSE 1.0']
    """
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(method for method, _, _ in panels))
    columns = len(names) + 1
    figure = Figure(figsize=(2.25 * columns, 5.3), layout="constrained")
    grid = figure.add_gridspec(2, columns)
    _show(figure.add_subplot(grid[0, 0]), clean, "clean", size=11)
    _show(
        figure.add_subplot(grid[1, 0]),
        noisy,
        f"noisy, RMSE {root_mean_square_error(noisy, clean):.1f}",
        size=11,
    )
    for method, settings, image in panels:
        error = root_mean_square_error(image, clean)
        place = grid[0 if settings == "paper" else 1, 1 + names.index(method)]
        label = f"{method}\n{_spoken(settings)}, RMSE {error:.1f}"
        _show(figure.add_subplot(place), image, label, size=11)
    return figure


def photographs(rows: Sequence[tuple[str, Sequence[tuple[str, Image]]]]) -> Figure:
    """Draw photographs, a line or more each: the label of a picture stands above it.

    Parameters
    ----------
    rows : sequence of (name, pictures), each picture (label, array)

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> len(photographs([("one", [("clean", np.zeros((4, 4))), ("noisy", np.ones((4, 4)))])]).axes)
    2
    """
    from matplotlib.figure import Figure

    lines = [
        (name if not begin else "", pictures[begin : begin + MOST_COLUMNS])
        for name, pictures in rows
        for begin in range(0, len(pictures), MOST_COLUMNS)
    ]
    columns = max(len(pictures) for _, pictures in lines)
    figure = Figure(figsize=(2.5 * columns, 2.95 * len(lines) + 0.1), layout="constrained")
    grid = figure.add_gridspec(len(lines), columns)
    for line, (name, pictures) in enumerate(lines):
        for place, (label, image) in enumerate(pictures):
            axes = figure.add_subplot(grid[line, place])
            _show(axes, image, label, size=11)
            if not place:
                axes.set_ylabel(name, fontsize=12)
    return figure


def _show(axes: Axes, image: Image, label: str, *, size: float) -> None:
    axes.imshow(image, cmap="gray", vmin=0.0, vmax=WHITE, interpolation="nearest")
    axes.set_title(label, fontsize=size)
    axes.set_xticks([])
    axes.set_yticks([])
