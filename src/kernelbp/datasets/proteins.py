"""Protein chains: C-alpha traces, the two angles of every residue, and sequence profiles, from files."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelbp.errors import InputError
from kernelbp.extras import extra_library

__all__ = [
    "AMINO_ACIDS",
    "Backbone",
    "Profile",
    "Protein",
    "backbone_angles",
    "backbone_directions",
    "load_mmcif",
    "load_pdb",
    "load_proteins",
    "load_psiblast",
]

Matrix = NDArray[np.float64]

#: The order in which PSI-BLAST writes its columns.
AMINO_ACIDS = "ARNDCQEGHILKMFPSTWYV"

LONGEST_STEP = 4.2
"""Consecutive C-alpha atoms are 3.8 angstrom apart (2.9 across a cis bond); beyond this the chain is broken."""
MOST_RESIDUES = 100_000
"""Of one chain; the longest protein known has 36,000."""
MOST_CHAINS = 100_000
MOST_IN_ALL = 20_000_000
"""Residues of all chains of a folder."""
MOST_BYTES = 1 << 28
"""Of one file of coordinates, and of the index."""
MOST_ALIGNED = 5_000
"""Residues of a chain and of a profile that are aligned if their lengths differ: the time grows with the square."""
LEAST_ALIKE = 0.9
"""Share of a chain's residues that must have the same letter in a profile of another length."""
SHORTEST_RUN = 3
"""Letters that count as the same when aligned: fewer in a row are found in any profile."""

_LETTERS = {
    "ALA": "A", "ARG": "R", "ASN": "N", "ASP": "D", "CYS": "C", "GLN": "Q", "GLU": "E", "GLY": "G",
    "HIS": "H", "ILE": "I", "LEU": "L", "LYS": "K", "MET": "M", "PHE": "F", "PRO": "P", "SER": "S",
    "THR": "T", "TRP": "W", "TYR": "Y", "VAL": "V",
}  # fmt: skip
# Residues of the chain that files list among the ligands: selenomethionine stands in for methionine.
_MODIFIED = {"MSE": "M", "SEC": "U", "PYL": "O"}
_STRUCTURES = (".pdb", ".ent", ".cif", ".mmcif")
_NUMBER = re.compile(r"-?\d+")
_ROW = re.compile(r"\s*(\d{1,9})\s+([A-Za-z])\s(.*)")
_PIECES: dict[str, tuple[int, ...]] = {"ca": (3,), "pssm": (20,), "theta": (), "omega": ()}
"""What proteins.npz holds of each residue, and its shape."""


@dataclass(frozen=True, eq=False)
class Backbone:
    """The C-alpha atoms of one chain of a structure file.

    Attributes
    ----------
    chain : its letter in the file
    sequence : one letter a residue, X where it is no standard one
    ca : (residues, 3) positions in angstrom

    Examples
    --------
    >>> import numpy as np
    >>> straight = Backbone("A", "GAS", np.array([[0.0, 0, 0], [3.8, 0, 0], [7.6, 0, 0]]))
    >>> len(straight), straight.ca.shape
    (3, (3, 3))
    """

    chain: str
    sequence: str
    ca: Matrix

    def __len__(self) -> int:
        return len(self.ca)


@dataclass(frozen=True, eq=False)
class Profile:
    """What related proteins have at each residue.

    Attributes
    ----------
    sequence : one letter a residue
    log_odds : (residues, 20) in the order of `AMINO_ACIDS`

    Examples
    --------
    >>> import numpy as np
    >>> Profile("GAS", np.zeros((3, 20))).log_odds.shape
    (3, 20)
    """

    sequence: str
    log_odds: Matrix


@dataclass(frozen=True, eq=False)
class Protein:
    """One chain with what is to be predicted and what from.

    Attributes
    ----------
    name : of the chain, as "1acbI": the entry and the chain's letter
    sequence : one letter a residue
    profile : (residues, 20) log-odds in the order of `AMINO_ACIDS`
    theta, omega : (residues,) in radians, NaN where not known: see `backbone_angles`

    Examples
    --------
    >>> import numpy as np
    >>> angles = np.array([np.nan, 1.6, 1.6, np.nan])
    >>> chain = Protein("1abcA", "GASP", np.zeros((4, 20)), angles, 0.5 * angles)
    >>> len(chain), chain.directions.shape
    (4, (4, 3))
    >>> np.linalg.norm(chain.directions, axis=1).round(6)
    array([nan,  1.,  1., nan])
    """

    name: str
    sequence: str
    profile: Matrix
    theta: Matrix
    omega: Matrix

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def directions(self) -> Matrix:
        """The two angles as unit vectors (residues, 3), NaN where one is not known."""
        return backbone_directions(self.theta, self.omega)


# ---------------------------------------------------------------------- geometry


def backbone_angles(ca: ArrayLike, *, longest_step: float = LONGEST_STEP) -> tuple[Matrix, Matrix]:
    """The angle at every C-alpha atom, and the torsion around the step that follows it.

    Parameters
    ----------
    ca : array_like of shape (residues, 3)
        Positions of consecutive C-alpha atoms, in angstrom. NaN where one is missing.
    longest_step : float
        Consecutive atoms further apart than this are not bound: the chain is broken there.

    Returns
    -------
    theta : ndarray of shape (residues,)
        Angle between the steps to the atoms before and after, 0 to pi. NaN at both ends and beside breaks.
    omega : ndarray of shape (residues,)
        Torsion of the atom before, this one and the next two, -pi to pi. NaN at the first and the last two
        and beside breaks.

    Raises
    ------
    InputError
        If positions are not rows of three numbers.

    Examples
    --------
    A right angle, then a quarter turn:

    >>> theta, omega = backbone_angles([[0, 1, 0], [0, 0, 0], [1, 0, 0], [1, 0, 1]])
    >>> print(theta.round(2), omega.round(2))
    [ nan 1.57 1.57  nan] [ nan 1.57  nan  nan]
    """
    try:
        points = np.asarray(ca, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"ca: expected positions of shape (residues, 3), got {type(ca).__name__}") from error
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError(f"ca: expected positions of shape (residues, 3), got {points.shape}")
    theta, omega = np.full(len(points), np.nan), np.full(len(points), np.nan)
    steps = np.diff(points, axis=0)
    # NaN compares as false: a missing atom is a break.
    bound = np.linalg.norm(steps, axis=1) <= longest_step
    steps[~bound] = np.nan
    if len(steps) >= 2:
        before, after = -steps[:-1], steps[1:]
        sine = np.linalg.norm(np.cross(before, after), axis=1)
        theta[1:-1] = np.arctan2(sine, (before * after).sum(axis=1))
    if len(steps) >= 3:
        first, middle, last = steps[:-2], steps[1:-1], steps[2:]
        left, right = np.cross(first, middle), np.cross(middle, last)
        sine = np.linalg.norm(middle, axis=1) * (first * right).sum(axis=1)
        omega[1:-2] = np.arctan2(sine, (left * right).sum(axis=1))
    return theta, omega


def backbone_directions(theta: ArrayLike, omega: ArrayLike) -> Matrix:
    """Angle and torsion as a point of the unit sphere: theta from the pole, omega around it.

    Parameters
    ----------
    theta, omega : array_like of shape (n,)

    Returns
    -------
    ndarray of shape (n, 3)
        NaN in all three where one of the angles is.

    Examples
    --------
    >>> backbone_directions([np.pi / 2], [np.pi / 2]).round(6) + 0.0
    array([[0., 1., 0.]])
    """
    polar, around = np.broadcast_arrays(
        np.asarray(theta, dtype=np.float64), np.asarray(omega, dtype=np.float64)
    )
    flat = np.sin(polar)
    directions = np.stack([flat * np.cos(around), flat * np.sin(around), np.cos(polar)], axis=-1)
    directions[~np.isfinite(directions).all(axis=-1)] = np.nan
    return directions


# ---------------------------------------------------------------------- structures


def load_pdb(path: str | os.PathLike[str]) -> list[Backbone]:
    r"""Read the C-alpha trace of every chain of a PDB file.

    Of several models the first is taken, of alternate locations the one with the highest occupancy (the first
    of equals). Chains follow each other as in the file; breaks stay in, for `backbone_angles` to find.

    Parameters
    ----------
    path : path of the file
        In the fixed columns of the PDB format.

    Returns
    -------
    list of Backbone

    Raises
    ------
    InputError
        If there is no such file, it has no C-alpha atom, or a coordinate is not a number.

    Examples
    --------
    >>> import tempfile
    >>> line = "ATOM  {0:5d}  CA  ALA A{0:4d}    {1:8.3f}{2:8.3f}{3:8.3f}  1.00 10.00           C  "
    >>> with tempfile.NamedTemporaryFile("w", suffix=".pdb") as file:
    ...     _ = file.write("\n".join(line.format(k, 3.8 * k, 0.0, 0.0) for k in (1, 2, 3)))
    ...     file.flush()
    ...     load_pdb(file.name)[0].sequence
    'AAA'
    """
    return _backbones(_pdb_atoms(_text(Path(path), "a PDB file")), Path(path))


def load_mmcif(path: str | os.PathLike[str]) -> list[Backbone]:
    r"""Read the C-alpha trace of every chain of an mmCIF file, by gemmi.

    Takes the same atoms as `load_pdb` does. Needs ``pip install "kernelbp[proteins]"``.

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    list of Backbone

    Raises
    ------
    InputError
        If gemmi is not installed, there is no such file, or it is no structure with C-alpha atoms.

    Examples
    --------
    >>> import tempfile
    >>> names = ["group_PDB", "id", "type_symbol", "label_atom_id", "label_alt_id", "label_comp_id", "label_asym_id",
    ...          "label_entity_id", "label_seq_id", "Cartn_x", "Cartn_y", "Cartn_z", "occupancy", "auth_asym_id"]
    >>> head = "data_1ABC\nloop_\n" + "\n".join("_atom_site." + name for name in names)
    >>> atoms = [f"ATOM {k} C CA . ALA A 1 {k} {3.8 * k:.3f} 0.0 0.0 1.0 A" for k in (1, 2, 3)]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".cif") as file:
    ...     _ = file.write("\n".join([head, *atoms, ""]))
    ...     file.flush()
    ...     load_mmcif(file.name)[0].sequence
    'AAA'
    """
    where = Path(path)
    gemmi = extra_library("gemmi", "proteins", f"{where}: reading mmCIF")
    text = _text(where, "an mmCIF file")
    try:
        block = gemmi.cif.read_string(text).sole_block()
        structure = gemmi.make_structure_from_block(block)
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(f"{where}: not an mmCIF file of one structure: {error}") from None

    def atoms() -> Iterator[_Atom]:
        if not len(structure):
            return
        for chain in structure[0]:
            for residue in chain:
                letter = _letter(residue.name, hetero=residue.het_flag == "H")
                for atom in residue if letter is not None else ():
                    if atom.name == "CA":
                        place = (atom.pos.x, atom.pos.y, atom.pos.z)
                        yield _Atom(chain.name, str(residue.seqid), letter or "X", atom.occ, place)

    return _backbones(atoms(), where)


@dataclass(frozen=True)
class _Atom:
    chain: str
    residue: str
    letter: str
    occupancy: float
    place: tuple[float, float, float]


def _letter(residue: str, *, hetero: bool) -> str | None:
    """One letter for a residue; None for what is not part of the chain, as a calcium ion is not."""
    if residue in _MODIFIED:
        return _MODIFIED[residue]
    return None if hetero else _LETTERS.get(residue, "X")


def _pdb_atoms(text: str) -> Iterator[_Atom]:
    for number, line in enumerate(text.splitlines(), start=1):
        kind = line[:6].strip()
        if kind == "ENDMDL":
            return
        # " CA " is the carbon, "CA  " calcium.
        if kind not in ("ATOM", "HETATM") or line[12:16] != " CA ":
            continue
        letter = _letter(line[17:20].strip(), hetero=kind == "HETATM")
        if letter is None:
            continue
        try:
            place = (float(line[30:38]), float(line[38:46]), float(line[46:54]))
        except ValueError:
            raise InputError(
                f"line {number}: expected three coordinates in columns 31 to 54, got {line[30:54]!r}"
            ) from None
        if not np.isfinite(place).all():
            raise InputError(f"line {number}: expected finite coordinates, got {line[30:54]!r}")
        try:
            occupancy = float(line[54:60])
        except ValueError:
            occupancy = 1.0
        yield _Atom(line[21], line[22:27], letter, occupancy, place)


def _backbones(atoms: Iterable[_Atom], path: Path) -> list[Backbone]:
    """Chains in the order they first appear, of each residue the location of highest occupancy."""
    chains: dict[str, dict[str, _Atom]] = {}
    try:
        for atom in atoms:
            mine = chains.setdefault(atom.chain, {})
            before = mine.get(atom.residue)
            if before is None or atom.occupancy > before.occupancy:
                mine[atom.residue] = atom
            if len(mine) > MOST_RESIDUES:
                raise InputError(f"chain {atom.chain!r} has more than {MOST_RESIDUES:,} residues")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not chains:
        raise InputError(f"{path}: no C-alpha atoms of a protein; expected a structure in PDB or mmCIF form")
    return [
        Backbone(chain, "".join(a.letter for a in mine.values()), np.array([a.place for a in mine.values()]))
        for chain, mine in chains.items()
    ]


# ---------------------------------------------------------------------- profiles


def load_psiblast(path: str | os.PathLike[str]) -> Profile:
    r"""Read a position-specific scoring matrix that PSI-BLAST wrote as text (``-out_ascii_pssm``).

    Parameters
    ----------
    path : path of the file

    Returns
    -------
    Profile
        The log-odds, with columns in the order of `AMINO_ACIDS` whatever their order in the file.

    Raises
    ------
    InputError
        If there is no such file, it names no 20 columns, or a row has fewer numbers or is out of turn.

    Examples
    --------
    >>> import tempfile
    >>> head = "           " + "  ".join(AMINO_ACIDS)
    >>> rows = [f"{k:5d} {letter}  " + " ".join(["-1"] * 20) for k, letter in ((1, "G"), (2, "A"))]
    >>> with tempfile.NamedTemporaryFile("w", suffix=".pssm") as file:
    ...     _ = file.write("\n".join(["", "Last position-specific scoring matrix computed", head, *rows, ""]))
    ...     file.flush()
    ...     profile = load_psiblast(file.name)
    >>> profile.sequence, profile.log_odds.shape
    ('GA', (2, 20))
    """
    where = Path(path)
    order: list[int] | None = None
    letters: list[str] = []
    rows: list[list[int]] = []
    for line in _text(where, "a PSI-BLAST matrix").splitlines():
        words = line.split()
        if order is None:
            if sorted(words[:20]) == sorted(AMINO_ACIDS):
                order = [words[:20].index(letter) for letter in AMINO_ACIDS]
            continue
        row = _ROW.match(line)
        if row is None:
            if words and rows:
                break  # the statistics below the matrix
            continue
        if int(row[1]) != len(rows) + 1:
            raise InputError(f"{where}: expected row {len(rows) + 1}, found {row[1]}")
        if len(rows) >= MOST_RESIDUES:
            raise InputError(f"{where}: more than {MOST_RESIDUES:,} rows")
        # By pattern, not by blanks: "-10-11" is two numbers.
        numbers = _NUMBER.findall(row[3])[:20]
        if len(numbers) < 20 or max(map(len, numbers)) > 6:
            raise InputError(
                f"{where}: expected 20 log-odds in row {row[1]}, found {len(numbers)} in {row[3][:60]!r}"
            )
        letters.append(row[2])
        rows.append([int(number) for number in numbers])
    if order is None or not rows:
        raise InputError(
            f"{where}: not a PSI-BLAST matrix in ASCII; expected a line that names the 20 amino acids "
            f"and rows 'number letter log-odds ...' (psiblast -out_ascii_pssm)"
        )
    return Profile("".join(letters), np.array(rows, dtype=np.float64)[:, order])


# ---------------------------------------------------------------------- folders


def load_proteins(folder: str | os.PathLike[str]) -> list[Protein]:
    """Read all chains of a folder, in the order of their names.

    The profile beside a structure may be that of the whole sequence though some residues have no coordinates. If it is not as long as a chain,
    the letters of the two are aligned, and at least nine of ten residues of the chain must have the same letter in the profile.
    Residues with coordinates are kept, with their rows of the profile; those that find no row (letters more or other than the
    profile has there) are left out. Where residues of the profile are missing in between, the chain is broken: see `backbone_angles`.

    Parameters
    ----------
    folder : path
        Either holds ``proteins.npz`` (for each chain ``<id>/pssm`` of shape (L, 20), and ``<id>/theta`` and
        ``<id>/omega`` of shape (L,), or ``<id>/ca`` of shape (L, 3) to work the angles out from) and
        ``index.json`` (a list of ``{"id": ..., "seq": ...}``); or structures ``NAME.pdb``, ``.ent``, ``.cif`` or
        ``.mmcif``, each with a profile ``NAME.pssm``, taken to be that of the chain most like it.

    Returns
    -------
    list of Protein

    Raises
    ------
    InputError
        If there is neither, or something in it is missing, too large or does not fit together.

    Examples
    --------
    >>> import json, tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     angles = {f"1abcA/{name}": np.full(5, 1.5) for name in ("theta", "omega")}
    ...     np.savez(Path(folder) / "proteins.npz", **angles, **{"1abcA/pssm": np.zeros((5, 20))})
    ...     _ = (Path(folder) / "index.json").write_text(json.dumps([{"id": "1abcA", "seq": "GASPK"}]))
    ...     (chain,) = load_proteins(folder)
    >>> chain.name, chain.sequence, chain.theta.shape
    ('1abcA', 'GASPK', (5,))
    """
    where = Path(folder)
    if (where / "proteins.npz").is_file():
        found = _archive(where)
    elif where.is_dir():
        found = _structures(where)
    else:
        raise InputError(
            f"{where}: no such folder; expected one with proteins.npz, or with structures and profiles"
        )
    return sorted(found, key=lambda protein: protein.name)


def _archive(folder: Path) -> list[Protein]:
    path, index = folder / "proteins.npz", folder / "index.json"
    names = _index(index)
    found, total = [], 0
    try:
        with zipfile.ZipFile(path) as archive:
            held = set(archive.namelist())
            for name, sequence in names.items():
                total += len(sequence)
                if total > MOST_IN_ALL:
                    raise InputError(f"{index}: more than {MOST_IN_ALL:,} residues in all")
                held_here = {piece for piece in _PIECES if f"{name}/{piece}.npy" in held}
                wanted = {"pssm", "theta", "omega"} if {"theta", "omega"} <= held_here else {"pssm", "ca"}
                if not wanted <= held_here:
                    raise InputError(f"{path}: {name} needs pssm, and theta and omega or ca")
                pieces = {
                    piece: _member(archive, f"{name}/{piece}.npy", (len(sequence), *_PIECES[piece]))
                    for piece in sorted(wanted)
                }
                angles = (
                    (pieces["theta"], pieces["omega"]) if "theta" in pieces else backbone_angles(pieces["ca"])
                )
                if not np.isfinite(pieces["pssm"]).all():
                    raise InputError(f"{path}: {name}/pssm has values that are not finite")
                found.append(Protein(name, sequence, pieces["pssm"], *angles))
    except InputError:
        raise
    except Exception as error:  # what damaged, encrypted or oddly compressed members raise is of no one kind
        raise InputError(f"{path}: not an archive that can be read ({error})") from None
    return found


def _index(path: Path) -> dict[str, str]:
    """Sequence of each chain by its name."""
    try:
        content = json.loads(_text(path, "the index of proteins.npz"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, list) or not 0 < len(content) <= MOST_CHAINS:
        raise InputError(f"{path}: expected a list of 1 to {MOST_CHAINS:,} chains")
    names: dict[str, str] = {}
    for number, entry in enumerate(content):
        name, sequence = (entry.get("id"), entry.get("seq")) if isinstance(entry, dict) else (None, None)
        if not (isinstance(name, str) and isinstance(sequence, str) and name and sequence):
            raise InputError(f'{path}: entry {number}: expected {{"id": text, "seq": text, ...}}')
        if len(sequence) > MOST_RESIDUES or name in names:
            raise InputError(
                f"{path}: {name!r} {'appears twice' if name in names else 'is too long'}; expected each chain "
                f"once, of at most {MOST_RESIDUES:,} residues"
            )
        names[name] = sequence
    return names


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Matrix:
    """One array, read only if its header says just what is expected: no size in the file is trusted."""
    with archive.open(name) as file:
        major, _ = np.lib.format.read_magic(file)
        read: Any = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        found, columns_first, dtype = read(file)
        if found != shape or dtype.kind not in "iuf":
            raise InputError(
                f"{archive.filename}: {name} has shape {found} and type {dtype}; expected numbers of shape {shape}"
            )
        values = np.frombuffer(_exactly(file, int(np.prod(shape)) * dtype.itemsize), dtype)
    return values.reshape(shape, order="F" if columns_first else "C").astype(np.float64)


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise EOFError("truncated")
    return content


def _structures(folder: Path) -> list[Protein]:
    found, total = [], 0
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _STRUCTURES)
    if not paths:
        raise InputError(
            f"{folder}: neither proteins.npz nor structures ({', '.join(_STRUCTURES)}) with profiles (.pssm) in it"
        )
    for path in paths[:MOST_CHAINS]:
        profile_path = path.with_suffix(".pssm")
        if not profile_path.is_file():
            raise InputError(f"{path}: no profile beside it; expected {profile_path.name}")
        profile = load_psiblast(profile_path)
        chains = load_pdb(path) if path.suffix.lower() in (".pdb", ".ent") else load_mmcif(path)
        placed = [(chain, _placed(chain.sequence, profile.sequence)) for chain in chains]
        fitting = [(chain, place) for chain, place in placed if place is not None]
        if not fitting:
            raise InputError(
                f"{profile_path}: {len(profile.sequence)} residues; {path.name} has chains of "
                f"{', '.join(str(len(chain)) for chain in chains[:10])} with coordinates; expected one as "
                f"long, or (up to {MOST_ALIGNED:,} residues) with {LEAST_ALIKE:.0%} of its letters in the profile"
            )
        chosen, place = max(fitting, key=lambda pair: pair[1].same)
        total += len(place.rows)
        if total > MOST_IN_ALL:
            raise InputError(f"{folder}: more than {MOST_IN_ALL:,} residues in all")
        # Residues without coordinates are breaks.
        ca = np.full((len(profile.sequence), 3), np.nan)
        ca[place.rows] = chosen.ca[place.residues]
        theta, omega = backbone_angles(ca)
        sequence = "".join(profile.sequence[row] for row in place.rows)
        found.append(
            Protein(path.stem, sequence, profile.log_odds[place.rows], theta[place.rows], omega[place.rows])
        )
    return found


@dataclass(frozen=True, eq=False)
class _Placed:
    """Residues of a chain, (n,), the rows of a profile they have, (n,), and how many have the same letter."""

    residues: NDArray[np.intp]
    rows: NDArray[np.intp]
    same: int


def _placed(chain: str, profile: str) -> _Placed | None:
    """One by one if chain and profile are equally long, aligned if not; None if they are too little alike for that."""
    chain, profile = chain.upper(), profile.upper()
    if len(chain) == len(profile):
        pairs = [(k, k) for k in range(len(chain))]
        same = sum(a == b for a, b in zip(chain, profile, strict=True))
    elif max(len(chain), len(profile)) > MOST_ALIGNED or len(profile) < LEAST_ALIKE * len(chain):
        return None
    else:
        steps = SequenceMatcher(None, chain, profile, autojunk=False).get_opcodes()
        same = sum(end - i for tag, i, end, _, _ in steps if tag == "equal" and end - i >= SHORTEST_RUN)
        if same < LEAST_ALIKE * len(chain):
            return None
        # Other letters are placed where as many stand in the profile.
        pairs = [
            pair
            for _, i, end, j, last in steps
            if end - i == last - j
            for pair in zip(range(i, end), range(j, last), strict=True)
        ]
    residues, rows = np.array(pairs).T
    return _Placed(residues, rows, same)


def _text(path: Path, what: str) -> str:
    """A file as text, if there is one and it is not absurdly large."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected {what}")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: larger than {MOST_BYTES >> 20} MB; expected {what}")
    return content.decode("ascii", errors="replace")
