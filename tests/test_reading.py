"""Beliefs read where there is no mean and no density, and values of any kind stored and read back."""

from __future__ import annotations

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import UnsupportedError

HOURS = 24


def clock() -> tuple[kb.Model, kb.Graph]:
    """A clock hand that moves by about an hour, seen twice around midnight."""
    rng = np.random.default_rng(0)
    path = np.cumsum(1 + 0.5 * rng.standard_normal(4000)) % HOURS
    seen = (path + rng.standard_normal(4000)) % HOURS
    kernel = kb.kernels.Torus(period=HOURS)
    model = kb.Model(
        {"hour": kernel, "seen": kernel},
        {"then": kb.Relation("hour", "hour"), "seen as": kb.Relation("hour", "seen")},
    ).fit({"then": (path[:-1], path[1:]), "seen as": (path, seen)})
    graph = kb.Graph.chain(4, variable="hour", relation="then")
    return model, graph.observe("seen as", [22.5, 23.5, 0.5, 1.5])


def apart(found, truth):
    gap = np.abs(np.asarray(found, dtype=float) - truth) % HOURS
    return np.minimum(gap, HOURS - gap)


def test_centres_and_modes_of_angles_do_not_average_across_midnight():
    model, graph = clock()
    beliefs = model.infer(graph)
    truth = np.array([22.5, 23.5, 0.5, 1.5])
    assert apart(beliefs.centre(), truth).max() < 0.5
    assert apart(beliefs.mode(), truth).max() < 1.0
    assert (beliefs.expected_distance() > 0.1).all() and (beliefs.expected_distance() < 3).all()
    uncertain = model.infer(kb.Graph.chain(4, variable="hour", relation="then"))
    assert (uncertain.entropy() > beliefs.entropy() + 0.5).all()


@pytest.mark.parametrize("what", ["mean", "std", "interval", "median"])
def test_averages_of_angles_are_refused_with_what_to_use(what):
    beliefs = clock()[0].infer(clock()[1])
    read = {"median": lambda: beliefs.quantile(0.5)}.get(what, getattr(beliefs, what, None))
    with pytest.raises(UnsupportedError, match=r"centre\(\)"):
        read()


def test_a_fixed_angle_is_found_on_the_circle():
    model, _ = clock()
    fixed = model.infer(kb.Graph.chain(2, variable="hour", relation="then").fix([0], [23.999]))
    atom = fixed.atoms[fixed.probabilities()[0].argmax()]
    assert apart(atom, 0.0) < 0.05


def test_records_and_matrices_are_stored_and_read_back(tmp_path):
    rng = np.random.default_rng(0)
    words = ["low", "mid", "high"]
    records = [
        {"word": words[i], "angle": float(a)}
        for i, a in zip(rng.integers(3, size=200), rng.uniform(0, 6, 200), strict=True)
    ]
    turns = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(200)]
    turns = [turn * np.linalg.det(turn) for turn in turns]
    kernel = kb.kernels.Record({"word": kb.kernels.Delta(), "angle": kb.kernels.Torus(2.0)})
    model = kb.Model(
        {"record": kernel, "turn": kb.kernels.Rotation(2.0)}, {"r": kb.Relation("record", "turn")}, budget=16
    ).fit({"r": (records, turns)})
    graph = kb.Graph.from_edges([], variables=["record"]).observe("r", [turns[3]])
    path = tmp_path / "model.kbp"
    model.save(path)
    again = kb.Model.load(path)
    assert np.allclose(model.infer(graph).probabilities(), again.infer(graph).probabilities())
    assert again.infer(graph).mode()[0] == model.infer(graph).mode()[0]
