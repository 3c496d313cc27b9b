"""Kernels on strings, judged by enumeration, by strkernels where it is installed, and at work on a chain of words."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelbp as kb
from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import Delta, check_values, domain, from_spec, resolve, specification, to_spec
from kernelbp.kernels.strings import LocalAlignment, Mismatch, Spectrum, StringKernel, Subsequence
from kernelbp.testing import check_kernel

RANDOM = np.random.default_rng(0)
WORDS = [
    "",
    "a",
    "b",
    "a",
    "ab",
    "banana",
    "bananas",
    "ban",
    "日本語",
    "日本",
    "é",
    "\ud800x",
    "aaaaaaaaaa",
    "banana",
]
SEQUENCES: list[Any] = [(), (3,), (3, 1, 4, 1, 5), [3, 1, 4], np.array([1, 4, 1]), range(5), (-7, 2**40, 3)]
EQUALLY_LONG = RANDOM.integers(0, 3, size=(20, 6))
DNA = ["".join(RANDOM.choice(list("ACGT"), size=length)) for length in RANDOM.integers(0, 40, size=50)]

KERNELS: list[StringKernel] = [
    Spectrum(1),
    Spectrum(),
    Mismatch(),
    Mismatch(4, 2),
    Subsequence(),
    Subsequence(2, 1.0),
    Subsequence(4, 0.3, shorter=True),
    LocalAlignment(),
    LocalAlignment(beta=0.3, mismatch=0.5, gap_open=0.0, gap_extend=0.0),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)

words = st.text(alphabet="abc", max_size=7)


def normalised(raw: Any, x: Any, y: Any) -> float:
    """k(x, y) / sqrt(k(x, x) k(y, y)); like itself only, where there is nothing to compare."""
    sizes = raw(x, x), raw(y, y)
    return raw(x, y) / math.sqrt(sizes[0] * sizes[1]) if all(sizes) else float(x == y)


# what all share


@every_kernel
@pytest.mark.parametrize(
    "values", [WORDS, np.array(WORDS[:9]), SEQUENCES, EQUALLY_LONG, EQUALLY_LONG.astype(float), DNA]
)
def test_keeps_the_contract_and_is_one_on_the_diagonal(kernel: StringKernel, values: Any) -> None:
    check_kernel(kernel, values)
    assert (kernel.diag(values) == 1.0).all()
    np.testing.assert_allclose(kernel(values, values).diagonal(), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mismatches", [0, 1, 2])
def test_mismatches_within_an_alphabet_keep_the_contract(mismatches: int) -> None:
    check_kernel(Mismatch(3, mismatches, "ACGT"), DNA)
    check_kernel(Mismatch(3, mismatches, range(3)), EQUALLY_LONG)
    check_kernel(Mismatch(4, mismatches, (0, 1)), np.minimum(EQUALLY_LONG, 1))


@every_kernel
def test_equal_strings_are_alike_and_others_less(kernel: StringKernel) -> None:
    block = kernel(WORDS)
    same = Delta()(WORDS) == 1.0
    np.testing.assert_allclose(block[same], 1.0, rtol=0, atol=1e-12)
    assert (block >= 0).all() and (block[~same] <= 1.0).all()
    banana, bananas, japanese = 5, 6, 8
    assert block[banana, bananas] > block[banana, japanese]


@every_kernel
def test_a_pair_does_not_depend_on_its_company(kernel: StringKernel) -> None:
    left, right = DNA[:9], DNA[5:23]
    alone = np.array([[kernel([x], [y])[0, 0] for y in right] for x in left])
    np.testing.assert_allclose(kernel(left, right), alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(kernel(DNA)[:9, 5:23], alone, rtol=0, atol=1e-12)


@every_kernel
def test_symbols_have_no_meaning_but_equality(kernel: StringKernel) -> None:
    renamed = [text.translate(str.maketrans("ACGT", "\U0001f9ecß\x00Z")) for text in DNA]
    codes = [tuple(-(10**9) * "ACGT".index(letter) for letter in text) for text in DNA]
    np.testing.assert_allclose(kernel(renamed), kernel(DNA), rtol=0, atol=1e-12)
    np.testing.assert_allclose(kernel(codes), kernel(DNA), rtol=0, atol=1e-12)
    backwards = [text[::-1] for text in DNA]
    np.testing.assert_allclose(kernel(backwards), kernel(DNA), rtol=0, atol=1e-12)


@every_kernel
def test_bytes_and_rows_of_numbers_are_sequences(kernel: StringKernel) -> None:
    rows = EQUALLY_LONG.tolist()
    expected = kernel(EQUALLY_LONG)
    for written in (
        rows,
        [bytes(row) for row in rows],
        EQUALLY_LONG.astype(np.float32),
        EQUALLY_LONG.astype("u1"),
    ):
        np.testing.assert_array_equal(kernel(written), expected)


@every_kernel
def test_belongs_to_no_special_domain_and_needs_no_data(kernel: StringKernel) -> None:
    assert domain(kernel) == "other"
    assert resolve(kernel, WORDS) is kernel
    assert check_values(kernel, WORDS, "words") is WORDS


# against enumeration


def shared_pieces(k: int) -> Any:
    def raw(x: str, y: str) -> float:
        left, right = (Counter(text[i : i + k] for i in range(len(text) - k + 1)) for text in (x, y))
        return sum(count * right[piece] for piece, count in left.items())

    return raw


@given(words, words, st.integers(1, 4))
def test_spectrum_equals_enumeration(x: str, y: str, k: int) -> None:
    expected = normalised(shared_pieces(k), x, y)
    assert Spectrum(k)([x], [y])[0, 0] == pytest.approx(expected, abs=1e-12)


def test_long_pieces_of_many_symbols_are_told_apart() -> None:
    # 40 symbols out of hundreds do not fit a single integer; 6 of 21 pieces miss the place that differs
    base = RANDOM.integers(0, 500, size=60)
    other = base.copy()
    other[45] = 500
    assert Spectrum(40)([base], [other])[0, 0] == pytest.approx(6 / 21)


def shared_neighbours(k: int, mismatches: int, alphabet: str) -> Any:
    neighbours = ["".join(piece) for piece in itertools.product(alphabet, repeat=k)]

    def counts(text: str) -> Any:
        pieces = [text[i : i + k] for i in range(len(text) - k + 1)]
        return np.array(
            [
                sum(sum(a != b for a, b in zip(p, z, strict=True)) <= mismatches for p in pieces)
                for z in neighbours
            ]
        )

    return lambda x, y: float(counts(x) @ counts(y))


@pytest.mark.parametrize("alphabet", ["abc", "abcde"])
@pytest.mark.parametrize(("k", "mismatches"), [(1, 0), (2, 1), (3, 1), (3, 2), (4, 2)])
def test_mismatch_equals_enumeration_of_neighbours(k: int, mismatches: int, alphabet: str) -> None:
    texts = ["abcabca", "abc", "acbbab", "cccc", "b", ""]
    raw = shared_neighbours(k, mismatches, alphabet)
    expected = [[normalised(raw, x, y) for y in texts] for x in texts]
    np.testing.assert_allclose(Mismatch(k, mismatches, alphabet)(texts), expected, rtol=0, atol=1e-12)


def wiped(k: int, mismatches: int) -> Any:
    def counts(text: str) -> Counter[Any]:
        pieces = [text[i : i + k] for i in range(len(text) - k + 1)]
        return Counter(
            tuple((place, piece[place]) for place in places)
            for piece in pieces
            for places in itertools.combinations(range(k), k - mismatches)
        )

    return lambda x, y: sum(count * counts(y)[piece] for piece, count in counts(x).items())


@given(words, words, st.integers(1, 4), st.integers(0, 3))
@settings(deadline=None)
def test_mismatch_without_alphabet_wipes_out_places(x: str, y: str, k: int, mismatches: int) -> None:
    if mismatches < k:
        expected = normalised(wiped(k, mismatches), x, y)
        assert Mismatch(k, mismatches)([x], [y])[0, 0] == pytest.approx(expected, abs=1e-12)


def test_mismatch_without_alphabet_is_the_limit_of_large_ones() -> None:
    codes = EQUALLY_LONG[:6]
    limit = Mismatch(4, 2)(codes)
    errors = [np.abs(Mismatch(4, 2, range(size))(codes) - limit).max() for size in (10, 100, 1000)]
    assert errors[1] < 0.2 * errors[0] and errors[2] < 0.2 * errors[1] < 0.02


def test_no_mismatches_are_the_spectrum() -> None:
    np.testing.assert_allclose(Mismatch(3, 0)(DNA), Spectrum(3)(DNA), rtol=0, atol=1e-12)
    np.testing.assert_allclose(Mismatch(3, 0, "ACGT")(DNA), Spectrum(3)(DNA), rtol=0, atol=1e-12)


def shared_subsequences(length: int, decay: float, shorter: bool) -> Any:
    def features(text: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for size in range(1 if shorter else length, length + 1):
            for places in itertools.combinations(range(len(text)), size):
                piece = "".join(text[place] for place in places)
                found[piece] = found.get(piece, 0.0) + decay ** (places[-1] - places[0] + 1)
        return found

    def raw(x: str, y: str) -> float:
        other = features(y)
        return sum(value * other.get(piece, 0.0) for piece, value in features(x).items())

    return raw


@given(words, words, st.integers(1, 4), st.sampled_from([0.1, 0.5, 0.9, 1.0]), st.booleans())
@settings(deadline=None)
def test_subsequence_equals_enumeration(x: str, y: str, length: int, decay: float, shorter: bool) -> None:
    expected = normalised(shared_subsequences(length, decay, shorter), x, y)
    assert Subsequence(length, decay, shorter)([x], [y])[0, 0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("length", "decay"), [(1, 0.5), (2, 0.7), (3, 0.5), (5, 0.9)])
def test_subsequence_equals_strkernels(length: int, decay: float) -> None:
    strkernels = pytest.importorskip("strkernels")
    texts = [text for text in DNA if len(text) >= length]

    def theirs(most: int, normalizer: str | None) -> Any:
        kernel = strkernels.SubsequenceStringKernel(normalizer=normalizer, maxlen=most, ssk_lambda=decay)
        return kernel(texts, texts)

    np.testing.assert_allclose(
        Subsequence(length, decay, shorter=True)(texts), theirs(length, "sqrt_diagonal"), rtol=0, atol=1e-12
    )
    # theirs adds up all lengths; what the last one adds is the kernel of that length alone
    raw = theirs(length, None) - (theirs(length - 1, None) if length > 1 else 0.0)
    sizes = np.sqrt(raw.diagonal())
    np.testing.assert_allclose(
        Subsequence(length, decay)(texts), raw / sizes / sizes[:, None], rtol=0, atol=1e-9
    )


def all_alignments(kernel: LocalAlignment) -> Any:
    def gap(skipped: int) -> float:
        return kernel.gap_open + (skipped - 1) * kernel.gap_extend if skipped else 0.0

    def raw(x: str, y: str) -> float:
        total = 1.0
        for size in range(1, min(len(x), len(y)) + 1):
            for left in itertools.combinations(range(len(x)), size):
                for right in itertools.combinations(range(len(y)), size):
                    score = sum(
                        kernel.match if x[i] == y[j] else kernel.mismatch
                        for i, j in zip(left, right, strict=True)
                    )
                    for places in (left, right):
                        score -= sum(gap(b - a - 1) for a, b in itertools.pairwise(places))
                    total += math.exp(kernel.beta * score)
        return total

    return raw


@given(
    st.text("ab", max_size=5),
    st.text("abc", max_size=5),
    st.sampled_from([0.2, 1.0, 3.0]),
    st.sampled_from([0.0, 1.5]),
)
@settings(deadline=None, max_examples=50)
def test_local_alignment_equals_enumeration(x: str, y: str, beta: float, gap_open: float) -> None:
    kernel = LocalAlignment(mismatch=-0.5, gap_open=gap_open, gap_extend=0.7, beta=beta)
    assert kernel([x], [y])[0, 0] == pytest.approx(normalised(all_alignments(kernel), x, y), abs=1e-12)


def decimal_alignment(x: str, y: str, kernel: LocalAlignment) -> Decimal:
    """Sums over alignments without limits on size: every cell adds up all cells it may continue."""
    same, other, opened, extended = (
        Decimal(kernel.beta * score).exp()
        for score in (kernel.match, kernel.mismatch, -kernel.gap_open, -kernel.gap_extend)
    )
    zero = Decimal(0)
    ended = [[zero] * (len(y) + 1) for _ in range(len(x) + 1)]
    down = [[zero] * (len(y) + 1) for _ in range(len(x) + 1)]
    across = [[zero] * (len(y) + 1) for _ in range(len(x) + 1)]
    total = Decimal(1)
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            before = 1 + ended[i - 1][j - 1] + down[i - 1][j - 1] + across[i - 1][j - 1]
            ended[i][j] = (same if x[i - 1] == y[j - 1] else other) * before
            down[i][j] = opened * ended[i - 1][j] + extended * down[i - 1][j]
            across[i][j] = opened * (ended[i][j - 1] + down[i][j - 1]) + extended * across[i][j - 1]
            total += ended[i][j]
    return total


def test_alignments_beyond_the_range_of_floats() -> None:
    kernel = LocalAlignment(beta=20.0)
    x = "".join(RANDOM.choice(list("ab"), size=80))
    y = x[:30] + "b" + x[31:]
    sizes = [decimal_alignment(a, b, kernel) for a, b in ((x, y), (x, x), (y, y))]
    assert sizes[1] > Decimal(10) ** 600
    expected = float(sizes[0] / (sizes[1] * sizes[2]).sqrt())
    np.testing.assert_allclose(kernel([x], [y])[0, 0], expected, rtol=1e-9)


# long strings


@pytest.mark.parametrize("kernel", [Spectrum(), Mismatch(), Subsequence(), LocalAlignment()], ids=repr)
def test_long_strings_have_their_place(kernel: StringKernel) -> None:
    long = "".join(RANDOM.choice(list("ACGT"), size=1500))
    values = ["", "A", long, long[:700] + "T" + long[701:], long[::-1], "A" * 1500]
    block = kernel(values)
    assert np.isfinite(block).all() and np.linalg.eigvalsh(block).min() > -1e-9
    assert block[2, 3] > block[2, 4] and block[2, 3] > 0.1
    assert (block[0, 2:] < 1e-2).all()


def test_many_subsequences_neither_over_nor_underflow() -> None:
    # a run of 520 has C(520, 260) = 1e155 subsequences of 260 symbols, too many to be squared
    run = ["a" * 520, "a" * 520]
    assert Subsequence(260, 1.0)(run[:1], run[1:])[0, 0] == pytest.approx(1.0)
    rare = np.arange(150)[None]
    assert Subsequence(100, 0.001)(rare, rare)[0, 0] == pytest.approx(1.0)
    with pytest.raises(UnsupportedError, match=r"\(520 symbols\) takes it beyond the range of float64"):
        Subsequence(260, 1.0, shorter=True)(run[:1], run[1:])


# words of complaint


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Spectrum(0), 'k: expected an integer of at least 1 or "median", got int 0'),
        (lambda: Mismatch(2, 2), "mismatches: expected an integer from 0 to k - 1 = 1, got 2"),
        (
            lambda: Mismatch(2, 1, "a"),
            "alphabet: expected a string or a sequence of whole numbers, two different",
        ),
        (lambda: Mismatch(2, 1, "aba"), "each once, got str 'aba'"),
        (lambda: Mismatch(2, 1, 4), "alphabet: expected .* got int 4"),  # type: ignore[arg-type]
        (lambda: Subsequence(0), "length: expected an integer of at least 1"),
        (lambda: Subsequence(3, 1.5), "decay: expected a number above 0 and at most 1, got float 1.5"),
        (lambda: Subsequence(3, 0.0), "decay: expected a positive finite number"),
        (lambda: Subsequence(3, 0.5, 2), "shorter: expected True or False, got int 2"),  # type: ignore[arg-type]
        (lambda: LocalAlignment(match=-2.0), "mismatch: expected a score of at most match = -2, got -1"),
        (lambda: LocalAlignment(match=math.nan), "match: expected a finite number"),
        (lambda: LocalAlignment(gap_open=-1.0), "gap_open: expected a finite number of at least 0"),
        (lambda: LocalAlignment(beta=200.0), r"beta: expected beta \* match of at most 100, got 200"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ("abc", "X: expected strings, or sequences of whole numbers .* got str 'abc'"),
        (7, "X: expected strings, .* got int 7"),
        (["a", 7], "X: expected strings, .*throughout, got str 'a' at position 0"),
        ([(1, 2), "a"], "throughout, got str 'a' at position 1"),
        ([(1, 2), (0.5,)], r"got tuple \(0.5,\) at position 1"),
        ([(1,), ("a", "b")], r"got tuple \('a', 'b'\) at position 1"),
        ([(1,), ((1, 2), (3,))], "at position 1"),
        ([(1,), (2**70,)], "at position 1"),
        ([(1,), None], "got NoneType None at position 1"),
        (np.array([1, 2]), r"got an array of shape \(2,\)"),
        (np.array([[1.0, 0.5]]), "entries that are not whole"),
        (np.array([[1.0, math.nan]]), "entries that are not whole"),
    ],
)
def test_what_is_not_a_string_is_refused(values: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Spectrum()(values)
    with pytest.raises(InputError, match=text.removeprefix("X: ")):
        check_values(LocalAlignment(), values, "words")


def test_text_is_not_compared_with_numbers() -> None:
    with pytest.raises(InputError, match="Y: expected text or numbers as in X"):
        Spectrum()(["abc"], [(97, 98, 99)])


def test_symbols_outside_the_alphabet_are_refused() -> None:
    with pytest.raises(
        InputError, match="words: expected symbols of the alphabet str 'ACGT', got 'N' at position 1"
    ):
        Mismatch(3, 1, "ACGT").check_values(["ACG", "ANG"], "words")
    with pytest.raises(InputError, match="X: expected text, as the alphabet of"):
        Mismatch(3, 1, "ACGT")([(1, 2, 3)])
    with pytest.raises(InputError, match=r"got 7 at position 0"):
        Mismatch(3, 1, (1, 2, 3))([(1, 2, 7)])


# in a model

LETTERS = "abcdef"
"""Few, so that words lie close together and a typo often makes one look like another."""
ADVANTAGE = 0.05
"""Share of words by which belief propagation must win; over the first six seeds it did by 0.067 to 0.187."""


def edited(word: str, random: np.random.Generator) -> str:
    """A letter replaced, put in or (of words of five and more) left out."""
    letter, kind = LETTERS[random.integers(len(LETTERS))], random.integers(3)
    place = int(random.integers(len(word) + (kind == 1)))
    if kind == 1:
        return word[:place] + letter + word[place:]
    return word[:place] + (letter if kind == 0 or len(word) < 5 else "") + word[place + 1 :]


def edit_distance(x: str, y: str) -> int:
    row = list(range(len(y) + 1))
    for i, a in enumerate(x, 1):
        corner, row[0] = row[0], i
        for j, b in enumerate(y, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (a != b))
    return row[-1]


class WordWalk:
    """Thirty words, each an edit away from another; a walk between such, and two typos in every word of it."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.words = ["".join(self.random.choice(list(LETTERS), size=6))]
        while len(self.words) < 30:
            word = edited(self.words[int(self.random.integers(len(self.words)))], self.random)
            if word not in self.words and len(word) <= 8:
                self.words.append(word)
        self.near = [[w for w in self.words if edit_distance(v, w) == 1] for v in self.words]

    def walk(self, steps: int) -> tuple[list[str], list[str]]:
        """Words passed, and what was typed for each."""
        passed = [self.words[int(self.random.integers(30))]]
        while len(passed) < steps:
            near = self.near[self.words.index(passed[-1])]
            stay = self.random.random() < 0.3
            passed.append(passed[-1] if stay else near[int(self.random.integers(len(near)))])
        return passed, [edited(edited(word, self.random), self.random) for word in passed]


def word_model(kernel: StringKernel, passed: list[str], typed: list[str]) -> kb.Model:
    return kb.Model(
        {"word": kernel, "typed": kernel},
        {"next": kb.Relation("word", "word", symmetric=True), "typed as": kb.Relation("word", "typed")},
    ).fit({"next": (passed[:-1], passed[1:]), "typed as": (passed, typed)})


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_words_of_a_walk_are_recovered_from_typos(seed: int) -> None:
    source, kernel = WordWalk(seed), Subsequence(3, 0.5, shorter=True)
    model = word_model(kernel, *source.walk(1500))
    truth, typed = source.walk(300)
    chain = kb.Graph.chain(300, variable="word", relation="next").observe("typed as", typed)
    lone = kb.Graph.from_edges([], variables=["word"] * 300).observe("typed as", typed)
    beliefs, without = model.infer(chain), model.infer(lone)

    def right(answers: Any) -> float:
        return float(np.mean([answer == word for answer, word in zip(answers, truth, strict=True)]))

    words = np.array(source.words)
    rivals = {
        "no graph": right(without.mode()),
        "nearest word to the kernel": right(words[kernel(typed, source.words).argmax(axis=1)]),
        "nearest word in edits": right(
            [min(source.words, key=lambda word: edit_distance(word, seen)) for seen in typed]
        ),
    }
    assert beliefs.converged
    assert right(beliefs.mode()) > max(rivals.values()) + ADVANTAGE, rivals

    places = [beliefs.atoms.tolist().index(word) for word in truth]
    told, alone = (b.probabilities()[np.arange(300), places] for b in (beliefs, without))
    assert np.log(told).mean() > np.log(alone).mean() + 0.3


@pytest.mark.parametrize("kernel", [*KERNELS, Mismatch(3, 1, LETTERS), Mismatch(2, 1, (0, 1, 2))], ids=repr)
def test_is_described_as_data(kernel: StringKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(specification.OWN, type(kernel).__name__, type(kernel))
    read = from_spec(json.loads(json.dumps(to_spec(kernel))))
    assert read == kernel and repr(read) == repr(kernel) and hash(read) == hash(kernel)


@pytest.mark.parametrize("kernel", [Subsequence(2, shorter=True), Mismatch(2, 1, LETTERS)], ids=repr)
def test_model_of_words_is_saved_and_loaded(
    kernel: StringKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(specification.OWN, type(kernel).__name__, type(kernel))
    source = WordWalk(3)
    model = word_model(kernel, *source.walk(100))
    model.save(tmp_path / "words.kbp")
    graph = kb.Graph.chain(20, variable="word", relation="next").observe("typed as", source.walk(20)[1])
    beliefs, again = model.infer(graph), kb.Model.load(tmp_path / "words.kbp").infer(graph)
    assert again.mode().tolist() == beliefs.mode().tolist()
    assert set(beliefs.mode()) <= set(source.words)


def test_sequences_of_unequal_lengths_are_values_of_a_model() -> None:
    steps = [(1,), (1, 2), (1, 2, 3), (1, 2), (1,), (1, 2), (1, 2, 3), (1, 2)] * 10
    model = kb.Model({"x": Subsequence(2, shorter=True)}, {"next": kb.Relation("x", "x")})
    model.fit({"next": (steps[:-1], steps[1:])})
    ends = np.empty(2, dtype=object)
    ends[:] = [(1,), (1, 2, 3)]
    graph = kb.Graph.chain(3, variable="x", relation="next").fix([0, 2], ends)
    assert model.infer(graph).mode().tolist() == [(1,), (1, 2), (1, 2, 3)]
