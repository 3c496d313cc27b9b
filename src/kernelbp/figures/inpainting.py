"""One picture of a restored image: what was lost, what came back, and how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError
from kernelbp.figures.denoising import WHITE, _as_image, _checked_beliefs, _color_bar, root_mean_square_error
from kernelbp.inference.beliefs import Beliefs, VariableBeliefs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["inpainting"]

Image = NDArray[np.float64]
Detail = tuple[slice, slice]

HOLE_COLOR = "#d55e00"
"""A colour, where all else is gray."""
FRAME_COLOR = "#56b4e9"
CLIPPED = 0.998
"""Standard deviations above this quantile share the brightest colour."""


def inpainting(
    clean: ArrayLike,
    damaged: ArrayLike,
    beliefs: Beliefs | VariableBeliefs,
    *,
    detail: Detail,
    title: str = "Inpainting by kernel belief propagation",
) -> Figure:
    """Draw an image restored from noisy readings with holes, whole and in detail.

    Four images: the truth, the readings with holes in colour, the mean of each pixel's belief and its
    standard deviation. Below each, an enlarged detail of it.

    Parameters
    ----------
    clean : array of shape (rows, columns)
        Gray levels, 0 black to 255 white.
    damaged : array of the same shape
        Readings, NaN where there is none.
    beliefs : Beliefs or VariableBeliefs
        One node per pixel, row after row, over numbers.
    detail : (slice of rows, slice of columns)
        What is enlarged.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If shapes differ, or the detail holds no pixel.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> clean, noisy = kb.datasets.sunset(colors=4, size=10)
    >>> model = kb.Model(
    ...     {"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
    ...     {"read as": kb.Relation("pixel", "reading")},
    ... ).fit({"read as": (clean.ravel(), noisy.ravel())})
    >>> noisy[3:5] = np.nan
    >>> pixels_alone = kb.Graph.from_edges([], variables=["pixel"] * clean.size)
    >>> beliefs = model.infer(pixels_alone.observe("read as", noisy.ravel()))
    >>> figure = inpainting(clean, noisy, beliefs, detail=(slice(2, 7), slice(0, 5)))
    >>> figure.axes[1].get_title()
    'noisy, holes in orange'
    """
    truth = _as_image(clean, "clean")
    reading = np.asarray(damaged, dtype=np.float64)
    if reading.shape != truth.shape:
        raise InputError(f"damaged: expected the shape of clean, {truth.shape}, got {reading.shape}")
    frame = _frame(detail, truth.shape)
    belief = _checked_beliefs(beliefs, truth.shape)
    mean = belief.mean().reshape(truth.shape)
    std = belief.std().reshape(truth.shape)
    return _draw(truth, reading, mean, std, frame, title)


def _draw(
    truth: Image, reading: Image, mean: Image, std: Image, frame: tuple[range, range], title: str
) -> Figure:
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 7.7), layout="constrained")
    figure.suptitle(title, fontsize=13)
    panels: Any = figure.subplots(2, 4)
    gray = matplotlib.colormaps["gray"].with_extremes(bad=HOLE_COLOR)
    shown = (
        (truth, "clean (the truth)"),
        (reading, "noisy, holes in orange"),
        (mean, f"belief mean, RMSE {root_mean_square_error(mean, truth):.1f}"),
        (std, "belief standard deviation"),
    )
    # A few very unsure pixels would leave all others dark.
    unsure = max(float(np.quantile(std, CLIPPED)), np.finfo(np.float64).tiny)
    for column, (image, label) in enumerate(shown):
        style = {"cmap": gray, "vmax": WHITE} if column < 3 else {"cmap": "viridis", "vmax": unsure}
        whole, enlarged = panels[:, column]
        drawn = whole.imshow(image, interpolation="nearest", vmin=0.0, **style)
        enlarged.imshow(image, interpolation="nearest", vmin=0.0, **style)
        whole.set_title(label, fontsize=11)
        _outline(whole, frame)
        _zoom(enlarged, frame)
        if column == 2:
            _color_bar(figure, drawn, panels[1, :3], "gray level, 0 black to 255 white")
    _color_bar(figure, drawn, panels[1, 3:], "standard deviation, gray levels (top clipped)")
    panels[1, 0].set_ylabel("the framed detail", fontsize=11)
    return figure


def _outline(axes: Axes, frame: tuple[range, range]) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = frame
    corner = (columns.start - 0.5, rows.start - 0.5)
    axes.add_patch(
        Rectangle(corner, len(columns), len(rows), fill=False, edgecolor=FRAME_COLOR, linewidth=1.8)
    )
    axes.set_xticks([])
    axes.set_yticks([])


def _zoom(axes: Axes, frame: tuple[range, range]) -> None:
    rows, columns = frame
    axes.set_xlim(columns.start - 0.5, columns.stop - 0.5)
    axes.set_ylim(rows.stop - 0.5, rows.start - 0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_edgecolor(FRAME_COLOR)
        spine.set_linewidth(1.8)


def _frame(detail: Detail, shape: tuple[int, ...]) -> tuple[range, range]:
    if not (isinstance(detail, tuple) and len(detail) == 2 and all(isinstance(s, slice) for s in detail)):
        raise InputError(f"detail: expected (slice of rows, slice of columns), got {detail!r:.80}")
    rows, columns = (range(size)[part] for size, part in zip(shape, detail, strict=True))
    if not (len(rows) and len(columns) and rows.step == columns.step == 1):
        raise InputError(
            f"detail: expected slices of step 1 that hold a pixel of the {shape[0]} x {shape[1]} image, got {detail!r}"
        )
    return rows, columns
