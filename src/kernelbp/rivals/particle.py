r"""Particle belief propagation (Ihler and McAllester 2009), as the paper runs it (Section 6, appendix 2).

Every node t has n particles, draws from a density :math:`W_t`, and a message into it is known at them:

.. math:: m_{ts}(x_s^i) = \sum_j P(x_t^j \mid x_s^i)\,
          \frac{ \prod_{u \ne s} m_{ut}(x_t^j) }{ W_t(x_t^j) }.

:math:`W_t` is the belief of the node at the time the particles were drawn, by Metropolis-Hastings chains that start
from the particles there were; they are drawn anew every so many iterations.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError
from kernelbp.graph import Graph
from kernelbp.inference.progress import Progress
from kernelbp.inference.run import Verdict
from kernelbp.inference.schedules import make_plan
from kernelbp.inference.wiring import Phase, Send
from kernelbp.kernels import Kernel
from kernelbp.model import Relation
from kernelbp.rivals.beliefs import MixtureBeliefs, Mixtures, draw_on_sphere
from kernelbp.rivals.setup import (
    Known,
    Learned,
    LearnedRelation,
    Prepared,
    Prior,
    Terms,
    check_inference,
    check_model,
    evaluate,
    learn,
    prepare,
    smoothing,
)
from kernelbp.values import is_number, is_whole

__all__ = ["ParticleModel"]

Matrix = NDArray[np.float64]
Single = NDArray[np.float32]
Indices = NDArray[np.intp]

CACHE_BYTES = 1 << 29
"""Relations evaluated at all pairs of particles are kept if they take no more than this."""
BLOCK_CELLS = 1 << 21
"""Values of a relation made at a time."""
FLOOR = 1e-30
"""Smallest value of a message, relative to its largest."""
POOL = 512
"""Draws from the marginal among which a node's first particles are chosen."""
STRIDES = (1.0, 0.3, 2.0, 0.1)
"""Widths of the proposals of successive steps, relative to the spread of a node's particles."""
JUMP_EVERY = 5
"""One step in this many proposes a draw from the marginal instead, so that chains can change modes."""
STILL = 1e-12
"""A change of messages that is none but for rounding."""
LEAST_SPREAD = 0.05
"""What particles that all agree are taken to spread, relative to a window of the marginal."""
LOOPY_MIXING, LOOPY_DAMPING = 0.05, 0.5
"""Share of independence in learned relations, and of old messages kept, on graphs with cycles: on the
sunset of 100 colours, over three draws of noise, the error of the mean falls from 8.9 with neither to 6.1 with the
first and 5.7 with both (``kernelbp reproduce denoising`` tries them on images of its own)."""
TINY = float(np.finfo(np.float64).tiny)


class ParticleModel:
    """Belief propagation with particles that follow the beliefs.

    Takes the same variables and relations as `kernelbp.Model`. Kernels only say where values live: numbers,
    vectors of R^d, or directions. Relations without a potential are learned as conditional densities
    by least squares.

    Parameters
    ----------
    variables : mapping from name to kernel
    relations : mapping from name to `kernelbp.Relation`
    n_particles : int
        Particles of each node.
    resample_every : int
        Iterations after which particles are drawn anew.
    mcmc_steps : int
        Metropolis-Hastings steps for each particle when they are.
    prune : float
        Particles with less than this share of their node's weight send nothing.
    mixing : float, optional
        Share of independence, P(x_s) P(x_t), mixed into learned relations between hidden variables. By default
        5% on graphs with cycles, where sharp relations make messages run away, and none on trees; 0 is the
        method as published.
    n_centres : int
        Components of each learned conditional density.
    landmarks : mapping from variable name to values, optional
        Stand in for the training values of variables that have none: their smoothed density is the node
        potential. A grid makes it flat.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> step = lambda now, following: np.exp(-((following - 0.8 * now) ** 2) / (2 * 0.6**2))
    >>> model = kb.rivals.ParticleModel(
    ...     {"state": kb.kernels.Gaussian()},
    ...     {"then": kb.Relation("state", "state", potential=step)},
    ...     n_particles=200, landmarks={"state": np.linspace(-6, 6, 200)},
    ... )
    >>> beliefs = model.fit().infer(kb.Graph.chain(2, variable="state", relation="then").fix([0], [1.0]))
    >>> bool(abs(beliefs.mean()[1] - 0.8) < 0.2)
    True
    """

    def __init__(
        self,
        variables: Mapping[str, Kernel],
        relations: Mapping[str, Relation],
        *,
        n_particles: int = 30,
        resample_every: int = 15,
        mcmc_steps: int = 10,
        prune: float = 1e-7,
        mixing: float | None = None,
        n_centres: int = 100,
        landmarks: Mapping[str, Any] | None = None,
    ) -> None:
        self.variables = variables
        self.relations = relations
        self.n_particles = n_particles
        self.resample_every = resample_every
        self.mcmc_steps = mcmc_steps
        self.prune = prune
        self.mixing = mixing
        self.n_centres = n_centres
        self.landmarks = landmarks
        self._learned: Learned | None = None

    def fit(
        self, pairs: Mapping[str, tuple[Any, Any]] | None = None, *, progress: bool = False
    ) -> ParticleModel:
        """Learn every relation that has no potential from pairs of values.

        Parameters
        ----------
        pairs : mapping
            For each relation ``(first values, second values)``, equally long.
        progress : bool
            Show a progress bar.

        Returns
        -------
        ParticleModel
            Itself.
        """
        check_model(self.variables, self.relations, type(self).__name__)
        for name, least in (("n_particles", 2), ("resample_every", 1), ("mcmc_steps", 1), ("n_centres", 1)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise InputError(f"{name}: expected a whole number of at least {least}, got {value!r}")
        if not is_number(self.prune) or not 0 <= self.prune < 1:
            raise InputError(f"prune: expected a number from 0 to below 1, got {self.prune!r}")
        if self.mixing is not None and not (is_number(self.mixing) and 0 <= self.mixing < 1):
            raise InputError(f"mixing: expected a number from 0 to below 1 or None, got {self.mixing!r}")
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
        damping: float | None = None,
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
        tolerance : float
            If above 0, stop when no message changes by more than this share of its largest value, once
            particles were drawn from the beliefs (at once if messages settle before that). Particles drawn
            anew keep messages changing, so by default all iterations are run.
        damping : float, optional
            Share of the old message kept in each update: by default half on graphs with cycles, none on trees.
        schedule : "auto", "flooding", "sweep" or "tree"
            The order of updates; "auto" passes over trees there and back and floods elsewhere.
        seed : int or Generator
        progress : bool
            Show a progress bar.

        Returns
        -------
        MixtureBeliefs
            Weighted particles, smoothed.
        """
        if self._learned is None:
            raise NotFittedError("this model has not been fitted; call fit(pairs) first")
        check_inference(graph, max_iterations, tolerance, 0.0 if damping is None else damping)
        if schedule not in ("auto", "flooding", "sweep", "tree"):
            raise InputError(
                f"schedule: expected 'auto' or 'flooding' or 'sweep' or 'tree', got {schedule!r}"
            )
        prepared = prepare(graph, self._learned)
        forest = prepared.wiring.is_forest
        if schedule == "auto":
            schedule = "tree" if forest else "flooding"
        plan = make_plan(schedule, prepared.wiring, graph.n_nodes, graph.shape)
        mixing = self.mixing
        if mixing is None:
            mixing = 0.0 if forest else LOOPY_MIXING
        if damping is None:
            damping = 0.0 if forest else LOOPY_DAMPING
        particles = Particles(
            prepared, self.n_particles, self.mcmc_steps, self.prune, mixing, np.random.default_rng(seed)
        )
        residuals: list[float] = []
        converged = prepared.wiring.n_messages == 0
        change, settled, redrawn, still = np.inf, False, False, False
        with Progress("inference", max_iterations, shown=progress) as bar:
            while not converged and len(residuals) < max_iterations:
                if settled or (residuals and len(residuals) % self.resample_every == 0):
                    particles.redraw()
                    redrawn, still = True, False
                if not still:
                    change = 0.0
                    for phase in chain.from_iterable(plan.iteration(np.empty(0), complete=True)):
                        change = max(change, particles.update(phase, damping))
                    # An update that changes nothing, as the second over a tree, need not be repeated.
                    still = change <= STILL
                residuals.append(change)
                bar.advance(f"largest change {change:.1e}")
                # Messages between the first particles may settle, but these do not follow the beliefs yet.
                settled = tolerance > 0 and change <= tolerance * (1 - damping)
                converged = settled and redrawn
            if converged:
                bar.finish("converged")
        if not converged and tolerance > 0:
            warnings.warn(
                f"Particle inference stopped after {len(residuals)} iterations with messages still changing by "
                f"{residuals[-1]:.1e} (tolerance {tolerance:.0e}). Beliefs may not be reliable. Try more iterations "
                "(max_iterations=), more damping (damping=0.5 or above), or more particles (n_particles=); "
                "messages change again whenever particles are drawn anew (resample_every=).",
                ConvergenceWarning,
                stacklevel=2,
            )
        return MixtureBeliefs(
            graph, particles.mixtures(), prepared.kinds, Verdict(converged, tuple(residuals), damping)
        )

    def __repr__(self) -> str:
        state = "not fitted" if self._learned is None else "fitted"
        return f"ParticleModel(variables: {', '.join(self.variables)}; relations: {', '.join(self.relations)}; {state})"


# ---------------------------------------------------------------------- particles


@dataclass(eq=False)
class _Cloud:
    """Particles of all nodes of one variable, and what is known at them.

    Attributes
    ----------
    points : (nodes, n, d)
    log_prior, log_evidence : (nodes, n)
    log_drawn : (nodes, n) log of the density W they were drawn from, up to a constant for each node
    messages : (messages, n) log of all arriving messages, node after node
    start : (nodes + 1,) where each node's messages begin
    """

    points: Matrix
    log_prior: Matrix
    log_evidence: Matrix
    log_drawn: Matrix
    messages: Matrix
    start: Indices

    def products(self) -> Matrix:
        """Log of evidence times all messages, (nodes, n)."""
        return self.log_evidence + self.arriving(self.messages)

    def arriving(self, messages: Matrix) -> Matrix:
        """Sum of messages (messages, n) over those of each node, (nodes, n)."""
        total = np.zeros((len(self.start) - 1, messages.shape[1]))
        some = np.flatnonzero(np.diff(self.start))
        if len(some):
            total[some] = np.add.reduceat(messages, self.start[some], axis=0)
        return total

    def weights(self) -> Matrix:
        """Importance weights of the belief, rows summing to one."""
        return _normalised(self.products() + self.log_prior - self.log_drawn)


class Particles:
    """The state of an inference: a cloud of particles for every node, and messages known at them.

    Parameters
    ----------
    prepared : the graph with its evidence
    size : particles of each node
    steps : of a Metropolis-Hastings chain
    prune : smallest share of weight that is not ignored
    mixing : share of independence in learned relations
    rng : Generator
    """

    def __init__(
        self,
        prepared: Prepared,
        size: int,
        steps: int,
        prune: float,
        mixing: float,
        rng: np.random.Generator,
    ) -> None:
        self._prepared, self._wiring = prepared, prepared.wiring
        self._size, self._steps, self._prune, self._rng = size, steps, prune, rng
        names = prepared.graph.variables
        self._fitted = [prepared.learned.variables[name] for name in names]
        self._edges: list[_Edge] = [
            self._edge(name, toward, mixing) for name, toward in self._wiring.operators
        ]
        self._everything = self._wiring.phase(np.arange(self._wiring.n_messages)) if len(names) else None
        self._tables: list[Single | None] = [None] * len(self._edges)
        self._position = np.empty(self._wiring.n_messages, dtype=np.intp)
        for operator in range(len(self._edges)):
            mine = np.flatnonzero(self._wiring.operator == operator)
            self._position[mine] = np.arange(len(mine))
        self._clouds = [self._first_cloud(variable) for variable in range(len(names))]
        for variable in range(len(names)):
            self._walk(variable, [])

    # ------------------------------------------------------------------ messages

    def update(self, phase: Phase, damping: float) -> float:
        """Send the messages of a phase; the largest change of any value, relative to its message's largest."""
        ready = [self._sender_weights(phase, send) for send in phase.sends]
        largest = 0.0
        for send, weights in zip(phase.sends, ready, strict=True):
            raw = self._applied(send, weights)
            fresh = raw / np.maximum(raw.max(axis=1, keepdims=True), TINY)
            messages = self._clouds[send.target_variable].messages
            old = np.exp(messages[send.rows])
            if damping:
                fresh = (1 - damping) * fresh + damping * old
                fresh /= fresh.max(axis=1, keepdims=True)
            largest = max(largest, float(np.abs(fresh - old).max(initial=0.0)))
            messages[send.rows] = np.log(np.maximum(fresh, FLOOR))
        return largest

    def _sender_weights(self, phase: Phase, send: Send) -> Matrix:
        """What each particle of the senders contributes, (messages, n), rows summing to one."""
        gather = phase.gathers[send.gather]
        cloud = self._clouds[gather.variable]
        total = np.add.reduceat(cloud.messages[gather.rows], gather.offsets, axis=0)
        total += (cloud.log_evidence - cloud.log_drawn)[gather.nodes]
        if self._edges[send.operator].takes_prior:
            total += cloud.log_prior[gather.nodes]
        weights = _normalised(total[send.source] - cloud.messages[send.own])
        weights[weights < self._prune] = 0.0
        return weights

    def _applied(self, send: Send, weights: Matrix) -> Matrix:
        """Sums over the senders' particles at each of the receivers', (messages, n), up to a factor for each.

        With tables that are kept, or, where they would take too much memory, from the senders themselves.
        """
        kept = self._kept_tables(send.operator)
        if kept is None:
            sender = self._clouds[int(self._wiring.source_variable[send.messages[0]])]
            frozen = self._edges[send.operator].frozen(sender, send, weights)
            receiver = self._clouds[send.target_variable]
            return frozen.at(receiver.points, self._wiring.target[send.messages])
        result = np.empty(weights.shape)
        for part in _blocks(len(weights), self._size**2):
            place = self._position[send.messages[part]]
            in_order = bool((np.diff(place) == 1).all())
            tables = kept[place[0] : place[-1] + 1] if in_order else kept[place]
            result[part] = np.matmul(tables, weights[part, :, None].astype(np.float32))[..., 0]
        return result

    def _kept_tables(self, operator: int) -> Single | None:
        """The tables of all messages of an operator, (messages, n, n), made once; None if they are too many."""
        if self._tables[operator] is None:
            mine = np.flatnonzero(self._wiring.operator == operator)
            shape = (len(mine), self._size, self._size)
            if np.prod(shape) * np.dtype(np.float32).itemsize > CACHE_BYTES:
                return None
            tables = np.empty(shape, dtype=np.float32)
            for part in _blocks(len(mine), self._size**2):
                tables[part] = self._made(operator, mine[part])
            self._tables[operator] = tables
        return self._tables[operator]

    def _made(self, operator: int, messages: Indices) -> Single:
        """A relation between all particles of the ends of some messages, (messages, n, n), scaled to 1."""
        wiring = self._wiring
        receiver = self._clouds[int(wiring.target_variable[messages[0]])]
        sender = self._clouds[int(wiring.source_variable[messages[0]])]
        tables = self._edges[operator].tables(
            receiver.points, wiring.target[messages], sender, wiring.source[messages], wiring.edge[messages]
        )
        largest = tables.max(axis=(1, 2), keepdims=True)
        return (tables / np.where(largest > 0, largest, 1.0)).astype(np.float32, copy=False)

    def _edge(self, name: str, toward: int, mixing: float) -> _Edge:
        relation = self._prepared.learned.relations[name]
        if isinstance(relation, Known):
            return _KnownEdge(self._prepared, name, toward)
        assert isinstance(relation, LearnedRelation)
        return _LearnedEdge(relation.terms(toward), mixing)

    # ------------------------------------------------------------------ drawing anew

    def redraw(self) -> None:
        """Draw all particles anew from the beliefs as they stand."""
        frozen: list[tuple[Send, _Frozen]] = []
        assert self._everything is not None
        for send in self._everything.sends:
            weights = self._sender_weights(self._everything, send)
            sender = self._clouds[self._everything.gathers[send.gather].variable]
            frozen.append((send, self._edges[send.operator].frozen(sender, send, weights)))
        for variable, cloud in enumerate(self._clouds):
            chosen = _resampled(cloud.weights(), self._size, self._rng)
            rows = np.arange(len(chosen))[:, None]
            for name in ("points", "log_prior", "log_evidence"):
                setattr(cloud, name, getattr(cloud, name)[rows, chosen])
            self._walk(variable, [item for item in frozen if item[0].target_variable == variable])
        self._tables = [None] * len(self._edges)

    def _walk(self, variable: int, frozen: list[tuple[Send, _Frozen]]) -> None:
        """Metropolis-Hastings chains on the belief, one for each particle, starting where it is."""
        cloud, fitted, rng = self._clouds[variable], self._fitted[variable], self._rng
        prior = fitted.prior
        assert prior is not None
        receiver = np.repeat(np.arange(len(cloud.points)), np.diff(cloud.start))

        def messages_at(points: Matrix) -> Matrix:
            messages = cloud.messages.copy()
            for send, edge in frozen:
                messages[send.rows] = np.log(
                    np.maximum(edge.at(points, self._wiring.target[send.messages]), TINY)
                )
            return messages

        cloud.messages = messages_at(cloud.points)
        arriving = cloud.arriving(cloud.messages)
        propose = _Proposal(cloud.points, prior)
        for step in range(self._steps):
            jump = step % JUMP_EVERY == JUMP_EVERY - 1
            if jump:
                drawn = prior.draw(cloud.points.shape[0] * self._size, rng)
                points = rng.permutation(drawn).reshape(cloud.points.shape)
            else:
                points = propose(cloud.points, STRIDES[step % len(STRIDES)], rng)
            log_prior = prior.log_at(points)
            log_evidence = self._prepared.log_evidence(variable, points)
            messages = messages_at(points)
            onto = cloud.arriving(messages)
            gain = log_evidence + onto - cloud.log_evidence - arriving
            if not jump:
                gain += log_prior - cloud.log_prior
            taken = np.log(rng.random(gain.shape)) < gain
            cloud.points = np.where(taken[..., None], points, cloud.points)
            cloud.log_prior = np.where(taken, log_prior, cloud.log_prior)
            cloud.log_evidence = np.where(taken, log_evidence, cloud.log_evidence)
            arriving = np.where(taken, onto, arriving)
            cloud.messages = np.where(taken[receiver], messages, cloud.messages)
        # Whatever is the same for all particles of a node says nothing; values are relative to the largest.
        cloud.messages -= cloud.messages.max(axis=1, keepdims=True)
        np.maximum(cloud.messages, np.log(FLOOR), out=cloud.messages)
        cloud.log_drawn = cloud.log_prior + cloud.products()

    def _first_cloud(self, variable: int) -> _Cloud:
        """Particles chosen by the evidence among draws from the marginal; messages of ones."""
        prior = self._fitted[variable].prior
        assert prior is not None
        start = self._wiring.start[variable]
        nodes = len(start) - 1
        pool = prior.draw(max(POOL, 4 * self._size), self._rng)
        chosen = np.empty((nodes, self._size), dtype=np.intp)
        log_evidence = np.empty((nodes, self._size))
        for part in _blocks(nodes, len(pool)):
            logs = self._prepared.log_evidence(variable, pool[None], np.arange(part.start, part.stop))
            chosen[part] = _resampled(_normalised(logs), self._size, self._rng)
            log_evidence[part] = np.take_along_axis(logs, chosen[part], axis=1)
        points = pool[chosen]
        log_prior = prior.log_at(points)
        messages = np.zeros((int(start[-1]), self._size))
        return _Cloud(points, log_prior, log_evidence, log_prior + log_evidence, messages, start)

    # ------------------------------------------------------------------ the end

    def mixtures(self) -> dict[str, Mixtures]:
        """The beliefs: weighted particles, smoothed; fixed nodes as atoms."""
        result: dict[str, Mixtures] = {}
        for variable, name in enumerate(self._wiring.variables):
            cloud, where = self._clouds[variable], self._fitted[variable].where
            points, weights = cloud.points.copy(), cloud.weights()
            width = smoothing(points, weights, where)
            width = np.repeat(width[:, None], self._size, axis=1)
            fixed, values = self._prepared.fixed(variable)
            points[fixed] = values[:, None]
            weights[fixed] = 1 / self._size
            if where == "sphere":
                width[fixed] = np.inf
                result[name] = Mixtures(points, weights, concentrations=width)
            else:
                width[fixed] = 0.0
                result[name] = Mixtures(points, weights, covariances=width)
        return result


class _Proposal:
    """Symmetric proposals as wide as a node's particles spread."""

    def __init__(self, points: Matrix, prior: Prior) -> None:
        self._sphere = prior.where == "sphere"
        count, dimension = points.shape[1:]
        centre = points.mean(axis=1, keepdims=True)
        if self._sphere:
            free = max(dimension - 1, 1)
            spread = np.maximum(1 - (centre[:, 0] ** 2).sum(axis=1), 0.0) / free
            self._width = np.sqrt(spread + LEAST_SPREAD**2 / float(prior.width))
            return
        apart = points - centre
        spread = np.einsum("sni,snj->sij", apart, apart) / count
        spread += LEAST_SPREAD**2 * prior.width
        self._root = np.linalg.cholesky(spread)

    def __call__(self, points: Matrix, stride: float, rng: np.random.Generator) -> Matrix:
        """Where each particle (nodes, n, d) might go."""
        if self._sphere:
            concentration = np.broadcast_to(1 / (stride * self._width[:, None]) ** 2, points.shape[:2])
            return draw_on_sphere(points, concentration, rng)
        steps = np.einsum("sij,snj->sni", self._root, rng.standard_normal(points.shape))
        moved: Matrix = points + stride * steps
        return moved


# ---------------------------------------------------------------------- relations at particles


@dataclass(frozen=True, eq=False)
class _KnownEdge:
    """A relation written down by the user, evaluated at particles."""

    prepared: Prepared
    name: str
    toward: int
    takes_prior = True

    def tables(
        self, points: Matrix, receivers: Indices, sender: _Cloud, senders: Indices, edges: Indices
    ) -> Matrix:
        """Potential between all particles, (messages, n_receiver, n_sender)."""
        return self.values(points[receivers], sender.points[senders], edges)

    def values(self, receiver: Matrix, sender: Matrix, edges: Indices) -> Matrix:
        """Potential between particles (messages, n, d) of both ends, (messages, n_receiver, n_sender)."""
        potential = self.prepared.potential(self.name)
        readings = potential.own_readings(self.prepared.graph.readings)
        own = None if readings is None else readings[edges]
        ends = receiver[:, :, None], sender[:, None, :]
        return evaluate(potential, *(ends if self.toward == 0 else ends[::-1]), own)

    def frozen(self, sender: _Cloud, send: Send, weights: Matrix) -> _Frozen:
        """The messages as functions of the receiver's value."""
        return _FrozenKnown(self, sender.points[send.nodes], weights, send.edges)


@dataclass(frozen=True, eq=False)
class _FrozenKnown:
    edge: _KnownEdge
    senders: Matrix
    weights: Matrix
    edges: Indices

    def at(self, points: Matrix, receivers: Indices) -> Matrix:
        """Values (messages, n) at the receivers' points (nodes, n, d)."""
        result = np.empty((len(receivers), points.shape[1]))
        for part in _blocks(len(receivers), points.shape[1] * self.weights.shape[1]):
            tables = self.edge.values(points[receivers[part]], self.senders[part], self.edges[part])
            result[part] = np.matmul(tables, self.weights[part, :, None])[..., 0]
        return result


class _LearnedEdge:
    r"""A learned relation: :math:`P(x_t \mid x_s) = \sum_l a_l(x_s)\, b_l(x_t)` has as many terms as centres."""

    takes_prior = False

    def __init__(self, terms: Terms, mixing: float) -> None:
        self.terms, self.mixing = terms, mixing

    def tables(
        self, points: Matrix, receivers: Indices, sender: _Cloud, senders: Indices, edges: Indices
    ) -> Single:
        """Conditional density between all particles, (messages, n_receiver, n_sender)."""
        tables = np.empty((len(receivers), points.shape[1], sender.points.shape[1]), dtype=np.float32)
        for part in _blocks(len(receivers), 2 * points.shape[1] * self.terms.size):
            mine, place = np.unique(receivers[part], return_inverse=True)
            theirs, at = np.unique(senders[part], return_inverse=True)
            given = self.terms.given(points[mine])[place]
            bumps = self.terms.bumps(sender.points[theirs])[at]
            np.matmul(given, bumps.transpose(0, 2, 1), out=tables[part])
        if self.mixing:
            tables *= 1 - self.mixing
            tables += self.mixing * np.exp(sender.log_prior[senders, None, :]).astype(np.float32)
        return tables

    def frozen(self, sender: _Cloud, send: Send, weights: Matrix) -> _Frozen:
        """The messages as functions of the receiver's value: their coefficients on the a_l."""
        coefficients = np.empty((len(weights), self.terms.size), dtype=np.float32)
        for part in _blocks(len(weights), weights.shape[1] * self.terms.size):
            theirs, at = np.unique(send.nodes[part], return_inverse=True)
            bumps = self.terms.bumps(sender.points[theirs])[at]
            coefficients[part] = np.matmul(weights[part, None, :].astype(np.float32), bumps)[:, 0]
        alike = np.einsum("mn,mn->m", weights, np.exp(sender.log_prior[send.nodes]))
        return _FrozenLearned(self.terms, coefficients, self.mixing, alike)


@dataclass(frozen=True, eq=False)
class _FrozenLearned:
    terms: Terms
    coefficients: Single
    mixing: float
    alike: Matrix

    def at(self, points: Matrix, receivers: Indices) -> Matrix:
        """Values (messages, n) at the receivers' points (nodes, n, d)."""
        result = np.empty((len(receivers), points.shape[1]))
        for part in _blocks(len(receivers), points.shape[1] * self.terms.size):
            mine, place = np.unique(receivers[part], return_inverse=True)
            given = self.terms.given(points[mine])[place]
            result[part] = np.matmul(given, self.coefficients[part, :, None])[..., 0]
        return (1 - self.mixing) * result + self.mixing * self.alike[:, None]


_Edge = _KnownEdge | _LearnedEdge
_Frozen = _FrozenKnown | _FrozenLearned


def _normalised(logs: Matrix) -> Matrix:
    """Rows of logs as shares that sum to one."""
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _resampled(weights: Matrix, size: int, rng: np.random.Generator) -> Indices:
    """For each row, `size` columns in proportion to its weights, evenly through them."""
    count, width = weights.shape
    places = (np.arange(size) + rng.random((count, 1))) / size
    cumulative = np.cumsum(weights, axis=1)
    cumulative /= cumulative[:, -1:]
    # One sorted search for all rows: row i is shifted by 2 i, so that rows cannot meet.
    shift = 2.0 * np.arange(count)[:, None]
    found = np.searchsorted((cumulative + shift).ravel(), places + shift, side="right")
    return np.minimum(found - width * np.arange(count)[:, None], width - 1)


def _blocks(total: int, cells: int) -> Iterator[slice]:
    step = max(BLOCK_CELLS // max(cells, 1), 1)
    for begin in range(0, total, step):
        yield slice(begin, min(begin + step, total))
