"""A fitted model in one file: numbers and text, nothing that can run.

A model file (``.kbp``) is a zip archive of uncompressed members, so that any tool can look inside:

``model.json``
    the format's name and version, the constructor's settings, what was learned, the kernels as
    `kernelbp.kernels.to_spec` writes them, and for every array its dtype, shape and SHA-256;
``arrays/0.npy``, ``arrays/1.npy``, ...
    the arrays, in NumPy's format, never pickled.

The archive's comment holds the SHA-256 of ``model.json``. These sums find damage, not forgery: whoever can
write the file can write the sums. So nothing in a file is trusted: it cannot name code (records and kernels
are looked up in fixed tables), it cannot claim more memory than it takes on the disk, and what it holds is
checked for consistency before a model is returned.

In ``model.json`` text, numbers, true, false and null stand for themselves; everything else is a *node*, an
object with one key that says what it is: ``{"array": 3}``, ``{"tuple": [...]}``, ``{"mapping": [[key, value],
...]}``, ``{"record": ["Moments", {...}]}``, ``{"graph": {"nodes": [...], "edges": [...], ...}}`` for a networkx
graph, and so on. A new field of a record is stored without a change here;
a new record needs a line in `RECORDS`.
"""

from __future__ import annotations

import base64
import collections.abc
import hashlib
import inspect
import json
import math
import os
import re
import secrets
import shutil
import struct
import sys
import types
import typing
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, get_args, get_origin

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import sparse

import kernelbp
from kernelbp.calibration import GraphCalibration
from kernelbp.errors import InputError, KernelBPError, ModelFileError, UnsupportedError
from kernelbp.kernels import Kernel, check_values, from_spec, resolve, to_spec
from kernelbp.learning.embedding import Embedding, Moments
from kernelbp.learning.estimators import Calibration, RidgePosterior
from kernelbp.learning.examples import VariableExamples
from kernelbp.learning.marginal import Marginal, Parzen
from kernelbp.learning.operators import LearnedRelation
from kernelbp.learning.probability import States
from kernelbp.learning.readings import ReadingLikelihood
from kernelbp.learning.tuning import Smoothing
from kernelbp.lowrank import Basis, LowRank
from kernelbp.model import Fitted, Model, Relation
from kernelbp.values import Column, Kind

__all__ = ["load_model", "save_model"]

FORMAT = "kernelbp model"
VERSION = 1
"""Raised when a file of the new kind would be misread by an older library. New fields do not need it: a
library that does not know a field refuses the file by itself."""

RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        Basis,
        Calibration,
        Embedding,
        Fitted,
        GraphCalibration,
        Kind,
        LearnedRelation,
        LowRank,
        Marginal,
        Moments,
        Parzen,
        ReadingLikelihood,
        Relation,
        RidgePosterior,
        Smoothing,
        States,
        VariableExamples,
    )
}
"""The dataclasses a file may hold: the only classes that reading it can make, besides kernels."""

MOST_BYTES = 16 << 30
"""Largest file, and so largest model, taken."""
MOST_MEMBERS = 60_000
"""Most arrays; below what a plain zip directory can count."""
MOST_DIRECTORY = MOST_MEMBERS * 128
"""Largest zip directory in bytes: an entry of ours takes 63 to 91."""
MOST_TEXT = 256 << 20
"""Largest model.json in bytes. Parsed, it may take some twenty times as much memory."""
MOST_ENTRIES = 1 << 16
"""Largest array that may be one value of a variable."""
MOST_DEPTH = 64
"""Nodes within nodes; what we write stays under ten unless a user's own values are deeper."""
MOST_AXES = 8
MOST_HEADER = 1000
"""Largest header of an array in bytes; ours have 118."""
MOST_BITS = 4096
"""Largest whole number among a user's values; Python reads decimals of some 14,000 bits at most."""
LONG_TEXT = 4096
"""Longer texts in a kernel's description (the table of a Precomputed kernel) are kept as arrays."""
CHUNK = 1 << 20
"""Bytes read and summed at a time."""

DTYPES = ("<f8", "<f4", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")
MANIFEST = "model.json"
MEMBER_START = b"PK\x03\x04"
COMMENT = re.compile(rb"kernelbp-model sha256:([0-9a-f]{64})")
COMMENT_LENGTH = 86
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that equal models make equal files."""

MALFORMED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""What Python's and NumPy's readers raise on input they do not understand."""

Node = Any
"""A piece of model.json."""


# ---------------------------------------------------------------------- the two ways in


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file.

    The file appears whole or not at all: it is written under another name in the same folder, flushed to
    the disk, and then takes the place of an earlier one. Equal models make equal files.

    Parameters
    ----------
    model : Model
        Fitted.
    path : path of the file, by custom ending in ``.kbp``

    Raises
    ------
    NotFittedError
        If there is nothing learned to write.
    UnsupportedError
        If the model holds something that cannot be written as numbers and text: values that are not made
        of text, numbers, bytes, tuples, frozensets, dicts, arrays and networkx graphs, or a relation's setting
        that is a function or an estimator. A kernel of your own class is left out, to be handed to `load_model`.

    Examples
    --------
    >>> import os, tempfile
    >>> import kernelbp as kb
    >>> model = kb.Model({"x": kb.kernels.Delta()}, {"r": kb.Relation("x", "x", symmetric=True)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model.fit({"r": (["a", "b"], ["b", "b"])}), os.path.join(folder, "letters.kbp"))
    ...     load_model(os.path.join(folder, "letters.kbp"), {})
    Model(variables: x; relations: r; fitted)
    """
    fitted = model._need_fitted()
    try:
        _check_model(model, fitted)
    except ModelFileError as error:
        raise UnsupportedError(f"this model cannot be stored: {error}") from error
    settings = {name: getattr(model, name) for name in _settings()}
    for name, value in settings.items():
        if not _fits_setting(value, name):
            raise UnsupportedError(
                f"{name}: expected {inspect.signature(Model).parameters[name].annotation}, "
                f"found {type(value).__name__}; a file holding it could not be read back"
            )
    writer = _Writer(frozenset(model.variables))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "written by": kernelbp.__version__,
        "settings": {name: writer.node(value, name) for name, value in settings.items()},
        "fitted": writer.node(fitted, "fitted"),
        "own kernels": writer.own,
        "kernels": writer.kernels,
        "arrays": [_described(array) for array in writer.arrays],
    }
    text = json.dumps(document, allow_nan=False, separators=(",", ":")).encode("ascii")
    total = len(text) + sum(array.nbytes + MOST_HEADER for array in writer.arrays)
    for what, size, most in (
        ("bytes of text", len(text), MOST_TEXT),
        ("arrays", len(writer.arrays), MOST_MEMBERS),
        ("bytes", total, MOST_BYTES),
    ):
        if size > most:
            raise UnsupportedError(
                f"this model is too large for a file: {size:,} {what}, at most {most:,} are read back"
            )
    _write_file(Path(os.path.realpath(path)), text, writer.arrays)


def load_model(path: str | os.PathLike[str], kernels: Mapping[str, Kernel]) -> Model:
    """Read a model written by `save_model`.

    Parameters
    ----------
    path : path of the file
    kernels : mapping from variable name to kernel
        For each variable whose kernel is your own class, that kernel, and for no other.

    Returns
    -------
    Model
        Fitted, with the same beliefs to the last bit as the model that was saved.

    Raises
    ------
    ModelFileError
        If the file is truncated, altered, larger than allowed, of a newer version or not a model at all.
        Nothing it holds is run in finding out.
    InputError
        If a kernel is missing from `kernels` or not wanted there.
    """
    given = _checked_kernels(kernels)
    try:
        with open(path, "rb") as file:
            document, arrays = _read_file(file, os.fstat(file.fileno()).st_size)
        wanted = document["own kernels"]
        _require(
            type(wanted) is dict and all(type(label) is str for label in wanted.values()),
            "its list of kernels is not one",
        )
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__
    _check_given(wanted, given)
    try:
        return _made_model(document, _Reader(arrays, document["kernels"], given))
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__
    except UnsupportedError:
        raise
    except MALFORMED as error:
        reason = str(error) if isinstance(error, KernelBPError) else f"{type(error).__name__}: {error}"
        raise ModelFileError(f"{os.fspath(path)}: does not hold a valid model ({reason:.300})") from error


def _made_model(document: dict[str, Any], reader: _Reader) -> Model:
    stored, known = document["settings"], _settings()
    _require(type(stored) is dict, "its settings are not a mapping")
    unknown = sorted(set(stored) - set(known))
    _require(not unknown, f"has settings this version of kernelbp does not know: {', '.join(unknown)}")
    settings = {name: reader.node(node) for name, node in stored.items()}
    for name, value in settings.items():
        _require(_fits_setting(value, name), f"has a setting {name} of another type than it takes")
    model = Model(**settings)
    reader.resolving = True
    fitted = reader.node(document["fitted"])
    _require(type(fitted) is Fitted, "holds no fitted model")
    _check_model(model, fitted)
    model._fitted = fitted
    return model


def _settings() -> list[str]:
    """What the constructor takes, so that a new setting is stored without a change here."""
    return list(inspect.signature(Model).parameters)


def _checked_kernels(kernels: Any) -> dict[str, Kernel]:
    if not isinstance(kernels, Mapping):
        raise InputError(
            f"kernels: expected a mapping from variable name to kernel, got {type(kernels).__name__}"
        )
    for name, kernel in kernels.items():
        if isinstance(kernel, type) or not isinstance(kernel, Kernel):
            raise InputError(
                f"kernels[{name!r}]: expected a kernel (callable on two arrays, with diag), "
                f"got {type(kernel).__name__}"
            )
    return dict(kernels)


def _check_given(wanted: dict[str, str], given: dict[str, Kernel]) -> None:
    for name, label in wanted.items():
        if name not in given:
            raise InputError(
                f"kernels: the kernel of variable {name!r} is of a class of its own ({label:.80}), which a model "
                f"file does not hold; give it with kernels={{{name!r}: ...}}"
            )
    for name in given:
        if name not in wanted:
            raise InputError(
                f"kernels: variable {name!r} is not one whose kernel must be given; "
                f"those of this file are: {', '.join(wanted) or 'none'}"
            )


def _require(condition: object, text: str) -> None:
    if not condition:
        raise ModelFileError(text)


# ---------------------------------------------------------------------- objects to nodes

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


class _Writer:
    """Turns objects into nodes, and sets arrays and kernels aside, each once however often it occurs."""

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
        hints = _hints(type(value))
        for field in _init_fields(type(value)):
            part = getattr(value, field.name)
            if not _fits(part, hints.get(field.name, Any)):
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
            numbers = value.astype(np.float64).ravel().tolist()
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


def _init_fields(record: type[Any]) -> list[Field[Any]]:
    return [field for field in fields(record) if field.init]


# ---------------------------------------------------------------------- nodes to objects


class _Reader:
    """Turns nodes that may say anything into objects, or refuses them.

    Parameters
    ----------
    arrays : those of the file, by number
    kernels : specifications of kernels, by number
    given : the user's own kernels, by variable
    """

    def __init__(self, arrays: list[NDArray[Any]], kernels: Any, given: dict[str, Kernel]) -> None:
        _require(type(kernels) is list, "its kernels are not a list")
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
            "frozenset": lambda body, depth: self._value({"frozenset": body}, depth),
            "kernel": lambda body, depth: self.kernels[_index(body, len(self.kernels))],
            "list": lambda body, depth: [self.node(part, depth + 1) for part in _list(body)],
            "mapping": self._mapping,
            "objects": self._objects,
            "own kernel": lambda body, depth: self._own_kernel(body),
            "record": self._record,
            "texts": lambda body, depth: np.array([_text(part) for part in _list(body)], dtype=np.str_),
            "tuple": lambda body, depth: tuple(self.node(part, depth + 1) for part in _list(body)),
        }
        self.kernels = [self._kernel(spec) for spec in kernels]

    def node(self, node: Node, depth: int = 0) -> Any:
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

    def _value(self, node: Node, depth: int) -> Any:
        """One of a user's values: only what `_Writer._value` writes."""
        if type(node) is dict and len(node) == 1:
            ((kind, body),) = node.items()
            if kind in ("frozenset", "tuple"):
                _require(depth <= MOST_DEPTH, f"is nested more than {MOST_DEPTH} deep")
                parts = [self._value(part, depth + 1) for part in _list(body)]
                return frozenset(parts) if kind == "frozenset" else tuple(parts)
            if kind == "dict":
                _require(depth <= MOST_DEPTH, f"is nested more than {MOST_DEPTH} deep")
                return self._dictionary(body, depth)
            if kind == "values":
                return self._numbers(body, depth)
            if kind == "graph":
                _require(depth <= MOST_DEPTH, f"is nested more than {MOST_DEPTH} deep")
                return self._graph(body, depth)
            _require(kind in ("bytes", "float"), f"has a value of unknown kind {kind!r:.60}")
        return self.node(node, depth)

    def _graph(self, body: Any, depth: int) -> Any:
        """A networkx graph: as many nodes and edges as are listed, whatever a file may claim."""
        import networkx

        _require(
            type(body) is dict and set(body) == {"nodes", "edges", "attributes"},
            "has a graph without its parts",
        )
        graph = networkx.Graph()
        graph.graph.update(self._attributes(body["attributes"], depth))
        names = []
        for entry in _list(body["nodes"]):
            _require(type(entry) is list and len(entry) == 2, "has a graph whose node is not a pair")
            name = self._value(entry[0], depth + 1)
            _require(
                isinstance(name, str | int | float | bytes | tuple | frozenset) and name == name,
                "has a graph with a node of another kind",
            )
            _require(name not in graph, f"has a graph with the node {name!r:.60} twice")
            graph.add_node(name)
            graph.nodes[name].update(self._attributes(entry[1], depth))
            names.append(name)
        for entry in _list(body["edges"]):
            _require(
                type(entry) is list and len(entry) == 3, "has a graph whose edge is not two places and more"
            )
            first, second = (names[_index(place, len(names))] for place in entry[:2])
            _require(not graph.has_edge(first, second), "has a graph with an edge twice")
            graph.add_edge(first, second)
            graph.edges[first, second].update(self._attributes(entry[2], depth))
        return graph

    def _attributes(self, body: Any, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for entry in _list(body):
            _require(
                type(entry) is list and len(entry) == 2 and type(entry[0]) is str and entry[0] not in made,
                "has a graph with attributes that are not names, each once, and values",
            )
            made[entry[0]] = self._value(entry[1], depth + 1)
        return made

    def _dictionary(self, body: Any, depth: int) -> dict[Any, Any]:
        """A user's record: keys and values."""
        made: dict[Any, Any] = {}
        for entry in _list(body):
            _require(type(entry) is list and len(entry) == 2, "has a record whose entry is not a pair")
            key, value = (self._value(part, depth + 1) for part in entry)
            _require(
                key is None or isinstance(key, str | int | float | bytes | tuple | frozenset),
                "has a record with a key of another kind",
            )
            _require(key not in made, f"has the key {key!r:.60} twice in one record")
            made[key] = value
        return made

    def _numbers(self, body: Any, depth: int) -> NDArray[np.float64]:
        """A user's small array of numbers, such as a matrix."""
        _require(type(body) is list and len(body) == 2, "has an array without shape and numbers")
        shape, flat = _list(body[0]), [self._value(part, depth + 1) for part in _list(body[1])]
        _require(
            len(shape) <= MOST_AXES and all(type(size) is int and size >= 0 for size in shape),
            "has an array of no possible shape",
        )
        count = 1
        for size in shape:
            count *= size
        _require(
            count == len(flat) and all(type(number) is float for number in flat),
            "has an array whose numbers do not fill its shape",
        )
        return np.array(flat, dtype=np.float64).reshape(shape)

    def _objects(self, body: Any, depth: int) -> Column:
        values = [self._value(part, depth + 1) for part in _list(body)]
        column = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):
            column[index] = value
        return column

    def _mapping(self, body: Any, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for entry in _list(body):
            _require(type(entry) is list and len(entry) == 2, "has a mapping whose entry is not a pair")
            key = self._value(entry[0], depth + 1)
            _require(key not in made, f"has the key {key!r:.60} twice in one mapping")
            made[key] = self.node(entry[1], depth + 1)
        return made

    def _record(self, body: Any, depth: int) -> Any:
        _require(
            type(body) is list and len(body) == 2 and type(body[0]) is str and type(body[1]) is dict,
            "has a record without name and fields",
        )
        name, stored = body
        if name not in RECORDS:
            raise ModelFileError(f"holds a record of unknown kind {name!r:.60}")
        record = RECORDS[name]
        known = {field.name: field for field in _init_fields(record)}
        unknown = sorted(set(stored) - set(known))
        _require(not unknown, f"has fields of {name} this version does not know: {', '.join(unknown)[:200]}")
        for field in known.values():
            if field.name not in stored and field.default is MISSING and field.default_factory is MISSING:
                raise ModelFileError(
                    f"has no {field.name} in {name}; it may be of an older version: fit and save again"
                )
        # Examples come first, since a user's own kernel takes its settings from them.
        made = {}
        hints = _hints(record)
        for key in sorted(stored, key=lambda key: key != "examples"):
            made[key] = self.node(stored[key], depth + 1)
            if isinstance(made[key], VariableExamples):
                self._examples = made[key]
            if not _fits(made[key], hints.get(key, Any)):
                raise ModelFileError(f"has a {name} whose {key} is not {known[key].type}")
        return record(**made)

    def _array(self, body: Any) -> NDArray[Any]:
        return self.arrays[_index(body, len(self.arrays))]

    def _table(self, body: Any) -> Any:
        _require(
            type(body) is dict and set(body) == {"data", "indices", "indptr", "shape"},
            "has a table without its parts",
        )
        shape = [_index(size, MOST_BYTES) for size in _list(body["shape"])]
        _require(len(shape) == 2, "has a table that does not have two axes")
        data, indices, indptr = (self._array(body[name]) for name in ("data", "indices", "indptr"))
        _require(
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
        _require(depth <= 4 * MOST_DEPTH, "describes a kernel that is nested too deep")
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


def _index(number: Any, size: int) -> int:
    if type(number) is not int or not 0 <= number < size:
        raise ModelFileError(f"has {number!r:.60} where a whole number from 0 to {size - 1} belongs")
    return number


def _list(body: Any) -> list[Any]:
    if type(body) is not list:
        raise ModelFileError(f"has {body!r:.60} where a list belongs")
    return body


def _text(body: Any) -> str:
    if type(body) is not str:
        raise ModelFileError(f"has {body!r:.60} where text belongs")
    return body


# ---------------------------------------------------------------------- types of fields


def _fits_setting(value: Any, name: str) -> bool:
    """As `_fits`, but 50.0 passes for 50 and 1 for True, as they do in fitting."""
    number = value.item() if isinstance(value, np.generic) else value
    meant = [value]
    if type(number) is float and number.is_integer():
        meant.append(int(number))
    if type(number) is int and number in (0, 1):
        meant.append(bool(number))
    hint = _hints(Model.__init__).get(name, Any)
    return any(_fits(one, hint) for one in meant)


def _hints(record: Any) -> dict[str, Any]:
    if record is Relation:  # it checks itself, and takes a 1 for True
        return {}
    try:
        return typing.get_type_hints(record)
    except NameError:  # a type imported for the type checker only: then fields go unchecked here
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; annotations beyond those the records use let it pass."""
    value = value.item() if isinstance(value, np.generic) else value
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return isinstance(value, tuple) and all(_fits(part, args[0]) for part in value)
        return isinstance(value, tuple) and len(value) == len(args) and all(map(_fits, value, args))
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, args[0]) and _fits(part, args[1]) for key, part in value.items()
        )
    if origin is np.ndarray:
        scalar = (get_args(args[1]) or (Any,))[0]
        return isinstance(value, np.ndarray) and (
            scalar is Any or not isinstance(scalar, type) or issubclass(value.dtype.type, scalar)
        )
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and origin is None else True


# ---------------------------------------------------------------------- what must hold of a model


def _check_model(model: Model, fitted: Fitted) -> None:
    """Refuse a model whose parts do not fit together. Used in reading, and in writing so that both agree."""
    try:
        model._check_settings()
    except InputError as error:
        raise ModelFileError(f"settings do not hold: {error}") from error
    _require(
        {name: (r.first, r.second) for name, r in fitted.relations.items()}
        == {name: (r.first, r.second) for name, r in model.relations.items()},
        "the relations learned are not the model's; if they were changed after fitting, fit again",
    )
    ends = {end for learned in fitted.relations.values() for end in (learned.first, learned.second)}
    _require(set(fitted.embeddings) == ends, "the variables learned are not those of the relations")
    for name, embedding in fitted.embeddings.items():
        _check_embedding(embedding, f"variable {name!r}")
    for name, learned in fitted.relations.items():
        first, second = fitted.embeddings[learned.first], fitted.embeddings[learned.second]
        _check_relation(learned, first, second, f"relation {name!r}")


def _check_embedding(embedding: Embedding, name: str) -> None:
    values, counts, kind = embedding.examples.values, embedding.examples.counts, embedding.examples.kind
    _require(
        (kind.form, kind.dimension) in (("scalar", 1), ("object", 0))
        or (kind.form == "vector" and kind.dimension >= 1),
        f"{name}: its kind is not one",
    )
    _require(
        not kind.shape
        or (kind.form == "vector" and len(kind.shape) == 2 and math.prod(kind.shape) == kind.dimension),
        f"{name}: the shape of its values is not one",
    )
    _require(len(values) >= 1, f"{name}: has no examples")
    _require(
        counts.shape == (len(values),)
        and bool(np.isfinite(counts).all())
        and counts.min() >= 0
        and counts.sum() > 0,
        f"{name}: counts of examples do not fit the examples",
    )
    columns = {
        "examples": values,
        "basis points": embedding.basis.points,
        "support points": embedding.support.points,
        "states": embedding.states.points,
    }
    for what, column in columns.items():
        expected = (len(column),) if kind.form == "object" else (len(column), kind.dimension)
        dtype = np.dtype(object if kind.form == "object" else np.float64)
        _require(
            column.shape == expected and column.dtype == dtype,
            f"{name}: {what} are not of the variable's kind",
        )
        _require(kind.form == "object" or bool(np.isfinite(column).all()), f"{name}: {what} are not finite")
        try:
            check_values(embedding.kernel, column, what)
        except InputError as error:
            raise ModelFileError(f"{name}: {error}") from error
    for what, basis in (("basis", embedding.basis), ("support", embedding.support)):
        triangle, size = basis.triangle, len(basis.points)
        _require(
            triangle.shape == (size, size)
            and bool(np.isfinite(triangle).all())
            and bool((np.diagonal(triangle) > 0).all())
            and not np.tril(triangle, -1).any()
            and basis.power >= 1,
            f"{name}: the triangle of its {what} does not fit its points",
        )
    _require(
        embedding.states.power >= 1 and _are_masses(embedding.state_weights, (len(embedding.states.points),)),
        f"{name}: the weights of its states do not fit them",
    )
    _require(
        all(math.isfinite(residual) and residual >= 0 for residual in embedding.residuals),
        f"{name}: its residuals are not numbers of at least 0",
    )


def _check_relation(learned: LearnedRelation, first: Embedding, second: Embedding, name: str) -> None:
    table, moments = learned.table, learned.moments
    _require(
        type(table) is sparse.csr_array
        and table.shape == (len(first.examples.values), len(second.examples.values)),
        f"{name}: its table of pairs does not fit the examples of its variables",
    )
    _require(
        table.data.dtype == np.float64
        and bool(np.isfinite(table.data).all())
        and bool((table.data >= 0).all()),
        f"{name}: its table of pairs holds what is no count",
    )
    expected = {
        "auto": (moments.auto[0], first.basis, first.basis),
        "auto of the second end": (moments.auto[1], second.basis, second.basis),
        "cross": (moments.cross, first.basis, second.basis),
        "tensor": (moments.tensor[0], first.basis, second.support),
        "tensor of the second end": (moments.tensor[1], second.basis, first.support),
    }
    for what, (matrix, rows, columns) in expected.items():
        _require(
            matrix.shape == (len(rows.points), len(columns.points)) and bool(np.isfinite(matrix).all()),
            f"{name}: its moments ({what}) do not fit the bases of its variables",
        )
    _require(
        _are_masses(learned.joint, (len(first.states.points), len(second.states.points))),
        f"{name}: its joint table does not fit the states of its variables",
    )
    smoothing = learned.smoothing
    _require(
        all(math.isfinite(width) and width >= 0 for width in smoothing.widths)
        and 0 <= smoothing.mixing <= 1
        and (smoothing.score is None or math.isfinite(smoothing.score)),
        f"{name}: its smoothing does not hold",
    )
    if isinstance(learned.predictor, RidgePosterior):
        _check_posterior(learned.predictor, first, second, name)
    if learned.reading is not None:
        _check_reading(learned.reading, first, second, name)
    _require(
        math.isfinite(moments.total)
        and moments.total > 0
        and math.isfinite(learned.regularization)
        and learned.regularization >= 0,
        f"{name}: its number of pairs or its regularization does not hold",
    )


def _check_posterior(posterior: RidgePosterior, first: Embedding, second: Embedding, name: str) -> None:
    size, calibration = len(first.states.points), posterior.calibration
    _require(
        posterior.weights.shape == (len(second.basis.points), size)
        and posterior.offset.shape == (size,)
        and bool(np.isfinite(posterior.weights).all() and np.isfinite(posterior.offset).all())
        and _are_masses(posterior.base, (size,))
        and _are_masses(posterior.prior, (size,))
        and _are_masses(calibration.factors, (size,)),
        f"{name}: its regression does not fit the features and states of its variables",
    )
    _require(
        all(math.isfinite(number) and number >= 0 for number in (posterior.ridge, posterior.width))
        and math.isfinite(calibration.temperature)
        and calibration.temperature > 0
        and 0 <= calibration.share <= 1
        and (calibration.score is None or math.isfinite(calibration.score)),
        f"{name}: the settings of its regression do not hold",
    )


def _check_reading(reading: ReadingLikelihood, first: Embedding, second: Embedding, name: str) -> None:
    points, table = reading.points, reading.table
    _require(
        second.examples.values.dtype != object
        and second.examples.values.shape[1] == 1
        and points.ndim == 1
        and len(points) >= 1
        and points.dtype == table.dtype == np.float64
        and bool(np.isfinite(points).all())
        and bool((np.diff(points) > 0).all()),
        f"{name}: the points of its likelihood are not finite readings in ascending order",
    )
    _require(
        table.shape == (len(points), len(first.states.points))
        and bool(np.isfinite(table).all() and (table > 0).all()),
        f"{name}: the table of its likelihood does not fit its points and states",
    )
    _require(
        0 <= reading.share <= 1 and math.isfinite(reading.score) and math.isfinite(reading.exact),
        f"{name}: the settings of its likelihood do not hold",
    )


def _are_masses(table: NDArray[np.float64], shape: tuple[int, ...]) -> bool:
    return table.shape == shape and bool(np.isfinite(table).all() and (table >= 0).all() and table.sum() > 0)


# ---------------------------------------------------------------------- the file


class _Sum:
    """A place to write to that keeps the SHA-256 only."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return len(data)


def _described(array: NDArray[Any]) -> dict[str, Any]:
    total = _Sum()
    npy.write_array(total, array, version=(1, 0), allow_pickle=False)
    return {
        "dtype": array.dtype.newbyteorder("<").str,
        "shape": list(array.shape),
        # Products of matrices differ in their last bits between the two orders: keep the one there was.
        "order": "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C",
        "sha256": total.sha256.hexdigest(),
    }


def _member(number: int) -> str:
    return f"arrays/{number}.npy"


def _write_file(path: Path, text: bytes, arrays: list[NDArray[Any]]) -> None:
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(unfinished, "xb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.comment = b"kernelbp-model sha256:" + hashlib.sha256(text).hexdigest().encode("ascii")
                with archive.open(_info(MANIFEST, len(text)), "w") as member:
                    member.write(text)
                for number, array in enumerate(arrays):
                    info = _info(_member(number), array.nbytes + MOST_HEADER)
                    with archive.open(info, "w") as member:
                        npy.write_array(member, array, version=(1, 0), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _info(name: str, size: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system = 3  # the same bytes on Windows
    info.external_attr = 0o644 << 16
    info.file_size = size  # at most; tells zipfile whether a member needs the large form
    return info


def _flush_folder(folder: Path) -> None:
    """Bring the new name to the disk too, where the system allows to."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    except OSError:
        pass
    finally:
        os.close(number)


def _read_file(file: IO[bytes], size: int) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """The document and the arrays of a file, its sums checked, its document not yet."""
    _require(size <= MOST_BYTES, f"has {size:,} bytes, more than the {MOST_BYTES:,} allowed")
    checksum = _checked_end(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            members = _checked_members(archive, size)
            document = _read_document(archive, members[MANIFEST], checksum)
            entries = document["arrays"]
            _require(type(entries) is list, "its arrays are not a list")
            _require(
                set(members) == {MANIFEST} | {_member(number) for number in range(len(entries))},
                "does not hold exactly the members it lists",
            )
            arrays = [
                _read_array(archive, members[_member(number)], entry) for number, entry in enumerate(entries)
            ]
    except ModelFileError:
        raise
    except MALFORMED as error:
        raise ModelFileError(f"is damaged ({type(error).__name__}: {error!s:.200})") from error
    return document, arrays


def _checked_end(file: IO[bytes], size: int) -> bytes:
    """The SHA-256 of model.json, from the archive's end; refuses before zipfile reads a long directory.

    zipfile believes the large (zip64) end record if there is one before the plain one, so both are looked at.
    """
    _require(file.read(4) == MEMBER_START, "is not a kernelbp model file")
    file.seek(max(0, size - COMMENT_LENGTH - 22 - 20 - 56))
    tail = file.read()
    end, large = tail[-COMMENT_LENGTH - 22 :], tail[: -COMMENT_LENGTH - 22]
    match = COMMENT.fullmatch(end[22:])
    if match is None or end[:4] != b"PK\x05\x06":
        raise ModelFileError("is truncated, or not a kernelbp model file")
    sizes = [struct.unpack("<2HL", end[8:16])]
    if large[-20:-16] == b"PK\x06\x07" and len(large) == 76:
        sizes.append(struct.unpack("<3Q", large[24:48]))
    for here, members, directory in sizes:
        _require(
            here == members and members <= MOST_MEMBERS + 1 and directory <= MOST_DIRECTORY,
            f"has {members:,} members, more than the {MOST_MEMBERS:,} allowed, or a directory too long for them",
        )
    return match[1]


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members = {info.filename: info for info in archive.infolist()}
    _require(len(members) == len(archive.infolist()), "holds two members of one name")
    _require(MANIFEST in members, f"holds no {MANIFEST}: it is not a kernelbp model file")
    for name, info in members.items():
        # As nothing is compressed, no member can be larger than its share of the file.
        _require(
            info.compress_type == zipfile.ZIP_STORED
            and info.flag_bits == 0
            and info.file_size == info.compress_size,
            f"member {name!r:.60} is compressed or encrypted, which those of a model file are not",
        )
        _require(0 <= info.header_offset < size, f"is damaged (member {name!r:.60} lies outside of it)")
    _require(sum(info.file_size for info in members.values()) <= size, "its members are larger than the file")
    _require(
        members[MANIFEST].file_size <= MOST_TEXT,
        f"its {MANIFEST} is larger than the {MOST_TEXT:,} bytes allowed",
    )
    return members


def _read_document(archive: zipfile.ZipFile, info: zipfile.ZipInfo, checksum: bytes) -> dict[str, Any]:
    text = archive.read(info)
    _require(
        hashlib.sha256(text).hexdigest().encode("ascii") == checksum,
        f"was altered: {MANIFEST} does not have its checksum",
    )
    document = json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_no_constant)
    _require(type(document) is dict and document.get("format") == FORMAT, "is not a kernelbp model file")
    version = document.get("version")
    _require(type(version) is int and version >= 1, "does not say its version")
    if version > VERSION:
        raise ModelFileError(
            f"is of format version {version}, written by kernelbp {document.get('written by')!s:.20}; "
            f"this kernelbp reads up to version {VERSION}: update it"
        )
    expected = {"arrays", "fitted", "format", "kernels", "own kernels", "settings", "version", "written by"}
    _require(set(document) == expected, f"its {MANIFEST} does not have the parts it should")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    _require(len(made) == len(pairs), f"its {MANIFEST} names something twice")
    return made


def _finite(text: str) -> float:
    number = float(text)
    _require(math.isfinite(number), f"its {MANIFEST} holds a number out of range")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ModelFileError(f"its {MANIFEST} holds {text}, which is not JSON")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, entry: Any) -> NDArray[Any]:
    name = info.filename
    _require(
        type(entry) is dict
        and set(entry) == {"dtype", "shape", "order", "sha256"}
        and entry["dtype"] in DTYPES
        and entry["order"] in ("C", "F")
        and type(entry["sha256"]) is str,
        f"{name} is not described as an array of numbers",
    )
    shape = tuple(_index(size, MOST_BYTES) for size in _list(entry["shape"]))
    _require(len(shape) <= MOST_AXES, f"{name} has more than {MOST_AXES} axes")
    dtype, fortran = np.dtype(entry["dtype"]), entry["order"] == "F"
    expected = math.prod(shape) * dtype.itemsize
    _require(
        expected < info.file_size <= expected + MOST_HEADER,
        f"{name} has {info.file_size:,} bytes, which an array of shape {shape} and dtype {dtype} has not",
    )
    total = hashlib.sha256()
    with archive.open(info) as member:
        header = member.read(info.file_size - expected)
        total.update(header)
        _check_header(header, shape, dtype, fortran, name)
        flat = np.empty(expected, dtype=np.uint8)
        view, filled = flat.data, 0
        while filled < expected:
            read = member.readinto(view[filled : filled + CHUNK])  # type: ignore[attr-defined]
            _require(read, f"{name} is truncated")
            total.update(view[filled : filled + read])
            filled += read
        _require(not member.read(1), f"{name} is longer than it says")  # and zipfile compares the CRC
    _require(total.hexdigest() == entry["sha256"], f"was altered: {name} does not have its checksum")
    _require(dtype != np.bool_ or not (flat > 1).any(), f"{name} holds truth values that are none")
    array = flat.view(dtype).reshape(shape, order="F" if fortran else "C")
    array = array.astype(dtype.newbyteorder("="), order="K", copy=False)
    _require(array.dtype.kind != "f" or not np.isnan(array).any(), f"{name} holds NaN")
    return array


def _check_header(
    header: bytes, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, name: str
) -> None:
    """Compare an array's own header with what model.json says of it.

    NumPy's reader parses the header as Python; here it is only compared with the one text that is right,
    whatever its padding.
    """
    expected = f"{{'descr': '{dtype.str}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode("ascii")
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) - 10 if len(header) >= 10 else 0)
    _require(
        header.startswith(start) and header[len(start) :].rstrip(b" \n") == expected,
        f"{name} has another shape or dtype than {MANIFEST} says",
    )
