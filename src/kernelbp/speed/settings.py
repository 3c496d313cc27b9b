"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Settings", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is measured.

    Attributes
    ----------
    seconds : to spend on measuring two things against each other, about
    fewest : times each is run at least, however long it takes
    grids : (side, numbers of support points) of grids whose iterations are compared with sgemm
    plain : (side, support points) of the grid on which the plain NumPy update is timed
    threads : (side, support points) of the grid on which two threads are compared with one
    updates : side of the sunset on which constant, linear and full updates are compared
    slow_messages : messages of the linear and of the full update that are timed, for all of them
    pairs : numbers of training pairs between which an iteration should not differ
    pairs_side : side of the grid it runs on
    edges : sides of grids whose iterations are compared with each other
    learning : distinct pairs learned from, besides the sunset's
    sunset : side of the sunset
    discrete : (side, states, iterations) of discrete BP against a NumPy loop
    peers : (side, states, iterations) against other libraries, which take a minute to compile; None to leave them out
    latency : side of the grid inferred in fresh processes
    memory : sides of the grids inferred in processes whose memory is watched
    memory_pairs : pairs learned from in such a process, if any
    beliefs : side of the grid whose beliefs are read
    """

    seconds: float
    fewest: int
    grids: tuple[tuple[int, tuple[int, ...]], ...]
    plain: tuple[int, int]
    threads: tuple[int, int]
    updates: int
    slow_messages: tuple[int, int]
    pairs: tuple[int, ...]
    pairs_side: int
    edges: tuple[int, ...]
    learning: int
    sunset: int
    discrete: tuple[int, int, int]
    peers: tuple[int, int, int] | None
    latency: int
    memory: tuple[int, ...]
    memory_pairs: int | None
    beliefs: int


FULL = Sizes(
    seconds=4.0,
    fewest=5,
    grids=((100, (16, 32, 64, 128)), (1000, (16, 32, 64, 128))),
    plain=(100, 32),
    threads=(1000, 64),
    updates=50,
    slow_messages=(10_000, 1024),
    pairs=(10_000, 100_000, 1_000_000),
    pairs_side=150,
    edges=(71, 158, 354, 707, 1415),
    learning=1_000_000,
    sunset=100,
    discrete=(50, 250, 30),
    peers=(50, 30, 30),
    latency=100,
    memory=(1000, 2000),
    memory_pairs=10_000_000,
    beliefs=1000,
)
"""Everything the targets name: about 10^4 to 4 x 10^6 edges, 10^6 nodes, 10^7 pairs."""
QUICK = Sizes(
    seconds=0.5,
    fewest=3,
    grids=((100, (16, 32, 64, 128)), (300, (32, 64))),
    plain=(100, 32),
    threads=(300, 64),
    updates=50,
    slow_messages=(1000, 128),
    pairs=(10_000, 100_000),
    pairs_side=100,
    edges=(71, 158, 354),
    learning=100_000,
    sunset=100,
    discrete=(50, 250, 15),
    peers=None,
    latency=100,
    memory=(300,),
    memory_pairs=None,
    beliefs=158,
)
"""The same lines at sizes that take under two minutes on two cores."""


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes
    ----------
    sizes : how much
    seed : of all random numbers
    n_jobs : threads that count as all cores
    """

    sizes: Sizes
    seed: int = 0
    n_jobs: int = 1
