"""From a graph with evidence and operators to beliefs: what every model that passes tables of values shares."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelbp.errors import InputError
from kernelbp.graph import Graph
from kernelbp.inference.beliefs import Beliefs, Source
from kernelbp.inference.engine import Engine, available_threads, blas_for
from kernelbp.inference.evidence import Evidence, VariableFacts
from kernelbp.inference.memory import check_memory
from kernelbp.inference.run import Verdict, run
from kernelbp.inference.schedules import make_plan
from kernelbp.inference.setup import check_choice, checked_dtype, edge_weights, initial_state
from kernelbp.inference.wiring import Wiring, wire
from kernelbp.learning.examples import Ends
from kernelbp.learning.marginal import Marginal
from kernelbp.learning.operators import Operators
from kernelbp.values import is_whole

__all__ = ["check_call", "check_graph", "propagate", "wire_hidden"]


def check_graph(graph: Any) -> None:
    """Refuse what is no graph."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"graph: expected a kernelbp.Graph, got {type(graph).__name__}; "
            "see Graph.grid, Graph.from_edges and Graph.from_networkx"
        )


def check_call(graph: Any, choice: Mapping[str, Any], start: Any, dtype: Any, n_jobs: Any) -> np.dtype[Any]:
    """Refuse arguments of `infer` that make no sense; the precision of messages."""
    check_graph(graph)
    if start is not None and not isinstance(start, Beliefs):
        raise InputError(f"start: expected Beliefs of an earlier inference, got {type(start).__name__}")
    if n_jobs is not None and not (is_whole(n_jobs) and n_jobs >= 1):
        raise InputError(f"n_jobs: expected a whole number of at least 1 or None, got {n_jobs!r}")
    check_choice(choice)
    return checked_dtype(dtype)


def wire_hidden(
    graph: Graph, relations: Mapping[str, Ends], evidence: Evidence, *, stacklevel: int = 3
) -> Wiring:
    """The messages between nodes whose value is not known; a warning is said to come from so many calls up."""
    for name in () if graph.directed else graph.relations:
        if (
            name in relations
            and relations[name].first == relations[name].second
            and not relations[name].symmetric
        ):
            warnings.warn(
                f"graph: edges of {name!r} come from an undirected networkx graph, and {name!r} is not symmetric, so "
                "which end is the first is left to the order of the nodes; give a DiGraph, or a symmetric relation",
                UserWarning,
                stacklevel=stacklevel,
            )
    fixed = [
        graph.nodes_of(name)[part.nodes] for name, part in zip(graph.variables, evidence.fixed, strict=True)
    ]
    numbers = np.concatenate([np.empty(0, dtype=np.intp), *fixed])
    ends = [relations[name] for name in graph.relations if name in relations]
    key = (*((end.first, end.second, end.symmetric) for end in ends), numbers.tobytes())
    return graph.kept.once(key, lambda: wire(graph, relations, numbers))


def propagate(
    graph: Graph,
    wiring: Wiring,
    operators: Operators,
    evidence: Evidence,
    facts: Mapping[str, VariableFacts],
    marginals: Mapping[str, Marginal],
    choice: Mapping[str, Any],
    *,
    start: Beliefs | None,
    dtype: np.dtype[Any],
    n_jobs: int | None,
    weight_scale: float = 1.0,
    temperature: float = 1.0,
    smooth: bool = True,
    progress: bool = False,
) -> tuple[Source, Verdict]:
    """Pass messages until they settle.

    Parameters
    ----------
    graph, wiring, operators, evidence, facts, marginals : the problem
    choice : settings of `Model.infer`, checked
    start, dtype, n_jobs, progress : as `Model.infer`
    weight_scale : what tree weights are multiplied by
    temperature : of the beliefs
    smooth : whether an update is a smooth map, so that extrapolating iterations makes sense
    """
    check_memory(wiring, [len(operators.support(name)) for name in wiring.variables], dtype)
    earlier = None if start is None else start._source.state.messages
    with blas_for(graph.n_nodes, n_jobs):
        weights = edge_weights(graph, wiring, choice["weighting"], operators.signed, weight_scale)
        state = initial_state(
            wiring, operators, evidence, weights, graph.readings, dtype, earlier, choice["normalization"]
        )
    plan = make_plan(choice["schedule"], wiring, graph.n_nodes, graph.shape)
    # Two passes over a tree are exact only where a message does not depend on the one that answers it.
    exact = choice["schedule"] in ("auto", "tree") and not state.weights and wiring.is_forest
    verdict = run(
        Engine(state, wiring, available_threads() if n_jobs is None else n_jobs, plan.ranks),
        plan,
        wiring.n_messages,
        max_iterations=choice["max_iterations"],
        tolerance=choice["tolerance"],
        damping=0.0 if exact else choice["damping"],
        exact_in_one=exact,
        # Extrapolation takes an iteration for one map; dynamic schedules make each a different one.
        accelerate=(
            smooth
            and not operators.signed
            and not plan.dynamic
            and (weights is not None or choice["damping"] == "auto")
        ),
        progress=progress,
    )
    return Source(graph, wiring, operators, state, evidence, facts, marginals, temperature), verdict
