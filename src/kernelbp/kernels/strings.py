"""Kernels on strings: text, or sequences of whole numbers.

A value is a Python string, compared code point by code point, or a sequence of whole numbers (a tuple, a list,
an array, bytes, a row of a numeric array), compared number by number. Strings of one variable may be of any
lengths, none included, but are either all text or all numbers.

Every kernel here is one on the diagonal. A string in which a kernel finds nothing to compare (shorter than the
pieces it counts) is like itself only: 1 with an equal string and 0 with every other. Each such string is thereby a
direction of its own, orthogonal to the rest, and the kernel stays positive semidefinite.
"""

from __future__ import annotations

import itertools
import math
import numbers
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain, Takes
from kernelbp.kernels.inputs import (
    describe,
    is_median,
    is_numeric,
    nonnegative_number,
    positive_number,
    resolved_by_likeness,
    whole_number,
)

__all__ = ["LocalAlignment", "Mismatch", "Spectrum", "Subsequence"]

Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]

EXPECTED = "expected strings, or sequences of whole numbers (tuples, or rows of a numeric array)"
COMMON = 0.05
"""A piece found in more than this share of the strings goes into a dense product, the others into a sparse one."""
LARGEST_KEY = 2**62
"""Codes of pieces are kept below this; beyond it they are numbered afresh."""
MOST_SYMBOLS = 8
"""Longest pieces that "median" chooses from."""
DECAYS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BETAS = tuple(2.0 ** (power / 2) for power in range(-8, 7))
"""What "median" chooses from, for `Subsequence` and `LocalAlignment`."""
LARGEST_EXPONENT = 100.0
"""Of a match in `LocalAlignment`: its exponential, times a row of them, must leave room in float64."""


@dataclass(frozen=True)
class Strings:
    """Several strings end to end.

    Attributes
    ----------
    symbols : flat whole numbers
    starts : (n + 1,) where each string begins, and the end
    text : whether they were text; None if there were none
    """

    symbols: Integers
    starts: Integers
    text: bool | None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Integers:
        """Of each string, shape ``(n,)``."""
        return np.diff(self.starts)

    def content(self, number: int) -> bytes:
        """A string as something hashable."""
        return self.symbols[self.starts[number] : self.starts[number + 1]].tobytes()


@dataclass(frozen=True)
class StringKernel(Algebra):
    """What kernels on strings share: reading the values, one on the diagonal, and what "median" stands for."""

    domain: ClassVar[Domain] = "other"
    takes: ClassVar[Takes] = "sequences"

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n strings against m."""
        left = self._read(X, "X")
        right = None if Y is None else self._read(Y, "Y")
        if right is not None and None not in (left.text, right.text) and left.text != right.text:
            raise InputError("Y: expected text or numbers as in X, got numbers against text")
        others = left if right is None else right
        if not len(left) or not len(others):
            return np.zeros((len(left), len(others)))
        block = np.minimum(self.resolve(X)._block(left, right), 1.0)
        if right is None:
            np.fill_diagonal(block, 1.0)
        return block

    def diag(self, X: Any) -> Matrix:
        """Ones ``(n,)``."""
        return np.ones(len(self._read(X, "X")))

    def resolve(self, values: Any, counts: Any = None) -> Self:
        """Replace "median" by its number: see `kernelbp.kernels.resolve`."""
        return resolved_by_likeness(self, *self._ladder(), values, counts)

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse what is not a string: see `kernelbp.kernels.check_values`."""
        self._read(values, name)
        return values

    def _read(self, values: Any, name: str) -> Strings:
        return read_strings(values, name)

    @abstractmethod
    def _ladder(self) -> tuple[str, Sequence[Any]]:
        """The setting that may be "median", and what it then may be."""

    @abstractmethod
    def _block(self, left: Strings, right: Strings | None) -> Matrix:
        """Normalised block of strings, at least one on either side; `right` of None is `left`."""


@dataclass(frozen=True)
class Spectrum(StringKernel):
    r"""Pieces of k symbols that two strings share.

    .. math:: k(x, y) = \frac{\langle c(x), c(y) \rangle}{\lVert c(x) \rVert \, \lVert c(y) \rVert},

    with c(x) counting how often each run of k neighbouring symbols occurs in x (Leslie, Eskin and Noble 2002).
    A string of fewer than k symbols is like itself only.

    Parameters
    ----------
    k : int or "median"
        Length of the pieces, at least 1. "median" is the length, up to 8, at which a typical pair of different
        training values compares most nearly as 1/e.

    Notes
    -----
    Time grows with the number of pieces two strings share, not with the product of their lengths: of the kernels
    on strings this is the quick one.

    Examples
    --------
    >>> from kernelbp.kernels.strings import Spectrum
    >>> Spectrum(2)(["banana", "bananas", "nab"], ["banana"]).round(3)
    array([[1.   ],
           [0.949],
           [0.471]])
    >>> Spectrum(2)([(7, 8, 9), (8, 9)]).round(3)
    array([[1.   , 0.707],
           [0.707, 1.   ]])
    """

    k: int | Literal["median"] = 3

    def __post_init__(self) -> None:
        if not is_median(self.k):
            object.__setattr__(self, "k", whole_number(self.k, "k", least=1, or_word=' or "median"'))

    def _ladder(self) -> tuple[str, Sequence[Any]]:
        return "k", range(1, MOST_SYMBOLS + 1)

    def _block(self, left: Strings, right: Strings | None) -> Matrix:
        assert isinstance(self.k, int)
        return _counted_block(left, right, self.k, {self.k: 1})


@dataclass(frozen=True)
class Mismatch(StringKernel):
    r"""Pieces of k symbols that two strings share but for a few symbols.

    Every piece of a string counts for all pieces that differ from it in at most m places, and strings are
    compared by these counts as in `Spectrum` (Leslie, Eskin, Cohen, Weston and Noble 2004). A string of fewer than
    k symbols is like itself only.

    Parameters
    ----------
    k : int or "median"
        Length of the pieces, at least 1. "median" is the length, from m + 1 to 8 (m + 2 if that is more), at
        which a typical pair of different training values compares most nearly as 1/e.
    mismatches : int
        m, from 0 (then it is `Spectrum`) to k - 1.
    alphabet : str or sequence of whole numbers, optional
        The symbols a string may have, two at least: ``"ACGT"``. The number of pieces near a given one depends on
        it. Without it any symbol may occur, and the kernel is the limit for an alphabet without end, in which two
        pieces share what is left of them when m places are wiped out.

    Notes
    -----
    Two pieces that agree in g places share :math:`f(g)` neighbours, a number that depends on g alone, and
    :math:`f(g) = \sum_j c_j \binom{g}{j}`. So the kernel is a sum over sets of j places of the pieces cut down to
    these places, :math:`c_j` times each, and no list of neighbours is made: :math:`\binom{k}{j}` counts per piece,
    with j from k - 2m to k, whatever the alphabet; without an alphabet, only j = k - m.

    Examples
    --------
    >>> from kernelbp.kernels.strings import Mismatch
    >>> Mismatch(3, 1, alphabet="ACGT")(["ACG", "ATG", "TTT"]).round(3)
    array([[1. , 0.4, 0. ],
           [0.4, 1. , 0.2],
           [0. , 0.2, 1. ]])
    >>> Mismatch(3, 1)(["cat", "car", "dog"]).round(3)
    array([[1.   , 0.333, 0.   ],
           [0.333, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    """

    k: int | Literal["median"] = 3
    mismatches: int = 1
    alphabet: str | tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        mismatches = whole_number(self.mismatches, "mismatches", least=0)
        if not is_median(self.k):
            object.__setattr__(self, "k", whole_number(self.k, "k", least=1, or_word=' or "median"'))
        if isinstance(self.k, int) and mismatches >= self.k:
            raise InputError(
                f"mismatches: expected an integer from 0 to k - 1 = {self.k - 1}, got {mismatches}; "
                "pieces that may differ everywhere are all alike"
            )
        object.__setattr__(self, "mismatches", mismatches)
        object.__setattr__(self, "alphabet", _alphabet(self.alphabet))

    def _read(self, values: Any, name: str) -> Strings:
        strings = read_strings(values, name)
        if self.alphabet is None or strings.text is None:
            return strings
        known = read_strings([self.alphabet], "alphabet")
        if strings.text != known.text:
            given, wanted = ("text", "numbers") if strings.text else ("numbers", "text")
            raise InputError(f"{name}: expected {wanted}, as the alphabet of {self!r}, got {given}")
        strange = ~np.isin(strings.symbols, known.symbols)
        if strange.any():
            place = int(np.argmax(strange))
            symbol = int(strings.symbols[place])
            position = int(np.searchsorted(strings.starts, place, side="right")) - 1
            raise InputError(
                f"{name}: expected symbols of the alphabet {describe(self.alphabet)}, "
                f"got {chr(symbol) if strings.text else symbol!r} at position {position}"
            )
        return strings

    def _ladder(self) -> tuple[str, Sequence[Any]]:
        return "k", range(self.mismatches + 1, max(MOST_SYMBOLS, self.mismatches + 2) + 1)

    def _block(self, left: Strings, right: Strings | None) -> Matrix:
        assert isinstance(self.k, int)
        size = None if self.alphabet is None else len(self.alphabet)
        return _counted_block(left, right, self.k, shares_of_places(self.k, self.mismatches, size))


@dataclass(frozen=True)
class Subsequence(StringKernel):
    r"""Subsequences that two strings share, each the less the more symbols it leaves out.

    .. math:: K_p(x, y) = \sum_{u \in \Sigma^p} \; \sum_{i : u = x_i} \; \sum_{j : u = y_j}
              \lambda^{l(i) + l(j)}, \qquad k(x, y) = \frac{K_p(x, y)}{\sqrt{K_p(x, x) K_p(y, y)}},

    where i runs over increasing places of x, which need not be neighbours, and l(i) is the length from the first of
    them to the last (Lodhi, Saunders, Shawe-Taylor, Cristianini and Watkins 2002). A string of fewer than p
    symbols is like itself only.

    Parameters
    ----------
    length : int
        p, at least 1.
    decay : float or "median"
        :math:`\lambda`, above 0 and at most 1. "median" is the tenth, from 0.1 to 0.9, at which a typical pair of
        different training values compares most nearly as 1/e.
    shorter : bool
        Whether shorter subsequences count too: :math:`K_1 + \dots + K_p` in place of :math:`K_p`. Then all strings
        but the empty one have something to compare.

    Notes
    -----
    Lodhi's recursion, p times the product of two lengths for every pair, compiled. Without `shorter` the weight of a
    match cancels, and is set such that long strings neither over- nor underflow.

    Examples
    --------
    >>> from kernelbp.kernels.strings import Subsequence
    >>> Subsequence(2, 0.5)(["cat", "car", "bat", "bar"], ["cat"]).round(3)
    array([[1.   ],
           [0.444],
           [0.444],
           [0.   ]])
    """

    length: int = 3
    decay: float | Literal["median"] = 0.5
    shorter: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", whole_number(self.length, "length", least=1))
        if not is_median(self.decay):
            decay = positive_number(self.decay, "decay", or_word=' or "median"')
            if decay > 1:
                raise InputError(
                    f"decay: expected a number above 0 and at most 1, got {describe(self.decay)}"
                )
            object.__setattr__(self, "decay", decay)
        if not isinstance(self.shorter, bool | np.bool_):
            raise InputError(f"shorter: expected True or False, got {describe(self.shorter)}")
        object.__setattr__(self, "shorter", bool(self.shorter))

    def _ladder(self) -> tuple[str, Sequence[Any]]:
        return "decay", DECAYS

    def _block(self, left: Strings, right: Strings | None) -> Matrix:
        from kernelbp.kernels.strings_compiled import subsequence_block, subsequence_diagonal

        assert not isinstance(self.decay, str)
        settings = (self.length, self.decay, self.shorter)
        mine, theirs = _laid_out(left, right)
        sizes = []
        for strings in (mine,) if right is None else (mine, theirs):
            scales = self._scales(strings.starts)
            diagonal = subsequence_diagonal(strings.symbols, strings.starts, scales, *settings)
            found = strings.sizes >= (1 if self.shorter else self.length)
            if not (np.isfinite(diagonal) & ((diagonal > 0) | ~found)).all():
                raise UnsupportedError(
                    f"{self!r}: the longest of these strings ({strings.sizes.max()} symbols) takes it beyond the "
                    "range of float64; take a smaller length or decay"
                )
            sizes.append((scales, np.where(found, diagonal, 0.0)))
        (left_scales, left_diagonal), (right_scales, right_diagonal) = sizes[0], sizes[-1]
        block = np.empty((len(left_diagonal), len(right_diagonal)))
        subsequence_block(
            mine.symbols,
            mine.starts,
            left_scales,
            theirs.symbols,
            theirs.starts,
            right_scales,
            *settings,
            right is None,
            block,
        )
        block = normalised(
            _put_back(block, mine, theirs), mine.back(left_diagonal), theirs.back(right_diagonal)
        )
        return _with_islands(
            block, left, right, mine.back(left_diagonal) == 0, theirs.back(right_diagonal) == 0
        )

    def _scales(self, starts: Integers) -> Matrix:
        """For each string a factor of its matches, whose length-th power cancels, shape ``(n,)``.

        Sums over n places are at most C(n, p)^2, about (e n / p)^2p, and about (1 - decay)^-2p where gaps die
        out first.
        """
        assert not isinstance(self.decay, str)
        if self.shorter:
            return np.full(len(starts) - 1, self.decay)
        reach = self.length / (math.e * np.maximum(np.diff(starts), self.length))
        return np.maximum(1.0 - self.decay, reach)


@dataclass(frozen=True)
class LocalAlignment(StringKernel):
    r"""All ways to align parts of two strings, weighed by their scores.

    .. math:: K(x, y) = \sum_{\pi} \exp(\beta \, s(\pi)), \qquad
              k(x, y) = \frac{K(x, y)}{\sqrt{K(x, x) K(y, y)}},

    over all local alignments :math:`\pi` of x and y, the empty one (score 0) among them (Saigo, Vert, Ueda and
    Akutsu 2004). An alignment pairs symbols of x and y in order. Its score adds `match` for every pair of equal
    symbols and `mismatch` for every other, and for every run of n symbols skipped between two pairs, in x or in
    y, takes off ``gap_open + (n - 1) gap_extend``. What lies before the first pair and after the last is free.
    Large :math:`\beta` looks at the best alignment only, as Smith and Waterman's score does; small ones at all.

    Parameters
    ----------
    match, mismatch : float
        Scores of a pair, the first at least the second.
    gap_open, gap_extend : float
        Costs of the first symbol of a gap and of every further one, at least 0.
    beta : float or "median"
        :math:`\beta > 0`; ``beta * match`` is at most 100. "median" is the one, of half powers of two from 1/16 to
        8, at which a typical pair of different training values compares most nearly as 1/e.

    Notes
    -----
    Positive semidefinite by construction, as a convolution of kernels (Haussler 1999). :math:`K` is a sum over n
    of ways to cut both strings into n aligned symbols, the gaps between them and the two free ends, each way
    contributing the product of a kernel per part: on symbols :math:`e^{\beta s(a, b)}`, which is
    :math:`e^{\beta \cdot mismatch}` everywhere plus a term that is not negative on equal symbols; on gaps
    :math:`e^{\beta g(u)} e^{\beta g(v)}`, of rank one; on free ends the constant 1. Each of these is
    positive semidefinite, and sums over cuts of products of kernels are again. Saigo et al. go on to take the
    logarithm of K, because K is far larger on the diagonal than off it where strings are long. The logarithm is
    not a kernel, and the shifts of eigenvalues that would make it one depend on the whole sample. Here the
    diagonal is tamed by a modest :math:`\beta` instead, and by normalising.

    Computed in float64 with powers of two set aside as they arise: strings of any length neither over- nor underflow.
    Time grows with the product of two lengths for every pair.

    Examples
    --------
    >>> from kernelbp.kernels.strings import LocalAlignment
    >>> LocalAlignment()(["kitten", "sitting", "mitten", ""], ["kitten"]).round(2)
    array([[1.  ],
           [0.1 ],
           [0.47],
           [0.03]])
    """

    match: float = 1.0
    mismatch: float = -1.0
    gap_open: float = 1.5
    gap_extend: float = 0.5
    beta: float | Literal["median"] = 1.0

    def __post_init__(self) -> None:
        for name in ("match", "mismatch"):
            object.__setattr__(self, name, _finite_number(getattr(self, name), name))
        if self.mismatch > self.match:
            raise InputError(
                f"mismatch: expected a score of at most match = {self.match:g}, got {self.mismatch:g}; "
                "with more the kernel is not positive semidefinite"
            )
        for name in ("gap_open", "gap_extend"):
            object.__setattr__(self, name, nonnegative_number(getattr(self, name), name))
        if is_median(self.beta):
            return
        object.__setattr__(self, "beta", positive_number(self.beta, "beta", or_word=' or "median"'))
        assert not isinstance(self.beta, str)
        if self.beta * self.match > LARGEST_EXPONENT:
            raise InputError(
                f"beta: expected beta * match of at most {LARGEST_EXPONENT:g}, got {self.beta * self.match:g}"
            )

    def _ladder(self) -> tuple[str, Sequence[Any]]:
        allowed = [beta for beta in BETAS if beta * self.match <= LARGEST_EXPONENT]
        return "beta", allowed or [LARGEST_EXPONENT / self.match]

    def _block(self, left: Strings, right: Strings | None) -> Matrix:
        from kernelbp.kernels.strings_compiled import alignment_block, alignment_diagonal

        assert not isinstance(self.beta, str)
        same, other, opened, extended = (
            math.exp(self.beta * score)
            for score in (self.match, self.mismatch, -self.gap_open, -self.gap_extend)
        )
        factors = (same, other, opened, extended)
        mine, theirs = _laid_out(left, right)
        left_logs = alignment_diagonal(mine.symbols, mine.starts, factors)
        right_logs = (
            left_logs if right is None else alignment_diagonal(theirs.symbols, theirs.starts, factors)
        )
        logs = np.empty((len(left), len(left if right is None else right)))
        alignment_block(
            mine.symbols, mine.starts, theirs.symbols, theirs.starts, factors, right is None, logs
        )
        logs -= 0.5 * left_logs[:, None]
        logs -= 0.5 * right_logs
        return _put_back(np.exp(logs), mine, theirs)


# ---------------------------------------------------------------------- reading strings


def read_strings(values: Any, name: str) -> Strings:
    """Lay strings end to end, or refuse what is not one; see the head of this module for what is."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(f"{name}: {EXPECTED}, got {describe(values)}")
    if len(values) == 0:
        return Strings(np.empty(0, np.int64), np.zeros(1, np.int64), None)
    if is_numeric(values):
        return _read_rows(values, name)
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if all(isinstance(value, str) for value in listed):
        lengths = [len(value) for value in listed]
        # surrogates standing alone are code points like others here
        encoded = "".join(listed).encode("utf-32-le", "surrogatepass")
        return Strings(np.frombuffer(encoded, dtype="<u4").astype(np.int64), _starts(lengths), True)
    if set(map(type, listed)) <= {tuple, list}:
        # the usual case in bulk, which is quick; anything else is looked at one by one
        flat = list(itertools.chain.from_iterable(listed))
        if set(map(type, flat)) <= {int}:
            try:
                return Strings(np.array(flat, dtype=np.int64), _starts(list(map(len, listed))), False)
            except OverflowError:  # beyond int64: below it is said where
                pass
    parts = [_read_numbers(value, name, position) for position, value in enumerate(listed)]
    return Strings(np.concatenate(parts), _starts([len(part) for part in parts]), False)


def _read_rows(values: NDArray[Any], name: str) -> Strings:
    """The rows of a numeric array: how a column holds sequences of one length."""
    if values.ndim != 2:
        raise InputError(f"{name}: {EXPECTED}, got {describe(values)}")
    symbols = _whole(values)
    if symbols is None:
        raise InputError(f"{name}: {EXPECTED}, got {describe(values)} with entries that are not whole")
    return Strings(symbols.reshape(-1), _starts([values.shape[1]] * len(values)), False)


def _read_numbers(value: Any, name: str, position: int) -> Integers:
    if isinstance(value, str):
        raise InputError(
            f"{name}: {EXPECTED}, one or the other throughout, got {describe(value)} at position {position}"
        )
    symbols = None
    if isinstance(value, bytes):
        symbols = np.frombuffer(value, dtype=np.uint8).astype(np.int64)
    elif isinstance(value, list | tuple | range | np.ndarray):
        try:
            array = np.asarray(value)
        except ValueError:  # parts of different lengths
            array = np.empty((1, 1))
        if array.ndim == 1:
            symbols = np.empty(0, np.int64) if len(array) == 0 else _whole(array)
    if symbols is None:
        raise InputError(f"{name}: {EXPECTED}, got {describe(value)} at position {position}")
    return symbols


def _whole(array: NDArray[Any]) -> Integers | None:
    """An array as int64 if its entries are whole numbers within that range, else None."""
    if array.dtype.kind not in "iuf":
        return None
    if array.dtype.kind == "f" and not (np.floor(array) == array).all():
        return None
    if array.dtype.kind != "i" and array.size and not (np.abs(array) < 2.0**62).all():
        return None
    return array.astype(np.int64)


def _starts(lengths: Sequence[int]) -> Integers:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _alphabet(given: Any) -> str | tuple[int, ...] | None:
    if given is None:
        return None
    expected = "expected a string or a sequence of whole numbers, two different symbols at least, each once"
    if isinstance(given, str):
        alphabet: str | tuple[int, ...] = given
    elif isinstance(given, Sequence | np.ndarray) and all(
        isinstance(symbol, numbers.Integral) and not isinstance(symbol, bool) for symbol in given
    ):
        alphabet = tuple(int(symbol) for symbol in given)
    else:
        raise InputError(f"alphabet: {expected}, got {describe(given)}")
    if len(alphabet) < 2 or len(set(alphabet)) != len(alphabet):
        raise InputError(f"alphabet: {expected}, got {describe(given)}")
    return alphabet


def _finite_number(value: Any, name: str) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise InputError(f"{name}: expected a finite number, got {describe(value)}")


# ---------------------------------------------------------------------- counts of pieces


def shares_of_places(k: int, mismatches: int, alphabet: int | None) -> dict[int, int]:
    """c_j of `Mismatch`, by j, those that are not zero.

    Parameters
    ----------
    k, mismatches : as in `Mismatch`
    alphabet : number of symbols; None is no end of them

    Examples
    --------
    >>> shares_of_places(3, 1, None), shares_of_places(3, 0, 4)
    ({2: 1}, {3: 1})
    >>> shares_of_places(3, 1, 4)
    {1: 2, 3: 4}
    """
    if alphabet is None:
        return {k - mismatches: 1}
    shared = [_neighbours(k, k - agreeing, mismatches, alphabet) for agreeing in range(k + 1)]
    # f(g) = sum_j c_j C(g, j), inverted
    shares = {
        j: sum((-1) ** (j - i) * math.comb(j, i) * shared[i] for i in range(j + 1)) for j in range(k + 1)
    }
    return {j: share for j, share in shares.items() if share}


def _neighbours(k: int, apart: int, mismatches: int, alphabet: int) -> int:
    """How many pieces lie within `mismatches` of both of two pieces that differ in `apart` places."""
    total = 0
    for as_first in range(apart + 1):
        for as_second in range(apart + 1 - as_first):
            as_neither = apart - as_first - as_second
            ways = math.comb(apart, as_first) * math.comb(apart - as_first, as_second)
            ways *= (alphabet - 2) ** as_neither
            left = mismatches - apart + min(as_first, as_second)
            total += ways * sum(
                math.comb(k - apart, changed) * (alphabet - 1) ** changed
                for changed in range(min(left, k - apart) + 1)
            )
    return total


def _counted_block(left: Strings, right: Strings | None, k: int, shares: dict[int, int]) -> Matrix:
    """Normalised inner products of counts: of pieces of k symbols cut down to j places, weighed by the shares."""
    both = left if right is None else _joined(left, right)
    owners, keys, weights = _pieces(both, k, shares)
    counts = scipy.sparse.csr_array(
        (np.ones(len(keys)), (owners, keys)), shape=(len(both), len(weights)), dtype=np.float64
    )
    mine = counts[: len(left)]
    theirs = mine if right is None else counts[len(left) :]
    left_sizes = mine.multiply(mine) @ weights
    right_sizes = left_sizes if right is None else theirs.multiply(theirs) @ weights
    block = normalised(inner_products(mine, theirs, weights), left_sizes, right_sizes)
    return _with_islands(block, left, right, left_sizes == 0, right_sizes == 0)


def _joined(left: Strings, right: Strings) -> Strings:
    symbols = np.concatenate([left.symbols, right.symbols])
    return Strings(symbols, np.concatenate([left.starts, len(left.symbols) + right.starts[1:]]), left.text)


def _pieces(strings: Strings, k: int, shares: dict[int, int]) -> tuple[Integers, Integers, Matrix]:
    """All pieces of k symbols cut down to sets of j places: whose they are, their numbers, and the weight of each number.

    Returns
    -------
    owners : (pieces,) numbers of strings
    keys : (pieces,) equal where the pieces are
    weights : (distinct keys,) share of each
    """
    lengths = np.maximum(strings.lengths - k + 1, 0)
    owners = np.repeat(np.arange(len(strings)), lengths)
    # places within a string, counted on from where it begins
    begins = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    begins += strings.starts[owners]
    known, codes = np.unique(strings.symbols, return_inverse=True)
    codes = codes.reshape(-1)
    all_keys, all_weights, offset = [], [], 0
    for j, share in shares.items():
        for places in itertools.combinations(range(k), j):
            keys, bound = np.zeros(len(begins), np.int64), 1
            for place in places:
                if bound > LARGEST_KEY // max(len(known), 1):
                    distinct, keys = np.unique(keys, return_inverse=True)
                    keys, bound = keys.reshape(-1), len(distinct)
                keys = keys * len(known) + codes[begins + place]
                bound *= len(known)
            distinct, keys = np.unique(keys, return_inverse=True)
            all_keys.append(keys.reshape(-1) + offset)
            all_weights.append(np.full(len(distinct), float(share)))
            offset += len(distinct)
    return np.tile(owners, len(all_keys)), np.concatenate(all_keys), np.concatenate(all_weights)


def inner_products(
    left: scipy.sparse.csr_array, right: scipy.sparse.csr_array, weights: Matrix | None = None
) -> Matrix:
    """Inner products ``(n, m)`` of the rows of two sparse tables of counts, columns weighed.

    Columns that many rows share go into a dense product and the others into a sparse one. The dense tables are at most
    1 / COMMON times as large as the sparse ones.

    Parameters
    ----------
    left, right : (n, f), (m, f)
    weights : (f,), optional
    """
    columns = left.shape[1]
    if weights is not None:
        left = left @ scipy.sparse.diags_array(weights, format="csr")
    found = np.bincount(left.indices, minlength=columns) + np.bincount(right.indices, minlength=columns)
    common = found > COMMON * (left.shape[0] + right.shape[0])
    dense, rare = np.flatnonzero(common), np.flatnonzero(~common)
    block: Matrix = (left[:, rare] @ right[:, rare].T.tocsr()).toarray()
    block += left[:, dense].toarray() @ right[:, dense].toarray().T
    return block


# ---------------------------------------------------------------------- one on the diagonal


def normalised(block: Matrix, left_sizes: Matrix, right_sizes: Matrix) -> Matrix:
    """k(x, y) / sqrt(k(x, x) k(y, y)), and 0 where k(x, x) or k(y, y) is."""
    with np.errstate(divide="ignore"):
        left = np.where(left_sizes > 0, 1.0 / np.sqrt(left_sizes), 0.0)
        right = np.where(right_sizes > 0, 1.0 / np.sqrt(right_sizes), 0.0)
    return block * left[:, None] * right


def _with_islands(
    block: Matrix,
    left: Strings,
    right: Strings | None,
    left_empty: NDArray[np.bool_],
    right_empty: NDArray[np.bool_],
) -> Matrix:
    """Set to one what two equal strings without anything to compare have in common."""
    others = left if right is None else right
    places: dict[bytes, list[int]] = {}
    for number in np.flatnonzero(right_empty).tolist():
        places.setdefault(others.content(number), []).append(number)
    for number in np.flatnonzero(left_empty).tolist():
        block[number, places.get(left.content(number), [])] = 1.0
    return block


# ---------------------------------------------------------------------- pairs of strings


@dataclass(frozen=True)
class LaidOut:
    """Strings as the compiled recursions take them: shortest first, symbols numbered.

    Attributes
    ----------
    symbols : flat numbers from 0
    starts : (n + 1,)
    order : (n,) which of the original strings each is
    """

    symbols: NDArray[np.int32]
    starts: Integers
    order: NDArray[np.intp]

    @property
    def sizes(self) -> Integers:
        """Lengths of the strings, shape ``(n,)``."""
        return np.diff(self.starts)

    def back(self, numbers: Matrix) -> Matrix:
        """One number per string, in the original order."""
        result = np.empty_like(numbers)
        result[self.order] = numbers
        return result


def _laid_out(left: Strings, right: Strings | None) -> tuple[LaidOut, LaidOut]:
    """Both sides with one numbering of symbols, each in order of length, so that neighbours fill lanes alike."""
    both = left if right is None else _joined(left, right)
    codes = np.unique(both.symbols, return_inverse=True)[1].reshape(-1).astype(np.int32)
    mine = _by_length(codes[: len(left.symbols)], left)
    return mine, mine if right is None else _by_length(codes[len(left.symbols) :], right)


def _by_length(codes: NDArray[np.int32], strings: Strings) -> LaidOut:
    order = np.argsort(strings.lengths, kind="stable")
    lengths = strings.lengths[order]
    starts = _starts(lengths.tolist())
    shift = np.repeat(strings.starts[order] - starts[:-1], lengths)
    return LaidOut(codes[np.arange(len(codes)) + shift], starts, order)


def _put_back(block: Matrix, left: LaidOut, right: LaidOut) -> Matrix:
    """A block in the original order of both sides."""
    result = np.empty_like(block)
    result[np.ix_(left.order, right.order)] = block
    return result
