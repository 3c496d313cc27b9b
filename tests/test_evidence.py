"""What readings say about hidden values, through counts, regressions and scikit-learn estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, Ridge
from sklearn.neighbors import KNeighborsClassifier

import kernelbp as kb
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import Delta, Gaussian, Linear, Sphere
from kernelbp.learning.estimators import Calibration, _calibrate, _folds, fit_posterior
from kernelbp.learning.probability import assign

Array = np.ndarray[Any, Any]


def isolated(variable: str, relation: str, readings: Any) -> kb.Graph:
    return kb.Graph.from_edges([], variables=[variable] * len(readings)).observe(relation, readings)


def evidence_settings(model: kb.Model, relation: str = "read") -> dict[str, Any]:
    return model.settings_["relations"][relation]


# ---------------------------------------------------------------------- problems with known answers


def words_problem(seed: int, size: int) -> tuple[Array, Array]:
    """Three names, each with features around a place of its own."""
    rng = np.random.default_rng(seed)
    names = np.array(["ash", "birch", "cedar"])[rng.choice(3, size, p=[0.6, 0.3, 0.1])]
    places = {"ash": (0.0, 0.0, 0.0, 0.0), "birch": (1.5, 0.0, 0.0, 1.0), "cedar": (0.0, 1.5, 0.0, -1.0)}
    return names, np.array([places[name] for name in names]) + rng.normal(size=(size, 4))


def gaussian_problem(seed: int, size: int, dimension: int) -> tuple[Array, Array, Array, Array]:
    """x ~ N(0, 1), y = a x + e with unit noise: the posterior is Gaussian. Returns x, y, its mean and std."""
    rng = np.random.default_rng(seed)
    loading = np.random.default_rng(99).normal(size=dimension) / np.sqrt(dimension) * 1.5
    x = rng.normal(size=size)
    y = x[:, None] * loading + rng.normal(size=(size, dimension))
    precision = 1 + loading @ loading
    return x, y, y @ loading / precision, np.full(size, precision**-0.5)


# ---------------------------------------------------------------------- classifiers


def test_a_classifier_alone_believes_its_own_tempered_probabilities() -> None:
    names, features = words_problem(0, 600)
    model = kb.Model(
        {"tree": Delta(), "leaf": Linear()},
        {"read": kb.Relation("tree", "leaf", evidence=LogisticRegression(C=10.0))},
    ).fit({"read": (names, features)})
    new = words_problem(1, 50)[1]
    found = model.infer(isolated("tree", "read", new), dtype=np.float64).density(["ash", "birch", "cedar"])
    trained = LogisticRegression(C=10.0).fit(features, names)
    frequencies = np.array([np.mean(names == name) for name in trained.classes_])
    chosen = evidence_settings(model)
    assert chosen["evidence"] == "LogisticRegression"
    factors = model._fitted.relations["read"].predictor.calibration.factors
    np.testing.assert_allclose(factors, 1.0, atol=0.1)  # it is right on average already
    order = [list(model.support("tree")).index(name) for name in trained.classes_]
    tempered = frequencies * (trained.predict_proba(new) / frequencies) ** (1 / chosen["temperature"])
    tempered *= factors[order]
    tempered /= tempered.sum(axis=1, keepdims=True)
    expected = (1 - chosen["share"]) * tempered + chosen["share"] * frequencies
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_overconfident_classifier_is_cooled_and_an_honest_one_is_left_alone() -> None:
    names, features = words_problem(2, 900)

    def temperature(estimator: Any) -> float:
        model = kb.Model(
            {"tree": Delta(), "leaf": Linear()}, {"read": kb.Relation("tree", "leaf", evidence=estimator)}
        )
        return float(evidence_settings(model.fit({"read": (names, features)}))["temperature"])

    assert 0.8 < temperature(LogisticRegression()) < 1.25
    assert temperature(KNeighborsClassifier(2)) > 1.5


def test_a_classifier_of_numbers_knows_the_states_nearest_to_them() -> None:
    x, y, mean, _ = gaussian_problem(3, 3000, 6)
    model = kb.Model(
        {"x": Gaussian(0.5), "y": Linear()},
        {"read": kb.Relation("x", "y", evidence=LogisticRegression(max_iter=300))},
        budget=12,
    ).fit({"read": (x, y)})
    _, new, expected, _ = gaussian_problem(4, 200, 6)
    found = model.infer(isolated("x", "read", new)).mean()
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.15
    assert np.abs(mean).max() > 1  # the answer is not simply the prior's


def test_a_state_the_classifier_never_saw_is_neither_excluded_nor_favoured() -> None:
    names, features = words_problem(5, 400)
    seen = names != "cedar"
    model = kb.Model(
        {"tree": Delta(), "leaf": Linear()},
        {
            "read": kb.Relation("tree", "leaf", evidence=LogisticRegression()),
            "beside": kb.Relation("tree", "tree", symmetric=True),
        },
    ).fit({"read": (names[seen], features[seen]), "beside": (names, names)})
    found = model.infer(isolated("tree", "read", features[:20])).density(["ash", "birch", "cedar"])
    assert np.isfinite(found).all() and (found[:, 2] > 0).all() and found[:, 2].mean() < 0.3


# ---------------------------------------------------------------------- regressors


def test_a_regressor_of_features_gives_the_posterior_in_closed_form() -> None:
    x, y, _, _ = gaussian_problem(6, 4000, 20)
    model = kb.Model(
        {"x": Gaussian(0.5), "y": Linear()},
        {"read": kb.Relation("x", "y", evidence=LinearRegression())},
        budget=40,
    ).fit({"read": (x, y)})
    _, new, mean, std = gaussian_problem(7, 300, 20)
    beliefs = model.infer(isolated("x", "read", new))
    assert np.sqrt(np.mean((beliefs.mean() - mean) ** 2)) < 0.1
    assert beliefs.std().mean() == pytest.approx(std[0], rel=0.1)
    where = np.linspace(-2.5, 2.5, 41)
    exact = norm.pdf(where, mean[:, None], std[:, None])
    assert np.abs(beliefs.density(where) - exact).mean() < 0.1 * exact.mean()


def test_a_regressor_of_directions_is_right_on_the_sphere() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(3000, 3)) + [1.0, 0.0, 0.0]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.column_stack([x, rng.normal(size=(3000, 5))]) + 0.3 * rng.normal(size=(3000, 8))
    model = kb.Model(
        {"way": Sphere(), "y": Linear()}, {"read": kb.Relation("way", "y", evidence=Ridge(1.0))}, budget=80
    ).fit({"read": (x[:2500], y[:2500])})
    mean = model.infer(isolated("way", "read", y[2500:])).mean()
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    plain = Ridge(1.0).fit(y[:2500], x[:2500]).predict(y[2500:])
    plain /= np.linalg.norm(plain, axis=1, keepdims=True)
    assert (mean * x[2500:]).sum(axis=1).mean() > (plain * x[2500:]).sum(axis=1).mean() - 0.01


# ---------------------------------------------------------------------- the posterior form


def test_the_posterior_form_comes_close_to_the_closed_form() -> None:
    x, y, _, _ = gaussian_problem(9, 4000, 20)
    model = kb.Model(
        {"x": Gaussian(0.5), "y": Linear()}, {"read": kb.Relation("x", "y", evidence="posterior")}
    ).fit({"read": (x, y)})
    _, new, mean, std = gaussian_problem(10, 300, 20)
    beliefs = model.infer(isolated("x", "read", new))
    # A linear regression of probabilities is an approximation: clipped and tempered, it comes this near.
    assert np.sqrt(np.mean((beliefs.mean() - mean) ** 2)) < 0.25
    assert beliefs.std().mean() == pytest.approx(std[0], rel=0.3)
    chosen = evidence_settings(model)
    exact = norm.logpdf(x, *gaussian_problem(9, 4000, 20)[2:]).mean() - norm.logpdf(x).mean()
    assert 0.6 * exact < chosen["evidence score"] < exact + 0.02


@pytest.mark.parametrize("seed", range(3))
def test_the_score_is_that_of_pairs_never_seen(seed: int) -> None:
    x, y, _, _ = gaussian_problem(seed, 1500, 8)
    model = kb.Model(
        {"x": Gaussian(0.5), "y": Linear()}, {"read": kb.Relation("x", "y", evidence="posterior")}
    ).fit({"read": (x, y)})
    embeddings, predictor = model._fitted.embeddings, model._fitted.relations["read"].predictor
    fresh_x, fresh_y, _, _ = gaussian_problem(seed + 100, 1500, 8)
    weights = assign(embeddings["x"].states, fresh_x[:, None])
    ratio = predictor.ratio(fresh_y, embeddings["y"].basis)
    assert (ratio @ predictor.prior == pytest.approx(1.0)) and (ratio > 0).all()
    fresh = np.log(np.asarray(weights.multiply(ratio).sum(axis=1))).mean()
    assert fresh == pytest.approx(evidence_settings(model)["evidence score"], abs=0.06)


def test_a_given_regularization_is_kept() -> None:
    x, y, _, _ = gaussian_problem(11, 300, 5)
    relation = kb.Relation("x", "y", evidence="posterior", regularization=0.37)
    model = kb.Model({"x": Gaussian(0.5), "y": Linear()}, {"read": relation}).fit({"read": (x, y)})
    assert model._fitted.relations["read"].predictor.ridge == 0.37


def test_features_that_say_nothing_leave_the_marginal() -> None:
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=2000), rng.normal(size=(2000, 6))
    model = kb.Model({"x": Gaussian(0.5), "y": Linear()}, {"read": kb.Relation("x", "y")}).fit(
        {"read": (x, y)}
    )
    beliefs = model.infer(isolated("x", "read", rng.normal(size=(50, 6))))
    assert np.abs(beliefs.mean() - x.mean()).max() < 0.2
    assert evidence_settings(model)["evidence score"] == pytest.approx(0.0, abs=0.02)


# ---------------------------------------------------------------------- choosing


def test_counts_are_chosen_for_noisy_numbers_and_regression_for_long_vectors() -> None:
    rng = np.random.default_rng(13)
    x = rng.choice([-2.0, 0.0, 1.0], 3000) + 0.2 * rng.normal(size=3000)
    noisy = np.where(rng.random(3000) < 0.5, x, -x) + 0.3 * rng.normal(size=3000)
    _, y, _, _ = gaussian_problem(13, 3000, 20)
    y = y + x[:, None]
    model = kb.Model(
        {"x": Gaussian("median", scale=0.3), "number": Gaussian("median", scale=0.3), "vector": Linear()},
        {"number": kb.Relation("x", "number"), "vector": kb.Relation("x", "vector")},
    ).fit({"number": (x, noisy), "vector": (x, y)})
    assert evidence_settings(model, "number")["evidence"] == "likelihood"
    assert evidence_settings(model, "number")["temperature"] is None
    assert evidence_settings(model, "vector")["evidence"] == "posterior"


def test_regression_is_chosen_where_counts_of_a_plane_are_worse() -> None:
    """Two numbers that only matter through their difference, in a kernel that sees little but their sum."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=2000)
    both = 8.0 * rng.normal(size=2000)
    y = np.column_stack([both + x, both - x])
    model = kb.Model({"x": Gaussian(0.4), "y": Linear()}, {"read": kb.Relation("x", "y")}, budget=16).fit(
        {"read": (x, y)}
    )
    assert evidence_settings(model)["evidence"] == "posterior"


def test_finite_readings_and_relations_between_nodes_are_counted() -> None:
    rng = np.random.default_rng(15)
    x = rng.normal(size=400)
    model = kb.Model(
        {"x": Gaussian(0.5), "word": Delta()},
        {"then": kb.Relation("x", "x"), "said": kb.Relation("x", "word")},
    ).fit({"then": (x[:-1], x[1:]), "said": (x, np.where(x > 0, "up", "down"))})
    assert evidence_settings(model, "then")["evidence"] == "likelihood"
    assert evidence_settings(model, "said")["evidence"] == "likelihood"


def test_no_states_are_laid_out_among_long_vectors_unless_asked_for() -> None:
    x, y, _, _ = gaussian_problem(16, 400, 5)
    variables = {"x": Gaussian(0.5), "y": Gaussian()}

    def fitted(evidence: Any) -> kb.Model:
        return kb.Model(variables, {"read": kb.Relation("x", "y", evidence=evidence)}).fit({"read": (x, y)})

    assert fitted(None).settings_["variables"]["y"]["states"] == 1
    assert fitted("likelihood").settings_["variables"]["y"]["states"] > 1
    pair = kb.Graph.from_edges([(0, 1, "read")], variables=["x", "y"])
    with pytest.raises(
        InputError, match="variable 'y' holds long vectors that were learned as readings only"
    ):
        fitted(None).infer(pair)
    assert fitted("likelihood").infer(pair)["x"].mean().shape == (1,)


# ---------------------------------------------------------------------- in a graph


def test_a_chain_improves_on_the_predictor_and_comes_near_the_true_smoother() -> None:
    """A hidden Markov chain of three names, read through features: forward-backward is the judge."""
    rng = np.random.default_rng(17)
    stay = np.array([[0.9, 0.05, 0.05], [0.1, 0.85, 0.05], [0.05, 0.1, 0.85]])
    centres = np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0, 0.0]])

    def run(length: int) -> tuple[Array, Array]:
        state = [0]
        for _ in range(length - 1):
            state.append(rng.choice(3, p=stay[state[-1]]))
        return np.array(state), centres[state] + rng.normal(size=(length, 5))

    states, features = run(6000)
    model = kb.Model(
        {"state": Delta(), "features": Linear()},
        {
            "then": kb.Relation("state", "state"),
            "read": kb.Relation("state", "features", evidence=LogisticRegression()),
        },
    ).fit({"then": (states[:-1], states[1:]), "read": (states, features)})
    truth, seen = run(1500)
    alone = model.infer(isolated("state", "read", seen)).density([0, 1, 2])
    chain = kb.Graph.chain(1500, variable="state", relation="then").observe("read", seen)
    together = model.infer(chain).density([0, 1, 2])

    likelihood = np.exp(-0.5 * ((seen[:, None] - centres) ** 2).sum(axis=2))
    prior = np.linalg.matrix_power(stay, 500)[0]
    exact = forward_backward(prior, stay, likelihood)
    right = [(table.argmax(axis=1) == truth).mean() for table in (alone, together, exact)]
    assert right[1] > right[0] + 0.1
    assert right[1] > right[2] - 0.02
    assert np.abs(together - exact).mean() < 0.03


def forward_backward(prior: Array, transition: Array, likelihood: Array) -> Array:
    forward, backward = np.empty_like(likelihood), np.ones_like(likelihood)
    forward[0] = prior * likelihood[0]
    for t in range(1, len(likelihood)):
        forward[t] = forward[t - 1] @ transition * likelihood[t]
        forward[t] /= forward[t].sum()
    for t in range(len(likelihood) - 2, -1, -1):
        backward[t] = transition @ (likelihood[t + 1] * backward[t + 1])
        backward[t] /= backward[t].sum()
    both = forward * backward
    return both / both.sum(axis=1, keepdims=True)


def test_missing_readings_say_nothing() -> None:
    x, y, _, _ = gaussian_problem(18, 500, 5)
    model = kb.Model(
        {"x": Gaussian(0.5), "y": Linear()}, {"read": kb.Relation("x", "y", evidence=Ridge())}
    ).fit({"read": (x, y)})
    new = np.vstack([y[:1], np.full((1, 5), np.nan)])
    beliefs = model.infer(isolated("x", "read", new))
    nothing = model.infer(kb.Graph.from_edges([], variables=["x"]))
    assert beliefs.mean()[1] == pytest.approx(nothing.mean()[0])
    assert beliefs.mean()[0] != pytest.approx(nothing.mean()[0], abs=1e-3)


# ---------------------------------------------------------------------- held-out pairs


def test_folds_are_blocks_of_neighbours_of_about_equal_size() -> None:
    folds = _folds(1000)
    assert set(np.bincount(folds)) <= set(range(320, 348))
    assert (np.diff(folds) != 0).sum() == 29
    assert sorted(_folds(2)) == [0, 1]


def test_calibration_finds_the_temperature_it_is_shown() -> None:
    rng = np.random.default_rng(19)
    prior = np.array([0.5, 0.3, 0.2])
    logs = rng.normal(size=(8000, 3))
    honest = prior * np.exp(logs)
    honest /= honest.sum(axis=1, keepdims=True)
    states = (rng.random((8000, 1)) > np.cumsum(honest, axis=1)).sum(axis=1)
    shown = _calibrate(3.0 * logs, assign_exactly(states), prior)
    assert shown.temperature == pytest.approx(3.0, rel=0.15) and shown.share <= 0.01
    assert Calibration(1.0, 0.0, np.ones(3), None).ratio(logs, prior) @ prior == pytest.approx(1.0)


def assign_exactly(states: Array) -> Any:
    from scipy import sparse

    return sparse.csr_array((np.ones(len(states)), (np.arange(len(states)), states)), shape=(len(states), 3))


def test_two_pairs_are_enough_to_learn_from() -> None:
    model = kb.Model(
        {"x": Gaussian(1.0), "y": Linear()}, {"read": kb.Relation("x", "y", evidence="posterior")}
    ).fit({"read": ([0.0, 1.0], np.eye(5)[:2])})
    assert evidence_settings(model)["evidence score"] is None
    assert np.isfinite(model.infer(isolated("x", "read", np.eye(5))).mean()).all()
    states = model._fitted.embeddings["x"].states
    basis = model._fitted.embeddings["y"].basis
    assert fit_posterior(np.array([[0.0], [1.0]]), np.eye(5)[:2], states, basis).calibration.share > 0


# ---------------------------------------------------------------------- files and refusals


def test_a_regression_is_stored_and_gives_the_same_beliefs(tmp_path: Path) -> None:
    x, y, _, _ = gaussian_problem(20, 300, 5)
    model = kb.Model({"x": Gaussian(0.5), "y": Linear()}, {"read": kb.Relation("x", "y")}).fit(
        {"read": (x, y)}
    )
    model.save(tmp_path / "m.kbp")
    back = kb.Model.load(tmp_path / "m.kbp")
    graph = isolated("x", "read", y[:20])
    np.testing.assert_array_equal(model.infer(graph).mean(), back.infer(graph).mean())
    assert back.settings_["relations"] == model.settings_["relations"]


def test_an_estimator_is_refused_by_the_file_by_name(tmp_path: Path) -> None:
    x, y, _, _ = gaussian_problem(21, 100, 5)
    relations = {"read": kb.Relation("x", "y", evidence=Ridge())}
    model = kb.Model({"x": Gaussian(0.5), "y": Linear()}, relations).fit({"read": (x, y)})
    with pytest.raises(UnsupportedError, match=r"relations\['read'\]\.evidence: .*Ridge.*not stored"):
        model.save(tmp_path / "m.kbp")
    # Nor does it slip in as a part of what was learned.
    model.relations = {"read": kb.Relation("x", "y")}
    with pytest.raises(UnsupportedError, match=r"relations\['read'\]\.predictor: .*not stored"):
        model.save(tmp_path / "m.kbp")
    assert list(tmp_path.iterdir()) == []


def test_embeddings_do_not_take_estimators() -> None:
    x, y, _, _ = gaussian_problem(22, 100, 5)
    relations = {"read": kb.Relation("x", "y", evidence=Ridge())}
    model = kb.Model({"x": Gaussian(0.5), "y": Linear()}, relations).fit({"read": (x, y)})
    with pytest.raises(UnsupportedError, match="relation 'read': evidence from an estimator needs"):
        model.infer(isolated("x", "read", y[:2]), conditionals="embedding")


class OnlyFits:
    def fit(self, X: Any, y: Any) -> OnlyFits:
        return self


@pytest.mark.parametrize("wrong", [OnlyFits(), Ridge, "guess", 3, len])
def test_what_is_no_evidence_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="evidence: expected 'likelihood' or 'posterior', a scikit-learn"):
        kb.Relation("x", "y", evidence=wrong)


REFUSED = {
    "classifier without probabilities": (Perceptron(), "gives no probabilities"),
    "regressor of objects": (Ridge(), "predicts numbers, but the hidden variable holds objects"),
    "one class only": (LogisticRegression(), "could not be trained on"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_estimators_that_cannot_speak_are_refused(case: str) -> None:
    estimator, text = REFUSED[case]
    names, features = words_problem(23, 60)
    if case == "one class only":
        names = np.full(60, "ash")
    model = kb.Model(
        {"tree": Delta(), "leaf": Linear()}, {"read": kb.Relation("tree", "leaf", evidence=estimator)}
    )
    with pytest.raises(InputError) as refusal:
        model.fit({"read": (names, features)})
    assert "relations['read'].evidence" in str(refusal.value) and text in str(refusal.value)


def test_the_estimator_given_is_left_as_it_was() -> None:
    x, y, _, _ = gaussian_problem(24, 100, 5)
    given = Ridge()
    kb.Model({"x": Gaussian(0.5), "y": Linear()}, {"read": kb.Relation("x", "y", evidence=given)}).fit(
        {"read": (x, y)}
    )
    assert not hasattr(given, "coef_")
    assert repr(kb.Relation("x", "y", evidence=given)) == "Relation('x', 'y', evidence=Ridge())"
