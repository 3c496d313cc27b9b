"""What "median" stands for in every kernel that takes it, and `tune` on a kernel of every family."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import InputError
from kernelbp.kernels import (
    ChiSquare,
    Delta,
    Gaussian,
    Geometric,
    Jaccard,
    Kernel,
    LocalAlignment,
    Mallows,
    Mismatch,
    RandomProjection,
    Record,
    Rotation,
    Spectrum,
    Sphere,
    Subsequence,
    Torus,
    WeisfeilerLehman,
    from_spec,
    resolve,
    to_spec,
)
from kernelbp.kernels.graphs import graph_as_tuple
from kernelbp.testing import check_kernel

RANDOM = np.random.default_rng(5)
WORDS = ["".join(RANDOM.choice(list("abc"), size=RANDOM.integers(6, 10))) for _ in range(40)]
GRAPHS = [graph_as_tuple(nx.gnp_random_graph(7, 0.4, seed=seed), label=None) for seed in range(30)]

RULES: list[tuple[Kernel, str, list[Any], list[Any]]] = [
    (Spectrum("median"), "k", list(range(1, 9)), WORDS),
    (Mismatch("median", 1), "k", list(range(2, 9)), WORDS),
    (Mismatch("median", 1, "abc"), "k", list(range(2, 9)), WORDS),
    (Subsequence(2, "median"), "decay", [tenth / 10 for tenth in range(1, 10)], WORDS),
    (LocalAlignment(beta="median"), "beta", [2.0 ** (power / 2) for power in range(-8, 7)], WORDS),
    (WeisfeilerLehman("median"), "iterations", list(range(7)), GRAPHS),
]


def typical(kernel: Kernel, values: list[Any]) -> float:
    return float(np.median(kernel(values)[np.triu_indices(len(values), 1)]))


@pytest.mark.parametrize(("kernel", "name", "ladder", "values"), RULES, ids=lambda part: repr(part)[:40])
def test_median_makes_a_typical_pair_as_nearly_one_over_e_alike_as_may_be(
    kernel: Kernel, name: str, ladder: list[Any], values: list[Any]
) -> None:
    resolved = resolve(kernel, values)
    chosen = getattr(resolved, name)
    assert type(chosen) is type(ladder[0]) and min(abs(chosen - rung) for rung in ladder) < 1e-12
    missed = [
        abs(typical(type(kernel)(**{**vars(kernel), name: rung}), values) - math.exp(-1)) for rung in ladder
    ]
    assert abs(typical(resolved, values) - math.exp(-1)) == pytest.approx(min(missed), abs=1e-9)
    # before it is resolved it takes the values of the call
    np.testing.assert_array_equal(kernel(values), resolved(values))
    assert kernel(values[:0], values).shape == (0, len(values)) and kernel(values[:0]).shape == (0, 0)
    check_kernel(kernel, values)
    assert from_spec(json.loads(json.dumps(to_spec(kernel)))) == kernel


@pytest.mark.parametrize(("kernel", "name", "ladder", "values"), RULES, ids=lambda part: repr(part)[:40])
def test_median_counts_how_often_a_value_occurred_and_looks_at_no_others(
    kernel: Kernel, name: str, ladder: list[Any], values: list[Any]
) -> None:
    counts = np.zeros(len(values), dtype=int)
    counts[:10] = 1
    assert resolve(kernel, values, counts) == resolve(kernel, values[:10])
    assert getattr(resolve(kernel, values[:1] * 3, [1, 1, 1]), name) in ladder
    with pytest.raises(InputError, match="at least one value to take a median of"):
        resolve(kernel, [])


@pytest.mark.parametrize("make", [Spectrum, Mismatch, lambda word: Subsequence(2, word), WeisfeilerLehman])
def test_another_word_is_refused(make: Callable[[str], Kernel]) -> None:
    with pytest.raises(InputError, match=r'or "median", got str \'mean\''):
        make("mean")


def test_median_reaches_a_model_and_the_parts_of_a_kernel() -> None:
    kernel = Record({"word": Spectrum("median") + LocalAlignment(beta="median"), "size": Gaussian()})
    records = [(word, float(len(word))) for word in WORDS]
    model = kb.Model({"x": kernel}, {"then": kb.Relation("x", "x")}).fit(
        {"then": (records[:-1], records[1:])}
    )
    chosen = model.settings_["variables"]["x"]["kernel"]
    assert chosen.fields["word"].left.k == resolve(Spectrum("median"), WORDS).k
    assert isinstance(chosen.fields["word"].right.beta, float)


def test_geometric_takes_the_median_too() -> None:
    pytest.importorskip("geometric_kernels.spaces")
    points = RANDOM.normal(size=(30, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    kernel = Geometric("Hypersphere(2)", "median", 2.5)
    resolved = resolve(kernel, points)
    assert abs(typical(resolved, points) - math.exp(-1)) < 0.15
    np.testing.assert_array_equal(kernel(points), resolved(points))


def documented() -> dict[str, tuple[str, str]]:
    """Parameters and rule of each kernel, from the table of docs/domains.md."""
    page = (Path(__file__).parents[1] / "docs" / "domains.md").read_text(encoding="utf-8")
    table = page.split("| kernel | parameters |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {name: (row[1], row[2]) for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def takes_median(kind: Any, name: str) -> bool:
    needed = {"space": "Circle()"} if kind is Geometric else {}
    try:
        kind(**(needed | {name: "median"}))
    except InputError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(set(documented()) - {"GraKeL", "Precomputed", "Record"}))
def test_the_table_of_parameters_is_true(name: str) -> None:
    kind, (parameters, rule) = getattr(kb.kernels, name), documented()[name]
    names = [field.name for field in fields(kind)]
    assert re.findall(r"`(\w+)`", parameters) == names
    # an attribute of nodes may be called anything, and an alphabet be made of any letters
    with_rule = [n for n in names if n not in ("label", "alphabet") and takes_median(kind, n)]
    assert with_rule == (re.findall(r"`(\w+)`:", rule) or (names[:1] if rule else []))


def test_every_kernel_is_in_the_table() -> None:
    kinds = {name for name in kb.kernels.__all__ if isinstance(getattr(kb.kernels, name), type)}
    combined = {"Kernel", "Power", "Product", "Scaled", "Sum"}
    assert set(documented()) == kinds - combined


# ---------------------------------------------------------------------- tune


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


ANGLES = np.random.default_rng(1).uniform(0, 2 * np.pi, size=120)
TEXT = ["".join(np.random.default_rng(seed).choice(list("ab"), size=8)) for seed in range(120)]
DRAWN = [nx.gnp_random_graph(6, 0.4, seed=seed) for seed in range(100)]
BASKETS = [
    frozenset(np.random.default_rng(seed).choice(6, size=3, replace=False).tolist()) for seed in range(120)
]
RANKED = np.array([np.random.default_rng(seed).permutation(4) for seed in range(120)])

FAMILIES: dict[str, tuple[Kernel, Any, Any, dict[str, list[Any]] | None, str]] = {
    "vectors": (Gaussian(), ANGLES, np.sign(np.sin(4 * ANGLES)), None, "bandwidth"),
    "strings": (Spectrum("median"), TEXT, ["aba" in text for text in TEXT], None, "k"),
    "strings with gaps": (Subsequence(3, "median"), TEXT, ["aba" in text for text in TEXT], None, "decay"),
    "sequences": (
        Spectrum(1),
        [[ord(letter) for letter in text] for text in TEXT],
        ["aba" in text for text in TEXT],
        {"k": [1, 3]},
        "k",
    ),
    "graphs": (
        WeisfeilerLehman("median", None),
        DRAWN,
        [sum(nx.triangles(graph).values()) > 0 for graph in DRAWN],
        None,
        "iterations",
    ),
    "circle": (Torus(), ANGLES, np.floor(ANGLES), None, "concentration"),
    "sphere": (Sphere(), np.c_[np.cos(ANGLES), np.sin(ANGLES)], np.floor(ANGLES), None, "concentration"),
    "rotations": (
        Rotation(),
        unit(np.c_[np.cos(ANGLES / 2), np.sin(ANGLES / 2), 0 * ANGLES, 0 * ANGLES]),
        np.floor(ANGLES),
        None,
        "concentration",
    ),
    "rankings": (Mallows(), RANKED, RANKED[:, 0], None, "scale"),
    "sets": (
        1.0 * Jaccard() + Delta(),
        BASKETS,
        [2 in basket for basket in BASKETS],
        {"left.factor": [0.1, 10.0]},
        "left.factor",
    ),
    "label sets": (
        RandomProjection(5),
        BASKETS,
        [2 in b for b in BASKETS],
        {"dimension": [1, 50]},
        "dimension",
    ),
    "histograms": (
        ChiSquare(),
        np.array([[text.count("a"), text.count("b")] for text in TEXT], dtype=float),
        [text.count("a") % 3 for text in TEXT],
        None,
        "concentration",
    ),
    "records": (
        Record({"word": Spectrum("median"), "angle": Torus(1.0)}),
        list(zip(TEXT, ANGLES.tolist(), strict=True)),
        ["aba" in text for text in TEXT],
        None,
        "fields.word.k",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_tune_finds_the_best_of_what_it_tries_in_every_family(family: str) -> None:
    kernel, X, Y, parameters, name = FAMILIES[family]
    found = kb.tune(kernel, X, Y, parameters=parameters, partner=Delta(), folds=3)
    assert set(found.parameters) == {name} and len(found.tried) > 1
    shares = {named[name]: share for named, share in found.tried}
    assert found.score == max(shares.values()) == shares[found.parameters[name]]
    assert found.score > 0.1
    holder: Any = found.kernel
    for part in name.split("."):
        holder = holder[part] if isinstance(holder, dict) else getattr(holder, part)
    assert holder == found.parameters[name] and not isinstance(holder, str)


def test_tune_reaches_the_parameters_of_a_kernel_of_grakel() -> None:
    grakel = pytest.importorskip("grakel")
    kernel = kb.kernels.GraKeL(grakel.WeisfeilerLehman(n_iter=1, normalize=True), label="degree")
    graphs = [graph.copy() for graph in DRAWN[:40]]
    for graph in graphs:
        nx.set_node_attributes(graph, dict(graph.degree), "degree")
    answers = [sum(nx.triangles(graph).values()) > 0 for graph in graphs]
    found = kb.tune(kernel, graphs, answers, parameters={"kernel.n_iter": [1, 3]}, partner=Delta(), folds=3)
    assert found.kernel.kernel.n_iter == found.parameters["kernel.n_iter"]  # type: ignore[attr-defined]
    assert kernel.kernel.n_iter == 1


def test_tune_tries_whole_numbers_about_a_whole_number_and_only_what_the_kernel_takes() -> None:
    found = kb.tune(Spectrum("median"), TEXT, ["aba" in text for text in TEXT], partner=Delta(), folds=3)
    middle = resolve(Spectrum("median"), TEXT).k  # type: ignore[attr-defined]
    assert [named["k"] for named, _ in found.tried] == [k for k in range(middle - 2, middle + 3) if k >= 1]
    gaps = kb.tune(Subsequence(3, "median"), TEXT, ["aba" in text for text in TEXT], partner=Delta(), folds=3)
    decays = [named["decay"] for named, _ in gaps.tried]
    assert len(decays) > 1 and min(decays) > 0 and max(decays) <= 1


def test_tune_finds_the_length_of_the_piece_that_matters() -> None:
    found = kb.tune(Spectrum(1), TEXT, ["aba" in t for t in TEXT], parameters={"k": [1, 3]}, partner=Delta())
    assert found.parameters == {"k": 3}
