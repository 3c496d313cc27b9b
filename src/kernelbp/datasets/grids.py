"""Training pairs from grids of values: every pixel with its neighbours."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError

__all__ = ["grid_pairs"]


def grid_pairs(
    image: ArrayLike, *, axis: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the values at the two ends of every edge of an image's grid.

    Parameters
    ----------
    image : array_like of shape (rows, columns) or (planes, rows, columns)
        One number per pixel. A 3-D array is a volume: its voxels are neighbours along all three axes.
        NaN marks a pixel whose value is unknown: every pair it takes part in is left out.
    axis : int, optional
        Take only the pairs of neighbours along this axis (of an image: 0 for above and below, 1 for left and
        right; a negative number counts from the last axis). All axes when not given.

    Returns
    -------
    first, second : ndarray of shape (pairs,)
        The values at the two ends, as float64. Each undirected edge appears once, with the end of the lower
        index (upper, left) in `first`. Pairs along axis 0 come first, then axis 1, then axis 2, each in the
        row-major order of their first ends. A whole image has
        ``rows * (columns - 1) + (rows - 1) * columns`` of them.

    Raises
    ------
    InputError
        If `image` is not a 2-D or 3-D array of real numbers, holds an infinite value, or has no two
        neighbours whose values are known; if `axis` is not one of its axes.

    Examples
    --------
    >>> first, second = grid_pairs([[1, 2], [3, 4]])
    >>> print(first, second)
    [1. 2. 1. 3.] [3. 4. 2. 4.]

    Only left and right, with a pixel missing:

    >>> first, second = grid_pairs([[1, 2, 3], [4, float("nan"), 6]], axis=1)
    >>> print(first, second)
    [1. 2.] [2. 3.]
    """
    values = _as_grid(image)
    if axis is None:
        axes: tuple[int, ...] = tuple(range(values.ndim))
    else:
        axes = (_as_axis(axis, values.ndim),)

    firsts, seconds = [], []
    for along in axes:
        # All but the last slice against all but the first: each pair of neighbours once.
        length = values.shape[along]
        firsts.append(values.take(range(length - 1), axis=along).ravel())
        seconds.append(values.take(range(1, length), axis=along).ravel())
    first, second = np.concatenate(firsts), np.concatenate(seconds)

    known = ~(np.isnan(first) | np.isnan(second))
    if not known.any():
        where = "" if axis is None else f" along axis {axes[0]}"
        raise InputError(
            f"image: no two neighbours{where} have known values in the array of shape {values.shape} "
            f"({int(np.isnan(values).sum())} of {values.size} pixels are NaN); expected at least one pair"
        )
    return first[known], second[known]


def _as_grid(image: ArrayLike) -> NDArray[np.float64]:
    """Check an image and give it as a float64 array of 2 or 3 dimensions."""
    try:
        given = np.asarray(image)
    except ValueError as error:
        raise InputError(
            f"image: expected a 2-D or 3-D array of numbers, got rows that differ in shape ({error})"
        ) from error
    if given.dtype.kind not in "biuf":
        raise InputError(f"image: expected a 2-D or 3-D array of real numbers, got dtype {given.dtype}")
    if given.ndim not in (2, 3):
        raise InputError(f"image: expected a 2-D or 3-D array, got {given.ndim}-D of shape {given.shape}")
    values = given.astype(np.float64)
    infinite = int(np.isinf(values).sum())
    if infinite:
        raise InputError(
            f"image: {infinite} of {values.size} values are infinite; "
            "expected finite numbers, or NaN where unknown"
        )
    return values


def _as_axis(axis: int, dimensions: int) -> int:
    """Check an axis number and count it from the first axis."""
    expected = (
        f"an integer from {-dimensions} to {dimensions - 1} for a {dimensions}-D image, or None for all"
    )
    try:
        number = operator.index(axis)
    except TypeError as error:
        raise InputError(f"axis: expected {expected}, got {axis!r}") from error
    if not -dimensions <= number < dimensions:
        raise InputError(f"axis: expected {expected}, got {number}")
    return number % dimensions
