"""What inference returns: a whole distribution for every node, read as you need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.graph import Graph
from kernelbp.inference.engine import available_threads, blas_for
from kernelbp.inference.evidence import Evidence, VariableFacts
from kernelbp.inference.partition import log_partition, node_totals
from kernelbp.inference.program import padded
from kernelbp.inference.run import Verdict
from kernelbp.inference.summaries import BASE, Summaries
from kernelbp.inference.update import ZERO, State, log_magnitude
from kernelbp.inference.wiring import Wiring
from kernelbp.keeping import Kept
from kernelbp.kernels import check_values, domain
from kernelbp.learning.marginal import Marginal, Parzen
from kernelbp.learning.operators import Operators
from kernelbp.values import Column, column_of, is_number, is_whole

__all__ = ["Beliefs", "VariableBeliefs"]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

LOST = 1e-100
"""A belief with less than this share of its peak wherever there is training data is not told from none."""
READ_CELLS = 1 << 21
"""Cells (messages x points) evaluated at a time while reading beliefs."""
MANY_CELLS = 1 << 20
"""Cells (nodes x points) above which beliefs are read by compiled code."""
NO_WEIGHTS = np.empty(0)
KEPT_CELLS = 1 << 23
"""Cells (nodes x atoms) of beliefs that are kept once evaluated, for the next reading."""


@dataclass(frozen=True)
class Source:
    """Everything needed to evaluate beliefs anywhere: shared by all views of one inference."""

    graph: Graph
    wiring: Wiring
    operators: Operators
    state: State
    evidence: Evidence
    facts: Mapping[str, VariableFacts]
    marginals: Mapping[str, Marginal]
    temperature: float = 1.0
    masses: dict[str, Matrix] = field(default_factory=dict, repr=False)

    @cached_property
    def kept(self) -> Kept:
        """What reading beliefs has laid out."""
        return Kept(2 * len(self.wiring.variables), self.graph.n_edges)


@dataclass(frozen=True, eq=False)
class VariableBeliefs:
    """Beliefs of all nodes of one variable, in the graph's order.

    Every method works on all nodes at once; the first axis of every answer is the nodes. On
    variables without a density (strings, sets, ...) use `mode`, `centre`, `expect`, `expected_distance`,
    `entropy`, `sample` and `probabilities`.

    Examples
    --------
    What is known of a walk two steps after it was at 5, and of the step between:

    >>> import numpy as np, kernelbp as kb
    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=2000)) % 10
    >>> model = kb.Model({"place": kb.kernels.Gaussian()}, {"then": kb.Relation("place", "place")})
    >>> model = model.fit({"then": (walk[:-1], walk[1:])})
    >>> chain = kb.Graph.chain(3, variable="place", relation="then").fix([0], [5.0])
    >>> place = model.infer(chain)["place"]
    >>> place.mean().round(1), place.std().round(1)
    (array([5. , 5. , 5.1]), array([0. , 1.1, 1.5]))
    >>> place.interval(0.9).round(1)[1]
    array([3.3, 6.8])
    >>> place.quantile([0.25, 0.75]).shape, place.sample(100, seed=0).shape
    ((3, 2), (3, 100))
    >>> place.expect(lambda x: x > 6).round(1)  # how probable it is
    array([0. , 0.2, 0.3])
    >>> place.density([4.0, 5.0, 9.0], nodes=[1]).round(1)
    array([[0.2, 0.4, 0. ]])
    >>> place.probabilities().shape, place.atoms.shape
    ((3, 512), (512,))

    Of symbols, how probable each is, the most probable, and how undecided the belief is:

    >>> model = kb.Model({"sky": kb.kernels.Delta()}, {"then": kb.Relation("sky", "sky")}, mixing=0.0)
    >>> days = ["sun", "sun", "sun", "rain", "rain", "sun", "sun", "sun", "rain", "sun"]
    >>> chain = kb.Graph.chain(2, variable="sky", relation="then").fix([0], ["sun"])
    >>> sky = model.fit({"then": (days[:-1], days[1:])}).infer(chain)["sky"]
    >>> sky.atoms, sky.mode()
    (array(['sun', 'rain'], dtype=object), array(['sun', 'sun'], dtype=object))
    >>> sky.probabilities().round(2)[1], sky.entropy().round(2)
    (array([0.67, 0.33]), array([0.  , 0.64]))
    >>> sky.centre(), sky.expected_distance().round(2)  # how probable it is that the mode is wrong
    (array(['sun', 'sun'], dtype=object), array([0.  , 0.33]))
    """

    _source: Source = field(repr=False)
    variable: str

    # ------------------------------------------------------------------ whole distributions

    def probabilities(self) -> Matrix:
        """Mass of each node's belief on the `atoms`, shape (nodes, atoms); rows sum to one.

        A fixed node has all of it on the atom nearest to its value.
        """
        result = np.empty((self.n_nodes, len(self._marginal.atoms)))
        for part, mass in self._masses():
            result[part] = mass
        if len(self._fixed.nodes):
            result[self._fixed.nodes] = 0.0
            result[self._fixed.nodes, self._nearest_atoms(self._fixed.values)] = 1.0
        return result

    @property
    def atoms(self) -> Array:
        """The values at which beliefs are tabulated: a grid on R, else (a selection of) training values."""
        return self._kind.restore(self._marginal.atoms)

    def density(self, points: Any, *, nodes: ArrayLike | None = None) -> Matrix:
        """Belief at given points, shape (nodes, points).

        On R^d a density that integrates to one; on finite values a probability. A node fixed to a
        value shows a narrow window there on R^d, and certainty on finite values.

        Numbers that occur over and over in training, such as gray levels, are read at those very numbers by `mean`,
        `std`, `quantile`, `interval` and `sample`. A density smooths them (by the marginal's bandwidth), and so is wider
        and passes the least and the largest of them.

        Parameters
        ----------
        points : array of values, or one
        nodes : numbers of the nodes wanted (within this variable), optional
            By default all.

        Raises
        ------
        UnsupportedError
            On variables that have no density.
        """
        column = self._as_values([points] if np.isscalar(points) else points, "points")
        chosen = self._chosen(nodes)
        if domain(self._facts.kernel) == "finite":
            return self._finite_density(column)[chosen]
        prior_density = self._marginal.density
        if prior_density is None:
            raise UnsupportedError(
                f"variable {self.variable!r} has no density; use expect(f), mode(candidates=...), centre(), entropy() or "
                "probabilities()"
            )
        prior = prior_density(column)
        where, weights = self._marginal.quadrature
        result = np.empty((len(chosen), len(column)))
        both = np.concatenate([column, where])
        for part, logs in self._log_products(both, None if nodes is None else chosen):
            logs -= logs.max(axis=1, keepdims=True)
            product = np.exp(logs)
            total = product[:, len(column) :] @ weights
            lost = total <= LOST
            product[lost], total[lost] = 1.0, 1.0
            result[part] = product[:, : len(column)] * prior / total[:, None]
        place = np.full(self.n_nodes, -1)
        place[self._fixed.nodes] = np.arange(len(self._fixed.nodes))
        for index in np.flatnonzero(place[chosen] >= 0):
            value = self._fixed.values[place[chosen[index]]]
            result[index] = Parzen(value[None], np.ones(1), prior_density.widths)(column)
        return result

    # ------------------------------------------------------------------ summaries

    def expect(self, function: Callable[[Array], ArrayLike]) -> Matrix:
        """Expectation of a function of the node's value, shape (nodes,) or (nodes, k).

        Parameters
        ----------
        function : callable
            Takes an array (or object array) of n values as the user writes them, returns n numbers or
            an (n, k) array.
        """
        table = np.asarray(function(self.atoms), dtype=np.float64)
        if table.ndim not in (1, 2) or len(table) != len(self._marginal.atoms):
            raise InputError(
                f"function: expected {len(self._marginal.atoms)} numbers or rows, one per value, got shape {table.shape}"
            )
        result = self._expected(table)
        if len(self._fixed.nodes):
            result[self._fixed.nodes] = np.asarray(
                function(self._kind.restore(self._fixed.values)), dtype=np.float64
            )
        return result

    def mean(self) -> Array:
        """Mean of each belief, shape (nodes,) for numbers or (nodes, d) for vectors."""
        self._need_numbers("mean")
        return self._flat(self._moments(lambda x: x)[0])

    def std(self) -> Array:
        """Standard deviation of each belief, axis by axis."""
        self._need_numbers("std")
        # Deviations are taken from the centre of the data first, so that little is lost to rounding.
        middle = self._marginal.weights @ self._marginal.atoms
        first, second = self._moments(lambda x: x - middle, lambda x: (x - middle) ** 2)
        return self._flat(np.sqrt(np.maximum(second - first**2, 0.0)))

    def mode(self, candidates: Any = None) -> Array:
        """Most probable value of each node.

        Parameters
        ----------
        candidates : values to choose from, optional
            By default the `atoms`.

        Notes
        -----
        A belief is known only as finely as its support points lie. With probability conditionals it is
        smoothed before its highest point is sought: on numbers by a Gaussian window as wide as Silverman's
        rule makes it for this very belief, elsewhere by the kernel at the distance of neighbouring
        support points; finite values are not smoothed. Where the variable has no density, the candidate
        with the largest value of the belief's kernel embedding wins.
        """
        if candidates is None:
            column = self._marginal.atoms
        else:
            column = self._as_values(candidates, "candidates")
            if not len(column):
                raise InputError("candidates: expected at least one value, got none")
        likeness = self._source.operators.resolution(self.variable, self._marginal.atoms, column)
        spacing = self._marginal.spacing
        if likeness is not None and self._kind.form == "scalar" and not self._has_own_geometry:
            atoms = self._marginal.atoms[:, 0]
            if candidates is None and spacing is not None and self._many:
                return self._kind.restore(self._with_fixed(column[self._summaries.modes(spacing)]))
            values = column[self._choose(lambda mass: _highest(mass, atoms, column[:, 0]))]
        elif likeness is not None:
            values = column[self._choose(lambda mass: (mass @ likeness.astype(mass.dtype)).argmax(axis=1))]
        elif candidates is None and self._many and domain(self._facts.kernel) == "finite":
            values = column[self._choose(lambda mass: mass.argmax(axis=1))]
        elif candidates is None:
            with np.errstate(divide="ignore"):
                log_prior = np.log(self._marginal.heights)
            best = self._collect_logs(
                self._marginal.atoms, lambda logs: (logs + log_prior).argmax(axis=1), np.intp
            )
            values = self._marginal.atoms[best]
        else:
            values = column[self._best_of(column)]
        return self._kind.restore(self._with_fixed(values))

    def quantile(self, probability: float | ArrayLike) -> Matrix:
        """Quantiles of each belief over numbers: (nodes,) for one probability, (nodes, k) for k."""
        self._need_scalars("quantile")
        try:
            wanted = np.atleast_1d(np.asarray(probability, dtype=np.float64))
        except (TypeError, ValueError):
            wanted = np.array([np.nan])
        if wanted.ndim != 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise InputError(f"probability: expected numbers between 0 and 1, got {probability!r:.80}")
        result = self._with_fixed(self._inverted(wanted[None]))
        return result[:, 0] if np.ndim(probability) == 0 else result

    def interval(self, coverage: float = 0.9) -> Matrix:
        """The central interval that holds this much of each belief, shape (nodes, 2)."""
        if not (is_number(coverage) and 0 < coverage < 1):
            raise InputError(f"coverage: expected a number between 0 and 1, got {coverage!r}")
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def centre(self, candidates: Any = None) -> Array:
        """The value nearest to all of each belief: a mean for domains that have no sums, shape (nodes, ...).

        The mean on R^d, its direction on spheres, the Frechet mean of rotations and angles, a consensus of rankings, the
        label set a mean projection decodes to; elsewhere the candidate of least expected distance.

        Parameters
        ----------
        candidates : values to choose from, optional
            Where the domain has no centre of its own; by default the `atoms`.
        """
        from kernelbp.inference.reading import centre

        found = centre(self, self._facts.kernel, candidates)
        if len(self._fixed.nodes):
            found[self._fixed.nodes] = self._kind.restore(self._fixed.values)
        return found

    def entropy(self) -> Matrix:
        """How undecided each belief is over the `atoms`, in nats, shape (nodes,)."""
        from kernelbp.inference.reading import entropy

        return entropy(self)

    def expected_distance(self, to: Any = None) -> Matrix:
        """Expected distance of each node's value from its mode, or from other values, shape (nodes,).

        In the units of the domain: of the numbers on R^d, radians on spheres and rotations, pairs of items between
        rankings; else the distance in the kernel's own space.

        Parameters
        ----------
        to : one value for each node, optional
            By default its mode.
        """
        from kernelbp.inference.reading import distances_in_pairs, expected_distance

        kernel, fixed = self._facts.kernel, self._fixed
        result = expected_distance(self, kernel, to)
        if to is None:
            result[fixed.nodes] = 0.0
        elif len(fixed.nodes):
            wanted = self._kind.restore(self._as_values(to, "to")[fixed.nodes])
            result[fixed.nodes] = distances_in_pairs(kernel, self._kind.restore(fixed.values), wanted)
        return result

    def sample(self, size: int, *, seed: int | np.random.Generator | None = None) -> Array:
        """Draw from each node's belief on its own, shape (nodes, size) or (nodes, size, d).

        Parameters
        ----------
        size : int
        seed : int or Generator, optional
        """
        if not is_whole(size) or size < 0:
            raise InputError(f"size: expected a whole number of at least 0, got {size!r}")
        uniform = np.random.default_rng(seed).random((self.n_nodes, size))
        atoms = self._marginal.atoms
        drawn = np.empty((self.n_nodes, size, *atoms.shape[1:]), dtype=atoms.dtype)
        if self._marginal.spacing is not None:
            drawn[...] = self._inverted(uniform)[..., None]
        else:
            for part, mass in self._masses():
                drawn[part] = atoms[_pick(mass, uniform[part])]
        if len(self._fixed.nodes):
            drawn[self._fixed.nodes] = self._fixed.values[:, None]
        return self._kind.restore(drawn)

    @property
    def support(self) -> Array:
        """The support points at which this inference knew its messages, shape (q,) or (q, d)."""
        return self._kind.restore(self._source.operators.support(self.variable))

    def log_products_at_support(self) -> Matrix:
        """Log of evidence times messages at the support points, largest 0, shape (nodes, q).

        Before temperature and marginal: what settings are fitted to. Positive messages only.
        """
        total = node_totals(self._source.state, self._source.wiring.start[self._number], self._number)
        return total - total.max(axis=1, keepdims=True)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of this variable."""
        return len(self._source.wiring.nodes[self._number])

    # ------------------------------------------------------------------ inside

    @property
    def _number(self) -> int:
        return self._source.graph.variables.index(self.variable)

    @property
    def _marginal(self) -> Marginal:
        return self._source.marginals[self.variable]

    @property
    def _facts(self) -> VariableFacts:
        return self._source.facts[self.variable]

    @property
    def _kind(self) -> Any:
        return self._facts.kind

    @property
    def _fixed(self) -> Any:
        return self._source.evidence.fixed[self._number]

    def _flat(self, values: Matrix) -> Matrix:
        flat: Matrix = values[:, 0] if self._kind.form == "scalar" else values
        return flat

    def _as_values(self, given: Any, name: str) -> Column:
        label = f"{name} of variable {self.variable!r}"
        column, kind = column_of(self._facts.kernel, given, name, self._kind)
        if not len(column):
            return self._facts.values[:0]
        self._kind.merged(kind, label)
        check_values(self._facts.kernel, column, label)
        return column

    @property
    def _has_own_geometry(self) -> bool:
        """Whether numbers of this variable are no distances on a line: angles, ranks, entries of a rotation."""
        kernel = self._facts.kernel
        return domain(kernel) == "other" and callable(getattr(kernel, "distance", None))

    def _refuse_averages(self, what: str) -> None:
        if self._has_own_geometry:
            raise UnsupportedError(
                f"{what} of variable {self.variable!r} makes no sense: its numbers are {self._facts.kernel}'s, not those of "
                "a line or a space; use centre(), mode(), expected_distance() or expect(f)"
            )

    def _need_numbers(self, what: str) -> None:
        if self._kind.form == "object":
            raise UnsupportedError(
                f"variable {self.variable!r} holds objects, which have no {what}; use mode(), expect(f) or probabilities()"
            )
        self._refuse_averages(what)

    def _need_scalars(self, what: str) -> None:
        self._refuse_averages(what)
        if self._kind.form != "scalar":
            raise UnsupportedError(
                f"{what} is for variables of numbers; {self.variable!r} holds {self._kind.describe()}; use expect(f) or sample()"
            )

    def _moments(self, *functions: Callable[[Matrix], Matrix]) -> list[Matrix]:
        """Expectations, (nodes, d) each, of functions of values (n, d)."""
        tables = [function(self._marginal.atoms) for function in functions]
        both = self._expected(np.concatenate(tables, axis=1))
        results = np.split(both, len(functions), axis=1)
        for function, result in zip(functions, results, strict=True):
            result[self._fixed.nodes] = function(self._fixed.values)
        return results

    def _expected(self, table: Matrix) -> Matrix:
        """Expectations of functions by their values (atoms,) or (atoms, k)."""
        if not self._many:
            return self._collect(lambda mass: mass @ table)
        found = self._summaries.moments(table.reshape(len(table), -1))
        return found.reshape(len(found), *table.shape[1:])

    def _inverted(self, probability: Matrix) -> Matrix:
        """Values (nodes, k) at which distribution functions reach probabilities, (nodes, k) or (1, k) for all."""
        atoms = self._marginal.atoms[:, 0]
        if self._many and (np.diff(atoms) > 0).all():
            return self._summaries.quantiles(probability, self._marginal.spacing)
        result = np.empty((self.n_nodes, probability.shape[1]))
        for part, mass in self._masses():
            wanted = probability[part] if len(probability) > 1 else probability
            result[part] = self._invert(mass, np.broadcast_to(wanted, (len(mass), wanted.shape[1])))
        return result

    def _with_fixed(self, values: Array) -> Array:
        """A copy in which fixed nodes have their values."""
        if len(self._fixed.nodes):
            values = values.copy()
            values[self._fixed.nodes] = self._fixed.values
        return values

    def _chosen(self, nodes: ArrayLike | None) -> NDArray[np.intp]:
        if nodes is None:
            return np.arange(self.n_nodes)
        array = np.atleast_1d(np.asarray(nodes))
        if array.ndim != 1 or array.dtype.kind not in "iu" or ((array < 0) | (array >= self.n_nodes)).any():
            raise InputError(f"nodes: expected numbers in 0 ... {self.n_nodes - 1}, got {nodes!r:.80}")
        return array.astype(np.intp)

    def _log_products(
        self, points: Column, nodes: NDArray[np.intp] | None = None
    ) -> Iterator[tuple[slice, Matrix]]:
        """Blocks of nodes with the log of evidence times messages at points; -inf where not positive.

        The slices number the nodes asked for: all, block by block, or the given few, one by one.
        """
        precision = self._source.state.messages.values.dtype
        interpolation = self._source.operators.interpolation(self.variable, points).astype(precision)
        if nodes is not None:
            for index, node in enumerate(nodes.tolist()):
                yield slice(index, index + 1), self._log_block(points, interpolation, node, node + 1)
            return
        start = self._source.wiring.start[self._number]
        begin = 0
        while begin < self.n_nodes:
            room = max(READ_CELLS // max(len(points), 1), 1)
            end = int(np.searchsorted(start, start[begin] + room, side="right")) - 1
            end = min(max(end, begin + 1), begin + room, self.n_nodes)
            yield slice(begin, end), self._log_block(points, interpolation, begin, end)
            begin = end

    def _log_block(self, points: Column, interpolation: Matrix, begin: int, end: int) -> Matrix:
        source, variable = self._source, self._number
        start, messages = source.wiring.start[variable], source.state.messages[variable]
        logs, negative = source.evidence.log_at(
            source.operators, variable, begin, end, points, len(points), messages.dtype
        )
        rows = slice(int(start[begin]), int(start[end]))
        if rows.stop > rows.start and self._are_many(len(points)):
            from kernelbp.inference.compiled import add_logarithms

            # Points are padded to as many as are worked on at once.
            arriving = messages[rows] @ _wide(interpolation.T)
            wide = _wide(logs)
            weights = source.state.weights[variable][rows] if source.state.weights else NO_WEIGHTS
            first = (start[begin : end + 1] - start[begin]).astype(np.uint64)
            add_logarithms(arriving, weights.astype(messages.dtype), first, ZERO[messages.dtype], wide)
            logs = wide[:, : len(points)]
        elif rows.stop > rows.start:
            arriving = messages[rows] @ interpolation.T
            some = np.flatnonzero(np.diff(start[begin : end + 1]))
            offsets = (start[begin:end] - start[begin])[some]
            if source.state.signed:
                negative[some] ^= np.add.reduceat(arriving < 0, offsets, axis=0, dtype=np.int32) % 2 == 1
            magnitude = log_magnitude(arriving)
            if source.state.weights:
                magnitude *= source.state.weights[variable][rows, None]
            logs[some] += np.add.reduceat(magnitude, offsets, axis=0)
        if not source.state.signed and not negative.any():
            return logs if source.temperature == 1 else logs / source.temperature
        impossible = negative.all(axis=1)
        logs[impossible] = 0.0
        negative[impossible] = False
        logs[negative] = -np.inf
        if source.temperature != 1:
            logs /= source.temperature
        return logs

    def _are_many(self, points: int) -> bool:
        """Whether so much is to be read that compiled code is worth loading."""
        state = self._source.state
        return not state.signed and self.n_nodes * points > MANY_CELLS

    @property
    def _many(self) -> bool:
        return self._are_many(len(self._marginal.atoms))

    @property
    def _summaries(self) -> Summaries:
        marginal, threads = self._marginal, available_threads()
        return self._source.kept.once(
            (self.variable, threads),
            lambda: Summaries(self._source, self._number, marginal.atoms, marginal.weights, threads),
        )

    def _masses(self, dtype: Any = np.float64) -> Iterator[tuple[slice, Matrix]]:
        """Blocks of nodes with normalised masses on the atoms; kept from one reading to the next if they are few."""
        kept = self._source.masses
        if self._many:
            yield from self._summaries.masses(dtype)
            return
        if self.variable in kept:
            yield slice(0, self.n_nodes), kept[self.variable]
            return
        blocks = []
        for part, mass in self._made_masses():
            blocks.append(mass)
            yield part, mass
            if self.n_nodes * mass.shape[1] > KEPT_CELLS:
                blocks.clear()
        if blocks:
            kept[self.variable] = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def _made_masses(self) -> Iterator[tuple[slice, Matrix]]:
        weights = self._marginal.weights
        for part, logs in self._log_products(self._marginal.atoms):
            with np.errstate(divide="ignore"):
                logs += np.log(weights).astype(logs.dtype)
            largest = logs.max(axis=1, keepdims=True)
            lost = ~np.isfinite(largest[:, 0])
            logs -= np.where(lost[:, None], 0.0, largest)
            mass = np.exp(logs, out=logs).astype(np.float64)
            mass[lost] = weights
            mass /= mass.sum(axis=1, keepdims=True)
            yield part, mass

    def _collect(self, reduce: Callable[[Matrix], Matrix]) -> Matrix:
        with blas_for(self.n_nodes):
            parts = [reduce(mass) for _, mass in self._masses()]
        if not parts:
            return reduce(np.empty((0, len(self._marginal.atoms))))
        return np.concatenate(parts)

    def _choose(self, choice: Callable[[Matrix], NDArray[np.intp]]) -> NDArray[np.intp]:
        """For each node the number of what is chosen from its masses."""
        result = np.empty(self.n_nodes, dtype=np.intp)
        with blas_for(self.n_nodes):
            for part, mass in self._masses(self._source.state.messages.values.dtype):
                result[part] = choice(mass)
        return result

    def _collect_logs(self, points: Column, reduce: Callable[[Matrix], Array], dtype: Any) -> Array:
        result = np.empty(self.n_nodes, dtype=dtype)
        with blas_for(self.n_nodes):
            for part, logs in self._log_products(points):
                result[part] = reduce(logs)
        return result

    def _best_of(self, candidates: Column) -> NDArray[np.intp]:
        if domain(self._facts.kernel) == "finite" or self._marginal.density is not None:
            parzen = self._marginal.density
            prior = parzen(candidates) if parzen is not None else self._frequency(candidates)
            with np.errstate(divide="ignore"):
                log_prior = np.log(prior)
            return self._collect_logs(candidates, lambda logs: (logs + log_prior).argmax(axis=1), np.intp)
        likeness = np.asarray(self._facts.kernel(self._marginal.atoms, candidates), dtype=np.float64)
        return self._choose(lambda mass: (mass @ likeness).argmax(axis=1))

    def _frequency(self, column: Column) -> Matrix:
        """Marginal probability of finite values, 0 for those never seen."""
        equal = np.asarray(self._facts.kernel(column, self._marginal.atoms), dtype=np.float64) > 0
        return equal @ self._marginal.weights

    def _finite_density(self, column: Column) -> Matrix:
        equal = np.asarray(self._facts.kernel(self._marginal.atoms, column), dtype=np.float64) > 0
        result = self._collect(lambda mass: mass @ equal)
        if len(self._fixed.nodes):
            result[self._fixed.nodes] = np.asarray(self._facts.kernel(self._fixed.values, column)) > 0
        return result

    def _nearest_atoms(self, values: Column) -> NDArray[np.intp]:
        atoms = self._marginal.atoms
        if atoms.dtype == object or self._has_own_geometry:
            alike = np.asarray(self._facts.kernel(values, atoms), dtype=np.float64)
            return alike.argmax(axis=1)
        return scipy.spatial.distance.cdist(values, atoms).argmin(axis=1)

    def _invert(self, mass: Matrix, probability: Matrix) -> Matrix:
        """Values at which each row's distribution function reaches the given probabilities, (n, k)."""
        atoms = self._marginal.atoms[:, 0]
        if self._marginal.spacing is None:
            order = np.argsort(atoms, kind="stable")
            return atoms[order][_pick(mass[:, order], probability)]
        # Each atom stands for a cell of the table around it, over which its mass is spread evenly.
        cell = _pick(mass, probability)
        before = np.take_along_axis(np.cumsum(mass, axis=1) - mass, cell, axis=1)
        inside = np.take_along_axis(mass, cell, axis=1)
        share = np.clip((probability - before) / np.maximum(inside, np.finfo(np.float64).tiny), 0.0, 1.0)
        return atoms[cell] + (share - 0.5) * self._marginal.spacing


def _wide(table: Array) -> Array:
    """A copy with columns of zeros added, if need be, up to a multiple of `LANES`."""
    return np.pad(table, ((0, 0), (0, padded(table.shape[1]) - table.shape[1])))


def _highest(mass: Matrix, atoms: Matrix, candidates: Matrix) -> NDArray[np.intp]:
    """For each row, the candidate at which the weighted atoms, widened by Silverman's rule, are densest."""
    middle = atoms.mean()  # taken off first, so that little is lost to rounding
    atoms, candidates = atoms - middle, candidates - middle
    moments = mass @ np.stack([atoms, atoms**2], axis=1)
    spread = np.sqrt(np.maximum(moments[:, 1] - moments[:, 0] ** 2, 0.0))
    width = 1.06 * spread * (mass**2).sum(axis=1) ** 0.2
    least = max(float(np.ptp(atoms)), np.finfo(np.float64).tiny) * 1e-3
    # Widths are rounded, so that rows can share a window.
    step = np.rint(np.log(np.maximum(width, least)) / np.log(BASE)).astype(np.intp)
    best = np.empty(len(mass), dtype=np.intp)
    apart = (atoms[:, None] - candidates) ** 2
    for value in np.unique(step):
        rows = step == value
        window = np.exp(-0.5 * apart / BASE ** (2.0 * value)).astype(mass.dtype)
        best[rows] = (mass[rows] @ window).argmax(axis=1)
    return best


def _pick(mass: Matrix, probability: Matrix) -> NDArray[np.intp]:
    """For each row and probability, the first column at which the cumulative mass reaches it."""
    cumulative = np.cumsum(mass, axis=1)
    cumulative /= cumulative[:, -1:]
    count, size = cumulative.shape
    # One sorted search for all rows: shift row i by 2 i, so that rows cannot meet.
    shift = 2.0 * np.arange(count)[:, None]
    found = np.searchsorted((cumulative + shift).ravel(), np.minimum(probability, 1.0) + shift, side="left")
    picked: NDArray[np.intp] = np.minimum(found - size * np.arange(count)[:, None], size - 1)
    # A column without mass is never picked: at probability 0 step to the first that has some.
    first = (mass > 0).argmax(axis=1)[:, None]
    return np.maximum(picked, first)


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs:
    """The result of an inference: beliefs of all nodes, and how it ended.

    With one variable, `mean`, `mode`, `std`, `quantile`, `interval`, `density`, `sample`, `expect` and
    `probabilities` are over the graph's nodes in their order. With several, ``beliefs["name"]`` has them for
    each variable (`VariableBeliefs`, with an example of each).

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=2000)) % 10
    >>> model = kb.Model({"place": kb.kernels.Gaussian()}, {"then": kb.Relation("place", "place")})
    >>> model = model.fit({"then": (walk[:-1], walk[1:])})
    >>> chain = kb.Graph.chain(4, variable="place", relation="then").fix([0, 3], [5.0, 8.0])
    >>> beliefs = model.infer(chain)
    >>> beliefs
    Beliefs(4 nodes, converged after 1 iterations)
    >>> beliefs.mean().round(1)
    array([5. , 6. , 6.9, 8. ])
    >>> beliefs.converged, beliefs.residuals.shape
    (True, (1,))
    >>> beliefs["place"].interval(0.9).shape  # the same for one of several variables
    (4, 2)
    >>> joint = beliefs.pair(1)  # of the two nodes in between, at their support points
    >>> joint.shape == 2 * (len(beliefs["place"].support),), float(joint.sum().round(6))
    (True, 1.0)
    """

    _source: Source = field(repr=False)
    _verdict: Verdict

    def __repr__(self) -> str:
        verdict = "converged after" if self.converged else "not converged in"
        return f"Beliefs({self.graph.n_nodes} nodes, {verdict} {self.iterations} iterations)"

    @property
    def converged(self) -> bool:
        """Whether messages settled within the tolerance."""
        return self._verdict.converged

    @property
    def iterations(self) -> int:
        """Iterations run; each updates about as many messages as there are."""
        return self._verdict.iterations

    @property
    def residuals(self) -> Matrix:
        """Largest change of any message value relative to its largest, by iteration."""
        return np.asarray(self._verdict.residuals)

    @property
    def graph(self) -> Graph:
        """The graph that was inferred."""
        return self._source.graph

    def __getitem__(self, variable: str) -> VariableBeliefs:
        if variable not in self._source.graph.variables:
            raise InputError(
                f"beliefs[...] takes the name of a variable, got {variable!r}; the graph has "
                + ", ".join(self._source.graph.variables)
            )
        return VariableBeliefs(self._source, variable)

    @property
    def _only(self) -> VariableBeliefs:
        names = self._source.graph.variables
        if not names:
            raise InputError("this graph has no nodes, so there is no belief to read")
        if len(names) != 1:
            raise InputError(
                f"this graph has several variables; choose one, such as beliefs[{names[0]!r}] (of {', '.join(names)})"
            )
        return VariableBeliefs(self._source, names[0])

    @property
    def atoms(self) -> Array:
        """See `VariableBeliefs.atoms`."""
        return self._only.atoms

    def probabilities(self) -> Matrix:
        """See `VariableBeliefs.probabilities`."""
        return self._only.probabilities()

    def density(self, points: Any, *, nodes: ArrayLike | None = None) -> Matrix:
        """See `VariableBeliefs.density`."""
        return self._only.density(points, nodes=nodes)

    def expect(self, function: Callable[[Array], ArrayLike]) -> Matrix:
        """See `VariableBeliefs.expect`."""
        return self._only.expect(function)

    def mean(self) -> Array:
        """See `VariableBeliefs.mean`."""
        return self._only.mean()

    def std(self) -> Array:
        """See `VariableBeliefs.std`."""
        return self._only.std()

    def mode(self, candidates: Any = None) -> Array:
        """See `VariableBeliefs.mode`."""
        return self._only.mode(candidates)

    def centre(self, candidates: Any = None) -> Array:
        """See `VariableBeliefs.centre`."""
        return self._only.centre(candidates)

    def entropy(self) -> Matrix:
        """See `VariableBeliefs.entropy`."""
        return self._only.entropy()

    def expected_distance(self, to: Any = None) -> Matrix:
        """See `VariableBeliefs.expected_distance`."""
        return self._only.expected_distance(to)

    def quantile(self, probability: float | ArrayLike) -> Matrix:
        """See `VariableBeliefs.quantile`."""
        return self._only.quantile(probability)

    def interval(self, coverage: float = 0.9) -> Matrix:
        """See `VariableBeliefs.interval`."""
        return self._only.interval(coverage)

    def sample(self, size: int, *, seed: int | np.random.Generator | None = None) -> Array:
        """See `VariableBeliefs.sample`."""
        return self._only.sample(size, seed=seed)

    def log_partition(self) -> float:
        """Logarithm of the partition function, at the messages as they stand.

        With ``weighting="bethe"`` Bethe's estimate, exact on trees; tree-reweighted, with the weights of
        spanning trees as they are, an upper bound. It is
        that of the model with node potentials marginal times evidence, and edge potentials as
        explained in `kernelbp.inference.partition`; without evidence it is 0 for relations that agree on
        their marginals.

        Raises
        ------
        UnsupportedError
            With ``conditionals="embedding"``, whose messages may be negative.
        """
        if self._source.state.signed:
            raise UnsupportedError(
                "the partition function needs positive messages; infer with conditionals='probability'"
            )
        return log_partition(self._source)

    def pair(self, edge: int) -> Matrix:
        """The belief of an edge's two ends together, on their support points.

        Parameters
        ----------
        edge : int
            Number of the edge in ``graph.edges``.

        Returns
        -------
        (q_first, q_second) array
            Mass on each pair of support points (``beliefs[variable].support`` of the two ends), rows for
            ``graph.edges[edge, 0]``, summing to one.
        """
        source = self._source
        wiring, operators = source.wiring, source.operators
        if not is_whole(edge) or not 0 <= edge < source.graph.n_edges:
            raise InputError(f"edge: expected a number in 0 ... {source.graph.n_edges - 1}, got {edge!r}")
        mine = np.flatnonzero(wiring.edge == edge)
        if not len(mine):
            raise UnsupportedError(
                f"edge {edge} has a fixed end; the belief of the other end says all there is"
            )
        nodes = wiring.ends[1][mine]
        to_first, to_second = mine if nodes[0] == source.graph.edges[edge, 0] else mine[::-1]
        products = [self._cavity_at(message) for message in (to_first, to_second)]
        names = [source.graph.variables[wiring.target_variable[i]] for i in (to_first, to_second)]
        joint = np.zeros((products[0].size, products[1].size))
        for toward, message in ((0, to_first), (1, to_second)):
            # Column j of the operator is what it makes of the j-th unit vector.
            units = np.eye(products[1 - toward].size, dtype=source.state.messages[0].dtype)
            operator = source.state.operators[wiring.operator[message]]
            conditional = operator.apply(units, np.full(len(units), edge)).T
            own = operators.support_weights(names[toward])[:, None] * conditional
            share = own if toward == 0 else own.T
            total = share.sum()
            joint += share / total if total else 0.0
        joint = np.maximum(joint * products[0][:, None] * products[1], 0.0)
        total = joint.sum()
        if not total > 0:
            raise UnsupportedError(
                f"the belief of edge {edge} is nowhere positive: its evidence contradicts itself"
            )
        return joint / total

    def _cavity_at(self, message: int) -> Matrix:
        """Evidence and messages at the receiver of a message, that message left out, at its support."""
        source, wiring = self._source, self._source.wiring
        variable, node = int(wiring.target_variable[message]), int(wiring.target[message])
        start = wiring.start[variable]
        rows = np.arange(start[node], start[node + 1])
        arriving = source.state.messages[variable][rows].astype(np.float64)
        logs = log_magnitude(arriving)
        if source.state.weights:
            logs *= source.state.weights[variable][rows, None]
        own = rows == wiring.row[message]
        evidence = source.state.evidence[variable][node].astype(np.float64)
        total = logs.sum(axis=0) - log_magnitude(arriving[own])[0] + log_magnitude(evidence)
        product = np.exp(total - total.max())
        odd = ((arriving[~own] < 0).sum(axis=0) % 2 == 1) ^ (evidence < 0)
        return np.where(odd, -product, product)


# `help` of the shortcuts says what that of the real ones says.
for _name in (
    "probabilities",
    "density",
    "expect",
    "mean",
    "std",
    "mode",
    "centre",
    "entropy",
    "expected_distance",
    "quantile",
    "interval",
    "sample",
):
    getattr(Beliefs, _name).__doc__ = getattr(VariableBeliefs, _name).__doc__
