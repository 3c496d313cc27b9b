"""A kernel on sets of labels."""

from __future__ import annotations

import functools
import math
import numbers
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain, Takes
from kernelbp.kernels.inputs import describe, finite_rows, is_numeric, nonnegative_number, whole_number

NEGLIGIBLE = 1e-9
"""A label decoded with less than this share of the largest weight explains rounding errors."""


@dataclass(frozen=True)
class RandomProjection(Algebra):
    r"""The linear kernel on randomly projected label sets.

    .. math:: k(y, y') = c + \langle A y, A y' \rangle,

    with y the 0/1 indicator of a set of labels and the entries of A drawn from
    :math:`N(0, 1/\text{dimension})`, so that on average :math:`k(y, y') = c + |y \cap y'|`.

    Column j of A depends on the seed and j only: the kernel agrees between calls that know of different
    numbers of labels.

    Parameters
    ----------
    dimension : int
        Length of the projected vectors.
    seed : int
        Chooses A; at least 0.
    constant : float
        c, at least 0.

    Notes
    -----
    Values are either a numeric array ``(n, labels)`` of 0/1 indicator rows, or a sequence of n collections of
    integer labels, each at least 0, in any order; a repeated label counts once.

    Examples
    --------
    >>> from kernelbp.kernels import RandomProjection
    >>> kernel = RandomProjection(dimension=1000, seed=1)
    >>> sets = [frozenset({0, 3}), frozenset({3, 4, 7})]
    >>> kernel(sets).shape, kernel.project(sets).shape
    ((2, 2), (2, 1000))
    >>> import numpy as np
    >>> indicators = np.array([[1, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0, 1]])
    >>> bool(np.allclose(kernel(sets), kernel(indicators)))
    True
    """

    dimension: int = 100
    seed: int = 0
    constant: float = 1.0

    domain: ClassVar[Domain] = "other"
    takes: ClassVar[Takes] = "sets"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", whole_number(self.dimension, "dimension", least=1))
        object.__setattr__(self, "seed", whole_number(self.seed, "seed", least=0))
        object.__setattr__(self, "constant", nonnegative_number(self.constant, "constant"))

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of n label sets against m."""
        left = self._project(X, "X")
        right = left if Y is None else self._project(Y, "Y")
        block: NDArray[np.float64] = left @ right.T
        block += self.constant
        return block

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        projected = self._project(X, "X")
        squares: NDArray[np.float64] = np.square(projected).sum(axis=1)
        return squares + self.constant

    def project(self, values: Any) -> NDArray[np.float64]:
        """Return the projected sets Ay, shape ``(n, dimension)``."""
        return self._project(values, "values")

    def decode(self, projected: Any, labels: Any, size: Any) -> NDArray[Any]:
        """The label sets whose projections are nearest to given vectors: orthogonal matching pursuit.

        One label after another is added, that whose column of A explains most of what is left; labels that
        end with a weight of 0 or less are dropped. So a set can be found that was never seen whole (Hsu,
        Kakade, Langford and Zhang, 2009; the paper's appendix 4).

        Parameters
        ----------
        projected : (n, dimension) numbers
            Such as the mean of `project` under a belief; their lengths do not matter.
        labels : sequence of integers
            The labels to choose from.
        size : int or (n,) integers
            Most labels of a set, at least 0; as many as the dimension, at the most, can be told apart.

        Returns
        -------
        (n,) object array of frozensets

        Examples
        --------
        >>> from kernelbp.kernels import RandomProjection
        >>> kernel = RandomProjection(dimension=40)
        >>> sets = [frozenset({3, 17}), frozenset({8})]
        >>> found = kernel.decode(kernel.project(sets), range(50), size=[2, 1])
        >>> [sorted(labels) for labels in found]
        [[3, 17], [8]]
        """
        vectors = finite_rows(projected, "projected")
        if len(vectors) and vectors.shape[1] != self.dimension:
            raise InputError(
                f"projected: expected vectors of length {self.dimension}, got {describe(projected)}"
            )
        sizes = np.asarray(size)
        if (
            sizes.dtype.kind not in "iu"
            or sizes.ndim > 1
            or (sizes < 0).any()
            or (sizes.ndim == 1 and len(sizes) != len(vectors))
        ):
            raise InputError(
                f"size: expected an integer of at least 0, or {len(vectors)} of them, got {size!r}"
            )
        known = sorted({int(label) for label in _members([tuple(labels)], "labels")[2]})
        sizes = np.minimum(np.broadcast_to(sizes, len(vectors)), min(len(known), self.dimension))
        decoded = np.empty(len(vectors), dtype=object)
        decoded[:] = [frozenset()] * len(vectors)
        if not len(vectors) or not known or not sizes.any():
            return decoded
        from sklearn.linear_model import orthogonal_mp

        columns = np.stack([_direction(self.seed, label, self.dimension) for label in known], axis=1)
        for wanted in np.unique(sizes[sizes > 0]):
            rows = np.flatnonzero((sizes == wanted) & (np.abs(vectors).max(axis=1) > 0))
            if not len(rows):
                continue
            with warnings.catch_warnings():
                # it stops early, with a warning, where nothing is left to explain: as it should
                warnings.simplefilter("ignore", RuntimeWarning)
                weights = orthogonal_mp(columns, vectors[rows].T, n_nonzero_coefs=int(wanted))
            weights = weights.reshape(len(known), len(rows)).T
            least = NEGLIGIBLE * np.abs(weights).max(axis=1, keepdims=True)
            for row, chosen in zip(rows, weights > least, strict=True):
                decoded[row] = frozenset(known[place] for place in np.flatnonzero(chosen))
        return decoded

    def centre(self, values: Any, weights: Any) -> NDArray[Any]:
        """For weights ``(nodes, n)`` the sets decoded from the mean projection of n label sets.

        As many labels are sought as a set has on average under the weights, at least one, among those the
        values have. The answer has the form of the values: frozensets ``(nodes,)``, or 0/1 rows
        ``(nodes, labels)``.
        """
        count, sets, labels = _members(values, "values")
        given = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        if (
            given.ndim != 2
            or given.shape[1] != count
            or not (given >= 0).all()
            or not given.any(axis=1).all()
        ):
            raise InputError(
                f"weights: expected rows of {count} numbers of at least 0, one per set and not all 0, "
                f"got {describe(weights)}"
            )
        given = given / given.sum(axis=1, keepdims=True)
        lengths = np.bincount(np.unique(np.stack([sets, labels], axis=1), axis=0)[:, 0], minlength=count)
        sizes = np.maximum(np.rint(given @ lengths), 1.0).astype(np.int64)
        decoded = self.decode(given @ self._project(values, "values"), np.unique(labels), sizes)
        if not is_numeric(values):
            return decoded
        rows = np.zeros((len(given), values.shape[1]))
        for row, chosen in zip(rows, decoded, strict=True):
            row[list(chosen)] = 1.0
        return rows

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse what is not a label set: see `kernelbp.kernels.check_values`."""
        _members(values, name)
        return values

    def _project(self, values: Any, name: str) -> NDArray[np.float64]:
        count, sets, labels = _members(values, name)
        if len(labels) == 0:
            return np.zeros((count, self.dimension))
        used, columns = np.unique(labels, return_inverse=True)
        directions = np.stack([_direction(self.seed, int(label), self.dimension) for label in used])
        indicators = scipy.sparse.csr_array(
            (np.ones(len(labels)), (sets, columns.reshape(-1))), shape=(count, len(used))
        )
        indicators.sum_duplicates()
        indicators.data[:] = 1.0  # a label named twice counts once
        projected: NDArray[np.float64] = indicators @ directions
        return projected


@functools.lru_cache(maxsize=4096)
def _direction(seed: int, label: int, dimension: int) -> NDArray[np.float64]:
    """The column of A that belongs to a label, shape ``(dimension,)``."""
    column = np.random.default_rng([seed, label]).standard_normal(dimension) / math.sqrt(dimension)
    column.flags.writeable = False
    return column


def _members(values: Any, name: str) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of sets, and for every member its set and its label."""
    expected = "expected 0/1 indicator rows (n, labels) or a sequence of collections of integer labels"
    if is_numeric(values) and values.size > 0:
        if values.ndim != 2:
            raise InputError(f"{name}: {expected}, got {describe(values)}")
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            position = int(np.argmax(wrong.any(axis=1)))
            raise InputError(
                f"{name}: {expected}, got {values[position][wrong[position]][0]} in row {position}"
            )
        sets, labels = np.nonzero(values)
        return len(values), sets, labels
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(f"{name}: {expected}, got {describe(values)}")
    members: list[list[Any]] = []
    for position, collection in enumerate(values):
        if not isinstance(collection, Collection) or isinstance(collection, str | bytes | Mapping):
            raise InputError(f"{name}: {expected}, got {describe(collection)} at position {position}")
        members.append(list(collection))
    listed = list(chain.from_iterable(members))
    sets = np.repeat(np.arange(len(members)), [len(labels) for labels in members])
    # first whether types and range will do, which is quick; only if not, where the trouble is
    if not all(map(_is_label_type, set(map(type, listed)))) or not _in_range(
        min(listed, default=0), max(listed, default=0)
    ):
        place = next(
            i for i, label in enumerate(listed) if not (_is_label_type(type(label)) and _in_range(label))
        )
        raise InputError(
            f"{name}: {expected} of at least 0, got label {listed[place]!r} at position {sets[place]}"
        )
    return len(members), sets, np.array(listed, dtype=np.int64)


def _is_label_type(kind: type) -> bool:
    return issubclass(kind, numbers.Integral) and not issubclass(kind, bool)


def _in_range(*labels: int) -> bool:
    return all(0 <= label < 2**63 for label in labels)
