"""The denoising experiment on photographs, with PSNR: ``kernelbp reproduce denoising --photos DIR``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.experiments.denoisers import (
    NOISE,
    OURS,
    RIVALS,
    Chosen,
    Method,
    Sample,
    Training,
    chosen,
    limited,
    measure,
    search_case,
    with_noise,
    with_seed,
    written,
)
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Result, Row, Study
from kernelbp.extras import extra_library
from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Model, Relation
from kernelbp.photographs.files import files_of, read_picture
from kernelbp.photographs.relations import some_neighbours

__all__ = ["FULL", "QUICK", "TINY", "Sizes", "run"]

Image = NDArray[np.float64]

WHITE = 255.0
LUMA = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in gray."""
TRAIN, SEARCH, TEST = 0, 1, 2
"""Numbers of the random draws, for noise on training photographs, on those searched on, and on those tested."""
ON_CROPS = ("Gaussian-mixture BP", "particle BP")
"""Rivals too slow for whole photographs."""
MOST_SIDE = 512
"""Of larger photographs the middle of so many rows and columns is used."""
DIRECTIONAL = "kernel BP, a relation per direction"
THINNING = 3
"""Of the pixels of training photographs every third row and column is read, to learn what readings say."""
VARIATION, MEANS = "total variation", "non-local means"
STRENGTHS: Mapping[str, tuple[float, ...]] = {
    VARIATION: (0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18),
    MEANS: (0.5, 0.6, 0.7, 0.8, 0.9),
}
"""Tried on training photographs: the weight of total variation (of white 1), non-local means' h as a share of sigma."""


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes
    ----------
    train, test : photographs at most
    crop : rows and columns of the middles of photographs that every method cleans
    whole : whether the faster ones clean whole photographs (of larger ones the middle 512 x 512) as well
    levels : gray levels of discrete BP, evenly spaced
    pairs : of neighbours that are learned from, and of pixels with their readings, evenly from all
    directed : pairs of neighbours in each direction that a relation per direction is learned from
    most_pairs : those of them that rivals which fit densities learn from
    iterations : of the paper's settings
    calibrated : training crops on which kernel BP fits what pairs cannot tell
    searched, stages : training crops settings are searched on, and how many grids (None: all)
    """

    train: int
    test: int
    crop: int
    whole: bool
    levels: int
    pairs: int
    directed: int
    most_pairs: int
    iterations: int
    calibrated: int
    searched: int
    stages: int | None


FULL = Sizes(100, 7, 32, True, 64, 400_000, 4_000_000, 20_000, 30, 13, 10, None)
QUICK = Sizes(20, 2, 32, False, 32, 100_000, 1_000_000, 4_000, 10, 4, 3, 1)
TINY = Sizes(3, 2, 12, True, 8, 400, 2_000, 200, 2, 1, 1, 1)
"""For tests."""


def run(study: Study, folder: Path, sizes: Sizes | None = None) -> Report:
    """Learn from training photographs, clean test photographs, by every method."""
    sizes = sizes or (QUICK if study.options.quick else FULL)
    _filters()  # what is missing is said before any work
    train, test = _load(folder, sizes)
    training = _training(study, train, sizes)
    methods = [
        with_seed(limited(method, sizes.iterations), study.options.seed) for method in (*RIVALS, *OURS)
    ]
    methods.append(_directional(train, sizes))

    searched = [train[index] for index in _searched(len(train), sizes.searched)]
    tried_on = _samples(study, [_middle(photo, sizes.crop) for photo in searched], SEARCH)
    tried = study.finish(
        [
            search_case(
                f"search {m.name}, {' and '.join(m.settings)}",
                m,
                training,
                tried_on,
                stages=sizes.stages,
                seconds=30.0,
            )
            for m in methods
        ]
    )
    entrants = chosen([row for result in tried.values() for row in result.rows], methods)

    samples = _samples(study, [_middle(photo, sizes.crop) for photo in test], TEST)
    wholes = _samples(study, test, TEST) if sizes.whole else []
    cases = {
        entrant.name: Case(
            entrant.name,
            partial(
                _clean, entrant, training, samples, wholes if entrant.method.name not in ON_CROPS else []
            ),
            60.0,
        )
        for entrant in entrants
    }
    for name, filtered in (("noisy", _unchanged), (VARIATION, _variation), (MEANS, _means)):
        strengths = STRENGTHS.get(name, (1.0,))
        cases[name] = Case(name, partial(_filter, filtered, strengths, tried_on, samples, wholes), 20.0)
    finished = study.finish(list(cases.values()))
    counts = Counts(len(train), len(test), len(tried_on), len(training.images))
    return _report(study, sizes, counts, entrants, finished)


# ---------------------------------------------------------------------- load


def _load(folder: Path, sizes: Sizes) -> tuple[list[Image], list[Image]]:
    """Photographs to learn from and to clean, at most 512 x 512: of two folders, or halves of one."""
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        train, test = (
            _read(folder / part, most) for part, most in (("train", sizes.train), ("test", sizes.test))
        )
    else:
        photos = _read(folder, sizes.train + sizes.test)
        if len(photos) < 2:
            raise InputError(
                f"photos: {folder} holds one photograph; expected folders train and test in it, or two photographs or more"
            )
        half = (len(photos) + 1) // 2
        train, test = photos[:half], photos[half : half + sizes.test]
    for photo in (*train, *test):
        if min(photo.shape) < sizes.crop:
            raise InputError(
                f"photos: {folder} holds a photograph of only {min(photo.shape)} rows or columns of pixels; "
                f"expected at least {sizes.crop} x {sizes.crop}"
            )
    return train, test


def _read(folder: Path, most: int) -> list[Image]:
    """One after another, so that there is never more than one in colour."""
    return [
        _gray(read_picture(path, "photos", MOST_SIDE).values) for path in files_of(folder, most, "photos")
    ]


def _gray(values: Image) -> Image:
    return values if values.ndim == 2 else values @ np.array(LUMA)


def _middle(photo: Image, size: int) -> Image:
    top, left = ((length - size) // 2 for length in photo.shape)
    return photo[top : top + size, left : left + size]


def _searched(train: int, most: int) -> list[int]:
    """Which training photographs settings are searched on: the second, and others evenly after it."""
    step = max(1, train // most)
    return [(1 + step * number) % train for number in range(min(train, most))]


def _samples(study: Study, photos: Sequence[Image], which: int) -> list[Sample]:
    return [Sample(p, with_noise(p, study.rng(which, i, *p.shape))) for i, p in enumerate(photos)]


# ---------------------------------------------------------------------- learn


def _training(study: Study, train: Sequence[Image], sizes: Sizes) -> Training:
    """One template of neighbouring pixels, and readings of every third pixel."""
    return Training(
        some_neighbours(train, sizes.pairs),
        _readings(study, train, sizes),
        np.linspace(0.0, WHITE, sizes.levels),
        sizes.most_pairs,
        _crops(study, train, sizes),
    )


def _crops(study: Study, train: Sequence[Image], sizes: Sizes) -> list[Sample]:
    """Those on which kernel BP fits its settings."""
    step = max(1, (len(train) - 1) // max(1, sizes.calibrated - 1))
    side = min(64, *(min(photo.shape) for photo in train))
    return _samples(study, [_middle(photo, side) for photo in train[::step][: sizes.calibrated]], TRAIN)


def _readings(study: Study, train: Sequence[Image], sizes: Sizes) -> tuple[Image, Image]:
    clean = np.concatenate([photo[::THINNING, ::THINNING].ravel() for photo in train])
    clean = clean[:: max(1, -(-len(clean) // sizes.pairs))].copy()
    return clean, with_noise(clean, study.rng(TRAIN))


def _directional(train: Sequence[Image], sizes: Sizes) -> Method:
    """Kernel BP with what the library offers beyond the paper: a relation per direction."""

    def fit(training: Training, **options: Any) -> Model:
        model = Model(
            {"pixel": Gaussian(), "reading": Gaussian()},
            {
                "below": Relation("pixel", "pixel"),
                "beside": Relation("pixel", "pixel"),
                "read as": Relation("pixel", "reading"),
            },
            **options,
        )
        pairs: dict[str, tuple[Any, Any]] = {"read as": training.readings}
        for axis, name in enumerate(("below", "beside")):
            pairs[name] = some_neighbours(train, sizes.directed, axis=axis)
        graphs = [(graph_of(image.noisy), image.clean.ravel()) for image in training.images]
        return model.fit(pairs, graphs=graphs)

    def graph_of(noisy: Image) -> Graph:
        grid = Graph.grid(noisy.shape, variable="pixel", relation={"down": "below", "right": "beside"})
        return grid.observe("read as", noisy.ravel())

    return Method(DIRECTIONAL, fit, {"default": {}}, graph=graph_of)


# ---------------------------------------------------------------------- infer, score


def psnr(estimate: NDArray[Any], clean: NDArray[Any]) -> float:
    """Peak signal-to-noise ratio in decibels, for gray levels 0 to 255.

    Examples
    --------
    >>> round(psnr(np.zeros((2, 2)), np.full((2, 2), 255.0)), 3)
    0.0
    """
    return float(10 * np.log10(WHITE**2 / np.mean((np.clip(estimate, 0.0, WHITE) - clean) ** 2)))


def _clean(entrant: Chosen, training: Training, crops: Sequence[Sample], wholes: Sequence[Sample]) -> Result:
    samples = [*crops, *wholes]
    runs = measure(entrant.method, entrant.options, training, samples, timed=False)
    images = [getattr(found, entrant.estimate) for found in runs]
    found = [
        {"iterations": r.iterations, "converged": r.converged, "fit s": r.fit_seconds, "s": r.seconds}
        for r in runs
    ]
    return _result(images, samples, len(crops), found)


def _result(
    images: Sequence[Image], samples: Sequence[Sample], crops: int, found: Sequence[Mapping[str, Any]]
) -> Result:
    """A row for each image; the images of the first few photographs, to be drawn."""
    rows: list[Row] = [
        {
            "part": "crop" if i < crops else "whole",
            "photo": i % crops + 1,
            "PSNR": psnr(image, sample.clean),
            **of,
        }
        for i, (image, sample, of) in enumerate(zip(images, samples, found, strict=True))
    ]
    arrays = {f"crop {i}": images[i].astype(np.float32) for i in range(crops)}
    arrays |= {f"clean {i}": samples[i].clean.astype(np.float32) for i in range(crops)}
    return Result(rows, arrays)


Filter = Callable[[Image, float], Image]


def _unchanged(noisy: Image, strength: float) -> Image:
    return noisy


def _variation(noisy: Image, strength: float) -> Image:
    cleaned: Image = _filters().denoise_tv_chambolle(noisy / WHITE, weight=strength) * WHITE
    return cleaned


def _means(noisy: Image, strength: float) -> Image:
    sigma = NOISE / WHITE
    cleaned: Image = WHITE * _filters().denoise_nl_means(
        noisy / WHITE, patch_size=5, patch_distance=8, h=strength * sigma, sigma=sigma
    )
    return cleaned


def _filters() -> Any:
    return extra_library("skimage.restoration", "images", "photos: comparing with other filters")


def _filter(
    filtered: Filter,
    strengths: Sequence[float],
    searched: Sequence[Sample],
    crops: Sequence[Sample],
    wholes: Sequence[Sample],
) -> Result:
    """A filter whose strength is the best on training photographs."""

    def score(strength: float) -> float:
        return float(np.mean([psnr(filtered(s.noisy, strength), s.clean) for s in searched]))

    best = max(strengths, key=score)
    images, found = [], []
    for sample in (*crops, *wholes):
        began = time.perf_counter()
        images.append(filtered(sample.noisy, best))
        found.append({"s": time.perf_counter() - began, "strength": best})
    return _result(images, [*crops, *wholes], len(crops), found)


# ---------------------------------------------------------------------- the report


@dataclass(frozen=True)
class Counts:
    """Photographs there were: learned from, cleaned, searched on, and those kernel BP fits its settings on."""

    train: int
    test: int
    searched: int
    calibrated: int


def _report(
    study: Study,
    sizes: Sizes,
    counts: Counts,
    entrants: Sequence[Chosen],
    results: Mapping[str, Result],
) -> Report:
    from kernelbp.figures.reproduction_denoising import photographs

    def average(name: str, part: str, column: str) -> float | None:
        """None, too, if one photograph was not answered: means are of the same ones for all."""
        found = [row.get(column) for row in results[name].rows if row["part"] == part]
        values = [float(value) for value in found if value is not None]
        return float(np.mean(values)) if found and len(values) == len(found) else None

    by_name = {entrant.name: entrant for entrant in entrants}
    rows: list[Row] = []
    for name, result in results.items():
        entrant = by_name.get(name)
        strength = result.rows[0].get("strength")
        settled = [row.get("converged") for row in result.rows]
        rows.append(
            {
                "method": name if entrant is None else entrant.method.name,
                "settings": ("best on training photographs" if name in STRENGTHS else None)
                if entrant is None
                else entrant.kind,
                "PSNR middle": average(name, "crop", "PSNR"),
                "PSNR whole": average(name, "whole", "PSNR"),
                "s middle": average(name, "crop", "s"),
                "s whole": average(name, "whole", "s"),
                "settled": None if entrant is None else f"{sum(map(bool, settled))} of {len(settled)}",
                "options": (f"strength {strength}" if name in STRENGTHS else "")
                if entrant is None
                else f"{written(entrant.options)}; {entrant.estimate}",
            }
        )
    names = ["noisy", VARIATION, MEANS, *by_name]
    each: list[Row] = [
        {
            "method": name,
            "part": part,
            **{str(row["photo"]): row["PSNR"] for row in results[name].rows if row["part"] == part},
        }
        for part in ("crop", "whole")
        for name in names
        if any(row["part"] == part for row in results[name].rows)
    ]
    shown = min(2, counts.test)
    columns = _columns(results, by_name)
    pictures = [
        (
            f"photograph {i + 1}",
            [
                ("clean", results["noisy"].arrays[f"clean {i}"]),
                *(
                    (f"{label}\n{_of(results[name], i):.1f} dB", results[name].arrays[f"crop {i}"])
                    for label, name in columns
                ),
            ],
        )
        for i in range(shown)
    ]
    at_most = f"{MOST_SIDE} x {MOST_SIDE}"
    return Report(
        title="Denoising photographs: kernel BP beside its rivals and two filters",
        lead=(
            f"The denoising experiment on photographs: {counts.test} of them get Gaussian noise of sigma {NOISE:g} and are cleaned by "
            f"belief propagation on the grid of pixels. The relation of neighbouring pixels is learned from {counts.train} other "
            "photographs; the rivals are told the true likelihood of a reading, kernel BP learns it. All methods clean the "
            f"middle {sizes.crop} x {sizes.crop} pixels, the faster ones whole photographs too; of photographs larger than "
            f"{at_most} only the middle {at_most} is used, to learn from and to clean. The best found "
            "settings of rivals, the strengths of the two filters and whether a method's mean or mode is taken are chosen on "
            f"{_counted(counts.searched)}. Kernel BP by default fits mixing, edge weights, when to stop and the temperature "
            f"of its beliefs on parts of {_counted(counts.calibrated)} and, where it is best to stop, refines its tables there; 'pairs only' does without and runs until messages settle."
        ),
        tables=[
            Table(
                "photographs",
                f"PSNR in dB and seconds, sigma {NOISE:g}, means over {counts.test} photographs",
                rows,
                "One noise draw for each photograph. Seconds: of one image, by the clock, every method on as many threads "
                "as it uses, learning not counted.",
            ),
            Table("each", "PSNR in dB of each photograph (crop: its middle)", each),
        ],
        pictures=[
            Picture(
                "photographs",
                photographs(pictures),
                f"Middles of photographs, {sizes.crop} x {sizes.crop} pixels, cleaned; PSNR above each. Rivals with the better "
                "of their two settings on training photographs.",
            )
        ],
        claims=_claims(by_name, average),
        settings={
            "learned from": f"{counts.train} photographs",
            "tested on": f"{counts.test} photographs",
            "used of each photograph": f"the middle {at_most} at most",
            "sigma": NOISE,
            "seed": study.options.seed,
            "levels of discrete BP": sizes.levels,
            "pairs learned from": f"{sizes.pairs:,} at most, evenly from all; a relation per direction: "
            f"{sizes.directed:,} at most in each",
            "readings learned from": f"{sizes.pairs:,} at most, evenly from all",
            "pairs learned by Gaussian-mixture and particle BP": f"{sizes.most_pairs:,} at most, evenly from all",
            "settings searched on": f"the middle {sizes.crop} x {sizes.crop} of {_counted(counts.searched)}",
            "kernel BP's own settings fitted on": f"parts of {_counted(counts.calibrated)}",
        },
    )


def _counted(photographs: int) -> str:
    return "one training photograph" if photographs == 1 else f"{photographs} training photographs"


def _of(result: Result, photo: int) -> float:
    return float(result.rows[photo]["PSNR"] or 0.0)


def _columns(results: Mapping[str, Result], by_name: Mapping[str, Chosen]) -> list[tuple[str, str]]:
    """What is drawn: of each rival the settings with the smaller error where they were searched, ours as they are."""
    best: dict[str, Chosen] = {}
    for entrant in by_name.values():
        name = entrant.method.name
        if entrant.kind == "pairs only":
            continue
        if name not in best or entrant.error < best[name].error:
            best[name] = entrant
    shown = [(name, name) for name in ("noisy", VARIATION, MEANS)]
    short = {DIRECTIONAL: "kernel BP, by direction"}
    return shown + [(short.get(name, name), entrant.name) for name, entrant in best.items()]


def _claims(
    by_name: Mapping[str, Chosen],
    average: Callable[[str, str, str], float | None],
) -> list[Claim]:
    """Kernel BP against every rival of the table, each with its better settings, on all that both have cleaned."""
    rivals: dict[str, list[str]] = {}
    for name, entrant in by_name.items():
        if "kernel BP" not in entrant.method.name:
            rivals.setdefault(entrant.method.name, []).append(name)
    rivals |= {name: [name] for name in (VARIATION, MEANS)}
    claims = []
    for ours in ("kernel BP, default", f"{DIRECTIONAL}, default"):
        for rival, names in rivals.items():
            measured, above = [], []
            for part, called in (("crop", "middles"), ("whole", "whole")):
                theirs = [value for name in names if (value := average(name, part, "PSNR")) is not None]
                mine = average(ours, part, "PSNR")
                if theirs:
                    shown = "no answer" if mine is None else f"{mine:.2f} dB"
                    measured.append(f"{called} {shown} against {max(theirs):.2f}")
                    above.append(mine is not None and mine > max(theirs))
            claims.append(
                Claim(
                    f"{ours}: PSNR above that of {rival}" + (", both settings" if len(names) > 1 else ""),
                    "; ".join(measured),
                    "above",
                    bool(above) and all(above),
                )
            )
    return claims
