"""Figure 3 of the paper: directions along protein backbones from sequence profiles, kernel against particle BP.

The hidden variable is a residue's direction on the sphere, made of the angle theta and the torsion omega of consecutive
C-alpha atoms; a chain of them has a profile of 20 numbers at each residue. Judged is the mean cosine between the
true direction and the mean of the belief, in ten folds (chains of one entry of the PDB, or of equal sequence, stay together).

Evidence is what a local predictor says, and the question is what the chain adds to it. There are four: the paper's linear
posterior form on the profile of one residue, the same on a window of 15, and, on that window, boosted trees and
neural networks. The latter two are cross-fitted: each member learns without one part of the training chains
and speaks about that part, so that the model can tell how far to believe it; on test chains members are averaged.
Networks come in two rounds: the second reads, beside the profiles, the directions that the first predicts around a residue.

Neighbouring windows share 14 of their 15 residues, so their evidence is not independent as a chain takes it to be, and
plain edges would count it many times over. How much an edge weighs is therefore fitted in each fold: some training chains
are held out, a model is learned from the others, and the weight is taken with which it comes closest to the
directions of those held out. Test chains have no part in it. The model that is tested is then learned from all
training chains. Plain edges (weight 1, the default of `Model.infer` on a chain) stand beside it in the tables.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import kernelbp as kb
from kernelbp.errors import InputError
from kernelbp.experiments.protein_chains import (
    FULL,
    GENERATED,
    GENERATED_QUICK,
    LONGER_THAN,
    QUICK,
    Chain,
    Data,
    Fold,
    Sizes,
    by_chain,
    cosines,
    deal,
    directions_of,
    graph_of,
    load,
    neighbours,
)
from kernelbp.experiments.protein_evidence import (
    KINDS,
    NETWORKS,
    ONE,
    RIDGE,
    WINDOW,
    Evidence,
    boosting,
    linear,
    networks,
)
from kernelbp.experiments.protein_report import (
    ALONE,
    BEST,
    CHAIN,
    EMBEDDED,
    EVIDENCE,
    EXACT,
    PARTICLE,
    PLAIN,
    PROCESS,
    compared_on_few,
    for_beliefs,
    for_map,
    pictures_of,
    summary_of,
)
from kernelbp.experiments.protein_rivals import (
    MORE_PARTICLES,
    PAPER_PARTICLES,
    particle_fold,
    particle_search,
    spoken_of,
)
from kernelbp.experiments.report import Claim, Report, Table
from kernelbp.experiments.study import Case, Result, Row, Study

if TYPE_CHECKING:
    from kernelbp.inference.beliefs import Beliefs

__all__ = ["run"]

Array = NDArray[Any]

WEIGHTS = (1.0, 0.75, 0.55, 0.4, 0.25, 0.15, 0.1, 0.05)
"""Of edges, tried on training chains held out."""
SET_FOR = "an aim set for the 483 chains of docs/results/protein.md"
"""Beside claims with a number that depends on the chains."""


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
            ("linear", sizes.linear, 120.0, linear_fold),
            ("networks", sizes.networks, 300.0, networks_fold),
            ("boosting", sizes.boosted, 160.0, boosting_fold),
        ):
            if fold < count:
                cases.append(Case(f"{name}, fold {fold + 1}", partial(method, here), seconds))
    found = study.finish(cases)
    if sizes.particles:
        first = Fold(data, folds, 0, window, sizes, study.options.seed)
        search = Case("particle settings", partial(particle_search, first, spoken_of(found, 0)), 120.0)
        found |= study.finish([search])
        tried = found["particle settings"]
        rivals = [
            Case(
                f"particles, fold {fold + 1}",
                partial(particle_fold, replace(first, number=fold), spoken_of(found, fold), tried),
                200.0,
            )
            for fold in range(sizes.particles)
        ]
        found |= study.finish(rivals)

    # draw
    return _report(data, found, window, sizes, study)


# ---------------------------------------------------------------------- learn


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


def fitted_weights(fold: Fold, kinds: Sequence[Evidence], **settings: Any) -> dict[str, float]:
    """The weight of edges for each kind of evidence, fitted on training chains held out.

    The weight is the one of `WEIGHTS` with the highest mean cosine on `fold.tuning`, under a model learned from
    `fold.rest`. What networks and trees say about a chain comes from a member that does not know it.
    """
    held_out = fold.tunes
    readings = {kind.name: (kind.form, kind.heard[~held_out]) for kind in kinds}
    model, truth = learn(fold.rest, readings, **settings), directions_of(fold.tuning)
    chosen = {}
    for kind in kinds:
        graph = graph_of(fold.tuning).observe(kind.name, kind.heard[held_out])
        scores = [cosines(infer(model, graph, weight).mean(), truth).mean() for weight in WEIGHTS]
        chosen[kind.name] = WEIGHTS[int(np.argmax(scores))]
    return chosen


# ---------------------------------------------------------------------- infer and score


def infer(model: kb.Model, graph: kb.Graph, weight: float = 1.0, **settings: Any) -> Beliefs:
    """Beliefs with all edges weighted alike."""
    if weight != 1:
        settings["weighting"] = np.full(graph.n_edges, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.ConvergenceWarning)
        return model.infer(graph, **settings)


def linear_fold(fold: Fold) -> Result:
    """The paper's evidence on one residue and on a window; the exact answer where it is known."""
    test = fold.test
    kinds = [linear(fold, ONE, 1), linear(fold, WINDOW, fold.window)]
    found = measured(fold, kinds, embedded=True)
    rows = list(found.rows)
    arrays = {**found.arrays, "counts": np.array([int(chain.known.sum()) for chain in test])}
    if fold.data.generated:
        exact = np.concatenate([chain.exact for chain in test if chain.exact is not None])
        scores = cosines(exact, directions_of(test))
        rows.append(fold.row(PROCESS, EXACT, float(scores.mean())))
        arrays["exact"] = by_chain(scores, test)
    if fold.number == 0:
        arrays |= for_map(fold.train)
    return Result(rows, arrays)


def networks_fold(fold: Fold) -> Result:
    """Neural networks after one round and after two, alone and under the chain."""
    return measured(fold, networks(fold))


def boosting_fold(fold: Fold) -> Result:
    """Boosted trees, alone and under the chain."""
    return measured(fold, [boosting(fold)])


def measured(fold: Fold, kinds: Sequence[Evidence], *, embedded: bool = False) -> Result:
    """Predictors alone and kernel BP on what they say: scores of test chains, and their sums by chain."""
    test, truth = fold.test, directions_of(fold.test)
    settings = {name: value for kind in kinds for name, value in kind.settings.items()}
    rows: list[Row] = []
    arrays: dict[str, Array] = {}
    for kind in kinds:
        scores = cosines(kind.alone, truth)
        arrays[f"{kind.name}: {ALONE}"] = by_chain(scores, test)
        rows.append(fold.row(kind.name, ALONE, float(scores.mean()), **{"fit seconds": kind.seconds}))
    began = time.perf_counter()
    model = learn(fold.train, {kind.name: (kind.form, kind.heard) for kind in kinds}, **settings)
    fit_seconds = time.perf_counter() - began + sum(kind.prepared for kind in kinds)
    weights = fitted_weights(fold, kinds, **settings)
    for kind in kinds:
        ways: list[tuple[str, bool, float, dict[str, Any]]] = [
            (EVIDENCE, False, 1.0, {}),
            *([(EMBEDDED, True, 1.0, {"conditionals": "embedding"})] if embedded else []),
            (PLAIN, True, 1.0, {}),
            (CHAIN, True, weights[kind.name], {}),
        ]
        for method, linked, weight, asked in ways:
            graph = graph_of(test, linked=linked).observe(kind.name, kind.seen)
            began = time.perf_counter()
            beliefs = infer(model, graph, weight, **asked)
            spent = time.perf_counter() - began
            scores = cosines(beliefs.mean(), truth)
            arrays[f"{kind.name}: {method}"] = by_chain(scores, test)
            more = {
                "edge weight": weight if linked else None,
                "fit seconds": fit_seconds,
                "inference seconds": spent,
                "iterations": beliefs.iterations if linked else None,
            }
            rows.append(fold.row(kind.name, method, float(scores.mean()), **more))
        arrays |= _for_rivals(fold, model, kind)
    if fold.number == 0:
        # The last: of the widest window, with fitted weights.
        arrays |= for_beliefs(beliefs, test)
    return Result(rows, arrays)


def _for_rivals(fold: Fold, model: kb.Model, kind: Evidence) -> dict[str, Array]:
    """What particle BP is given: the same evidence, at the states of the model."""
    few = fold.test[: fold.sizes.particle_chains]
    seen = kind.seen[: sum(int(chain.known.sum()) for chain in few)]
    arrays = {f"{kind.name}: states": np.asarray(model.support("direction"))}
    for name, chains, readings in (("test", few, seen), ("tuning", fold.tuning, kind.heard[fold.tunes])):
        alone = model.infer(graph_of(chains, linked=False).observe(kind.name, readings))
        logs = alone["direction"].log_products_at_support()
        arrays[f"{kind.name}: logs, {name}"] = (logs - logs.max(axis=1, keepdims=True)).astype(np.float32)
    return arrays


# ---------------------------------------------------------------------- draw


def _report(data: Data, found: Mapping[str, Result], window: int, sizes: Sizes, study: Study) -> Report:
    rows = [row for name, result in found.items() if name != "particle settings" for row in result.rows]
    summary = summary_of([row for row in rows if row["method"] not in (PARTICLE, BEST)])
    tables = [
        Table(
            "summary",
            "Mean cosine between true and predicted direction, averaged over folds",
            summary,
            note=(
                f"Spread is the standard deviation between folds. Predictors alone: ridge regression; {sizes.members} networks of each "
                f"round (boosting: {min(sizes.members, 3)}) averaged. Evidence alone: the same, calibrated, without the chain. Kernel BP: the weight of edges "
                f"fitted in each fold on training chains held out (at most {sizes.tuning}, and at most a quarter of all); plain edges: weight 1. "
                "Seconds are wall time of this run, means over folds, without the fitting of weights; a fit serves both windows in the linear rows."
            ),
        )
    ]
    full = not (data.generated or study.options.quick)
    compared = compared_on_few(found, sizes)
    if compared:
        tables += [
            Table(
                "particles",
                "Kernel against particle BP on the same test chains",
                compared,
                note=(
                    f"The first {sizes.particle_chains} test chains of {sizes.particles} folds: particle BP is slow. Its own evidence is the "
                    "paper's, a density around the prediction of a ridge regression; kernel BP's evidence is given to it at the "
                    "states of the kernel model. Best found: of the settings in the next table, chosen in "
                    "the first fold on training chains of it and used in all; those chains may be among the test chains of another fold."
                ),
            ),
            Table(
                "particle_settings",
                "Settings of particle BP tried, on training chains of the first fold",
                list(found["particle settings"].rows),
            ),
        ]
    tables.append(Table("folds", "All folds", rows))
    return Report(
        title="Directions along protein backbones",
        lead=_lead(data, window, sizes),
        tables=tables,
        pictures=pictures_of(found, rows, compared),
        claims=_claims(data, summary, compared if full else [], window, full=full),
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


def _claims(
    data: Data, summary: Sequence[Row], compared: Sequence[Row], window: int, *, full: bool
) -> list[Claim]:
    """Comparisons; aims that are numbers only in a full run on data."""
    scores = {(row["evidence"], row["method"]): float(row["mean cosine"] or 0.0) for row in summary}
    on_few = {(row["evidence"], row["method"]): float(row["mean cosine"] or 0.0) for row in compared}
    folds = {(row["evidence"], row["method"]): row["folds"] for row in summary}
    claims = []

    def at_least(what: str, value: float, wanted: float) -> None:
        claims.append(Claim(what, f"{value:.4f}", f"at least {wanted:.4g}", value >= wanted))

    def above(what: str, ours: float, theirs: float, more: str = "") -> None:
        claims.append(Claim(what, f"{ours:.4f} against {theirs:.4f}{more}", "above", ours > theirs))

    if data.generated:
        at_least(
            "Kernel BP on the profile of one residue, as a share of the exact forward-backward answer",
            scores[ONE, CHAIN] / scores[PROCESS, EXACT],
            0.98,
        )
    if full:
        at_least(f"Linear evidence of one residue, kernel BP ({SET_FOR})", scores[ONE, CHAIN], 0.42)
        if window == 15:
            at_least(f"Linear evidence of 15 residues, kernel BP ({SET_FOR})", scores[WINDOW, CHAIN], 0.58)
    for evidence in KINDS:
        if (evidence, CHAIN) not in scores:
            continue
        above(
            f"Kernel BP above its local predictor alone ({evidence})",
            scores[evidence, CHAIN],
            scores[evidence, ALONE],
            f", {folds[evidence, CHAIN]} fold(s)",
        )
        if (evidence, BEST) in on_few:
            above(
                f"Kernel BP above particle BP on the same chains ({evidence})",
                on_few[evidence, CHAIN],
                max(on_few[evidence, PARTICLE], on_few[evidence, BEST]),
            )
    if full and (NETWORKS, CHAIN) in scores:
        at_least(
            f"Networks under the chain past a small convolutional net ({SET_FOR})",
            scores[NETWORKS, CHAIN],
            0.71,
        )
    return claims


def _settings(data: Data, window: int, sizes: Sizes, study: Study) -> dict[str, Any]:
    return {
        "data": "generated" if data.generated else str(study.options.data),
        "seed": study.options.seed,
        "window": window,
        "chains": len(data.chains),
        "training chains of a fold that weights are chosen on": (
            f"at most {sizes.tuning}, and at most a quarter of all"
        ),
        "folds": f"{sizes.folds}; chains of one PDB entry, or of equal sequence, share one",
        "folds of linear, networks, boosting, particles": (
            f"{sizes.linear}, {sizes.networks}, {sizes.boosted}, {sizes.particles}"
        ),
        "kernel of directions": "Sphere, concentration by the median rule; Linear on readings",
        "kernel BP": "defaults of Model and infer; edge weights tried: "
        + ", ".join(f"{w:g}" for w in WEIGHTS),
        "ridge": f"alpha {RIDGE:g} for each residue learned from",
        "networks": f"two rounds of {sizes.members}, each of two layers of 128, alpha 0.3, batches of 256, {sizes.epochs} epochs, centred "
        "readings; the second also reads the directions predicted by the first, in a window as wide",
        "boosting": f"{min(sizes.members, 3)} of at most {sizes.trees} trees a coordinate, learning rate 0.1, 30% of the features a split",
        "particle BP, paper": f"{PAPER_PARTICLES}, 30 iterations",
        "particle BP, more": f"{MORE_PARTICLES}, 10 iterations",
    }
