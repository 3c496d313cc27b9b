"""Records of several fields, and the choice of any kernel's parameters."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF

import kernelbp as kb
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import (
    Delta,
    Gaussian,
    Jaccard,
    Kernel,
    Linear,
    Mallows,
    Record,
    Rotation,
    Torus,
    check_values,
    domain,
    from_spec,
    resolve,
    to_spec,
)
from kernelbp.learning.kernel_tuning import tune
from kernelbp.testing import check_kernel

RANDOM = np.random.default_rng(0)
Residue = namedtuple("Residue", ["name", "angle"])
NAMES = RANDOM.choice(["ALA", "GLY", "SER"], size=30)
ANGLES = RANDOM.uniform(-180, 180, size=30)
TUPLES = [(str(name), float(angle)) for name, angle in zip(NAMES, ANGLES, strict=True)]
DICTS = [{"angle": angle, "name": name} for name, angle in TUPLES]
NAMED = [Residue(*pair) for pair in TUPLES]
ROWS = RANDOM.normal(size=(30, 2)).round(1)
MIXED = [(frozenset(RANDOM.choice(5, size=2).tolist()), tuple(RANDOM.normal(size=3)), 4) for _ in range(20)]
RESIDUE = Record({"name": Delta(), "angle": Torus(period=360)})
THREE = Record({"set": Jaccard(), "place": Gaussian(), "count": Linear()}, combine="sum")

CASES: list[tuple[Kernel, Any]] = [
    (RESIDUE, TUPLES),
    (RESIDUE, DICTS),
    (RESIDUE, NAMED),
    (Record({"x": Gaussian(), "y": Torus(2.0)}, "sum"), ROWS),
    (Record({"x": Gaussian(), "y": Torus(2.0)}), ROWS.tolist()),
    (THREE, MIXED),
    (Record({"record": RESIDUE, "number": Gaussian(1.0)}), [(pair, i % 3) for i, pair in enumerate(TUPLES)]),
    (2 * RESIDUE + RESIDUE * RESIDUE, TUPLES),
]
every_kernel = pytest.mark.parametrize(("kernel", "values"), CASES)


@every_kernel
def test_keeps_the_contract(kernel: Kernel, values: Any) -> None:
    check_kernel(kernel, values)


@every_kernel
def test_is_described_as_data_and_has_no_words_left_once_resolved(kernel: Kernel, values: Any) -> None:
    assert from_spec(json.loads(json.dumps(to_spec(kernel)))) == kernel
    resolved = resolve(kernel, values)
    assert "median" not in repr(resolved)
    assert resolve(resolved, values) == resolved
    check_values(kernel, values, "values")


def test_fields_are_compared_each_by_its_kernel() -> None:
    names, turns = Delta()(NAMES.tolist()), Torus(2.0, period=360)(ANGLES)
    fields = {"name": Delta(), "angle": Torus(2.0, period=360)}
    np.testing.assert_allclose(Record(fields)(TUPLES), names * turns)
    np.testing.assert_allclose(Record(fields, "sum")(TUPLES), (names + turns) / 2)
    np.testing.assert_allclose(Record(fields)(TUPLES[:3], TUPLES), (names * turns)[:3])


def test_tuples_mappings_and_named_tuples_are_the_same_records() -> None:
    kernel = resolve(RESIDUE, TUPLES)
    np.testing.assert_array_equal(kernel(DICTS), kernel(TUPLES))
    np.testing.assert_array_equal(kernel(NAMED, DICTS), kernel(TUPLES))
    numbers = Record({"x": Gaussian(1.0), "y": Gaussian(2.0)})
    np.testing.assert_array_equal(numbers([tuple(row) for row in ROWS]), numbers(ROWS))


def test_fields_are_resolved_on_their_own_values_with_counts() -> None:
    counts = np.arange(1, 31)
    resolved = RESIDUE.resolve(TUPLES, counts)
    assert resolved.fields["angle"] == Torus(period=360).resolve(ANGLES, counts)
    assert Record({"name": Delta()}).resolve([("a",), ("b",)]).fields == {"name": Delta()}


def test_only_records_of_finite_fields_that_must_all_agree_are_finite() -> None:
    assert domain(Record({"a": Delta(), "b": Delta()})) == "finite"
    assert domain(Record({"a": Delta(), "b": Delta()}, "sum")) == "other"
    assert domain(RESIDUE) == "other"


def test_equal_records_are_equal_and_hashable() -> None:
    assert Record({"a": Delta()}) == Record({"a": Delta()}) != Record({"b": Delta()})
    assert hash(Record({"a": Delta()})) == hash(Record({"a": Delta()}))


def test_a_record_with_a_kernel_of_ones_own_is_not_described() -> None:
    class Own:
        def __call__(self, X: Any, Y: Any = None) -> Any:
            return np.ones((len(X), len(X if Y is None else Y)))

        def diag(self, X: Any) -> Any:
            return np.ones(len(X))

    with pytest.raises(UnsupportedError, match="Own is neither"):
        to_spec(Record({"a": Own()}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([("ALA", 1.0), ("ALA",)], r"fields name, angle, got tuple \('ALA',\) at position 1"),
        ([{"name": "ALA"}], "fields name, angle, got dict .* at position 0"),
        (["AB"], "fields name, angle, got str 'AB' at position 0"),
        (np.zeros((3, 3)), "or rows of 2 numbers"),
        ({"name": "ALA", "angle": 1.0}, "as a sequence"),
        ([("ALA", np.nan)], "field 'angle': expected finite numbers"),
        ([(["ALA"], 1.0), ("GLY", 2.0)], "field 'name': expected hashable values"),
    ],
)
def test_what_is_not_such_a_record_is_refused(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^residues.*{message}"):
        check_values(RESIDUE, values, "residues")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "fields: expected a mapping"),
        ((Delta(),), "fields: expected a mapping"),
        (({1: Delta()},), "fields: expected names as text"),
        (({"a": Delta},), r"fields\['a'\]: expected a kernel, got the class Delta"),
        (({"a": Delta()}, "mean"), 'combine: expected "product" or "sum"'),
    ],
)
def test_odd_records_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Record(*arguments)


@pytest.mark.parametrize("fields", [3, {"a": {"name": "Delta"}}, {}])
def test_odd_descriptions_are_refused(fields: Any) -> None:
    with pytest.raises(InputError, match="spec"):
        from_spec({"name": "Record", "parameters": {"fields": fields, "combine": "product"}})


def test_a_chain_of_records_follows_both_fields(tmp_path: Path) -> None:
    """A colour that stays and an angle that turns by 30 degrees, or by -30 if the colour is red."""
    random = np.random.default_rng(0)
    colours = random.choice(["red", "blue"], size=1500)
    angles = random.uniform(0, 360, size=1500)
    steps = np.where(colours == "red", -30.0, 30.0)
    then = (angles + steps + random.normal(0, 3, size=1500)) % 360
    records = [(str(colour), float(angle)) for colour, angle in zip(colours, angles, strict=True)]
    following = [(str(colour), float(angle)) for colour, angle in zip(colours, then, strict=True)]
    kernel = Record({"colour": Delta(), "angle": Torus(period=360)})
    model = kb.Model({"record": kernel}, {"then": kb.Relation("record", "record")})
    model.fit({"then": (records, following)})
    graph = kb.Graph.from_edges([(0, 1, "then"), (2, 3, "then")], variables=["record"] * 4)
    graph = graph.fix([0, 2], [records[0], ("red" if records[0][0] == "blue" else "blue", records[0][1])])
    beliefs = model.infer(graph)
    modes = beliefs.mode()
    for start, end in ((modes[0], modes[1]), (modes[2], modes[3])):
        expected = start[1] + (-30.0 if start[0] == "red" else 30.0)
        assert end[0] == start[0]
        assert Torus(period=360).distance([end[1]], [expected])[0, 0] < 10.0
    model.save(tmp_path / "records.kbp")
    again = kb.Model.load(tmp_path / "records.kbp").infer(graph)
    np.testing.assert_array_equal(again.probabilities(), beliefs.probabilities())
    assert again.mode().tolist() == modes.tolist()


# choosing parameters


def test_tuning_prefers_the_bandwidth_at_which_values_tell_most() -> None:
    x = np.random.default_rng(0).uniform(-3, 3, size=300)
    y = np.sin(6 * x) + np.random.default_rng(1).normal(0, 0.1, size=300)
    found = tune(Gaussian(), x, y, parameters={"bandwidth": [0.002, 0.2, 20.0]}, partner=Gaussian(1.0))
    scores = {named["bandwidth"]: score for named, score in found.tried}
    assert found.kernel == Gaussian(0.2) and found.parameters == {"bandwidth": 0.2}
    assert found.score == scores[0.2] > 0.9
    assert scores[0.2] > max(scores[0.002], scores[20.0]) + 0.2


def test_the_score_is_near_zero_where_there_is_nothing_to_tell_and_below_one_by_the_noise() -> None:
    random = np.random.default_rng(0)
    x, noise = random.normal(size=(2, 600))
    nothing = tune(Gaussian(1.0), x, noise, parameters={"bandwidth": [1.0]}, partner=Linear(0.0))
    assert abs(nothing.score) < 0.05
    # with a linear kernel on numbers the loss is the squared error: at best the noise's share of the variance
    half = tune(Linear(), x, x + noise, parameters={"constant": [1.0]}, partner=Linear(0.0))
    assert half.score == pytest.approx(0.5, abs=0.06)


def test_multiples_of_a_kernel_score_alike() -> None:
    x = np.random.default_rng(0).normal(size=100)
    found = tune(1.0 * Gaussian(1.0), x, x**2, parameters={"factor": [0.01, 100.0]}, partner=Gaussian())
    assert found.tried[0][1] == pytest.approx(found.tried[1][1], rel=1e-6)


def test_what_the_data_resolve_is_tried_by_default() -> None:
    x = RANDOM.uniform(0, 24, size=120)
    kernel = Record({"hour": Torus(period=24), "name": Delta()})
    records = [(float(hour), "ab"[i % 2]) for i, hour in enumerate(x)]
    found = tune(kernel, records, np.floor(x / 2), partner=Delta())
    tried = [named["fields.hour.concentration"] for named, _ in found.tried]
    assert len(tried) == 7 and resolve(kernel, records).fields["hour"].concentration in tried  # type: ignore[attr-defined]
    assert found.parameters["fields.hour.concentration"] == max(
        tried
    )  # bins of two hours ask for the sharpest
    assert found.kernel.fields["name"] == Delta()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kernel", "name", "values"),
    [
        (Gaussian() + Linear(), "left.bandwidth", [0.5, 1.0]),
        (RBF(), "length_scale", [0.5, 1.0]),
        (2.0 * RBF(), "k2.length_scale", [0.5, 1.0]),
        (Gaussian("median"), "scale", [0.3, 1.0]),
    ],
    ids=repr,
)
def test_parameters_of_any_make_are_found(kernel: Any, name: str, values: list[float]) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, size=80)
    found = tune(kernel, x, np.sign(np.sin(5 * x)), parameters={name: values}, partner=Gaussian(1.0))
    assert found.parameters == {name: values[0]}
    assert found.tried[0][1] > found.tried[1][1]


def test_a_kernel_of_ones_own_is_tuned_by_its_attributes_and_left_alone() -> None:
    class Letters:
        def __init__(self) -> None:
            self.size = 1

        def __call__(self, X: Any, Y: Any = None) -> Any:
            pieces = [
                [{w[i : i + self.size] for i in range(len(w))} for w in side]
                for side in (X, X if Y is None else Y)
            ]
            rows = [[float(len(x & y)) for y in pieces[1]] for x in pieces[0]]
            return np.array(rows).reshape(len(X), len(pieces[1]))

        def diag(self, X: Any) -> Any:
            return self(X).diagonal()

    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("ab"), size=6)) for _ in range(150)]
    kernel = Letters()
    found = tune(
        kernel, words, ["aba" in word for word in words], parameters={"size": [1, 3]}, partner=Delta()
    )
    assert found.parameters == {"size": 3} and kernel.size == 1


def test_rotations_and_rankings_are_tuned_on_the_ends_of_a_relation() -> None:
    random = np.random.default_rng(0)
    ranks = np.array([random.permutation(4) for _ in range(150)])
    found = tune(Mallows(), ranks, ranks[:, ::-1])
    assert found.score > 0.5 and isinstance(found.kernel, Mallows)
    turns = random.normal(size=(150, 4))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    assert tune(Rotation(), turns, turns).score > 0.5


def test_the_same_seed_gives_the_same_answer_and_few_pairs_are_used() -> None:
    x = np.random.default_rng(0).normal(size=400)
    first, again = (tune(Gaussian(), x, x**2, most=100, seed=3) for _ in range(2))
    assert first == again
    assert tune(Gaussian(), x, x**2, most=100, seed=4).score != first.score


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"parameters": {"width": [1.0]}},
            "'width' is not a parameter of the kernel; Gaussian has bandwidth, scale",
        ),
        ({"parameters": {"bandwidth": 1.0}}, r"parameters\['bandwidth'\]: expected a sequence of values"),
        ({"parameters": {"bandwidth": []}}, r"parameters\['bandwidth'\]: expected a sequence of values"),
        ({"parameters": {}}, "parameters: expected a mapping"),
        ({"parameters": {"bandwidth": range(1, 502)}}, "501 combinations; at most 500"),
        ({"kernel": Delta()}, "leaves nothing to the data"),
        ({"kernel": Gaussian}, "expected a kernel, got the class"),
        ({"folds": 1}, "folds: expected a whole number of at least 2"),
        ({"most": 3}, "most: expected a whole number of at least 5"),
        ({"Y": [1.0]}, "Y: expected 20 values, one for each of X, got 1"),
        ({"X": [1.0, 2.0], "Y": [1.0, 2.0]}, "X: expected at least 10 pairs for 5 folds, got 2"),
    ],
)
def test_odd_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    given = {"kernel": Gaussian(), "X": np.arange(20.0), "Y": np.arange(20.0), **settings}
    with pytest.raises(InputError, match=message):
        tune(given.pop("kernel"), given.pop("X"), given.pop("Y"), **given)
