"""Beliefs read where there is no mean and no density, and values of any kind stored and read back."""

from __future__ import annotations

import networkx as nx
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


def test_strings_speak_of_numbers_and_numbers_of_strings_in_one_model():
    """Hidden numbers with words as evidence, hidden words with numbers as evidence, tied in pairs along a chain.

    Better than without edges by the margins below, three seeds.
    """
    words = ["cold", "colder", "mild", "milder", "warm", "warmer"]
    for seed in range(3):
        rng = np.random.default_rng(seed)

        def season(steps: int, rng: np.random.Generator = rng) -> tuple[np.ndarray, np.ndarray]:
            degrees = 12 + 9 * np.sin(np.cumsum(0.25 * rng.standard_normal(steps)))
            level = np.clip(((degrees - 3) / 18 * 6).astype(int), 0, 5)
            return degrees, np.array(words, dtype=object)[level]

        def misspelt(said: np.ndarray, rng: np.random.Generator = rng) -> np.ndarray:
            made = []
            for word in said:
                place = rng.integers(len(word))
                made.append(word[:place] + rng.choice(list("abcdefgh")) + word[place + 1 :])
            return np.array(made, dtype=object)

        text = kb.kernels.Spectrum(2)
        model = kb.Model(
            {"degrees": kb.kernels.Gaussian(), "word": text, "report": text, "meter": kb.kernels.Gaussian()},
            {
                "then": kb.Relation("degrees", "degrees"),
                "called": kb.Relation("degrees", "word"),
                "written": kb.Relation("degrees", "report"),
                "measured": kb.Relation("word", "meter"),
            },
        )
        degrees, word = season(2000)
        meter = degrees + 4 * rng.standard_normal(2000)
        model.fit(
            {
                "then": (degrees[:-1], degrees[1:]),
                "called": (degrees, word),
                "written": (degrees, misspelt(word)),
                "measured": (word, meter),
            }
        )
        degrees, word = season(200)
        edges = [(i, i + 1, "then") for i in range(199)] + [(i, 200 + i, "called") for i in range(200)]
        evidence = (misspelt(word), degrees + 4 * rng.standard_normal(200))
        found = []
        for ties in (edges, []):
            graph = kb.Graph.from_edges(ties, variables=["degrees"] * 200 + ["word"] * 200)
            graph = graph.observe("written", evidence[0], nodes=np.arange(200))
            found.append(model.infer(graph.observe("measured", evidence[1], nodes=200 + np.arange(200))))
        error = [np.sqrt(np.mean((each["degrees"].mean() - degrees) ** 2)) for each in found]
        right = [np.mean(each["word"].mode() == word) for each in found]
        assert found[0].converged
        assert error[0] < 0.75 * error[1]
        assert right[0] > right[1] + 0.15


def test_a_scale_free_graph_of_twenty_thousand_label_sets_settles():
    sets = np.empty(12, dtype=object)
    for number in range(12):
        sets[number] = frozenset({number, 12 + number % 5, 17 + number % 3})
    kernel = kb.kernels.RandomProjection(dimension=60)

    def network(nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ties with hubs, one in ten of those between different sets kept; half the claims are wrong."""
        rng = np.random.default_rng(seed)
        topic = rng.integers(12, size=nodes)
        edges = np.array(nx.barabasi_albert_graph(nodes, 10, seed=seed).edges)
        alike = topic[edges[:, 0]] == topic[edges[:, 1]]
        edges = edges[alike | (rng.random(len(edges)) < 0.1)]
        claimed = np.where(rng.random(nodes) < 0.5, rng.integers(12, size=nodes), topic)
        return edges, sets[topic], sets[claimed]

    edges, labels, claims = network(3000, 0)
    model = kb.Model(
        {"labels": kernel, "claim": kernel},
        {"cites": kb.Relation("labels", "labels", symmetric=True), "claims": kb.Relation("labels", "claim")},
    ).fit({"cites": (labels[edges[:, 0]], labels[edges[:, 1]]), "claims": (labels, claims)})
    edges, truth, claims = network(20_000, 1)
    assert np.bincount(edges.ravel()).max() > 100
    graph = kb.Graph.from_edges(edges, variables=["labels"] * 20_000, relation="cites")
    joined = model.infer(graph.observe("claims", claims))
    assert joined.converged
    mass = joined.probabilities()
    assert np.isfinite(mass).all() and np.allclose(mass.sum(axis=1), 1.0)
    right = np.mean(claims == truth)
    assert np.mean(joined.mode() == truth) > right + 0.01
    # Tree weights are cautious where ties are many and each says little; ordinary propagation dares more.
    ordinary = model.infer(joined.graph, weighting="bethe")
    assert ordinary.converged and np.mean(ordinary.mode() == truth) > right + 0.06
