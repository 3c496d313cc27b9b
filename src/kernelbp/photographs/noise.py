"""Noise of photographs: how likely a reading is, and how much noise a picture has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kernelbp.errors import InputError

__all__ = ["BLACK", "WHITE", "estimate_sigma", "likelihood"]

Array = NDArray[Any]
Image = NDArray[np.float64]

BLACK, WHITE = 0.0, 255.0
"""The darkest and brightest pixel, in pictures of any depth."""
DETAIL = np.array([-0.12940952255092145, -0.22414386804185735, 0.836516303737469, -0.48296291314469025])
"""Daubechies' second wavelet: blind to slopes, of unit norm, so noise passes it with its strength unchanged."""
MEDIAN_OF_NORMAL = 0.6744897501960817
"""Median of the absolute value of a standard normal number."""
FEWEST_DETAILS = 16
ENOUGH_UNCLIPPED = 0.1
"""Share of details without a black or white pixel from which clipped ones are left out."""


def likelihood(sigma: float, *, clipped: bool) -> Callable[[Array, Array], Array]:
    """How likely a reading is given the pixel, up to a factor: Gaussian noise, cut off at black and white.

    Parameters
    ----------
    sigma : standard deviation of the noise
    clipped : whether a reading of exactly black or white means "that or beyond", as in a file

    Returns
    -------
    callable
        ``f(pixels, readings)`` of arrays that broadcast.

    Examples
    --------
    >>> read_as = likelihood(10.0, clipped=True)
    >>> [round(float(read_as(np.array(x), np.array(200.0))), 3) for x in (180.0, 200.0)]
    [0.135, 1.0]
    >>> bool(read_as(np.array(250.0), np.array(255.0)) < read_as(np.array(255.0), np.array(255.0)))
    True
    """
    from scipy.special import ndtr

    def read_as(pixels: Array, readings: Array) -> Array:
        apart = (readings - pixels) / sigma
        inside = np.exp(-0.5 * apart**2)
        if not clipped or not ((readings == BLACK) | (readings == WHITE)).any():
            return inside
        beyond = np.where(readings == BLACK, ndtr(apart), ndtr(-apart))
        return np.where((readings == BLACK) | (readings == WHITE), beyond, inside)

    return read_as


def estimate_sigma(image: Image, *, clipped: bool = True) -> float:
    """Standard deviation of the noise of a picture, from its finest diagonal details.

    Noise is in all details, edges in few: the median of their sizes belongs to the noise (Donoho and Johnstone,
    1994). Fine texture is taken for noise: on sharp photographs without any, one to five is found.

    Parameters
    ----------
    image : (rows, columns) or (rows, columns, channels), black 0 to white 255, NaN where missing
        Of channels, the mean of their variances is taken.
    clipped : whether pixels of exactly 0 or 255 were cut off there, and so say nothing of the noise

    Raises
    ------
    InputError
        If there are too few pixels to tell.

    Examples
    --------
    >>> rows, columns = np.mgrid[:100, :100]
    >>> noise = np.random.default_rng(0).normal(scale=20.0, size=(100, 100))
    >>> 19.0 < estimate_sigma(rows + columns + noise) < 21.0
    True
    """
    channels = image[..., None] if image.ndim == 2 else image
    found = [_sigma_of_channel(channels[..., k], clipped) for k in range(channels.shape[-1])]
    return float(np.sqrt(np.mean(np.square(found))))


def _sigma_of_channel(image: Image, clipped: bool) -> float:
    if min(image.shape) >= len(DETAIL):
        along = sliding_window_view(image, len(DETAIL), axis=0)[::2] @ DETAIL
        details = np.abs(sliding_window_view(along, len(DETAIL), axis=1)[:, ::2] @ DETAIL)
        extreme = clipped & ((image == BLACK) | (image == WHITE))
        touched = sliding_window_view(extreme, (len(DETAIL), len(DETAIL)))[::2, ::2].any(axis=(2, 3))
        known = np.isfinite(details)
        # Where light is cut off there is less noise to see; an all but black picture has nothing else.
        if (known & ~touched).sum() >= max(ENOUGH_UNCLIPPED * known.sum(), FEWEST_DETAILS):
            known &= ~touched
        if known.sum() >= FEWEST_DETAILS:
            return float(np.median(details[known]) / MEDIAN_OF_NORMAL)
    raise InputError(
        f"sigma: a picture of {image.shape[1]} x {image.shape[0]} pixels, {int(np.isfinite(image).sum())} of them known, "
        "is too small to estimate its noise from; give sigma"
    )
