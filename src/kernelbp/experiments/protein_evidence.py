"""What local predictors say about the residues of a protein: linear, boosted trees, neural networks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kernelbp as kb
from kernelbp.experiments.local_predictors import (
    ReadyClassifier,
    ReadyRegressor,
    boosting_spoken,
    networks_spoken,
)
from kernelbp.experiments.protein_chains import Chain, Fold, directions_of, families_of, windows_of

__all__ = ["KINDS", "NETWORKS", "ONE", "RIDGE", "WINDOW", "Evidence", "boosting", "linear", "networks"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

KINDS = ONE, WINDOW, BOOSTED, FIRST_ROUND, NETWORKS = (
    "one residue, linear",
    "window, linear",
    "window, boosting",
    "window, one round of networks",
    "window, networks",
)
"""Kinds of evidence, as they are called in tables."""
RIDGE = 0.003
"""Of the regression beside kernel BP, for each residue learned from: 300 among 100,000."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """One kind of evidence in one fold, n training and m test residues.

    Attributes
    ----------
    name : as in tables
    form : of the model's evidence: "posterior", or an estimator whose work is done
    heard : (n, numbers) readings of training residues; where predictors are cross-fitted, said by one that does not
        know the chain
    seen : (m, numbers) readings of test residues
    alone : (m, 3) directions predicted without kernel BP, of any length
    seconds : training of what predicts them
    prepared : of these, seconds that kernel BP needs too
    settings : what the model has to know
    """

    name: str
    form: Any
    heard: Array
    seen: Array
    alone: Matrix
    seconds: float
    prepared: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)


def linear(fold: Fold, name: str, width: int) -> Evidence:
    """The paper's evidence, on profiles of `width` residues; ridge regression on the same beside it."""
    from sklearn.linear_model import Ridge

    known = directions_of(fold.train)
    heard, seen = (windows_of(chains, width).astype(np.float64) for chains in (fold.train, fold.test))
    began = time.perf_counter()
    ridge = Ridge(RIDGE * len(known)).fit(heard, known)
    seconds = time.perf_counter() - began
    return Evidence(name, "posterior", heard, seen, ridge.predict(seen), seconds)


def networks(fold: Fold) -> list[Evidence]:
    """Neural networks that classify states of the model, in two rounds.

    The first reads profiles; the second also reads the directions that the first predicts for the residues around. About
    training chains it is told what members said that did not know them.
    """
    from kernelbp.kernels import resolve
    from kernelbp.learning.probability import choose_states

    # The networks' classes are the states of the model, so states are chosen first.
    train, test, width = fold.train, fold.test, fold.window
    known = directions_of(train)
    budget = int(np.clip(round(4 * len(known) ** (1 / 3)), 32, 128))
    states = choose_states(resolve(kb.kernels.Sphere(), known), known, budget).points
    classes = [np.argmax(chain.directions[chain.known] @ states.T, axis=1) for chain in train]

    def told(chains: Sequence[Chain], logs: Matrix) -> Array:
        predicted = windows_of(chains, width, np.exp(logs) @ states)
        return np.concatenate([windows_of(chains, width), predicted], axis=1)

    def one_round(heard: Array, seen: Array, number: int) -> tuple[Matrix, Matrix]:
        ends = np.cumsum([len(mine) for mine in classes])
        speaker, said = networks_spoken(
            np.split(heard, ends[:-1]),
            classes,
            families_of(train),
            len(states),
            members=fold.sizes.members,
            epochs=fold.sizes.epochs,
            seed=fold.seed + number,
        )
        return said, speaker(seen)

    heard, seen = windows_of(train, width), windows_of(test, width)
    found: list[Evidence] = []
    began = time.perf_counter()
    for number, name in enumerate((FIRST_ROUND, NETWORKS)):
        said, seen_said = one_round(heard, seen, number)
        seconds = time.perf_counter() - began
        found.append(
            Evidence(
                name,
                ReadyClassifier(),
                said,
                seen_said,
                np.exp(seen_said) @ states,
                seconds,
                seconds - sum(before.prepared for before in found),
                {"landmarks": {"direction": states}},
            )
        )
        heard, seen = told(train, said), told(test, seen_said)
    return found


def boosting(fold: Fold) -> Evidence:
    """Boosted trees that regress the direction."""
    began = time.perf_counter()
    speaker, heard = boosting_spoken(
        [windows_of([chain], fold.window) for chain in fold.train],
        [chain.directions[chain.known] for chain in fold.train],
        families_of(fold.train),
        members=min(fold.sizes.members, 3),
        trees=fold.sizes.trees,
        seed=fold.seed,
    )
    seconds = time.perf_counter() - began
    seen = speaker(windows_of(fold.test, fold.window))
    return Evidence(BOOSTED, ReadyRegressor(), heard, seen, seen, seconds, seconds)
