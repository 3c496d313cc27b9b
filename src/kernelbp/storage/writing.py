"""Objects to nodes: the parts of a model as text and numbers, with its arrays and kernels set aside.

`kernelbp.storage.reading` is the way back: each kind of node made here is read there. Nothing here touches the
disk.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelbp.errors import UnsupportedError
from kernelbp.kernels import Kernel, to_spec
from kernelbp.storage.fields import RECORDS, fits, hints_of, init_fields
from kernelbp.storage.limits import DTYPES, MOST_AXES, MOST_BITS, MOST_DEPTH, MOST_ENTRIES

__all__ = ["Writer"]

Node = Any
"""A piece of model.json."""
LONG_TEXT = 4096
"""Longer texts in a kernel's description (the table of a Precomputed kernel) are kept as arrays."""

NOT_A_LEAF = object()


def _leaf(value: Any) -> Node:
    """A value without parts as a node, or `NOT_A_LEAF`. Types are exact: a subclass would be lost."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int and value.bit_length() <= MOST_BITS:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode("ascii")}
    return NOT_A_LEAF


class Writer:
    """Turns objects into nodes, and sets arrays and kernels aside, each once however often it occurs.

    Parameters
    ----------
    variables : names of the model's variables
        An entry of a mapping under such a name belongs to that variable.

    Attributes
    ----------
    arrays, kernels : those set aside so far, by number
    own : kernels that cannot be stored: their variables, with the names of their classes
    """

    def __init__(self, variables: frozenset[str]) -> None:
        self.variables = variables
        self.arrays: list[NDArray[Any]] = []
        self.kernels: list[Node] = []
        self.own: dict[str, str] = {}
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # an id is only good while its object lives

    def node(self, value: Any, path: str, variable: str | None = None, depth: int = 0) -> Node:
        """Any object of a model as a node.

        Parameters
        ----------
        value : the object
        path : where it stands, for errors
        variable : the variable it belongs to, where one is known
        depth : how many nodes it lies within
        """
        if depth > MOST_DEPTH:
            raise UnsupportedError(f"{path}: nested more than {MOST_DEPTH} deep, which is not stored")
        leaf = _leaf(value)
        if leaf is not NOT_A_LEAF:
            return leaf
        if type(value) in (tuple, list):
            parts = [self.node(v, f"{path}[{i}]", variable, depth + 1) for i, v in enumerate(value)]
            return {type(value).__name__: parts}
        if type(value) is frozenset:
            return self._value(value, path, variable, depth)
        if RECORDS.get(type(value).__name__) is type(value):
            return self._record(value, path, variable, depth)
        if isinstance(value, Mapping):
            return {"mapping": [self._entry(k, v, path, variable, depth) for k, v in value.items()]}
        if isinstance(value, np.ndarray):
            return self._column(value, path, variable)
        if sparse.issparse(value):
            return self._table(value, path)
        if isinstance(value, Kernel) and not isinstance(value, type):
            return self._kernel(value, path, variable)
        self._refuse(value, path, variable)

    def _entry(self, key: Any, value: Any, path: str, variable: str | None, depth: int) -> Node:
        if variable is None and isinstance(key, str) and key in self.variables:
            variable = key
        return [
            self._value(key, f"a key of {path}", variable, depth + 1),
            self.node(value, f"{path}[{key!r}]", variable, depth + 1),
        ]

    def _record(self, value: Any, path: str, variable: str | None, depth: int) -> Node:
        made = {}
        hints = hints_of(type(value))
        for field in init_fields(type(value)):
            part = getattr(value, field.name)
            if not fits(part, hints.get(field.name, Any)):
                raise UnsupportedError(
                    f"{path}.{field.name}: expected {field.type}, found {type(part).__name__}; "
                    "a file holding it could not be read back"
                )
            made[field.name] = self.node(part, f"{path}.{field.name}", variable, depth + 1)
        return {"record": [type(value).__name__, made]}

    def _column(self, array: NDArray[Any], path: str, variable: str | None) -> Node:
        if array.dtype == object and array.ndim == 1:
            values = [self._value(value, f"{path}[{i}]", variable, 0) for i, value in enumerate(array)]
            return {"objects": values}
        if array.dtype.kind == "U" and array.ndim == 1:
            return {"texts": array.tolist()}
        return {"array": self._array(array, path)}

    def _array(self, array: NDArray[Any], path: str) -> int:
        number = self._numbers.get(id(array))
        if number is None:
            little = array.dtype.newbyteorder("<")
            if type(array) not in (np.ndarray, np.memmap) or little.str not in DTYPES:
                raise UnsupportedError(
                    f"{path}: an array of dtype {array.dtype} ({type(array).__name__}) is not stored; "
                    "only of real numbers and truth values"
                )
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise UnsupportedError(f"{path}: holds NaN, which is not stored")
            if array.ndim > MOST_AXES:
                raise UnsupportedError(f"{path}: an array of {array.ndim} axes is not stored")
            number = self._numbers[id(array)] = len(self.arrays)
            self._kept.append(array)
            self.arrays.append(array.astype(little, copy=False))
        return number

    def _table(self, table: Any, path: str) -> Node:
        if type(table) is not sparse.csr_array or table.ndim != 2:
            raise UnsupportedError(
                f"{path}: a sparse {type(table).__name__} is not stored; convert it to csr_array"
            )
        filled = int(table.indptr[-1])
        parts = {"data": table.data, "indices": table.indices, "indptr": table.indptr}
        for name in ("data", "indices"):
            parts[name] = parts[name] if len(parts[name]) == filled else parts[name][:filled]
        numbers = {name: self._array(part, f"{path}.{name}") for name, part in parts.items()}
        return {"csr": {**numbers, "shape": [int(size) for size in table.shape]}}

    def _kernel(self, kernel: Kernel, path: str, variable: str | None) -> Node:
        number = self._numbers.get(id(kernel))
        if number is None:
            try:
                spec = to_spec(kernel)
            except UnsupportedError as error:
                if variable is None:
                    raise UnsupportedError(f"{path}: {error}") from None
                self.own[variable] = type(kernel).__qualname__
                return {"own kernel": variable}
            number = self._numbers[id(kernel)] = len(self.kernels)
            self._kept.append(kernel)
            self.kernels.append(self._without_long_texts(spec))
        return {"kernel": number}

    def _without_long_texts(self, spec: Any) -> Any:
        if isinstance(spec, str) and len(spec) > LONG_TEXT:
            letters = np.frombuffer(spec.encode("utf-8"), dtype=np.uint8)
            return {"long text": self._array(letters, "a kernel's description")}
        if isinstance(spec, dict):
            return {key: self._without_long_texts(part) for key, part in spec.items()}
        return [self._without_long_texts(part) for part in spec] if isinstance(spec, list) else spec

    def _value(self, value: Any, path: str, variable: str | None, depth: int) -> Node:
        """One of a user's values: a leaf, or a tuple, frozenset, dict or array of such."""
        leaf = _leaf(value)
        if leaf is not NOT_A_LEAF:
            return leaf
        if (
            type(value) is np.ndarray
            and value.dtype == np.float64
            and value.ndim <= MOST_AXES
            and value.size <= MOST_ENTRIES
        ):
            numbers = value.ravel().tolist()
            return {"values": [list(value.shape), [_leaf(number) for number in numbers]]}
        if depth > MOST_DEPTH:
            raise UnsupportedError(f"{path}: nested more than {MOST_DEPTH} deep, which is not stored")
        if _is_networkx(value):
            return self._graph(value, path, variable, depth)
        if type(value) not in (tuple, frozenset, dict):
            self._refuse(value, path, variable)
        if type(value) is dict:
            entries = [
                [self._value(part, path, variable, depth + 1) for part in item] for item in value.items()
            ]
            return {"dict": entries}
        parts = [self._value(part, path, variable, depth + 1) for part in value]
        # A set has no order of its own; its members' texts give one, so that equal sets make equal files.
        return {type(value).__name__: sorted(parts, key=json.dumps) if type(value) is frozenset else parts}

    def _graph(self, graph: Any, path: str, variable: str | None, depth: int) -> Node:
        """A networkx graph: nodes in their order, edges as pairs of places in it, attributes of all."""
        if graph.is_directed() or graph.is_multigraph() or type(graph) is not sys.modules["networkx"].Graph:
            self._refuse(graph, path, variable, "; make it a networkx.Graph")

        def attributes(data: Mapping[Any, Any], of: str) -> list[Node]:
            for name in data:
                if type(name) is not str:
                    self._refuse(
                        name, f"{path}, the name of an attribute of {of}", variable, "; name it by text"
                    )
            return [
                [name, self._value(part, f"{path}, attribute {name!r} of {of}", variable, depth + 1)]
                for name, part in data.items()
            ]

        places = {node: place for place, node in enumerate(graph)}
        nodes = [
            [
                self._value(node, f"{path}, a node", variable, depth + 1),
                attributes(data, f"node {node!r:.60}"),
            ]
            for node, data in graph.nodes.items()
        ]
        edges = [
            [*sorted((places[first], places[second])), attributes(data, f"edge {(first, second)!r:.60}")]
            for (first, second), data in graph.edges.items()
        ]
        edges.sort(key=lambda edge: edge[:2])
        return {"graph": {"nodes": nodes, "edges": edges, "attributes": attributes(graph.graph, "the graph")}}

    def _refuse(self, value: Any, path: str, variable: str | None, advice: str = "") -> NoReturn:
        whose = "" if variable is None else f" (variable {variable!r})"
        size = " of this size" if type(value) is int else ""
        raise UnsupportedError(
            f"{path}{whose}: a value of type {type(value).__name__}{size} is not stored; a model file holds only "
            "text, numbers, bytes, tuples, frozensets and dicts of these, arrays, undirected networkx graphs without "
            f"parallel edges, and kernels of kernelbp or scikit-learn{advice}"
        )


def _is_networkx(value: Any) -> bool:
    """Whether a value is a graph of networkx, which then has been imported: it is slow to import for a look."""
    networkx = sys.modules.get("networkx")
    return networkx is not None and isinstance(value, networkx.Graph)
