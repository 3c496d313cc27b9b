"""What is said of the depth of patches, by predictors and by look-alikes, and what it is worth as evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.depth_lookalikes import ALIKE
from kernelbp.experiments.depth_predictors import combined
from kernelbp.experiments.depth_scenes import Fold, Scene, middle_columns
from kernelbp.experiments.study import Result

__all__ = ["POINTS", "TOGETHER", "Evidence", "Said", "best_of", "in_words"]

Matrix = NDArray[np.float64]

TOGETHER = "all three"
"""Evidence from a weighted mean of what the three estimators say."""
POINTS = 48
"""Depths at which evidence is handed on."""
LEAST_SCALE = 0.01
"""Of a likelihood, in log10 depth: nobody is believed to be nearer than this (2%)."""


@dataclass(frozen=True, eq=False)
class Said:
    """What is said of every scene of a fold.

    Attributes
    ----------
    alone : by predictor and scene, (rows, columns) log10 depths
    pooled : likewise, in that weighted mean with the look-alikes' median that is best on training images
    alike : by scene, depths of the look-alikes (rows, columns, look-alikes)
    """

    alone: Mapping[str, Mapping[int, Matrix]]
    pooled: Mapping[str, Mapping[int, Matrix]]
    alike: Mapping[int, Matrix]

    @classmethod
    def of(
        cls,
        scenes: Sequence[Scene],
        fold: Fold,
        words: Mapping[str, Mapping[int, Matrix]],
        alike: Mapping[int, Matrix],
    ) -> Said:
        """What predictors say, each and all together, without and with the look-alikes."""
        middle = {ALIKE: {i: np.median(found, axis=-1) for i, found in alike.items()}}
        groups = {**{kind: {kind: word} for kind, word in words.items()}, TOGETHER: dict(words)}
        return cls(
            {kind: combined(scenes, fold, group)[1] for kind, group in groups.items()},
            {kind: combined(scenes, fold, group | middle)[1] for kind, group in groups.items()},
            alike,
        )


class Evidence:
    """Log-likelihoods of depth from what is said, worth what it is on known scenes.

    Nobody was trained on these scenes in saying something of them. How far off that is on average is the scale of a
    Laplace likelihood around it.

    Parameters
    ----------
    said : of all scenes
    scenes : of the experiment
    known : numbers of those whose depth may be used

    Attributes
    ----------
    points : depths evenly from the least to the largest of the known scenes, at which evidence is handed on
    """

    def __init__(self, said: Said, scenes: Sequence[Scene], known: Sequence[int]) -> None:
        self._said = said
        mine = [scenes[i] for i in known]
        depths = np.concatenate([scene.depth.ravel() for scene in mine])
        self.points: Matrix = np.linspace(float(np.nanmin(depths)), float(np.nanmax(depths)), POINTS)
        self._scales = [
            {kind: _scale(mine, [word[i] for i in known]) for kind, word in words.items()}
            for words in (said.alone, said.pooled)
        ]
        self._alike = _scale(mine, [said.alike[i] for i in known])

    def logs(self, kind: str, scene: int, share: float | None, part: int = 1) -> Matrix:
        """Log-likelihood (nodes, points) of a scene's patches.

        Parameters
        ----------
        kind : whose word it is
        scene : its number
        share : what look-alikes count beside the word, once more; None: they are not heard at all
        part : only this many columns of the scene's, in the middle
        """
        words, scales = (
            (self._said.alone, self._scales[0]) if share is None else (self._said.pooled, self._scales[1])
        )
        logs = self._around(middle_columns(words[kind][scene], part), scales[kind])
        if share:
            logs += share * self._around(middle_columns(self._said.alike[scene], part), self._alike)
        return logs

    def _around(self, said: Matrix, scale: float) -> Matrix:
        """Of depths (rows, columns), or of many voices (rows, columns, voices), which together count as much as one."""
        voices = said.reshape(said.shape[0] * said.shape[1], -1).T
        logs = np.zeros((voices.shape[1], POINTS))
        for one in voices:
            logs -= np.abs(self.points - one[:, None])
        return logs / (scale * len(voices))


def best_of(tuned: Result, kind: str, *, alike: bool = True) -> tuple[float, float | None]:
    """Power and count of look-alikes with the least error on training images; without look-alikes if asked."""
    rows = [
        row for row in tuned.rows if row["evidence"] == kind and (alike or row["look-alikes count"] is None)
    ]
    best = min(rows, key=lambda row: float(row["MAE"] or 0))
    share = best["look-alikes count"]
    return float(best["power"] or 0), None if share is None else float(share)


def in_words(power: float, share: float | None) -> str:
    """Settings of the evidence, for a table."""
    return f"power {power:g}, {ALIKE} {'not heard' if share is None else f'pooled and {share:g}'}"


def _scale(scenes: Sequence[Scene], said: Sequence[Matrix]) -> float:
    off = [
        np.abs(one.reshape(*scene.depth.shape, -1) - scene.depth[..., None]).ravel()
        for one, scene in zip(said, scenes, strict=True)
    ]
    return max(float(np.nanmean(np.concatenate(off))), LEAST_SCALE)
