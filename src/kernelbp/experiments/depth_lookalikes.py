"""Patches of training images that look like a patch: neighbours of it whose depth is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import DEPTH_FEATURES
from kernelbp.experiments.depth_scenes import Fold, Scene, inner_parts, scored
from kernelbp.experiments.study import Result

__all__ = ["ALIKE", "ALIKE_WORDS", "NEAR", "Looks", "Patches", "find_look_alikes"]

ALIKE = "look-alikes"
NEAR = "near"
"""Of an array's name: how far look-alikes are."""
COUNT = 20
"""Look-alikes of a patch."""
ROW_WEIGHT = 8.0
"""How far apart the top and the bottom of an image are, where features differ by a few in each of many directions."""
LEAST_VARIANCE = 1e-3
"""Of a principal component: what varies less is not blown up."""
USED = 20_000
"""Most patches from which principal components are worked out."""
MOST_SEARCHED = 200_000
"""Patches that are searched, evenly through all."""
ALIKE_WORDS = (
    f"{COUNT}, by the distance of features scaled to unit variance, turned to principal components each divided by the "
    f"fourth root of its variance, and of rows, {ROW_WEIGHT:g} from top to bottom"
)
"""What look-alikes are, in words."""


def find_look_alikes(scenes: Sequence[Scene], fold: Fold) -> Result:
    """The look-alikes of every patch, in training images other than its own.

    Returns
    -------
    Result with a row for each test image (the median of the look-alikes' depths) and for each scene, by its number, their
    log10 depths (rows, columns, look-alikes) and, after the word "near", their median distance (rows, columns)
    """
    arrays: dict[str, NDArray[Any]] = {}
    for part in (*inner_parts(scenes, fold), fold.test):
        known = Patches([scenes[i] for i in fold.train if i not in part])
        for i in part:
            arrays[str(i)], arrays[f"{NEAR} {i}"] = known.alike(scenes[i])
    rows = [scored(f"{ALIKE} alone", ALIKE, scenes[i], np.median(arrays[str(i)], axis=-1)) for i in fold.test]
    return Result(rows, arrays)


class Looks:
    """How patches look, as points whose distance says how unlike they are: features by how they vary in some scenes.

    Parameters
    ----------
    scenes : of one shape
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        features = np.concatenate([scene.features().reshape(-1, DEPTH_FEATURES) for scene in scenes])
        self._centre = features.mean(axis=0)
        self._scale = np.maximum(features.std(axis=0), 1e-6)
        used = (features[:: -(-len(features) // USED)] - self._centre) / self._scale
        variances, directions = np.linalg.eigh(np.cov(used.T))
        self._turn = (directions * np.maximum(variances, LEAST_VARIANCE) ** -0.25).astype(np.float32)

    def of(self, scene: Scene) -> NDArray[np.float32]:
        """All patches of a scene, (n, DEPTH_FEATURES + 1)."""
        features = (scene.features().reshape(-1, DEPTH_FEATURES) - self._centre) / self._scale
        rows, columns = scene.depth.shape
        height = np.repeat(np.linspace(0.0, ROW_WEIGHT, rows, dtype=np.float32), columns)
        return np.column_stack([features.astype(np.float32) @ self._turn, height])


class Patches:
    """All patches of some scenes whose depth is known, to be searched by what they look like.

    Parameters
    ----------
    scenes : of one shape
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        from sklearn.neighbors import NearestNeighbors

        self._looks = Looks(scenes)
        depths = np.concatenate([scene.depth.ravel() for scene in scenes])
        known = np.flatnonzero(np.isfinite(depths))
        known = known[:: max(-(-len(known) // MOST_SEARCHED), 1)]
        self._depths = depths[known].astype(np.float32)
        points = np.concatenate([self._looks.of(scene) for scene in scenes])[known]
        self._search = NearestNeighbors(n_neighbors=min(COUNT, len(points)), algorithm="brute").fit(points)

    def alike(self, scene: Scene) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Log10 depths (rows, columns, look-alikes) of the patches nearest to each of a scene, and their median distance."""
        distances, nearest = self._search.kneighbors(self._looks.of(scene))
        found: NDArray[np.float32] = self._depths[nearest].reshape(*scene.depth.shape, -1)
        return found, np.median(distances, axis=1).reshape(scene.depth.shape).astype(np.float32)
