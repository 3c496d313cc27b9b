"""Belief propagation over variables of any kind, with every relation learned from examples."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelbp import datasets, errors, figures, kernels, rivals, testing
    from kernelbp.errors import ConvergenceWarning
    from kernelbp.graph import Graph
    from kernelbp.inference.beliefs import Beliefs
    from kernelbp.learning.kernel_tuning import tune
    from kernelbp.model import Model, Relation

__version__ = "0.1.0"

__all__ = [
    "Beliefs",
    "ConvergenceWarning",
    "Graph",
    "Model",
    "Relation",
    "__version__",
    "datasets",
    "errors",
    "figures",
    "kernels",
    "rivals",
    "testing",
    "tune",
]

# Loaded when first used: a program that only draws, or only loads data, does not wait for all of SciPy.
_HOMES = {
    "Beliefs": "kernelbp.inference.beliefs",
    "ConvergenceWarning": "kernelbp.errors",
    "Graph": "kernelbp.graph",
    "Model": "kernelbp.model",
    "Relation": "kernelbp.model",
    "tune": "kernelbp.learning.kernel_tuning",
}
_MODULES = ("datasets", "errors", "figures", "kernels", "rivals", "testing")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"kernelbp.{name}")
    else:
        raise AttributeError(f"module 'kernelbp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
