"""Setting up an inference: its settings checked, its edges weighted, its first messages and evidence laid out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelbp.errors import InputError
from kernelbp.graph import Graph
from kernelbp.inference.evidence import Evidence
from kernelbp.inference.update import FLOORS, Flat, State
from kernelbp.inference.weights import spanning_tree_weights
from kernelbp.inference.wiring import Wiring
from kernelbp.learning.operators import Operators
from kernelbp.values import is_number, is_whole

__all__ = ["CHOICES", "DEFAULTS", "check_choice", "checked_dtype", "edge_weights", "initial_state"]

DEFAULTS: dict[str, Any] = {
    "update": "constant",
    "conditionals": None,
    "weighting": None,
    "schedule": "auto",
    "max_iterations": 100,
    "tolerance": 1e-3,
    "damping": "auto",
    "normalization": "largest",
}
CHOICES = {
    "update": ("constant", "linear", "full"),
    "conditionals": ("probability", "embedding"),
    "schedule": ("auto", "flooding", "sweep", "residual", "splash", "tree"),
    "normalization": ("largest", "norm"),
}
LARGE, NEAR_HALF = 2000, 1e-2
"""On graphs of more nodes than this, weights this near to 1/2 (most of a large grid's) are taken as 1/2, before they are
scaled: a square root is far cheaper than a power, and powers are cheaper where all are alike."""
EVIDENCE_CELLS = 1 << 21
"""Cells (nodes x support points) of evidence evaluated at a time."""


def check_choice(choice: Mapping[str, Any]) -> None:
    """Refuse settings of `Model.infer` that make no sense."""
    for name in choice:
        if name not in DEFAULTS:
            raise InputError(f"inference: unknown setting {name!r}; there are {', '.join(DEFAULTS)}")
    for name, allowed in CHOICES.items():
        if choice[name] not in allowed:
            raise InputError(f"{name}: expected {' or '.join(map(repr, allowed))}, got {choice[name]!r}")
    most, tolerance = choice["max_iterations"], choice["tolerance"]
    if not is_whole(most) or most < 1:
        raise InputError(f"max_iterations: expected a whole number of at least 1, got {most!r}")
    if not is_number(tolerance) or not tolerance >= 0:
        raise InputError(f"tolerance: expected a number of at least 0, got {tolerance!r}")
    if choice["update"] != "constant" and choice["conditionals"] == "probability":
        raise InputError(
            f"update: {choice['update']!r} is a form of conditionals='embedding'; probability tables have only 'constant'"
        )
    damping = choice["damping"]
    if damping != "auto" and not (is_number(damping) and 0 <= damping < 1):
        raise InputError(f"damping: expected 'auto' or a number from 0 to below 1, got {damping!r}")


def checked_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The precision of messages."""
    try:
        precision = np.dtype(dtype)
    except TypeError:
        precision = None
    if precision is None or precision not in (np.float32, np.float64):
        raise InputError(f"dtype: expected float32 or float64, got {dtype!r}")
    return precision


def initial_state(
    wiring: Wiring,
    operators: Operators,
    evidence: Evidence,
    weights: NDArray[np.float64] | None,
    readings: NDArray[Any] | None,
    dtype: np.dtype[Any],
    start: Flat | None,
    normalization: str,
) -> State:
    """First messages of ones (or a copy of the messages `start`), and the evidence at the support points."""
    sizes = [len(operators.support(name)) for name in wiring.variables]
    shapes = [(int(rows[-1]), size) for rows, size in zip(wiring.start, sizes, strict=True)]
    messages = Flat(shapes, dtype)
    if start is not None:
        if [m.shape for m in start] != shapes:
            raise InputError(
                f"start: beliefs of a graph with other messages, {[m.shape for m in start]} instead of {shapes}"
            )
        messages = Flat.of(list(start), dtype)
        if weights is not None:
            np.maximum(messages.values, FLOORS[dtype], out=messages.values)
    unit = normalization == "norm"
    known = Flat([(len(nodes), size) for nodes, size in zip(wiring.nodes, sizes, strict=True)], dtype)
    log_scale = 0.0
    for index, size in enumerate(sizes):
        product = known[index]
        block = max(1, EVIDENCE_CELLS // size)
        for begin in range(0, len(product) if evidence.pieces[index] else 0, block):
            end = min(begin + block, len(product))
            values, log_largest = evidence.scaled_at(operators, index, begin, end, size)
            if unit:
                values *= np.exp(log_largest)
            else:
                own = evidence.fixed[index].nodes
                log_largest[own[(own >= begin) & (own < end)] - begin] = 0.0  # not part of the model any more
                log_scale += float(log_largest.sum())
            product[begin:end] = values
    made = tuple(operators.operator(*key, readings, weights, dtype) for key in wiring.operators)
    functions = tuple(operators.function(name).astype(dtype) for name in wiring.variables) if unit else ()
    shares = Flat([], dtype)
    if weights is not None:
        shares = Flat.of(
            [weights[wiring.edge[wiring.target_variable == v]] for v in range(len(sizes))], dtype
        )
    return State(messages, known, shares, functions, made, operators.signed, log_scale)


def edge_weights(
    graph: Graph, wiring: Wiring, weighting: Any, signed: bool, scale: float
) -> NDArray[np.float64] | None:
    """Weights of the graph's edges (edges,), or None where all are one; `scale` is for tree weights."""
    if weighting is None:
        weighting = "bethe" if signed else "tree-reweighted"
    if isinstance(weighting, str):
        if weighting == "bethe":
            return None
        if weighting != "tree-reweighted":
            raise InputError(
                f"weighting: expected 'tree-reweighted', 'bethe' or a weight for each edge, got {weighting!r}"
            )
        weights = np.ones(graph.n_edges)
        used = np.flatnonzero(np.bincount(wiring.edge, minlength=graph.n_edges))
        whole = graph.shape if len(used) == graph.n_edges else None
        shares = wiring.kept.once(
            "spanning trees", lambda: spanning_tree_weights(graph.n_nodes, graph.edges[used], whole)
        )
        if graph.n_nodes > LARGE:
            shares = np.where(np.abs(shares - 0.5) < NEAR_HALF, 0.5, shares)
        weights[used] = np.minimum(scale * shares, 1.0)
    else:
        try:
            weights = np.asarray(weighting, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"weighting: expected a number for each edge, got {weighting!r:.80}") from None
        if weights.shape != (graph.n_edges,) or not ((weights > 0) & (weights <= 1)).all():
            raise InputError(
                f"weighting: expected {graph.n_edges} numbers above 0 and at most 1, one for each edge, "
                f"got shape {weights.shape}"
            )
    if (weights == 1).all():
        return None
    if signed:
        raise InputError(
            "weighting: edges can only be weighted where messages are positive; use conditionals='probability' "
            "or weighting='bethe'"
        )
    return weights
