"""What is made once and used again, as long as what it was made from lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, TypeVar

__all__ = ["Kept"]

Made = TypeVar("Made")

MOST_EDGES = 1 << 20
"""Of graphs of which anything is kept: what is laid out for more takes more memory than it saves time."""


class Kept:
    """The last few things made of an object that never changes; copies and pickles begin empty.

    Parameters
    ----------
    most : int
        How many are kept; the one made first goes first.
    n_edges : int
        Of the graph they are made of. Nothing is kept of very large ones.

    Examples
    --------
    >>> kept = Kept(2, n_edges=100)
    >>> kept.once("three squared", lambda: 3**2), kept.once("three squared", lambda: 1 / 0)
    (9, 9)
    """

    def __init__(self, most: int, n_edges: int) -> None:
        self._most, self._n_edges = most, n_edges
        self._made: dict[Hashable, Any] = {}
        self._lock = Lock()

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What is kept under the key, made now if nothing is; by each of several threads that ask at once."""
        if self._n_edges > MOST_EDGES:
            return make()
        with self._lock:
            if key in self._made:
                found: Made = self._made[key]
                return found
        made = make()
        with self._lock:
            while len(self._made) >= self._most:
                del self._made[next(iter(self._made))]
            self._made[key] = made
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self._most, self._n_edges)
