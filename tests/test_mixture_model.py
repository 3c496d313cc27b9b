"""Gaussian-mixture belief propagation, against closed forms and quadrature of the same model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError, UnsupportedError
from kernelbp.rivals import mixture as module
from kernelbp.rivals.mixture import GaussianMixtureModel

SLOPE, NOISE, READING_NOISE = 0.8, 0.6, 0.5
EDGES = [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)]
READINGS = np.array([1.5, np.nan, -0.5, np.nan, 1.0, 2.0])


def step(now: Any, following: Any) -> Any:
    return np.exp(-((following - SLOPE * now) ** 2) / (2 * NOISE**2))


def seen(hidden: Any, reading: Any) -> Any:
    return np.exp(-((hidden - reading) ** 2) / (2 * READING_NOISE**2))


def tree() -> kb.Graph:
    return kb.Graph.from_edges([(i, j, "then") for i, j in EDGES], variables=["state"] * 6)


def model(*, known: bool = True, **settings: Any) -> GaussianMixtureModel:
    if known:
        settings.setdefault("landmarks", {"state": np.linspace(-8, 8, 400)})
    return GaussianMixtureModel(
        {"state": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        {
            "then": kb.Relation("state", "state", potential=step if known else None),
            "seen": kb.Relation("state", "reading", potential=seen),
        },
        **settings,
    )


def exact_moments(readings: Any, prior_precision: float) -> tuple[Any, Any]:
    """Means and standard deviations of the linear-Gaussian tree; only the root may have a prior of its own."""
    precision, shift = np.zeros((6, 6)), np.zeros(6)
    precision[0, 0] += prior_precision
    for i, j in EDGES:
        outer = np.array([SLOPE, -1.0]) / NOISE
        precision[np.ix_([i, j], [i, j])] += np.outer(outer, outer)
    for node in np.flatnonzero(~np.isnan(readings)):
        precision[node, node] += READING_NOISE**-2
        shift[node] += readings[node] / READING_NOISE**2
    covariance = np.linalg.inv(precision)
    return covariance @ shift, np.sqrt(np.diag(covariance))


@pytest.fixture(scope="module")
def learned() -> GaussianMixtureModel:
    rng = np.random.default_rng(0)
    now = rng.standard_normal(2000)
    following = SLOPE * now + NOISE * rng.standard_normal(2000)
    fitted = model(known=False, n_samples=100, belief_samples=400, n_centres=50)
    return fitted.fit({"then": (now, following)})


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of known relations a quarter of their size, still ten values to a standard deviation: made for each run."""
    monkeypatch.setattr(module, "GRID_POINTS", 512)


def quadrature(fitted: GaussianMixtureModel, readings: Any) -> tuple[Any, Any]:
    """The same learned densities, integrated on a fine line by the textbook recursion over the tree."""
    assert fitted._learned is not None
    line = np.linspace(-5, 5, 400)
    relation: Any = fitted._learned.relations["then"]
    tables = [relation.conditional(end)(line[:, None], line[:, None]) for end in (0, 1)]
    prior = fitted._learned.variables["state"].prior
    assert prior is not None
    neighbours: dict[int, list[tuple[int, int]]] = {}
    for i, j in EDGES:
        neighbours.setdefault(i, []).append((j, 0))
        neighbours.setdefault(j, []).append((i, 1))
    evidence = [np.ones(400) if np.isnan(r) else seen(line, r) for r in readings]

    def message(sender: int, receiver: int, end: int) -> Any:
        product = evidence[sender].copy()
        for other, own_end in neighbours[sender]:
            if other != receiver:
                product *= message(other, sender, own_end)
        sent = tables[end] @ product
        return sent / sent.max()

    means, deviations = [], []
    for node in range(6):
        belief = evidence[node] * np.exp(prior.log_at(line[:, None]))
        for other, end in neighbours[node]:
            belief = belief * message(other, node, end)
        belief /= belief.sum()
        means.append(belief @ line)
        deviations.append(np.sqrt(belief @ (line - means[-1]) ** 2))
    return np.array(means), np.array(deviations)


# ---------------------------------------------------------------------- right where the answer is known


def test_known_linear_gaussian_tree_agrees_and_errors_fall_with_the_root_of_n(coarse: None) -> None:
    means, deviations = exact_moments(READINGS, 0.0)
    graph = tree().observe("seen", READINGS)
    errors, biases = {}, {}
    for size in (12, 108):
        fitted = model(n_samples=size, belief_samples=4 * size).fit()
        found = np.array([(b.mean(), b.std()) for b in (fitted.infer(graph, seed=s) for s in range(16))])
        errors[size] = np.sqrt(((found - (means, deviations)) ** 2).mean(axis=(0, 2)))
        biases[size] = found.mean(axis=0) - (means, deviations)
    # Means are within four of their own standard errors. A product of noisy mixtures is too narrow by the order of
    # 1 / (n h), n^(-4/5) with Silverman's bandwidth h, so that bias must fall faster than the noise does.
    error = found.std(axis=0, ddof=1) / np.sqrt(16)
    assert (np.abs(biases[108][0]) < 4 * error[0]).all()
    assert (np.abs(biases[108][1]) < np.abs(biases[12][1]) / 3 + 4 * error[1]).all()
    # n^(-1/2): nine times the samples, a third of the error; sixteen seeds tell it to about a quarter.
    rates = errors[12] / errors[108]
    assert ((rates > 2.2) & (rates < 4.2)).all(), errors


def test_learned_tree_agrees_with_quadrature_and_with_the_truth(learned: GaussianMixtureModel) -> None:
    graph = tree().observe("seen", READINGS)
    found = np.array([(b.mean(), b.std()) for b in (learned.infer(graph, seed=s) for s in range(16))])
    same_model = np.array(quadrature(learned, READINGS))
    error = found.std(axis=0, ddof=1) / np.sqrt(16)
    assert (np.abs(found.mean(axis=0) - same_model) < 4 * error + 5e-3).all()
    assert error.max() < 0.03
    # What is left is the error of learning from 2000 pairs.
    truth = np.array(exact_moments(READINGS, 1.0))
    assert np.abs(found.mean(axis=0) - truth).max() < 0.12


def test_samplers_agree_on_beliefs(coarse: None) -> None:
    means, _ = exact_moments(READINGS, 0.0)
    graph = tree().observe("seen", READINGS)
    for sampler in ("exact", "gibbs", "multiscale", "epsilon"):
        fitted = model(n_samples=24, belief_samples=200, sampler=sampler).fit()
        found = np.array([fitted.infer(graph, seed=s).mean() for s in range(8)])
        error = found.std(axis=0, ddof=1) / np.sqrt(8)
        # Seven degrees of freedom: Student's t beyond 5.4 has probability 0.001.
        assert (np.abs(found.mean(axis=0) - means) < 5.4 * error + 5e-3).all(), sampler


def test_vectors_of_two_numbers() -> None:
    # Two independent chains side by side: each axis must give the answer of the chain on its own.
    def both(now: Any, following: Any) -> Any:
        return np.exp(-((following - now) ** 2).sum(axis=-1) / (2 * 0.5**2))

    def read(hidden: Any, reading: Any) -> Any:
        return np.exp(-((hidden - reading) ** 2).sum(axis=-1) / (2 * 0.5**2))

    rng = np.random.default_rng(1)
    fitted = GaussianMixtureModel(
        {"place": kb.kernels.Gaussian(), "fix": kb.kernels.Gaussian()},
        {
            "then": kb.Relation("place", "place", symmetric=True, potential=both),
            "read": kb.Relation("place", "fix", potential=read),
        },
        n_samples=100,
        belief_samples=400,
        landmarks={"place": rng.uniform(-3, 3, (512, 2))},
    ).fit()
    readings = np.array([[-1.0, 0.5], [np.nan, np.nan], [1.0, 1.0]])
    graph = kb.Graph.chain(3, variable="place", relation="then").observe("read", readings)
    found = np.array([fitted.infer(graph, seed=s).mean() for s in range(6)])
    precision = 4 * (np.array([[1, -1, 0], [-1, 2, -1], [0, -1, 1]]) + np.diag([1, 0, 1]))
    expected = np.linalg.solve(precision, 4 * np.nan_to_num(readings))
    error = found.std(axis=0, ddof=1) / np.sqrt(6)
    # Student's t with five degrees beyond 6.9 has probability 0.001; 512 landmarks leave their own unevenness.
    assert (np.abs(found.mean(axis=0) - expected) < 6.9 * error + 0.08).all()
    assert error.max() < 0.08


def test_learned_vectors() -> None:
    rng = np.random.default_rng(2)
    turn = np.array([[0.8, -0.3], [0.3, 0.8]])
    now = rng.standard_normal((1500, 2))
    following = now @ turn.T + 0.4 * rng.standard_normal((1500, 2))
    fitted = GaussianMixtureModel(
        {"state": kb.kernels.Gaussian()},
        {"then": kb.Relation("state", "state")},
        n_samples=100,
        belief_samples=400,
    ).fit({"then": (now, following)})
    graph = kb.Graph.chain(3, variable="state", relation="then").fix([0], [[1.0, 0.5]])
    beliefs = fitted.infer(graph)
    assert beliefs.mean().shape == (3, 2)
    assert np.abs(beliefs.mean()[1] - turn @ [1.0, 0.5]).max() < 0.2
    assert np.abs(beliefs.mean()[2] - turn @ turn @ [1.0, 0.5]).max() < 0.25


# ---------------------------------------------------------------------- what a Gaussian cannot say


def test_both_modes_of_a_bimodal_chain_are_found() -> None:
    # Readings tell the square of the state, and steps are short: all states are near 2, or all near -2.
    def near(a: Any, b: Any) -> Any:
        return np.exp(-((a - b) ** 2) / (2 * 0.4**2))

    def square(hidden: Any, reading: Any) -> Any:
        return np.exp(-((hidden**2 - reading) ** 2) / 2)

    fitted = GaussianMixtureModel(
        {"state": kb.kernels.Gaussian(), "power": kb.kernels.Gaussian()},
        {
            "near": kb.Relation("state", "state", symmetric=True, potential=near),
            "square": kb.Relation("state", "power", potential=square),
        },
        n_samples=100,
        belief_samples=400,
        landmarks={"state": np.linspace(-6, 6, 300)},
    ).fit()
    graph = kb.Graph.chain(5, variable="state", relation="near").observe("square", np.full(5, 4.0))
    beliefs = fitted.infer(graph, seed=1)
    low, middle, high = beliefs.density([-2.0, 0.0, 2.0]).T
    assert (np.minimum(low, high) > 20 * middle).all()
    positive = beliefs.expect(lambda x: (x > 0).astype(float))
    assert ((positive > 0.25) & (positive < 0.75)).all()
    # A Gaussian of the same mean and width would have its peak where nearly nothing is.
    assert (np.abs(beliefs.mode()) > 1.5).all()
    # One reading of the sign settles it for all.
    decided = fitted.infer(graph.soften([0], [-6.0, -0.1, 0.1, 6.0], [0.0, 0.0, 1.0, 1.0]), seed=1)
    assert (decided.expect(lambda x: (x > 0).astype(float)) > 0.95).all()


# ---------------------------------------------------------------------- evidence


def test_every_kind_of_evidence_is_honoured() -> None:
    fitted = model(n_samples=200, belief_samples=800).fit()
    pair = kb.Graph.chain(2, variable="state", relation="then")
    fixed = fitted.infer(pair.fix([0], [1.0]))
    assert fixed.mean()[0] == 1.0
    assert fixed.std()[0] == 0.0
    assert abs(fixed.mean()[1] - SLOPE) < 4 * NOISE / np.sqrt(200)
    assert abs(fixed.std()[1] - NOISE) < 4 * NOISE / np.sqrt(2 * 200)
    # A reading says what virtual evidence of the same likelihood says.
    line = np.linspace(-8, 8, 801)
    read = fitted.infer(pair.observe("seen", [1.0, np.nan]))
    soft = fitted.infer(pair.soften([0], line, seen(line, 1.0)))
    for beliefs in (read, soft):
        assert np.abs(beliefs.mean() - [1.0, SLOPE]).max() < 4 * 0.72 / np.sqrt(200)
        expected = [READING_NOISE, np.hypot(NOISE, SLOPE * READING_NOISE)]
        assert np.abs(beliefs.std() - expected).max() < 4 * 0.72 / np.sqrt(2 * 200)
    # NaN everywhere is no evidence at all.
    nothing = fitted.infer(pair.observe("seen", [np.nan, np.nan]))
    assert np.array_equal(nothing.mean(), fitted.infer(pair).mean())


def test_learned_readings_say_what_the_likelihood_says() -> None:
    rng = np.random.default_rng(3)
    hidden = rng.standard_normal(1500)
    following = SLOPE * hidden + NOISE * rng.standard_normal(1500)
    readings = hidden + READING_NOISE * rng.standard_normal(1500)
    for form in ("likelihood", "posterior"):
        fitted = GaussianMixtureModel(
            {"state": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
            {"then": kb.Relation("state", "state"), "seen": kb.Relation("state", "reading", evidence=form)},
            n_samples=100,
            belief_samples=400,
            n_centres=40,
        ).fit({"then": (hidden, following), "seen": (hidden, readings)})
        graph = kb.Graph.chain(2, variable="state", relation="then").observe("seen", [1.0, np.nan])
        found = np.array([fitted.infer(graph, seed=s).mean() for s in range(8)])
        error = found.std(axis=0, ddof=1) / np.sqrt(8)
        assert error.max() < 0.03, form
        # Seven degrees of freedom: Student's t beyond 5.4 has probability 0.001.
        # N(0, 1) and a reading of 1 with variance 1/4: mean 0.8, then SLOPE times that; 0.06 for learning from 1500.
        assert (np.abs(found.mean(axis=0) - [0.8, 0.64]) < 5.4 * error + 0.06).all(), form


def test_potentials_that_take_a_reading_for_each_edge() -> None:
    def apart(a: Any, b: Any, distance: Any) -> Any:
        return np.exp(-((b - a - distance) ** 2) / (2 * 0.2**2))

    fitted = GaussianMixtureModel(
        {"place": kb.kernels.Gaussian()},
        {"apart": kb.Relation("place", "place", potential=apart)},
        n_samples=100,
        landmarks={"place": np.linspace(-2, 8, 300)},
    ).fit()
    graph = kb.Graph.from_edges(
        [(0, 1, "apart"), (1, 2, "apart")], variables=["place"] * 3, readings=[1.0, 2.5]
    ).fix([0], [0.5])
    beliefs = fitted.infer(graph)
    # Standard deviations are 0.2 and 0.2 sqrt(2); four standard errors of 100 samples.
    assert np.abs(beliefs.mean() - [0.5, 1.5, 4.0]).max() < 4 * 0.283 / 10
    assert np.abs(beliefs.std() - [0.0, 0.2, 0.283]).max() < 4 * 0.283 / np.sqrt(200)


def test_nodes_without_neighbours_and_variables_of_two_kinds() -> None:
    def lift(state: Any, pair: Any) -> Any:
        return np.exp(-((pair - np.stack([state, 2 * state], axis=-1)) ** 2).sum(axis=-1) / (2 * 0.3**2))

    rng = np.random.default_rng(5)
    fitted = GaussianMixtureModel(
        {"state": kb.kernels.Gaussian(), "pair": kb.kernels.Gaussian()},
        {"lift": kb.Relation("state", "pair", potential=lift)},
        n_samples=100,
        landmarks={"state": rng.standard_normal(400), "pair": 2 * rng.standard_normal((500, 2))},
    ).fit()
    graph = kb.Graph.from_edges([(0, 1, "lift")], variables=["state", "pair", "state"]).fix([0], [1.0])
    beliefs = fitted.infer(graph)
    assert beliefs["pair"].mean().shape == (1, 2)
    assert np.abs(beliefs["pair"].mean()[0] - [1.0, 2.0]).max() < 0.3
    assert abs(beliefs["state"].std()[1] - 1.0) < 0.2


# ---------------------------------------------------------------------- running


def test_same_seed_same_beliefs_and_loops_run_to_the_end(learned: GaussianMixtureModel) -> None:
    ring = kb.Graph.from_edges([(i, (i + 1) % 5, "then") for i in range(5)], variables=["state"] * 5)
    graph = ring.observe("seen", [1.0, np.nan, 0.5, np.nan, np.nan])
    first, again, other = (learned.infer(graph, seed=s, max_iterations=4) for s in (0, 0, 1))
    assert np.array_equal(first.mean(), again.mean())
    assert not np.array_equal(first.mean(), other.mean())
    assert first.iterations == 4
    assert not first.converged
    assert learned.infer(tree()).iterations == 1
    assert learned.infer(tree()).converged


def test_missed_tolerance_is_told(learned: GaussianMixtureModel) -> None:
    ring = kb.Graph.from_edges([(i, (i + 1) % 3, "then") for i in range(3)], variables=["state"] * 3)
    with pytest.warns(ConvergenceWarning, match="change by chance alone: try more samples"):
        beliefs = learned.infer(ring, max_iterations=2, tolerance=1e-6)
    assert len(beliefs.residuals) == 2
    assert learned.infer(ring, max_iterations=20, tolerance=1.0).converged


def test_damping_keeps_some_of_the_old_message(learned: GaussianMixtureModel) -> None:
    ring = kb.Graph.from_edges([(i, (i + 1) % 4, "then") for i in range(4)], variables=["state"] * 4)
    graph = ring.observe("seen", [2.0, np.nan, np.nan, np.nan])
    settings: dict[str, Any] = {"max_iterations": 24, "schedule": "flooding"}
    # Once settled, messages change by chance alone; a fifth of them drawn anew makes that sqrt(0.2) = 0.45 of it.
    plain = learned.infer(graph, **settings).residuals[8:].mean()
    damped = learned.infer(graph, **settings, damping=0.8).residuals[8:].mean()
    assert damped < 0.65 * plain


def test_mixing_weakens_a_relation(learned: GaussianMixtureModel) -> None:
    graph = kb.Graph.chain(2, variable="state", relation="then").observe("seen", [2.5, np.nan])
    means = []
    for mixing in (0.0, 0.5):
        other = model(known=False, n_samples=200, mixing=mixing)
        other._learned = learned._learned
        means.append(np.mean([other.infer(graph, seed=s).mean()[1] for s in range(8)]))
    # 0.8 x 2.0 without; with half of the prior's mean 0 mixed in by the weight of the evidence, clearly less.
    assert abs(means[0] - 1.6) < 0.15
    assert means[1] < 0.75 * means[0]


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (kb.kernels.Sphere(), "compares directions; use kernelbp.rivals.ParticleModel or kernelbp.Model"),
        (kb.kernels.Delta(), "use kernelbp.rivals.DiscreteModel or kernelbp.Model"),
    ],
)
def test_other_variables_are_refused_and_told_where_to_go(kernel: Any, words: str) -> None:
    refused = GaussianMixtureModel({"x": kernel}, {"r": kb.Relation("x", "x")})
    with pytest.raises(UnsupportedError, match=words):
        refused.fit({"r": ([1.0], [1.0])})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_samples": 1}, "n_samples: expected a whole number of at least 2, got 1"),
        ({"oversampling": 0}, "oversampling: expected a whole number of at least 1, got 0"),
        ({"sampler": "fast"}, "sampler: expected one of auto, exact, gibbs, multiscale, epsilon, got 'fast'"),
        ({"epsilon": 0.0}, "epsilon: expected a number between 0 and 1, got 0.0"),
        ({"bandwidth": -1.0}, "bandwidth: expected a number of at least 0, got -1.0"),
        ({"mixing": 1.0}, "mixing: expected a number from 0 to below 1, got 1.0"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        model(**settings).fit()


def test_bad_calls_are_named(learned: GaussianMixtureModel) -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        model().infer(tree())
    with pytest.raises(InputError, match=r"graph: expected a kernelbp\.Graph"):
        learned.infer("tree")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="schedule: expected 'auto'"):
        learned.infer(tree(), schedule="splash")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown relation 'heard'"):
        learned.infer(tree().observe("heard", np.zeros(6)))
    with pytest.raises(InputError, match="no examples of relation 'then'"):
        model(known=False).fit({})
