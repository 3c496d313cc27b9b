"""What is refused, before any work: the text names the argument, what was given and what is expected."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

from kernelbp import Graph, Model, Relation, errors
from kernelbp.errors import InputError, KernelBPError, NotFittedError, UnsupportedError
from kernelbp.kernels import Delta, Gaussian, Linear, Sphere

ORDINARY = {"conditionals": "embedding", "weighting": "bethe", "dtype": np.float64}
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal(50), RNG.standard_normal(50)
WORDS = RNG.choice(["a", "b"], 50)
WAYS = np.tile(np.eye(3), (20, 1))[:50]
NAN = float("nan")


def model(**settings) -> Model:
    return Model(
        {"x": Gaussian(1.0), "word": Delta(), "way": Sphere(2.0)},
        {
            "near": Relation("x", "x", symmetric=True),
            "called": Relation("x", "word"),
            "turned": Relation("way", "way"),
        },
        **settings,
    )


def pairs(**changed) -> dict:
    return {"near": (X, Y), "called": (X, WORDS), "turned": (WAYS, WAYS)} | changed


@pytest.fixture(scope="module")
def fitted() -> Model:
    return model().fit(pairs())


CHAIN = Graph.chain(3, variable="x", relation="near")
LABEL = Graph.from_edges([(0, 1, "called")], variables=["x", "word"])
LOOP = Graph.grid((2, 2), variable="x", relation="near")


def assert_refused(text: str, kind: type[Exception], work) -> None:
    with pytest.raises(kind) as refusal:
        work()
    assert text in str(refusal.value)
    assert isinstance(refusal.value, KernelBPError)


# ---------------------------------------------------------------------- types


def test_errors_are_also_what_callers_of_the_standard_library_expect():
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.NotFittedError, AttributeError)
    assert issubclass(errors.UnsupportedError, TypeError)
    assert issubclass(errors.ModelFileError, ValueError)
    assert issubclass(errors.ConvergenceWarning, UserWarning)
    for name in ("InputError", "NotFittedError", "UnsupportedError", "ModelFileError"):
        assert issubclass(getattr(errors, name), KernelBPError)


# ---------------------------------------------------------------------- relations and models

RELATIONS = {
    "symmetric between two": (
        lambda: Relation("x", "y", symmetric=True),
        "symmetric: a symmetric relation joins a variable with itself, got 'x' and 'y'",
    ),
    "evidence": (
        lambda: Relation("x", "y", evidence="guess"),
        "evidence: expected 'likelihood' or 'posterior'",
    ),
    "regularization": (
        lambda: Relation("x", "y", regularization=-1.0),
        "regularization: expected a number of at least 0, got -1.0",
    ),
}


@pytest.mark.parametrize("case", RELATIONS)
def test_bad_relations_are_refused(case):
    work, text = RELATIONS[case]
    assert_refused(text, InputError, work)


ONE = {"near": Relation("x", "x")}
SETTINGS = {
    "no variables": (lambda: Model({}, ONE), "variables: expected at least one, got none"),
    "no relations": (lambda: Model({"x": Delta()}, {}), "relations: expected at least one, got none"),
    "no kernel": (lambda: Model({"x": 3}, ONE), "variables['x']: expected a kernel"),
    "no relation": (
        lambda: Model({"x": Delta()}, {"near": ("x", "x")}),
        "relations['near']: expected a Relation, got tuple",
    ),
    "unknown variable": (
        lambda: Model({"x": Delta()}, {"near": Relation("x", "z")}),
        "relations['near']: unknown variable 'z'; the model has x",
    ),
    "regularization": (
        lambda: Model({"x": Delta()}, ONE, regularization=-1),
        "regularization: expected a number of at least 0, got -1",
    ),
    "regularization not a number": (
        lambda: Model({"x": Delta()}, ONE, regularization=NAN),
        "regularization: expected a number of at least 0, got nan",
    ),
    "residual": (
        lambda: Model({"x": Delta()}, ONE, residual=-0.5),
        "residual: expected a number of at least 0, got -0.5",
    ),
    "ridge": (
        lambda: Model({"x": Delta()}, ONE, ridge=-0.5),
        "ridge: expected a number of at least 0, got -0.5",
    ),
    "power": (
        lambda: Model({"x": Delta()}, ONE, power=0),
        "power: expected a whole number of at least 1, got 0",
    ),
    "fractional power": (
        lambda: Model({"x": Delta()}, ONE, power=1.5),
        "power: expected a whole number of at least 1, got 1.5",
    ),
    "max_rank": (
        lambda: Model({"x": Delta()}, ONE, max_rank=0),
        "max_rank: expected a whole number of at least 1, got 0",
    ),
    "marginal": (
        lambda: Model({"x": Delta()}, ONE, marginal="guess"),
        "marginal: expected 'parzen' or 'embedding', got 'guess'",
    ),
    "landmarks of no variable": (
        lambda: Model({"x": Delta()}, ONE, landmarks={"z": [1.0]}),
        "landmarks: unknown variable 'z'; the model has x",
    ),
    "no landmarks": (
        lambda: Model({"x": Gaussian(1.0)}, ONE, landmarks={"x": []}),
        "landmarks['x']: no points given",
    ),
    "landmarks of another kind": (
        lambda: Model({"x": Gaussian(1.0)}, ONE, landmarks={"x": ["a"]}),
        "landmarks['x']: values of one variable must be of one kind, got numbers and objects",
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_bad_settings_are_refused_when_fitting(case):
    make, text = SETTINGS[case]
    assert_refused(text, InputError, lambda: make().fit({"near": (X, Y)}))


# ---------------------------------------------------------------------- training pairs

PAIRS = {
    "not a mapping": (
        [(X, Y)],
        "pairs: expected a mapping from relation name to (first values, second values)",
    ),
    "unknown relation": (
        pairs(other=(X, Y)),
        "pairs: unknown relation 'other'; the model has near, called, turned",
    ),
    "missing relation": ({"near": (X, Y)}, "pairs: no examples of relation 'called'"),
    "one side": (pairs(near=(X,)), "pairs['near']: expected (first values, second values), got tuple"),
    "an array": (pairs(near=X), "pairs['near']: expected (first values, second values), got ndarray"),
    "lengths": (pairs(near=(X, Y[:-1])), "pairs['near']: the two sides differ in length, 50 and 49"),
    "no pairs": (pairs(near=([], [])), "pairs['near']: no pairs; give at least one"),
    "NaN": (
        pairs(near=(X, np.append(Y[:-1], NAN))),
        "pairs['near'][1]: value 49 is NaN or infinite (nan); remove missing examples before learning",
    ),
    "infinity": (
        pairs(near=(np.append(np.inf, X[1:]), Y)),
        "pairs['near'][0]: value 0 is NaN or infinite (inf)",
    ),
    "None": (
        pairs(called=(X, [None] + list(WORDS[1:]))),
        "pairs['called'][1]: value 0 is missing (None); remove missing examples before learning",
    ),
    "three axes": (
        pairs(near=(X.reshape(2, 5, 5), Y.reshape(2, 5, 5))),
        "pairs['near'][0]: expected one axis (n numbers) or two (n vectors), got shape (2, 5, 5)",
    ),
    "a scalar": (
        pairs(near=(1.0, 2.0)),
        "pairs['near'][0]: expected an array or a sequence of values, got float",
    ),
    "two kinds": (
        pairs(near=(X, np.stack([Y, Y], axis=1))),
        "values of one variable must be of one kind, got numbers and vectors of length 2",
    ),
    "two kinds across relations": (
        pairs(called=(WORDS, WORDS)),
        "pairs['called'], variable 'x': values of one variable must be of one kind, got numbers and objects",
    ),
    "off the sphere": (
        pairs(turned=(WAYS, 2 * WAYS)),
        "expected unit vectors (norm 1 within 1e-06), got norm 2",
    ),
    "cannot be hashed": (
        pairs(called=(X, [{"a"} for _ in X])),
        "expected hashable values (a tuple for a list, a frozenset for a set), got set {'a'}",
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_bad_pairs_are_refused_before_any_work_and_nothing_fitted_is_lost(case):
    given, text = PAIRS[case]
    assert_refused(text, InputError, lambda: model().fit(given))
    old = model().fit(pairs())
    before = old.infer(CHAIN.fix([0], [0.5]), **ORDINARY).mean()
    assert_refused(text, InputError, lambda: old.fit(given))
    after = old.infer(CHAIN.fix([0], [0.5]), **ORDINARY).mean()
    assert np.array_equal(before, after)


def test_words_for_a_kernel_on_vectors_are_refused():
    for kernel in (Gaussian(1.0), RBF(1.0)):
        bad = Model({"x": kernel}, {"near": Relation("x", "x")})
        assert_refused("expected real numbers", InputError, lambda bad=bad: bad.fit({"near": (WORDS, WORDS)}))


def test_a_kernel_that_is_zero_on_all_training_values_is_refused():
    blind = Model({"x": Linear(0.0)}, {"near": Relation("x", "x")})
    assert_refused(
        "variables['x']: Linear(constant=0.0) is zero on all training values",
        InputError,
        lambda: blind.fit({"near": ([0.0, 0.0], [0.0, 0.0])}),
    )


def test_a_failure_in_the_middle_of_refitting_loses_nothing():
    class Moody:
        """A kernel that works for one fit only."""

        mood = "good"

        def __call__(self, X, Y=None):
            if self.mood == "bad":
                raise RuntimeError("not today")
            return Gaussian(1.0)(X, Y)

        def diag(self, X):
            return np.ones(len(X))

    kernel = Moody()
    old = Model({"x": kernel}, {"near": Relation("x", "x")}).fit({"near": (X, Y)})
    support = old.support("x")
    kernel.mood = "bad"
    with pytest.raises(RuntimeError, match="not today"):
        old.fit({"near": (Y, X)})
    kernel.mood = "good"
    assert np.array_equal(old.support("x"), support)
    assert old.infer(CHAIN, **ORDINARY).converged


# ---------------------------------------------------------------------- not fitted


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.infer(CHAIN, **ORDINARY),
        lambda m: m.support("x"),
        lambda m: m.settings_,
    ],
)
def test_a_model_must_be_fitted_first(ask):
    assert_refused(
        "this model has not been fitted; call fit(pairs) first", NotFittedError, lambda: ask(model())
    )


def test_a_model_says_whether_it_is_fitted(fitted):
    assert repr(model()).endswith("not fitted)")
    assert repr(fitted).endswith("; fitted)")


def test_support_of_an_unknown_variable_is_refused(fitted):
    assert_refused("variable: unknown 'z'; the model has", InputError, lambda: fitted.support("z"))


# ---------------------------------------------------------------------- graphs the model does not know

GRAPHS = {
    "unknown variable": (
        Graph.chain(3, variable="z", relation="near"),
        "graph: unknown variable 'z'; the model has",
    ),
    "unknown relation": (
        Graph.chain(3, variable="x", relation="far"),
        "graph: unknown relation 'far'; the model has near, called, turned",
    ),
    "an edge between the wrong variables": (
        Graph.from_edges([(0, 1, "near"), (1, 2, "near")], variables=["x", "x", "word"]),
        "graph: edge 1 joins 'x' and 'word', but relation 'near' is between 'x' and 'x'",
    ),
    "an edge of one variable for a relation of two": (
        Graph.from_edges([(0, 1, "called")], variables=["x", "x"]),
        "graph: edge 0 joins 'x' and 'x', but relation 'called' is between 'x' and 'word'",
    ),
    "an unknown observation": (
        CHAIN.observe("heard", [1.0, 2.0, 3.0]),
        "observe: unknown relation 'heard'; the model has near, called, turned",
    ),
    "a reading at the wrong node": (
        LABEL.observe("called", ["a", "b"]),
        "observe: relation 'called' reads 'word' at nodes of 'x', but a node given is of 'word'; name the nodes",
    ),
    "a reading never seen": (
        CHAIN.observe("called", ["a", "zebra", None]),
        "observe: values of variable 'word': 'zebra' was not among the training values",
    ),
    "a reading of another kind": (
        CHAIN.observe("called", [1.0, 2.0, 3.0]),
        "observe: values of variable 'word': values of one variable must be of one kind, got objects and numbers",
    ),
    "a fixed value of another kind": (
        CHAIN.fix([0], ["a"]),
        "fix: values of variable 'x': values of one variable must be of one kind, got numbers and objects",
    ),
    "a fixed value never seen": (
        LABEL.fix([1], ["zebra"]),
        "fix: values of variable 'word': 'zebra' was not among the training values",
    ),
    "a node fixed twice": (CHAIN.fix([1], [0.0]).fix([1], [1.0]), "fix: node 1 is fixed twice"),
    "a fixed value off the sphere": (
        Graph.chain(2, variable="way", relation="turned").fix([0], [[1.0, 1.0, 1.0]]),
        "expected unit vectors (norm 1 within 1e-06), got norm 1.7320508",
    ),
    "a vector of another length": (
        Graph.chain(2, variable="way", relation="turned").fix([0], [[1.0, 0.0]]),
        "got vectors of length 3 and vectors of length 2",
    ),
    "a likelihood that leaves a value out": (
        LABEL.soften([1], ["a"], [1.0]),
        "soften: points of variable 'word' must cover all its values, 'b' is missing",
    ),
    "a likelihood of a value never seen": (
        LABEL.soften([1], ["a", "b", "zebra"], [1.0, 1.0, 1.0]),
        "soften: points of variable 'word': 'zebra' was not among the training values",
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_and_evidence_that_do_not_fit_the_model_are_refused(fitted, case):
    graph, text = GRAPHS[case]
    assert_refused(text, InputError, lambda: fitted.infer(graph, **ORDINARY))


# ---------------------------------------------------------------------- settings of inference

INFERENCE = {
    "update": ({"update": "best"}, "update: expected 'constant' or 'linear' or 'full', got 'best'"),
    "conditionals": ({"conditionals": "best"}, "conditionals: expected "),
    "weighting": ({"weighting": "best"}, "weighting: expected "),
    "schedule": ({"schedule": "best"}, "schedule: expected 'auto' or 'flooding'"),
    "normalization": ({"normalization": "best"}, "normalization: expected 'largest' or 'norm', got 'best'"),
    "iterations": ({"max_iterations": 0}, "max_iterations: expected a whole number of at least 1, got 0"),
    "tolerance": ({"tolerance": -1.0}, "tolerance: expected a number of at least 0, got -1.0"),
    "no tolerance": ({"tolerance": NAN}, "tolerance: expected a number of at least 0, got nan"),
    "damping": ({"damping": 1.0}, "a number from 0 to below 1, got 1.0"),
    "negative damping": ({"damping": -0.1}, "a number from 0 to below 1, got -0.1"),
    "damping in words": ({"damping": "much"}, "a number from 0 to below 1, got 'much'"),
    "half an iteration": (
        {"max_iterations": 2.5},
        "max_iterations: expected a whole number of at least 1, got 2.5",
    ),
    "tolerance in words": ({"tolerance": "a"}, "tolerance: expected a number of at least 0, got 'a'"),
    "precision": ({"dtype": np.float16}, "dtype: expected float32 or float64, got <class 'numpy.float16'>"),
    "whole numbers": ({"dtype": int}, "dtype: expected float32 or float64, got <class 'int'>"),
    "no such precision": ({"dtype": "foo"}, "dtype: expected float32 or float64, got 'foo'"),
    "a tree with a cycle": (
        {"schedule": "tree"},
        "schedule: 'tree' needs a graph without cycles; use 'auto' or 'sweep'",
    ),
}


@pytest.mark.parametrize("case", INFERENCE)
def test_bad_settings_of_inference_are_refused(fitted, case):
    changed, text = INFERENCE[case]
    with pytest.raises(InputError) as refusal:
        fitted.infer(LOOP, **(ORDINARY | changed))
    assert text in str(refusal.value)


def test_a_models_own_inference_settings_are_checked_by_name():
    own = model(inference={"speed": 3})
    assert_refused("inference: unknown setting 'speed'; there are", InputError, lambda: own.fit(pairs()))


def test_a_models_own_inference_settings_are_its_defaults_and_give_way_to_the_call():
    own = model(inference={"max_iterations": 2, "tolerance": 0.0, "schedule": "flooding"}).fit(pairs())
    assert own.infer(LOOP, **ORDINARY).iterations == 2
    assert own.infer(LOOP, max_iterations=3, **ORDINARY).iterations == 3


def test_a_value_fixed_in_a_tree_makes_a_loop_a_tree(fitted):
    beliefs = fitted.infer(LOOP.fix([0], [0.3]), schedule="tree", **ORDINARY)
    assert (beliefs.converged, beliefs.iterations) == (True, 1)


def test_asking_a_variable_without_density_names_what_there_is(fitted):
    graph = Graph.chain(2, variable="way", relation="turned")
    beliefs = fitted.infer(graph, **ORDINARY)
    assert_refused(
        "variable 'way' has no density; use expect(f), mode(candidates=...), centre(), entropy() or probabilities()",
        UnsupportedError,
        lambda: beliefs.density(WAYS[:2]),
    )
