"""Ways to predict label sets of papers: what is made of a network, and of each split, for all of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import kernelbp as kb
from kernelbp.datasets.citations import CitationNetwork
from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.experiments import multilabel

__all__ = ["Answer", "Problem", "Split"]

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
TWO_STEPS = "logistic regression, labels two steps away too"
"""The classifier of "kernel BP, best found" by itself: what citations add to it can be told."""
REDUCED = 300
"""Latent semantic features of words."""
SPREADING = 0.9
"""How far label spreading believes neighbours, as usually set; correct and smooth with 0.8 twice."""
SMOOTHING = 0.8
SHARES = (0.5, 0.8, 0.9)
"""Tried for both where the best is sought."""
HELD_OUT = 0.25
"""Of the labelled papers of low degree, to choose settings by."""
STRENGTHS = (0.2, 0.3, 0.5)
"""C of logistic evidence tried with inference running: neighbours share words, so what they say is in part said twice."""
TEMPERATURES = (1.0, 1.4, 1.8, 2.2)
"""Tried for reading beliefs, what the logarithm of evidence and messages is divided by."""
UNTRIED = (0.3, 1.0)
"""Of both, where there is nothing to try them on."""
TIMES = 2
"""Other papers are held out for both."""
LEAST_OTHERS = 8
"""Labelled papers that have another set than the most frequent one: with fewer, all of them may be held out at once."""


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
        split = Split(self, np.flatnonzero(labelled), np.flatnonzero(known & ~labelled))
        self._check(split)
        return split

    def _check(self, split: Split) -> None:
        """Refuse what no method could learn from."""
        count = len(split.labelled)
        if not len(split.tested) or count < multilabel.FOLDS:
            raise InputError(
                f"data: {count} papers to learn from and {len(split.tested)} to test; expected more of both "
                f"(papers of more than {ALWAYS} citations are always learned from)"
            )
        others = count - int(np.bincount(split.classes).max())
        if self.few_sets and others < LEAST_OTHERS:
            raise InputError(
                f"data: of {count} papers to learn from, {count - others} have the same set of labels; expected at least two "
                f"sets, and at least {LEAST_OTHERS} papers with others than the most frequent one"
            )
        if not _between(self.network, split.labelled).any():
            raise InputError(
                f"data: none of {len(self.network.edges)} citations joins two of the {count} papers to learn from; "
                "expected a denser network"
            )

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
        return multilabel.reduced(self.words, REDUCED, self.seed)

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
                "regression, correct and smooth": partial(smoothed, of="words", best=False),
                "regression, correct and smooth, best found": partial(smoothed, of="words", best=True),
                "kernel BP, random projection, 5 iterations": partial(propagated, kernel=kernel, most=5),
                "kernel BP, random projection": partial(propagated, kernel=kernel),
                "kernel BP, Jaccard": partial(propagated, kernel=kb.kernels.Jaccard()),
            }
        return {
            **common,
            "logistic regression": partial(logistic, of="words"),
            "logistic regression, neighbours' words too": partial(logistic, of="around"),
            TWO_STEPS: partial(logistic, of="beyond"),
            "logistic regression, correct and smooth": partial(smoothed, of="words", best=False),
            "logistic regression, correct and smooth, best found": partial(smoothed, of="around", best=True),
            f"{TWO_STEPS}, correct and smooth, best found": partial(smoothed, of="beyond", best=True),
            "kernel BP as the paper writes it": as_written,
            "kernel BP, random projection, 5 iterations": partial(propagated, kernel=kernel, most=5),
            "kernel BP, random projection": partial(propagated, kernel=kernel),
            "kernel BP, own words alone": partial(propagated, kernel=kb.kernels.Delta(), wide=False),
            "kernel BP": partial(propagated, kernel=kb.kernels.Delta()),
            "kernel BP, best found": best_propagated,
        }


@dataclass(frozen=True, eq=False)
class Split:
    """Numbers of the labelled and the tested papers, and what is learned for several methods at once."""

    problem: Problem
    labelled: Indices
    tested: Indices

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
        """A logistic regression of sets on `features`, not fitted, and the seconds it took.

        Held-out labelled papers choose its C: of any degree, but where labels are read those like the tested ones, as papers of
        high degree are always known.
        """
        began = time.process_time()
        rng = np.random.default_rng([self.problem.seed, 8])
        held_out = rng.permutation(len(self.labelled)) % multilabel.FOLDS == 0
        if of == "beyond":
            held_out = np.isin(self.labelled, self.without_some()[1])
        features = self.features(of, self.labelled[~held_out])
        found = multilabel.best_logistic(features[self.labelled], self.classes, held_out)[0]
        return found, time.process_time() - began

    def features(self, of: str, labelled: Indices) -> Any:
        """What is read of all papers: `Problem.words`, `own` or `around`, or `beyond`.

        The last is `around` and, from the labels of the papers given, `multilabel.beyond_neighbours`.
        """
        if of != "beyond":
            return getattr(self.problem, of)
        beyond = multilabel.beyond_neighbours(self.problem.network.edges, self.truth(labelled))
        return np.hstack([self.problem.around, beyond])

    def truth(self, labelled: Indices) -> Matrix:
        """0/1 rows (papers, sets): the sets of some labelled papers, all 0 elsewhere."""
        table = np.zeros((len(self.problem.network), len(self.sets)))
        table[labelled, self.classes_of(labelled)] = 1.0
        return table

    def classes_of(self, labelled: Indices) -> Indices:
        """The numbers of the sets of some labelled papers."""
        return self.classes[np.searchsorted(self.labelled, labelled)]

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

    def without_some(self, *which: int) -> tuple[Indices, Indices]:
        """Labelled papers without some like those tested, and these; other ones for other numbers `which`."""
        rng = np.random.default_rng([self.problem.seed, 9, *which])
        low = self.labelled[self.problem.network.degrees[self.labelled] <= ALWAYS]
        low = low if len(low) else self.labelled
        out = rng.choice(low, max(1, round(HELD_OUT * len(low))), replace=False)
        return np.setdiff1d(self.labelled, out), np.sort(out)


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


def logistic(split: Split, *, of: str) -> Answer:
    """What is read (`Split.features`) alone."""
    template, seconds = split.classifier(of)
    began = time.process_time()
    features = split.features(of, split.labelled)
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


def smoothed(split: Split, *, of: str, best: bool) -> Answer:
    """Huang et al. (2021) on a regression, at usual settings or the best found; where sets are few on `Split.features`."""
    problem = split.problem
    template, seconds = split.classifier(of) if problem.few_sets else (None, split.regression[2])

    def base(labelled: Indices) -> Matrix:
        if template is None:
            scores = split.regression[0]  # of papers held out it knows no more than of others
        else:
            features = split.features(of, labelled)
            fitted = _fitted(template, features[labelled], split.classes_of(labelled))
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
    model, readings, fit = split.model(kernel, wide)
    return _answer(split, model, _observed(split, readings), fit, most or ITERATIONS)


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
    fit = time.process_time() - began
    return _answer(split, model, _observed(split, problem.own), fit, PAPER_ITERATIONS)


def _pairs(split: Split, readings: Matrix) -> dict[str, tuple[Any, Any]]:
    network, labelled = split.problem.network, split.labelled
    ends = network.edges[_taught(network, labelled)]
    return {
        "cites": (network.labels[ends[:, 0]], network.labels[ends[:, 1]]),
        "says": (network.labels[labelled], readings[labelled]),
    }


def _taught(network: CitationNetwork, labelled: Indices) -> NDArray[np.bool_]:
    """Which citations relations are learned from (citations,)."""
    between = _between(network, labelled)
    # Papers of high degree are always known: no message passes between two of them, so they teach nothing.
    passing = between & np.any(network.degrees[network.edges] <= ALWAYS, axis=1)
    return passing if passing.any() else between


def _between(network: CitationNetwork, labelled: Indices) -> NDArray[np.bool_]:
    """Which citations join two of these papers (citations,)."""
    known = np.zeros(len(network), dtype=bool)
    known[labelled] = True
    between: NDArray[np.bool_] = np.all(known[network.edges], axis=1)
    return between


def _observed(split: Split, readings: Matrix) -> kb.Graph:
    network = split.problem.network
    rest = np.setdiff1d(np.arange(len(network)), split.labelled)
    return (
        kb.Graph.from_edges(network.edges, variables=["labels"] * len(network), relation="cites")
        .fix(split.labelled, network.labels[split.labelled])
        .observe("says", readings[rest], nodes=rest)
    )


def best_propagated(split: Split) -> Answer:
    """With citations of two kinds, labels around labelled neighbours, and evidence and beliefs as sure as held-out papers want.

    The mean log-probability of their sets chooses: there are too few of them to tell settings apart by recall.
    """
    began = time.process_time()
    found = np.zeros((len(STRENGTHS), len(TEMPERATURES)))
    parts = [split.without_some(which) for which in range(TIMES)]
    parts = [part for part in parts if _between(split.problem.network, part[0]).any()]
    for kept, out in parts:
        true = split.classes_of(out)
        for row, strength in zip(found, STRENGTHS, strict=True):
            model, graph, met = two_kinds(split, kept, strength)
            beliefs = _beliefs(model, graph)
            for place, temperature in enumerate(TEMPERATURES):
                chances = _tempered(split, beliefs, met, temperature)[out, true]
                row[place] += np.log(np.maximum(chances, multilabel.LEAST)).mean()
    best = np.unravel_index(found.argmax(), found.shape)
    strength, temperature = (STRENGTHS[best[0]], TEMPERATURES[best[1]]) if parts else UNTRIED
    model, graph, met = two_kinds(split, split.labelled, strength)
    beliefs, told = _timed(model, graph, time.process_time() - began, ITERATIONS)
    scores = _tempered(split, beliefs, met, temperature)[split.tested] @ split.holds(split.sets)
    return split.ranking(scores), {"chosen": f"C {strength:g}, temperature {temperature:g}", **told}


def _tempered(split: Split, beliefs: kb.Beliefs, met: Matrix, temperature: float) -> Matrix:
    """Probabilities (papers, `Split.sets`), less sure of evidence and messages, as sure as ever of how frequent sets are."""
    number = {labels: place for place, labels in enumerate(split.sets)}
    columns = [number[labels] for labels in beliefs["labels"].support]
    logs = beliefs["labels"].log_products_at_support() / temperature + np.log(met[columns])
    table = np.zeros((len(logs), len(split.sets)))
    table[:, columns] = np.exp(logs - logs.max(axis=1, keepdims=True))
    return table / table.sum(axis=1, keepdims=True)


def two_kinds(split: Split, labelled: Indices, strength: float) -> tuple[kb.Model, kb.Graph, Matrix]:
    """A fitted model, its graph, and how often it has met each set (sets,), from the labels of some papers.

    A citation of or by a paper of high degree is a relation of its own. The logistic regression also reads
    `multilabel.beyond_neighbours`, and its probabilities are not sharpened: calibrated on single papers they are right for
    each alone, but neighbours read each other's words, and together they would be believed too much.
    """
    network, labels = split.problem.network, split.problem.network.labels
    taught = _taught(network, labelled)
    central: NDArray[np.bool_] = np.any(network.degrees[network.edges] > ALWAYS, axis=1)
    if len(np.unique(central[taught])) < 2:
        central = np.zeros_like(central)  # nothing to learn one of the two from
    names = np.where(central, "cites, central", "cites")
    ends = {name: network.edges[taught & (names == name)] for name in np.unique(names)}
    ends["is"] = np.column_stack([labelled, labelled])  # makes sets known that no citation shows
    model = kb.Model(
        {"labels": kb.kernels.Delta()},
        {name: kb.Relation("labels", "labels", symmetric=True) for name in ends},
    ).fit({name: (labels[pair[:, 0]], labels[pair[:, 1]]) for name, pair in ends.items()})

    features = split.features("beyond", labelled)
    classifier = _fitted(multilabel.logistic(strength), features[labelled], split.classes_of(labelled))
    rest = np.setdiff1d(np.arange(len(network)), labelled)
    # The marginal of the model: a belief without messages is then what the classifier says.
    met = split.truth(labelled)[np.concatenate(list(ends.values())).ravel()].mean(axis=0)
    likelihood = classifier.predict_proba(features[rest]) / met[classifier.classes_]
    graph = (
        kb.Graph.from_edges(
            zip(*network.edges.T.tolist(), names.tolist(), strict=True), variables=["labels"] * len(network)
        )
        .fix(labelled, labels[labelled])
        .soften(rest, split.sets[classifier.classes_], likelihood)
    )
    return model, graph, met


def _answer(split: Split, model: kb.Model, graph: kb.Graph, fit: float, most: int) -> Answer:
    beliefs, told = _timed(model, graph, fit, most)
    return split.ranking(beliefs.expect(split.holds)[split.tested]), told


def _timed(model: kb.Model, graph: kb.Graph, fit: float, most: int) -> tuple[kb.Beliefs, dict[str, Any]]:
    """Beliefs, and what is told of them."""
    began, started = time.process_time(), time.perf_counter()
    beliefs = _beliefs(model, graph, most)
    return beliefs, {
        "fit": fit,
        "infer": time.process_time() - began,
        "infer, wall": time.perf_counter() - started,
        "iterations": beliefs.iterations,
        "converged": beliefs.converged,
    }


def _beliefs(model: kb.Model, graph: kb.Graph, most: int = ITERATIONS) -> kb.Beliefs:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.infer(graph, max_iterations=most)
