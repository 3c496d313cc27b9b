"""A noisy picture made clean: block by block, channel by channel, with the spread of every pixel's belief."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.model import Model
from kernelbp.photographs.noise import BLACK, WHITE, estimate_sigma
from kernelbp.photographs.relations import (
    COLOUR_STEP,
    NOISE_SHARE,
    Photographs,
    as_picture,
    check_sigma,
    grid,
    is_gray,
    join,
    ready,
    split,
)

__all__ = ["Denoised", "denoise", "steps_needed"]

Image = NDArray[np.float64]

BLOCK = 400
"""Rows and columns denoised at a time, which keeps memory under 1 GB whatever the size of the picture."""
MARGIN = 16
"""Rows and columns around a block that are denoised with it and thrown away, so that blocks fit together."""
MOST_MARGIN = 200
"""Large holes take wider margins, up to this."""
QUICK_ITERATIONS = 6
COARSE = 0.4
"""Noise that is so much weaker in single pixels than means of four of them show has not been in single pixels."""


@dataclass(frozen=True)
class Denoised:
    """A picture made clean.

    Attributes
    ----------
    mean : (rows, columns) or (rows, columns, 3) the expected value of each pixel, black 0 to white 255
    std : of the same shape, how far from it the truth may be: the standard deviation of each belief
    sigma : standard deviation of the noise that was assumed; None if noise was learned
    iterations : most that a block needed
    converged : whether messages settled in every block

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.photographs import denoise
    >>> found = denoise(100.0 + np.random.default_rng(0).normal(scale=20.0, size=(32, 32)), sigma=20.0)
    >>> found.mean.shape, found.std.shape, found.sigma
    ((32, 32), (32, 32), 20.0)
    >>> bool(np.abs(found.mean - 100.0).mean() < 5.0)
    True
    """

    mean: Image
    std: Image
    sigma: float | None
    iterations: int
    converged: bool


def denoise(
    image: ArrayLike,
    photographs: Photographs | None = None,
    *,
    sigma: float | None = None,
    missing: ArrayLike | None = None,
    quick: bool = False,
    n_jobs: int | None = None,
    step: Callable[[], None] | None = None,
) -> Denoised:
    """Take the noise out of a picture, and fill what is missing.

    Parameters
    ----------
    image : (rows, columns) or (rows, columns, 3), black 0 to white 255
        NaN where a pixel is missing. A pixel of exactly 0 or 255 counts as cut off there.
    photographs : what photographs look like; by default `ready`
    sigma : standard deviation of the noise; estimated from the picture if not given
    missing : boolean (rows, columns), True where a pixel is missing, in addition to NaN
    quick : stop after a few iterations, whether or not messages have settled
    n_jobs : threads; results do not depend on it
    step : called after each part done, `steps_needed` times

    Raises
    ------
    InputError
        Before any work, if the picture, the mask or sigma cannot be used.

    Examples
    --------
    >>> rows, columns = np.mgrid[:40, :40]
    >>> clean = 60.0 + 120.0 * (rows + columns > 40)
    >>> noisy = clean + np.random.default_rng(0).normal(scale=20.0, size=clean.shape)
    >>> found = denoise(noisy, sigma=20.0)
    >>> bool(np.abs(found.mean - clean).mean() < 0.5 * np.abs(noisy - clean).mean())
    True
    """
    picture = as_picture(image, "image")
    gaps = np.isnan(picture).any(axis=2) | _as_gaps(missing, picture.shape[:2])
    if gaps.all():
        raise InputError("image: every pixel is missing; expected at least one that is known")
    picture = np.where(gaps[..., None], np.nan, picture)
    source = ready() if photographs is None else photographs
    planes = _planes(picture, source)
    channels = source.channels(len(planes))
    # Of the noise of single pixels, if it is the same and independent in red, green and blue.
    shares = (np.ones(1) if len(planes) == 1 else NOISE_SHARE) / [
        2.0 if halved else 1.0 for _, halved in planes
    ]
    if channels[0].knows_noise:
        if sigma is not None:
            raise InputError("sigma: the noise was learned with the relation, so it must not be given")
        levels = np.ones(len(planes))
    elif sigma is not None:
        check_sigma(sigma)
        levels = sigma * shares
    else:
        # Each by itself: cameras and JPEG files leave less noise in colours than in brightness.
        levels = np.array(
            [estimate_sigma(p, clipped=c.clipped) for (p, _), c in zip(planes, channels, strict=True)]
        )
        sigma = float(np.sqrt(np.mean((levels / shares) ** 2)))
    found = [
        _denoise_channel(plane, channel.at(level), quick, n_jobs, step)
        for (plane, _), channel, level in zip(planes, channels, levels, strict=True)
    ]
    means, stds = [part[0] for part in found], [part[1] for part in found]
    for k, (_, halved) in enumerate(planes):
        if halved:
            means[k], stds[k] = (_doubled(half, picture.shape[:2]) for half in (means[k], stds[k]))
    mean, std = join(means, stds)
    mean = np.clip(mean, BLACK, WHITE)
    if len(planes) == 1:
        mean, std = (np.repeat(values, picture.shape[2], axis=2) for values in (mean, std))
    if np.ndim(image) == 2:
        mean, std = mean[..., 0], std[..., 0]
    return Denoised(mean, std, sigma, max(part[2] for part in found), all(part[3] for part in found))


def steps_needed(image: ArrayLike, photographs: Photographs | None = None) -> int:
    """How many parts a picture is denoised in."""
    planes = _planes(as_picture(image, "image"), ready() if photographs is None else photographs)
    return sum(len(_blocks(np.isnan(plane))) for plane, _ in planes)


Span = tuple[slice, slice]


def _planes(picture: Image, source: Photographs) -> list[tuple[Image, bool]]:
    """The channels that are denoised, each (rows, columns), and whether it is at half the picture's resolution.

    JPEG files keep colours at half the resolution as a rule. Their noise is then not of single pixels, as that in brightness
    is, and is taken out where it is.
    """
    # A gray picture written as a colour one has the same noise in all three channels, not noise of each its own.
    planes = split(picture[..., :1] if is_gray(picture) else picture)
    halves = [_halved(plane) for plane in planes[1:]]
    if halves and not source.gray.knows_noise and all(map(_is_coarse, planes[1:], halves)):
        return [(planes[0], False), *((half, True) for half in halves)]
    return [(plane, False) for plane in planes]


def _is_coarse(plane: Image, half: Image) -> bool:
    """Whether a channel has noise, and hardly any in single pixels."""
    try:
        fine, coarse = (estimate_sigma(values, clipped=False) for values in (plane, half))
    except InputError:  # too small to tell
        return False
    return coarse > COLOUR_STEP / 2 and fine < COARSE * 2 * coarse


def _halved(plane: Image) -> Image:
    """Means of two by two pixels, of those that are known."""
    rows, columns = plane.shape
    even = np.pad(plane, ((0, rows % 2), (0, columns % 2)), mode="edge")
    fours = even.reshape(len(even) // 2, 2, -1, 2).swapaxes(1, 2).reshape(len(even) // 2, -1, 4)
    known = np.isfinite(fours)
    counts = known.sum(axis=2)
    return np.where(counts > 0, np.where(known, fours, 0.0).sum(axis=2) / np.maximum(counts, 1), np.nan)


def _doubled(half: Image, shape: tuple[int, ...]) -> Image:
    """Back at twice the resolution, between pixels on a line."""
    from scipy.ndimage import zoom

    double: Image = zoom(half, 2, order=1, mode="nearest", grid_mode=True)
    return double[: shape[0], : shape[1]]


def _denoise_channel(
    plane: Image,
    model: Model,
    quick: bool,
    n_jobs: int | None,
    step: Callable[[], None] | None,
) -> tuple[Image, Image, int, bool]:
    mean, std = np.empty_like(plane), np.empty_like(plane)
    iterations, converged = 0, True
    for kept, wider in _blocks(np.isnan(plane)):
        noisy = plane[wider]
        graph = grid(noisy).observe("read as", noisy.ravel())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told in the result
            beliefs = model.infer(graph, max_iterations=QUICK_ITERATIONS if quick else None, n_jobs=n_jobs)
        inner = tuple(slice(k.start - w.start, k.stop - w.start) for k, w in zip(kept, wider, strict=True))
        # Both moments in one reading: masses of a whole block are too many to be kept.
        moments = beliefs.expect(lambda x: np.stack([x, x**2], axis=1)).reshape(*noisy.shape, 2)[inner]
        mean[kept] = moments[..., 0]
        std[kept] = np.sqrt(np.maximum(moments[..., 1] - moments[..., 0] ** 2, 0.0))
        iterations, converged = max(iterations, beliefs.iterations), converged and beliefs.converged
        if step is not None:
            step()
    return mean, std, iterations, converged


def _blocks(gaps: NDArray[np.bool_]) -> list[tuple[Span, Span]]:
    """Parts of a picture: what is kept of each, and the wider part that is denoised for it."""
    margin = MARGIN
    if gaps.any() and max(gaps.shape) > BLOCK + 2 * MARGIN:
        from scipy.ndimage import distance_transform_edt

        margin = int(np.clip(2 * distance_transform_edt(gaps).max(), MARGIN, MOST_MARGIN))
    spans = []
    for length in gaps.shape:
        number = 1 if length <= BLOCK + 2 * MARGIN else -(-length // BLOCK)
        cuts = np.linspace(0, length, number + 1).astype(int).tolist()
        spans.append(
            [
                (slice(start, stop), slice(max(start - margin, 0), min(stop + margin, length)))
                for start, stop in itertools.pairwise(cuts)
            ]
        )
    return [((top[0], left[0]), (top[1], left[1])) for top, left in itertools.product(*spans)]


def _as_gaps(missing: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    if missing is None:
        return np.zeros(shape, dtype=bool)
    gaps = np.asarray(missing)
    if gaps.dtype != bool or gaps.shape != tuple(shape):
        raise InputError(
            f"missing: expected true and false in the picture's shape {tuple(shape)}, got {gaps.dtype} in {gaps.shape}"
        )
    return gaps
