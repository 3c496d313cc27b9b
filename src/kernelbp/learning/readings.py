r"""The likelihood of numbers read off numbers: a location, a scale and one shape for all.

Counting states smooths a likelihood along both ends, and learns the noise at every hidden value from the pairs found
there. Most instruments are simpler: what is read is a smooth function of what is there, plus noise whose size changes
slowly and whose shape does not change,

.. math:: y = m(x) + s(x)\, u, \qquad u \sim f,

so that all pairs together tell f. Here m is made of straight pieces (with a ridge on changes of slope), the square of
s is a local mean of squared residuals, and f is either Gaussian or a density of Gaussian windows over the residuals
of held-out pairs.
A small share of readings is taken to come from anywhere, by a density with heavy tails, so that a reading unlike
all others says little. At state k a reading is as likely as on average over the values the state stands for,

.. math:: e_k(y) = \sum_x p(x)\, w_k(x)\, p(y \mid x) \Big/ \sum_x p(x)\, w_k(x) .

Whether this or counting is taken is decided by held-out pairs, by the mean of
:math:`\log w(x)^\top e(y) / \pi^\top e(y)`, with :math:`\pi` the mean of w(x): the log density of the hidden value given
the reading, over its frequency. Both forms are measured against the same frequencies, and no density of readings
is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.learning.probability import States, blurs, density_ratio, interpolate, joint_table
from kernelbp.learning.tuning import EVIDENCE_SHARES, Fold, Smoothing, sampled, smoothed_joint
from kernelbp.values import Column

__all__ = ["ReadingLikelihood", "Shape", "fit_reading_likelihood"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
Shape = Literal["gaussian", "pooled"]

LEAST_PAIRS = 12
"""With fewer, nothing is tried: folds of three pairs say nothing about a shape."""
RULER_POINTS = 1024
"""Readings at which the likelihood is tabulated; between them it is interpolated."""
SCORED_POINTS = 512
"""The same while it is compared with counting."""
BENDS = 32
"""Values of x at which the location may bend."""
MOST_PLACES = 256
"""Distinct values of x that are told apart in averaging over a state; more are pooled with their neighbours."""
FENCE = 3.0
"""Readings further beyond the quartiles than this many distances between them are moved to there while location and
scale are fitted: Tukey's far out, which a Gaussian never is."""
LEAST_IN_GROUP, MOST_GROUPS = 50, 32
"""Pairs whose quartiles are taken together, and most groups of them along x."""
STIFFNESSES = tuple(10.0**k for k in range(-1, 8))
"""Ridges on changes of slope tried, in units of the mean number of pairs for each bend."""
SCALE_WIDTHS = (1.0, 2.0, 4.0, 8.0, np.inf)
"""How far squared residuals are averaged along x, in bends; everywhere, at last: noise of one size."""
BORROWED = 2.0
"""Pairs with the mean squared residual that are added to those around each bend."""
SHAPE_REACH, SHAPE_STEP = 12.0, 0.02
"""The shape is tabulated this far to both sides, in standard deviations of a Gaussian with the same quartiles."""
WINDOWS = (0.05, 0.08, 0.12, 0.18, 0.27, 0.4, 0.6)
"""Widths of the windows over residuals that are tried, in the same unit."""
LATTICE = 0.5
"""Least width of windows, in distances between neighbouring readings: rounded readings lie on a lattice, and narrower
windows would learn that instead of the noise."""
STRAY_SHARES = (*EVIDENCE_SHARES, 0.03, 0.1)
"""Shares of readings tried that come from anywhere."""
TRIED_SHARE = EVIDENCE_SHARES[2]
"""The share while the shape is still open."""
LEAST_SCALE = 1e-5
"""Noise is not taken to be finer than this, in distances between the quartiles of readings: the ruler is a hundred
times coarser."""
FARTHEST = 1e9
"""Values further than this many distances between the quartiles from their median are taken to lie there."""
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class ReadingLikelihood:
    """A likelihood of location, scale and shape, tabulated.

    Attributes
    ----------
    points : (g,) readings, ascending
    table : (g, q) density ratio P(y | state) / P(y) at each
    shape : of the noise
    share : of readings taken to come from anywhere
    score : held-out mean log density ratio, nats a pair
    exact : the same if states were told apart as finely as hidden values: how much more states could bring
    """

    points: Matrix
    table: Matrix
    shape: Shape
    share: float
    score: float
    exact: float

    def ratio(self, readings: Column) -> Matrix:
        """P(y | x) / P(y) at the states, (n, q), for readings (n, 1)."""
        ratio: Matrix = interpolate(self.points, readings[:, 0]) @ self.table
        return ratio


def fit_reading_likelihood(
    table: scipy.sparse.csr_array,
    folds: list[Fold],
    states: tuple[States, States],
    measures: tuple[scipy.sparse.csr_array, scipy.sparse.csr_array],
    values: tuple[Matrix, Matrix],
    smoothing: Smoothing,
) -> ReadingLikelihood | None:
    """Learn location, scale and shape; None where counting foretells held-out pairs as well or better.

    Parameters
    ----------
    table : counts of pairs
    folds : the same dealt out, as for the smoothing of the counts
    states : of the hidden values and of the readings
    measures : w(x) of every distinct value of both, (u, q)
    values : the distinct values themselves, (u,)
    smoothing : how counts are smoothed and mixed
    """
    sample = _Sample.of(folds, values)
    if sample is None:
        return None
    units = [_Unit.of(column, sample.counts) for column in (sample.x, sample.y)]
    if not all(0 < unit.size < np.inf for unit in units):
        return None
    sample = replace(sample, x=units[0].scaled(sample.x), y=units[1].scaled(sample.y))
    places = _Places.of(
        units[0].scaled(values[0]), table, measures[0], units[0].scaled(states[0].points[:, 0])
    )
    line = _Line.through(sample, places)
    if line is None:
        return None
    noise = _Noise.of(sample, line)
    scored = _Scored.over(sample, line, noise, places, measures[0])
    counted = _counted(sample, folds, states, measures, smoothing, places.mass.sum(axis=0))
    shares = np.asarray(STRAY_SHARES)
    best = int(np.argmax(sample.counts @ scored.ratio(scored.averaged, shares)))
    share = float(shares[best])
    logs = scored.ratio(scored.averaged, shares[[best]])[:, 0]
    mean, error = _mean_and_error(logs - counted, sample.counts)
    if not mean > error:
        return None
    exact = scored.ratio(scored.exact, shares[[best]])[:, 0]
    points = _ruler(sample.y, sample.counts, RULER_POINTS)
    likely = _averaged(points, line.whole, noise.whole, places)
    ratio = _ratio(likely, (likely @ places.mass.sum(axis=0))[:, None], _stray(points)[:, None], share)
    # Points that cannot be told apart in the user's own numbers are one.
    points, kept = np.unique(units[1].back(points), return_index=True)
    return ReadingLikelihood(
        points,
        ratio[kept],
        noise.shape,
        share,
        _mean_and_error(logs, sample.counts)[0],
        _mean_and_error(exact, sample.counts)[0],
    )


@dataclass(frozen=True)
class _Scored:
    """How likely held-out readings were, (n,) each.

    Attributes
    ----------
    exact : given the hidden value
    averaged : given it as its states know it
    anywhere : on average over hidden values
    stray : if they came from anywhere
    """

    exact: Matrix
    averaged: Matrix
    anywhere: Matrix
    stray: Matrix

    @classmethod
    def over(
        cls,
        sample: _Sample,
        line: _Line,
        noise: _Noise,
        places: _Places,
        measures: scipy.sparse.csr_array,
    ) -> _Scored:
        """By what was learned from pairs of the other folds."""
        points = _ruler(sample.y, sample.counts, SCORED_POINTS)
        exact, averaged, anywhere = (np.empty(len(sample.y)) for _ in range(3))
        for fold, (fit, density) in enumerate(zip(line.fits, noise.outside, strict=True)):
            mine = sample.fold == fold
            location, scale = fit.at(sample.x[mine])
            exact[mine] = density((sample.y[mine] - location) / scale) / scale
            said = interpolate(points, sample.y[mine]) @ _averaged(points, fit, density, places)
            averaged[mine] = _dot(measures[sample.rows[mine]], said)
            anywhere[mine] = said @ places.mass.sum(axis=0)
        return cls(exact, averaged, anywhere, _stray(sample.y))

    def ratio(self, likely: Matrix, shares: Matrix) -> Matrix:
        """Log density ratios with each share of strays, (n, shares)."""
        return _log(_ratio(likely[:, None], self.anywhere[:, None], self.stray[:, None], shares))


def _ratio(likely: Matrix, anywhere: Matrix, stray: Matrix, share: float | Matrix) -> Matrix:
    """P(y | x) / P(y) with a share of strays in both."""
    return ((1 - share) * likely + share * stray) / ((1 - share) * anywhere + share * stray)


def _counted(
    sample: _Sample,
    folds: list[Fold],
    states: tuple[States, States],
    measures: tuple[scipy.sparse.csr_array, scipy.sparse.csr_array],
    smoothing: Smoothing,
    prior: Matrix,
) -> Matrix:
    """Log density ratios of held-out pairs by counting the others, against the same frequencies of x, (n,)."""
    spread = [blurs(s, (w,))[0] for s, w in zip(states, smoothing.widths, strict=True)]
    logs = np.empty(len(sample.y))
    for fold, (training, _) in enumerate(folds):
        mine = sample.fold == fold
        joint = smoothed_joint(joint_table(training, *measures), *spread)
        told = measures[1][sample.columns[mine]] @ density_ratio(joint, smoothing.mixing).T
        logs[mine] = _log(_dot(measures[0][sample.rows[mine]], told) / (told @ prior))
    return logs


def _mean_and_error(values: Matrix, counts: Matrix) -> tuple[float, float]:
    """The mean over pairs and its standard error."""
    total = counts.sum()
    mean = float(counts @ values / total)
    return mean, float(np.sqrt(counts @ (values - mean) ** 2) / total)


class _Unit(NamedTuple):
    """How numbers are counted while we learn from them: the median is 0, and the quartiles are 1 apart."""

    centre: float
    size: float

    @classmethod
    def of(cls, values: Matrix, counts: Matrix) -> _Unit:
        with np.errstate(over="ignore", invalid="ignore"):
            return cls(float(_quantiles(values, counts, 0.5)[0]), _quartile_spread(values, counts))

    def scaled(self, values: Matrix) -> Matrix:
        """Values in this unit."""
        with np.errstate(over="ignore"):
            return np.clip((values - self.centre) / self.size, -FARTHEST, FARTHEST)

    def back(self, numbers: Matrix) -> Matrix:
        """What was counted, as it was."""
        return numbers * self.size + self.centre


@dataclass(frozen=True)
class _Sample:
    """Pairs of all folds, (n,) each: the fold, the places of both values among the distinct ones, values, counts."""

    fold: Indices
    rows: Indices
    columns: Indices
    x: Matrix
    y: Matrix
    counts: Matrix

    @classmethod
    def of(cls, folds: list[Fold], values: tuple[Matrix, Matrix]) -> _Sample | None:
        parts = [sampled(held_out) for _, held_out in folds]
        if sum(part[2].sum() for part in parts) < LEAST_PAIRS or not all(len(part[0]) for part in parts):
            return None
        rows, columns, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        fold = np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])
        return cls(fold, rows, columns, values[0][rows], values[1][columns], counts)


# ---------------------------------------------------------------------- values of x


@dataclass(frozen=True)
class _Places:
    """Distinct values of x, or neighbours pooled where there are many.

    Attributes
    ----------
    centres : (p,) ascending
    widths : (p,) from the smallest to the largest of those pooled
    of_row : (u,) the place of each distinct value
    mass : (p, q) p(x) w(x) summed over the values of each place: sums to one
    states : (q,)
    """

    centres: Matrix
    widths: Matrix
    of_row: Indices
    mass: Matrix
    states: Matrix

    @classmethod
    def of(
        cls, values: Matrix, table: scipy.sparse.csr_array, measures: scipy.sparse.csr_array, states: Matrix
    ) -> _Places:
        counts = np.asarray(table.sum(axis=1), dtype=np.float64).reshape(-1)
        order = np.argsort(values, kind="stable")
        number = np.empty(len(values), dtype=np.intp)
        steps = np.arange(len(values))
        if len(values) > MOST_PLACES:
            # The middle of each value's part of the sample, so that common values keep places of their own.
            middle = np.cumsum(counts[order]) - counts[order] / 2
            steps = np.floor(middle * (MOST_PLACES / max(counts.sum(), TINY))).astype(np.intp)
        number[order] = np.unique(steps, return_inverse=True)[1].reshape(-1)
        size = int(number.max()) + 1
        weight = np.maximum(counts, TINY)
        centres = np.bincount(number, weight * values, size) / np.bincount(number, weight, size)
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        np.minimum.at(low, number, values)
        np.maximum.at(high, number, values)
        gather = scipy.sparse.csr_array(
            (counts / counts.sum(), (number, np.arange(len(counts)))), shape=(size, len(counts))
        )
        mass = np.asarray((gather @ measures).todense(), dtype=np.float64)
        return cls(centres, high - low, number, mass, states)


# ---------------------------------------------------------------------- location and scale


class _Fit(NamedTuple):
    """m(x) and log s(x) at the bends."""

    bends: Matrix
    location: Matrix
    log_scale: Matrix

    def at(self, x: Matrix) -> tuple[Matrix, Matrix]:
        """m(x) and s(x), each (n,)."""
        return np.interp(x, self.bends, self.location), np.exp(np.interp(x, self.bends, self.log_scale))


@dataclass(frozen=True)
class _Line:
    """Location and scale learned without each fold, and from all pairs."""

    fits: list[_Fit]
    whole: _Fit

    @classmethod
    def through(cls, sample: _Sample, places: _Places) -> _Line | None:
        bends = _ruler(sample.x, sample.counts, BENDS)
        hats = interpolate(bends, places.centres).toarray()
        sums = _Sums.of(sample, places, _fenced(sample, places))
        every = range(len(sums.counts))
        others = [[f for f in every if f != fold] for fold in every]
        if not sums.squares.sum() + np.ptp(sums.means) > 0:
            return None
        weights = np.ones(len(places.centres))
        # The second time each pair weighs by how well it tells: noise may differ along x.
        for _ in range(2):
            location, stiffness = _fit_location(sums, others, hats, bends, weights)
            scale, width = _fit_scale(sums, others, hats, hats @ location.T)
            whole = _solved(sums, list(every), hats, bends, weights, (stiffness,))[0]
            spread = _averaged_squares(sums, list(every), hats, hats @ whole, width)
            weights = np.exp(-2 * (hats @ spread))
            weights /= weights.mean()
        fits = [_Fit(bends, m, s) for m, s in zip(location, scale, strict=True)]
        return cls(fits, _Fit(bends, whole, spread))


class _Sums(NamedTuple):
    """By fold and place, (folds, p) each: pairs, mean reading, sum of squares around it."""

    counts: Matrix
    means: Matrix
    squares: Matrix

    @classmethod
    def of(cls, sample: _Sample, places: _Places, y: Matrix) -> _Sums:
        folds, size = int(sample.fold.max()) + 1, len(places.centres)
        key = sample.fold * size + places.of_row[sample.rows]

        def summed(values: Matrix) -> Matrix:
            return np.bincount(key, values, folds * size).astype(np.float64)

        counts = summed(sample.counts)
        means = summed(sample.counts * y) / np.maximum(counts, TINY)
        squares = summed(sample.counts * (y - means[key]) ** 2)
        shape = (folds, size)
        return cls(counts.reshape(shape), means.reshape(shape), squares.reshape(shape))

    def around(self, folds: list[int], location: Matrix) -> Matrix:
        """Sums of squares of some folds around a location (..., p), shape (..., p)."""
        apart = self.means[folds] - location[..., None, :]
        total: Matrix = (self.squares[folds] + self.counts[folds] * apart**2).sum(axis=-2)
        return total


def _fenced(sample: _Sample, places: _Places) -> Matrix:
    """Readings with those far out of their neighbourhood along x moved to its fence, (n,)."""
    at = places.of_row[sample.rows]
    count = np.bincount(at, sample.counts, len(places.centres))
    groups = int(np.clip(count.sum() // LEAST_IN_GROUP, 1, MOST_GROUPS))
    middle = np.cumsum(count) - count / 2
    group = np.minimum((middle * (groups / count.sum())).astype(np.intp), groups - 1)[at]
    order = np.lexsort((sample.y, group))
    ranks = np.cumsum(sample.counts[order])
    totals = np.bincount(group, sample.counts, groups)
    ends = np.cumsum(totals)
    low, high = (
        sample.y[order[np.minimum(np.searchsorted(ranks, ends - (1 - share) * totals), len(order) - 1)]]
        for share in (0.25, 0.75)
    )
    # Where half the readings are equal there is no telling what is far.
    reach = np.where(high > low, FENCE * (high - low), np.inf)
    return np.clip(sample.y, (low - reach)[group], (high + reach)[group])


def _solved(
    sums: _Sums, folds: list[int], hats: Matrix, bends: Matrix, weights: Matrix, tried: tuple[float, ...]
) -> Matrix:
    """Locations at the bends by weighted least squares with each stiffness, (tried, bends)."""
    counts = weights * sums.counts[folds].sum(axis=0)
    auto = (hats * counts[:, None]).T @ hats
    cross = hats.T @ (weights * (sums.counts[folds] * sums.means[folds]).sum(axis=0))
    unit = np.trace(auto) / len(bends)
    steps = np.diff(bends) / np.diff(bends).mean() if len(bends) > 1 else np.ones(0)
    slopes = np.diff(np.eye(len(bends)), axis=0) / steps[:, None]
    bent = np.diff(slopes, axis=0)
    stiff = np.asarray(tried)[:, None, None] * unit * (bent.T @ bent)
    # Two places at least tell a line; a trace of a ridge keeps one of them solvable.
    least = 1e-10 * unit * np.eye(len(bends))
    solved: Matrix = np.linalg.solve(
        auto + stiff + least, np.broadcast_to(cross[:, None], (len(tried), len(bends), 1))
    )
    return solved[..., 0]


def _fit_location(
    sums: _Sums, others: list[list[int]], hats: Matrix, bends: Matrix, weights: Matrix
) -> tuple[Matrix, float]:
    """Locations (folds, bends), each learned without its fold, at the largest stiffness that is as good as any.

    As good is what is off by no more than one standard error of the difference over folds: bends that
    held-out pairs do not ask for would follow the noise of the others.
    """
    tried = np.stack([_solved(sums, rest, hats, bends, weights, STIFFNESSES) for rest in others])
    errors = np.stack([sums.around([fold], tried[fold] @ hats.T) @ weights for fold in range(len(others))])
    more = errors - errors[:, [int(np.argmin(errors.sum(axis=0)))]]
    near = more.sum(axis=0) <= np.sqrt(len(others)) * more.std(axis=0, ddof=1)
    best = int(np.flatnonzero(near)[-1])
    return tried[:, best], STIFFNESSES[best]


def _averaged_squares(sums: _Sums, folds: list[int], hats: Matrix, location: Matrix, width: float) -> Matrix:
    """Half the log of the local mean of squared residuals at the bends, (bends,)."""
    squares, counts = sums.around(folds, location), sums.counts[folds].sum(axis=0)
    overall = squares.sum() / counts.sum()
    apart = np.subtract.outer(np.arange(hats.shape[1]), np.arange(hats.shape[1]))
    near = np.exp(-0.5 * (apart / width) ** 2)
    mean = (near @ (hats.T @ squares) + BORROWED * overall) / (near @ (hats.T @ counts) + BORROWED)
    half: Matrix = 0.5 * np.log(np.maximum(mean, LEAST_SCALE**2))
    return half


def _fit_scale(sums: _Sums, others: list[list[int]], hats: Matrix, locations: Matrix) -> tuple[Matrix, float]:
    """Log scales (folds, bends), each learned without its fold, at the width with the best held-out likelihood."""
    tried = [
        np.stack(
            [_averaged_squares(sums, rest, hats, locations[:, f], width) for f, rest in enumerate(others)]
        )
        for width in SCALE_WIDTHS
    ]

    def score(scales: Matrix) -> float:
        logs = scales @ hats.T
        squares = np.stack([sums.around([f], locations[:, f]) for f in range(len(others))])
        return float((-sums.counts * logs - 0.5 * squares * np.exp(-2 * logs)).sum())

    best = int(np.argmax([score(scales) for scales in tried]))
    return tried[best], SCALE_WIDTHS[best]


# ---------------------------------------------------------------------- the shape


class _Density(NamedTuple):
    """A density of residuals over their `unit`: heights at even steps, zero beyond."""

    unit: float
    heights: Matrix

    def __call__(self, residuals: Matrix) -> Matrix:
        """Density of residuals of any shape."""
        at = residuals * (1 / (self.unit * SHAPE_STEP)) + len(self.heights) // 2
        np.clip(at, 0, len(self.heights) - 1.001, out=at)
        left = at.astype(np.intp)
        at -= left
        return ((1 - at) * self.heights[left] + at * self.heights[left + 1]) / self.unit


@dataclass(frozen=True)
class _Noise:
    """The shape of the noise: of residuals outside each fold, and of all."""

    shape: Shape
    outside: list[_Density]
    whole: _Density

    @classmethod
    def of(cls, sample: _Sample, line: _Line) -> _Noise:
        """Choose the shape and its windows by the likelihood of residuals of other folds.

        All residuals are those of pairs held out from location and scale, so that the shape is as wide as new pairs
        will find it.
        """
        location, scale = np.empty(len(sample.x)), np.empty(len(sample.x))
        for fold, fit in enumerate(line.fits):
            mine = sample.fold == fold
            location[mine], scale[mine] = fit.at(sample.x[mine])
        residuals = (sample.y - location) / scale
        unit = _quartile_spread(residuals, sample.counts) / 1.349
        if not unit > 0:
            unit = 1.0
        residuals = residuals / unit
        folds = range(len(line.fits))
        bins = np.stack(
            [_binned(residuals[sample.fold == f], sample.counts[sample.fold == f]) for f in folds]
        )
        lattice = _neighbours(sample.y, sample.counts) / (unit * float(np.median(scale)))
        windows = tuple(w for w in WINDOWS if w >= LATTICE * lattice) or (LATTICE * lattice,)
        stray = _stray(sample.y)

        def made(counts: Matrix, window: float | None) -> _Density:
            return _Density(unit, _gaussian(counts) if window is None else _smoothed(counts, window))

        def score(window: float | None) -> tuple[float, list[_Density]]:
            outside = [made(bins.sum(axis=0) - bins[f], window) for f in folds]
            total = 0.0
            for f in folds:
                mine = sample.fold == f
                density = outside[f](residuals[mine] * unit) / scale[mine]
                mixed = (1 - TRIED_SHARE) * density + TRIED_SHARE * stray[mine]
                total += float(sample.counts[mine] @ _log(mixed))
            return total, outside

        scores = {window: score(window) for window in (None, *windows)}
        best = max(scores, key=lambda window: scores[window][0])
        shape: Shape = "gaussian" if best is None else "pooled"
        return cls(shape, scores[best][1], made(bins.sum(axis=0), best))


def _steps() -> Matrix:
    half = round(SHAPE_REACH / SHAPE_STEP)
    return SHAPE_STEP * np.arange(-half, half + 1, dtype=np.float64)


def _binned(residuals: Matrix, counts: Matrix) -> Matrix:
    """Counts at the steps, each shared by its two neighbours; what lies beyond the steps is left out."""
    steps = _steps()
    at = residuals / SHAPE_STEP + len(steps) // 2
    inside = (at >= 0) & (at < len(steps) - 1)
    at, counts = at[inside], counts[inside]
    left = at.astype(np.intp)
    share = at - left
    size = len(steps)
    both = np.bincount(left, counts * (1 - share), size) + np.bincount(left + 1, counts * share, size)
    return both.astype(np.float64)


def _gaussian(counts: Matrix) -> Matrix:
    """Heights of a Gaussian with the mean and variance of binned residuals."""
    steps, total = _steps(), max(counts.sum(), TINY)
    mean = counts @ steps / total
    variance = max(counts @ (steps - mean) ** 2 / total, SHAPE_STEP**2)
    return np.exp(-0.5 * (steps - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def _smoothed(counts: Matrix, window: float) -> Matrix:
    """Heights of a density with a Gaussian window over each binned residual."""
    reach = min(int(np.ceil(5 * window / SHAPE_STEP)), len(counts) // 2)
    kernel = np.exp(-0.5 * (SHAPE_STEP * np.arange(-reach, reach + 1) / window) ** 2)
    smooth = np.convolve(counts, kernel, mode="same")
    return smooth / max(smooth.sum() * SHAPE_STEP, TINY)


def _stray(y: Matrix) -> Matrix:
    """Cauchy's density, with the quartiles of all readings, of those that come from anywhere, (n,)."""
    return 2 / (np.pi * (1 + (2 * y) ** 2))


# ---------------------------------------------------------------------- the table


def _averaged(points: Matrix, fit: _Fit, noise: _Density, places: _Places) -> Matrix:
    """Densities of readings at each state, (g, q): averaged over the values it stands for, or its own if there are none."""
    prior = places.mass.sum(axis=0)
    unseen = np.flatnonzero(prior <= 0)
    x = np.concatenate([places.centres, places.states[unseen]])
    widths = np.concatenate([places.widths, np.zeros(len(unseen))])
    alone = np.zeros((len(unseen), len(prior)))
    alone[np.arange(len(unseen)), unseen] = 1.0
    weights = np.concatenate([places.mass / np.where(prior > 0, prior, 1.0), alone])
    location, scale = fit.at(x)
    # Pooled values of x spread their readings, and nothing can be narrower than the ruler shows.
    edges = [np.interp(x + side * widths / 2, fit.bends, fit.location) for side in (-1, 1)]
    around = np.clip(np.searchsorted(points, location), 1, len(points) - 1)
    step = points[around] - points[around - 1]
    narrowest = np.hypot((edges[1] - edges[0]) / np.sqrt(12), step)
    scale = np.hypot(scale, narrowest / noise.unit)
    density = noise((points[:, None] - location) / scale) / scale
    averaged: Matrix = density @ weights
    return averaged


def _ruler(values: Matrix, counts: Matrix, size: int) -> Matrix:
    """Points from the smallest value to the largest, even between the quartiles, ever wider apart beyond."""
    (centre,), spread = _quantiles(values, counts, 0.5), _quartile_spread(values, counts)
    low, high = (np.arcsinh((end - centre) / spread) for end in (values.min(), values.max()))
    points = centre + spread * np.sinh(np.linspace(low, high, size))
    points[0], points[-1] = values.min(), values.max()
    return np.unique(points)


def _quantiles(values: Matrix, counts: Matrix, *shares: float) -> Matrix:
    order = np.argsort(values)
    ranks = np.cumsum(counts[order])
    at = np.searchsorted(ranks, np.asarray(shares) * ranks[-1])
    return values[order[np.minimum(at, len(order) - 1)]]


def _quartile_spread(values: Matrix, counts: Matrix) -> float:
    """Distance between the quartiles; if half the values are equal, that of a Gaussian of the same variance."""
    low, high = _quantiles(values, counts, 0.25, 0.75)
    if high > low:
        return float(high - low)
    mean = counts @ values / counts.sum()
    return float(1.349 * np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))


def _neighbours(values: Matrix, counts: Matrix) -> float:
    """The usual distance between neighbouring distinct values, in the middle half of them."""
    low, high = _quantiles(values, counts, 0.25, 0.75)
    between = np.diff(np.unique(values[(values >= low) & (values <= high)]))
    return float(np.median(between)) if len(between) else 0.0


def _dot(measures: scipy.sparse.csr_array, values: Matrix) -> Matrix:
    """Row by row, (n,)."""
    return np.einsum("ij,ij->i", measures.toarray(), values)


def _log(values: Matrix) -> Matrix:
    logs: Matrix = np.log(np.maximum(values, TINY))
    return logs
