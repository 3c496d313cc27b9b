"""Training pairs: checked, merged, dealt to folds, put to scale, and centres drawn from them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels.inputs import finite_rows, positive_number
from kernelbp.kernels.sphere import NORM_TOLERANCE
from kernelbp.learning.densities.bumps import Matrix, Side
from kernelbp.values import distinct

Indices = NDArray[np.intp]
Seed: TypeAlias = int | np.random.Generator | None

MOST_PAIRS = 50_000
"""Distinct pairs learned from; of more, this many are drawn."""


def checked_domain(domain: Any) -> tuple[Side, Side]:
    """The domains of x and y, or an error that names what was given."""
    if not isinstance(domain, tuple | list) or len(domain) != 2:
        raise InputError(f"domain: expected two names, of x and of y, got {domain!r:.80}")
    for name in domain:
        if name not in ("real", "sphere"):
            raise UnsupportedError(
                f"domain: densities are learned on 'real' and 'sphere' variables, got {name!r}; "
                "rivals.DiscreteModel serves finite variables, Model any"
            )
    return (domain[0], domain[1])


def checked_pairs(x: Any, y: Any, sides: tuple[Side, Side]) -> tuple[Matrix, Matrix]:
    """Rows (m, dx) and (m, dy) of two pairs or more."""
    first, second = (checked_rows(v, n, None, s) for v, n, s in zip((x, y), "xy", sides, strict=True))
    same_length(first, second)
    if len(first) < 2:
        raise InputError(f"x: expected at least two pairs to learn from, got {len(first)}")
    return first, second


def checked_rows(values: Any, name: str, dimension: int | None, side: Side) -> Matrix:
    """Finite rows (n, d), of length one on the sphere; `dimension` is d where it is known."""
    rows = finite_rows(values, name)
    if dimension is not None and len(rows) and rows.shape[1] != dimension:
        expected = "numbers" if dimension == 1 else f"vectors of length {dimension}"
        raise InputError(
            f"{name}: expected {expected}, as learned from, got an array of shape {np.shape(values)}"
        )
    if side == "sphere" and len(rows):
        off = np.abs(np.linalg.norm(rows, axis=1) - 1.0)
        if rows.shape[1] < 2 or off.max() > NORM_TOLERANCE:
            raise InputError(
                f"{name}: expected unit vectors of length 2 or more, got {rows[int(np.argmax(off))]} "
                f"at position {int(np.argmax(off))}"
            )
    return rows.reshape(len(rows), dimension or rows.shape[1])


def same_length(first: Matrix, second: Matrix) -> None:
    """Refuse values of y that are not as many as those of x."""
    if len(first) != len(second):
        raise InputError(f"y: expected as many values as x, {len(first)}, got {len(second)}")


def checked_widths(
    widths: Any, rows: tuple[Matrix, Matrix], sides: tuple[Side, Side]
) -> tuple[Matrix, Matrix]:
    """Widths (dx,) and (dy,) that a user gave."""
    if not isinstance(widths, tuple | list) or len(widths) != 2:
        raise InputError(f"widths: expected (width of x, width of y), got {widths!r:.80}")
    first, second = (
        checked_width(width, f"widths[{index}]", rows[index], sides[index])
        for index, width in enumerate(widths)
    )
    return first, second


def checked_width(width: Any, name: str, rows: Matrix, side: Side) -> Matrix:
    """A width (d,) for each axis of the rows, from one number or as many as axes."""
    numbers = np.asarray(width, dtype=object)
    if numbers.ndim == 0:
        return np.full(rows.shape[1], positive_number(width, name))
    if side == "sphere" or numbers.shape != (rows.shape[1],):
        expected = "one positive number" if side == "sphere" else f"a number or {rows.shape[1]} of them"
        raise InputError(f"{name}: expected {expected}, got {width!r:.80}")
    return np.array([positive_number(number, name) for number in numbers.tolist()])


def merged(x: Matrix, y: Matrix, random: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """The distinct pairs and their counts; a draw of them if there are very many."""
    first, classes = distinct(np.hstack([x, y]))
    counts = np.bincount(classes, minlength=len(first)).astype(np.float64)
    if len(first) > MOST_PAIRS:
        chosen = np.sort(random.choice(len(first), MOST_PAIRS, replace=False))
        first, counts = first[chosen], counts[chosen]
    return x[first], y[first], counts


def deal(counts: Matrix, folds: int, random: np.random.Generator) -> Matrix:
    """Counts of each pair that fall into each fold, (u, folds); a pair that occurs once is in one of them."""
    whole = counts.astype(np.int64)
    places = np.repeat(np.arange(len(whole)), whole)
    held = np.zeros((len(whole), min(folds, len(places))))
    np.add.at(held, (places, random.permutation(len(places)) % held.shape[1]), 1.0)
    return held


def scale(values: Matrix, counts: Matrix, side: Side) -> Matrix:
    """Standard deviations (d,), 1 where all values are equal; directions are left as they are."""
    if side == "sphere":
        return np.ones(values.shape[1])
    share = counts / counts.sum()
    spread = np.sqrt(share @ (values - share @ values) ** 2)
    return np.where(spread > 1e-12 * np.abs(values).max(axis=0), spread, 1.0)


def span(values: Matrix, side: Side) -> float:
    """How far apart typical standardised values lie."""
    return 1.0 if side == "sphere" else values.shape[1] ** 0.5


def spacing(values: Matrix, counts: Matrix) -> float:
    """Median distance between neighbouring distinct values if values repeat, else 0."""
    different = values[distinct(values)[0]]
    if len(different) < 2 or 2 * len(different) > counts.sum():
        return 0.0
    if different.shape[1] == 1:
        return float(np.median(np.diff(different[:, 0])))
    return float(np.median(cKDTree(different).query(different, k=2)[0][:, 1]))


def spread_centres(u: Matrix, v: Matrix, counts: Matrix, number: int, random: np.random.Generator) -> Indices:
    """Positions of pairs drawn one by one with a chance in proportion to their distance from those drawn."""
    if number >= len(u):
        return np.arange(len(u))
    both = np.hstack([u / u.shape[1] ** 0.5, v / v.shape[1] ** 0.5])
    chosen = [int(random.choice(len(u), p=counts / counts.sum()))]
    nearest = np.full(len(u), np.inf)
    while len(chosen) < number:
        np.minimum(nearest, np.linalg.norm(both - both[chosen[-1]], axis=1), out=nearest)
        nearest[chosen[-1]] = 0.0
        ladder = np.cumsum(nearest * counts)
        if ladder[-1] <= 0:
            break
        chosen.append(int(np.searchsorted(ladder, random.random() * ladder[-1], side="right")))
    return np.sort(np.asarray(chosen, dtype=np.intp))
