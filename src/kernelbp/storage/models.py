"""The two ways in: a fitted model to a file, and back.

Here the other modules meet: `writing` and `reading` turn a model into nodes and back, `checks` looks at the
whole of it, and `files` alone touches the disk.
"""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelbp.errors import InputError, KernelBPError, ModelFileError, UnsupportedError
from kernelbp.kernels import Kernel
from kernelbp.model import Fitted, Model
from kernelbp.storage.checks import check_model
from kernelbp.storage.fields import fits_setting, settings_of_model
from kernelbp.storage.files import MALFORMED, read_file, write_file
from kernelbp.storage.limits import require
from kernelbp.storage.reading import Reader
from kernelbp.storage.writing import Writer

__all__ = ["load_model", "save_model"]


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
    for name, relation in model.relations.items():
        if relation.potential is not None:
            raise UnsupportedError(
                f"relations: {name!r} is known by its potential, which a file does not hold; save a model without it, and "
                f"after loading say model.with_relation({name!r}, Relation(..., potential=...))"
            )
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder to write to", str(Path(path).parent))
    try:
        check_model(model, fitted)
    except ModelFileError as error:
        raise UnsupportedError(f"this model cannot be stored: {error}") from error
    settings = {name: getattr(model, name) for name in settings_of_model()}
    for name, value in settings.items():
        if not fits_setting(value, name):
            raise UnsupportedError(
                f"{name}: expected {inspect.signature(Model).parameters[name].annotation}, "
                f"found {type(value).__name__}; a file holding it could not be read back"
            )
    writer = Writer(frozenset(model.variables))
    parts = {
        "settings": {name: writer.node(value, name) for name, value in settings.items()},
        "fitted": writer.node(fitted, "fitted"),
        "own kernels": writer.own,
        "kernels": writer.kernels,
    }
    write_file(path, parts, writer.arrays)


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
        document, arrays = read_file(path)
        _check_given(document["own kernels"], given)
        try:
            return _made_model(document, Reader(arrays, document["kernels"], given))
        except (ModelFileError, UnsupportedError):
            raise
        except MALFORMED as error:
            reason = str(error) if isinstance(error, KernelBPError) else f"{type(error).__name__}: {error}"
            raise ModelFileError(f"does not hold a valid model ({reason:.300})") from error
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


def _made_model(document: dict[str, Any], reader: Reader) -> Model:
    stored, known = document["settings"], settings_of_model()
    require(type(stored) is dict, "its settings are not a mapping")
    unknown = sorted(set(stored) - set(known))
    require(not unknown, f"has settings this version of kernelbp does not know: {', '.join(unknown)}")
    settings = {name: reader.node(node) for name, node in stored.items()}
    for name, value in settings.items():
        require(fits_setting(value, name), f"has a setting {name} of another type than it takes")
    model = Model(**settings)
    reader.resolving = True
    fitted = reader.node(document["fitted"])
    require(type(fitted) is Fitted, "holds no fitted model")
    check_model(model, fitted)
    model._fitted = fitted
    return model


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


def _check_given(wanted: Any, given: dict[str, Kernel]) -> None:
    """Compare the kernels given with those that a file asks for: variables with the names of their classes."""
    require(
        type(wanted) is dict and all(type(label) is str for label in wanted.values()),
        "its list of kernels is not one",
    )
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
