"""Clocks, and the machine's own matrix product to compare with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from kernelbp.speed.settings import Sizes

__all__ = ["Sgemm", "blas_threads", "clock", "interleaved", "seconds"]

SGEMM_ROWS = 1 << 19
"""Rows of the reference product held at a time: its arrays stay small beside the messages of a large grid."""
MOST_ROUNDS = 200
BLAS_WAITS = 0.2
"""Seconds after a product by which BLAS's threads have stopped waiting for another, on the cores of whatever is next."""


def clock(n_jobs: int) -> Callable[[], float]:
    """Time of this thread alone where it does all the work, so that a busy machine does no harm; else of the wall."""
    return time.thread_time if n_jobs == 1 else time.perf_counter


def seconds(function: Callable[[], Any], n_jobs: int = 0) -> float:
    """Time of one call, by the clock for so many threads."""
    now = clock(n_jobs)
    began = now()
    function()
    return now() - began


def interleaved(measures: Sequence[Callable[[], float]], sizes: Sizes) -> list[float]:
    """The least each measure gives, taken in turns, so that a slow moment of the machine strikes all alike.

    The first round, which may compile and lay out, does not count.
    """
    for run in measures:
        run()
    least = [np.inf] * len(measures)
    began, rounds = time.perf_counter(), 0
    while rounds < sizes.fewest or (time.perf_counter() - began < sizes.seconds and rounds < MOST_ROUNDS):
        least = [min(before, run()) for before, run in zip(least, measures, strict=True)]
        rounds += 1
    return least


class Sgemm:
    """The reference: (rows, q) times (q, q) in float32 by BLAS, a large block of rows at a time.

    Parameters
    ----------
    rows, q : int
        As many rows as there are messages, as many columns as support points: the multiply-adds of an iteration.
    n_jobs : int
        Threads BLAS may use.
    """

    def __init__(self, rows: int, q: int, n_jobs: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._rows, self._n_jobs = rows, n_jobs
        self._left: NDArray[np.float32] = rng.random((min(rows, SGEMM_ROWS), q), dtype=np.float32)
        self._right: NDArray[np.float32] = rng.random((q, q), dtype=np.float32)
        self._out = np.empty_like(self._left)

    def __call__(self) -> float:
        """Seconds of one product."""
        with blas_threads(self._n_jobs):
            found = seconds(self._multiply, self._n_jobs)
        if self._n_jobs > 1:
            time.sleep(BLAS_WAITS)
        return found

    def _multiply(self) -> None:
        for begin in range(0, self._rows, SGEMM_ROWS):
            count = min(SGEMM_ROWS, self._rows - begin)
            np.matmul(self._left[:count], self._right, out=self._out[:count])


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """BLAS on so many threads."""
    with _controller().limit(limits=count, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 - its BLAS is one to be limited

    return ThreadpoolController()
