"""Beliefs hold the truth as often as they say, and training graphs settle what pairs cannot."""

from __future__ import annotations

import warnings
from copy import copy
from functools import cache

import networkx as nx
import numpy as np
import pytest

from kernelbp import Graph, Model, Relation
from kernelbp.calibration import (
    MIXINGS,
    STOPS,
    TEMPERATURES,
    WEIGHT_SCALES,
    GraphCalibration,
    inferences_needed,
)
from kernelbp.datasets import grid_pairs, sunset
from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.kernels import Delta, Gaussian
from kernelbp.learning.operators import ProbabilityOperators
from kernelbp.learning.probability import assign

# ---------------------------------------------------------------------- data drawn from the learned model


@cache
def learned() -> Model:
    rng = np.random.default_rng(0)
    first = rng.standard_normal(4000)
    second = 0.8 * first + 0.6 * rng.standard_normal(4000)
    both = np.concatenate([first, second])
    return Model(
        {"x": Gaussian(0.4), "y": Gaussian(0.4)},
        {"beside": Relation("x", "x", symmetric=True), "read": Relation("x", "y", evidence="likelihood")},
    ).fit({"beside": (first, second), "read": (both, both + 0.7 * rng.standard_normal(8000))})


class Drawn:
    """A tree whose values and readings are drawn, root to leaves, from the model's own tables."""

    def __init__(self, tree: nx.Graph, seed: int, share_read: float = 0.7) -> None:
        self.rng = np.random.default_rng(seed)
        model = learned()
        operators = model._made_operators("constant", "probability")
        assert isinstance(operators, ProbabilityOperators)
        onward = operators.conditional("beside", 0).matrix()  # the sender's states, given the receiver's
        states = np.empty(len(tree), dtype=int)
        prior = operators.relations["beside"].joint.sum(axis=1)
        states[0] = self.rng.choice(len(prior), p=prior)
        for parent, child in nx.bfs_edges(tree, 0):
            states[child] = self.rng.choice(len(prior), p=onward[states[parent]])
        self.values = self.within("x", operators, states)
        readings = self.read(operators, states)
        readings[self.rng.random(len(tree)) > share_read] = np.nan
        edges = np.array(tree.edges)
        self.graph = Graph.from_edges(edges, variables=["x"] * len(tree), relation="beside")
        self.graph = self.graph.observe("read", readings)

    def read(self, operators: ProbabilityOperators, states: np.ndarray) -> np.ndarray:
        """A reading of each state: density p(y) times the ratio p(y | s) / p(y) that evidence is."""
        fitted = learned()._fitted
        assert fitted is not None
        marginal = fitted.marginals["y"]
        share = operators.evidence("read", 0, marginal.atoms) * marginal.weights[:, None]
        share /= share.sum(axis=0)
        chosen = np.array([self.rng.choice(len(share), p=share[:, state]) for state in states])
        return marginal.atoms[chosen, 0]

    def within(self, variable: str, operators: ProbabilityOperators, states: np.ndarray) -> np.ndarray:
        """A value for each state, as the marginal has them there: density p(x) w_s(x)."""
        fitted = learned()._fitted
        assert fitted is not None
        marginal = fitted.marginals[variable]
        share = assign(operators.embeddings[variable].states, marginal.atoms).toarray()
        share *= marginal.weights[:, None]
        share /= share.sum(axis=0)
        chosen = np.array([self.rng.choice(len(share), p=share[:, state]) for state in states])
        return marginal.atoms[chosen, 0]


TREES = {
    "chain": lambda seed: nx.path_graph(2500),
    "random tree": lambda seed: nx.random_labeled_tree(2500, seed=seed),
    "binary tree": lambda seed: nx.balanced_tree(2, 10),
}


@pytest.mark.parametrize("name", TREES)
def test_intervals_hold_what_was_drawn_as_often_as_they_say(name):
    drawn = Drawn(TREES[name](1), seed=len(name))
    beliefs = learned().infer(drawn.graph)
    for coverage, tolerance in ((0.9, 0.03), (0.5, 0.05)):
        low, high = beliefs.interval(coverage).T
        held = np.mean((low <= drawn.values) & (drawn.values <= high))
        assert abs(held - coverage) < tolerance
    standard = (drawn.values - beliefs.mean()) / beliefs.std()
    assert np.mean(standard**2) == pytest.approx(1.0, abs=0.12)


def test_the_true_value_ranks_evenly_in_its_belief():
    """The share of each belief below the truth is uniform: as many in every tenth."""
    drawn = Drawn(TREES["random tree"](3), seed=3)
    cut = learned().infer(drawn.graph).quantile(np.linspace(0.1, 0.9, 9))
    tenth = (drawn.values[:, None] > cut).sum(axis=1)
    counts = np.bincount(tenth, minlength=10) / len(tenth)
    assert np.abs(counts - 0.1).max() < 0.03


# ---------------------------------------------------------------------- training graphs


SHAPE = (14, 14)


def picture(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth random picture with edges, and a noisy reading of it."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0 : SHAPE[0], 0 : SHAPE[1]] / 6.0
    phase = rng.uniform(0, 6, 3)
    clean = np.sin(rows + phase[0]) + np.cos(columns + phase[1]) + (rows + columns > phase[2])
    return np.round(clean, 2), np.round(clean + 0.8 * rng.standard_normal(SHAPE), 2)


def pairs() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    clean, noisy = (np.stack(side) for side in zip(*map(picture, range(8)), strict=True))
    beside = [(clean[:, 1:], clean[:, :-1]), (clean[:, :, 1:], clean[:, :, :-1])]
    return {
        "beside": tuple(np.concatenate([part[i].ravel() for part in beside]) for i in (0, 1)),
        "read": (clean.ravel(), noisy.ravel()),
    }


def scene(seed: int) -> tuple[Graph, np.ndarray]:
    clean, noisy = picture(seed)
    graph = Graph.grid(SHAPE, variable="x", relation="beside").observe("read", noisy.ravel())
    return graph, clean.ravel()


def unfitted(**settings) -> Model:
    return Model(
        {"x": Gaussian(0.4), "y": Gaussian(0.4)},
        {"beside": Relation("x", "x", symmetric=True), "read": Relation("x", "y", evidence="likelihood")},
        budget=20,
        **settings,
    )


@cache
def by_pairs() -> Model:
    return unfitted().fit(pairs())


@cache
def by_graphs() -> Model:
    return unfitted().fit(pairs(), graphs=[scene(100), scene(101)])


def log_density(model: Model, seeds: range) -> float:
    """Mean log-density of the true values: a proper score, in nats a node."""
    logs = []
    for seed in seeds:
        graph, truth = scene(seed)
        points, place = np.unique(truth, return_inverse=True)
        density = model.infer(graph).density(points)
        logs.append(np.log(density[np.arange(len(truth)), place]))
    return float(np.mean(logs))


def test_pairs_alone_calibrate_nothing():
    shown = by_pairs().settings_["calibration"]
    assert shown == {
        "mixing": None,
        "weight_scale": 1.0,
        "temperature": 1.0,
        "score": None,
        "iterations": None,
    }


def test_training_graphs_set_mixing_weights_and_temperature():
    shown = by_graphs().settings_["calibration"]
    assert shown["mixing"] in MIXINGS
    assert shown["weight_scale"] in WEIGHT_SCALES
    assert shown["temperature"] in TEMPERATURES
    assert by_graphs().settings_["relations"] == by_pairs().settings_["relations"]


def states_and_masses(
    model: Model, seed: int, temperature: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The states in ascending order, the beliefs' masses there, and each true value held to their range."""
    graph, truth = scene(seed)
    beliefs = model.infer(graph)
    knots = model.support("x")
    prior = model._made_operators("constant", "probability").support_weights("x")
    mass = np.exp(beliefs["x"].log_products_at_support() / temperature) * prior
    order = np.argsort(knots)
    mass = (mass / mass.sum(axis=1, keepdims=True))[:, order]
    return knots[order], mass, np.clip(truth, knots.min(), knots.max())


def log_error_of_the_mean(temperature: float) -> float:
    """Of the root mean square, averaged over the training graphs."""
    errors = []
    for seed in (100, 101):
        knots, mass, truth = states_and_masses(by_graphs(), seed, temperature)
        errors.append(np.sqrt(np.mean((mass @ knots - truth) ** 2)))
    return float(np.mean(np.log(errors)))


def test_the_score_on_numbers_is_the_logarithm_of_the_error_of_the_mean_by_graph():
    shown = by_graphs().settings_["calibration"]
    assert shown["score"] == pytest.approx(-log_error_of_the_mean(shown["temperature"]), abs=1e-4)


def test_the_temperature_on_numbers_has_the_least_error_of_the_mean():
    chosen = by_graphs().settings_["calibration"]["temperature"]
    assert chosen == min(TEMPERATURES, key=log_error_of_the_mean)


def test_the_score_on_finite_values_is_the_log_probability_of_the_truth():
    model, data, graph = several_variables()
    model.fit(data, graphs=[(graph, {"n": [0, 1], "w": ["a"]})])
    beliefs = model.infer(graph)
    found = [*beliefs["n"].density([0, 1])[[0, 1], [0, 1]], beliefs["w"].density(["a"])[0, 0]]
    assert model.settings_["calibration"]["score"] == pytest.approx(np.mean(np.log(found)), abs=1e-4)


def test_held_out_graphs_score_no_worse_than_with_the_defaults():
    before, after = log_density(by_pairs(), range(200, 206)), log_density(by_graphs(), range(200, 206))
    assert after > before - 0.02
    errors = [
        np.mean(
            [
                np.mean((model.infer(graph).mean() - truth) ** 2)
                for graph, truth in map(scene, range(200, 206))
            ]
        )
        for model in (by_pairs(), by_graphs())
    ]
    assert errors[1] < 1.02 * errors[0]


def drawn_picture(seed: int) -> tuple[Graph, np.ndarray]:
    """A disc of gray rings, which no relation of neighbours alone describes, with noise."""
    clean, noisy = sunset(40, 30, noise=30.0, seed=seed)
    graph = Graph.grid(clean.shape, variable="x", relation="beside").observe("read", noisy.ravel())
    return graph, clean.ravel()


@cache
def of_pictures() -> Model:
    graph, truth = drawn_picture(0)
    clean = truth.reshape(30, 30)
    readings = graph.evidence[0].values[:, 0]
    model = Model(
        {"x": Gaussian(), "y": Gaussian()},
        {"beside": Relation("x", "x", symmetric=True), "read": Relation("x", "y")},
    )
    return model.fit({"beside": grid_pairs(clean), "read": (truth, readings)}, graphs=[(graph, truth)])


def test_inference_stops_where_beliefs_of_training_graphs_were_best():
    model = of_pictures()
    stop = model.settings_["calibration"]["iterations"]
    assert stop in STOPS
    graph, truth = drawn_picture(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped, settled = model.infer(graph), model.infer(graph, tolerance=1e-3)
    assert (stopped.iterations, stopped.converged) == (stop, False)
    assert settled.converged
    errors = [np.sqrt(np.mean((beliefs.mean() - truth) ** 2)) for beliefs in (stopped, settled)]
    assert errors[0] < 0.98 * errors[1]


def test_where_it_may_not_stop_inference_settles():
    model = copy(of_pictures()).calibrate([drawn_picture(0)], stopping=False)
    assert of_pictures().calibration_.iterations is not None
    assert model.calibration_.iterations is None
    assert model.infer(drawn_picture(1)[0]).converged


def test_training_on_trees_tries_no_stops(monkeypatch):
    asked = []
    infer = Model.infer
    monkeypatch.setattr(Model, "infer", lambda self, graph: asked.append(graph) or infer(self, graph))
    chain = Graph.chain(30, variable="x", relation="beside")
    truth = np.sin(np.arange(30.0))
    model = unfitted().fit(pairs(), graphs=[(chain.observe("read", truth + 0.1), truth)])
    assert model.settings_["calibration"]["iterations"] is None
    assert len(asked) == len(MIXINGS) + len(WEIGHT_SCALES) - 1


def test_no_more_inferences_are_run_than_were_told(monkeypatch):
    asked = []
    infer = Model.infer
    monkeypatch.setattr(Model, "infer", lambda self, graph: asked.append(graph) or infer(self, graph))
    for stopping in (True, False):
        asked.clear()
        copy(of_pictures()).calibrate([drawn_picture(0)], stopping=stopping)
        assert len(asked) <= inferences_needed(1, stopping=stopping)


def test_a_tree_is_not_stopped_short():
    model = of_pictures()
    chain = Graph.chain(40, variable="x", relation="beside").observe("read", np.linspace(0, 255, 40))
    assert model.infer(chain).converged


@pytest.mark.parametrize(
    "given", [{}, {"damping": 0.3}, {"weighting": "tree-reweighted"}, {"tolerance": 1e-2}]
)
def test_who_says_how_to_run_is_not_stopped(given):
    with pytest.warns(ConvergenceWarning):
        beliefs = of_pictures().infer(drawn_picture(1)[0], **{"max_iterations": 3, **given})
    assert beliefs.iterations == 3


def test_the_stop_is_stored(tmp_path):
    model = of_pictures()
    model.save(tmp_path / "model.kbp")
    again = Model.load(tmp_path / "model.kbp")
    assert again.settings_["calibration"] == model.settings_["calibration"]
    graph, _ = drawn_picture(1)
    np.testing.assert_array_equal(again.infer(graph).mean(), model.infer(graph).mean())


def test_missing_true_values_are_left_out():
    graph, truth = scene(100)
    hidden = truth.copy()
    hidden[::2] = np.nan
    chosen = unfitted().fit(pairs(), graphs=[(graph, hidden)]).settings_["calibration"]
    assert chosen["mixing"] in MIXINGS and np.isfinite(chosen["score"])


class Stopped(Exception):
    pass


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
def test_an_interrupted_calibration_leaves_the_model_as_pairs_made_it(monkeypatch, error):
    model, told = unfitted(), []

    def stop_at_third(graph):
        told.append(graph)
        if len(told) == 3:
            raise error
        return Model.infer(model, graph)

    with monkeypatch.context() as patched:
        patched.setattr(model, "infer", stop_at_third)
        with pytest.raises(error):
            model.fit(pairs(), graphs=[scene(100)])
    assert model.settings_ == by_pairs().settings_
    graph, _ = scene(200)
    assert np.array_equal(model.infer(graph).mean(), by_pairs().infer(graph).mean())


def test_fitting_again_without_graphs_forgets_them():
    model = unfitted().fit(pairs(), graphs=[scene(100)])
    assert model.settings_["calibration"]["score"] is not None
    model.fit(pairs())
    assert model.settings_ == by_pairs().settings_


def test_a_calibration_can_be_taken_back():
    """What pairs chose is kept beside what graphs choose."""
    graph, _ = scene(200)
    model = by_pairs().with_calibration(GraphCalibration(mixing=0.1))
    assert model.settings_["relations"] == by_pairs().settings_["relations"]
    assert not np.allclose(model.infer(graph).mean(), by_pairs().infer(graph).mean(), atol=1e-3)
    back = model.with_calibration(GraphCalibration())
    assert np.array_equal(back.infer(graph).mean(), by_pairs().infer(graph).mean())


def test_calibrating_twice_is_calibrating_once():
    model = unfitted().fit(pairs(), graphs=[scene(100)])
    once = model.calibration_
    assert model.calibrate([scene(100)]).calibration_ == once


def test_temperature_flattens_beliefs():
    """Twice the temperature is the square root of evidence times messages, under the same marginal."""
    graph, _ = scene(200)
    model = unfitted().fit(pairs())
    before = model.infer(graph)
    model._apply(model._fitted, GraphCalibration(temperature=2.0))
    after = model.infer(graph)
    assert (after.std() > before.std()).mean() > 0.9
    assert np.allclose(after["x"].log_products_at_support(), before["x"].log_products_at_support(), atol=1e-5)


@pytest.mark.parametrize("scale", WEIGHT_SCALES)
def test_a_factor_scales_the_weights_up_to_one(scale):
    graph, _ = scene(200)
    plain = by_pairs().infer(graph)._source.state.weights[0]
    model = unfitted().fit(pairs())
    model._apply(model._fitted, GraphCalibration(weight_scale=scale))
    found = model.infer(graph)._source.state.weights[0]
    assert np.allclose(found, np.minimum(scale * plain, 1.0), rtol=1e-6)


# ---------------------------------------------------------------------- what is refused


def test_true_values_of_another_length_are_refused():
    graph, truth = scene(100)
    with pytest.raises(
        InputError, match="graphs: expected a true value for each of the 196 nodes of 'x', got 195"
    ):
        unfitted().fit(pairs(), graphs=[(graph, truth[:-1])])


def several_variables() -> tuple[Model, dict, Graph]:
    rng = np.random.default_rng(0)
    first = rng.integers(3, size=300)
    words = np.array(["a", "b"])[(first + (rng.random(300) < 0.3)) % 2]
    model = Model({"n": Delta(), "w": Delta()}, {"r": Relation("n", "w"), "back": Relation("w", "n")})
    graph = Graph.from_edges([(0, 1, "r"), (2, 1, "r")], variables=["n", "w", "n"]).soften(
        [0], [0, 1, 2], [1.0, 0.2, 0.1]
    )
    return model, {"r": (first, words), "back": (words, first)}, graph


def test_several_variables_need_a_mapping():
    model, data, graph = several_variables()
    with pytest.raises(
        InputError,
        match="graphs: with several variables, give true values as a mapping from variable to values",
    ):
        model.fit(data, graphs=[(graph, [0, "a", 1])])
    model.fit(data, graphs=[(graph, {"n": [0, 1], "w": ["a"]})])
    assert model.settings_["calibration"]["mixing"] in MIXINGS
    with pytest.raises(InputError, match="variable: no node of 'z'; this graph has n, w"):
        model.fit(data, graphs=[(graph, {"z": [1]})])
