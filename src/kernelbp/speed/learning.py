"""Where the time of learning goes."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Iterator
from typing import Any

from kernelbp.graph import Graph
from kernelbp.kernels import Gaussian
from kernelbp.model import Model, Relation
from kernelbp.speed.problems import BANDWIDTH, Sunset, autoregression
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings
from kernelbp.speed.timing import Sgemm, blas_threads, interleaved, seconds

__all__ = ["rows"]

STAGES = {
    "merging equal pairs": "collect",
    "bases and support points": "embed_variable",
    "moments of relations": "relation_moments",
    "smoothing, held-out pairs": "fit_smoothing",
    "form of the evidence": "_predictor",
}
"""Stages of `Model.fit`, and the function each is."""
UNIT = 1024
"""Rows and columns of the matrix product a whole is compared with."""


def rows(settings: Settings) -> Iterator[Row]:
    """Whole and stages for the sunset and for distinct pairs of numbers, one thread."""
    image = Sunset(settings.sizes.sunset, settings.seed)
    first, second = autoregression(settings.sizes.learning, settings.seed)

    def series() -> Model:
        return Model({"state": Gaussian(BANDWIDTH)}, {"then": Relation("state", "state", symmetric=True)})

    yield from _stages(f"sunset {image.side} x {image.side}", image.model, image.pairs, image.graph, settings)
    chain = Graph.chain(2, variable="state", relation="then")
    named = f"{settings.sizes.learning:,} distinct pairs"
    yield from _stages(named, series, {"then": (first, second)}, chain, settings)


def _stages(
    name: str, model: Callable[[], Model], pairs: dict[str, Any], graph: Graph, settings: Settings
) -> Iterator[Row]:
    with blas_threads(1):
        whole, unit = interleaved(
            [lambda: seconds(lambda: model().fit(pairs), 1), Sgemm(UNIT, UNIT, 1, settings.seed)],
            settings.sizes,
        )
        profile = cProfile.Profile(time.thread_time)
        fitted = profile.runcall(model().fit, pairs)
        operators = seconds(lambda: fitted._made_operators("constant", "probability"), 1)
        operators += seconds(lambda: fitted._need_fitted().marginals, 1)
    yield Row(f"learning, {name}", f"one sgemm of {UNIT} x {UNIT}", whole, unit)
    spent = _cumulative(profile)
    total = spent["fit"]
    named = {stage: spent.get(function, 0.0) for stage, function in STAGES.items()}
    named["everything else"] = max(total - sum(named.values()), 0.0)
    named["operators and marginals, on first use"] = operators
    for stage, part in named.items():
        yield Row(f"  {stage}", f"learning, {name}, in all", part, total)


def _cumulative(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds in functions of this library, with what they call, by name."""
    spent: dict[str, float] = {}
    statistics: dict[tuple[str, int, str], tuple[Any, ...]] = getattr(pstats.Stats(profile), "stats")  # noqa: B009
    for (file, _, function), numbers in statistics.items():
        if "kernelbp" in file:
            spent[function] = spent.get(function, 0.0) + float(numbers[3])
    return spent
