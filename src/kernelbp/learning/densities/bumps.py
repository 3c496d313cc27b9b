"""Bumps around a centre: Gaussian on R^d, von Mises-Fisher on the sphere. Their integrals, means and draws."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import gammaln, ive

Matrix = NDArray[np.float64]
Side: TypeAlias = Literal["real", "sphere"]
"""Where a variable lives, and so which bump it has."""
TINY = 1e-300


def log_integral(widths: Matrix, side: Side) -> float:
    """Logarithm of the integral of exp(-|(y - r) / width|^2 / 2) over R^d or the sphere."""
    if side == "real":
        return float(0.5 * len(widths) * np.log(2 * np.pi) + np.log(widths).sum())
    return float(_log_bump(np.asarray(widths[0] ** -2.0), len(widths)))


def _log_bump(concentration: Matrix, dimension: int) -> Matrix:
    r"""Logarithm of the integral of :math:`\exp(\kappa (\langle y, r \rangle - 1))` over the unit sphere of R^d."""
    kappa = np.asarray(concentration, dtype=np.float64)
    if dimension == 3:
        small = kappa < 1e-8
        safe = np.where(small, 1.0, kappa)
        return np.where(small, np.log(4 * np.pi) - kappa, np.log(2 * np.pi * -np.expm1(-2 * safe) / safe))
    order = dimension / 2 - 1
    area = np.log(2.0) + dimension / 2 * np.log(np.pi) - gammaln(dimension / 2)
    small = kappa < 1e-3
    safe = np.where(small, 1.0, kappa)
    large = (
        dimension / 2 * np.log(2 * np.pi) + np.log(np.maximum(ive(order, safe), TINY)) - order * np.log(safe)
    )
    # The first terms of the series, whose next is below rounding.
    return np.where(small, area + np.log1p(kappa**2 / (2 * dimension)) - kappa, large)


def apart(centres: Matrix, scale: Matrix, side: Side) -> Matrix:
    """(c, c) squared distances of scaled centres on R^d, lengths of sums of unit vectors on the sphere."""
    if side == "real":
        return squared_distances(centres, centres)
    # |r + r'|^2 = 4 - |r - r'|^2, without loss where they are close
    return np.sqrt(np.maximum(4.0 - squared_distances(centres * scale, centres * scale), 0.0))


def overlap(apart: Matrix, width: float, dimension: int, side: Side) -> Matrix:
    """Integrals (c, c) over y of products of two bumps that each integrate to one: the closed form inside H."""
    if side == "real":
        return np.exp(-0.25 * apart / width**2) * (4 * np.pi * width**2) ** (-dimension / 2)
    kappa = width**-2.0
    logs = _log_bump(kappa * apart, dimension) + kappa * (apart - 2.0)
    return np.exp(logs - 2 * _log_bump(np.asarray(kappa), dimension))


def mean_length(concentration: float, dimension: int) -> float:
    """Length of the mean of a von Mises-Fisher bump."""
    return float(ive(dimension / 2, concentration) / ive(dimension / 2 - 1, concentration))


def concentration_for(resultant: float, dimension: int) -> float:
    """The concentration whose mean has this length; kept within what floating point can tell apart."""
    least, most = 1e-3, 1e7

    def excess(log: float) -> float:
        return mean_length(float(np.exp(log)), dimension) - resultant

    if excess(np.log(least)) >= 0:
        return least
    if excess(np.log(most)) <= 0:
        return most
    return float(np.exp(brentq(excess, np.log(least), np.log(most))))


def around(centres: Matrix, concentration: float, random: np.random.Generator) -> Matrix:
    """One von Mises-Fisher draw around each of n unit vectors, (n, d)."""
    count, dimension = centres.shape
    cosines = _bump_cosines(count, dimension, concentration, random)
    aside = random.standard_normal((count, dimension))
    aside -= (aside * centres).sum(axis=1, keepdims=True) * centres
    aside = unit(aside)
    return unit(cosines[:, None] * centres + np.sqrt(np.maximum(1 - cosines**2, 0.0))[:, None] * aside)


def _bump_cosines(count: int, dimension: int, kappa: float, random: np.random.Generator) -> Matrix:
    """Cosines to the centre: by inversion on S^2, else by Wood's rejection from a transformed beta."""
    if dimension == 3:
        uniform = random.random(count)
        return np.clip(1 + np.log(uniform + (1 - uniform) * np.exp(-2 * kappa)) / kappa, -1.0, 1.0)
    free = dimension - 1
    b = free / (2 * kappa + np.hypot(2 * kappa, free))
    x = (1 - b) / (1 + b)
    level = kappa * x + free * np.log1p(-(x**2))
    cosines = np.empty(count)
    waiting = np.arange(count)
    while len(waiting):
        z = random.beta(free / 2, free / 2, len(waiting))
        w = (1 - (1 + b) * z) / (1 - (1 - b) * z)
        accepted = kappa * w + free * np.log1p(-x * w) - level >= np.log(random.random(len(waiting)))
        cosines[waiting[accepted]] = w[accepted]
        waiting = waiting[~accepted]
    return cosines


def unit(vectors: Matrix) -> Matrix:
    """Vectors (..., d) brought to length one; zero stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), TINY)


def squared_distances(a: Matrix, b: Matrix) -> Matrix:
    """Squared distances (n, k) between rows (n, d) and rows (k, d)."""
    return cdist(a, b, "sqeuclidean")
