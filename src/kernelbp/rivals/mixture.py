r"""Gaussian-mixture belief propagation (Sudderth, Ihler, Freeman and Willsky 2003), as the paper runs it.

The model is that of `kernelbp.Model`, and so is the message, :math:`m_{ts}(x_s) = \int P(x_t \mid x_s)\, e_t(x_t) \prod_{u \ne
s} m_{ut}(x_t)\, dx_t` with evidence :math:`e_t`. The conditional is learned as the ratio of a mixture of Gaussians to one of its
marginals (appendix 1),

.. math:: P(x_t \mid x_s) = \frac{\sum_l \alpha_l\, \varphi_l(x_s)\, \psi_l(x_t)}{D(x_s)}, \qquad
          D(x_s) = \sum_l \alpha_l\, \varphi_l(x_s), \quad \zeta(x_t) = \sum_l \alpha_l\, \psi_l(x_t),

so that m is a mixture of Gaussians N divided by D, and N is what travels: b Gaussians. An update draws candidates from
the product of the N that arrive (`kernelbp.rivals.products`) times a Gaussian that resembles the evidence, weights
them by all that this leaves out, the evidence itself, the Ds, and the marginal influence :math:`\zeta` of the relation, and keeps b. Each of these
picks one component l by :math:`\alpha_l \psi_l(x_t)`, and the b Gaussians :math:`\varphi_l` are the new message.

A known relation :math:`f(x_s, x_t)` is drawn from as it is: :math:`\zeta` is its integral over :math:`x_s`, there is no D, and the sender's
marginal :math:`P(x_t)` is a factor of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit
from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError, UnsupportedError
from kernelbp.graph import Graph
from kernelbp.inference.progress import Progress
from kernelbp.inference.run import Verdict
from kernelbp.inference.schedules import make_plan
from kernelbp.inference.wiring import Phase, Send
from kernelbp.kernels import Kernel, domain
from kernelbp.learning.potentials import Potential
from kernelbp.model import Relation
from kernelbp.rivals.beliefs import MixtureBeliefs, Mixtures
from kernelbp.rivals.products import (
    GAMMA,
    Gaussians,
    MixtureSet,
    ProductSampler,
    in_threads,
    sample_products,
    scrambled,
    shuffle,
    uniform,
)
from kernelbp.rivals.setup import (
    Known,
    Learned,
    Prepared,
    Prior,
    check_inference,
    check_model,
    evaluate,
    learn,
    prepare,
)
from kernelbp.values import is_number, is_whole

__all__ = ["GaussianMixtureModel"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

BLOCK_CELLS = 1 << 21
"""Candidates of messages drawn at a time."""
GRID_POINTS = 1024
"""Points of a line at which a known relation between two numbers is tabulated."""
CLOUD_POINTS = 1024
"""Draws from the marginal at which other known relations are evaluated, to draw from them."""
INFLUENCE_POINTS = 128
"""How many of these are enough for the influence of a potential on each candidate."""
SKETCH_POINTS = 512
"""Draws from the marginal at which evidence is looked at to find a Gaussian like it."""
CAUTION = 0.8
"""That Gaussian is taken this much flatter, so that its tails are not lighter than the evidence's."""
TABLE_POINTS, TABLE_REACH = 4096, 8.0
"""Points at which a mixture on the line is tabulated, and how many widths they go past its outermost component."""
TINY = float(np.finfo(np.float64).tiny)
NARROWEST = 1e-6
"""Smallest width of a component, relative to the spread of its variable."""


class GaussianMixtureModel:
    """Belief propagation with messages that are mixtures of a few Gaussians.

    Takes the same variables and relations as `kernelbp.Model`. Kernels only say where values live: numbers or vectors
    of R^d. Relations without a potential are learned as conditional densities by least squares.

    Parameters
    ----------
    variables : mapping from name to kernel
    relations : mapping from name to `kernelbp.Relation`
    n_samples : int
        Gaussians in each message.
    oversampling : int
        Candidates drawn from a product for each one kept.
    belief_samples : int
        Weighted points of each belief.
    sampler : "auto", "exact", "gibbs", "multiscale" or "epsilon"
        How products are drawn from: see `kernelbp.rivals.products.sample_products`.
    epsilon : float
        Total variation distance that the sampler "epsilon" may be off.
    sweeps : int
        Passes of the samplers "gibbs" and "multiscale" (at each scale).
    bandwidth : float
        Least width of a message's Gaussians, as a multiple of Silverman's rule. With 0 they are as wide as the
        learned conditional's own.
    shrink : bool
        Draw a message's Gaussians together as they are widened, so that mean and variance stay what they were.
    mixing : float
        Share of independence mixed into learned relations between hidden variables.
    n_centres : int
        Components of each learned conditional density.
    landmarks : mapping from variable name to values, optional
        Stand in for the training values of variables that have none: their smoothed density is the node
        potential. A grid makes it flat.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> step = lambda now, following: np.exp(-((following - 0.8 * now) ** 2) / (2 * 0.6**2))
    >>> model = kb.rivals.GaussianMixtureModel(
    ...     {"state": kb.kernels.Gaussian()},
    ...     {"then": kb.Relation("state", "state", potential=step)},
    ...     n_samples=50, landmarks={"state": np.linspace(-6, 6, 200)},
    ... )
    >>> beliefs = model.fit().infer(kb.Graph.chain(3, variable="state", relation="then").fix([0], [1.0]))
    >>> bool(abs(beliefs.mean()[1] - 0.8) < 0.2)
    True
    """

    def __init__(
        self,
        variables: Mapping[str, Kernel],
        relations: Mapping[str, Relation],
        *,
        n_samples: int = 12,
        oversampling: int = 4,
        belief_samples: int = 100,
        sampler: ProductSampler = "auto",
        epsilon: float = 0.01,
        sweeps: int = 5,
        bandwidth: float = 1.0,
        shrink: bool = True,
        mixing: float = 0.0,
        n_centres: int = 100,
        landmarks: Mapping[str, Any] | None = None,
    ) -> None:
        self.variables = variables
        self.relations = relations
        self.n_samples = n_samples
        self.oversampling = oversampling
        self.belief_samples = belief_samples
        self.sampler = sampler
        self.epsilon = epsilon
        self.sweeps = sweeps
        self.bandwidth = bandwidth
        self.shrink = shrink
        self.mixing = mixing
        self.n_centres = n_centres
        self.landmarks = landmarks
        self._learned: Learned | None = None

    def fit(
        self, pairs: Mapping[str, tuple[Any, Any]] | None = None, *, progress: bool = False
    ) -> GaussianMixtureModel:
        """Learn every relation that has no potential from pairs of values.

        Parameters
        ----------
        pairs : mapping
            For each relation ``(first values, second values)``, equally long.
        progress : bool
            Show a progress bar.

        Returns
        -------
        GaussianMixtureModel
            Itself.
        """
        self._check_settings()
        self._learned = learn(
            self.variables,
            self.relations,
            pairs,
            landmarks=self.landmarks,
            settings={"n_centres": self.n_centres},
            progress=progress,
        )
        return self

    def infer(
        self,
        graph: Graph,
        *,
        max_iterations: int = 30,
        tolerance: float = 0.0,
        damping: float = 0.0,
        schedule: Literal["auto", "flooding", "sweep", "tree"] = "auto",
        seed: int | np.random.Generator = 0,
        progress: bool = False,
    ) -> MixtureBeliefs:
        """Work out the belief of every node.

        Parameters
        ----------
        graph : Graph
            With its evidence.
        max_iterations : int
            On trees one is enough, and one is run, unless the schedule is "flooding" or "sweep".
        tolerance : float
            Stop when no message's mean or standard deviation changes by more than this share of its variable's standard
            deviation. Messages are drawn anew each time and never settle beyond that, so by default all iterations run.
        damping : float
            Share of the old message's Gaussians kept in each update.
        schedule : "auto", "flooding", "sweep" or "tree"
            The order of updates; "auto" passes over trees there and back and sweeps elsewhere.
        seed : int or Generator
        progress : bool
            Show a progress bar.

        Returns
        -------
        MixtureBeliefs
            Weighted samples, smoothed.
        """
        if self._learned is None:
            raise NotFittedError("this model has not been fitted; call fit(pairs) first")
        check_inference(graph, max_iterations, tolerance, damping)
        if schedule not in ("auto", "flooding", "sweep", "tree"):
            raise InputError(
                f"schedule: expected 'auto' or 'flooding' or 'sweep' or 'tree', got {schedule!r}"
            )
        prepared = prepare(graph, self._learned)
        plan = make_plan(schedule, prepared.wiring, graph.n_nodes, graph.shape)
        exact_in_one = schedule in ("auto", "tree") and prepared.wiring.is_forest
        state = Messages(prepared, self, np.random.default_rng(seed))
        residuals: list[float] = []
        converged = prepared.wiring.n_messages == 0
        with Progress("inference", max_iterations, shown=progress) as bar:
            while not converged and len(residuals) < max_iterations:
                change = 0.0
                for phase in chain.from_iterable(plan.iteration(np.empty(0), complete=True)):
                    change = max(change, state.update(phase, damping))
                residuals.append(change)
                bar.advance(f"largest change {change:.1e}")
                converged = exact_in_one or change <= tolerance * (1 - damping)
            if converged:
                bar.finish("one pass over a tree" if exact_in_one else "converged")
        if not converged and tolerance > 0:
            warnings.warn(
                f"Gaussian-mixture inference stopped after {len(residuals)} iterations with messages still changing "
                f"by {residuals[-1]:.1e} standard deviations (tolerance {tolerance:.0e}). As they are drawn anew in "
                "every iteration they change by chance alone: try more samples (n_samples=), more damping (damping=), "
                "or tolerance=0.0 to run a fixed number of iterations.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return MixtureBeliefs(
            graph, state.beliefs(), prepared.kinds, Verdict(converged, tuple(residuals), damping)
        )

    def __repr__(self) -> str:
        state = "not fitted" if self._learned is None else "fitted"
        return (
            f"GaussianMixtureModel(variables: {', '.join(self.variables)}; "
            f"relations: {', '.join(self.relations)}; {state})"
        )

    def _check_settings(self) -> None:
        check_model(self.variables, self.relations, type(self).__name__)
        for name, kernel in self.variables.items():
            if domain(kernel) == "sphere":
                raise UnsupportedError(
                    f"variables[{name!r}]: GaussianMixtureModel is for numbers and vectors of R^d, and {kernel!r} "
                    "compares directions; use kernelbp.rivals.ParticleModel or kernelbp.Model"
                )
        for name, least in (
            ("n_samples", 2),
            ("oversampling", 1),
            ("belief_samples", 2),
            ("sweeps", 1),
            ("n_centres", 1),
        ):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise InputError(f"{name}: expected a whole number of at least {least}, got {value!r}")
        if self.sampler not in get_args(ProductSampler):
            raise InputError(
                f"sampler: expected one of {', '.join(get_args(ProductSampler))}, got {self.sampler!r}"
            )
        if not (is_number(self.epsilon) and 0 < self.epsilon < 1):
            raise InputError(f"epsilon: expected a number between 0 and 1, got {self.epsilon!r}")
        if not (is_number(self.bandwidth) and 0 <= self.bandwidth < np.inf):
            raise InputError(f"bandwidth: expected a number of at least 0, got {self.bandwidth!r}")
        if not (is_number(self.mixing) and 0 <= self.mixing < 1):
            raise InputError(f"mixing: expected a number from 0 to below 1, got {self.mixing!r}")


# ---------------------------------------------------------------------- relations, from one end to the other


class Transition(Protocol):
    """How samples of a sender become components of a message."""

    @property
    def start(self) -> Prior:
        """What a sender that no message has reached draws its candidates from."""

    @property
    def base(self) -> Prior | None:
        """What the mixture that travels is divided by to be the message; None if it is the message."""

    def log_sender(self, points: Matrix, edges: Indices) -> Matrix:
        """Log of the relation's own factor at points (n, k, d) of the sender: its marginal influence, (n, k)."""

    def propagate(self, points: Matrix, edges: Indices, seeds: Array) -> tuple[Matrix, Matrix]:
        """For points (n, b, d) of n senders, means and variances (n, b, e) of components of what they send."""


def _windows(centres: Matrix, weights: Matrix, variances: Matrix) -> Prior:
    """A mixture of Gaussians that are all alike and diagonal, as a density; tabulated on the line."""
    made = Prior(centres, weights / weights.sum(), "real", np.diag(variances))
    if centres.shape[1] > 1:
        return made
    reach = TABLE_REACH * float(np.sqrt(variances[0]))
    points = np.linspace(centres.min() - reach, centres.max() + reach, TABLE_POINTS)
    return replace(made, table=(points, made.log_at(points[:, None])))


def _as_mixture(density: Prior) -> MixtureSet:
    windows = np.broadcast_to(np.diag(density.width), density.centres.shape)
    return MixtureSet.stack(density.centres[None], windows[None], density.weights[None])


@dataclass(frozen=True)
class MixtureTransition:
    """A learned conditional density of the sender given the receiver.

    Attributes
    ----------
    influence : the mixture zeta, over the sender's values
    base : the mixture D, over the receiver's values, its components in the same order
    marginal : of the sender
    mixing : share of independence
    """

    influence: Prior
    base: Prior
    marginal: Prior
    mixing: float

    @classmethod
    def of(cls, density: Any, marginal: Prior, mixing: float) -> MixtureTransition:
        """From a `kernelbp.learning.densities.ConditionalDensity` of the sender given the receiver."""
        alpha = np.asarray(density.alpha, dtype=np.float64)
        used = np.flatnonzero(alpha > 0)
        receiver, sender = np.asarray(density.centres_x)[used], np.asarray(density.centres_y)[used]
        # In order of the first axis, so that one number drawn in each of b equal parts spreads over the components.
        order = np.argsort(receiver[:, 0], kind="stable")
        widths = [
            np.broadcast_to(np.asarray(width, dtype=np.float64), centres.shape[1:])
            for width, centres in ((density.width_y, sender), (density.width_x, receiver))
        ]
        return cls(
            _windows(sender[order], alpha[used][order], widths[0] ** 2),
            _windows(receiver[order], alpha[used][order], widths[1] ** 2),
            marginal,
            mixing,
        )

    @property
    def start(self) -> Prior:
        """The influence itself."""
        return self.influence

    def log_sender(self, points: Matrix, edges: Indices) -> Matrix:
        """Zeta, mixed with the marginal."""
        own = self.influence.log_at(points)
        if not self.mixing:
            return own
        other = self.marginal.log_at(points)
        mixed: Matrix = np.logaddexp(np.log1p(-self.mixing) + own, np.log(self.mixing) + other)
        return mixed

    def propagate(self, points: Matrix, edges: Indices, seeds: Array) -> tuple[Matrix, Matrix]:
        """Each point picks a component, with its weight given that point."""
        labels = np.empty(points.shape[:2], dtype=np.intp)
        independent = np.zeros(points.shape[:2])
        if self.mixing:
            share = np.log(self.mixing) + self.marginal.log_at(points)
            independent = np.exp(share - self.log_sender(points, edges))
        scale = 1 / np.sqrt(np.diag(self.influence.width))
        given, log_weights = self.influence.centres * scale, np.log(self.influence.weights)

        def work(part: tuple[int, int]) -> None:
            _pick_components(*part, points, given, scale, log_weights, independent, seeds, labels)

        in_threads(work, len(points), None)
        means = self.base.centres[labels]
        return means, np.broadcast_to(np.diag(self.base.width), means.shape).copy()


@dataclass(frozen=True)
class TabulatedTransition:
    """A known relation between two numbers, linear between evenly spaced values of the sender.

    Attributes
    ----------
    low, step : where the sender's values begin, and their distance
    influence : (g,) the potential's integral over the receiver at each
    cumulative : (g, r) for each of them, running sums over the receiver's values, up to 1
    values : (r,) evenly spaced
    start : the sender's marginal
    """

    low: float
    step: float
    influence: Matrix
    cumulative: Matrix
    values: Matrix
    start: Prior
    base = None

    @classmethod
    def of(cls, potential: Potential, toward: int, sender: Prior, receiver: Prior) -> TabulatedTransition:
        """Tabulate a potential from the sender's end toward end `toward`."""
        given, values = _line(sender), _line(receiver)
        ends = (values[None, :, None], given[:, None, None])
        table = evaluate(potential, *(ends if toward == 0 else ends[::-1]), None)
        cumulative = np.cumsum(table / max(float(table.max()), TINY), axis=1)
        influence = cumulative[:, -1].copy()
        # Where nothing is possible all is alike, and the influence says: impossible.
        cumulative[influence <= 0] = np.arange(1, len(values) + 1)
        cumulative /= cumulative[:, -1:]
        return cls(float(given[0]), float(given[1] - given[0]), influence, cumulative, values, sender)

    def log_sender(self, points: Matrix, edges: Indices) -> Matrix:
        """The influence, linear between the table's values, and the marginal."""
        places = (points[..., 0] - self.low) / self.step
        found = np.interp(places, np.arange(len(self.influence)), self.influence)
        return np.log(np.maximum(found, TINY)) + self.start.log_at(points)

    def propagate(self, points: Matrix, edges: Indices, seeds: Array) -> tuple[Matrix, Matrix]:
        """Each point draws from the table's row before or after it."""
        drawn = np.empty(points.shape[:2])
        _draw_tabulated(
            points[..., 0], self.low, self.step, self.influence, self.cumulative, self.values, seeds, drawn
        )
        variance = (self.values[1] - self.values[0]) ** 2 / 12
        return drawn[..., None], np.full((*drawn.shape, 1), variance)


@dataclass(frozen=True)
class DirectTransition:
    """A known relation of any other kind: evaluated at a cloud of the receiver's values.

    Attributes
    ----------
    potential : Potential
    toward : the end it goes to
    cloud : (r, e) values of the receiver: a line, or draws from its marginal
    readings : the graph's readings of edges, if the potential takes them
    start : the sender's marginal
    base : the receiver's, if the cloud was drawn from it
    """

    potential: Potential
    toward: int
    cloud: Matrix
    readings: Array | None
    start: Prior
    base: Prior | None

    @classmethod
    def of(
        cls,
        potential: Potential,
        toward: int,
        sender: Prior,
        receiver: Prior,
        readings: Array | None,
        rng: np.random.Generator,
    ) -> DirectTransition:
        """With a line for numbers, draws from the marginal for vectors."""
        line = receiver.table is not None
        cloud = _line(receiver)[:, None] if line else receiver.draw(CLOUD_POINTS, rng)
        # Mixed, so that the first of them stand for all.
        cloud = rng.permutation(cloud)
        return cls(potential, toward, cloud, readings, sender, None if line else receiver)

    def log_sender(self, points: Matrix, edges: Indices) -> Matrix:
        """The influence, averaged over the first points of the cloud, and the marginal."""
        result = self.start.log_at(points)
        for part in _parts(len(points), points.shape[1] * INFLUENCE_POINTS):
            table = self._table(points[part], edges[part], INFLUENCE_POINTS)
            result[part] += np.log(np.maximum(table.sum(axis=2), TINY))
        return result

    def propagate(self, points: Matrix, edges: Indices, seeds: Array) -> tuple[Matrix, Matrix]:
        """Each point draws one of the cloud."""
        labels = np.empty(points.shape[:2], dtype=np.intp)
        for part in _parts(len(points), points.shape[1] * len(self.cloud)):
            _draw_rows(self._table(points[part], edges[part], len(self.cloud)), seeds[part], labels[part])
        means = self.cloud[labels]
        return means, np.zeros_like(means)

    def _table(self, points: Matrix, edges: Indices, count: int) -> Matrix:
        cloud = self.cloud[None, None, :count]
        ends = (cloud, points[:, :, None]) if self.toward == 0 else (points[:, :, None], cloud)
        readings = None if self.readings is None else self.readings[edges]
        return evaluate(self.potential, *ends, readings)


def _line(prior: Prior) -> Matrix:
    """Evenly spaced numbers over all that a marginal reaches."""
    assert prior.table is not None
    return np.linspace(prior.table[0][0], prior.table[0][-1], GRID_POINTS)


def _parts(total: int, cells: int) -> list[slice]:
    step = max(1, BLOCK_CELLS // max(cells, 1))
    return [slice(begin, min(begin + step, total)) for begin in range(0, total, step)]


# ---------------------------------------------------------------------- messages


@dataclass
class VariableMessages:
    """Messages arriving at the nodes of one variable, and what is needed to multiply them.

    Attributes
    ----------
    prior : the marginal
    plain : the same with axes apart (diagonal windows), as can be multiplied
    spread : (d,) standard deviations of the marginal
    means, variances : (rows, b, d)
    sent : (rows,) whether a message has been sent; until then it is constant and left out
    operator : (rows,) through which it comes
    gaussians : for each node, a Gaussian that resembles its evidence
    """

    prior: Prior
    plain: Prior
    spread: Matrix
    means: Matrix
    variances: Matrix
    sent: NDArray[np.bool_]
    operator: Indices
    gaussians: Gaussians


class Messages:
    """All messages of an inference."""

    def __init__(self, prepared: Prepared, settings: GaussianMixtureModel, rng: np.random.Generator) -> None:
        self._prepared, self._settings, self._rng = prepared, settings, rng
        wiring = prepared.wiring
        self._parts = [
            self._variable(index, name, int(wiring.start[index][-1]))
            for index, name in enumerate(wiring.variables)
        ]
        self._transitions = [self._transition(name, toward) for name, toward in wiring.operators]

    # ------------------------------------------------------------------ making ready

    def _variable(self, index: int, name: str, rows: int) -> VariableMessages:
        prior = self._prepared.learned.variables[name].prior
        assert prior is not None
        dimension, size = prior.centres.shape[1], self._settings.n_samples
        plain = prior if dimension == 1 else replace(prior, width=np.diag(np.diag(prior.width)))
        centre = prior.weights @ prior.centres
        variance = prior.weights @ (prior.centres - centre) ** 2 + np.diag(prior.width)
        wiring = self._prepared.wiring
        arriving = np.flatnonzero(wiring.target_variable == index)
        operator = np.empty(rows, dtype=np.intp)
        operator[wiring.row[arriving]] = wiring.operator[arriving]
        return VariableMessages(
            prior,
            plain,
            np.sqrt(variance),
            np.tile(centre, (rows, size, 1)),
            np.tile(variance, (rows, size, 1)),
            np.zeros(rows, dtype=bool),
            operator,
            self._like_evidence(index, prior, centre, variance),
        )

    def _like_evidence(self, index: int, prior: Prior, centre: Matrix, variance: Matrix) -> Gaussians:
        """For each node the Gaussian that turns the marginal's moments into those under its evidence."""
        nodes = len(self._prepared.wiring.nodes[index])
        means = np.tile(centre, (nodes, 1))
        precisions = np.zeros((nodes, len(centre)))
        if not self._prepared.evidence.pieces[index]:
            return Gaussians(means, precisions)
        points = prior.draw(SKETCH_POINTS, np.random.default_rng(SKETCH_POINTS))
        for part in _parts(nodes, 8 * SKETCH_POINTS):
            logs = self._prepared.log_evidence(index, points[None], np.arange(part.start, part.stop))
            weights = np.exp(logs - logs.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            found = weights @ points
            # With few points in the evidence's reach it is not known to be narrower than they are apart.
            effective = 1 / (weights**2).sum(axis=1, keepdims=True)
            around = weights @ points**2 - found**2 + variance / effective**2
            precision = CAUTION * (1 / np.maximum(around, 1e-12 * variance) - 1 / variance)
            use = precision > 0
            shift = CAUTION * (found / np.maximum(around, 1e-12 * variance) - centre / variance)
            precisions[part] = np.where(use, precision, 0.0)
            means[part] = np.where(use, shift / np.where(use, precision, 1.0), centre)
        return Gaussians(means, precisions)

    def _transition(self, name: str, toward: int) -> Transition:
        prepared, relation = self._prepared, self._prepared.learned.relations[name]
        ends = (relation.first, relation.second)
        variables = prepared.learned.variables
        receiver, sender = variables[ends[toward]].prior, variables[ends[1 - toward]].prior
        assert receiver is not None and sender is not None
        if not isinstance(relation, Known):
            return MixtureTransition.of(relation.conditional(toward), sender, self._settings.mixing)
        potential = prepared.potential(name)
        readings = potential.own_readings(prepared.graph.readings)
        if readings is None and receiver.table is not None and sender.table is not None:
            return TabulatedTransition.of(potential, toward, sender, receiver)
        return DirectTransition.of(potential, toward, sender, receiver, readings, self._rng)

    # ------------------------------------------------------------------ an update

    def update(self, phase: Phase, damping: float) -> float:
        """Send the messages of a phase, all computed before any is written; the largest change."""
        made = [self._send(phase, send) for send in phase.sends]
        largest = 0.0
        for send, (means, variances) in zip(phase.sends, made, strict=True):
            part = self._parts[send.target_variable]
            changes = np.empty(len(send.rows))
            _store(
                means,
                variances,
                part.means,
                part.variances,
                part.sent,
                send.rows,
                damping,
                part.spread,
                self._seeds(len(send.rows)),
                changes,
            )
            largest = max(largest, float(changes.max(initial=0.0)))
        return largest

    def _send(self, phase: Phase, send: Send) -> tuple[Matrix, Matrix]:
        settings = self._settings
        variable = phase.gathers[send.gather].variable
        transition = self._transitions[send.operator]
        size = settings.n_samples
        target = self._parts[send.target_variable]
        means = np.empty((len(send.rows), size, target.means.shape[2]))
        variances = np.empty_like(means)
        candidates = size * settings.oversampling
        for part in _parts(len(send.rows), candidates):
            points, logs = self._candidates(
                variable,
                send.nodes[part],
                send.begin[part],
                send.end[part],
                send.own[part],
                candidates,
                transition.start,
            )
            logs += transition.log_sender(points, send.edges[part])
            kept = np.empty((len(points), size, points.shape[2]))
            _resample(points, logs, self._seeds(len(points)), kept)
            means[part], variances[part] = transition.propagate(
                kept, send.edges[part], self._seeds(len(points))
            )
        _smooth(
            means,
            variances,
            np.full((len(means), size), 1.0 / size),
            settings.bandwidth,
            settings.shrink,
            (NARROWEST * target.spread) ** 2,
        )
        return means, variances

    def _candidates(
        self,
        variable: int,
        nodes: Indices,
        begin: Indices,
        end: Indices,
        own: Indices,
        size: int,
        start: Prior,
    ) -> tuple[Matrix, Matrix]:
        """Draws (n, size, d) from the product of what arrives at nodes but one's own, and log weights.

        With these weights they are draws from evidence times messages; a node that nothing has reached draws from `start`.
        """
        part, settings = self._parts[variable], self._settings
        length = end - begin
        rows = np.arange(length.sum()) + np.repeat(begin - (np.cumsum(length) - length), length)
        job = np.repeat(np.arange(len(nodes)), length)
        used = part.sent[rows] & (rows != np.repeat(own, length))
        rows, job = rows[used], job[used]
        count = np.bincount(job, minlength=len(nodes))
        alone = count == 0
        last = _as_mixture(start)
        factor_begin = np.concatenate([[0], np.cumsum(np.maximum(count, 1))])
        factors = np.full(factor_begin[-1], len(rows), dtype=np.intp)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        factors[factor_begin[job] + within] = np.arange(len(rows))
        b = part.means.shape[1]
        mixtures = MixtureSet(
            np.concatenate([part.means[rows].reshape(-1, part.means.shape[2]), last.means]),
            np.concatenate([part.variances[rows].reshape(-1, part.means.shape[2]), last.variances]),
            np.concatenate([np.full(len(rows) * b, 1.0 / b), last.weights]),
            np.append(np.arange(len(rows) + 1) * b, len(rows) * b + len(last.means)).astype(np.intp),
        )
        gaussians = Gaussians(part.gaussians.means[nodes], part.gaussians.precisions[nodes])
        points = sample_products(
            mixtures,
            factors,
            factor_begin,
            size,
            seeds=self._seeds(len(nodes)),
            method=settings.sampler,
            epsilon=settings.epsilon,
            sweeps=settings.sweeps,
            gaussians=gaussians,
            stratified=True,
        ).points
        logs = self._log_evidence(variable, nodes, points)
        apart = points - gaussians.means[:, None]
        logs += 0.5 * np.einsum("nd,nkd->nk", gaussians.precisions, apart * apart)
        if alone.any():
            diagonal = replace(start, width=np.diag(np.diag(start.width))) if start.table is None else start
            logs[alone] -= diagonal.log_at(points[alone])
        kind = part.operator[rows]
        for operator in np.unique(kind).tolist():
            base = self._transitions[operator].base
            if base is not None:
                times = np.bincount(job[kind == operator], minlength=len(nodes))
                reached = np.flatnonzero(times)
                logs[reached] -= times[reached, None] * base.log_at(points[reached])
        return points, logs

    def _log_evidence(self, variable: int, nodes: Indices, points: Matrix) -> Matrix:
        """Evidence at points (n, k, d) of nodes that may repeat, (n, k)."""
        logs = np.zeros(points.shape[:2])
        if not self._prepared.evidence.pieces[variable]:
            return logs
        order = np.argsort(nodes, kind="stable")
        ordered = nodes[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(nodes) else order
        turn = np.arange(len(nodes)) - np.repeat(first, np.diff(np.append(first, len(nodes))))
        for number in range(int(turn.max(initial=-1)) + 1):
            chosen = order[turn == number]
            logs[chosen] = self._prepared.log_evidence(variable, points[chosen], nodes[chosen])
        return logs

    def _seeds(self, count: int) -> Array:
        return self._rng.integers(0, 1 << 63, size=count, dtype=np.uint64)

    # ------------------------------------------------------------------ beliefs

    def beliefs(self) -> dict[str, Mixtures]:
        """A smoothed weighted sample for every node, by variable."""
        settings, wiring = self._settings, self._prepared.wiring
        result = {}
        for index, name in enumerate(wiring.variables):
            part, start = self._parts[index], wiring.start[index]
            total, dimension = len(wiring.nodes[index]), part.means.shape[2]
            size = settings.belief_samples
            points = np.empty((total, size, dimension))
            weights = np.full((total, size), 1.0 / size)
            variances = np.zeros((total, size, dimension))
            fixed, values = self._prepared.fixed(index)
            free = np.setdiff1d(np.arange(total), fixed)
            for block in _parts(len(free), size):
                nodes = free[block]
                drawn, logs = self._candidates(
                    index,
                    nodes,
                    start[nodes],
                    start[nodes + 1],
                    np.full(len(nodes), -1),
                    size,
                    part.plain,
                )
                logs += part.prior.log_at(drawn)
                mass = np.exp(logs - logs.max(axis=1, keepdims=True))
                mass /= mass.sum(axis=1, keepdims=True)
                spread = np.zeros_like(drawn)
                _smooth(drawn, spread, mass, 1.0, True, (NARROWEST * part.spread) ** 2)
                points[nodes], weights[nodes], variances[nodes] = drawn, mass, spread
            points[fixed] = values[:, None]
            covariances = np.zeros((total, size, dimension, dimension))
            axes = np.arange(dimension)
            covariances[:, :, axes, axes] = variances
            result[name] = Mixtures(points, weights, covariances=covariances)
        return result


# ---------------------------------------------------------------------- compiled loops


@jit
def _resample(points: Array, logs: Array, seeds: Array, kept: Array) -> None:
    """Of k weighted points keep b, by systematic resampling; of those without any weight, the first b."""
    count, size, d = points.shape
    wanted = kept.shape[1]
    state = np.empty(1, np.uint64)
    for i in range(count):
        state[0] = scrambled(seeds[i] + GAMMA)
        largest = logs[i].max()
        total = 0.0
        for j in range(size):
            total += np.exp(logs[i, j] - largest)
        if not (total > 0 and np.isfinite(total)):
            kept[i] = points[i, :wanted]
            continue
        offset = uniform(state)
        reached, at = np.exp(logs[i, 0] - largest), 0
        for k in range(wanted):
            goal = (k + offset) / wanted * total
            while reached < goal and at < size - 1:
                at += 1
                reached += np.exp(logs[i, at] - largest)
            for axis in range(d):
                kept[i, k, axis] = points[i, at, axis]


@jit
def _pick_components(
    first: int,
    last: int,
    points: Array,
    given: Array,
    scale: Array,
    log_weights: Array,
    independent: Array,
    seeds: Array,
    labels: Array,
) -> None:
    """A component of a mixture for each point, by its density there; whatever the point with the share `independent`."""
    b, d = points.shape[1], points.shape[2]
    size = len(given)
    state = np.empty(1, np.uint64)
    stratum = np.empty(b, np.int64)
    sums = np.empty(size)
    for i in range(first, last):
        state[0] = scrambled(seeds[i] + GAMMA)
        # One number in each of b equal parts, dealt out at random: points close together spread over the components.
        shuffle(state, stratum)
        for k in range(b):
            nearness = 0.0 if independent[i, k] > 0 and uniform(state) < independent[i, k] else 0.5
            largest = -np.inf
            for c in range(size):
                height = log_weights[c]
                for axis in range(d):
                    apart = points[i, k, axis] * scale[axis] - given[c, axis]
                    height -= nearness * apart * apart
                sums[c] = height
                largest = max(largest, height)
            total = 0.0
            for c in range(size):
                # Under e^-40 of the largest a component is never picked.
                apart = sums[c] - largest
                if apart > -40.0:
                    total += np.exp(apart)
                sums[c] = total
            goal = (stratum[k] + uniform(state)) / b * total
            labels[i, k] = min(np.searchsorted(sums, goal), size - 1)


@jit
def _draw_tabulated(
    points: Array,
    low: float,
    step: float,
    influence: Array,
    cumulative: Array,
    values: Array,
    seeds: Array,
    drawn: Array,
) -> None:
    """Values of the receiver given points (n, b) of the sender, from the table's row on one side or the other."""
    count, b = points.shape
    state = np.empty(1, np.uint64)
    stratum = np.empty(b, np.int64)
    for i in range(count):
        state[0] = scrambled(seeds[i] + GAMMA)
        shuffle(state, stratum)
        for k in range(b):
            place = min(max((points[i, k] - low) / step, 0.0), len(influence) - 1.0)
            row = min(int(place), len(influence) - 2)
            after = (place - row) * influence[row + 1]
            before = (1 - (place - row)) * influence[row]
            if uniform(state) * (before + after) < after:
                row += 1
            goal = (stratum[k] + uniform(state)) / b
            at = min(np.searchsorted(cumulative[row], goal), len(values) - 1)
            drawn[i, k] = values[at]


@jit
def _draw_rows(table: Array, seeds: Array, labels: Array) -> None:
    """An entry of each row of (n, b, r) weights; of rows without any, one at random."""
    count, b, size = table.shape
    state = np.empty(1, np.uint64)
    for i in range(count):
        state[0] = scrambled(seeds[i] + GAMMA)
        for k in range(b):
            total = 0.0
            for c in range(size):
                total += table[i, k, c]
            chosen = int(uniform(state) * size)
            if total > 0:
                goal, reached = uniform(state) * total, 0.0
                for c in range(size):
                    reached += table[i, k, c]
                    if table[i, k, c] > 0:
                        chosen = c
                    if reached >= goal:
                        break
            labels[i, k] = chosen


NORMAL_HALF = 1.3489795003921634
"""The interval that holds the middle half of a standard normal distribution is this long."""


@jit
def _smooth(
    means: Array, variances: Array, weights: Array, bandwidth: float, shrink: bool, least: Array
) -> None:
    """Widen the components of mixtures to a bandwidth rule, in place.

    Silverman's rule for each axis. The scale is the smaller of the standard deviation and what the shortest
    interval that holds half the weight says, so that modes far apart are not bridged.

    Parameters
    ----------
    means, variances : (n, b, d)
    weights : (n, b)
    bandwidth : multiple of the rule
    shrink : whether to draw the means together so that the mixture's variance stays
    least : (d,) smallest variance of a component
    """
    count, b, d = means.shape
    for i in range(count):
        squares = 0.0
        for k in range(b):
            squares += weights[i, k] * weights[i, k]
        rule = bandwidth * (4 / ((d + 2) * (1 / squares))) ** (1 / (d + 4))
        for axis in range(d):
            mean = within = 0.0
            for k in range(b):
                mean += weights[i, k] * means[i, k, axis]
                within += weights[i, k] * variances[i, k, axis]
            between = 0.0
            for k in range(b):
                between += weights[i, k] * (means[i, k, axis] - mean) ** 2
            half = _shortest_half(means[i, :, axis], weights[i]) / NORMAL_HALF
            wanted = max(rule * rule * (min(between, half * half) + within), least[axis])
            added = 0.0
            for k in range(b):
                wider = max(variances[i, k, axis], wanted)
                added += weights[i, k] * (wider - variances[i, k, axis])
                variances[i, k, axis] = wider
            if shrink and between > 0:
                factor = np.sqrt(max(0.0, 1 - added / between))
                for k in range(b):
                    means[i, k, axis] = mean + factor * (means[i, k, axis] - mean)


@jit
def _shortest_half(values: Array, weights: Array) -> Any:
    """Length of the shortest interval that holds half the weight."""
    order = np.argsort(values)
    size = len(values)
    best = values[order[size - 1]] - values[order[0]]
    inside, last = 0.0, -1
    for first in range(size):
        while inside < 0.5 - 1e-12 and last < size - 1:
            last += 1
            inside += weights[order[last]]
        if inside < 0.5 - 1e-12:
            break
        best = min(best, values[order[last]] - values[order[first]])
        inside -= weights[order[first]]
    return best


@jit
def _store(
    means: Array,
    variances: Array,
    old_means: Array,
    old_variances: Array,
    sent: Array,
    rows: Array,
    damping: float,
    spread: Array,
    seeds: Array,
    changes: Array,
) -> None:
    """Write new messages, some of their components kept from the old; how much mean and deviation changed."""
    count, b, d = means.shape
    state = np.empty(1, np.uint64)
    order = np.empty(b, np.int64)
    for i in range(count):
        row = rows[i]
        before = np.empty((d, 2))
        for axis in range(d):
            before[axis, 0], before[axis, 1] = _moments(old_means[row, :, axis], old_variances[row, :, axis])
        kept = 0
        if damping > 0 and sent[row]:
            state[0] = scrambled(seeds[i] + GAMMA)
            shuffle(state, order)
            kept = int(damping * b + uniform(state))
        for k in range(b):
            if kept > 0 and order[k] < kept:
                continue
            for axis in range(d):
                old_means[row, k, axis] = means[i, k, axis]
                old_variances[row, k, axis] = variances[i, k, axis]
        sent[row] = True
        changes[i] = 0.0
        for axis in range(d):
            mean, deviation = _moments(old_means[row, :, axis], old_variances[row, :, axis])
            change = max(abs(mean - before[axis, 0]), abs(deviation - before[axis, 1])) / spread[axis]
            changes[i] = max(changes[i], change)


@jit
def _moments(means: Array, variances: Array) -> Any:
    """Mean and standard deviation of a mixture on a line whose weights are alike."""
    mean = means.mean()
    return mean, np.sqrt(((means - mean) ** 2).mean() + variances.mean())
