"""What an image shows at each of its patches: colour and texture, there and around, at several scales.

The paper describes a patch by 273 numbers, "local features (such as color and texture) and relative features (features
from adjacent patches)". These are ours, of the same kind and number:

- 13 measures: brightness and two colour differences, the energies of 4 of Laws' masks (texture) and of 6 oriented edges,
- each at 4 scales (filters and windows of 1, 3, 9 and 27 patches), for the window and its 4 neighbours: 260 numbers,
- 13 more: the place in the image, and the mean colour and edge energy of all that is above and below in the column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from kernelbp.errors import InputError
from kernelbp.extras import extra_library

__all__ = ["DEPTH_FEATURES", "depth_features"]

Single = NDArray[np.float32]
Matrix = NDArray[np.float64]

SCALES = (1, 3, 9, 27)
"""Widths of the windows, in patches. Threefold steps: a window and its neighbours tile the next larger one."""
PIXELS = 10
"""Rows and columns of pixels of a patch: an image is brought to this size first."""
COLOURS = np.array([[0.299, 0.587, 0.114], [-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]])
"""Brightness, blue less brightness, red less brightness (JPEG's YCbCr)."""
LEVEL, EDGE, SPOT = (
    np.array([1, 4, 6, 4, 1]) / 16,
    np.array([-1, -2, 0, 2, 1]) / 6,
    np.array([-1, 0, 2, 0, -1]) / 4,
)
LAWS = ((EDGE, EDGE), (SPOT, SPOT), (LEVEL, SPOT), (SPOT, LEVEL))
"""Laws' masks, each the outer product of two rows. Those with an edge and a level are the oriented edges below."""
ORIENTATIONS = 6
"""Edges at 0, 30, ... 150 degrees."""
LEAST_ENERGY = 1e-3
"""Of a filter's response to brightness from 0 to 1: below it there is only noise, and logarithms would show it."""
MEASURES = 3 + len(LAWS) + ORIENTATIONS
PLACES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""The window itself, and those above, below, left and right of it."""
EXTRAS = 13
DEPTH_FEATURES = MEASURES * len(SCALES) * len(PLACES) + EXTRAS
"""Numbers that describe a patch: 273, as in the paper."""


def depth_features(image: ArrayLike, shape: tuple[int, int]) -> Single:
    """Describe every patch of an image by 273 numbers: see the module's text.

    Parameters
    ----------
    image : (height, width, 3) red, green and blue from 0 to 1
    shape : (rows, columns) of the grid of patches

    Returns
    -------
    (rows, columns, 273), float32; of order 1, but not scaled to unit variance

    Raises
    ------
    InputError
        If the image is not of that form, or the grid has no patch.

    Examples
    --------
    >>> image = np.zeros((60, 80, 3))
    >>> image[30:] = (0.2, 0.6, 0.1)
    >>> depth_features(image, (6, 8)).shape
    (6, 8, 273)
    """
    colours = np.asarray(image, dtype=np.float32)
    if colours.ndim != 3 or colours.shape[2] != 3 or not colours.size or not np.isfinite(colours).all():
        raise InputError(f"image: expected finite (height, width, 3) numbers, got shape {colours.shape}")
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"shape: expected (rows, columns) of at least 1, got {shape!r}")
    rows, columns = (int(size) for size in shape)
    finest = _resized(colours, (rows * PIXELS, columns * PIXELS))
    described: list[Single] = []
    for scale in SCALES:
        measures = _measures(finest if scale == 1 else _coarser(finest, scale), (rows, columns), scale)
        if scale == SCALES[0]:
            local = measures
        described.extend(_beside(measures, step, scale) for step in PLACES)
    return np.concatenate(
        [*described, _place(rows, columns), _along_columns(local)], axis=2, dtype=np.float32
    )


def _resized(image: Single, shape: tuple[int, int]) -> Single:
    """An image of another size, smoothed first where it gets smaller."""
    if image.shape[:2] == shape:
        return image
    transform = extra_library("skimage.transform", "images", "depth_features")
    smaller = image.shape[0] > shape[0] or image.shape[1] > shape[1]
    found: Single = transform.resize(image, shape, order=1, anti_aliasing=smaller).astype(np.float32)
    return found


def _coarser(image: Single, scale: int) -> Single:
    """Every pixel the mean of `scale` x `scale` of them."""
    height, width = (max(-(-size // scale), 1) for size in image.shape[:2])
    padded = np.pad(
        image,
        ((0, height * scale - image.shape[0]), (0, width * scale - image.shape[1]), (0, 0)),
        mode="edge",
    )
    return padded.reshape(height, scale, width, scale, 3).mean(axis=(1, 3))


def _measures(image: Single, shape: tuple[int, int], scale: int) -> Single:
    """Mean colour and log energies of the filters in windows around patches, (rows, columns, 13)."""
    channels = image @ COLOURS.T.astype(np.float32)
    gray = channels[..., 0]
    responses = [_filtered(gray, first, second) for first, second in LAWS]
    across, down = _filtered(gray, LEVEL, EDGE), _filtered(gray, EDGE, LEVEL)
    angles = np.arange(ORIENTATIONS) * np.pi / ORIENTATIONS
    responses += [np.cos(angle) * across + np.sin(angle) * down for angle in angles]
    energies = np.abs(np.stack(responses, axis=-1))
    # A window has as many pixels at every scale; patches need not: windows are read at the patches' centres.
    smooth = ndimage.uniform_filter1d
    everything = np.concatenate([channels, energies], axis=-1)
    everything = smooth(smooth(everything, PIXELS, axis=0, mode="nearest"), PIXELS, axis=1, mode="nearest")
    at = [
        np.clip(((np.arange(size) + 0.5) * PIXELS / scale).astype(np.intp), 0, limit - 1)
        for size, limit in zip(shape, image.shape[:2], strict=True)
    ]
    found = everything[np.ix_(*at)]
    found[..., 3:] = np.log10(found[..., 3:] + LEAST_ENERGY)
    return np.asarray(found, dtype=np.float32)


def _filtered(gray: Single, down: Matrix, across: Matrix) -> Single:
    once = ndimage.correlate1d(gray, down, axis=0, mode="nearest")
    return np.asarray(ndimage.correlate1d(once, across, axis=1, mode="nearest"), dtype=np.float32)


def _beside(measures: Single, step: tuple[int, int], scale: int) -> Single:
    """What the window `step` windows away shows; at the border the last one there is."""
    at = [
        np.clip(np.arange(size) + move * scale, 0, size - 1)
        for size, move in zip(measures.shape, step, strict=False)
    ]
    return measures[np.ix_(*at)]


def _place(rows: int, columns: int) -> Single:
    """Row and column from -1 to 1, and the distance from the middle column, (rows, columns, 3)."""
    row = np.linspace(-1, 1, rows) if rows > 1 else np.zeros(1)
    column = np.linspace(-1, 1, columns) if columns > 1 else np.zeros(1)
    grid = np.broadcast_arrays(row[:, None], column[None, :], np.abs(column)[None, :])
    return np.stack(grid, axis=-1).astype(np.float32)


def _along_columns(measures: Single) -> Single:
    """Mean colour and energy of edges down and across, of all above and all below a patch, (rows, columns, 10)."""
    chosen = measures[..., [0, 1, 2, 3 + len(LAWS), 3 + len(LAWS) + ORIENTATIONS // 2]]
    counts = np.arange(1, len(chosen) + 1, dtype=np.float32)[:, None, None]
    above = np.cumsum(chosen, axis=0) / counts
    below = (np.cumsum(chosen[::-1], axis=0) / counts)[::-1]
    return np.concatenate([above, below], axis=2)
