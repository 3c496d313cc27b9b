"""Frames that follow each other in time: patches are seen again, and their depths are tied across frames.

Where images are frames of a film, each patch of a frame is tied to the patch of the frame before that it came from, by the
motion of brightness between the two (optical flow, TV-L1). Relations between frames are learned from training frames as those
within a frame are. Test frames are then inferred together, and the last training frame, whose depth is known, speaks to the
first of them.

What shrinks from one frame to the next recedes. How much is learned from training frames, too: pairs of patches seen again are
moved to what they would be had the scene receded as between the two frames that are tied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.depth_model import Again, Link, grained
from kernelbp.experiments.depth_scenes import Fold, Scene, middle, middle_columns
from kernelbp.experiments.study import Result
from kernelbp.extras import extra_library

__all__ = ["TIES_WORDS", "Clip", "Motion", "Ties", "find_ties", "motion_of", "shrinking"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

FLOW_ROWS = 96
"""Rows of pixels at which motion is worked out."""
LONGEST_STEP = 1.5
"""Frames farther apart in time than this many times the usual do not follow each other: some are missing between them."""
LEAST_TIES = 500
"""Pairs of patches a relation between frames is learned from; those of bands that fewer tie are left out."""
STEP = 0.004
"""Of log10 depth (1%), by which scenes recede in whole numbers: each number needs relations of its own."""
TIES_WORDS = (
    f"the patch of the frame before that it came from, by optical flow (TV-L1 at {FLOW_ROWS} rows of pixels), in steps of "
    f"{STEP:g} of log10 depth as things shrink"
)
"""What a patch is tied to, in words."""
SHRUNK = "shrunk"
"""Of an array's name: how much smaller things look than in the frame before."""
FAR = 0.03
"""Of an image's width: a motion of this much is half trusted to be sideways, and shrinking is measured across it then."""
LEAST_SEEN = 0.1
"""Of an image: where less is seen again, nothing is said of how it shrank."""
ROUNDS, SMALLEST = 15, 1e-3
"""Of weighted least squares that come to least absolute residuals, those of this much of an image's width at least."""


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
class Motion:
    """From a frame to the one before it.

    Attributes
    ----------
    source : (rows, columns) number of the patch there that the middle of each patch came from; -1 if it was not in view
    shrunk : log10 of how much larger things looked there
    """

    source: Indices
    shrunk: float = 0.0


@dataclass(frozen=True, eq=False)
class Ties:
    """Which patch of the frame before each patch shows again.

    Attributes
    ----------
    before : by frame; empty where images are no film
    """

    before: Mapping[int, Motion]

    @classmethod
    def of(cls, found: Result) -> Ties:
        """What `find_ties` has found."""
        frames = [int(name) for name in found.arrays if not name.startswith(SHRUNK)]
        return cls(
            {
                i: Motion(
                    np.asarray(found.arrays[str(i)], dtype=np.intp), float(found.arrays[f"{SHRUNK} {i}"])
                )
                for i in frames
            }
        )

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

    def taught(self, bands: Indices, scenes: Sequence[Scene], known: Sequence[int]) -> Again:
        """Depths of patches and of those they are tied to, by the bands of both, where there are enough.

        A pair of frames that receded by some number of steps is moved to what it would be at every other number needed.
        """
        mine = [i for i in known if i in self.before and i - 1 in known]
        ends = {i: (scenes[i].depth.ravel(), self._of_before(scenes, i)) for i in mine}
        share = _share(
            [
                (self.before[i].shrunk, float(np.median(step[np.isfinite(step)])))
                for i, (first, second) in ends.items()
                if np.isfinite(step := first - second).any()
            ]
        )
        recedes = {i: share * motion.shrunk for i, motion in self.before.items()}
        steps = {i: round(by / STEP) for i, by in recedes.items()}
        found: dict[tuple[int, int], list[tuple[Matrix, Matrix]]] = {}
        for i, (first, second) in ends.items():
            columns, source = scenes[i].depth.shape[1], self.before[i].source.ravel()
            here, there = np.repeat(bands, columns), bands[source // columns]
            both = np.isfinite(first) & np.isfinite(second)
            for a, b in np.unique(np.stack([here, there])[:, both], axis=1).T.tolist():
                chosen = both & (here == a) & (there == b)
                found.setdefault((a, b), []).append((first[chosen], second[chosen] + recedes[i]))
        needed = sorted({step for i, step in steps.items() if i not in mine})
        pairs: dict[tuple[int, int, int], tuple[Matrix, Matrix]] = {}
        for (a, b), parts in sorted(found.items()):
            first, second = (np.concatenate(side) for side in zip(*parts, strict=True))
            if len(first) >= LEAST_TIES:
                pairs |= {(a, b, step): (grained(first), grained(second - step * STEP)) for step in needed}
        return Again(pairs, steps)

    def _of_before(self, scenes: Sequence[Scene], frame: int) -> Matrix:
        """Depth of the patch of the frame before that each was; NaN where it was not in view."""
        source = self.before[frame].source.ravel()
        return np.where(source >= 0, scenes[frame - 1].depth.ravel()[source], np.nan)

    def links(self, clip: Clip, part: int, again: Again) -> list[Link]:
        """For each frame but the first, or its middle, the node tied to each patch in the frame before; -1 where there is none."""
        made = []
        for i in clip.frames[1:]:
            whole = self.before[i].source
            kept = middle_columns(whole, part)
            rows, columns = np.divmod(kept.ravel(), whole.shape[1])
            columns = columns - middle(whole.shape[1], part).start
            inside = (kept.ravel() >= 0) & (columns >= 0) & (columns < kept.shape[1])
            nodes = np.where(inside, rows * kept.shape[1] + columns, -1).astype(np.intp)
            made.append(Link(nodes, again.steps[i]))
        return made


def _share(pairs: Sequence[tuple[float, float]]) -> float:
    """How much scenes recede by how much things shrink: a line through the origin, between none of it and all."""
    squares = sum(shrunk**2 for shrunk, _ in pairs)
    slope = sum(shrunk * receded for shrunk, receded in pairs) / squares if squares > 0 else 0.0
    # What shrinks by a tenth is a tenth farther: where little moves in training, noise could say anything else.
    return min(max(slope, 0.0), 1.0)


def find_ties(scenes: Sequence[Scene], fold: Fold) -> Result:
    """For every frame of a fold that follows another: the patch of that other that each of its patches shows again.

    Where frames between two are missing, the later one follows none.

    Returns
    -------
    Result with no rows and, by the frame's number, (rows, columns) numbers of patches, -1 where a patch was not in view, and,
    after the word "shrunk", the log10 of how much larger things looked in the other frame
    """
    used = sorted((*fold.train, *fold.test))
    times = [i if scene.time is None else scene.time for i, scene in enumerate(scenes)]
    usual = np.median(np.diff(times))
    after = {i + 1 for i in used}
    follows = [i for i in used if i in after and times[i] - times[i - 1] < LONGEST_STEP * usual]
    arrays: dict[str, NDArray[Any]] = {}
    for i in follows:
        motion = motion_of(scenes[i].image, scenes[i - 1].image, scenes[i].depth.shape)
        arrays[str(i)], arrays[f"{SHRUNK} {i}"] = motion.source.astype(np.int32), np.array(motion.shrunk)
    return Result([], arrays)


def motion_of(here: NDArray[np.uint8], before: NDArray[np.uint8], shape: tuple[int, ...]) -> Motion:
    """Where the patches of an image were in another, taken a little earlier, and how much larger things looked there.

    Parameters
    ----------
    here, before : (height, width, 3)
    shape : (rows, columns) of patches
    """
    registration = extra_library("skimage.registration", "images", "ties between frames")
    later, earlier = (_brightness(image, here.shape) for image in (here, before))
    motion = registration.optical_flow_tvl1(later, earlier)
    places = []
    for axis, patches in enumerate(shape):
        pixels = later.shape[axis]
        middle_of_patch = (np.arange(patches) + 0.5) / patches
        places.append((middle_of_patch, (middle_of_patch * pixels).astype(np.intp), pixels / patches))
    at = np.ix_(places[0][1], places[1][1])
    row, column = (
        np.floor(np.expand_dims(middles, 1 - axis) * shape[axis] + motion[axis][at] / size).astype(np.intp)
        for axis, (middles, _, size) in enumerate(places)
    )
    inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
    return Motion(np.where(inside, row * shape[1] + column, -1), shrinking(motion))


def shrinking(motion: Matrix) -> float:
    """How much larger things looked in another image, log10, by the motion to it of what both show.

    An affine map is fitted, by least absolute residuals. Where things move sideways, those that are nearer move more: what is
    slanted is stretched along its motion, whether it recedes or not. Across the motion it is not.

    Parameters
    ----------
    motion : (2, height, width), downwards and to the right, in pixels
    """
    height, width = motion.shape[1:]
    rows, columns = np.mgrid[:height, :width]
    seen = (rows + motion[0] >= 0) & (rows + motion[0] < height)
    seen &= (columns + motion[1] >= 0) & (columns + motion[1] < width)
    if seen.sum() < LEAST_SEEN * seen.size:
        return 0.0
    places = np.stack([rows[seen] - (height - 1) / 2, columns[seen] - (width - 1) / 2], axis=1) / width
    known = np.column_stack([np.ones(len(places)), places])
    moved = motion[:, seen].T / width
    weights = np.ones(len(places))
    for _ in range(ROUNDS):
        # (3, 2): of the middle, by row, by column.
        affine = np.linalg.lstsq(known * weights[:, None], moved * weights[:, None], rcond=None)[0]
        weights = np.maximum(np.linalg.norm(moved - known @ affine, axis=1), SMALLEST) ** -0.5
    sideways, stretch = affine[0], affine[1:]
    across = np.array([-sideways[1], sideways[0]])
    trust = 1 / (sideways @ sideways + FAR**2)
    larger = across @ stretch @ across * trust + FAR**2 * trust * np.trace(stretch) / 2
    return float(np.log10(max(1 + larger, SMALLEST)))


def _brightness(image: NDArray[np.uint8], shape: tuple[int, ...]) -> Matrix:
    """From 0 to 1, (rows, columns), at `FLOW_ROWS` rows, with the sides of an image of this shape."""
    transform = extra_library("skimage.transform", "images", "ties between frames")
    rows = min(FLOW_ROWS, shape[0])
    gray = image.mean(axis=2) / 255
    small: Matrix = transform.resize(gray, (rows, max(shape[1] * rows // shape[0], 1)), anti_aliasing=True)
    return small
