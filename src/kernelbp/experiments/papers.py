"""Appendix 4: label sets of papers from their words and their citations.

A paper's set of labels is hidden, "cites" is learned from citations between labelled papers, and words are the evidence. In
each split a third of the papers are labelled, among them all of degree over 10; the rest are judged by recall@k.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import kernelbp as kb
from kernelbp.datasets.citations import (
    CitationNetwork,
    citation_network,
    load_citations_mat,
    load_citations_text,
)
from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.experiments import multilabel
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Result, Row, Study

__all__ = ["run"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

SHARE = 1 / 3
"""Of papers that are labelled."""
ALWAYS = 10
"""All papers of a degree above this are labelled."""
MOST_RANKED = 20
"""Labels ranked for each paper."""
PAPER_ITERATIONS = 5
ITERATIONS = 60
FEW_SETS = 64
"""Up to this many distinct sets, the sets themselves are the states; beyond, single labels are the support points."""
REDUCED = 300
"""Latent semantic features of words."""
SPREADING = 0.9
"""How far label spreading believes neighbours, as usually set; correct and smooth with 0.8 twice."""
SMOOTHING = 0.8
SHARES = (0.5, 0.8, 0.9)
"""Tried for both where the best is sought."""
HELD_OUT = 0.25
"""Of the labelled papers of low degree, to choose rivals' settings by."""


@dataclass(frozen=True)
class Sizes:
    """How much is done: splits of a network from files, and those and the size of a generated one."""

    splits: int
    generated_splits: int
    papers: int
    labels: int
    words: int


FULL = Sizes(10, 3, 20_000, 367, 2_500)
QUICK = Sizes(1, 1, 4_000, 100, 1_000)
TINY = Sizes(1, 1, 300, 12, 200)


def run(study: Study, *, dimensions: int = 100, sizes: Sizes | None = None) -> Report:
    """Compare kernel belief propagation with regressions and with labels spread along citations.

    Parameters
    ----------
    study : Study
        Its data: a ``.mat`` file, a folder of text files, a folder with one ``.mat`` file; None generates a network.
    dimensions : int
        Of the random projection of label sets, the paper's d.
    sizes : Sizes, optional
        By default those of a full or a quick run.
    """
    sizes = sizes or (QUICK if study.options.quick else FULL)
    network = load(study.options.data, sizes, study.options.seed)
    problem = Problem(network, dimensions, study.options.seed)
    splits = range(sizes.splits if study.options.data is not None else sizes.generated_splits)
    methods = problem.methods()
    cases = [
        Case(
            f"{name}, split {split}",
            partial(judged, problem, name, methods[name], split),
            seconds=seconds(name),
        )
        for split in splits
        for name in methods
    ]
    found = study.finish(cases)
    by_method = {name: [found[f"{name}, split {split}"] for split in splits] for name in methods}
    return report(study, problem, by_method, len(splits))


def load(data: Path | None, sizes: Sizes, seed: int) -> CitationNetwork:
    """The network asked for, or one generated."""
    if data is None:
        return citation_network(sizes.papers, sizes.labels, seed, n_words=sizes.words)
    if data.is_file():
        return load_citations_mat(data)
    held = sorted(data.glob("*.mat"))
    if len(held) > 1:
        raise InputError(f"data: {data} holds {len(held)} .mat files; expected one, or name the file itself")
    return load_citations_mat(held[0]) if held else load_citations_text(data)


# ---------------------------------------------------------------------- the problem


Answer = tuple[Indices, Mapping[str, Any]]
"""Labels of the tested papers, the likeliest first (papers, k), and what else is to be told."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A network and what is made of it for all splits and methods."""

    network: CitationNetwork
    dimensions: int
    seed: int

    def __post_init__(self) -> None:
        # One split at a time is held: its regressions are shared by the methods.
        object.__setattr__(self, "split", lru_cache(maxsize=1)(self.split))

    def split(self, number: int) -> Split:
        """Which papers are labelled: all of high degree, and others at random up to a third."""
        rng = np.random.default_rng([self.seed, 6, number])
        known = self.lengths > 0
        labelled = known & (self.network.degrees > ALWAYS)
        others = np.flatnonzero(known & ~labelled)
        wanted = round(SHARE * int(known.sum())) - int(labelled.sum())
        labelled[rng.choice(others, min(max(wanted, 0), len(others)), replace=False)] = True
        tested = np.flatnonzero(known & ~labelled)
        if not len(tested) or labelled.sum() < multilabel.FOLDS:
            raise InputError(
                f"data: {int(labelled.sum())} papers to learn from and {len(tested)} to test; expected more of both "
                f"(papers of more than {ALWAYS} citations are always learned from)"
            )
        return Split(self, np.flatnonzero(labelled), tested, rng)

    @cached_property
    def lengths(self) -> Indices:
        """Labels of each paper."""
        return np.array([len(labels) for labels in self.network.labels])

    @cached_property
    def words(self) -> Any:
        """Sparse tf-idf weights."""
        return multilabel.weighted_words(self.network.words)

    @cached_property
    def own(self) -> Matrix:
        """Each paper's words, reduced."""
        return multilabel.reduced(self.words, REDUCED)

    @cached_property
    def around(self) -> Matrix:
        """Each paper's words, those of its neighbours and those of theirs, reduced: (papers, 3 x REDUCED)."""
        from sklearn.preprocessing import normalize

        both = np.concatenate([self.network.edges, self.network.edges[:, ::-1]])
        count = len(self.network)
        table = sparse.coo_array((np.ones(len(both)), (both[:, 0], both[:, 1])), shape=(count, count)).tocsr()
        near = table @ self.own
        return np.hstack([self.own, normalize(near), normalize(table @ near)])

    @cached_property
    def shares(self) -> Matrix:
        """Each paper's labels as shares of one (papers, labels)."""
        return self.network.indicators.toarray() / np.maximum(self.lengths, 1)[:, None]

    @cached_property
    def step(self) -> sparse.csr_array:
        """Along citations: see `multilabel.step_along`."""
        return multilabel.step_along(self.network.edges, len(self.network))

    @cached_property
    def few_sets(self) -> bool:
        """Whether sets are few enough to be states, and papers few enough to be classes."""
        return len(set(self.network.labels)) <= FEW_SETS

    @property
    def ranked(self) -> int:
        """Labels ranked for each paper."""
        return min(MOST_RANKED, len(self.network.label_names))

    def projection(self, dimensions: int) -> kb.kernels.RandomProjection:
        """The paper's kernel."""
        return kb.kernels.RandomProjection(dimensions, seed=self.seed)

    def methods(self) -> dict[str, Callable[[Split], Answer]]:
        """All methods by name, as the table lists them."""
        kernel = self.projection(self.dimensions)
        common: dict[str, Callable[[Split], Answer]] = {
            "most frequent labels": most_frequent,
            "regression, compressed sensing": compressed_sensing,
            "regression of every label": every_label,
            "label spreading": partial(spreading, best=False),
            "label spreading, best found": partial(spreading, best=True),
        }
        if not self.few_sets:
            return {
                **common,
                "regression, correct and smooth": partial(smoothed, best=False),
                "regression, correct and smooth, best found": partial(smoothed, best=True),
                "kernel BP, random projection, 5 iterations": partial(propagated, kernel=kernel, most=5),
                "kernel BP, random projection": partial(propagated, kernel=kernel),
                "kernel BP, Jaccard": partial(propagated, kernel=kb.kernels.Jaccard()),
            }
        return {
            **common,
            "logistic regression": partial(logistic, wide=False),
            "logistic regression, neighbours' words too": partial(logistic, wide=True),
            "logistic regression, correct and smooth": partial(smoothed, best=False),
            "logistic regression, correct and smooth, best found": partial(smoothed, best=True),
            "kernel BP as the paper writes it": as_written,
            "kernel BP, random projection, 5 iterations": partial(propagated, kernel=kernel, most=5),
            "kernel BP, random projection": partial(propagated, kernel=kernel),
            "kernel BP, own words alone": partial(propagated, kernel=kb.kernels.Delta(), wide=False),
            "kernel BP": partial(propagated, kernel=kb.kernels.Delta()),
        }


OURS = {True: "kernel BP", False: "kernel BP, random projection"}
"""The row claims are made for, by whether sets are few."""


@dataclass(frozen=True, eq=False)
class Split:
    """Numbers of the labelled and the tested papers, and what is learned for several methods at once."""

    problem: Problem
    labelled: Indices
    tested: Indices
    rng: np.random.Generator

    @cached_property
    def regression(self) -> tuple[Matrix, float, float]:
        """Scores (papers, labels) by ridge regression on words, out of fold where labelled; its penalty and seconds."""
        began = time.process_time()
        targets = self.problem.network.indicators.toarray()
        rng = np.random.default_rng([self.problem.seed, 7])
        # Belief propagation learns from it only where sets are many: only then must it be out of fold.
        folds = 0 if self.problem.few_sets else multilabel.FOLDS
        found = multilabel.out_of_fold(self.problem.words, targets, self.labelled, rng, folds=folds)
        return *found, time.process_time() - began

    @cached_property
    def sets(self) -> NDArray[np.object_]:
        """The distinct sets of labelled papers, in a fixed order."""
        distinct = sorted(set(self.problem.network.labels[self.labelled]), key=sorted)
        return np.fromiter(distinct, dtype=object)

    @cached_property
    def classes(self) -> Indices:
        """For each labelled paper the number of its set."""
        number = {labels: index for index, labels in enumerate(self.sets)}
        return np.array([number[labels] for labels in self.problem.network.labels[self.labelled]])

    def __post_init__(self) -> None:
        # Several methods read the same words and infer with the same model.
        object.__setattr__(self, "classifier", lru_cache(maxsize=None)(self.classifier))
        object.__setattr__(self, "model", lru_cache(maxsize=1)(self.model))

    def model(self, kernel: Any, wide: bool) -> tuple[kb.Model, Matrix, float]:
        """See `learned`; the last is kept for another way to infer."""
        return learned(self, kernel, wide)

    def classifier(self, of: str) -> tuple[Any, float]:
        """A logistic regression of sets on `Problem.words`, `own` or `around`, not fitted, and the seconds it took.

        Held-out labelled papers choose its C.
        """
        began = time.process_time()
        rng = np.random.default_rng([self.problem.seed, 8])
        features = getattr(self.problem, of)
        found = multilabel.best_logistic(features[self.labelled], self.classes, rng)[0]
        return found, time.process_time() - began

    def holds(self, sets: Any) -> Matrix:
        """0/1 rows (sets, labels)."""
        table = np.zeros((len(sets), len(self.problem.network.label_names)))
        for row, labels in zip(table, sets, strict=True):
            row[list(labels)] = 1.0
        return table

    def ranking(self, scores: Matrix) -> Indices:
        """The likeliest labels first; of equals the more frequent."""
        frequencies = self.problem.shares[self.labelled].mean(axis=0)
        # A share too small to turn an order that the scores themselves have.
        order: Indices = np.argsort(-(scores + 1e-9 * frequencies), axis=1, kind="stable")
        return order[:, : self.problem.ranked]

    def without_some(self) -> tuple[Indices, Indices]:
        """Labelled papers without some like those tested, and these."""
        rng = np.random.default_rng([self.problem.seed, 9])
        low = self.labelled[self.problem.network.degrees[self.labelled] <= ALWAYS]
        low = low if len(low) else self.labelled
        out = rng.choice(low, max(1, round(HELD_OUT * len(low))), replace=False)
        return np.setdiff1d(self.labelled, out), np.sort(out)


def judged(problem: Problem, name: str, method: Callable[[Split], Answer], number: int) -> Result:
    """Run a method on a split and score it."""
    split = problem.split(number)
    began = time.perf_counter()
    order, told = method(split)
    taken = time.perf_counter() - began
    one, every = multilabel.recall(order, problem.network.indicators[split.tested])
    row = {"method": name, "split": number, "seconds": taken, **told}
    return Result([row], {"one": one, "all": every})


# ---------------------------------------------------------------------- regressions


def most_frequent(split: Split) -> Answer:
    """The same for all."""
    return split.ranking(np.zeros((len(split.tested), len(split.problem.network.label_names)))), {}


def every_label(split: Split) -> Answer:
    """A ridge regression on words for each label."""
    scores, penalty, seconds = split.regression
    return split.ranking(scores[split.tested]), {"chosen": f"ridge {penalty:g}", "fit": seconds}


def compressed_sensing(split: Split) -> Answer:
    """Hsu et al. (2009): regress the random projection of the label vector, decode by matching pursuit.

    Regression is linear in its targets: that of the projections is the projection of that of the labels.
    """
    problem = split.problem
    scores, penalty, seconds = split.regression
    kernel = problem.projection(problem.dimensions)
    columns = kernel.project(np.eye(scores.shape[1])).T
    order = multilabel.matching_pursuit(scores[split.tested] @ columns.T, columns, problem.ranked)
    return order, {"chosen": f"ridge {penalty:g}", "fit": seconds}


def logistic(split: Split, *, wide: bool) -> Answer:
    """Words alone: of the paper, or of its neighbours too."""
    of = "around" if wide else "words"
    features = getattr(split.problem, of)
    template, seconds = split.classifier(of)
    began = time.process_time()
    fitted = _fitted(template, features[split.labelled], split.classes)
    seconds += time.process_time() - began
    scores = fitted.predict_proba(features[split.tested]) @ split.holds(split.sets[fitted.classes_])
    return split.ranking(scores), {"chosen": f"C {fitted.C:g}", "fit": seconds}


def _fitted(template: Any, features: Any, classes: Indices) -> Any:
    from sklearn.base import clone

    return clone(template).fit(features, classes)


# ---------------------------------------------------------------------- labels along citations


def spreading(split: Split, *, best: bool) -> Answer:
    """Zhou et al. (2004); words are not used."""
    problem = split.problem

    def scores(labelled: Indices, share: float) -> Matrix:
        given = np.zeros_like(problem.shares)
        given[labelled] = problem.shares[labelled]
        return multilabel.spread(problem.step, given, share)

    share = SPREADING
    if best:
        kept, out = split.without_some()
        share = max(SHARES, key=lambda tried: _early_recall(split, scores(kept, tried), out))
    began = time.process_time()
    found = scores(split.labelled, share)[split.tested]
    return split.ranking(found), {"chosen": f"share {share:g}", "infer": time.process_time() - began}


def smoothed(split: Split, *, best: bool) -> Answer:
    """Huang et al. (2021) on a regression: at usual settings on words, at the best found with neighbours' words too."""
    problem = split.problem
    of = "around" if best else "words"
    features: Any = getattr(problem, of) if problem.few_sets else None
    template, seconds = split.classifier(of) if problem.few_sets else (None, split.regression[2])

    def base(labelled: Indices) -> Matrix:
        if template is None:
            scores = split.regression[0]  # of papers held out it knows no more than of others
        else:
            classes = split.classes[np.searchsorted(split.labelled, labelled)]
            fitted = _fitted(template, features[labelled], classes)
            scores = fitted.predict_proba(features) @ split.holds(split.sets[fitted.classes_])
        scores = np.maximum(scores, 0.0)
        shares: Matrix = scores / np.maximum(scores.sum(axis=1, keepdims=True), multilabel.LEAST)
        return shares

    shares = (SMOOTHING, SMOOTHING)
    if best:
        kept, out = split.without_some()
        predicted = base(kept)
        shares = max(
            ((first, second) for first in SHARES for second in SHARES),
            key=lambda tried: _early_recall(
                split,
                multilabel.correct_and_smooth(problem.step, predicted, problem.shares, kept, *tried),
                out,
            ),
        )
    began = time.process_time()
    predicted = base(split.labelled)
    middle = time.process_time()
    found = multilabel.correct_and_smooth(problem.step, predicted, problem.shares, split.labelled, *shares)[
        split.tested
    ]
    told = {"chosen": f"shares {shares[0]:g}, {shares[1]:g}", "fit": seconds + middle - began}
    return split.ranking(found), {**told, "infer": time.process_time() - middle}


def _early_recall(split: Split, scores: Matrix, papers: Indices) -> float:
    """Mean recall of the first two labels, what settings are chosen by."""
    found = multilabel.recall(split.ranking(scores[papers]), split.problem.network.indicators[papers])
    return float(np.mean([part[:2].mean() for part in found]))


# ---------------------------------------------------------------------- belief propagation


def propagated(split: Split, *, kernel: Any, most: int | None = None, wide: bool = True) -> Answer:
    """Citations and words together."""
    return _inferred(split, *split.model(kernel, wide), most or ITERATIONS)


def learned(split: Split, kernel: Any, wide: bool) -> tuple[kb.Model, Matrix, float]:
    """A fitted model, what it reads, and the seconds that took.

    Where sets are few they are the states, and words are read by logistic regression. Where they are many, the support
    points are single labels, a set lies between those of its labels, and what is read is the regression of every label.
    """
    problem = split.problem
    if problem.few_sets:
        of = "around" if wide else "own"
        readings = getattr(problem, of)
        template, seconds = split.classifier(of)
        says = kb.Relation("labels", "words", evidence=template)
        landmarks, rank = None, 1  # the features of words are the classifier's business
    else:
        readings, _, seconds = split.regression
        says = kb.Relation("labels", "words", evidence="posterior")
        used = sorted(frozenset().union(*problem.network.labels[split.labelled]))
        landmarks = {"labels": np.fromiter((frozenset([label]) for label in used), dtype=object)}
        rank = readings.shape[1] + 1
    model = kb.Model(
        {"labels": kernel, "words": kb.kernels.Linear()},
        {"cites": kb.Relation("labels", "labels", symmetric=True), "says": says},
        max_rank=rank,
        landmarks=landmarks,
    )
    began = time.process_time()
    model.fit(_pairs(split, readings))
    return model, readings, seconds + time.process_time() - began


def as_written(split: Split) -> Answer:
    """The authors' preset: conditional embeddings, random projection kernel, linear kernel on words, 5 iterations."""
    problem = split.problem
    began = time.process_time()
    model = kb.Model.paper(
        {"labels": problem.projection(problem.dimensions), "words": kb.kernels.Linear()},
        {
            "cites": kb.Relation("labels", "labels", symmetric=True),
            "says": kb.Relation("labels", "words", evidence="posterior"),
        },
        max_rank=REDUCED,
    )
    model.fit(_pairs(split, problem.own))
    return _inferred(split, model, problem.own, time.process_time() - began, PAPER_ITERATIONS)


def _pairs(split: Split, readings: Matrix) -> dict[str, tuple[Any, Any]]:
    network, labelled = split.problem.network, split.labelled
    known = np.zeros(len(network), dtype=bool)
    known[labelled] = True
    # Papers of high degree are always known: no message passes between two of them, so they teach nothing.
    passing = known[network.edges].all(axis=1) & (network.degrees[network.edges] <= ALWAYS).any(axis=1)
    pairs = network.edges[passing if passing.any() else known[network.edges].all(axis=1)]
    if not len(pairs):
        raise InputError("data: no citation joins two labelled papers; expected a denser network")
    return {
        "cites": (network.labels[pairs[:, 0]], network.labels[pairs[:, 1]]),
        "says": (network.labels[labelled], readings[labelled]),
    }


def _inferred(split: Split, model: kb.Model, readings: Matrix, fit: float, most: int) -> Answer:
    network = split.problem.network
    rest = np.setdiff1d(np.arange(len(network)), split.labelled)
    graph = (
        kb.Graph.from_edges(network.edges, variables=["labels"] * len(network), relation="cites")
        .fix(split.labelled, network.labels[split.labelled])
        .observe("says", readings[rest], nodes=rest)
    )
    began, started = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        beliefs = model.infer(graph, max_iterations=most)
    seconds, wall = time.process_time() - began, time.perf_counter() - started
    scores = beliefs.expect(split.holds)[split.tested]
    told = {
        "fit": fit,
        "infer": seconds,
        "infer, wall": wall,
        "iterations": beliefs.iterations,
        "converged": beliefs.converged,
    }
    return split.ranking(scores), told


# ---------------------------------------------------------------------- what is shown


def seconds(name: str) -> float:
    """A case takes, about."""
    return 40.0 if name.startswith("kernel BP") else 10.0


def report(study: Study, problem: Problem, found: Mapping[str, list[Result]], splits: int) -> Report:
    """Tables, the picture and the claims."""
    from kernelbp.figures.papers import papers as drawn

    network = problem.network
    curves = {
        name: {kind: np.stack([result.arrays[kind] for result in results]) for kind in ("one", "all")}
        for name, results in found.items()
    }
    source = "generated network" if study.options.data is None else study.options.data.name
    shown = f"{source}: {len(network):,} papers, {len(network.label_names):,} labels"
    return Report(
        title="Label sets of papers in a citation network (appendix 4)",
        lead=(
            "A paper's set of labels is predicted from its words and from the papers it cites or is cited by. A third of the papers "
            f"are labelled, among them all of degree over {ALWAYS}; the rest are judged by recall@k, over {splits} random splits. The "
            "paper did so for 143,086 ACM papers with 367 labels (recall@10 and @20: kernel BP 0.419 and 0.476, regression with "
            f"compressed sensing 0.362 and 0.417). Here: {shown}, {len(network.edges):,} citations, "
            f"{len(set(network.labels)):,} distinct label sets."
        ),
        tables=[
            Table(
                "papers",
                f"Recall of all methods, {splits} splits: {shown}",
                [_summary(name, curves[name], results, problem.ranked) for name, results in found.items()],
                "recall@k (one): papers with at least one of their labels among the first k; (all): share of a paper's labels "
                "among the first k. fit and infer: seconds of the processor, which other programs on the machine do not change; fit includes "
                "the choice of settings; infer, wall: by the clock.",
            ),
            Table(
                "papers_splits",
                "Every split",
                [
                    {
                        **_plain_row(result.rows[0]),
                        **{
                            f"recall@{k} (one)": float(result.arrays["one"][k - 1])
                            for k in _shown_at(problem.ranked)
                        },
                    }
                    for results in found.values()
                    for result in results
                ],
            ),
            Table(
                "papers_curves",
                "Recall@k, mean of the splits",
                [
                    {
                        "method": name,
                        "kind": kind,
                        **{f"k = {k + 1}": float(curve[kind][:, k].mean()) for k in range(problem.ranked)},
                    }
                    for name, curve in curves.items()
                    for kind in ("one", "all")
                ],
            ),
        ],
        pictures=[
            Picture(
                "papers",
                drawn(curves, network.degrees, title=shown),
                (
                    "Recall@k, right is better"
                    if problem.ranked <= FEW_LABELS
                    else "Recall@k against k, higher is better"
                )
                + ": left, one of a paper's labels is among the first k; middle, the share of its labels among them (the paper's "
                "figure shows kernel BP, regression and the most frequent labels). Bands reach from the lowest to the highest "
                "split. Right: how many papers have at least so many citations.",
            )
        ],
        claims=_claims(study, problem, found, curves),
        settings={
            "data": source,
            "seed": study.options.seed,
            "splits": splits,
            "labelled": f"a third, and all of degree over {ALWAYS}",
            "random projection": f"d = {problem.dimensions}",
            "words": f"tf-idf (sublinear); reduced to {REDUCED} latent semantic features for logistic evidence of kernel BP",
            "neighbours' words": "means of those features over neighbours and over their neighbours, beside the paper's own",
            "kernel BP": f"Model and infer with default settings, at most {ITERATIONS} iterations; evidence "
            + (
                "by logistic regression, C by held-out labelled papers"
                if problem.few_sets
                else "by the posterior form on the out-of-fold regression of every label; support points: single labels"
            ),
            "kernel BP as the paper writes it": "Model.paper: conditional embeddings, random projection, posterior evidence, "
            f"{PAPER_ITERATIONS} iterations",
            "regression": f"ridge on tf-idf, penalty of {multilabel.RIDGES} by held-out labelled papers; compressed sensing: "
            f"random projection to d = {problem.dimensions}, decoded by orthogonal matching pursuit",
            "logistic regression": f"C of {multilabel.PENALTIES} by held-out labelled papers",
            "label spreading": f"share {SPREADING}; best found: of {SHARES} by held-out labelled papers",
            "correct and smooth": f"shares {SMOOTHING}, {SMOOTHING}, autoscaled, on words; best found: of {SHARES} each by held-out "
            "labelled papers, and with neighbours' words where sets are few",
        },
    )


def _shown_at(ranked: int) -> list[int]:
    few = ranked <= FEW_LABELS
    return [
        k for k in ((1, 2, 3) if few else (1, 2, 5, 10, 20)) if k < ranked or (k == ranked and not few)
    ] or [1]


FEW_LABELS = 5
"""With no more labels than this, ranking all of them says nothing."""


def _summary(name: str, curve: Mapping[str, Matrix], results: list[Result], ranked: int) -> Row:
    """One line of the main table: means over splits."""

    def mean(column: str) -> float | None:
        values = [result.rows[0].get(column) for result in results]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        return float(np.mean(numbers)) if numbers else None

    recalls = {
        f"recall@{k} ({kind})": float(curve[kind][:, k - 1].mean())
        for kind in ("one", "all")
        for k in _shown_at(ranked)
    }
    settled = [result.rows[0].get("converged") for result in results]
    return {
        "method": name,
        **recalls,
        "spread of @1 (one)": float(curve["one"][:, 0].std()),
        "fit, s": mean("fit"),
        "infer, s": mean("infer"),
        "infer, wall, s": mean("infer, wall"),
        "iterations": mean("iterations"),
        "converged": None if settled[0] is None else f"{sum(map(bool, settled))} of {len(settled)}",
    }


def _plain_row(row: Row) -> dict[str, Any]:
    columns = (
        "method",
        "split",
        "chosen",
        "fit",
        "infer",
        "infer, wall",
        "iterations",
        "converged",
        "seconds",
    )
    return {column: row.get(column) for column in columns}


def _claims(
    study: Study,
    problem: Problem,
    found: Mapping[str, list[Result]],
    curves: Mapping[str, Mapping[str, Matrix]],
) -> list[Claim]:
    ours = OURS[problem.few_sets]
    claims = []

    def above(rival: str, kind: str, most: int) -> Claim:
        gaps = (curves[ours][kind] - curves[rival][kind]).mean(axis=0)[:most]
        told = f"{gaps.min():+.3f} at k = {int(gaps.argmin()) + 1}, {gaps.max():+.3f} at k = {int(gaps.argmax()) + 1}"
        wanted = f"above 0 at every k from 1 to {most}"
        return Claim(f"{ours} above {rival}, recall@k ({kind})", told, wanted, bool(gaps.min() > 0))

    if not problem.few_sets:
        most = problem.ranked - (problem.ranked == len(problem.network.label_names))
        return [
            above(rival, kind, most)
            for rival in (
                "regression, compressed sensing",
                "regression of every label",
                "most frequent labels",
            )
            for kind in ("one", "all")
        ]
    if study.options.data is not None and study.options.data.name.startswith("acmv9"):
        for k, wanted in ((1, 0.825), (2, 0.945)):
            value = float(curves[ours]["one"][:, k - 1].mean())
            claims.append(Claim(f"{ours}, recall@{k} (one)", f"{value:.4f}", f">= {wanted}", value >= wanted))
    most = 2 if len(problem.network.label_names) > 2 else 1
    rivals = [name for name in curves if not name.startswith("kernel BP")]
    claims += [above(rival, "one", most) for rival in rivals]
    slowest, wall = (
        max(float(result.rows[0][name] or 0.0) for result in found[ours]) for name in ("infer", "infer, wall")
    )
    told = f"{slowest:.2f} s of the processor, {wall:.2f} s by the clock"
    claims.append(
        Claim(f"{ours}, slowest inference of all splits", told, "under 2 s of the processor", slowest < 2)
    )
    return claims
