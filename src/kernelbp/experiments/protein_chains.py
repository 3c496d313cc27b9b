"""Chains of proteins: where they come from, how they are dealt to folds, and how a guess at them is scored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import kernelbp as kb
from kernelbp.datasets import Protein, SwitchingProcess, load_proteins, protein_chains
from kernelbp.errors import InputError
from kernelbp.experiments.study import Row, Study

__all__ = [
    "FULL",
    "GENERATED",
    "GENERATED_QUICK",
    "LONGER_THAN",
    "QUICK",
    "Chain",
    "Data",
    "Fold",
    "Sizes",
    "by_chain",
    "chain_of",
    "cosines",
    "deal",
    "directions_of",
    "families_of",
    "graph_of",
    "load",
    "neighbours",
    "windows_of",
]

Matrix = NDArray[np.float64]

LONGER_THAN = 100
"""Residues of chains that are learned from and tested, as in the paper."""
ENTRY = re.compile(
    r"(?:pdb(?:_0000)?|d)?([0-9][a-z0-9]{3})(?:[a-z0-9]|[a-z][a-z0-9]{1,2})?(?:[^a-z0-9].*)?", re.IGNORECASE
)
"""Names of the PDB: an entry of four letters, and a chain, as 1abcA, 1abc_AA, 1ABC-A, pdb1abc, or d1abca_ in SCOP."""


@dataclass(frozen=True)
class Sizes:
    """How much is done.

    Attributes
    ----------
    chains : most chains that are learned from and tested
    length : residues of a generated one
    tuning : most training chains of a fold on which the weight of edges and the rivals' settings are chosen
    folds : into which chains are dealt
    linear, boosted, networks, particles : folds carried out with each
    particle_chains : test chains of a fold that particle BP is run on
    members : predictors that are cross-fitted and averaged
    epochs : of a network's training
    trees : of boosting, for each coordinate, at most
    """

    chains: int
    length: int
    tuning: int
    folds: int
    linear: int
    boosted: int
    networks: int
    particles: int
    particle_chains: int
    members: int
    epochs: int
    trees: int


FULL = Sizes(
    chains=100_000,
    length=0,
    tuning=24,
    folds=10,
    linear=10,
    boosted=4,
    networks=10,
    particles=2,
    particle_chains=4,
    members=5,
    epochs=12,
    trees=400,
)
QUICK = Sizes(
    chains=60,
    length=0,
    tuning=6,
    folds=10,
    linear=1,
    boosted=0,
    networks=1,
    particles=1,
    particle_chains=1,
    members=2,
    epochs=6,
    trees=20,
)
GENERATED = Sizes(
    chains=100,
    length=120,
    tuning=10,
    folds=5,
    linear=5,
    boosted=1,
    networks=1,
    particles=1,
    particle_chains=3,
    members=3,
    epochs=10,
    trees=100,
)
GENERATED_QUICK = Sizes(
    chains=40,
    length=60,
    tuning=4,
    folds=5,
    linear=2,
    boosted=0,
    networks=1,
    particles=1,
    particle_chains=1,
    members=2,
    epochs=6,
    trees=20,
)


@dataclass(frozen=True, eq=False)
class Chain:
    """One protein as the experiment sees it.

    Attributes
    ----------
    name : str
    directions : (residues, 3) unit vectors, NaN where an angle is not known
    profile : (residues, 20) between 0 and 1
    known : (residues,) whether the direction is
    exact : (residues, 3) the mean of the direction given all profiles, where the process is known
    sequence : one letter a residue, X where it is not known; empty where none is
    """

    name: str
    directions: Matrix
    profile: Matrix
    known: NDArray[np.bool_]
    exact: Matrix | None = None
    sequence: str = ""


@dataclass(frozen=True, eq=False)
class Data:
    """Chains to learn from and test."""

    chains: Sequence[Chain]
    generated: bool


def load(study: Study, sizes: Sizes) -> Data:
    """Chains from the folder asked for, or generated."""
    if study.options.data is None:
        seed = study.options.seed
        made, process = protein_chains(sizes.chains, length=sizes.length, seed=seed)
        return Data([chain_of(protein, process) for protein in made], generated=True)
    chains = [chain_of(protein) for protein in load_proteins(study.options.data)]
    long = [chain for chain in chains if len(chain.known) > LONGER_THAN and chain.known.sum() > 1]
    if len(long) < 2 * sizes.folds:
        raise InputError(
            f"data: {len(long)} chains of more than {LONGER_THAN} residues in {study.options.data}; "
            f"expected at least {2 * sizes.folds}"
        )
    kept = _thinned(long, sizes.chains)
    entries = len(set(families_of(kept)))
    if entries < sizes.folds:
        raise InputError(
            f"data: {len(kept)} chains of {entries} entries in {study.options.data}; expected at least {sizes.folds} "
            "entries, one for each fold (chains of one entry by their names, or of equal sequence, share a fold): "
            "add chains of others"
        )
    return Data(kept, generated=False)


def chain_of(protein: Protein, process: SwitchingProcess | None = None) -> Chain:
    """A chain as loaded; with the process it was drawn from, the exact answer too."""
    directions = protein.directions
    exact = None if process is None else process.exact_means(protein.profile)
    # Log-odds to numbers between 0 and 1.
    profile = 1 / (1 + np.exp(-protein.profile))
    known = np.asarray(np.isfinite(directions).all(axis=1))
    return Chain(protein.name, directions, profile, known, exact, protein.sequence)


def _thinned(chains: Sequence[Chain], most: int) -> list[Chain]:
    kept = np.linspace(0, len(chains) - 1, min(most, len(chains))).astype(int)
    return [chains[number] for number in kept]


def deal(chains: Sequence[Chain], folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """The fold of each chain; chains of one entry, or of equal sequence, share it."""
    names, numbers = np.unique(families_of(chains), return_inverse=True)
    return (np.argsort(rng.permutation(len(names))) % folds)[numbers]


def families_of(chains: Sequence[Chain]) -> list[str]:
    """Of each chain, the first entry among all that shared entries or equal sequences tie it to."""
    found = [ENTRY.fullmatch(chain.name) for chain in chains]
    entries = [match[1].lower() if match else chain.name for match, chain in zip(found, chains, strict=True)]
    # A sequence of which no letter is known ties nothing.
    sequences = [chain.sequence.upper() if chain.sequence.strip("Xx") else "" for chain in chains]
    first: dict[tuple[str, str], int] = {}
    ties = [
        (number, first.setdefault(key, number))
        for number, keys in enumerate(zip(entries, sequences, strict=True))
        for key in zip(("entry", "sequence"), keys, strict=True)
        if key[1]
    ]
    rows, columns = np.array(ties).T
    tied = coo_array((np.ones(len(ties)), (rows, columns)), shape=(len(chains), len(chains)))
    families = connected_components(tied, directed=False)[1].tolist()
    names: dict[int, str] = {}
    for family, entry in zip(families, entries, strict=True):
        names[family] = min(names.get(family, entry), entry)
    return [names[family] for family in families]


def directions_of(chains: Sequence[Chain]) -> Matrix:
    """All directions that are known, (n, 3)."""
    return np.concatenate([chain.directions[chain.known] for chain in chains])


def windows_of(chains: Sequence[Chain], width: int, values: Matrix | None = None) -> NDArray[np.float32]:
    """Profiles of `width` residues around each whose direction is known, zeros beyond the ends, (n, 20 width).

    Instead of profiles, `values` (n, numbers) of the n residues whose direction is known; zeros where it is not.
    """
    ends = np.cumsum([int(chain.known.sum()) for chain in chains])
    parts = [None] * len(chains) if values is None else np.split(values, ends[:-1])
    found = []
    for chain, part in zip(chains, parts, strict=True):
        rows = chain.profile
        if part is not None:
            rows = np.zeros((len(chain.known), part.shape[1]))
            rows[chain.known] = part
        padded = np.pad(rows.astype(np.float32), ((width // 2, width // 2), (0, 0)))
        shifted = [padded[step : step + len(rows)][chain.known] for step in range(width)]
        found.append(np.concatenate(shifted, axis=1))
    return np.concatenate(found)


def neighbours(chains: Sequence[Chain]) -> tuple[Matrix, Matrix]:
    """Directions of consecutive residues, both known."""
    both = [chain.known[:-1] & chain.known[1:] for chain in chains]
    pairs = list(zip(chains, both, strict=True))
    return (
        np.concatenate([chain.directions[:-1][kept] for chain, kept in pairs]),
        np.concatenate([chain.directions[1:][kept] for chain, kept in pairs]),
    )


def graph_of(chains: Sequence[Chain], *, linked: bool = True) -> kb.Graph:
    """All chains side by side; nodes are residues whose direction is known."""
    edges: list[tuple[int, int, str]] = []
    begin = 0
    for chain in chains:
        number = begin + np.cumsum(chain.known) - 1
        at = np.flatnonzero(chain.known[:-1] & chain.known[1:]) if linked else np.empty(0, dtype=int)
        edges += [(int(a), int(b), "then") for a, b in zip(number[at], number[at + 1], strict=True)]
        begin += int(chain.known.sum())
    return kb.Graph.from_edges(edges, variables=["direction"] * begin)


@dataclass(frozen=True, eq=False)
class Fold:
    """One split into training and test chains."""

    data: Data
    folds: NDArray[np.intp]
    number: int
    window: int
    sizes: Sizes
    seed: int

    @property
    def train(self) -> list[Chain]:
        """Chains of all other folds."""
        pairs = zip(self.data.chains, self.folds, strict=True)
        return [chain for chain, fold in pairs if fold != self.number]

    @property
    def test(self) -> list[Chain]:
        """Chains of this fold."""
        pairs = zip(self.data.chains, self.folds, strict=True)
        return [chain for chain, fold in pairs if fold == self.number]

    @property
    def tuning(self) -> list[Chain]:
        """Training chains on which settings are chosen, whole families, at most a quarter of all if there is one so small."""
        train = self.train
        families = families_of(train)
        names, counts = np.unique(families, return_counts=True)
        room, chosen = min(self.sizes.tuning, max(len(train) // 4, 1)), {str(names[np.argmin(counts)])}
        room -= int(counts.min())
        for number in np.random.default_rng(self.number).permutation(len(names)).tolist():
            if names[number] not in chosen and counts[number] <= room:
                chosen.add(str(names[number]))
                room -= int(counts[number])
        return [chain for chain, family in zip(train, families, strict=True) if family in chosen]

    @property
    def rest(self) -> list[Chain]:
        """Training chains on which none is."""
        chosen = set(map(id, self.tuning))
        return [chain for chain in self.train if id(chain) not in chosen]

    @property
    def tunes(self) -> NDArray[np.bool_]:
        """Of each known residue of `train`, whether its chain is one of `tuning`."""
        chosen = set(map(id, self.tuning))
        counts = [int(chain.known.sum()) for chain in self.train]
        return np.repeat([id(chain) in chosen for chain in self.train], counts)

    def row(self, evidence: str, method: str, cosine: float, **more: Any) -> Row:
        """One line of the table of all folds."""
        return {
            "fold": self.number + 1,
            "evidence": evidence,
            "method": method,
            "mean cosine": cosine,
            **more,
        }


def cosines(guess: Matrix, truth: Matrix) -> Matrix:
    """Cosine between directions (n, 3), (n,); guesses need not have unit length."""
    size = np.maximum(np.linalg.norm(guess, axis=1), np.finfo(np.float64).tiny)
    return np.asarray((guess * truth).sum(axis=1) / size)


def by_chain(values: Matrix, chains: Sequence[Chain]) -> Matrix:
    """Sum of values over the known residues of each chain, (chains,)."""
    ends = np.cumsum([int(chain.known.sum()) for chain in chains])
    return np.array([part.sum() for part in np.split(values, ends[:-1])])
