"""One picture of places in the plane: estimates against the truth, and whole beliefs as maps."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from kernelbp.errors import InputError
from kernelbp.figures.denoising import LETTERS, PIXEL_COLORS, _checked_beliefs
from kernelbp.inference.beliefs import Beliefs, VariableBeliefs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["locations"]

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

TRUTH_COLOR, ERROR_COLOR = "black", "#d55e00"
MAP_POINTS = 240
"""Points along each axis of a map of a belief."""
MARGIN = 0.04
"""How far axes go past the outermost place, as a share of the range."""
MOST_MAPS = 4


def locations(
    places: ArrayLike,
    beliefs: Beliefs | VariableBeliefs,
    *,
    edges: ArrayLike,
    anchors: ArrayLike,
    nodes: Mapping[str, int],
    title: str = "Places found by kernel belief propagation",
) -> Figure:
    """Draw where nodes are believed to be, and the whole belief of a few.

    On the left all nodes: true places, anchors, edges, and a line from each true place to its belief's mean.
    On the right a map of the belief of each chosen node, with the node's own edges.

    Parameters
    ----------
    places : array of shape (nodes, 2)
        The truth.
    beliefs : Beliefs or VariableBeliefs
        Over vectors of two numbers.
    edges : integer array of shape (edges, 2)
    anchors : integer array
        Nodes whose place was known.
    nodes : mapping from description to node
        One to four, drawn as maps.
    title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If shapes differ or a node is not one of the beliefs'.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> ticks = np.linspace(0.0, 1.0, 5)
    >>> grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    >>> near = lambda a, b: np.exp(-8 * ((a - b) ** 2).sum(axis=-1))
    >>> model = kb.Model(
    ...     {"place": kb.kernels.Gaussian()},
    ...     {"near": kb.Relation("place", "place", symmetric=True, potential=near)},
    ...     landmarks={"place": grid},
    ... ).fit()
    >>> graph = kb.Graph.from_edges([(0, 1, "near")], variables=["place"] * 2).fix([0], grid[:1])
    >>> figure = locations(grid[:2], model.infer(graph), edges=[[0, 1]], anchors=[0], nodes={"the other": 1})
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['where they are, and where they are believed to be', 'A: the other']
    """
    truth = np.asarray(places, dtype=np.float64)
    if truth.ndim != 2 or truth.shape[1] != 2 or not np.isfinite(truth).all():
        raise InputError(f"places: expected finite numbers of shape (nodes, 2), got shape {truth.shape}")
    belief = _checked_beliefs(beliefs, (len(truth), 1))
    chosen = _checked_nodes(nodes, len(truth))
    ends, known = np.asarray(edges, dtype=np.intp).reshape(-1, 2), np.asarray(anchors, dtype=np.intp)
    if np.shape(belief.atoms)[1:] != (2,):
        found = "numbers" if np.ndim(belief.atoms) == 1 else f"{np.shape(belief.atoms)[1]} of them"
        raise InputError(f"beliefs: expected places of two numbers, got {found}")
    mean = np.asarray(belief.mean(), dtype=np.float64)
    everything = np.concatenate([truth, mean, np.asarray(belief.atoms, dtype=np.float64)])
    low, high = everything.min(axis=0), everything.max(axis=0)
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    across, up = (np.linspace(low[axis], high[axis], MAP_POINTS) for axis in (0, 1))
    points = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    # Every point of a map shows the mass of the atom nearest to it: what inference knows, no smoother.
    nearest = cKDTree(belief.atoms).query(points)[1]
    mass = belief.probabilities()[list(chosen.values())]
    maps = mass[:, nearest].reshape(-1, MAP_POINTS, MAP_POINTS)
    return _draw(truth, mean, ends, known, chosen, (across, up), maps, title)


def _draw(
    truth: Matrix,
    mean: Matrix,
    ends: Indices,
    known: Indices,
    chosen: Mapping[str, int],
    axes_points: tuple[Matrix, Matrix],
    maps: Matrix,
    title: str,
) -> Figure:
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(13.0, 7.4), layout=ConstrainedLayoutEngine(h_pad=0.08))
    figure.suptitle(title, fontsize=13)
    letters = LETTERS[: len(chosen)]
    rows = (letters[:2], letters[2:]) if len(chosen) > 1 else (letters,)
    grid: Any = figure.add_gridspec(len(rows), 4)
    network: Any = figure.add_subplot(grid[:, :2])
    panels: list[Any] = [
        figure.add_subplot(grid[row, 2 + column if len(chosen) > 1 else slice(2, 4)])
        for row, some in enumerate(rows)
        for column in range(len(some))
    ]
    across, up = axes_points

    network.add_collection(
        LineCollection(list(truth[ends]), colors="0.88", linewidths=0.6, zorder=1, label="measured distance")
    )
    hidden = np.setdiff1d(np.arange(len(truth)), known)
    network.add_collection(
        LineCollection(
            list(np.stack([truth[hidden], mean[hidden]], axis=1)),
            colors=ERROR_COLOR,
            linewidths=1.6,
            zorder=2,
            label="from there to the belief's mean",
        )
    )
    network.plot(
        *truth[hidden].T, color=TRUTH_COLOR, linestyle="none", marker=".", markersize=7, label="true place"
    )
    _mark_anchors(network, truth[known])
    for number, node in enumerate(chosen.values()):
        _mark(network, truth[node], number)
    _finish(network, across, up)
    network.set_title("where they are, and where they are believed to be", fontsize=11)
    for number, (axes, (name, node)) in enumerate(zip(panels, chosen.items(), strict=True)):
        # Each map has a scale of its own: a sure belief is far higher than an unsure one is anywhere.
        axes.pcolormesh(across, up, maps[number], cmap="Blues", vmin=0.0, shading="nearest", rasterized=True)
        own = ends[(ends == node).any(axis=1)]
        axes.add_collection(LineCollection(list(truth[own]), colors="0.55", linewidths=0.8, zorder=2))
        _mark_anchors(axes, truth[known])
        axes.plot(
            *truth[node],
            color=TRUTH_COLOR,
            marker="+",
            markersize=13,
            markeredgewidth=1.8,
            linestyle="none",
            label="on the maps: its true place",
        )
        axes.plot(
            *mean[node],
            color=ERROR_COLOR,
            marker="x",
            markersize=9,
            markeredgewidth=2.0,
            linestyle="none",
            label="on the maps: its belief's mean",
        )
        _finish(axes, across, up)
        axes.set_title(
            f"{LETTERS[number]}: {name}", color=PIXEL_COLORS[number], fontweight="bold", fontsize=11
        )
    handles, labels = network.get_legend_handles_labels()
    more, names = panels[0].get_legend_handles_labels()
    figure.legend(
        [*handles, *more[1:]], [*labels, *names[1:]], loc="outside lower center", ncols=3, frameon=False
    )
    return figure


def _mark_anchors(axes: Axes, places: Matrix) -> None:
    axes.plot(
        *places.T, color=TRUTH_COLOR, linestyle="none", marker="s", markersize=7, label="anchor (place known)"
    )


def _mark(axes: Axes, place: Matrix, number: int) -> None:
    """A ring and a letter, haloed."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3.5, foreground="white")]
    color = PIXEL_COLORS[number]
    axes.plot(
        *place,
        marker="o",
        markersize=12,
        markerfacecolor="none",
        markeredgecolor=color,
        markeredgewidth=2.0,
        path_effects=halo,
        linestyle="none",
        zorder=4,
    )
    axes.annotate(
        LETTERS[number],
        (float(place[0]), float(place[1])),
        xytext=(10, 6),
        textcoords="offset points",
        color=color,
        fontweight="bold",
        fontsize=13,
        path_effects=halo,
        zorder=5,
    )


def _finish(axes: Axes, across: Matrix, up: Matrix) -> None:
    axes.set_xlim(across[0], across[-1])
    axes.set_ylim(up[0], up[-1])
    axes.set_aspect("equal")
    axes.tick_params(labelsize=9)


def _checked_nodes(nodes: Mapping[str, int], count: int) -> dict[str, int]:
    if not isinstance(nodes, Mapping) or not 1 <= len(nodes) <= MOST_MAPS:
        raise InputError(
            f"nodes: expected a mapping from description to node, 1 to {MOST_MAPS} of them, got {nodes!r:.80}"
        )
    checked = {name: operator.index(node) for name, node in nodes.items()}
    for name, node in checked.items():
        if not 0 <= node < count:
            raise InputError(f"nodes[{name!r}]: expected a node in 0 ... {count - 1}, got {node}")
    return checked
