"""Belief propagation as others do it, behind the face of `kernelbp.Model`: an experiment is one loop over methods.

======================= ==============================================================
`DiscreteModel`         a finite model on given levels: sum-product and max-product
`GaussianMixtureModel`  messages are mixtures of Gaussians, products are sampled
`ParticleModel`         beliefs are particles that follow them
`GaussianModel`         all is jointly Gaussian
======================= ==============================================================

Each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelbp.rivals.discrete import DiscreteModel
    from kernelbp.rivals.gaussian import GaussianModel
    from kernelbp.rivals.mixture import GaussianMixtureModel
    from kernelbp.rivals.particle import ParticleModel

__all__ = ["DiscreteModel", "GaussianMixtureModel", "GaussianModel", "ParticleModel"]

_HOMES = {
    "DiscreteModel": "discrete",
    "GaussianMixtureModel": "mixture",
    "GaussianModel": "gaussian",
    "ParticleModel": "particle",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
