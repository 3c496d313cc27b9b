"""Nodes to objects: the parts of a model from text and numbers that may say anything.

`kernelbp.storage.writing` is the way here. A node can only become what `RECORDS`, the kernels of the library
and the few plain types below allow. Nothing here touches the disk.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelbp.errors import InputError, ModelFileError
from kernelbp.kernels import Kernel, from_spec, resolve
from kernelbp.learning.examples import VariableExamples
from kernelbp.storage.fields import RECORDS, fits, hints_of, init_fields
from kernelbp.storage.limits import MOST_AXES, MOST_BYTES, MOST_DEPTH, as_index, as_list, require
from kernelbp.values import Column

__all__ = ["Reader"]


class Reader:
    """Turns nodes that may say anything into objects, or refuses them.

    Parameters
    ----------
    arrays : those of the file, by number
    kernels : specifications of kernels, by number
    given : the user's own kernels, by variable
    """

    def __init__(self, arrays: list[NDArray[Any]], kernels: Any, given: dict[str, Kernel]) -> None:
        require(type(kernels) is list, "its kernels are not a list")
        self.arrays = arrays
        self.given = given
        self.resolving = False
        """Whether the user's own kernels get their settings from the examples, as in fitting."""
        self._examples: VariableExamples | None = None
        self._resolved: dict[str, Kernel] = {}
        self._readers: dict[str, Callable[[Any, int], Any]] = {
            "array": lambda body, depth: self._array(body),
            "bytes": lambda body, depth: base64.b64decode(body, validate=True),
            "csr": lambda body, depth: self._table(body),
            "float": lambda body, depth: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[body],
            "frozenset": lambda body, depth: self._compound("frozenset", body, depth),
            "kernel": lambda body, depth: self.kernels[as_index(body, len(self.kernels))],
            "list": lambda body, depth: [self.node(part, depth + 1) for part in as_list(body)],
            "mapping": self._mapping,
            "objects": self._objects,
            "own kernel": lambda body, depth: self._own_kernel(body),
            "record": self._record,
            "texts": lambda body, depth: np.array([_text(part) for part in as_list(body)], dtype=np.str_),
            "tuple": lambda body, depth: tuple(self.node(part, depth + 1) for part in as_list(body)),
        }
        self.kernels = [self._kernel(spec) for spec in kernels]

    def node(self, node: Any, depth: int = 0) -> Any:
        """The object a node stands for."""
        if depth > MOST_DEPTH:
            raise ModelFileError(f"is nested more than {MOST_DEPTH} deep")
        if node is None or type(node) in (bool, int, float, str):
            return node
        if type(node) is not dict or len(node) != 1:
            raise ModelFileError(f"has a piece that is not a node: {node!r:.60}")
        ((kind, body),) = node.items()
        if kind not in self._readers:
            raise ModelFileError(f"has a node of unknown kind {kind!r:.60}")
        return self._readers[kind](body, depth)

    def _value(self, node: Any, depth: int) -> Any:
        """One of a user's values: only what the writer's method of this name writes."""
        if type(node) is dict and len(node) == 1:
            ((kind, body),) = node.items()
            if kind == "values":
                return self._numbers(body, depth)
            if kind in ("dict", "frozenset", "graph", "tuple"):
                return self._compound(kind, body, depth)
            require(kind in ("bytes", "float"), f"has a value of unknown kind {kind!r:.60}")
        return self.node(node, depth)

    def _compound(self, kind: str, body: Any, depth: int) -> Any:
        require(depth <= MOST_DEPTH, f"is nested more than {MOST_DEPTH} deep")
        if kind == "dict":
            return self._dictionary(body, depth)
        if kind == "graph":
            return self._graph(body, depth)
        parts = [self._value(part, depth + 1) for part in as_list(body)]
        return frozenset(parts) if kind == "frozenset" else tuple(parts)

    def _graph(self, body: Any, depth: int) -> Any:
        """A networkx graph: as many nodes and edges as are listed, whatever a file may claim."""
        import networkx

        require(
            type(body) is dict and set(body) == {"nodes", "edges", "attributes"},
            "has a graph without its parts",
        )
        graph = networkx.Graph()
        graph.graph.update(self._attributes(body["attributes"], depth))
        names = []
        for entry in as_list(body["nodes"]):
            require(type(entry) is list and len(entry) == 2, "has a graph whose node is not a pair")
            name = self._value(entry[0], depth + 1)
            require(
                isinstance(name, str | int | float | bytes | tuple | frozenset) and name == name,
                "has a graph with a node of another kind",
            )
            require(name not in graph, f"has a graph with the node {name!r:.60} twice")
            graph.add_node(name)
            graph.nodes[name].update(self._attributes(entry[1], depth))
            names.append(name)
        for entry in as_list(body["edges"]):
            require(
                type(entry) is list and len(entry) == 3, "has a graph whose edge is not two places and more"
            )
            first, second = (names[as_index(place, len(names))] for place in entry[:2])
            require(not graph.has_edge(first, second), "has a graph with an edge twice")
            graph.add_edge(first, second)
            graph.edges[first, second].update(self._attributes(entry[2], depth))
        return graph

    def _attributes(self, body: Any, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for entry in as_list(body):
            require(
                type(entry) is list and len(entry) == 2 and type(entry[0]) is str and entry[0] not in made,
                "has a graph with attributes that are not names, each once, and values",
            )
            made[entry[0]] = self._value(entry[1], depth + 1)
        return made

    def _dictionary(self, body: Any, depth: int) -> dict[Any, Any]:
        """A user's record: keys and values."""
        made: dict[Any, Any] = {}
        for entry in as_list(body):
            require(type(entry) is list and len(entry) == 2, "has a record whose entry is not a pair")
            key, value = (self._value(part, depth + 1) for part in entry)
            require(
                key is None or isinstance(key, str | int | float | bytes | tuple | frozenset),
                "has a record with a key of another kind",
            )
            require(key not in made, f"has the key {key!r:.60} twice in one record")
            made[key] = value
        return made

    def _numbers(self, body: Any, depth: int) -> NDArray[np.float64]:
        """A user's small array of numbers, such as a matrix."""
        require(type(body) is list and len(body) == 2, "has an array without shape and numbers")
        shape, flat = as_list(body[0]), [self._value(part, depth + 1) for part in as_list(body[1])]
        require(
            len(shape) <= MOST_AXES and all(type(size) is int and size >= 0 for size in shape),
            "has an array of no possible shape",
        )
        require(
            math.prod(shape) == len(flat) and all(type(number) is float for number in flat),
            "has an array whose numbers do not fill its shape",
        )
        return np.array(flat, dtype=np.float64).reshape(shape)

    def _objects(self, body: Any, depth: int) -> Column:
        values = [self._value(part, depth + 1) for part in as_list(body)]
        column = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):
            column[index] = value
        return column

    def _mapping(self, body: Any, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for entry in as_list(body):
            require(type(entry) is list and len(entry) == 2, "has a mapping whose entry is not a pair")
            key = self._value(entry[0], depth + 1)
            require(key not in made, f"has the key {key!r:.60} twice in one mapping")
            made[key] = self.node(entry[1], depth + 1)
        return made

    def _record(self, body: Any, depth: int) -> Any:
        require(
            type(body) is list and len(body) == 2 and type(body[0]) is str and type(body[1]) is dict,
            "has a record without name and fields",
        )
        name, stored = body
        if name not in RECORDS:
            raise ModelFileError(f"holds a record of unknown kind {name!r:.60}")
        record = RECORDS[name]
        known = {field.name: field for field in init_fields(record)}
        unknown = sorted(set(stored) - set(known))
        require(not unknown, f"has fields of {name} this version does not know: {', '.join(unknown)[:200]}")
        for field in known.values():
            if field.name not in stored and field.default is MISSING and field.default_factory is MISSING:
                raise ModelFileError(
                    f"has no {field.name} in {name}; it may be of an older version: fit and save again"
                )
        # Examples come first, since a user's own kernel takes its settings from them.
        made = {}
        hints = hints_of(record)
        for key in sorted(stored, key=lambda key: key != "examples"):
            made[key] = self.node(stored[key], depth + 1)
            if isinstance(made[key], VariableExamples):
                self._examples = made[key]
            if not fits(made[key], hints.get(key, Any)):
                raise ModelFileError(f"has a {name} whose {key} is not {known[key].type}")
        return record(**made)

    def _array(self, body: Any) -> NDArray[Any]:
        return self.arrays[as_index(body, len(self.arrays))]

    def _table(self, body: Any) -> Any:
        require(
            type(body) is dict and set(body) == {"data", "indices", "indptr", "shape"},
            "has a table without its parts",
        )
        shape = [as_index(size, MOST_BYTES) for size in as_list(body["shape"])]
        require(len(shape) == 2, "has a table that does not have two axes")
        data, indices, indptr = (self._array(body[name]) for name in ("data", "indices", "indptr"))
        require(
            data.ndim == indices.ndim == indptr.ndim == 1
            and indices.dtype in (np.int32, np.int64)
            and indptr.dtype in (np.int32, np.int64)
            and len(indptr) == shape[0] + 1
            and indptr[0] == 0
            and indptr[-1] == len(indices) == len(data)
            and bool((indptr[1:] >= indptr[:-1]).all())
            and (len(indices) == 0 or (indices.min() >= 0 and indices.max() < shape[1])),
            "has a table whose indices do not fit its shape",
        )
        return sparse.csr_array((data, indices, indptr), shape=tuple(shape))

    def _kernel(self, spec: Any) -> Kernel:
        try:
            return from_spec(self._with_long_texts(spec, 0))
        except InputError as error:
            raise ModelFileError(f"describes a kernel that is not known ({error})") from error

    def _with_long_texts(self, spec: Any, depth: int) -> Any:
        require(depth <= 4 * MOST_DEPTH, "describes a kernel that is nested too deep")
        if type(spec) is dict and set(spec) == {"long text"}:
            return self._array(spec["long text"]).tobytes().decode("utf-8")
        if type(spec) is dict:
            return {key: self._with_long_texts(part, depth + 1) for key, part in spec.items()}
        return [self._with_long_texts(part, depth + 1) for part in spec] if type(spec) is list else spec

    def _own_kernel(self, variable: Any) -> Kernel:
        if type(variable) is not str or variable not in self.given:
            raise ModelFileError(f"asks for a kernel it does not list, of variable {variable!r:.60}")
        if not self.resolving:
            return self.given[variable]
        if variable not in self._resolved:
            if self._examples is None:
                raise ModelFileError(f"has a kernel of variable {variable!r:.60} without examples")
            counts = self._examples.counts.astype(np.intp)
            self._resolved[variable] = resolve(self.given[variable], self._examples.values, counts)
        return self._resolved[variable]


def _text(body: Any) -> str:
    if type(body) is not str:
        raise ModelFileError(f"has {body!r:.60} where text belongs")
    return body
