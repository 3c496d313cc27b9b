"""Text along a chain: structure classes of residues, and the next residue's class, by string kernels on windows.

Chains of residues are Python strings. Two questions, both with windows of text as the only evidence:

- the structure of each residue (helix, strand or other, from the angle and torsion of its C-alpha atoms), from the 15
  residues around it. Classes of consecutive residues are tied in a chain;
- the class of the next residue (aliphatic, aromatic, polar, ...), from the 15 before it. There is no chain here: the
  window of the following residue holds the answer.

Windows are compared by a string kernel and speak through the library's own regression
(``evidence="posterior"``). Beside it: the most frequent class, and a logistic regression on one-hot windows, alone and
as the evidence of the same chain. Two folds of `CHAINS` chains each; no chain is in both, and no two chains
share a tenth of their pieces of four residues.

How windows are spelled and compared was chosen on other chains, in neither fold: see `KERNEL`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Claim, Results, Settings
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from threadpoolctl import threadpool_limits

import kernelbp as kb

Array = NDArray[Any]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "proteins"
LONGER_THAN = 100
CHAINS = 60
"""In each fold."""
QUICK_CHAINS = 15
WINDOW = 15
HELD_OUT = 6
"""Of so many training chains one is held out to fit edge weights and temperature on."""
SHARED = 0.1
"""Chains more alike than this by their pieces of `PIECE` residues are not both used."""
PIECE = 4
REGULARIZATIONS = (0.01, 0.03, 0.1, 0.3)
"""C of the logistic regression, chosen by log-loss on training chains held out in three folds."""

BEYOND = "-"
"""Before the first residue and after the last."""
KINDS = {
    "aliphatic": "AVILMC",
    "aromatic": "FWY",
    "polar": "STNQ",
    "negative": "DE",
    "positive": "KRH",
    "glycine": "G",
    "proline": "P",
}
KIND_OF = {residue: kind for kind, residues in KINDS.items() for residue in residues}
LETTERS = BEYOND + "".join(KINDS.values())
MARKS = [BEYOND, *KINDS]
FIRST_CHARACTER = 0x4E00
"""Characters from here on stand for letters at places; any range that is all letters would do."""

KERNEL = kb.kernels.Spectrum(1)
"""KERNEL_DOC"""

MAJORITY, LOGISTIC, STRINGS = "most frequent class", "logistic regression", "string kernel"
ALONE, CHAIN, FITTED = "alone", "chain", "chain, fitted"


@dataclass(frozen=True)
class Chain:
    """One protein, where its classes are known.

    Attributes
    ----------
    classes : one for each node
    windows : text of `WINDOW` residues for each node
    joined : (nodes - 1,) whether a node is the residue after the one before
    """

    classes: list[str]
    windows: list[str]
    joined: NDArray[np.bool_]


@dataclass(frozen=True)
class Question:
    """What is asked of every residue.

    Attributes
    ----------
    name, title : of the table
    read : makes a `Chain` of a sequence and its angles (theta, omega) in degrees
    chained : whether consecutive classes are tied
    """

    name: str
    title: str
    read: Callable[[str, Array, Array], Chain]
    chained: bool


def run(settings: Settings) -> Iterator[Results]:
    """A table for each question; nothing where the data is not at hand."""
    if (DATA / "proteins.npz").is_file():
        for question in QUESTIONS:
            yield compared(question, settings)


def compared(question: Question, settings: Settings) -> Results:
    """Accuracy and log-loss of every method, averaged over the folds."""
    chains = load(DATA, question, QUICK_CHAINS if settings.quick else CHAINS)
    folds = [(chains[0::2], chains[1::2]), (chains[1::2], chains[0::2])]
    if settings.quick:
        folds = folds[:1]
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for train, test in settings.progress.track(folds, description=f"{question.name}: folds"):
        for method, graph, *numbers in one_fold(train, test, question.chained):
            found.setdefault((method, graph), []).append(tuple(numbers))
    rows = [(*key, *np.mean(parts, axis=0).tolist()) for key, parts in found.items()]
    residues = sum(len(chain.classes) for chain in chains)
    return Results(
        question.name,
        f"{question.title}: {len(chains)} chains, {residues:,} residues, {len(folds)} fold(s)",
        ("evidence", "graph", "accuracy", "log-loss", "seconds"),
        rows,
        claims=list(claimed(question, {row[:2]: row[2:4] for row in rows})),
        note="log-loss in nats; seconds of processor time, learning and inference, a fold",
    )


def claimed(question: Question, scores: dict[tuple[str, str], tuple[float, float]]) -> Iterator[Claim]:
    """What the chain adds to its own evidence, and where string kernels stand beside the logistic regression."""
    for evidence in (STRINGS, LOGISTIC) if question.chained else ():
        accuracy, loss = np.subtract(scores[evidence, FITTED], scores[evidence, ALONE])
        what = f"{question.name}: {FITTED} on {evidence}, above its evidence alone"
        yield Claim(f"{what}: accuracy", f"{accuracy:+.4f}", ">= 0.01", accuracy >= 0.01)
        yield Claim(f"{what}: log-loss", f"{loss:+.4f}", "<= -0.01", loss <= -0.01)
    best = FITTED if question.chained else ALONE
    for graph in dict.fromkeys((ALONE, best)):
        accuracy, loss = np.subtract(scores[STRINGS, graph], scores[LOGISTIC, ALONE])
        what = f"{question.name}: {STRINGS}, {graph}, beside {LOGISTIC} without a graph"
        least = -0.01 if graph == ALONE else 0.01
        yield Claim(f"{what}: accuracy", f"{accuracy:+.4f}", f">= {least}", accuracy >= least)
        yield Claim(f"{what}: log-loss", f"{loss:+.4f}", f"<= {-least}", loss <= -least)


def one_fold(train: Sequence[Chain], test: Sequence[Chain], chained: bool) -> Iterator[tuple[Any, ...]]:
    """Rows (evidence, graph, accuracy, log-loss, seconds)."""
    truth = classes_of(test)
    names, counts = np.unique(classes_of(train), return_counts=True)
    yield MAJORITY, ALONE, *scored(np.tile(counts / counts.sum(), (len(truth), 1)), names, truth), 0.0

    began = time.process_time()
    logistic = regression(train)
    logistic.fit(letters(train), classes_of(train))
    probabilities = logistic.predict_proba(letters(test))
    spent = time.process_time() - began
    yield LOGISTIC, ALONE, *scored(probabilities, logistic.classes_, truth), spent

    for evidence in (STRINGS, LOGISTIC) if chained else (STRINGS,):
        estimator = logistic if evidence == LOGISTIC else None
        began = time.process_time()
        model = learn(train, estimator)
        learned = time.process_time() - began
        for graph in (ALONE, CHAIN) if chained else (ALONE,):
            if (evidence, graph) != (LOGISTIC, ALONE):
                yield evidence, graph, *measured(model, test, estimator, graph, truth, learned)
        if chained:
            began = time.process_time()
            held_out = train[::HELD_OUT]
            rest = [chain for index, chain in enumerate(train) if index % HELD_OUT]
            model = learn(rest, estimator, held_out)
            learned = time.process_time() - began
            yield evidence, FITTED, *measured(model, test, estimator, FITTED, truth, learned)


def measured(
    model: kb.Model, chains: Sequence[Chain], estimator: Any, graph: str, truth: Array, learned: float
) -> tuple[float, float, float]:
    """Accuracy, log-loss, seconds."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.errors.ConvergenceWarning)
        beliefs = model.infer(graph_of(chains, estimator, tied=graph != ALONE))
    spent = time.process_time() - began
    return *scored(beliefs.probabilities(), np.asarray(beliefs.atoms), truth), learned + spent


def learn(chains: Sequence[Chain], estimator: Any, held_out: Sequence[Chain] = ()) -> kb.Model:
    """How classes follow each other, and the evidence of windows.

    Neighbouring windows share 14 of their 15 residues, while a chain takes their evidence to be independent. Given
    chains held out from the others, inference on them decides how far edges and beliefs are to be trusted.
    """
    evidence = "posterior" if estimator is None else estimator
    model = kb.Model(
        {"class": kb.kernels.Delta(), "window": KERNEL if estimator is None else kb.kernels.Linear()},
        {
            "then": kb.Relation("class", "class"),
            "read": kb.Relation("class", "window", evidence=evidence),
        },
    )
    graphs = [(graph_of(held_out, estimator, tied=True), list(classes_of(held_out)))] if held_out else []
    pairs = {"then": followers(chains), "read": (list(classes_of(chains)), readings(chains, estimator))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.errors.ConvergenceWarning)
        return model.fit(pairs, graphs=graphs)


def regression(chains: Sequence[Chain]) -> Any:
    """A logistic regression on one-hot windows, its C chosen by log-loss on training chains held out."""
    groups = np.repeat(np.arange(len(chains)), [len(chain.classes) for chain in chains])

    def made(regularization: float) -> Any:
        one_hot = OneHotEncoder(handle_unknown="ignore")
        return make_pipeline(one_hot, LogisticRegression(C=regularization, max_iter=500))

    def score(regularization: float) -> float:
        return float(
            cross_val_score(
                made(regularization),
                letters(chains),
                classes_of(chains),
                groups=groups,
                cv=GroupKFold(3),
                scoring="neg_log_loss",
            ).mean()
        )

    return made(max(REGULARIZATIONS, key=score))


# ---------------------------------------------------------------------- windows


def spelled(window: str) -> str:
    """A window as text whose characters know their places: for every place its residue, then its kind.

    A kernel that counts characters then compares windows place by place, and residues of one kind are half alike.
    """
    wide = len(LETTERS) + len(MARKS)
    characters = []
    for place, residue in enumerate(window):
        mark = MARKS.index(KIND_OF.get(residue, BEYOND))
        for code in (LETTERS.index(residue), len(LETTERS) + mark):
            characters.append(chr(FIRST_CHARACTER + wide * place + code))
    return "".join(characters)


def readings(chains: Sequence[Chain], estimator: Any) -> Any:
    """Windows as the evidence reads them: text for a string kernel, numbers of letters for an estimator."""
    if estimator is not None:
        return letters(chains)
    return [spelled(window) for chain in chains for window in chain.windows]


def letters(chains: Sequence[Chain]) -> Array:
    """Numbers of the letters of all windows, shape (residues, `WINDOW`)."""
    number = {letter: float(index) for index, letter in enumerate(LETTERS)}
    return np.array([[number[letter] for letter in window] for chain in chains for window in chain.windows])


# ---------------------------------------------------------------------- chains


def structures(sequence: str, theta: Array, omega: Array) -> Chain:
    """Helix, strand or other for each residue whose angles are known, and the window around it."""
    helix = (theta < 105) & (omega >= 20) & (omega < 80)
    strand = (theta >= 105) & (np.abs(omega) > 100)
    known = np.flatnonzero(np.isfinite(theta) & np.isfinite(omega))
    padded = BEYOND * (WINDOW // 2) + sequence + BEYOND * (WINDOW // 2)
    return Chain(
        ["helix" if helix[place] else "strand" if strand[place] else "other" for place in known],
        [padded[place : place + WINDOW] for place in known],
        np.diff(known) == 1,
    )


def next_kinds(sequence: str, theta: Array, omega: Array) -> Chain:
    """The kind of each residue, and the window before it."""
    padded = BEYOND * WINDOW + sequence
    places = range(1, len(sequence))
    return Chain(
        [KIND_OF[sequence[place]] for place in places],
        [padded[place : place + WINDOW] for place in places],
        np.ones(len(places) - 1, dtype=bool),
    )


QUESTIONS = (
    Question("sequences_structure", "Structure of residues from the text around them", structures, True),
    Question("sequences_next", "Kind of the next residue from the text before it", next_kinds, False),
)


def load(folder: Path, question: Question, count: int) -> list[Chain]:
    """Chains of both folds, `count` each: every other one, no two alike, in the order of their names."""
    chains = []
    with np.load(folder / "proteins.npz") as content:
        for name, sequence in unlike(folder)[0 : 4 * count : 2]:
            theta, omega = (
                np.degrees(content[f"{name}/{angle}"].astype(float)) for angle in ("theta", "omega")
            )
            chains.append(question.read(sequence, theta, omega))
    return chains


def unlike(folder: Path) -> list[tuple[str, str]]:
    """Names and sequences of chains that are long enough, without those too like one before."""
    entries = json.loads((folder / "index.json").read_text())
    named = sorted((entry["id"], entry["seq"]) for entry in entries if len(entry["seq"]) > LONGER_THAN)
    alike = kb.kernels.Spectrum(PIECE)([sequence for _, sequence in named])
    kept: list[int] = []
    for index in range(len(named)):
        if not (alike[index, kept] >= SHARED).any():
            kept.append(index)
    return [named[index] for index in kept]


def classes_of(chains: Sequence[Chain]) -> Array:
    """Classes of all residues, in order."""
    return np.array([name for chain in chains for name in chain.classes])


def followers(chains: Sequence[Chain]) -> tuple[list[str], list[str]]:
    """Classes of residues and of those after them."""
    pairs = [
        (chain.classes[place], chain.classes[place + 1])
        for chain in chains
        for place in np.flatnonzero(chain.joined)
    ]
    return [first for first, _ in pairs], [second for _, second in pairs]


def graph_of(chains: Sequence[Chain], estimator: Any, *, tied: bool) -> kb.Graph:
    """All chains side by side, with their windows; without ties every residue is on its own."""
    edges: list[tuple[int, int, str]] = []
    begin = 0
    for chain in chains:
        if tied:
            places = begin + np.flatnonzero(chain.joined)
            edges += [(int(place), int(place) + 1, "then") for place in places]
        begin += len(chain.classes)
    return kb.Graph.from_edges(edges, variables=["class"] * begin).observe(
        "read", readings(chains, estimator)
    )


def scored(probabilities: Array, names: Array, truth: Array) -> tuple[float, float]:
    """Accuracy of the most probable class, and the mean of minus log-probability of the true one."""
    order = {str(name): index for index, name in enumerate(names)}
    right = np.array([order[str(name)] for name in truth])
    mass = probabilities[np.arange(len(right)), right]
    return float((probabilities.argmax(axis=1) == right).mean()), float(-np.log(mass).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run on its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one fold, fewer chains")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder for the tables as CSV"
    )
    options = parser.parse_args(arguments)
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    if not (DATA / "proteins.npz").is_file():
        console.print(f"No data at {DATA}: nothing to measure.")
    with threadpool_limits(1), Progress(console=console, transient=True) as progress:
        for found in run(Settings(options.quick, DATA, progress)):
            console.print(found.table())
            for claim in found.claims:
                console.print(f"{claim.what}: {claim.measured} (wanted {claim.wanted})")
            found.save(options.out)


if __name__ == "__main__":
    main()
