"""The inner loops of reading many beliefs, compiled: the masses of one node at a time, and what is asked of them.

A node's masses are made in a row that stays in the fastest cache and is summed up before the next node's
replace it. Messages are multiplied as they are, eight points at once; where the product leaves the range of its type, or
comes near to it, their logarithms are added instead. What is asked is summed in double precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelbp.compiling import jit
from kernelbp.inference.lanes import (
    EIGHT,
    exponential,
    larger,
    load,
    logarithm,
    peak,
    power,
    spread,
    store,
    total,
    where_below,
    widened,
)

__all__ = ["Factors", "Points", "modes", "moments", "quantiles", "tabulate"]

Array = NDArray[Any]
Table = NDArray[np.uint64]
Matrix = NDArray[np.float64]

NONE, ONE, FOUR = np.uint64(0), np.uint64(1), np.uint64(4)
MOST_FACTORS = np.uint64(8)
"""Nodes with more neighbours than this are multiplied out in logarithms."""
KEPT = 1e-15
"""Products are multiplied out only if masses down to this share of the largest are within the range of their type."""
SMALLEST = 1e8
"""How far above the least number of its type the sum of a row of masses must be."""
SLACK = 1e-5
"""Allowed for rounding where a place is ruled out that might be the highest."""


class Points(NamedTuple):
    """Where beliefs are read, in chunks of up to eight points between the same two support points.

    Attributes
    ----------
    size : how many points
    between : whether messages are given at the support points; else at the points themselves
    at : (c,) the first point of each chunk
    left, right : (c,) its two support points
    low, high : (8 c,) their shares of each of its points; none for places that are not its own
    prior : (padded,) the marginal's mass on each point, a little more room behind them
    log_prior : (padded,) its logarithm, to the base of `kernelbp.inference.lanes.logarithm`
    """

    size: int
    between: bool
    at: Table
    left: Table
    right: Table
    low: Array
    high: Array
    prior: Array
    log_prior: Array


class Factors(NamedTuple):
    """What is multiplied at each node of a block.

    Attributes
    ----------
    width : of rows of messages: q, or that of rows of points
    messages : (rows * width,) what arrives, node by node
    first : (nodes + 1,) number of each node's first row of them
    weights : (rows,) their powers; none if all are one
    said : (rows * width,) evidence that is read as messages are
    first_said : (nodes + 1,)
    known : (nodes * padded,) natural logarithms of other evidence, the largest of each node 0; none if there is none
    exponent : of it all: one over the temperature
    zero : the logarithm that stands for that of zero
    """

    width: Any
    messages: Array
    first: Table
    weights: Array
    said: Array
    first_said: Table
    known: Array
    exponent: float
    zero: float


# ---------------------------------------------------------------------- masses


@jit
def _factor(
    values: Array, row: Any, between: bool, at: Any, left: Any, right: Any, low: Any, high: Any
) -> Any:
    """The row of values that begins there, at the points of a chunk."""
    if between:
        return spread(values[row + left]) * low + spread(values[row + right]) * high
    return load(values, row + at)


@jit
def _weigh(node: Any, factors: Any, points: Any, row: Array) -> None:
    """Make a node's masses on the points, up to scale; zeros behind them."""
    degree = factors.first[node + ONE] - factors.first[node]
    if degree > MOST_FACTORS or not _multiply(node, factors, points, row):
        _add_logarithms(node, factors, points, row)
    for j in range(points.size, len(row)):
        row[j] = 0


@jit
def _multiply(node: Any, factors: Any, points: Any, row: Array) -> bool:
    """Evidence times messages to their weights times the marginal; whether nothing that matters got lost."""
    messages, weights, said, known = factors.messages, factors.weights, factors.said, factors.known
    begin, end = factors.first[node], factors.first[node + ONE]
    begin_said, end_said = factors.first_said[node], factors.first_said[node + ONE]
    between, width, room = points.between, factors.width, np.uint64(len(row))
    places, lefts, rights, lows, highs = points.at, points.left, points.right, points.low, points.high
    kind, weighted = row.dtype.type, len(weights) > 0
    exponent = kind(factors.exponent)
    one, nothing, tiny = spread(kind(1)), spread(kind(0)), spread(np.finfo(row.dtype).tiny)
    least, unit = _lowest(row), kind(1.0 / _unit(row))
    highest, sums = nothing, nothing
    for c in range(np.uint64(len(places))):
        at, left, right = places[c], lefts[c], rights[c]
        low, high = load(lows, c * EIGHT), load(highs, c * EIGHT)
        product = one
        if len(known):
            log = load(known, node * room + at) * spread(unit)
            product = where_below(log, least, nothing, exponential(larger(log, least)))
        for r in range(begin_said, end_said):
            product = product * _factor(said, r * width, between, at, left, right, low, high)
        if weighted:
            r = begin
            while r < end:
                factor, weight = _factor(messages, r * width, between, at, left, right, low, high), weights[r]
                if r + ONE < end and weight != 1.0 and weights[r + ONE] == weight:
                    # Two of a weight share a power; of more, the product might be too small.
                    r += ONE
                    factor = factor * _factor(messages, r * width, between, at, left, right, low, high)
                product = product * power(larger(factor, tiny), weight)
                r += ONE
        else:
            for r in range(begin, end):
                product = product * _factor(messages, r * width, between, at, left, right, low, high)
        highest = larger(highest, product)
        if exponent != 1:
            product = where_below(product, tiny, nothing, power(larger(product, tiny), exponent))
        product = product * load(points.prior, at)
        sums = sums + product
        store(row, at, product)
    limits = np.finfo(row.dtype)
    clear = limits.tiny / kind(KEPT) ** (kind(1) / exponent)
    return clear < peak(highest) < limits.max / 10 and limits.tiny * SMALLEST < total(sums) < limits.max / 10


@jit
def _add_logarithms(node: Any, factors: Any, points: Any, row: Array) -> None:
    """The same from logarithms, the largest mass 1."""
    messages, weights, said, known = factors.messages, factors.weights, factors.said, factors.known
    kind, weighted = row.dtype.type, len(weights) > 0
    between, width, room = points.between, factors.width, np.uint64(len(row))
    places, lefts, rights, lows, highs = points.at, points.left, points.right, points.low, points.high
    tiny, zero = spread(np.finfo(row.dtype).tiny), spread(kind(factors.zero / _unit(row)))
    exponent, unit = spread(kind(factors.exponent)), kind(1.0 / _unit(row))
    for c in range(np.uint64(len(places))):
        at, left, right = places[c], lefts[c], rights[c]
        low, high = load(lows, c * EIGHT), load(highs, c * EIGHT)
        sums = spread(kind(0))
        if len(known):
            sums = load(known, node * room + at) * spread(unit)
        for r in range(factors.first_said[node], factors.first_said[node + ONE]):
            factor = _factor(said, r * width, between, at, left, right, low, high)
            sums = sums + where_below(factor, tiny, zero, logarithm(larger(factor, tiny)))
        for r in range(factors.first[node], factors.first[node + ONE]):
            factor = _factor(messages, r * width, between, at, left, right, low, high)
            log = where_below(factor, tiny, zero, logarithm(larger(factor, tiny)))
            sums = sums + log * spread(kind(weights[r]) if weighted else kind(1))
        store(row, at, sums * exponent + load(points.log_prior, at))
    for j in range(points.size, len(row)):
        row[j] = -np.inf
    highest = load(row, NONE)
    for j in range(EIGHT, np.uint64(len(row)), EIGHT):
        highest = larger(highest, load(row, j))
    shift, least, nothing = spread(peak(highest)), _lowest(row), spread(kind(0))
    for j in range(NONE, np.uint64(len(row)), EIGHT):
        moved = load(row, j) - shift
        store(row, j, where_below(moved, least, nothing, exponential(larger(moved, least))))


@jit
def _unit(row: Array) -> float:
    """What `logarithm` is to be multiplied by to be natural."""
    return np.log(2.0) if row.itemsize == 4 else 1.0


@jit
def _lowest(row: Array) -> Any:
    """The least `exponential` makes something of."""
    return spread(row.dtype.type(-120.0 if row.itemsize == 4 else -600.0))


@jit
def _sum(row: Array) -> float:
    sums = spread(0.0)
    for j in range(NONE, np.uint64(len(row)), EIGHT):
        sums = sums + widened(load(row, j))
    return total(sums)


@jit
def _weighted_sum(row: Array, table: Matrix, k: Any) -> float:
    sums = spread(0.0)
    at = k * np.uint64(len(row))
    for j in range(NONE, np.uint64(len(row)), EIGHT):
        sums = sums + widened(load(row, j)) * load(table, at + j)
    return total(sums)


# ---------------------------------------------------------------------- what is asked


@jit
def tabulate(factors: Any, points: Any, row: Array, out: Array) -> None:
    """Masses (nodes, count) that sum to one."""
    for node in range(np.uint64(len(out))):
        _weigh(node, factors, points, row)
        scale = 1.0 / _sum(row)
        for j in range(np.uint64(points.size)):
            out[node, j] = row[j] * scale


@jit
def moments(factors: Any, points: Any, row: Array, table: Matrix, out: Matrix) -> None:
    """Expectations (nodes, k) of k functions whose values at the points are in the rows of a table, (k * padded,)."""
    for node in range(np.uint64(len(out))):
        _weigh(node, factors, points, row)
        scale = 1.0 / _sum(row)
        for k in range(np.uint64(out.shape[1])):
            out[node, k] = _weighted_sum(row, table, k) * scale


@jit
def quantiles(
    factors: Any,
    points: Any,
    row: Array,
    sums: Matrix,
    probability: Matrix,
    values: Matrix,
    spacing: float,
    out: Matrix,
) -> None:
    """Values (nodes, k) at which the distribution function reaches given probabilities.

    Parameters
    ----------
    factors, points : of the nodes
    row, sums : (padded,) and (padded / 8,) to work in
    probability : (nodes, k), or (1, k) for all
    values : (count,) of the points, ascending
    spacing : distance of neighbours over which a point's mass is spread evenly; 0 if it is all on the point
    """
    for node in range(np.uint64(len(out))):
        _weigh(node, factors, points, row)
        reached, begin = 0.0, len(sums)
        for i in range(len(sums)):
            here = total(widened(load(row, np.uint64(i) * EIGHT)))
            if here > 0 and begin > i:
                begin = i  # the first with any mass
            reached += here
            sums[i] = reached
        wanted = probability[node if len(probability) > 1 else NONE]
        for k in range(len(wanted)):
            goal = wanted[k] * reached
            # The first chunk that reaches the goal.
            low, high = min(begin, len(sums) - 1), len(sums) - 1
            while low < high:
                middle = (low + high) // 2
                if sums[middle] >= goal:
                    high = middle
                else:
                    low = middle + 1
            before = sums[low - 1] if low > 0 else 0.0
            found, start = -1, before
            for j in range(8 * low, 8 * low + 8):
                if row[j] > 0:
                    found, start = j, before
                    before += np.float64(row[j])
                    if before >= goal:
                        break
            out[node, k] = values[found]
            if spacing > 0:
                share = (goal - start) / np.float64(row[found])
                out[node, k] += (min(max(share, 0.0), 1.0) - 0.5) * spacing


# ---------------------------------------------------------------------- modes


@jit
def modes(
    factors: Any,
    points: Any,
    row: Array,
    heights: Array,
    table: Matrix,
    windows: Array,
    reaches: NDArray[np.int64],
    widths: Matrix,
    first_step: int,
    base: float,
    least: float,
    out: NDArray[np.intp],
) -> None:
    """For each node the evenly spaced point at which its masses, smoothed by a Gaussian window, are highest.

    Smoothed to a width h they curve down by no more than their own height over h^2. So if x is the highest point,
    next to it towards where they rise, at a distance d, they are at least cos(d / h) times as high: places lower than that
    are ruled out from few points, then from more between those that are left.

    Parameters
    ----------
    factors, points : of the nodes
    row, heights : (padded,) each, to work in
    table : (2 * padded,) the points' values, from their middle, and those squared
    windows : (w * r,) for each step of width, the window from its left end on
    reaches : (w,) of each, how many points it goes to each side
    widths : (w,) of each, in points
    first_step, base : the width of the first window is base ** first_step, and so on
    least : smallest width
    """
    count = points.size
    for node in range(np.uint64(len(out))):
        _weigh(node, factors, points, row)
        squares = spread(0.0)
        for j in range(NONE, np.uint64(len(row)), EIGHT):
            mass = widened(load(row, j))
            squares = squares + mass * mass
        whole = _sum(row)
        middle = _weighted_sum(row, table, NONE) / whole
        deviation = np.sqrt(max(_weighted_sum(row, table, ONE) / whole - middle * middle, 0.0))
        width = max(1.06 * deviation * (total(squares) / (whole * whole)) ** 0.2, least)
        step = min(max(int(np.rint(np.log(width) / np.log(base))) - first_step, 0), len(reaches) - 1)
        start = step * (len(windows) // len(reaches))
        out[node] = _highest(row, count, windows, start, reaches[step], widths[step], heights)


@jit
def _highest(
    row: Array, count: int, windows: Array, start: int, reach: int, width: float, heights: Array
) -> int:
    """The point at which one node's smoothed masses are highest; the first of several."""
    stride = 1
    while 4 * stride <= width:
        stride *= 2
    heights[:count] = -1
    best = 0.0
    for place in range(0, count, stride):
        heights[place] = _height(row, count, windows, start, reach, place)
        best = max(best, heights[place])
    last = count - 1
    if heights[last] < 0:
        heights[last] = _height(row, count, windows, start, reach, last)
        best = max(best, heights[last])
    while stride > 1:
        enough = best * (np.cos(stride / width) - SLACK)
        finer = max(stride // 4, 1)
        for place in range(0, count + stride - 1, stride):
            here = min(place, last)
            if heights[here] < enough:
                continue
            for other in range(max(place - stride, 0), min(place + stride, count), finer):
                if heights[other] < 0:
                    heights[other] = _height(row, count, windows, start, reach, other)
                    best = max(best, heights[other])
        stride = finer
    for place in range(count):
        if heights[place] >= best:
            return place
    return 0


@jit
def _height(row: Array, count: int, window: Array, start: int, reach: int, place: int) -> Any:
    """The masses around a place, weighted by a window."""
    begin, end = max(place - reach, 0), min(place + reach + 1, count)
    shift = np.uint64(start + reach + begin - place)
    low, size = np.uint64(begin), np.uint64(end - begin)
    first, second = spread(row.dtype.type(0)), spread(row.dtype.type(0))
    third, fourth = first, second
    j = NONE
    while j + FOUR * EIGHT <= size:
        first = first + load(row, low + j) * load(window, shift + j)
        j += EIGHT
        second = second + load(row, low + j) * load(window, shift + j)
        j += EIGHT
        third = third + load(row, low + j) * load(window, shift + j)
        j += EIGHT
        fourth = fourth + load(row, low + j) * load(window, shift + j)
        j += EIGHT
    while j < size:
        first = first + load(row, low + j) * load(window, shift + j)
        j += EIGHT
    return total((first + second) + (third + fourth))
