"""Settings fitted by inference itself, on training graphs whose hidden values are known.

A few numbers cannot be told from pairs alone: how much independence to mix into the relations, how strongly to
weight the edges, how far what is known is to be carried, how far to trust the belief that comes out. Given graphs
with known values, inference is run on them and all these numbers are chosen together: by the squared error of the
belief's mean on numbers, by the log-probability of the truth elsewhere. Errors enter by their logarithm, graph by graph
and variable by variable: that makes them comparable with log-probabilities, and an easy graph counts as much as a hard one.
Where inference does best to stop, the tables of the relations are refined for it as well (`kernelbp.refining`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.graph import Graph
from kernelbp.inference.beliefs import Beliefs
from kernelbp.kernels import domain
from kernelbp.learning.operators import ProbabilityOperators
from kernelbp.learning.probability import assign
from kernelbp.refining import MOST_STEPS, KnownNodes, Refined, can_refine, masses, refine, score_of
from kernelbp.values import as_column, missing_rows, taken_up

__all__ = ["GraphCalibration", "calibrate"]

MIXINGS = (None, 0.001, 0.01, 0.02, 0.05, 0.1)
"""Shares of independence tried; None is what held-out pairs chose for each relation."""
WEIGHT_SCALES = (0.5, 0.7, 0.9, 1.0, 1.05, 1.1)
"""Factors on the spanning-tree weights; above 1 they no longer bound the partition function."""
STOPS = (6, 8, 10, 12, 14, 17, 20, 24)
"""Iterations after which to stop. A relation learned from pairs that depend on more than each other, as pixels of
a picture do, is wrong by a little at every step, and that adds up where messages have come a long way."""
WORTH_STOPPING = 0.01
"""What the score must gain by it: an answer that has settled is worth something in itself."""
STOPPED_DAMPING = 0.5
"""Of inferences that stop: it makes the steps finer."""
TEMPERATURES = tuple(float(t) for t in np.geomspace(0.5, 3.0, 25))


@dataclass(frozen=True)
class GraphCalibration:
    """What training graphs decided.

    Attributes
    ----------
    mixing : share of independence in every learned relation; None to keep what pairs decided
    weight_scale : factor on the edge weights of tree-reweighted inference
    iterations : after how many to stop on graphs with cycles, damped by half; None to go on until messages settle
    temperature : what the logarithm of evidence and messages is divided by when a belief is read
    score : what chose all of them: minus the logarithm of the root mean squared error on numbers, the mean
        log-probability of the truth elsewhere, averaged over graphs; None if not fitted
    """

    mixing: float | None = None
    weight_scale: float = 1.0
    temperature: float = 1.0
    score: float | None = None
    iterations: int | None = None


Matrix = NDArray[np.float64]


def calibrate(
    graphs: Sequence[tuple[Graph, Any]],
    infer: Callable[[Graph, GraphCalibration], Beliefs],
    operators: ProbabilityOperators,
    step: Callable[[str], None],
    mixings: tuple[float | None, ...] = MIXINGS,
    *,
    stopping: bool = True,
    refining: bool = True,
) -> tuple[GraphCalibration, Refined | None]:
    """Fit mixing, edge weights and mixing again; then when to stop and, where stopping is best, all three once more.

    Where it is, tables are refined, too.

    Parameters
    ----------
    graphs : pairs of a graph (with its evidence) and the true values of its nodes
    infer : runs inference under given settings
    operators : of the fitted model, for its states
    step : called with a note after every inference
    mixings : shares of independence to try
    stopping : whether inference may stop before messages have settled
    refining : whether tables may be refined where it does

    Returns
    -------
    settings : what was chosen
    refined : tables of relations, and what goes with them, for inference that stops so; None if they stay as counted
    """
    truths = [_known_nodes(graph, truth, operators) for graph, truth in graphs]
    tried: dict[GraphCalibration, GraphCalibration] = {}
    cycles = False

    def scored(settings: GraphCalibration) -> GraphCalibration:
        """With the temperature and score found."""
        nonlocal cycles
        scores = np.zeros(len(TEMPERATURES))
        for (graph, _), truth in zip(graphs, truths, strict=True):
            beliefs = infer(graph, settings)
            cycles |= not beliefs._source.wiring.is_forest
            scores += _scores_of_truth(beliefs, truth, operators) / len(graphs)
            step(_note(settings))
        best = int(np.argmax(scores))
        return replace(settings, temperature=TEMPERATURES[best], score=float(scores[best]))

    def best_of(candidates: list[GraphCalibration]) -> GraphCalibration:
        for settings in candidates:
            key = replace(settings, temperature=1.0, score=None)
            if key not in tried:
                tried[key] = scored(key)
        return max(tried.values(), key=lambda found: -np.inf if found.score is None else found.score)

    best = best_of([GraphCalibration(mixing=share) for share in mixings])
    settled = best_of([replace(best, weight_scale=factor) for factor in WEIGHT_SCALES])
    if not cycles:
        return settled, None  # two passes over a tree are exact: nowhere to stop
    settled = best_of([replace(settled, mixing=share) for share in mixings])
    if not stopping:
        return settled, None
    best = best_of([replace(settled, iterations=stop) for stop in STOPS])
    if best.iterations:
        # Weights that suit messages on their way are not those that suit messages that have settled.
        best = best_of([replace(best, weight_scale=factor) for factor in WEIGHT_SCALES])
        best = best_of([replace(best, iterations=stop) for stop in STOPS])
        best = best_of([replace(best, mixing=share) for share in mixings])
    if best.iterations is None or not (best.score or 0.0) > (settled.score or 0.0) + WORTH_STOPPING:
        return settled, None
    if not refining:
        return best, None
    started = [(infer(graph, best), truth) for (graph, _), truth in zip(graphs, truths, strict=True)]
    # Trees among the graphs are inferred without stopping, by the tables that were counted.
    stopped = [(beliefs, truth) for beliefs, truth in started if not beliefs._source.wiring.is_forest]
    if not can_refine(stopped, best.iterations):
        return best, None
    return best, refine(
        stopped,
        iterations=best.iterations,
        damping=STOPPED_DAMPING,
        temperature=best.temperature,
        step=step,
    )


def _note(settings: GraphCalibration) -> str:
    stop = "" if settings.iterations is None else f", {settings.iterations} iterations"
    return f"mixing {settings.mixing or 'as learned'}, weights x {settings.weight_scale:g}{stop}"


def inferences_needed(
    n_graphs: int, mixings: tuple[float | None, ...] = MIXINGS, *, stopping: bool = True
) -> int:
    """How many inferences `calibrate` runs at most, a step of refining counted as one."""
    settled = 2 * len(mixings) + len(WEIGHT_SCALES) - 2
    stopped = len(mixings) + len(WEIGHT_SCALES) + 2 * len(STOPS) - 2
    return n_graphs * (settled + (stopped if stopping else 0)) + (MOST_STEPS if stopping else 0)


def _known_nodes(graph: Graph, truth: Any, operators: ProbabilityOperators) -> list[KnownNodes]:
    """For each variable with known values: its nodes that have one, and what is known of each."""
    by_variable = truth if isinstance(truth, Mapping) else {graph.variables[0]: truth}
    if not isinstance(truth, Mapping) and len(graph.variables) > 1:
        raise InputError(
            "graphs: with several variables, give true values as a mapping from variable to values"
        )
    found: list[KnownNodes] = []
    for name, values in by_variable.items():
        nodes = graph.nodes_of(name)
        column, kind = as_column(values, f"graphs: true values of {name!r}", allow_missing=True)
        if len(column) != len(nodes):
            raise InputError(
                f"graphs: expected a true value for each of the {len(nodes)} nodes of {name!r}, got {len(column)}"
            )
        known = np.flatnonzero(~missing_rows(column, f"graphs: true values of {name!r}"))
        embedding = operators.embeddings[name]
        column, kind = taken_up(
            embedding.kernel, column[known], kind, f"graphs: true values of {name!r}", embedding.examples.kind
        )
        if len(known):
            embedding.examples.kind.merged(kind, f"graphs: true values of {name!r}")
            measures, points = assign(embedding.states, column), operators.support(name)
            number = domain(embedding.kernel) == "real" and points.shape[1:] == (1,)
            found.append(KnownNodes(name, known, measures, measures @ points[:, 0] if number else None))
    if not found:
        raise InputError("graphs: no true value is known in one of the graphs")
    return found


def _scores_of_truth(
    beliefs: Beliefs, truth: Sequence[KnownNodes], operators: ProbabilityOperators
) -> Matrix:
    """The score at each temperature (temperatures,), larger is better, averaged over the variables by their known nodes."""
    scores = np.zeros(len(TEMPERATURES))
    total = sum(len(known.nodes) for known in truth)
    for known in truth:
        product = beliefs[known.variable].log_products_at_support()[known.nodes]
        prior = np.log(operators.support_weights(known.variable))
        points = operators.support(known.variable)
        for index, temperature in enumerate(TEMPERATURES):
            found = score_of(masses(product / temperature + prior), points, known)
            scores[index] += found * len(known.nodes) / total
    return scores
