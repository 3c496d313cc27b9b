"""Beliefs read on domains that have no mean and no density: uncertainty, distances, centres.

Functions of the beliefs of one variable and of its kernel. They use the public face of `VariableBeliefs`
only: `probabilities`, `atoms`, `mode`. What a kernel offers is taken up where it does:

``distance(X, Y)``
    distances ``(n, m)`` in the domain's own units: radians, pairs of items, ...;
``centre(values, weights)``
    the domain's own mean of n values, for each row of weights;
``centre_exponent``
    the power of the distance that a centre minimises; 2 if not offered.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels import Kernel, domain
from kernelbp.kernels.groups import frechet_mean
from kernelbp.kernels.inputs import row_pair
from kernelbp.values import as_column, column_of

__all__ = ["centre", "distances", "distances_in_pairs", "entropy", "expected_distance"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

CELLS = 1 << 21
"""Distances evaluated at a time."""
PAIRED = 64
"""Pairs whose distances are worked out together, each with all others of them."""


class Readable(Protocol):
    """The part of `kernelbp.inference.beliefs.VariableBeliefs` that is read here."""

    @property
    def atoms(self) -> Array:
        """The values beliefs are tabulated at."""

    def probabilities(self) -> Matrix:
        """Mass of each node's belief on the atoms."""

    def mode(self, candidates: Any = None) -> Array:
        """Most probable value of each node."""


def entropy(beliefs: Readable) -> Matrix:
    """How undecided each belief is, in nats, shape (nodes,).

    The entropy of the probabilities on the atoms: 0 where one value has all of it, the logarithm of the
    number of atoms where all are alike. For numbers it depends on how finely the atoms tabulate them; compare
    nodes by it, not variables.

    Parameters
    ----------
    beliefs : VariableBeliefs

    Examples
    --------
    >>> import kernelbp as kb
    >>> from kernelbp.inference.reading import entropy
    >>> model = kb.Model({"sky": kb.kernels.Delta()}, {"then": kb.Relation("sky", "sky")})
    >>> model = model.fit({"then": (["sun", "sun", "rain", "rain"], ["sun", "rain", "sun", "rain"])})
    >>> chain = kb.Graph.chain(2, variable="sky", relation="then").fix([0], ["sun"])
    >>> entropy(model.infer(chain)["sky"]).round(3)
    array([0.   , 0.693])
    """
    mass = beliefs.probabilities()
    logs = np.log(np.where(mass > 0, mass, 1.0))
    return np.maximum(-(mass * logs).sum(axis=1), 0.0)


def expected_distance(beliefs: Readable, kernel: Kernel, to: Any = None) -> Matrix:
    """How far from its mode, on average, each belief places the value, shape (nodes,).

    Parameters
    ----------
    beliefs : VariableBeliefs
    kernel : Kernel
        That of the variable. The distance is the one it offers; see `distances`.
    to : values, one per node, optional
        By default the modes.

    Examples
    --------
    >>> import kernelbp as kb
    >>> from kernelbp.inference.reading import expected_distance
    >>> model = kb.Model({"sky": kb.kernels.Delta()}, {"then": kb.Relation("sky", "sky")}, mixing=0.0)
    >>> today = ["sun"] * 4 + ["rain"] * 4
    >>> tomorrow = ["sun", "sun", "sun", "rain", "rain", "rain", "rain", "sun"]
    >>> chain = kb.Graph.chain(2, variable="sky", relation="then").fix([0], ["sun"])
    >>> beliefs = model.fit({"then": (today, tomorrow)}).infer(chain)
    >>> expected_distance(beliefs["sky"], kb.kernels.Delta()).round(3)
    array([0.  , 0.25])
    """
    mass, atoms = beliefs.probabilities(), beliefs.atoms
    if to is None:
        points = beliefs.mode()
    else:
        points = column_of(kernel, to, "to", as_column(atoms, "atoms")[1])[0]
        if len(points) != len(mass):
            raise InputError(f"to: expected {len(mass)} values, one per node, got {len(points)}")
    result = np.empty(len(mass))
    step = max(1, CELLS // max(len(atoms), 1))
    for begin in range(0, len(mass), step):
        part = slice(begin, begin + step)
        result[part] = (mass[part] * distances(kernel, points[part], atoms)).sum(axis=1)
    return result


def centre(beliefs: Readable, kernel: Kernel, candidates: Any = None) -> Array:
    """The value in the middle of each belief, as the domain understands it, shape (nodes,) or (nodes, d).

    Where the kernel offers its own centre, that: the Frechet mean of rotations and matrices, the mean
    direction of angles, a consensus of rankings, the decoded labels of a projection. On the sphere the
    Frechet mean, on R^d the mean. Elsewhere, and whenever candidates are given, the candidate with the
    least expected squared distance to the value (for rankings: the least expected distance, as Kemeny has
    it).

    Parameters
    ----------
    beliefs : VariableBeliefs
    kernel : Kernel
        That of the variable.
    candidates : values to choose from, optional
        By default the domain's own centre, or the atoms where it has none.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> from kernelbp.inference.reading import centre
    >>> kernel = kb.kernels.Mallows(1.0)
    >>> ranks = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1]])
    >>> model = kb.Model({"ranking": kernel}, {"like": kb.Relation("ranking", "ranking")})
    >>> model = model.fit({"like": (np.repeat(ranks, 3, axis=0), np.tile(ranks, (3, 1)))})
    >>> chain = kb.Graph.chain(2, variable="ranking", relation="like").fix([0], ranks[1:2])
    >>> centre(model.infer(chain)["ranking"], kernel)
    array([[1., 0., 2.],
           [0., 1., 2.]])
    """
    mass, atoms = beliefs.probabilities(), beliefs.atoms
    offered = getattr(kernel, "centre", None)
    numbers = atoms.dtype != object
    if candidates is None and offered is not None:
        found = np.asarray(offered(atoms, mass))
    elif candidates is None and domain(kernel) == "sphere":
        found = frechet_mean(atoms, mass)
    elif candidates is None and domain(kernel) == "real" and numbers:
        found = mass @ atoms
    else:
        return _best_candidate(mass, atoms, kernel, candidates)
    return _as_atoms(found, atoms)


def _best_candidate(mass: Matrix, atoms: Array, kernel: Kernel, candidates: Any) -> Array:
    column = atoms
    if candidates is not None:
        column = column_of(kernel, candidates, "candidates", as_column(atoms, "atoms")[1])[0]
    if not len(column):
        raise InputError("candidates: expected at least one value, got none")
    apart = distances(kernel, atoms, column)
    chosen = column[(mass @ apart ** getattr(kernel, "centre_exponent", 2)).argmin(axis=1)]
    return _as_atoms(chosen, atoms)


def _as_atoms(values: Array, atoms: Array) -> Array:
    """Rows ``(nodes, d)`` in the form of the atoms: numbers lose their second axis, matrices regain theirs."""
    if values.ndim != 2 or atoms.ndim == 2 or atoms.dtype == object:
        return values
    return values[:, 0] if atoms.ndim == 1 else values.reshape(len(values), *atoms.shape[1:])


def distances(kernel: Kernel, X: Any, Y: Any) -> Matrix:
    """Distances ``(n, m)`` between values, in the units of their domain.

    Those the kernel offers, if it does; angles in radians on the sphere; lengths on R^d; 0 and 1 on finite
    values; and elsewhere the distance of the kernel's features, the root of k(x, x) + k(y, y) - 2 k(x, y).

    Parameters
    ----------
    kernel : Kernel
    X, Y : n and m values

    Examples
    --------
    >>> from kernelbp.inference.reading import distances
    >>> from kernelbp.kernels import Gaussian, Sphere
    >>> distances(Gaussian(), [0.0, 3.0], [1.0])
    array([[1.],
           [2.]])
    >>> distances(Sphere(), [[1.0, 0.0]], [[0.0, 1.0], [-1.0, 0.0]]).round(3)
    array([[1.571, 3.142]])
    """
    offered = getattr(kernel, "distance", None)
    where = domain(kernel)
    apart: Matrix
    if offered is not None:
        apart = np.asarray(offered(X, Y), dtype=np.float64)
    elif where == "sphere":
        apart = 2.0 * np.arcsin(np.minimum(scipy.spatial.distance.cdist(*row_pair(X, Y)) / 2.0, 1.0))
    elif where == "real":
        apart = scipy.spatial.distance.cdist(*row_pair(X, Y))
    elif where == "finite":
        apart = (np.asarray(kernel(X, Y)) <= 0).astype(np.float64)
    else:
        squares = np.add.outer(kernel.diag(X), kernel.diag(Y)) - 2.0 * np.asarray(kernel(X, Y))
        apart = np.sqrt(np.maximum(squares, 0.0))
    if apart.shape != (len(X), len(Y)):
        raise UnsupportedError(
            f"kernel: its distance(X, Y) should have shape {(len(X), len(Y))}, got {apart.shape}"
        )
    return apart


def distances_in_pairs(kernel: Kernel, X: Any, Y: Any) -> Matrix:
    """Distances ``(n,)`` of each of n values from the one in the same place of the other n; see `distances`.

    Examples
    --------
    >>> from kernelbp.inference.reading import distances_in_pairs
    >>> from kernelbp.kernels import Gaussian
    >>> distances_in_pairs(Gaussian(), [0.0, 3.0], [1.0, 1.0])
    array([1., 2.])
    """
    blocks = (slice(begin, begin + PAIRED) for begin in range(0, len(X), PAIRED))
    return np.concatenate([np.empty(0), *(distances(kernel, X[b], Y[b]).diagonal() for b in blocks)])
