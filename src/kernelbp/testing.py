"""Checks for what people bring themselves: whether a kernel of their own keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels import Kernel, check_values, require_kernel, resolve

__all__ = ["check_kernel"]


def check_kernel(kernel: Kernel, values: Any, *, tolerance: float = 1e-8) -> None:
    """Try the laws of a kernel on some values; see `kernelbp.kernels.Kernel` for what they are.

    Settings that depend on data ("median") are first resolved on `values`. The laws, in the order they are
    tried: shape, dtype, finiteness, ``k(X)`` equals ``k(X, X)``, symmetry, diagonal, slicing (a block of the
    Gram matrix is the Gram block of the slices), empty input, positive semidefiniteness.

    Parameters
    ----------
    kernel : Kernel
    values : n values, an array or a sequence
        Two at least; some of them equal, near and far apart make a sharper test. A Gram matrix of all of them
        is formed.
    tolerance : float
        Allowed difference, and allowed negative eigenvalue, relative to the largest entry and eigenvalue of
        the Gram matrix.

    Raises
    ------
    AssertionError
        If a law is broken; the text says which, and gives the offending numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbp.testing import check_kernel
    >>> class SharedLetters:
    ...     def __call__(self, X, Y=None):
    ...         Y = X if Y is None else Y
    ...         rows = [[len(set(x) & set(y)) for y in Y] for x in X]
    ...         return np.array(rows, dtype=float).reshape(len(X), len(Y))
    ...     def diag(self, X):
    ...         return np.array([len(set(x)) for x in X], dtype=float)
    >>> check_kernel(SharedLetters(), ["ab", "abc", "c", ""])
    >>> class Difference(SharedLetters):
    ...     def __call__(self, X, Y=None):
    ...         Y = X if Y is None else Y
    ...         return np.subtract.outer([float(len(x)) for x in X], [float(len(y)) for y in Y])
    >>> check_kernel(Difference(), ["ab", "abc"])
    Traceback (most recent call last):
    ...
    AssertionError: symmetry: k(X)[0, 1] is -1.0 but k(X)[1, 0] is 1.0
    """
    require_kernel(kernel, "kernel")
    if not hasattr(values, "__len__") or len(values) < 2:
        raise InputError("values: expected an array or a sequence of at least 2 values to try the kernel on")
    kernel = resolve(kernel, values)
    values = check_values(kernel, values, "values")
    everything = range(len(values))

    gram = _block(kernel, "k(X)", (len(values), len(values)), values)
    diagonal = _diagonal(kernel, values)
    allowed = tolerance * float(np.abs(gram).max())

    both = _block(kernel, "k(X, X)", gram.shape, values, values)
    _compare("one argument", "k(X)", gram, "k(X, X)", both, allowed)
    _check_symmetry(gram, allowed)
    _compare("diagonal", "k.diag(X)", diagonal, "the diagonal of k(X)", gram.diagonal(), allowed)
    slices = {
        "X[:1]": everything[:1],
        "X[::2]": everything[::2],
        "X[1::2]": everything[1::2],
        "X[::-1]": everything[::-1],
    }
    for left_name, left in slices.items():
        for right_name, right in slices.items():
            name = f"k({left_name}, {right_name})"
            block = _block(kernel, name, (len(left), len(right)), _take(values, left), _take(values, right))
            _compare("slicing", name, block, "that block of k(X)", gram[np.ix_(left, right)], allowed)
        part = _diagonal(kernel, _take(values, left), f"k.diag({left_name})")
        _compare(
            "slicing", f"k.diag({left_name})", part, "that part of k.diag(X)", diagonal[list(left)], allowed
        )
    if getattr(kernel, "takes", "rows") == "rows" and _are_numbers(values):
        rows = _block(kernel, "k(X[:, None])", gram.shape, np.asarray(values)[:, None])
        _compare("rows", "k(X[:, None]), as learning hands numbers over,", rows, "k(X)", gram, allowed)
    _check_empty(kernel, values)
    _check_eigenvalues(gram, tolerance)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf"


def _take(values: Any, positions: Sequence[int]) -> Any:
    """The values at some positions, in the container they came in where that is an array."""
    if isinstance(values, np.ndarray):
        return values[np.asarray(positions, dtype=np.intp)]
    return [values[position] for position in positions]


def _block(kernel: Kernel, name: str, shape: tuple[int, ...], *arguments: Any) -> NDArray[np.float64]:
    return _result(lambda: kernel(*arguments), name, shape)


def _diagonal(kernel: Kernel, values: Any, name: str = "k.diag(X)") -> NDArray[np.float64]:
    return _result(lambda: kernel.diag(values), name, (len(values),))


def _result(call: Callable[[], Any], name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Call, and hold the answer to the laws of shape, dtype and finiteness."""
    result = call()
    if not isinstance(result, np.ndarray) or result.shape != shape:
        given = f"shape {result.shape}" if isinstance(result, np.ndarray) else f"a {type(result).__name__}"
        raise AssertionError(f"shape: {name} should be an array of shape {shape}, got {given}")
    if result.dtype != np.float64:
        raise AssertionError(f"dtype: {name} should be float64, got {result.dtype}")
    if not np.isfinite(result).all():
        place = _place(~np.isfinite(result))
        raise AssertionError(f"finiteness: {name}[{_written(place)}] is {result[place]}")
    return result


def _check_symmetry(gram: NDArray[np.float64], allowed: float) -> None:
    wrong = np.abs(gram - gram.T) > allowed
    if wrong.any():
        i, j = _place(wrong)
        raise AssertionError(f"symmetry: k(X)[{i}, {j}] is {gram[i, j]} but k(X)[{j}, {i}] is {gram[j, i]}")


def _check_empty(kernel: Kernel, values: Any) -> None:
    none, count = _take(values, ()), len(values)
    calls: list[tuple[str, tuple[int, ...], Callable[[], Any]]] = [
        ("k(X[:0], X)", (0, count), lambda: kernel(none, values)),
        ("k(X, X[:0])", (count, 0), lambda: kernel(values, none)),
        ("k(X[:0], X[:0])", (0, 0), lambda: kernel(none, none)),
        ("k.diag(X[:0])", (0,), lambda: kernel.diag(none)),
    ]
    for name, shape, call in calls:
        try:
            _result(call, name, shape)
        except AssertionError as error:
            raise AssertionError(f"empty input: {error}") from None
        except Exception as error:
            raise AssertionError(f"empty input: {name} raised {type(error).__name__}: {error}") from error


def _check_eigenvalues(gram: NDArray[np.float64], tolerance: float) -> None:
    eigenvalues = np.linalg.eigvalsh((gram + gram.T) / 2)
    smallest, largest = float(eigenvalues[0]), float(np.abs(eigenvalues).max())
    if smallest < -tolerance * largest:
        raise AssertionError(
            f"positive semidefiniteness: the smallest eigenvalue of k(X) is {smallest:.6g}, "
            f"the largest in size {largest:.6g}"
        )


def _compare(
    law: str, name: str, given: NDArray[np.float64], other: str, expected: NDArray[np.float64], allowed: float
) -> None:
    wrong = np.abs(given - expected) > allowed
    if wrong.any():
        place = _place(wrong)
        raise AssertionError(
            f"{law}: {name} should equal {other}, but entry [{_written(place)}] is {given[place]} and "
            f"should be {expected[place]}"
        )


def _place(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """Where the first True is."""
    return tuple(int(index) for index in np.argwhere(wrong)[0])


def _written(place: tuple[int, ...]) -> str:
    return ", ".join(map(str, place))
