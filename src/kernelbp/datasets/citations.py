"""Papers that cite each other: their words and their sets of labels, from files or generated (appendix 4)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelbp.datasets._mat5 import read_tables
from kernelbp.datasets._paths import as_folder, as_path
from kernelbp.errors import InputError
from kernelbp.values import is_number, is_whole

__all__ = ["CitationNetwork", "citation_network", "load_citations_mat", "load_citations_text"]

_MAT_NAMES = ("network", "attrb", "group")
_MOST_PAPERS, _MOST_WORDS, _MOST_LABELS = 2_000_000, 1_000_000, 100_000
_MOST_BYTES = 1 << 28

_TEXT_FILES = ("texts.txt", "edges.txt", "labels.txt")
_LONGEST_LINE = 1 << 20
_MOST_TEXT_WORDS = 10_000
_RAREST_WORD = 3
"""Papers that must share a word of a text before it is counted: others tell nothing about each other."""


@dataclass(frozen=True, eq=False)
class CitationNetwork:
    """Papers, who cites whom, what they say and what they are about.

    Attributes
    ----------
    edges : (citations, 2) numbers of the two papers, the smaller first, each pair once
    words : (papers, words) sparse counts
    labels : (papers,) frozensets of label numbers; empty where a paper's labels are not known
    label_names : (labels,) what the numbers stand for

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> labels = np.array([frozenset({0}), frozenset({0, 1}), frozenset()], dtype=object)
    >>> words = sparse.csr_array(np.eye(3))
    >>> papers = CitationNetwork(np.array([[0, 1], [1, 2]]), words, labels, ("physics", "biology"))
    >>> len(papers), papers.degrees
    (3, array([1, 2, 1]))
    >>> papers.indicators.toarray()
    array([[1., 0.],
           [1., 1.],
           [0., 0.]])
    """

    edges: NDArray[np.intp]
    words: sparse.csr_array
    labels: NDArray[np.object_]
    label_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def degrees(self) -> NDArray[np.intp]:
        """Citations of each paper, made or received, shape (papers,)."""
        return np.bincount(self.edges.ravel(), minlength=len(self))

    @property
    def indicators(self) -> sparse.csr_array:
        """Sparse 0/1 rows (papers, labels)."""
        lengths = [len(labels) for labels in self.labels]
        columns = np.array([label for labels in self.labels for label in sorted(labels)], dtype=np.intp)
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.intp)])
        return sparse.csr_array(
            (np.ones(len(columns)), columns, ends), shape=(len(self), len(self.label_names))
        )

    def __repr__(self) -> str:
        return (
            f"CitationNetwork({len(self):,} papers, {len(self.edges):,} citations, {self.words.shape[1]:,} words, "
            f"{len(self.label_names):,} labels)"
        )


# ---------------------------------------------------------------------- MATLAB


def load_citations_mat(path: str | os.PathLike[str]) -> CitationNetwork:
    """Read a citation network from a MATLAB 5 file, the form of ``acmv9.mat``, ``dblpv7.mat`` and ``citationv1.mat``.

    Parameters
    ----------
    path : path
        A file with ``network`` (papers x papers, not 0 where one cites the other, either way), ``attrb`` (papers x words:
        counts) and ``group`` (papers x labels, not 0 where a paper has a label), each sparse or not.

    Returns
    -------
    CitationNetwork
        Labels are named by their columns, from 0. A paper that cites itself does not count.

    Raises
    ------
    InputError
        If there is no such file, or it is not such a file, whole, and of a size that fits in memory.

    Examples
    --------
    >>> import tempfile
    >>> from scipy.io import savemat
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "three.mat")
    ...     network, words = np.eye(3, k=1), np.array([[1, 0], [2, 1], [0, 1]])
    ...     savemat(path, {"network": network, "attrb": words, "group": np.eye(3)[:, :2]})
    ...     print(load_citations_mat(path))
    CitationNetwork(3 papers, 2 citations, 2 words, 2 labels)
    """
    file = as_path(path, "path")
    found = read_tables(file, _MAT_NAMES, most_bytes=_MOST_BYTES)
    papers = found["network"].shape[0]
    _check_sizes(file, papers, found["attrb"].shape[1], found["group"].shape[1])
    for name, table in found.items():
        if table.shape[0] != papers or (name == "network" and table.shape[1] != papers):
            raise InputError(
                f"{file}: {name} has shape {table.shape}; expected a row for each of {papers:,} papers"
            )
        values = table.data if sparse.issparse(table) else table
        if not np.isfinite(values).all() or (values < 0).any():
            raise InputError(f"{file}: {name} holds negative or infinite numbers; expected counts")
    network, words, groups = (sparse.csr_array(found[name]) for name in _MAT_NAMES)
    words = words.astype(np.float64)
    words.eliminate_zeros()
    groups = sparse.coo_array(groups > 0)
    ends = sparse.coo_array(network > 0)
    return CitationNetwork(
        _each_once(np.stack([ends.row, ends.col], axis=1)),
        words,
        _sets(papers, groups.row, groups.col),
        tuple(map(str, range(groups.shape[1]))),
    )


# ---------------------------------------------------------------------- plain text


def load_citations_text(folder: str | os.PathLike[str]) -> CitationNetwork:
    r"""Read a citation network from three plain files of UTF-8 text.

    - ``texts.txt``: a paper a line, its id, a tab, its text: ``p17<TAB>Kernel methods for graphs ...``. These are the
      papers, in this order.
    - ``edges.txt``: a citation a line, two ids with blanks or a tab between: ``p17 p3``. Which of them cites does not
      matter, nor does saying it twice.
    - ``labels.txt``: id, a tab, its labels with commas between: ``p17<TAB>learning,graphs``. Papers without a line
      have labels that are not known.

    Empty lines and lines that begin with ``#`` count nowhere. Words are those of two letters or more, in small letters, without
    the commonest English ones, that at least three papers share (all of them, if there are fewer than 100 papers); the
    10,000 most frequent at the most.

    Parameters
    ----------
    folder : path

    Returns
    -------
    CitationNetwork
        Labels are numbered in the order of their names.

    Raises
    ------
    InputError
        If a file is missing, not of this form (the line is named), or too large.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "texts.txt").write_text("a\tKernel methods\nb\tKernel means\nc\tGraph walks\n")
    ...     _ = Path(folder, "edges.txt").write_text("a b\nb c\n")
    ...     _ = Path(folder, "labels.txt").write_text("a\tlearning\nb\tlearning,statistics\n")
    ...     network = load_citations_text(folder)
    >>> network, [sorted(labels) for labels in network.labels]
    (CitationNetwork(3 papers, 2 citations, 5 words, 2 labels), [[0], [0, 1], []])
    """
    directory = as_folder(folder, ", ".join(_TEXT_FILES))
    number: dict[str, int] = {}
    texts: list[str] = []
    for file, line, parts in _lines(directory / "texts.txt", "an id, a tab and a text", "\t"):
        if parts[0] in number:
            raise InputError(f"{file}, line {line}: paper {parts[0]!r:.80} comes twice")
        if len(texts) >= _MOST_PAPERS:
            raise InputError(f"{file}: more than {_MOST_PAPERS:,} papers; expected fewer")
        number[parts[0]] = len(texts)
        texts.append(parts[1])

    def of(file: Path, line: int, name: str) -> int:
        if name not in number:
            raise InputError(f"{file}, line {line}: paper {name!r:.80} is not in texts.txt")
        return number[name]

    ends = [
        (of(file, line, parts[0]), of(file, line, parts[1]))
        for file, line, parts in _lines(directory / "edges.txt", "two ids", None)
    ]
    named: dict[int, list[str]] = {}
    for file, line, parts in _lines(directory / "labels.txt", "an id, a tab and labels", "\t"):
        paper = of(file, line, parts[0])
        if paper in named:
            raise InputError(f"{file}, line {line}: labels of paper {parts[0]!r:.80} come twice")
        named[paper] = [label for label in map(str.strip, parts[1].split(",")) if label]
        if not named[paper]:
            raise InputError(f"{file}, line {line}: no label; expected at least one, or no line at all")
    if not texts or not named:
        raise InputError(f"{directory}: expected at least one paper with labels, found {len(texts)} papers")
    names = sorted({label for labels in named.values() for label in labels})
    code = {label: index for index, label in enumerate(names)}
    pairs = [(paper, code[label]) for paper, labels in named.items() for label in labels]
    words = _counted(directory / "texts.txt", texts)
    _check_sizes(directory, len(texts), words.shape[1], len(names))
    return CitationNetwork(
        _each_once(np.array(ends, dtype=np.intp).reshape(-1, 2)),
        words,
        _sets(len(texts), *np.array(pairs, dtype=np.intp).T),
        tuple(names),
    )


def _lines(file: Path, expected: str, separator: str | None) -> Iterator[tuple[Path, int, list[str]]]:
    """The lines of a file in two parts, with their numbers."""
    _as_file(file, f"lines of {expected}")
    try:
        with file.open(encoding="utf-8-sig") as stream:
            line = 0
            while text := stream.readline(_LONGEST_LINE + 1):
                line += 1
                if len(text) > _LONGEST_LINE:
                    raise InputError(
                        f"{file}, line {line}: longer than {_LONGEST_LINE:,} letters; expected {expected}"
                    )
                if not text.strip() or text.startswith("#"):
                    continue
                parts = [part.strip() for part in text.split(separator, 1)]
                if len(parts) != 2 or not parts[0] or (separator is None and len(parts[1].split()) != 1):
                    raise InputError(f"{file}, line {line}: expected {expected}, got {text.strip()!r:.80}")
                yield file, line, parts
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text ({error.reason}); expected lines of {expected}") from error


def _counted(file: Path, texts: list[str]) -> sparse.csr_array:
    from sklearn.feature_extraction.text import CountVectorizer

    few = 100
    counter = CountVectorizer(
        stop_words="english", min_df=1 if len(texts) < few else _RAREST_WORD, max_features=_MOST_TEXT_WORDS
    )
    try:
        return sparse.csr_array(counter.fit_transform(texts), dtype=np.float64)
    except ValueError as error:  # no word is left
        raise InputError(f"{file}: no words that papers share; expected texts") from error


# ---------------------------------------------------------------------- generated


def citation_network(
    n_papers: int = 20_000,
    n_labels: int = 367,
    seed: int | np.random.Generator | None = 0,
    *,
    n_words: int = 2_500,
    mean_degree: float = 5.0,
    most_labels: int = 5,
    homophily: float = 0.5,
    topicality: float = 0.07,
) -> CitationNetwork:
    """Generate a citation network of the shape the paper describes (appendix 4).

    Labels are grouped into fields of about ten, as categories of the ACM are; some are common and most are rare (their
    frequencies fall as a power of their rank), and the labels of a paper are mostly of one field. A few papers have very many
    citations (weights with a power-law tail), most have few. Of the citations a share `homophily` is among papers
    with a common label, the others fall anywhere. Of the words a share `topicality` is of one of the paper's labels, the others of
    the common stock.

    Parameters
    ----------
    n_papers, n_labels, n_words : int
    seed : int, numpy.random.Generator or None
    mean_degree : float
        Citations of a paper on average, made and received, before those said twice are dropped.
    most_labels : int
        Of one paper; it has at least one.
    homophily, topicality : float
        From 0 to 1.

    Returns
    -------
    CitationNetwork

    Raises
    ------
    InputError
        If an argument is not of its kind or outside its range.

    Examples
    --------
    >>> network = citation_network(2000, 50, seed=0)
    >>> network.labels.shape, network.words.shape
    ((2000,), (2000, 2500))
    >>> bool(network.degrees.max() > 10 * np.median(network.degrees))
    True
    """
    for name, whole, least in (
        ("n_papers", n_papers, 2),
        ("n_labels", n_labels, 2),
        ("n_words", n_words, 2),
        ("most_labels", most_labels, 1),
    ):
        if not is_whole(whole) or not least <= whole <= _MOST_PAPERS:
            raise InputError(
                f"{name}: expected a whole number from {least} to {_MOST_PAPERS:,}, got {whole!r}"
            )
    if not is_number(mean_degree) or not 0 < mean_degree <= n_papers / 2:
        raise InputError(
            f"mean_degree: expected a number above 0, at most {n_papers / 2:g}, got {mean_degree!r}"
        )
    for name, share in (("homophily", homophily), ("topicality", topicality)):
        if not is_number(share) or not 0 <= share <= 1:
            raise InputError(f"{name}: expected a number from 0 to 1, got {share!r}")
    rng = np.random.default_rng(seed)
    papers, labels = _drawn_labels(rng, n_papers, n_labels, most_labels)
    edges = _drawn_citations(rng, papers, labels, n_papers, mean_degree, homophily)
    words = _drawn_words(rng, papers, labels, n_papers, n_labels, n_words, topicality)
    return CitationNetwork(edges, words, _sets(n_papers, papers, labels), tuple(map(str, range(n_labels))))


_FIELD = 10
"""Labels of a field."""
_WITHIN = 0.8
"""Of a paper's further labels, the share from the field of the first."""
_MORE_LABELS = 0.5
"""How often a paper that has some labels has one more."""
_LABEL_POWER, _WORD_POWER = 0.8, 1.0
"""Frequencies fall as these powers of the rank."""
_DEGREE_TAIL = 2.3
"""Numbers of citations have a tail of about this power."""
_WORDS_OF_A_LABEL = 60
_MEAN_LENGTH = 60
"""Words of a paper, on average."""


def _drawn_labels(
    rng: np.random.Generator, n_papers: int, n_labels: int, most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Papers and labels of all memberships, without repetitions, ordered by paper."""
    frequencies = np.arange(1.0, n_labels + 1) ** -_LABEL_POWER
    field = rng.permutation(n_labels) // _FIELD  # (labels,)
    count = np.minimum(rng.geometric(1 - _MORE_LABELS, n_papers), most)
    first = rng.choice(n_labels, n_papers, p=frequencies / frequencies.sum())
    papers, own = [np.arange(n_papers)], [first]
    members = _Grouped(np.arange(n_labels), field, frequencies)
    for place in range(1, most):
        more = np.flatnonzero(count > place)
        within = rng.random(len(more)) < _WITHIN
        label = rng.choice(n_labels, len(more), p=frequencies / frequencies.sum())
        label[within] = members.draw(rng, field[first[more[within]]])
        papers.append(more)
        own.append(label)
    drawn = np.unique(np.stack([np.concatenate(papers), np.concatenate(own)], axis=1), axis=0)
    return drawn[:, 0], drawn[:, 1]


def _drawn_citations(
    rng: np.random.Generator,
    papers: NDArray[np.intp],
    labels: NDArray[np.intp],
    n_papers: int,
    mean_degree: float,
    homophily: float,
) -> NDArray[np.intp]:
    weight = rng.pareto(_DEGREE_TAIL - 1, n_papers) + 0.5
    # No paper is cited by more than a fiftieth of all.
    weight = np.minimum(weight, weight.sum() / (50 * mean_degree))
    size = round(n_papers * mean_degree / 2)
    one = rng.choice(n_papers, size, p=weight / weight.sum())
    other = rng.choice(n_papers, size, p=weight / weight.sum())
    alike = rng.random(size) < homophily
    # A label of the one, then a paper that has it too.
    own = _Grouped(labels, papers, np.ones(len(labels))).draw(rng, one[alike])
    other[alike] = _Grouped(papers, labels, weight[papers]).draw(rng, own)
    return _each_once(np.stack([one, other], axis=1))


def _drawn_words(
    rng: np.random.Generator,
    papers: NDArray[np.intp],
    labels: NDArray[np.intp],
    n_papers: int,
    n_labels: int,
    n_words: int,
    topicality: float,
) -> sparse.csr_array:
    stock = np.arange(1.0, n_words + 1) ** -_WORD_POWER
    length = np.maximum(rng.poisson(_MEAN_LENGTH * rng.lognormal(-0.125, 0.5, n_papers)), 5)
    paper = np.repeat(np.arange(n_papers), length)
    word = rng.choice(n_words, len(paper), p=stock / stock.sum())
    mine = min(_WORDS_OF_A_LABEL, n_words)
    of_label = _Grouped(
        rng.integers(n_words, size=n_labels * mine),
        np.repeat(np.arange(n_labels), mine),
        np.ones(n_labels * mine),
    )
    topical = rng.random(len(paper)) < topicality
    own = _Grouped(labels, papers, np.ones(len(labels))).draw(rng, paper[topical])
    word[topical] = of_label.draw(rng, own)
    counts = sparse.coo_array((np.ones(len(paper)), (paper, word)), shape=(n_papers, n_words)).tocsr()
    counts.sum_duplicates()
    return sparse.csr_array(counts)


class _Grouped:
    """Members of groups with weights, to draw from whole arrays of groups at a time; groups have members.

    Parameters
    ----------
    members, groups, weights : (n,) arrays
    """

    def __init__(self, members: NDArray[Any], groups: NDArray[Any], weights: NDArray[Any]) -> None:
        order = np.argsort(groups, kind="stable")
        self.members, self.groups = members[order], groups[order]
        self.ends = np.concatenate([[0.0], np.cumsum(weights[order])])

    def draw(self, rng: np.random.Generator, groups: NDArray[np.intp]) -> NDArray[np.intp]:
        """One member of each group given."""
        low = np.searchsorted(self.groups, groups, side="left")
        high = np.searchsorted(self.groups, groups, side="right")
        at = self.ends[low] + rng.random(len(groups)) * (self.ends[high] - self.ends[low])
        place = np.searchsorted(self.ends, at, side="right") - 1
        drawn: NDArray[np.intp] = self.members[np.clip(place, low, high - 1)]
        return drawn


# ---------------------------------------------------------------------- shared


def _as_file(path: str | os.PathLike[str], expected: str) -> Path:
    file = as_path(path, "path")
    if not file.is_file():
        raise InputError(f"{file}: no such file; expected {expected}")
    if file.stat().st_size > _MOST_BYTES:
        raise InputError(f"{file}: larger than {_MOST_BYTES:,} bytes; expected {expected}")
    return file


def _check_sizes(where: Path, papers: int, words: int, labels: int) -> None:
    for name, size, most in (
        ("papers", papers, _MOST_PAPERS),
        ("words", words, _MOST_WORDS),
        ("labels", labels, _MOST_LABELS),
    ):
        if not 0 < size <= most:
            raise InputError(f"{where}: {size:,} {name}; expected 1 to {most:,}")


def _each_once(ends: NDArray[Any]) -> NDArray[np.intp]:
    """Undirected edges without loops and repetitions, (n, 2)."""
    ends = np.sort(ends.astype(np.intp), axis=1)
    return np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0).reshape(-1, 2)


def _sets(n_papers: int, papers: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.object_]:
    order = np.argsort(papers, kind="stable")
    ends = np.searchsorted(papers[order], np.arange(n_papers + 1))
    held = labels[order].tolist()
    sets = np.empty(n_papers, dtype=object)
    sets[:] = [frozenset(held[begin:end]) for begin, end in pairwise(ends.tolist())]
    return sets
