"""Predictors that are trained beforehand, part by part, and then speak as evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

__all__ = ["ReadyClassifier", "ReadyRegressor", "boosting_spoken", "networks_spoken"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Speaker = Callable[[Array], Matrix]

SEEDS = 2**32
"""scikit-learn takes smaller ones."""
LEAST = 1e-9
"""A network's probabilities are kept above this."""


class ReadyClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose readings are log-probabilities of all classes already.

    Examples
    --------
    >>> ready = ReadyClassifier().fit(np.log([[0.9, 0.1], [0.2, 0.8]]), [0, 1])
    >>> ready.predict_proba(np.log([[0.3, 0.7]])).round(2)
    array([[0.3, 0.7]])
    """

    def fit(self, readings: Array, classes: Array) -> ReadyClassifier:
        """Only note which classes there are."""
        self.classes_ = np.unique(classes)
        return self

    def predict_proba(self, readings: Array) -> Matrix:
        """Probabilities (n, classes) of those that were there."""
        found = np.exp(np.asarray(readings)[:, self.classes_])
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def predict(self, readings: Array) -> Array:
        """The most probable class."""
        return np.asarray(self.classes_[self.predict_proba(readings).argmax(axis=1)])


class ReadyRegressor(RegressorMixin, BaseEstimator):
    """A regressor whose readings are predictions already.

    Examples
    --------
    >>> ReadyRegressor().fit([[1.0]], [[1.1]]).predict([[2.0]])
    array([[2.]])
    """

    def fit(self, readings: Array, values: Array) -> ReadyRegressor:
        """Nothing is left to learn."""
        self.n_features_in_ = np.asarray(readings).shape[1]
        return self

    def predict(self, readings: Array) -> Matrix:
        """The readings."""
        return np.asarray(readings, dtype=np.float64)


def cross_fitted(
    readings: Sequence[Array],
    targets: Sequence[Array],
    families: Sequence[str],
    train: Callable[[Array, Array, int], Speaker],
    members: int,
) -> tuple[Speaker, Matrix]:
    """Train each member without one part of the chains, and let it speak about that part.

    Parameters
    ----------
    readings, targets, families : of each chain; chains of a family are left out together
    train : gives what a predictor trained on readings and targets says, from them and the member's number
    members : at least 2, and no more than families; each chain is left out by one

    Returns
    -------
    what all members say on average, as a function of readings; and what the member that did not know a chain says
    about it, over all chains in order
    """
    part = np.unique(families, return_inverse=True)[1] % members
    speakers: list[Speaker] = []
    said: list[Matrix] = [np.empty(0)] * len(readings)
    for member in range(members):
        kept = np.flatnonzero(part != member).tolist()
        speaker = train(
            np.concatenate([readings[k] for k in kept]), np.concatenate([targets[k] for k in kept]), member
        )
        speakers.append(speaker)
        for k in np.flatnonzero(part == member).tolist():
            said[k] = speaker(readings[k])

    def together(new: Array) -> Matrix:
        return np.asarray(np.mean([speaker(new) for speaker in speakers], axis=0))

    return together, np.concatenate(said)


def networks_spoken(
    readings: Sequence[Array],
    classes: Sequence[Array],
    families: Sequence[str],
    n_classes: int,
    *,
    members: int,
    epochs: int,
    seed: int,
) -> tuple[Speaker, Matrix]:
    """Neural networks of two layers of 128, cross-fitted: logs of (geometric mean) class probabilities, (n, classes)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    def train(x: Array, y: Array, member: int) -> Speaker:
        middle = x.mean(axis=0)
        network = MLPClassifier(
            hidden_layer_sizes=(128, 128),
            alpha=0.3,
            batch_size=min(256, len(x)),
            max_iter=epochs,
            random_state=(seed * 100 + member) % SEEDS,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # epochs are few on purpose
            network.fit(x - middle, y)

        def speak(new: Array) -> Matrix:
            found = np.full((len(new), n_classes), LEAST)
            found[:, network.classes_] = np.maximum(network.predict_proba(new - middle), LEAST)
            return np.asarray(np.log(found))

        return speak

    return cross_fitted(readings, classes, families, train, members)


def boosting_spoken(
    readings: Sequence[Array],
    directions: Sequence[Array],
    families: Sequence[str],
    *,
    members: int,
    trees: int,
    seed: int,
) -> tuple[Speaker, Matrix]:
    """Boosted trees, one series for each coordinate, cross-fitted: predicted directions (n, 3).

    `trees` is the most of a series: with more than 10,000 readings it ends where a tenth of them, held out, gains nothing.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    def train(x: Array, y: Array, member: int) -> Speaker:
        series = [
            HistGradientBoostingRegressor(
                max_iter=trees,
                learning_rate=0.1,
                max_features=0.3,
                random_state=(seed * 100 + member) % SEEDS,
            ).fit(x, y[:, axis])
            for axis in range(y.shape[1])
        ]

        def speak(new: Array) -> Matrix:
            return np.stack([model.predict(new) for model in series], axis=1)

        return speak

    return cross_fitted(readings, directions, families, train, members)
