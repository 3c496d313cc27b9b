"""Belief propagation over variables of any kind, with every relation learned from examples."""

from kernelbp import datasets, errors, figures, kernels, testing
from kernelbp.errors import ConvergenceWarning
from kernelbp.graph import Graph
from kernelbp.inference.beliefs import Beliefs
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
    "testing",
]
