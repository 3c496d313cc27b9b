"""Photographs: what neighbouring pixels look like, and noisy photographs made clean with it.

`ready` is a relation learned from photographs that are free to use; `learn` and `learn_pair` learn one from
yours. `denoise` takes a picture as an array and gives the mean and the standard deviation of every pixel. The
command ``kernelbp denoise`` does the same from file to file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelbp.photographs.denoising import Denoised, denoise
    from kernelbp.photographs.noise import estimate_sigma
    from kernelbp.photographs.relations import Photographs, learn, learn_pair, ready

__all__ = ["Denoised", "Photographs", "denoise", "estimate_sigma", "learn", "learn_pair", "ready"]

# Loaded when first used: the command line is looked up in here, and its help should not wait for all of SciPy.
_HOMES = {
    "Denoised": "denoising",
    "Photographs": "relations",
    "denoise": "denoising",
    "estimate_sigma": "noise",
    "learn": "relations",
    "learn_pair": "relations",
    "ready": "relations",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernelbp.photographs' has no attribute {name!r}")
    value = getattr(import_module(f"kernelbp.photographs.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
