"""Local predictors of depth: what the features of a patch say, whatever its neighbours are."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets.depth_features import DEPTH_FEATURES
from kernelbp.experiments.depth_scenes import Fold, Scene, Sizes, inner_parts, scored
from kernelbp.experiments.study import Result, Study

__all__ = ["ESTIMATORS", "SETTINGS", "Local", "predict"]

Matrix = NDArray[np.float64]

ESTIMATORS = ("ridge", "boosting", "MLP")
RIDGE = 0.1
"""Times the number of patches learned from: of features scaled to unit variance."""
MLP_UNITS, MLP_PENALTY = 32, 3.0
LEAVES, LEAST_LEAF, LEARNING_RATE, FEATURE_SHARE = 8, 30, 0.1, 0.3
SETTINGS = {
    "ridge": f"penalty {RIDGE} a patch, features scaled",
    "boosting": f"absolute error, {LEAVES} leaves of at least {LEAST_LEAF} patches, rate {LEARNING_RATE}, "
    f"{FEATURE_SHARE:.0%} of the features at each split",
    "MLP": f"{MLP_UNITS} units, penalty {MLP_PENALTY}, features scaled",
}
"""In words."""


def predict(kind: str, scenes: Sequence[Scene], fold: Fold, sizes: Sizes, study: Study) -> Result:
    """A local predictor's word on every patch, of images it was not trained on.

    Returns
    -------
    Result with a row for each test image, and for each scene (by its number) predictions (rows, columns)
    """
    arrays: dict[str, NDArray[Any]] = {}
    for part in inner_parts(scenes, fold):
        local = Local(kind, [scenes[i] for i in fold.train if i not in part], sizes, study)
        arrays |= {str(i): local(scenes[i]).astype(np.float32) for i in part}
    began = time.perf_counter()
    local = Local(kind, [scenes[i] for i in fold.train], sizes, study)
    seconds = time.perf_counter() - began
    rows = []
    for i in fold.test:
        arrays[str(i)] = local(scenes[i]).astype(np.float32)
        rows.append(scored(f"{kind} alone", kind, scenes[i], arrays[str(i)], fit=seconds))
        if kind == ESTIMATORS[0]:
            per_row = np.broadcast_to(local.rows[:, None], scenes[i].depth.shape)
            rows.append(scored("median of each row", "none", scenes[i], per_row))
    return Result(rows, arrays)


class Local:
    """The median depth of each row in training, and a regression of what differs from it on the features."""

    def __init__(self, kind: str, train: Sequence[Scene], sizes: Sizes, study: Study) -> None:
        together = np.concatenate([scene.depth for scene in train], axis=1)
        known = np.isfinite(together).any(axis=1)
        everywhere = float(np.nanmedian(together))
        self.rows = np.full(len(together), everywhere)
        self.rows[known] = np.nanmedian(together[known], axis=1)
        self.least, self.most = float(np.nanmin(together)), float(np.nanmax(together))
        features, targets = [], []
        share = max(sizes.patches // len(train), 1)
        for number, scene in enumerate(train):
            places = np.flatnonzero(np.isfinite(scene.depth))
            chosen = study.rng(1, number).permutation(places)[:share]
            features.append(scene.features().reshape(-1, DEPTH_FEATURES)[chosen])
            targets.append((scene.depth - self.rows[:, None]).ravel()[chosen])
        x, y = np.concatenate(features), np.concatenate(targets)
        self.estimator = _estimator(kind, len(y), sizes, study.options.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a number of epochs is given, not convergence asked for
            self.estimator.fit(x, y)

    def __call__(self, scene: Scene) -> Matrix:
        """Log10 depth of every patch, (rows, columns), within the range seen in training."""
        found = self.estimator.predict(scene.features().reshape(-1, DEPTH_FEATURES)).reshape(
            scene.depth.shape
        )
        clipped: Matrix = np.clip(found + self.rows[:, None], self.least, self.most)
        return clipped


def _estimator(kind: str, patches: int, sizes: Sizes, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor
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
    return make_pipeline(
        StandardScaler(),
        MLPRegressor(
            hidden_layer_sizes=(MLP_UNITS,), alpha=MLP_PENALTY, max_iter=sizes.epochs, random_state=seed
        ),
    )
