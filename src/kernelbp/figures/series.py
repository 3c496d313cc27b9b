"""One picture of a series: beliefs over time as a map, what was read, and one belief in full."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError
from kernelbp.figures.denoising import _checked_beliefs
from kernelbp.inference.beliefs import Beliefs, VariableBeliefs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["series"]

Matrix = NDArray[np.float64]

TRUTH_COLOR, MEAN_COLOR, MODE_COLOR, SEEN_COLOR = "black", "#d55e00", "#009e73", "#cc79a7"
"""Told apart by colour-blind readers too (Okabe and Ito)."""
BELIEF_COLOR = "#0072b2"
DENSITY_POINTS = 400
BRIGHTEST = 0.75
"""The darkest colour of the map is this quantile of the beliefs' peaks: a state that is known is a spike."""
MARGIN = 0.08
"""How far the axis of the state goes past the values it shows, as a share of their range."""


def series(
    truth: ArrayLike,
    beliefs: Beliefs | VariableBeliefs,
    readings: ArrayLike,
    *,
    moment: int,
    seen: ArrayLike = (),
    shown: slice = slice(None),
    reading_name: str = "reading",
    title: str = "Smoothing by kernel belief propagation",
) -> Figure:
    """Draw the beliefs of a chain over time, and one of them in full.

    Parameters
    ----------
    truth : array of shape (length,)
    beliefs : Beliefs or VariableBeliefs
        One node per time, over numbers.
    readings : array of shape (length,)
        NaN where there is none.
    moment : int
        The time at which the whole belief is drawn, next to the Gaussian of its mean and standard deviation.
    seen : array of int
        Times at which the state itself was known.
    shown : slice
        The stretch of time to draw.
    reading_name, title : str

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If lengths differ, or `moment` is not among the times shown.

    Examples
    --------
    >>> import numpy as np, kernelbp as kb
    >>> state = np.random.default_rng(0).standard_normal(300).cumsum() / 10
    >>> model = kb.Model({"state": kb.kernels.Gaussian()}, {"then": kb.Relation("state", "state")})
    >>> graph = kb.Graph.chain(20, variable="state", relation="then").fix([0], state[:1])
    >>> beliefs = model.fit({"then": (state[:-1], state[1:])}).infer(graph)
    >>> figure = series(state[:20], beliefs, np.full(20, np.nan), moment=10, seen=[0])
    >>> figure.axes[1].get_title()
    'the whole belief at time 10'
    """
    path, read = np.asarray(truth, dtype=np.float64), np.asarray(readings, dtype=np.float64)
    if path.ndim != 1 or path.shape != read.shape:
        raise InputError(f"readings: expected as many as truth, {path.shape}, got {read.shape}")
    belief = _checked_beliefs(beliefs, (len(path), 1))
    times = np.arange(len(path))[shown]
    if len(times) < 2:
        raise InputError(f"shown: expected at least two of the {len(path)} times, got {shown!r}")
    if operator.index(moment) not in times:
        raise InputError(f"moment: {moment} is not among the times shown, {times[0]} ... {times[-1]}")
    known = np.intersect1d(np.asarray(seen, dtype=np.intp), times)
    low, high = (
        float(edge) for edge in (belief.quantile(0.001)[times].min(), belief.quantile(0.999)[times].max())
    )
    low, high = min(low, path[times].min()), max(high, path[times].max())
    reach = MARGIN * (high - low)
    points = np.linspace(low - reach, high + reach, DENSITY_POINTS)
    density = belief.density(points)
    return _draw(path, read, belief, times, known, points, density, moment, reading_name, title)


def _draw(
    path: Matrix,
    read: Matrix,
    belief: VariableBeliefs,
    times: NDArray[np.intp],
    known: NDArray[np.intp],
    points: Matrix,
    density: Matrix,
    moment: int,
    reading_name: str,
    title: str,
) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 7.2), layout="constrained")
    figure.suptitle(title, fontsize=13)
    panels: Any = figure.subplots(
        2, 2, width_ratios=(1.0, 0.3), height_ratios=(1.0, 0.33), sharex="col", squeeze=False
    )
    (over_time, whole), (below, empty) = panels
    empty.set_axis_off()
    whole.sharey(over_time)
    whole.xaxis.set_tick_params(labelbottom=True)

    hidden = np.setdiff1d(times, known)
    drawn = over_time.pcolormesh(
        times,
        points,
        density[times].T,
        cmap="Blues",
        vmin=0.0,
        vmax=float(np.quantile(density[hidden].max(axis=1), BRIGHTEST)),
        shading="nearest",
        rasterized=True,
    )
    mean, mode = belief.mean(), belief.mode()
    lines = [
        *over_time.plot(times, path[times], color=TRUTH_COLOR, linewidth=1.3, label="truth"),
        *over_time.plot(
            times, mean[times], color=MEAN_COLOR, linewidth=1.6, linestyle="--", label="belief mean"
        ),
        *over_time.plot(
            times,
            mode[times],
            color=MODE_COLOR,
            linestyle="none",
            marker=".",
            markersize=5,
            label="belief mode",
        ),
    ]
    if len(known):
        lines += over_time.plot(
            known,
            path[known],
            linestyle="none",
            marker="D",
            markersize=8,
            markerfacecolor=SEEN_COLOR,
            markeredgecolor="white",
            label="state itself seen",
        )
    lines.append(
        over_time.axvline(
            moment, color=BELIEF_COLOR, linewidth=1.2, linestyle=":", label="the moment on the right"
        )
    )
    over_time.set_xlim(times[0] - 0.5, times[-1] + 0.5)
    over_time.set_ylim(points[0], points[-1])
    over_time.set_ylabel("state", fontsize=11)
    over_time.set_title("belief at every time: the darker, the more probable", fontsize=11)
    below.plot(times, read[times], color="gray", linestyle="none", marker=".", markersize=5)
    below.axvline(moment, color=BELIEF_COLOR, linewidth=1.2, linestyle=":")
    below.set_xlabel("time", fontsize=11)
    below.set_ylabel(reading_name, fontsize=11)
    below.spines[["top", "right"]].set_visible(False)
    bar = figure.colorbar(drawn, ax=over_time, location="left", shrink=0.8, aspect=30, pad=0.02, extend="max")
    bar.set_label("density of the belief", fontsize=9)
    bar.ax.tick_params(labelsize=9)

    center, spread = float(mean[moment]), float(belief.std()[moment])
    spread = max(spread, float(points[1] - points[0]))
    whole.fill_betweenx(points, density[moment], color=BELIEF_COLOR, alpha=0.25, linewidth=0)
    lines += whole.plot(density[moment], points, color=BELIEF_COLOR, linewidth=1.6, label="belief density")
    gaussian = np.exp(-0.5 * ((points - center) / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    lines += whole.plot(
        gaussian,
        points,
        color=MEAN_COLOR,
        linewidth=1.4,
        linestyle="--",
        label="Gaussian of the same mean and std",
    )
    whole.axhline(path[moment], color=TRUTH_COLOR, linewidth=1.3)
    whole.set_xlim(left=0.0)
    whole.set_xlabel("density", fontsize=11)
    whole.tick_params(labelleft=False)
    whole.set_title(f"the whole belief at time {moment}", fontsize=11)
    whole.spines[["top", "right"]].set_visible(False)
    empty.legend(handles=lines, loc="center left", frameon=False, fontsize=9.5)
    return figure
