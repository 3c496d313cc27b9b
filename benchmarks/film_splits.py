"""Depth of later frames of a film, by splits in time within its training frames: MAE of log10 depth.

Run ``python benchmarks/film_splits.py FOLDER`` on frames of 7-Scenes. The frames that ``kernelbp reproduce depth`` tests on are left
out: splits are within those it trains on, forwards and backwards, each with everything, from the predictors on, learned from the
frames before. The first table has the ways to weigh evidence in which look-alikes are heard; in the second, kernel belief propagation
stands beside its rivals, each with what is best on all splits but the one it is judged on. Splits share frames: ten of them say less
than ten films would. Three hours on one core; ``--keep FOLDER`` keeps what is finished, and another run goes on from there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from kernelbp.experiments.depth import heard, spoken
from kernelbp.experiments.depth_evidence import AS_SEEN, FILM_CHOICES, RELATIONS, TOGETHER, Weighing
from kernelbp.experiments.depth_model import quietly
from kernelbp.experiments.depth_problem import Lesson, Problem
from kernelbp.experiments.depth_rivals import OF_INFER, PAPER, SETTLED, learned
from kernelbp.experiments.depth_scenes import FULL, Fold, Scene, backwards, bands_of, error_of, load, thinned
from kernelbp.experiments.study import Case, Options, Result, Study

SPLITS = ((13, 26), (20, 40), (26, 39), (30, 59), (40, 59))
"""Frames learned from, and the first not judged; cut off where a film has fewer training frames."""
CHOICES = [weighing for weighing in FILM_CHOICES if weighing.count is not None]
PLAIN = [w for w in CHOICES if w.power == 1.0 and w.relations == AS_SEEN and w.likelihood == "as counted"]
"""What rivals at the paper's settings get: evidence without a power, relations of scenes as they were seen."""
FREE = [w for w in CHOICES if w.likelihood == "as counted"]
SLOW_FRAMES = 3
"""Of a split, evenly through it, for rivals that are slow."""
SPACINGS = ("even", "quantiles")
WIDE = 300
"""Letters in a line: tables are wide."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description="MAE of log10 depth on later training frames of a film: ways to weigh evidence, and rivals."
    )
    parser.add_argument("folder", type=Path, help="folder of 7-Scenes")
    parser.add_argument("--keep", type=Path, help="folder for what is finished")
    options = parser.parse_args()
    console = Console(width=WIDE)
    with tempfile.TemporaryDirectory() as passing:
        out = options.keep or Path(passing)
        resume = (out / "finished" / "run.json").exists()
        study = Study("film-splits", Options(out, options.folder, resume=resume), console)
        form, scenes, (fold, *_) = load(study, FULL)
        if form != "7-Scenes":
            parser.error(f"expected a folder of 7-Scenes, got one of {form}")
        # No picture of the tests is even looked at: backwards, the film begins with the last training frame.
        known = [scenes[i] for i in fold.train]
        films = {"forwards": known, "backwards": backwards(known)}
        splits = [(film, split) for way, film in films.items() for split in splits_of(len(known), way)]
        said = study.finish([case for film, split in splits for case in spoken(study, film, split, FULL)])
        bands = {id(film): bands_of(film, FULL.bands) for film in films.values()}

        def problem_of(film: Sequence[Scene], split: Fold) -> Problem:
            return Problem(film, split, *heard(said, film, split), bands[id(film)], FULL)

        found = {
            name: study.finish(
                [
                    Case(
                        f"{name}, {split.name}", lambda f=film, s=split, j=judge: j(problem_of(f, s)), seconds
                    )
                    for film, split in splits
                ]
            )
            for name, (judge, seconds) in JUDGES.items()
        }
        names = [
            split.name.replace(", ", "\n").replace(" frames to the next ", " to ") for _, split in splits
        ]
        ours = list(found.pop("weighings").values())
        console.print(weighings_table(names, ours))
        console.print(
            rivals_table(names, ours, {name: list(theirs.values()) for name, theirs in found.items()})
        )


def splits_of(frames: int, way: str) -> list[Fold]:
    """Questions about later frames, asked of those before."""
    return [
        Fold(
            f"{way}, {begin} frames to the next {min(end, frames) - begin}",
            tuple(range(begin)),
            tuple(range(begin, min(end, frames))),
            True,
        )
        for begin, end in SPLITS
        if begin < frames
    ]


class Judge:
    """The error of every frame of a split, by whatever model is asked."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.frames = problem.fold.test
        self.lesson = Lesson(problem, problem.fold.train)

    def of_words(self, words: Mapping[int, np.ndarray]) -> list[float]:
        """Of depths said of frames; NaN for those nothing is said of."""
        scenes = self.problem.scenes
        return [error_of(words[i], scenes[i]) if i in words else np.nan for i in self.frames]

    def of_beliefs(
        self, model: Any, weighing: Weighing, *, most: int | None = None, tied: bool = True, **asked: Any
    ) -> list[float]:
        """Of a model's beliefs, on at most so many frames."""
        frames = self.frames if most is None else thinned(self.frames, most)
        answers: dict[int, np.ndarray] = {}
        for clip in self.lesson.clips(frames, tied=tied):
            graph = self.lesson.graphs(clip)(TOGETHER, weighing)
            answers |= self.lesson.answers(quietly(model.infer, graph, **asked), graph, clip)
        return self.of_words(answers)


def weighings(problem: Problem) -> Result:
    """Errors of the words themselves, without and with look-alikes, and by each way to weigh them: (ways, frames)."""
    judge, said = Judge(problem), problem.said
    errors = [judge.of_words(words[TOGETHER]) for words in (said.alone, said.pooled)]
    errors += [judge.of_beliefs(judge.lesson.model(w.relations), w) for w in CHOICES]
    return Result([], {"errors": np.array(errors)})


def rival(name: str, problem: Problem) -> Result:
    """Errors of a rival at the paper's settings, by evidence without a power: (ways, frames)."""
    judge, settings = Judge(problem), PAPER[name]
    asked = {key: value for key, value in settings.items() if key in OF_INFER}
    asked["max_iterations"] = FULL.particle_iterations if name == "particle" else FULL.iterations
    model = learned(name, settings, judge.lesson, AS_SEEN, tied=False)
    most = None if name == "discrete" else SLOW_FRAMES
    errors = [judge.of_beliefs(model, w, most=most, tied=False, tolerance=0.0, **asked) for w in PLAIN]
    return Result([], {"errors": np.array(errors)})


def discrete(problem: Problem) -> Result:
    """Errors of discrete belief propagation that is given what ours has: ties, weights of trees, evidence as counted in every way."""
    judge = Judge(problem)
    asked = {**SETTLED, "weighting": "tree-reweighted"}
    errors = []
    for spacing in SPACINGS:
        settings = {"levels": 30, "spacing": spacing}
        models = {
            relations: learned("discrete", settings, judge.lesson, relations, tied=True)
            for relations in RELATIONS
        }
        errors += [judge.of_beliefs(models[w.relations], w, **asked) for w in FREE]
    return Result([], {"errors": np.array(errors)})


JUDGES = {
    "weighings": (weighings, 250),
    "discrete BP, tree-reweighted, frames tied": (discrete, 200),
    **{f"{name} BP, paper's settings": (partial(rival, name), 200) for name in PAPER},
}
"""Who is judged on every split, by what function, in about how many seconds."""


def weighings_table(splits: Sequence[str], results: Sequence[Result]) -> Table:
    """A line for each way to weigh evidence, a column for each split; the least of a column is marked."""
    errors = np.stack([result.arrays["errors"].mean(axis=1) for result in results], axis=1)
    table = Table(
        title=f"MAE of log10 depth, {TOGETHER} with look-alikes as evidence; least of a split with a star"
    )
    for name in ("by", *splits, "geometric mean"):
        table.add_column(name, justify="left" if name == "by" else "right", no_wrap=True)
    least = errors.min(axis=0)
    for name, line in zip(
        ("predictors alone", "averaged with look-alikes", *map(str, CHOICES)), errors, strict=True
    ):
        marked = (f"{e:.4f}{'*' if e == best else ' '}" for e, best in zip(line, least, strict=True))
        table.add_row(name, *marked, f"{np.exp(np.log(line).mean()):.4f}")
    return table


def rivals_table(
    splits: Sequence[str], ours: Sequence[Result], rivals: Mapping[str, Sequence[Result]]
) -> Table:
    """Kernel belief propagation and rivals, each as is best on all other splits; on the frames a rival ran on."""
    table = Table(
        title="MAE of log10 depth, each method as is best on all splits but the one judged; in brackets kernel BP on these frames"
    )
    for name in ("method", *splits, "to kernel BP"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    beliefs = [result.arrays["errors"][2:] for result in ours]
    for name, results in rivals.items():
        errors = [result.arrays["errors"] for result in results]
        # Where a rival did not run it has no number; where it found no answer, an infinite one.
        kept = [~np.isnan(one).any(axis=0) for one in errors]
        theirs, mine = (
            chosen([one[:, frames] for one, frames in zip(given, kept, strict=True)])
            for given in (errors, beliefs)
        )
        logs = np.log(theirs / mine)
        spread = logs.std(ddof=1) / np.sqrt(len(logs))
        table.add_row(
            name,
            *(f"{a:.4f} ({b:.4f})" for a, b in zip(theirs, mine, strict=True)),
            f"{np.exp(logs.mean()):.3f} +- {spread:.3f}",
        )
    return table


def chosen(errors: Sequence[np.ndarray]) -> np.ndarray:
    """The error on each split, of those (ways, frames), of the way that is best, by the mean logarithm, on all others."""
    logs = np.log([one.mean(axis=1) for one in errors])
    ways = [int(np.argmin(np.delete(logs, k, axis=0).mean(axis=0))) for k in range(len(errors))]
    return np.array([one[way].mean() for one, way in zip(errors, ways, strict=True)])


if __name__ == "__main__":
    main()
