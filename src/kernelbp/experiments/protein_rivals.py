"""Particle belief propagation along proteins, with evidence of its own and with that of kernel belief propagation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kernelbp as kb
from kernelbp.experiments.protein_chains import (
    Chain,
    Fold,
    by_chain,
    cosines,
    directions_of,
    graph_of,
    neighbours,
    windows_of,
)
from kernelbp.experiments.protein_evidence import NETWORKS, ONE, WINDOW
from kernelbp.experiments.protein_report import BEST, PARTICLE
from kernelbp.experiments.study import Result, Row

__all__ = ["MORE_PARTICLES", "PAPER_PARTICLES", "particle_fold", "particle_search", "spoken_of"]

Array = NDArray[Any]

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


def spoken_of(found: Mapping[str, Result], fold: int) -> dict[str, Mapping[str, Array]]:
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
