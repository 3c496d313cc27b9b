"""What a kernel owes, and what it may offer besides.

Owed
    ``k(X, Y=None)``, the Gram block, and ``k.diag(X)``, its diagonal: see `Kernel`.
Offered, by any kernel that has an attribute of that name
    ``resolve(values, counts)``
        a kernel with its data-dependent settings replaced by numbers;
    ``check_values(values, name)``
        the values in the form the kernel takes, or `InputError`;
    ``domain``
        one of "real", "sphere", "finite", "other";
    ``takes``
        how values are to be held where they might be held in several ways, one of
        "rows": numbers, and vectors of one length, become float rows ``(n, d)`` (so without the attribute),
        "sequences": every value is a tuple of whole numbers, or text,
        "sets": every value is a frozenset, unless all come in a numeric array, whose rows are then indicators,
        "matrices": as "rows", and arrays ``(n, r, c)`` are taken too, held as rows of their entries;
    ``distance(X, Y=None)``
        distances in the domain's own units, for `expected_distance` of beliefs;
    ``centre(values, weights)``
        the domain's own mean of n values for each row of weights, for `centre` of beliefs, with
        ``centre_exponent`` the power of the distance it minimises (2 if not offered).

The functions `resolve`, `check_values` and `domain` below ask for these and have an answer for kernels
without them, those of scikit-learn among them.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.inputs import describe, finite_rows, refuse_not_finite

Domain: TypeAlias = Literal["real", "sphere", "finite", "other"]
"""Where the values of a variable live: R^d, unit vectors, finitely many values, anything else."""

Takes: TypeAlias = Literal["rows", "sequences", "sets", "matrices"]
"""How the values of a variable are held: see the head of this module."""

SCIKIT_LEARN_MODULE = "sklearn.gaussian_process.kernels"


@runtime_checkable
class Kernel(Protocol):
    r"""How two values of a variable compare: :math:`k(x, y) = \langle \phi(x), \phi(y) \rangle`.

    A protocol, not a base class: any object with these two methods is a kernel, one of
    ``sklearn.gaussian_process.kernels`` unchanged. `kernelbp.testing.check_kernel` tries the laws below.

    - ``k(X, Y)`` of n and m values is an ``(n, m)`` float64 array, also for n or m of 0;
    - ``k(X)`` equals ``k(X, X)``, is symmetric and positive semidefinite; ``k.diag(X)`` is its diagonal;
    - an entry depends on its two values only, not on what else is in X and Y.

    Numeric values come as ``(n, d)`` float arrays, all others as a sequence or an object array ``(n,)``.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, Kernel
    >>> isinstance(Gaussian(), Kernel)
    True
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> isinstance(RBF(), Kernel)
    True
    """

    def __call__(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Gram block ``(n, m)`` of n values against m; `Y` of None is `X`."""
        ...

    def diag(self, X: Any) -> NDArray[np.float64]:
        """Diagonal ``(n,)`` of ``k(X)``, without forming it."""
        ...


def require_kernel(kernel: Any, name: str) -> Kernel:
    """Return `kernel` if it is one, else raise `InputError`; a class in place of its instance is not.

    Parameters
    ----------
    kernel : object
    name : str
        What the argument is called in the error.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, require_kernel
    >>> require_kernel(Gaussian, "pixel")
    Traceback (most recent call last):
    ...
    kernelbp.errors.InputError: pixel: expected a kernel, got the class Gaussian; did you mean Gaussian()?
    """
    if isinstance(kernel, type):
        raise InputError(
            f"{name}: expected a kernel, got the class {kernel.__name__}; did you mean {kernel.__name__}()?"
        )
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"{name}: expected a kernel (an object with k(X, Y=None) and k.diag(X)), got {describe(kernel)}"
        )
    return kernel


def is_scikit_learn(kernel: Any) -> bool:
    """Tell whether a kernel is one of scikit-learn's own, without importing scikit-learn."""
    return type(kernel).__module__ == SCIKIT_LEARN_MODULE


def resolve(kernel: Kernel, values: Any, counts: Any = None) -> Kernel:
    """Return the kernel with settings such as "median" replaced by numbers taken from the data.

    Deterministic: at most 1000 values are used, evenly spaced through the counted values in the order
    they are given. Kernels without such settings come back as they are.

    Parameters
    ----------
    kernel : Kernel
    values : n training values, usually the distinct ones
    counts : (n,) integers, optional
        How often each value occurred; once each if not given.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, resolve
    >>> resolve(Gaussian(), [0.0, 1.0, 3.0])
    Gaussian(bandwidth=2.0)
    >>> resolve(Gaussian(), [0.0, 1.0, 3.0], counts=[4, 4, 1])
    Gaussian(bandwidth=1.0)
    """
    offered = getattr(require_kernel(kernel, "kernel"), "resolve", None)
    return kernel if offered is None else require_kernel(offered(values, counts), "resolved kernel")


def check_values(kernel: Kernel, values: Any, name: str) -> Any:
    """Return the values in the form the kernel takes, or refuse those it cannot take.

    Kernels on R^d or a sphere, and scikit-learn's on vectors, get ``(n, d)`` float rows; other kernels
    get the values untouched. Float arrays must be finite for every kernel.

    Parameters
    ----------
    kernel : Kernel
    values : n values
    name : str
        What the values are called in the error.

    Raises
    ------
    InputError
        If a value is not one the kernel can take.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, Sphere, check_values
    >>> check_values(Gaussian(), [1, 2, 3], "pixel").shape
    (3, 1)
    >>> check_values(Sphere(), [[1.0, 0.0], [3.0, 4.0]], "angle")
    Traceback (most recent call last):
    ...
    kernelbp.errors.InputError: angle: expected unit vectors (norm 1 within 1e-06), got norm 5 at position 1
    """
    offered = getattr(require_kernel(kernel, "kernel"), "check_values", None)
    if offered is not None:
        return offered(values, name)
    if _takes_vectors(kernel):
        return finite_rows(values, name)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        refuse_not_finite(values, name)
    return values


def domain(kernel: Kernel) -> Domain:
    """Return where the values of a kernel's variable live.

    Parameters
    ----------
    kernel : Kernel

    Returns
    -------
    "real" (vectors of R^d), "sphere" (unit vectors), "finite" (finitely many values) or "other"

    Examples
    --------
    >>> from kernelbp.kernels import Delta, Gaussian, Linear, domain
    >>> domain(Gaussian() * Linear()), domain(Delta()), domain(Gaussian() + Delta())
    ('real', 'finite', 'other')
    """
    offered = getattr(require_kernel(kernel, "kernel"), "domain", None)
    for known in get_args(Domain):
        if isinstance(offered, str) and offered == known:
            return known
    return "real" if _takes_vectors(kernel) else "other"


def _takes_vectors(kernel: Kernel) -> bool:
    return is_scikit_learn(kernel) and bool(getattr(kernel, "requires_vector_input", True))
