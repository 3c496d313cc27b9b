"""A kernel given by its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain
from kernelbp.kernels.inputs import describe, finite_rows

ASYMMETRY = 1e-10
"""Difference between two halves of a matrix that passes for rounding, relative to its largest entry."""


@dataclass(frozen=True, eq=False, repr=False)
class Precomputed(Algebra):
    r"""A kernel read from a table, :math:`k(i, j) = K_{ij}`; values are indices into it.

    For values that only some other program can compare: graphs, molecules, recordings.

    Parameters
    ----------
    matrix : (N, N) array
        Symmetric and positive semidefinite. Symmetry, finiteness and the diagonal are checked here;
        `kernelbp.testing.check_kernel` checks the rest. A read-only copy is kept.

    Notes
    -----
    Values are whole numbers from 0 to N - 1, as ``(n,)`` or ``(n, 1)``, integers or floats.

    Examples
    --------
    >>> from kernelbp.kernels import Precomputed
    >>> kernel = Precomputed([[2.0, 1.0], [1.0, 3.0]])
    >>> kernel
    Precomputed(matrix of shape (2, 2))
    >>> kernel([1, 0, 1], [0])
    array([[1.],
           [2.],
           [1.]])
    """

    matrix: NDArray[np.float64]

    domain: ClassVar[Domain] = "other"

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", _kernel_matrix(self.matrix))

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of n indices against m."""
        rows = self._indices(X, "X")
        columns = rows if Y is None else self._indices(Y, "Y")
        return self.matrix[np.ix_(rows, columns)]

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        rows = self._indices(X, "X")
        return self.matrix[rows, rows]

    def check_values(self, values: Any, name: str) -> Any:
        """Refuse what is not an index into the matrix: see `kernelbp.kernels.check_values`."""
        self._indices(values, name)
        return values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Precomputed):
            return NotImplemented
        return np.array_equal(self.matrix, other.matrix)

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix.tobytes()))

    def __repr__(self) -> str:
        return f"Precomputed(matrix of shape {self.matrix.shape})"

    def _indices(self, values: Any, name: str) -> NDArray[np.intp]:
        size = len(self.matrix)
        rows = finite_rows(values, name)
        if rows.shape[1] != 1 and len(rows) > 0:
            raise InputError(
                f"{name}: expected one index per value, shape (n,) or (n, 1), got {describe(values)}"
            )
        numbers = rows.reshape(-1)
        wrong = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= size)
        if wrong.any():
            position = int(np.argmax(wrong))
            raise InputError(
                f"{name}: expected whole numbers from 0 to {size - 1}, indices into the precomputed matrix, "
                f"got {numbers[position]:g} at position {position}"
            )
        return numbers.astype(np.intp)


def _kernel_matrix(matrix: Any) -> NDArray[np.float64]:
    try:
        table = np.array(matrix, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InputError(f"matrix: expected a square array of real numbers, got {describe(matrix)}") from None
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) == 0:
        raise InputError(f"matrix: expected a square array of real numbers, got shape {table.shape}")
    if not np.isfinite(table).all():
        raise InputError("matrix: expected finite numbers, got NaN or infinity")
    difference = np.abs(table - table.T)
    if difference.max() > ASYMMETRY * np.abs(table).max():
        i, j = (int(index) for index in np.unravel_index(int(np.argmax(difference)), table.shape))
        raise InputError(
            f"matrix: expected a symmetric array, got {table[i, j]:g} at ({i}, {j}) "
            f"and {table[j, i]:g} at ({j}, {i})"
        )
    if table.diagonal().min() < 0:
        raise InputError(
            f"matrix: expected a positive semidefinite array, got {table.diagonal().min():g} on the diagonal"
        )
    table.flags.writeable = False
    return table
