"""What is measured on: grids with random operators, models of made-up series, the paper's sunset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets import grid_pairs, sunset
from kernelbp.graph import Graph
from kernelbp.inference.beliefs import Beliefs
from kernelbp.inference.engine import Engine
from kernelbp.inference.schedules import Plan, Schedule, make_plan
from kernelbp.inference.setup import edge_weights
from kernelbp.inference.update import Flat, State
from kernelbp.inference.wiring import Wiring, wire
from kernelbp.kernels import Gaussian
from kernelbp.learning.conditionals import Conditional
from kernelbp.model import Model, Relation
from kernelbp.speed.timing import seconds

__all__ = ["Grid", "Sunset", "autoregression", "iterating", "noisy_grid", "series_model"]

Values = NDArray[np.float64]

CORRELATION = 0.9
NOISE = 0.15
BANDWIDTH = 0.25
WEAKEST = 0.1
"""Least value of random evidence."""


@dataclass(frozen=True)
class Grid:
    """A square grid and the order of its messages."""

    side: int

    @cached_property
    def graph(self) -> Graph:
        """Its nodes and edges."""
        return Graph.grid((self.side, self.side), variable="x", relation="beside")

    @cached_property
    def wiring(self) -> Wiring:
        """Its messages."""
        beside = Relation("x", "x", symmetric=True)
        return wire(self.graph, {"beside": beside}, np.empty(0, dtype=np.intp))

    @cached_property
    def plan(self) -> Plan:
        """The default schedule."""
        return make_plan("auto", self.wiring, self.graph.n_nodes, self.graph.shape)

    @cached_property
    def weights(self) -> Values:
        """Of each message, for tree-reweighting."""
        weights = edge_weights(self.graph, self.wiring, "tree-reweighted", False, 1.0)
        return np.ones(self.wiring.n_messages) if weights is None else weights[self.wiring.edge]

    def state(self, q: int, seed: int) -> State:
        """Random positive evidence and operator with q support points, in float32, all edge weights one."""
        rng = np.random.default_rng(seed)
        operator = rng.random((q, q), dtype=np.float32)
        operator /= operator.sum(axis=1, keepdims=True)
        evidence = Flat([(self.graph.n_nodes, q)], np.float32)
        rng.random(dtype=np.float32, out=evidence.values)
        np.maximum(evidence.values, WEAKEST, out=evidence.values)
        messages = Flat([(self.wiring.n_messages, q)], np.float32)
        return State(
            messages,
            evidence,
            Flat([], np.float32),
            (),
            (Conditional(operator),),
            signed=False,
            log_scale=0.0,
        )

    def tree_weights(self) -> Flat:
        """The weights as a state holds them."""
        return Flat.of([self.weights], np.float32)


class iterating:
    """A measure: the seconds of one complete iteration, each time it is called.

    Parameters
    ----------
    state, wiring, plan : what to iterate
    n_jobs : threads
    wall : whether to take the time of the wall clock even on one thread
    """

    def __init__(self, state: State, wiring: Wiring, plan: Plan, n_jobs: int, *, wall: bool = False) -> None:
        self._engine, self._plan = Engine(state, wiring, n_jobs, plan.ranks), plan
        self._clock_for = 0 if wall else n_jobs
        self._changes = np.zeros(wiring.n_messages if plan.dynamic else 0)

    @classmethod
    def of(
        cls, beliefs: Beliefs, n_jobs: int, schedule: Schedule = "auto", *, wall: bool = False
    ) -> iterating:
        """One more iteration of an inference."""
        source = beliefs._source
        plan = make_plan(schedule, source.wiring, source.graph.n_nodes, source.graph.shape)
        return cls(source.state, source.wiring, plan, n_jobs, wall=wall)

    @contextmanager
    def running(self) -> Iterator[iterating]:
        """With the engine's threads awake."""
        with self._engine.running():
            yield self

    def __call__(self) -> float:
        """Seconds of one iteration."""
        return seconds(self._iterate, self._clock_for)

    def _iterate(self) -> None:
        for phases in self._plan.iteration(self._changes, complete=True):
            self._engine.update(phases, 0.0, self._changes)


# ---------------------------------------------------------------------- made-up series


def autoregression(pairs: int, seed: int) -> tuple[Values, Values]:
    """Pairs of successive values in (0, 1), evenly spread there and all distinct.

    Neighbours in time of a Gaussian autoregression, seen through the normal distribution function: so their
    range stays the same however many there are.
    """
    from scipy.signal import lfilter
    from scipy.stats import norm

    rng = np.random.default_rng(seed)
    pushes = np.sqrt(1 - CORRELATION**2) * rng.standard_normal(pairs + 1)
    pushes[0] = rng.standard_normal()
    path = norm.cdf(lfilter([1.0], [1.0, -CORRELATION], pushes))
    return path[:-1], path[1:]


def series_model(pairs: int, support: int, seed: int) -> Model:
    """Pixels and readings learned from this many pairs, with evenly spaced support points."""
    first, second = autoregression(pairs, seed)
    readings = first + NOISE * np.random.default_rng(seed + 1).standard_normal(pairs)
    kernel, points = Gaussian(BANDWIDTH), np.linspace(0.0, 1.0, support)
    model = Model(
        {"pixel": kernel, "reading": kernel},
        {"beside": Relation("pixel", "pixel", symmetric=True), "read as": Relation("pixel", "reading")},
        landmarks={"pixel": points, "reading": points},
    )
    return model.fit({"beside": (first, second), "read as": (first, readings)})


def noisy_grid(side: int, seed: int) -> Graph:
    """A grid with a reading in (0, 1) at every node."""
    readings = np.random.default_rng(seed).random(side * side)
    return Graph.grid((side, side), variable="pixel", relation="beside").observe("read as", readings)


# ---------------------------------------------------------------------- the paper's image


@dataclass(frozen=True)
class Sunset:
    """The paper's sunset of 100 colours: one noisy copy to learn from, another to clean.

    Attributes
    ----------
    side : rows and columns
    seed : of the noise
    """

    side: int
    seed: int

    @cached_property
    def clean(self) -> Values:
        """The truth, (side, side)."""
        return sunset(colors=100, size=self.side, seed=self.seed)[0]

    @cached_property
    def pairs(self) -> dict[str, tuple[Values, Values]]:
        """What is learned from."""
        noisy = sunset(colors=100, size=self.side, seed=self.seed)[1]
        return {"beside": grid_pairs(self.clean), "read as": (self.clean.ravel(), noisy.ravel())}

    @cached_property
    def graph(self) -> Graph:
        """What is cleaned."""
        noisy = sunset(colors=100, size=self.side, seed=self.seed + 1)[1]
        shape = (self.side, self.side)
        return Graph.grid(shape, variable="pixel", relation="beside").observe("read as", noisy.ravel())

    def model(self) -> Model:
        """With defaults, not fitted."""
        return Model(*self.parts())

    @staticmethod
    def parts() -> tuple[dict[str, Any], dict[str, Relation]]:
        """Variables and relations."""
        relations = {
            "beside": Relation("pixel", "pixel", symmetric=True),
            "read as": Relation("pixel", "reading"),
        }
        return {"pixel": Gaussian(), "reading": Gaussian()}, relations
