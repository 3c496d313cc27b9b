"""What training frames of a film say about how evidence should be weighed: MAE of log10 depth, by splits in time.

Run ``python benchmarks/film_splits.py FOLDER`` on frames of 7-Scenes. The frames that ``kernelbp reproduce depth`` tests on are left
out: splits are within those it trains on, each with everything, from the predictors on, learned from the frames before. Half an hour
on one core; ``--keep FOLDER`` keeps what is finished, and another run goes on from there.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from kernelbp.experiments.depth import bands_with_pairs, heard, spoken
from kernelbp.experiments.depth_evidence import LIKELIHOODS, TOGETHER, Weighing
from kernelbp.experiments.depth_model import quietly
from kernelbp.experiments.depth_problem import Lesson, Problem
from kernelbp.experiments.depth_scenes import FULL, Fold, Scene, error_of, load
from kernelbp.experiments.study import Case, Options, Result, Study
from kernelbp.model import Model

SPLITS = ((13, 26), (20, 40), (26, 39), (30, 59), (40, 59))
"""Frames learned from, and the first not judged; cut off where a film has fewer training frames."""
WEIGHTINGS = ("tree-reweighted", "bethe")
CHOICES = [Weighing(*choice) for choice in product((3.0, 1.0, 0.3, 0.1), (0.0, 1.0), LIKELIHOODS)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="MAE of log10 depth on later training frames of a film, by how evidence is weighed."
    )
    parser.add_argument("folder", type=Path, help="folder of 7-Scenes")
    parser.add_argument("--keep", type=Path, help="folder for what is finished")
    options = parser.parse_args()
    console = Console(width=160)
    with tempfile.TemporaryDirectory() as passing:
        out = options.keep or Path(passing)
        resume = (out / "finished" / "run.json").exists()
        study = Study("film-splits", Options(out, options.folder, resume=resume), console)
        form, scenes, (fold, *_) = load(study, FULL)
        if form != "7-Scenes":
            parser.error(f"expected a folder of 7-Scenes, got one of {form}")
        console.print(table_of(study, scenes, splits_of(fold)))


def splits_of(fold: Fold) -> list[Fold]:
    """Questions about later training frames, asked of those before."""
    known = fold.train
    return [
        Fold(
            f"{begin} frames to the next {min(end, len(known)) - begin}",
            known[:begin],
            known[begin:end],
            True,
        )
        for begin, end in SPLITS
        if begin < len(known)
    ]


def table_of(study: Study, scenes: list[Scene], splits: list[Fold]) -> Table:
    """A line for each way to weigh evidence, a column for each split; the least of a column is marked."""
    said = study.finish([case for split in splits for case in spoken(study, scenes, split, FULL)])
    found = study.finish(
        [
            Case(
                split.name,
                lambda s=split: judged(
                    Problem(scenes, s, *heard(said, scenes, s), bands_with_pairs(scenes, [s], FULL), FULL)
                ),
            )
            for split in splits
        ]
    )
    rows = [found[split.name].rows for split in splits]
    least = [min(float(row["MAE"]) for row in mine) for mine in rows]
    table = Table(
        title=f"MAE of log10 depth, {TOGETHER} with look-alikes as evidence; least of a split with a star"
    )
    for name in ("by", *(split.name for split in splits)):
        table.add_column(name, justify="left" if name == "by" else "right")
    for line in zip(*rows, strict=True):
        errors = [float(row["MAE"]) for row in line]
        marked = (f"{e:.4f}{'*' if e == best else ' '}" for e, best in zip(errors, least, strict=True))
        table.add_row(str(line[0]["by"]), *marked)
    return table


def judged(problem: Problem) -> Result:
    """The error on a split's later frames: of the words themselves, and of the beliefs by each way to weigh them."""
    scenes, test = problem.scenes, problem.fold.test

    def mean(answers: dict[int, np.ndarray]) -> float:
        return sum(error_of(answers[i], scenes[i]) for i in test) / len(test)

    rows = [
        {"by": "predictors alone", "MAE": mean(problem.said.alone[TOGETHER])},
        {"by": "averaged with look-alikes", "MAE": mean(problem.said.pooled[TOGETHER])},
    ]
    lesson = Lesson(problem, problem.fold.train)
    model: Model = lesson.model()
    clips = [(clip, lesson.graphs(clip)) for clip in lesson.clips(test)]
    for weighting, weighing in product(WEIGHTINGS, CHOICES):
        answers: dict[int, np.ndarray] = {}
        for clip, graph_of in clips:
            graph = graph_of(TOGETHER, weighing)
            answers |= lesson.answers(quietly(model.infer, graph, weighting=weighting), graph, clip)
        rows.append({"by": f"{weighting}, {weighing}", "MAE": mean(answers)})
    return Result(rows)


if __name__ == "__main__":
    main()
