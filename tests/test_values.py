"""Columns of values: what goes in comes back out, and what cannot be a column is refused in words."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels import Gaussian
from kernelbp.values import Kind, as_column, column_of, distinct, missing_rows

NAN = float("nan")


@pytest.mark.parametrize(
    ("given_values", "shape", "kind"),
    [
        ([1, 2, 3], (3, 1), Kind("scalar", 1, True)),
        ([1.0, 2, 3], (3, 1), Kind("scalar", 1)),
        ((True, False), (2, 1), Kind("scalar", 1, True)),
        (range(4), (4, 1), Kind("scalar", 1, True)),
        ([np.True_, np.False_], (2, 1), Kind("scalar", 1, True)),
        ([np.array(1.5), np.array(2.5)], (2, 1), Kind("scalar", 1)),
        ([[np.array(1.5)], [np.array(2.5)]], (2, 1), Kind("vector", 1)),
        (np.arange(3, dtype=np.uint8), (3, 1), Kind("scalar", 1, True)),
        (np.arange(3, dtype=np.float32), (3, 1), Kind("scalar", 1)),
        ([], (0, 1), Kind("scalar", 1)),
        ([[1, 2], [3, 4], [5, 6]], (3, 2), Kind("vector", 2)),
        ([(1.5, 2.5)], (1, 2), Kind("vector", 2)),
        ([np.ones(3), np.zeros(3)], (2, 3), Kind("vector", 3)),
        (np.ones((4, 1)), (4, 1), Kind("vector", 1)),
        (np.empty((0, 5)), (0, 5), Kind("vector", 5)),
        (["ab", "c"], (2,), Kind("object", 0)),
        (np.array(["ab", "c"]), (2,), Kind("object", 0)),
        ([frozenset({1}), frozenset()], (2,), Kind("object", 0)),
        ([(1, 2), (3,)], (2,), Kind("object", 0)),
        ([np.ones((2, 2)), np.ones((2, 2))], (2,), Kind("object", 0)),
        ([("a", 1), ("b", 2)], (2,), Kind("object", 0)),
        (np.array([1, "a"], dtype=object), (2,), Kind("object", 0)),
    ],
)
def test_values_become_float_rows_or_objects(given_values: Any, shape: tuple[int, ...], kind: Kind) -> None:
    column, found = as_column(given_values, "ages")
    assert column.shape == shape
    assert found == kind
    assert column.dtype == (object if kind.form == "object" else np.float64)


def test_objects_come_through_unchanged() -> None:
    things = ["a", frozenset({1, 2}), ("x", 3), (1, 2)]
    column, _ = as_column(things, "things")
    assert all(held is thing for held, thing in zip(column, things, strict=True))


scalars = st.one_of(
    arrays(np.float64, st.integers(0, 20), elements=st.floats(allow_nan=False, allow_infinity=False)),
    arrays(np.int64, st.integers(0, 20), elements=st.integers(-(2**53), 2**53)),
)


@given(scalars)
def test_numbers_come_back_as_they_were_written(values: NDArray[Any]) -> None:
    for form in (values, values.tolist()):
        column, kind = as_column(form, "x")
        back = kind.restore(column)
        np.testing.assert_array_equal(back, values)
        assert back.dtype == values.dtype or len(values) == 0


@given(arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=st.floats(-9, 9)))
def test_vectors_come_back_as_they_were_written(values: NDArray[Any]) -> None:
    for form in (values, values.tolist()):
        column, kind = as_column(form, "x")
        np.testing.assert_array_equal(kind.restore(column), values)


def test_a_leading_axis_of_nodes_stays_when_numbers_lose_their_second() -> None:
    assert Kind("scalar", 1).restore(np.zeros((2, 5, 1))).shape == (2, 5)
    assert Kind("vector", 3).restore(np.zeros((2, 5, 3))).shape == (2, 5, 3)
    assert Kind("object", 0).restore(np.array(["a"], dtype=object)).tolist() == ["a"]


def test_the_column_does_not_alter_what_was_given() -> None:
    words = np.array(["a", "b"], dtype=object)
    as_column(words, "x")[0][0] = "z"
    assert words.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("given_values", "text"),
    [
        ("abc", "x: expected an array or a sequence of values, got str"),
        (b"abc", "x: expected an array or a sequence of values, got bytes"),
        ({1: 2}, "x: expected an array or a sequence of values, got dict"),
        (5, "x: expected an array or a sequence of values, got int"),
        ((i for i in range(3)), "x: expected an array or a sequence of values, got generator"),
        (np.array(5.0), "x: expected one axis (n numbers) or two (n vectors), got shape ()"),
        (
            np.zeros((2, 2, 2, 2)),
            "x: expected one axis (n numbers) or two (n vectors), got shape (2, 2, 2, 2)",
        ),
        (np.zeros((2, 0)), "x: vectors have no entries, shape (2, 0)"),
        (
            np.array([1j]),
            "x: complex numbers are not supported; give real and imaginary parts as a vector",
        ),
        (
            np.array([["a", "b"]]),
            "x: objects must come as a one-dimensional array, got shape (1, 2)",
        ),
        (
            [1.0, NAN, 3.0],
            "x: value 1 is NaN or infinite (nan); remove missing examples before learning",
        ),
        (
            np.array([1.0, np.inf]),
            "x: value 1 is NaN or infinite (inf); remove missing examples before learning",
        ),
        (
            np.array([[1.0, 2.0], [NAN, 1.0]]),
            "x: value 1 is NaN or infinite ([nan  1.]); remove missing examples before learning",
        ),
        (["a", None], "x: value 1 is missing (None); remove missing examples before learning"),
        (["a", "b", NAN], "x: value 2 is missing (nan); remove missing examples before learning"),
    ],
)
def test_what_is_no_column_is_refused(given_values: Any, text: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        as_column(given_values, "x")


@pytest.mark.parametrize(
    ("given_values", "text"),
    [
        (np.zeros((2, 2, 2)), "x: expected one axis (n numbers) or two (n vectors), got shape (2, 2, 2)"),
        ([[], []], "x: vectors have no entries, shape (2, 0)"),
    ],
)
def test_what_only_some_kernels_take_is_refused_for_the_others(given_values: Any, text: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        column_of(Gaussian(), given_values, "x")


def test_missing_values_pass_where_allowed_but_infinity_never() -> None:
    assert np.isnan(as_column([1.0, NAN], "x", allow_missing=True)[0]).tolist() == [[False], [True]]
    assert as_column(["a", None], "x", allow_missing=True)[0].tolist() == ["a", None]
    text = "^x: value 1 is infinite; give NaN for 'not observed'$"
    with pytest.raises(InputError, match=text):
        as_column([NAN, -np.inf], "x", allow_missing=True)


def test_missing_rows_are_nan_or_none() -> None:
    assert missing_rows(np.array([[1.0], [NAN]]), "x").tolist() == [False, True]
    assert missing_rows(np.array([[1.0, 2.0], [NAN, NAN]]), "x").tolist() == [False, True]
    assert missing_rows(np.array(["a", None, NAN, 0], dtype=object), "x").tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert missing_rows(np.empty((0, 1)), "x").tolist() == []


def test_a_vector_missing_in_part_is_refused() -> None:
    text = "x: vector 1 has some entries missing; give NaN in all of them (not observed) or in none"
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        missing_rows(np.array([[1.0, 2.0], [NAN, 1.0], [NAN, NAN]]), "x")


columns = st.one_of(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 25), st.integers(1, 2)),
        elements=st.sampled_from([-1.0, -0.0, 0.0, 0.5]),
    ),
    st.lists(st.sampled_from(["a", "b", ("c", 1), frozenset({2}), 3]), min_size=1, max_size=25).map(
        lambda listed: as_column([*listed, "end"], "x")[0]
    ),
)


@given(columns)
def test_distinct_names_each_value_once_and_puts_every_value_in_its_class(column: NDArray[Any]) -> None:
    first, classes = distinct(column)
    kept = [tuple(np.atleast_1d(v)) if column.dtype != object else v for v in column[first]]
    assert len(set(kept)) == len(kept)
    assert (column[first][classes] == column).all()
    for number, position in enumerate(first):
        assert position == np.flatnonzero(classes == number)[0]


@given(columns, st.randoms(use_true_random=False))
def test_distinct_numbers_do_not_depend_on_their_order(column: NDArray[Any], random: Any) -> None:
    order = list(range(len(column)))
    random.shuffle(order)
    before, after = column[distinct(column)[0]], column[order][distinct(column[order])[0]]
    if column.dtype == object:
        assert set(before) == set(after)
    else:
        np.testing.assert_array_equal(before, after)


def test_objects_come_out_in_order_of_appearance() -> None:
    first, classes = distinct(as_column(["b", "a", "b", "c"], "x")[0])
    assert first.tolist() == [0, 1, 3]
    assert classes.tolist() == [0, 1, 0, 2]


def test_objects_that_cannot_be_hashed_stay_apart() -> None:
    first, classes = distinct(as_column([{1}, {1}, "a", "a"], "x")[0])
    assert first.tolist() == [0, 1, 2]
    assert classes.tolist() == [0, 1, 2, 2]


def test_kinds_of_one_variable_merge_and_whole_numbers_need_both_sides() -> None:
    whole, real = Kind("scalar", 1, True), Kind("scalar", 1)
    assert whole.merged(whole, "x") == whole
    assert whole.merged(real, "x") == real.merged(whole, "x") == real


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (Kind("scalar", 1), Kind("object", 0), "got numbers and objects"),
        (Kind("vector", 2), Kind("vector", 3), "got vectors of length 2 and vectors of length 3"),
        (Kind("vector", 1), Kind("scalar", 1), "got vectors of length 1 and numbers"),
    ],
)
def test_kinds_that_cannot_be_mixed_are_refused(one: Kind, other: Kind, text: str) -> None:
    with pytest.raises(InputError, match=f"^x: values of one variable must be of one kind, {text}$"):
        one.merged(other, "x")
