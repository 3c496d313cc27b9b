"""The compiled update, held against the same update in plain NumPy."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from kernelbp import Graph, Relation
from kernelbp.inference import compiled, engine, program
from kernelbp.inference.compiled import MOST_FACTORS
from kernelbp.inference.engine import Engine
from kernelbp.inference.multiplying import multiply
from kernelbp.inference.schedules import make_plan
from kernelbp.inference.update import FLOORS, Flat, State, update_plainly
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


@pytest.fixture(autouse=True)
def _always_compiled(monkeypatch):
    monkeypatch.setattr(engine, "SMALL", 0)


def random_state(wiring: Wiring, seed: int, dtype: type, *, signed: bool, weighted: bool | str) -> State:
    rng = np.random.default_rng(seed)
    sizes = [SIZES[name] for name in wiring.variables]
    counts = [int(start[-1]) for start in wiring.start]

    def values(rows: int, size: int) -> np.ndarray:
        made = rng.uniform(0.02, 1.0, (rows, size))
        if signed:
            made *= rng.choice([-1.0, 1.0], made.shape, p=[0.2, 0.8])
        return made / np.abs(made).max(axis=1, keepdims=True)

    messages = Flat.of([values(n, q) for n, q in zip(counts, sizes, strict=True)], dtype)
    evidence = Flat.of([values(len(n), q) for n, q in zip(wiring.nodes, sizes, strict=True)], dtype)
    operators = []
    for relation, toward in wiring.operators:
        ends = (RELATIONS[relation].first, RELATIONS[relation].second)
        shape = SIZES[ends[toward]], SIZES[ends[1 - toward]]
        table = rng.normal(size=shape) if signed else rng.uniform(0.0, 1.0, shape)
        operators.append(Conditional(table.astype(dtype)))
    weights = Flat([], dtype)
    if weighted:
        choices = {"some halves": [0.5, 0.5, 0.3, 0.8, 1.0], "all alike": [0.45]}.get(str(weighted), [0.5])
        weights = Flat.of([rng.choice(choices, n) for n in counts], dtype)
    return State(messages, evidence, weights, (), tuple(operators), signed, 0.0)


def copied(state: State) -> State:
    return replace(state, messages=Flat.of(list(state.messages), state.messages.values.dtype))


def updated(engine: Engine, phase: Phase, changes: np.ndarray) -> None:
    with engine.running():
        engine.update((phase,), 0.0, changes)


def phases(wiring: Wiring, seed: int) -> list[tuple[Phase, ...]]:
    """All messages at once, then a random third of them, twice; then colour after colour."""
    rng = np.random.default_rng(seed)
    third = wiring.n_messages // 3
    chosen = [np.sort(rng.choice(wiring.n_messages, third, replace=False)) for _ in range(2)]
    plan = make_plan("sweep", wiring, sum(map(len, wiring.nodes)), None)
    colours = next(plan.iteration(np.zeros(wiring.n_messages), complete=True))
    together = [wiring.phase(np.arange(wiring.n_messages)), *map(wiring.phase, chosen)]
    return [*((phase,) for phase in together), tuple(together), tuple(colours)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("damping", [0.0, 0.4, 0.5])
@pytest.mark.parametrize(
    ("signed", "weighted"),
    [(False, ""), (True, ""), (False, "some halves"), (False, "all halves"), (False, "all alike")],
    ids=["positive", "signed", "weighted", "weighted by halves", "weighted alike"],
)
def test_the_compiled_update_equals_the_plain_one(dtype, damping, signed, weighted):
    met: set[int] = set()
    for seed in range(4):
        wiring = wire(graph_of_all_degrees(seed), RELATIONS, np.empty(0, dtype=np.intp))
        degrees = np.concatenate(wiring.degrees)
        assert degrees.max() > MOST_FACTORS >= np.median(degrees)
        met |= set(degrees.tolist())
        fast = random_state(wiring, seed, dtype, signed=signed, weighted=weighted)
        plain = copied(fast)
        changes = [np.zeros(wiring.n_messages) for _ in range(2)]
        for group in phases(wiring, seed):
            running = Engine(fast, wiring, 2)
            assert running.compiled
            with running.running():
                running.update(group, damping, changes[0])
            for phase in group:
                update_plainly(plain, phase, damping, changes[1])
            # A signed sum may nearly cancel: rounding counts relative to what was summed.
            tolerance = TOLERANCE[dtype] * (1000 if signed else len(group))
            for one, other in zip(fast.messages, plain.messages, strict=True):
                assert one.dtype == dtype
                assert np.allclose(one, other, rtol=tolerance, atol=tolerance)
                other[...] = one  # compare single updates, not how far two paths drift apart
            assert np.allclose(changes[0], changes[1], rtol=0, atol=2 * tolerance)
            changes[1][:] = changes[0]
    assert 4 in met, "the degree that has a way of its own"


def test_zeros_are_left_out_with_their_message():
    """A zero in one's own message must not silence what the others say, at a node of few neighbours or of many."""
    for degree in (3, 4, 5, int(MOST_FACTORS) + 1, 40):
        graph = Graph.from_networkx(nx.star_graph(degree), variable="x", relation="same")
        wiring = wire(graph, RELATIONS, np.empty(0, dtype=np.intp))
        state = random_state(wiring, degree, np.float64, signed=False, weighted="")
        rng = np.random.default_rng(degree)
        state.messages[0][:, 1:][rng.random((len(state.messages[0]), SIZES["x"] - 1)) < 0.2] = 0.0
        plain, changes = copied(state), np.zeros(wiring.n_messages)
        everything = wiring.phase(np.arange(wiring.n_messages))
        updated(Engine(state, wiring, 1), everything, changes)
        update_plainly(plain, everything, 0.0, changes.copy())
        assert np.allclose(state.messages[0], plain.messages[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_powers_of_messages_are_accurate_over_their_whole_range(dtype, accuracy):
    """A node with one message and an operator that copies it: what goes on is m^(weight) / m."""
    wiring = wire(Graph.chain(2, variable="x", relation="same"), RELATIONS, np.empty(0, dtype=np.intp))
    least, size = FLOORS[np.dtype(dtype)], 33
    rng = np.random.default_rng(0)
    rows = [np.geomspace(least, 1.0, size), 1.0 - np.linspace(0, 2e-6, size), 2.0 ** -np.arange(size)]
    rows += [np.append(least ** rng.random(size - 1), 1.0) for _ in range(50)]
    for row in rows:
        for weight in (0.5, 1.0, *rng.uniform(0.01, 1.0, 3)):
            given = np.array([row, np.ones(size)])
            messages, weights = Flat.of([given], dtype), Flat.of([np.full(2, weight)], dtype)
            state = State(
                messages,
                Flat([(2, size)], dtype),
                weights,
                (),
                (Conditional(np.eye(size, dtype=dtype)),),
                False,
                0.0,
            )
            updated(Engine(state, wiring, 1), wiring.phase(np.arange(2)), np.zeros(2))
            arrived = given[0].astype(dtype).astype(np.float64)
            exact = arrived ** (float(weights.values[0]) - 1)
            exact = np.maximum(exact / exact.max(), least)
            assert np.allclose(messages[0][1], exact, rtol=accuracy, atol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1.0, 1e-12, 1e-30, 1e12])
def test_weighted_messages_are_kept_above_their_floor(dtype, size):
    """Also small ones, such as a potential makes of contradicting neighbours: zeros would divide by zero."""
    floor = FLOORS[np.dtype(dtype)]
    wiring = wire(Graph.chain(2, variable="x", relation="same"), RELATIONS, np.empty(0, dtype=np.intp))
    operator = np.array([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0], [0.25, 0.0, 0.0]], dtype=dtype) * dtype(size)
    state = State(
        Flat([(2, 3)], dtype),
        Flat([(2, 3)], dtype),
        Flat.of([np.full(2, 0.7)], dtype),
        (),
        (Conditional(operator),),
        False,
        0.0,
    )
    changes = np.zeros(2)
    updated(Engine(state, wiring, 1), wiring.phase(np.arange(2)), changes)
    assert np.allclose(state.messages[0], [[1, floor, 0.5]] * 2, rtol=1e-5, atol=0)
    assert np.allclose(changes, 1.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_message_that_says_nothing_becomes_ones(weighted):
    """A product that is zero everywhere cannot be scaled: silence is the answer, as in the plain update."""
    wiring = wire(Graph.chain(2, variable="x", relation="same"), RELATIONS, np.empty(0, dtype=np.intp))
    state = State(
        Flat.of([np.array([[1.0, 0.5, 0.2]] * 2)], np.float64),
        Flat([(2, 3)], np.float64),
        Flat.of([np.full(2, 0.5)], np.float64) if weighted else Flat([], np.float64),
        (),
        (Conditional(np.zeros((3, 3))),),
        False,
        0.0,
    )
    changes = np.zeros(2)
    updated(Engine(state, wiring, 1), wiring.phase(np.arange(2)), changes)
    assert np.array_equal(state.messages[0], np.ones((2, 3)))
    assert changes == pytest.approx(0.8)


@pytest.mark.parametrize("damping", [0.0, 0.4, 0.5])
@pytest.mark.parametrize("weighted", ["", "some halves"])
def test_nodes_that_have_heard_nothing_new_rest(monkeypatch, damping, weighted):
    monkeypatch.setattr(engine, "MANY", 0)
    monkeypatch.setattr(program, "BLOCK_CELLS", 200)
    monkeypatch.setattr(program, "BLOCK_ROWS", 1)
    slept = 0
    for seed in range(3):
        wiring = wire(graph_of_all_degrees(seed), RELATIONS, np.empty(0, dtype=np.intp))
        fast = random_state(wiring, seed, np.float64, signed=False, weighted=weighted)
        plain = copied(fast)
        source, target = wiring.ends
        plan = make_plan("sweep", wiring, sum(map(len, wiring.nodes)), None)
        pending, changes = np.zeros(wiring.n_messages), np.zeros(wiring.n_messages)
        group = next(plan.iteration(changes, complete=True))
        running = Engine(fast, wiring, 2, plan.ranks)
        assert running.rests
        enough = 0.0
        with running.running():
            for _ in range(4):
                running.update(group, damping, changes, enough)
                for phase in group:
                    news = np.zeros(wiring.n_messages)
                    np.maximum.at(news, target, pending)  # by node, of which there are fewer than messages
                    sent = phase.messages[news[source[phase.messages]] >= enough]
                    slept += len(phase.messages) - len(sent)
                    if len(sent):
                        pending[np.isin(target, source[sent])] = 0.0
                        update_plainly(plain, wiring.phase(sent), damping, changes)
                        pending[sent] += changes[sent]
                        pending[wiring.reverse[sent]] += changes[sent] * damping / (1 - damping)
                enough = float(np.median(pending[pending > 0]))
        for one, other in zip(fast.messages, plain.messages, strict=True):
            assert np.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert slept > 100


@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("weighted", ["", "some halves"])
@pytest.mark.parametrize("schedule", ["auto", "flooding", "sweep"])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, schedule, weighted, rests):
    monkeypatch.setattr(engine, "MANY", 0)
    monkeypatch.setattr(engine, "available_cores", lambda: 3)
    monkeypatch.setattr(program, "BLOCK_CELLS", 1)
    monkeypatch.setattr(program, "BLOCK_ROWS", 8)
    graph = Graph.grid((60, 61), variable="x", relation="same")
    wiring = wire(graph, RELATIONS, np.empty(0, dtype=np.intp))
    results = []
    for n_jobs in (1, 2, 3):
        state = random_state(wiring, 0, np.float32, signed=False, weighted=weighted)
        plan = make_plan(schedule, wiring, graph.n_nodes, graph.shape)
        changes, running = np.zeros(wiring.n_messages), Engine(state, wiring, n_jobs, plan.ranks)
        assert running.rests == (schedule == "auto")
        with running.running():
            for iteration in range(3):
                for group in plan.iteration(changes, complete=True):
                    running.update(group, 0.0, changes, (0.3 if iteration else 0.0) if rests else None)
            assert len(running._crew._helpers) == n_jobs - 1
        results.append((state.messages.values, changes))
    assert np.array_equal(results[0][0], results[1][0]) and np.array_equal(results[0][0], results[2][0])
    assert np.array_equal(results[0][1], results[1][1]) and np.array_equal(results[0][1], results[2][1])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("degree", [3, 4, 6])
def test_contradicting_messages_leave_the_range_of_single_precision_and_come_back(degree, weighted):
    """Each message rules out, but for 1e-12, what the others say: a plain product of them would be zero."""
    graph = Graph.from_networkx(nx.star_graph(degree), variable="x", relation="same")
    wiring = wire(graph, RELATIONS, np.empty(0, dtype=np.intp))
    rng = np.random.default_rng(degree)
    size = 9
    given = 1e-12 * rng.uniform(0.5, 1.0, (wiring.n_messages, size))
    given[np.arange(wiring.n_messages), np.arange(wiring.n_messages) % size] = 1.0
    evidence = np.tile(np.geomspace(1.0, 1e-10, size), (degree + 1, 1))
    table = rng.uniform(0.0, 1.0, (size, size)) * 1e-6
    expected = None
    for dtype in (np.float64, np.float32):
        state = State(
            Flat.of([given], dtype),
            Flat.of([evidence], dtype),
            Flat.of([np.full(wiring.n_messages, 0.9)], dtype) if weighted else Flat([], dtype),
            (),
            (Conditional(table.astype(dtype)),),
            False,
            0.0,
        )
        everything, changes = wiring.phase(np.arange(wiring.n_messages)), np.zeros(wiring.n_messages)
        if expected is None:
            update_plainly(state, everything, 0.0, changes)
            expected = state.messages[0].copy()
        else:
            updated(Engine(state, wiring, 1), everything, changes)
            assert np.allclose(state.messages[0], expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("size", [8, 24])
@pytest.mark.parametrize("to", [8, 16, 40])
@pytest.mark.parametrize("count", [1, 5, 6, 13])
def test_rows_times_a_table_are_the_matrix_product_and_each_row_has_its_own_bits(count, size, to):
    rng = np.random.default_rng(count)
    before, behind = rng.normal(size=2 * size), rng.normal(size=3 * to)  # not to be read
    rows, table = rng.normal(size=(count, size)), rng.normal(size=(size, to))
    flat = np.concatenate([before, rows.ravel()]).astype(np.float32)
    operators = np.concatenate([behind, table.ravel()]).astype(np.float32)
    out = np.full((count + 1) * to, 7.0, dtype=np.float32)
    at, begin = np.uint64(len(before)), np.uint64(len(behind))
    sizes = np.uint64(size), np.uint64(to)
    multiply(flat, at, np.uint64(count), sizes[0], operators, begin, sizes[1], out)
    assert np.allclose(out[: count * to].reshape(count, to), rows @ table, atol=1e-5)
    assert (out[count * to :] == 7.0).all()
    alone = np.empty(to, dtype=np.float32)
    for row in range(count):
        multiply(flat, at + np.uint64(row * size), np.uint64(1), sizes[0], operators, begin, sizes[1], alone)
        assert np.array_equal(alone, out[row * to : (row + 1) * to])


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_logarithms_and_back_are_the_messages_scaled(dtype, accuracy):
    rng = np.random.default_rng(0)
    messages = rng.uniform(size=(50, 16)).astype(dtype) ** 20
    messages[3, 5] = 0.0
    logarithms, back = np.empty(messages.size, dtype), np.empty_like(messages)
    compiled.to_logarithms(messages.ravel(), logarithms)
    rows = logarithms.reshape(messages.shape)
    compiled.from_logarithms(rows, back, 1e-18)
    expected = np.maximum(messages / messages.max(axis=1, keepdims=True), 1e-18)
    assert np.allclose(back, expected, rtol=accuracy * 10, atol=0)
    assert np.array_equal(rows.max(axis=1), np.zeros(50))
