r"""Evidence from a prediction: what features y say about a hidden x, by regression instead of counting.

A long feature vector has no likelihood that could be counted. But any predictor turned the other way has
Bayes' rule: with :math:`p_j(y)` a prediction of the state of x and :math:`\pi_j` the states' marginal,

.. math:: P(y \mid x) \propto w(x)^\top r(y), \qquad r_j(y) = p_j(y) / \pi_j.

Three predictors give :math:`p(y)`, all read through the same `Calibration`:

- a ridge regression of the states' weights w(x) on the kernel features of y (`RidgePosterior`): the paper's
  embedding of the hidden given the features, restricted to the states;
- a scikit-learn classifier of the state nearest to x (`ClassifierEvidence`);
- a scikit-learn regressor of x itself, with Gaussian residuals (`RegressorEvidence`).

A prediction is believed by a power, the inverse of its temperature, and states are offset so that on
average over readings each is as probable as it is: the intercepts of maximum likelihood. (Without them a
regression, which shrinks to the mean already, would be shrunk once more by the marginal.)

Everything that is chosen (ridge, smoothing, temperature, share of the marginal) is chosen by the mean of
:math:`\log w(x)^\top r(y)` over held-out pairs: the same score, in nats a pair, as in `tuning`. Held out are blocks
of consecutive pairs, dealt to the folds in turn: pairs that follow each other often share a picture or a
chain, and their features overlap, so that single pairs held out at random would be known already.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels import domain
from kernelbp.learning.probability import States, assign, blurs
from kernelbp.lowrank import Basis
from kernelbp.values import Column, distinct

__all__ = [
    "Calibration",
    "ClassifierEvidence",
    "Predictor",
    "RegressorEvidence",
    "RidgePosterior",
    "check_estimator",
    "fit_estimator",
    "fit_posterior",
    "is_estimator",
]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
Link = Literal["log", "linear"]

LINKS: tuple[Link, ...] = ("log", "linear")
FOLDS = 3
BLOCKS = 10
"""Blocks of consecutive pairs in each fold."""
MOST_SCORED = 12_000
"""Held-out pairs that settings are scored on."""
FEW_SCORED = 2_000
"""The same while the ridge and the smoothing are still open."""
CHUNK = 1 << 14
"""Pairs whose features are held at a time."""
TEMPERATURES = tuple(2.0 ** (k / 2) for k in range(-10, 9))
"""Tried first; the best is then refined between its neighbours."""
REFINED = tuple(2.0 ** (k / 8) for k in range(-3, 4))
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Shares of the marginal tried: how often a prediction is taken to be of no use at all."""
RIDGES = tuple(10.0**k for k in range(-5, 3))
"""Ridges tried, in units of the mean variance of the features' coordinates."""
WIDTHS = (0.0, 0.8, 1.8, 4.0)
"""Smoothing of a ridge regression's states, in units of the distance between neighbours."""
RATIO_FLOOR = 1e-2
"""A linear regression of probabilities is kept above this share of the marginal."""
MOST_RATIO = 50.0
"""And, where it is used as it is, within this many times the marginal."""
MATCHING_STEPS = 20
MATCHED = 0.02
"""Iterative scaling ends when average probabilities are within this share of the marginal."""
MOST_FACTOR = 1e6
PROBABILITY_FLOOR = 1e-12
"""A classifier's probabilities are kept above this."""
UNCALIBRATED = 0.1
"""Share of the marginal where there are too few pairs to hold any out."""


@dataclass(frozen=True)
class Calibration:
    """How far a prediction is to be believed.

    Attributes
    ----------
    temperature : ratios are raised to one over this: above 1 the predictor was too sure of itself
    share : of the marginal mixed in: no prediction rules a state out
    factors : (q,) by which states are multiplied so that ratios are 1 on average over readings, too
    score : held-out mean log density ratio, nats a pair; None if there were too few pairs to hold any out
    """

    temperature: float
    share: float
    factors: Matrix
    score: float | None

    def ratio(self, logs: Matrix, prior: Matrix) -> Matrix:
        """Density ratios (n, q) with mean 1 under the prior (q,), from those of a predictor (log, any scale)."""
        ratio = _tempered(logs, prior, self.temperature)
        ratio *= self.factors
        ratio /= ratio @ prior[:, None]
        ratio *= 1 - self.share
        ratio += self.share
        return ratio


@dataclass(frozen=True)
class RidgePosterior:
    """A ridge regression of w(x) on the features' coordinates, read as probabilities.

    Attributes
    ----------
    weights : (l, q), offset : (q,) the regression
    base : (q,) what it gives on average, smoothed alike
    prior : (q,) marginal of the states
    ridge : the paper's lambda
    width : smoothing along the states, in units of the distance between neighbours
    link : how predicted ratios become log ratios: their "log", floored, or "linear", as in discriminant analysis
    calibration : how far it is believed
    """

    weights: Matrix
    offset: Matrix
    base: Matrix
    prior: Matrix
    ridge: float
    width: float
    link: Link
    calibration: Calibration

    @property
    def form(self) -> str:
        """What settings call it."""
        return "posterior"

    def ratio(self, readings: Column, basis: Basis) -> Matrix:
        """P(y | x) up to scale at the states, (n, q)."""
        predicted = basis.coordinates(readings).T @ self.weights + self.offset
        return self.calibration.ratio(_log_ratio(predicted, self.base, self.link), self.prior)


@dataclass(frozen=True)
class ClassifierEvidence:
    """A classifier of the nearest state.

    Attributes
    ----------
    estimator : fitted, with predict_proba
    classes : (c,) the state each of its columns stands for
    frequencies : (c,) of the classes in training
    prior : (q,) marginal of the states
    calibration : how far it is believed
    """

    estimator: Any
    classes: Indices
    frequencies: Matrix
    prior: Matrix
    calibration: Calibration

    @property
    def form(self) -> str:
        """What settings call it."""
        return type(self.estimator).__name__

    def ratio(self, readings: Column, basis: Basis) -> Matrix:
        """P(y | x) up to scale at the states, (n, q)."""
        logs = _class_logs(self.estimator, readings, self.classes, self.frequencies, len(self.prior))
        return self.calibration.ratio(logs, self.prior)


@dataclass(frozen=True)
class RegressorEvidence:
    """A regressor of the hidden value, with Gaussian residuals.

    Attributes
    ----------
    estimator : fitted
    points : (q, d) the states
    scales : (d,) root mean square of held-out residuals
    prior : (q,) marginal of the states
    calibration : how far it is believed
    """

    estimator: Any
    points: Matrix
    scales: Matrix
    prior: Matrix
    calibration: Calibration

    @property
    def form(self) -> str:
        """What settings call it."""
        return type(self.estimator).__name__

    def ratio(self, readings: Column, basis: Basis) -> Matrix:
        """P(y | x) up to scale at the states, (n, q)."""
        predicted = _predict(self.estimator, readings, self.points.shape[1])
        return self.calibration.ratio(_residual_logs(predicted, self.points, self.scales), self.prior)


Predictor: TypeAlias = RidgePosterior | ClassifierEvidence | RegressorEvidence


# ---------------------------------------------------------------------- the paper's features


def fit_posterior(
    hidden: Column,
    readings: Column,
    states: States,
    basis: Basis,
    *,
    regularization: float | None = None,
    most: int | None = None,
) -> RidgePosterior:
    """Regress the states' weights on kernel features, with ridge and smoothing by held-out score.

    Parameters
    ----------
    hidden, readings : the m pairs, in the order they were given
    states : of the hidden variable
    basis : of the readings' features
    regularization : the paper's lambda, if it is not to be chosen
    most : learn from this many pairs only, evenly through the order given
    """
    if most is not None and len(hidden) > most:
        kept = np.linspace(0, len(hidden) - 1, most).astype(np.intp)
        hidden, readings = hidden[kept], readings[kept]
    measures = _measures(states, hidden)
    prior = _mean(measures)
    folds = _folds(len(hidden))
    sums = [_Sums.over(np.flatnonzero(folds == f), measures, readings, basis) for f in range(FOLDS)]
    whole = sum(sums[1:], start=sums[0])
    unit = max(float(np.trace(whole.centred()[0])) / max(whole.count * len(basis), 1), _tiny())
    ridges = [unit * r for r in RIDGES] if regularization is None else [regularization]
    spread = blurs(states, WIDTHS)
    scored = _scored(folds)
    if not len(scored):
        ridge, width, link = ridges[len(ridges) // 2], 0.0, LINKS[0]
        calibration = _uncalibrated(len(prior))
    else:
        few = scored[_thinned(len(scored), FEW_SCORED)]
        solvers = [_Solver(whole - part) for part in sums]
        coordinates = {f: basis.coordinates(readings[few[folds[few] == f]]) for f in range(FOLDS)}

        near = 1.0

        def score(ridge: float, index: int, link: Link) -> float:
            nonlocal near
            plain, base = _held_out(few, folds, coordinates, solvers, ridge)
            logs = _log_ratio(plain @ spread[index], base @ spread[index], link)
            found = _calibrate(logs, measures[few], prior, near=near, refined=())
            near = found.temperature  # other settings will want much the same
            return found.score or 0.0

        # The ridge and the reading of its predictions hardly depend on each other: one after the other.
        index, link = 0, LINKS[0]
        ridge = max(ridges, key=lambda r: score(r, index, link))
        readings_of = itertools.product(range(len(spread)), LINKS)
        index, link = max(readings_of, key=lambda choice: score(ridge, *choice))
        ridge = max(ridges, key=lambda r: score(r, index, link))
        coordinates = {f: basis.coordinates(readings[scored[folds[scored] == f]]) for f in range(FOLDS)}
        plain, base = _held_out(scored, folds, coordinates, solvers, ridge)
        logs = _log_ratio(plain @ spread[index], base @ spread[index], link)
        width, calibration = WIDTHS[index], _calibrate(logs, measures[scored], prior, near=near)
    blur = spread[WIDTHS.index(width)]
    weights, offset = _Solver(whole).at(ridge)
    base = prior @ blur
    return RidgePosterior(weights @ blur, offset @ blur, base, prior, ridge, width, link, calibration)


@dataclass(frozen=True)
class _Sums:
    """Sums over pairs: number, features r(y), measures w(x), r r' and r w'."""

    count: int
    features: Matrix
    measures: Matrix
    auto: Matrix
    cross: Matrix

    @classmethod
    def over(cls, rows: Indices, measures: scipy.sparse.csr_array, readings: Column, basis: Basis) -> _Sums:
        size, q = len(basis), measures.shape[1]
        features, auto, cross = np.zeros(size), np.zeros((size, size)), np.zeros((size, q))
        for begin in range(0, len(rows), CHUNK):
            part = rows[begin : begin + CHUNK]
            block = basis.coordinates(readings[part])
            features += block.sum(axis=1)
            auto += block @ block.T
            cross += block @ measures[part]
        return cls(len(rows), features, np.asarray(measures[rows].sum(axis=0)).reshape(-1), auto, cross)

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.count + other.count,
            self.features + other.features,
            self.measures + other.measures,
            self.auto + other.auto,
            self.cross + other.cross,
        )

    def __sub__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.count - other.count,
            self.features - other.features,
            self.measures - other.measures,
            self.auto - other.auto,
            self.cross - other.cross,
        )

    def centred(self) -> tuple[Matrix, Matrix]:
        """Sums of products of deviations from the means: of features (l, l), of features and measures (l, q)."""
        count = max(self.count, 1)
        return (
            self.auto - np.outer(self.features, self.features) / count,
            self.cross - np.outer(self.features, self.measures) / count,
        )


class _Solver:
    """Ridge regressions of one sample at any ridge: one eigendecomposition serves them all."""

    def __init__(self, sums: _Sums) -> None:
        auto, cross = sums.centred()
        self.count = max(sums.count, 1)
        self.mean, self.base = sums.features / self.count, sums.measures / self.count
        values, self.vectors = scipy.linalg.eigh(auto)
        self.values = np.maximum(values, 0.0)
        self.cross = self.vectors.T @ cross
        # Deviations are differences of sums: what is smaller than their rounding error is not signal.
        self.rounding = len(auto) * np.finfo(np.float64).eps * float(np.trace(sums.auto)) + _tiny()

    def at(self, ridge: float) -> tuple[Matrix, Matrix]:
        """Weights (l, q) and offset (q,)."""
        scale = self.values + ridge * self.count
        kept = scale > max(
            len(scale) * np.finfo(np.float64).eps * float(scale.max(initial=0.0)), self.rounding
        )
        shrunk = np.where(kept[:, None], self.cross / np.where(kept, scale, 1.0)[:, None], 0.0)
        weights = self.vectors @ shrunk
        return weights, self.base - self.mean @ weights


def _held_out(
    rows: Indices,
    folds: Indices,
    coordinates: dict[int, Matrix],
    solvers: list[_Solver],
    ridge: float,
) -> tuple[Matrix, Matrix]:
    """Predictions (n, q) of held-out pairs, and their averages in training (n, q)."""
    predicted = np.empty((len(rows), len(solvers[0].base)))
    base = np.empty_like(predicted)
    for fold, solver in enumerate(solvers):
        mine = folds[rows] == fold
        weights, offset = solver.at(ridge)
        predicted[mine] = coordinates[fold].T @ weights + offset
        base[mine] = solver.base
    return predicted, base


def _log_ratio(predicted: Matrix, base: Matrix, link: Link) -> Matrix:
    """Log ratios from predicted probabilities and those on average; 0 where the average is nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(base > 0, predicted / base, 1.0)
    if link == "linear":
        return np.clip(ratio, -MOST_RATIO, MOST_RATIO) - 1
    logs: Matrix = np.log(np.maximum(ratio, RATIO_FLOOR))
    return logs


# ---------------------------------------------------------------------- scikit-learn


def is_estimator(evidence: Any) -> bool:
    """Whether an object keeps scikit-learn's contract as far as it is needed: fit and predict."""
    return not isinstance(evidence, type) and all(
        callable(getattr(evidence, method, None)) for method in ("fit", "predict")
    )


def check_estimator(estimator: Any, hidden: Column, relation: str) -> None:
    """Refuse, before any work, an estimator that cannot speak about the hidden variable."""
    name = f"relations[{relation!r}].evidence"
    if _is_classifier(estimator):
        if not hasattr(estimator, "predict_proba"):
            raise InputError(
                f"{name}: the classifier {type(estimator).__name__} gives no probabilities (predict_proba); "
                "wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
    elif hidden.dtype == object:
        raise InputError(
            f"{name}: the regressor {type(estimator).__name__} predicts numbers, but the hidden variable holds "
            "objects; use a classifier"
        )


def fit_estimator(
    estimator: Any, hidden: Column, readings: Column, states: States, relation: str
) -> ClassifierEvidence | RegressorEvidence:
    """Train a copy of a scikit-learn estimator and calibrate it on pairs held out from others.

    Parameters
    ----------
    estimator : classifier (of the state nearest to the hidden value) or regressor (of the value itself)
    hidden, readings : the m pairs, in the order they were given
    states : of the hidden variable
    relation : its name, for errors
    """
    measures = _measures(states, hidden)
    prior = _mean(measures)
    folds = _folds(len(hidden))
    scored = _scored(folds)
    classify = _is_classifier(estimator)
    # As scikit-learn wants it: one column of labels or numbers is an array with one axis.
    target = np.asarray(measures.argmax(axis=1)).reshape(-1) if classify else hidden
    target = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target

    def train(rows: Indices) -> Any:
        made = _copy(estimator)
        try:
            made.fit(readings[rows], target[rows])
        except (TypeError, ValueError) as error:
            raise InputError(
                f"relations[{relation!r}].evidence: {type(estimator).__name__} could not be trained on "
                f"{len(rows)} pairs ({error})"
            ) from error
        return made

    def held_out(read: Callable[[Any, Indices, Indices], Matrix], width: int) -> Matrix:
        found = np.empty((len(scored), width))
        for fold in range(FOLDS):
            mine = folds[scored] == fold
            rows = np.flatnonzero(folds != fold)
            found[mine] = read(train(rows), rows, scored[mine])
        return found

    everything = np.arange(len(hidden))
    if classify:

        def logs_of(made: Any, rows: Indices, new: Indices) -> Matrix:
            return _class_logs(made, readings[new], *_class_table(made, target[rows]), len(prior))

        calibration = _calibrate_or_not(lambda: held_out(logs_of, len(prior)), measures, scored, prior)
        made = train(everything)
        return ClassifierEvidence(made, *_class_table(made, target), prior, calibration)

    dimension = hidden.shape[1]
    scales = np.ones(dimension)
    calibration = _uncalibrated(len(prior))
    if len(scored):
        predicted = held_out(lambda made, _, new: _predict(made, readings[new], dimension), dimension)
        square = ((predicted - hidden[scored]) ** 2).mean(axis=0)
        if domain(states.kernel) == "sphere":
            square = np.full(dimension, square.mean())
        scales = np.sqrt(np.maximum(square, 1e-12 * max(float(np.square(hidden).mean()), _tiny())))
        calibration = _calibrate(_residual_logs(predicted, states.points, scales), measures[scored], prior)
    return RegressorEvidence(train(everything), states.points, scales, prior, calibration)


def _is_classifier(estimator: Any) -> bool:
    from sklearn.base import is_classifier

    try:
        return bool(is_classifier(estimator)) or hasattr(estimator, "predict_proba")
    except (AttributeError, TypeError):  # not made for scikit-learn, but with its methods
        return hasattr(estimator, "predict_proba")


def _copy(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator) if hasattr(estimator, "get_params") else copy.deepcopy(estimator)


def _class_table(estimator: Any, target: Indices) -> tuple[Indices, Matrix]:
    classes = np.asarray(estimator.classes_).astype(np.intp)
    return classes, np.bincount(target, minlength=int(classes.max()) + 1)[classes] / len(target)


def _class_logs(estimator: Any, readings: Column, classes: Indices, frequencies: Matrix, size: int) -> Matrix:
    """Log of P(state | y) / P(state), (n, q); 0, which says nothing, for states never trained on."""
    logs = np.zeros((len(readings), size))
    if len(readings):
        found = np.asarray(estimator.predict_proba(readings), dtype=np.float64)
        logs[:, classes] = np.log(np.maximum(found, PROBABILITY_FLOOR) / frequencies)
    return logs


def _predict(estimator: Any, readings: Column, dimension: int) -> Matrix:
    if not len(readings):
        return np.empty((0, dimension))
    return np.asarray(estimator.predict(readings), dtype=np.float64).reshape(len(readings), dimension)


def _residual_logs(predicted: Matrix, points: Matrix, scales: Matrix) -> Matrix:
    """Log of a Gaussian window around each prediction at the states, (n, q)."""
    logs: Matrix = -0.5 * scipy.spatial.distance.cdist(predicted / scales, points / scales, "sqeuclidean")
    return logs


# ---------------------------------------------------------------------- held-out pairs


def _measures(states: States, hidden: Column) -> scipy.sparse.csr_array:
    """w(x) of every pair, (m, q)."""
    first, classes = distinct(hidden)
    return scipy.sparse.csr_array(assign(states, hidden[first])[classes])


def _mean(measures: scipy.sparse.csr_array) -> Matrix:
    total = np.asarray(measures.sum(axis=0), dtype=np.float64).reshape(-1)
    return total / total.sum()


def _folds(size: int) -> Indices:
    """The fold of each pair: blocks of consecutive pairs are dealt out in turn."""
    blocks = min(size, FOLDS * BLOCKS)
    return np.arange(size) * blocks // max(size, 1) % FOLDS


def _scored(folds: Indices) -> Indices:
    """Held-out pairs to score, evenly through all; none if some fold would be empty."""
    return _thinned(len(folds), MOST_SCORED) if len(folds) >= FOLDS else np.empty(0, dtype=np.intp)


def _thinned(size: int, most: int) -> Indices:
    return np.linspace(0, size - 1, min(size, most)).astype(np.intp)


def _calibrate_or_not(
    logs: Callable[[], Matrix], measures: scipy.sparse.csr_array, scored: Indices, prior: Matrix
) -> Calibration:
    if not len(scored):
        return _uncalibrated(len(prior))
    return _calibrate(logs(), measures[scored], prior)


def _uncalibrated(size: int) -> Calibration:
    return Calibration(1.0, UNCALIBRATED, np.ones(size), None)


def _calibrate(
    logs: Matrix,
    measures: scipy.sparse.csr_array,
    prior: Matrix,
    *,
    near: float = 1.0,
    refined: tuple[float, ...] = REFINED,
) -> Calibration:
    """The temperature and share with the best held-out score, for log ratios (n, q) of n pairs.

    The search begins `near` one of the temperatures tried.
    """
    shares, dense = np.asarray(SHARES), measures.toarray()
    found: dict[float, tuple[float, float, Matrix]] = {}

    def score(temperature: float) -> float:
        if temperature not in found:
            ratio = _tempered(logs, prior, temperature)
            factors = _matched(ratio, prior)
            ratio *= factors
            ratio /= ratio @ prior[:, None]
            value = np.einsum("ij,ij->i", dense, ratio)[:, None]
            scores = np.log((1 - shares) * value + shares).mean(axis=0)
            best = int(np.argmax(scores))
            found[temperature] = float(scores[best]), float(shares[best]), factors
        return found[temperature][0]

    centre = _climb(score, TEMPERATURES, TEMPERATURES.index(near))
    best = max((centre, *(centre * step for step in refined)), key=score)
    score_found, share, factors = found[best]
    return Calibration(best, share, factors, score_found)


def _matched(ratio: Matrix, prior: Matrix) -> Matrix:
    """Factors (q,) of the states that make every ratio 1 on average over readings, by iterative scaling."""
    factors = np.ones(len(prior))
    for _ in range(MATCHING_STEPS):
        totals = ratio @ (prior * factors)
        average = factors * ((1 / totals) @ ratio) / len(ratio)
        factors = np.clip(factors / np.maximum(average, _tiny()), 1 / MOST_FACTOR, MOST_FACTOR)
        if np.abs(average[prior > 0] - 1).max() < MATCHED:
            break
    return factors


def _climb(score: Callable[[float], float], ladder: tuple[float, ...], start: int) -> float:
    """The best rung near the start: scores have one hill, so most rungs need not be tried."""
    at = start
    for step in (1, -1):
        while 0 <= at + step < len(ladder) and score(ladder[at + step]) > score(ladder[at]):
            at += step
    return ladder[at]


def _tempered(logs: Matrix, prior: Matrix, temperature: float) -> Matrix:
    scaled = logs / temperature
    # The largest among states that occur; others may lie higher but must not overflow.
    occurs = prior > 0
    scaled -= (scaled if occurs.all() else scaled[:, occurs]).max(axis=1, keepdims=True)
    np.minimum(scaled, 0.0, out=scaled)
    np.exp(scaled, out=scaled)
    scaled /= scaled @ prior[:, None]
    return scaled


def _tiny() -> float:
    return float(np.finfo(np.float64).tiny)
