"""Libraries that come with an extra of this package: imported when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kernelbp.errors import InputError

__all__ = ["extra_library"]


def extra_library(module: str, extra: str, what: str) -> Any:
    """Import a module that an extra brings.

    Parameters
    ----------
    module : as in an import statement
    extra : of this package, that brings it
    what : needs it, for the error

    Raises
    ------
    InputError
        If it is not installed: says how to.

    Examples
    --------
    >>> from kernelbp.extras import extra_library
    >>> extra_library("no_such_library.parts", "images", "data: drawing in stone")
    Traceback (most recent call last):
        ...
    kernelbp.errors.InputError: data: drawing in stone needs no_such_library: pip install "kernelbp[images]"
    """
    try:
        return import_module(module)
    except ImportError:
        library = {"skimage": "scikit-image"}.get(module.split(".")[0], module.split(".")[0])
        raise InputError(f'{what} needs {library}: pip install "kernelbp[{extra}]"') from None
