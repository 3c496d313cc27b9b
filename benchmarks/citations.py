"""Subjects of papers from a citation network: 9,360 ACM papers, a third of them labelled.

The hidden variable is a paper's set of labels (11 sets occur), the relation "cites" is learned from citations
between labelled papers, and the evidence is scikit-learn's logistic regression on tf-idf weights of words. All papers
of degree over 10 are labelled. Judged on the rest: how often the most probable label is one of the paper's
(recall@1), one of the first two (recall@2), and how often the most probable set is exactly the paper's.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Claim, Results, Settings
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from scipy import sparse
from scipy.io import loadmat
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

import kernelbp as kb

Array = NDArray[Any]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "citations" / "acmv9.mat"
SHARE = 1 / 3
"""Of papers that are labelled."""
ALWAYS = 10
"""All papers of a degree above this are labelled."""
SPREADING = 0.9
"""How far label spreading believes the neighbours rather than the labels."""
ITERATIONS = 60


@dataclass(frozen=True)
class Papers:
    """What is known of the papers.

    Attributes
    ----------
    edges : (edges, 2) citations, each once
    words : (papers, words) sparse tf-idf weights
    subjects : (papers,) frozensets of labels
    """

    edges: NDArray[np.intp]
    words: Any
    subjects: Array

    def degrees(self) -> NDArray[np.intp]:
        """Citations of each paper, made or received."""
        return np.bincount(self.edges.ravel(), minlength=len(self.subjects))


def run(settings: Settings) -> Iterator[Results]:
    """One table, for each draw of labelled papers; nothing where the data is not at hand."""
    if DATA.is_file():
        yield compared(settings)


def compared(settings: Settings) -> Results:
    """Recall of every method."""
    papers = load(DATA)
    rows: list[tuple[Any, ...]] = []
    draws = range(1 if settings.quick else 3)
    ours, spread, words, settled = [], [], [], []
    for draw in settings.progress.track(draws, description="citations: draws"):
        labelled = choose(papers, draw)
        for method, function in METHODS.items():
            began = time.process_time()
            sets, table, iterations, change = function(papers, labelled)
            first, second, exact = recall(sets, table, papers.subjects[~labelled])
            rows.append((draw, method, first, second, exact, iterations, change, time.process_time() - began))
            if method == "belief propagation":
                ours.append(first)
                settled.append(iterations <= ITERATIONS and change < 1e-3)
            elif method == "label spreading":
                spread.append(first)
            elif method == "regression on words":
                words.append(first)
    best = float(np.mean(ours))
    return Results(
        "citations",
        f"Subjects of {len(papers.subjects):,} papers, {SHARE:.0%} labelled: recall on the rest",
        ("draw", "method", "recall@1", "recall@2", "exact set", "iterations", "largest change", "seconds"),
        rows,
        claims=(
            Claim("citations: recall@1 of belief propagation", f"{best:.3f}", ">= 0.83", best >= 0.83),
            Claim(
                "citations: above label spreading",
                f"{best - float(np.mean(spread)):+.3f}",
                "> 0",
                best > float(np.mean(spread)),
            ),
            Claim(
                "citations: above regression on words",
                f"{best - float(np.mean(words)):+.3f}",
                "> 0.2",
                best > float(np.mean(words)) + 0.2,
            ),
            Claim(f"citations: settled in {ITERATIONS} iterations", str(all(settled)), "True", all(settled)),
        ),
        note="largest change of a message in the last iteration; the default settings of infer",
    )


# ---------------------------------------------------------------------- methods

Answer = tuple[list[Any], Array, int | None, float | None]
"""Sets, probabilities (unlabelled papers, sets), iterations, largest change in the last."""


def most_frequent(papers: Papers, labelled: Array) -> Answer:
    """The same for all."""
    sets, codes = codes_of(papers.subjects[labelled])
    counts = np.bincount(codes) / len(codes)
    return sets, np.tile(counts, (int((~labelled).sum()), 1)), None, None


def regression(papers: Papers, labelled: Array) -> Answer:
    """Words alone."""
    sets, codes = codes_of(papers.subjects[labelled])
    fitted = classifier().fit(papers.words[labelled], codes)
    return sets, fitted.predict_proba(papers.words[~labelled]), None, None


def spreading(papers: Papers, labelled: Array) -> Answer:
    """Zhou et al. (2004): labels diffuse along citations, words are not used."""
    sets, codes = codes_of(papers.subjects[labelled])
    count = len(papers.subjects)
    ones = np.ones(len(papers.edges))
    network = sparse.coo_array((ones, tuple(papers.edges.T)), shape=(count, count)).tocsr()
    network = network + network.T
    scale = sparse.diags_array(1 / np.sqrt(np.maximum(papers.degrees(), 1)))
    step = SPREADING * (scale @ network @ scale)
    given = np.zeros((count, len(sets)))
    given[np.flatnonzero(labelled), codes] = 1.0
    table = given
    for _ in range(100):
        table = step @ table + (1 - SPREADING) * given
    frequencies = np.bincount(codes) / len(codes)
    return sets, table[~labelled] + 1e-9 * frequencies, None, None


def propagation(papers: Papers, labelled: Array) -> Answer:
    """Citations and words together."""
    model = kb.Model(
        {"subject": kb.kernels.Delta(), "words": kb.kernels.Linear()},
        {
            "cites": kb.Relation("subject", "subject", symmetric=True),
            "says": kb.Relation("subject", "words", evidence=classifier()),
        },
        max_rank=1,  # the features of words are the estimator's business
    )
    inside = papers.edges[labelled[papers.edges].all(axis=1)]
    model.fit(
        {
            "cites": (papers.subjects[inside[:, 0]], papers.subjects[inside[:, 1]]),
            "says": (papers.subjects[labelled], papers.words[labelled].toarray()),
        }
    )
    rest = np.flatnonzero(~labelled)
    graph = (
        kb.Graph.from_edges(papers.edges, variables=["subject"] * len(papers.subjects), relation="cites")
        .fix(np.flatnonzero(labelled), papers.subjects[labelled])
        .observe("says", papers.words[rest].toarray(), nodes=rest)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.errors.ConvergenceWarning)
        beliefs = model.infer(graph, max_iterations=ITERATIONS)
    sets, _ = codes_of(papers.subjects[labelled])
    table = beliefs.density(np.fromiter(sets, dtype=object))[rest]
    return sets, table, beliefs.iterations, float(beliefs.residuals[-1])


METHODS = {
    "most frequent": most_frequent,
    "regression on words": regression,
    "label spreading": spreading,
    "belief propagation": propagation,
}


def classifier() -> LogisticRegression:
    """The same for the regression and as evidence."""
    return LogisticRegression(C=10.0, max_iter=200)


# ---------------------------------------------------------------------- data


def load(path: Path) -> Papers:
    """Read ``acmv9.mat``."""
    content = loadmat(path)
    network = sparse.triu(sparse.coo_array(content["network"]), k=1).tocoo()
    words = TfidfTransformer(sublinear_tf=True).fit_transform(sparse.csr_array(content["attrb"]))
    groups = np.asarray(sparse.csr_array(content["group"]).toarray()) > 0
    subjects = np.empty(len(groups), dtype=object)
    for index, row in enumerate(groups):
        subjects[index] = frozenset(np.flatnonzero(row).tolist())
    return Papers(np.stack([network.row, network.col], axis=1).astype(np.intp), words, subjects)


def choose(papers: Papers, seed: int) -> Array:
    """Which papers are labelled: all of high degree, and others at random up to a third."""
    labelled = papers.degrees() > ALWAYS
    others = np.flatnonzero(~labelled)
    wanted = round(SHARE * len(labelled)) - int(labelled.sum())
    labelled[np.random.default_rng(seed).choice(others, max(wanted, 0), replace=False)] = True
    return labelled


def codes_of(subjects: Array) -> tuple[list[Any], NDArray[np.intp]]:
    """The sets that occur, in a fixed order, and for each paper the number of its own."""
    sets = sorted(set(subjects), key=sorted)
    number = {subject: index for index, subject in enumerate(sets)}
    return sets, np.array([number[subject] for subject in subjects], dtype=np.intp)


def recall(sets: list[Any], table: Array, truth: Array) -> tuple[float, float, float]:
    """How often a true label is the first guess, is among the first two, and the whole set is right."""
    labels = sorted(frozenset().union(*sets))
    holds = np.array([[label in subject for label in labels] for subject in sets], dtype=np.float64)
    order = np.argsort(-(table @ holds), axis=1, kind="stable")
    hits = [[labels[i] in subject for i in row] for row, subject in zip(order, truth, strict=True)]
    exact = [sets[i] == subject for i, subject in zip(table.argmax(axis=1), truth, strict=True)]
    return (
        float(np.mean(hits, axis=0)[0]),
        float(np.any(np.array(hits)[:, :2], axis=1).mean()),
        float(np.mean(exact)),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run on its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one draw instead of three")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder for the table as CSV")
    options = parser.parse_args(arguments)
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    if not DATA.is_file():
        console.print(f"No data at {DATA}: nothing to measure.")
    with Progress(console=console, transient=True) as progress:
        for found in run(Settings(options.quick, DATA.parent, progress)):
            console.print(found.table())
            for claim in found.claims:
                console.print(f"{claim.what}: {claim.measured} (wanted {claim.wanted})")
            found.save(options.out)


if __name__ == "__main__":
    main()
