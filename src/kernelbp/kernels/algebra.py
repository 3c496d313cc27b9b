"""Sums, products, powers and multiples of kernels are kernels."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelbp.kernels.contract import Domain, Kernel, Takes, check_values, domain, require_kernel, resolve
from kernelbp.kernels.inputs import is_numeric, positive_number, whole_number


class Algebra(ABC):
    """Gives a kernel ``+``, ``*`` and ``**``.

    The other operand may be any kernel. A kernel of scikit-learn takes everything to its right for a
    number, so in mixed company ours stands on the left: ``Gaussian() + RBF()``.
    """

    # numpy numbers leave `number * kernel` to us
    __array_ufunc__: ClassVar[None] = None

    @abstractmethod
    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)``."""

    @abstractmethod
    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""

    def __add__(self, other: Any) -> Sum:
        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> Product | Scaled:
        if isinstance(other, numbers.Real):
            return Scaled(float(other), self)
        return Product(self, other) if isinstance(other, Kernel) else NotImplemented

    def __rmul__(self, other: Any) -> Scaled:
        return Scaled(float(other), self) if isinstance(other, numbers.Real) else NotImplemented

    def __pow__(self, exponent: Any) -> Power:
        return Power(self, exponent)


@dataclass(frozen=True, repr=False)
class Composite(Algebra):
    """A kernel made of kernels: what it may offer is asked of its parts."""

    part_names: ClassVar[tuple[str, ...]]
    binding: ClassVar[int]

    def parts(self) -> tuple[Kernel, ...]:
        """The kernels this one is made of."""
        return tuple(getattr(self, name) for name in self.part_names)

    def resolve(self, values: Any, counts: Any = None) -> Kernel:
        """Resolve every part: see `kernelbp.kernels.resolve`."""
        resolved = {name: resolve(getattr(self, name), values, counts) for name in self.part_names}
        return replace(self, **resolved)

    def check_values(self, values: Any, name: str) -> Any:
        """Have every part check the values: see `kernelbp.kernels.check_values`."""
        for part in self.parts():
            values = check_values(part, values, name)
        return values

    @property
    def domain(self) -> Domain:
        """The common domain of the parts, or "other"."""
        domains = {domain(part) for part in self.parts()}
        return domains.pop() if len(domains) == 1 else "other"

    @property
    def takes(self) -> Takes:
        """What the parts ask for, those that ask for something but float rows."""
        asked: set[Takes] = {getattr(part, "takes", "rows") for part in self.parts()}
        asked.discard("rows")
        return asked.pop() if len(asked) == 1 else "rows"


@dataclass(frozen=True, repr=False)
class Sum(Composite):
    r"""The sum of two kernels, :math:`k(x, y) = k_1(x, y) + k_2(x, y)`.

    Parameters
    ----------
    left, right : Kernel

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, Linear
    >>> kernel = Gaussian(2.0) + Linear()
    >>> kernel
    Gaussian(bandwidth=2.0) + Linear(constant=1.0)
    >>> kernel([3.0])
    array([[11.]])
    """

    left: Kernel
    right: Kernel

    part_names: ClassVar[tuple[str, ...]] = ("left", "right")
    binding: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _require_parts(self)

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)``."""
        X, Y = _as_columns(X), _as_columns(Y)
        return np.add(self.left(X, Y), self.right(X, Y))

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        X = _as_columns(X)
        return np.add(self.left.diag(X), self.right.diag(X))

    def __repr__(self) -> str:
        return f"{_written(self.left, 0)} + {_written(self.right, 1)}"


@dataclass(frozen=True, repr=False)
class Product(Composite):
    r"""The product of two kernels, :math:`k(x, y) = k_1(x, y) \, k_2(x, y)`.

    Parameters
    ----------
    left, right : Kernel

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, Linear
    >>> kernel = (Gaussian(2.0) + Linear()) * Linear(0.0)
    >>> kernel
    (Gaussian(bandwidth=2.0) + Linear(constant=1.0)) * Linear(constant=0.0)
    >>> kernel([3.0])
    array([[99.]])
    """

    left: Kernel
    right: Kernel

    part_names: ClassVar[tuple[str, ...]] = ("left", "right")
    binding: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _require_parts(self)

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)``."""
        X, Y = _as_columns(X), _as_columns(Y)
        return np.multiply(self.left(X, Y), self.right(X, Y))

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        X = _as_columns(X)
        return np.multiply(self.left.diag(X), self.right.diag(X))

    def __repr__(self) -> str:
        return f"{_written(self.left, 1)} * {_written(self.right, 2)}"


@dataclass(frozen=True, repr=False)
class Scaled(Composite):
    r"""A positive multiple of a kernel, :math:`c \, k(x, y)`; written ``c * kernel``.

    Parameters
    ----------
    factor : float
        The positive number c.
    kernel : Kernel

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian
    >>> kernel = 3 * Gaussian(2.0)
    >>> kernel
    3.0 * Gaussian(bandwidth=2.0)
    >>> kernel.diag([5.0, 7.0])
    array([3., 3.])
    """

    factor: float
    kernel: Kernel

    part_names: ClassVar[tuple[str, ...]] = ("kernel",)
    binding: ClassVar[int] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", positive_number(self.factor, "factor"))
        _require_parts(self)

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)``."""
        return np.multiply(self.kernel(_as_columns(X), _as_columns(Y)), self.factor)

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        return np.multiply(self.kernel.diag(_as_columns(X)), self.factor)

    def __repr__(self) -> str:
        return f"{self.factor} * {_written(self.kernel, 2)}"


@dataclass(frozen=True, repr=False)
class Power(Composite):
    r"""A whole power of a kernel, :math:`k(x, y)^p` with :math:`p \ge 1`; written ``kernel ** p``.

    Parameters
    ----------
    kernel : Kernel
    exponent : int
        The power p, at least 1.

    Examples
    --------
    >>> from kernelbp.kernels import Linear
    >>> kernel = Linear() ** 3
    >>> kernel
    Linear(constant=1.0) ** 3
    >>> kernel([1.0, 2.0])
    array([[  8.,  27.],
           [ 27., 125.]])
    """

    kernel: Kernel
    exponent: int

    part_names: ClassVar[tuple[str, ...]] = ("kernel",)
    binding: ClassVar[int] = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponent", whole_number(self.exponent, "exponent", least=1))
        _require_parts(self)

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)``."""
        return _whole_power(self.kernel(_as_columns(X), _as_columns(Y)), self.exponent)

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)``."""
        return _whole_power(self.kernel.diag(_as_columns(X)), self.exponent)

    def __repr__(self) -> str:
        return f"{_written(self.kernel, 3)} ** {self.exponent}"


def _require_parts(kernel: Composite) -> None:
    for name, part in zip(kernel.part_names, kernel.parts(), strict=True):
        require_kernel(part, name)


def _as_columns(values: Any) -> Any:
    """Numbers ``(n,)`` as ``(n, 1)``: scikit-learn would take a flat array for one vector of length n."""
    if isinstance(values, list | tuple) and len(values) and all(isinstance(v, numbers.Real) for v in values):
        values = np.asarray(values, dtype=np.float64)
    return values[:, None] if is_numeric(values) and values.ndim == 1 else values


def _whole_power(base: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Entrywise power by repeated squaring: many times faster than ``numpy.power``."""
    result: NDArray[np.float64] | None = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent == 0:
            assert result is not None
            return result
        base = base * base


def _written(kernel: Kernel, binding: int) -> str:
    """Write a part, in brackets if it binds less tightly than its place asks for."""
    # scikit-learn's composites are written the same way; its constant reads "1**2"
    foreign = {"Sum": 0, "Product": 1, "Exponentiation": 2, "ConstantKernel": 2}
    own = kernel.binding if isinstance(kernel, Composite) else foreign.get(type(kernel).__name__, 3)
    return f"{kernel!r}" if own >= binding else f"({kernel!r})"
