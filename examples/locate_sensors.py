"""Locate sensors from noisy distances between neighbours and three anchors.

A hundred sensors lie in a unit square. Each measures its distance to those within a quarter of the square's
side, with some error; only three of them, the anchors, know where they are. How two places and a measured
distance go together is no mystery that has to be learned: it is written down as a known relation, a function
of the two ends of an edge and of what was measured along it.

One distance says "somewhere on this ring". Beliefs start as rings, cross each other and shrink. Five sensors
are damaged: only two of their distances came through. Two rings cross twice, so such a sensor may be at
either of two places, and its belief says so, which no list of coordinates could.

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

ANCHORS = np.array([[0.10, 0.15], [0.90, 0.15], [0.50, 0.90]])
RADIUS = 0.25
"""Sensors hear each other up to here."""
NOISE = 0.01
"""Standard deviation of a measured distance."""
DAMAGED = 5
"""Sensors of whose distances only two came through."""
ENOUGH = 6
"""Distances each sensor uses, of those it measured; see below."""
ROUTE_ERROR = 0.06
"""Standard deviation of a distance estimated from a route, as a share of the route's length."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Scatter sensors, measure, infer, tell how well it went, draw it; give the picture's path."""
    options = parse(arguments)
    console = Console()
    rng = np.random.default_rng(options.seed)

    # 1. The network. The first nodes are the anchors, the last are damaged.
    count, damaged = (40, 2) if options.quick else (100, DAMAGED)
    radius = 0.4 if options.quick else RADIUS  # fewer sensors must hear further
    places = np.concatenate([ANCHORS, rng.random((count - len(ANCHORS), 2))])
    heard = without_lost(
        np.sort(cKDTree(places).query_pairs(radius, output_type="ndarray"), axis=1), count - damaged, rng
    )
    lengths = np.linalg.norm(places[heard[:, 0]] - places[heard[:, 1]], axis=1)
    distances = np.abs(lengths + NOISE * rng.standard_normal(len(heard)))

    # 2. The model. Beliefs live on the points of a grid. Both ends of a distance are rounded to it, each by an
    #    error of variance 1/12 of a squared cell along any direction, on top of the error of the measurement.
    side = 12 if options.quick else 18
    ticks = (np.arange(side) + 0.5) / side
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    rounding = np.sqrt(2 / 12) / side

    def measured(first: np.ndarray, second: np.ndarray, reading: np.ndarray) -> np.ndarray:
        """How well two places fit a distance and its error. The constant lets it be wrong altogether."""
        distance, error = reading[..., 0], np.hypot(reading[..., 1], rounding)
        away = np.linalg.norm(first - second, axis=-1)
        return np.exp(-0.5 * ((away - distance) / error) ** 2) + 1e-6

    model = kb.Model(
        variables={"place": kb.kernels.Gaussian()},
        relations={"measured": kb.Relation("place", "place", symmetric=True, potential=measured)},
        landmarks={"place": grid},
    )
    model.fit(progress=True)  # nothing to learn: the relation is known

    # 3. The graph. Between sensors: some six distances each. More of them hardly tell more, but close so many
    #    loops that messages take far longer to settle. To every anchor: the distance, if it is heard, else
    #    what the shortest route there says about it, less surely. (Without that the network may fold up onto
    #    itself: distances between neighbours alone do not forbid two far ends to lie on one another.)
    among_sensors = np.flatnonzero(heard[:, 0] >= len(ANCHORS))
    used = among_sensors[enough(heard[among_sensors], count)]
    sound = np.arange(len(ANCHORS), count - damaged)
    to_anchors, told = distances_to_anchors(sound, heard, distances, count)
    graph = kb.Graph.from_edges(
        np.concatenate([heard[used], to_anchors]),
        variables=["place"] * count,
        relation="measured",
        readings=np.concatenate([np.column_stack([distances[used], np.full(len(used), NOISE)]), told]),
    )
    graph = graph.fix(np.arange(len(ANCHORS)), ANCHORS)

    # 4. Inference.
    began = time.perf_counter()
    beliefs = model.infer(graph, progress=True)
    seconds = time.perf_counter() - began

    # 5. How well did it go, next to what one would do otherwise?
    rival = multidimensional_scaling(count, heard, distances)
    console.print(report(places, rival, beliefs, seconds))

    # 6. The estimated places, and whole beliefs: the three least sure sensors, and the surest.
    spread = np.linalg.norm(beliefs.std(), axis=1)[len(ANCHORS) :]
    order = len(ANCHORS) + np.argsort(-spread)
    shown = {"the least sure": 0, "the second least sure": 1, "the third least sure": 2, "the surest": -1}
    figure = figures.locations(
        places,
        beliefs,
        edges=heard[used],
        anchors=np.arange(len(ANCHORS)),
        nodes={name: int(order[rank]) for name, rank in shown.items()},
        title=(
            f"{count - len(ANCHORS)} sensors located from noisy distances between neighbours and {len(ANCHORS)} anchors, "
            f"by kernel belief propagation.\n"
            f"Every belief is a distribution over {side} x {side} places, drawn as a map: the darker, the more probable."
        ),
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)
    console.print(f"The picture is in [bold]{options.out}[/bold]", soft_wrap=True)
    return options.out


def without_lost(pairs: np.ndarray, sound: int, rng: np.random.Generator) -> np.ndarray:
    """Pairs that hear each other, smaller number first; of sensors from `sound` on only two, with sound sensors."""
    first, second = pairs.T
    kept = second < sound
    for sensor in range(sound, int(second.max()) + 1):
        own = np.flatnonzero((second == sensor) & (first >= len(ANCHORS)) & (first < sound))
        kept[rng.permutation(own)[:2]] = True
    return pairs[kept]


def enough(pairs: np.ndarray, count: int) -> np.ndarray:
    """Which pairs to use: one after the other, unless both ends have enough."""
    used, have = np.zeros(len(pairs), dtype=bool), np.zeros(count, dtype=int)
    for pair in np.random.default_rng(0).permutation(len(pairs)):
        used[pair] = (have[pairs[pair]] < ENOUGH).any()
        have[pairs[pair]] += used[pair]
    return used


def route_lengths(count: int, pairs: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Lengths of the shortest routes between all nodes, infinite where there is none."""
    return shortest_path(coo_array((distances, pairs.T), shape=(count, count)), directed=False)


def distances_to_anchors(
    sensors: np.ndarray, pairs: np.ndarray, distances: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Edges from anchors to sensors, and for each a distance and its error.

    A route has bends, and is the shortest partly because its errors are; what comes of both the anchors find
    out from their own distances, which they know (Niculescu and Nath, Ad hoc positioning system, 2001).
    """
    lengths = route_lengths(count, pairs, distances)
    one, other = np.triu_indices(len(ANCHORS), 1)
    straight = np.linalg.norm(ANCHORS[one] - ANCHORS[other], axis=1).sum() / lengths[one, other].sum()
    edges = np.array([(anchor, sensor) for anchor in range(len(ANCHORS)) for sensor in sensors])
    along = lengths[tuple(edges.T)]
    readings = np.column_stack([straight * along, ROUTE_ERROR * along])
    measured = {tuple(pair): distance for pair, distance in zip(pairs.tolist(), distances, strict=True)}
    for row, pair in enumerate(edges.tolist()):
        if tuple(pair) in measured:
            readings[row] = measured[tuple(pair)], NOISE
    reached = np.isfinite(along)
    return edges[reached], readings[reached]


def multidimensional_scaling(count: int, pairs: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """What one would do otherwise: classical scaling of route lengths, turned and shifted onto the anchors."""
    lengths = route_lengths(count, pairs, distances)
    lengths[np.isinf(lengths)] = lengths[np.isfinite(lengths)].max()
    centring = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centring @ lengths**2 @ centring)
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
