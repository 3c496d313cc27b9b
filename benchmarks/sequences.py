"""Text along a chain: structure classes of residues, and the next residue's class, by string kernels on windows.

Chains of residues are Python strings. Two questions, both with windows of text as the only evidence:

- the structure of each residue (helix, strand or other, from the angle and torsion of its C-alpha atoms), from the 15
  or 9 residues around it. Classes of consecutive residues are tied in a chain;
- the kind of the next residue (aliphatic, aromatic, polar, ...), from the 9 before it. There is no chain here: the
  window of the following residue holds the answer.

Windows are compared by a string kernel and speak through the library's own regression
(``evidence="posterior"``): by the characters they share, spelled so that a character knows its place (`spelled`), or,
as plain text, by local alignment, which knows no places. Beside it: the most frequent class, and a logistic
regression on one-hot windows, alone and as the evidence of the same chain. Two folds of `CHAINS` chains each: a
subsample, for the whole to take under five minutes on one core. No chain is in both folds, and no two chains are
more alike than 0.1 by their pieces of four residues.

How windows are spelled, compared and cut was chosen on other chains, in neither fold: see `KERNELS`.
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
CHAINS = 40
"""In each fold."""
QUICK_CHAINS = 12
WIDE, NARROW = 15, 9
"""Residues of a window. The regression alone does best with the wide one; a chain, with the narrow one: there windows
of neighbours overlap less, and what they lack the chain brings."""
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

PLACED, ALIGNED = "placed characters", "local alignment"
KERNELS = {PLACED: kb.kernels.Spectrum(1), ALIGNED: kb.kernels.LocalAlignment(beta=0.5)}
"""Chosen on chains of neither fold: 30 to learn from, 12 to fit the chain on, 30 to score.

Alone, with spelled windows of 15, accuracy (log-loss): residues without their kinds 0.538 (0.966), with them
0.537 (0.962); neighbouring pairs, `Spectrum(2)`, 0.431 (1.058); pairs at a distance too,
`Subsequence(2, 0.7, shorter=True)`, 0.528 (0.977), and half and half with single residues at twice the rank 0.535
(0.966); half and half with local alignment of the text 0.534 (0.972). The logistic regression has 0.536 (0.964)
there. Plain text: local alignment 0.505 (1.002), `Spectrum(1)` 0.466 (1.039), `Spectrum(2)` 0.468 (1.042).

With the fitted chain, windows of 15, 11, 9 and 7: 0.547 (0.954), 0.553 (0.952), 0.557 (0.954), 0.549 (0.961). With
9: pairs at a distance too, decay 0.5, 0.550 (0.955); single ones and their products 0.559 (0.953), in twice the time;
mixing fixed at 0.2, 0.554 (0.954). Plain text of 9: local alignment 0.527 (0.981), `Mismatch(3, 1)` 0.491 (1.013).
"""

MAJORITY, LOGISTIC = "most frequent class", "logistic regression"
ALONE, CHAIN, FITTED = "alone", "chain", "chain, fitted"

Key = tuple[str, int, str]
"""A row: evidence, width of windows, graph."""


@dataclass(frozen=True)
class Chain:
    """One protein, where its classes are known.

    Attributes
    ----------
    classes : one for each node
    windows : text for each node, all equally long
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
    read : makes a `Chain` of a sequence, its angles (theta, omega) in degrees and the width of windows
    evidence : what is compared, with the widths of its windows
    chained : whether consecutive classes are tied
    """

    name: str
    title: str
    read: Callable[[str, Array, Array, int], Chain]
    evidence: Sequence[tuple[str, int]]
    chained: bool


def run(settings: Settings) -> Iterator[Results]:
    """A table for each question; nothing where the data is not at hand."""
    if (DATA / "proteins.npz").is_file():
        for question in QUESTIONS:
            yield compared(question, settings)


def compared(question: Question, settings: Settings) -> Results:
    """Accuracy and log-loss of every method, averaged over the folds."""
    count = QUICK_CHAINS if settings.quick else CHAINS
    folds = range(1 if settings.quick else 2)
    work = [(fold, evidence, width) for fold in folds for evidence, width in question.evidence]
    found: dict[Key, list[tuple[float, ...]]] = {}
    for fold, evidence, width in settings.progress.track(work, description=question.name):
        chains = load(DATA, question, width, count)
        for graph, *numbers in one_fold(chains[fold::2], chains[1 - fold :: 2], evidence, question.chained):
            found.setdefault((evidence, width, graph), []).append(tuple(numbers))
    rows = [(*key, *np.mean(parts, axis=0).tolist()) for key, parts in found.items()]
    residues = sum(len(chain.classes) for chain in chains)
    return Results(
        question.name,
        f"{question.title}: {len(chains)} chains, {residues:,} residues, {len(folds)} fold(s)",
        ("evidence", "window", "graph", "accuracy", "log-loss", "seconds"),
        rows,
        claims=list(claimed(question, {row[:3]: row[3:5] for row in rows})),
        note="fitted: edge weights, mixing and temperature by fit(graphs=) on a sixth of the training chains, "
        "learning from the rest; log-loss in nats; seconds of processor time, learning and inference, a fold",
    )


def claimed(question: Question, scores: dict[Key, tuple[float, float]]) -> Iterator[Claim]:
    """What the chain adds to its own evidence, and where string kernels stand beside the logistic regression."""
    comparisons: list[tuple[Key, Key, float]] = []
    for evidence, width in question.evidence:
        if question.chained and evidence != MAJORITY:
            comparisons.append(((evidence, width, FITTED), (evidence, width, ALONE), 0.01))
    for evidence, width in question.evidence:
        if evidence in KERNELS:
            comparisons.append(((evidence, width, ALONE), (LOGISTIC, width, ALONE), -0.01))
    if question.chained:
        comparisons.append(((PLACED, NARROW, FITTED), (LOGISTIC, WIDE, ALONE), 0.01))
    for ours, theirs, least in comparisons:
        accuracy, loss = np.subtract(scores[ours], scores[theirs])
        what = f"{question.name}: {shown(ours)} against {shown(theirs)}"
        yield Claim(f"{what}: accuracy", f"{accuracy:+.4f}", f">= {least}", bool(accuracy >= least))
        yield Claim(f"{what}: log-loss", f"{loss:+.4f}", f"<= {-least}", bool(loss <= -least))


def shown(key: Key) -> str:
    """A row as text."""
    return f"{key[0]} of {key[1]} ({key[2]})"


def one_fold(
    train: Sequence[Chain], test: Sequence[Chain], evidence: str, chained: bool
) -> Iterator[tuple[Any, ...]]:
    """Rows (graph, accuracy, log-loss, seconds)."""
    truth = classes_of(test)
    if evidence == MAJORITY:
        names, counts = np.unique(classes_of(train), return_counts=True)
        yield ALONE, *scored(np.tile(counts / counts.sum(), (len(truth), 1)), names, truth), 0.0
        return
    source: Any = evidence
    if evidence == LOGISTIC:
        began = time.process_time()
        source = regression(train).fit(letters(train), classes_of(train))
        probabilities = source.predict_proba(letters(test))
        spent = time.process_time() - began
        yield ALONE, *scored(probabilities, source.classes_, truth), spent
        if not chained:
            return
    began = time.process_time()
    model = learn(train, source)
    learned = time.process_time() - began
    if evidence != LOGISTIC:
        yield ALONE, *measured(model, test, source, ALONE, truth, learned)
    if chained:
        yield CHAIN, *measured(model, test, source, CHAIN, truth, learned)
        began = time.process_time()
        held_out = train[::HELD_OUT]
        rest = [chain for index, chain in enumerate(train) if index % HELD_OUT]
        model = learn(rest, source, held_out)
        learned = time.process_time() - began
        yield FITTED, *measured(model, test, source, FITTED, truth, learned)


def measured(
    model: kb.Model, chains: Sequence[Chain], source: Any, graph: str, truth: Array, learned: float
) -> tuple[float, float, float]:
    """Accuracy, log-loss, seconds."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.errors.ConvergenceWarning)
        beliefs = model.infer(graph_of(chains, source, tied=graph != ALONE))
    spent = time.process_time() - began
    return *scored(beliefs.probabilities(), np.asarray(beliefs.atoms), truth), learned + spent


def learn(chains: Sequence[Chain], source: Any, held_out: Sequence[Chain] = ()) -> kb.Model:
    """How classes follow each other, and the evidence of windows: one of `KERNELS` by name, or an estimator.

    Windows of neighbours share most of their residues, while a chain takes their evidence to be independent. Given
    chains held out from the others, inference on them decides how far edges and beliefs are to be trusted.
    """
    kernel = KERNELS[source] if isinstance(source, str) else kb.kernels.Linear()
    evidence = "posterior" if isinstance(source, str) else source
    model = kb.Model(
        {"class": kb.kernels.Delta(), "window": kernel},
        {
            "then": kb.Relation("class", "class"),
            "read": kb.Relation("class", "window", evidence=evidence),
        },
        power=1,  # products of messages are of classes only, a finite variable; windows need none
    )
    graphs = [(graph_of(held_out, source, tied=True), list(classes_of(held_out)))] if held_out else []
    pairs = {"then": followers(chains), "read": (list(classes_of(chains)), readings(chains, source))}
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

    A kernel that counts characters then compares windows place by place, as one-hot windows do, and residues of one
    kind are half alike.
    """
    wide = len(LETTERS) + len(MARKS)
    characters = []
    for place, residue in enumerate(window):
        mark = MARKS.index(KIND_OF.get(residue, BEYOND))
        for code in (LETTERS.index(residue), len(LETTERS) + mark):
            characters.append(chr(FIRST_CHARACTER + wide * place + code))
    return "".join(characters)


def readings(chains: Sequence[Chain], source: Any) -> Any:
    """Windows as the evidence reads them: text for a string kernel, numbers of letters for an estimator."""
    if not isinstance(source, str):
        return letters(chains)
    spell = spelled if source == PLACED else str
    return [spell(window) for chain in chains for window in chain.windows]


def letters(chains: Sequence[Chain]) -> Array:
    """Numbers of the letters of all windows, shape (residues, width)."""
    number = {letter: float(index) for index, letter in enumerate(LETTERS)}
    return np.array([[number[letter] for letter in window] for chain in chains for window in chain.windows])


# ---------------------------------------------------------------------- chains


def structures(sequence: str, theta: Array, omega: Array, width: int) -> Chain:
    """Helix, strand or other for each residue whose angles are known, and the window around it."""
    helix = (theta < 105) & (omega >= 20) & (omega < 80)
    strand = (theta >= 105) & (np.abs(omega) > 100)
    known = np.flatnonzero(np.isfinite(theta) & np.isfinite(omega))
    padded = BEYOND * (width // 2) + sequence + BEYOND * (width // 2)
    return Chain(
        ["helix" if helix[place] else "strand" if strand[place] else "other" for place in known],
        [padded[place : place + width] for place in known],
        np.diff(known) == 1,
    )


def next_kinds(sequence: str, theta: Array, omega: Array, width: int) -> Chain:
    """The kind of each residue, and the window before it."""
    padded = BEYOND * width + sequence
    places = range(1, len(sequence))
    return Chain(
        [KIND_OF[sequence[place]] for place in places],
        [padded[place : place + width] for place in places],
        np.ones(len(places) - 1, dtype=bool),
    )


QUESTIONS = (
    Question(
        "sequences_structure",
        "Structure of residues from the text around them",
        structures,
        (
            (MAJORITY, WIDE),
            (LOGISTIC, WIDE),
            (PLACED, WIDE),
            (LOGISTIC, NARROW),
            (PLACED, NARROW),
            (ALIGNED, NARROW),
        ),
        True,
    ),
    Question(
        "sequences_next",
        "Kind of the next residue from the text before it",
        next_kinds,
        ((MAJORITY, NARROW), (LOGISTIC, NARROW), (PLACED, NARROW)),
        False,
    ),
)


def load(folder: Path, question: Question, width: int, count: int) -> list[Chain]:
    """Chains of both folds, `count` each: every other one, no two alike, in the order of their names."""
    chains = []
    with np.load(folder / "proteins.npz") as content:
        for name, sequence in unlike(folder)[0 : 4 * count : 2]:
            theta, omega = (
                np.degrees(content[f"{name}/{angle}"].astype(float)) for angle in ("theta", "omega")
            )
            chains.append(question.read(sequence, theta, omega, width))
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


def graph_of(chains: Sequence[Chain], source: Any, *, tied: bool) -> kb.Graph:
    """All chains side by side, with their windows; without ties every residue is on its own."""
    edges: list[tuple[int, int, str]] = []
    begin = 0
    for chain in chains:
        if tied:
            places = begin + np.flatnonzero(chain.joined)
            edges += [(int(place), int(place) + 1, "then") for place in places]
        begin += len(chain.classes)
    return kb.Graph.from_edges(edges, variables=["class"] * begin).observe("read", readings(chains, source))


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
