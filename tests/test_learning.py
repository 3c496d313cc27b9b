"""From pairs to what is learned of them: counts, moments, evidence and marginals, each against a plain count,
a closed form or scikit-learn."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from sklearn.linear_model import Ridge
from sklearn.neighbors import KernelDensity

import kernelbp as kb
from kernelbp.errors import InputError
from kernelbp.kernels import Delta, Gaussian, Linear
from kernelbp.learning import embedding as embedding_module
from kernelbp.learning import examples as examples_module
from kernelbp.learning.conditionals import ridge_solve
from kernelbp.learning.embedding import Embedding, embed_variable, relation_moments
from kernelbp.learning.examples import VariableExamples, collect
from kernelbp.learning.marginal import MOST_CENTRES, Parzen, learn_marginal
from kernelbp.learning.operators import POSTERIOR_FLOOR, EmbeddingOperators, Update
from kernelbp.values import Kind, as_column, distinct

UPDATES: tuple[Update, ...] = ("full", "linear", "constant")
Pairs = dict[str, tuple[Any, Any]]

RELATIONS = {
    "beside": kb.Relation("x", "x", symmetric=True),
    "then": kb.Relation("x", "x"),
    "seen": kb.Relation("x", "word"),
}


def some_pairs(seed: int, m: int = 60) -> Pairs:
    rng = np.random.default_rng(seed)
    one, two, three = (np.round(rng.normal(size=m), 1) for _ in range(3))
    return {
        "beside": (one, np.round(one + 0.5 * rng.normal(size=m), 1)),
        "then": (two, np.round(two / 2 + 0.5 * rng.normal(size=m), 1)),
        "seen": (three, np.where(three + rng.normal(size=m) > 0, "up", "down").tolist()),
    }


def operators_of(model: kb.Model, update: Update) -> EmbeddingOperators:
    assert model._fitted is not None
    return EmbeddingOperators(model._fitted.embeddings, model._fitted.relations, update)


# ---------------------------------------------------------------------- merging pairs

values = st.integers(0, 3)
words = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=20),
    st.lists(st.tuples(values, values), min_size=1, max_size=20),
    st.lists(st.tuples(values, words), min_size=1, max_size=20),
)
def test_tables_count_the_pairs(
    beside: list[tuple[int, int]], then: list[tuple[int, int]], seen: list[tuple[int, str]]
) -> None:
    given_pairs = {"beside": beside, "then": then, "seen": seen}
    pairs = {name: tuple(map(list, zip(*listed, strict=True))) for name, listed in given_pairs.items()}
    examples, tables = collect(RELATIONS, pairs)  # type: ignore[arg-type]
    counted = {name: Counter(listed) for name, listed in given_pairs.items()}
    counted["beside"] += Counter((b, a) for a, b in beside)
    for name, relation in RELATIONS.items():
        first, second = examples[relation.first].values, examples[relation.second].values
        table = tables[name].toarray()
        assert table.sum() == len(given_pairs[name]) * (1 + relation.symmetric)
        for i, a in enumerate(first):
            for j, b in enumerate(second):
                key = (int(a[0]), b if name == "seen" else int(b[0]))
                assert table[i, j] == counted[name][key]
    # A variable's counts are over all its appearances, at either end of any relation.
    appearances = Counter([x for pair in beside + then for x in pair] + [x for x, _ in seen])
    found = dict(zip(examples["x"].values[:, 0].tolist(), examples["x"].counts.tolist(), strict=True))
    assert found == appearances
    assert dict(zip(examples["word"].values, examples["word"].counts, strict=True)) == Counter(
        w for _, w in seen
    )
    assert (examples["x"].kind, examples["word"].kind) == (Kind("scalar", 1, True), Kind("object", 0))


def test_a_symmetric_relation_has_a_symmetric_table() -> None:
    _, tables = collect(RELATIONS, some_pairs(0))
    assert abs(tables["beside"] - tables["beside"].T).max() == 0
    assert abs(tables["then"] - tables["then"].T).max() > 0


def test_a_symmetric_relation_does_not_ask_which_way_round_pairs_are_given() -> None:
    pairs = some_pairs(0)
    one, other = pairs["beside"]
    mixed = np.arange(len(one)) % 2 == 0
    turned = {**pairs, "beside": (np.where(mixed, one, other), np.where(mixed, other, one))}
    (examples, tables), (again, turned_tables) = collect(RELATIONS, pairs), collect(RELATIONS, turned)
    np.testing.assert_array_equal(examples["x"].values, again["x"].values)
    assert abs(tables["beside"] - turned_tables["beside"]).max() == 0


def test_values_kept_apart_count_once_each() -> None:
    pairs = some_pairs(0, m=10)
    examples, tables = collect(RELATIONS, pairs, merge=False)
    assert examples["x"].values[:, 0].tolist() == [
        *pairs["beside"][0], *pairs["beside"][1], *pairs["then"][0], *pairs["then"][1], *pairs["seen"][0]
    ]  # fmt: skip
    assert (examples["x"].counts == 1).all() and len(examples["word"].values) == 10
    assert tables["then"].nnz == 10 and tables["beside"].nnz == 20


LANDMARKS = {"x": [-1.0, 0.0, 0.3, 1.1, 2.0], "word": ["up", "down"]}
KERNELS: dict[str, Any] = {"x": Gaussian(0.7), "word": Delta()}


@pytest.mark.parametrize("landmarks", [LANDMARKS, None])
@pytest.mark.parametrize("seed", range(3))
def test_merging_changes_no_moment_and_no_operator(seed: int, landmarks: Any) -> None:
    # Without landmarks the points are chosen greedily, from ties broken by order: take all there are.
    pairs = some_pairs(seed)
    kernels = KERNELS if landmarks else {"x": Gaussian(0.05), "word": Delta()}
    merged, apart = (
        kb.Model(
            kernels, RELATIONS, residual=0.0, max_rank=None, power=2, landmarks=landmarks, merge=merge
        ).fit(pairs)
        for merge in (True, False)
    )
    assert merged._fitted is not None and apart._fitted is not None
    for update in UPDATES:
        one, other = operators_of(merged, update), operators_of(apart, update)
        for name, relation in RELATIONS.items():
            if landmarks:
                mine, theirs = one.relations[name].moments, other.relations[name].moments
                assert mine.total == theirs.total == 60 * (1 + relation.symmetric)
                for a, b in zip(
                    (*mine.auto, mine.cross, *mine.tensor),
                    (*theirs.auto, theirs.cross, *theirs.tensor),
                    strict=True,
                ):
                    np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(a).max())
            for toward in (0, 1):
                receiver, sender = one.relations[name].ends(toward)
                expected = one.conditional(name, toward).matrix()
                found = other.conditional(name, toward).matrix()
                # Equal values kept apart each have a column: their sum is the column of the merged value.
                rows = _places(one.support(receiver), other.support(receiver))
                columns = _places(one.support(sender), other.support(sender))
                pooled = np.zeros((len(found), len(one.support(sender))))
                np.add.at(pooled.T, columns, found.T)
                np.testing.assert_allclose(pooled, expected[rows], atol=1e-10 * np.abs(expected).max())


def _places(distinct_values: Any, all_values: Any) -> NDArray[np.intp]:
    """For each value, where it stands among the distinct ones."""
    equal = all_values[:, None] == distinct_values[None]
    equal = equal.all(axis=-1) if equal.ndim == 3 else equal
    assert (equal.sum(axis=1) == 1).all()
    return equal.argmax(axis=1)


@pytest.mark.parametrize("update", UPDATES)
def test_the_order_of_pairs_does_not_matter(update: Update) -> None:
    pairs = some_pairs(5)
    order = np.random.default_rng(0).permutation(60)
    shuffled = {name: (np.asarray(a)[order], np.asarray(b)[order]) for name, (a, b) in pairs.items()}
    models = [kb.Model(KERNELS, RELATIONS).fit(each) for each in (pairs, shuffled)]
    one, other = (operators_of(model, update) for model in models)
    np.testing.assert_array_equal(one.support("x"), other.support("x"))
    for name in ("beside", "then"):
        expected = one.conditional(name, 0).matrix()
        found = other.conditional(name, 0).matrix()
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())
    # Words keep their order of appearance, so that what they say is compared word by word.
    up = np.array(["up"], dtype=object)
    expected = one.evidence("seen", 0, up)
    np.testing.assert_allclose(other.evidence("seen", 0, up), expected, atol=1e-10 * np.abs(expected).max())


def test_moments_are_sums_over_pairs_however_they_are_split_into_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = some_pairs(6)
    examples, tables = collect(RELATIONS, pairs)
    first, second = (
        _embedding(examples[name], KERNELS[name], power=3, residual=1e-2) for name in ("x", "word")
    )
    x, word = (as_column(side, "side")[0] for side in pairs["seen"])
    r_x, r_word = first.basis.coordinates(x), second.basis.coordinates(word)
    expected = (
        r_x @ r_x.T,
        r_word @ r_word.T,
        r_x @ r_word.T,
        r_x @ second.support.weights(word).T,
        r_word @ first.support.weights(x).T,
    )
    for chunk in (1, 7, 1 << 16):
        monkeypatch.setattr(embedding_module, "CHUNK", chunk)
        found = relation_moments(tables["seen"], first, second)
        for sums, by_pairs in zip((*found.auto, found.cross, *found.tensor), expected, strict=True):
            np.testing.assert_allclose(sums, by_pairs, atol=1e-10 * np.abs(by_pairs).max())
        mean = _embedding(examples["x"], Gaussian(0.7)).mean
        everywhere = np.repeat(examples["x"].values, examples["x"].counts.astype(int), axis=0)
        basis = _embedding(examples["x"], Gaussian(0.7)).basis
        np.testing.assert_allclose(mean, basis.coordinates(everywhere).mean(axis=1), atol=1e-9)


def test_support_weights_integrate_what_the_support_can_express() -> None:
    examples, _ = collect(RELATIONS, some_pairs(7))
    held = _embedding(examples["x"], Gaussian(0.7), power=2)
    everywhere = np.repeat(examples["x"].values, examples["x"].counts.astype(int), axis=0)
    product = np.prod([np.asarray(Gaussian(0.7)(everywhere, [[c]]))[:, 0] for c in (0.2, -0.6)], axis=0)
    at_support = np.prod(
        [np.asarray(Gaussian(0.7)(held.support.points, [[c]]))[:, 0] for c in (0.2, -0.6)], axis=0
    )
    assert held.support_weights @ at_support == pytest.approx(product.mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"besides": ([1.0], [1.0])}, "pairs: unknown relation 'besides'; the model has beside, then, seen"),
        ({"beside": None}, "pairs['beside']: expected (first values, second values), got NoneType"),
        ({"then": ([1.0], [1.0], [1.0])}, "pairs['then']: expected (first values, second values), got tuple"),
        ({"then": np.ones((4, 2))}, "pairs['then']: expected (first values, second values), got ndarray"),
        ({"then": ([1.0], [1.0, 2.0])}, "pairs['then']: the two sides differ in length, 1 and 2"),
        ({"then": ([], [])}, "pairs['then']: no pairs; give at least one"),
        (
            {"then": ([1.0, 2.0], [1.0, float("nan")])},
            "pairs['then'][1]: value 1 is NaN or infinite (nan); remove missing examples before learning",
        ),
        (
            {"seen": ([1.0, 2.0], ["up", None])},
            "pairs['seen'][1]: value 1 is missing (None); remove missing examples before learning",
        ),
        (
            {"then": ([1.0], "a")},
            "pairs['then'][1]: expected an array or a sequence of values, got str",
        ),
        (
            {"then": ([1.0], ["a"])},
            "pairs['then'], variable 'x': values of one variable must be of one kind, got numbers and objects",
        ),
        (
            {"then": ([[1.0, 2.0]], [[1.0, 2.0]])},
            "pairs['then'], variable 'x': values of one variable must be of one kind, "
            "got numbers and vectors of length 2",
        ),
    ],
)
def test_pairs_that_cannot_be_learned_from_are_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        collect(RELATIONS, {**some_pairs(0), **changed})
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        kb.Model(KERNELS, RELATIONS).fit({**some_pairs(0), **changed})


def test_a_relation_without_pairs_is_refused() -> None:
    pairs = some_pairs(0)
    del pairs["seen"]
    with pytest.raises(InputError, match=re.escape("pairs: no examples of relation 'seen'")):
        collect(RELATIONS, pairs)


def test_pairs_that_are_no_mapping_are_refused() -> None:
    text = "pairs: expected a mapping from relation name to (first values, second values), got list"
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        collect(RELATIONS, [([1.0], [1.0])])  # type: ignore[arg-type]


# ---------------------------------------------------------------------- solving


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 2.0])
def test_ridge_solve_is_the_regularised_inverse(ridge: float) -> None:
    rng = np.random.default_rng(0)
    thin = rng.normal(size=(8, 5))
    gram, right = thin @ thin.T, rng.normal(size=(8, 3))
    expected = np.linalg.pinv(gram + ridge * np.eye(8), rcond=1e-10) @ right
    np.testing.assert_allclose(ridge_solve(gram, ridge, right), expected, atol=1e-9 * np.abs(expected).max())


# ---------------------------------------------------------------------- evidence


def finite_problem(seed: int) -> tuple[list[str], list[str], NDArray[np.float64]]:
    """States, readings and the empirical P(reading | state), every pair seen."""
    rng = np.random.default_rng(seed)
    states, readings = ["a", "b", "c", "d"], ["x", "y", "z"]
    counts = rng.integers(1, 9, size=(4, 3))
    listed = [
        (s, r) for i, s in enumerate(states) for j, r in enumerate(readings) for _ in range(counts[i, j])
    ]
    rng.shuffle(listed)
    first, second = zip(*listed, strict=True)
    return list(first), list(second), counts / counts.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("form", ["likelihood", "posterior"])
@pytest.mark.parametrize("seed", range(4))
def test_evidence_on_finite_values_is_the_empirical_likelihood(update: Update, form: Any, seed: int) -> None:
    states, readings, likelihood = finite_problem(seed)
    relation = kb.Relation("state", "reading", evidence=form, regularization=0.0)
    model = kb.Model({"state": Delta(), "reading": Delta()}, {"read": relation}).fit(
        {"read": (states, readings)}
    )
    operators = operators_of(model, update)
    seen = operators.evidence("read", 0, np.array(["x", "y", "z"], dtype=object))
    rows = ["abcd".index(s) for s in operators.support("state")]
    if form == "likelihood":
        np.testing.assert_allclose(seen, likelihood[rows].T, atol=1e-12)
    for found, expected in zip(seen, likelihood[rows].T, strict=True):
        np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=1e-12)
    # At points that are named, not only at the support.
    at = operators.evidence("read", 0, np.array(["y"], dtype=object), np.array(["c", "a"], dtype=object))[0]
    assert at[0] / at[1] == pytest.approx(likelihood[2, 1] / likelihood[0, 1])


def test_a_reading_alone_gives_the_posterior_of_bayes() -> None:
    states, readings, likelihood = finite_problem(9)
    relation = kb.Relation("state", "reading", regularization=0.0)
    model = kb.Model({"state": Delta(), "reading": Delta()}, {"read": relation}).fit(
        {"read": (states, readings)}
    )
    graph = kb.Graph.from_edges([], variables=["state"]).observe("read", ["z"])
    beliefs = model.infer(
        graph, conditionals="embedding", weighting="bethe", schedule="flooding", damping=0.0, dtype=np.float64
    )
    prior = np.array([states.count(s) / len(states) for s in "abcd"])
    expected = prior * likelihood[:, 2]
    np.testing.assert_allclose(beliefs.density(list("abcd"))[0], expected / expected.sum(), atol=1e-12)


@pytest.mark.parametrize("update", ["linear", "constant"])
@pytest.mark.parametrize("regularization", [1e-3, 1e-1])
def test_posterior_evidence_of_features_is_a_ridge_regression_onto_kernel_functions(
    update: Update, regularization: float
) -> None:
    rng = np.random.default_rng(3)
    m, constant = 150, 2.0
    x = rng.uniform(-2, 2, size=m)
    features = np.stack([x, np.sin(3 * x), np.cos(x), np.zeros(m)], axis=1) + 0.3 * rng.normal(size=(m, 4))
    new, kernel = rng.normal(size=(6, 4)), Gaussian(0.6)
    model = kb.Model(
        {"x": kernel, "features": Linear(constant)},
        {"read": kb.Relation("x", "features", evidence="posterior", regularization=regularization)},
        residual=1e-6,
    ).fit({"read": (x, features)})
    operators = operators_of(model, update)
    points = np.linspace(-2, 2, 13)[:, None]
    found = operators.evidence("read", 0, new, points)

    def augmented(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([np.full(len(rows), np.sqrt(constant)), rows])

    ridge = Ridge(alpha=regularization * m, fit_intercept=False, solver="cholesky")
    targets = np.asarray(kernel(x[:, None], points))
    posterior = ridge.fit(augmented(features), targets).predict(augmented(new))
    prior = targets.mean(axis=0)
    floor = POSTERIOR_FLOOR * np.abs(posterior).max(axis=1, keepdims=True)
    assert (posterior > floor).mean() > 0.5
    np.testing.assert_allclose(
        found, np.maximum(posterior, floor) / prior, rtol=1e-5, atol=1e-5 * np.abs(posterior).max()
    )


@pytest.mark.parametrize("update", UPDATES)
def test_likelihood_evidence_of_features_is_a_kernel_ridge_regression_of_the_features(update: Update) -> None:
    rng = np.random.default_rng(4)
    m, lam = 120, 1e-2
    x = rng.uniform(-2, 2, size=m)
    y = np.stack([np.sin(2 * x), x], axis=1) + 0.2 * rng.normal(size=(m, 2))
    kernel = Gaussian(0.7)
    model = kb.Model(
        {"x": kernel, "y": Linear(0.0)}, {"read": kb.Relation("x", "y")}, residual=1e-6, regularization=lam
    ).fit({"read": (x, y)})
    points, new = np.linspace(-2, 2, 9)[:, None], rng.normal(size=(5, 2))
    # <phi(y), U phi(x)> = y' E[Y | x], the expectation by kernel ridge regression.
    expected = new @ (np.asarray(kernel(points, x[:, None])) @ np.linalg.solve(
        np.asarray(kernel(x[:, None])) + lam * m * np.eye(m), y
    )).T  # fmt: skip
    found = operators_of(model, update).evidence("read", 0, new, points)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


# ---------------------------------------------------------------------- marginals


def _embedding(examples: VariableExamples, kernel: Any, **settings: Any) -> Embedding:
    return embed_variable(
        kernel, examples, **{"power": 1, "residual": 1e-6, "max_rank": None, "budget": 8, **settings}
    )


def _examples(values: Any) -> VariableExamples:
    column, kind = as_column(values, "x")
    first, classes = distinct(column)
    return VariableExamples(column[first], np.bincount(classes).astype(float), kind)


def bimodal(size: int, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(size) < 0.3, rng.normal(-2, 0.5, size), rng.normal(1, 1, size))


def test_parzen_density_on_numbers_integrates_to_one() -> None:
    parzen = learn_marginal(_embedding(_examples(bimodal(300)), Gaussian(0.5)), "parzen").density
    assert parzen is not None
    total, _ = quad(lambda x: parzen(np.array([[x]]))[0], -12, 12, limit=200)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_parzen_density_on_the_plane_integrates_to_one() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(200, 2)) @ [[1.0, 0.4], [0.0, 3.0]]
    parzen = learn_marginal(_embedding(_examples(plane), Gaussian(1.0)), "parzen").density
    assert parzen is not None
    first, second = np.linspace(-8, 8, 161), np.linspace(-20, 20, 201)
    grid = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
    assert parzen(grid).sum() * (first[1] - first[0]) * (second[1] - second[0]) == pytest.approx(
        1.0, abs=1e-4
    )


@pytest.mark.parametrize("values", [bimodal(300), np.round(bimodal(300), 1), np.arange(5.0)])
def test_parzen_density_equals_scikit_learn_at_its_bandwidth(values: NDArray[np.float64]) -> None:
    parzen = learn_marginal(_embedding(_examples(values), Gaussian(0.5)), "parzen").density
    assert parzen is not None
    peer = KernelDensity(kernel="gaussian", bandwidth=parzen.widths[0]).fit(values[:, None])
    points = np.linspace(-5, 5, 41)[:, None]
    np.testing.assert_allclose(parzen(points), np.exp(peer.score_samples(points)), rtol=1e-8, atol=1e-14)


def test_parzen_density_of_vectors_equals_scikit_learn_on_scaled_axes() -> None:
    rng = np.random.default_rng(1)
    sample = rng.normal(size=(250, 3)) * [1.0, 5.0, 0.1]
    parzen = learn_marginal(_embedding(_examples(sample), Gaussian(2.0)), "parzen").density
    assert parzen is not None
    peer = KernelDensity(kernel="gaussian", bandwidth=1.0).fit(sample / parzen.widths)
    points = rng.normal(size=(40, 3)) * [1.0, 5.0, 0.1]
    expected = np.exp(peer.score_samples(points / parzen.widths)) / np.prod(parzen.widths)
    np.testing.assert_allclose(parzen(points), expected, rtol=1e-8)


def test_windows_have_the_width_of_silvermans_rule() -> None:
    sample = np.random.default_rng(2).normal(10.0, 3.0, size=4000)
    parzen = learn_marginal(_embedding(_examples(sample), Gaussian(3.0), residual=1e-2), "parzen").density
    assert parzen is not None
    spread = min(sample.std(), np.subtract(*np.quantile(sample, [0.75, 0.25])) / 1.349)
    assert parzen.widths[0] == pytest.approx(0.9 * spread * 4000 ** (-1 / 5), rel=1e-3)


def test_many_values_are_pooled_into_windows_without_changing_the_density() -> None:
    sample = bimodal(5 * MOST_CENTRES)
    parzen = learn_marginal(_embedding(_examples(sample), Gaussian(1.0), residual=1e-2), "parzen").density
    assert parzen is not None
    assert len(parzen.centres) == MOST_CENTRES
    assert parzen.weights.sum() == pytest.approx(1.0)
    assert parzen.weights @ parzen.centres[:, 0] == pytest.approx(sample.mean())
    points = np.linspace(-4, 4, 41)[:, None]
    whole = Parzen(sample[:, None], np.full(len(sample), 1 / len(sample)), parzen.widths)
    np.testing.assert_allclose(parzen(points), whole(points), atol=1e-3 * whole(points).max())


def test_embedding_marginal_is_a_kernel_density_of_its_kernel() -> None:
    sample = bimodal(300)
    embedding = _embedding(_examples(sample), Gaussian(0.4))
    peer = KernelDensity(kernel="gaussian", bandwidth=0.4).fit(sample[:, None])
    points = np.linspace(-4, 4, 33)[:, None]
    expected = np.exp(peer.score_samples(points)) * 0.4 * np.sqrt(2 * np.pi)
    np.testing.assert_allclose(embedding.embedding_of_marginal(points), expected, atol=1e-5 * expected.max())
    marginal = learn_marginal(embedding, "embedding")
    on_grid = np.exp(peer.score_samples(marginal.atoms))
    inside = np.abs(marginal.atoms[:, 0]) < 4
    np.testing.assert_allclose(
        (marginal.heights / marginal.heights.max())[inside], (on_grid / on_grid.max())[inside], atol=1e-5
    )


def test_marginals_put_their_mass_on_atoms() -> None:
    sample = bimodal(300)
    for form in ("parzen", "embedding"):
        marginal = learn_marginal(_embedding(_examples(sample), Gaussian(0.4)), form)  # type: ignore[arg-type]
        assert marginal.weights.sum() == pytest.approx(1.0) and (marginal.weights >= 0).all()
        assert marginal.weights @ marginal.atoms[:, 0] == pytest.approx(sample.mean(), abs=1e-3)
    finite = learn_marginal(_embedding(_examples(["b", "a", "b", "b"]), Delta()), "parzen")
    assert dict(zip(finite.atoms, finite.weights, strict=True)) == {"a": 0.25, "b": 0.75}
    assert finite.density is None
    # Numbers of a finite scale, each seen often, are read one by one.
    scale = learn_marginal(
        _embedding(_examples([1, 1, 1, 2, 2, 2, 2, 2, 2, 4, 4, 4]), Gaussian(1.0)), "parzen"
    )
    assert dict(zip(scale.atoms[:, 0], scale.weights, strict=True)) == {1.0: 0.25, 2.0: 0.5, 4.0: 0.25}


@pytest.mark.parametrize("form", ["parzen", "embedding"])
def test_beliefs_with_evidence_are_densities_that_integrate_to_one(form: Any) -> None:
    rng = np.random.default_rng(5)
    x = bimodal(400)
    model = kb.Model(
        {"x": Gaussian(0.5), "y": Gaussian(0.3)}, {"read": kb.Relation("x", "y")}, marginal=form
    ).fit({"read": (x, x + 0.5 * rng.normal(size=400))})
    graph = kb.Graph.from_edges([], variables=["x"] * 3).observe("read", [-2.0, 0.5, np.nan])
    beliefs = model.infer(graph, conditionals="embedding", weighting="bethe", dtype=np.float64)
    points = np.linspace(-8, 8, 4001)
    totals = beliefs.density(points).sum(axis=1) * (points[1] - points[0])
    assert beliefs.density(points)[2] == pytest.approx(_density_of(model, points), abs=1e-3)
    np.testing.assert_allclose(totals, 1.0, atol=1e-3)


def _density_of(model: kb.Model, points: NDArray[np.float64]) -> NDArray[np.float64]:
    assert model._fitted is not None
    parzen = model._fitted.marginals["x"].density
    assert parzen is not None
    return parzen(points[:, None])


def test_beliefs_on_the_plane_integrate_to_about_one() -> None:
    rng = np.random.default_rng(6)
    plane = rng.normal(size=(500, 2))
    model = kb.Model({"x": Gaussian(1.0), "y": Gaussian(0.7)}, {"read": kb.Relation("x", "y")}).fit(
        {"read": (plane, plane + 0.5 * rng.normal(size=(500, 2)))}
    )
    graph = kb.Graph.from_edges([], variables=["x"] * 2).observe("read", [[0.5, -0.5], [np.nan, np.nan]])
    beliefs = model.infer(graph, conditionals="embedding", weighting="bethe", dtype=np.float64)
    axis = np.linspace(-5, 5, 101)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    totals = beliefs.density(grid).sum(axis=1) * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(totals, 1.0, atol=0.1)


def test_very_many_numbers_are_read_off_a_ruler_and_nothing_else_changes(monkeypatch):
    """Learned from a fine ruler or from every number by itself: the same tables to well within what pairs tell."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal(30_000)
    second = 0.8 * first + 0.6 * rng.standard_normal(30_000)
    second[:5] = 1e7  # beyond any ruler
    kernel, relation = Gaussian(1.0), kb.Relation("x", "x")
    graph = kb.Graph.chain(4, variable="x", relation="r").fix([0], [1.0])
    found = []
    for least in (1 << 18, 1000):
        monkeypatch.setattr(examples_module, "FINE_FROM", least)
        values = collect({"r": relation}, {"r": (first, second)}, on_a_line=lambda x: True)[0]["x"].values
        assert (len(values) < 50_000) == (least == 1000)
        assert 1e7 in values
        model = kb.Model({"x": kernel}, {"r": relation}, budget=24).fit({"r": (first[5:], second[5:])})
        found.append(model.infer(graph))
    assert np.allclose(found[0].mean(), found[1].mean(), atol=0.01)
    assert np.allclose(found[0].std(), found[1].std(), atol=0.01)


def test_numbers_that_repeat_are_never_rounded(monkeypatch):
    monkeypatch.setattr(examples_module, "FINE_FROM", 1000)
    grey = np.random.default_rng(0).integers(0, 256, 20_000) / 3
    for numbers in (grey, np.arange(20_000.0)):
        pairs = {"r": (numbers, numbers)}
        values = collect({"r": kb.Relation("x", "x")}, pairs, on_a_line=lambda x: True)[0]["x"].values
        assert set(values[:, 0]) == set(numbers)
