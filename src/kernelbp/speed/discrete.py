"""Discrete belief propagation by our engine, against a NumPy loop and against other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from kernelbp.speed.peers import PEERS, Matrix, Peer, Timed, numpy_marginals, our_marginals, problem
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings
from kernelbp.speed.timing import blas_threads, interleaved

__all__ = ["libraries", "numpy_loop"]

EQUAL = 1e-4
"""Largest difference of marginals that count as equal."""
GROUND = (50, 30, 30)
"""Side, states and iterations the target is set for."""
LEAST_GAIN = 10.0
"""How many times faster than other libraries ours is to be."""


def numpy_loop(settings: Settings) -> Iterator[Row]:
    """Many states, one thread: `numpy_marginals` is the reference."""
    side, states, iterations = settings.sizes.discrete
    shape = (side, side)
    unary, pairwise = problem(shape, states, settings.seed)
    kept: dict[str, Timed] = {}

    def ours() -> float:
        kept["ours"] = our_marginals(unary, pairwise, shape, iterations, n_jobs=1)
        return kept["ours"].seconds

    def theirs() -> float:
        kept["theirs"] = numpy_marginals(unary, pairwise, shape, iterations)
        return kept["theirs"].seconds

    with blas_threads(1):
        spent, reference = interleaved([ours, theirs], settings.sizes)
    what = f"discrete BP, grid {side} x {side}, {states} states, {iterations} iterations, one thread"
    apart = _apart(kept["ours"].marginals, kept["theirs"].marginals)
    yield Row(what, "a vectorised NumPy loop", spent, reference, gain=True, note=_compared(apart, iterations))


def libraries(settings: Settings) -> Iterator[Row]:
    """Each library that is installed, on its own ground; a line that says how to install it for the others."""
    side, states, iterations = settings.sizes.peers or GROUND
    shape = (side, side)
    unary, pairwise = problem(shape, states, settings.seed)
    what = f"discrete BP, grid {side} x {side}, {states} states, {iterations} iterations"
    for peer in PEERS.values():
        note = f"not installed: {peer.install}" if find_spec(peer.module) is None else ""
        if not note and settings.sizes.peers is None:
            note = "left out of a quick run: it takes longer to compile"
        if note:
            yield Row(what, peer.name, None, None, gain=True, least=LEAST_GAIN, note=note)
            continue
        theirs = min(
            (peer.marginals(unary, pairwise, shape, iterations) for _ in range(2)), key=lambda t: t.seconds
        )
        ours = min(
            our_marginals(unary, pairwise, shape, iterations, n_jobs=settings.n_jobs).seconds
            for _ in range(max(settings.sizes.fewest, 3))
        )
        apart, after = _peer_apart(peer, theirs, unary, pairwise, shape, iterations)
        note = _compared(apart, after)
        yield Row(what, peer.name, ours, theirs.seconds, gain=True, least=LEAST_GAIN, note=note)


def _peer_apart(
    peer: Peer, found: Timed, unary: Matrix, pairwise: Matrix, shape: tuple[int, int], iterations: int
) -> tuple[float, int]:
    """Largest difference from our marginals in float64, after as many iterations as the peer can be trusted with."""
    after = min(iterations, peer.trusted or iterations)
    if after < iterations:
        found = peer.marginals(unary, pairwise, shape, after)
    ours = our_marginals(unary, pairwise, shape, after, dtype=np.float64)
    return _apart(found.marginals, ours.marginals), after


def _apart(first: Matrix, second: Matrix) -> float:
    return float(np.abs(first - second).max())


def _compared(apart: float, after: int) -> str:
    """What the marginals say; a comparison of times of different answers would be worth nothing."""
    verdict = "equal marginals" if apart <= EQUAL else "MARGINALS DIFFER"
    return f"{verdict}: {apart:.1e} apart at most, after {after} iterations"
