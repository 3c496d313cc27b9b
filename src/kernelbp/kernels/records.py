"""A kernel on records: values made of several fields, each with a kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError
from kernelbp.kernels.algebra import Algebra
from kernelbp.kernels.contract import Domain, Kernel, check_values, domain, require_kernel, resolve
from kernelbp.kernels.inputs import describe, is_numeric

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Record(Algebra):
    r"""Records compared field by field.

    .. math:: k(x, y) = \prod_f k_f(x_f, y_f) \quad \text{or} \quad \frac{1}{F} \sum_f k_f(x_f, y_f)

    With the product records are alike if all their fields are; with the mean of the F fields, if some are.

    Parameters
    ----------
    fields : mapping from name to kernel
        In the order of the fields of records that are tuples.
    combine : "product" or "sum"

    Notes
    -----
    Values are tuples or named tuples with an entry for each field, in order; mappings with a value for each
    name; or, where all fields are numbers, rows ``(n, fields)`` of a numeric array. Equal tuples are merged
    in learning, and models that hold them can be stored; of mappings neither is so.

    Examples
    --------
    >>> from kernelbp.kernels import Delta, Record, Torus
    >>> residue = Record({"name": Delta(), "angle": Torus(1.0, period=360)})
    >>> residue([("ALA", 0.0), ("ALA", 90.0), ("GLY", 0.0)]).round(3)
    array([[1.   , 0.368, 0.   ],
           [0.368, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    >>> residue([{"name": "ALA", "angle": 0.0}], [{"name": "ALA", "angle": 180.0}]).round(3)
    array([[0.135]])
    """

    fields: Mapping[str, Kernel]
    combine: Literal["product", "sum"] = "product"

    def __post_init__(self) -> None:
        if not isinstance(self.fields, Mapping) or not self.fields:
            raise InputError(f"fields: expected a mapping from name to kernel, got {describe(self.fields)}")
        for name, kernel in self.fields.items():
            if not isinstance(name, str):
                raise InputError(f"fields: expected names as text, got {describe(name)}")
            require_kernel(kernel, f"fields[{name!r}]")
        if not (isinstance(self.combine, str) and self.combine in ("product", "sum")):
            raise InputError(f'combine: expected "product" or "sum", got {describe(self.combine)}')
        object.__setattr__(self, "fields", dict(self.fields))

    def __hash__(self) -> int:
        return hash((tuple(self.fields), self.combine))

    def __call__(self, X: Any, Y: Any = None) -> Matrix:
        """Gram block ``(n, m)`` of n records against m."""
        left = self.columns(X, "X")
        right = dict.fromkeys(self.fields) if Y is None else self.columns(Y, "Y")
        shape = (len(X), len(X if Y is None else Y))
        if not all(shape):
            return np.empty(shape)
        return self._combined([kernel(left[name], right[name]) for name, kernel in self.fields.items()])

    def diag(self, X: Any) -> Matrix:
        """Diagonal ``(n,)``."""
        columns = self.columns(X, "X")
        if not len(X):
            return np.empty(0)
        return self._combined([kernel.diag(columns[name]) for name, kernel in self.fields.items()])

    def columns(self, values: Any, name: str = "values") -> dict[str, Any]:
        """The values of each field: float rows ``(n, d)`` of numbers and vectors, else objects ``(n,)``."""
        count = len(self.fields)
        expected = f"expected records with the fields {', '.join(self.fields)}"
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise InputError(f"{name}: {expected}, as a sequence, got {describe(values)}")
        if is_numeric(values):
            if values.size and (values.ndim != 2 or values.shape[1] != count):
                raise InputError(f"{name}: {expected}, or rows of {count} numbers, got {describe(values)}")
            rows = np.asarray(values, dtype=np.float64).reshape(len(values), count if len(values) else 0)
            return {
                field: rows[:, [i]] if len(rows) else np.empty((0, 1)) for i, field in enumerate(self.fields)
            }
        for position, value in enumerate(values):
            whole = (
                all(field in value for field in self.fields) and len(value) == count
                if isinstance(value, Mapping)
                else isinstance(value, tuple | list | np.ndarray) and len(value) == count
            )
            if not whole:
                raise InputError(f"{name}: {expected}, got {describe(value)} at position {position}")
        return {
            field: _column(
                [value[field] if isinstance(value, Mapping) else value[i] for value in values],
                as_objects=getattr(kernel, "takes", "rows") in ("sequences", "sets"),
            )
            for i, (field, kernel) in enumerate(self.fields.items())
        }

    def resolve(self, values: Any, counts: Any = None) -> Record:
        """Resolve the kernel of every field on its values: see `kernelbp.kernels.resolve`."""
        columns = self.columns(values)
        resolved = {name: resolve(kernel, columns[name], counts) for name, kernel in self.fields.items()}
        unchanged = all(resolved[name] is kernel for name, kernel in self.fields.items())
        return self if unchanged else replace(self, fields=resolved)

    def check_values(self, values: Any, name: str) -> Any:
        """Have every field check its values: see `kernelbp.kernels.check_values`."""
        columns = self.columns(values, name)
        for field, kernel in self.fields.items():
            check_values(kernel, columns[field], f"{name}, field {field!r}")
        return values

    @property
    def domain(self) -> Domain:
        """Finite if every field is and all must agree, else "other"."""
        finite = self.combine == "product" and all(
            domain(kernel) == "finite" for kernel in self.fields.values()
        )
        return "finite" if finite else "other"

    def _combined(self, parts: list[Matrix]) -> Matrix:
        total = np.array(parts[0], dtype=np.float64)
        for part in parts[1:]:
            total = total * part if self.combine == "product" else total + part
        return total if self.combine == "product" else total / len(parts)


def _column(values: list[Any], *, as_objects: bool) -> NDArray[Any]:
    """Numbers and vectors of one length as float rows ``(n, d)``, all else as objects ``(n,)``."""
    kinds = set(map(type, values))
    if as_objects:
        kinds = {object}
    if all(issubclass(kind, float | int | np.number | np.bool_) for kind in kinds):
        return np.asarray(values, dtype=np.float64).reshape(-1, 1)
    if all(issubclass(kind, tuple | list | np.ndarray) for kind in kinds):
        try:
            array = np.asarray(values)
        except ValueError:  # of different lengths
            array = np.empty(0, dtype=object)
        if array.ndim == 2 and array.dtype.kind in "fiub":
            return array.astype(np.float64)
    column = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        column[position] = value
    return column
