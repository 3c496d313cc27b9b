"""The conformance suite finds every kind of broken kernel, and says which law it broke."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelbp.errors import InputError
from kernelbp.kernels import Gaussian, Kernel, Precomputed, Sphere
from kernelbp.testing import check_kernel

VALUES = np.array([[0.0], [1.0], [1.0], [2.5], [4.0], [4.1]])
SOUND = Gaussian(1.5)


class Sound:
    """A kernel that keeps the contract; the broken ones change one thing."""

    def __call__(self, X: Any, Y: Any = None) -> Any:
        return SOUND(X, Y)

    def diag(self, X: Any) -> Any:
        return SOUND.diag(X)


class Asymmetric(Sound):
    def __call__(self, X: Any, Y: Any = None) -> Any:
        Y = X if Y is None else Y
        return SOUND(X, Y) + 0.1 * np.subtract(X, Y.T)


class Indefinite(Sound):
    def __call__(self, X: Any, Y: Any = None) -> Any:
        return -np.abs(np.subtract(X, (X if Y is None else Y).T))

    def diag(self, X: Any) -> Any:
        return np.zeros(len(X))


class WrongDiagonal(Sound):
    def diag(self, X: Any) -> Any:
        return SOUND.diag(X) + 0.5


class Single(Sound):
    def __call__(self, X: Any, Y: Any = None) -> Any:
        return SOUND(X, Y).astype(np.float32)


class ComplexDiagonal(Sound):
    def diag(self, X: Any) -> Any:
        return SOUND.diag(X).astype(complex)


class AList(Sound):
    def __call__(self, X: Any, Y: Any = None) -> Any:
        return SOUND(X, Y).tolist()


class Flat(Sound):
    def diag(self, X: Any) -> Any:
        return np.ones((len(X), 1))


class NotFinite(Sound):
    def __call__(self, X: Any, Y: Any = None) -> Any:
        gram = SOUND(X, Y)
        gram[gram < 0.1] = np.nan
        return gram


class Noisy(Sound):
    """Adds noise on the diagonal when called with one argument, as a white-noise kernel does."""

    def __call__(self, X: Any, Y: Any = None) -> Any:
        return SOUND(X, Y) + (np.eye(len(X)) if Y is None else 0.0)

    def diag(self, X: Any) -> Any:
        return SOUND.diag(X) + 1.0


class SliceDependent(Sound):
    """Takes its width from whatever it is called with."""

    def __call__(self, X: Any, Y: Any = None) -> Any:
        return Gaussian(1.0 + len(X))(X, Y)


class SliceDependentDiagonal(Sound):
    def diag(self, X: Any) -> Any:
        return SOUND.diag(X) * len(X) / len(VALUES)


class FailsOnEmpty(Sound):
    def __call__(self, X: Any, Y: Any = None) -> Any:
        if len(X) == 0 or (Y is not None and len(Y) == 0):
            raise IndexError("nothing there")
        return SOUND(X, Y)


class WrongShapeOnEmpty(Sound):
    def diag(self, X: Any) -> Any:
        return SOUND.diag(X) if len(X) else np.zeros((0, 0))


BROKEN = [
    (Asymmetric(), r"symmetry: k\(X\)\[0, 1\] is 0\.70\d* but k\(X\)\[1, 0\] is 0\.90"),
    (
        Indefinite(),
        r"positive semidefiniteness: the smallest eigenvalue of k\(X\) is -\d.*, the largest in size \d",
    ),
    (
        WrongDiagonal(),
        r"diagonal: k.diag\(X\) should equal the diagonal of k\(X\), but entry \[0\] is 1.5 and should be 1",
    ),
    (Single(), r"dtype: k\(X\) should be float64, got float32"),
    (ComplexDiagonal(), r"dtype: k.diag\(X\) should be float64, got complex128"),
    (AList(), r"shape: k\(X\) should be an array of shape \(6, 6\), got a list"),
    (Flat(), r"shape: k.diag\(X\) should be an array of shape \(6,\), got shape \(6, 1\)"),
    (NotFinite(), r"finiteness: k\(X\)\[0, 4\] is nan"),
    (Noisy(), r"one argument: k\(X\) should equal k\(X, X\), but entry \[0, 0\] is 2.0 and should be 1.0"),
    (
        SliceDependent(),
        r"slicing: k\(X\[:1\], X\[::2\]\) should equal that block of k\(X\), but entry \[0, 1\] is",
    ),
    (SliceDependentDiagonal(), r"slicing: k.diag\(X\[:1\]\) should equal that part of k.diag\(X\)"),
    (FailsOnEmpty(), r"empty input: k\(X\[:0\], X\) raised IndexError: nothing there"),
    (
        WrongShapeOnEmpty(),
        r"empty input: shape: k.diag\(X\[:0\]\) should be an array of shape \(0,\), got shape \(0, 0\)",
    ),
]


def test_a_sound_kernel_passes() -> None:
    check_kernel(Sound(), VALUES)


@pytest.mark.parametrize(("kernel", "message"), BROKEN, ids=[type(kernel).__name__ for kernel, _ in BROKEN])
def test_a_broken_law_is_named(kernel: Kernel, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_kernel(kernel, VALUES)


def test_medians_are_resolved_first() -> None:
    check_kernel(Gaussian(), VALUES)


def test_an_indefinite_table_is_found() -> None:
    with pytest.raises(AssertionError, match=r"smallest eigenvalue of k\(X\) is -1, the largest in size 3"):
        check_kernel(Precomputed([[1.0, 2.0], [2.0, 1.0]]), [0, 1])


def test_tolerance_is_relative() -> None:
    table = np.array([[1.0, 1.0 + 1e-6], [1.0 + 1e-6, 1.0]])
    for scale in (1e-20, 1.0, 1e20):
        check_kernel(Precomputed(scale * table), [0, 1], tolerance=1e-5)
        with pytest.raises(AssertionError, match="positive semidefiniteness"):
            check_kernel(Precomputed(scale * table), [0, 1])


def test_values_the_kernel_cannot_take_are_refused() -> None:
    with pytest.raises(InputError, match=r"values: expected unit vectors"):
        check_kernel(Sphere(), VALUES)


@pytest.mark.parametrize("values", [[1.0], [], 3.0])
def test_too_few_values_are_refused(values: Any) -> None:
    with pytest.raises(InputError, match=r"values: expected an array or a sequence of at least 2 values"):
        check_kernel(Gaussian(1.0), values)


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(InputError, match=r"kernel: expected a kernel, got the class Gaussian"):
        check_kernel(Gaussian, VALUES)  # type: ignore[arg-type]


def test_a_kernel_has_to_take_numbers_as_rows():
    """Learning hands numbers over as rows of one."""

    class Flat:
        def __call__(self, X, Y=None):
            X = np.asarray(X, dtype=float)
            return np.exp(-(np.subtract.outer(X, X if Y is None else np.asarray(Y, dtype=float)) ** 2))

        def diag(self, X):
            return np.ones(len(X))

    with pytest.raises(AssertionError, match=r"k\(X\[:, None\]\) should be an array of shape \(5, 5\)"):
        check_kernel(Flat(), np.arange(5.0))
