"""Tables and pictures of the protein experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.experiments.protein_chains import Chain, Sizes, directions_of
from kernelbp.experiments.protein_evidence import KINDS, NETWORKS, ONE, WINDOW
from kernelbp.experiments.report import Picture
from kernelbp.experiments.study import Result, Row

if TYPE_CHECKING:
    from kernelbp.inference.beliefs import Beliefs

__all__ = [
    "ALONE",
    "BEST",
    "CHAIN",
    "EMBEDDED",
    "EVIDENCE",
    "EXACT",
    "PARTICLE",
    "PLAIN",
    "PROCESS",
    "compared_on_few",
    "for_beliefs",
    "for_map",
    "pictures_of",
    "summary_of",
]

Array = NDArray[Any]
Matrix = NDArray[np.float64]

ALONE, EVIDENCE, PLAIN, CHAIN = (
    "predictor alone",
    "evidence alone",
    "kernel BP, plain edges",
    "kernel BP",
)
EMBEDDED, PARTICLE, BEST = (
    "kernel BP, the paper's embeddings",
    "particle BP, paper's settings",
    "particle BP, best found",
)
"""Methods, as they are called in tables."""
PROCESS, EXACT = "the process itself", "exact answer"
"""Evidence and method where chains are generated."""
MAP_SHAPE = (60, 120)
"""Points in theta and omega at which beliefs are drawn."""
MOST_ON_MAP = 40_000
SHARPNESS = 80.0
"""Concentration of the windows beliefs are smoothed with for drawing, a tenth of a radian wide."""
SHOWN = (0.1, 0.5, 0.8, 0.97)
"""Residues whose belief is drawn, by their rank in entropy within their chain."""


def summary_of(rows: Sequence[Row]) -> list[Row]:
    """Means over folds, a row for each kind of evidence and method."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row["evidence"]), str(row["method"])), []).append(row)
    summary: list[Row] = []
    order = {name: place for place, name in enumerate((PROCESS, *KINDS))}
    for (evidence, method), mine in sorted(groups.items(), key=lambda item: order[item[0][0]]):
        scores = [float(row["mean cosine"] or 0.0) for row in mine]
        inference, iterations = _mean(mine, "inference seconds"), _mean(mine, "iterations")
        summary.append(
            {
                "evidence": evidence,
                "method": method,
                "mean cosine": float(np.mean(scores)),
                "spread": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
                "folds": len(mine),
                "edge weight": _mean(mine, "edge weight"),
                "fit seconds": _mean(mine, "fit seconds"),
                "inference seconds": inference,
                "seconds an iteration": inference / iterations if inference and iterations else None,
            }
        )
    return summary


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [float(row[name]) for row in rows if row.get(name) is not None]  # type: ignore[arg-type]
    return float(np.mean(values)) if values else None


def compared_on_few(found: Mapping[str, Result], sizes: Sizes) -> list[Row]:
    """All methods on the chains particle BP was run on, fold by fold and in all."""
    rows: list[Row] = []
    folds = [fold for fold in range(1, sizes.particles + 1) if f"particles, fold {fold}" in found]
    for evidence, case in ((ONE, "linear"), (WINDOW, "linear"), (NETWORKS, "networks")):
        for method in (ALONE, EVIDENCE, EMBEDDED, PLAIN, CHAIN, PARTICLE, BEST):
            particle = method in (PARTICLE, BEST)
            scores: dict[str, float] = {}
            total, count, seconds, iterations, settings = 0.0, 0, 0.0, 0.0, None
            for fold in folds:
                result = found.get(f"{'particles' if particle else case}, fold {fold}")
                if result is None or f"{evidence}: {method}" not in result.arrays:
                    break
                counts = found[f"linear, fold {fold}"].arrays["counts"]
                few = counts[: sizes.particle_chains]
                sums = result.arrays[f"{evidence}: {method}"][: len(few)]
                scores[f"fold {fold}"] = float(sums.sum() / few.sum())
                total, count = total + float(sums.sum()), count + int(few.sum())
                mine = next(r for r in result.rows if r["evidence"] == evidence and r["method"] == method)
                # Kernel BP's time is that of all chains of the fold.
                part = 1.0 if particle else few.sum() / counts.sum()
                seconds += float(mine.get("inference seconds") or 0.0) * part
                iterations += float(mine.get("iterations") or 0.0)
                settings = mine.get("settings") or settings
            if count and len(scores) == len(folds):
                each = seconds / iterations * len(folds) / count if iterations else 0.0
                rows.append(
                    {
                        "evidence": evidence,
                        "method": method,
                        "mean cosine": total / count,
                        **scores,
                        "residues": count,
                        "microseconds a residue and iteration": 1e6 * each or None,
                        "microseconds a residue in all": 1e6 * seconds / count or None,
                        "particle settings": settings,
                    }
                )
    return rows


def pictures_of(found: Mapping[str, Result], rows: Sequence[Row], compared: Sequence[Row]) -> list[Picture]:
    """Where directions lie and beliefs of some; scores by fold; kernel against particle BP."""
    from kernelbp.figures.protein import protein_bars, protein_folds, protein_map

    first = found["linear, fold 1"].arrays
    source = found.get("networks, fold 1", found["linear, fold 1"]).arrays
    said = NETWORKS if "networks, fold 1" in found else WINDOW
    pictures = [
        Picture(
            "angles",
            protein_map(
                first["angles"],
                source["belief density"],
                source["belief truth"],
                source["belief mean"],
                [f"residue {number + 1}" for number in source["belief residue"]],
            ),
            "Left: where the directions of residues lie, theta against omega (as in the paper's Figure 3a). Right: beliefs of four residues of one "
            f"test chain (kernel BP on {said}); the cross is the truth, the circle the mean of the belief.",
        )
    ]
    bars: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        if row["method"] in (ALONE, EMBEDDED, PLAIN, CHAIN):
            mine = bars.setdefault(str(row["evidence"]), {}).setdefault(str(row["method"]), [])
            mine.append((int(row["fold"] or 0), float(row["mean cosine"] or 0.0)))
    exact = [float(row["mean cosine"] or 0.0) for row in rows if row["method"] == EXACT]
    pictures.append(
        Picture(
            "folds",
            protein_folds({name: bars[name] for name in KINDS if name in bars}, exact),
            "Mean cosine by fold, a panel for each kind of evidence. Lines, and the numbers at the top, are means over the folds run."
            + (" The dashed line is the exact answer." if exact else ""),
        )
    )
    if compared:
        pictures.append(
            Picture(
                "particles",
                protein_bars(
                    [str(row["evidence"]) for row in compared],
                    [str(row["method"]) for row in compared],
                    [float(row["mean cosine"] or 0.0) for row in compared],
                ),
                "Kernel against particle BP on the same test chains (the paper's Figure 3b). Particle BP at the paper's settings has the paper's evidence "
                "(networks: kernel BP's); at the best found it is given whatever did better on training chains of the first fold.",
            )
        )
    return pictures


# ---------------------------------------------------------------------- what cases keep for pictures


@cache
def _map_points() -> Matrix:
    """Directions on a grid of theta and omega, (points, 3)."""
    from kernelbp.datasets import backbone_directions

    theta = (np.arange(MAP_SHAPE[0]) + 0.5) / MAP_SHAPE[0] * np.pi
    omega = (np.arange(MAP_SHAPE[1]) + 0.5) / MAP_SHAPE[1] * 2 * np.pi - np.pi
    grid = np.meshgrid(theta, omega, indexing="ij")
    return backbone_directions(grid[0].ravel(), grid[1].ravel())


def _angles(directions: Matrix) -> Matrix:
    """Theta and omega, (n, 2)."""
    theta = np.arccos(np.clip(directions[:, 2], -1.0, 1.0))
    return np.stack([theta, np.arctan2(directions[:, 1], directions[:, 0])], axis=1)


def for_map(chains: Sequence[Chain]) -> dict[str, Array]:
    """Angles of (some of) their residues."""
    known = directions_of(chains)
    kept = np.linspace(0, len(known) - 1, min(len(known), MOST_ON_MAP)).astype(int)
    return {"angles": _angles(known[kept]).astype(np.float32)}


def for_beliefs(beliefs: Beliefs, test: Sequence[Chain]) -> dict[str, Array]:
    """Beliefs of some residues of the first test chain, by their entropy."""
    chain = test[0]
    size = int(chain.known.sum())
    order = np.argsort(beliefs.entropy()[:size])
    nodes = order[[int(rank * (size - 1)) for rank in SHOWN]]
    mine = beliefs["direction"]
    # Probabilities of directions, each smoothed by a von Mises-Fisher window.
    windows = np.exp(SHARPNESS * (np.asarray(mine.atoms) @ _map_points().T - 1))
    density = np.asarray(mine.probabilities()[nodes] @ windows)
    truth = chain.directions[chain.known][nodes]
    guess = np.asarray(beliefs.mean())[nodes]
    return {
        "belief density": density.reshape(len(nodes), *MAP_SHAPE).astype(np.float32),
        "belief truth": _angles(truth),
        "belief mean": _angles(guess / np.linalg.norm(guess, axis=1, keepdims=True)),
        "belief residue": np.flatnonzero(chain.known)[nodes],
    }
