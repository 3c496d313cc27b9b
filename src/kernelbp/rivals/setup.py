r"""What the sampling rivals share: checking, learning, wiring, and evidence at points of each node's own.

The model is that of `kernelbp.Model`. A node has the potential :math:`P(x_s)`, the pooled marginal of its
variable; a learned edge has :math:`P(x_s, x_t) / (P(x_s) P(x_t))`, so that a message is the expectation

.. math:: m_{ts}(x_s) = \int P(x_t \mid x_s) \prod_{u \ne s} m_{ut}(x_t)\, dx_t,

and a known edge has :math:`f(x_s, x_t)` as it is given. Conditional densities are estimated by least squares
(appendix 1 of the paper), evidence at long vectors of readings by regression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, ncx2

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.graph import Graph, Readings
from kernelbp.inference.evidence import Evidence, Likelihood, gather_evidence
from kernelbp.inference.progress import Progress
from kernelbp.inference.propagation import check_graph, wire_hidden
from kernelbp.inference.wiring import Wiring
from kernelbp.kernels import Kernel, check_values, domain
from kernelbp.learning.estimators import is_estimator
from kernelbp.learning.examples import collect
from kernelbp.learning.potentials import Potential
from kernelbp.model import Relation
from kernelbp.rivals.beliefs import draw_on_sphere, log_sphere_factor
from kernelbp.values import Column, Kind, column_of, is_number, is_whole

if TYPE_CHECKING:
    from kernelbp.learning.densities import ConditionalDensity, RidgeDensity

__all__ = [
    "FittedVariable",
    "Known",
    "Learned",
    "LearnedRelation",
    "Prepared",
    "Prior",
    "Terms",
    "check_inference",
    "check_model",
    "evaluate",
    "learn",
    "prepare",
    "smoothing",
]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Single = NDArray[np.float32]
Indices = NDArray[np.intp]

CELLS = 1 << 20
"""Values evaluated at a time."""
MOST_CENTRES = 512
"""Most windows of a marginal."""
TABLE_POINTS = 4096
"""Points at which the marginal of a number is tabulated."""
TABLE_REACH = 8.0
"""Window widths the table goes past the outermost windows."""
NEARBY = 0.25
"""The share of a sample whose distance from its points measures how widely each cluster of it spreads."""
LEAST_LOCAL = 0.1
"""Smallest width of a cluster, relative to the whole spread, that is believed."""
MOST_COUNTED = 3
"""Readings that are vectors of more numbers than this are regressed on rather than given a density."""
TINY = float(np.finfo(np.float64).tiny)


# ---------------------------------------------------------------------- checking


def check_model(variables: Mapping[str, Kernel], relations: Mapping[str, Relation], method: str) -> None:
    """Refuse variables and relations that `method` cannot serve.

    Raises
    ------
    InputError
        If they are not what `kernelbp.Model` takes.
    UnsupportedError
        If a variable is neither of numbers, nor of vectors, nor of directions.
    """
    for label, given in (("variables", variables), ("relations", relations)):
        if not isinstance(given, Mapping):
            raise InputError(f"{label}: expected a mapping by name, got {type(given).__name__}")
        if not given:
            raise InputError(f"{label}: expected at least one, got none")
    for name, kernel in variables.items():
        if isinstance(kernel, type) or not isinstance(kernel, Kernel):
            raise InputError(
                f"variables[{name!r}]: expected a kernel (callable on two arrays, with diag), "
                f"got {type(kernel).__name__}"
            )
        where = domain(kernel)
        if where not in ("real", "sphere"):
            able = (
                "kernelbp.rivals.DiscreteModel or kernelbp.Model" if where == "finite" else "kernelbp.Model"
            )
            raise UnsupportedError(
                f"variables[{name!r}]: {method} is for numbers, vectors and directions, and {kernel!r} "
                f"compares {'finitely many values' if where == 'finite' else 'other values'}; use {able}"
            )
    for name, relation in relations.items():
        if not isinstance(relation, Relation):
            raise InputError(f"relations[{name!r}]: expected a Relation, got {type(relation).__name__}")
        for end in (relation.first, relation.second):
            if end not in variables:
                raise InputError(
                    f"relations[{name!r}]: unknown variable {end!r}; the model has {', '.join(variables)}"
                )
        if is_estimator(relation.evidence):
            raise UnsupportedError(
                f"relations[{name!r}]: {method} takes no estimator as evidence; use evidence='posterior' "
                "(a kernel ridge regression) or kernelbp.Model"
            )
        if relation.potential is not None and not callable(relation.potential):
            raise UnsupportedError(
                f"relations[{name!r}]: a table as potential is for finite variables; give {method} a function, "
                "or use kernelbp.rivals.DiscreteModel or kernelbp.Model"
            )


def check_inference(graph: Any, max_iterations: Any, tolerance: Any, damping: Any) -> None:
    """Refuse arguments of `infer` that make no sense."""
    check_graph(graph)
    if not is_whole(max_iterations) or max_iterations < 1:
        raise InputError(f"max_iterations: expected a whole number of at least 1, got {max_iterations!r}")
    if not is_number(tolerance) or not tolerance >= 0:
        raise InputError(f"tolerance: expected a number of at least 0, got {tolerance!r}")
    if not (is_number(damping) and 0 <= damping < 1):
        raise InputError(f"damping: expected a number from 0 to below 1, got {damping!r}")


# ---------------------------------------------------------------------- smoothing


def smoothing(points: Matrix, weights: Matrix, where: str, *, size: float | None = None) -> Matrix:
    """Bandwidth of the windows that turn weighted points into a density.

    Scott's rule (Silverman's on numbers) for the effective number of points. Where the points fall into
    clusters, each narrower than the whole, the width within a cluster takes the place of the whole: it
    is read off the distance within which a quarter of the mass lies around a typical point.

    Parameters
    ----------
    points : (nodes, n, d)
    weights : (nodes, n) rows summing to one
    where : "real" or "sphere"
    size : the effective number of points; by default 1 / sum of squared weights

    Returns
    -------
    (nodes, d, d) covariances, or (nodes,) concentrations on the sphere

    Examples
    --------
    >>> draws = np.random.default_rng(0).standard_normal((1, 500, 1))
    >>> float(smoothing(draws, np.full((1, 500), 1 / 500), "real")[0, 0, 0] ** 0.5)
    0.2...
    """
    nodes, dimension = len(points), points.shape[2]
    free = max(dimension - 1, 1) if where == "sphere" else dimension
    number = 1 / (weights**2).sum(axis=1) if size is None else np.full(nodes, float(size))
    factor = (0.9 if free == 1 else 1.0) * number ** (-1 / (free + 4))
    expected = _nearby_of_normal(free)
    if where == "sphere":
        local = _nearby(points, weights) / expected
        # Points that all agree say little about their width: a hundredth of a radian.
        return 1 / np.maximum(factor * local, 1e-2) ** 2
    centre = np.einsum("sn,snd->sd", weights, points)
    apart = points - centre[:, None]
    spread = np.einsum("sn,sni,snj->sij", weights, apart, apart)
    largest = np.maximum(np.abs(points).max(axis=(1, 2)), 1e-300)
    # Points that all agree get a window a millionth of their size.
    spread[:, np.arange(dimension), np.arange(dimension)] += (1e-6 * largest[:, None]) ** 2
    scaled = np.einsum("sij,snj->sni", np.linalg.inv(np.linalg.cholesky(spread)), apart)
    local = np.clip(_nearby(scaled, weights) / expected, LEAST_LOCAL, 1.0)
    widened: Matrix = spread * ((factor * local) ** 2)[:, None, None]
    return widened


def _nearby(points: Matrix, weights: Matrix) -> Matrix:
    """Distance within which a share NEARBY of the mass lies around a typical point, (nodes,)."""
    nodes, count, dimension = points.shape
    result = np.empty(nodes)
    for part in _blocks(nodes, count * count * max(dimension, 2)):
        own, mass = points[part], weights[part]
        if dimension == 1:
            distance = np.abs(own[:, :, None, 0] - own[:, None, :, 0])
        else:
            distance = np.sqrt(
                np.maximum(
                    np.einsum("snd,snd->sn", own, own)[:, :, None]
                    + np.einsum("snd,snd->sn", own, own)[:, None, :]
                    - 2 * np.einsum("snd,smd->snm", own, own),
                    0.0,
                )
            )
        order = np.argsort(distance, axis=2)
        reached = np.cumsum(np.take_along_axis(mass[:, None].repeat(count, axis=1), order, axis=2), axis=2)
        last = (reached >= NEARBY).argmax(axis=2)
        where = np.take_along_axis(order, last[..., None], axis=2)
        around = np.take_along_axis(distance, where, axis=2)[..., 0]
        order = np.argsort(around, axis=1)
        half = (np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1) >= 0.5).argmax(axis=1)
        result[part] = np.take_along_axis(around, order, axis=1)[np.arange(len(own)), half]
    return result


def _nearby_of_normal(dimension: int) -> float:
    """What `_nearby` is for a standard normal sample."""
    return float(np.sqrt(ncx2.ppf(NEARBY, dimension, chi2.median(dimension))))


def _blocks(total: int, cells: int) -> Iterator[slice]:
    step = max(CELLS // max(cells, 1), 1)
    for begin in range(0, total, step):
        yield slice(begin, min(begin + step, total))


@dataclass(frozen=True, eq=False)
class Prior:
    """A variable's marginal P(x): its training values, smoothed.

    Attributes
    ----------
    centres : (c, d)
    weights : (c,) summing to one
    where : "real" or "sphere"
    width : (d, d) covariance of each window, or () concentration on the sphere
    table : for numbers, points and log densities there; else None
    """

    centres: Matrix
    weights: Matrix
    where: str
    width: Matrix
    table: tuple[Matrix, Matrix] | None = None

    @classmethod
    def of(cls, values: Matrix, counts: Matrix, where: str) -> Prior:
        """From distinct values (u, d) and how often each occurred (u,)."""
        total = float(counts.sum())
        if values.shape[1] == 1:
            order = np.argsort(values[:, 0], kind="stable")
        else:
            order = np.arange(len(values))
        if len(values) > MOST_CENTRES:
            # Evenly through the pooled sample, in order.
            ranks = (np.arange(MOST_CENTRES) + 0.5) / MOST_CENTRES * total
            kept, times = np.unique(np.searchsorted(np.cumsum(counts[order]), ranks), return_counts=True)
            centres, weights = values[order[kept]], times / times.sum()
        else:
            centres, weights = values[order], counts[order] / total
        # Thinned in several dimensions, windows must bridge the gaps between those left.
        size = total if values.shape[1] == 1 else min(total, 2.0 * len(centres))
        width = smoothing(centres[None], weights[None], where, size=max(size, 2.0))[0]
        prior = cls(centres, weights, where, width)
        if where == "sphere" or values.shape[1] > 1:
            return prior
        reach = TABLE_REACH * float(np.sqrt(width[0, 0]))
        points = np.linspace(centres.min() - reach, centres.max() + reach, TABLE_POINTS)
        return cls(centres, weights, where, width, (points, prior._log_windows(points[:, None])))

    def log_at(self, points: Matrix) -> Matrix:
        """Log density at points (..., d), shape (...)."""
        if self.table is None:
            flat = self._log_windows(points.reshape(-1, points.shape[-1]))
            return flat.reshape(points.shape[:-1])
        where, logs = self.table
        x = points[..., 0]
        inside: Matrix = np.interp(x, where, logs)
        over = np.maximum(np.maximum(where[0] - x, x - where[-1]), 0.0) / np.sqrt(self.width[0, 0])
        return inside - over * (0.5 * over + TABLE_REACH)

    def draw(self, size: int, rng: np.random.Generator) -> Matrix:
        """Draws (size, d), evenly through the windows."""
        places = (np.arange(size) + rng.random(size)) / size
        chosen = np.minimum(np.searchsorted(np.cumsum(self.weights), places), len(self.weights) - 1)
        centres = self.centres[chosen]
        if self.where == "sphere":
            return draw_on_sphere(centres, np.full(size, float(self.width)), rng)
        drawn: Matrix = centres + rng.standard_normal(centres.shape) @ np.linalg.cholesky(self.width).T
        return drawn

    def _log_windows(self, points: Matrix) -> Matrix:
        result = np.empty(len(points))
        dimension = points.shape[1]
        if self.where == "sphere":
            factor = float(log_sphere_factor(np.asarray(self.width), dimension))
        else:
            inverse = np.linalg.inv(np.linalg.cholesky(self.width))
            factor = float(np.log(np.diag(inverse)).sum() - 0.5 * dimension * np.log(2 * np.pi))
            points, centres = points @ inverse.T, self.centres @ inverse.T
            middle = centres.mean(axis=0)  # taken off, so that little is lost to rounding
            points, centres = points - middle, centres - middle
            sizes = 0.5 * np.einsum("cd,cd->c", centres, centres)
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)
        for part in _blocks(len(points), len(self.centres)):
            if self.where == "sphere":
                logs = float(self.width) * (points[part] @ self.centres.T - 1)
            else:
                own = points[part]
                logs = own @ centres.T - sizes - 0.5 * np.einsum("nd,nd->n", own, own)[:, None]
            logs += log_weights
            largest = logs.max(axis=1)
            result[part] = largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1)) + factor
        return result


# ---------------------------------------------------------------------- learning


@dataclass(frozen=True, eq=False)
class FittedVariable:
    """A variable as the sampling rivals see it.

    Attributes
    ----------
    kernel : Kernel
        It only says where values live.
    kind : how values are written
    values, counts : distinct training values (u, d), or landmarks, and how often each occurred
    prior : the marginal P(x); None for a variable that was never seen and can only be read
    """

    kernel: Kernel
    kind: Kind
    values: Matrix
    counts: Matrix
    prior: Prior | None

    @property
    def where(self) -> str:
        """Either "real" or "sphere"."""
        return domain(self.kernel)


class Terms:
    r"""The factors of a learned density :math:`P(y \mid x) = \sum_l a_l(x)\, b_l(y)`, in single precision."""

    def __init__(self, density: ConditionalDensity) -> None:
        self.size = len(density.alpha)
        self._log_alpha = np.log(density.alpha / density.alpha.max()).astype(np.float32)
        self._given = _Windows(density.centres_x, density.width_x)
        self._other = _Windows(density.centres_y, density.width_y)
        self._log_normalizer = np.float32(density.log_normalizer)

    def given(self, points: Matrix) -> Single:
        """Shares of the components at values (nodes, n, d) of the given end, (nodes, n, c)."""
        logs = self._given(points)
        logs += self._log_alpha
        logs -= logs.max(axis=-1, keepdims=True)
        shares: Single = np.exp(logs, out=logs)
        shares /= shares.sum(axis=-1, keepdims=True)
        return shares

    def bumps(self, points: Matrix) -> Single:
        """Density of each component at values (nodes, n, d) of the other end, (nodes, n, c)."""
        logs = self._other(points)
        logs -= self._log_normalizer
        return np.exp(logs, out=logs)

    def log_likelihood(self, points: Matrix, values: Matrix) -> Matrix:
        """Log density of values (n, d) of the other end at points (n, k, d) of each, up to a constant for each, (n, k)."""
        logs = self._other(values[:, None])[:, 0]
        heights = np.exp(logs - logs.max(axis=1, keepdims=True))
        sums = np.matmul(self.given(points), heights[..., None])[..., 0]
        return np.log(np.maximum(sums, np.finfo(np.float32).tiny), dtype=np.float64)


class _Windows:
    """Log of Gaussian windows around centres, without their factor."""

    def __init__(self, centres: Matrix, width: float | Matrix) -> None:
        self._width = np.broadcast_to(np.asarray(width, dtype=np.float64), centres.shape[1:])
        self._middle = centres.mean(axis=0)  # taken off, so that single precision is enough
        self._centres = ((centres - self._middle) / self._width).astype(np.float32)

    def __call__(self, points: Matrix) -> Single:
        scaled = ((points - self._middle) / self._width).astype(np.float32)
        if scaled.shape[-1] == 1:
            logs: Single = scaled - self._centres[:, 0]
            np.multiply(logs, logs, out=logs)
            logs *= np.float32(-0.5)
            return logs
        half = np.float32(0.5)
        logs = scaled @ self._centres.T
        logs -= half * np.einsum("cd,cd->c", self._centres, self._centres)
        logs -= half * np.einsum("snd,snd->sn", scaled, scaled)[..., None]
        return np.minimum(logs, 0.0, out=logs)


@dataclass(frozen=True, eq=False)
class LearnedRelation:
    """A relation learned from pairs: conditional densities of either end given the other.

    Attributes
    ----------
    first, second : names of the variables
    symmetric : whether a pair may be read either way
    pairs : the two columns (m, d)
    domains : of both ends
    settings : keywords of `ConditionalDensity.fit`
    posterior : whether readings are regressed on: P(y | x) = P(x | y) / P(x) up to a factor of y
    """

    first: str
    second: str
    symmetric: bool
    pairs: tuple[Matrix, Matrix]
    domains: tuple[str, str]
    settings: Mapping[str, Any]
    posterior: bool
    _fitted: dict[int | str, Any] = field(default_factory=dict, repr=False)

    def conditional(self, toward: int) -> ConditionalDensity:
        """Density of the other end given end `toward` (0 the first), fitted when first asked for."""
        from kernelbp.learning.densities import ConditionalDensity

        key = 0 if self.symmetric else toward
        if key not in self._fitted:
            given, other = self.pairs[key], self.pairs[1 - key]
            if self.symmetric:
                given, other = np.concatenate(self.pairs), np.concatenate(self.pairs[::-1])
            where = (self.domains[key], self.domains[1 - key])
            self._fitted[key] = ConditionalDensity.fit(given, other, domain=where, **self.settings)
        density: ConditionalDensity = self._fitted[key]
        return density

    def terms(self, toward: int) -> Terms:
        """The factors of `conditional`."""
        key = f"terms {0 if self.symmetric else toward}"
        if key not in self._fitted:
            self._fitted[key] = Terms(self.conditional(toward))
        terms: Terms = self._fitted[key]
        return terms

    def regression(self) -> RidgeDensity:
        """Density of the first end given a reading of the second."""
        from kernelbp.learning.densities import RidgeDensity

        if "regression" not in self._fitted:
            where = (self.domains[1], self.domains[0])
            self._fitted["regression"] = RidgeDensity.fit(self.pairs[1], self.pairs[0], domain=where)
        density: RidgeDensity = self._fitted["regression"]
        return density


@dataclass(frozen=True)
class Known:
    """A relation the user has written down."""

    first: str
    second: str
    symmetric: bool
    function: Callable[..., Any]


@dataclass(frozen=True)
class Learned:
    """Everything a sampling rival knows after `fit`."""

    variables: Mapping[str, FittedVariable]
    kernels: Mapping[str, Kernel]
    relations: Mapping[str, LearnedRelation | Known]


def learn(
    variables: Mapping[str, Kernel],
    relations: Mapping[str, Relation],
    pairs: Mapping[str, tuple[Any, Any]] | None,
    *,
    landmarks: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Learned:
    """Check training pairs and learn marginals and conditional densities.

    Parameters
    ----------
    variables, relations : as of `kernelbp.Model`, already checked by `check_model`
    pairs : for each relation without a potential ``(first values, second values)``
    landmarks : values that stand in for training values of variables that have none
    settings : keywords of `ConditionalDensity.fit` (n_centres, seed, ...)
    progress : whether to show a bar
    """
    to_learn = {name: relation for name, relation in relations.items() if relation.potential is None}
    examples, _ = collect(
        to_learn,
        {} if pairs is None else pairs,
        kernels=variables,
    )
    fitted: dict[str, FittedVariable] = {}
    if landmarks is not None and not isinstance(landmarks, Mapping):
        raise InputError(
            f"landmarks: expected a mapping from variable to values, got {type(landmarks).__name__}"
        )
    for name, given in (landmarks or {}).items():
        if name not in variables:
            raise InputError(f"landmarks: unknown variable {name!r}; the model has {', '.join(variables)}")
        column, kind = column_of(variables[name], given, f"landmarks[{name!r}]")
        if not len(column):
            raise InputError(f"landmarks[{name!r}]: no points given")
        check_values(variables[name], column, f"landmarks[{name!r}]")
        if name in examples:
            examples[name].kind.merged(kind, f"landmarks[{name!r}]")
        else:
            fitted[name] = _fitted_variable(variables[name], kind, column, np.ones(len(column)))
    for relation in relations.values():
        if relation.first not in examples and relation.first not in fitted:
            raise InputError(
                f"landmarks: variable {relation.first!r} has no training pairs, so it needs points to begin with: "
                f"landmarks={{{relation.first!r}: values}}, a grid or draws from a prior"
            )
    for name, mine in examples.items():
        fitted[name] = _fitted_variable(variables[name], mine.kind, mine.values, mine.counts)
    made: dict[str, LearnedRelation | Known] = {}
    hidden = {relation.first for relation in relations.values()}
    with Progress("learning", len(to_learn), shown=progress) as bar:
        for name, relation in relations.items():
            if relation.potential is not None:
                assert callable(relation.potential)
                made[name] = Known(relation.first, relation.second, relation.symmetric, relation.potential)
                continue
            columns = tuple(
                column_of(variables[end], side, name)[0]
                for end, side in zip((relation.first, relation.second), (pairs or {})[name], strict=True)
            )
            learned = LearnedRelation(
                relation.first,
                relation.second,
                relation.symmetric,
                (columns[0], columns[1]),
                (fitted[relation.first].where, fitted[relation.second].where),
                dict(settings or {}),
                _regressed(relation, fitted[relation.second], hidden),
            )
            if learned.posterior:
                learned.regression()
            else:
                learned.conditional(0)
            if relation.second in hidden and not relation.symmetric:
                learned.conditional(1)
            made[name] = learned
            bar.advance(f"relation {name}")
    return Learned(fitted, dict(variables), made)


def _fitted_variable(kernel: Kernel, kind: Kind, values: Column, counts: Matrix) -> FittedVariable:
    if kind.form == "object":
        raise InputError(f"values: expected numbers or vectors for {kernel!r}, got objects")
    return FittedVariable(kernel, kind, values, counts, Prior.of(values, counts, domain(kernel)))


def _regressed(relation: Relation, second: FittedVariable, hidden: set[str]) -> bool:
    """Whether readings of the second end are regressed on rather than given a density."""
    if relation.second in hidden:
        return False
    if relation.evidence is None:
        return second.kind.dimension > MOST_COUNTED and second.where == "real"
    return bool(relation.evidence == "posterior")


# ---------------------------------------------------------------------- a graph, ready


@dataclass(frozen=True)
class _Facts:
    """A variable as evidence is checked against it."""

    kernel: Kernel
    kind: Kind
    values: Column


@dataclass(frozen=True, eq=False)
class Prepared:
    """A graph with its evidence, checked and wired.

    Attributes
    ----------
    graph : Graph
    wiring : Wiring
        Edges at fixed nodes carry no messages: they are evidence of their neighbours.
    evidence : Evidence
    learned : Learned
    kinds : how values of each variable are written
    """

    graph: Graph
    wiring: Wiring
    evidence: Evidence
    learned: Learned
    kinds: Mapping[str, Kind]

    def potential(self, relation: str) -> Potential:
        """A known relation's function, with how its two ends are written."""
        known = self.learned.relations[relation]
        assert isinstance(known, Known)
        return Potential(known.function, (self.kinds[known.first], self.kinds[known.second]), None, relation)

    def fixed(self, variable: int) -> tuple[Indices, Matrix]:
        """Numbers (within the variable) and values of its fixed nodes."""
        mine = self.evidence.fixed[variable]
        return mine.nodes, mine.values

    def log_evidence(self, variable: int, points: Matrix, nodes: Indices | None = None) -> Matrix:
        """Log-likelihood of all evidence at points of each node's own.

        A likelihood of zero counts as the smallest positive number, so that evidence which is zero at
        all points of a node says nothing there.

        Parameters
        ----------
        variable : number of the variable
        points : (n, k, d), or (1, k, d) for the same points at every node
        nodes : (n,) sorted numbers within the variable; by default all

        Returns
        -------
        (n, k)
        """
        total = len(self.wiring.nodes[variable]) if nodes is None else len(nodes)
        shared = len(points) == 1
        size = points.shape[1]
        logs = np.zeros((total, size))
        for piece in self.evidence.pieces[variable]:
            chosen = np.arange(len(piece.nodes))
            place = piece.nodes
            if nodes is not None:
                place = np.searchsorted(nodes, piece.nodes)
                inside = place < len(nodes)
                inside[inside] = nodes[place[inside]] == piece.nodes[inside]
                chosen, place = chosen[inside], place[inside]
            for part in _blocks(len(chosen), size * 8):
                at = place[part]
                values = self._piece_at(piece, chosen[part], points if shared else points[at])
                kept, first = np.unique(at, return_index=True)
                logs[kept] += np.add.reduceat(values, first, axis=0)
        return logs

    def _piece_at(self, piece: Any, chosen: Indices, points: Matrix) -> Matrix:
        """Log-likelihood (n, k) of some entries of a piece of evidence at points (n or 1, k, d)."""
        if isinstance(piece, Likelihood):
            return np.log(np.maximum(_softened(piece, chosen, points), TINY))
        values = piece.values[chosen]
        relation = self.learned.relations[piece.relation]
        if isinstance(relation, Known):
            potential = self.potential(piece.relation)
            readings = None if piece.readings is None else piece.readings[chosen]
            first, second = (points, values[:, None]) if piece.toward == 0 else (values[:, None], points)
            table = evaluate(potential, first, second, potential.own_readings(readings))
            return np.log(np.maximum(table, TINY))
        where = np.broadcast_to(points, (len(values), *points.shape[1:]))
        if not (relation.posterior and piece.toward == 0):
            return relation.terms(piece.toward).log_likelihood(where, values)
        prior = self.learned.variables[relation.first].prior
        assert prior is not None
        predicted = relation.regression().as_arrays(values)
        scaled = (where - predicted["means"][:, None]) @ predicted["root"].T
        logs: Matrix = -0.5 * np.einsum("nkd,nkd->nk", scaled, scaled) - prior.log_at(where)
        return logs


def evaluate(potential: Potential, first: Matrix, second: Matrix, readings: Array | None) -> Matrix:
    """A known relation at values (..., d) of its two ends that broadcast, and readings of the first axis.

    Raises
    ------
    InputError
        If the function does not return finite numbers of at least 0 that fit.
    """
    shape = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    left, right = potential.kinds[0].restore(first), potential.kinds[1].restore(second)
    assert callable(potential.given)
    if readings is None:
        value = potential.given(left, right)
    else:
        along = readings.reshape(len(readings), *([1] * (len(shape) - 1)), *readings.shape[1:])
        value = potential.given(left, right, along)
    try:
        table = np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
    except (TypeError, ValueError):
        raise InputError(
            f"relations[{potential.name!r}]: potential should return numbers of shape {shape} by broadcasting, "
            f"got shape {np.shape(value)}"
        ) from None
    # A sum is finite only if all terms are (or they overflow, which no potential should).
    if not (np.isfinite(table.sum()) and table.min(initial=0.0) >= 0):
        raise InputError(
            f"relations[{potential.name!r}]: potential should return finite numbers of at least 0"
        )
    return table


def _softened(piece: Likelihood, chosen: Indices, points: Matrix) -> Matrix:
    """Virtual evidence at points (n or 1, k, d): interpolated on numbers, elsewhere at the nearest point."""
    table, known = piece.table[chosen], piece.points
    where = np.broadcast_to(points, (len(chosen), *points.shape[1:]))
    rows = np.arange(len(chosen))[:, None]
    if domain(piece.kernel) == "real" and known.shape[1] == 1:
        order = np.argsort(known[:, 0])
        knots, table = known[order, 0], table[:, order]
        if len(knots) == 1:
            return np.repeat(table, where.shape[1], axis=1)
        right = np.clip(np.searchsorted(knots, where[..., 0]), 1, len(knots) - 1)
        span = np.maximum(knots[right] - knots[right - 1], TINY)
        share = np.clip((where[..., 0] - knots[right - 1]) / span, 0.0, 1.0)
        return np.asarray((1 - share) * table[rows, right - 1] + share * table[rows, right])
    flat = where.reshape(-1, where.shape[-1])
    nearest = np.empty(len(flat), dtype=np.intp)
    for part in _blocks(len(flat), len(known)):
        gap = np.einsum("qd,qd->q", known, known) - 2 * flat[part] @ known.T
        nearest[part] = gap.argmin(axis=1)
    return np.asarray(table[rows, nearest.reshape(where.shape[:2])])


def prepare(graph: Graph, learned: Learned) -> Prepared:
    """Check a graph and its evidence against what was learned, and wire it.

    Raises
    ------
    InputError
        If a variable, relation or value does not fit.
    """
    for name in graph.variables:
        if name not in learned.kernels:
            raise InputError(f"graph: unknown variable {name!r}; the model has {', '.join(learned.kernels)}")
        if name not in learned.variables:
            raise InputError(
                f"graph: variable {name!r} has no training pairs, so it can be observed but not have nodes; "
                f"give landmarks={{{name!r}: values}}"
            )
    facts = {name: _Facts(v.kernel, v.kind, v.values) for name, v in learned.variables.items()}
    for said in graph.evidence:
        # A variable that was never seen is written as its readings are.
        relation = learned.relations.get(said.relation) if isinstance(said, Readings) else None
        if relation is not None and relation.second not in facts:
            kernel = learned.kernels[relation.second]
            facts[relation.second] = _Facts(kernel, said.kind, np.empty((0, said.kind.dimension)))
    evidence = gather_evidence(graph, learned.relations, facts)
    wiring = wire_hidden(graph, learned.relations, evidence, stacklevel=4)
    kinds = {name: fact.kind for name, fact in facts.items()}
    prepared = Prepared(graph, wiring, evidence, learned, kinds)
    for name, _ in wiring.operators:
        if isinstance(learned.relations[name], Known):
            prepared.potential(name).own_readings(graph.readings)
    return prepared
