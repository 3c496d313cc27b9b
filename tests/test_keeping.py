"""What is laid out once for a graph, and when it must be laid out anew."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import kernelbp as kb
from kernelbp import keeping
from kernelbp.keeping import Kept


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    y = x + 0.5 * rng.normal(size=400)
    return kb.Model(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {"beside": kb.Relation("x", "x", symmetric=True), "read": kb.Relation("x", "y")},
    ).fit({"beside": (x, x + 0.3 * rng.normal(size=400)), "read": (x, y)})


def grid(seed=0, side=6):
    readings = np.random.default_rng(seed).normal(size=side * side)
    return kb.Graph.grid((side, side), variable="x", relation="beside").observe("read", readings)


def test_a_second_inference_on_a_graph_equals_the_first_and_one_on_a_copy(model):
    graph = grid()
    first, second, copied = model.infer(graph), model.infer(graph), model.infer(replace(graph))
    assert first._source.wiring is second._source.wiring
    assert first._source.wiring is not copied._source.wiring
    assert np.array_equal(first.mean(), second.mean())
    assert np.array_equal(first.mean(), copied.mean())


def test_other_readings_share_the_layout_and_other_fixed_nodes_do_not(model):
    bare = kb.Graph.grid((6, 6), variable="x", relation="beside")
    one, other = bare.observe("read", np.zeros(36)), bare.observe("read", np.ones(36))
    assert model.infer(one)._source.wiring is model.infer(other)._source.wiring
    fixed = other.fix([3], [0.5])
    assert model.infer(fixed)._source.wiring.n_messages < model.infer(other)._source.wiring.n_messages
    moved = other.fix([4], [0.5])
    expected = model.infer(replace(moved)).mean()  # a copy, for which nothing is laid out yet
    assert np.array_equal(model.infer(moved).mean(), expected)


def test_another_weight_scale_or_number_of_states_is_not_mistaken_for_what_is_kept(model):
    graph = grid()
    plain = model.infer(graph).mean()
    bethe = model.infer(graph, weighting="bethe").mean()
    flooded = model.infer(graph, schedule="flooding", tolerance=1e-6).mean()
    assert not np.array_equal(plain, bethe)
    assert np.allclose(flooded, model.infer(graph, tolerance=1e-6).mean(), atol=1e-3)
    assert np.array_equal(model.infer(graph).mean(), plain)


def test_graphs_with_other_variables_keep_their_own(model):
    graph = grid()
    model.infer(graph)
    other = replace(graph, node_variable=graph.node_variable.copy())
    assert other.kept is not graph.kept


def test_a_pickled_graph_holds_no_layout_and_infers_the_same(model):
    graph = grid()
    before = len(pickle.dumps(graph))
    found = model.infer(graph).mean()
    assert len(pickle.dumps(graph)) == before
    assert np.array_equal(model.infer(pickle.loads(pickle.dumps(graph))).mean(), found)


def test_the_oldest_goes_first_and_nothing_is_kept_of_very_large_graphs(monkeypatch):
    kept, made = Kept(2, n_edges=5), []

    def make(name):
        return kept.once(name, lambda: made.append(name) or name)

    assert [make(name) for name in "abaca"] == list("abaca")
    assert made == ["a", "b", "c", "a"]
    monkeypatch.setattr(keeping, "MOST_EDGES", 4)
    assert [make("c"), make("c")] == ["c", "c"]
    assert made[4:] == ["c", "c"]


def test_threads_that_ask_for_more_than_is_kept_all_get_theirs():
    kept = Kept(2, n_edges=5)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: kept.once(n % 5, lambda: n % 5), range(5000)))
    assert found == [n % 5 for n in range(5000)]


def test_what_fails_is_not_kept():
    kept = Kept(2, n_edges=5)
    with pytest.raises(ZeroDivisionError):
        kept.once("a", lambda: 1 / 0)
    assert kept.once("a", lambda: 1) == 1
