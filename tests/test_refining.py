"""Tables refined through inference: the gradient is that of the error, and other noise gains by it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from kernelbp import Graph, Model, Relation
from kernelbp.calibration import STOPPED_DAMPING, GraphCalibration, _known_nodes
from kernelbp.datasets import grid_pairs, sunset
from kernelbp.errors import UnsupportedError
from kernelbp.inference.beliefs import Beliefs
from kernelbp.kernels import Delta, Gaussian
from kernelbp.learning.operators import ProbabilityOperators
from kernelbp.refining import KnownNodes, Refined, _Tables, _Unrolled, can_refine, refine

STOPPED = GraphCalibration(mixing=0.01, weight_scale=1.05, temperature=0.8, iterations=4)

# ---------------------------------------------------------------------- problems


def numbers() -> tuple[Model, Graph, np.ndarray]:
    """A grid with one relation to the right and another below."""
    clean, noisy = sunset(20, size=14, noise=20.0, seed=3)
    model = Model(
        {"x": Gaussian(), "y": Gaussian()},
        {
            "beside": Relation("x", "x", symmetric=True),
            "below": Relation("x", "x"),
            "read": Relation("x", "y"),
        },
        budget=8,
    ).fit(
        {
            "beside": grid_pairs(clean, axis=1),
            "below": (clean[:-1].ravel(), clean[1:].ravel()),
            "read": (clean.ravel(), noisy.ravel()),
        }
    )
    graph = Graph.grid(clean.shape, variable="x", relation={"right": "beside", "down": "below"})
    return model, graph.observe("read", noisy.ravel()), clean.ravel()


def labels() -> tuple[Model, Graph, np.ndarray]:
    """A grid of three labels, some unknown, and words that hint at them."""
    rng = np.random.default_rng(0)
    truth = np.array(["a", "b", "c"])[np.indices((12, 12)).sum(axis=0) // 4 % 3]
    words = np.where(rng.random(truth.shape) < 0.6, truth, rng.choice(["a", "b", "c"], truth.shape))
    model = Model(
        {"x": Delta(), "y": Delta()},
        {"beside": Relation("x", "x", symmetric=True), "read": Relation("x", "y")},
    ).fit(
        {
            "beside": (
                np.concatenate([truth[:-1].ravel(), truth[:, :-1].ravel()]),
                np.concatenate([truth[1:].ravel(), truth[:, 1:].ravel()]),
            ),
            "read": (truth.ravel(), words.ravel()),
        }
    )
    graph = Graph.grid(truth.shape, variable="x", relation="beside").observe("read", words.ravel())
    known = truth.ravel().astype(object)
    known[::5] = None
    return model, graph, known


def started(make) -> tuple[Beliefs, list[KnownNodes]]:
    model, graph, truth = make()
    beliefs = model.with_calibration(STOPPED).infer(graph)
    operators = beliefs._source.operators
    assert isinstance(operators, ProbabilityOperators)
    return beliefs, _known_nodes(graph, truth, operators)


def unrolled(make) -> tuple[Beliefs, _Unrolled, _Tables]:
    beliefs, truth = started(make)
    operators = beliefs._source.operators
    used = sorted({relation for relation, _ in beliefs._source.wiring.operators})
    tables = _Tables(
        {name: operators.relations[name].joint for name in used},
        {name: operators.mixings[name] for name in used},
        frozenset({"beside"}),
    )
    return beliefs, _Unrolled(beliefs, truth, STOPPED.iterations, STOPPED_DAMPING), tables


# ---------------------------------------------------------------------- the gradient


@pytest.mark.parametrize("make", [numbers, labels])
def test_tables_are_those_of_inference(make):
    beliefs, problem, tables = unrolled(make)
    operators = beliefs._source.operators
    for key in problem.operators:
        np.testing.assert_allclose(tables.conditional(*key), operators.conditional(*key).matrix(), rtol=1e-9)


@pytest.mark.parametrize("make", [numbers, labels])
def test_messages_are_those_of_inference(make):
    beliefs, problem, tables = unrolled(make)
    made = [tables.conditional(*key).astype(np.float32) for key in problem.operators]
    messages, _ = problem._run(made, np.float32(1))
    for found, theirs in zip(messages, beliefs._source.state.messages, strict=True):
        np.testing.assert_allclose(np.exp(found), theirs, atol=2e-5)


@pytest.mark.parametrize("make", [numbers, labels])
def test_the_gradient_is_that_of_finite_differences(make):
    _, problem, start = unrolled(make)
    rng = np.random.default_rng(1)
    ways = {name: rng.standard_normal(joint.shape) for name, joint in start.joints.items()}
    ways["beside"] = ways["beside"] + ways["beside"].T
    tables, power, heat = start.changed({name: 0.1 * way for name, way in ways.items()}), 0.8, 1.2

    def loss(along: float = 0.0, of_power: float = 0.0, of_heat: float = 0.0) -> float:
        moved = tables.changed({name: along * way for name, way in ways.items()})
        return problem.loss(moved, power + of_power, heat + of_heat, slopes=False).loss

    found = problem.loss(tables, power, heat)
    along = sum(
        float((tables.pulled(*key, slope) * tables.joints[key[0]] * ways[key[0]]).sum())
        for key, slope in found.of_tables.items()
    )
    step = 3e-3
    slopes = [
        (loss(**{name: step}) - loss(**{name: -step})) / (2 * step)
        for name in ("along", "of_power", "of_heat")
    ]
    np.testing.assert_allclose([along, found.of_power, found.of_temperature], slopes, rtol=0.02, atol=2e-4)
    assert max(map(abs, slopes)) > 0.01  # there is something to find


def test_the_loss_is_the_score_of_calibration():
    model, graph, truth = numbers()
    beliefs, problem, tables = unrolled(numbers)
    states = np.asarray(model.support("x"))
    logs = beliefs["x"].log_products_at_support() / 0.8 + np.log(
        beliefs._source.operators.support_weights("x")
    )
    mass = np.exp(logs - logs.max(axis=1, keepdims=True))
    mean = mass @ states / mass.sum(axis=1)
    (known,) = _known_nodes(graph, truth, beliefs._source.operators)
    error = np.sqrt(np.mean((mean - known.values) ** 2))
    assert problem.loss(tables, 1.0, 0.8, slopes=False).loss == pytest.approx(np.log(error), rel=1e-4)


# ---------------------------------------------------------------------- what is gained


def picture(seed: int) -> tuple[Graph, np.ndarray]:
    clean, noisy = sunset(60, size=50, noise=30.0, seed=seed)
    graph = Graph.grid(clean.shape, variable="x", relation="beside").observe("read", noisy.ravel())
    return graph, clean.ravel()


@cache
def fitted() -> Model:
    graph, truth = picture(0)
    model = Model(
        {"x": Gaussian(), "y": Gaussian()},
        {"beside": Relation("x", "x", symmetric=True), "read": Relation("x", "y")},
    )
    return model.fit(
        {
            "beside": grid_pairs(truth.reshape(50, 50)),
            "read": (truth, graph.evidence[0].values[:, 0]),
        },
        graphs=[(graph, truth)],
    )


def error_of(model: Model, seed: int) -> float:
    graph, truth = picture(seed)
    return float(np.sqrt(np.mean((model.infer(graph).mean() - truth) ** 2)))


@cache
def as_counted() -> Model:
    """The same settings with the tables that pairs made."""
    return copy(fitted()).calibrate([picture(0)], refining=False)


def test_other_noise_is_cleaned_better_than_by_counted_tables():
    ours, plain = fitted(), as_counted()
    assert ours.settings_["refined"]["relations"] == ["beside"] and plain.settings_["refined"] is None
    assert ours.calibration_ == plain.calibration_
    errors = np.array([[error_of(model, seed) for seed in range(1, 5)] for model in (ours, plain)])
    assert errors[0].mean() < 0.98 * errors[1].mean()


def test_the_score_is_that_of_inference_with_what_was_refined():
    """Beliefs are read at the states for it, so it is put together from their products."""
    graph, truth = picture(0)
    refined = fitted()._fitted.refined
    beliefs = fitted().infer(graph)
    operators = beliefs._source.operators
    (known,) = _known_nodes(graph, truth, operators)
    logs = beliefs["x"].log_products_at_support() / refined.temperature
    mass = np.exp(logs) * operators.support_weights("x")
    mean = mass @ operators.support("x")[:, 0] / mass.sum(axis=1)
    assert refined.score == pytest.approx(-np.log(np.sqrt(np.mean((mean - known.values) ** 2))), abs=1e-3)
    assert refined.score > fitted().calibration_.score + 0.01


def test_refined_tables_are_probabilities_and_stay_symmetric():
    (joint,) = fitted()._fitted.refined.joints.values()
    assert joint.sum() == pytest.approx(1) and (joint >= 0).all()
    np.testing.assert_allclose(joint, joint.T, rtol=1e-9)


def test_refining_is_the_same_every_time():
    graph, truth = picture(0)
    again = copy(fitted()).calibrate([(graph, truth)])
    assert again.settings_["refined"] == fitted().settings_["refined"]
    np.testing.assert_array_equal(
        again._fitted.refined.joints["beside"], fitted()._fitted.refined.joints["beside"]
    )


def test_where_inference_does_not_stop_tables_are_as_counted():
    graph, _ = picture(1)
    ours, plain = fitted(), as_counted()
    assert not np.array_equal(ours.infer(graph).mean(), plain.infer(graph).mean())
    np.testing.assert_array_equal(
        ours.infer(graph, tolerance=1e-3).mean(), plain.infer(graph, tolerance=1e-3).mean()
    )
    chain = Graph.chain(40, variable="x", relation="beside").observe("read", np.linspace(0, 255, 40))
    np.testing.assert_array_equal(ours.infer(chain).mean(), plain.infer(chain).mean())


def test_few_known_values_refine_nothing():
    assert not can_refine([started(numbers)], 4)
    assert not can_refine([started(labels)], 4)


def enough() -> list[KnownNodes]:
    return [KnownNodes("x", np.arange(5000), None, None)]  # type: ignore[arg-type]


def test_where_evidence_comes_through_a_relation_it_is_not_refined():
    model, graph, _ = numbers()
    known = graph.fix([0], [100.0])
    for one, refinable in ((graph, True), (known, False)):
        beliefs = model.with_calibration(STOPPED).infer(one)
        assert can_refine([(beliefs, enough())], 4) is refinable


def test_trees_among_training_graphs_are_left_out():
    graph, truth = picture(0)
    line = np.linspace(0, 255, 60)
    chain = Graph.chain(60, variable="x", relation="beside").observe("read", line)
    both = copy(fitted()).calibrate([(chain, line), (graph, truth)])
    assert both.calibration_.iterations is not None
    # Of the grid alone: the chain, which its two passes infer exactly, would have raised it.
    assert both.settings_["refined"]["score"] < both.calibration_.score - 0.1


def test_several_graphs_are_learned_from_together():
    beliefs = [started(numbers), started(numbers)]
    options = {"iterations": 4, "damping": 0.5, "temperature": 1.0}
    notes: list[str] = []
    one = refine(beliefs[:1], **options, step=notes.append)
    two = refine(beliefs, **options, step=notes.append)
    assert one is not None and two is not None and notes
    # The same graph twice says twice as much beside the same counts: tables go further.
    assert two.score > one.score


def test_known_relations_are_not_refined():
    model, graph, truth = numbers()
    model.relations["below"] = Relation("x", "x", potential=lambda x, y: np.exp(-((x - y) ** 2) / 800))
    clean = truth.reshape(14, 14)
    readings = graph.evidence[0].values[:, 0]
    model.fit({"beside": grid_pairs(clean, axis=1), "read": (truth, readings)})
    beliefs = model.with_calibration(STOPPED).infer(graph)
    assert not can_refine([(beliefs, enough())], 4)


def test_what_gains_nothing_is_not_taken(monkeypatch):
    monkeypatch.setattr("kernelbp.refining.WORTH_REFINING", 10.0)
    beliefs, truth = started(numbers)
    assert refine([(beliefs, truth)], iterations=4, damping=0.5, temperature=1.0, step=lambda _: None) is None


# ---------------------------------------------------------------------- kept


def test_a_refined_model_is_stored(tmp_path):
    fitted().save(tmp_path / "model.kbp")
    again = Model.load(tmp_path / "model.kbp")
    graph, _ = picture(1)
    np.testing.assert_array_equal(again.infer(graph).mean(), fitted().infer(graph).mean())


def test_its_own_calibration_keeps_the_tables_and_another_does_not():
    graph, _ = picture(1)
    same = fitted().with_calibration(fitted().calibration_)
    np.testing.assert_array_equal(same.infer(graph).mean(), fitted().infer(graph).mean())
    assert fitted().with_calibration(GraphCalibration())._fitted.refined is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("joints", {"beside": np.ones((2, 2))}, "refined table does not fit"),
        ("joints", {"elsewhere": np.ones((2, 2))}, "refined that was not learned"),
        ("power", 0.0, "power, temperature or score"),
        ("temperature", np.nan, "power, temperature or score"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, field, value, message):
    model = copy(fitted())
    model._apply(model._fitted, model.calibration_, replace(model._fitted.refined, **{field: value}))
    with pytest.raises(UnsupportedError, match=message):
        model.save(tmp_path / "model.kbp")


# ---------------------------------------------------------------------- the power of the evidence


@pytest.mark.parametrize("variant", ["learned", "known"])
def test_a_power_raises_what_readings_and_likelihoods_say(variant):
    """Of one node among others that say nothing: its belief is the marginal times the evidence to that power."""
    model, graph, _ = numbers()
    graph = Graph.grid((3, 3), variable="x", relation={"right": "beside", "down": "below"})
    if variant == "learned":
        graph = graph.observe("read", [90.0], nodes=[4])
    else:
        points = np.asarray(model.support("x"))
        graph = graph.soften([4], points, np.exp(-((points - 90) ** 2) / 2000)[None])
    loose = GraphCalibration(mixing=1.0, iterations=3)
    points = np.asarray(model.support("x"))
    found = []
    for power in (1.0, 2.0):
        raised = copy(model)
        raised._apply(model._fitted, loose, Refined({}, power, 1.0, 0.0))
        found.append(raised.infer(graph).density(points)[4])
    prior = model.with_calibration(loose).infer(graph).density(points)[0]
    wanted = (found[0] / prior) ** 2 * prior
    np.testing.assert_allclose(found[1] / found[1].sum(), wanted / wanted.sum(), rtol=2e-3, atol=1e-6)


def test_many_nodes_are_read_as_few_are():
    """The compiled way to read beliefs and the plain one see the same raised evidence."""
    graph, _ = picture(1)
    beliefs = fitted().infer(graph)
    assert fitted().settings_["refined"]["evidence power"] != 1
    whole = beliefs.mean()
    points = np.asarray(fitted()._fitted.marginals["x"].atoms[:, 0])
    weights = fitted()._fitted.marginals["x"].weights
    logs = np.concatenate([block for _, block in beliefs["x"]._log_products(points[:, None], np.arange(20))])
    mass = np.exp(logs - logs.max(axis=1, keepdims=True)) * weights
    np.testing.assert_allclose(whole[:20], mass @ points / mass.sum(axis=1), rtol=1e-3, atol=0.05)
