"""Local predictors of depth: what the features of a patch say, whatever its neighbours are."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import DEPTH_FEATURES
from kernelbp.experiments.depth_scenes import Fold, Scene, Sizes, error_of, inner_parts, scored
from kernelbp.experiments.study import Result, Study

__all__ = ["ESTIMATORS", "SETTINGS", "Local", "combined", "predict"]

Matrix = NDArray[np.float64]

ESTIMATORS = ("ridge", "boosting", "MLP")
FORMS = {"ridge": ("mean", "median"), "boosting": ("median",), "MLP": ("mean", "median")}
"""What an estimator is taught: depth itself by squared error, or its median. Boosting learns a median by absolute error;
the others learn how probable it is that depth lies below each of some thresholds, and the median is read off."""
THRESHOLDS = 15
"""At quantiles of the training depths."""
WEIGHT_STEPS = 10
"""Weights of predictors in a combination are multiples of one in so many."""
RIDGE = 0.1
"""Times the number of patches learned from: of features scaled to unit variance."""
MLP_UNITS, MLP_PENALTY = 32, 3.0
LEAVES, LEAST_LEAF, LEARNING_RATE, FEATURE_SHARE = 8, 30, 0.1, 0.3
SETTINGS = {
    "ridge": f"penalty {RIDGE} a patch, features scaled; of the mean or the median, with {THRESHOLDS} thresholds",
    "boosting": f"absolute error, {LEAVES} leaves of at least {LEAST_LEAF} patches, rate {LEARNING_RATE}, "
    f"{FEATURE_SHARE:.0%} of the features at each split",
    "MLP": f"{MLP_UNITS} units, penalty {MLP_PENALTY}, features scaled; of the mean or the median, with {THRESHOLDS} thresholds",
}
"""In words."""


def predict(kind: str, scenes: Sequence[Scene], fold: Fold, sizes: Sizes, study: Study) -> Result:
    """A local predictor's word on every patch, of images it was not trained on.

    What it is taught is what suits training images best, each predicted by one that was not trained on it.

    Returns
    -------
    Result with a row for each test image, and for each scene (by its number) predictions (rows, columns)
    """
    least, arrays, form = np.inf, {}, ""
    for tried in FORMS[kind]:
        said: dict[str, NDArray[Any]] = {}
        for part in inner_parts(scenes, fold):
            local = Local(kind, tried, [scenes[i] for i in fold.train if i not in part], sizes, study)
            said |= {str(i): local(scenes[i]).astype(np.float32) for i in part}
        error = float(np.mean([error_of(said[str(i)], scenes[i]) for i in fold.train]))
        if error < least:
            least, arrays, form = error, said, tried
    began = time.perf_counter()
    local = Local(kind, form, [scenes[i] for i in fold.train], sizes, study)
    seconds = time.perf_counter() - began
    rows = []
    for i in fold.test:
        arrays[str(i)] = local(scenes[i]).astype(np.float32)
        rows.append(scored(f"{kind} alone", kind, scenes[i], arrays[str(i)], fit=seconds, settings=form))
        if kind == ESTIMATORS[0]:
            per_row = np.broadcast_to(local.rows[:, None], scenes[i].depth.shape)
            rows.append(scored("median of each row", "none", scenes[i], per_row))
    return Result(rows, arrays)


def combined(
    scenes: Sequence[Scene], fold: Fold, words: Mapping[str, Mapping[int, Matrix]]
) -> dict[int, Matrix]:
    """The weighted mean of what predictors say that is best on training images, which they were not trained on.

    Returns
    -------
    what they say together of each scene of the fold
    """
    steps = range(WEIGHT_STEPS + 1)
    tried = [
        np.array(parts) / WEIGHT_STEPS
        for parts in product(steps, repeat=len(words))
        if sum(parts) == WEIGHT_STEPS
    ]

    def together(weights: Matrix, scene: int) -> Matrix:
        return sum(
            (w * said[scene] for w, said in zip(weights, words.values(), strict=True)), start=np.zeros(1)
        )

    best = min(tried, key=lambda w: sum(error_of(together(w, i), scenes[i]) for i in fold.train))
    return {i: together(best, i) for i in (*fold.train, *fold.test)}


class Local:
    """A regression on the features: of what differs from the median depth of each row, or of the median.

    Parameters
    ----------
    kind : of `ESTIMATORS`
    form : of `FORMS`
    train : scenes to learn from
    """

    def __init__(self, kind: str, form: str, train: Sequence[Scene], sizes: Sizes, study: Study) -> None:
        together = np.concatenate([scene.depth for scene in train], axis=1)
        known = np.isfinite(together).any(axis=1)
        everywhere = float(np.nanmedian(together))
        self.rows = np.full(len(together), everywhere)
        self.rows[known] = np.nanmedian(together[known], axis=1)
        self.least, self.most = float(np.nanmin(together)), float(np.nanmax(together))
        features, depths, expected = [], [], []
        share = max(sizes.patches // len(train), 1)
        for number, scene in enumerate(train):
            places = np.flatnonzero(np.isfinite(scene.depth))
            chosen = study.rng(1, number).permutation(places)[:share]
            features.append(scene.features().reshape(-1, DEPTH_FEATURES)[chosen])
            depths.append(scene.depth.ravel()[chosen])
            expected.append(self.rows[chosen // scene.depth.shape[1]])
        x, y = np.concatenate(features), np.concatenate(depths)
        self.estimator = _estimator(kind, form, len(y), sizes, study.options.seed % 2**32)
        self.thresholds = None
        if form == "median" and kind != "boosting":
            self.thresholds = np.quantile(y, np.linspace(0, 1, THRESHOLDS + 2)[1:-1])
            # One probability a threshold for a regression, one class between two of them for a classifier.
            y = np.searchsorted(self.thresholds, y)
            y = y[:, None] <= np.arange(THRESHOLDS) if kind == "ridge" else y
        else:
            y = y - np.concatenate(expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a number of epochs is given, not convergence asked for
            self.estimator.fit(x, y)

    def __call__(self, scene: Scene) -> Matrix:
        """Log10 depth of every patch, (rows, columns), within the range seen in training."""
        features = scene.features().reshape(-1, DEPTH_FEATURES)
        if self.thresholds is None:
            found = self.estimator.predict(features).reshape(scene.depth.shape) + self.rows[:, None]
        else:
            found = self._median(features).reshape(scene.depth.shape)
        clipped: Matrix = np.clip(found, self.least, self.most)
        return clipped

    def _median(self, features: NDArray[Any]) -> Matrix:
        """Where the probability of lying below reaches a half, between two thresholds on a line."""
        assert self.thresholds is not None
        if hasattr(self.estimator, "predict_proba"):
            shares = np.zeros((len(features), THRESHOLDS + 1))
            shares[:, self.estimator.classes_] = self.estimator.predict_proba(features)
            below = np.cumsum(shares, axis=1)[:, :-1]
        else:
            below = np.maximum.accumulate(np.clip(self.estimator.predict(features), 0, 1), axis=1)
        ends = np.ones((len(below), 1))
        below = np.concatenate([0 * ends, below, ends], axis=1)
        depths = np.concatenate([[self.least], self.thresholds, [self.most]])
        after = (below < 0.5).sum(axis=1).clip(1, THRESHOLDS + 1)
        before = after - 1
        low, high = (np.take_along_axis(below, k[:, None], axis=1)[:, 0] for k in (before, after))
        share = (0.5 - low) / np.maximum(high - low, 1e-9)
        median: Matrix = depths[before] + share * (depths[after] - depths[before])
        return median


def _estimator(kind: str, form: str, patches: int, sizes: Sizes, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "ridge":
        return make_pipeline(StandardScaler(), Ridge(RIDGE * patches))
    if kind == "boosting":
        return HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=sizes.rounds,
            learning_rate=LEARNING_RATE,
            max_leaf_nodes=LEAVES,
            min_samples_leaf=min(LEAST_LEAF, max(patches // 20, 1)),
            max_features=FEATURE_SHARE,
            random_state=seed,
        )
    network = MLPClassifier if form == "median" else MLPRegressor
    return make_pipeline(
        StandardScaler(),
        network(hidden_layer_sizes=(MLP_UNITS,), alpha=MLP_PENALTY, max_iter=sizes.epochs, random_state=seed),
    )
