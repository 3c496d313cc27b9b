"""Probability conditionals and how they are tuned: judged by enumeration, interpolation and brute force."""

from __future__ import annotations

import itertools
from functools import cache

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelbp import Graph, Model, Relation
from kernelbp.errors import InputError
from kernelbp.kernels import Delta, Gaussian, Sphere
from kernelbp.learning.examples import collect
from kernelbp.learning.operators import ProbabilityOperators
from kernelbp.learning.probability import States, assign, blurs, choose_states, density_ratio, joint_table
from kernelbp.learning.tuning import SHARES, WIDTHS, Smoothing, dealt, fit_smoothing, smoothed_joint

KINDS = ("scalar", "plane", "sphere", "words")
ORDINARY = {"weighting": "bethe", "dtype": np.float64}


def values_of(kind: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of values that lie near each other."""
    if kind == "words":
        words = np.array(["sun", "rain", "fog", "snow"])
        first = rng.choice(4, count, p=[0.4, 0.3, 0.2, 0.1])
        return words[first], words[np.where(rng.random(count) < 0.6, first, rng.integers(4, size=count))]
    first = rng.standard_normal((count, {"scalar": 1, "plane": 2, "sphere": 3}[kind]))
    second = first + 0.5 * rng.standard_normal(first.shape)
    if kind == "sphere":
        first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    return (first[:, 0], second[:, 0]) if kind == "scalar" else (first, second)


KERNELS = {"scalar": Gaussian(0.5), "plane": Gaussian(0.7), "sphere": Sphere(4.0), "words": Delta()}


@cache
def fitted(kind: str) -> Model:
    """A symmetric relation, one that is not, and one to numbers."""
    rng = np.random.default_rng(KINDS.index(kind))
    near, then, read = (values_of(kind, 300, rng) for _ in range(3))
    meter = np.unique(read[0], axis=0, return_inverse=True)[1] / 100.0 + 0.2 * rng.standard_normal(300)
    return Model(
        {"x": KERNELS[kind], "y": Gaussian(0.5)},
        {
            "near": Relation("x", "x", symmetric=True),
            "then": Relation("x", "x"),
            "read": Relation("x", "y", evidence="likelihood"),
        },
        budget=24,
    ).fit({"near": near, "then": then, "read": (read[0], meter)})


def operators_of(model: Model) -> ProbabilityOperators:
    made = model._made_operators("constant", "probability")
    assert isinstance(made, ProbabilityOperators)
    return made


# ---------------------------------------------------------------------- the operators


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", ["near", "then", "read"])
@pytest.mark.parametrize("toward", [0, 1])
def test_every_conditional_is_a_table_of_probabilities(kind, relation, toward):
    operator = operators_of(fitted(kind)).conditional(relation, toward)
    table = operator.matrix()
    assert (table >= 0).all()
    assert np.abs(table.sum(axis=1) - 1).max() < 1e-12
    ones = np.ones((1, table.shape[1]))
    assert np.abs(operator.apply(ones) - 1).max() < 1e-12, "a message of ones stays ones"


@pytest.mark.parametrize("kind", KINDS)
def test_a_symmetric_relation_is_in_detailed_balance(kind):
    model = fitted(kind)
    learned = operators_of(model).relations["near"]
    prior = learned.joint.sum(axis=1)
    assert np.allclose(learned.joint, learned.joint.T, rtol=0, atol=1e-15)
    flow = prior[:, None] * operators_of(model).conditional("near", 0).matrix()
    assert np.allclose(flow, flow.T, rtol=0, atol=1e-14)
    assert np.allclose(prior @ operators_of(model).conditional("near", 0).matrix(), prior, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_without_evidence_messages_stay_ones(kind):
    graph = Graph.grid((3, 3), variable="x", relation="near")
    beliefs = fitted(kind).infer(graph, dtype=np.float64)
    assert beliefs.converged and beliefs.iterations == 1
    assert np.allclose(beliefs._source.state.messages[0], 1.0, rtol=0, atol=1e-12)
    alone = fitted(kind).infer(Graph.from_edges([], variables=["x"]), dtype=np.float64)
    assert np.allclose(beliefs.probabilities(), alone.probabilities()[0], rtol=0, atol=1e-12)


def test_evidence_is_positive_whatever_is_read():
    model = fitted("scalar")
    found = operators_of(model).evidence("read", 0, np.array([[-50.0], [0.3], [1.7], [99.0]]))
    assert (found > 0).all() and np.isfinite(found).all()


@pytest.mark.parametrize("mixing", [0.0, 0.3, 1.0])
def test_mixing_is_a_share_of_independence(mixing):
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(12)).reshape(3, 4)
    table = density_ratio(joint, mixing) * np.outer(joint.sum(axis=1), joint.sum(axis=0))
    expected = (1 - mixing) * joint + mixing * np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert np.allclose(table, expected, rtol=0, atol=1e-15)


# ---------------------------------------------------------------------- exact on finite trees


class Finite:
    """One finite variable on a tree with a symmetric relation; beliefs by enumeration of the counts."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.values = ["a", "b", "c"]
        first = rng.choice(3, 400, p=rng.dirichlet(np.full(3, 5.0)))
        second = np.where(rng.random(400) < 0.5, first, rng.integers(3, size=400))
        both = np.concatenate([first, second]), np.concatenate([second, first])
        words = np.array(self.values)
        self.model = Model(
            {"x": Delta()}, {"r": Relation("x", "x", symmetric=True)}, mixing=0.0, regularization=0.0
        ).fit({"r": (words[first], words[second])})
        joint = np.zeros((3, 3))
        np.add.at(joint, both, 1 / 800)
        self.prior = joint.sum(axis=1)
        self.ratio = joint / np.outer(self.prior, self.prior)
        tree = nx.random_labeled_tree(6, seed=seed)
        self.graph = Graph.from_networkx(tree, variable="x", relation="r")
        self.likelihood = np.ones((6, 3))
        for node in rng.choice(6, 3, replace=False):
            self.likelihood[node] = rng.uniform(0.05, 1.0, 3)
            self.graph = self.graph.soften([node], self.values, self.likelihood[node])
        known = int(rng.integers(6))
        self.graph = self.graph.fix([known], ["b"])
        self.likelihood[known] = [0.0, 1.0, 0.0]

    def exact(self) -> np.ndarray:
        result = np.zeros((6, 3))
        for states in itertools.product(range(3), repeat=6):
            mass = np.prod(self.prior[list(states)] * self.likelihood[np.arange(6), states])
            for a, b in self.graph.edges.tolist():
                mass *= self.ratio[states[a], states[b]]
            result[np.arange(6), states] += mass
        return result / result.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(6))
def test_tree_beliefs_equal_enumeration_and_the_embedding(seed):
    problem = Finite(seed)
    exact = problem.exact()
    for conditionals in ("probability", "embedding"):
        beliefs = problem.model.infer(problem.graph, conditionals=conditionals, **ORDINARY)
        assert np.allclose(beliefs.density(problem.values), exact, rtol=0, atol=1e-10), conditionals
    reweighted = problem.model.infer(problem.graph, dtype=np.float64)
    assert np.allclose(reweighted.density(problem.values), exact, rtol=0, atol=1e-10)


def test_without_evidence_finite_beliefs_are_the_frequencies():
    problem = Finite(0)
    graph = Graph.grid((3, 4), variable="x", relation="r")
    for weighting in ("bethe", "tree-reweighted"):
        beliefs = problem.model.infer(graph, weighting=weighting, dtype=np.float64)
        assert np.allclose(beliefs.density(problem.values), problem.prior, rtol=0, atol=1e-12)
        expected = problem.ratio * np.outer(problem.prior, problem.prior)
        places = [problem.values.index(word) for word in problem.model.support("x")]
        assert np.allclose(beliefs.pair(0), expected[np.ix_(places, places)], rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- values as measures on states


@given(
    points=st.lists(st.integers(-50, 50), min_size=1, max_size=12, unique=True),
    values=st.lists(st.floats(-60, 60), min_size=1, max_size=20),
)
@settings(max_examples=80)
def test_numbers_are_interpolated_between_neighbouring_states(points, values):
    knots, column = np.array(points, dtype=float) / 7, np.array(values) / 7
    states = States(Gaussian(1.0), 1, knots[:, None])
    found = assign(states, column[:, None]).toarray()
    assert (found >= 0).all() and np.allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    order = np.argsort(knots)
    for target in (knots, np.sin(3 * knots)):
        assert np.allclose(found @ target, np.interp(column, knots[order], target[order]), rtol=0, atol=1e-12)
    assert ((found > 0).sum(axis=1) <= 2).all()


@pytest.mark.parametrize("kind", ["plane", "sphere"])
def test_elsewhere_a_value_is_a_convex_combination_of_states_near_it(kind):
    rng = np.random.default_rng(0)
    values = values_of(kind, 400, rng)[0]
    states = choose_states(KERNELS[kind], values, 30)
    found = assign(states, values).toarray()
    assert (found >= 0).all() and np.allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert np.allclose(assign(states, states.points).toarray(), np.eye(30), rtol=0, atol=1e-5)
    apart = np.linalg.norm(values - found @ states.points, axis=1)
    nearest = np.linalg.norm(values[:, None] - states.points, axis=-1).min(axis=1)
    assert apart.mean() < nearest.mean(), "closer than the nearest state alone"


def test_finite_values_are_themselves():
    words = np.array([["a"], ["b"], ["c"]], dtype=object)[:, 0]
    found = assign(States(Delta(), 1, words), np.array(["c", "a", "c"], dtype=object)).toarray()
    assert np.array_equal(found, [[0, 0, 1], [1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("kind", KINDS)
def test_blurs_are_row_stochastic_and_wider_ones_spread_more(kind):
    states = operators_of(fitted(kind)).embeddings["x"].states
    made = blurs(states, WIDTHS)
    for table in made:
        assert (table >= 0).all() and np.allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert np.array_equal(made[0], np.eye(len(states)))
    kept = [np.diag(table).mean() for table in made]
    if kind == "words":
        assert kept == [1.0] * len(WIDTHS)
    else:
        assert (np.diff(kept) < 0).all()


# ---------------------------------------------------------------------- tuning


def prepared(first: np.ndarray, second: np.ndarray, budget: int = 20, symmetric: bool = False):
    """A relation's counts, states and measures, as `Model.fit` makes them."""
    relation = Relation("x", "x" if symmetric else "y", symmetric=symmetric)
    examples, tables = collect({"r": relation}, {"r": (first, second)}, merge=True)
    ends = [examples[relation.first], examples[relation.second]]
    states = tuple(choose_states(Gaussian(1.0), e.values, budget) for e in ends)
    measures = tuple(assign(s, e.values) for s, e in zip(states, ends, strict=True))
    return tables["r"], states, measures


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_score_is_the_held_out_log_density_by_brute_force(symmetric):
    rng = np.random.default_rng(0)
    first = np.round(rng.standard_normal(120), 1)
    table, states, measures = prepared(
        first, np.round(first + 0.4 * rng.standard_normal(120), 1), 8, symmetric
    )
    options = {"symmetric": symmetric, "only_read": False}
    chosen = fit_smoothing(table, states, measures, **options)
    dense = [m.toarray() for m in measures]

    def score(widths: tuple[float, float], share: float) -> float:
        spread = [blurs(s, (w,))[0] for s, w in zip(states, widths, strict=True)]
        total, logs = 0.0, 0.0
        for training, held_out in dealt(table):
            counts = training.toarray()
            joint = sum(
                counts[i, j] * np.outer(dense[0][i], dense[1][j])
                for i, j in zip(*counts.nonzero(), strict=True)
            )
            joint = spread[0].T @ (joint / joint.sum()) @ spread[1]
            left = held_out.toarray()
            for i, j in zip(*left.nonzero(), strict=True):
                ratio = joint / np.outer(joint.sum(axis=1), joint.sum(axis=0))
                value = dense[0][i] @ np.nan_to_num(ratio, nan=1.0) @ dense[1][j]
                logs += left[i, j] * np.log((1 - share) * value + share)
                total += left[i, j]
        return logs / total

    assert chosen.score == pytest.approx(score(chosen.widths, chosen.mixing), abs=1e-10)
    for widths in ((0.0, 0.0), (1.2, 1.2), (4.0, 4.0)):
        for share in SHARES[:2]:
            by_hand = fit_smoothing(table, states, measures, widths=widths, mixing=share, **options)
            assert by_hand == Smoothing(widths, share, None)
            assert score(widths, share) <= chosen.score + 1e-12
    part = fit_smoothing(table, states, measures, widths=(1.2, 1.2), **options)
    assert part.widths == (1.2, 1.2) and part.mixing in SHARES
    assert part.score == pytest.approx(score((1.2, 1.2), part.mixing), abs=1e-10)


def test_folds_deal_out_every_count_once_and_keep_symmetry():
    rng = np.random.default_rng(1)
    first = rng.integers(5, size=200).astype(float)
    table, _, _ = prepared(first, rng.integers(5, size=200).astype(float), symmetric=True)
    folds = dealt(table)
    assert np.array_equal(sum(held.toarray() for _, held in folds), table.toarray())
    for training, held in folds:
        assert np.array_equal((training + held).toarray(), table.toarray())
        assert np.array_equal(held.toarray(), held.toarray().T)
        assert held.sum() == pytest.approx(table.sum() / 3, rel=0.2)


@pytest.mark.parametrize("seed", range(3))
def test_a_smooth_relation_with_few_pairs_is_smoothed(seed):
    rng = np.random.default_rng(seed)
    first = rng.standard_normal(120)
    table, states, measures = prepared(first, 0.8 * first + 0.6 * rng.standard_normal(120), 24)
    chosen = fit_smoothing(table, states, measures, symmetric=False, only_read=False)
    assert min(chosen.widths) > 0
    assert chosen.score > 0, "better than independence"
    plain = fit_smoothing(table, states, measures, symmetric=False, only_read=False, widths=(0.0, 0.0))
    assert chosen.score > plain.score + 0.05


def test_a_sharp_relation_with_many_pairs_on_few_values_is_not_smoothed():
    rng = np.random.default_rng(0)
    first = rng.integers(5, size=20_000)
    second = np.where(
        rng.random(20_000) < 0.8, np.array([3, 0, 4, 1, 2])[first], rng.integers(5, size=20_000)
    )
    table, states, measures = prepared(first.astype(float), second.astype(float))
    chosen = fit_smoothing(table, states, measures, symmetric=False, only_read=False)
    assert chosen.widths == (0.0, 0.0)
    assert chosen.mixing == min(SHARES)


def test_independent_values_are_told_to_be():
    rng = np.random.default_rng(0)
    table, states, measures = prepared(rng.standard_normal(300), rng.standard_normal(300))
    chosen = fit_smoothing(table, states, measures, symmetric=False, only_read=False)
    assert abs(chosen.score) < 0.05
    assert chosen.mixing == max(SHARES) or max(chosen.widths) == max(WIDTHS)


def test_the_conditional_density_integrates_to_one():
    """p(y | x) = p(y) w(x)' R w(y): with a base measure whose mean measure is the table's own second margin."""
    rng = np.random.default_rng(2)
    first = rng.standard_normal(2000)
    table, states, measures = prepared(first, np.sin(first) + 0.3 * rng.standard_normal(2000))
    for widths in ((0.0, 0.0), (1.2, 0.8)):
        spread = [blurs(s, (w,))[0] for s, w in zip(states, widths, strict=True)]
        ratio = density_ratio(smoothed_joint(joint_table(table, *measures), *spread), 0.05)
        at = assign(states[0], np.linspace(-2, 2, 9)[:, None])
        # The base measure as a sample: training values, each moved to a state its blur leads to.
        counts = np.asarray(table.sum(axis=0)).ravel() / table.sum()
        margin = measures[1].T @ counts @ spread[1]
        total = at @ ratio @ margin
        assert np.allclose(total, 1.0, rtol=0, atol=1e-12)
        unmoved = at @ ratio @ (measures[1].T @ counts)
        assert np.allclose(unmoved, 1.0, atol=1e-12 if widths == (0.0, 0.0) else 0.1)


def test_the_density_of_a_neighbour_integrates_to_one_over_the_line():
    rng = np.random.default_rng(3)
    first = rng.standard_normal(1500)
    model = Model({"x": Gaussian(0.5)}, {"then": Relation("x", "x")}).fit(
        {"then": (first, 0.8 * first + 0.6 * rng.standard_normal(1500))}
    )
    line = np.linspace(-8, 8, 4001)
    for value in (-1.5, 0.0, 1.0):
        beliefs = model.infer(Graph.chain(2, variable="x", relation="then").fix([0], [value]))
        density = beliefs.density(line)[1]
        assert (density >= 0).all()
        assert np.trapezoid(density, line) == pytest.approx(1.0, abs=2e-3)
        assert np.trapezoid(density * line, line) == pytest.approx(0.8 * value, abs=0.15)


# ---------------------------------------------------------------------- as the model shows it


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [3, 17])
def test_a_budget_is_kept_except_by_finite_values(kind, budget):
    first, second = values_of(kind, 400, np.random.default_rng(0))
    model = Model({"x": KERNELS[kind]}, {"r": Relation("x", "x")}, budget=budget).fit({"r": (first, second)})
    found = len(model.support("x"))
    assert found == model.settings_["variables"]["x"]["states"]
    assert found == (4 if kind == "words" else budget)


def test_the_default_budget_grows_slowly_with_the_number_of_pairs():
    rng = np.random.default_rng(0)
    found = []
    for count in (100, 3000, 60_000):
        first = rng.standard_normal(count)
        model = Model({"x": Gaussian(0.3)}, {"r": Relation("x", "x")}, mixing=0.1, max_rank=20).fit(
            {"r": (first, first + 0.1)}
        )
        found.append(len(model.support("x")))
    assert 16 <= found[0] < found[1] < found[2] <= 64


def test_settings_show_what_was_chosen_and_can_be_fixed_by_hand():
    first, second = values_of("scalar", 300, np.random.default_rng(1))
    chosen = Model({"x": Gaussian(0.5)}, {"r": Relation("x", "x")}).fit({"r": (first, second)})
    shown = chosen.settings_["relations"]["r"]
    assert set(shown["smoothing"]) <= set(WIDTHS) and shown["mixing"] in SHARES and shown["score"] > 0
    assert shown["pairs"] == 300
    given = Model({"x": Gaussian(0.5)}, {"r": Relation("x", "x")}, mixing=0.37).fit({"r": (first, second)})
    assert given.settings_["relations"]["r"]["mixing"] == 0.37
    operators = operators_of(given)
    least = operators.ratio("r", 0).min()
    assert least >= 0.37, "no ratio can fall under the share of independence"


@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(bad):
    model = Model({"x": Delta()}, {"r": Relation("x", "x")}, mixing=bad)
    with pytest.raises(InputError, match="mixing: expected a number from 0 to 1, got"):
        model.fit({"r": ([0, 1], [1, 0])})


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_readings_that_are_all_alike_leave_far_states_out():
    """The blur of a single reading fades to less than the smallest number at the states farthest from it."""
    rng = np.random.default_rng(0)
    hidden = rng.choice(np.linspace(0, 1, 48), 200)
    relations = {name: Relation("a", "r", evidence="likelihood") for name in ("alike", "even")}
    model = Model({"a": Gaussian(), "r": Gaussian()}, relations, budget=48)
    model.fit({"alike": (hidden, np.full(200, 0.5)), "even": (hidden, np.linspace(0, 1, 200))})
    assert np.isfinite(model.settings_["relations"]["alike"]["score"])
