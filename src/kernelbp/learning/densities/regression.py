"""Conditional densities by regression: kernel ridge with noise around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelbp.kernels.inputs import nonnegative_number, whole_number
from kernelbp.learning.densities import bumps, pairs
from kernelbp.learning.densities.bumps import Matrix, Side
from kernelbp.learning.densities.pairs import Seed

__all__ = ["RidgeDensity"]

RIDGES = tuple(10.0**power for power in range(-8, 2))
RIDGE_FACTORS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, np.inf)
"""Widths tried by ridge regression, as `FACTORS`; an infinite one is linear regression."""


@dataclass(frozen=True, eq=False)
class RidgeDensity:
    """A density p(y | x) that is a regression with noise around it: a Gaussian on R^d, a von Mises-Fisher bump on the sphere.

    The regression is kernel ridge on a Gaussian kernel (of infinite width: linear), its width and lambda chosen by
    cross-validation; the noise is that of the residuals of pairs held out. Make one with `fit`.

    Attributes
    ----------
    covariance : (dy, dy) of the noise; on the sphere zero
    concentration : of the noise on the sphere; None on R^d
    width : (dx,) of the kernel, or infinite
    regularization : the lambda used
    score : held-out mean squared error in standard deviations (on the sphere: mean cosine)

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, 400)
    >>> density = RidgeDensity.fit(x, np.sin(x) + 0.1 * rng.standard_normal(400))
    >>> bool(abs(density.mean([1.0])[0, 0] - np.sin(1.0)) < 0.05)
    True
    >>> bool(abs(density.covariance[0, 0] ** 0.5 - 0.1) < 0.02)
    True
    """

    covariance: Matrix
    concentration: float | None
    width: Matrix
    regularization: float
    score: float
    domain: tuple[Side, Side]
    _features: _Features
    _coefficients: Matrix

    @classmethod
    def fit(
        cls,
        x: Any,
        y: Any,
        *,
        n_centres: int = 200,
        widths: ArrayLike | None = None,
        regularization: float | None = None,
        folds: int = 5,
        seed: int = 0,
        domain: tuple[str, str] = ("real", "real"),
    ) -> RidgeDensity:
        """Learn from pairs.

        Parameters
        ----------
        x : (m,) or (m, dx)
        y : (m,) or (m, dy)
        n_centres : int
            Most functions the regression is made of: kernels around spread-out training values of x.
        widths : width of the kernel in x, a number or one for each axis, optional
            ``inf`` is linear regression. Chosen by cross-validation if not given.
        regularization : float, optional
            lambda for each pair; chosen with the width if not given.
        folds, seed, domain
            As for `ConditionalDensity.fit`.
        """
        sides = pairs.checked_domain(domain)
        rows = pairs.checked_pairs(x, y, sides)
        whole_number(n_centres, "n_centres", least=1)
        whole_number(folds, "folds", least=2)
        if regularization is not None:
            nonnegative_number(regularization, "regularization")
        linear = widths is not None and bool(np.all(np.isposinf(np.asarray(widths, dtype=np.float64))))
        given = None if widths is None or linear else pairs.checked_width(widths, "widths", rows[0], sides[0])
        random = np.random.default_rng(seed)
        first, second, counts = pairs.merged(*rows, random)
        scale_x = pairs.scale(first, counts, sides[0]) if given is None else given
        scale_y = pairs.scale(second, counts, sides[1])
        middle = counts @ first / counts.sum()
        u, v = (first - middle) / scale_x, second / scale_y
        centres = u[pairs.spread_centres(u, np.zeros((len(u), 1)), counts, n_centres, random)]
        held = pairs.deal(counts, folds, random)
        if linear:
            tried: list[float] = [np.inf]
        else:
            tried = [1.0] if given is not None else [f * pairs.span(u, sides[0]) for f in RIDGE_FACTORS]
        lambdas = np.asarray(RIDGES if regularization is None else (max(float(regularization), 1e-12),))
        judge = _cosine_loss if sides[1] == "sphere" else _squared_loss
        best: tuple[float, float, float, Matrix] | None = None
        for width in tried:
            features = _Features.made(centres, width, middle, scale_x)
            predictions = _held_out(features.of_scaled(u), v, counts, held, lambdas)
            losses = [judge(predicted, v, held) for predicted in predictions]
            top = int(np.argmin(losses))
            if best is None or losses[top] < best[0]:
                best = losses[top], width, float(lambdas[top]), predictions[top]
        assert best is not None
        loss, width, ridge, predicted = best
        features = _Features.made(centres, width, middle, scale_x)
        coefficients = _ridge(features.of_scaled(u), v, counts, np.array([ridge]))[0] * scale_y
        weights = held / held.sum()
        concentration = None
        covariance = np.zeros((v.shape[1], v.shape[1]))
        if sides[1] == "sphere":
            concentration = bumps.concentration_for(min(max(1.0 - loss, 0.0), 1.0), v.shape[1])
        else:
            residuals = (v[:, None] - predicted) * scale_y
            covariance = np.einsum("uf,ufi,ufj->ij", weights, residuals, residuals)
            # Noise of zero has no density: nothing is known finer than rounding of the spread.
            covariance += np.diag((1e-8 * scale_y) ** 2)
        score = 1.0 - loss if sides[1] == "sphere" else loss
        return cls(
            covariance, concentration, width * scale_x, ridge, float(score), sides, features, coefficients
        )

    def mean(self, x: Any) -> Matrix:
        """Where the density of y given x is centred, (n, dy): its mean, on the sphere its mean direction."""
        rows = pairs.checked_rows(x, "x", len(self._features.middle), self.domain[0])
        predicted = self._features(rows) @ self._coefficients
        return bumps.unit(predicted) if self.domain[1] == "sphere" else predicted

    def __call__(self, x: Any, y: Any) -> Matrix:
        """Densities (n, k) of k values of y given each of n values of x."""
        return np.exp(self._log(self.mean(x)[:, None], self._second(y)[None]))

    def log_paired(self, x: Any, y: Any) -> Matrix:
        """Logarithm of `paired`, (n,)."""
        centres, values = self.mean(x), self._second(y)
        pairs.same_length(centres, values)
        return self._log(centres, values)

    def paired(self, x: Any, y: Any) -> Matrix:
        """Density of each y given the x in the same place, (n,)."""
        return np.exp(self.log_paired(x, y))

    def log_likelihood(self, x: Any, y: Any) -> float:
        """Mean log density of pairs."""
        return float(self.log_paired(x, y).mean())

    def weights(self, x: Any) -> Matrix:
        """Ones (n, 1): a mixture of one component, centred at ``mean(x)``."""
        return np.ones((len(self.mean(x)), 1))

    def sample(self, x: Any, seed: Seed = None) -> Matrix:
        """Draw one y for each of n values of x, (n, dy)."""
        centres, random = self.mean(x), np.random.default_rng(seed)
        if self.concentration is not None:
            return bumps.around(centres, self.concentration, random)
        return centres + random.standard_normal(centres.shape) @ np.linalg.cholesky(self.covariance).T

    def as_arrays(self, x: Any) -> dict[str, Matrix]:
        """The densities of n values of x for a compiled loop.

        Returns
        -------
        dict
            means (n, dy); root (dy, dy) such that log p(y | x) = -|root (y - mean)|^2 / 2 - log_normalizer[0], on R^d and the
            sphere alike; log_normalizer (1,).
        """
        return {
            "means": np.ascontiguousarray(self.mean(x)),
            "root": self._root,
            "log_normalizer": np.array([self._log_normalizer]),
        }

    @property
    def _root(self) -> Matrix:
        if self.concentration is not None:
            return np.eye(len(self.covariance)) * self.concentration**0.5
        return np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(self.covariance)))

    @property
    def _log_normalizer(self) -> float:
        size = len(self.covariance)
        if self.concentration is not None:
            return bumps.log_integral(np.full(size, self.concentration**-0.5), "sphere")
        return float(0.5 * (size * np.log(2 * np.pi) + np.linalg.slogdet(self.covariance)[1]))

    def _second(self, y: Any) -> Matrix:
        return pairs.checked_rows(y, "y", len(self.covariance), self.domain[1])

    def _log(self, centres: Matrix, values: Matrix) -> Matrix:
        scaled = (values - centres) @ self._root.T
        return -0.5 * (scaled**2).sum(axis=-1) - self._log_normalizer

    def __repr__(self) -> str:
        return (
            f"RidgeDensity({len(self._features.middle)} -> {len(self.covariance)} dimensions, "
            f"{self.domain[0]} -> {self.domain[1]})"
        )


@dataclass(frozen=True)
class _Features:
    """Orthonormal features of a Gaussian kernel on the span of its centres, and a constant; linear if width is infinite."""

    centres: Matrix
    width: float
    middle: Matrix
    scale: Matrix
    root: Matrix

    @classmethod
    def made(cls, centres: Matrix, width: float, middle: Matrix, scale: Matrix) -> _Features:
        if np.isinf(width):
            return cls(centres, width, middle, scale, np.eye(centres.shape[1]))
        values, vectors = np.linalg.eigh(np.exp(-0.5 * bumps.squared_distances(centres, centres) / width**2))
        used = values > 1e-10 * values[-1]
        return cls(centres, width, middle, scale, vectors[:, used] / np.sqrt(values[used]))

    def of_scaled(self, u: Matrix) -> Matrix:
        """Features (n, l + 1) of standardised values; the last is the constant."""
        linear = np.isinf(self.width)
        features = (
            u
            if linear
            else np.exp(-0.5 * bumps.squared_distances(u, self.centres) / self.width**2) @ self.root
        )
        return np.hstack([features, np.ones((len(u), 1))])

    def __call__(self, x: Matrix) -> Matrix:
        return self.of_scaled((x - self.middle) / self.scale)


def _ridge(features: Matrix, values: Matrix, counts: Matrix, lambdas: Matrix) -> Matrix:
    """Coefficients (lambdas, l, d) that minimise mean |values - features b|^2 + lambda |b|^2, the constant left free."""
    total = counts.sum()
    centre, level = counts @ features / total, counts @ values / total
    centred = features - centre
    weighted = centred * (counts / total)[:, None]
    spectrum, vectors = np.linalg.eigh(weighted.T @ centred)
    target = vectors.T @ (weighted.T @ (values - level))
    b = vectors @ (target / (np.maximum(spectrum, 0.0) + lambdas[:, None])[..., None])
    # The constant feature is zero once centred, so its coefficient is free to carry the level.
    b[:, -1] = level - centre[:-1] @ b[:, :-1]
    return b


def _held_out(features: Matrix, values: Matrix, counts: Matrix, held: Matrix, lambdas: Matrix) -> Matrix:
    """Predictions (lambdas, u, folds, d) of every pair by the regression without each fold; zero where it is not in it."""
    predicted = np.zeros((len(lambdas), *held.shape, values.shape[1]))
    for fold in range(held.shape[1]):
        mine = np.flatnonzero(held[:, fold])
        kept = counts - held[:, fold]
        if kept.sum() > 0:
            predicted[:, mine, fold] = features[mine] @ _ridge(features, values, kept, lambdas)
    return predicted


def _squared_loss(predicted: Matrix, values: Matrix, held: Matrix) -> float:
    errors = ((predicted - values[:, None]) ** 2).sum(axis=2)
    return float((errors * held).sum() / held.sum() / values.shape[1])


def _cosine_loss(predicted: Matrix, values: Matrix, held: Matrix) -> float:
    cosines = (bumps.unit(predicted) * values[:, None]).sum(axis=2)
    return 1.0 - float((cosines * held).sum() / held.sum())
