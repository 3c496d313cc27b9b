"""Beliefs: every summary must tell the same story as the density, integrated independently."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from kernelbp import Beliefs, Graph, Model, Relation
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.inference import beliefs as beliefs_module
from kernelbp.inference.beliefs import VariableBeliefs
from kernelbp.kernels import Delta, Gaussian, Sphere

ORDINARY = {"conditionals": "embedding", "weighting": "bethe", "dtype": np.float64}
FIXED_NODE = 5
LINE = np.linspace(-8, 8, 8001)


@cache
def numbers_model() -> Model:
    rng = np.random.default_rng(0)
    states = rng.standard_normal(2000)
    following = 0.8 * states + 0.6 * rng.standard_normal(2000)
    return Model(
        {"state": Gaussian(0.6), "reading": Gaussian(0.3)},
        {"then": Relation("state", "state"), "seen": Relation("state", "reading", evidence="likelihood")},
    ).fit({"then": (states, following), "seen": (states, states**2 + 0.3 * rng.standard_normal(2000))})


def numbers_graph() -> Graph:
    """A chain whose readings are squares, so that beliefs have two modes, with one node fixed."""
    graph = Graph.chain(8, variable="state", relation="then")
    readings = [1.0, np.nan, 0.5, 2.0, np.nan, np.nan, 1.5, 0.1]
    return graph.observe("seen", readings).fix([FIXED_NODE], [1.3])


@cache
def numbers() -> Beliefs:
    return numbers_model().infer(numbers_graph(), **ORDINARY)


def free_rows(table: np.ndarray) -> np.ndarray:
    return np.delete(table, FIXED_NODE, axis=0)


@cache
def free_density() -> np.ndarray:
    return free_rows(numbers().density(LINE))


# ---------------------------------------------------------------------- numbers


def test_densities_are_positive_and_integrate_to_one_at_every_node():
    density = numbers().density(LINE)
    assert (density >= 0).all()
    assert np.allclose(np.trapezoid(density, LINE, axis=1), 1.0, atol=2e-3)


def test_the_density_has_two_modes_where_readings_are_squares():
    alone = Graph.from_edges([], variables=["state"]).observe("seen", [1.0])
    density = numbers_model().infer(alone, **ORDINARY).density(LINE)[0]
    peaks = [LINE[side][density[side].argmax()] for side in (LINE < 0, LINE > 0)]
    assert np.allclose(peaks, [-1, 1], atol=0.25)
    assert density[abs(LINE).argmin()] < 0.5 * density.max()


def test_mean_and_std_are_those_of_the_density():
    mean = np.trapezoid(free_density() * LINE, LINE, axis=1)
    assert np.allclose(free_rows(numbers().mean()), mean, atol=5e-3)
    variance = np.trapezoid(free_density() * (LINE - mean[:, None]) ** 2, LINE, axis=1)
    assert np.allclose(free_rows(numbers().std()), np.sqrt(variance), atol=5e-3)


@pytest.mark.parametrize("probability", [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
def test_the_density_below_a_quantile_integrates_to_its_probability(probability):
    quantiles = free_rows(numbers().quantile(probability))
    for row, quantile in zip(free_density(), quantiles, strict=True):
        assert np.trapezoid(row[quantile >= LINE], LINE[quantile >= LINE]) == pytest.approx(
            probability, abs=8e-3
        )


def test_quantiles_come_one_by_one_or_together_and_never_cross():
    levels = np.linspace(0, 1, 21)
    together = numbers().quantile(levels)
    assert together.shape == (8, 21)
    assert (np.diff(together, axis=1) >= 0).all()
    assert np.array_equal(together[:, 10], numbers().quantile(0.5))


def test_an_interval_is_a_pair_of_quantiles():
    assert np.allclose(numbers().interval(0.8), numbers().quantile([0.1, 0.9]))


def test_the_mode_is_where_the_density_is_largest():
    modes = numbers().mode()
    atoms = numbers().atoms
    density = free_rows(numbers().density(atoms))
    assert np.array_equal(free_rows(modes), atoms[density.argmax(axis=1)])
    assert np.allclose(free_rows(modes), LINE[free_density().argmax(axis=1)], atol=2 * np.diff(atoms[:2])[0])


def test_the_mode_among_candidates_is_the_one_of_largest_density():
    candidates = np.array([-1.5, -0.7, 0.0, 0.4, 1.1])
    expected = candidates[numbers().density(candidates).argmax(axis=1)]
    assert np.array_equal(free_rows(numbers().mode(candidates)), free_rows(expected))


@pytest.mark.parametrize("function", [np.cos, np.abs, lambda x: x**3, lambda x: x > 0.5])
def test_an_expectation_is_an_integral_against_the_density(function):
    expected = np.trapezoid(free_density() * function(LINE), LINE, axis=1)
    assert np.allclose(free_rows(numbers().expect(function)), expected, atol=1.5e-2)


def test_an_expectation_of_several_functions_has_a_column_for_each():
    both = numbers().expect(lambda x: np.stack([x, x**2], axis=1))
    assert both.shape == (8, 2)
    assert np.allclose(both[:, 0], numbers().mean())
    assert np.allclose(both[:, 1] - both[:, 0] ** 2, numbers().std() ** 2, atol=1e-9)


def test_samples_have_the_moments_and_quantiles_of_the_belief():
    draws, size = numbers().sample(20_000, seed=3), 20_000
    assert draws.shape == (8, size)
    mean, std = numbers().mean(), numbers().std()
    assert (abs(draws.mean(axis=1) - mean) <= 4.5 * std / np.sqrt(size) + 1e-12).all()
    assert np.allclose(draws.std(axis=1), std, rtol=0.05)
    below = (draws <= numbers().quantile(0.3)[:, None]).mean(axis=1)
    assert np.allclose(free_rows(below), 0.3, atol=4.5 * np.sqrt(0.21 / size))


def test_the_same_seed_draws_the_same_sample():
    first, again = numbers().sample(5, seed=1), numbers().sample(5, seed=1)
    assert np.array_equal(first, again)
    assert np.array_equal(first, numbers().sample(5, seed=np.random.default_rng(1)))
    assert not np.array_equal(first, numbers().sample(5, seed=2))
    assert numbers().sample(0, seed=1).shape == (8, 0)


def test_probabilities_sum_to_one_over_the_atoms():
    table = numbers().probabilities()
    assert table.shape == (8, len(numbers().atoms))
    assert (table >= 0).all()
    assert np.allclose(table.sum(axis=1), 1.0)
    assert np.allclose(free_rows(table) @ numbers().atoms, free_rows(numbers().mean()))


def test_a_fixed_node_believes_its_value():
    beliefs = numbers()
    for found in (
        beliefs.mean(),
        beliefs.mode(),
        beliefs.mode([0.0, 9.0]),
        beliefs.centre(),
        beliefs.centre([0.0, 9.0]),
        beliefs.quantile(0.2),
    ):
        assert found[FIXED_NODE] == 1.3
    for none in (beliefs.std(), beliefs.expected_distance(), beliefs.entropy()):
        assert none[FIXED_NODE] == 0
    assert beliefs.expected_distance(np.full(8, 3.3))[FIXED_NODE] == pytest.approx(2.0)
    assert np.array_equal(beliefs.interval(0.9)[FIXED_NODE], [1.3, 1.3])
    assert (beliefs.sample(4, seed=0)[FIXED_NODE] == 1.3).all()
    assert beliefs.expect(lambda x: x**2)[FIXED_NODE] == 1.3**2
    mass = beliefs.probabilities()[FIXED_NODE]
    assert mass.max() == 1.0 and abs(beliefs.atoms[mass.argmax()] - 1.3) < 0.02
    density = beliefs.density(LINE)[FIXED_NODE]
    assert LINE[density.argmax()] == pytest.approx(1.3, abs=1e-2)


def test_fixing_a_node_is_the_same_as_observing_it_through_the_relation_for_its_neighbours():
    model = numbers_model()
    fixed = model.infer(Graph.chain(2, variable="state", relation="then").fix([1], [0.7]), **ORDINARY)
    alone = Graph.from_edges([], variables=["state"]).observe("then", [0.7])
    assert np.allclose(fixed.density(LINE)[0], model.infer(alone, **ORDINARY).density(LINE)[0])


def test_single_precision_agrees_with_double():
    single = numbers_model().infer(numbers_graph(), **(ORDINARY | {"dtype": np.float32}))
    assert np.allclose(single.mean(), numbers().mean(), atol=2e-3)
    assert np.allclose(single.std(), numbers().std(), atol=2e-3)
    assert np.allclose(single.density(LINE), numbers().density(LINE), atol=1e-2)


def test_both_marginal_forms_give_densities_that_integrate_to_one():
    rng = np.random.default_rng(1)
    first = rng.standard_normal(500)
    model = Model({"x": Gaussian(0.5)}, {"r": Relation("x", "x", symmetric=True)}, marginal="embedding")
    model.fit({"r": (first, first + 0.3 * rng.standard_normal(500))})
    beliefs = model.infer(Graph.chain(3, variable="x", relation="r").fix([0], [0.5]), **ORDINARY)
    assert np.allclose(np.trapezoid(beliefs.density(LINE), LINE, axis=1), 1.0, atol=2e-3)


# ---------------------------------------------------------------------- finite scales and finite values


def levels_model() -> Model:
    rng = np.random.default_rng(2)
    levels = rng.integers(0, 8, 1500)
    beside = np.clip(levels + rng.integers(-1, 2, 1500), 0, 7)
    model = Model({"level": Gaussian(1.0)}, {"beside": Relation("level", "level", symmetric=True)})
    return model.fit({"beside": (levels, beside)})


def test_numbers_that_repeat_are_read_one_by_one_and_come_back_whole():
    beliefs = levels_model().infer(
        Graph.chain(4, variable="level", relation="beside").fix([0], [3]), **ORDINARY
    )
    assert beliefs.atoms.tolist() == list(range(8))
    assert beliefs.mode().dtype == beliefs.sample(3, seed=0).dtype == np.int64
    table = beliefs.probabilities()[1:]
    assert np.allclose(beliefs.mean()[1:], table @ np.arange(8))
    assert np.array_equal(beliefs.quantile(0.5)[1:], (np.cumsum(table, axis=1) >= 0.5).argmax(axis=1))
    assert np.array_equal(beliefs.mode()[1:], table.argmax(axis=1))


def word_model(**settings) -> Model:
    rng = np.random.default_rng(3)
    words = np.array(["sun", "cloud", "rain"], dtype=object)
    today = rng.integers(3, size=900)
    tomorrow = np.where(rng.random(900) < 0.6, today, rng.integers(3, size=900))
    return Model({"sky": Delta()}, {"then": Relation("sky", "sky")}, regularization=0.0, **settings).fit(
        {"then": (words[today], words[tomorrow])}
    )


WORDS = ["sun", "cloud", "rain"]


def test_finite_values_of_any_kind_sum_to_one():
    beliefs = word_model().infer(
        Graph.chain(5, variable="sky", relation="then").fix([2], ["rain"]), **ORDINARY
    )
    density = beliefs.density(WORDS)
    assert np.allclose(density.sum(axis=1), 1.0)
    assert np.allclose(beliefs.density(["sun", "hail"])[:, 1], 0.0), "a word never seen"
    assert density[2].tolist() == [0.0, 0.0, 1.0]
    assert beliefs.probabilities()[2].tolist() == [float(atom == "rain") for atom in beliefs.atoms]
    assert beliefs.mode()[2] == "rain"
    assert np.allclose(beliefs.expect(lambda words: words == "sun"), density[:, 0])
    assert np.array_equal(beliefs.mode(WORDS), np.array(WORDS, dtype=object)[density.argmax(axis=1)])
    draws = beliefs.sample(4000, seed=0)
    assert np.allclose((draws == "cloud").mean(axis=1), density[:, 1], atol=0.04)


def test_samples_of_words_need_no_fixed_node():
    draws = word_model().infer(Graph.chain(2, variable="sky", relation="then"), **ORDINARY).sample(3, seed=0)
    assert draws.shape == (2, 3)
    assert set(draws.ravel()) <= set(WORDS)


# ---------------------------------------------------------------------- vectors

TURN = np.array([[0.7, 0.4], [-0.4, 0.7]])
SPREAD = 0.6


@cache
def vectors() -> tuple[Beliefs, np.ndarray, np.ndarray]:
    """Belief of x given z = A x + noise, x a standard normal vector; and its exact mean and deviation."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((1500, 2))
    z = x @ TURN.T + SPREAD * rng.standard_normal((1500, 2))
    model = Model(
        {"x": Gaussian(0.7), "z": Gaussian(0.25)},
        {"seen": Relation("x", "z", evidence="likelihood")},
        residual=1e-2,
    )
    model.fit({"seen": (x, z)})
    readings = np.array([[0.5, -0.5], [0.0, 0.8], [np.nan, np.nan]])
    graph = Graph.from_edges([], variables=["x"] * 3).observe("seen", readings)
    covariance = np.linalg.inv(np.eye(2) + TURN.T @ TURN / SPREAD**2)
    means = np.nan_to_num(readings) @ (covariance @ TURN.T / SPREAD**2).T
    deviations = np.sqrt([np.diag(covariance), np.diag(covariance), np.ones(2)])
    return model.infer(graph, **ORDINARY), means, deviations


def test_mean_and_std_of_vectors_are_those_of_the_linear_gaussian_posterior():
    beliefs, means, deviations = vectors()
    assert beliefs.mean().shape == beliefs.std().shape == (3, 2)
    assert np.allclose(beliefs.mean(), means, atol=0.12)
    assert np.allclose(beliefs.std(), deviations, rtol=0.15)


def test_densities_of_vectors_integrate_to_about_one():
    beliefs, means, _ = vectors()
    axis = np.linspace(-5, 5, 101)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = beliefs.density(points)
    assert np.allclose(density.sum(axis=1) * (axis[1] - axis[0]) ** 2, 1.0, atol=0.1)
    centres = density @ points / density.sum(axis=1, keepdims=True)
    assert np.allclose(centres, means, atol=0.12)


def test_vectors_are_sampled_chosen_and_expected_as_vectors():
    beliefs, means, deviations = vectors()
    draws = beliefs.sample(3000, seed=0)
    assert draws.shape == (3, 3000, 2)
    assert np.allclose(draws.mean(axis=1), beliefs.mean(), atol=0.1)
    assert beliefs.mode().shape == (3, 2)
    assert (abs(beliefs.mode()[:2] - means[:2]) < 2 * deviations[:2]).all()
    assert np.allclose(beliefs.expect(lambda x: x[:, 0]), beliefs.mean()[:, 0])
    candidates = np.concatenate([means, means + 3])
    assert np.allclose(beliefs.mode(candidates), means)


def test_quantiles_of_vectors_are_refused():
    with pytest.raises(UnsupportedError) as refusal:
        vectors()[0].quantile(0.5)
    assert (
        "quantile is for variables of numbers; 'x' holds vectors of length 2; use expect(f) or sample()"
        in str(refusal.value)
    )


def test_directions_are_read_at_training_values_and_have_no_density():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((600, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = x + 0.2 * rng.standard_normal((600, 3))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    model = Model({"way": Sphere(8.0)}, {"next": Relation("way", "way")}, residual=1e-2).fit({"next": (x, y)})
    north = np.array([[0.0, 0.0, 1.0]])
    beliefs = model.infer(Graph.chain(2, variable="way", relation="next").fix([0], north), **ORDINARY)
    assert beliefs.mode()[1] @ north[0] > 0.9
    assert beliefs.mean()[1] @ north[0] > 0.8
    assert np.array_equal(beliefs.mode(np.concatenate([north, -north])), np.repeat(north, 2, axis=0))
    with pytest.raises(UnsupportedError, match="variable 'way' has no density; use expect"):
        beliefs.density(north)


# ---------------------------------------------------------------------- objects


class SharedLetters:
    """A kernel on words that knows nothing of this library: the share of letters they have in common."""

    def __call__(self, X, Y=None):
        def features(words):
            table = np.array([[word.count(letter) for letter in "abcdef"] for word in words], dtype=float)
            return table.reshape(len(words), 6) / np.sqrt(np.maximum((table**2).sum(axis=-1), 1)).reshape(
                -1, 1
            )

        left = features(X)
        return left @ (left if Y is None else features(Y)).T

    def diag(self, X):
        return np.diag(self(X))


@pytest.fixture(scope="module")
def texts() -> Beliefs:
    rng = np.random.default_rng(6)
    kinds = rng.integers(2, size=400)
    makes = [lambda: "".join(rng.choice(list("aab"), 4)), lambda: "".join(rng.choice(list("eef"), 4))]
    words = np.array([makes[kind]() for kind in kinds], dtype=object)
    others = np.array([makes[kind]() for kind in kinds], dtype=object)
    model = Model({"word": SharedLetters()}, {"like": Relation("word", "word", symmetric=True)})
    model.fit({"like": (words, others)})
    return model.infer(Graph.chain(2, variable="word", relation="like").fix([0], ["aaab"]), **ORDINARY)


def test_objects_with_a_kernel_of_ones_own_are_believed(texts):
    assert texts.expect(lambda words: [set(word) <= set("ab") for word in words])[1] > 0.95
    assert set(texts.mode()[1]) <= set("ab")
    assert texts.mode(["eeef", "abab"]).tolist() == ["aaab", "abab"]
    assert np.isclose(texts.probabilities().sum(), 2.0)
    draws = texts.sample(200, seed=0)
    assert (draws[0] == "aaab").all()
    assert np.mean([set(word) <= set("ab") for word in draws[1]]) > 0.9


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (
            lambda b: b.mean(),
            "'word' holds objects, which have no mean; use mode(), expect(f) or probabilities()",
        ),
        (
            lambda b: b.std(),
            "'word' holds objects, which have no std; use mode(), expect(f) or probabilities()",
        ),
        (
            lambda b: b.quantile(0.5),
            "quantile is for variables of numbers; 'word' holds objects; use expect(f)",
        ),
        (
            lambda b: b.interval(0.5),
            "quantile is for variables of numbers; 'word' holds objects; use expect(f)",
        ),
        (
            lambda b: b.density(["aaab"]),
            "variable 'word' has no density; use expect(f), mode(candidates=...), centre(), entropy() or probabilities()",
        ),
    ],
)
def test_what_objects_do_not_have_is_refused_and_what_they_have_is_named(texts, ask, text):
    with pytest.raises(UnsupportedError) as refusal:
        ask(texts)
    assert text in str(refusal.value)


# ---------------------------------------------------------------------- several variables


@pytest.fixture(scope="module")
def mixed() -> tuple[Model, Graph, Beliefs]:
    rng = np.random.default_rng(7)
    height = rng.standard_normal(1500)
    label = np.where(height + 0.3 * rng.standard_normal(1500) > 0, "tall", "short")
    model = Model(
        {"height": Gaussian(0.5), "label": Delta()},
        {"called": Relation("height", "label"), "near": Relation("height", "height", symmetric=True)},
    ).fit({"called": (height, label), "near": (height, height + 0.5 * rng.standard_normal(1500))})
    graph = Graph.from_edges(
        [(1, 0, "called"), (1, 2, "near"), (3, 2, "called")], variables=["label", "height", "height", "label"]
    ).fix([0], ["tall"])
    return model, graph, model.infer(graph, **ORDINARY)


def test_each_variable_has_its_own_beliefs_in_the_order_of_its_nodes(mixed):
    _, _, beliefs = mixed
    assert isinstance(beliefs["height"], VariableBeliefs)
    assert beliefs["height"].mean().shape == (2,)
    near, far = beliefs["height"].mean()
    assert near > far > 0.1
    assert beliefs["label"].mode().tolist() == ["tall", "tall"]
    assert 0.5 < beliefs["label"].density(["tall"])[1, 0] < 1


def test_one_answer_for_several_variables_is_refused(mixed):
    with pytest.raises(InputError) as refusal:
        mixed[2].mean()
    assert "several variables; choose one, such as beliefs['label'] (of label, height)" in str(refusal.value)


def test_a_variable_the_graph_has_not_is_refused(mixed):
    with pytest.raises(
        InputError, match=r"takes the name of a variable, got 'weight'; the graph has label, height"
    ):
        mixed[2]["weight"]


def test_a_warm_start_needs_a_graph_of_the_same_messages(mixed):
    model, graph, beliefs = mixed
    again = model.infer(graph, start=beliefs, **ORDINARY)
    assert np.allclose(again["height"].mean(), beliefs["height"].mean(), atol=1e-9)
    with pytest.raises(InputError, match="start: beliefs of a graph with other messages"):
        model.infer(Graph.chain(5, variable="height", relation="near"), start=beliefs, **ORDINARY)


def test_the_belief_of_an_edge_sums_to_one_with_the_beliefs_of_its_ends_as_margins(mixed):
    model, _, beliefs = mixed
    pair = beliefs.pair(2)  # from label 3 to height 2
    assert pair.shape == (2, len(beliefs._source.operators.support("height")))
    assert np.isclose(pair.sum(), 1.0)
    labels = pair.sum(axis=1)
    assert np.allclose(labels, beliefs["label"].density(model.support("label"))[1], atol=0.05)


# ---------------------------------------------------------------------- what is asked wrongly


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda b: b.quantile(1.5), "probability: expected numbers between 0 and 1, got 1.5"),
        (
            lambda b: b.quantile([0.5, np.nan]),
            "probability: expected numbers between 0 and 1, got [0.5, nan]",
        ),
        (lambda b: b.interval(1.0), "coverage: expected a number between 0 and 1, got 1.0"),
        (lambda b: b.interval(0), "coverage: expected a number between 0 and 1, got 0"),
        (lambda b: b.sample(-1), "size: expected a whole number of at least 0, got -1"),
        (
            lambda b: b.expect(lambda x: 1.0),
            "function: expected 512 numbers or rows, one per value, got shape ()",
        ),
        (lambda b: b.expect(lambda x: x[:3]), "one per value, got shape (3,)"),
        (
            lambda b: b.density(["a"]),
            "points of variable 'state': values of one variable must be of one kind",
        ),
        (lambda b: b.density([[1.0, 2.0]]), "got numbers and vectors of length 2"),
        (lambda b: b.density([np.nan]), "points: value 0 is NaN or infinite"),
        (
            lambda b: b.mode(["a"]),
            "candidates of variable 'state': values of one variable must be of one kind",
        ),
        (lambda b: b.mode([]), "candidates: expected at least one value, got none"),
        (lambda b: b.pair(7), "edge: expected a number in 0 ... 6, got 7"),
        (lambda b: b.pair(-1), "edge: expected a number in 0 ... 6, got -1"),
    ],
)
def test_bad_questions_are_refused_with_what_was_given_and_what_is_expected(ask, text):
    with pytest.raises(InputError) as refusal:
        ask(numbers())
    assert text in str(refusal.value)


def test_a_graph_without_nodes_has_no_beliefs_to_read():
    beliefs = numbers_model().infer(Graph.from_edges([], variables=[]), **ORDINARY)
    assert beliefs.converged
    with pytest.raises(InputError, match="no nodes"):
        beliefs.mean()


# ---------------------------------------------------------------------- many nodes


def read_both_ways(monkeypatch, beliefs, temperature=1.0):
    """Everything that is read of one inference, by plain NumPy and by compiled code."""
    found = []
    for many in (1 << 60, 0):
        monkeypatch.setattr(beliefs_module, "MANY_CELLS", many)
        source = replace(beliefs._source, temperature=temperature, masses={})
        seen = VariableBeliefs(source, source.graph.variables[0])
        answers = {
            "probabilities": seen.probabilities(),
            "expectations": seen.expect(
                lambda x: np.stack([np.arange(len(x)) % k for k in range(2, 14)], axis=1)
            ),
            "mode": seen.mode(),
        }
        if seen._kind.form != "object":
            answers |= {"mean": seen.mean(), "std": seen.std()}
        if seen._kind.form == "scalar":
            answers |= {
                "median": seen.quantile(0.5),
                "interval": seen.interval(0.9),
                "tails": seen.quantile([0.01, 0.99]),
                "sample": seen.sample(4, seed=0),
            }
        found.append(answers)
    return found


def assert_alike(monkeypatch, beliefs, accuracy, temperature=1.0):
    plain, compiled = read_both_ways(monkeypatch, beliefs, temperature)
    assert np.allclose(
        compiled["probabilities"], plain["probabilities"], rtol=accuracy * 100, atol=accuracy / 100
    )
    for name, answer in plain.items():
        if name == "mode" and answer.dtype == object:
            assert (compiled[name] == answer).all()
        else:
            scale = 1.0 + np.abs(answer).max()
            assert np.allclose(compiled[name], answer, rtol=0, atol=20 * accuracy * scale), name


def squares_on_a_grid():
    graph = Graph.grid((5, 4), variable="state", relation={"down": "then", "right": "then"})
    return graph.observe("seen", np.linspace(0.1, 2.0, 20), nodes=np.arange(20)).fix([3], [0.5])


PRECISIONS = pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 1e-6), (np.float64, 1e-13)])


@pytest.mark.parametrize("temperature", [1.0, 1.6, 3.0])
@pytest.mark.parametrize("weighting", ["tree-reweighted", "bethe"])
@PRECISIONS
def test_compiled_reading_gives_the_same_beliefs(monkeypatch, weighting, dtype, accuracy, temperature):
    beliefs = numbers_model().infer(squares_on_a_grid(), weighting=weighting, dtype=dtype, max_iterations=200)
    assert_alike(monkeypatch, beliefs, accuracy, temperature)


@PRECISIONS
def test_compiled_reading_takes_all_kinds_of_evidence(monkeypatch, dtype, accuracy):
    """Several readings of a node, none, likelihoods of points of their own, a known neighbour."""
    graph = squares_on_a_grid().observe("seen", [0.9, 0.2], nodes=[7, 8]).observe("seen", [1.1], nodes=[7])
    graph = graph.soften([2, 9], [-1.0, 0.3, 2.0], [[0.1, 1.0, 0.2], [1.0, 0.0, 0.5]])
    assert_alike(monkeypatch, numbers_model().infer(graph, dtype=dtype, max_iterations=200), accuracy)


@PRECISIONS
def test_compiled_reading_of_numbers_that_repeat(monkeypatch, dtype, accuracy):
    rng = np.random.default_rng(1)
    levels = rng.choice([0.0, 1.0, 2.0, 4.0, 5.5, 7.0, 8.0, 9.5, 12.0, 13.0] + list(range(20, 60)), 4000)
    following = np.where(rng.random(4000) < 0.7, levels, rng.permutation(levels))
    model = Model(
        {"level": Gaussian(3.0)},
        {"then": Relation("level", "level")},
        landmarks={"level": np.linspace(0.0, 60.0, 20)},
    )
    graph = Graph.chain(30, variable="level", relation="then").fix([4, 17], [4.0, 30.0])
    beliefs = model.fit({"then": (levels, following)}).infer(graph, dtype=dtype)
    assert beliefs["level"]._marginal.spacing is None
    assert_alike(monkeypatch, beliefs, accuracy)


@PRECISIONS
def test_compiled_reading_of_vectors_and_words(monkeypatch, dtype, accuracy):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((600, 2))
    model = Model({"x": Gaussian(1.0)}, {"beside": Relation("x", "x")})
    graph = Graph.chain(9, variable="x", relation="beside").fix([4], [[0.3, -0.2]])
    noisy = x @ TURN.T + SPREAD * rng.standard_normal((600, 2))
    assert_alike(monkeypatch, model.fit({"beside": (x, noisy)}).infer(graph, dtype=dtype), accuracy)
    words = np.array(["sun", "rain", "snow", "fog"])
    first = rng.integers(0, 4, 500)
    second = np.where(rng.random(500) < 0.6, first, rng.integers(0, 4, 500))
    model = Model({"sky": Delta()}, {"then": Relation("sky", "sky")})
    graph = Graph.chain(12, variable="sky", relation="then").fix([3], ["fog"])
    assert_alike(
        monkeypatch, model.fit({"then": (words[first], words[second])}).infer(graph, dtype=dtype), accuracy
    )


@pytest.mark.parametrize("neighbours", [3, 7, 40])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@PRECISIONS
def test_compiled_reading_of_products_too_small_for_their_type(
    monkeypatch, dtype, accuracy, neighbours, temperature
):
    """Neighbours that contradict each other so much that only logarithms can hold what they say together."""
    beliefs = numbers_model().infer(
        Graph.from_edges(
            [(0, k, "then") for k in range(1, neighbours + 1)], variables=["state"] * (neighbours + 1)
        ),
        weighting="bethe",
        dtype=dtype,
    )
    source = beliefs._source
    arriving = source.state.messages[0][: source.wiring.start[0][1]]
    places = np.linspace(0.0, 1.0, arriving.shape[1])
    for row, place in zip(arriving, np.linspace(0.2, 0.8, len(arriving)), strict=True):
        row[:] = np.exp(np.maximum(-((places - place) ** 2) * 600, -80))
    # Of logarithms this large, single precision leaves fewer digits.
    assert_alike(monkeypatch, beliefs, accuracy * neighbours, temperature)


@pytest.mark.parametrize("width", [0.5, 1.3, 4.0, 9.0, 16.5, 60.0, 200.0])
def test_no_highest_point_is_ruled_out(width):
    """Masses with many peaks of nearly the same height, smoothed at all points and only where the search looks."""
    from kernelbp.inference.summaries import REACH
    from kernelbp.inference.summaries_compiled import _highest

    rng = np.random.default_rng(int(10 * width))
    count, reach = 509, min(int(np.ceil(REACH * width)), 509)
    offset = np.arange(2 * reach + 9) - reach
    window = np.exp(-0.5 * (offset / width) ** 2) * (offset <= reach)
    places = np.arange(count)
    smooth = np.exp(-0.5 * ((places[:, None] - places) / width) ** 2)
    for peaks in [1, 2, 3, 5, 20, 500] * 4:
        row = np.zeros(520)
        row[rng.integers(0, count, peaks)] = rng.uniform(0.99, 1.0, peaks)
        if peaks == 3:
            row[:count] += 1e-3 * rng.random(count)
        heights = smooth @ row[:count]
        found = _highest(row, count, window, 0, reach, width, np.empty(520))
        assert heights[found] >= heights.max() * (1 - 1e-6)


def test_any_number_of_threads_reads_the_same_bits(monkeypatch):
    from kernelbp.inference import summaries

    monkeypatch.setattr(beliefs_module, "MANY_CELLS", 0)
    monkeypatch.setattr(summaries, "BLOCK_NODES", 3)
    monkeypatch.setattr(summaries, "BLOCK_CELLS", 1500)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("kernelbp.inference.engine.available_threads", lambda n=threads: n)
        beliefs = numbers_model().infer(squares_on_a_grid(), max_iterations=200, n_jobs=1)
        found.append(
            [beliefs.mean(), beliefs.std(), beliefs.mode(), beliefs.interval(), beliefs.probabilities()]
        )
    for answers in found[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(found[0], answers, strict=True))


def test_compiled_reading_rules_out_what_any_neighbour_rules_out(monkeypatch):
    """Zeros of potentials, however many neighbours speak for the same value."""
    either = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.5, 0.5, 1e-30]])
    model = Model({"x": Delta()}, {"r": Relation("x", "x", potential=either)}, landmarks={"x": [0, 1, 2]})
    graph = Graph.from_edges([(0, k, "r") for k in range(1, 6)], variables=["x"] * 6)
    graph = graph.fix([1, 2, 3, 4, 5], [0, 1, 2, 2, 2])
    plain = model.fit({}).infer(graph, weighting="bethe").probabilities()
    monkeypatch.setattr(beliefs_module, "MANY_CELLS", 0)
    assert np.allclose(model.infer(graph, weighting="bethe").probabilities(), plain, atol=1e-6)
    assert np.allclose(plain[0], [0, 0, 1], atol=1e-6)


def test_one_point_and_all_threads_are_taken_as_others_take_them():
    x = np.random.default_rng(0).standard_normal(300)
    model = Model({"s": Gaussian()}, {"r": Relation("s", "s")}).fit({"r": (x[:-1], x[1:])})
    graph = Graph.chain(3, variable="s", relation="r")
    beliefs = model.infer(graph, n_jobs=-1)
    np.testing.assert_array_equal(beliefs.density(0.5), beliefs.density([0.5]))
    assert "(nodes, points)" in Beliefs.density.__doc__
