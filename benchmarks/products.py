"""Sampling from products of Gaussian mixtures: what each way costs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from common import Results, Settings, seconds

from kernelbp.rivals.products import MixtureSet, sample_products

METHODS = (
    ("exact", 0.01),
    ("gibbs", 0.01),
    ("multiscale", 0.01),
    ("epsilon", 0.01),
    ("epsilon", 0.1),
)
SAMPLES = 100
MOST_TERMS = 2**22
"""Largest number of components of a product that is enumerated here."""


def run(settings: Settings) -> Iterator[Results]:
    """Milliseconds of a hundred samples from one product, by number of factors and of components."""
    sizes = (10, 50) if settings.quick else (10, 50, 200)
    cases = [(d, b) for d in (2, 3, 4) for b in sizes]
    rows = []
    for factors, components in settings.progress.track(cases, description="products of mixtures"):
        rng = np.random.default_rng(0)
        points = 0.5 * rng.standard_normal((factors, 1, 1)) + rng.standard_normal((factors, components, 1))
        width = (4 / 3 / components) ** 0.2
        mixtures = MixtureSet.stack(points, width**2)
        rows.append([factors, components, *(milliseconds(mixtures, factors, *method) for method in METHODS)])
    yield Results(
        name="mixture_products",
        title=f"{SAMPLES} samples from a product of mixtures on R, milliseconds of processor time",
        columns=["factors", "components", *(name if e == 0.01 else f"{name} {e}" for name, e in METHODS)],
        rows=rows,
        note="epsilon without a number: 0.01. -: not run, the product has too many terms to enumerate",
    )


def milliseconds(mixtures: MixtureSet, factors: int, method: str, epsilon: float) -> float | None:
    """Of one product; several are made so that the clock can tell."""
    terms = (len(mixtures.weights) / factors) ** factors
    if method in ("exact", "epsilon") and terms > MOST_TERMS:
        return None

    def draw(count: int) -> None:
        sample_products(
            mixtures,
            np.tile(np.arange(factors), count),
            np.arange(count + 1) * factors,
            SAMPLES,
            seeds=np.arange(count),
            method=method,
            epsilon=epsilon,
            threads=1,
        )

    draw(1)
    once = seconds(lambda: draw(1))
    count = max(1, min(50, int(0.2 / max(once, 1e-4))))
    return 1e3 * seconds(lambda: draw(count)) / count
