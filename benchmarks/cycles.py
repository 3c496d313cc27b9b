"""Graphs with cycles: tree-reweighted messages, the default, beside ordinary ones, where the truth is known.

- Random binary graphs of 10 to 14 nodes whose ties disagree: marginals against those of all states enumerated.
- A scale-free network of label sets, where ties are many and each says little: how many sets are right.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
from common import Results, Settings
from numpy.typing import NDArray

import kernelbp as kb

Array = NDArray[Any]

GRAPHS, QUICK_GRAPHS = 200, 20
DENSITY, STRENGTH, FIELD = 0.5, 2.0, 0.1
"""Ties of all pairs; the largest coupling and field, of either sign."""
WAYS: dict[str, dict[str, Any]] = {
    "tree-reweighted (the default)": {},
    "ordinary, flooding": {"weighting": "bethe", "schedule": "flooding", "damping": 0.0},
    "ordinary, flooding, damped by half": {"weighting": "bethe", "schedule": "flooding", "damping": 0.5},
    "ordinary, damped and accelerated as needed": {"weighting": "bethe"},
}
KNOWN, NODES = 3_000, 20_000
"""Nodes of the network learned from, and of that inferred on."""
SETS = 12


def run(settings: Settings) -> Iterator[Results]:
    """A table for each."""
    yield frustrated(settings)
    yield label_sets()


def frustrated(settings: Settings) -> Results:
    """Errors of marginals, and whether messages settle."""
    same = kb.Relation("x", "x", symmetric=True, potential=lambda a, b, c: np.exp(np.where(a == b, c, -c)))
    model = kb.Model({"x": kb.kernels.Delta()}, {"tie": same}, landmarks={"x": [0, 1]}).fit()
    count = QUICK_GRAPHS if settings.quick else GRAPHS
    found: dict[str, list[tuple[float, bool, int]]] = {way: [] for way in WAYS}
    for seed in settings.progress.track(range(count), description="frustrated graphs"):
        graph, exact = random_ties(10 + seed % 5, 1000 + seed)
        for way, options in WAYS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", kb.errors.ConvergenceWarning)
                beliefs = model.infer(graph, **options)
            error = float(np.abs(beliefs.density([1])[:, 0] - exact).mean())
            found[way].append((error, beliefs.converged, beliefs.iterations))
    rows = [
        (way, float(np.mean(errors)), f"{sum(settled)} of {count}", max(iterations))
        for way, (errors, settled, iterations) in (
            (way, zip(*each, strict=True)) for way, each in found.items()
        )
    ]
    return Results(
        "cycles_frustrated",
        f"{count} random binary graphs of 10 to 14 nodes with ties of mixed signs, against enumeration",
        ("messages", "mean error of marginals", "converged", "most iterations"),
        rows,
    )


def random_ties(nodes: int, seed: int) -> tuple[kb.Graph, Array]:
    """A graph with a coupling along each edge and a weak field at each node, and its exact P(x = 1)."""
    rng = np.random.default_rng(seed)
    edges = np.array(nx.gnp_random_graph(nodes, DENSITY, seed=seed).edges, dtype=np.intp).reshape(-1, 2)
    couplings = rng.uniform(-STRENGTH, STRENGTH, len(edges))
    fields = rng.uniform(-FIELD, FIELD, nodes)
    graph = kb.Graph.from_edges(edges, variables=["x"] * nodes, relation="tie", readings=couplings)
    graph = graph.soften(np.arange(nodes), [0, 1], np.exp(np.stack([-fields, fields], axis=1)))
    spins = 2.0 * (np.arange(1 << nodes)[:, None] >> np.arange(nodes) & 1) - 1.0
    energy = spins @ fields + (spins[:, edges[:, 0]] * spins[:, edges[:, 1]]) @ couplings
    mass = np.exp(energy - energy.max())
    return graph, (mass @ (spins > 0)) / mass.sum()


def label_sets() -> Results:
    """How many label sets are right: as claimed, and as inferred."""
    sets = np.empty(SETS, dtype=object)
    for number in range(SETS):
        sets[number] = frozenset({number, SETS + number % 5, SETS + 5 + number % 3})
    kernel = kb.kernels.RandomProjection(dimension=60)
    model = kb.Model(
        {"labels": kernel, "claim": kernel},
        {"cites": kb.Relation("labels", "labels", symmetric=True), "claims": kb.Relation("labels", "claim")},
    )
    edges, labels, claims = network(sets, KNOWN, 0)
    model.fit({"cites": (labels[edges[:, 0]], labels[edges[:, 1]]), "claims": (labels, claims)})
    edges, truth, claims = network(sets, NODES, 1)
    graph = kb.Graph.from_edges(edges, variables=["labels"] * NODES, relation="cites")
    graph = graph.observe("claims", claims)
    rows: list[tuple[str, float, str]] = [("as claimed", float(np.mean(claims == truth)), "")]
    for way, options in (("tree-reweighted (the default)", {}), ("ordinary", {"weighting": "bethe"})):
        beliefs = model.infer(graph, **options)  # type: ignore[arg-type]
        right = float(np.mean(beliefs.mode() == truth))
        rows.append((way, right, "yes" if beliefs.converged else "no"))
    return Results(
        "cycles_label_sets",
        f"A scale-free network of {NODES:,} label sets, about half of them claimed wrongly",
        ("messages", "share of sets that are right", "converged"),
        rows,
    )


def network(sets: Array, nodes: int, seed: int) -> tuple[Array, Array, Array]:
    """Ties with hubs, one in ten of those between different sets kept, true sets, and what is claimed of each."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(len(sets), size=nodes)
    edges = np.array(nx.barabasi_albert_graph(nodes, 10, seed=seed).edges)
    alike = topic[edges[:, 0]] == topic[edges[:, 1]]
    edges = edges[alike | (rng.random(len(edges)) < 0.1)]
    claimed = np.where(rng.random(nodes) < 0.5, rng.integers(len(sets), size=nodes), topic)
    return edges, sets[topic], sets[claimed]
