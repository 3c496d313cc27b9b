"""Copies of a fitted model that know one more relation, or infer under other settings."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.calibration import GraphCalibration
from kernelbp.errors import InputError, NotFittedError


def off_by(sigma):
    def potential(x, reading):
        return np.exp(-((x - reading) ** 2) / (2 * sigma**2))

    return kb.Relation("x", "x", potential=potential)


def steps(n=2000, seed=0):
    x = np.random.default_rng(seed).normal(size=n)
    return x, 0.8 * x + 0.6 * np.random.default_rng(seed + 1).normal(size=n)


VARIABLES = {"x": kb.kernels.Gaussian()}
THEN = {"then": kb.Relation("x", "x")}


@pytest.fixture(scope="module")
def model():
    return kb.Model(VARIABLES, THEN).fit({"then": steps()})


def chain(readings):
    return kb.Graph.chain(len(readings), variable="x", relation="then").observe("seen as", readings)


def test_a_relation_told_later_does_what_one_told_at_once_does(model):
    at_once = kb.Model(VARIABLES, {**THEN, "seen as": off_by(0.5)}).fit({"then": steps()})
    readings = [0.3, 1.0, -0.2, 0.4]
    told = model.with_relation("seen as", off_by(0.5))
    assert np.allclose(told.infer(chain(readings)).mean(), at_once.infer(chain(readings)).mean(), atol=1e-6)


def test_the_model_itself_does_not_change_and_a_known_relation_can_be_told_anew(model):
    sharp = model.with_relation("seen as", off_by(0.1))
    blunt = sharp.with_relation("seen as", off_by(3.0))
    assert "seen as" not in model.relations
    assert abs(sharp.infer(chain([1.5])).mean()[0] - 1.5) < 0.1
    assert abs(blunt.infer(chain([1.5])).mean()[0]) < 0.5


def test_only_known_relations_of_learned_variables_can_be_added(model):
    with pytest.raises(InputError, match="has to be learned"):
        model.with_relation("seen as", kb.Relation("x", "x"))
    with pytest.raises(InputError, match="was learned"):
        model.with_relation("then", off_by(1.0))
    with pytest.raises(InputError, match="unknown variable 'y'"):
        model.with_relation("seen as", kb.Relation("x", "y", potential=lambda x, y: x + y))
    with pytest.raises(InputError, match="expected a Relation"):
        model.with_relation("seen as", "x")
    with pytest.raises(InputError, match="a table needs finite variables"):
        model.with_relation("seen as", kb.Relation("x", "x", potential=np.ones((2, 2))))
    with pytest.raises(NotFittedError):
        kb.Model(VARIABLES, THEN).with_relation("seen as", off_by(1.0))


def test_settings_fitted_on_graphs_later_are_those_fitted_at_once_and_can_be_taken_over(model):
    truth = np.cumsum(np.random.default_rng(2).normal(size=40)) * 0.3
    noisy = truth + 0.5 * np.random.default_rng(3).normal(size=40)
    graphs = [(chain(noisy), truth)]
    later = model.with_relation("seen as", off_by(0.5)).calibrate(graphs)
    assert later.calibration_.score is not None
    assert model.calibration_ == GraphCalibration()
    taken = model.with_relation("seen as", off_by(0.5)).with_calibration(later.calibration_)
    assert np.array_equal(taken.infer(chain(noisy)).mean(), later.infer(chain(noisy)).mean())
    assert taken.settings_["calibration"] == later.settings_["calibration"]


def test_settings_need_graphs_and_a_fitted_model(model):
    with pytest.raises(InputError, match="at least one training graph"):
        model.calibrate([])
    with pytest.raises(InputError, match="expected \\(Graph, true values"):
        model.calibrate([3])
    with pytest.raises(InputError, match="expected a GraphCalibration"):
        model.with_calibration({"mixing": 0.1})
    with pytest.raises(NotFittedError):
        kb.Model(VARIABLES, THEN).calibrate([(chain([1.0]), [1.0])])
