"""What is said of the depth of patches, by predictors and by look-alikes, and what it is worth as evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from kernelbp.errors import InputError
from kernelbp.experiments.depth_lookalikes import ALIKE
from kernelbp.experiments.depth_predictors import combined
from kernelbp.experiments.depth_scenes import Fold, Scene, middle_columns
from kernelbp.experiments.study import Result

__all__ = [
    "AS_SEEN",
    "CHOICES",
    "COUNTS",
    "FILM_CHOICES",
    "LIKELIHOODS",
    "POINTS",
    "POWERS",
    "RELATIONS",
    "TOGETHER",
    "Evidence",
    "Said",
    "Weighing",
    "best_of",
]

Matrix = NDArray[np.float64]

TOGETHER = "all three"
"""Evidence from a weighted mean of what the three estimators say."""
POINTS = 48
"""Depths at which evidence is handed on."""
LIKELIHOODS = ("Laplace", "as counted")
"""Of a word: around it, or how often it was said where depth is known."""
AS_SEEN = "as seen"
RELATIONS = (AS_SEEN, "from anywhere")
"""Of neighbouring depths: learned from scenes as they were seen, or as if they had been seen from nearer and farther, too."""
SMOOTHED = 0.5
"""Counts are smoothed over this much of a word's average error."""
UNFORESEEN = 0.02
"""Counts of words that have nothing to do with depth, to all counts: where depth is seldom seen, no word is surprising."""
CLASSES = 8
"""Of patches by how near their look-alikes are, each with likelihoods of its own, where images are a film: what was seen before
is known much better there than what was not."""
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
    near : by scene, how far those are (rows, columns); None where likelihoods do not depend on it
    """

    alone: Mapping[str, Mapping[int, Matrix]]
    pooled: Mapping[str, Mapping[int, Matrix]]
    alike: Mapping[int, Matrix]
    near: Mapping[int, Matrix] | None = None

    @classmethod
    def of(
        cls,
        scenes: Sequence[Scene],
        fold: Fold,
        words: Mapping[str, Mapping[int, Matrix]],
        alike: Mapping[int, Matrix],
        near: Mapping[int, Matrix] | None = None,
    ) -> Said:
        """What predictors say, each and all together, without and with the look-alikes."""
        middle = {ALIKE: {i: np.median(found, axis=-1) for i, found in alike.items()}}
        groups = {**{kind: {kind: word} for kind, word in words.items()}, TOGETHER: dict(words)}
        return cls(
            {kind: combined(scenes, fold, group) for kind, group in groups.items()},
            {kind: combined(scenes, fold, group | middle) for kind, group in groups.items()},
            alike,
            near,
        )


@dataclass(frozen=True)
class Weighing:
    """How what is said of a patch is made evidence.

    Attributes
    ----------
    power : the evidence is raised to it
    count : what look-alikes count beside the word that is averaged with them, once more; None: they are not heard at all
    likelihood : of the word, one of `LIKELIHOODS`
    relations : of neighbouring depths, one of `RELATIONS`
    """

    power: float
    count: float | None
    likelihood: str
    relations: str = AS_SEEN

    def __post_init__(self) -> None:
        if self.likelihood not in LIKELIHOODS:
            raise InputError(f"likelihood: expected one of {', '.join(LIKELIHOODS)}, got {self.likelihood!r}")
        if self.relations not in RELATIONS:
            raise InputError(f"relations: expected one of {', '.join(RELATIONS)}, got {self.relations!r}")

    def __str__(self) -> str:
        heard = "not heard" if self.count is None else f"pooled and {self.count:g}"
        related = "" if self.relations == AS_SEEN else f", relations {self.relations}"
        return f"power {self.power:g}, {ALIKE} {heard}, likelihood {self.likelihood}{related}"


POWERS = (3.0, 1.0, 0.3, 0.1)
COUNTS = (None, 0.0, 0.3, 1.0, 3.0)
CHOICES = tuple(Weighing(*choice) for choice in product(POWERS, COUNTS, LIKELIHOODS))
"""Ways to weigh the evidence, tried on training images: powers, counts of look-alikes (None: not heard), likelihoods."""
FILM_POWERS, FILM_COUNTS = (1.0, 0.3, 0.1), (None, 0.0, 0.3, 1.0)
FILM_CHOICES = tuple(
    Weighing(*choice) for choice in product(FILM_POWERS, FILM_COUNTS, LIKELIHOODS, RELATIONS)
)
"""Likewise of a film, where they take longer to try, and what is tested may be nearer or farther than all that was trained on."""


class Evidence:
    """Log-likelihoods of depth from what is said, worth what it is on known scenes.

    What is said of them comes from predictors that were not trained on them. The likelihood of a word is Laplace's around it,
    with its average error on these scenes as scale, or how often that word was said there of patches at each depth. Where `said`
    knows how near look-alikes are, a word averaged with them, and the look-alikes' own, has a likelihood for each class of nearness.

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
        depths = np.concatenate([scenes[i].depth.ravel() for i in known])
        self.points: Matrix = np.linspace(float(np.nanmin(depths)), float(np.nanmax(depths)), POINTS)
        self._edges = np.empty(0)
        if said.near is not None:
            near = np.concatenate([said.near[i].ravel() for i in known])[np.isfinite(depths)]
            # Each is the nearness of a known patch, so no class is without one.
            edges = np.unique(np.quantile(near, np.arange(1, CLASSES) / CLASSES, method="higher"))
            self._edges = edges[edges < near.max()]
        classes = np.concatenate([self._classes(i) for i in known])
        voices = np.concatenate([said.alike[i].reshape(scenes[i].depth.size, -1) for i in known])
        self._alike_scales = _scales(voices, depths[:, None], classes)
        self._scales: dict[tuple[str, bool], Matrix] = {}
        self._tables: dict[tuple[str, bool], Matrix] = {}
        for heard, words in ((False, said.alone), (True, said.pooled)):
            mine = classes if heard else np.zeros_like(classes)
            for kind, word in words.items():
                flat = np.concatenate([word[i].ravel() for i in known])
                scales = _scales(flat, depths, mine)
                self._scales[kind, heard] = scales
                self._tables[kind, heard] = np.stack(
                    [
                        self._counted(flat[mine == k], depths[mine == k], scale)
                        for k, scale in enumerate(scales)
                    ]
                )

    def of(self, scene: int, part: int = 1) -> Callable[[str, Weighing], Matrix]:
        """Evidence of one scene, or of its middle, as a function of whose word it is and how it is weighed.

        Parameters
        ----------
        scene : its number
        part : only one of this many columns of the scene, in the middle

        Returns
        -------
        function of a kind of predictor and a `Weighing` with the log-likelihoods (nodes, points)
        """
        classes = self._classes(scene, part)
        alike = self._laplace(middle_columns(self._said.alike[scene], part), self._alike_scales[classes])

        def logs(kind: str, weighing: Weighing) -> Matrix:
            heard = weighing.count is not None
            word = middle_columns((self._said.pooled if heard else self._said.alone)[kind][scene], part)
            mine = classes if heard else np.zeros_like(classes)
            found = (
                self._laplace(word, self._scales[kind, heard][mine])
                if weighing.likelihood == "Laplace"
                else self._as_counted(word, self._tables[kind, heard], mine)
            )
            return weighing.power * (found + (weighing.count or 0.0) * alike)

        return logs

    def of_known(self, depths: Matrix) -> Matrix:
        """Log-likelihoods (nodes, points) of patches (rows, columns) whose depth is known; nothing is said where it is not."""
        logs = self._laplace(depths, np.full(depths.size, LEAST_SCALE))
        return np.where(np.isfinite(depths).reshape(-1, 1), logs, 0.0)

    def _classes(self, scene: int, part: int = 1) -> NDArray[np.intp]:
        """Of each patch (nodes,), by how near its look-alikes are."""
        if self._said.near is None:
            return np.zeros(middle_columns(self._said.alike[scene][..., 0], part).size, dtype=np.intp)
        return np.searchsorted(self._edges, middle_columns(self._said.near[scene], part).ravel())

    def _laplace(self, said: Matrix, scales: Matrix) -> Matrix:
        """Around depths (rows, columns), or many voices (rows, columns, voices), which together count as much as one."""
        voices = said.reshape(said.shape[0] * said.shape[1], -1).T
        logs = np.zeros((voices.shape[1], POINTS))
        for one in voices:
            logs -= np.abs(self.points - one[:, None])
        return logs / (scales[:, None] * len(voices))

    def _counted(self, word: Matrix, depths: Matrix, scale: float) -> Matrix:
        """Log-probability (depths, words) of a word at each depth, both at `points`: counts, smoothed."""
        known = np.isfinite(depths)
        step = float(self.points[1] - self.points[0])
        edges = np.append(self.points - step / 2, self.points[-1] + step / 2)
        inside = np.clip(word[known], self.points[0], self.points[-1])
        counts = np.histogram2d(depths[known], inside, [edges, edges])[0]
        smooth = gaussian_filter(counts, SMOOTHED * scale / step) + UNFORESEEN * counts.mean()
        logs: Matrix = np.log(smooth / smooth.sum(axis=1, keepdims=True))
        return logs

    def _as_counted(self, said: Matrix, tables: Matrix, classes: NDArray[np.intp]) -> Matrix:
        """Log-likelihoods (nodes, points) of words in the tables of their classes, between two words on a line."""
        step = self.points[1] - self.points[0]
        place = np.clip((said.ravel() - self.points[0]) / step, 0, POINTS - 1)
        before = np.minimum(place.astype(np.intp), POINTS - 2)
        share = (place - before)[:, None]
        logs: Matrix = (1 - share) * tables[classes, :, before] + share * tables[classes, :, before + 1]
        return logs


def best_of(
    tuned: Result, kind: str, *, alike: bool = True, power: float | None = None, relations: str | None = None
) -> Weighing:
    """What had the least error on training images; without look-alikes, of one power or kind of relations, if asked."""
    rows = [
        row
        for row in tuned.rows
        if row["evidence"] == kind
        and (alike or row["look-alikes count"] is None)
        and power in (None, row["power"])
        and relations in (None, row["relations"])
    ]
    best = min(rows, key=lambda row: np.inf if row["MAE"] is None else float(row["MAE"]))
    count = best["look-alikes count"]
    return Weighing(
        float(best["power"] or 0),
        None if count is None else float(count),
        str(best["likelihood"]),
        str(best["relations"]),
    )


def _scales(said: Matrix, depths: Matrix, classes: NDArray[np.intp]) -> Matrix:
    """The average error of what is said, (classes,)."""
    errors = np.abs(said - depths)
    return np.array(
        [max(float(np.nanmean(errors[classes == k])), LEAST_SCALE) for k in range(int(classes.max()) + 1)]
    )
