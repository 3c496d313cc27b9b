"""Figure 3 of the paper: directions along protein backbones from sequence profiles, kernel against particle BP.

The hidden variable is a residue's direction on the sphere, made of the angle theta and the torsion omega of consecutive
C-alpha atoms; a chain of them has a profile of 20 numbers at each residue. Judged is the mean cosine between the
true direction and the mean of the belief, in ten folds (chains of one entry of the PDB stay together).

Evidence is what a local predictor says, and the question is what the chain adds to it. There are four: the paper's linear
posterior form on the profile of one residue, the same on a window of 15, and, on that window, boosted trees and
neural networks. The latter two are cross-fitted: each member learns without one part of the training chains
and speaks about that part, so that the model can tell how far to believe it; on test chains members are averaged.

Neighbouring windows share 14 of their 15 residues, so their evidence is not independent as a chain takes it to be. How
strongly to weight the edges is chosen on some training chains of each fold, with what was said about them by members
that had not seen them (the linear evidence has; it has few numbers to fit and many residues).
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import kernelbp as kb
from kernelbp.datasets import Protein, SwitchingProcess, load_proteins, protein_chains
from kernelbp.errors import InputError
from kernelbp.experiments.local_predictors import (
    ReadyClassifier,
    ReadyRegressor,
    boosting_spoken,
    networks_spoken,
)
from kernelbp.experiments.report import Claim, Picture, Report, Table
from kernelbp.experiments.study import Case, Result, Row, Study

if TYPE_CHECKING:
    from kernelbp.inference.beliefs import Beliefs

__all__ = ["FULL", "GENERATED", "GENERATED_QUICK", "QUICK", "Sizes", "run"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

LONGER_THAN = 100
"""Residues of chains that are learned from and tested, as in the paper."""
WEIGHTS = (1.0, 0.75, 0.55, 0.4, 0.25)
"""Of edges, tried."""
RIDGE = 0.003
"""Of the regression beside kernel BP, for each residue learned from: 300 among 100,000."""
PAPER_PARTICLES: dict[str, Any] = {
    "n_particles": 30,
    "resample_every": 15,
    "mcmc_steps": 10,
    "n_centres": 100,
}
"""The paper's settings for denoising (appendix 2); it names none for proteins."""
MORE_PARTICLES: dict[str, Any] = {"n_particles": 60, "resample_every": 5, "mcmc_steps": 10, "n_centres": 100}
OWN, GIVEN = "its own evidence", "kernel BP's evidence"
PARTICLE_TRIALS: dict[str, tuple[dict[str, Any], int, str]] = {
    f"{name}, {evidence}": (settings, iterations, evidence)
    for name, settings, iterations in (("paper", PAPER_PARTICLES, 30), ("more", MORE_PARTICLES, 10))
    for evidence in (OWN, GIVEN)
}
"""Settings, iterations and evidence of particle BP, the first as in the paper."""
ENTRY = re.compile(r"([0-9][A-Za-z0-9]{3})_?[A-Za-z0-9]?")
"""Names of the PDB: an entry of four letters, and a chain."""
MAP_SHAPE = (60, 120)
"""Points in theta and omega at which beliefs are drawn."""
MOST_ON_MAP = 40_000
SHARPNESS = 80.0
"""Concentration of the windows beliefs are smoothed with for drawing, a tenth of a radian wide."""
SHOWN = (0.1, 0.5, 0.8, 0.97)
"""Residues whose belief is drawn, by their rank in entropy within their chain."""

ONE, WINDOW, BOOSTED, NETWORKS = (
    "one residue, linear",
    "window, linear",
    "window, boosting",
    "window, networks",
)
ALONE, EVIDENCE, CHAIN, WEIGHTED = (
    "predictor alone",
    "evidence alone",
    "kernel BP",
    "kernel BP, weighted edges",
)
EMBEDDED, PARTICLE, BEST = (
    "kernel BP, the paper's embeddings",
    "particle BP, paper's settings",
    "particle BP, best found",
)
EXACT = "exact answer"


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes
    ----------
    chains : most chains that are learned from and tested
    length : residues of a generated one
    tuning : training chains of a fold on which the edges' weight and the rivals' settings are chosen
    folds : into which chains are dealt
    linear, boosted, networks, particles : folds carried out with each
    particle_chains : test chains of a fold that particle BP is run on
    members : predictors that are cross-fitted and averaged
    epochs : of a network's training
    trees : of boosting, for each coordinate
    """

    chains: int
    length: int
    tuning: int
    folds: int
    linear: int
    boosted: int
    networks: int
    particles: int
    particle_chains: int
    members: int
    epochs: int
    trees: int


FULL = Sizes(
    chains=100_000,
    length=0,
    tuning=24,
    folds=10,
    linear=10,
    boosted=1,
    networks=4,
    particles=2,
    particle_chains=4,
    members=5,
    epochs=12,
    trees=60,
)
QUICK = Sizes(
    chains=60,
    length=0,
    tuning=6,
    folds=10,
    linear=1,
    boosted=0,
    networks=1,
    particles=1,
    particle_chains=1,
    members=2,
    epochs=6,
    trees=20,
)
GENERATED = Sizes(
    chains=100,
    length=120,
    tuning=10,
    folds=5,
    linear=5,
    boosted=1,
    networks=1,
    particles=1,
    particle_chains=3,
    members=3,
    epochs=10,
    trees=40,
)
GENERATED_QUICK = Sizes(
    chains=40,
    length=60,
    tuning=4,
    folds=5,
    linear=2,
    boosted=0,
    networks=1,
    particles=1,
    particle_chains=1,
    members=2,
    epochs=6,
    trees=20,
)


def run(study: Study, window: int = 15, *, sizes: Sizes | None = None) -> Report:
    """Carry out the experiment.

    Parameters
    ----------
    study : Study
        Without a data folder, chains are generated.
    window : int
        Residues whose profiles are one residue's evidence, an odd number.
    sizes : Sizes, optional
        By default as the study's options ask.
    """
    if window % 2 == 0:
        raise InputError(f"window: expected an odd number of residues, got {window}")
    quick, generated = study.options.quick, study.options.data is None
    if sizes is None:
        sizes = (GENERATED_QUICK if quick else GENERATED) if generated else (QUICK if quick else FULL)

    # load
    data = load(study, sizes)
    folds = deal(data.chains, sizes.folds, study.rng(1))

    # learn, infer, score
    cases = []
    for fold in range(sizes.folds):
        here = Fold(data, folds, fold, window, sizes, study.options.seed)
        for name, count, seconds, method in (
            ("linear", sizes.linear, 60.0, linear_fold),
            ("networks", sizes.networks, 120.0, networks_fold),
            ("boosting", sizes.boosted, 120.0, boosting_fold),
        ):
            if fold < count:
                cases.append(Case(f"{name}, fold {fold + 1}", partial(method, here), seconds))
    found = study.finish(cases)
    if sizes.particles:
        first = Fold(data, folds, 0, window, sizes, study.options.seed)
        search = Case("particle settings", partial(particle_search, first, _spoken(found, 0)), 120.0)
        found |= study.finish([search])
        tried = found["particle settings"]
        rivals = [
            Case(
                f"particles, fold {fold + 1}",
                partial(particle_fold, replace(first, number=fold), _spoken(found, fold), tried),
                200.0,
            )
            for fold in range(sizes.particles)
        ]
        found |= study.finish(rivals)

    # draw
    return _report(data, found, window, sizes, study)


# ---------------------------------------------------------------------- data


@dataclass(frozen=True, eq=False)
class Chain:
    """One protein as the experiment sees it.

    Attributes
    ----------
    name : str
    directions : (residues, 3) unit vectors, NaN where an angle is not known
    profile : (residues, 20) between 0 and 1
    known : (residues,) whether the direction is
    exact : (residues, 3) the mean of the direction given all profiles, where the process is known
    """

    name: str
    directions: Matrix
    profile: Matrix
    known: NDArray[np.bool_]
    exact: Matrix | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """Chains to learn from and test."""

    chains: Sequence[Chain]
    generated: bool


def load(study: Study, sizes: Sizes) -> Data:
    """Chains from the folder asked for, or generated."""
    if study.options.data is None:
        seed = study.options.seed
        made, process = protein_chains(sizes.chains, length=sizes.length, seed=seed)
        return Data([_chain(protein, process) for protein in made], generated=True)
    chains = [_chain(protein) for protein in load_proteins(study.options.data)]
    long = [chain for chain in chains if len(chain.known) > LONGER_THAN and chain.known.sum() > 1]
    if len(long) < 2 * sizes.folds:
        raise InputError(
            f"data: {len(long)} chains of more than {LONGER_THAN} residues in {study.options.data}; "
            f"expected at least {2 * sizes.folds}"
        )
    return Data(_thinned(long, sizes.chains), generated=False)


def _chain(protein: Protein, process: SwitchingProcess | None = None) -> Chain:
    directions = protein.directions
    exact = None if process is None else process.exact_means(protein.profile)
    # Log-odds to numbers between 0 and 1.
    profile = 1 / (1 + np.exp(-protein.profile))
    known = np.asarray(np.isfinite(directions).all(axis=1))
    return Chain(protein.name, directions, profile, known, exact)


def _thinned(chains: Sequence[Chain], most: int) -> list[Chain]:
    kept = np.linspace(0, len(chains) - 1, min(most, len(chains))).astype(int)
    return [chains[number] for number in kept]


def deal(chains: Sequence[Chain], folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """The fold of each chain; chains of one entry share it."""
    found = [ENTRY.fullmatch(chain.name) for chain in chains]
    entries = [match[1].lower() if match else chain.name for match, chain in zip(found, chains, strict=True)]
    names, numbers = np.unique(entries, return_inverse=True)
    return (np.argsort(rng.permutation(len(names))) % folds)[numbers]


def directions_of(chains: Sequence[Chain]) -> Matrix:
    """All directions that are known, (n, 3)."""
    return np.concatenate([chain.directions[chain.known] for chain in chains])


def windows_of(chains: Sequence[Chain], width: int) -> NDArray[np.float32]:
    """Profiles of `width` residues around each whose direction is known, zeros beyond the ends, (n, 20 width)."""
    found = []
    for chain in chains:
        padded = np.pad(chain.profile.astype(np.float32), ((width // 2, width // 2), (0, 0)))
        size = len(chain.profile)
        shifted = [padded[step : step + size][chain.known] for step in range(width)]
        found.append(np.concatenate(shifted, axis=1))
    return np.concatenate(found)


def neighbours(chains: Sequence[Chain]) -> tuple[Matrix, Matrix]:
    """Directions of consecutive residues, both known."""
    both = [chain.known[:-1] & chain.known[1:] for chain in chains]
    pairs = list(zip(chains, both, strict=True))
    return (
        np.concatenate([chain.directions[:-1][kept] for chain, kept in pairs]),
        np.concatenate([chain.directions[1:][kept] for chain, kept in pairs]),
    )


def graph_of(chains: Sequence[Chain], *, linked: bool = True) -> kb.Graph:
    """All chains side by side; nodes are residues whose direction is known."""
    edges: list[tuple[int, int, str]] = []
    begin = 0
    for chain in chains:
        number = begin + np.cumsum(chain.known) - 1
        at = np.flatnonzero(chain.known[:-1] & chain.known[1:]) if linked else np.empty(0, dtype=int)
        edges += [(int(a), int(b), "then") for a, b in zip(number[at], number[at + 1], strict=True)]
        begin += int(chain.known.sum())
    return kb.Graph.from_edges(edges, variables=["direction"] * begin)


@dataclass(frozen=True, eq=False)
class Fold:
    """One split into training and test chains."""

    data: Data
    folds: NDArray[np.intp]
    number: int
    window: int
    sizes: Sizes
    seed: int

    @property
    def train(self) -> list[Chain]:
        """Chains of all other folds."""
        pairs = zip(self.data.chains, self.folds, strict=True)
        return [chain for chain, fold in pairs if fold != self.number]

    @property
    def test(self) -> list[Chain]:
        """Chains of this fold."""
        pairs = zip(self.data.chains, self.folds, strict=True)
        return [chain for chain, fold in pairs if fold == self.number]

    @property
    def tuning(self) -> list[Chain]:
        """Training chains on which settings are chosen."""
        return _thinned(self.train, self.sizes.tuning)

    def row(self, evidence: str, method: str, cosine: float, **more: Any) -> Row:
        """One line of the table of all folds."""
        return {
            "fold": self.number + 1,
            "evidence": evidence,
            "method": method,
            "mean cosine": cosine,
            **more,
        }


# ---------------------------------------------------------------------- scores


def cosines(guess: Matrix, truth: Matrix) -> Matrix:
    """Cosine between directions (n, 3), (n,); guesses need not have unit length."""
    size = np.maximum(np.linalg.norm(guess, axis=1), np.finfo(np.float64).tiny)
    return np.asarray((guess * truth).sum(axis=1) / size)


def by_chain(values: Matrix, chains: Sequence[Chain]) -> Matrix:
    """Sum of values over the known residues of each chain, (chains,)."""
    ends = np.cumsum([int(chain.known.sum()) for chain in chains])
    return np.array([part.sum() for part in np.split(values, ends[:-1])])


# ---------------------------------------------------------------------- kernel BP


def learn(train: Sequence[Chain], readings: Mapping[str, tuple[Any, Array]], **settings: Any) -> kb.Model:
    """One model of the chain, with a relation for each way to read it: evidence form and training readings."""
    relations = {"then": kb.Relation("direction", "direction")}
    variables: dict[str, Any] = {"direction": kb.kernels.Sphere()}
    pairs: dict[str, Any] = {"then": neighbours(train)}
    for name, (form, values) in readings.items():
        variables[f"profile, {name}"] = kb.kernels.Linear()
        relations[name] = kb.Relation("direction", f"profile, {name}", evidence=form)
        pairs[name] = (directions_of(train), values)
    return kb.Model(variables, relations, **settings).fit(pairs)


def inferred(model: kb.Model, graph: kb.Graph, weight: float = 1.0, **settings: Any) -> Beliefs:
    """Beliefs with all edges weighted alike."""
    if weight != 1:
        settings["weighting"] = np.full(graph.n_edges, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.ConvergenceWarning)
        return model.infer(graph, **settings)


def chosen_weight(model: kb.Model, graph: kb.Graph, truth: Matrix) -> float:
    """The weight of edges with the highest mean cosine."""
    return max(WEIGHTS, key=lambda w: float(cosines(inferred(model, graph, w).mean(), truth).mean()))


def measured(
    fold: Fold,
    evidence: str,
    model: kb.Model,
    relation: str,
    readings: Callable[[Sequence[Chain]], Array],
    heard: Array,
    *,
    fit_seconds: float,
    embedded: bool = False,
) -> tuple[list[Row], dict[str, Array], Beliefs]:
    """Rows of kernel BP on one kind of evidence, sums of cosines by chain, and the beliefs with weighted edges."""
    test, tuning = fold.test, fold.tuning
    truth, seen = directions_of(test), readings(test)
    rows, arrays = [], {}
    # What was heard about all training chains, those for tuning among them.
    chosen = {id(chain) for chain in tuning}
    said = heard[np.concatenate([np.full(int(c.known.sum()), id(c) in chosen) for c in fold.train])]
    weight = chosen_weight(model, graph_of(tuning).observe(relation, said), directions_of(tuning))
    ways: list[tuple[str, bool, float, dict[str, Any]]] = [
        (EVIDENCE, False, 1.0, {}),
        (CHAIN, True, 1.0, {}),
        (WEIGHTED, True, weight, {}),
    ]
    if embedded:
        ways.insert(1, (EMBEDDED, True, 1.0, {"conditionals": "embedding"}))
    for method, linked, factor, settings in ways:
        graph = graph_of(test, linked=linked).observe(relation, seen)
        began = time.perf_counter()
        beliefs = inferred(model, graph, factor, **settings)
        spent = time.perf_counter() - began
        scores = cosines(beliefs.mean(), truth)
        arrays[f"{evidence}: {method}"] = by_chain(scores, test)
        rows.append(
            fold.row(
                evidence,
                method,
                float(scores.mean()),
                **{
                    "edge weight": factor if linked else None,
                    "fit seconds": fit_seconds,
                    "inference seconds": spent,
                    "iterations": beliefs.iterations if linked else None,
                },
            )
        )
    # What particle BP is given: the same evidence, at the same points.
    few = test[: fold.sizes.particle_chains]
    seen = seen[: sum(int(chain.known.sum()) for chain in few)]
    for name, chains, values in (("test", few, seen), ("tuning", tuning, said)):
        alone = model.infer(graph_of(chains, linked=False).observe(relation, values))
        logs = alone["direction"].log_products_at_support()
        arrays[f"{evidence}: logs, {name}"] = (logs - logs.max(axis=1, keepdims=True)).astype(np.float32)
    arrays[f"{evidence}: states"] = model.support("direction")
    return rows, arrays, beliefs


def linear_fold(fold: Fold) -> Result:
    """The paper's evidence on one residue and on a window, ridge regression beside it; the exact answer if known."""
    from sklearn.linear_model import Ridge

    train, test = fold.train, fold.test
    truth = directions_of(test)
    rows: list[Row] = []
    arrays: dict[str, Array] = {"counts": np.array([int(chain.known.sum()) for chain in test])}
    if fold.data.generated:
        scores = cosines(np.concatenate([c.exact for c in test if c.exact is not None]), truth)
        rows.append(fold.row("the process itself", EXACT, float(scores.mean())))
        arrays["exact"] = by_chain(scores, test)
    ways = {"one": (ONE, 1), "window": (WINDOW, fold.window)}
    for evidence, width in ways.values():
        began = time.perf_counter()
        known = directions_of(train)
        ridge = Ridge(RIDGE * len(known)).fit(windows_of(train, width).astype(np.float64), known)
        spent = time.perf_counter() - began
        scores = cosines(ridge.predict(windows_of(test, width).astype(np.float64)), truth)
        arrays[f"{evidence}: {ALONE}"] = by_chain(scores, test)
        rows.append(fold.row(evidence, ALONE, float(scores.mean()), **{"fit seconds": spent}))
    began = time.perf_counter()
    readings = {
        name: ("posterior", windows_of(train, width).astype(np.float64)) for name, (_, width) in ways.items()
    }
    model = learn(train, readings)
    spent = time.perf_counter() - began
    beliefs = None
    for name, (evidence, width) in ways.items():

        def readings_of(chains: Sequence[Chain], width: int = width) -> Array:
            return windows_of(chains, width).astype(np.float64)

        more, kept, beliefs = measured(
            fold, evidence, model, name, readings_of, readings[name][1], fit_seconds=spent, embedded=True
        )
        rows += more
        arrays |= kept
    if fold.number == 0:
        arrays |= _for_map(train)
        arrays |= _for_beliefs(beliefs, test)
    return Result(rows, arrays)


def networks_fold(fold: Fold) -> Result:
    """Neural networks that classify states, alone and under the chain."""
    from kernelbp.kernels import resolve
    from kernelbp.learning.probability import choose_states

    train = fold.train
    # The networks' classes are the states of the model, so states are chosen first.
    known = directions_of(train)
    budget = int(np.clip(round(4 * len(known) ** (1 / 3)), 32, 128))
    states = choose_states(resolve(kb.kernels.Sphere(), known), known, budget).points
    began = time.perf_counter()
    speaker, heard = networks_spoken(
        [windows_of([chain], fold.window) for chain in train],
        [np.argmax(chain.directions[chain.known] @ states.T, axis=1) for chain in train],
        len(states),
        members=fold.sizes.members,
        epochs=fold.sizes.epochs,
        seed=fold.seed,
    )
    spent = time.perf_counter() - began
    return _spoken_fold(
        fold,
        NETWORKS,
        ReadyClassifier(),
        speaker,
        heard,
        spent,
        as_directions=lambda logs: np.exp(logs) @ states,
        landmarks={"direction": states},
    )


def boosting_fold(fold: Fold) -> Result:
    """Boosted trees that regress the direction, alone and under the chain."""
    train = fold.train
    began = time.perf_counter()
    speaker, heard = boosting_spoken(
        [windows_of([chain], fold.window) for chain in train],
        [chain.directions[chain.known] for chain in train],
        members=min(fold.sizes.members, 3),
        trees=fold.sizes.trees,
        seed=fold.seed,
    )
    spent = time.perf_counter() - began
    return _spoken_fold(fold, BOOSTED, ReadyRegressor(), speaker, heard, spent, as_directions=np.asarray)


def _spoken_fold(
    fold: Fold,
    evidence: str,
    form: Any,
    speaker: Callable[[Array], Matrix],
    heard: Matrix,
    spent: float,
    *,
    as_directions: Callable[[Matrix], Matrix],
    **settings: Any,
) -> Result:
    """What predictors trained beforehand say, alone and as evidence."""
    test = fold.test
    scores = cosines(as_directions(speaker(windows_of(test, fold.window))), directions_of(test))
    rows = [fold.row(evidence, ALONE, float(scores.mean()), **{"fit seconds": spent})]
    arrays = {f"{evidence}: {ALONE}": by_chain(scores, test)}
    began = time.perf_counter()
    model = learn(fold.train, {"said": (form, heard)}, **settings)
    spent += time.perf_counter() - began

    def readings_of(chains: Sequence[Chain]) -> Array:
        return speaker(windows_of(chains, fold.window))

    more, kept, beliefs = measured(fold, evidence, model, "said", readings_of, heard, fit_seconds=spent)
    if fold.number == 0:
        kept |= _for_beliefs(beliefs, test)
    return Result([*rows, *more], {**arrays, **kept})


# ---------------------------------------------------------------------- particle BP


def _spoken(found: Mapping[str, Result], fold: int) -> dict[str, Mapping[str, Array]]:
    """What kernel BP's evidence said in a fold, by its kind, as far as particle BP is run on it."""
    spoken = {}
    for evidence, case in ((ONE, "linear"), (WINDOW, "linear"), (NETWORKS, "networks")):
        if f"{case}, fold {fold + 1}" in found:
            spoken[evidence] = found[f"{case}, fold {fold + 1}"].arrays
    return spoken


class Particles:
    """Particle BP as learned in one fold."""

    def __init__(self, fold: Fold) -> None:
        train = fold.train
        self._fold, self._windows = fold, {ONE: 1, WINDOW: fold.window}
        relations = {"then": kb.Relation("direction", "direction")}
        variables: dict[str, Any] = {"direction": kb.kernels.Sphere()}
        pairs: dict[str, Any] = {"then": neighbours(train)}
        for evidence, width in self._windows.items():
            # As the paper has it: a density around what a ridge regression predicts.
            variables[f"profile, {evidence}"] = kb.kernels.Linear()
            relations[evidence] = kb.Relation("direction", f"profile, {evidence}", evidence="posterior")
            pairs[evidence] = (directions_of(train), windows_of(train, width).astype(np.float64))
        began = time.perf_counter()
        self._model = kb.rivals.ParticleModel(variables, relations, **PAPER_PARTICLES).fit(pairs)
        self.fit_seconds = time.perf_counter() - began

    def speaks(self, evidence: str) -> bool:
        """Whether it has evidence of its own of this kind: its regression is linear."""
        return evidence in self._windows

    def infer(
        self, chains: Sequence[Chain], evidence: str, logs: Array, states: Array, trial: str
    ) -> tuple[Any, float]:
        """Beliefs and the seconds it took; kernel BP's evidence is given as logs at states."""
        settings, iterations, form = PARTICLE_TRIALS[trial]
        graph = graph_of(chains)
        if form == OWN:
            width = self._windows[evidence]
            graph = graph.observe(evidence, windows_of(chains, width).astype(np.float64))
        else:
            graph = graph.soften(np.arange(graph.n_nodes), states, np.exp(logs.astype(np.float64)))
        for name, value in settings.items():
            setattr(self._model, name, value)
        began = time.perf_counter()
        beliefs = self._model.infer(graph, max_iterations=iterations, seed=self._fold.seed)
        return beliefs, time.perf_counter() - began


def particle_search(fold: Fold, spoken: Mapping[str, Mapping[str, Array]]) -> Result:
    """Which settings of particle BP do best on a few training chains of the first fold."""
    few = fold.tuning[: fold.sizes.particle_chains]
    truth = directions_of(few)
    particles = Particles(fold)
    rows: list[Row] = []
    for evidence, said in spoken.items():
        logs, states = said[f"{evidence}: logs, tuning"][: len(truth)], said[f"{evidence}: states"]
        for trial, (settings, iterations, form) in PARTICLE_TRIALS.items():
            if form == OWN and not particles.speaks(evidence):
                continue
            beliefs, seconds = particles.infer(few, evidence, logs, states, trial)
            rows.append(
                {
                    "evidence": evidence,
                    "trial": trial,
                    **settings,
                    "iterations": iterations,
                    "mean cosine": float(cosines(beliefs.mean(), truth).mean()),
                    "inference seconds": seconds,
                }
            )
    return Result(rows)


def particle_fold(fold: Fold, spoken: Mapping[str, Mapping[str, Array]], tried: Result) -> Result:
    """Particle BP at the paper's settings and at the best found, on some test chains of a fold."""
    few = fold.test[: fold.sizes.particle_chains]
    truth = directions_of(few)
    particles = Particles(fold)
    rows: list[Row] = []
    arrays: dict[str, Array] = {}
    for evidence, said in spoken.items():
        mine = [row for row in tried.rows if row["evidence"] == evidence]
        best = str(max(mine, key=lambda row: float(row["mean cosine"] or -1))["trial"])
        paper = f"paper, {OWN if particles.speaks(evidence) else GIVEN}"
        done: dict[str, tuple[Any, float]] = {}
        for method, trial in ((PARTICLE, paper), (BEST, best)):
            if trial not in done:
                logs, states = said[f"{evidence}: logs, test"], said[f"{evidence}: states"]
                done[trial] = particles.infer(few, evidence, logs, states, trial)
            beliefs, seconds = done[trial]
            scores = cosines(beliefs.mean(), truth)
            arrays[f"{evidence}: {method}"] = by_chain(scores, few)
            rows.append(
                fold.row(
                    evidence,
                    method,
                    float(scores.mean()),
                    **{
                        "fit seconds": particles.fit_seconds,
                        "inference seconds": seconds,
                        "iterations": beliefs.iterations,
                        "settings": trial,
                    },
                )
            )
    return Result(rows, arrays)


# ---------------------------------------------------------------------- report


@cache
def _map_points() -> Matrix:
    """Directions on a grid of theta and omega, (points, 3)."""
    from kernelbp.datasets import backbone_directions

    theta = (np.arange(MAP_SHAPE[0]) + 0.5) / MAP_SHAPE[0] * np.pi
    omega = (np.arange(MAP_SHAPE[1]) + 0.5) / MAP_SHAPE[1] * 2 * np.pi - np.pi
    grid = np.meshgrid(theta, omega, indexing="ij")
    return backbone_directions(grid[0].ravel(), grid[1].ravel())


def _angles(directions: Matrix) -> Matrix:
    """Theta and omega, (n, 2)."""
    theta = np.arccos(np.clip(directions[:, 2], -1.0, 1.0))
    return np.stack([theta, np.arctan2(directions[:, 1], directions[:, 0])], axis=1)


def _for_map(chains: Sequence[Chain]) -> dict[str, Array]:
    known = directions_of(chains)
    kept = np.linspace(0, len(known) - 1, min(len(known), MOST_ON_MAP)).astype(int)
    return {"angles": _angles(known[kept]).astype(np.float32)}


def _for_beliefs(beliefs: Any, test: Sequence[Chain]) -> dict[str, Array]:
    """Beliefs of some residues of the first test chain, by their entropy."""
    chain = test[0]
    size = int(chain.known.sum())
    order = np.argsort(beliefs.entropy()[:size])
    nodes = order[[int(rank * (size - 1)) for rank in SHOWN]]
    mine = beliefs["direction"]
    # Probabilities of directions, each smoothed by a von Mises-Fisher window.
    windows = np.exp(SHARPNESS * (np.asarray(mine.atoms) @ _map_points().T - 1))
    density = np.asarray(mine.probabilities()[nodes] @ windows)
    truth = chain.directions[chain.known][nodes]
    guess = np.asarray(beliefs.mean())[nodes]
    return {
        "belief density": density.reshape(len(nodes), *MAP_SHAPE).astype(np.float32),
        "belief truth": _angles(truth),
        "belief mean": _angles(guess / np.linalg.norm(guess, axis=1, keepdims=True)),
        "belief residue": np.flatnonzero(chain.known)[nodes],
    }


def _report(data: Data, found: Mapping[str, Result], window: int, sizes: Sizes, study: Study) -> Report:
    rows = [row for name, result in found.items() if name != "particle settings" for row in result.rows]
    summary = _summary([row for row in rows if row["method"] not in (PARTICLE, BEST)])
    tables = [
        Table(
            "summary",
            "Mean cosine between true and predicted direction, averaged over folds",
            summary,
            note=(
                f"Spread is the standard deviation between folds. Predictors alone: ridge regression; {sizes.members} networks "
                f"(boosting: {min(sizes.members, 3)}) averaged. Evidence alone: the same, calibrated, without the chain. Weighted edges: "
                "the weight chosen on training chains. Seconds are wall time of this run, means over folds; a fit "
                "serves both windows in the linear rows."
            ),
        )
    ]
    compared = _compared(found, sizes)
    if compared:
        tables.append(
            Table(
                "particles",
                "Kernel against particle BP on the same test chains",
                compared,
                note=(
                    f"The first {sizes.particle_chains} test chains of {sizes.particles} folds: particle BP is slow. Its own evidence is the "
                    "paper's, a density around the prediction of a ridge regression; kernel BP's evidence is given to it at the "
                    "states of the kernel model. Best found: of the settings in the next table, chosen on training chains."
                ),
            )
        )
        tables.append(
            Table(
                "particle_settings",
                "Settings of particle BP tried, on training chains of the first fold",
                list(found["particle settings"].rows),
            )
        )
    tables.append(Table("folds", "All folds", rows))
    return Report(
        title="Directions along protein backbones",
        lead=_lead(data, window, sizes),
        tables=tables,
        pictures=_pictures(found, rows, compared),
        claims=_claims(data, summary, [] if data.generated or study.options.quick else compared, window),
        settings=_settings(data, window, sizes, study),
    )


def _lead(data: Data, window: int, sizes: Sizes) -> str:
    residues = sum(int(chain.known.sum()) for chain in data.chains)
    source = (
        "Chains are drawn from a switching von Mises-Fisher process, so that the best possible answer is known exactly"
        if data.generated
        else f"Chains are real proteins of more than {LONGER_THAN} residues, with PSI-BLAST profiles"
    )
    return (
        "Figure 3 of the paper: the shape of a protein's backbone is a chain of two angles (theta, omega), points on a sphere, to be "
        "predicted from sequence profiles. The paper ran kernel and particle BP on 1,400 proteins with a linear kernel on the 20 "
        "profile numbers of each residue, and reports the mean cosine between predicted and true direction over ten folds as a bar chart. "
        f"{source}: {len(data.chains)} chains, {residues:,} residues, {sizes.folds} folds. Beside the paper's evidence from one residue there are a "
        f"window of {window} residues and stronger local predictors (networks, boosted trees): what does the chain add to each?"
    )


def _summary(rows: Sequence[Row]) -> list[Row]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["evidence"]), str(row["method"])), []).append(row)
    summary: list[Row] = []
    order = {name: place for place, name in enumerate(("the process itself", ONE, WINDOW, BOOSTED, NETWORKS))}
    for (evidence, method), mine in sorted(groups.items(), key=lambda item: order[item[0][0]]):
        scores = [float(row["mean cosine"] or 0.0) for row in mine]
        inference, iterations = _mean(mine, "inference seconds"), _mean(mine, "iterations")
        summary.append(
            {
                "evidence": evidence,
                "method": method,
                "mean cosine": float(np.mean(scores)),
                "spread": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
                "folds": len(mine),
                "edge weight": _mean(mine, "edge weight"),
                "fit seconds": _mean(mine, "fit seconds"),
                "inference seconds": inference,
                "seconds an iteration": inference / iterations if inference and iterations else None,
            }
        )
    return summary


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [float(row[name]) for row in rows if row.get(name) is not None]  # type: ignore[arg-type]
    return float(np.mean(values)) if values else None


def _compared(found: Mapping[str, Result], sizes: Sizes) -> list[Row]:
    """All methods on the chains particle BP was run on, fold by fold and in all."""
    rows: list[Row] = []
    folds = [fold for fold in range(1, sizes.particles + 1) if f"particles, fold {fold}" in found]
    for evidence, case in ((ONE, "linear"), (WINDOW, "linear"), (NETWORKS, "networks")):
        for method in (ALONE, EVIDENCE, EMBEDDED, CHAIN, WEIGHTED, PARTICLE, BEST):
            particle = method in (PARTICLE, BEST)
            scores: dict[str, float] = {}
            total, count, seconds, iterations, settings = 0.0, 0, 0.0, 0.0, None
            for fold in folds:
                result = found.get(f"{'particles' if particle else case}, fold {fold}")
                if result is None or f"{evidence}: {method}" not in result.arrays:
                    break
                counts = found[f"linear, fold {fold}"].arrays["counts"]
                few = counts[: sizes.particle_chains]
                sums = result.arrays[f"{evidence}: {method}"][: len(few)]
                scores[f"fold {fold}"] = float(sums.sum() / few.sum())
                total, count = total + float(sums.sum()), count + int(few.sum())
                mine = next(r for r in result.rows if r["evidence"] == evidence and r["method"] == method)
                # Kernel BP's time is that of all chains of the fold.
                part = 1.0 if particle else few.sum() / counts.sum()
                seconds += float(mine.get("inference seconds") or 0.0) * part
                iterations += float(mine.get("iterations") or 0.0)
                settings = mine.get("settings") or settings
            if count and len(scores) == len(folds):
                each = seconds / iterations * len(folds) / count if iterations else 0.0
                rows.append(
                    {
                        "evidence": evidence,
                        "method": method,
                        "mean cosine": total / count,
                        **scores,
                        "residues": count,
                        "microseconds a residue and iteration": 1e6 * each or None,
                        "microseconds a residue in all": 1e6 * seconds / count or None,
                        "particle settings": settings,
                    }
                )
    return rows


def _claims(data: Data, summary: Sequence[Row], compared: Sequence[Row], window: int) -> list[Claim]:
    scores = {(row["evidence"], row["method"]): float(row["mean cosine"] or 0.0) for row in summary}
    on_few = {(row["evidence"], row["method"]): float(row["mean cosine"] or 0.0) for row in compared}
    claims = []

    def at_least(what: str, value: float, wanted: float) -> None:
        claims.append(Claim(what, f"{value:.4f}", f"at least {wanted:.4g}", value >= wanted))

    if data.generated:
        exact = scores["the process itself", EXACT]
        share = scores[ONE, CHAIN] / exact
        claims.append(
            Claim(
                "Kernel BP on the profile of one residue, as a share of the exact forward-backward answer",
                f"{share:.4f}",
                "at least 0.98",
                share >= 0.98,
            )
        )
    else:
        at_least("Linear evidence of one residue, kernel BP", scores[ONE, CHAIN], 0.42)
        if window == 15:
            at_least("Linear evidence of 15 residues, kernel BP", scores[WINDOW, CHAIN], 0.58)
    folds = {(row["evidence"], row["method"]): row["folds"] for row in summary}
    for evidence in (ONE, WINDOW, BOOSTED, NETWORKS):
        if (evidence, CHAIN) not in scores:
            continue
        # With one residue the evidence is as independent as the chain takes it to be: plain edges.
        for method in (CHAIN,) if evidence == ONE else (CHAIN, WEIGHTED):
            ours, theirs = scores[evidence, method], scores[evidence, ALONE]
            claims.append(
                Claim(
                    f"{method} above its local predictor alone ({evidence})",
                    f"{ours:.4f} against {theirs:.4f}, {folds[evidence, method]} fold(s)",
                    "above",
                    ours > theirs,
                )
            )
            if (evidence, BEST) in on_few:
                ours, theirs = on_few[evidence, method], max(on_few[evidence, m] for m in (PARTICLE, BEST))
                claims.append(
                    Claim(
                        f"{method} above particle BP on the same chains ({evidence})",
                        f"{ours:.4f} against {theirs:.4f}",
                        "above",
                        ours > theirs,
                    )
                )
    if not data.generated and (NETWORKS, WEIGHTED) in scores:
        at_least(
            "Aim: networks under the chain past a small convolutional net", scores[NETWORKS, WEIGHTED], 0.71
        )
    return claims


def _settings(data: Data, window: int, sizes: Sizes, study: Study) -> dict[str, Any]:
    return {
        "data": "generated" if data.generated else str(study.options.data),
        "seed": study.options.seed,
        "window": window,
        "chains": len(data.chains),
        "training chains of a fold that settings are chosen on": sizes.tuning,
        "folds": sizes.folds,
        "folds of linear, networks, boosting, particles": (
            f"{sizes.linear}, {sizes.networks}, {sizes.boosted}, {sizes.particles}"
        ),
        "kernel of directions": "Sphere, concentration by the median rule; Linear on readings",
        "kernel BP": "defaults of Model and infer; edge weights tried: "
        + ", ".join(f"{w:g}" for w in WEIGHTS),
        "ridge": f"alpha {RIDGE:g} for each residue learned from",
        "networks": f"{sizes.members} of two layers of 128, alpha 0.3, batches of 256, {sizes.epochs} epochs, centred profiles",
        "boosting": f"{min(sizes.members, 3)} of {sizes.trees} trees a coordinate, learning rate 0.15, 30% of the features a split",
        "particle BP, paper": f"{PAPER_PARTICLES}, 30 iterations",
        "particle BP, more": f"{MORE_PARTICLES}, 10 iterations",
    }


def _pictures(found: Mapping[str, Result], rows: Sequence[Row], compared: Sequence[Row]) -> list[Picture]:
    from kernelbp.figures.protein import protein_bars, protein_folds, protein_map

    first = found["linear, fold 1"].arrays
    source = found.get("networks, fold 1", found["linear, fold 1"]).arrays
    said = NETWORKS if "networks, fold 1" in found else WINDOW
    pictures = [
        Picture(
            "angles",
            protein_map(
                first["angles"],
                source["belief density"],
                source["belief truth"],
                source["belief mean"],
                [f"residue {number + 1}" for number in source["belief residue"]],
            ),
            "Left: where the directions of residues lie, theta against omega (as in the paper's Figure 3a). Right: beliefs of four residues of one "
            f"test chain (kernel BP on {said}); the cross is the truth, the circle the mean of the belief.",
        )
    ]
    bars: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        if row["method"] in (ALONE, EMBEDDED, CHAIN, WEIGHTED):
            mine = bars.setdefault(str(row["evidence"]), {}).setdefault(str(row["method"]), [])
            mine.append((int(row["fold"] or 0), float(row["mean cosine"] or 0.0)))
    exact = [float(row["mean cosine"] or 0.0) for row in rows if row["method"] == EXACT]
    pictures.append(
        Picture(
            "folds",
            protein_folds(
                {name: bars[name] for name in (ONE, WINDOW, BOOSTED, NETWORKS) if name in bars}, exact
            ),
            "Mean cosine by fold, a panel for each kind of evidence. Lines, and the numbers at the top, are means over the folds run."
            + (" The dashed line is the exact answer." if exact else ""),
        )
    )
    if compared:
        pictures.append(
            Picture(
                "particles",
                protein_bars(
                    [str(row["evidence"]) for row in compared],
                    [str(row["method"]) for row in compared],
                    [float(row["mean cosine"] or 0.0) for row in compared],
                ),
                "Kernel against particle BP on the same test chains (the paper's Figure 3b). Particle BP at the paper's settings has the paper's evidence "
                "(networks: kernel BP's); at the best found it is given whatever did better on training chains.",
            )
        )
    return pictures
