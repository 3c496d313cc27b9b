"""One picture of a denoised image: what went in, what came out, how sure it is, and whole beliefs."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError
from kernelbp.inference.beliefs import Beliefs, VariableBeliefs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["denoising", "root_mean_square_error"]

Image = NDArray[np.float64]
Pixel = tuple[int, int]

WHITE = 255.0
"""Gray levels are shown on a common scale, 0 black to this white."""
PIXEL_COLORS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by colour-blind readers too (Okabe and Ito); one per marked pixel, so at most this many."""
LETTERS = "ABCDEF"
DENSITY_POINTS = 600
"""Points at which the belief of a marked pixel is drawn."""
MARGIN = 40.0
"""How many gray levels the axis of a density goes past black and white, and past the marked readings."""
TICK_UP = 2
"""matplotlib's number for a marker that is a tick standing on its point."""


def root_mean_square_error(estimate: ArrayLike, truth: ArrayLike) -> float:
    """The root of the mean squared difference, over all pixels.

    Examples
    --------
    >>> root_mean_square_error([1.0, 5.0], [1.0, 1.0])
    2.8284271247461903
    """
    left, right = np.asarray(estimate, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if left.size != right.size:
        raise InputError(f"estimate: {left.size} values for the {right.size} of truth; expected as many")
    return float(np.sqrt(np.mean((left.ravel() - right.ravel()) ** 2)))


def denoising(
    clean: ArrayLike,
    noisy: ArrayLike,
    beliefs: Beliefs | VariableBeliefs,
    pixels: Mapping[str, Pixel],
    *,
    title: str = "Denoising by kernel belief propagation",
) -> Figure:
    """Draw a denoised image next to the truth, with the full belief of a few pixels.

    Above, four images: clean, noisy, the mean of each pixel's belief and its standard deviation. Below,
    the belief density of each marked pixel, with its true gray level and its noisy reading.

    Parameters
    ----------
    clean, noisy : array of shape (rows, columns)
        Gray levels, 0 black to 255 white.
    beliefs : Beliefs or VariableBeliefs
        One node per pixel, row after row, over numbers.
    pixels : mapping from description to (row, column)
        One to six pixels whose belief is drawn whole.
    title : str
        What was done, for someone who sees only the picture.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig(path)``.

    Raises
    ------
    InputError
        If shapes disagree or a pixel lies outside the image.

    Examples
    --------
    >>> import kernelbp as kb
    >>> clean, noisy = kb.datasets.sunset(colors=4, size=12)
    >>> model = kb.Model(
    ...     {"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
    ...     {"read as": kb.Relation("pixel", "reading")},
    ... ).fit({"read as": (clean.ravel(), noisy.ravel())})
    >>> pixels_alone = kb.Graph.from_edges([], variables=["pixel"] * clean.size)
    >>> beliefs = model.infer(pixels_alone.observe("read as", noisy.ravel()))
    >>> figure = denoising(clean, noisy, beliefs, {"in the sky": (0, 0)})
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['clean (the truth)', 'noisy, RMSE ...']
    """
    truth = _as_image(clean, "clean")
    reading = _as_image(noisy, "noisy")
    if reading.shape != truth.shape:
        raise InputError(f"noisy: expected the shape of clean, {truth.shape}, got {reading.shape}")
    marked = _checked_pixels(pixels, truth.shape)
    belief = _checked_beliefs(beliefs, truth.shape)

    mean = belief.mean().reshape(truth.shape)
    std = belief.std().reshape(truth.shape)
    gray = _gray_axis([float(reading[place]) for place in marked.values()])
    # (marked pixels, gray levels)
    density = belief.density(gray)[[row * truth.shape[1] + column for row, column in marked.values()]]
    return _draw(truth, reading, mean, std, marked, gray, density, title)


def _draw(
    truth: Image,
    reading: Image,
    mean: Image,
    std: Image,
    marked: Mapping[str, Pixel],
    gray: Image,
    density: Image,
    title: str,
) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 8.2), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.0, 0.72))
    above, below = halves
    # On the upper half, not on the figure: only there does the layout keep room for it.
    above.suptitle(title, fontsize=13)

    panels = above.subplots(1, 4)
    shown = (
        (truth, "clean (the truth)"),
        (reading, f"noisy, RMSE {root_mean_square_error(reading, truth):.1f}"),
        (mean, f"belief mean, RMSE {root_mean_square_error(mean, truth):.1f}"),
    )
    for axes, (image, label) in zip(panels[:3], shown, strict=True):
        drawn = axes.imshow(image, cmap="gray", vmin=0.0, vmax=WHITE, interpolation="nearest")
        _finish_image(axes, label, marked)
    _color_bar(above, drawn, panels[:3], "gray level, 0 black to 255 white")
    drawn = panels[3].imshow(std, cmap="viridis", vmin=0.0, interpolation="nearest")
    _finish_image(panels[3], "belief standard deviation", marked)
    _color_bar(above, drawn, panels[3:], "standard deviation, in gray levels")

    curves = below.subplots(1, len(marked), squeeze=False)[0]
    for number, (axes, (name, (row, column))) in enumerate(zip(curves, marked.items(), strict=True)):
        color = PIXEL_COLORS[number]
        axes.fill_between(gray, density[number], color=color, alpha=0.3, linewidth=0)
        axes.plot(gray, density[number], color=color, linewidth=1.6, label="belief density")
        axes.axvline(truth[row, column], color="black", linewidth=1.4, label="true gray level")
        axes.plot(
            [reading[row, column]],
            [0.0],
            color="black",
            linestyle="none",
            marker=TICK_UP,
            markersize=22,
            markeredgewidth=3.0,
            label="noisy reading",
        )
        axes.set_xlim(gray[0], gray[-1])
        axes.set_ylim(bottom=0.0)
        axes.set_title(f"{LETTERS[number]}: {name}", color=color, fontweight="bold", fontsize=11)
        axes.set_xlabel("gray level (0 black, 255 white)", fontsize=10)
        axes.set_xticks([0, 50, 100, 150, 200, 250])
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
    curves[0].set_ylabel("density of the belief")
    handles, labels = curves[0].get_legend_handles_labels()
    handles[0] = _plain_line()
    handles[2] = _short_tick()
    below.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _finish_image(axes: Axes, label: str, marked: Mapping[str, Pixel]) -> None:
    """Title an image and mark the pixels: a ring with a letter, haloed to show on black and on white."""
    from matplotlib.patheffects import withStroke

    axes.set_title(label, fontsize=11)
    axes.set_xticks([])
    axes.set_yticks([])
    for number, (row, column) in enumerate(marked.values()):
        color = PIXEL_COLORS[number]
        axes.plot(
            [column],
            [row],
            marker="o",
            markersize=9,
            markerfacecolor="none",
            markeredgecolor=color,
            markeredgewidth=2.0,
            path_effects=[withStroke(linewidth=4.0, foreground="white")],
            linestyle="none",
        )
        left = column > 0.75 * axes.get_xlim()[1]
        axes.annotate(
            LETTERS[number],
            (column, row),
            xytext=(-9 if left else 9, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=color,
            fontweight="bold",
            fontsize=12,
            path_effects=[withStroke(linewidth=3.0, foreground="white")],
        )


def _color_bar(figure: Any, drawn: Any, panels: Any, label: str) -> None:
    # The same thickness under one panel as under three.
    aspect = 20 * len(panels)
    bar = figure.colorbar(drawn, ax=list(panels), location="bottom", shrink=0.8, aspect=aspect, pad=0.03)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=9)


def _plain_line() -> Any:
    """The legend speaks for every panel's colour, so its own curve is gray."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color="gray", linewidth=1.6)


def _short_tick() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color="black", linestyle="none", marker="|", markersize=11, markeredgewidth=3.0)


def _gray_axis(readings: list[float]) -> Image:
    """Gray levels at which densities are drawn: from black to white, past the readings, and a margin."""
    low, high = min(0.0, *readings), max(WHITE, *readings)
    return np.linspace(low - MARGIN, high + MARGIN, DENSITY_POINTS)


def _as_image(given: ArrayLike, name: str) -> Image:
    array = np.asarray(given)
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            f"{name}: expected a 2-D array of gray levels, got {array.ndim}-D of shape {array.shape}"
        )
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise InputError(f"{name}: expected finite real numbers, got some that are not ({array.dtype})")
    return array.astype(np.float64)


def _checked_pixels(pixels: Mapping[str, Pixel], shape: tuple[int, ...]) -> dict[str, Pixel]:
    if not isinstance(pixels, Mapping):
        raise InputError(
            f"pixels: expected a mapping from description to (row, column), got {type(pixels).__name__}"
        )
    if not 1 <= len(pixels) <= len(PIXEL_COLORS):
        raise InputError(f"pixels: expected 1 to {len(PIXEL_COLORS)} of them, got {len(pixels)}")
    checked: dict[str, Pixel] = {}
    for name, place in pixels.items():
        try:
            row, column = (operator.index(number) for number in place)
        except (TypeError, ValueError) as error:
            raise InputError(f"pixels[{name!r}]: expected (row, column), got {place!r}") from error
        if not (0 <= row < shape[0] and 0 <= column < shape[1]):
            raise InputError(
                f"pixels[{name!r}]: ({row}, {column}) lies outside the image of {shape[0]} x {shape[1]} pixels"
            )
        checked[name] = (row, column)
    return checked


def _checked_beliefs(beliefs: Beliefs | VariableBeliefs, shape: tuple[int, ...]) -> VariableBeliefs:
    if isinstance(beliefs, Beliefs):
        names = beliefs.graph.variables
        if len(names) != 1:
            raise InputError(
                f"beliefs: this graph has several variables; choose one, such as beliefs[{names[0]!r}]"
            )
        beliefs = beliefs[names[0]]
    if not isinstance(beliefs, VariableBeliefs):
        raise InputError(f"beliefs: expected what infer returns, got {type(beliefs).__name__}")
    if beliefs.n_nodes != shape[0] * shape[1]:
        raise InputError(
            f"beliefs: {beliefs.n_nodes} nodes for an image of {shape[0]} x {shape[1]} pixels; expected {shape[0] * shape[1]}"
        )
    return beliefs
