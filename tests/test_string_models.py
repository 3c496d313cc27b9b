"""Strings in models of real data: windows of protein sequences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegressionCV

import kernelbp as kb
from kernelbp.kernels import Delta, Spectrum

PROTEINS = Path(__file__).parents[2] / "shared" / "data" / "proteins"
RESIDUES = "ARNDCQEGHILKMFPSTWYV-"
HALF = 6
"""Residues on either side of a window's middle; beyond the ends of a chain there are dashes."""


def windows_and_shapes(chain: dict[str, Any], angles: Any) -> tuple[list[tuple[int, ...]], list[str]]:
    """For each residue of a chain the window about it, in numbers, and the shape of the chain there.

    A symbol is a residue at a place of the window: so strings are compared place by place.
    """
    theta, omega = (np.degrees(angles[f"{chain['id']}/{name}"]) for name in ("theta", "omega"))
    helix = (np.abs(theta - 91) < 20) & (np.abs(omega - 52) < 30)
    strand = (theta > 105) & (np.abs(omega) > 130)
    shapes = np.where(helix, "helix", np.where(strand, "strand", "other"))
    padded = "-" * HALF + chain["seq"] + "-" * HALF
    codes = [RESIDUES.index(residue) if residue in RESIDUES else len(RESIDUES) - 1 for residue in padded]
    size = 2 * HALF + 1
    windows = [
        tuple(len(RESIDUES) * place + codes[begin + place] for place in range(size))
        for begin in range(len(chain["seq"]))
    ]
    known = np.flatnonzero(np.isfinite(theta) & np.isfinite(omega))
    return [windows[i] for i in known], shapes[known].tolist()


def test_shapes_of_real_proteins_are_told_from_windows_of_residues() -> None:
    """As often right as a logistic regression on one-hot windows, within 0.01, and better by the chain."""
    if not PROTEINS.exists():
        pytest.skip("no ../shared/data/proteins beside the project")
    index = json.loads((PROTEINS / "index.json").read_text(encoding="utf-8"))
    with np.load(PROTEINS / "proteins.npz") as angles:
        chosen = np.random.default_rng(0).permutation(len(index))[:50]
        chains = [windows_and_shapes(index[i], angles) for i in chosen]
    train, test = chains[:25], chains[25:]
    windows, shapes = ([value for chain in train for value in chain[side]] for side in (0, 1))
    model = kb.Model(
        {"shape": Delta(), "window": Spectrum(1)},
        {
            "then": kb.Relation("shape", "shape"),
            "read in": kb.Relation("shape", "window", evidence="posterior"),
        },
        budget=30,
        max_rank=150,
    ).fit(
        {
            "then": tuple(
                [s for _, c in train for s in part(c)] for part in (lambda c: c[:-1], lambda c: c[1:])
            ),
            "read in": (shapes, windows),
        }
    )
    asked, truth = ([value for chain in test for value in chain[side]] for side in (0, 1))
    starts = np.cumsum([0] + [len(chain[0]) for chain in test])
    edges = [(i, i + 1, "then") for i in range(len(asked) - 1) if i + 1 not in starts]

    def accuracy(edges: list[tuple[int, int, str]]) -> float:
        graph = kb.Graph.from_edges(edges, variables=["shape"] * len(asked)).observe("read in", asked)
        return float(np.mean(model.infer(graph).mode() == np.array(truth)))

    def one_hot(values: list[tuple[int, ...]]) -> Any:
        rows = np.zeros((len(values), len(RESIDUES) * (2 * HALF + 1)))
        np.put_along_axis(rows, np.array(values), 1.0, axis=1)
        return rows

    regression = LogisticRegressionCV(
        Cs=[0.01, 0.1, 1.0],
        l1_ratios=(0.0,),
        cv=3,
        max_iter=300,
        scoring="neg_log_loss",
        use_legacy_attributes=False,
    )
    theirs = float(
        np.mean(regression.fit(one_hot(windows), shapes).predict(one_hot(asked)) == np.array(truth))
    )
    joined, alone, commonest = accuracy(edges), accuracy([]), max(map(truth.count, shapes)) / len(truth)
    print(
        f"chain {joined:.3f}, windows alone {alone:.3f}, regression {theirs:.3f}, commonest shape {commonest:.3f}"
    )
    assert joined > commonest + 0.05
    assert joined > alone
    assert joined > theirs - 0.01
