r"""Chains like proteins from a known process, so that the best possible answer is known.

A hidden regime :math:`r_t` (helix, strand, loop) is a Markov chain. Given it, a residue's direction is a draw from a
von Mises-Fisher distribution, and its profile :math:`y_t = B x_t + b_{r_t} +` Gaussian noise. The columns of :math:`B` are
orthogonal and equally long, so that :math:`\lVert B x \rVert` is the same for all directions and everything has a
closed form: with :math:`\eta_r = \kappa_r \mu_r + B^\top (y - b_r) / s^2`,

.. math:: p(x \mid y, r) = \mathrm{vMF}\left(\eta_r\right), \qquad
          p(y \mid r) \propto e^{-\lVert y - b_r \rVert^2 / 2 s^2}\, C(\kappa_r) / C(\lVert \eta_r \rVert),

:math:`C(\kappa) = \kappa / \sinh \kappa` up to a constant. Forward and backward passes over the regimes do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.datasets.proteins import Protein, backbone_directions
from kernelbp.errors import InputError
from kernelbp.values import is_whole

__all__ = ["SwitchingProcess", "protein_chains"]

Matrix = NDArray[np.float64]

REGIMES = ("helix", "strand", "loop")
# Angles and torsions of C-alpha traces in helices, strands and loops, and how long each lasts, roughly.
CENTRES = ((1.59, 0.87), (2.15, -2.95), (1.80, 2.2))
CONCENTRATIONS = (60.0, 14.0, 9.0)
TRANSITIONS = ((0.91, 0.01, 0.08), (0.02, 0.83, 0.15), (0.09, 0.11, 0.80))
AMINO_ACIDS = 20


@dataclass(frozen=True, eq=False)
class SwitchingProcess:
    """A Markov chain of regimes, each with its own direction and profile.

    Attributes
    ----------
    transitions : (k, k) probabilities of the next regime, rows summing to one
    centres : (k, 3) mean directions
    concentrations : (k,)
    slopes : (n, 3) B, with orthogonal columns of equal length
    offsets : (k, n) b
    noise : standard deviation s of each number of a profile

    Examples
    --------
    >>> proteins, process = protein_chains(3, length=50, seed=0)
    >>> means = process.exact_means(proteins[0].profile)
    >>> means.shape, bool((np.linalg.norm(means, axis=1) < 1).all())
    ((50, 3), True)
    """

    transitions: Matrix
    centres: Matrix
    concentrations: Matrix
    slopes: Matrix
    offsets: Matrix
    noise: float

    @property
    def stationary(self) -> Matrix:
        """How often each regime occurs in the long run, (k,)."""
        values, vectors = np.linalg.eig(self.transitions.T)
        found = np.real(vectors[:, np.argmax(np.real(values))])
        return np.asarray(found / found.sum())

    def draw(self, length: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
        """Directions (length, 3) and profiles (length, n) of a chain."""
        from kernelbp.rivals.beliefs import draw_on_sphere

        bounds = np.cumsum(self.transitions, axis=1)
        last = len(bounds) - 1
        regimes = np.empty(length, dtype=np.intp)
        chances = rng.random(length)
        regimes[0] = min(np.searchsorted(np.cumsum(self.stationary), chances[0]), last)
        for t in range(1, length):
            regimes[t] = min(np.searchsorted(bounds[regimes[t - 1]], chances[t]), last)
        directions = draw_on_sphere(self.centres[regimes], self.concentrations[regimes], rng)
        means = directions @ self.slopes.T + self.offsets[regimes]
        return directions, means + self.noise * rng.standard_normal(means.shape)

    def exact_means(self, profiles: ArrayLike) -> Matrix:
        """The mean of each direction given all profiles of its chain: no other guess has a higher expected cosine.

        Parameters
        ----------
        profiles : (length, n)

        Returns
        -------
        (length, 3), shorter than one where the direction is not certain
        """
        seen = np.asarray(profiles, dtype=np.float64)
        apart = seen[:, None] - self.offsets
        pull = self.concentrations[:, None] * self.centres + apart @ self.slopes / self.noise**2
        size = np.linalg.norm(pull, axis=2)
        logs = -0.5 * (apart**2).sum(axis=2) / self.noise**2
        logs += _log_factor(self.concentrations) - _log_factor(size)
        regimes = self._regimes(logs)
        # The mean of a von Mises-Fisher distribution on the sphere.
        reach = 1 / np.tanh(size) - 1 / size
        return np.einsum("tk,tk,tkd->td", regimes, reach / size, pull)

    def _regimes(self, logs: Matrix) -> Matrix:
        """Probabilities (length, k) of the regimes given all profiles, by forward and backward passes."""
        likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
        forward, backward = np.empty_like(likelihood), np.ones_like(likelihood)
        state = self.stationary
        for t, row in enumerate(likelihood):
            state = (state if t == 0 else state @ self.transitions) * row
            forward[t] = state = state / state.sum()
        for t in range(len(likelihood) - 2, -1, -1):
            back = self.transitions @ (likelihood[t + 1] * backward[t + 1])
            backward[t] = back / back.sum()
        both = forward * backward
        return np.asarray(both / both.sum(axis=1, keepdims=True))


def protein_chains(
    n_chains: int = 100, *, length: int = 150, seed: int = 0, noise: float = 1.0, process_seed: int = 0
) -> tuple[list[Protein], SwitchingProcess]:
    """Draw chains like proteins from a switching von Mises-Fisher process.

    Parameters
    ----------
    n_chains : int
    length : int
        Residues of each.
    seed : int
        Of the chains.
    noise : float
        Standard deviation of the profiles' numbers.
    process_seed : int
        Of the profiles' slopes and offsets, so that chains of several calls can share them.

    Returns
    -------
    list of Protein, and the SwitchingProcess they come from

    Examples
    --------
    >>> proteins, process = protein_chains(2, length=30, seed=1)
    >>> [protein.profile.shape for protein in proteins]
    [(30, 20), (30, 20)]
    """
    for name, value in (("n_chains", n_chains), ("length", length)):
        if not is_whole(value) or value < 1:
            raise InputError(f"{name}: expected a whole number of at least 1, got {value!r}")
    if not noise > 0:
        raise InputError(f"noise: expected a number above 0, got {noise!r}")
    rng = np.random.default_rng(process_seed)
    slopes = np.linalg.qr(rng.standard_normal((AMINO_ACIDS, 3)))[0]
    process = SwitchingProcess(
        np.array(TRANSITIONS),
        backbone_directions(*np.transpose(CENTRES)),
        np.array(CONCENTRATIONS),
        slopes,
        0.15 * rng.standard_normal((len(REGIMES), AMINO_ACIDS)),
        float(noise),
    )
    draws = np.random.default_rng([seed, 1])
    made = []
    for number in range(n_chains):
        directions, profiles = process.draw(length, draws)
        theta = np.arccos(np.clip(directions[:, 2], -1.0, 1.0))
        omega = np.arctan2(directions[:, 1], directions[:, 0])
        made.append(Protein(f"{number:04d}A", "X" * length, profiles, theta, omega))
    return made, process


def _log_factor(concentration: Matrix) -> Matrix:
    """Log of kappa / (1 - exp(-2 kappa)) - kappa: that of a von Mises-Fisher density on the sphere, up to a constant."""
    return np.asarray(np.log(concentration) - np.log1p(-np.exp(-2 * concentration)) - concentration)
