"""How functions are compiled: once for each machine, where there is a place to keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["jit"]

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile a function when it is first called, without Python's checks and without its global lock.

    What was compiled is kept beside the source or in the user's cache. Where neither can be written to, as in a
    container that may only be read, every process compiles anew.

    Examples
    --------
    >>> @jit
    ... def total(values):
    ...     found = 0.0
    ...     for value in values:
    ...         found += value
    ...     return found
    >>> import numpy as np
    >>> total(np.ones(3))
    3.0
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no place to keep it
        made = numba.njit(**options)(function)
    return made
