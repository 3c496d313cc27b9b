"""Particle belief propagation against exact answers: Gaussians, quadrature, and the update written out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import kernelbp as kb
from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError, UnsupportedError
from kernelbp.inference.schedules import make_plan
from kernelbp.rivals import particle as module
from kernelbp.rivals.beliefs import MixtureBeliefs, draw_on_sphere
from kernelbp.rivals.particle import ParticleModel, Particles
from kernelbp.rivals.setup import Prior, prepare, smoothing

NOISE, READ, KEPT = 0.6, 0.5, 0.8
TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (5, 6)]
SEEN = np.array([np.nan, 1.0, -1.0, 2.0, np.nan, 0.5, -2.0])
FLAT = {"x": np.linspace(-12, 12, 300)}

MEAN_MARGIN = 5.4
"""Standard errors allowed between an average over eight seeds and the exact answer: beyond it with chance 0.001."""


def step(now: np.ndarray, following: np.ndarray) -> np.ndarray:
    return np.exp(-((following - KEPT * now) ** 2) / (2 * NOISE**2))


def read(hidden: np.ndarray, reading: np.ndarray) -> np.ndarray:
    return np.exp(-((reading - hidden) ** 2) / (2 * READ**2))


def known_model(n_particles: int, resample_every: int = 3, **settings: object) -> ParticleModel:
    model = ParticleModel(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {"then": kb.Relation("x", "x", potential=step), "read": kb.Relation("x", "y", potential=read)},
        n_particles=n_particles,
        resample_every=resample_every,
        **({"landmarks": FLAT} | settings),  # type: ignore[arg-type]
    )
    return model.fit()


def tree_graph() -> kb.Graph:
    edges = [(a, b, "then") for a, b in TREE]
    return kb.Graph.from_edges(edges, variables=["x"] * 7)


def exact(edges: list[tuple[int, int]], readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the joint Gaussian of `step` along edges and `read` at nodes."""
    precision, pull = np.zeros((len(readings), len(readings))), np.zeros(len(readings))
    for a, b in edges:
        across = np.zeros(len(readings))
        across[b], across[a] = 1.0, -KEPT
        precision += np.outer(across, across) / NOISE**2
    for node, value in enumerate(readings):
        if np.isfinite(value):
            precision[node, node] += READ**-2
            pull[node] += value / READ**2
    return np.linalg.solve(precision, pull), np.sqrt(np.diag(np.linalg.inv(precision)))


def over_seeds(run: Callable[[int], np.ndarray], seeds: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Average over seeds and the standard error of that average."""
    found = np.array([run(seed) for seed in range(seeds)])
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(seeds)


# ---------------------------------------------------------------------- exact answers


def test_tree_of_gaussians_agrees_with_the_exact_answer() -> None:
    model, graph = known_model(150), tree_graph().observe("read", SEEN)
    mean, std = exact(TREE, SEEN)
    runs = [model.infer(graph, max_iterations=6, seed=seed) for seed in range(8)]
    found, error = over_seeds(lambda seed: runs[seed].mean())
    # A single run of 150 particles errs by about a tenth of a standard deviation.
    assert (error < 0.08 * std).all()
    assert (np.abs(found - mean) < MEAN_MARGIN * error).all()
    # Smoothing widens by at most 0.9^2 150^(-2/5) / 2 = 5%; the rest is sampling error.
    ratio = np.mean([run.std() for run in runs], axis=0) / std
    assert ((ratio > 0.93) & (ratio < 1.12)).all()


def test_errors_fall_with_the_root_of_the_number_of_particles() -> None:
    graph = kb.Graph.chain(4, variable="x", relation="then").observe("read", [1.0, np.nan, -1.0, np.nan])
    mean, std = exact([(0, 1), (1, 2), (2, 3)], np.array([1.0, np.nan, -1.0, np.nan]))
    sizes, errors = (25, 200), []
    for size in sizes:
        model = known_model(size)
        runs = [(model.infer(graph, max_iterations=6, seed=s).mean() - mean) / std for s in range(16)]
        errors.append(float(np.sqrt(np.mean(np.square(runs)))))
    # From 64 errors at each size the rate is known to about 0.06; it should be a half.
    rate = np.log(errors[0] / errors[1]) / np.log(sizes[1] / sizes[0])
    assert 0.32 < rate < 0.68


def test_both_modes_of_a_folded_reading_are_found() -> None:
    def folded(hidden: np.ndarray, reading: np.ndarray) -> np.ndarray:
        return np.exp(-((reading - np.abs(hidden)) ** 2) / (2 * 0.3**2))

    def walk(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-((a - b) ** 2) / (2 * 0.4**2))

    def hint(hidden: np.ndarray, reading: np.ndarray) -> np.ndarray:
        return np.exp(-((reading - hidden) ** 2) / (2 * 3.0**2))

    model = ParticleModel(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {
            "walk": kb.Relation("x", "x", symmetric=True, potential=walk),
            "folded": kb.Relation("x", "y", potential=folded),
            "hint": kb.Relation("x", "y", potential=hint),
        },
        n_particles=150,
        resample_every=2,
        landmarks={"x": np.linspace(-6, 6, 200)},
    ).fit()
    graph = kb.Graph.chain(3, variable="x", relation="walk")
    graph = graph.observe("folded", [2.0, np.nan, np.nan]).observe("hint", [np.nan, np.nan, 1.0])
    # The exact answer on a fine grid, by the two passes of a chain.
    grid = np.linspace(-6, 6, 1201)
    between = walk(grid[:, None], grid)
    beliefs = [
        folded(grid, 2.0) * (between @ (between @ hint(grid, 1.0))),
        (between @ folded(grid, 2.0)) * (between @ hint(grid, 1.0)),
        hint(grid, 1.0) * (between @ (between @ folded(grid, 2.0))),
    ]
    right = np.array([b[grid > 0].sum() / b.sum() for b in beliefs])
    assert (right > 0.55).all() and (right < 0.75).all()
    runs = [model.infer(graph, max_iterations=6, seed=seed) for seed in range(8)]
    found, error = over_seeds(lambda seed: runs[seed].expect(lambda x: x > 0))
    assert (error < 0.06).all() and (np.abs(found - right) < MEAN_MARGIN * error + 0.01).all()
    for run in runs:
        density = run.density([-2.0, 0.0, 2.0], nodes=[0])[0]
        assert density[1] < 0.25 * min(density[0], density[2])  # a Gaussian is highest in the middle


def test_walk_on_the_sphere_agrees_with_quadrature() -> None:
    def near(concentration: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        return lambda a, b: np.exp(concentration * ((a * b).sum(axis=-1) - 1))

    count = 2000
    points = even_points(count)
    seen = np.array([[1.0, 0.0, 0.0], [np.nan] * 3, [0.0, 0.6, 0.8], [np.nan] * 3])
    walk, look = near(6.0), near(3.0)
    between = np.exp(6.0 * (points @ points.T - 1))
    local = [look(points, y) if np.isfinite(y).all() else np.ones(count) for y in seen]
    left, right = [np.ones(count)], [np.ones(count)]
    for index in range(3):
        left.append(between @ (left[-1] * local[index]) / count)
        right.append(between @ (right[-1] * local[3 - index]) / count)
    beliefs = np.array([a * b * c for a, b, c in zip(left, local, right[::-1], strict=True)])
    expected = beliefs @ points / beliefs.sum(axis=1, keepdims=True)

    model = ParticleModel(
        {"x": kb.kernels.Sphere(), "y": kb.kernels.Sphere()},
        {
            "walk": kb.Relation("x", "x", symmetric=True, potential=walk),
            "look": kb.Relation("x", "y", potential=look),
        },
        n_particles=100,
        landmarks={"x": points[::6]},
        resample_every=2,
    ).fit()
    graph = kb.Graph.chain(4, variable="x", relation="walk").observe("look", seen)

    runs = [model.infer(graph, max_iterations=4, seed=seed) for seed in range(8)]

    def moments(seed: int) -> np.ndarray:
        cloud = runs[seed]["x"].mixtures
        np.testing.assert_allclose(np.linalg.norm(cloud.points, axis=2), 1.0)
        return np.einsum("sn,snd->sd", cloud.weights, cloud.points)

    found, error = over_seeds(moments)
    assert (error < 0.03).all() and (np.abs(found - expected) < MEAN_MARGIN * error + 1e-3).all()
    directions = runs[0].mean() / np.linalg.norm(runs[0].mean(), axis=1, keepdims=True)
    exact_directions = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    assert (np.einsum("sd,sd->s", directions, exact_directions) > np.cos(0.25)).all()


@pytest.fixture(scope="module")
def learned() -> tuple[ParticleModel, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    now = rng.standard_normal(1000)
    pairs = {"now": now, "following": 0.8 * now + 0.6 * rng.standard_normal(1000)}
    pairs["reading"] = now + 0.5 * rng.standard_normal(1000)
    model = ParticleModel(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {"then": kb.Relation("x", "x"), "read": kb.Relation("x", "y")},
        n_particles=150,
        resample_every=2,
        n_centres=40,
    )
    return model.fit({"then": (now, pairs["following"]), "read": (now, pairs["reading"])}), pairs


def test_learned_relations_agree_with_quadrature_over_the_same_densities(
    learned: tuple[ParticleModel, dict[str, np.ndarray]],
) -> None:
    model, _ = learned
    graph = kb.Graph.chain(3, variable="x", relation="then").observe("read", [1.5, np.nan, -0.5])
    assert model._learned is not None
    grid = np.linspace(-5, 5, 501)[:, None]
    toward_first = model._learned.relations["then"].conditional(0)(grid, grid)  # p(next | now)
    toward_second = model._learned.relations["then"].conditional(1)(grid, grid)
    reading = model._learned.relations["read"].conditional(0)(grid, np.array([[1.5], [-0.5]])).T
    prior = np.exp(model._learned.variables["x"].prior.log_at(grid))
    beliefs = [
        prior * reading[0] * (toward_first @ (toward_first @ reading[1])),
        prior * (toward_second @ reading[0]) * (toward_first @ reading[1]),
        prior * reading[1] * (toward_second @ (toward_second @ reading[0])),
    ]
    expected = np.array([b @ grid[:, 0] / b.sum() for b in beliefs])
    found, error = over_seeds(lambda seed: model.infer(graph, max_iterations=6, seed=seed).mean())
    # Integrals on the grid are short of 0.04 of their step's square in steps of the density: far below the error.
    assert (error < 0.04).all() and (np.abs(found - expected) < MEAN_MARGIN * error).all()
    # And the densities were learned well enough: the exact Gaussian answer, prior N(0, 1), is near.
    assert np.abs(expected - [0.96, 0.35, -0.16]).max() < 0.25


def even_points(count: int) -> np.ndarray:
    """Points spread evenly over the sphere, each standing for an equal area."""
    height = 1 - (2 * np.arange(count) + 1) / count
    angle = np.pi * (1 + 5**0.5) * np.arange(count)
    around = np.sqrt(1 - height**2)
    return np.stack([around * np.cos(angle), around * np.sin(angle), height], axis=1)


def test_relations_learned_on_the_sphere_agree_with_quadrature() -> None:
    rng = np.random.default_rng(0)
    now = rng.standard_normal((300, 3)) + [1.0, 0.0, 0.0]
    now /= np.linalg.norm(now, axis=1, keepdims=True)
    following = draw_on_sphere(now, np.full(300, 5.0), rng)
    model = ParticleModel(
        {"x": kb.kernels.Sphere()},
        {"then": kb.Relation("x", "x")},
        n_particles=80,
        resample_every=2,
        n_centres=20,
    ).fit({"then": (now, following)})
    assert model._learned is not None
    start = np.array([0.0, 0.6, 0.8])
    graph = kb.Graph.chain(3, variable="x", relation="then").fix([0], start[None])
    points = even_points(1500)
    conditional = model._learned.relations["then"].conditional(1)  # p(now | next)
    prior = np.exp(model._learned.variables["x"].prior.log_at(points))
    known = conditional(points, start[None])[:, 0]
    # Messages run forwards only: backwards they are constant.
    beliefs = np.array([prior * known, prior * (conditional(points, points) @ known)])
    expected = beliefs @ points / beliefs.sum(axis=1, keepdims=True)

    def moments(seed: int) -> np.ndarray:
        cloud = model.infer(graph, max_iterations=4, seed=seed)["x"].mixtures
        return np.einsum("sn,snd->sd", cloud.weights, cloud.points)[1:]

    found, error = over_seeds(moments)
    assert (error < 0.06).all() and (np.abs(found - expected) < MEAN_MARGIN * error).all()


# ---------------------------------------------------------------------- the update itself


def small_loop(**settings: object) -> tuple[ParticleModel, kb.Graph]:
    model = known_model(6, **settings)
    graph = kb.Graph.from_edges(
        [(0, 1, "then"), (1, 2, "then"), (2, 0, "then"), (2, 3, "then")], variables=["x"] * 4
    )
    return model, graph.observe("read", [1.0, np.nan, 0.0, -1.0])


def test_messages_equal_the_sum_written_out() -> None:
    # Landmarks that make the node potential far from flat.
    model, graph = small_loop(prune=0.0, landmarks={"x": np.random.default_rng(1).standard_normal(200)})
    assert model._learned is not None
    prepared = prepare(graph, model._learned)
    wiring = prepared.wiring
    particles = Particles(prepared, 6, 4, 0.0, 0.0, np.random.default_rng(0))
    plan = make_plan("flooding", wiring, 4, None)
    prior = model._learned.variables["x"].prior
    readings = [1.0, np.nan, 0.0, -1.0]
    for _ in range(3):
        cloud = particles._clouds[0]
        points, old = cloud.points[..., 0].copy(), np.exp(cloud.messages)
        drawn = np.exp(cloud.log_drawn)
        expected = np.zeros_like(old)
        for message in range(wiring.n_messages):
            s, t = wiring.target[message], wiring.source[message]
            for i in range(6):
                for j in range(6):
                    forward = wiring.operators[wiring.operator[message]][1] == 0
                    ends = (points[s, i], points[t, j]) if forward else (points[t, j], points[s, i])
                    term = step(*ends) * np.exp(prior.log_at(points[t, j].reshape(1, 1))[0]) / drawn[t, j]
                    if np.isfinite(readings[t]):
                        term *= read(points[t, j], readings[t])
                    for other in range(wiring.n_messages):
                        if wiring.target[other] == t and wiring.source[other] != s:
                            term *= old[other, j]
                    expected[message, i] += term
        particles.update(next(iter(plan.iteration(np.empty(0), complete=True)))[0], 0.0)
        expected /= expected.max(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(particles._clouds[0].messages), expected, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("known", [True, False])
def test_tables_too_large_to_keep_change_nothing(
    known: bool, learned: tuple[ParticleModel, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, graph = small_loop() if known else (learned[0], small_loop()[1])
    whole = model.infer(graph, max_iterations=3).mean()
    monkeypatch.setattr(module, "CACHE_BYTES", 0)
    monkeypatch.setattr(module, "BLOCK_CELLS", 5000)
    # Single precision may tip the acceptance of a proposal only if it is closer than rounding.
    np.testing.assert_allclose(model.infer(graph, max_iterations=3).mean(), whole, rtol=1e-4)


def test_messages_of_moved_particles_are_those_of_the_frozen_senders(
    learned: tuple[ParticleModel, dict[str, np.ndarray]],
) -> None:
    """At the points they have, messages as functions equal messages as sums over tables."""
    assert learned[0]._learned is not None
    graph = kb.Graph.chain(3, variable="x", relation="then").observe("read", [1.5, np.nan, -0.5])
    prepared = prepare(graph, learned[0]._learned)
    particles = Particles(prepared, 20, 4, 0.0, 0.1, np.random.default_rng(0))
    whole = particles._everything
    assert whole is not None
    for send in whole.sends:
        weights = particles._sender_weights(whole, send)
        cloud = particles._clouds[0]
        frozen = particles._edges[send.operator].frozen(cloud, send, weights)
        at = frozen.at(cloud.points, prepared.wiring.target[send.messages])
        summed = particles._applied(send, weights)
        ratio = at / summed
        np.testing.assert_allclose(ratio, ratio.max(axis=1, keepdims=True) * np.ones(20), rtol=1e-4)


def test_independence_is_mixed_in_on_cycles_unless_told_otherwise(
    learned: tuple[ParticleModel, dict[str, np.ndarray]],
) -> None:
    model = learned[0]
    chain = kb.Graph.chain(3, variable="x", relation="then").fix([0], [2.0])
    ring = kb.Graph.from_edges([(0, 1, "then"), (1, 2, "then"), (0, 2, "then")], variables=["x"] * 3)
    ring = ring.observe("read", [2.0, np.nan, np.nan])
    found: dict[tuple[str, float | None], np.ndarray] = {}
    try:
        for mixing in (None, 0.0, module.LOOPY_MIXING):
            model.mixing = mixing
            for name, graph in (("chain", chain), ("ring", ring)):
                found[name, mixing] = model.infer(graph, max_iterations=2).mean()
    finally:
        model.mixing = None
    np.testing.assert_array_equal(found["chain", None], found["chain", 0.0])
    np.testing.assert_array_equal(found["ring", None], found["ring", module.LOOPY_MIXING])
    assert not np.array_equal(found["ring", None], found["ring", 0.0])


def test_mixed_relations_are_a_weighted_sum(
    learned: tuple[ParticleModel, dict[str, np.ndarray]],
) -> None:
    assert learned[0]._learned is not None
    graph = kb.Graph.chain(2, variable="x", relation="then")
    particles = Particles(prepare(graph, learned[0]._learned), 8, 2, 0.0, 0.25, np.random.default_rng(0))
    cloud, wiring = particles._clouds[0], particles._wiring
    for message in range(2):
        name, toward = wiring.operators[wiring.operator[message]]
        mine, theirs = cloud.points[wiring.target[message]], cloud.points[wiring.source[message]]
        conditional = learned[0]._learned.relations[name].conditional(toward)(mine, theirs)
        prior = np.exp(cloud.log_prior[wiring.source[message]])
        expected = 0.75 * conditional + 0.25 * prior
        found = particles._made(int(wiring.operator[message]), np.array([message]))[0]
        np.testing.assert_allclose(found, expected / expected.max(), rtol=1e-4, atol=1e-6)


def test_particles_with_next_to_no_weight_are_ignored() -> None:
    model, graph = small_loop()
    assert model._learned is not None
    prepared = prepare(graph, model._learned)
    particles = Particles(prepared, 6, 4, 0.1, 0.0, np.random.default_rng(0))
    plan = make_plan("flooding", prepared.wiring, 4, None)
    (phase,) = next(iter(plan.iteration(np.empty(0), complete=True)))
    particles.update(phase, 0.0)
    weights = np.concatenate([particles._sender_weights(phase, send) for send in phase.sends])
    assert (weights == 0).any() and weights[weights > 0].min() >= 0.1


# ---------------------------------------------------------------------- evidence


def test_a_fixed_node_is_its_value_and_informs_its_neighbours() -> None:
    graph = kb.Graph.chain(3, variable="x", relation="then").fix([1], [1.5])
    model = known_model(150)
    runs = [model.infer(graph, max_iterations=3, seed=seed) for seed in range(8)]
    for run in runs:
        assert run.mean()[1] == run.mode()[1] == 1.5 and run.std()[1] == pytest.approx(0, abs=1e-7)
    found, error = over_seeds(lambda seed: runs[seed].mean())
    # Before it x with 1.5 ~ N(0.8 x, 0.6), after it N(0.8 * 1.5, 0.6).
    assert abs(found[0] - 1.5 / KEPT) < MEAN_MARGIN * error[0] and error[0] < 0.05
    assert abs(found[2] - KEPT * 1.5) < MEAN_MARGIN * error[2] and error[2] < 0.05


def test_everything_fixed_or_alone_needs_no_messages() -> None:
    model = known_model(150)
    fixed = kb.Graph.chain(2, variable="x", relation="then").fix([0, 1], [1.0, 2.0])
    beliefs = model.infer(fixed)
    np.testing.assert_array_equal(beliefs.mean(), [1.0, 2.0])
    assert beliefs.converged and beliefs.iterations == 0
    alone = kb.Graph.from_edges(np.empty((0, 2), dtype=int), variables=["x"], relation="then")
    found, error = over_seeds(lambda seed: model.infer(alone.observe("read", [0.7]), seed=seed).mean())
    assert abs(found[0] - 0.7) < MEAN_MARGIN * error[0] and error[0] < 0.05


def test_softened_nodes_follow_the_interpolated_likelihood() -> None:
    knots, heights = np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0, 0.5])
    graph = kb.Graph.chain(2, variable="x", relation="then").observe("read", [0.5, np.nan])
    graph = graph.soften([0], points=knots, likelihood=heights)
    grid = np.linspace(-4, 4, 4001)
    belief = read(grid, 0.5) * np.interp(grid, knots, heights)
    expected = belief @ grid / belief.sum()
    model = known_model(150)
    found, error = over_seeds(lambda seed: model.infer(graph, max_iterations=3, seed=seed).mean())
    assert abs(found[0] - expected) < MEAN_MARGIN * error[0] and error[0] < 0.03
    assert abs(found[1] - KEPT * expected) < MEAN_MARGIN * error[1] and error[1] < 0.04


def test_softened_directions_take_the_nearest_point() -> None:
    axes = np.eye(3)
    model = ParticleModel(
        {"x": kb.kernels.Sphere()},
        {"walk": kb.Relation("x", "x", symmetric=True, potential=lambda a, b: np.exp((a * b).sum(axis=-1)))},
        n_particles=100,
        landmarks={"x": np.concatenate([axes, -axes])},
    ).fit()
    graph = kb.Graph.chain(2, variable="x", relation="walk")
    graph = graph.soften([0], points=np.concatenate([axes, -axes]), likelihood=[0, 0, 1, 0, 0, 0])
    cloud = model.infer(graph, max_iterations=2)["x"].mixtures
    assert (np.abs(cloud.points[0]).argmax(axis=1) == 2).all() and (cloud.points[0, :, 2] > 0).all()


def test_nan_is_no_evidence() -> None:
    model = known_model(20)
    graph = tree_graph()
    some = np.flatnonzero(np.isfinite(SEEN))
    whole = model.infer(graph.observe("read", SEEN), max_iterations=4)
    part = model.infer(graph.observe("read", SEEN[some], nodes=some), max_iterations=4)
    np.testing.assert_array_equal(whole.mean(), part.mean())


def test_two_readings_of_a_node_multiply() -> None:
    model = known_model(150)
    graph = kb.Graph.chain(2, variable="x", relation="then").fix([1], [0.0])
    graph = graph.observe("read", [1.0, np.nan]).observe("read", [2.0, np.nan])
    precision = 2 / READ**2 + KEPT**2 / NOISE**2
    found, error = over_seeds(lambda seed: model.infer(graph, max_iterations=2, seed=seed).mean())
    assert abs(found[0] - 3.0 / READ**2 / precision) < MEAN_MARGIN * error[0] and error[0] < 0.03


def test_long_readings_are_regressed_on() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal(800)
    loadings = np.array([1.0, -1.0, 0.5, 0.0, 2.0])
    features = hidden[:, None] * loadings + rng.standard_normal((800, 5))
    model = ParticleModel(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {"then": kb.Relation("x", "x", symmetric=True, potential=step), "read": kb.Relation("x", "y")},
        n_particles=150,
    ).fit({"read": (hidden, features)})
    alone = kb.Graph.from_edges(np.empty((0, 2), dtype=int), variables=["x"] * 50, relation="then")
    truth = rng.standard_normal(50)
    seen = truth[:, None] * loadings + rng.standard_normal((50, 5))
    precision = 1 + loadings @ loadings
    beliefs = model.infer(alone.observe("read", seen))
    # Exact: N(w'y / (1 + |w|^2), 1 / (1 + |w|^2)), with standard deviation 0.37.
    error = beliefs.mean() - seen @ loadings / precision
    assert np.sqrt((error**2).mean()) < 0.5 * precision**-0.5
    assert beliefs.std().mean() == pytest.approx(precision**-0.5, rel=0.2)


def test_edges_may_carry_readings() -> None:
    def apart(a: np.ndarray, b: np.ndarray, distance: np.ndarray) -> np.ndarray:
        return np.exp(-((b - a - distance) ** 2) / (2 * 0.3**2))

    model = ParticleModel(
        {"x": kb.kernels.Gaussian()},
        {"apart": kb.Relation("x", "x", potential=apart)},
        n_particles=150,
        landmarks=FLAT,
        resample_every=2,
    ).fit()
    graph = kb.Graph.from_edges(
        [(0, 1, "apart"), (1, 2, "apart"), (3, 2, "apart")], variables=["x"] * 4, readings=[1.0, 2.0, -3.0]
    ).fix([0], [0.5])
    found, error = over_seeds(lambda seed: model.infer(graph, max_iterations=6, seed=seed).mean())
    assert (np.abs(found - [0.5, 1.5, 3.5, 6.5]) <= MEAN_MARGIN * error).all() and (error < 0.06).all()
    with pytest.raises(InputError, match="potential takes a reading for each edge"):
        model.infer(kb.Graph.chain(3, variable="x", relation="apart"))


def test_variables_of_several_kinds_in_one_graph() -> None:
    """A number and a vector: (number, vector) ~ vector = number * w + noise."""
    direction = np.array([1.0, -0.5])

    def casts(number: np.ndarray, vector: np.ndarray) -> np.ndarray:
        gap = vector - number[..., None] * direction
        return np.exp(-(gap**2).sum(axis=-1) / (2 * 0.4**2))

    grid = np.stack(np.meshgrid(np.linspace(-5, 5, 15), np.linspace(-5, 5, 15)), axis=-1).reshape(-1, 2)
    model = ParticleModel(
        {"n": kb.kernels.Gaussian(), "v": kb.kernels.Gaussian(), "y": kb.kernels.Gaussian()},
        {"casts": kb.Relation("n", "v", potential=casts), "read": kb.Relation("n", "y", potential=read)},
        n_particles=100,
        resample_every=2,
        landmarks={"n": np.linspace(-6, 6, 200), "v": grid},
    ).fit()
    graph = kb.Graph.from_edges([(0, 1, "casts"), (0, 2, "casts")], variables=["n", "v", "v"])
    graph = graph.observe("read", [0.9], nodes=[0]).fix([2], [[2.0, -1.0]])
    pulled = READ**-2 + direction @ direction / 0.4**2
    mean = (0.9 / READ**2 + direction @ [2.0, -1.0] / 0.4**2) / pulled
    runs = [model.infer(graph, max_iterations=4, seed=seed) for seed in range(8)]
    found, error = over_seeds(lambda seed: runs[seed]["n"].mean())
    assert abs(found[0] - mean) < MEAN_MARGIN * error[0] and error[0] < 0.03
    vectors, error = over_seeds(lambda seed: runs[seed]["v"].mean())
    np.testing.assert_array_equal(vectors[1], [2.0, -1.0])
    assert (np.abs(vectors[0] - mean * direction) < MEAN_MARGIN * error[0]).all() and (error < 0.05).all()


# ---------------------------------------------------------------------- manners


def test_same_seed_same_result() -> None:
    model, graph = small_loop()
    first, again, other = (model.infer(graph, max_iterations=5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.mean(), again.mean())
    assert not np.array_equal(first.mean(), other.mean())


def test_the_answer_is_a_mixture_with_a_verdict() -> None:
    model, graph = small_loop()
    beliefs = model.infer(graph, max_iterations=4)
    assert isinstance(beliefs, MixtureBeliefs) and beliefs.graph is graph
    assert beliefs.iterations == 4 and len(beliefs.residuals) == 4 and not beliefs.converged
    assert beliefs["x"].mixtures.points.shape == (4, 6, 1)
    assert repr(model) == "ParticleModel(variables: x, y; relations: then, read; fitted)"


def test_settled_messages_end_the_run_and_unsettled_ones_warn() -> None:
    model, graph = known_model(10, resample_every=100), tree_graph().observe("read", SEEN)
    settled = model.infer(graph, tolerance=1e-6)
    # Two passes over a tree, and one more to see that nothing changes: before and after particles are drawn anew.
    assert settled.converged and settled.iterations == 4
    assert model.infer(graph, max_iterations=9).iterations == 9
    with pytest.warns(ConvergenceWarning, match="Particle inference stopped after 1 iterations"):
        model.infer(graph, tolerance=1e-6, max_iterations=1, schedule="flooding")


def test_messages_are_damped_on_cycles_unless_told_otherwise() -> None:
    model, ring = small_loop()
    told = {
        d: model.infer(ring, max_iterations=2, damping=d).mean() for d in (None, 0.0, module.LOOPY_DAMPING)
    }
    np.testing.assert_array_equal(told[None], told[module.LOOPY_DAMPING])
    assert not np.array_equal(told[None], told[0.0])
    tree = tree_graph().observe("read", SEEN)
    told = {d: model.infer(tree, max_iterations=2, damping=d).mean() for d in (None, 0.0)}
    np.testing.assert_array_equal(told[None], told[0.0])


def test_damping_slows_but_does_not_move_the_fixed_point() -> None:
    model, graph = known_model(10, resample_every=100), tree_graph().observe("read", SEEN)
    plain = model.infer(graph, max_iterations=3)
    damped = model.infer(graph, max_iterations=60, damping=0.5)
    np.testing.assert_allclose(damped.mean(), plain.mean(), rtol=1e-4)


def test_prior_is_a_density_and_gives_draws_of_it() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-2, 0.3, 600), rng.normal(1, 0.5, 400)])[:, None]
    prior = Prior.of(values, np.ones(1000), "real")
    grid = np.linspace(-8, 8, 20_001)[:, None]
    mass = np.exp(prior.log_at(grid)) * 16 / 20_000
    assert mass.sum() == pytest.approx(1.0, abs=1e-3)
    assert mass[grid[:, 0] < -0.5].sum() == pytest.approx(0.6, abs=0.02)
    drawn = prior.draw(4000, rng)
    assert (drawn < -0.5).mean() == pytest.approx(0.6, abs=0.02)
    sphere = rng.standard_normal((300, 3)) + [2.0, 0.0, 0.0]
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    bumps = Prior.of(sphere, np.ones(300), "sphere")
    uniform = rng.standard_normal((20_000, 3))
    uniform /= np.linalg.norm(uniform, axis=1, keepdims=True)
    heights = np.exp(bumps.log_at(uniform)) * 4 * np.pi
    assert abs(heights.mean() - 1) < 5 * heights.std() / np.sqrt(20_000)


def test_windows_are_those_of_a_cluster_where_points_fall_into_clusters() -> None:
    rng = np.random.default_rng(0)
    one = rng.standard_normal((1, 200, 1))
    two = one + 50.0 * (np.arange(200) % 2)[:, None]
    even = np.full((1, 200), 1 / 200)
    single, double = (float(smoothing(p, even, "real")[0, 0, 0]) ** 0.5 for p in (one, two))
    assert single == pytest.approx(0.9 * 200**-0.2, rel=0.15)
    # LEAST_LOCAL bounds how much narrower than the whole spread of 25 a window may be.
    assert double < 0.15 * 25 * 0.9 * 200**-0.2


def test_settings_are_checked_before_any_work() -> None:
    x = kb.kernels.Gaussian()
    then = kb.Relation("x", "x", potential=step)
    with pytest.raises(NotFittedError, match="has not been fitted"):
        ParticleModel({"x": x}, {"then": then}).infer(tree_graph())
    with pytest.raises(UnsupportedError, match=r"variables\['x'\].*DiscreteModel or kernelbp.Model"):
        ParticleModel({"x": kb.kernels.Delta()}, {"then": then}).fit()
    with pytest.raises(
        UnsupportedError, match=r"a table as potential is for finite variables.*DiscreteModel"
    ):
        ParticleModel({"x": x}, {"then": kb.Relation("x", "x", potential=np.eye(2))}).fit()
    with pytest.raises(UnsupportedError, match=r"takes no estimator as evidence.*kernelbp\.Model"):
        ParticleModel({"x": x, "y": x}, {"then": kb.Relation("x", "y", evidence=Ridge())}).fit()
    with pytest.raises(InputError, match=r"relations\['then'\]: unknown variable 'x'; the model has z"):
        ParticleModel({"z": x}, {"then": then}).fit()
    with pytest.raises(InputError, match=r"variables\['x'\]: expected a kernel"):
        ParticleModel({"x": 3}, {"then": then}).fit()  # type: ignore[dict-item]
    with pytest.raises(InputError, match="landmarks: variable 'x' has no training pairs"):
        ParticleModel({"x": x}, {"then": then}).fit()
    with pytest.raises(InputError, match="n_particles: expected a whole number of at least 2, got 1"):
        known_model(1)
    with pytest.raises(InputError, match="mixing: expected a number from 0 to below 1 or None, got 1"):
        known_model(5, mixing=1)
    with pytest.raises(InputError, match="pairs: no examples of relation 'then'"):
        ParticleModel({"x": x}, {"then": kb.Relation("x", "x")}).fit()


def test_bad_graphs_and_requests_are_named() -> None:
    model = known_model(5)
    graph = tree_graph()
    with pytest.raises(InputError, match=r"graph: expected a kernelbp\.Graph, got list"):
        model.infer([1, 2])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_iterations: expected a whole number of at least 1, got 0"):
        model.infer(graph, max_iterations=0)
    with pytest.raises(InputError, match="damping: expected a number from 0 to below 1, got 1"):
        model.infer(graph, damping=1)
    with pytest.raises(InputError, match="tolerance: expected a number of at least 0, got -1"):
        model.infer(graph, tolerance=-1)
    with pytest.raises(InputError, match="schedule: expected 'auto' or 'flooding'"):
        model.infer(graph, schedule="residual")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="graph: unknown variable 'z'"):
        model.infer(kb.Graph.chain(2, variable="z", relation="then"))
    with pytest.raises(InputError, match="variable 'y' has no training pairs, so it can be observed"):
        model.infer(kb.Graph.from_edges([(0, 1, "read")], variables=["x", "y"]))
    with pytest.raises(InputError, match="observe: unknown relation 'seen'"):
        model.infer(graph.observe("seen", SEEN))
    with pytest.raises(
        InputError, match="fix: values of variable 'x': values of one variable must be of one"
    ):
        model.infer(graph.fix([0], [[1.0, 2.0]]))
    bad = ParticleModel(
        {"x": kb.kernels.Gaussian()},
        {"then": kb.Relation("x", "x", potential=lambda a, b: a - b)},
        landmarks=FLAT,
        n_particles=5,
    ).fit()
    with pytest.raises(InputError, match=r"relations\['then'\]: potential should return finite numbers"):
        bad.infer(graph)
