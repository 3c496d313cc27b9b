"""Along a protein, are edges to the third and the fourth residue worth their cycles? A turn of a helix is 3.6 residues.

Directions of residues as in ``kernelbp reproduce protein``, with its linear evidence from a window of 15 residues. Graphs: no
edges, the chain, the chain with edges to the third and fourth residue; each with default settings, and with what
``Model.fit(graphs=...)`` fits on training chains held out from the pairs. One half of the chains is learned from, the other
tested. Judged: mean cosine between the true direction and the mean of the belief.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import Results, Settings

import kernelbp as kb
from kernelbp.datasets import load_proteins
from kernelbp.experiments.protein_chains import (
    LONGER_THAN,
    Chain,
    chain_of,
    cosines,
    directions_of,
    windows_of,
)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "proteins"
WINDOW = 15
GAPS = {"then": 1, "third": 3, "fourth": 4}
"""Relations along the chain."""
GRAPHS: dict[str, tuple[str, ...]] = {
    "no edges": (),
    "chain": ("then",),
    "chain, third, fourth": tuple(GAPS),
}
HELD_OUT = 12
"""Of so many training chains one is held out for ``fit(graphs=...)``."""
QUICK_CHAINS = 60


def run(settings: Settings) -> Iterator[Results]:
    """One table; nothing where the data is not at hand."""
    if (DATA / "proteins.npz").is_file():
        yield compared(settings)


def compared(settings: Settings) -> Results:
    """Mean cosine on each graph, as it is and fitted."""
    chains = [chain_of(protein) for protein in load_proteins(DATA) if len(protein) > LONGER_THAN]
    if settings.quick:
        chains = chains[:QUICK_CHAINS]
    train, test = chains[0::2], chains[1::2]
    held_out = train[::HELD_OUT]
    rest = [chain for index, chain in enumerate(train) if index % HELD_OUT]
    truth = directions_of(test)
    plain = learn(rest)
    rows: list[tuple[Any, ...]] = []
    for name, relations in settings.progress.track(GRAPHS.items(), description="links: graphs"):
        models = {"default": plain}
        if relations:
            known = (graph_of(held_out, relations), directions_of(held_out))
            models["fit(graphs=)"] = learn(rest, graphs=[known])
        for kind, model in models.items():
            graph = graph_of(test, relations)
            began = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", kb.ConvergenceWarning)
                beliefs = model.infer(graph)
            spent = time.process_time() - began
            fitted = model.settings_["calibration"] if kind != "default" else {}
            rows.append(
                (
                    name,
                    kind,
                    float(cosines(beliefs.mean(), truth).mean()),
                    *(fitted.get(setting) for setting in ("mixing", "weight_scale", "temperature")),
                    beliefs.iterations,
                    "yes" if beliefs.converged else "no",
                    spent,
                )
            )
    return Results(
        "links",
        f"Directions of residues, {len(rest)} chains learned from, {len(test)} tested: mean cosine",
        (
            "graph",
            "settings",
            "mean cosine",
            "mixing",
            "weight scale",
            "temperature",
            "iterations",
            "converged",
            "seconds",
        ),
        rows,
        note=f"fitted on {len(held_out)} training chains held out; seconds of an inference, processor time",
    )


def learn(chains: Sequence[Chain], graphs: Sequence[tuple[kb.Graph, Any]] = ()) -> kb.Model:
    """The relations along the chain, and the evidence of profiles."""
    directions = directions_of(chains)
    model = kb.Model(
        {"direction": kb.kernels.Sphere(), "profile": kb.kernels.Linear()},
        {
            **{name: kb.Relation("direction", "direction") for name in GAPS},
            "read": kb.Relation("direction", "profile", evidence="posterior"),
        },
    )
    ends = {name: pairs_of(chains, gap) for name, gap in GAPS.items()}
    pairs: dict[str, Any] = {
        name: (directions[left], directions[right]) for name, (left, right) in ends.items()
    }
    return model.fit({**pairs, "read": (directions, readings_of(chains))}, graphs=graphs)


def pairs_of(chains: Sequence[Chain], gap: int) -> tuple[Any, Any]:
    """Numbers of the residues `gap` apart, among all whose direction is known."""
    found: list[Any] = []
    begin = 0
    for chain in chains:
        number = begin + np.cumsum(chain.known) - 1
        at = np.flatnonzero(chain.known[:-gap] & chain.known[gap:])
        found.append((number[at], number[at + gap]))
        begin += int(chain.known.sum())
    left, right = zip(*found, strict=True)
    return np.concatenate(left), np.concatenate(right)


def graph_of(chains: Sequence[Chain], relations: Sequence[str]) -> kb.Graph:
    """All chains side by side, with their profiles; nodes are residues whose direction is known."""
    ends = {name: pairs_of(chains, GAPS[name]) for name in relations}
    edges = [(int(a), int(b), name) for name, pairs in ends.items() for a, b in zip(*pairs, strict=True)]
    size = sum(int(chain.known.sum()) for chain in chains)
    graph = kb.Graph.from_edges(edges, variables=["direction"] * size)
    return graph.observe("read", readings_of(chains))


def readings_of(chains: Sequence[Chain]) -> Any:
    """Profiles around each residue."""
    return windows_of(chains, WINDOW).astype(np.float64)
