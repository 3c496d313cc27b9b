"""Values stay what they are, from learning to reading, in the way the variable's kernel asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Turn

import kernelbp as kb
from kernelbp.errors import InputError
from kernelbp.kernels import (
    Delta,
    Gaussian,
    Jaccard,
    Kernel,
    PositiveDefinite,
    RandomProjection,
    Record,
    Rotation,
    Spectrum,
    Subsequence,
    WeisfeilerLehman,
)
from kernelbp.values import Kind, as_column, column_of

RANDOM = np.random.default_rng(3)
SYMBOLS = [(1, 2, 3), (2, 3, 4), (1, 2, 4)]
TURNS = Turn.random(5, random_state=0).as_matrix()
SPREADS = np.array([np.diag([1.0, 2.0]), np.eye(2), np.array([[3.0, 1.0], [1.0, 2.0]])])
CHAIN = kb.Graph.chain(4, variable="x", relation="then")


def fitted(kernel: Kernel, values: Any, **settings: Any) -> kb.Model:
    """A chain of values, each seen as it is; every pair of values occurs."""
    here, there = (index.ravel() for index in np.meshgrid(*[np.arange(len(values))] * 2))
    draw = values.__getitem__ if isinstance(values, np.ndarray) else lambda index: [values[i] for i in index]
    relations = {"then": kb.Relation("x", "x"), "seen as": kb.Relation("x", "y")}
    model = kb.Model({"x": kernel, "y": kernel}, relations, **settings)
    return model.fit({"then": (draw(here), draw(there)), "seen as": (draw(here), draw(here))})


# ---------------------------------------------------------------------- strings written in numbers


@pytest.mark.parametrize(
    "written",
    [
        SYMBOLS,
        [list(symbols) for symbols in SYMBOLS],
        np.array(SYMBOLS),
        np.array(SYMBOLS, dtype=np.uint8),
        [np.array(symbols) for symbols in SYMBOLS],
        np.array(SYMBOLS, dtype=float),
    ],
    ids=["tuples", "lists", "array", "bytes", "arrays", "floats"],
)
def test_sequences_of_whole_numbers_stay_so(written: Any, tmp_path: Path) -> None:
    model = fitted(Subsequence(2) + 2.0 * Spectrum(2) * Delta(), written)
    graph = CHAIN.fix([0], written[1:2]).observe("seen as", written[:1], nodes=[2])
    model.save(tmp_path / "m.kbp")
    for beliefs in (model.infer(graph), kb.Model.load(tmp_path / "m.kbp").infer(graph)):
        for values in (
            beliefs.mode(),
            beliefs.mode(candidates=written),
            beliefs.centre(),
            beliefs.centre(candidates=written),
            beliefs.atoms,
            beliefs["x"].support,
            beliefs.sample(2, seed=0).ravel(),
            model.support("x"),
        ):
            assert {type(value) for value in values} == {tuple}
            assert {type(symbol) for value in values for symbol in value} == {int}
            assert set(values) <= set(SYMBOLS)
        assert beliefs.mode()[0] == SYMBOLS[1] and beliefs.mode()[2] == SYMBOLS[0]
        np.testing.assert_allclose(
            beliefs.expected_distance(to=written[:1] * 4 if isinstance(written, list) else written[[0] * 4]),
            beliefs.expected_distance(to=SYMBOLS[:1] * 4),
        )


def test_sequences_of_one_length_and_of_several_are_one_variable() -> None:
    model = fitted(Spectrum(2), [*SYMBOLS, [7, 8]])
    assert model.infer(CHAIN.fix([0], [(7, 8)])).mode()[0] == (7, 8)
    assert model.infer(CHAIN.fix([0], [()])).mode()[0] == ()
    assert model.infer(CHAIN.fix([0], np.array([[1, 2, 3]]))).mode()[0] == (1, 2, 3)


def test_sequences_reach_calibration_landmarks_and_soft_evidence() -> None:
    model = fitted(Spectrum(2), SYMBOLS, landmarks={"x": np.array(SYMBOLS)})
    soft = CHAIN.soften([1], np.array(SYMBOLS), [0.0, 1.0, 0.0])
    assert model.infer(soft).mode()[1] == SYMBOLS[1]
    truth = [SYMBOLS[0], None, SYMBOLS[2], SYMBOLS[0]]
    here, there = SYMBOLS * 3, [symbols for symbols in SYMBOLS for _ in range(3)]
    pairs = {"then": (here, there), "seen as": (here, here)}
    again = kb.Model(model.variables, model.relations).fit(pairs, graphs=[(CHAIN, truth)])
    assert again.infer(soft).mode()[1] == SYMBOLS[1]


def test_what_is_not_observed_may_be_none_among_vectors_and_everywhere() -> None:
    model = fitted(Spectrum(2), SYMBOLS)
    some = model.infer(CHAIN.observe("seen as", [None, SYMBOLS[1], None, SYMBOLS[0]]))
    assert some.mode()[1] == SYMBOLS[1] and some.mode()[3] == SYMBOLS[0]
    nothing, none = model.infer(CHAIN), model.infer(CHAIN.observe("seen as", [None] * 4))
    np.testing.assert_array_equal(nothing.probabilities(), none.probabilities())
    vectors = fitted(Gaussian(1.0), np.array(SYMBOLS, dtype=float))
    listed = CHAIN.observe("seen as", [None, [2.0, 3.0, 4.0], None, None])
    rows = CHAIN.observe("seen as", np.array([[2.0, 3.0, 4.0]]), nodes=[1])
    np.testing.assert_array_equal(vectors.infer(listed).mode(), vectors.infer(rows).mode())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [1, 2, 3],
            "expected strings or sequences of whole numbers, got numbers; write a sequence of one as",
        ),
        ([[1.5, 2], [2, 3]], r"expected whole numbers below 2\*\*53, got \[1.5, 2.0\] at position 0"),
        ([[1, 2], [2**60, 3]], r"expected whole numbers below 2\*\*53, got .* at position 1"),
        ([["a", "b"], ["c", "d"]], r"expected strings, .* got list \['a', 'b'\] at position 0"),
        ([(1, 2), (True,)], r"expected strings, .* got tuple \(True,\) at position 1"),
        (["ab", (1, 2)], "one or the other throughout, got str 'ab' at position 0"),
        (np.zeros((3, 3, 3)), r"expected one axis \(n numbers\) or two \(n vectors\), got shape \(9, 3, 3\)"),
    ],
)
def test_what_is_no_sequence_is_refused_by_name(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"^pairs\['then'\]\[0\]: .*{message}"):
        fitted(Spectrum(2), values)


def test_text_and_numbers_do_not_mix_and_the_error_says_where() -> None:
    model = fitted(Spectrum(2), ["abc", "bcd", "abd"])
    with pytest.raises(
        InputError, match="fix: values of variable 'x': cannot be compared with training values"
    ):
        model.infer(CHAIN.fix([0], SYMBOLS[:1]))
    with pytest.raises(InputError, match="candidates of variable 'x': expected strings"):
        model.infer(CHAIN).mode(candidates=["abc", 3])
    with pytest.raises(InputError, match=r"pairs, variable 'x': .* one or the other throughout"):
        kb.Model(model.variables, model.relations).fit(
            {"then": (SYMBOLS, SYMBOLS), "seen as": (["abc", "bcd"], ["abc", "bcd"])}
        )


# ---------------------------------------------------------------------- sets


@pytest.mark.parametrize("kernel", [Jaccard(), RandomProjection(40)], ids=repr)
@pytest.mark.parametrize("write", [frozenset, set, list, tuple, np.array])
def test_sets_of_one_size_are_sets_and_not_indicators(kernel: Kernel, write: Any, tmp_path: Path) -> None:
    sets = [(0, 1), (1, 2), (3, 0)]
    written = [write(list(members)) for members in sets]
    model = fitted(kernel, written)
    model.save(tmp_path / "m.kbp")
    beliefs = kb.Model.load(tmp_path / "m.kbp").infer(CHAIN.fix([0], written[2:]))
    assert beliefs.mode()[0] == frozenset({0, 3})
    assert set(beliefs.atoms) == set(map(frozenset, sets))


def test_indicators_come_in_arrays_and_later_in_lists_too() -> None:
    rows = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]])
    model = fitted(Jaccard(), rows)
    as_array, as_list = (model.infer(CHAIN.fix([0], given)) for given in (rows[:1], rows[:1].tolist()))
    np.testing.assert_array_equal(as_array.mode(), as_list.mode())
    np.testing.assert_array_equal(as_array.mode(candidates=rows), as_array.mode(candidates=rows.tolist()))
    np.testing.assert_array_equal(as_array.centre(candidates=rows), as_array.centre(candidates=rows.tolist()))
    with pytest.raises(
        InputError, match="lists of 0 and 1 may be indicators or labels; give indicators as an"
    ):
        fitted(Jaccard(), rows.tolist())


# ---------------------------------------------------------------------- matrices


@pytest.mark.parametrize(
    ("kernel", "matrices"), [(Rotation(), TURNS), (PositiveDefinite(), SPREADS)], ids=["turns", "spreads"]
)
@pytest.mark.parametrize("write", [np.array, list, np.ndarray.tolist], ids=["array", "list", "nested"])
def test_matrices_are_given_and_come_back_as_matrices(
    kernel: Kernel, matrices: Any, write: Any, tmp_path: Path
) -> None:
    written, size = write(matrices), matrices.shape[1:]
    model = fitted(kernel, written)
    model.save(tmp_path / "m.kbp")
    rows = fitted(kernel, matrices.reshape(len(matrices), -1))
    flat = rows.infer(CHAIN.fix([0], matrices[:1].reshape(1, -1)))
    for beliefs in (m.infer(CHAIN.fix([0], written[:1])) for m in (model, kb.Model.load(tmp_path / "m.kbp"))):
        np.testing.assert_array_equal(beliefs.probabilities(), flat.probabilities())
        for values, expected in (
            (beliefs.mode(), flat.mode()),
            (beliefs.mode(candidates=written), flat.mode()),
            (beliefs.centre(), flat.centre()),
            (beliefs.centre(candidates=written), flat.centre(candidates=flat.atoms)),
            (beliefs.atoms, flat.atoms),
        ):
            assert values.shape == (len(expected), *size)
            np.testing.assert_array_equal(values.reshape(len(values), -1), expected)
        assert beliefs.sample(3, seed=0).shape == (4, 3, *size)
        np.testing.assert_array_equal(beliefs.expected_distance(to=beliefs.mode()), flat.expected_distance())
    assert model.support("x").shape[1:] == size
    # rows of their entries do as well for the same variable
    mixed = model.infer(CHAIN.fix([0], matrices[:1].reshape(1, -1)))
    np.testing.assert_array_equal(mixed.probabilities(), flat.probabilities())


def test_matrices_that_were_not_observed_are_nan() -> None:
    model = fitted(Rotation(), TURNS)
    read = TURNS[:4].copy()
    read[1:] = np.nan
    only = model.infer(CHAIN.observe("seen as", TURNS[:1], nodes=[0]))
    np.testing.assert_array_equal(model.infer(CHAIN.observe("seen as", read)).mode(), only.mode())


def test_matrices_for_a_kernel_on_vectors_are_refused_with_their_shape() -> None:
    expected = r"expected one axis \(n numbers\) or two \(n vectors\), got shape \(25, 3, 3\)"
    with pytest.raises(InputError, match=rf"^pairs\['then'\]\[0\]: {expected}"):
        fitted(Gaussian(), TURNS)
    model = fitted(Gaussian(), TURNS.reshape(5, 9))
    with pytest.raises(InputError, match=r"observe: values of variable 'y': .* got shape \(4, 3, 3\)"):
        model.infer(CHAIN.observe("seen as", TURNS[:4]))


# ---------------------------------------------------------------------- columns


def test_a_kernel_of_ones_own_says_how_its_values_are_held() -> None:
    class Letters:
        takes = "sequences"

        def __call__(self, X: Any, Y: Any = None) -> Any:
            Y = X if Y is None else Y
            return np.array([[float(len({*x} & {*y})) for y in Y] for x in X]).reshape(len(X), len(Y))

        def diag(self, X: Any) -> Any:
            return np.array([float(len({*x})) for x in X])

    assert fitted(Letters(), SYMBOLS).infer(CHAIN.fix([0], SYMBOLS[:1])).mode()[0] == SYMBOLS[0]


@pytest.mark.parametrize(
    ("kernel", "given", "kind"),
    [
        (Gaussian(), [(1, 2), (3, 4)], Kind("vector", 2)),
        (Delta() + Gaussian(), [(1, 2), (3, 4)], Kind("vector", 2)),
        (Spectrum(), [(1, 2), (3, 4)], Kind("object", 0)),
        (Delta() * Spectrum(), [(1, 2), (3, 4)], Kind("object", 0)),
        (Jaccard(), np.eye(2), Kind("vector", 2)),
        (Rotation(), np.eye(3)[None], Kind("vector", 9, shape=(3, 3))),
        (2.0 * Rotation(), [np.eye(3)], Kind("vector", 9, shape=(3, 3))),
        (Rotation(), np.eye(4)[:2], Kind("vector", 4)),
    ],
)
def test_the_kernel_decides_the_form(kernel: Kernel, given: Any, kind: Kind) -> None:
    assert column_of(kernel, given, "x")[1] == kind


def test_fields_of_records_are_read_as_their_kernels_ask() -> None:
    kernel = Record({"code": Spectrum(2), "tags": Jaccard()})
    records = [((1, 2, 3), (0, 1)), ((1, 2, 3), (1, 0)), ((1, 2, 4), (5, 6))]
    expected = Spectrum(2)([code for code, _ in records]) * Jaccard()(
        [frozenset(tags) for _, tags in records]
    )
    np.testing.assert_array_equal(kernel(records), expected)
    assert fitted(kernel, records).infer(CHAIN.fix([0], records[:1])).mode()[0] == records[0]


@pytest.mark.parametrize("given", [nx.path_graph(3), {"a", "b"}, frozenset({1})])
def test_one_value_in_place_of_a_sequence_is_refused(given: Any) -> None:
    with pytest.raises(
        InputError, match=f"x: expected an array or a sequence of values, got {type(given).__name__}"
    ):
        as_column(given, "x")


def test_graphs_pass_through_learning_and_reading() -> None:
    graphs = [nx.path_graph(3), nx.cycle_graph(3), nx.star_graph(3)]
    beliefs = fitted(WeisfeilerLehman(2, label=None), graphs).infer(CHAIN.fix([0], graphs[1:2]))
    assert beliefs.mode()[0] is graphs[1] and beliefs.centre()[0] is graphs[1]
    assert all(value in graphs for value in beliefs.mode(candidates=graphs))
