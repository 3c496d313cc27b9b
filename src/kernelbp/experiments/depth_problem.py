"""A fold of the depth experiment as a problem of belief propagation: what known scenes teach, and graphs of those asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.depth_evidence import AS_SEEN, Evidence, Said, Weighing
from kernelbp.experiments.depth_model import from_anywhere, grid_of, median_of, pairs_of, parts_of, softened
from kernelbp.experiments.depth_scenes import (
    Fold,
    Scene,
    Sizes,
    error_of,
    judged,
    middle_columns,
    middle_of,
)
from kernelbp.experiments.depth_sequence import Clip, Ties
from kernelbp.graph import Graph
from kernelbp.model import Model, Relation

__all__ = ["Lesson", "Problem"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Problem:
    """What is given of a fold.

    Attributes
    ----------
    scenes : of the experiment, all of them
    fold : which are trained and tested on
    said : of the depth of their patches
    ties : of patches to those of the frame before
    bands : of each row
    sizes : how much is done
    earlier : the same question as it would have been asked earlier, forwards and backwards, where images are a film
    """

    scenes: Sequence[Scene]
    fold: Fold
    said: Said
    ties: Ties
    bands: Indices
    sizes: Sizes
    earlier: Sequence[Problem] = ()

    def jobs(self, most: int) -> list[tuple[Lesson, tuple[int, ...]]]:
        """What settings are chosen on: scenes judged, at most so many, and what known ones teach about them.

        Of a film all scenes of the earlier questions: everything, from the predictors on, is learned from frames before them.
        """
        if self.earlier:
            return [(Lesson(one, one.fold.train), one.fold.test) for one in self.earlier]
        return [(Lesson(self, known), images) for known, images in judged(self.scenes, self.fold, most)]


class Lesson:
    """What scenes whose depth is known teach about the others of a problem.

    Parameters
    ----------
    problem : the fold
    known : numbers of those scenes

    Attributes
    ----------
    evidence : what words are worth
    ties_frames : whether there are relations between frames
    """

    def __init__(self, problem: Problem, known: Sequence[int]) -> None:
        self._problem = problem
        self._known = known
        self._again = problem.ties.taught(problem.bands, problem.scenes, known)
        self._models: dict[str, Model] = {}
        self.ties_frames = bool(self._again.pairs)
        self.evidence = Evidence(problem.said, problem.scenes, known)

    def model(self, relations: str = AS_SEEN) -> Model:
        """Our model with its settings by default, but for the number of states; made once for each kind of relations."""
        if relations not in self._models:
            made = Model(*self.parts(), budget=self._problem.sizes.states)
            self._models[relations] = made.fit(self.pairs(relations))
        return self._models[relations]

    def parts(self, *, tied: bool = True) -> tuple[dict[str, Any], dict[str, Relation]]:
        """Variables and relations of a model, with those between frames or without."""
        return parts_of(self._problem.bands, self._again if tied else None)

    def pairs(self, relations: str = AS_SEEN, *, tied: bool = True) -> dict[str, tuple[Matrix, Matrix]]:
        """Training pairs of these relations, as they were seen or as if from anywhere."""
        scenes = [self._problem.scenes[i] for i in self._known]
        pairs = pairs_of(self._problem.bands, scenes, self._again if tied else None)
        return pairs if relations == AS_SEEN else from_anywhere(pairs, self.evidence.points)

    def clips(self, images: Sequence[int], *, tied: bool = True) -> list[Clip]:
        """What is inferred together: frames that follow each other, or each image by itself."""
        return self._problem.ties.clips(images, self._known, tied=tied)

    def blank(self, clip: Clip, part: int = 1) -> Graph:
        """The graph of a clip, or of the middle of its frames, before anything is said."""
        problem = self._problem
        return grid_of(
            problem.bands, self._shape(clip, part), problem.ties.links(clip, part, self._again), self._again
        )

    def graphs(self, clip: Clip, part: int = 1) -> Callable[[str, Weighing], Graph]:
        """The graph of a clip as a function of whose word is the evidence and how it is weighed.

        Parameters
        ----------
        clip : what is inferred together
        part : only one of this many columns of each scene, in the middle
        """
        blank, scenes = self.blank(clip, part), self._problem.scenes
        logs = [self.evidence.of(i, part) for i in clip.images]
        seen = (
            [self.evidence.of_known(middle_columns(scenes[clip.before].depth, part))]
            if clip.before is not None
            else []
        )

        def graph(kind: str, weighing: Weighing) -> Graph:
            said = np.concatenate(seen + [log(kind, weighing) for log in logs])
            return softened(blank, self.evidence.points, said)

        return graph

    def answers(self, beliefs: Any, graph: Graph, clip: Clip, part: int = 1) -> dict[int, Matrix]:
        """The median of the beliefs (rows, columns) by image of a clip, but for the frame that was known."""
        found = median_of(beliefs, graph, (len(clip.frames), *self._shape(clip, part)))
        return {i: one for i, one in zip(clip.frames, found, strict=True) if i != clip.before}

    def error(self, beliefs: Any, graph: Graph, clip: Clip, part: int = 1) -> float:
        """The sum over a clip's images of their mean absolute errors; an image without known depth has none."""
        middles = {i: middle_of(self._problem.scenes[i], part) for i in clip.images}
        return sum(
            error_of(found, middles[i])
            for i, found in self.answers(beliefs, graph, clip, part).items()
            if np.isfinite(middles[i].depth).any()
        )

    def _shape(self, clip: Clip, part: int) -> tuple[int, int]:
        rows, columns = middle_columns(self._problem.scenes[clip.images[0]].depth, part).shape
        return rows, columns
