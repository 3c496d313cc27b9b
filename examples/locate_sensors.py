"""Locate sensors from noisy distances between neighbours.

A hundred sensors lie in a unit square. Each measures its distance to those within a quarter of the square's
side, with some error; only four anchors near the corners know where they are. How two places and a measured
distance go together is no mystery that has to be learned: it is written down as a known relation, a function
of the two ends of an edge and of what was measured along it.

One distance says "somewhere on this ring". Beliefs start as rings, cross each other and shrink, and some
end with more than one peak, which no list of coordinates could say.

Run ``python examples/locate_sensors.py --out sensors.png``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import cKDTree

import kernelbp as kb
from kernelbp import figures

ANCHORS = np.array([[0.08, 0.08], [0.92, 0.10], [0.10, 0.90], [0.90, 0.92]])
RADIUS = 0.25
"""Sensors hear each other up to here."""
NOISE = 0.02
"""Standard deviation of a measured distance."""
EDGE_WEIGHT = 0.4
"""How much each message counts; see below."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Scatter sensors, measure, infer, tell how well it went, draw it; give the picture's path."""
    options = parse(arguments)
    console = Console()
    rng = np.random.default_rng(options.seed)

    # 1. The network. The first nodes are the anchors.
    places = np.concatenate([ANCHORS, rng.random(((40 if options.quick else 100) - len(ANCHORS), 2))])
    radius = 0.4 if options.quick else RADIUS  # fewer sensors must hear further
    edges = cKDTree(places).query_pairs(radius, output_type="ndarray")
    lengths = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    distances = np.abs(lengths + NOISE * rng.standard_normal(len(edges)))

    # 2. The model. Beliefs live on the points of a grid, so a distance between two sensors is known no better
    #    than the grid is fine: half a cell is added to the error of the measurement.
    side = 12 if options.quick else 20
    ticks = (np.arange(side) + 0.5) / side
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    error = np.hypot(NOISE, 0.5 / side)

    def measured(first: np.ndarray, second: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """How well two places fit a distance. The constant lets a measurement be wrong altogether."""
        away = np.linalg.norm(first - second, axis=-1)
        return np.exp(-0.5 * ((away - distance) / error) ** 2) + 1e-6

    model = kb.Model(
        variables={"place": kb.kernels.Gaussian()},
        relations={"measured": kb.Relation("place", "place", symmetric=True, potential=measured)},
        landmarks={"place": grid},
    )
    model.fit(progress=True)  # nothing to learn: the relation is known

    # 3. The graph: an edge for every measured distance, and the anchors' places, which are known.
    graph = kb.Graph.from_edges(
        edges, variables=["place"] * len(places), relation="measured", readings=distances
    )
    graph = graph.fix(np.arange(len(ANCHORS)), ANCHORS)

    # 4. Inference. There are seven distances for each sensor, so what a message says comes back to its sender
    #    around many loops. Ordinary belief propagation (weight 1 for every edge) takes the echo for news and ends
    #    very sure of wrong places. The default, tree-reweighting, allows for every echo there might be: a
    #    weight of 1/7 here, too cautious for a network this dense. We take a weight in between.
    began = time.perf_counter()
    weights = np.full(graph.n_edges, EDGE_WEIGHT)
    beliefs = model.infer(graph, weighting=weights, progress=True)
    seconds = time.perf_counter() - began

    # 5. How well did it go, next to what one would do otherwise?
    rival = multidimensional_scaling(len(places), edges, distances)
    console.print(report(places, rival, beliefs, seconds))

    # 6. The estimated places, and whole beliefs: the three least sure sensors, and the surest.
    spread = np.linalg.norm(beliefs.std(), axis=1)[len(ANCHORS) :]
    order = len(ANCHORS) + np.argsort(-spread)
    figure = figures.locations(
        places,
        beliefs,
        edges=edges,
        anchors=np.arange(len(ANCHORS)),
        nodes={
            "the least sure": int(order[0]),
            "the second least sure": int(order[1]),
            "the third least sure": int(order[2]),
            "the surest": int(order[-1]),
        },
        title=(
            f"{len(places) - len(ANCHORS)} sensors located from {len(edges)} noisy distances between neighbours "
            f"and {len(ANCHORS)} anchors, by kernel belief propagation.\n"
            f"Every belief is a distribution over {side} x {side} places, drawn as a map: the darker, the more probable."
        ),
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)
    console.print(f"The picture is in [bold]{options.out}[/bold]", soft_wrap=True)
    return options.out


def multidimensional_scaling(count: int, edges: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """What one would do otherwise: classical scaling of path lengths, turned and shifted onto the anchors."""
    network = coo_array((distances, edges.T), shape=(count, count))
    paths = shortest_path(network, directed=False)
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centring @ paths**2 @ centring)
    drawn = vectors[:, -2:] * np.sqrt(values[-2:])
    # The best rotation or reflection (orthogonal Procrustes).
    own, wanted = drawn[: len(ANCHORS)], ANCHORS
    left, _, right = np.linalg.svd((own - own.mean(axis=0)).T @ (wanted - wanted.mean(axis=0)))
    return (drawn - own.mean(axis=0)) @ (left @ right) + wanted.mean(axis=0)


def report(places: np.ndarray, rival: np.ndarray, beliefs: kb.Beliefs, seconds: float) -> Table:
    """How far from the truth, and how honest the beliefs are."""
    sensors = slice(len(ANCHORS), None)

    def rms(away: np.ndarray) -> str:
        return f"{np.sqrt(np.mean(np.sum(away[sensors] ** 2, axis=1))):.3f}"

    # The 90% region of a belief: its most probable points, until they hold that much.
    mass = beliefs.probabilities()
    true_point = cKDTree(beliefs.atoms).query(places)[1]
    at_truth = mass[np.arange(len(places)), true_point, None]
    more_probable = np.where(mass > at_truth, mass, 0.0).sum(axis=1)
    inside = (more_probable < 0.9)[sensors].mean()

    table = Table(
        title=f"Locating {len(places) - len(ANCHORS)} sensors", show_header=False, title_justify="left"
    )
    table.add_column()
    table.add_column(justify="right")
    table.add_row("RMSE of multidimensional scaling", rms(rival - places))
    table.add_row("RMSE of the belief mode", rms(beliefs.mode() - places))
    table.add_row("RMSE of the belief mean", rms(beliefs.mean() - places))
    table.add_row("RMSE the beliefs expect", rms(beliefs.std()))
    table.add_row("truth in the 90% region", f"{inside:.0%}")
    table.add_section()
    table.add_row("iterations", str(beliefs.iterations))
    table.add_row("converged", "yes" if beliefs.converged else "no")
    table.add_row("inference", f"{seconds:.1f} s")
    return table


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Locate sensors from distances by kernel belief propagation."
    )
    parser.add_argument("--seed", type=int, default=0, help="which network (default: 0)")
    parser.add_argument("--quick", action="store_true", help="fewer sensors on a coarser grid")
    parser.add_argument(
        "--out", type=Path, default=Path("sensors.png"), help="where the picture goes (default: %(default)s)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
