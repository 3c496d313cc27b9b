"""A saved model gives the same beliefs to the last bit; a file that is not one is refused and runs nothing."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import io
import json
import os
import pickle
import stat
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.gaussian_process import kernels as sk
from sklearn.linear_model import LogisticRegression

import kernelbp as kb
from kernelbp.errors import ConvergenceWarning, InputError, ModelFileError, NotFittedError, UnsupportedError
from kernelbp.kernels import Delta, Gaussian, Linear, Precomputed, RandomProjection, Sphere
from kernelbp.storage import fields, files
from kernelbp.storage.limits import DTYPES
from kernelbp.storage.reading import Reader
from kernelbp.storage.writing import Writer

RANDOM = np.random.default_rng(7)
SIZE = 300
NOW = RANDOM.normal(size=SIZE)
NEXT = 0.8 * NOW + 0.6 * RANDOM.normal(size=SIZE)
READ = NOW + 0.3 * RANDOM.normal(size=SIZE)
FEATURES = np.column_stack([NOW, NOW**2, RANDOM.normal(size=SIZE)])
TURNS = np.column_stack([np.cos(NOW), np.sin(NOW)])
WORDS = np.array(["sun", "rain", "snow \x00\ud800"], dtype=object)[RANDOM.integers(0, 3, SIZE)]
SETS = [frozenset(RANDOM.integers(0, 5, 2).tolist()) for _ in range(SIZE)]
MIXED = [
    ("a", (1, 2.5, None, float("inf"))),
    frozenset({("b", True), b"\x00\xff", "c"}),
    b"",
    1 << 100,
    "text",
    -0.5,
    False,
]
POINTS = RANDOM.normal(size=(60, 3))


class Overlap:
    """A kernel of one's own: the letters two words share, weighted by a number taken from the data."""

    def __init__(self, weight: float | None = None) -> None:
        self.weight = weight

    def resolve(self, values: Any, counts: Any = None) -> Overlap:
        return Overlap(float(np.sum(counts)) / len(values)) if self.weight is None else self

    def __call__(self, X: Any, Y: Any = None) -> Any:
        right = X if Y is None else Y
        shared = [[len(set(a) & set(b)) + (a == b) for b in right] for a in X]
        return (self.weight or 1.0) * np.array(shared, dtype=float).reshape(len(X), len(right))

    def diag(self, X: Any) -> Any:
        return np.diag(self(X))


class Same:
    """Whether two values are equal; unlike Delta it does not need to hash them."""

    def __call__(self, X: Any, Y: Any = None) -> Any:
        right = X if Y is None else Y
        return np.array([[float(a == b) for b in right] for a in X]).reshape(len(X), len(right))

    def diag(self, X: Any) -> Any:
        return np.ones(len(X))


@dataclass(frozen=True)
class Case:
    """A model, its pairs and a graph to infer on."""

    variables: dict[str, Any]
    relations: dict[str, kb.Relation]
    pairs: dict[str, tuple[Any, Any]]
    graph: kb.Graph
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict)

    def fitted(self) -> kb.Model:
        return kb.Model(self.variables, self.relations, **self.settings).fit(self.pairs)


def chain_case(kernel: Any, values: Any, **more: Any) -> Case:
    """Values in a chain of four whose first is known."""
    graph = kb.Graph.chain(4, variable="x", relation="then").fix([0], values[:1])
    following = values[1:] if isinstance(values, list) else np.asarray(values)[1:]
    return Case(
        {"x": kernel}, {"then": kb.Relation("x", "x")}, {"then": (values[:-1], following)}, graph, **more
    )


HIDDEN = {"then": kb.Relation("x", "x"), "read": kb.Relation("x", "y", regularization=1e-3)}
READINGS = kb.Graph.chain(4, variable="x", relation="then").observe("read", READ[:4])
FLOATS = Case(
    {"x": Gaussian(), "y": Gaussian(scale=0.3)},
    HIDDEN,
    {"then": (NOW, NEXT), "read": (NOW, READ)},
    kb.Graph.grid((3, 3), variable="x", relation="then").observe("read", READ[:9]),
)
CASES = {
    "floats": FLOATS,
    "text": chain_case(Delta(), WORDS),
    "wholes": chain_case(Gaussian(1.5), np.round(NOW * 3).astype(int)),
    "scikit-learn": dataclasses.replace(
        FLOATS,
        variables={"x": 2.0 * sk.RBF(0.7) + sk.ConstantKernel(0.1), "y": sk.Matern(0.4, nu=1.5)},
        graph=READINGS,
    ),
    "sum": dataclasses.replace(
        FLOATS, variables={"x": Gaussian(0.5) + 0.1 * Linear() ** 2, "y": Gaussian()}, graph=READINGS
    ),
    "posterior": Case(
        {"x": Gaussian(0.5), "y": Linear()},
        {"then": kb.Relation("x", "x"), "read": kb.Relation("x", "y", evidence="posterior")},
        {"then": (NOW, NEXT), "read": (NOW, FEATURES)},
        kb.Graph.chain(4, variable="x", relation="then").observe("read", FEATURES[:4]),
    ),
    "landmarks": dataclasses.replace(
        FLOATS, settings={"landmarks": {"x": np.linspace(-2, 2, 9)}, "ridge": 0.1, "power": 2}
    ),
    "landmark texts": chain_case(Delta(), WORDS, settings={"landmarks": {"x": np.unique(WORDS[:200])}}),
    "symmetric": Case(
        {"x": Gaussian(0.5)},
        {"beside": kb.Relation("x", "x", symmetric=True)},
        {"beside": (NOW, NEXT)},
        kb.Graph.grid((3, 3), variable="x", relation="beside").fix([0, 4], [0.5, -1.0]),
    ),
    "directions": chain_case(Sphere(), TURNS),
    "label sets": chain_case(RandomProjection(20), SETS),
    "precomputed": chain_case(Precomputed(POINTS @ POINTS.T + 1), np.arange(60), settings={"merge": False}),
    "mixed objects": chain_case(Delta(), MIXED * 3),
    "own kernel": chain_case(Overlap(), WORDS, kernels={"x": Overlap()}),
    "own kernel in a sum": chain_case(
        Sum := kb.kernels.Sum(Overlap(1.0), Delta()), WORDS, kernels={"x": Sum}
    ),
    "paper": Case(
        FLOATS.variables,
        HIDDEN,
        FLOATS.pairs,
        FLOATS.graph,
        {
            "ridge": 1e-2,
            "max_rank": 20,
            "marginal": "embedding",
            "inference": {"damping": 0.8, "schedule": "sweep"},
        },
    ),
}


def results(model: kb.Model, graph: kb.Graph, **choice: Any) -> list[Any]:
    """Messages, masses and modes."""
    fixed = {"conditionals": "embedding", "weighting": "bethe", "max_iterations": 5, "dtype": np.float64}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        beliefs = model.infer(graph, **(fixed | choice))
    return [*beliefs._source.state.messages, beliefs["x"].probabilities(), beliefs["x"].mode()]


def assert_same(first: kb.Model, second: kb.Model, graph: kb.Graph, **choice: Any) -> None:
    pairs = zip(results(first, graph, **choice), results(second, graph, **choice), strict=True)
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def floats() -> kb.Model:
    return FLOATS.fitted()


@pytest.fixture
def file(floats: kb.Model, tmp_path: Path) -> Path:
    floats.save(tmp_path / "model.kbp")
    return tmp_path / "model.kbp"


@pytest.fixture
def word_file(tmp_path: Path) -> Path:
    CASES["text"].fitted().save(tmp_path / "words.kbp")
    return tmp_path / "words.kbp"


# ---------------------------------------------------------------------- what comes back


@pytest.mark.parametrize("name", CASES)
def test_loaded_beliefs_are_the_same_to_the_last_bit(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = case.fitted()
    path = tmp_path / "model.kbp"
    model.save(path)
    loaded = kb.Model.load(path, kernels=case.kernels)
    assert_same(model, loaded, case.graph)
    assert_same(model, loaded, case.graph, conditionals="probability")
    if name in ("floats", "text", "precomputed"):
        assert_same(model, loaded, case.graph, update="linear")
        assert_same(model, loaded, case.graph, update="full", schedule="flooding")


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_model_saves_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.kbp", tmp_path / "second.kbp"
    CASES[name].fitted().save(first)
    kb.Model.load(first, kernels=CASES[name].kernels).save(second)
    assert first.read_bytes() == second.read_bytes()


def test_another_process_gets_the_same_beliefs(file: Path, floats: kb.Model) -> None:
    program = (
        "import sys, numpy as np, kernelbp as kb\n"
        "graph = kb.Graph.chain(3, variable='x', relation='then').fix([0], [0.25])\n"
        "model = kb.Model.load(sys.argv[1])\n"
        "beliefs = model.infer(graph, conditionals='embedding', weighting='bethe', dtype='float64')\n"
        "print(beliefs.mean().tobytes().hex())"
    )
    source = str(Path(kb.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": "123"},
    )
    graph = kb.Graph.chain(3, variable="x", relation="then").fix([0], [0.25])
    mine = floats.infer(graph, conditionals="embedding", weighting="bethe", dtype=np.float64).mean()
    assert ran.stdout.strip() == mine.tobytes().hex()


def test_settings_and_what_fitting_chose_come_back(tmp_path: Path) -> None:
    case = CASES["landmarks"]
    model = case.fitted()
    model.save(tmp_path / "m.kbp")
    loaded = kb.Model.load(tmp_path / "m.kbp")
    assert loaded.variables == model.variables and loaded.variables["x"] == Gaussian()
    assert list(loaded.variables) == ["x", "y"] and list(loaded.relations) == ["then", "read"]
    assert loaded.relations == model.relations
    assert loaded.landmarks is not None and np.array_equal(loaded.landmarks["x"], np.linspace(-2, 2, 9))
    for name in (
        "regularization",
        "ridge",
        "residual",
        "max_rank",
        "power",
        "marginal",
        "merge",
        "inference",
    ):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.settings_ == model.settings_
    assert loaded.settings_["variables"]["x"]["kernel"] != Gaussian()
    assert np.array_equal(loaded.support("x"), model.support("x"))


def test_a_loaded_model_can_be_fitted_again(file: Path, floats: kb.Model) -> None:
    assert_same(kb.Model.load(file).fit(FLOATS.pairs), floats, FLOATS.graph)


def test_arrays_that_were_one_are_stored_once_and_stay_one(tmp_path: Path) -> None:
    CASES["symmetric"].fitted().save(tmp_path / "m.kbp")
    moments = kb.Model.load(tmp_path / "m.kbp")._fitted.relations["beside"].moments
    assert moments.auto[0] is moments.auto[1]


def test_values_of_every_kind_come_back_as_they_were(tmp_path: Path) -> None:
    CASES["mixed objects"].fitted().save(tmp_path / "m.kbp")
    values = kb.Model.load(tmp_path / "m.kbp")._fitted.embeddings["x"].examples.values
    assert [(type(v), v) for v in values] == [(type(v), v) for v in MIXED]


plain_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(max_size=9)
    ),
    lambda parts: st.one_of(st.lists(parts, max_size=4).map(tuple), st.frozensets(parts, max_size=4)),
    max_leaves=12,
)


@given(st.lists(plain_values, max_size=5))
def test_any_value_made_of_plain_ones_survives_json(values: list[Any]) -> None:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    node = json.loads(json.dumps(Writer(frozenset()).node(column, "x"), allow_nan=False))
    back = Reader([], [], {}).node(node)
    assert repr_exact(back.tolist()) == repr_exact(values)


def repr_exact(value: Any) -> Any:
    """Types and bits: 1, True and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(value, tuple | list):
        return [repr_exact(part) for part in value]
    return (
        sorted(map(str, map(repr_exact, value)))
        if isinstance(value, frozenset)
        else (type(value), repr(value))
    )


@given(st.data())
def test_any_array_of_a_known_dtype_survives(data: Any) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    array = data.draw(
        st.sampled_from([array, np.asfortranarray(array), array[..., ::-1] if shape else array])
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    with zipfile.ZipFile(held) as archive:
        back = files._read_array(archive, archive.getinfo("a.npy"), files._described(array))
    assert back.dtype == array.dtype and np.array_equal(back, array)
    assert back.flags.writeable and back.flags.aligned
    if array.flags.contiguous or array.flags.f_contiguous:
        assert back.flags.f_contiguous == array.flags.f_contiguous


# ---------------------------------------------------------------------- growth


@dataclass(frozen=True)
class Extra:
    """A record this version does not know of."""

    weight: float
    parts: tuple[Any, ...]


def test_new_fields_and_records_are_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fields.RECORDS, "Extra", Extra)
    table = sparse.csr_array(np.array([[0.0, 2.0], [1.0, 0.0]]))
    value = {
        "numbers": (1, 2.0, None, "word", [3, np.int64(4), np.float32(0.5)]),
        ("tuple", 1): Extra(0.5, (np.arange(3), {"deep": np.array([True, False])})),
        "table": table,
        "kernel": Gaussian(2.0),
        "infinite": np.array([np.inf, -np.inf]),
    }
    writer = Writer(frozenset())
    node = json.loads(json.dumps(writer.node(value, "new")))
    back = Reader(writer.arrays, writer.kernels, {}).node(node)
    assert back["numbers"] == (1, 2.0, None, "word", [3, 4, 0.5])
    assert back["tuple", 1].weight == 0.5 and np.array_equal(back["tuple", 1].parts[0], np.arange(3))
    assert back["tuple", 1].parts[1]["deep"].dtype == bool
    assert np.array_equal(back["table"].toarray(), table.toarray())
    assert back["kernel"] == Gaussian(2.0) and back["infinite"][1] == -np.inf


def test_a_field_with_a_default_may_be_missing_and_another_may_not(file: Path) -> None:
    def forget(name: str) -> Callable[[Any], None]:
        return lambda document: document["settings"]["relations"]["mapping"][1][1]["record"][1].pop(name)

    assert kb.Model.load(edited(file, forget("regularization"))).relations["read"].regularization is None
    with pytest.raises(ModelFileError, match="no first in Relation; it may be of an older version"):
        kb.Model.load(edited(file, forget("first")))


def test_a_missing_setting_takes_its_default_and_an_unknown_one_is_refused(file: Path) -> None:
    assert kb.Model.load(edited(file, lambda document: document["settings"].pop("power"))).power == 4
    with pytest.raises(ModelFileError, match="settings this version of kernelbp does not know: novelty"):
        kb.Model.load(edited(file, lambda document: document["settings"].update(novelty=1)))


def test_every_record_reachable_from_a_fitted_model_is_known(floats: kb.Model) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, kb.kernels.Kernel):
            return
        if dataclasses.is_dataclass(value):
            assert fields.RECORDS[type(value).__name__] is type(value)
            for field in dataclasses.fields(value):
                walk(getattr(value, field.name))
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ():
            walk(part)

    walk(floats._fitted)


def test_annotations_of_every_record_can_be_read() -> None:
    for record in set(fields.RECORDS.values()) - {kb.Relation}:
        assert set(fields.hints_of(record)) >= {field.name for field in dataclasses.fields(record)}


# ---------------------------------------------------------------------- what is not stored


def test_an_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="has not been fitted"):
        kb.Model(FLOATS.variables, FLOATS.relations).save(tmp_path / "m.kbp")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "strange", [1j, {1}, ["a"], range(3), object(), type("Word", (str,), {})("a"), 1 << 5000]
)
def test_values_of_other_types_are_refused_by_name(strange: Any, tmp_path: Path) -> None:
    values = ["a", ("c", strange), "b", ("c", strange)]
    model = chain_case(Same(), values).fitted()
    with pytest.raises(UnsupportedError, match=rf"variable 'x'.*{type(strange).__name__}.*is not stored"):
        model.save(tmp_path / "m.kbp")
    assert list(tmp_path.iterdir()) == []


def spoil(model: kb.Model, variable: str, **changes: Callable[[Any], Any]) -> None:
    """Replace parts of what was learned about a variable."""
    fitted = model._fitted
    assert fitted is not None
    old = fitted.embeddings[variable]
    new = dataclasses.replace(old, **{name: change(getattr(old, name)) for name, change in changes.items()})
    model._fitted = dataclasses.replace(fitted, embeddings={**fitted.embeddings, variable: new})


def test_a_value_nested_too_deep_is_refused(tmp_path: Path) -> None:
    deep: Any = ()
    for _ in range(100):
        deep = (deep,)
    with pytest.raises(UnsupportedError, match="nested more than 64 deep"):
        chain_case(Delta(), ["a", deep, "b"]).fitted().save(tmp_path / "m.kbp")


@pytest.mark.parametrize("strange", [LogisticRegression(), len, np.array(["x"], dtype=object)[:, None]])
def test_a_relation_holding_what_is_no_data_is_refused_by_name_and_field(
    strange: Any, tmp_path: Path
) -> None:
    model = FLOATS.fitted()
    relation = copy.copy(model.relations["read"])
    object.__setattr__(relation, "evidence", strange)
    model.relations = {**model.relations, "read": relation}
    with pytest.raises(UnsupportedError, match=r"relations\['read'\]\.evidence: .*not stored"):
        model.save(tmp_path / "m.kbp")


def test_arrays_of_other_kinds_are_refused() -> None:
    writer = Writer(frozenset())
    for array in (
        np.array([1j]),
        np.array(["2020"], dtype="M8[Y]"),
        np.ma.masked_array([1.0]),
        np.zeros(1, "f4,i4"),
    ):
        with pytest.raises(UnsupportedError, match="place: an array of dtype"):
            writer.node(array, "place")
    with pytest.raises(UnsupportedError, match="place: holds NaN"):
        writer.node(np.array([1.0, np.nan]), "place")
    with pytest.raises(UnsupportedError, match="convert it to csr_array"):
        writer.node(sparse.csc_array(np.eye(2)), "place")
    with pytest.raises(UnsupportedError, match="place: a value of type Extra"):
        writer.node(Extra(1.0, ()), "place")


def test_a_model_that_could_not_be_read_back_is_not_saved(tmp_path: Path) -> None:
    model = FLOATS.fitted()
    spoil(model, "x", residuals=list)
    with pytest.raises(UnsupportedError, match=r"embeddings\['x'\]\.residuals: expected tuple.* found list"):
        model.save(tmp_path / "m.kbp")
    model = FLOATS.fitted()
    model.relations = {"then": model.relations["then"]}
    with pytest.raises(UnsupportedError, match="cannot be stored: the relations learned are not the model's"):
        model.save(tmp_path / "m.kbp")


def test_settings_are_stored_as_loosely_as_fitting_takes_them(tmp_path: Path) -> None:
    settings = {"max_rank": np.int64(20), "power": np.int32(2), "merge": 1, "ridge": np.float32(0.5)}
    dataclasses.replace(FLOATS, settings=settings).fitted().save(tmp_path / "m.kbp")
    loaded = kb.Model.load(tmp_path / "m.kbp")
    assert (loaded.max_rank, loaded.power, loaded.merge, loaded.ridge) == (20, 2, True, 0.5)
    model = FLOATS.fitted()
    model.inference = "fast"  # type: ignore[assignment]
    with pytest.raises(UnsupportedError, match=r"inference: expected a mapping of settings, got str"):
        model.save(tmp_path / "m.kbp")


@pytest.mark.parametrize("limit", ["MOST_TEXT", "MOST_MEMBERS", "MOST_BYTES"])
def test_a_model_too_large_to_be_read_back_is_not_saved(
    limit: str, floats: kb.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, limit, 3)
    with pytest.raises(UnsupportedError, match=r"too large for a file: .* at most 3 are read back"):
        floats.save(tmp_path / "m.kbp")


# ---------------------------------------------------------------------- kernels of one's own


def test_a_kernel_of_ones_own_must_be_given_by_variable(tmp_path: Path) -> None:
    CASES["own kernel"].fitted().save(tmp_path / "m.kbp")
    with pytest.raises(
        InputError, match=r"variable 'x' is of a class of its own \(Overlap\).*kernels=\{'x': "
    ):
        kb.Model.load(tmp_path / "m.kbp")
    with pytest.raises(InputError, match=r"kernels\['x'\]: expected a kernel .*got str"):
        kb.Model.load(tmp_path / "m.kbp", kernels={"x": "Overlap"})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"kernels\['x'\]: expected a kernel .*got type"):
        kb.Model.load(tmp_path / "m.kbp", kernels={"x": Overlap})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"variable 'y' is not one whose kernel must be given; .*: x"):
        kb.Model.load(tmp_path / "m.kbp", kernels={"x": Overlap(), "y": Overlap()})
    loaded = kb.Model.load(tmp_path / "m.kbp", kernels={"x": Overlap()})
    assert loaded.settings_["variables"]["x"]["kernel"].weight == SIZE * 2 / 3 - 2 / 3


def test_a_stored_kernel_cannot_be_overruled(file: Path) -> None:
    with pytest.raises(InputError, match=r"variable 'x' is not one whose kernel must be given; .*: none"):
        kb.Model.load(file, kernels={"x": Gaussian(1.0)})


def test_a_table_of_a_kernel_is_kept_out_of_the_text_and_stored_once(tmp_path: Path) -> None:
    CASES["precomputed"].fitted().save(tmp_path / "m.kbp")
    with zipfile.ZipFile(tmp_path / "m.kbp") as archive:
        assert len(archive.read("model.json")) < 10_000
    assert (tmp_path / "m.kbp").stat().st_size < 100_000


# ---------------------------------------------------------------------- writing


def test_an_interrupted_save_leaves_the_earlier_file(
    file: Path, floats: kb.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()
    for stage in ("fsync", "replace"):

        def interrupted(*args: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(files.os, stage, interrupted)
            with pytest.raises(KeyboardInterrupt):
                floats.save(file)
        assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]


def test_saving_replaces_what_a_link_points_to_and_keeps_permissions(file: Path, floats: kb.Model) -> None:
    link = file.with_name("link.kbp")
    link.symlink_to(file)
    file.write_bytes(b"old")
    file.chmod(0o640)
    floats.save(link)
    assert link.is_symlink() and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert_same(kb.Model.load(str(link)), floats, FLOATS.graph)


def test_a_missing_folder_or_file_is_the_systems_own_error(floats: kb.Model, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        floats.save(tmp_path / "no" / "m.kbp")
    with pytest.raises(FileNotFoundError):
        kb.Model.load(tmp_path / "no.kbp")
    with pytest.raises(IsADirectoryError):
        kb.Model.load(tmp_path)
    with pytest.raises(IsADirectoryError):
        floats.save(tmp_path)
    assert list(tmp_path.parent.glob(".*.tmp")) == []


# ---------------------------------------------------------------------- damage


def test_a_truncated_file_is_refused_at_every_length(file: Path) -> None:
    whole = file.read_bytes()
    ends = np.random.default_rng(0).integers(0, len(whole), 80).tolist()
    for end in [*range(0, 8), *ends, *range(len(whole) - 130, len(whole))]:
        file.write_bytes(whole[:end])
        with pytest.raises(ModelFileError, match=r"model\.kbp: is (not a|truncated)"):
            kb.Model.load(file)


def test_a_flipped_byte_is_refused_or_does_not_matter(file: Path, floats: kb.Model) -> None:
    whole = file.read_bytes()
    expected = results(floats, FLOATS.graph)
    rng = np.random.default_rng(1)
    with zipfile.ZipFile(file) as archive:
        headers = [info.header_offset for info in archive.infolist()]
        directory = archive.start_dir
    positions = [
        *rng.integers(0, len(whole), 100),  # mostly in the arrays
        *rng.integers(directory, len(whole), 100),
        *(int(rng.choice(headers)) + rng.integers(0, 140, 100)),
    ]
    harmless = 0
    for position in map(int, positions):
        changed = bytearray(whole)
        changed[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(changed)
        try:
            loaded = kb.Model.load(file)
        except ModelFileError:
            continue
        harmless += 1
        assert all(map(np.array_equal, results(loaded, FLOATS.graph), expected))
    assert harmless < 100  # dates and permissions of members, which nothing reads


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"hello" * 100,
        pickle.dumps([1] * 500),
        b"PK\x03\x04" + bytes(500),
        b"PK\x05\x06" + bytes(18),
    ],
)
def test_a_file_that_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign.kbp"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"foreign\.kbp: is .*not a kernelbp model file"):
        kb.Model.load(path)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    np.savez(path, a=np.arange(3))
    with pytest.raises(ModelFileError, match="not a kernelbp model file"):
        kb.Model.load(path)
    sealed(path, {"readme.txt": b"hello"}, b"")
    with pytest.raises(ModelFileError, match=r"holds no model\.json"):
        kb.Model.load(path)
    for text in (b'{"format": "other"}', b"[]", b"3"):
        sealed(path, {"model.json": text}, text)
        with pytest.raises(ModelFileError, match="not a kernelbp model file"):
            kb.Model.load(path)


# ---------------------------------------------------------------------- files made by hand


def sealed(path: Path, members: dict[str, bytes], text: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    """An archive whose checksum of model.json is right."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = b"kernelbp-model sha256:" + hashlib.sha256(text).hexdigest().encode()
        for name, content in members.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "model.json" else compression)
    return path


def edited(
    path: Path,
    change: Callable[[Any], Any] = lambda document: None,
    arrays: dict[int, Any] | None = None,
    **options: Any,
) -> Path:
    """A copy with another document or other arrays, all of its checksums right."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members["model.json"])
    for number, new in (arrays or {}).items():
        if isinstance(new, bytes):
            content = new
        else:
            held = io.BytesIO()
            np.save(held, new, allow_pickle=True)
            content = held.getvalue()
            document["arrays"][number].update(dtype=new.dtype.str, shape=list(new.shape), order="C")
        document["arrays"][number]["sha256"] = hashlib.sha256(content).hexdigest()
        members[f"arrays/{number}.npy"] = content
    change(document)
    text = json.dumps(document).encode()
    members["model.json"] = text
    return sealed(path.with_name("edited.kbp"), members, text, **options)


def array_of(path: Path, number: int) -> Any:
    with zipfile.ZipFile(path) as archive:
        return np.load(io.BytesIO(archive.read(f"arrays/{number}.npy")))


def learned(document: Any) -> Any:
    """The fields of Fitted."""
    return document["fitted"]["record"][1]


def embedding_of(document: Any, index: int = 0) -> Any:
    return learned(document)["embeddings"]["mapping"][index][1]["record"][1]


def relation_of(document: Any, index: int = 0) -> Any:
    return learned(document)["relations"]["mapping"][index][1]["record"][1]


def test_an_edited_copy_with_right_sums_loads(file: Path, floats: kb.Model) -> None:
    assert_same(kb.Model.load(edited(file)), floats, FLOATS.graph)


def test_altered_text_and_altered_arrays_are_found_by_their_sums(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members["model.json"]
    altered = {**members, "model.json": text.replace(b"0.0001", b"0.0002")}
    with pytest.raises(ModelFileError, match=r"was altered: model\.json"):
        kb.Model.load(sealed(tmp_path / "a.kbp", altered, text))
    altered = {**members, "arrays/0.npy": members["arrays/0.npy"][:-1] + b"\x01"}
    with pytest.raises(ModelFileError, match=r"was altered: arrays/0\.npy"):
        kb.Model.load(sealed(tmp_path / "b.kbp", altered, text))


def test_a_newer_version_is_refused_with_advice(file: Path) -> None:
    def newer(document: Any) -> None:
        document["version"], document["written by"] = 2, "9.1"

    with pytest.raises(ModelFileError, match=r"format version 2, written by kernelbp 9\.1; .*update it"):
        kb.Model.load(edited(file, newer))
    for version in ("1", 0, True, None):
        with pytest.raises(ModelFileError, match="does not say its version"):
            kb.Model.load(edited(file, lambda document, v=version: document.update(version=v)))


ran: list[str] = []


class Bomb:
    """Unpickling it would be noticed."""

    def __reduce__(self) -> Any:
        return (ran.append, ("bomb",))


def test_a_pickled_array_is_refused_and_not_unpickled(file: Path) -> None:
    bombs = np.array([Bomb(), Bomb()], dtype=object)
    with pytest.raises(ModelFileError, match="not described as an array of numbers"):
        kb.Model.load(edited(file, arrays={0: bombs}))
    held = io.BytesIO()
    np.save(held, bombs, allow_pickle=True)
    shape = (len(held.getvalue()) - 128) // 8
    content = held.getvalue()[: 128 + 8 * shape]

    def claim(document: Any) -> None:
        document["arrays"][0].update(dtype="<f8", shape=[shape])

    with pytest.raises(ModelFileError, match="another shape or dtype"):
        kb.Model.load(edited(file, claim, {0: content}))
    assert ran == []


def test_a_compressed_member_is_refused_without_being_unpacked(file: Path) -> None:
    zeros = np.zeros(1 << 21)
    bomb = edited(file, arrays={0: zeros}, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="compressed or encrypted"):
        kb.Model.load(bomb)
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_a_huge_claimed_shape_is_refused_before_memory_is_taken(file: Path) -> None:
    for shape in ([1 << 33], [1 << 33, 1 << 33], [-1], [1.0], [True], ["3"], 3, None, [1] * 9, [0, 1 << 40]):
        with pytest.raises(ModelFileError, match=r"has .* (bytes, which|belongs)|axes"):
            kb.Model.load(edited(file, lambda document, s=shape: document["arrays"][0].update(shape=s)))


def test_an_array_whose_header_lies_is_refused(file: Path) -> None:
    array = array_of(file, 0)
    held = io.BytesIO()
    np.lib.format.write_array_header_1_0(held, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    for content in (
        held.getvalue() + array.tobytes(),
        bytes(128) + array.tobytes(),
        b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 118 + array.tobytes(),
        b"\x93NUMPY\x02\x00" + bytes(120) + array.tobytes(),
    ):
        with pytest.raises(ModelFileError, match=r"arrays/0\.npy has another shape"):
            kb.Model.load(edited(file, arrays={0: content}))


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "arrays/999.npy", "arrays/", "evil.py"])
def test_an_unexpected_member_is_refused_and_nothing_is_extracted(name: str, file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"evil")
    with pytest.raises(ModelFileError, match="does not hold exactly the members it lists"):
        kb.Model.load(file)
    assert list(file.parent.iterdir()) == [file] and not (file.parents[2] / "evil").exists()


def test_two_members_of_one_name_are_refused(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("model.json", b"{}")
    with pytest.raises(ModelFileError, match="two members of one name"):
        kb.Model.load(file)


def test_a_missing_array_is_refused(file: Path) -> None:
    with pytest.raises(ModelFileError, match="exactly the members"):
        kb.Model.load(edited(file, lambda document: document["arrays"].pop()))
    with pytest.raises(ModelFileError, match="exactly the members"):
        kb.Model.load(edited(file, lambda document: document["arrays"].append(document["arrays"][0])))


def test_too_many_members_are_refused_before_the_directory_is_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_MEMBERS", 5)
    monkeypatch.setattr(files.zipfile, "ZipFile", None)
    with pytest.raises(ModelFileError, match="members, more than the 5 allowed"):
        kb.Model.load(file)


def test_the_large_end_record_is_looked_at_too(file: Path) -> None:
    whole = file.read_bytes()
    end = len(whole) - 108
    offset = struct.unpack("<L", whole[end + 16 : end + 20])[0]

    def with_large(members: int, directory: int) -> bytes:
        record = struct.pack(
            "<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, members, members, directory, offset
        )
        locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
        return whole[:end] + record + locator + whole[end:]

    members, directory = struct.unpack("<HL", whole[end + 10 : end + 16])
    file.write_bytes(with_large(members, directory))
    kb.Model.load(file)
    file.write_bytes(with_large(1 << 40, 1 << 45))
    with pytest.raises(ModelFileError, match="has 1,099,511,627,776 members"):
        kb.Model.load(file)


def test_members_that_overlap_to_more_than_the_file_are_refused(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        place = archive.start_dir
    whole[place + 20 : place + 28] = struct.pack("<2L", 1 << 30, 1 << 30)
    file.write_bytes(whole)
    with pytest.raises(ModelFileError, match=r"larger than the file|damaged"):
        kb.Model.load(file)


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_TEXT"])
def test_files_over_a_limit_are_refused(limit: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, limit, 1000)
    with pytest.raises(ModelFileError, match=r"1,000 (bytes )?allowed"):
        kb.Model.load(file)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"a": 1, "a": 2}',
        b"NaN",
        b"1e999",
        b"\xff\xfe",
        b"{",
        b"9" * 9999,
    ],
    ids=["deep", "deep objects", "twice", "NaN", "huge", "no text", "unfinished", "long number"],
)
def test_text_that_is_not_plain_json_is_refused(text: bytes, tmp_path: Path) -> None:
    path = sealed(tmp_path / "m.kbp", {"model.json": text}, text)
    with pytest.raises(ModelFileError, match=r"m\.kbp: "):
        kb.Model.load(path)


def nested(levels: int) -> Any:
    node: Any = 1
    for _ in range(levels):
        node = {"tuple": [node]}
    return node


STRANGE_NODES: dict[str, tuple[Any, str]] = {
    "deep": (nested(100), "nested more than 64 deep"),
    "deep values": ({"objects": [nested(100)]}, "nested more than 64 deep"),
    "unknown class": ({"record": ["Popen", {"args": "true"}]}, "record of unknown kind 'Popen'"),
    "dotted class": ({"record": ["os.system", {}]}, "record of unknown kind 'os.system'"),
    "unknown node": ({"python": "1"}, "node of unknown kind 'python'"),
    "two keys": ({"tuple": [], "list": []}, "not a node"),
    "bare list": ([1], "not a node"),
    "no array": ({"array": 999}, "whole number from 0"),
    "negative array": ({"array": -1}, "whole number from 0"),
    "true array": ({"array": True}, "whole number from 0"),
    "no kernel": ({"kernel": 999}, "whole number from 0"),
    "kernel not listed": ({"own kernel": "x"}, "asks for a kernel it does not list"),
    "record without fields": ({"record": ["Kind"]}, "record without name"),
    "unknown field": ({"record": ["Kind", {"form": "object", "dimension": 0, "x": 1}]}, "does not know: x"),
    "wrong type": ({"record": ["Kind", {"form": 1, "dimension": 0}]}, "Kind whose form is not str"),
    "array as a value": ({"objects": [{"array": 0}]}, "value of unknown kind 'array'"),
    "array in a set": ({"frozenset": [{"tuple": [{"array": 0}]}]}, "value of unknown kind 'array'"),
    "key that is none": ({"mapping": [[{"list": []}, 1]]}, "value of unknown kind 'list'"),
    "key twice": ({"mapping": [["a", 1], ["a", 2]]}, "key 'a' twice"),
    "entry that is none": ({"mapping": [["a"]]}, "entry is not a pair"),
    "mapping that is none": ({"mapping": {"a": 1}}, "where a list belongs"),
    "text that is none": ({"texts": [1]}, "where text belongs"),
    "bytes that are none": ({"bytes": "!"}, "does not hold a valid model"),
    "float that is none": ({"float": "1"}, "does not hold a valid model"),
    "table without parts": ({"csr": {}}, "table without its parts"),
    "not fitted": (3, "holds no fitted model"),
    "relation": ({"record": ["Relation", {"first": "x", "second": "y"}]}, "holds no fitted model"),
    "wrong relation": (
        {"record": ["Relation", {"first": "x", "second": "y", "symmetric": True}]},
        "a symmetric relation joins",
    ),
}


@pytest.mark.parametrize("name", STRANGE_NODES)
def test_strange_nodes_are_refused(name: str, file: Path) -> None:
    node, text = STRANGE_NODES[name]
    with pytest.raises(ModelFileError, match=text):
        kb.Model.load(edited(file, lambda document: document.update(fitted=node)))


def deep_kernel(levels: int) -> Any:
    spec: Any = {"name": "Delta", "parameters": {}}
    for _ in range(levels):
        spec = {"name": "Scaled", "parameters": {"factor": 1.0, "kernel": spec}}
    return spec


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "os.system", "parameters": {"command": "true"}},
        {"name": "sklearn.os.system", "parameters": {}},
        {"name": "Gaussian", "parameters": {"bandwidth": "__import__('os')", "scale": 1.0}},
        {"name": "Gaussian", "parameters": {"bandwidth": -1.0, "scale": 1.0}},
        {"name": "Gaussian"},
        {"long text": 999},
        {"long text": 0},
        "Gaussian",
        deep_kernel(60),
        deep_kernel(300),
    ],
)
def test_descriptions_of_kernels_that_are_none_are_refused(spec: Any, file: Path) -> None:
    with pytest.raises(ModelFileError):
        kb.Model.load(edited(file, lambda document: document["kernels"].__setitem__(0, spec)))


ALTERATIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "settings are no mapping": (lambda d: d.update(settings=[]), "settings are not a mapping"),
    "a setting of the wrong type": (
        lambda d: d["settings"].update(power="4"),
        "setting power of another type",
    ),
    "a setting that is no mapping": (
        lambda d: d["settings"].update(inference=1.5),
        "inference of another type",
    ),
    "a setting not finite": (
        lambda d: d["settings"].update(residual={"float": "nan"}),
        "settings do not hold",
    ),
    "a setting out of range": (lambda d: d["settings"].update(power=0), "settings do not hold: power"),
    "no variables": (
        lambda d: d["settings"].update(variables={"mapping": []}),
        "variables: expected at least one",
    ),
    "a variable that is no kernel": (
        lambda d: d["settings"]["variables"]["mapping"][0].__setitem__(1, 3),
        "setting variables of another type",
    ),
    "a part missing": (lambda d: d.pop("kernels"), "does not have the parts"),
    "a part too many": (lambda d: d.update(more=1), "does not have the parts"),
    "kernels that are no list": (lambda d: d.update(kernels={}), "kernels are not a list"),
    "own kernels that are no list": (lambda d: d.update({"own kernels": [1]}), "list of kernels is not one"),
    "arrays that are no list": (lambda d: d.update(arrays={}), "arrays are not a list"),
    "an array without sum": (lambda d: d["arrays"][0].pop("sha256"), "not described"),
    "an unlisted dtype": (lambda d: d["arrays"][0].update(dtype="|O"), "not described"),
    "another dtype": (lambda d: d["arrays"][0].update(dtype="<i8"), "another shape or dtype"),
    "another order": (lambda d: d["arrays"][0].update(order="F"), "another shape or dtype"),
    "another shape": (lambda d: d["arrays"][0]["shape"].reverse(), "another shape or dtype"),
    "relations exchanged": (
        lambda d: learned(d)["relations"]["mapping"].pop(),
        "relations learned are not the model's",
    ),
    "a variable unlearned": (
        lambda d: learned(d)["embeddings"]["mapping"].pop(),
        "variables learned are not",
    ),
    "variables exchanged": (
        lambda d: [
            e.__setitem__(0, n) for e, n in zip(learned(d)["embeddings"]["mapping"], "yx", strict=True)
        ],
        "do not fit the bases|does not fit the examples",
    ),
    "points of the wrong shape": (
        lambda d: embedding_of(d)["basis"]["record"][1].update(
            points=embedding_of(d)["examples"]["record"][1]["counts"]
        ),
        "basis points are not of the variable's kind",
    ),
    "a triangle that does not fit": (
        lambda d: embedding_of(d)["basis"]["record"][1].update(
            triangle=embedding_of(d)["support"]["record"][1]["triangle"]
        ),
        "triangle of its basis does not fit",
    ),
    "a power of 0": (lambda d: embedding_of(d)["support"]["record"][1].update(power=0), "of its support"),
    "counts that are not": (
        lambda d: embedding_of(d)["examples"]["record"][1].update(
            counts=embedding_of(d)["basis"]["record"][1]["points"]
        ),
        "counts of examples do not fit",
    ),
    "a kind that is none": (
        lambda d: embedding_of(d)["examples"]["record"][1]["kind"]["record"][1].update(form="matrix"),
        "its kind is not one",
    ),
    "a kind of other values": (
        lambda d: embedding_of(d)["examples"]["record"][1]["kind"]["record"][1].update(
            form="object", dimension=0
        ),
        "not of the variable's kind",
    ),
    "a residual that is infinite": (
        lambda d: embedding_of(d).update(residuals={"tuple": [1.0, {"float": "inf"}]}),
        "residuals are not",
    ),
    "states of other values": (
        lambda d: embedding_of(d)["states"]["record"][1].update(points={"objects": ["a"]}),
        "states are not of the variable's kind",
    ),
    "weights of other states": (
        lambda d: embedding_of(d).update(state_weights=embedding_of(d)["examples"]["record"][1]["counts"]),
        "weights of its states do not fit",
    ),
    "a joint table of other states": (
        lambda d: relation_of(d).update(joint=relation_of(d)["moments"]["record"][1]["cross"]),
        "joint table does not fit the states",
    ),
    "a mixing over one": (
        lambda d: relation_of(d)["smoothing"]["record"][1].update(mixing=1.5),
        "smoothing does not hold",
    ),
    "three residuals": (
        lambda d: embedding_of(d).update(residuals={"tuple": [1, 1, 1]}),
        "whose residuals is not",
    ),
    "evidence of no kind": (lambda d: relation_of(d).update(evidence="guess"), "whose evidence is not"),
    "a negative regularization": (
        lambda d: relation_of(d).update(regularization=-1.0),
        "regularization does not hold",
    ),
    "no pairs": (lambda d: relation_of(d)["moments"]["record"][1].update(total=0.0), "number of pairs"),
    "a moment that does not fit": (
        lambda d: relation_of(d)["moments"]["record"][1].update(
            cross=relation_of(d, 1)["moments"]["record"][1]["tensor"]["tuple"][0]
        ),
        r"moments \(cross\) do not fit",
    ),
    "a table that is none": (
        lambda d: relation_of(d).update(table={"array": 0}),
        "table of pairs does not fit",
    ),
    "a table of another shape": (
        lambda d: relation_of(d)["table"]["csr"]["shape"].__setitem__(1, 10_000),
        "table of pairs does not fit",
    ),
    "a table too narrow": (
        lambda d: relation_of(d)["table"]["csr"]["shape"].__setitem__(1, 3),
        "do not fit its shape",
    ),
    "a table too short": (
        lambda d: relation_of(d)["table"]["csr"]["shape"].__setitem__(0, 3),
        "do not fit its shape",
    ),
    "a table of three axes": (lambda d: relation_of(d)["table"]["csr"]["shape"].append(3), "two axes"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_parts_that_do_not_fit_together_are_refused(name: str, file: Path) -> None:
    change, text = ALTERATIONS[name]
    with pytest.raises(ModelFileError, match=text):
        kb.Model.load(edited(file, change))


def document_of(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("model.json"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_in_every_array(bad: float, file: Path) -> None:
    for number, entry in enumerate(document_of(file)["arrays"]):
        if entry["dtype"] == "<f8":
            array = array_of(file, number)
            array.reshape(-1)[-1] = bad
            with pytest.raises(ModelFileError, match=r"NaN|finite|do(es)? not fit|is no count"):
                kb.Model.load(edited(file, arrays={number: array}))


def test_indices_of_a_table_out_of_range_are_refused(file: Path) -> None:
    table = relation_of(document_of(file))["table"]["csr"]
    for part, place, value in (
        ("indices", 0, -1),
        ("indices", 3, 1 << 40),
        ("indptr", 0, 1),
        ("indptr", 5, 1 << 40),
        ("indptr", 5, -1),
        ("indptr", -1, 1),
    ):
        array = array_of(file, table[part]).astype(np.int64)
        array[place] = value
        with pytest.raises(ModelFileError, match="indices do not fit its shape"):
            kb.Model.load(edited(file, arrays={table[part]: array}))
    with pytest.raises(ModelFileError, match="indices do not fit its shape"):
        kb.Model.load(edited(file, arrays={table["indices"]: array_of(file, table["indices"]).astype(float)}))
    negative = -array_of(file, table["data"])
    with pytest.raises(ModelFileError, match="holds what is no count"):
        kb.Model.load(edited(file, arrays={table["data"]: negative}))


def test_a_triangle_that_is_singular_or_not_one_is_refused(file: Path) -> None:
    number = embedding_of(document_of(file))["basis"]["record"][1]["triangle"]["array"]
    triangle = array_of(file, number)
    singular, square = triangle.copy(), triangle.copy()
    singular[-1, -1] = 0.0
    square[-1, 0] = 1.0
    for wrong in (singular, square, triangle[:, :-1]):
        with pytest.raises(ModelFileError, match="triangle of its basis does not fit its points"):
            kb.Model.load(edited(file, arrays={number: wrong}))
    with pytest.raises(ModelFileError, match="whose triangle is not"):
        kb.Model.load(edited(file, arrays={number: triangle.astype(np.float32)}))


def test_truth_values_that_are_none_are_refused(file: Path) -> None:
    held = io.BytesIO()
    np.save(held, np.zeros(3, dtype=bool))
    content = held.getvalue()[:-1] + b"\x02"

    def claim(document: Any) -> None:
        document["arrays"][0].update(dtype="|b1", shape=[3])

    with pytest.raises(ModelFileError, match="truth values that are none"):
        kb.Model.load(edited(file, claim, {0: content}))


def test_values_a_kernel_cannot_take_are_refused(tmp_path: Path) -> None:
    CASES["directions"].fitted().save(tmp_path / "m.kbp")
    number = embedding_of(document_of(tmp_path / "m.kbp"))["examples"]["record"][1]["values"]["array"]
    longer = 2 * array_of(tmp_path / "m.kbp", number)
    with pytest.raises(ModelFileError, match="variable 'x': examples: expected unit vectors"):
        kb.Model.load(edited(tmp_path / "m.kbp", arrays={number: longer}))


def test_random_edits_of_the_text_are_refused_or_leave_a_sound_model(word_file: Path) -> None:
    """Anything in model.json replaced by anything: never another error, in loading, than the one promised."""
    rng = np.random.default_rng(3)
    junk = [
        None,
        True,
        -1,
        0,
        2,
        1e300,
        "",
        "x",
        [],
        {},
        {"array": 0},
        {"tuple": [1]},
        {"kernel": 0},
        [[]],
        {"a": 1},
    ]

    def places(node: Any) -> list[tuple[Any, Any]]:
        keys = (
            list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        )
        return [(node, key) for key in keys] + [place for key in keys for place in places(node[key])]

    refused = 0
    wanted: list[str] = []  # what is said when the list of kernels to be given was replaced
    for _ in range(200):

        def change(document: Any) -> None:
            found = places(document)
            node, key = found[rng.integers(len(found))]
            node[key] = copy.deepcopy(junk[rng.integers(len(junk))])

        try:
            loaded = kb.Model.load(edited(word_file, change))
        except ModelFileError:
            refused += 1
        except InputError as error:
            wanted.append(str(error))
        else:
            with contextlib.suppress(InputError):
                results(loaded, CASES["text"].graph)
    assert refused > 120 and all(text.startswith("kernels:") for text in wanted)


def test_a_relation_known_by_its_potential_is_not_stored(tmp_path):
    model = kb.Model(
        {"s": kb.kernels.Delta()},
        {"r": kb.Relation("s", "s", potential=np.eye(2) + 0.1)},
        landmarks={"s": ["a", "b"]},
    ).fit({})
    with pytest.raises(UnsupportedError, match=r"'r' is known by its potential.*with_relation"):
        model.save(tmp_path / "m.kbp")
