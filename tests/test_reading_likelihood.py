"""The likelihood of numbers read off numbers: location, scale and one shape, where that is what there is."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy.stats import norm

import kernelbp as kb
import kernelbp.model
from kernelbp.errors import InputError, ModelFileError
from kernelbp.learning import readings as readings_module
from kernelbp.learning.probability import assign
from kernelbp.storage import load_model

FIT_LOCATION = readings_module._fit_location
PAIRS = 3000
READINGS = np.linspace(-2.5, 2.5, 41)
NOISES = {
    "gaussian": (
        lambda x, random: x + 0.5 * random.standard_normal(len(x)),
        lambda y, x: norm.pdf(y, x, 0.5),
    ),
    "skewed": (
        lambda x, random: x + 0.5 * random.exponential(size=len(x)),
        lambda y, x: np.where(y > x, 2 * np.exp(np.minimum(-2 * (y - x), 0.0)), 1e-9),
    ),
    "growing": (
        lambda x, random: x + (0.3 + 0.3 * (x + 2)) * random.standard_normal(len(x)),
        lambda y, x: norm.pdf(y, x, 0.3 + 0.3 * (x + 2)),
    ),
    "bent": (
        lambda x, random: np.tanh(x) + 0.3 * random.standard_normal(len(x)),
        lambda y, x: norm.pdf(y, np.tanh(x), 0.3),
    ),
}


def fitted(hidden, readings, *, counted=False, **settings) -> kb.Model:
    """A model of one relation; `counted` leaves it no choice but to count."""
    model = kb.Model(
        {"value": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        {"read": kb.Relation("value", "reading", **settings)},
    )
    if not counted:
        return model.fit({"read": (hidden, readings)})
    with mock.patch.object(kernelbp.model, "fit_reading_likelihood", return_value=None):
        return model.fit({"read": (hidden, readings)})


def chosen(model: kb.Model) -> tuple[str, str | None]:
    settings = model.settings_["relations"]["read"]
    return settings["evidence"], settings["shape"]


def posteriors(model: kb.Model, readings) -> np.ndarray:
    """Probabilities of the states given each reading, (n, q)."""
    said = model._made_operators("constant", "probability").evidence("read", 0, np.asarray(readings)[:, None])
    said = said * model._fitted.embeddings["value"].state_weights
    return said / said.sum(axis=1, keepdims=True)


def true_posteriors(model: kb.Model, likelihood, readings) -> np.ndarray:
    """The same by the true likelihood, averaged over the training values each state stands for."""
    value = model._fitted.embeddings["value"]
    x, counts = value.examples.values[:, 0], value.examples.counts
    weights = assign(value.states, value.examples.values).toarray() * counts[:, None]
    said = likelihood(np.asarray(readings)[:, None], x) @ weights
    return said / said.sum(axis=1, keepdims=True)


def divergence(true: np.ndarray, found: np.ndarray) -> float:
    """Mean over readings of KL(true || found)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(true > 0, true * np.log(true / found), 0.0)
    return float(terms.sum(axis=1).mean())


@pytest.mark.parametrize("noise", NOISES)
def test_nearer_to_the_true_likelihood_than_counting(noise):
    draw, likelihood = NOISES[noise]
    random = np.random.default_rng(3)
    hidden = random.uniform(-2, 2, PAIRS)
    readings = draw(hidden, random)
    new = fitted(hidden, readings, evidence="likelihood")
    old = fitted(hidden, readings, evidence="likelihood", counted=True)
    assert chosen(new)[0] == "likelihood" and chosen(new)[1] in ("gaussian", "pooled")
    assert chosen(old) == ("likelihood", "counted")
    fresh = draw(random.uniform(-2, 2, 500), random)
    true = true_posteriors(new, likelihood, fresh)
    far = divergence(true, posteriors(new, fresh))
    assert far < 0.5 * divergence(true, posteriors(old, fresh))
    assert far < 0.03


def test_the_shape_is_gaussian_where_noise_is_and_pooled_where_it_is_skewed():
    random = np.random.default_rng(4)
    hidden = random.uniform(-2, 2, PAIRS)
    assert chosen(fitted(hidden, NOISES["gaussian"][0](hidden, random)))[1] == "gaussian"
    assert chosen(fitted(hidden, NOISES["skewed"][0](hidden, random)))[1] == "pooled"


@pytest.mark.parametrize(("noise", "straight"), [("gaussian", True), ("bent", False)])
def test_the_location_bends_only_where_pairs_ask_for_it(noise, straight):
    """Straight on nearly all draws of readings that lie around a line, and never where they do not."""
    stiffest = 0
    for seed in range(10):
        random = np.random.default_rng(seed)
        x = random.uniform(-2, 2, 1000).round(2)
        found: list[float] = []
        with mock.patch.object(readings_module, "_fit_location", lambda *given, to=found: _noted(to, given)):
            fitted(x, NOISES[noise][0](x, random))
        stiffest += found[-1] == readings_module.STIFFNESSES[-1]
    assert stiffest >= 8 if straight else stiffest == 0


def _noted(found: list[float], given: tuple) -> tuple:
    location, stiffness = FIT_LOCATION(*given)
    found.append(stiffness)
    return location, stiffness


def test_the_score_is_near_the_mutual_information_of_gaussians():
    random = np.random.default_rng(5)
    hidden = random.standard_normal(8000)
    model = fitted(hidden, hidden + 0.5 * random.standard_normal(8000))
    score = model.settings_["relations"]["read"]["evidence score"]
    assert score == pytest.approx(0.5 * np.log(5), abs=0.03)


def test_counting_stays_where_noise_changes_its_shape():
    random = np.random.default_rng(6)
    hidden = random.uniform(0, 2, PAIRS)
    readings = hidden * random.choice([-1.0, 1.0], PAIRS) + 0.05 * random.standard_normal(PAIRS)
    model = fitted(hidden, readings, evidence="likelihood")
    assert chosen(model) == ("likelihood", "counted")
    old = fitted(hidden, readings, evidence="likelihood", counted=True)
    np.testing.assert_array_equal(posteriors(model, READINGS), posteriors(old, READINGS))


def test_counting_stays_where_readings_say_nothing():
    random = np.random.default_rng(7)
    assert chosen(fitted(random.standard_normal(500), random.standard_normal(500)))[1] == "counted"


def test_other_relations_are_learned_as_before():
    random = np.random.default_rng(8)
    now = random.standard_normal(400)
    model = kb.Model({"state": kb.kernels.Gaussian()}, {"then": kb.Relation("state", "state")})
    model.fit({"then": (now, 0.8 * now + 0.3 * random.standard_normal(400))})
    assert model.settings_["relations"]["then"]["shape"] == "counted"
    words = np.where(now > 0, "up", "down").astype(object)
    named = kb.Model(
        {"value": kb.kernels.Gaussian(), "word": kb.kernels.Delta()}, {"read": kb.Relation("value", "word")}
    )
    assert chosen(named.fit({"read": (now, words)})) == ("likelihood", "counted")
    regressed = fitted(now, now + 0.1 * random.standard_normal(400), evidence="posterior")
    assert chosen(regressed) == ("posterior", None)


def test_a_reading_unlike_all_others_says_little():
    random = np.random.default_rng(9)
    hidden = random.uniform(-2, 2, PAIRS)
    readings = NOISES["gaussian"][0](hidden, random)
    readings[:5] = [1e6, -1e6, 500.0, -40.0, 80.0]
    model = fitted(hidden, readings)
    assert chosen(model)[1] != "counted"
    prior = model._fitted.embeddings["value"].state_weights
    strange = posteriors(model, [1e5, -1e5, 300.0, 1e9, -1e300])
    assert np.isfinite(strange).all()
    for row in strange:
        assert divergence(prior[None], row[None]) < 0.05
    # And those who taught it did no harm to the others.
    true = true_posteriors(model, NOISES["gaussian"][1], READINGS)
    assert divergence(true, posteriors(model, READINGS)) < 0.03


@pytest.mark.parametrize("size", [1, 2, 5, 11, 15, 30])
def test_few_pairs_are_no_trouble(size):
    random = np.random.default_rng(size)
    hidden = random.standard_normal(size)
    model = fitted(hidden, hidden + 0.1 * random.standard_normal(size))
    assert np.isfinite(posteriors(model, [-100.0, 0.0, 100.0])).all()


@pytest.mark.parametrize(
    ("hidden", "readings"),
    [
        (np.arange(50.0), np.full(50, 3.0)),
        (np.full(50, 3.0), np.arange(50.0)),
        (np.full(50, 3.0), np.full(50, 3.0)),
        (np.arange(50.0), np.arange(50.0)),
        (np.arange(60.0) % 2, np.arange(60.0) % 2),
        (np.arange(60.0), np.where(np.arange(60) == 7, 1.0, 0.0)),
        (1e-200 * np.arange(50.0), 1e150 * np.arange(50.0)),
        (np.repeat([0.0, 1e8], 25), np.arange(50.0) * 1e-8),
    ],
)
@pytest.mark.filterwarnings("error")
def test_constant_exact_and_extreme_readings(hidden, readings):
    model = fitted(hidden, readings, evidence="likelihood")
    found = posteriors(model, readings)
    assert np.isfinite(found).all()
    graph = kb.Graph.from_edges([], variables=["value"] * len(readings)).observe("read", readings)
    assert np.isfinite(model.infer(graph).mean()).all()


def test_exact_readings_are_believed():
    values = np.random.default_rng(10).uniform(0, 100, 2000)
    model = fitted(values, values, evidence="likelihood")
    graph = kb.Graph.from_edges([], variables=["value"] * 100).observe("read", values[:100])
    spacing = 100 / model.settings_["variables"]["value"]["states"]
    assert np.abs(model.infer(graph).mean() - values[:100]).max() < 2 * spacing


def test_readings_on_a_lattice_do_not_teach_the_lattice():
    random = np.random.default_rng(11)
    hidden = random.integers(0, 50, PAIRS).astype(float)
    readings = np.round(hidden + 4 * random.standard_normal(PAIRS))
    model = fitted(hidden, readings, evidence="likelihood")
    assert chosen(model)[1] != "counted"
    between = posteriors(model, [20.0, 20.5, 21.0])
    np.testing.assert_allclose(between[1], (between[0] + between[2]) / 2, atol=0.01)


def test_pairs_that_repeat_count_as_often_as_they_do():
    random = np.random.default_rng(12)
    hidden = random.integers(-8, 9, 4000) / 4
    readings = np.round(NOISES["gaussian"][0](hidden, random), 1)
    model = fitted(hidden, readings, evidence="likelihood")
    assert len(np.unique(np.column_stack([hidden, readings]), axis=0)) < 1000
    assert chosen(model)[1] != "counted"
    true = true_posteriors(model, NOISES["gaussian"][1], READINGS)
    assert divergence(true, posteriors(model, READINGS)) < 0.03


def test_the_same_pairs_given_twice_are_no_trouble():
    random = np.random.default_rng(12)
    hidden = np.tile(random.uniform(-2, 2, 300), 2)
    readings = np.tile(NOISES["gaussian"][0](hidden[:300], random), 2)
    assert np.isfinite(posteriors(fitted(hidden, readings), READINGS)).all()


def test_the_order_of_pairs_does_not_matter():
    random = np.random.default_rng(13)
    hidden = random.integers(0, 20, 800).astype(float)
    readings = np.round(hidden + 2 * random.standard_normal(800), 1)
    order = random.permutation(800)
    one, other = fitted(hidden, readings), fitted(hidden[order], readings[order])
    assert chosen(one) == chosen(other)
    np.testing.assert_allclose(posteriors(one, [3.0, 9.5]), posteriors(other, [3.0, 9.5]), rtol=1e-9)


def test_units_do_not_matter():
    random = np.random.default_rng(14)
    hidden = random.uniform(-2, 2, 1500)
    readings = NOISES["skewed"][0](hidden, random)
    plain = fitted(hidden, readings, evidence="likelihood")
    scaled = fitted(1024 * hidden + 4096, 2**-20 * readings, evidence="likelihood")
    assert chosen(plain) == chosen(scaled)
    np.testing.assert_allclose(
        posteriors(plain, READINGS), posteriors(scaled, 2**-20 * READINGS), rtol=1e-5, atol=1e-9
    )


def test_states_without_pairs_read_like_their_neighbours():
    random = np.random.default_rng(15)
    hidden = random.uniform(-1, 1, PAIRS)
    model = kb.Model(
        {"value": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        {"read": kb.Relation("value", "reading", evidence="likelihood")},
        landmarks={"value": np.linspace(-3, 3, 25)},
    )
    model.fit({"read": (hidden, hidden + 0.3 * random.standard_normal(PAIRS))})
    assert chosen(model)[1] != "counted"
    said = model._made_operators("constant", "probability").evidence("read", 0, np.array([[0.9]]))[0]
    points = model.support("value")
    beyond = points > 1.3
    last = said[np.argmin(np.abs(points - 1.0))]
    assert np.isfinite(said).all()
    np.testing.assert_allclose(said[beyond], last, rtol=0.3)


def test_nan_is_refused_as_before():
    hidden = np.arange(100.0)
    readings = hidden.copy()
    readings[3] = np.nan
    with pytest.raises(InputError, match=r"pairs\['read'\]\[1\]"):
        fitted(hidden, readings)


def test_single_precision_pairs_and_messages():
    random = np.random.default_rng(16)
    hidden = random.uniform(-2, 2, PAIRS).astype(np.float32)
    readings = NOISES["gaussian"][0](hidden, random).astype(np.float32)
    model = fitted(hidden, readings)
    assert chosen(model)[1] != "counted"
    graph = kb.Graph.from_edges([], variables=["value"] * 41).observe("read", READINGS.astype(np.float32))
    single, double = (model.infer(graph, dtype=dtype).mean() for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single, double, atol=1e-4)


def test_pairs_kept_apart_teach_the_same():
    random = np.random.default_rng(17)
    hidden = random.integers(0, 12, 600).astype(float)
    readings = hidden + random.standard_normal(600)
    models = [
        kb.Model(
            {"value": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
            {"read": kb.Relation("value", "reading", evidence="likelihood")},
            merge=merge,
        ).fit({"read": (hidden, readings)})
        for merge in (True, False)
    ]
    assert all(chosen(model)[1] != "counted" for model in models)
    means = [posteriors(m, [4.0, 7.5]) @ m.support("value") for m in models]
    np.testing.assert_allclose(means[0], means[1], atol=0.1)


def test_a_grid_of_pixels_is_denoised_with_it():
    clean, noisy = kb.datasets.sunset(colors=40, size=16, noise=20.0, seed=0)
    model = kb.Model(
        {"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        {"beside": kb.Relation("pixel", "pixel", symmetric=True), "read": kb.Relation("pixel", "reading")},
    )
    model.fit({"beside": kb.datasets.grid_pairs(clean), "read": (clean.ravel(), noisy.ravel())})
    graph = kb.Graph.grid(clean.shape, variable="pixel", relation="beside")
    beliefs = model.infer(graph.observe("read", kb.datasets.sunset(40, 16, 20.0, seed=1)[1].ravel()))
    assert chosen(model)[1] != "counted"
    assert np.sqrt(np.mean((beliefs.mean() - clean.ravel()) ** 2)) < 12


# ---------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def model() -> kb.Model:
    random = np.random.default_rng(18)
    hidden = random.uniform(-2, 2, 800)
    made = fitted(hidden, NOISES["skewed"][0](hidden, random), evidence="likelihood")
    assert chosen(made)[1] == "pooled"
    return made


def test_saved_and_loaded_it_says_the_same_to_the_last_bit(model, tmp_path):
    model.save(tmp_path / "model.kbp")
    loaded = kb.Model.load(tmp_path / "model.kbp")
    assert loaded.settings_["relations"] == model.settings_["relations"]
    np.testing.assert_array_equal(posteriors(loaded, READINGS), posteriors(model, READINGS))


def altered(path: Path, change) -> Path:
    """A file whose document was changed, with the sum of what it now says."""
    out = path.with_name("altered.kbp")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        document = json.loads(old.read("model.json"))
        change(document["fitted"]["record"][1]["relations"]["mapping"][0][1]["record"][1])
        text = json.dumps(document, separators=(",", ":")).encode("ascii")
        new.comment = b"kernelbp-model sha256:" + hashlib.sha256(text).hexdigest().encode("ascii")
        new.writestr("model.json", text)
        for name in old.namelist()[1:]:
            new.writestr(name, old.read(name))
    return out


def test_files_written_before_there_were_such_likelihoods_still_load(tmp_path):
    random = np.random.default_rng(19)
    hidden = random.integers(0, 5, 60).astype(float)
    made = fitted(hidden, random.permutation(hidden), evidence="likelihood")
    assert chosen(made)[1] == "counted"
    made.save(tmp_path / "model.kbp")
    older = altered(tmp_path / "model.kbp", lambda relation: relation.pop("reading"))
    np.testing.assert_array_equal(posteriors(load_model(older, {}), [1.0]), posteriors(made, [1.0]))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("shape", "square", "shape"),
        ("share", 2.0, "settings of its likelihood"),
        ("share", "much", "share"),
        ("score", None, "score"),
        ("points", {"array": 0}, "likelihood"),
        ("table", {"array": 0}, "likelihood"),
        ("table", {"tuple": []}, "table"),
    ],
)
def test_a_file_that_does_not_hold_together_is_refused(model, tmp_path, field, value, message):
    model.save(tmp_path / "model.kbp")
    bad = altered(
        tmp_path / "model.kbp", lambda relation: relation["reading"]["record"][1].update({field: value})
    )
    with pytest.raises(ModelFileError, match=message):
        load_model(bad, {})
