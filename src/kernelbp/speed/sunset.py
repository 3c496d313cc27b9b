"""What a user waits for: the paper's image with defaults, learned and cleaned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernelbp.graph import Graph
from kernelbp.speed.problems import Sunset
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings
from kernelbp.speed.timing import Sgemm, interleaved, seconds

__all__ = ["rows"]

MOST_LEARNING = 0.5
MOST_INFERENCE = 0.1
AUTHORS = 1.4
"""Seconds the authors' C++ took for its 30 iterations at best, on one thread of a machine like ours."""
LEAST_GAIN = 20.0
PAPER_SIDE = 100


def rows(settings: Settings) -> Iterator[Row]:
    """Learning, then inference to convergence, by the wall clock, on all cores."""
    image = Sunset(settings.sizes.sunset, settings.seed)
    name = f"sunset {image.side} x {image.side}, defaults"
    model = image.model().fit(image.pairs)
    beliefs = model.infer(image.graph, n_jobs=settings.n_jobs)
    messages, q = beliefs._source.state.messages[0].shape
    (learned,) = interleaved([lambda: seconds(lambda: image.model().fit(image.pairs))], settings.sizes)

    def inference(graph: Graph) -> float:
        return seconds(lambda: model.infer(graph, n_jobs=settings.n_jobs))

    inferred, again, unit = interleaved(
        [
            lambda: inference(replace(image.graph)),  # a copy, for which nothing is laid out yet
            lambda: inference(image.graph),
            Sgemm(messages * beliefs.iterations, q, settings.n_jobs, settings.seed),
        ],
        settings.sizes,
    )
    yield Row(f"learning, {name}", "the limit set for it", learned, MOST_LEARNING, most=1.0)
    ended = "converged" if beliefs.converged else "not converged"
    note = f"{ended} in {beliefs.iterations} iterations, {q} support points"
    yield Row(f"inference, {name}", "the limit set for it", inferred, MOST_INFERENCE, most=1.0, note=note)
    if image.side == PAPER_SIDE:
        yield Row(
            f"inference, {name}",
            "the authors' C++, 30 iterations, one thread",
            inferred,
            AUTHORS,
            gain=True,
            least=LEAST_GAIN,
            note="the only time not of this run: the fastest that program was on a machine like this one",
        )
    yield Row(f"inference, {name}", "sgemm of its multiply-adds", inferred, unit)
    yield Row(f"inference, {name}, on a graph inferred before", "the first time", again, inferred)
