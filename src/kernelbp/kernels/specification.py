"""Kernels as plain data: what a model file holds in place of objects.

A kernel is described by its name and its parameters, as in
``{"name": "Linear", "parameters": {"constant": 1.0}}``; one of scikit-learn's has "sklearn." before it.
Reading looks names up in the fixed tables below and nowhere else, so a file cannot cause anything to be
imported or run.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError, UnsupportedError
from kernelbp.kernels.algebra import Composite, Power, Product, Scaled, Sum
from kernelbp.kernels.contract import SCIKIT_LEARN_MODULE, Kernel, is_scikit_learn, require_kernel
from kernelbp.kernels.finite import Delta
from kernelbp.kernels.graphs import ShortestPath, WeisfeilerLehman
from kernelbp.kernels.groups import Geometric, Kendall, Mallows, PositiveDefinite, Rotation, Torus
from kernelbp.kernels.inputs import describe, nonnegative_number, positive_number
from kernelbp.kernels.labels import RandomProjection
from kernelbp.kernels.precomputed import Precomputed
from kernelbp.kernels.records import Record
from kernelbp.kernels.sets import ChiSquare, Intersection, Jaccard, Tanimoto
from kernelbp.kernels.sphere import Sphere
from kernelbp.kernels.strings import LocalAlignment, Mismatch, Spectrum, Subsequence
from kernelbp.kernels.vectors import Gaussian, Linear

MAX_DEPTH = 50
"""Kernels within kernels; a deeper file was not written by a person adding up kernels."""

PREFIX = "sklearn."

OWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        ChiSquare,
        Delta,
        Gaussian,
        Geometric,
        Intersection,
        Jaccard,
        Kendall,
        Linear,
        LocalAlignment,
        Mallows,
        Mismatch,
        PositiveDefinite,
        Power,
        Precomputed,
        Product,
        RandomProjection,
        Record,
        Rotation,
        Scaled,
        ShortestPath,
        Spectrum,
        Sphere,
        Subsequence,
        Sum,
        Tanimoto,
        Torus,
        WeisfeilerLehman,
    )
}


def to_spec(kernel: Kernel) -> dict[str, Any]:
    """Describe a kernel as data that JSON can hold.

    Parameters
    ----------
    kernel : Kernel
        One of this package or of ``sklearn.gaussian_process.kernels``, or a combination of them.

    Raises
    ------
    UnsupportedError
        If the kernel, or one it is made of, is of another make.

    Examples
    --------
    >>> from kernelbp.kernels import Gaussian, to_spec
    >>> to_spec(Gaussian(2.0))
    {'name': 'Gaussian', 'parameters': {'bandwidth': 2.0, 'scale': 1.0}}
    """
    return _written(require_kernel(kernel, "kernel"), 0)


def from_spec(spec: Any) -> Kernel:
    """Make a kernel from its description: the inverse of `to_spec`.

    Parameters
    ----------
    spec : dict
        ``{"name": ..., "parameters": {...}}``, not trusted.

    Raises
    ------
    InputError
        If the description is not one that `to_spec` writes.

    Examples
    --------
    >>> from kernelbp.kernels import Delta, Gaussian, from_spec, to_spec
    >>> from_spec(to_spec(2 * Gaussian() + Delta()))
    2.0 * Gaussian(bandwidth='median') + Delta()
    """
    return _read(spec, "spec", 0)


def _written(kernel: Kernel, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise UnsupportedError(
            f"kernel: nested more than {MAX_DEPTH} deep; combine the kernels in a flatter way"
        )
    name = type(kernel).__name__
    if OWN.get(name) is type(kernel):
        given = {field.name: getattr(kernel, field.name) for field in fields(kernel)}  # type: ignore[arg-type]
        if isinstance(kernel, Precomputed):
            given = _written_matrix(kernel.matrix)
        if isinstance(kernel, Geometric) and not isinstance(kernel.space, str):
            raise UnsupportedError(
                "kernel: Geometric of a kernel object cannot be described as data; name its space"
            )
        return {"name": name, "parameters": {key: _plain(value, depth) for key, value in given.items()}}
    if is_scikit_learn(kernel) and name in SCIKIT_LEARN:
        given = kernel.get_params(deep=False)  # type: ignore[attr-defined]
        parameters = {key: _plain(value, depth) for key, value in given.items()}
        try:
            _read_scikit_learn_parameters(name, parameters, "kernel", depth)
        except InputError as error:
            raise UnsupportedError(f"kernel: {kernel!r} cannot be described as data ({error})") from None
        return {"name": PREFIX + name, "parameters": parameters}
    raise UnsupportedError(
        f"kernel: {name} is neither of kernelbp.kernels nor a known one of {SCIKIT_LEARN_MODULE}; "
        "a kernel of one's own is not stored and must be handed to load"
    )


def _plain(value: Any, depth: int) -> Any:
    """A parameter as JSON holds it; what cannot be is left alone, for the reader to refuse."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Kernel) and not isinstance(value, type):
        return _written(value, depth + 1)
    if isinstance(value, list | tuple):
        return [_plain(entry, depth) for entry in value]
    if isinstance(value, dict):
        return {key: _plain(entry, depth) for key, entry in value.items()}
    return "infinity" if isinstance(value, float) and value == math.inf else value


def _written_matrix(matrix: NDArray[np.float64]) -> dict[str, Any]:
    # little-endian float64 in base64: exact, and half the size of decimals
    return {"size": len(matrix), "matrix": base64.b64encode(matrix.astype("<f8").tobytes()).decode("ascii")}


def _read(spec: Any, where: str, depth: int) -> Kernel:
    if depth > MAX_DEPTH:
        raise InputError(f"{where}: expected kernels nested at most {MAX_DEPTH} deep")
    if not isinstance(spec, Mapping) or set(spec) != {"name", "parameters"}:
        raise InputError(
            f"{where}: expected a mapping with the keys 'name' and 'parameters', got {describe(spec)}"
        )
    name, parameters = spec["name"], spec["parameters"]
    if not isinstance(name, str):
        raise InputError(f"{where}: expected the name of a kernel as text, got {describe(name)}")
    if not isinstance(parameters, Mapping):
        raise InputError(
            f"{where}: expected the parameters of {name} as a mapping, got {describe(parameters)}"
        )
    if name in OWN:
        return _read_own(OWN[name], parameters, where, depth)
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in SCIKIT_LEARN:
        return _read_scikit_learn(name.removeprefix(PREFIX), parameters, where, depth)
    raise InputError(f"{where}: expected the name of a known kernel, got {describe(name)}")


def _read_own(kind: type[Any], parameters: Mapping[str, Any], where: str, depth: int) -> Kernel:
    name = kind.__name__
    if kind is Precomputed:
        _require_keys(parameters, {"size", "matrix"}, name, where)
        return Precomputed(_read_matrix(parameters["size"], parameters["matrix"], where))
    _require_keys(parameters, {field.name for field in fields(kind)}, name, where)
    given = dict(parameters)
    if issubclass(kind, Composite):
        for part in kind.part_names:
            given[part] = _read(given[part], f"{where}.{part}", depth + 1)
    elif kind is Record:
        given["fields"] = _read_fields(given["fields"], where, depth)
    elif kind is Geometric:
        given["smoothness"] = _positive(given["smoothness"], f"{where}.smoothness")
        if not isinstance(given["space"], str):
            raise InputError(
                f"{where}: Geometric: expected the name of a space, got {describe(given['space'])}"
            )
    try:
        kernel: Kernel = kind(**given)
    except InputError as error:
        raise InputError(f"{where}: {name}: {error}") from None
    return kernel


def _read_fields(given: Any, where: str, depth: int) -> dict[str, Kernel]:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: Record: expected kernels by the names of fields, got {describe(given)}")
    return {str(name): _read(part, f"{where}.{name}", depth + 1) for name, part in given.items()}


def _read_matrix(size: Any, text: Any, where: str) -> NDArray[np.float64]:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        data = None
    if (
        not isinstance(size, int)
        or isinstance(size, bool)
        or size < 1
        or data is None
        or len(data) != 8 * size * size
    ):
        raise InputError(
            f"{where}: Precomputed: expected a size and that many rows and columns of float64 in base64"
        )
    return np.frombuffer(data, dtype="<f8").reshape(size, size)


def _require_keys(parameters: Mapping[str, Any], expected: set[str], name: str, where: str) -> None:
    if set(parameters) != expected:
        raise InputError(
            f"{where}: expected the parameters {sorted(expected)} of {name}, "
            f"got {sorted(map(str, parameters))}"
        )


# scikit-learn's kernels: what each parameter may be

Reader = Callable[[Any, str], Any]


def _positive(value: Any, where: str) -> float:
    return math.inf if isinstance(value, str) and value == "infinity" else positive_number(value, where)


def _nonnegative(value: Any, where: str) -> float:
    return math.inf if isinstance(value, str) and value == "infinity" else nonnegative_number(value, where)


def _scales(value: Any, where: str) -> Any:
    """One positive number, or an array of them, one per dimension."""
    if isinstance(value, list) and value:
        return np.array([positive_number(entry, where) for entry in value])
    return positive_number(value, where)


def _bounds(value: Any, where: str) -> Any:
    """The word "fixed", a pair of numbers, or an array of pairs."""
    if isinstance(value, str) and value == "fixed":
        return value
    if isinstance(value, list) and value and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return np.array([[_nonnegative(end, where) for end in pair] for pair in value])
    if isinstance(value, list) and len(value) == 2:
        return (_nonnegative(value[0], where), _nonnegative(value[1], where))
    raise InputError(f'{where}: expected "fixed" or pairs of numbers, got {describe(value)}')


def _metric(value: Any, where: str) -> str:
    known = ("additive_chi2", "chi2", "linear", "poly", "polynomial", "rbf", "laplacian", "sigmoid", "cosine")
    if isinstance(value, str) and value in known:
        return value
    raise InputError(f"{where}: expected one of {', '.join(known)}, got {describe(value)}")


def _keywords(value: Any, where: str) -> dict[str, float] | None:
    if value is None:
        return None
    if isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(entry, numbers.Real) and not isinstance(entry, bool)
        for key, entry in value.items()
    ):
        return dict(value)
    raise InputError(f"{where}: expected numbers by name, got {describe(value)}")


def _part(value: Any, where: str) -> Any:
    raise AssertionError("parts are read by _read")


SCIKIT_LEARN: dict[str, dict[str, Reader]] = {
    "ConstantKernel": {"constant_value": _nonnegative, "constant_value_bounds": _bounds},
    "DotProduct": {"sigma_0": _nonnegative, "sigma_0_bounds": _bounds},
    "ExpSineSquared": {
        "length_scale": _positive,
        "length_scale_bounds": _bounds,
        "periodicity": _positive,
        "periodicity_bounds": _bounds,
    },
    "Exponentiation": {"kernel": _part, "exponent": _nonnegative},
    "Matern": {"length_scale": _scales, "length_scale_bounds": _bounds, "nu": _positive},
    "PairwiseKernel": {
        "gamma": _nonnegative,
        "gamma_bounds": _bounds,
        "metric": _metric,
        "pairwise_kernels_kwargs": _keywords,
    },
    "Product": {"k1": _part, "k2": _part},
    "RBF": {"length_scale": _scales, "length_scale_bounds": _bounds},
    "RationalQuadratic": {
        "alpha": _positive,
        "alpha_bounds": _bounds,
        "length_scale": _positive,
        "length_scale_bounds": _bounds,
    },
    "Sum": {"k1": _part, "k2": _part},
    "WhiteKernel": {"noise_level": _nonnegative, "noise_level_bounds": _bounds},
}
"""The classes of scikit-learn that may be read, with a reader for each of their parameters."""


def _read_scikit_learn(name: str, parameters: Mapping[str, Any], where: str, depth: int) -> Kernel:
    given = _read_scikit_learn_parameters(name, parameters, where, depth)
    try:
        module = importlib.import_module(SCIKIT_LEARN_MODULE)
    except ImportError:
        raise UnsupportedError(f"{where}: the kernel {PREFIX}{name} needs scikit-learn installed") from None
    kernel: Kernel = getattr(module, name)(**given)
    return kernel


def _read_scikit_learn_parameters(
    name: str, parameters: Mapping[str, Any], where: str, depth: int
) -> dict[str, Any]:
    readers = SCIKIT_LEARN[name]
    _require_keys(parameters, set(readers), name, where)
    return {
        key: _read(parameters[key], f"{where}.{key}", depth + 1)
        if reader is _part
        else reader(parameters[key], f"{where}.{key}")
        for key, reader in readers.items()
    }
