"""The face of the library: say what the variables and relations are, fit, infer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelbp.calibration import (
    MIXINGS,
    STOPPED_DAMPING,
    GraphCalibration,
    calibrate,
    inferences_needed,
)
from kernelbp.errors import ConvergenceWarning, InputError, NotFittedError, UnsupportedError
from kernelbp.graph import Graph, Readings
from kernelbp.inference.beliefs import Beliefs
from kernelbp.inference.engine import available_threads, blas_for, blas_on
from kernelbp.inference.evidence import gather_evidence
from kernelbp.inference.progress import Progress
from kernelbp.inference.propagation import check_call, propagate, wire_hidden
from kernelbp.inference.run import Damping
from kernelbp.inference.schedules import Schedule
from kernelbp.inference.setup import DEFAULTS
from kernelbp.kernels import Gaussian, Kernel, check_values, domain
from kernelbp.learning.embedding import Embedding, embed_variable, relation_moments
from kernelbp.learning.estimators import (
    Predictor,
    check_estimator,
    fit_estimator,
    fit_posterior,
    is_estimator,
)
from kernelbp.learning.examples import VariableExamples, collect
from kernelbp.learning.marginal import Marginal, MarginalForm, learn_marginal
from kernelbp.learning.operators import (
    EmbeddingOperators,
    EvidenceForm,
    LearnedRelation,
    Operators,
    ProbabilityOperators,
    Update,
)
from kernelbp.learning.potentials import KnownRelation, Potential
from kernelbp.learning.probability import assign, blurs, default_budget, joint_table
from kernelbp.learning.readings import ReadingLikelihood, fit_reading_likelihood
from kernelbp.learning.tuning import LOOPY_SHARE, Smoothing, dealt, fit_smoothing, smoothed_joint
from kernelbp.refining import Refined
from kernelbp.values import Column, Kind, column_of, distinct, is_number, is_whole

__all__ = ["Model", "Relation"]

Conditionals = Literal["probability", "embedding"]
Weighting = Literal["tree-reweighted", "bethe"]

PAPER_INFERENCE: dict[str, Any] = {
    "update": "constant",
    "conditionals": "embedding",
    "weighting": "bethe",
    "schedule": "sweep",
    "max_iterations": 30,
    "tolerance": 0.0,
    "damping": 0.8,
    "normalization": "norm",
}
"""How the authors' program runs: a fixed number of damped sweeps, never tested for convergence."""


@dataclass(frozen=True, eq=False)
class Relation:
    """A relation between two variables, to be learned from pairs of their values.

    Parameters
    ----------
    first, second : str
        Names of the two variables. A variable that is only ever observed comes second.
    symmetric : bool
        Whether a pair may be read either way, as for neighbouring pixels.
    evidence : "likelihood", "posterior", a scikit-learn estimator or None
        How an observed second value speaks about the first: through second given first (a likelihood, right for
        scalar readings, by location, scale and shape of the noise or by smoothed counts, whichever foretells held-out
        pairs better); through first given second divided by the marginal of first
        (a ridge regression on the kernel's features, right for long feature vectors); or through an estimator
        of your own in place of that regression, a regressor of the first value or a classifier of the state nearest
        to it. All predictions are calibrated on pairs held out. None takes whichever of the first two scores
        better there (vectors of more than three numbers are not tried as likelihoods).
    regularization : float, optional
        The paper's lambda for this relation, in place of the model's.
    potential : callable or 2-D array, optional
        A relation that is known instead of learned: a non-negative function ``f(first, second)`` of arrays
        of values that broadcast against each other (vectors along the last axis), or ``f(first, second,
        reading)`` where edges carry readings; for finite variables a table whose rows and columns follow
        the model's ``landmarks`` of the two variables. It takes no training pairs.

    Examples
    --------
    >>> Relation("pixel", "pixel", symmetric=True)
    Relation('pixel', 'pixel', symmetric=True)
    """

    first: str
    second: str
    symmetric: bool = False
    evidence: Any = None
    regularization: float | None = None
    potential: Callable[..., Any] | NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.potential is not None and not callable(self.potential):
            try:
                table = np.asarray(self.potential, dtype=np.float64)
            except (TypeError, ValueError):
                table = np.empty(0)
            if table.ndim != 2 or not np.isfinite(table).all() or (table < 0).any():
                raise InputError(
                    "potential: expected a function or a table (2-D array) of finite numbers of at least 0, "
                    f"got {type(self.potential).__name__} of shape {table.shape}"
                )
            object.__setattr__(self, "potential", table)
        if self.symmetric and self.first != self.second:
            raise InputError(
                f"symmetric: a symmetric relation joins a variable with itself, got {self.first!r} and {self.second!r}"
            )
        if self.symmetric and isinstance(self.potential, np.ndarray):
            square = self.potential.shape[0] == self.potential.shape[1]
            if not square or not np.allclose(self.potential, self.potential.T):
                raise InputError(
                    "potential: the table of a symmetric relation should equal its own transpose"
                )
        named = isinstance(self.evidence, str) and self.evidence in ("likelihood", "posterior")
        if not (self.evidence is None or named or is_estimator(self.evidence)):
            raise InputError(
                "evidence: expected 'likelihood' or 'posterior', a scikit-learn estimator (an object with fit and "
                f"predict) or None, got {self.evidence!r:.80}"
            )
        if self.regularization is not None and not (
            is_number(self.regularization) and self.regularization >= 0
        ):
            raise InputError(f"regularization: expected a number of at least 0, got {self.regularization!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Relation):
            return NotImplemented
        same = all(
            getattr(self, name) == getattr(other, name)
            for name in ("first", "second", "symmetric", "evidence", "regularization")
        )
        ours, theirs = self.potential, other.potential
        return same and (ours is theirs or (not callable(ours) and np.array_equal(ours, theirs)))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash((self.first, self.second, self.symmetric))

    def __repr__(self) -> str:
        shown = [repr(self.first), repr(self.second)]
        if self.symmetric:
            shown.append("symmetric=True")
        if self.evidence is not None:
            shown.append(f"evidence={self.evidence!r}")
        if self.regularization is not None:
            shown.append(f"regularization={self.regularization!r}")
        if self.potential is not None:
            shown.append("potential=...")
        return f"Relation({', '.join(shown)})"


@dataclass(frozen=True)
class _Facts:
    """A fitted variable as evidence and beliefs see it."""

    kernel: Kernel
    kind: Kind
    values: Column


@dataclass(frozen=True)
class Fitted:
    """Everything learned, and nothing derived: what a model file holds.

    `refined` takes the place of counted tables where inference stops as `calibration` says.
    """

    embeddings: Mapping[str, Embedding]
    relations: Mapping[str, LearnedRelation]
    known: Mapping[str, KnownRelation]
    marginal: MarginalForm
    calibration: GraphCalibration = field(default_factory=GraphCalibration)
    refined: Refined | None = None

    @cached_property
    def marginals(self) -> dict[str, Marginal]:
        """The marginal of each variable."""
        return {
            name: learn_marginal(embedding, self.marginal)
            for name, embedding in self.embeddings.items()
            if not embedding.only_read
        }

    @cached_property
    def facts(self) -> dict[str, _Facts]:
        """What evidence is checked against."""
        return {
            name: _Facts(e.kernel, e.examples.kind, e.examples.values) for name, e in self.embeddings.items()
        }


class Model:
    """Variables of any kind, tied by relations learned from pairs.

    Parameters
    ----------
    variables : mapping from name to kernel
    relations : mapping from name to `Relation`
    regularization : float
        The paper's lambda, for all relations that do not name their own.
    ridge : float, optional
        lambda times the number of pairs, given directly; overrides `regularization`.
    residual : float
        The paper's epsilon: bases grow until every training value is represented this well.
    max_rank : int, optional
        Most points of a basis or support.
    power : int
        Support points are chosen for products of this many messages (the paper's d - 1): 4 for a
        node with four neighbours and a reading. Larger degrees are served well by Gaussian kernels,
        whose products gain little beyond; raise it for polynomial kernels.
    budget : int, optional
        Most states of a variable in probability conditionals: trades speed for accuracy. By default it
        grows slowly with the number of pairs (16 to 64 for numbers, up to 128 for other variables).
    mixing : float, optional
        Share of independence mixed into every relation between hidden variables; fitted to held-out
        pairs if not given, and then at least 0.3% on graphs with cycles. A variable that is never a relation's first end counts as read, not hidden:
        what readings say is mixed with far less, always fitted.
    landmarks : mapping from variable name to values, optional
        Your own support points for some variables.
    marginal : "parzen" or "embedding"
        How marginals of numeric variables are estimated.
    merge : bool
        Whether equal values are merged with counts: much faster, and the same up to `residual`.
    inference : mapping, optional
        Defaults of `infer` for this model, by keyword.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> rng = np.random.default_rng(0)
    >>> now = rng.standard_normal(2000)
    >>> following = 0.8 * now + 0.6 * rng.standard_normal(2000)
    >>> model = kb.Model({"state": kb.kernels.Gaussian(1.0)}, {"then": kb.Relation("state", "state")})
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
        regularization: float = 1e-4,
        ridge: float | None = None,
        residual: float = 1e-3,
        max_rank: int | None = 300,
        power: int = 4,
        budget: int | None = None,
        mixing: float | None = None,
        landmarks: Mapping[str, Any] | None = None,
        marginal: MarginalForm = "parzen",
        merge: bool = True,
        inference: Mapping[str, Any] | None = None,
    ) -> None:
        self.variables = variables
        self.relations = relations
        self.regularization = regularization
        self.ridge = ridge
        self.residual = residual
        self.max_rank = max_rank
        self.power = power
        self.budget = budget
        self.mixing = mixing
        self.landmarks = landmarks
        self.marginal = marginal
        self.merge = merge
        self.inference = inference
        self._fitted: Fitted | None = None
        self._operators: dict[tuple[str, str, bool, bool], Operators] = {}

    @classmethod
    def paper(
        cls, variables: Mapping[str, Kernel], relations: Mapping[str, Relation], **settings: Any
    ) -> Model:
        """The preset of the paper's own program: its ranks, its regularisation, its damped sweeps.

        Observed variables with ``Gaussian("median")`` take the narrower median rule the authors use
        for readings, exp(-d^2 / median(d^2)). Thirty iterations are run whether or not messages
        settle; the authors' program never tests for that.

        Examples
        --------
        >>> import kernelbp as kb
        >>> kb.Model.paper({"x": kb.kernels.Gaussian()}, {"r": kb.Relation("x", "x", symmetric=True)})
        Model(variables: x; relations: r; not fitted)
        """
        hidden = {relation.first for relation in relations.values()}
        kernels = {
            name: Gaussian("median", scale=0.5**0.5)
            if name not in hidden and kernel == Gaussian()
            else kernel
            for name, kernel in variables.items()
        }
        preset: dict[str, Any] = {
            "ridge": 1e-2,
            "residual": 1e-2,
            "max_rank": 100,
            "power": 4,
            "marginal": "embedding",
            "inference": PAPER_INFERENCE,
        }
        return cls(kernels, relations, **(preset | settings))

    # ------------------------------------------------------------------ learning

    def fit(
        self,
        pairs: Mapping[str, tuple[Any, Any]] | None = None,
        *,
        graphs: Sequence[tuple[Graph, Any]] = (),
        progress: bool = False,
    ) -> Model:
        """Learn every relation from examples.

        Parameters
        ----------
        pairs : mapping
            For each relation ``(first values, second values)``, equally long. Pairs from all places
            where a relation holds are pooled: one template. Relations with a potential take none.
        graphs : sequence of (graph, true values of its nodes), optional
            Training graphs with their evidence and known hidden values (NaN or None where unknown; a
            mapping from variable to values if there are several variables). Mixing, edge weights, when to
            stop on graphs with cycles and the belief's temperature are then fitted by running inference on them;
            where it is best to stop, and a thousand values or more are known, the tables of relations between
            nodes and a power of the evidence are refined for that, too, by the gradient of the error.
        progress : bool
            Show a progress bar.

        Returns
        -------
        Model
            Itself.

        Raises
        ------
        InputError
            Before any work, if names, lengths or values are wrong.

        Examples
        --------
        >>> import numpy as np, kernelbp as kb
        >>> rng = np.random.default_rng(0)
        >>> level = rng.normal(size=1000).cumsum()
        >>> model = kb.Model(
        ...     {"level": kb.kernels.Gaussian(), "gauge": kb.kernels.Gaussian()},
        ...     {"then": kb.Relation("level", "level"), "read as": kb.Relation("level", "gauge")},
        ... )
        >>> model.fit({"then": (level[:-1], level[1:]), "read as": (level, level + rng.normal(size=1000))})
        Model(variables: level, gauge; relations: then, read as; fitted)
        """
        self._check_settings()
        self._check_training_graphs(graphs)
        to_learn = {name: relation for name, relation in self.relations.items() if relation.potential is None}
        examples, tables = collect(
            to_learn,
            {} if pairs is None else pairs,
            merge=self.merge,
            kernels=self.variables,
            on_a_line=lambda variable: domain(self.variables[variable]) == "real",
        )
        landmarks = self._checked_landmarks({name: e.kind for name, e in examples.items()})
        for name, column in landmarks.items():
            if name in examples and domain(self.variables[name]) == "finite":
                alike = np.asarray(self.variables[name](examples[name].values, column))
                if not (alike.max(axis=1) > 0).all():
                    raise InputError(
                        f"landmarks[{name!r}]: must hold every training value of a finite variable, "
                        "or those left out would be impossible"
                    )
        for name in self._variables_in_use():
            if name not in examples:
                examples[name] = self._unseen(name, landmarks)
        known = {
            name: self._known(name, relation, examples, landmarks)
            for name, relation in self.relations.items()
            if relation.potential is not None
        }
        for name, relation in to_learn.items():
            if is_estimator(relation.evidence):
                check_estimator(relation.evidence, examples[relation.first].values, name)
        few = sum(len(mine.values) for mine in examples.values()) <= FEW_EXAMPLES
        with (
            blas_on(1 if few else available_threads()),
            Progress("learning", len(examples) + len(to_learn), shown=progress) as bar,
        ):
            embeddings = {}
            for name, mine in examples.items():
                embeddings[name] = embed_variable(
                    self.variables[name],
                    mine,
                    power=self.power,
                    residual=self.residual,
                    max_rank=self.max_rank,
                    budget=self.budget or default_budget(mine),
                    landmarks=landmarks.get(name),
                    only_read=name not in landmarks and self._only_read(name, mine.kind),
                )
                if not len(embeddings[name].support):
                    raise InputError(
                        f"variables[{name!r}]: {self.variables[name]} is zero on all training values, so they "
                        "cannot be told from nothing; add a constant to it"
                    )
                bar.advance(f"variable {name}")
            learned = {}
            for name, relation in to_learn.items():
                first, second = embeddings[relation.first], embeddings[relation.second]
                moments = relation_moments(tables[name], first, second)
                states = (first.states, second.states)
                measures = tuple(assign(e.states, e.examples.values) for e in (first, second))
                reading = None
                if second.only_read:
                    smoothing = Smoothing((0.0, 0.0), 1.0, None)
                else:
                    read, folds = self._has_no_nodes(relation.second), dealt(tables[name])
                    smoothing = fit_smoothing(
                        tables[name],
                        states,
                        measures,
                        symmetric=relation.symmetric,
                        only_read=read,
                        folds=folds,
                        mixing=None if read else self.mixing,
                    )
                    if read and smoothing.score is not None and _are_numbers(relation, first, second):
                        numbers = (first.examples.values[:, 0], second.examples.values[:, 0])
                        reading = fit_reading_likelihood(
                            tables[name], folds, states, measures, numbers, smoothing
                        )
                spread = [blurs(s, (w,))[0] for s, w in zip(states, smoothing.widths, strict=True)]
                predictor = self._predictor(
                    name, (pairs or {})[name], first, second, smoothing.score, reading
                )
                learned[name] = LearnedRelation(
                    relation.first,
                    relation.second,
                    tables[name],
                    moments,
                    self._lambda(relation, moments.total),
                    _evidence_form(relation),
                    smoothed_joint(joint_table(tables[name], *measures), *spread),
                    smoothing,
                    predictor,
                    reading if predictor is None else None,
                )
                bar.advance(f"relation {name}")
        self._fitted = Fitted(embeddings, learned, known, self.marginal)
        self._operators = {}
        if graphs:
            self._calibrate(graphs, progress)
        return self

    def calibrate(
        self,
        graphs: Sequence[tuple[Graph, Any]],
        *,
        stopping: bool = True,
        refining: bool = True,
        progress: bool = False,
    ) -> Model:
        """Fit settings of inference on training graphs, as `fit` does with `graphs`, and leave what was learned as it is.

        Parameters
        ----------
        graphs : sequence of (graph, true values of its nodes)
            As in `fit`.
        stopping : bool
            Whether inference may learn to stop before messages have settled. Not where graphs to come may have
            large parts without evidence, which are filled step by step.
        refining : bool
            Whether tables of relations may be refined where inference stops. If not, they stay as pairs made them.
        progress : bool
            Show a progress bar.

        Returns
        -------
        Model
            Itself.

        Examples
        --------
        >>> import kernelbp as kb
        >>> clean, noisy = kb.datasets.sunset(colors=10, size=20, noise=30.0, seed=0)
        >>> variables = {"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()}
        >>> relations = {"beside": kb.Relation("pixel", "pixel", symmetric=True), "read as": kb.Relation("pixel", "reading")}
        >>> model = kb.Model(variables, relations)
        >>> model = model.fit({"beside": kb.datasets.grid_pairs(clean), "read as": (clean.ravel(), noisy.ravel())})
        >>> graph = kb.Graph.grid(clean.shape, variable="pixel", relation="beside").observe("read as", noisy)
        >>> model.calibrate([(graph, clean.ravel())]).calibration_.score is not None
        True
        """
        self._need_fitted()
        self._check_training_graphs(graphs)
        if not len(graphs):
            raise InputError("graphs: expected at least one training graph, got none")
        self._calibrate(graphs, progress, stopping=stopping, refining=refining)
        return self

    def with_calibration(self, calibration: GraphCalibration) -> Model:
        """A copy that infers under settings fitted elsewhere, such as `calibration_` of a model like this one.

        Tables that were refined stay with this model and its own calibration.
        """
        fitted = self._need_fitted()
        if not isinstance(calibration, GraphCalibration):
            raise InputError(f"calibration: expected a GraphCalibration, got {type(calibration).__name__}")
        made = copy(self)
        made._apply(fitted, calibration, fitted.refined if calibration == fitted.calibration else None)
        return made

    def with_relation(self, name: str, relation: Relation) -> Model:
        """A copy, as fitted as this model, that knows one more relation: how a reading comes about, say.

        Parameters
        ----------
        name : str
            A new name, or that of a known relation to be replaced.
        relation : Relation
            With a potential, between variables of the model.

        Examples
        --------
        >>> import numpy as np, kernelbp as kb
        >>> walk = np.random.default_rng(0).standard_normal(500).cumsum()
        >>> variables = {"place": kb.kernels.Gaussian()}
        >>> model = kb.Model(variables, {"then": kb.Relation("place", "place")}).fit({"then": (walk[:-1], walk[1:])})
        >>> def off_by_two(place, reading):
        ...     return np.exp(-((place - reading) ** 2) / (2 * 2.0**2))
        >>> noisy = model.with_relation("seen as", kb.Relation("place", "place", potential=off_by_two))
        >>> chain = kb.Graph.chain(3, variable="place", relation="then")
        >>> noisy.infer(chain.observe("seen as", walk[100:103])).converged
        True
        """
        fitted = self._need_fitted()
        made = copy(self)
        made.relations = {**self.relations, name: relation}
        made._check_settings()
        if relation.potential is None:
            raise InputError(
                f"relations[{name!r}]: has no potential, so it has to be learned; give it to fit"
            )
        if name in fitted.relations:
            raise InputError(f"relations[{name!r}]: was learned; give the known one another name")
        examples = {end: embedding.examples for end, embedding in fitted.embeddings.items()}
        for end in (relation.first, relation.second):
            if end not in examples:
                raise InputError(f"relations[{name!r}]: nothing was learned of variable {end!r}")
        landmarks = self._checked_landmarks({end: e.kind for end, e in examples.items()})
        known = made._known(name, relation, examples, landmarks)
        made._fitted = replace(fitted, known={**fitted.known, name: known})
        made._operators = {}
        return made

    def _check_training_graphs(self, graphs: Sequence[tuple[Graph, Any]]) -> None:
        for index, item in enumerate(graphs):
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Graph)):
                raise InputError(
                    f"graphs[{index}]: expected (Graph, true values of its nodes), got {type(item).__name__}"
                )
        settings = self.inference or {}
        if len(graphs) and (
            settings.get("conditionals") == "embedding" or settings.get("update", "constant") != "constant"
        ):
            raise InputError(
                "graphs: settings can be fitted on training graphs only for conditionals='probability'"
            )

    def _calibrate(
        self,
        graphs: Sequence[tuple[Graph, Any]],
        progress: bool,
        *,
        stopping: bool = True,
        refining: bool = True,
    ) -> None:
        operators = self._made_operators("constant", "probability")
        assert isinstance(operators, ProbabilityOperators)
        fitted = self._need_fitted()
        mixings = MIXINGS if self.mixing is None else (None,)
        needed = inferences_needed(len(graphs), mixings, stopping=stopping)
        with Progress("calibration", needed, shown=progress) as bar:

            def infer(graph: Graph, settings: GraphCalibration) -> Beliefs:
                self._apply(fitted, settings)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    return self.infer(graph)

            try:
                chosen, refined = calibrate(
                    graphs,
                    infer,
                    operators,
                    bar.advance,
                    mixings,
                    stopping=stopping,
                    refining=refining,
                )
            except BaseException:
                self._fitted, self._operators = fitted, {}
                raise
        self._apply(fitted, chosen, refined)

    def _apply(
        self,
        fitted: Fitted,
        calibration: GraphCalibration,
        refined: Refined | None = None,
    ) -> None:
        """Infer with what was fitted, under these settings and by these tables, from now on."""
        self._fitted = replace(fitted, calibration=calibration, refined=refined)
        self._operators = {}

    # ------------------------------------------------------------------ inference

    def infer(
        self,
        graph: Graph,
        *,
        update: Update | None = None,
        conditionals: Conditionals | None = None,
        weighting: Weighting | ArrayLike | None = None,
        schedule: Schedule | None = None,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        damping: Damping | None = None,
        normalization: Literal["largest", "norm"] | None = None,
        start: Beliefs | None = None,
        dtype: DTypeLike = np.float32,
        n_jobs: int | None = None,
        progress: bool = False,
    ) -> Beliefs:
        """Work out the belief of every node.

        Parameters
        ----------
        graph : Graph
            With its evidence.
        update : "constant", "linear" or "full"
            The paper's three forms. The constant one costs the same however many pairs were learned from.
        conditionals : "probability" (the default for the constant update) or "embedding"
            Relations as probability tables on the support points, which keeps messages positive; or
            the paper's conditional embeddings as they are.
        weighting : "tree-reweighted", "bethe" or an array with a weight for each edge
            Edges weighted by how often they appear in a random spanning tree, which makes messages settle;
            or ordinary belief propagation, the same on trees and the only one for embeddings.
        schedule : "auto", "flooding", "sweep", "residual", "splash" or "tree"
            The order of updates; "auto" passes over trees there and back, which is exact, and elsewhere updates colour
            after colour of nodes that are no neighbours (on grids a chessboard).
        max_iterations : int
            Each iteration updates every message once. Where training graphs showed that beliefs are best before
            messages have settled, inference stops there, unless this, `tolerance`, `damping`, `schedule` or
            `weighting` is given.
        tolerance : float
            Stop when no message value changes by more than this share of its message's largest value.
        damping : float or "auto"
            Share of the old message kept in each update, from 0 to below 1. "auto" keeps none as long as
            the changes fall, and more whenever they stop falling. With ``weighting="bethe"`` a number means
            plain iterations, damped by just that; otherwise positive messages are accelerated.
        normalization : "largest" or "norm"
            Messages are scaled to a largest value of 1, or to unit norm as functions (the authors' way).
        start : Beliefs, optional
            Earlier beliefs on a graph of the same shape, to start from instead of messages of ones.
        dtype : float32 or float64
            Precision of messages.
        n_jobs : int, optional
            Threads; by default, or with -1, as many as BLAS may use (OMP_NUM_THREADS and threadpoolctl's limits are heeded).
            Results do not depend on it.
        progress : bool
            Show a progress bar.

        Returns
        -------
        Beliefs

        Warns
        -----
        ConvergenceWarning
            If messages have not settled; the text says what to try.

        Examples
        --------
        A day whose weather nobody noted, between two that are known:

        >>> import kernelbp as kb
        >>> days = "sun sun rain rain sun sun sun rain rain rain sun sun".split()
        >>> model = kb.Model({"weather": kb.kernels.Delta()}, {"then": kb.Relation("weather", "weather")})
        >>> model = model.fit({"then": (days[:-1], days[1:])})
        >>> week = kb.Graph.chain(3, variable="weather", relation="then").fix([0, 2], ["rain", "rain"])
        >>> beliefs = model.infer(week)
        >>> beliefs.converged
        True
        >>> str(beliefs.mode()[1])
        'rain'
        """
        fitted = self._need_fitted()
        given = {
            "update": update,
            "conditionals": conditionals,
            "weighting": weighting,
            "schedule": schedule,
            "max_iterations": max_iterations,
            "tolerance": tolerance,
            "damping": damping,
            "normalization": normalization,
        }
        choice = {
            **DEFAULTS,
            **(self.inference or {}),
            **{k: v for k, v in given.items() if v is not None},
        }
        if choice["conditionals"] is None:
            choice["conditionals"] = "probability" if choice["update"] == "constant" else "embedding"
        stopped = _stopped(fitted.calibration, choice, {**(self.inference or {}), **given})
        choice |= stopped
        n_jobs = None if n_jobs == -1 else n_jobs  # as scikit-learn says "all"
        precision = check_call(graph, choice, start, dtype, n_jobs)
        if choice["conditionals"] == "embedding":
            _refuse_potentials(graph, fitted.known)
        for name in graph.variables:
            if name not in fitted.embeddings:
                raise InputError(
                    f"graph: unknown variable {name!r}; the model has {', '.join(fitted.embeddings)}"
                )
            if fitted.embeddings[name].only_read:
                raise InputError(
                    f"graph: variable {name!r} holds long vectors that were learned as readings only, so it cannot "
                    "have nodes; observe it, or fit with evidence='likelihood' in its relations"
                )
        with blas_for(graph.n_nodes, n_jobs):
            evidence = gather_evidence(graph, self.relations, fitted.facts)
            wiring = wire_hidden(graph, self.relations, evidence)
            loopy = not wiring.is_forest
            refined = fitted.refined if loopy and stopped else None
            operators = self._made_operators(
                choice["update"], choice["conditionals"], loopy=loopy, refined=refined is not None
            )
            temperature = 1.0 if operators.signed else fitted.calibration.temperature
            if refined is not None:
                evidence, temperature = evidence.raised(graph.variables, refined.power), refined.temperature
        source, verdict = propagate(
            graph,
            wiring,
            operators,
            evidence,
            fitted.facts,
            fitted.marginals,
            choice,
            start=start,
            dtype=precision,
            n_jobs=n_jobs,
            weight_scale=fitted.calibration.weight_scale,
            temperature=temperature,
            smooth=not stopped,
            progress=progress,
        )
        return Beliefs(source, verdict)

    # ------------------------------------------------------------------ looking

    def support(self, variable: str) -> NDArray[Any]:
        """The support points of a variable: where its messages are known, shape (q,) or (q, d)."""
        fitted = self._need_fitted()
        if variable not in fitted.embeddings:
            raise InputError(f"variable: unknown {variable!r}; the model has {', '.join(fitted.embeddings)}")
        embedding = fitted.embeddings[variable]
        restored: NDArray[Any] = embedding.examples.kind.restore(embedding.states.points)
        return restored

    @property
    def calibration_(self) -> GraphCalibration:
        """Settings of inference that training graphs chose."""
        return self._need_fitted().calibration

    @property
    def settings_(self) -> dict[str, Any]:
        """What fitting chose: for each variable its kernel, ranks and residuals, for each relation lambda."""
        fitted = self._need_fitted()
        variables = {
            name: {
                "kernel": e.kernel,
                "states": len(e.states),
                "rank": len(e.basis),
                "tensor rank": len(e.support),
                "residuals": e.residuals,
                "stopped": e.stopped,
            }
            for name, e in fitted.embeddings.items()
        }
        relations = {
            name: {
                "pairs": int(r.moments.total),
                "regularization": r.regularization,
                "evidence": "likelihood" if r.predictor is None else r.predictor.form,
                "shape": None if r.predictor else r.reading.shape if r.reading else "counted",
                "evidence score": r.predictor.calibration.score
                if r.predictor
                else (r.reading or r.smoothing).score,
                "temperature": r.predictor.calibration.temperature if r.predictor else None,
                "share": r.predictor.calibration.share
                if r.predictor
                else r.reading.share
                if r.reading
                else None,
                "smoothing": r.smoothing.widths,
                "mixing": r.smoothing.mixing,
                "score": r.smoothing.score,
            }
            for name, r in fitted.relations.items()
        }
        refined = fitted.refined
        return {
            "variables": variables,
            "relations": relations,
            "calibration": asdict(fitted.calibration),
            "refined": refined
            and {
                "relations": list(refined.joints),
                "evidence power": refined.power,
                "temperature": refined.temperature,
                "score": refined.score,
            },
        }

    def __repr__(self) -> str:
        state = "not fitted" if self._fitted is None else "fitted"
        return (
            f"Model(variables: {', '.join(self.variables)}; relations: {', '.join(self.relations)}; {state})"
        )

    # ------------------------------------------------------------------ files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file: arrays and JSON, nothing executable.

        Relations that are known by a potential are not stored: tell a loaded model of them by `with_relation`.

        Examples
        --------
        >>> import os, tempfile, kernelbp as kb
        >>> model = kb.Model({"mood": kb.kernels.Delta()}, {"then": kb.Relation("mood", "mood")})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.fit({"then": (["good", "bad"], ["good", "good"])}).save(os.path.join(folder, "moods.kbp"))
        ...     kb.Model.load(os.path.join(folder, "moods.kbp"))
        Model(variables: mood; relations: then; fitted)
        """
        from kernelbp.storage import save_model

        save_model(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str], *, kernels: Mapping[str, Kernel] | None = None) -> Model:
        """Read a model written by `save`.

        Parameters
        ----------
        path : path of the file
        kernels : mapping, optional
            For variables whose kernel is your own class, that kernel: a file never names code to run.

        Examples
        --------
        See `save`.
        """
        from kernelbp.storage import load_model

        return load_model(path, kernels or {})

    # ------------------------------------------------------------------ inside

    def _need_fitted(self) -> Fitted:
        if self._fitted is None:
            raise NotFittedError("this model has not been fitted; call fit(pairs) first")
        return self._fitted

    def _made_operators(
        self, update: Update, conditionals: str, *, loopy: bool = True, refined: bool = False
    ) -> Operators:
        """Operators are made once for each way; of refined tables where inference stops as it did to refine them."""
        fitted = self._need_fitted()
        key = (update, conditionals, loopy, refined)
        tables = fitted.refined.joints if refined and fitted.refined is not None else {}
        if key not in self._operators:
            self._operators[key] = (
                ProbabilityOperators(
                    fitted.embeddings,
                    {
                        name: replace(learned, joint=tables.get(name, learned.joint))
                        for name, learned in fitted.relations.items()
                    },
                    fitted.known,
                    self._mixings(fitted, loopy),
                )
                if conditionals == "probability"
                else EmbeddingOperators(fitted.embeddings, fitted.relations, update)
            )
        return self._operators[key]

    def _only_read(self, variable: str, kind: Kind) -> bool:
        """Whether a variable is a long vector of features, read through predictions only."""
        touching = [r for r in self.relations.values() if variable in (r.first, r.second)]
        return (
            kind.form == "vector"
            and kind.dimension > MOST_COUNTED
            and all(
                r.first != variable
                and r.potential is None
                and not (isinstance(r.evidence, str) and r.evidence == "likelihood")
                for r in touching
            )
        )

    def _predictor(
        self,
        name: str,
        pair: tuple[Any, Any],
        first: Embedding,
        second: Embedding,
        counted: float | None,
        reading: ReadingLikelihood | None,
    ) -> Predictor | None:
        """What predicts the first end from readings of the second; None if their likelihood is taken instead."""
        relation = self.relations[name]
        form = _evidence_form(relation)
        choosing = relation.evidence is None and not second.only_read
        if form == "likelihood" and not (choosing or second.only_read):
            return None
        # A table of finite values leaves nothing to regress; a variable with nodes sends messages by counts,
        # and must speak the same way where it is known.
        has_nodes = not self._has_no_nodes(relation.second)
        if choosing and (counted is None or domain(second.kernel) == "finite" or has_nodes):
            return None
        hidden, readings = (
            column_of(end.kernel, side, f"pairs[{name!r}]")[0]
            for end, side in zip((first, second), pair, strict=True)
        )
        if form == "estimator":
            return fit_estimator(relation.evidence, hidden, readings, first.states, name)
        if choosing:
            if reading is not None:
                # Where many pairs show noise of one shape, a regression can only win what averaging over states lost.
                if len(hidden) > TRIAL and reading.exact < reading.score + CLEARLY:
                    return None
                counted = reading.score
            tried = fit_posterior(hidden, readings, first.states, second.basis, most=TRIAL).calibration.score
            if tried is None or counted is None or tried < counted + CLEARLY:
                return None
        return fit_posterior(
            hidden, readings, first.states, second.basis, regularization=relation.regularization
        )

    def _mixings(self, fitted: Fitted, loopy: bool) -> dict[str, float]:
        """The share of independence in each learned relation.

        It was given, or training graphs chose it, or pairs did: then it is a little more on graphs with cycles.
        """
        least = LOOPY_SHARE if loopy and self.mixing is None else 0.0
        chosen = fitted.calibration.mixing

        def share(relation: LearnedRelation) -> float:
            told = relation.smoothing.mixing
            if self._has_no_nodes(relation.second):
                return told
            return max(told, least) if chosen is None else chosen

        return {name: share(relation) for name, relation in fitted.relations.items()}

    def _lambda(self, relation: Relation, total: float) -> float:
        if relation.regularization is not None:
            return relation.regularization
        return self.regularization if self.ridge is None else self.ridge / total

    def _check_settings(self) -> None:
        for name in ("variables", "relations"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise InputError(f"{name}: expected a mapping by name, got {type(given).__name__}")
        if not self.variables:
            raise InputError("variables: expected at least one, got none")
        for name, kernel in self.variables.items():
            if not isinstance(kernel, Kernel):
                raise InputError(
                    f"variables[{name!r}]: expected a kernel (callable on two arrays, with diag), "
                    f"got {type(kernel).__name__}"
                )
        if not self.relations:
            raise InputError("relations: expected at least one, got none")
        for name, relation in self.relations.items():
            if not isinstance(relation, Relation):
                raise InputError(f"relations[{name!r}]: expected a Relation, got {type(relation).__name__}")
            for end in (relation.first, relation.second):
                if end not in self.variables:
                    raise InputError(
                        f"relations[{name!r}]: unknown variable {end!r}; the model has {', '.join(self.variables)}"
                    )
        for name in ("regularization", "residual", "ridge"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value >= 0):
                raise InputError(f"{name}: expected a number of at least 0, got {value!r}")
        for name in ("power", "max_rank", "budget"):
            value = getattr(self, name)
            if value is not None and not (is_whole(value) and value >= 1):
                raise InputError(f"{name}: expected a whole number of at least 1, got {value!r}")
        if self.mixing is not None and not (is_number(self.mixing) and 0 <= self.mixing <= 1):
            raise InputError(f"mixing: expected a number from 0 to 1, got {self.mixing!r}")
        if self.inference is not None and not isinstance(self.inference, Mapping):
            raise InputError(
                f"inference: expected a mapping of settings, got {type(self.inference).__name__}"
            )
        for name in self.inference or {}:
            if name not in DEFAULTS:
                raise InputError(f"inference: unknown setting {name!r}; there are {', '.join(DEFAULTS)}")
        if self.landmarks is not None and not isinstance(self.landmarks, Mapping):
            raise InputError(
                f"landmarks: expected a mapping from variable to values, got {type(self.landmarks).__name__}"
            )
        if self.marginal not in ("parzen", "embedding"):
            raise InputError(f"marginal: expected 'parzen' or 'embedding', got {self.marginal!r}")

    def _has_no_nodes(self, variable: str) -> bool:
        """Whether a variable is only ever the second end, and so only ever read."""
        return all(variable != r.first for r in self.relations.values())

    def _variables_in_use(self) -> dict[str, None]:
        return dict.fromkeys(end for r in self.relations.values() for end in (r.first, r.second))

    def _unseen(self, name: str, landmarks: Mapping[str, Column]) -> VariableExamples:
        """A variable without training values: its landmarks stand in for them, all alike."""
        if name not in landmarks:
            raise InputError(
                f"landmarks: variable {name!r} has no training pairs, so it needs support points: "
                f"landmarks={{{name!r}: values}}, a grid or draws from a prior"
            )
        kind = column_of(self.variables[name], (self.landmarks or {})[name], name)[1]
        values = landmarks[name][distinct(landmarks[name])[0]]
        return VariableExamples(values, np.ones(len(values)), kind)

    def _known(
        self,
        name: str,
        relation: Relation,
        examples: Mapping[str, VariableExamples],
        landmarks: Mapping[str, Column],
    ) -> KnownRelation:
        """Check a potential: callable, or a table that fits its variables' landmarks."""
        given, ends = relation.potential, (relation.first, relation.second)
        assert given is not None
        points = None
        if not callable(given):
            for axis, end in enumerate(ends):
                if domain(self.variables[end]) != "finite":
                    raise InputError(
                        f"relations[{name!r}]: a table needs finite variables (kernel Delta), {end!r} is not one; "
                        "give a function instead"
                    )
                if end not in landmarks or np.shape(given)[axis] != len(landmarks[end]):
                    raise InputError(
                        f"relations[{name!r}]: a table of shape {np.shape(given)} needs landmarks of {end!r} for its "
                        f"{('rows', 'columns')[axis]}, got {len(landmarks.get(end, ()))}"
                    )
            points = (landmarks[ends[0]], landmarks[ends[1]])
        kinds = (examples[ends[0]].kind, examples[ends[1]].kind)
        potential = Potential(given, kinds, points, name)
        return KnownRelation(relation.first, relation.second, potential)

    def _checked_landmarks(self, kinds: Mapping[str, Kind]) -> dict[str, Column]:
        checked: dict[str, Column] = {}
        for name, values in (self.landmarks or {}).items():
            if name not in self.variables:
                raise InputError(
                    f"landmarks: unknown variable {name!r}; the model has {', '.join(self.variables)}"
                )
            column, kind = column_of(self.variables[name], values, f"landmarks[{name!r}]", kinds.get(name))
            if name in kinds:
                kinds[name].merged(kind, f"landmarks[{name!r}]")
            if not len(column):
                raise InputError(f"landmarks[{name!r}]: no points given")
            check_values(self.variables[name], column, f"landmarks[{name!r}]")
            checked[name] = column
        return checked


MOST_COUNTED = 3
"""Readings that are vectors of more numbers than this are not counted unless asked for: states would be far apart."""
TRIAL = 2_000
"""Pairs from which the posterior form is tried on readings that can be counted."""
CLEARLY = 0.05
"""Nats a pair by which it must be better than counting."""
FEW_EXAMPLES = 1 << 17
"""Distinct values up to which one thread of BLAS learns faster than several, which would also wait on for a while."""


def _refuse_potentials(graph: Graph, known: Mapping[str, KnownRelation]) -> None:
    read = {said.relation for said in graph.evidence if isinstance(said, Readings)}
    for name in (*graph.relations, *read):
        if name in known:
            raise UnsupportedError(
                f"relation {name!r} has a potential, which needs conditionals='probability', not 'embedding'"
            )


def _stopped(
    calibration: GraphCalibration, choice: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of an inference that stops where training graphs said; none if the user says how it is to run.

    A tolerance of zero, since stopping there is no failure to settle and nothing is to be said of it.
    """
    own = ("max_iterations", "tolerance", "damping", "weighting", "schedule")
    if (
        calibration.iterations is None
        or choice["conditionals"] != "probability"
        or any(given.get(name) is not None for name in own)
    ):
        return {}
    return {"max_iterations": calibration.iterations, "damping": STOPPED_DAMPING, "tolerance": 0.0}


def _are_numbers(relation: Relation, first: Embedding, second: Embedding) -> bool:
    """Whether a relation's evidence is a likelihood of numbers given numbers."""
    return _evidence_form(relation) == "likelihood" and all(
        end.examples.values.dtype != object
        and end.examples.values.shape[1] == 1
        and domain(end.kernel) == "real"
        for end in (first, second)
    )


def _evidence_form(relation: Relation) -> EvidenceForm:
    """As conditional embeddings see it, which do not choose."""
    if is_estimator(relation.evidence):
        return "estimator"
    return "posterior" if relation.evidence == "posterior" else "likelihood"
