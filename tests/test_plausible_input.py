"""Plausible input that once gave wrong answers or raw tracebacks."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.inference import engine
from kernelbp.values import as_column

CHAIN = kb.Graph.chain(3, variable="state", relation="then")


def walk(offset: float = 0.0, seed: int = 0):
    rng = np.random.default_rng(seed)
    now = 3 * rng.standard_normal(1500)
    return now + offset, 0.9 * now + rng.standard_normal(1500) + offset


def model(pairs, **settings) -> kb.Model:
    relations = {"then": kb.Relation("state", "state")}
    return kb.Model({"state": kb.kernels.Gaussian()}, relations, **settings).fit({"then": pairs})


@pytest.mark.parametrize("offset", [1e7, 1.7e9])
def test_numbers_far_from_zero_are_read_as_well_as_near_it(offset):
    near = model(walk()).infer(CHAIN.fix([0], [3.0]))
    far = model(walk(offset)).infer(CHAIN.fix([0], [offset + 3.0]))
    np.testing.assert_allclose(far.mean() - offset, near.mean(), atol=0.02)
    np.testing.assert_allclose(far.std(), near.std(), rtol=0.02)
    np.testing.assert_allclose(far.mode() - offset, near.mode(), atol=0.05)


def test_whole_number_variables_are_not_cut_to_whole_answers():
    rng = np.random.default_rng(0)
    now = rng.integers(0, 3000, 600)
    beliefs = model((now, now + rng.integers(-300, 300, 600))).infer(CHAIN.fix([0], [500.5]))
    assert beliefs.mode()[0] == 500.5
    np.testing.assert_allclose(beliefs.expect(lambda x: x), beliefs.mean(), atol=1e-9)


def test_values_kept_apart_give_no_state_twice():
    pairs = ([0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0])
    merged, apart = (model(pairs, merge=merge).infer(CHAIN.fix([0], [0.0])) for merge in (True, False))
    assert len(np.unique(apart["state"].support)) == len(apart["state"].support)
    # Read on a grid instead of at two repeated values: close, not equal.
    np.testing.assert_allclose(apart.mean(), merged.mean(), atol=0.05)


def test_what_is_masked_is_missing():
    column, _ = as_column(np.ma.masked_array([1, 999, 3], mask=[0, 1, 0]), "values", allow_missing=True)
    np.testing.assert_array_equal(column[:, 0], [1.0, np.nan, 3.0])
    assert CHAIN.observe("read", [1.0, None, 3.0]).evidence[0].nodes.tolist() == [0, 2]


def test_the_scale_of_a_likelihood_does_not_matter_however_small():
    fitted = model(walk())
    points = [-3.0, 3.0]
    large, small = (
        fitted.infer(CHAIN.soften([1], points, scale * np.array([1.0, 3.0]))).mean()
        for scale in (1.0, 1e-250)
    )
    np.testing.assert_allclose(small, large)


def test_landmarks_of_a_finite_variable_must_hold_all_its_values():
    with pytest.raises(InputError, match="must hold every training value of a finite variable"):
        kb.Model(
            {"letter": kb.kernels.Delta()},
            {"then": kb.Relation("letter", "letter")},
            landmarks={"letter": ["a", "b"]},
        ).fit({"then": (["a", "b", "c"], ["b", "c", "a"])})


@pytest.mark.parametrize(
    ("graphs", "text"),
    [
        ([CHAIN], "graphs[0]: expected (Graph, true values of its nodes), got Graph"),
        ([(CHAIN, [np.nan] * 3)], "graphs: no true value is known in one of the graphs"),
        ([(CHAIN, {})], "graphs: no true value is known in one of the graphs"),
        (
            [(CHAIN, ["a", "b", "c"])],
            "graphs: true values of 'state': values of one variable must be of one kind",
        ),
    ],
)
def test_training_graphs_are_checked(graphs, text):
    made = kb.Model({"state": kb.kernels.Gaussian()}, {"then": kb.Relation("state", "state")})
    with pytest.raises(InputError) as refusal:
        made.fit({"then": walk()}, graphs=graphs)
    assert text in str(refusal.value)


def test_a_share_of_independence_given_by_hand_survives_training_graphs():
    truth = np.array([1.0, 0.9, 1.1])
    relations = {"then": kb.Relation("state", "state")}
    made = kb.Model({"state": kb.kernels.Gaussian()}, relations, mixing=0.3)
    made.fit({"then": walk()}, graphs=[(CHAIN.soften([1], [0.0, 1.0], [0.2, 0.8]), truth)])
    assert made.settings_["relations"]["then"]["mixing"] == 0.3


def test_a_potential_is_refused_by_embeddings_with_a_hint():
    made = kb.Model(
        {"state": kb.kernels.Gaussian()},
        {"then": kb.Relation("state", "state", potential=lambda x, y: np.exp(-((x - y) ** 2)))},
        landmarks={"state": np.linspace(0, 1, 5)},
    ).fit()
    with pytest.raises(UnsupportedError, match="needs conditionals='probability'"):
        made.infer(CHAIN, conditionals="embedding")


def test_a_table_on_numbers_is_refused():
    with pytest.raises(InputError, match="a table needs finite variables"):
        kb.Model(
            {"state": kb.kernels.Gaussian()},
            {"then": kb.Relation("state", "state", potential=np.ones((3, 3)))},
            landmarks={"state": [0.0, 1.0, 2.0]},
        ).fit()


def test_graphs_and_starts_of_another_kind_are_refused():
    fitted = model(walk())
    with pytest.raises(InputError, match=r"graph: expected a kernelbp\.Graph, got str"):
        fitted.infer("x")
    with pytest.raises(InputError, match="start: expected Beliefs"):
        fitted.infer(CHAIN, start=3)
    with pytest.raises(InputError, match=r"'full' is a form of conditionals='embedding'"):
        fitted.infer(CHAIN, update="full", conditionals="probability")


def test_products_too_small_for_one_number_are_still_compared(monkeypatch):
    places = np.linspace(0, 1, 21)

    def near(x, y):
        return np.exp(-0.5 * ((x - y) / 0.02) ** 2) + 1e-6

    made = kb.Model(
        {"place": kb.kernels.Gaussian()},
        {"near": kb.Relation("place", "place", symmetric=True, potential=near)},
        landmarks={"place": places},
    ).fit()
    star = np.array([(0, leaf) for leaf in range(1, 12)])
    likelihood = np.full((11, 21), 1e-6)
    likelihood[np.arange(11), 2 * (np.arange(11) // 2)] = 1
    graph = kb.Graph.from_edges(star, variables=["place"] * 12, relation="near")
    graph = graph.soften(np.arange(1, 12), places, likelihood)
    plain = made.infer(graph, dtype=np.float64).mean()
    monkeypatch.setattr(engine, "SMALL", 0)
    np.testing.assert_allclose(plain, made.infer(graph, dtype=np.float64).mean(), atol=1e-9)


def test_reprs_say_what_matters():
    assert repr(kb.Relation("a", "a", potential=lambda x, y: x)) == "Relation('a', 'a', potential=...)"
    assert repr(model(walk()).infer(CHAIN)) == "Beliefs(3 nodes, converged after 1 iterations)"
