"""Frames that follow each other in time: patches are seen again, and their depths are tied across frames.

Where images are frames of a film, each patch of a frame is tied to the patch of the frame before that looks most like it, by
relations that are learned from training frames as those within a frame are. Test frames are then inferred together, and the
last training frame, whose depth is known, speaks to the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.depth_lookalikes import Looks
from kernelbp.experiments.depth_model import Again, grained
from kernelbp.experiments.depth_scenes import Fold, Scene, middle, middle_columns
from kernelbp.experiments.study import Result

__all__ = ["TIES_WORDS", "Clip", "Ties", "find_ties"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

REACH = 8
"""Rows and columns of patches by which a patch may have moved from one frame to the next."""
LONGEST_STEP = 1.5
"""Frames farther apart in time than this many times the usual do not follow each other: some are missing between them."""
LEAST_TIES = 500
"""Pairs of patches a relation between frames is learned from; those of bands that fewer tie are left out."""
TIES_WORDS = f"the patch of the frame before that looks most like it, at most {REACH} rows and columns away"
"""What a patch is tied to, in words."""


@dataclass(frozen=True)
class Clip:
    """Scenes that are inferred together.

    Attributes
    ----------
    images : their numbers, in order
    before : number of the frame before them, if its depth is known
    """

    images: tuple[int, ...]
    before: int | None = None

    @property
    def frames(self) -> tuple[int, ...]:
        """All scenes of the graph."""
        return self.images if self.before is None else (self.before, *self.images)


@dataclass(frozen=True, eq=False)
class Ties:
    """Which patch of the frame before each patch shows again.

    Attributes
    ----------
    before : by frame, (rows, columns) numbers of patches of the frame before it; empty where images are no film
    """

    before: Mapping[int, Indices]

    def clips(self, images: Sequence[int], known: Sequence[int], *, tied: bool = True) -> list[Clip]:
        """Frames that follow each other together, with the known one before them; else each image by itself."""
        if not tied or not self.before:
            return [Clip((i,)) for i in images]
        runs: list[list[int]] = []
        for i in images:
            if runs and runs[-1][-1] == i - 1 and i in self.before:
                runs[-1].append(i)
            else:
                runs.append([i])
        return [
            Clip(tuple(run), run[0] - 1 if run[0] in self.before and run[0] - 1 in known else None)
            for run in runs
        ]

    def pairs(self, bands: Indices, scenes: Sequence[Scene], known: Sequence[int]) -> Again:
        """Depths of patches and of those they are tied to, by the bands of both, where there are enough."""
        found: dict[tuple[int, int], list[tuple[Matrix, Matrix]]] = {}
        for i in known:
            if i not in self.before or i - 1 not in known:
                continue
            columns = scenes[i].depth.shape[1]
            here, there = np.repeat(bands, columns), bands[self.before[i].ravel() // columns]
            first, second = scenes[i].depth.ravel(), scenes[i - 1].depth.ravel()[self.before[i].ravel()]
            both = np.isfinite(first) & np.isfinite(second)
            for a, b in np.unique(np.stack([here, there])[:, both], axis=1).T.tolist():
                mine = both & (here == a) & (there == b)
                found.setdefault((a, b), []).append((grained(first[mine]), grained(second[mine])))
        joined = {
            key: (np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]))
            for key, parts in sorted(found.items())
        }
        return {key: pairs for key, pairs in joined.items() if len(pairs[0]) >= LEAST_TIES}

    def links(self, clip: Clip, part: int) -> list[Indices]:
        """For each frame but the first, or its middle, the node tied to each patch in the frame before; -1 where there is none."""
        made = []
        for i in clip.frames[1:]:
            whole = self.before[i]
            kept = middle_columns(whole, part)
            rows, columns = np.divmod(kept.ravel(), whole.shape[1])
            columns = columns - middle(whole.shape[1], part).start
            inside = (columns >= 0) & (columns < kept.shape[1])
            made.append(np.where(inside, rows * kept.shape[1] + columns, -1).astype(np.intp))
        return made


def find_ties(scenes: Sequence[Scene], fold: Fold) -> Result:
    """For every frame of a fold that follows another: the patch of that other that each of its patches shows again.

    Where frames between two are missing, the later one follows none.

    Returns
    -------
    Result with no rows and, by the frame's number, (rows, columns) numbers of patches
    """
    looks = Looks([scenes[i] for i in fold.train])
    used = sorted((*fold.train, *fold.test))
    times = [i if scene.time is None else scene.time for i, scene in enumerate(scenes)]
    usual = np.median(np.diff(times))
    after = {i + 1 for i in used}
    follows = [i for i in used if i in after and times[i] - times[i - 1] < LONGEST_STEP * usual]
    points = {i: looks.of(scenes[i]).reshape(*scenes[i].depth.shape, -1) for i in used}
    return Result([], {str(i): _most_alike(points[i], points[i - 1]) for i in follows})


def _most_alike(here: NDArray[np.float32], before: NDArray[np.float32]) -> NDArray[np.int32]:
    """Of points (rows, columns, features), the number of the nearest in the other frame, within reach."""
    rows, columns = here.shape[:2]
    least = np.full((rows, columns), np.inf, dtype=np.float32)
    found = np.zeros((rows, columns), dtype=np.int32)
    numbers = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    for down in range(-min(REACH, rows - 1), min(REACH, rows - 1) + 1):
        for right in range(-min(REACH, columns - 1), min(REACH, columns - 1) + 1):
            own = np.s_[max(0, -down) : rows - max(0, down), max(0, -right) : columns - max(0, right)]
            other = np.s_[max(0, down) : rows - max(0, -down), max(0, right) : columns - max(0, -right)]
            apart = here[own] - before[other]
            distance = np.einsum("ijk,ijk->ij", apart, apart)
            nearer = distance < least[own]
            least[own] = np.where(nearer, distance, least[own])
            found[own] = np.where(nearer, numbers[other], found[own])
    return found
