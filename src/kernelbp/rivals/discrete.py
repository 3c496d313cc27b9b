r"""Discrete belief propagation: every variable cut into levels, every relation a table, and our own engine.

With :math:`\pi` the probabilities of a variable's levels and :math:`P_{st}` the counts of a relation's pairs, smoothed
and summing to one, the model has

.. math:: \psi_s = \pi_s, \qquad \psi_{st} = \frac{P_{st}}{P_s P_t},

the pseudo-moment matching of Wainwright, Jaakkola and Willsky (2003), which the paper gives to its discrete rival; with
edge weights :math:`\rho` the edge potential is :math:`\psi_{st}^\rho`, as they derive it. Relations with a potential of
their own keep it.

**Smoothing** adds the same number to every cell of a table of counts. Unless given, it is the one under which pairs left
out one at a time are most likely, which has a closed form.

**Iterative proportional fitting.** Fitting potentials so that belief propagation's own marginals equal given ones
has the closed form above, provided that the tables of all relations agree on the marginals of the variables they share.
Tables of counts of several relations do not. ``potentials="fitting"`` scales rows and columns of each table in turn until
its marginals are the pooled ones :math:`\pi`, the table nearest to the counts in relative entropy that has them, and takes
:math:`\psi_{st} = P_{st} / \pi_s \pi_t` of it. Then, on any graph without evidence, messages of ones are a fixed
point, the belief of every node is :math:`\pi` and that of every edge :math:`P_{st}`. With one symmetric relation both ways are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelbp.errors import InputError, NotFittedError, UnsupportedError
from kernelbp.graph import Graph, Readings
from kernelbp.inference.beliefs import Beliefs
from kernelbp.inference.evidence import Evidence, Likelihood, Piece, gather_evidence
from kernelbp.inference.progress import Progress
from kernelbp.inference.propagation import check_call, propagate, wire_hidden
from kernelbp.inference.run import Damping
from kernelbp.inference.schedules import Schedule
from kernelbp.inference.setup import DEFAULTS
from kernelbp.kernels import Kernel, check_values, domain, resolve
from kernelbp.learning.conditionals import Conditional, EdgeOperator
from kernelbp.learning.estimators import is_estimator
from kernelbp.learning.examples import Table, VariableExamples, collect
from kernelbp.learning.marginal import Marginal, Tabulated
from kernelbp.learning.operators import Operators
from kernelbp.learning.potentials import KnownRelation, Potential, log_scales, potential_operator
from kernelbp.learning.probability import density_ratio
from kernelbp.model import Model, Relation, Weighting
from kernelbp.values import Column, Kind, column_of, distinct, is_number, is_whole

__all__ = ["DiscreteBeliefs", "DiscreteModel"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
Product = Literal["sum", "max"]

DEFAULT_LEVELS = 30
"""Levels of numbers if none are asked for: as many as the paper's depth experiment has."""
PSEUDO_COUNTS = np.geomspace(1e-6, 1e3, 37)
"""Numbers added to each cell that are tried."""
MOST_SCALINGS = 10_000
SCALED = 1e-12
"""Proportional fitting ends when no marginal is off by more than this."""
SMALLEST = 1e-300
"""Probability of a level that was never seen, if nothing is added to counts."""


@dataclass(frozen=True)
class Histogram(Tabulated):
    """A density on R that is constant over the bins of the levels, zero beyond them.

    Attributes
    ----------
    points : (q + 1,) edges of the bins
    heights : (q,)
    widths : (1,) of the window that stands for a value known exactly
    """

    def __call__(self, points: Matrix) -> Matrix:
        """Density at points (n, 1), shape (n,)."""
        where = points[:, 0]
        inside = (where >= self.points[0]) & (where <= self.points[-1])
        bins = np.clip(np.searchsorted(self.points, where) - 1, 0, len(self.heights) - 1)
        return np.where(inside, self.heights[bins], 0.0)


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a variable.

    Attributes
    ----------
    kernel, kind : of the variable
    values : (q, d) or (q,) column, distinct, in the order given
    reach : smallest and largest training value of numbers, else None
    probabilities : (q,) positive, summing to one
    """

    kernel: Kernel
    kind: Kind
    values: Column
    reach: tuple[float, float] | None = None
    probabilities: Matrix = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def form(self) -> Literal["finite", "numbers", "vectors"]:
        """How values are told apart."""
        if domain(self.kernel) == "finite":
            return "finite"
        return "numbers" if self.values.shape[1] == 1 else "vectors"

    @cached_property
    def order(self) -> Indices:
        """The levels of numbers from small to large."""
        return np.argsort(self.values[:, 0], kind="stable")

    @cached_property
    def edges(self) -> Matrix:
        """Where the bins of numbers begin and end, (q + 1,): halfway between levels, and as far out as data lie."""
        sorted_values = self.values[self.order, 0]
        if len(sorted_values) == 1:
            half = 0.5e-6 * max(abs(float(sorted_values[0])), 1.0)
            return sorted_values[0] + np.array([-half, half])
        between = (sorted_values[1:] + sorted_values[:-1]) / 2
        low, high = 2 * sorted_values[0] - between[0], 2 * sorted_values[-1] - between[-1]
        if self.reach is not None:
            low, high = min(low, self.reach[0]), max(high, self.reach[1])
        return np.concatenate([[low], between, [high]])

    @cached_property
    def sizes(self) -> Matrix:
        """What the levels weigh before anything is known, (q,): widths of bins of numbers, else alike."""
        sizes = np.ones(len(self))
        if self.form == "numbers":
            sizes[self.order] = np.diff(self.edges)
        return sizes / sizes.sum()

    def nearest(self, values: Column) -> Indices:
        """The level of each of n values, (n,)."""
        if self.form == "finite":
            return np.asarray(self.kernel(values, self.values)).argmax(axis=1)
        if self.form == "numbers":
            return self.order[np.searchsorted(self.edges[1:-1], values[:, 0])]
        from scipy.spatial import KDTree

        return np.asarray(KDTree(self.values).query(values)[1], dtype=np.intp)

    def marginal(self) -> Marginal:
        """As beliefs read it: the levels are all the values there are."""
        density = None
        if self.form == "numbers":
            widths = np.diff(self.edges)
            heights = self.probabilities[self.order] / widths
            density = Histogram(self.edges, heights, np.array([np.median(widths) / 4]))
        weights = self.probabilities
        return Marginal(self.values, weights, weights, None, density, (self.values, weights))


@dataclass(frozen=True)
class _Read:
    """A variable that has no levels, since it is only read through functions: known by what is read."""

    kernel: Kernel
    kind: Kind
    values: Column


@dataclass(frozen=True)
class _AtLevels:
    """Virtual evidence, known at the levels and constant around each."""

    inner: Likelihood
    levels: Levels

    @property
    def nodes(self) -> Indices:
        """Node numbers within the variable, sorted."""
        return self.inner.nodes

    def at(self, operators: Operators, chosen: slice, points: Column | None) -> Array:
        """Values (n, q) for the chosen nodes."""
        table = self.inner.at(operators, chosen, None)
        return table if points is None else table[:, self.levels.nearest(points)]

    def interpolated(self, operators: Operators) -> bool:
        """As messages are, it is that of the nearest level."""
        return True


@dataclass(frozen=True)
class DiscreteOperators:
    """Tables over levels, as `kernelbp.learning.operators.Operators`.

    Attributes
    ----------
    levels : by variable
    relations : all relations
    ratios : (q_first, q_second) edge potentials of the learned ones
    known : those with a potential
    product : "sum" or "max"
    """

    levels: Mapping[str, Levels]
    relations: Mapping[str, Relation]
    ratios: Mapping[str, Matrix]
    known: Mapping[str, KnownRelation]
    product: Product
    signed: bool = field(default=False, init=False)

    def support(self, variable: str) -> Column:
        """The levels."""
        return self.levels[variable].values

    def support_weights(self, variable: str) -> Matrix:
        """Their probabilities."""
        return self.levels[variable].probabilities

    def operator(
        self,
        relation: str,
        toward: int,
        readings: Array | None,
        weights: Matrix | None,
        dtype: DTypeLike,
    ) -> EdgeOperator:
        """Potential times the sender's probabilities, summed or maximised over."""
        ends = self._ends(relation)
        sender = self.support_weights(ends[1 - toward])
        made: EdgeOperator
        if relation in self.ratios:
            made = Conditional((self._facing(relation, toward) * sender).astype(dtype))
        else:
            points = (self.support(ends[0]), self.support(ends[1]))
            potential = self.known[relation].potential
            made = potential_operator(potential, toward, points, sender, readings, weights, dtype)
        if self.product == "sum":
            return made
        from kernelbp.rivals.max_product import max_product

        return max_product(made)

    def log_scales(self, relation: str, readings: Array | None, edges: Indices) -> Matrix:
        """What operators of known relations were divided by, by edge; nothing for learned ones."""
        if relation in self.ratios:
            return np.zeros(len(edges))
        first, second = self._ends(relation)
        points = (self.support(first), self.support(second))
        return log_scales(self.known[relation].potential, points, readings, edges)

    def evidence(
        self,
        relation: str,
        toward: int,
        values: Column,
        points: Column | None = None,
        readings: Array | None = None,
    ) -> Matrix:
        """The column of the table at the level of each known value; a function is asked at the value itself."""
        receiver, sender = self._ends(relation)[toward], self._ends(relation)[1 - toward]
        known = self.known.get(relation)
        if known is not None and callable(known.potential.given):
            said = known.potential.paired(toward, self.support(receiver), values, readings)
        else:
            said = self._facing(relation, toward).T[self.levels[sender].nearest(values)]
        return said if points is None else said[:, self.levels[receiver].nearest(points)]

    def interpolates(self, relation: str) -> bool:
        """As messages are, it is that of the nearest level."""
        return True

    def resolution(self, variable: str, atoms: Column, candidates: Column) -> Matrix | None:
        """Levels are apart."""
        return None

    def function(self, variable: str) -> Matrix:
        """Messages are tables of values: no basis but the levels."""
        return np.eye(len(self.levels[variable]))

    def interpolation(self, variable: str, points: Column) -> Matrix:
        """A message is constant around each level."""
        return np.eye(len(self.levels[variable]))[self.levels[variable].nearest(points)]

    def _ends(self, relation: str) -> tuple[str, str]:
        return self.relations[relation].first, self.relations[relation].second

    def _facing(self, relation: str, toward: int) -> Matrix:
        """The table of a relation with the receiving end in its rows."""
        table = (
            self.ratios[relation]
            if relation in self.ratios
            else np.asarray(self.known[relation].potential.given)
        )
        return table if toward == 0 else table.T


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteBeliefs(Beliefs):
    """Beliefs over levels: `kernelbp.Beliefs` of the discrete distribution on them.

    After max-product the distributions are max-marginals, scaled to sum to one: `mode` is the most probable
    assignment of all nodes together (exactly on trees, if there is only one such).
    """

    def log_partition(self) -> float:
        """Logarithm of the partition function: see `kernelbp.Beliefs.log_partition`. Sum-product only."""
        operators = self._source.operators
        if isinstance(operators, DiscreteOperators) and operators.product == "max":
            raise UnsupportedError("the partition function is a sum; infer with product='sum'")
        return super().log_partition()


@dataclass(frozen=True)
class _Fitted:
    """Everything learned."""

    levels: Mapping[str, Levels]
    joints: Mapping[str, Matrix]
    ratios: Mapping[str, Matrix]
    smoothing: Mapping[str, tuple[float, float | None]]


class DiscreteModel:
    """Discrete belief propagation: variables cut into levels, relations as tables over them.

    Parameters
    ----------
    variables : mapping from name to kernel
        As for `kernelbp.Model`; here a kernel only says where values live. Finite variables are taken as they are,
        numbers go to the level nearest to them, vectors and directions to the nearest of their centres.
    relations : mapping from name to `kernelbp.Relation`
        A table as potential has rows and columns in the order of the levels of its two ends.
    levels : mapping from variable to values or to a number of them, or one number for all, optional
        A number of levels of a variable of numbers is placed by `spacing`; of vectors and directions it
        is the number of k-means centres, which must be asked for. By default 30 for numbers, and all values of
        finite variables. A variable that is only read, through a function, needs none.
    spacing : "quantiles" or "even"
        Levels of numbers at evenly spaced quantiles of the training values (all of them, if no more), or in the middle of
        evenly wide bins from the smallest to the largest.
    potentials : "moments" or "fitting"
        Edge potentials by pseudo-moment matching, or by iterative proportional fitting to the pooled marginals:
        see `kernelbp.rivals.discrete`.
    smoothing : float, optional
        Added to every cell of every table of counts; if not given, chosen for each by leaving pairs out.
    inference : mapping, optional
        Defaults of `infer` for this model, by keyword.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> from kernelbp.rivals import DiscreteModel
    >>> rng = np.random.default_rng(0)
    >>> now = rng.standard_normal(20_000)
    >>> following = 0.8 * now + 0.6 * rng.standard_normal(20_000)
    >>> model = DiscreteModel(
    ...     {"state": kb.kernels.Gaussian()}, {"then": kb.Relation("state", "state")}, levels={"state": 25}
    ... )
    >>> beliefs = model.fit({"then": (now, following)}).infer(
    ...     kb.Graph.chain(2, variable="state", relation="then").fix([0], [1.0])
    ... )
    >>> bool(abs(beliefs.mean()[1] - 0.8) < 0.1)
    True
    """

    def __init__(
        self,
        variables: Mapping[str, Kernel],
        relations: Mapping[str, Relation],
        *,
        levels: Mapping[str, Any] | int | None = None,
        spacing: Literal["quantiles", "even"] = "quantiles",
        potentials: Literal["moments", "fitting"] = "moments",
        smoothing: float | None = None,
        inference: Mapping[str, Any] | None = None,
    ) -> None:
        self.variables = variables
        self.relations = relations
        self.levels = levels
        self.spacing = spacing
        self.potentials = potentials
        self.smoothing = smoothing
        self.inference = inference
        self._fitted: _Fitted | None = None

    # ------------------------------------------------------------------ learning

    def fit(
        self, pairs: Mapping[str, tuple[Any, Any]] | None = None, *, progress: bool = False
    ) -> DiscreteModel:
        """Place the levels and count the pairs of every relation that has no potential.

        Parameters
        ----------
        pairs : mapping
            For each relation ``(first values, second values)``, equally long.
        progress : bool
            Show a progress bar.

        Returns
        -------
        DiscreteModel
            Itself.
        """
        self._check_settings()
        to_learn = {name: relation for name, relation in self.relations.items() if relation.potential is None}
        examples, tables = collect(
            to_learn,
            {} if pairs is None else pairs,
            kernels=self.variables,
        )
        with Progress("learning", 1 + len(to_learn), shown=progress) as bar:
            levels = {
                name: self._placed(name, examples.get(name))
                for name in self.variables
                if self._needs_levels(name)
            }
            self._check_tables(levels)
            bar.advance("levels")
            joints, smoothing = {}, {}
            for name, relation in to_learn.items():
                ends = (relation.first, relation.second)
                places = [levels[end].nearest(examples[end].values) for end in ends]
                counts = _counted(tables[name], *places, shape=(len(levels[ends[0]]), len(levels[ends[1]])))
                smoothing[name] = _smoothing(counts, self.smoothing, symmetric=relation.symmetric)
                joint = counts + smoothing[name][0]
                joints[name] = joint / joint.sum()
                bar.advance(f"relation {name}")
        sizes = {name: float(table.sum()) for name, table in tables.items()}
        levels = {
            name: replace(own, probabilities=_pooled(name, own, to_learn, joints, sizes))
            for name, own in levels.items()
        }
        ratios = {name: density_ratio(joint, 0.0) for name, joint in joints.items()}
        if self.potentials == "fitting":
            for name, relation in to_learn.items():
                wanted = (levels[relation.first].probabilities, levels[relation.second].probabilities)
                joints[name] = proportional_fit(joints[name], *wanted, name)
                outer = np.outer(*wanted)
                ratios[name] = np.divide(joints[name], outer, out=np.ones_like(outer), where=outer > 0)
        self._fitted = _Fitted(levels, joints, ratios, smoothing)
        return self

    # ------------------------------------------------------------------ inference

    def infer(
        self,
        graph: Graph,
        *,
        product: Product = "sum",
        weighting: Weighting | ArrayLike | None = None,
        schedule: Schedule | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        damping: Damping | None = None,
        start: Beliefs | None = None,
        dtype: DTypeLike = np.float32,
        n_jobs: int | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> DiscreteBeliefs:
        """Work out the belief of every node.

        Parameters
        ----------
        graph : Graph
            With its evidence.
        product : "sum" or "max"
            Marginals of each node, or the most probable assignment of all of them together.
        weighting, schedule, max_iterations, tolerance, damping, start, dtype, n_jobs, progress
            As for `kernelbp.Model.infer`; ``weighting="bethe"`` is ordinary belief propagation. With edge weights and
            ``product="max"`` it is tree-reweighted max-product.
        seed : int
            Taken for one face with the rivals that draw; nothing is drawn here.

        Returns
        -------
        DiscreteBeliefs
        """
        fitted = self._need_fitted()
        if product not in ("sum", "max"):
            raise InputError(f"product: expected 'sum' or 'max', got {product!r}")
        given = {
            "weighting": weighting,
            "schedule": schedule,
            "max_iterations": max_iterations,
            "tolerance": tolerance,
            "damping": damping,
        }
        choice = {
            **DEFAULTS,
            "conditionals": "probability",
            **(self.inference or {}),
            **{k: v for k, v in given.items() if v is not None},
        }
        precision = check_call(graph, choice, start, dtype, n_jobs)
        for name in graph.variables:
            if name not in fitted.levels:
                known = ", ".join(fitted.levels)
                raise InputError(
                    f"graph: variable {name!r} has no levels, so it cannot have nodes; give levels={{{name!r}: ...}} "
                    f"(there are levels of {known})"
                )
        facts: dict[str, Levels | _Read] = {**fitted.levels, **self._read_only(graph, fitted.levels)}
        known_relations = {
            name: KnownRelation(r.first, r.second, self._potential(name, r, facts))
            for name, r in self.relations.items()
            if r.potential is not None and r.second in facts
        }
        operators = DiscreteOperators(fitted.levels, self.relations, fitted.ratios, known_relations, product)
        evidence = _at_levels(gather_evidence(graph, self.relations, facts), fitted.levels)
        source, verdict = propagate(
            graph,
            wire_hidden(graph, self.relations, evidence),
            operators,
            evidence,
            facts,
            {name: own.marginal() for name, own in fitted.levels.items()},
            choice,
            start=start,
            dtype=precision,
            n_jobs=n_jobs,
            # A maximum has kinks, across which extrapolation is worth nothing.
            smooth=product == "sum",
            progress=progress,
        )
        return DiscreteBeliefs(source, verdict)

    # ------------------------------------------------------------------ looking

    def support(self, variable: str) -> Array:
        """The levels of a variable, shape (q,) or (q, d)."""
        own = self._levels_of(variable)
        return own.kind.restore(own.values)

    def probabilities(self, variable: str) -> Matrix:
        """The node potential: probabilities of a variable's levels, (q,)."""
        return self._levels_of(variable).probabilities.copy()

    @property
    def settings_(self) -> dict[str, Any]:
        """What fitting chose: levels by variable; by learned relation what was added to counts, and its score.

        The score is the mean log-probability of pairs left out one at a time, in nats; None if smoothing was given.
        """
        fitted = self._need_fitted()
        return {
            "variables": {name: {"levels": len(own)} for name, own in fitted.levels.items()},
            "relations": {
                name: {"smoothing": added, "score": score}
                for name, (added, score) in fitted.smoothing.items()
            },
        }

    def __repr__(self) -> str:
        state = "not fitted" if self._fitted is None else "fitted"
        return f"DiscreteModel(variables: {', '.join(self.variables)}; relations: {', '.join(self.relations)}; {state})"

    # ------------------------------------------------------------------ inside

    def _need_fitted(self) -> _Fitted:
        if self._fitted is None:
            raise NotFittedError("this model has not been fitted; call fit(pairs) first")
        return self._fitted

    def _levels_of(self, variable: str) -> Levels:
        levels = self._need_fitted().levels
        if variable not in levels:
            raise InputError(f"variable: unknown {variable!r}; there are levels of {', '.join(levels)}")
        return levels[variable]

    def _check_settings(self) -> None:
        Model(self.variables, self.relations, inference=self.inference)._check_settings()
        for name in ("update", "conditionals"):
            if name in (self.inference or {}):
                raise InputError(
                    f"inference: {name!r} is a setting of kernelbp.Model, not of a discrete model"
                )
        for name, relation in self.relations.items():
            if is_estimator(relation.evidence):
                raise UnsupportedError(
                    f"relations[{name!r}]: evidence from an estimator cannot be put into a table of levels; "
                    "kernelbp.Model takes it"
                )
        for name, kernel in self.variables.items():
            if domain(kernel) == "other" and self._needs_levels(name):
                raise UnsupportedError(
                    f"variables[{name!r}]: values of {kernel} cannot be cut into levels; take kernels.Delta() if there are "
                    "finitely many, or kernelbp.Model"
                )
        if self.spacing not in ("quantiles", "even"):
            raise InputError(f"spacing: expected 'quantiles' or 'even', got {self.spacing!r}")
        if self.potentials not in ("moments", "fitting"):
            raise InputError(f"potentials: expected 'moments' or 'fitting', got {self.potentials!r}")
        if self.smoothing is not None and not (is_number(self.smoothing) and 0 <= self.smoothing < np.inf):
            raise InputError(f"smoothing: expected a number of at least 0, got {self.smoothing!r}")
        given = self.levels
        if isinstance(given, Mapping):
            for name in given:
                if name not in self.variables:
                    raise InputError(
                        f"levels: unknown variable {name!r}; the model has {', '.join(self.variables)}"
                    )
        elif given is not None and not is_whole(given):
            raise InputError(
                f"levels: expected a mapping from variable to values or a number, or one number, got {given!r:.80}"
            )

    def _given(self, name: str) -> Any:
        """What was said of a variable's levels; None for nothing."""
        if isinstance(self.levels, Mapping):
            return self.levels.get(name)
        return self.levels if domain(self.variables[name]) != "finite" else None

    def _needs_levels(self, name: str) -> bool:
        """Whether a variable has nodes, or is an end of a table: not if it is only read through functions."""
        return (isinstance(self.levels, Mapping) and name in self.levels) or any(
            name == r.first or (name == r.second and not callable(r.potential))
            for r in self.relations.values()
        )

    def _placed(self, name: str, examples: VariableExamples | None) -> Levels:
        """The levels of a variable: as given, or laid through its training values."""
        kernel, given = self.variables[name], self._given(name)
        where = f"levels[{name!r}]"
        if given is not None and not is_whole(given):
            column, kind = column_of(kernel, given, where)
            if not len(column):
                raise InputError(f"{where}: no values given")
            check_values(kernel, column, where)
            if len(distinct(column)[0]) != len(column):
                raise InputError(
                    f"{where}: expected distinct values, got {len(column)} of which some are equal"
                )
            if examples is not None:
                kind = examples.kind.merged(kind, where)
                if (
                    domain(kernel) == "finite"
                    and not np.asarray(kernel(examples.values, column)).any(axis=1).all()
                ):
                    raise InputError(
                        f"{where}: must hold every training value of a finite variable, or those left out would have none"
                    )
            return _levels(kernel, kind, column, examples)
        if examples is None:
            raise InputError(
                f"levels: variable {name!r} has no training pairs, so its levels must be given: levels={{{name!r}: values}}"
            )
        if given is not None and given < 1:
            raise InputError(f"{where}: expected at least 1 level, got {given!r}")
        if domain(kernel) == "finite":
            if given is not None:
                raise InputError(
                    f"{where}: finite variables are taken as they are; give their values, not a number"
                )
            return _levels(kernel, examples.kind, examples.values, examples)
        if examples.values.shape[1] == 1:
            number = DEFAULT_LEVELS if given is None else int(given)
            return _levels(kernel, examples.kind, _on_a_line(examples, number, self.spacing), examples)
        if given is None:
            raise UnsupportedError(
                f"variables[{name!r}]: {examples.kind.describe()} are cut into levels only on request, levels={{{name!r}: number "
                "of k-means centres}; kernelbp.Model and kernelbp.rivals.ParticleModel take them as they are"
            )
        return _levels(
            kernel, examples.kind, _centres(examples, int(given), domain(kernel) == "sphere"), examples
        )

    def _check_tables(self, levels: Mapping[str, Levels]) -> None:
        for name, relation in self.relations.items():
            if isinstance(relation.potential, np.ndarray):
                wanted = (len(levels[relation.first]), len(levels[relation.second]))
                if relation.potential.shape != wanted:
                    raise InputError(
                        f"relations[{name!r}]: expected a table of shape {wanted}, by the levels of {relation.first!r} and "
                        f"{relation.second!r}, got {relation.potential.shape}"
                    )

    def _read_only(self, graph: Graph, levels: Mapping[str, Levels]) -> dict[str, _Read]:
        """Variables without levels that this graph has readings of."""
        found: dict[str, _Read] = {}
        for said in graph.evidence:
            if not isinstance(said, Readings) or said.relation not in self.relations:
                continue
            relation = self.relations[said.relation]
            if relation.second not in levels:
                name, kind, values = relation.second, said.kind, said.values
                if name in found:
                    kind = found[name].kind.merged(kind, f"observe: values of variable {name!r}")
                    values = np.concatenate([found[name].values, values])
                found[name] = _Read(self.variables[name], kind, values)
        return found

    def _potential(self, name: str, relation: Relation, facts: Mapping[str, Levels | _Read]) -> Potential:
        assert relation.potential is not None
        first, second = facts[relation.first], facts[relation.second]
        landmarks = None if callable(relation.potential) else (first.values, second.values)
        return Potential(relation.potential, (first.kind, second.kind), landmarks, name)


# ---------------------------------------------------------------------- levels


def _levels(kernel: Kernel, kind: Kind, values: Column, examples: VariableExamples | None) -> Levels:
    seen, counts = (values, None) if examples is None else (examples.values, examples.counts.astype(np.int64))
    kernel, reach = resolve(kernel, seen, counts), None
    if examples is not None and domain(kernel) != "finite" and values.shape[1] == 1:
        reach = (float(examples.values.min()), float(examples.values.max()))
    return Levels(kernel, kind, values, reach)


def _on_a_line(examples: VariableExamples, number: int, spacing: str) -> Matrix:
    """At most `number` levels of numbers, (q, 1), sorted."""
    values, counts = examples.values[:, 0], examples.counts  # distinct, so sorted
    if spacing == "even":
        low, high = values[0], values[-1]
        levels = np.unique(low + (high - low) * (np.arange(number) + 0.5) / number)
    elif len(values) <= number:
        levels = values
    else:
        wanted = (np.arange(number) + 0.5) / number * counts.sum()
        levels = np.unique(values[np.searchsorted(np.cumsum(counts), wanted)])
    return levels[:, None]


def _centres(examples: VariableExamples, number: int, sphere: bool) -> Matrix:
    """k-means centres of vectors, (q, d); on the sphere brought back onto it."""
    if len(examples.values) <= number:
        return examples.values
    from sklearn.cluster import KMeans

    means = KMeans(number, n_init=1, random_state=0).fit(examples.values, sample_weight=examples.counts)
    centres: Matrix = np.asarray(means.cluster_centers_, dtype=np.float64)
    if sphere:
        size = np.linalg.norm(centres, axis=1, keepdims=True)
        centres = (centres / np.where(size > 0, size, 1.0))[size[:, 0] > 0]
    return np.unique(centres, axis=0)


# ---------------------------------------------------------------------- tables


def _counted(table: Table, first: Indices, second: Indices, *, shape: tuple[int, int]) -> Matrix:
    """Counts of pairs of levels from counts of pairs of values."""
    counts = np.zeros(shape)
    entries = table.tocoo()
    np.add.at(counts, (first[entries.row], second[entries.col]), entries.data)
    return counts


def _smoothing(counts: Matrix, given: float | None, *, symmetric: bool) -> tuple[float, float | None]:
    """What to add to each cell, and the mean log-probability of pairs left out one at a time.

    A pair of a symmetric relation stands in the table twice, (i, j) and (j, i), and both are left out with it.
    """
    if given is not None:
        return float(given), None
    own = np.ones_like(counts)
    if symmetric:
        own += np.eye(len(counts))
    seen = counts > 0
    left = (counts - own)[seen]
    rest = counts.sum() - (2.0 if symmetric else 1.0)
    scores = [counts[seen] @ np.log((left + added) / (rest + added * counts.size)) for added in PSEUDO_COUNTS]
    best = int(np.argmax(scores))
    return float(PSEUDO_COUNTS[best]), float(scores[best] / counts.sum())


def _pooled(
    name: str,
    levels: Levels,
    relations: Mapping[str, Relation],
    joints: Mapping[str, Matrix],
    sizes: Mapping[str, float],
) -> Matrix:
    """Probabilities of a variable's levels in all tables that have it, by their numbers of pairs."""
    total = np.zeros(len(levels))
    for relation, ends in relations.items():
        for axis, end in ((1, ends.first), (0, ends.second)):
            if end == name:
                total += sizes[relation] * joints[relation].sum(axis=axis)
    if not total.any():
        return levels.sizes
    total = np.maximum(total / total.sum(), SMALLEST)
    return total / total.sum()


def proportional_fit(joint: Matrix, first: Matrix, second: Matrix, name: str) -> Matrix:
    """Scale the rows and columns of a table in turn until its marginals are the given ones.

    Parameters
    ----------
    joint : (q, r)
    first, second : (q,) and (r,) its row sums and column sums to be
    name : of the relation, for errors

    Examples
    --------
    >>> table = proportional_fit(np.ones((2, 2)) / 4, np.array([0.3, 0.7]), np.array([0.6, 0.4]), "then")
    >>> table
    array([[0.18, 0.12],
           [0.42, 0.28]])
    """
    for _ in range(MOST_SCALINGS):
        joint = joint * _quotient(first, joint.sum(axis=1))[:, None]
        joint = joint * _quotient(second, joint.sum(axis=0))
        if np.abs(joint.sum(axis=1) - first).max() <= SCALED:
            return joint
    raise InputError(
        f"potentials: no table with the zeros of relation {name!r} has the pooled marginals, so it cannot be fitted; give "
        "smoothing above 0, or potentials='moments'"
    )


def _quotient(wanted: Matrix, found: Matrix) -> Matrix:
    return np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)


def _at_levels(evidence: Evidence, levels: Mapping[str, Levels]) -> Evidence:
    """The same evidence, constant around each level wherever it is asked."""
    pieces: tuple[tuple[Piece, ...], ...] = tuple(
        tuple(
            _AtLevels(piece, levels[piece.variable]) if isinstance(piece, Likelihood) else piece
            for piece in part
        )
        for part in evidence.pieces
    )
    return replace(evidence, pieces=pieces)
