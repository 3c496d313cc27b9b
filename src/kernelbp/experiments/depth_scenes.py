"""The images of the depth experiment: how much is done with them, how they are split, and how an answer is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import depth_features
from kernelbp.datasets.depths import (
    MAKE3D_SHAPE,
    MIDDLEBURY_SHAPE,
    SEVEN_SCENES_SHAPE,
    STEREO_SHAPE,
    DepthScene,
    depth_folder_form,
    load_7scenes,
    load_make3d,
    load_middlebury,
    stereo_scene,
)
from kernelbp.errors import InputError
from kernelbp.experiments.study import Row, Study

__all__ = [
    "FULL",
    "LEAST_KNOWN",
    "QUICK",
    "TINY",
    "TUNED_PART",
    "Fold",
    "Scene",
    "Sizes",
    "backwards",
    "bands_of",
    "earlier_folds",
    "earlier_questions",
    "error_of",
    "every_row_known",
    "few_images",
    "inner_parts",
    "judged",
    "load",
    "middle",
    "middle_columns",
    "middle_of",
    "scored",
    "thinned",
    "tuned_part",
]

Matrix = NDArray[np.float64]

INNER = 3
"""Parts of the training images, each predicted by a predictor trained on the others."""
TUNED_PART = 2
"""Columns of a training image that settings are chosen on: one of this many, in the middle."""
LEAST_KNOWN = 0.5
"""Images with less known depth are left out."""
THUMBNAIL = 320
"""Most rows of pixels of an image kept for the pictures."""


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes
    ----------
    shrink : patches along each side are divided by this
    scenes : most scenes used, evenly through all
    folds : most test folds
    tested : most test images of a fold, evenly through all; of a film the first
    patches : most patches a predictor is trained on
    rounds, epochs : of boosting, of the neural network
    bands : of rows that share their relations
    states : support points of each band's depth
    tuned : training images on which settings are chosen; of a film all that its earlier questions ask about
    iterations : of Gaussian-mixture and discrete belief propagation
    particle_iterations : of particles; the paper's are 100
    tried : most settings of a rival tried in its search
    per_row : whether the paper's own preset, with a relation per row, is run too, on one test image
    rival_images : most test images that particle and Gaussian-mixture belief propagation are run on: they are slow
    mixture_frames : most frames that Gaussian-mixture belief propagation infers together, the first ones: minutes an iteration
    """

    shrink: int = 1
    scenes: int = 100
    folds: int = 7
    tested: int = 30
    patches: int = 20000
    rounds: int = 100
    epochs: int = 20
    bands: int = 12
    states: int = 32
    tuned: int = 9
    iterations: int = 10
    particle_iterations: int = 100
    tried: int = 3
    per_row: bool = True
    rival_images: int = 30
    mixture_frames: int = 7


FULL = Sizes()
QUICK = Sizes(
    shrink=2,
    scenes=12,
    folds=1,
    tested=2,
    patches=1500,
    rounds=30,
    bands=6,
    states=24,
    tuned=3,
    particle_iterations=20,
    rival_images=1,
)
TINY = Sizes(
    shrink=5,
    scenes=6,
    folds=1,
    tested=1,
    patches=150,
    rounds=5,
    epochs=3,
    bands=2,
    states=12,
    tuned=3,
    iterations=2,
    particle_iterations=3,
    tried=1,
)


@dataclass(frozen=True, eq=False)
class Scene:
    """An image in this experiment: `features` are computed when they are first asked for, (rows, columns, 273).

    `time` is the number of the frame, where images are frames of a film.
    """

    name: str
    image: NDArray[np.uint8]
    depth: Matrix
    group: str
    features: Callable[[], NDArray[np.float32]]
    time: int | None = None


@dataclass(frozen=True)
class Fold:
    """Numbers of the scenes trained and tested on; whether all of the test is later than all of the training."""

    name: str
    train: tuple[int, ...]
    test: tuple[int, ...]
    test_is_later: bool = False


def few_images(folds: Sequence[Fold], most: int) -> list[Fold]:
    """The first folds, with no more than so many test images in all, evenly through a fold's."""
    kept: list[Fold] = []
    for fold in folds:
        test = thinned(fold.test, most - sum(len(other.test) for other in kept))
        if test:
            kept.append(replace(fold, test=test))
    return kept


def load(study: Study, sizes: Sizes) -> tuple[str, list[Scene], list[Fold]]:
    """The scenes of a folder, or halves of the stereo pair, and how they are split."""
    folder = study.options.data
    if folder is None:
        return "the stereo pair of scikit-image", *_halves(stereo_scene(shape=_shape(STEREO_SHAPE, sizes)))
    form = depth_folder_form(folder)
    loaders: dict[str, Callable[[], Iterator[DepthScene]]] = {
        "Make3D": lambda: load_make3d(folder, shape=_shape(MAKE3D_SHAPE, sizes)),
        "7-Scenes": lambda: load_7scenes(
            folder,
            shape=_shape(SEVEN_SCENES_SHAPE, sizes),
            every=max(-(-len(list(folder.glob("frame-*.depth.png"))) // sizes.scenes), 1),
        ),
        "Middlebury": lambda: load_middlebury(folder, shape=_shape(MIDDLEBURY_SHAPE, sizes)),
    }
    scenes = [_kept(scene) for scene in loaders[form]() if np.isfinite(scene.depth).mean() > LEAST_KNOWN]
    groups = list(dict.fromkeys(scene.group for scene in scenes))
    groups = [groups[k] for k in thinned(range(len(groups)), sizes.scenes)]
    scenes = [scene for scene in scenes if scene.group in set(groups)]
    if len(groups) < 4:
        raise InputError(
            f"data: {len(groups)} images (of different scenes) with depth in {folder}; expected at least 4"
        )
    if np.ptp(np.concatenate([scene.depth[np.isfinite(scene.depth)] for scene in scenes])) == 0:
        raise InputError(
            f"data: all depths in {folder} are the same; expected images with depth that differs"
        )
    if form == "7-Scenes":
        begin = -(-2 * len(scenes) // 3)
        tested = [tuple(range(begin, len(scenes)))]
        names = ["last third"]
    else:
        parts = len(groups) if form == "Make3D" else min(4, len(groups))
        tested = [
            tuple(i for i, scene in enumerate(scenes) if groups.index(scene.group) % parts == part)
            for part in range(parts)
        ]
        names = [scenes[t[0]].name if form == "Make3D" else f"fold {k + 1}" for k, t in enumerate(tested)]
    folds = [
        Fold(
            name,
            tuple(i for i in range(len(scenes)) if i not in test),
            test[: sizes.tested] if form == "7-Scenes" else thinned(test, sizes.tested),
            test_is_later=form == "7-Scenes",
        )
        for name, test in zip(names, tested, strict=True)
    ]
    return form, scenes, [folds[k] for k in thinned(range(len(folds)), sizes.folds)]


def _halves(whole: DepthScene) -> tuple[list[Scene], list[Fold]]:
    """The left half, in three strips that count as images, to learn from; the right half to test."""
    width, (rows, columns) = whole.image.shape[1], whole.depth.shape
    half, pixels = columns // 2, width // 2
    shape = (rows, half)
    left, right = (
        cache(lambda image=image: depth_features(image, shape))
        for image in (whole.image[:, :pixels], whole.image[:, -pixels:])
    )
    edges = np.linspace(0, half, INNER + 1).astype(int)
    scenes = [
        Scene(
            f"strip {k + 1}",
            _thumbnail(whole.image[:, pixels * a // half : pixels * b // half]),
            whole.depth[:, a:b],
            f"strip {k + 1}",
            lambda a=a, b=b: left()[:, a:b],  # type: ignore[misc]
        )
        for k, (a, b) in enumerate(pairwise(edges))
    ]
    scenes.append(
        Scene("right half", _thumbnail(whole.image[:, -pixels:]), whole.depth[:, -half:], "right", right)
    )
    return scenes, [Fold("right half", tuple(range(INNER)), (INNER,))]


def _kept(scene: DepthScene) -> Scene:
    """Features wait until they are needed; a resumed run may need none."""
    # Bytes: a folder of images as floats would fill the memory.
    pixels = np.round(255 * scene.image).astype(np.uint8)
    return Scene(
        scene.name,
        _thumbnail(scene.image),
        scene.depth,
        scene.group,
        cache(lambda: depth_features(pixels / np.float32(255), scene.depth.shape)),
        scene.time,
    )


def _thumbnail(image: NDArray[np.float32]) -> NDArray[np.uint8]:
    step = max(-(-len(image) // THUMBNAIL), 1)
    return np.round(255 * image[::step, ::step]).astype(np.uint8)


def _shape(shape: tuple[int, int], sizes: Sizes) -> tuple[int, int]:
    return shape[0] // sizes.shrink, shape[1] // sizes.shrink


def bands_of(scenes: Sequence[Scene], count: int) -> NDArray[np.intp]:
    """The band (from 0) of each row; a row whose depth no scene knows belongs to the next that is known."""
    known = np.flatnonzero(np.any([np.isfinite(scene.depth).any(axis=1) for scene in scenes], axis=0))
    place = np.searchsorted(known, np.arange(len(scenes[0].depth))).clip(max=len(known) - 1)
    bands: NDArray[np.intp] = place * min(count, len(known)) // len(known)
    return bands


def every_row_known(scenes: Sequence[Scene]) -> bool:
    """Whether there is a pair of known neighbours in every row, and between every two rows."""
    known = [np.isfinite(scene.depth) for scene in scenes]
    beside = np.any([(k[:, :-1] & k[:, 1:]).any(axis=1) for k in known], axis=0)
    below = np.any([(k[:-1] & k[1:]).any(axis=1) for k in known], axis=0)
    return bool(beside.all() and below.all())


def thinned(numbers: Sequence[int], most: int) -> tuple[int, ...]:
    """At most so many of them, evenly through all."""
    chosen = np.linspace(0, len(numbers) - 1, min(len(numbers), most)).round().astype(int)
    return tuple(int(numbers[k]) for k in chosen)


def middle_columns(values: NDArray[Any], part: int) -> NDArray[Any]:
    """One of `part` columns of (rows, columns, ...), those in the middle; at least four."""
    return values[:, middle(values.shape[1], part)]


def middle(columns: int, part: int) -> slice:
    """Which columns `middle_columns` keeps."""
    kept = min(max(columns // part, 4), columns)
    begin = (columns - kept) // 2
    return slice(begin, begin + kept)


def middle_of(scene: Scene, part: int) -> Scene:
    """A scene whose depth is known in the middle only; it is not for learning from."""
    return replace(scene, depth=middle_columns(scene.depth, part))


def inner_parts(scenes: Sequence[Scene], fold: Fold) -> list[tuple[int, ...]]:
    """Training scenes in at most three parts, in their order (which is that of time), groups kept together."""
    groups = list(dict.fromkeys(scenes[i].group for i in fold.train))
    return [
        tuple(i for i in fold.train if scenes[i].group in set(part))
        for part in np.array_split(np.array(groups, dtype=object), min(INNER, len(groups)))
    ]


def judged(scenes: Sequence[Scene], fold: Fold, most: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Scenes that settings are chosen on, at most so many, evenly through each inner part; for a film there is `earlier_questions`.

    Returns
    -------
    list of pairs: training scenes that may be known, and those judged on
    """
    parts = inner_parts(scenes, fold)
    return [
        (tuple(i for i in fold.train if i not in part), thinned(part, max(most // len(parts), 1)))
        for part in parts
    ]


def earlier_folds(scenes: Sequence[Scene], fold: Fold) -> list[Fold]:
    """The question a fold asks of a film, as it would have been asked earlier: from the first training frames to the next.

    From the first part of the training frames to the second, and from both to the third; none where images are no film.
    """
    if not fold.test_is_later:
        return []
    parts = inner_parts(scenes, fold)
    earlier = [
        Fold(f"{fold.name}, earlier {k}", tuple(i for part in parts[:k] for i in part), parts[k], True)
        for k in range(1, len(parts))
    ]
    # What a word is worth is learned from frames that were predicted from others.
    return [one for one in earlier if len(one.train) > 1]


def backwards(scenes: Sequence[Scene]) -> list[Scene]:
    """A film with its last frame first."""
    return [replace(scene, time=None if scene.time is None else -scene.time) for scene in reversed(scenes)]


def earlier_questions(scenes: Sequence[Scene], fold: Fold) -> list[tuple[Sequence[Scene], Fold]]:
    """What settings for a film are chosen on: its `earlier_folds`, and those of the same training frames run backwards.

    Run backwards, a film that comes nearer goes away: settings that suit one way only are found out.

    Returns
    -------
    list of pairs: all scenes in the order of that film, and a fold of them; empty where images are no film
    """
    last = len(scenes) - 1
    turned = replace(
        fold,
        name=f"{fold.name}, backwards",
        train=tuple(last - i for i in reversed(fold.train)),
        test=tuple(last - i for i in reversed(fold.test)),
    )
    films: tuple[tuple[Sequence[Scene], Fold], ...] = ((scenes, fold), (backwards(scenes), turned))
    return [(film, one) for film, asked in films for one in earlier_folds(film, asked)]


def tuned_part(fold: Fold) -> int:
    """Settings are chosen on one of this many columns: of a film on all, as patches move sideways."""
    return 1 if fold.test_is_later else TUNED_PART


def error_of(found: NDArray[Any], scene: Scene) -> float:
    """Mean absolute error in log10 depth over the patches whose depth is known; infinite where no answer was found."""
    known = np.isfinite(scene.depth)
    error = float(np.abs(found[known] - scene.depth[known]).mean())
    return error if np.isfinite(error) else np.inf


def scored(
    method: str,
    evidence: str,
    scene: Scene,
    found: NDArray[Any],
    *,
    fit: float | None = None,
    seconds: float | None = None,
    iterations: int | None = None,
    converged: bool | None = None,
    settings: str | None = None,
) -> Row:
    """A line of the table: what a method found on one image (rows, columns), and what it took."""
    return {
        "method": method,
        "evidence": evidence,
        "image": scene.name,
        "MAE": error_of(found, scene),
        "seconds to fit": fit,
        "seconds an image": seconds,
        "iterations": iterations,
        "seconds an iteration": None if seconds is None or not iterations else seconds / iterations,
        "converged": converged,
        "settings": settings,
    }
