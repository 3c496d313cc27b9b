"""Beliefs that are mixtures: Gaussian bumps on R^d, von Mises-Fisher bumps on the sphere, or atoms.

What the rivals return, read through the same methods as `kernelbp.inference.beliefs.Beliefs`. Every
method works on all nodes at once, in blocks, so that (nodes, points, components) never stands in
memory whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ive, ndtr

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.graph import Graph
from kernelbp.inference.run import Verdict
from kernelbp.values import Column, Kind, as_column, is_number, is_whole

__all__ = [
    "MixtureBeliefs",
    "MixtureVariableBeliefs",
    "Mixtures",
    "draw_on_sphere",
    "log_sphere_factor",
    "sphere_mean_length",
]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

READ_CELLS = 1 << 20
"""Cells (nodes x points x components) evaluated at a time while reading beliefs."""
HALVINGS = 52
"""Bisections of a quantile's bracket: down to rounding error."""
REACH = 40.0
"""Standard deviations beyond which no quantile of a component is looked for."""
STARTS = 64
"""Most components of a node at whose centres the climb to its mode may begin."""
CLIMB_STEPS = 200
"""Most steps of that climb."""
SETTLED = 1e-7
"""The climb ends when no node moves by more than this share of its components' width."""
QUADRATURE_POINTS = 200
"""About how many points of each node an expectation is taken over, where components are few."""
LEAST_ORDER, MOST_ORDER = 5, 64
"""Points of Gauss's rule for each axis of a component."""
MOST_AXES = 3
"""Most axes on which Gauss's rule is laid out as a product."""
ANGLES = 16
"""Angles from a bump's centre at which an expectation on the sphere is taken."""
SMALL = 1e-6
"""Concentration under which a bump is the uniform distribution."""
UNIT = 1e-6
"""How far from 1 the norm of a direction may be."""
ATOM_WINDOW = 1e-3
"""Width, relative to its size, of the window that shows an atom where no other component gives a scale."""


@dataclass(frozen=True, eq=False)
class Mixtures:
    """One mixture for each node of a variable.

    Attributes
    ----------
    points : (nodes, n, d) centres; unit vectors on the sphere
    weights : (nodes, n) at least 0, rows summing to one
    covariances : (nodes, n, d, d) on R^d; all zero for an atom, such as a fixed node's value
    concentrations : (nodes, n) of von Mises-Fisher bumps on the sphere; infinite for an atom

    Exactly one of `covariances` and `concentrations` is given.

    Examples
    --------
    >>> Mixtures(np.zeros((2, 1, 1)), np.ones((2, 1)), covariances=np.ones((2, 1, 1, 1))).domain
    'real'
    """

    points: Matrix
    weights: Matrix
    covariances: Matrix | None = None
    concentrations: Matrix | None = None

    def __post_init__(self) -> None:
        if self.points.ndim != 3 or self.points.shape[1] == 0:
            raise InputError(
                f"points: expected shape (nodes, n, d) with n at least 1, got {self.points.shape}"
            )
        nodes, size, dimension = self.points.shape
        if (self.covariances is None) == (self.concentrations is None):
            raise InputError(
                "mixtures: expected either covariances (on R^d) or concentrations (on the sphere)"
            )
        expected: dict[str, tuple[int, ...]] = {"weights": (nodes, size)}
        if self.covariances is not None:
            expected["covariances"] = (nodes, size, dimension, dimension)
        else:
            expected["concentrations"] = (nodes, size)
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise InputError(f"{name}: expected shape {shape}, got {getattr(self, name).shape}")
        if (self.weights < 0).any() or not np.allclose(self.weights.sum(axis=1), 1.0):
            raise InputError("weights: expected numbers of at least 0 that sum to one for each node")

    @property
    def domain(self) -> str:
        """Either "real" or "sphere"."""
        return "real" if self.covariances is not None else "sphere"

    @cached_property
    def atomic(self) -> NDArray[np.bool_]:
        """Which components are atoms, (nodes, n)."""
        if self.covariances is not None:
            return np.asarray(~self.covariances.any(axis=(2, 3)))
        assert self.concentrations is not None
        return np.isinf(self.concentrations)

    @cached_property
    def roots(self) -> Matrix:
        """Lower Cholesky factors of the covariances, (nodes, n, d, d); zero for atoms."""
        assert self.covariances is not None
        if self.points.shape[2] == 1:
            return np.sqrt(self.covariances)
        spread = np.where(self.atomic[..., None, None], np.eye(self.points.shape[2]), self.covariances)
        return np.where(self.atomic[..., None, None], 0.0, np.linalg.cholesky(spread))

    @cached_property
    def windows(self) -> Matrix:
        """As `roots`, or concentrations (nodes, n), with a narrow window in place of each atom.

        It is as wide as the components of the other nodes typically are.
        """
        if self.covariances is not None:
            variances = np.einsum("snii->sni", self.covariances)
            if not self.atomic.all():
                width = np.sqrt(np.median(variances[~self.atomic], axis=0))
            else:
                size = np.abs(self.points).max(axis=(0, 1), initial=0.0)
                width = ATOM_WINDOW * np.where(size > 0, size, 1.0)
            return np.where(self.atomic[..., None, None], np.diag(width), self.roots)
        assert self.concentrations is not None
        narrow = ATOM_WINDOW**-2
        if not self.atomic.all():
            narrow = max(float(np.median(self.concentrations[~self.atomic])), 1.0)
        return np.where(self.atomic, narrow, self.concentrations)


# ---------------------------------------------------------------------- bumps on the sphere


def log_sphere_factor(concentration: Matrix, dimension: int) -> Matrix:
    """Log of what makes exp(concentration (<x, mu> - 1)) a density on unit vectors of R^dimension.

    Examples
    --------
    >>> float(np.exp(log_sphere_factor(np.zeros(1), 3))[0] * 4 * np.pi)
    1.0
    """
    order = dimension / 2 - 1
    uniform = gammaln(dimension / 2) - np.log(2) - dimension / 2 * np.log(np.pi)
    kappa = np.maximum(concentration, SMALL)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.log(ive(order, kappa))
        # Where the Bessel function underflows, its first term is all there is.
        first = order * np.log(kappa / 2) - gammaln(order + 1) - kappa
        # Beyond the range of SciPy's Bessel function, its limit.
        limit = -0.5 * np.log(2 * np.pi * kappa)
    scaled = np.where(np.isfinite(scaled), scaled, np.where(kappa > 1e3, limit, first))
    value: Matrix = order * np.log(kappa) - dimension / 2 * np.log(2 * np.pi) - scaled
    return np.where(concentration <= SMALL, uniform, value)


def sphere_mean_length(concentration: Matrix, dimension: int) -> Matrix:
    """Length of the mean of a von Mises-Fisher bump: 0 if uniform, 1 for an atom.

    Examples
    --------
    >>> sphere_mean_length(np.array([0.0, 2.0, np.inf]), 3).round(4)
    array([0.    , 0.5373, 1.    ])
    """
    kappa = np.clip(concentration, SMALL, 1e8)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = ive(dimension / 2, kappa) / ive(dimension / 2 - 1, kappa)
    ratio = np.where(np.isfinite(ratio), ratio, kappa / dimension)
    return np.where(concentration <= SMALL, 0.0, np.where(np.isinf(concentration), 1.0, ratio))


def draw_on_sphere(means: Matrix, concentration: Matrix, rng: np.random.Generator) -> Matrix:
    """One draw from each von Mises-Fisher bump: means (..., d), concentrations (...), draws (..., d).

    The cosine to the centre is drawn by rejection from a transformed beta variable (Ulrich 1984, Wood
    1994), the direction away from it uniformly.

    Examples
    --------
    >>> draws = draw_on_sphere(np.tile([0.0, 0.0, 1.0], (5000, 1)), np.full(5000, 2.0), np.random.default_rng(0))
    >>> bool(abs(draws[:, 2].mean() - 0.5373) < 0.02)
    True
    """
    dimension = means.shape[-1]
    shape = means.shape[:-1]
    flat = means.reshape(-1, dimension)
    kappa = np.broadcast_to(concentration, shape).ravel()
    known = np.isinf(kappa)
    kappa = np.where(known, 1.0, np.maximum(kappa, SMALL))
    if dimension == 1:
        toward = rng.random(len(flat)) < 1 / (1 + np.exp(-2 * kappa))
        return np.where((toward | known)[:, None], flat, -flat).reshape(means.shape)
    ambient = dimension - 1
    # Written so that nothing cancels at large concentrations.
    b = ambient / (2 * kappa + np.sqrt(4 * kappa**2 + ambient**2))
    x = (1 - b) / (1 + b)
    c = kappa * x + ambient * np.log(4 * b / (1 + b) ** 2)
    cosine = np.ones(len(flat))
    left = np.flatnonzero(~known)
    while len(left):
        z = rng.beta(ambient / 2, ambient / 2, len(left))
        own = b[left]
        proposed = (1 - (1 + own) * z) / (1 - (1 - own) * z)
        level = kappa[left] * proposed + ambient * np.log(1 - x[left] * proposed) - c[left]
        taken = level >= np.log(rng.random(len(left)))
        cosine[left[taken]] = proposed[taken]
        left = left[~taken]
    away = rng.standard_normal(flat.shape)
    away -= np.einsum("nd,nd->n", away, flat)[:, None] * flat
    away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    sine = np.sqrt(np.maximum(1 - cosine**2, 0.0))
    drawn = cosine[:, None] * flat + sine[:, None] * away
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn.reshape(means.shape)


def _tangents(points: Matrix) -> Matrix:
    """Orthonormal vectors perpendicular to unit vectors (..., d), shape (..., d - 1, d)."""
    dimension = points.shape[-1]
    last = np.zeros(dimension)
    last[-1] = 1.0
    # The reflection that carries the last axis to the point carries the others to its tangents. The point
    # or its opposite, whichever is farther from the axis, so that the mirror is well defined.
    mirror = points + np.where(points[..., -1:] >= 0, 1.0, -1.0) * last
    mirror = mirror / np.linalg.norm(mirror, axis=-1, keepdims=True)
    whole: Matrix = np.eye(dimension) - 2 * mirror[..., :, None] * mirror[..., None, :]
    return whole[..., :-1, :]


# ---------------------------------------------------------------------- beliefs


@dataclass(frozen=True, eq=False)
class MixtureVariableBeliefs:
    """Beliefs of all nodes of one variable, in the graph's order, each a mixture.

    The first axis of every answer is the nodes.
    """

    mixtures: Mixtures = field(repr=False)
    kind: Kind = field(repr=False)
    variable: str

    @property
    def n_nodes(self) -> int:
        """Number of nodes of this variable."""
        return len(self.mixtures.points)

    # ------------------------------------------------------------------ whole distributions

    def density(self, points: Any, *, nodes: ArrayLike | None = None) -> Matrix:
        """Belief at given points, shape (nodes, points), integrating to one over R^d or the sphere.

        A fixed node shows a narrow window at its value, as wide as a typical component of the others.

        Parameters
        ----------
        points : array of values
        nodes : numbers of the nodes wanted (within this variable), optional
            By default all.
        """
        column = self._as_values(points, "points")
        chosen = self._chosen(nodes)
        result = np.empty((len(chosen), len(column)))
        for part, logs in self._log_densities(column[None], chosen):
            result[part] = np.exp(logs)
        return result

    def expect(self, function: Callable[[Array], ArrayLike]) -> Matrix:
        """Expectation of a function of the node's value, shape (nodes,) or (nodes, k).

        Parameters
        ----------
        function : callable
            Takes an array of n values as the user writes them, returns n numbers or an (n, k) array.

        Notes
        -----
        By quadrature: on R^d (d up to 3) Gauss's rule for every component, of at least five points an
        axis, so exact for polynomials up to degree nine; in more dimensions a rule exact up to degree
        three; on the sphere a rule over the angle and the axes of each bump.
        """
        parts = []
        for part, points, weights in self._quadrature():
            values = self.kind.restore(points.reshape(-1, points.shape[-1]))
            table = np.asarray(function(values), dtype=np.float64)
            if table.ndim not in (1, 2) or len(table) != len(values):
                raise InputError(
                    f"function: expected {len(values)} numbers or rows, one per value, got shape {table.shape}"
                )
            table = table.reshape(part.stop - part.start, -1, *table.shape[1:])
            parts.append(np.einsum("sn,sn...->s...", weights, table))
        return np.concatenate(parts) if parts else np.empty(0)

    # ------------------------------------------------------------------ summaries

    def mean(self) -> Array:
        """Mean of each belief, (nodes,) for numbers or (nodes, d) for vectors.

        On the sphere the expected vector, shorter than 1; its direction is the mean direction.
        """
        return self._flat(self._mean())

    def std(self) -> Array:
        """Standard deviation of each belief, axis by axis."""
        mixtures, centre = self.mixtures, self._mean()
        if mixtures.covariances is not None:
            within = np.einsum("sn,snii->si", mixtures.weights, mixtures.covariances)
            apart = (mixtures.points - centre[:, None]) ** 2
            return self._flat(np.sqrt(within + np.einsum("sn,snd->sd", mixtures.weights, apart)))
        assert mixtures.concentrations is not None
        dimension = mixtures.points.shape[2]
        if dimension == 1:
            return self._flat(np.sqrt(np.maximum(1 - centre**2, 0.0)))
        kappa = np.maximum(mixtures.concentrations, SMALL)
        across = sphere_mean_length(kappa, dimension) / kappa  # E[sin^2] / (d - 1)
        across = np.where(mixtures.concentrations <= SMALL, 1 / dimension, across)
        second = across[..., None] + (1 - dimension * across)[..., None] * mixtures.points**2
        return self._flat(
            np.sqrt(np.maximum(np.einsum("sn,snd->sd", mixtures.weights, second) - centre**2, 0.0))
        )

    def mode(self, candidates: Any = None) -> Array:
        """Most probable value of each node.

        Parameters
        ----------
        candidates : values to choose from, optional
            By default the mixture's highest point: the densest of the components' centres, from
            which the density is climbed.
        """
        if candidates is not None:
            column = self._as_values(candidates, "candidates")
            if not len(column):
                raise InputError("candidates: expected at least one value, got none")
            best = np.empty(self.n_nodes, dtype=np.intp)
            for part, logs in self._log_densities(column[None], np.arange(self.n_nodes)):
                best[part] = logs.argmax(axis=1)
            values = column[best]
        else:
            values = self._climbed(self._densest_centres())
        known = self._fixed
        values[known] = self.mixtures.points[known, 0]
        return self.kind.restore(values)

    def quantile(self, probability: float | ArrayLike) -> Matrix:
        """Quantiles of each belief over numbers: (nodes,) for one probability, (nodes, k) for k."""
        if self.kind.form != "scalar":
            raise UnsupportedError(
                f"quantile is for variables of numbers; {self.variable!r} holds {self.kind.describe()}; "
                "use expect(f) or sample()"
            )
        try:
            wanted = np.atleast_1d(np.asarray(probability, dtype=np.float64))
        except (TypeError, ValueError):
            wanted = np.array([np.nan])
        if wanted.ndim != 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise InputError(f"probability: expected numbers between 0 and 1, got {probability!r:.80}")
        result = np.empty((self.n_nodes, len(wanted)))
        for part in self._blocks(max(len(wanted), 1) * self._size):
            result[part] = self._inverse_cdf(part, wanted)
        known = self._fixed
        result[known] = self.mixtures.points[known, 0]
        return result[:, 0] if np.ndim(probability) == 0 else result

    def interval(self, coverage: float = 0.9) -> Matrix:
        """The central interval that holds this much of each belief, shape (nodes, 2)."""
        if not (is_number(coverage) and 0 < coverage < 1):
            raise InputError(f"coverage: expected a number between 0 and 1, got {coverage!r}")
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def sample(self, size: int, *, seed: int | np.random.Generator | None = None) -> Array:
        """Draw from each node's belief on its own, shape (nodes, size) or (nodes, size, d).

        Parameters
        ----------
        size : int
        seed : int or Generator, optional
        """
        if not is_whole(size) or size < 0:
            raise InputError(f"size: expected a whole number of at least 0, got {size!r}")
        rng = np.random.default_rng(seed)
        mixtures, dimension = self.mixtures, self.mixtures.points.shape[2]
        drawn = np.empty((self.n_nodes, size, dimension))
        for part in self._blocks(max(size, self._size, 1) * dimension**2):
            rows = np.arange(part.start, part.stop)[:, None]
            component = _pick(mixtures.weights[part], rng.random((len(rows), size)))
            centres = mixtures.points[rows, component]
            if mixtures.covariances is not None:
                noise = rng.standard_normal(centres.shape)
                drawn[part] = centres + np.einsum("snij,snj->sni", mixtures.roots[rows, component], noise)
            else:
                assert mixtures.concentrations is not None
                drawn[part] = draw_on_sphere(centres, mixtures.concentrations[rows, component], rng)
        known = self._fixed
        drawn[known] = mixtures.points[known, :1]
        return self.kind.restore(drawn)

    # ------------------------------------------------------------------ inside

    @property
    def _size(self) -> int:
        return self.mixtures.points.shape[1]

    @property
    def _fixed(self) -> NDArray[np.intp]:
        """Nodes whose whole belief is one atom."""
        mixtures = self.mixtures
        same = (mixtures.points == mixtures.points[:, :1]).all(axis=(1, 2))
        return np.flatnonzero(same & mixtures.atomic.all(axis=1))

    def _flat(self, values: Matrix) -> Matrix:
        flat: Matrix = values[:, 0] if self.kind.form == "scalar" else values
        return flat

    def _mean(self) -> Matrix:
        mixtures = self.mixtures
        weights = mixtures.weights
        if mixtures.concentrations is not None:
            weights = weights * sphere_mean_length(mixtures.concentrations, mixtures.points.shape[2])
        mean: Matrix = np.einsum("sn,snd->sd", weights, mixtures.points)
        known = self._fixed
        mean[known] = mixtures.points[known, 0]
        return mean

    def _as_values(self, given: Any, name: str) -> Column:
        column, kind = as_column(given, name)
        self.kind.merged(kind, f"{name} of variable {self.variable!r}")
        if self.mixtures.domain == "sphere" and (np.abs(np.linalg.norm(column, axis=1) - 1) > UNIT).any():
            raise InputError(f"{name} of variable {self.variable!r}: expected unit vectors")
        return column

    def _chosen(self, nodes: ArrayLike | None) -> NDArray[np.intp]:
        if nodes is None:
            return np.arange(self.n_nodes)
        array = np.atleast_1d(np.asarray(nodes))
        if array.size == 0:
            return np.empty(0, dtype=np.intp)
        if array.ndim != 1 or array.dtype.kind not in "iu" or ((array < 0) | (array >= self.n_nodes)).any():
            raise InputError(f"nodes: expected numbers in 0 ... {self.n_nodes - 1}, got {nodes!r:.80}")
        return array.astype(np.intp)

    def _blocks(self, cells: int, count: int | None = None) -> Iterator[slice]:
        """All nodes (or `count` of them), so many at a time that `cells` numbers for each fit."""
        total = self.n_nodes if count is None else count
        step = max(READ_CELLS // max(cells, 1), 1)
        for begin in range(0, total, step):
            yield slice(begin, min(begin + step, total))

    def _log_densities(self, points: Matrix, nodes: NDArray[np.intp]) -> Iterator[tuple[slice, Matrix]]:
        """Blocks of the given nodes with log densities at points (nodes or 1, k, d), each (block, k)."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.mixtures.weights)
        shared = len(points) == 1
        for part in self._blocks(points.shape[1] * self._size * points.shape[2], len(nodes)):
            own = nodes[part]
            logs = self._log_bumps(own, points if shared else points[part]) + log_weights[own, None, :]
            largest = logs.max(axis=2)
            yield part, largest + np.log(np.exp(logs - largest[..., None]).sum(axis=2))

    def _log_bumps(self, nodes: NDArray[np.intp], points: Matrix) -> Matrix:
        """Log density of each component at points (nodes or 1, k, d), shape (nodes, k, n)."""
        mixtures = self.mixtures
        centres, windows = mixtures.points[nodes], mixtures.windows[nodes]
        dimension = centres.shape[2]
        if mixtures.covariances is None:
            cosine = np.einsum(
                "skd,snd->skn", np.broadcast_to(points, (len(nodes), *points.shape[1:])), centres
            )
            return windows[:, None] * (cosine - 1) + log_sphere_factor(windows, dimension)[:, None]
        log_volume = np.log(np.einsum("snii->sni", windows)).sum(axis=2) + 0.5 * dimension * math.log(
            2 * math.pi
        )
        if dimension == 1:
            scaled = (points - centres[:, None, :, 0]) / windows[:, None, :, 0, 0]
            distance = scaled * scaled
        else:
            apart = points[:, :, None] - centres[:, None]
            scaled = np.einsum("snij,sknj->skni", np.linalg.inv(windows), apart)
            distance = np.einsum("skni,skni->skn", scaled, scaled)
        logs: Matrix = -0.5 * distance - log_volume[:, None]
        return logs

    def _densest_centres(self) -> Matrix:
        """For each node its component's centre at which the mixture is densest, (nodes, d)."""
        mixtures = self.mixtures
        every = np.arange(self.n_nodes)
        starts = mixtures.points
        if self._size > STARTS:
            with np.errstate(divide="ignore"):
                if mixtures.covariances is not None:
                    peak = -np.log(np.einsum("snii->sni", mixtures.windows)).sum(axis=2)
                else:
                    peak = log_sphere_factor(mixtures.windows, mixtures.points.shape[2])
                heights = np.log(mixtures.weights) + peak
            kept = np.argpartition(-heights, STARTS - 1, axis=1)[:, :STARTS]
            starts = starts[every[:, None], kept]
        best = np.empty(self.n_nodes, dtype=np.intp)
        for part, logs in self._log_densities(starts, every):
            best[part] = logs.argmax(axis=1)
        densest: Matrix = starts[every, best].copy()
        return densest

    def _climbed(self, values: Matrix) -> Matrix:
        """Climb the density from values (nodes, d).

        Each step goes to a mean of the centres, weighted by how much (and how sharply) each component is
        felt there, and never goes down.
        """
        mixtures, dimension = self.mixtures, values.shape[1]
        if self._size == 1:
            return values
        windows = mixtures.windows
        if mixtures.covariances is not None:
            width = np.sqrt(np.einsum("snij,snij->sn", windows, windows)).min(axis=1)
        else:
            width = 1 / np.sqrt(np.maximum(windows.max(axis=1), 1.0))
        active = np.arange(self.n_nodes)
        for _ in range(CLIMB_STEPS):
            moved = np.empty((len(active), dimension))
            for part in self._blocks(self._size * dimension**2, len(active)):
                moved[part] = self._step_up(active[part], values[active[part]])
            change = np.linalg.norm(moved - values[active], axis=1)
            values[active] = moved
            active = active[change > SETTLED * width[active]]
            if not len(active):
                break
        return values

    def _step_up(self, nodes: NDArray[np.intp], values: Matrix) -> Matrix:
        mixtures = self.mixtures
        logs = self._log_bumps(nodes, values[:, None])[:, 0]
        logs -= logs.max(axis=1, keepdims=True)
        felt = mixtures.weights[nodes] * np.exp(logs)
        lost = ~(felt.sum(axis=1) > 0)
        felt[lost] = 1.0
        centres, windows = mixtures.points[nodes], mixtures.windows[nodes]
        if mixtures.covariances is None:
            toward = np.einsum("sn,snd->sd", felt * windows, centres)
            length = np.linalg.norm(toward, axis=1, keepdims=True)
            lost |= length[:, 0] == 0
            moved = toward / np.where(length > 0, length, 1.0)
        elif values.shape[1] == 1:
            sharp = felt / windows[:, :, 0, 0] ** 2
            moved = (np.einsum("sn,snd->sd", sharp, centres)) / sharp.sum(axis=1, keepdims=True)
        else:
            inverse = np.linalg.inv(windows)
            precision = np.einsum("sn,snki,snkj->snij", felt, inverse, inverse)
            pull = np.einsum("snij,snj->si", precision, centres)
            moved = np.linalg.solve(precision.sum(axis=1), pull[..., None])[..., 0]
        moved[lost] = values[lost]
        return moved

    def _inverse_cdf(self, part: slice, wanted: Matrix) -> Matrix:
        """Quantiles of a block of nodes by bisection, (block, k)."""
        mixtures = self.mixtures
        centres, widths = mixtures.points[part, :, 0], mixtures.roots[part, :, 0, 0]
        weights = mixtures.weights[part]
        used = weights > 0
        low = np.where(used, centres - REACH * widths, np.inf).min(axis=1)
        high = np.where(used, centres + REACH * widths, -np.inf).max(axis=1)
        shape = (len(centres), len(wanted))
        low, high = (np.broadcast_to(end[:, None], shape).copy() for end in (low, high))
        atoms = widths == 0
        scale = np.where(atoms, 1.0, widths)
        some_atoms = bool(atoms.any())
        smooth = np.where(atoms, 0.0, weights)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            apart = middle[..., None] - centres[:, None]
            below = np.einsum("sn,skn->sk", smooth, ndtr(apart / scale[:, None]))
            if some_atoms:
                below += np.einsum("sn,skn->sk", weights * atoms, (apart >= 0).astype(np.float64))
            reached = below >= wanted
            high = np.where(reached, middle, high)
            low = np.where(reached, low, middle)
        endless = (used & ~atoms).any(axis=1)[:, None]
        high = np.where((wanted == 0) & endless, -np.inf, high)
        return np.where((wanted == 1) & endless, np.inf, high)

    def _quadrature(self) -> Iterator[tuple[slice, Matrix, Matrix]]:
        """Blocks of nodes with points (block, k, d) and weights (block, k) that stand for their beliefs."""
        mixtures, dimension = self.mixtures, self.mixtures.points.shape[2]
        if mixtures.covariances is not None:
            nodes, shares = _gauss(dimension, self._size)
            for part in self._blocks(self._size * len(nodes) * dimension):
                offsets = np.einsum("snij,kj->snki", mixtures.roots[part], nodes)
                points = mixtures.points[part, :, None] + offsets
                weights = mixtures.weights[part, :, None] * shares
                count = part.stop - part.start
                yield part, points.reshape(count, -1, dimension), weights.reshape(count, -1)
            return
        assert mixtures.concentrations is not None
        directions = 2 * max(dimension - 1, 1)
        for part in self._blocks(self._size * ANGLES * directions * dimension):
            count = part.stop - part.start
            points, shares = _around(mixtures.points[part], mixtures.concentrations[part])
            weights = mixtures.weights[part, :, None] * shares
            yield part, points.reshape(count, -1, dimension), weights.reshape(count, -1)


def _gauss(dimension: int, components: int) -> tuple[Matrix, Matrix]:
    """Points (k, d) and weights (k,) for expectations under a standard normal."""
    if dimension > MOST_AXES:
        ends = np.sqrt(dimension) * np.concatenate([np.eye(dimension), -np.eye(dimension)])
        return ends, np.full(2 * dimension, 0.5 / dimension)
    order = int(np.clip(round((QUADRATURE_POINTS / components) ** (1 / dimension)), LEAST_ORDER, MOST_ORDER))
    line, shares = np.polynomial.hermite_e.hermegauss(order)
    shares = shares / shares.sum()
    axes = np.meshgrid(*([line] * dimension), indexing="ij")
    weights = shares
    for _ in range(dimension - 1):
        weights = np.multiply.outer(weights, shares)
    return np.stack([axis.ravel() for axis in axes], axis=1), weights.ravel()


def _around(centres: Matrix, concentrations: Matrix) -> tuple[Matrix, Matrix]:
    """Points (s, n, k, d) and weights (s, n, k) that stand for bumps on the sphere."""
    dimension = centres.shape[-1]
    known = np.isinf(concentrations)
    kappa = np.where(known, 1.0, concentrations)
    if dimension == 1:
        toward = np.where(known, 1.0, 1 / (1 + np.exp(-2 * kappa)))
        return np.stack([centres, -centres], axis=2), np.stack([toward, 1 - toward], axis=2)
    nodes, lengths = np.polynomial.legendre.leggauss(ANGLES)
    widest = np.minimum(np.pi, 8.0 / np.sqrt(np.maximum(kappa, SMALL)))
    angle = np.where(known[..., None], 0.0, 0.5 * widest[..., None] * (1 + nodes))
    with np.errstate(divide="ignore"):
        rims = (dimension - 2) * np.log(np.sin(np.where(known[..., None], 1.0, angle)))
    logs = kappa[..., None] * (np.cos(angle) - 1) + rims
    shares = lengths * np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    tangents = _tangents(centres)
    away = np.concatenate([tangents, -tangents], axis=-2)
    points = (
        np.cos(angle)[..., None, None] * centres[:, :, None, None]
        + np.sin(angle)[..., None, None] * (away[:, :, None])
    )
    weights = np.broadcast_to(shares[..., None] / away.shape[-2], points.shape[:-1])
    flat = (*centres.shape[:2], -1)
    return points.reshape(*flat, dimension), weights.reshape(flat)


def _pick(mass: Matrix, probability: Matrix) -> NDArray[np.intp]:
    """For each row and probability, the first column at which the cumulative mass passes it."""
    cumulative = np.cumsum(mass, axis=1)
    cumulative /= cumulative[:, -1:]
    count, size = cumulative.shape
    # One sorted search for all rows: row i is shifted by 2 i, so that rows cannot meet.
    shift = 2.0 * np.arange(count)[:, None]
    found = np.searchsorted((cumulative + shift).ravel(), probability + shift, side="right")
    picked: NDArray[np.intp] = found - size * np.arange(count)[:, None]
    last = size - 1 - (mass[:, ::-1] > 0).argmax(axis=1)[:, None]
    return np.minimum(picked, last)


@dataclass(frozen=True, eq=False, repr=False)
class MixtureBeliefs:
    """The result of a rival's inference: a mixture for every node, and how it ended.

    With one variable the methods of `MixtureVariableBeliefs` are over the graph's nodes in their order;
    with several, ``beliefs["name"]`` has them for each variable.

    Parameters
    ----------
    graph : Graph
    mixtures : mapping from variable to `Mixtures`, one for each of its nodes
    kinds : mapping from variable to how its values are written
    verdict : how inference ended

    Examples
    --------
    >>> graph = Graph.chain(2, variable="state", relation="then")
    >>> spread = Mixtures(np.array([[[0.0]], [[3.0]]]), np.ones((2, 1)), covariances=np.ones((2, 1, 1, 1)))
    >>> beliefs = MixtureBeliefs(graph, {"state": spread}, {"state": Kind("scalar", 1)}, Verdict(True, (0.0,), 0.0))
    >>> beliefs.quantile(0.975).round(2)
    array([1.96, 4.96])
    """

    graph: Graph
    _mixtures: Mapping[str, Mixtures] = field(repr=False)
    _kinds: Mapping[str, Kind] = field(repr=False)
    _verdict: Verdict

    def __post_init__(self) -> None:
        for name in self.graph.variables:
            if name not in self._mixtures or name not in self._kinds:
                raise InputError(f"mixtures: none given for variable {name!r}")
            expected, found = len(self.graph.nodes_of(name)), len(self._mixtures[name].points)
            if expected != found:
                raise InputError(
                    f"mixtures[{name!r}]: expected one for each of {expected} nodes, got {found}"
                )

    def __repr__(self) -> str:
        verdict = "converged after" if self.converged else "not converged in"
        return f"MixtureBeliefs({self.graph.n_nodes} nodes, {verdict} {self.iterations} iterations)"

    @property
    def converged(self) -> bool:
        """Whether messages settled within the tolerance."""
        return self._verdict.converged

    @property
    def iterations(self) -> int:
        """Iterations run."""
        return self._verdict.iterations

    @property
    def residuals(self) -> Matrix:
        """Largest change by iteration."""
        return np.asarray(self._verdict.residuals)

    def __getitem__(self, variable: str) -> MixtureVariableBeliefs:
        if variable not in self.graph.variables:
            raise InputError(
                f"variable: no node of {variable!r}; the graph has {', '.join(self.graph.variables)}"
            )
        return MixtureVariableBeliefs(self._mixtures[variable], self._kinds[variable], variable)

    @property
    def _only(self) -> MixtureVariableBeliefs:
        names = self.graph.variables
        if not names:
            raise InputError("this graph has no nodes, so there is no belief to read")
        if len(names) != 1:
            raise InputError(
                f"this graph has several variables; choose one, such as beliefs[{names[0]!r}] (of {', '.join(names)})"
            )
        return self[names[0]]

    def density(self, points: Any, *, nodes: ArrayLike | None = None) -> Matrix:
        """See `MixtureVariableBeliefs.density`."""
        return self._only.density(points, nodes=nodes)

    def expect(self, function: Callable[[Array], ArrayLike]) -> Matrix:
        """See `MixtureVariableBeliefs.expect`."""
        return self._only.expect(function)

    def mean(self) -> Array:
        """See `MixtureVariableBeliefs.mean`."""
        return self._only.mean()

    def std(self) -> Array:
        """See `MixtureVariableBeliefs.std`."""
        return self._only.std()

    def mode(self, candidates: Any = None) -> Array:
        """See `MixtureVariableBeliefs.mode`."""
        return self._only.mode(candidates)

    def quantile(self, probability: float | ArrayLike) -> Matrix:
        """See `MixtureVariableBeliefs.quantile`."""
        return self._only.quantile(probability)

    def interval(self, coverage: float = 0.9) -> Matrix:
        """See `MixtureVariableBeliefs.interval`."""
        return self._only.interval(coverage)

    def sample(self, size: int, *, seed: int | np.random.Generator | None = None) -> Array:
        """See `MixtureVariableBeliefs.sample`."""
        return self._only.sample(size, seed=seed)
