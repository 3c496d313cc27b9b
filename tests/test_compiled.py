"""The compiled update, held against the same update in plain NumPy."""

from __future__ import annotations

import copy

import networkx as nx
import numpy as np
import pytest

from kernelbp import Graph, Relation
from kernelbp.inference import compiled, update
from kernelbp.inference.update import FLOORS, MOST_FACTORS, State, update_phase, update_plainly
from kernelbp.inference.wiring import Phase, Wiring, wire
from kernelbp.learning.conditionals import Conditional

RELATIONS = {
    "same": Relation("x", "x", symmetric=True),
    "then": Relation("x", "x"),
    "across": Relation("x", "y"),
}
SIZES = {"x": 7, "y": 4}
LARGEST_DEGREE = 20
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def graph_of_all_degrees(seed: int) -> Graph:
    """Nodes of degree 1 ... 20 and more edges at random, of two variables and three relations."""
    rng = np.random.default_rng(seed)
    tied = nx.Graph()
    count = 0
    for degree in range(1, LARGEST_DEGREE + 1):
        hub = count
        count += 1
        tied.add_node(hub)
        for _ in range(degree - (degree > 1)):
            tied.add_edge(hub, count)
            count += 1
        if degree > 1:
            tied.add_edge(hub, hub - 1)  # the last leaf of the hub before
    for _ in range(10):
        leaves = [node for node in tied if tied.degree(node) == 1]
        tied.add_edge(*rng.choice(leaves, 2, replace=False).tolist())
    variables = rng.choice(["x", "y"], count, p=[0.7, 0.3])
    edges = []
    for a, b in tied.edges:
        if variables[a] == variables[b] == "y":
            continue
        edges.append((a, b, rng.choice(["same", "then"]) if variables[a] == variables[b] else "across"))
    return Graph.from_edges([(int(a), int(b), str(r)) for a, b, r in edges], variables=variables.tolist())


def random_state(wiring: Wiring, seed: int, dtype: type, *, signed: bool, weighted: bool) -> State:
    rng = np.random.default_rng(seed)
    sizes = [SIZES[name] for name in wiring.variables]
    counts = [int(start[-1]) for start in wiring.start]

    def values(rows: int, size: int) -> np.ndarray:
        made = rng.uniform(0.02, 1.0, (rows, size))
        if signed:
            made *= rng.choice([-1.0, 1.0], made.shape, p=[0.2, 0.8])
        return (made / np.abs(made).max(axis=1, keepdims=True)).astype(dtype)

    messages = tuple(values(n, q) for n, q in zip(counts, sizes, strict=True))
    evidence = tuple(values(len(n), q) for n, q in zip(wiring.nodes, sizes, strict=True))
    operators = []
    for relation, toward in wiring.operators:
        ends = (RELATIONS[relation].first, RELATIONS[relation].second)
        shape = SIZES[ends[toward]], SIZES[ends[1 - toward]]
        table = rng.normal(size=shape) if signed else rng.uniform(0.0, 1.0, shape)
        operators.append(Conditional(table.astype(dtype)))
    weights: tuple[np.ndarray, ...] = ()
    powers: tuple[np.ndarray, ...] = ()
    if weighted:
        weights = tuple(rng.uniform(0.2, 1.0, n).astype(dtype) for n in counts)
        powers = tuple(m ** w[:, None] for m, w in zip(messages, weights, strict=True))
    return State(messages, evidence, weights, powers, (), tuple(operators), signed, 0.0)


def phases(wiring: Wiring, seed: int) -> list[Phase]:
    """All messages at once, then a random third of them, twice."""
    rng = np.random.default_rng(seed)
    third = wiring.n_messages // 3
    chosen = [np.sort(rng.choice(wiring.n_messages, third, replace=False)) for _ in range(2)]
    return [wiring.phase(np.arange(wiring.n_messages)), *map(wiring.phase, chosen)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize(
    ("signed", "weighted"),
    [(False, False), (True, False), (False, True)],
    ids=["positive", "signed", "weighted"],
)
@pytest.mark.parametrize("most", [MOST_FACTORS, 100], ids=["as it is", "compiled at every degree"])
def test_the_compiled_update_equals_the_plain_one(monkeypatch, dtype, damping, signed, weighted, most):
    monkeypatch.setattr(update, "MOST_FACTORS", most)
    for seed in range(3):
        graph = graph_of_all_degrees(seed)
        wiring = wire(graph, RELATIONS, np.empty(0, dtype=np.intp))
        degrees = np.concatenate(wiring.degrees)
        assert degrees.max() > MOST_FACTORS >= np.median(degrees)
        fast = random_state(wiring, seed, dtype, signed=signed, weighted=weighted)
        plain = copy.deepcopy(fast)
        changes = [np.zeros(wiring.n_messages) for _ in range(2)]
        for phase in phases(wiring, seed):
            update_phase(fast, phase, damping, changes[0])
            update_plainly(plain, phase, damping, changes[1])
            # A signed sum may nearly cancel: rounding counts relative to what was summed.
            tolerance = TOLERANCE[dtype] * (100 if signed else 1)
            for one, other in zip(fast.messages + fast.powers, plain.messages + plain.powers, strict=True):
                assert one.dtype == dtype
                assert np.allclose(one, other, rtol=tolerance, atol=tolerance)
            assert np.allclose(changes[0], changes[1], rtol=0, atol=2 * tolerance)
            for one, other in zip(fast.messages + fast.powers, plain.messages + plain.powers, strict=True):
                other[...] = one  # compare single updates, not how far two paths drift apart
            changes[1][:] = changes[0]


def test_small_degrees_are_compiled_and_large_ones_are_not(monkeypatch):
    taken = []
    monkeypatch.setattr(update, "update_plainly", lambda *given: taken.append(given))
    for degree in (MOST_FACTORS, MOST_FACTORS + 1):
        graph = Graph.from_networkx(nx.star_graph(degree), variable="x", relation="same")
        wiring = wire(graph, RELATIONS, np.empty(0, dtype=np.intp))
        state = random_state(wiring, 0, np.float32, signed=False, weighted=True)
        taken.clear()
        update_phase(state, wiring.phase(np.arange(wiring.n_messages)), 0.0, np.zeros(wiring.n_messages))
        assert bool(taken) == (degree > MOST_FACTORS)


@pytest.mark.parametrize(("dtype", "least", "accuracy"), [(np.float32, -30, 1e-5), (np.float64, -150, 1e-12)])
def test_powers_of_messages_are_accurate_over_their_whole_range(dtype, least, accuracy):
    rng = np.random.default_rng(0)
    count, size = 400, 33
    made = 10 ** rng.uniform(least, 0, (count, size))
    made[:, 0] = 1.0
    made[0] = np.geomspace(10.0**least, 1.0, size)
    made[1] = 1.0 - np.linspace(0, 2e-6, size)  # just below a power of two
    made[2] = 2.0 ** -np.arange(size)
    weights = rng.uniform(0.01, 1.0, count)
    weights[:4] = 0.5, 1.0, 1.0, 1.0
    messages, powers = np.ones((count, size), dtype), np.empty((count, size), dtype)
    rows = np.arange(count)
    compiled.settle_weighted(
        made.astype(dtype), messages, powers, weights.astype(dtype), rows, rows, 0.0,
        FLOORS[np.dtype(dtype)], np.zeros(count),
    )  # fmt: skip
    exact = messages.astype(np.float64) ** weights.astype(dtype).astype(np.float64)[:, None]
    assert np.allclose(messages, made, rtol=accuracy, atol=0)
    error = np.abs(powers / exact - 1).max()
    assert error < accuracy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1.0, 1e-12, 1e-30, 1e12])
def test_weighted_messages_are_kept_above_their_floor(dtype, size):
    """Also small ones, such as a potential makes of contradicting neighbours: zeros would divide by zero."""
    floor = FLOORS[np.dtype(dtype)]
    made = np.array([[0.5, 0.0, 0.25], [1.0, 0.0, 0.0]], dtype=dtype) * dtype(size)
    messages, powers = np.ones((2, 3), dtype), np.ones((2, 3), dtype)
    rows = np.arange(2)
    changes = np.zeros(2)
    compiled.settle_weighted(
        made, messages, powers, np.array([0.5, 0.5], dtype), rows, rows, 0.0, floor, changes
    )
    assert np.allclose(messages, [[1, floor, 0.5], [1, floor, floor]], rtol=1e-5, atol=0)
    assert np.allclose(powers, np.sqrt(messages.astype(float)), rtol=1e-5, atol=0)
    assert np.allclose(changes, 1.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_message_that_says_nothing_becomes_ones(weighted):
    """A product that is zero everywhere cannot be scaled: silence is the answer, as in the plain update."""
    made, messages = np.zeros((1, 3)), np.array([[1.0, 0.5, 0.2]])
    rows, changes = np.arange(1), np.zeros(1)
    if weighted:
        compiled.settle_weighted(
            made, messages, np.ones((1, 3)), np.array([0.5]), rows, rows, 0.0, 1e-150, changes
        )
    else:
        compiled.settle(made, messages, rows, rows, 0.0, changes)
    assert np.array_equal(messages, np.ones((1, 3)))
    assert changes[0] == pytest.approx(0.8)
