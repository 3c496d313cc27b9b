"""Kernels on sets and histograms, labels decoded from projections, and networks of label sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import jaccard_score
from sklearn.metrics.pairwise import chi2_kernel

import kernelbp as kb
from kernelbp.errors import InputError
from kernelbp.inference.reading import centre, entropy, expected_distance
from kernelbp.kernels import (
    ChiSquare,
    Intersection,
    Jaccard,
    Kernel,
    RandomProjection,
    Tanimoto,
    check_values,
    domain,
    from_spec,
    resolve,
    to_spec,
)
from kernelbp.testing import check_kernel

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.integers(0, 2, size=(25, 7))
SETS = [frozenset(np.flatnonzero(row).tolist()) for row in ROWS]
WORDS = [frozenset({"sun", "wind"}), {"rain"}, ("rain", "rain", "wind"), ["sun"], frozenset(), set()]
COUNTS = RANDOM.poisson(1.5, size=(30, 6)).astype(float)
SHARES = RANDOM.dirichlet(np.ones(5), size=30)

CASES: list[tuple[Kernel, Any]] = [
    (Jaccard(), SETS),
    (Jaccard(), WORDS),
    (Jaccard(), ROWS),
    (Tanimoto(), COUNTS),
    (Tanimoto(), np.vstack([SHARES, np.zeros(5)])),
    (ChiSquare(), COUNTS),
    (ChiSquare(2.0), SHARES),
    (Intersection(), COUNTS),
    (Intersection(), SHARES.tolist()),
    (Jaccard() * Jaccard() + 0.5 * Jaccard(), SETS),
]
every_kernel = pytest.mark.parametrize(
    ("kernel", "values"), CASES, ids=[f"{kernel!r}"[:40] for kernel, _ in CASES]
)


@every_kernel
def test_keeps_the_contract(kernel: Kernel, values: Any) -> None:
    check_kernel(kernel, values)


@every_kernel
def test_is_described_as_data_and_has_no_words_left_once_resolved(kernel: Kernel, values: Any) -> None:
    assert from_spec(json.loads(json.dumps(to_spec(kernel)))) == kernel
    assert "median" not in repr(resolve(kernel, values))
    assert domain(kernel) == "other"
    check_values(kernel, values, "values")


@pytest.mark.parametrize("seed", range(3))
def test_is_positive_semidefinite_on_random_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.poisson(1.0, size=(150, 8)).astype(float)
    for kernel, values in [
        (Jaccard(), (counts > 0).astype(int)),
        (Tanimoto(), counts),
        (ChiSquare(0.01), counts),
        (ChiSquare(5.0), counts),
        (Intersection(), counts),
    ]:
        eigenvalues = np.linalg.eigvalsh(kernel(values))
        assert eigenvalues[0] > -1e-10 * eigenvalues[-1], kernel


# closed forms


def test_jaccard_equals_scikit_learn_and_is_the_same_on_sets_and_rows() -> None:
    some = [row for row in ROWS if row.any()]
    expected = [[jaccard_score(x, y) for y in some] for x in some]
    np.testing.assert_allclose(Jaccard()(np.array(some)), expected, atol=1e-12)
    np.testing.assert_array_equal(Jaccard()(SETS), Jaccard()(ROWS))
    np.testing.assert_array_equal(Tanimoto()(ROWS).round(12), Jaccard()(ROWS).round(12))


@given(st.lists(st.frozensets(st.sampled_from("abcdefg"), max_size=4), min_size=1, max_size=6))
def test_jaccard_does_not_care_for_the_names_of_members(sets: list[frozenset[str]]) -> None:
    renamed = [frozenset((ord(member), "x") for member in members) for members in sets]
    np.testing.assert_array_equal(Jaccard()(sets), Jaccard()(renamed))
    both = np.array([[len(x & y) for y in sets] for x in sets])
    either = np.array([[len(x | y) for y in sets] for x in sets])
    np.testing.assert_allclose(Jaccard()(sets), np.where(either > 0, both / np.maximum(either, 1), 1.0))


def test_tanimoto_is_its_formula() -> None:
    inner = COUNTS @ COUNTS.T
    sizes = inner.diagonal()
    np.testing.assert_allclose(Tanimoto()(COUNTS), inner / (sizes[:, None] + sizes - inner), atol=1e-12)


def test_histogram_kernels_equal_scikit_learn_and_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = chi2_kernel(COUNTS, COUNTS[:7], gamma=0.3)
    np.testing.assert_allclose(ChiSquare(0.3)(COUNTS, COUNTS[:7]), expected, rtol=1e-10)
    np.testing.assert_allclose(
        ChiSquare().distance(COUNTS, COUNTS[:7]) ** 2, -np.log(expected) / 0.3, atol=1e-10
    )
    monkeypatch.setattr("kernelbp.kernels.sets.CELLS", 20)
    np.testing.assert_allclose(ChiSquare(0.3)(COUNTS, COUNTS[:7]), expected, rtol=1e-10)
    least = np.minimum(COUNTS[:, None], COUNTS).sum(axis=2)
    np.testing.assert_allclose(Intersection()(COUNTS), least, atol=1e-12)


def test_median_makes_a_typical_pair_one_over_e() -> None:
    block = resolve(ChiSquare(), SHARES)(SHARES)
    assert np.median(-np.log(block[np.triu_indices(30, 1)])) == pytest.approx(1.0)


# decoding


def test_projections_of_small_sets_are_decoded_exactly_and_through_noise() -> None:
    """367 labels, as the paper has, in 100 numbers; noise of a fifth of a label's own length."""
    kernel = RandomProjection(dimension=100, seed=2)
    random = np.random.default_rng(0)
    sets = [
        frozenset(random.choice(367, size=size, replace=False).tolist()) for size in (0, 1, 2, 3, 4, 5) * 5
    ]
    sizes = np.array([len(members) for members in sets])
    projected = kernel.project(sets)
    assert kernel.decode(projected, range(367), sizes).tolist() == sets
    noisy = projected + random.normal(0, 0.02, size=projected.shape)
    assert (
        np.mean(kernel.decode(noisy, range(367), sizes) == np.array([*sets, None], dtype=object)[:-1]) >= 0.9
    )


def test_decoding_does_not_care_for_length_and_stops_where_nothing_is_left() -> None:
    kernel = RandomProjection(dimension=60)
    projected = kernel.project([{4, 9}])
    assert kernel.decode(17.0 * projected, range(40), 2).tolist() == [frozenset({4, 9})]
    assert kernel.decode(projected, range(40), 6).tolist() == [frozenset({4, 9})]
    assert kernel.decode(0.0 * projected, range(40), 3).tolist() == [frozenset()]
    assert kernel.decode(projected, [], 3).tolist() == [frozenset()]
    assert kernel.decode(projected[:0], range(40), 3).tolist() == []


def test_a_set_never_seen_whole_is_decoded_from_a_belief_over_its_parts() -> None:
    kernel = RandomProjection(dimension=100)
    seen = np.array([frozenset({1, 2, 5}), frozenset({1, 2, 9}), frozenset({7})], dtype=object)
    weights = [[0.5, 0.45, 0.05], [0.0, 0.0, 1.0]]
    found = kernel.centre(seen, weights)
    assert {1, 2} < found[0] <= {1, 2, 5, 9} and found[1] == {7}
    rows = np.zeros((3, 10))
    for row, members in zip(rows, seen, strict=True):
        row[list(members)] = 1.0
    decoded = kernel.centre(rows, weights)
    assert [frozenset(np.flatnonzero(row).tolist()) for row in decoded] == found.tolist()


def test_odd_questions_to_a_projection_are_refused() -> None:
    kernel = RandomProjection(dimension=10)
    with pytest.raises(InputError, match="projected: expected vectors of length 10"):
        kernel.decode(np.zeros((2, 9)), range(5), 1)
    for size in (-1, 1.5, [1, 2, 3]):
        with pytest.raises(InputError, match="size: expected an integer of at least 0, or 2 of them"):
            kernel.decode(np.zeros((2, 10)), range(5), size)
    with pytest.raises(InputError, match=r"labels: .*of at least 0"):
        kernel.decode(np.zeros((2, 10)), [-1], 1)
    with pytest.raises(InputError, match="weights: expected rows of 2 numbers"):
        kernel.centre([{1}, {2}], [[1.0]])


# networks of label sets


TOPICS = [frozenset(RANDOM.choice(30, size=1 + i % 3, replace=False).tolist()) for i in range(12)]
assert len(set(TOPICS)) == 12


def _network(nodes: int, seed: int) -> tuple[Any, Any]:
    """A citation network with hubs: a new node cites two, rather those much cited and of its own set."""
    random = np.random.default_rng(seed)
    topic = random.integers(12, size=nodes)
    degree, edges = np.ones(nodes), []
    for node in range(2, nodes):
        liking = degree[:node] ** 1.3 * np.where(topic[:node] == topic[node], 1.0, 0.02)
        cited = random.choice(node, size=2, replace=False, p=liking / liking.sum())
        degree[[node, *cited]] += 1
        edges += [(node, other) for other in cited]
    return np.array(edges), _taken(topic)


def _taken(topic: Any) -> Any:
    sets = np.empty(len(topic), dtype=object)
    for node, number in enumerate(topic):
        sets[node] = TOPICS[number]
    return sets


def _read(sets: Any, seed: int) -> Any:
    """What is read of them: half the time another set altogether."""
    random = np.random.default_rng(seed)
    wrong = random.random(len(sets)) < 0.5
    read = sets.copy()
    for node in np.flatnonzero(wrong):
        read[node] = TOPICS[random.integers(12)]
    return read


@pytest.mark.parametrize("kernel", [Jaccard(), RandomProjection(dimension=40)], ids=repr)
def test_label_sets_on_a_star_of_450_and_on_a_scale_free_graph_neither_underflow_nor_diverge(
    kernel: Any,
) -> None:
    """Right at the hub; over the graph of 3,000 at least 0.25 more right than without edges."""
    ends, labels = _network(1500, 0)
    model = kb.Model(
        {"labels": kernel, "claim": kernel},
        {"cites": kb.Relation("labels", "labels", symmetric=True), "claims": kb.Relation("labels", "claim")},
    ).fit({"cites": (labels[ends[:, 0]], labels[ends[:, 1]]), "claims": (labels, _read(labels, 1))})

    random = np.random.default_rng(5)
    leaves = _taken(np.where(random.random(451) < 0.8, 7, random.integers(12, size=451)))
    leaves[0] = TOPICS[7]
    spokes = [(0, leaf, "cites") for leaf in range(1, 451)]
    star = kb.Graph.from_edges(spokes, variables=["labels"] * 451)
    beliefs = model.infer(star.observe("claims", _read(leaves, 6)[1:], nodes=np.arange(1, 451)))
    assert beliefs.converged
    mass = beliefs.probabilities()
    assert np.isfinite(mass).all() and np.allclose(mass.sum(axis=1), 1.0)
    assert beliefs.mode()[0] == leaves[0] and mass[0].max() > 0.99
    assert np.isfinite(beliefs["labels"].log_products_at_support()).all()
    assert centre(beliefs["labels"], kernel)[0] == leaves[0]

    ends, truth = _network(3000, 1)
    assert np.bincount(ends.ravel()).max() > 100
    graph = kb.Graph.from_edges(ends, variables=["labels"] * 3000, relation="cites")
    alone = kb.Graph.from_edges([], variables=["labels"] * 3000)
    joined, apart = (model.infer(each.observe("claims", _read(truth, 8))) for each in (graph, alone))
    assert joined.converged
    mass = joined.probabilities()
    assert np.isfinite(mass).all() and np.allclose(mass.sum(axis=1), 1.0)
    assert np.isfinite(joined["labels"].log_products_at_support()).all()
    right, without = (np.mean(each.mode() == truth) for each in (joined, apart))
    print(right, without, np.bincount(ends.ravel()).max(), joined)
    assert right > without + 0.25
    unsure = entropy(joined["labels"])
    assert np.mean((joined.mode() == truth)[unsure < np.median(unsure)]) > right


# different kinds of values in one model


def _weather(seed: int, count: int) -> tuple[Any, ...]:
    """A level that wanders; words heard at it; what the sky shows; and a number read off the sky."""
    random = np.random.default_rng(seed)
    skies = [
        frozenset({"calm"}),
        frozenset({"calm", "cloud"}),
        frozenset({"cloud", "wind"}),
        frozenset({"wind", "storm", "rain"}),
    ]
    level = np.empty(count)
    words, sky = np.empty(count, dtype=object), np.empty(count, dtype=object)
    vocabulary = [f"word {number}" for number in range(20)]
    for t in range(count):
        level[t] = (
            random.uniform(0, 10) if t % 100 == 0 else np.clip(level[t - 1] + random.normal(0, 0.7), 0, 10)
        )
        near = np.exp(-0.5 * (np.arange(20) / 2 - level[t]) ** 2)
        words[t] = frozenset(random.choice(vocabulary, size=3, replace=False, p=near / near.sum()).tolist())
        sky[t] = skies[min(int(level[t] / 2.5), 3) if random.random() < 0.9 else random.integers(4)]
    reading = np.array([len(s & {"wind", "storm"}) * 2.0 + ("cloud" in s) for s in sky])
    return level, words, sky, reading + random.normal(0, 1.2, size=count)


@pytest.mark.parametrize("seed", range(3))
def test_sets_speak_of_numbers_and_numbers_of_sets_in_one_model(seed: int, tmp_path: Path) -> None:
    """Joined, levels are off by less than 0.85 of what they are alone, and skies right 0.1 more often."""
    level, words, sky, reading = _weather(seed, 800)
    model = kb.Model(
        {
            "level": kb.kernels.Gaussian(),
            "words": Jaccard(),
            "sky": Jaccard(),
            "reading": kb.kernels.Gaussian(),
        },
        {
            "then": kb.Relation("level", "level"),
            "heard as": kb.Relation("level", "words"),
            "seen as": kb.Relation("level", "sky"),
            "measured as": kb.Relation("sky", "reading"),
        },
    ).fit(
        {
            "then": (level[:-1], level[1:]),
            "heard as": (level, words),
            "seen as": (level, sky),
            "measured as": (sky, reading),
        }
    )
    truth, heard, shown, measured = _weather(seed + 100, 100)
    edges = [(t, t + 1, "then") for t in range(99)] + [(t, 100 + t, "seen as") for t in range(100)]

    def told(edges: list[tuple[int, int, str]]) -> kb.Graph:
        graph = kb.Graph.from_edges(edges, variables=["level"] * 100 + ["sky"] * 100)
        return graph.observe("heard as", heard, nodes="level").observe("measured as", measured, nodes="sky")

    joined, apart = model.infer(told(edges)), model.infer(told([]))
    assert joined.converged
    off = [np.abs(beliefs["level"].mean() - truth).mean() for beliefs in (joined, apart)]
    assert off[0] < 0.85 * off[1]
    right = [np.mean(beliefs["sky"].mode() == shown) for beliefs in (joined, apart)]
    assert right[0] > right[1] + 0.1
    far = [expected_distance(beliefs["sky"], Jaccard()).mean() for beliefs in (joined, apart)]
    assert far[0] < far[1]

    model.save(tmp_path / "weather.kbp")
    again = kb.Model.load(tmp_path / "weather.kbp").infer(told(edges))
    np.testing.assert_array_equal(again["sky"].probabilities(), joined["sky"].probabilities())
    assert again["sky"].mode().tolist() == joined["sky"].mode().tolist()


# errors


@pytest.mark.parametrize(
    ("kernel", "values", "message"),
    [
        (Jaccard(), ["sun"], "got str 'sun' at position 0"),
        (Jaccard(), [{"a"}, 3], "got int 3 at position 1"),
        (Jaccard(), [[["a"]]], "members that cannot be hashed"),
        (Jaccard(), np.array([[0.5, 1.0]]), "expected 0/1 indicator rows"),
        (Jaccard(), "sun", "expected 0/1 indicator rows"),
        (Tanimoto(), [[1.0, -1.0]], "expected counts or shares of at least 0, got -1 at position 0"),
        (ChiSquare(), [[0.0, 1.0], [2.0, -0.5]], "of at least 0, got -0.5 at position 1"),
        (Intersection(), [[np.nan]], "expected finite numbers"),
    ],
)
def test_values_outside_the_domain_are_refused(kernel: Kernel, values: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^tags: .*{message}"):
        check_values(kernel, values, "tags")


def test_sets_and_rows_are_not_compared() -> None:
    with pytest.raises(InputError, match="Y: expected sets in the form of X"):
        Jaccard()(ROWS, SETS)


@pytest.mark.parametrize("value", [0.0, -1.0, "mean"])
def test_concentration_must_be_positive_or_median(value: Any) -> None:
    with pytest.raises(InputError, match='concentration: expected a positive finite number or "median"'):
        ChiSquare(value)
