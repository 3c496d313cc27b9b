"""Paths as loaders are given them."""

from __future__ import annotations

import os
from pathlib import Path

from kernelbp.errors import InputError

__all__ = ["as_folder", "as_path"]


def as_path(given: str | os.PathLike[str], name: str) -> Path:
    """The path, or an error that names the argument."""
    try:
        return Path(given)
    except TypeError as error:
        raise InputError(f"{name}: expected a path, got {type(given).__name__}") from error


def as_folder(given: str | os.PathLike[str], holding: str) -> Path:
    """The folder, or an error that says what it should hold."""
    folder = as_path(given, "folder")
    if not folder.is_dir():
        raise InputError(f"folder: expected a folder with {holding}, got {str(folder)!r}, which is none")
    return folder
