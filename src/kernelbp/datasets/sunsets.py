"""The paper's images for denoising (Section 7): a sun of gray rings sets behind a black sea."""

from __future__ import annotations

import math
import operator
import os
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets._paths import as_folder
from kernelbp.datasets._pgm import read_plain_pgm
from kernelbp.errors import InputError

__all__ = ["SUNSET_COLORS", "load_sunset", "sunset"]

#: The numbers of gray levels of the paper's eleven images.
SUNSET_COLORS: tuple[int, ...] = (10, 25, 50, 75, 100, 125, 150, 175, 200, 225, 250)

_WHITE = 255
# The paper's images were drawn at this size; every other size samples the same picture.
_REFERENCE_SIZE = 300
_PAPER_CENTER = (0.5, 0.5)
_PAPER_RADIUS = 0.5

_SMALLEST_SIZE = 10
_FEWEST_COLORS, _MOST_COLORS = 2, _WHITE + 1
_SMALLEST_RADIUS, _LARGEST_RADIUS = 0.01, 10.0
# Sizes whose pixels fall on pixels of the file: every k-th, from the middle one of the first k, so k is odd.
FILE_SIZES = tuple(
    size
    for size in range(_REFERENCE_SIZE, _SMALLEST_SIZE - 1, -1)
    if _REFERENCE_SIZE % size == 0 and _REFERENCE_SIZE // size % 2 == 1
)


def sunset(
    colors: int = 100,
    size: int = 100,
    noise: float = 30.0,
    seed: int | np.random.Generator | None = 0,
    *,
    center: tuple[float, float] | None = None,
    radius: float | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Draw the paper's sunset, and the same with Gaussian noise.

    The upper half is white with a disc of rings, the lower half is black. On the 300 x 300 pixels of the
    paper's files, with :math:`C` colors, the pixel at row :math:`i`, column :math:`j` of the upper half lies
    in the ring

    .. math:: n = \min\left(C - 1, \left\lfloor (C - 1)
              \frac{\sqrt{(i - 150)^2 + (j - 150)^2}}{150} \right\rfloor\right)

    and has the gray level :math:`\lfloor 255 n / (C - 1) \rfloor`: black in the middle, evenly brighter
    outwards, white from the rim on. Another size samples the same picture at the middle of its own pixels:
    pixel :math:`i` of `size` stands at :math:`300 (i + 1/2) / \mathrm{size} - 1/2` of the 300. So 100 takes
    every third pixel from the second, as the paper does.

    Parameters
    ----------
    colors : int
        How many gray levels, black and white among them: 2 to 256. A picture of few pixels, or a sun that is
        small or moved, may show fewer; of the paper's own, those of 100 x 100 with 150 colors or more do.
    size : int
        Rows and columns, at least 10.
    noise : float
        Standard deviation of the noise, at least 0. Noisy values are not clipped to 0 ... 255.
    seed : int, numpy.random.Generator or None
        Where the noise comes from, as for :func:`numpy.random.default_rng`; None differs at every call.
    center : (row, column), optional
        Middle of the sun, each from 0 to 1 as a fraction of the side; the paper's is (0.5, 0.5). The horizon
        stays in the middle: a sun further up shows more of its disc.
    radius : float, optional
        Radius of the sun as a fraction of the side, 0.01 to 10; the paper's is 0.5.

    Returns
    -------
    clean, noisy : ndarray of shape (size, size)
        Gray levels as float64, 0 black and 255 white.

    Raises
    ------
    InputError
        If an argument is not of its kind or outside its range.

    Examples
    --------
    >>> clean, noisy = sunset(colors=10, size=12)
    >>> print(clean.astype(int)[3:7])
    [[255 198 170 141 113  85  85 113 141 170 198 255]
     [226 198 141 113  85  56  56  85 113 141 198 226]
     [226 170 141  85  56  28  28  56  85 141 170 226]
     [  0   0   0   0   0   0   0   0   0   0   0   0]]
    >>> noisy.shape
    (12, 12)

    A small sun high in the sky, with other noise:

    >>> clean, noisy = sunset(25, 100, noise=10.0, seed=1, center=(0.2, 0.7), radius=0.15)
    >>> len(np.unique(clean))
    25
    """
    colors, size = _as_colors(colors), _as_integer("size", size, _SMALLEST_SIZE, None)
    noise = _as_number("noise", noise, 0.0, math.inf)
    generator = _as_generator(seed)
    middle_row, middle_column = _PAPER_CENTER if center is None else _as_center(center)
    radius = (
        _PAPER_RADIUS if radius is None else _as_number("radius", radius, _SMALLEST_RADIUS, _LARGEST_RADIUS)
    )

    # Everything in reference pixels. At the paper's sizes all but the root is exact in float64, the root is
    # correctly rounded, and a pixel exactly on the rim of a ring has a whole distance: so the floor is right.
    position = (np.arange(size) + 0.5) * _REFERENCE_SIZE / size - 0.5  # (size,)
    down = position - middle_row * _REFERENCE_SIZE
    right = position - middle_column * _REFERENCE_SIZE
    distance = np.sqrt(down[:, None] ** 2 + right**2)  # (size, size)
    ring = np.floor(distance * (colors - 1) / (radius * _REFERENCE_SIZE))
    level = np.minimum(ring, colors - 1).astype(np.int64) * _WHITE // (colors - 1)
    clean = level.astype(np.float64)
    clean[size // 2 :] = 0.0

    noisy = clean + noise * generator.standard_normal(clean.shape)
    return clean, noisy


def load_sunset(folder: str | os.PathLike[str], colors: int = 100, size: int = 100) -> NDArray[np.float64]:
    """Read one of the paper's own images from a folder of its files.

    :func:`sunset` draws the same pixels without any file.

    Parameters
    ----------
    folder : path
        Where ``source10.pgm`` to ``source250.pgm`` are: plain PGM, 300 x 300 pixels, gray levels 0 to 255.
    colors : int
        Which of them; see :data:`SUNSET_COLORS`.
    size : int
        300 for all pixels; 100 for every third from the second, as in the paper; 60, 20 or 12 likewise
        (every k-th, from the middle one of the first k).

    Returns
    -------
    ndarray of shape (size, size)
        Gray levels as float64, 0 black and 255 white.

    Raises
    ------
    InputError
        If an argument is outside its range, the folder has no such file, or the file is malformed, truncated
        or larger than such an image can be.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     raster = " ".join(["255"] * 300 * 150 + ["0"] * 300 * 150)
    ...     written = Path(folder, "source2.pgm").write_text("P2 300 300 255 " + raster)
    ...     image = load_sunset(folder, colors=2)
    >>> image.shape, float(image.mean())
    ((100, 100), 127.5)
    """
    colors = _as_colors(colors)
    size = _as_integer("size", size, _SMALLEST_SIZE, _REFERENCE_SIZE)
    if size not in FILE_SIZES:
        raise InputError(
            f"size: expected one of {', '.join(map(str, FILE_SIZES))} for an image from a file, got {size}"
        )
    directory = as_folder(folder, "the paper's images")

    image = read_plain_pgm(
        directory / f"source{colors}.pgm", shape=(_REFERENCE_SIZE, _REFERENCE_SIZE), maximum=_WHITE
    )
    step = _REFERENCE_SIZE // size
    # A copy, so that a small image does not keep the whole one alive.
    return image[step // 2 :: step, step // 2 :: step].copy()


def _as_colors(colors: int) -> int:
    return _as_integer("colors", colors, _FEWEST_COLORS, _MOST_COLORS)


def _as_integer(name: str, value: int, low: int, high: int | None) -> int:
    expected = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InputError(f"{name}: expected {expected}, got {value!r}") from error
    if number < low or (high is not None and number > high):
        raise InputError(f"{name}: expected {expected}, got {number}")
    return number


def _as_number(name: str, value: float, low: float, high: float) -> float:
    expected = (
        f"a finite number of at least {low:g}" if high == math.inf else f"a number from {low:g} to {high:g}"
    )
    if not isinstance(value, Real):
        raise InputError(f"{name}: expected {expected}, got {value!r}")
    number = float(value)
    if not (math.isfinite(number) and low <= number <= high):
        raise InputError(f"{name}: expected {expected}, got {value!r}")
    return number


def _as_center(center: tuple[float, float]) -> tuple[float, float]:
    try:
        row, column = center
    except (TypeError, ValueError) as error:
        raise InputError(f"center: expected two fractions (row, column), got {center!r}") from error
    return _as_number("center (row)", row, 0.0, 1.0), _as_number("center (column)", column, 0.0, 1.0)


def _as_generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    if seed is None or isinstance(seed, np.random.Generator):
        return np.random.default_rng(seed)
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise InputError(
            f"seed: expected an integer of at least 0, a numpy.random.Generator or None, got {seed!r}"
        ) from error
    return np.random.default_rng(_as_integer("seed", number, 0, None))
