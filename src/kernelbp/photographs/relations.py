"""What photographs look like: how a value goes with the one below and the one beside it, and how it is read.

A gray picture is one channel. A colour picture is three: the mean of red, green and blue, which is a gray
picture with less noise, and two differences of colours, which vary little. The three are orthogonal, so white
noise stays white. Of three photographs, each left out of learning in turn (noise 30, the middle 64 x 64 pixels), red, green
and blue each by itself came to 24.1, 25.4 and 25.0 dB, these channels to 26.3, 26.9 and 26.5; those of YCbCr, whose noise
is not alike, stayed 0.3 to 0.8 below these in an earlier trial.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.calibration import GraphCalibration
from kernelbp.datasets import grid_pairs
from kernelbp.errors import InputError, ModelFileError
from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Model, Relation
from kernelbp.photographs.noise import BLACK, WHITE, likelihood

__all__ = [
    "READY",
    "Channel",
    "Photographs",
    "as_picture",
    "grid",
    "is_gray",
    "join",
    "learn",
    "learn_pair",
    "ready",
    "side_of",
    "some_neighbours",
    "split",
]

Image = NDArray[np.float64]

READY = Path(__file__).parent / "ready"
"""Folder of the relation that comes with the library; made by ``python -m kernelbp.photographs.make_ready``."""
OPPONENT = np.array([[1 / 3, 1 / 3, 1 / 3], [2**-0.5, 0.0, -(2**-0.5)], [6**-0.5, -2 * 6**-0.5, 6**-0.5]])
"""Rows: mean, red minus blue, red and blue minus green, of (red, green, blue)."""
NOISE_SHARE = np.sqrt((OPPONENT**2).sum(axis=1))
"""Standard deviation of the noise in each, if it is one in red, green and blue."""
GRAY_STEP, COLOUR_STEP = 3.0, 5.0
"""Values are rounded to multiples of these in learning: model files are a quarter as large as with single gray
levels, and on photographs that were not learned from PSNR at noise 30 is the same to 0.02 dB."""
VIVID = 3.0
"""Differences of colours are also learned from copies with this many times the saturation, and from negatives. Otherwise
colours that no photograph had would be drawn to those they had."""
PURE = 2 * WHITE / 6**0.5
"""The largest difference of colours there is: of pure green to the others."""
INFERENCE = {"tolerance": 1e-2}
"""Messages that change by less than a hundredth move no pixel visibly."""
SIDE = 1000
"""Of a larger photograph the middle of so many rows and columns is learned from."""
MOST_PHOTOGRAPHS = 100
MOST_PIXELS = 4_000_000
"""Of all photographs together, which keeps memory small: of many large ones smaller middles are learned from."""
MOST_PAIRS = 4_000_000
"""Pairs of neighbours learned from in each direction, evenly from all."""
CROP = 64
"""Rows and columns of the parts of photographs on which settings are fitted."""
MOST_CROPS = 6
SAME_LEVEL = 0.25
"""Settings fitted at a noise level serve all that differ from it by at most a quarter."""
CALIBRATIONS = "calibrations.json"


@dataclass(frozen=True)
class Channel:
    """How neighbouring values of one channel go together.

    Attributes
    ----------
    model : fitted, with relations "below" and "beside" of "pixel", and "read as" if noise was learned too
    clipped : whether readings are cut off at black and white
    step : what values were rounded to in learning; noise of less than half of it is treated as half of it
    calibrations : settings of inference fitted at some noise levels; those of the nearest level are taken
    """

    model: Model
    clipped: bool
    step: float
    calibrations: Mapping[float, GraphCalibration] = field(default_factory=dict)

    @property
    def knows_noise(self) -> bool:
        """Whether noise was learned, and need not be told."""
        return "read as" in self.model.relations

    def at(self, sigma: float) -> Model:
        """The model for readings with Gaussian noise of this standard deviation."""
        if self.knows_noise:
            return self.model
        # A reading is a number like a pixel: it needs no variable of its own.
        read_as = likelihood(max(sigma, self.step / 2), clipped=self.clipped)
        model = self.model.with_relation("read as", Relation("pixel", "pixel", potential=read_as))
        if not self.calibrations:
            return model
        nearest = min(self.calibrations, key=lambda level: abs(np.log(level / max(sigma, 1e-9))))
        return model.with_calibration(self.calibrations[nearest])


@dataclass(frozen=True)
class Photographs:
    """What was learned from photographs.

    Attributes
    ----------
    gray : of gray pictures, and of the mean of red, green and blue
    colour : of differences of colours; None if only gray pictures were seen

    Examples
    --------
    >>> import tempfile
    >>> from kernelbp.photographs import ready
    >>> known = ready()
    >>> len(known.channels(1)), len(known.channels(3))
    (1, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     known.save(folder)
    ...     again = Photographs.load(folder)
    >>> again.gray.clipped, sorted(again.gray.calibrations) == sorted(known.gray.calibrations)
    (True, True)
    """

    gray: Channel
    colour: Channel | None = None

    def channels(self, number: int) -> list[Channel]:
        """Those of a picture with one or three channels, in the order of `split`."""
        if number == 1:
            return [self.gray]
        if self.colour is None:
            raise InputError(
                "image: it is in colour, and what was learned from is gray; learn from pictures in colour"
            )
        return [self.gray, self.colour, self.colour]

    def save(self, folder: str | PathLike[str]) -> None:
        """Write it to a folder: one model file for each sort of channel, and the fitted settings as JSON."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        levels = {}
        for name, channel in (("gray", self.gray), ("colour", self.colour)):
            if channel is not None:
                channel.model.save(target / f"{name}.kbp")
                levels[name] = {
                    "clipped": channel.clipped,
                    "step": channel.step,
                    "calibrations": [[sigma, asdict(c)] for sigma, c in channel.calibrations.items()],
                }
        (target / CALIBRATIONS).write_text(json.dumps(levels, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Photographs:
        """Read what `save` wrote."""
        source = Path(folder)
        try:
            stored = json.loads((source / CALIBRATIONS).read_text(encoding="utf-8"))
            channels = {
                name: Channel(
                    Model.load(source / f"{name}.kbp"),
                    bool(said["clipped"]),
                    float(said["step"]),
                    _read_calibrations(said),
                )
                for name, said in stored.items()
            }
            return cls(**channels)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelFileError(f"{source}: holds nothing learned from photographs ({error})") from error

    def with_settings_of(self, folder: str | PathLike[str]) -> Photographs:
        """The same relations with the settings that stand in a folder written before: fitting them is what takes long."""
        stored = json.loads((Path(folder) / CALIBRATIONS).read_text(encoding="utf-8"))
        channels = {
            name: replace(channel, calibrations=_read_calibrations(stored[name]))
            for name, channel in (("gray", self.gray), ("colour", self.colour))
            if channel is not None
        }
        return Photographs(**channels)


def _read_calibrations(said: Mapping[str, Any]) -> dict[float, GraphCalibration]:
    return {float(sigma): GraphCalibration(**values) for sigma, values in said["calibrations"]}


@cache
def ready() -> Photographs:
    """The relation that comes with the library, learned from six photographs that are free to use.

    Examples
    --------
    >>> sorted(ready().gray.model.relations)
    ['below', 'beside']
    """
    return Photographs.load(READY)


def learn(
    photographs: Sequence[ArrayLike],
    *,
    sigma: float | Sequence[float],
    seed: int = 0,
    calibrate: bool = True,
    progress: bool = False,
) -> Photographs:
    """Learn what photographs look like from clean ones.

    Parameters
    ----------
    photographs : arrays (rows, columns) or (rows, columns, 3), black 0 to white 255
        NaN where a pixel is unknown. Gray ones count as gray, colour ones as both. At most 100 are learned
        from, of large ones the middles.
    sigma : standard deviation of the noise it will be used with, or several
        Settings of inference are fitted by adding such noise to parts of the photographs and denoising them.
    seed : of that noise and the choice of those parts
    calibrate : whether to do so; otherwise settings are what pairs of pixels say, which takes far less time
    progress : show a progress bar

    Examples
    --------
    >>> rows, columns = np.mgrid[:60, :80]
    >>> stripes = np.where((rows // 10 + columns // 10) % 2, 200.0, 50.0)
    >>> learned = learn([stripes], sigma=20.0, calibrate=False)
    >>> learned.colour is None
    True
    """
    levels = [float(level) for level in np.atleast_1d(sigma)]
    for level in levels:
        check_sigma(level)
    number = len(photographs)
    if not number:
        raise InputError("photographs: expected at least one, got none")
    chosen = np.unique(np.linspace(0, number - 1, min(number, MOST_PHOTOGRAPHS)).astype(int))
    side = side_of(len(chosen))
    # Copies of the middles: a view would keep the whole photograph.
    pictures = [_middle(as_picture(photographs[i], f"photographs[{i}]"), side).copy() for i in chosen]
    in_colour = [picture for picture in pictures if not is_gray(picture)]
    in_gray = _apart([*levels, *(NOISE_SHARE[0] * level for level in levels if in_colour)])
    gray = Channel(_relations(_planes(pictures, slice(0, 1)), GRAY_STEP, progress), True, GRAY_STEP)
    if calibrate:
        gray = _calibrated(gray, _planes(pictures, slice(0, 1)), in_gray, seed, progress)
    if not in_colour:
        return Photographs(gray)
    usual = _planes(in_colour, slice(1, 3))
    vivid = [np.clip(VIVID * plane, -PURE, PURE) for plane in usual]
    examples = [sign * plane for plane in (*usual, *vivid) for sign in (1, -1)]
    colour = Channel(_relations(examples, COLOUR_STEP, progress), False, COLOUR_STEP)
    return Photographs(gray, _calibrated(colour, usual, levels, seed, progress) if calibrate else colour)


def _relations(planes: Sequence[Image], step: float, progress: bool) -> Model:
    """How neighbouring values go together, one relation for each direction."""
    model = Model(
        {"pixel": Gaussian()},
        {"below": Relation("pixel", "pixel"), "beside": Relation("pixel", "pixel")},
        inference=INFERENCE,
    )
    return model.fit(_neighbours([_rounded(plane, step) for plane in planes]), progress=progress)


def _calibrated(
    channel: Channel, planes: Sequence[Image], levels: Sequence[float], seed: int, progress: bool
) -> Channel:
    """The channel with settings of inference fitted at each noise level."""
    calibrations = {}
    for level in levels:
        graphs = _training_graphs(planes, level, channel.clipped, seed)
        fitted = channel.at(level).calibrate(graphs, stopping=False, progress=progress)
        calibrations[level] = fitted.calibration_
    return replace(channel, calibrations=calibrations)


def learn_pair(
    clean: ArrayLike, noisy: ArrayLike, *, seed: int = 0, calibrate: bool = True, progress: bool = False
) -> Photographs:
    """Learn both what a photograph looks like and what its noise is from one picture, clean and noisy.

    The noise may be of any sort that treats pixels alike: it is learned, not assumed to be Gaussian.

    Parameters
    ----------
    clean, noisy : arrays of one shape, (rows, columns) or (rows, columns, 3), black 0 to white 255
    seed : of the choice of the parts on which settings of inference are fitted
    calibrate : whether to fit them
    progress : show a progress bar

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.photographs import denoise
    >>> rng = np.random.default_rng(0)
    >>> rows, columns = np.mgrid[:60, :80]
    >>> clean = np.where((rows // 10 + columns // 10) % 2, 200.0, 50.0)
    >>> noisy = clean + 20.0 * rng.standard_t(3, size=clean.shape)
    >>> learned = learn_pair(clean, noisy, calibrate=False)
    >>> other = clean[::-1] + 20.0 * rng.standard_t(3, size=clean.shape)
    >>> found = denoise(other, learned)
    >>> bool(np.abs(found.mean - clean[::-1]).mean() < 0.2 * np.abs(other - clean[::-1]).mean())
    True
    """
    first, second = as_picture(clean, "clean"), as_picture(noisy, "noisy")
    if first.shape != second.shape:
        raise InputError(
            f"noisy: expected a picture of {_described(first)}, as the clean one is, got {_described(second)}"
        )
    truths, readings = split(_middle(first)), split(_middle(second))
    made = []
    for clipped, step, part in ((True, GRAY_STEP, slice(0, 1)), (False, COLOUR_STEP, slice(1, 3))):
        truth, read = truths[part], readings[part]
        if not truth:
            continue
        model = Model(
            {"pixel": Gaussian(), "reading": Gaussian()},
            {
                "below": Relation("pixel", "pixel"),
                "beside": Relation("pixel", "pixel"),
                "read as": Relation("pixel", "reading", evidence="likelihood"),
            },
            inference=INFERENCE,
        )
        rounded = [_rounded(plane, step) for plane in truth]
        values, seen = (np.concatenate([p.ravel() for p in planes]) for planes in (rounded, read))
        known = np.isfinite(values) & np.isfinite(seen)
        graphs = [
            (grid(r[where]).observe("read as", r[where].ravel()), t[where].ravel())
            for t, r, where in (_crops(truth, read, seed) if calibrate else ())
        ]
        pairs = {**_neighbours(rounded), "read as": (values[known], seen[known])}
        model.fit(pairs, progress=progress)
        if graphs:
            model.calibrate(graphs, stopping=False, progress=progress)
        made.append(Channel(model, clipped, step))
    return Photographs(*made)


# ---------------------------------------------------------------------- pictures as channels


def as_picture(image: ArrayLike, name: str) -> Image:
    """Check a picture and give it as float64, (rows, columns, 1) or (rows, columns, 3)."""
    given = np.asarray(image)
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected an array of numbers, got dtype {given.dtype}")
    if given.ndim == 2:
        given = given[..., None]
    if given.ndim != 3 or given.shape[2] not in (1, 3) or not given.size:
        raise InputError(
            f"{name}: expected shape (rows, columns) or (rows, columns, 3), got {np.shape(image)}"
        )
    picture = given.astype(np.float64)
    if np.isinf(picture).any():
        raise InputError(
            f"{name}: expected finite numbers, or NaN where a pixel is missing, got infinite ones"
        )
    return picture


def is_gray(picture: Image) -> bool:
    """Whether a picture (rows, columns, 1 or 3) has no colour in it."""
    same = (picture == picture[..., :1]) | np.isnan(picture)
    return bool(same.all())


def split(picture: Image) -> list[Image]:
    """The channels that are denoised, each (rows, columns), of a picture (rows, columns, 1 or 3)."""
    if picture.shape[2] == 1:
        return [picture[..., 0]]
    return list(np.moveaxis(picture @ OPPONENT.T, -1, 0))


def join(means: Sequence[Image], stds: Sequence[Image]) -> tuple[Image, Image]:
    """The picture and its standard deviations, (rows, columns, 1 or 3), from those of its channels."""
    mean, std = np.stack(means, axis=-1), np.stack(stds, axis=-1)
    if len(means) == 1:
        return mean, std
    back = np.linalg.inv(OPPONENT)
    return mean @ back.T, np.sqrt(std**2 @ (back**2).T)


def grid(noisy: Image) -> Graph:
    """The grid of a channel, with one relation for each direction."""
    return Graph.grid(noisy.shape, variable="pixel", relation={"down": "below", "right": "beside"})


def check_sigma(sigma: float) -> None:
    """Refuse a noise that is none."""
    if not (np.isfinite(sigma) and sigma > 0):
        raise InputError(f"sigma: expected a finite number above 0, got {sigma:g}")


def _described(picture: Image) -> str:
    rows, columns, channels = picture.shape
    return f"{columns} x {rows} pixels in {'gray' if channels == 1 else 'colour'}"


def side_of(photographs: int) -> int:
    """Rows and columns of the middles that are learned from, of so many photographs.

    Examples
    --------
    >>> side_of(4), side_of(100)
    (1000, 200)
    """
    return min(SIDE, math.isqrt(MOST_PIXELS // photographs))


def _middle(picture: Image, side: int = SIDE) -> Image:
    top, left = (max(length - side, 0) // 2 for length in picture.shape[:2])
    return picture[top : top + side, left : left + side]


def _planes(pictures: Sequence[Image], part: slice) -> list[Image]:
    """Some of the channels of all pictures."""
    return [plane for picture in pictures for plane in split(picture)[part]]


def _rounded(plane: Image, step: float) -> Image:
    return np.rint(plane / step) * step


def _neighbours(planes: Sequence[Image]) -> dict[str, tuple[Image, Image]]:
    """Pairs of neighbouring values, pooled over all planes."""
    found = {}
    for axis, name in enumerate(("below", "beside")):
        usable = [p for p in planes if p.shape[axis] > 1]
        if not usable:
            raise InputError("photographs: expected at least 2 x 2 pixels in one of them")
        found[name] = some_neighbours(usable, MOST_PAIRS, axis=axis)
    return found


def some_neighbours(planes: Sequence[Image], most: int, *, axis: int | None = None) -> tuple[Image, Image]:
    """Pairs of neighbouring values, pooled over all planes; of more than `most`, every second, third or so.

    Parameters
    ----------
    planes : each (rows, columns)
    most : pairs at most
    axis : 0 for pairs above and below, 1 for left and right; both when not given

    Examples
    --------
    >>> some_neighbours([np.arange(6.0).reshape(1, 6)], 3, axis=1)
    (array([0., 2., 4.]), array([1., 3., 5.]))
    """
    axes = (0, 1) if axis is None else (axis,)
    number = sum(plane.size - plane.size // plane.shape[along] for plane in planes for along in axes)
    step = max(1, -(-number // most))
    firsts, seconds = [], []
    skipped = 0
    for plane in planes:
        first, second = grid_pairs(plane, axis=axis)
        # Copies: views would keep all pairs.
        firsts.append(first[skipped::step].copy())
        seconds.append(second[skipped::step].copy())
        skipped = (skipped - len(first)) % step
    return np.concatenate(firsts), np.concatenate(seconds)


def _apart(levels: Sequence[float]) -> list[float]:
    """Noise levels without those that hardly differ from one before them."""
    kept: list[float] = []
    for level in levels:
        if all(abs(np.log(level / other)) > SAME_LEVEL for other in kept):
            kept.append(round(float(level), 3))
    return kept


def _crops(
    truths: Sequence[Image], others: Sequence[Image], seed: int
) -> Iterator[tuple[Image, Image, tuple[slice, slice]]]:
    """Places in a few planes, spread over all of them, chosen by chance within each; something is known in each."""
    rng = np.random.default_rng(seed)
    some = [index for index, truth in enumerate(truths) if np.isfinite(truth).any()]
    for index in np.linspace(0, len(some) - 1, MOST_CROPS).astype(int):
        truth, other = truths[some[index]], others[some[index]]
        top, left = (int(rng.integers(max(length - CROP, 0) + 1)) for length in truth.shape)
        if not np.isfinite(truth[top : top + CROP, left : left + CROP]).any():
            known = rng.choice(np.argwhere(np.isfinite(truth)))
            farthest = np.maximum(np.subtract(truth.shape, CROP), 0)
            top, left = np.clip(known - CROP // 2, 0, farthest).tolist()
        yield truth, other, (slice(top, top + CROP), slice(left, left + CROP))


def _training_graphs(
    planes: Sequence[Image], sigma: float, clipped: bool, seed: int
) -> list[tuple[Graph, Image]]:
    rng = np.random.default_rng([seed, 1])
    graphs = []
    for plane, _, where in _crops(planes, planes, seed):
        truth = plane[where]
        noisy = truth + sigma * rng.standard_normal(truth.shape)
        if clipped:
            noisy = np.clip(noisy, BLACK, WHITE)
        graphs.append((grid(noisy).observe("read as", noisy.ravel()), truth.ravel()))
    return graphs
