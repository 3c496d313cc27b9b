"""The protein experiment at a tiny size, its loaders on small files, and the generator's exact answer by brute force."""

from __future__ import annotations

import itertools
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.datasets import (
    AMINO_ACIDS,
    backbone_angles,
    backbone_directions,
    load_mmcif,
    load_pdb,
    load_proteins,
    load_psiblast,
    protein_chains,
)
from kernelbp.errors import InputError
from kernelbp.experiments import protein, protein_evidence, protein_rivals
from kernelbp.experiments.local_predictors import ReadyClassifier, ReadyRegressor, cross_fitted
from kernelbp.experiments.protein_chains import (
    FULL,
    Chain,
    Data,
    Fold,
    Sizes,
    chain_of,
    cosines,
    deal,
    directions_of,
    graph_of,
    windows_of,
)
from kernelbp.experiments.protein_evidence import KINDS, WINDOW, linear
from kernelbp.experiments.protein_report import ALONE, CHAIN, EVIDENCE, EXACT, PLAIN, PROCESS
from kernelbp.experiments.report import save
from kernelbp.experiments.study import Options, Study

TINY = Sizes(
    chains=8,
    length=25,
    tuning=2,
    folds=4,
    linear=1,
    boosted=1,
    networks=1,
    particles=1,
    particle_chains=1,
    members=2,
    epochs=2,
    trees=2,
)


@pytest.fixture(scope="module")
def proteins_folder(shared_data: Path) -> Path:
    folder = shared_data / "proteins"
    if not (folder / "proteins.npz").is_file():
        pytest.skip(f"no proteins at {folder}")
    return folder


# ---------------------------------------------------------------------- angles


def helix(residues: int, *, left_handed: bool = False) -> np.ndarray:
    """C-alpha atoms of an ideal alpha helix: 2.3 angstrom from the axis, 100 degrees and 1.5 angstrom apart."""
    turn = np.radians(100) * np.arange(residues) * (-1 if left_handed else 1)
    return np.stack([2.3 * np.cos(turn), 2.3 * np.sin(turn), 1.5 * np.arange(residues)], axis=1)


def test_angles_of_a_helix_are_those_of_the_textbook():
    theta, omega = backbone_angles(helix(12))
    np.testing.assert_allclose(np.degrees(theta[1:-1]), 91, atol=1.5)
    np.testing.assert_allclose(np.degrees(omega[1:-2]), 50, atol=2)
    assert np.isnan(theta[[0, -1]]).all() and np.isnan(omega[[0, -2, -1]]).all()
    np.testing.assert_allclose(backbone_angles(helix(12, left_handed=True))[1], -omega)


def test_angles_do_not_depend_on_where_the_chain_lies():
    rng = np.random.default_rng(0)
    ca = rng.standard_normal((30, 3)).cumsum(axis=0)
    turned, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    turned *= np.sign(np.linalg.det(turned))
    for before, after in zip(backbone_angles(ca), backbone_angles(ca @ turned.T + 5.0), strict=True):
        np.testing.assert_allclose(before, after, atol=1e-9)


def test_a_break_hides_the_angles_beside_it():
    ca = helix(12)
    ca[6:] += 10.0
    theta, omega = backbone_angles(ca)
    assert np.flatnonzero(np.isnan(theta)).tolist() == [0, 5, 6, 11]
    assert np.flatnonzero(np.isnan(omega)).tolist() == [0, 4, 5, 6, 10, 11]
    ca[6:] = np.nan
    assert np.isfinite(backbone_angles(ca)[0]).sum() == 4


@pytest.mark.parametrize("residues", [0, 1, 2, 3])
def test_short_chains_have_few_angles(residues):
    theta, omega = backbone_angles(helix(residues))
    assert np.isfinite(theta).sum() == max(residues - 2, 0) and not np.isfinite(omega).any()


def test_angles_want_rows_of_three():
    with pytest.raises(InputError, match=r"ca: expected positions of shape \(residues, 3\), got \(4, 2\)"):
        backbone_angles(np.zeros((4, 2)))
    with pytest.raises(InputError, match=r"ca: expected positions"):
        backbone_angles("no")


def test_directions_are_unit_vectors_or_unknown():
    directions = backbone_directions([0.0, 1.0, np.nan], [2.0, -3.0, 1.0])
    np.testing.assert_allclose(np.linalg.norm(directions[:2], axis=1), 1.0)
    np.testing.assert_allclose(directions[0], [0, 0, 1], atol=1e-12)
    assert np.isnan(directions[2]).all()


# ---------------------------------------------------------------------- structures


def pdb_line(
    number: int,
    place: np.ndarray,
    *,
    residue: str = "ALA",
    chain: str = "A",
    kind: str = "ATOM",
    atom: str = " CA ",
    other: str = " ",
    occupancy: float = 1.0,
) -> str:
    x, y, z = place
    return (
        f"{kind:<6}{number:5d} {atom}{other}{residue} {chain}{number:4d}    "
        f"{x:8.3f}{y:8.3f}{z:8.3f}{occupancy:6.2f}{10.0:6.2f}           C  "
    )


def test_pdb_takes_the_first_model_and_the_likeliest_location(tmp_path):
    ca = helix(4)
    lines = [
        "MODEL        1",
        pdb_line(1, ca[0], residue="MSE", kind="HETATM"),
        pdb_line(1, ca[0] + 1, residue="MSE", kind="HETATM", atom=" CB "),
        pdb_line(2, ca[1] + 9, other="A", occupancy=0.3),
        pdb_line(2, ca[1], other="B", occupancy=0.7),
        pdb_line(3, ca[2], residue="TRP"),
        pdb_line(3, ca[3], residue="XXX", chain="B"),
        pdb_line(9, ca[3], residue=" CA", kind="HETATM", atom="CA  "),
        "ENDMDL",
        "MODEL        2",
        pdb_line(1, ca[0], residue="GLY"),
        "ENDMDL",
    ]
    path = tmp_path / "one.pdb"
    path.write_text("\n".join(lines))
    first, second = load_pdb(path)
    assert (first.chain, first.sequence) == ("A", "MAW")
    np.testing.assert_allclose(first.ca, ca[:3], atol=1e-3)
    assert (second.chain, second.sequence, len(second)) == ("B", "X", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no C-alpha atoms"),
        ("<html>not found</html>", "no C-alpha atoms"),
        (pdb_line(1, np.zeros(3)).replace("   0.000", "   0.x00"), "line 1: expected three coordinates"),
        (pdb_line(1, np.zeros(3)).replace("   0.000", "     nan"), "line 1: expected finite coordinates"),
    ],
)
def test_what_is_no_pdb_file_is_refused(tmp_path, text, said):
    path = tmp_path / "odd.pdb"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_pdb(path)


def test_a_missing_file_is_named(tmp_path):
    for load, what in ((load_pdb, "a PDB file"), (load_psiblast, "a PSI-BLAST matrix")):
        with pytest.raises(InputError, match=rf"none: no such file; expected {what}"):
            load(tmp_path / "none")


MMCIF_HEAD = """data_TEST
loop_
_atom_site.group_PDB
_atom_site.id
_atom_site.type_symbol
_atom_site.label_atom_id
_atom_site.label_alt_id
_atom_site.label_comp_id
_atom_site.label_asym_id
_atom_site.label_entity_id
_atom_site.label_seq_id
_atom_site.Cartn_x
_atom_site.Cartn_y
_atom_site.Cartn_z
_atom_site.occupancy
_atom_site.B_iso_or_equiv
_atom_site.auth_seq_id
_atom_site.auth_asym_id
_atom_site.pdbx_PDB_model_num
"""


def test_mmcif_gives_what_pdb_does(tmp_path):
    pytest.importorskip("gemmi")
    ca = helix(4).round(3)
    rows, lines = [], []
    for number, residue in enumerate(("ALA", "GLY", "SER", "TRP")):
        x, y, z = ca[number]
        for model in (1, 2):
            shift = 5.0 * (model - 1)
            rows.append(
                (
                    model,
                    f"ATOM {number + 1} C CA . {residue} A 1 {number + 1} {x + shift} {y} {z} 1.0 9.0 {number + 1} A {model}",
                )
            )
        lines.append(pdb_line(number + 1, ca[number], residue=residue))
    rows.append((1, "ATOM 9 C CA B TRP A 1 4 0 0 0 0.2 9.0 4 A 1"))
    rows.append((1, "HETATM 10 CA CA . CA C 2 . 1 1 1 1.0 9.0 201 A 1"))
    (tmp_path / "a.cif").write_text(MMCIF_HEAD + "\n".join(row for _, row in sorted(rows)) + "\n#\n")
    (tmp_path / "a.pdb").write_text("\n".join(lines))
    (found,), (expected,) = load_mmcif(tmp_path / "a.cif"), load_pdb(tmp_path / "a.pdb")
    assert (found.chain, found.sequence) == (expected.chain, expected.sequence) == ("A", "AGSW")
    np.testing.assert_allclose(found.ca, expected.ca)


def test_what_is_no_mmcif_file_is_refused(tmp_path):
    pytest.importorskip("gemmi")
    path = tmp_path / "odd.cif"
    for text, said in (("not a cif", "not an mmCIF file"), ("data_x\n_a.b 1\n", "no C-alpha atoms")):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            load_mmcif(path)


def test_without_gemmi_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gemmi", None)
    with pytest.raises(InputError, match=r'pip install "kernelbp\[proteins\]"'):
        load_mmcif(tmp_path / "a.cif")


# ---------------------------------------------------------------------- profiles


def psiblast_text(sequence: str, table: np.ndarray, order: str = AMINO_ACIDS) -> str:
    head = "\nLast position-specific scoring matrix computed, weighted observed percentages rounded down\n"
    columns = [AMINO_ACIDS.index(letter) for letter in order]
    rows = [
        f"{k + 1:5d} {letter}  " + "".join(f"{table[k, c]:4d}" for c in columns) + "   0" * 20 + "  0.45 inf"
        for k, letter in enumerate(sequence)
    ]
    names = "           " + "   ".join(order + order)
    return "\n".join(
        [
            head + names,
            *rows,
            "",
            "                      K         Lambda",
            "Standard Ungapped    0.13     0.31",
        ]
    )


def test_psiblast_matrices_are_read_in_any_order_of_columns(tmp_path):
    table = np.random.default_rng(0).integers(-9, 12, (7, 20))
    path = tmp_path / "a.pssm"
    for order in (AMINO_ACIDS, AMINO_ACIDS[::-1]):
        path.write_text(psiblast_text("MKVLAGW", table, order))
        found = load_psiblast(path)
        assert found.sequence == "MKVLAGW"
        np.testing.assert_array_equal(found.log_odds, table)


def test_psiblast_numbers_that_touch_are_told_apart(tmp_path):
    text = psiblast_text("A", np.full((1, 20), 3)).replace("   3   3   3", "  -3-10 -11", 1)
    (tmp_path / "a.pssm").write_text(text)
    assert load_psiblast(tmp_path / "a.pssm").log_odds[0, :4].tolist() == [-3, -10, -11, 3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "hello\n", "not a PSI-BLAST matrix"),
        (lambda text: text.replace("    2 K", "    3 K"), "expected row 2, found 3"),
        (lambda text: text.replace("    1 M", "1" * 5000 + " M"), "expected row 1, found 2"),
        (
            lambda text: text.replace("   1   1   1", "", 9).replace("   0   0", ""),
            "expected 20 log-odds in row 1, found",
        ),
    ],
)
def test_what_is_no_psiblast_matrix_is_refused(tmp_path, change, said):
    text = psiblast_text("MKV", np.full((3, 20), 1))
    (tmp_path / "a.pssm").write_text(change(text))
    with pytest.raises(InputError, match=said):
        load_psiblast(tmp_path / "a.pssm")


# ---------------------------------------------------------------------- folders


def write_archive(folder: Path, chains: dict[str, dict[str, np.ndarray]], index: Any = None) -> None:
    held: dict[str, Any] = {
        f"{name}/{piece}": a for name, mine in chains.items() for piece, a in mine.items()
    }
    np.savez(folder / "proteins.npz", **held)
    if index is None:
        index = [{"id": name, "seq": "A" * len(mine["pssm"])} for name, mine in chains.items()]
    (folder / "index.json").write_text(json.dumps(index))


def one_chain(residues: int = 9) -> dict[str, np.ndarray]:
    theta, omega = backbone_angles(helix(residues))
    pssm = np.arange(residues * 20, dtype=np.int8).reshape(residues, 20)
    return {"pssm": pssm, "theta": theta.astype(np.float32), "omega": omega.astype(np.float32)}


def test_archives_give_chains_by_name(tmp_path):
    with_positions = {"pssm": np.zeros((5, 20), np.int8), "ca": helix(5).astype(np.float32)}
    write_archive(tmp_path, {"2bbbB": with_positions, "1aaaA": one_chain()})
    first, second = load_proteins(tmp_path)
    assert [p.name for p in (first, second)] == ["1aaaA", "2bbbB"]
    np.testing.assert_array_equal(first.profile, one_chain()["pssm"])
    assert len(first) == 9 and np.isfinite(first.directions).all(axis=1).sum() == 6
    np.testing.assert_allclose(second.theta[1:-1], backbone_angles(helix(5))[0][1:-1], atol=1e-5)


def test_structures_with_profiles_are_read_from_a_folder(tmp_path):
    ca, table = helix(6), np.ones((6, 20), dtype=int)
    lines = [pdb_line(k + 1, ca[k], residue="GLY", chain="A") for k in range(6)]
    lines += [pdb_line(k + 1, -ca[k], residue="ALA", chain="B") for k in range(6)]
    (tmp_path / "1abc.pdb").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"no profile beside it; expected 1abc\.pssm"):
        load_proteins(tmp_path)
    (tmp_path / "1abc.pssm").write_text(psiblast_text("AAAAAA", table))
    (found,) = load_proteins(tmp_path)
    assert found.name == "1abc" and found.sequence == "AAAAAA"
    np.testing.assert_allclose(found.omega, backbone_angles(-ca)[1], atol=1e-3)
    (tmp_path / "1abc.pssm").write_text(psiblast_text("AAAAA", table[:5]))
    with pytest.raises(InputError, match=r"5 residues; 1abc\.pdb has chains of 6, 6"):
        load_proteins(tmp_path)


RESIDUES = {"M": "MET", "K": "LYS", "V": "VAL", "L": "LEU", "A": "ALA", "G": "GLY", "W": "TRP", "D": "ASP"}


def write_structure(folder: Path, chains: dict[str, dict[int, str]], profile: str) -> np.ndarray:
    """A structure with residues (place on a helix: letter) of each chain, and a profile whose rows are their numbers."""
    ca, table = helix(40), np.repeat(np.arange(len(profile))[:, None], 20, axis=1)
    lines = [
        pdb_line(k + 1, ca[k], residue=RESIDUES[letter], chain=name)
        for name, residues in chains.items()
        for k, letter in residues.items()
    ]
    (folder / "1abc.pdb").write_text("\n".join(lines))
    (folder / "1abc.pssm").write_text(psiblast_text(profile, table))
    return ca


def test_a_profile_of_the_whole_sequence_serves_a_chain_with_residues_missing(tmp_path):
    whole = "MKVLAGWDMKKVGAWLDVMGAKWVDLAMGK"
    seen = [*range(2, 12), *range(16, 28)]
    letters = {k: whole[k] for k in seen}
    letters[20] = "W" if whole[20] != "W" else "D"
    ca = write_structure(tmp_path, {"B": dict.fromkeys(range(25), "G"), "A": letters}, whole)
    (found,) = load_proteins(tmp_path)
    assert found.sequence == "".join(whole[k] for k in seen)
    assert found.profile[:, 0].tolist() == seen
    full = ca.copy()[: len(whole)]
    full[[k for k in range(len(whole)) if k not in seen]] = np.nan
    theta, omega = backbone_angles(full)
    np.testing.assert_allclose(found.theta, theta[seen], atol=1e-3)
    np.testing.assert_allclose(found.omega, omega[seen], atol=2e-3)
    assert np.flatnonzero(np.isnan(found.theta)).tolist() == [0, 9, 10, 21]


def test_residues_without_a_row_are_left_out_and_break_the_chain(tmp_path):
    profile = "MKVLAGWDMKKVGAWLDVMGAKWVDLAMGK"
    letters = dict(enumerate(profile[:15] + "G" + profile[15:]))
    write_structure(tmp_path, {"A": letters}, profile)
    (found,) = load_proteins(tmp_path)
    assert found.sequence == profile and found.profile[:, 0].tolist() == list(range(30))
    assert np.flatnonzero(np.isnan(found.theta)).tolist() == [0, 14, 15, 29]


def test_a_profile_of_another_protein_is_refused_though_its_letters_appear(tmp_path):
    profile = "MKVLAGWDMKKVGAWLDVMGAKWVDLAMGK"
    for letters in (profile[::3], profile[:20][::-1]):
        write_structure(tmp_path, {"A": dict(enumerate(letters))}, profile)
        with pytest.raises(
            InputError, match=rf"30 residues; 1abc\.pdb has chains of {len(letters)} .*with 90% of"
        ):
            load_proteins(tmp_path)


def test_folders_that_hold_something_else_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        load_proteins(tmp_path / "none")
    with pytest.raises(InputError, match=r"neither proteins\.npz nor structures"):
        load_proteins(tmp_path)
    write_archive(tmp_path, {"1aaaA": one_chain()})
    (tmp_path / "index.json").write_text("[{")
    with pytest.raises(InputError, match="not JSON"):
        load_proteins(tmp_path)
    for index, said in (
        ({}, "expected a list"),
        ([{"id": 3}], "entry 0"),
        ([{"id": "1aaaA", "seq": "A" * 9}] * 2, "appears twice"),
        ([{"id": "1aaaA", "seq": "A" * 8}], r"has shape \(9,\).*expected numbers of shape \(8,\)"),
        ([{"id": "other", "seq": "A" * 9}], "other needs pssm"),
    ):
        write_archive(tmp_path, {"1aaaA": one_chain()}, index)
        with pytest.raises(InputError, match=said):
            load_proteins(tmp_path)


def test_corrupt_archives_and_objects_are_refused(tmp_path):
    write_archive(tmp_path, {"1aaaA": one_chain()})
    whole = (tmp_path / "proteins.npz").read_bytes()
    (tmp_path / "proteins.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not an archive"):
        load_proteins(tmp_path)
    held: Any = {**one_chain(), "theta": np.array([{}] * 9, dtype=object)}
    write_archive(tmp_path, {"1aaaA": held})
    with pytest.raises(InputError, match="expected numbers of shape"):
        load_proteins(tmp_path)


def test_damaged_members_and_deep_indices_are_refused(tmp_path):
    write_archive(tmp_path, {"1aaaA": one_chain()})
    with zipfile.ZipFile(tmp_path / "proteins.npz") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "proteins.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, held in content.items():
            archive.writestr(name, held)
        begins = {info.filename: info.header_offset + 30 + len(info.filename) for info in archive.infolist()}
    whole = (tmp_path / "proteins.npz").read_bytes()
    for name, begin in begins.items():
        damaged = bytearray(whole)
        damaged[begin : begin + 8] = b"\xff" * 8
        (tmp_path / "proteins.npz").write_bytes(damaged)
        with pytest.raises(InputError, match="not an archive"):
            load_proteins(tmp_path)
        assert name.startswith("1aaaA/")
    (tmp_path / "index.json").write_text("[" * 200_000)
    with pytest.raises(InputError, match="not JSON"):
        load_proteins(tmp_path)


def test_a_header_that_promises_too_much_is_not_believed(tmp_path):
    write_archive(tmp_path, {"1aaaA": one_chain()})
    with zipfile.ZipFile(tmp_path / "proteins.npz") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["1aaaA/pssm.npy"] = content["1aaaA/pssm.npy"][:-40]
    with zipfile.ZipFile(tmp_path / "proteins.npz", "w") as archive:
        for name, held in content.items():
            archive.writestr(name, held)
    with pytest.raises(InputError, match="truncated"):
        load_proteins(tmp_path)


def test_real_chains_have_the_angles_of_their_atoms(proteins_folder):
    chains = {chain.name: chain for chain in load_proteins(proteins_folder)}
    assert len(chains) == 620 and sum(len(chain) > 100 for chain in chains.values()) == 483
    with np.load(proteins_folder / "proteins.npz") as held:
        for name in sorted(chains)[::6]:
            for found, known in zip(
                backbone_angles(held[f"{name}/ca"]), (chains[name].theta, chains[name].omega), strict=True
            ):
                np.testing.assert_array_equal(np.isnan(found), np.isnan(known))
                apart = np.angle(np.exp(1j * (found - known)))
                np.testing.assert_allclose(apart[np.isfinite(apart)], 0.0, atol=1e-4)


def test_real_pdb_files_give_the_chains_of_the_archive(proteins_folder):
    chains = {chain.name: chain for chain in load_proteins(proteins_folder)}
    compared = 0
    for path in sorted((proteins_folder / "pdb").glob("*.pdb")):
        (backbone,) = load_pdb(path)
        if path.stem in chains:
            assert backbone.sequence == chains[path.stem].sequence
            theta, _ = backbone_angles(backbone.ca)
            np.testing.assert_allclose(theta, chains[path.stem].theta, atol=1e-3)
            compared += 1
    assert compared >= 3


# ---------------------------------------------------------------------- the generator


def test_exact_means_equal_enumeration_of_regimes_and_quadrature():
    (chain,), process = protein_chains(1, length=4, seed=3)
    theta, omega = (np.arange(120) + 0.5) * np.pi / 120, (np.arange(240) + 0.5) * np.pi / 120
    grid = np.meshgrid(theta, omega, indexing="ij")
    points = backbone_directions(grid[0].ravel(), grid[1].ravel())
    area = np.sin(grid[0].ravel())
    # For each residue and regime: integral of density times likelihood, and the mean direction under it.
    mass, means = np.empty((4, 3)), np.empty((4, 3, 3))
    for t, regime in itertools.product(range(4), range(3)):
        kappa, centre = process.concentrations[regime], process.centres[regime]
        prior = np.exp(kappa * (points @ centre - 1)) * area
        apart = chain.profile[t] - points @ process.slopes.T - process.offsets[regime]
        both = prior / prior.sum() * np.exp(-0.5 * (apart**2).sum(axis=1) / process.noise**2)
        mass[t, regime], means[t, regime] = both.sum(), both @ points / both.sum()
    weights = np.zeros((4, 3))
    for regimes in itertools.product(range(3), repeat=4):
        chance = process.stationary[regimes[0]] * np.prod(
            [process.transitions[a, b] for a, b in itertools.pairwise(regimes)]
        )
        chance *= np.prod([mass[t, regime] for t, regime in enumerate(regimes)])
        for t, regime in enumerate(regimes):
            weights[t, regime] += chance
    expected = np.einsum("tk,tkd->td", weights / weights.sum(axis=1, keepdims=True), means)
    np.testing.assert_allclose(process.exact_means(chain.profile), expected, atol=2e-3)


def test_the_length_of_exact_means_is_the_cosine_to_expect():
    chains, process = protein_chains(40, length=100, seed=1)
    means = np.concatenate([process.exact_means(chain.profile) for chain in chains])
    truth = np.concatenate([chain.directions for chain in chains])
    size = np.linalg.norm(means, axis=1)
    found = (means / size[:, None] * truth).sum(axis=1)
    # 4,000 cosines of standard deviation 0.3, dependent over some ten residues.
    assert abs(found.mean() - size.mean()) < 5 * 0.3 / np.sqrt(400)


def test_chains_are_the_seeds_and_share_their_process():
    first, process = protein_chains(2, length=20, seed=4)
    again, _ = protein_chains(2, length=20, seed=4)
    other, same = protein_chains(2, length=20, seed=5)
    np.testing.assert_array_equal(first[1].profile, again[1].profile)
    assert np.abs(first[0].profile - other[0].profile).max() > 0.1
    np.testing.assert_array_equal(process.slopes, same.slopes)
    np.testing.assert_allclose(process.slopes.T @ process.slopes, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("wrong", [{"n_chains": 0}, {"length": 0}, {"noise": 0.0}])
def test_the_generator_refuses_what_makes_no_sense(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        protein_chains(**({"n_chains": 2} | wrong))


# ---------------------------------------------------------------------- the experiment


def study(folder: Path, *, resume: bool = False, data: Path | None = None) -> Study:
    return Study("protein", Options(folder, data, quick=True, resume=resume), extras={"window": 3})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("protein")
    few = {"n_particles": 5, "resample_every": 1, "mcmc_steps": 2}
    trials = {name: (few, 2, evidence) for name, (_, _, evidence) in protein_rivals.PARTICLE_TRIALS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protein_rivals, "PARTICLE_TRIALS", trials)
        return folder, protein.run(study(folder), 3, sizes=TINY)


def test_experiment_runs_from_end_to_end_and_is_saved(finished, tmp_path):
    _, report = finished
    tables = {table.name: table for table in report.tables}
    assert set(tables) == {"summary", "particles", "particle_settings", "folds"}
    methods = {(row["evidence"], row["method"]) for row in tables["summary"].rows}
    for evidence in KINDS:
        for method in (ALONE, EVIDENCE, PLAIN, CHAIN):
            assert (evidence, method) in methods
    assert all(-1 <= row["mean cosine"] <= 1 for row in tables["folds"].rows)
    # Said of particle BP's settings: which training chains they were chosen on.
    assert "may be among the test chains of another fold" in tables["particles"].note
    page = save(report, tmp_path)
    for name in ("angles", "folds", "particles"):
        assert (tmp_path / f"{name}.png").is_file() and (tmp_path / f"{name}.svg").is_file()
    assert "switching von Mises-Fisher" in page.read_text(encoding="utf-8")
    assert (tmp_path / "summary.csv").read_text().count("\n") == len(tables["summary"].rows) + 1


def test_resumed_experiment_repeats_no_work(finished, monkeypatch):
    folder, report = finished

    def fail(*_: Any) -> Any:
        raise AssertionError("a finished case was run again")

    for name in ("linear_fold", "networks_fold", "boosting_fold", "particle_search", "particle_fold"):
        monkeypatch.setattr(protein, name, fail)
    again = protein.run(study(folder, resume=True), 3, sizes=TINY)
    assert [table.rows for table in again.tables] == [table.rows for table in report.tables]


def blank_chain(name: str) -> Chain:
    return Chain(name, np.zeros((2, 3)), np.zeros((2, 20)), np.ones(2, bool))


def test_no_chain_is_both_trained_on_and_tested_and_entries_stay_together():
    chains = [blank_chain(f"{k:04d}{letter}") for k in range(30) for letter in "AB"]
    folds = deal(chains, 10, np.random.default_rng(0))
    assert (folds[0::2] == folds[1::2]).all()
    assert (np.bincount(folds, minlength=10) == 6).all()
    fold = Fold(Data(chains, False), folds, 3, 15, TINY, 0)
    assert len(fold.test) == 6 and not set(map(id, fold.train)) & set(map(id, fold.test))


@pytest.mark.parametrize(
    "name",
    ["1abc", "1ABCB", "1abc_A", "1abc_AA", "1abcAA", "1ABC-A", "1abc.A", "1abc:A", "d1abca_", "d1abca1", "D1ABC__", "pdb1abc",
     "PDB1ABC_B", "pdb_00001abc", "1abcA01", "1abcA_2"],
)  # fmt: skip
def test_names_of_one_entry_are_known_in_many_spellings(name):
    others = [f"{k}xyzA" for k in range(1, 9)]
    folds = deal([blank_chain(other) for other in ("1abcA", name, *others)], 9, np.random.default_rng(0))
    assert folds[0] == folds[1] and len(set(folds)) == 9


def test_names_that_are_no_entries_stand_for_themselves():
    names = ["T0950", "T0951", "dimer1", "protein1", "100001", "100002", "AF-P12345", "AF-P12346"]
    folds = deal([blank_chain(name) for name in names], 8, np.random.default_rng(0))
    assert sorted(folds) == list(range(8))


def test_chains_of_equal_sequence_share_a_fold_and_so_do_their_entries():
    sequences = {
        "1aaaA": "MKV",
        "1aaaB": "LAG",
        "2bbbA": "lag",
        "2bbbB": "WDM",
        "3cccA": "WDM",
        "4dddA": "XX",
        "5eeeA": "XX",
    }
    chains = [replace(blank_chain(name), sequence=letters) for name, letters in sequences.items()]
    folds = deal(chains, 3, np.random.default_rng(0))
    assert len(set(folds[:5])) == 1 and sorted(set(folds)) == [0, 1, 2]
    (made, *_), _ = protein_chains(1, length=5)
    assert chain_of(replace(made, sequence="MKVLA")).sequence == "MKVLA"


def test_folds_of_the_shared_chains_are_by_entry_alone(proteins_folder):
    chains = [chain_of(p) for p in load_proteins(proteins_folder) if len(p) > 100]
    names, numbers = np.unique([chain.name[:4].lower() for chain in chains], return_inverse=True)
    expected = (np.argsort(np.random.default_rng([0, 1]).permutation(len(names))) % 10)[numbers]
    np.testing.assert_array_equal(deal(chains, 10, np.random.default_rng([0, 1])), expected)
    assert len(Fold(Data(chains, False), expected, 0, 15, FULL, 0).tuning) == 24


@pytest.mark.parametrize("count", [20, 26, 120])
def test_most_training_chains_are_left_to_learn_from(count):
    chains = [blank_chain(f"{k:04d}A") for k in range(count)]
    folds = deal(chains, FULL.folds, np.random.default_rng(0))
    for number in range(FULL.folds):
        fold = Fold(Data(chains, False), folds, number, 15, FULL, 0)
        assert len(fold.tuning) == min(24, len(fold.train) // 4)
        assert len(fold.rest) == len(fold.train) - len(fold.tuning)


def test_fewer_entries_than_folds_are_refused(tmp_path):
    names = [f"{entry}abc{letter}" for entry in (1, 2, 3) for letter in "ABC"]
    index = [{"id": name, "seq": name * 24} for name in names]
    write_archive(tmp_path, dict.fromkeys(names, one_chain(120)), index)
    with pytest.raises(InputError, match=r"8 chains of 3 entries .*expected at least 4 entries"):
        protein.run(study(tmp_path / "a", data=tmp_path), 3, sizes=TINY)
    index = [{"id": f"{k}abcA", "seq": "MK" * 60} for k in range(1, 9)]
    write_archive(tmp_path, {entry["id"]: one_chain(120) for entry in index}, index)
    with pytest.raises(InputError, match=r"8 chains of 1 entries"):
        protein.run(study(tmp_path / "b", data=tmp_path), 3, sizes=TINY)


@pytest.mark.parametrize(("generated", "full"), [(False, True), (False, False), (True, False)])
def test_aims_that_are_numbers_stand_only_in_a_full_run_on_data(generated, full):
    summary = [
        {"evidence": evidence, "method": method, "mean cosine": 0.6, "folds": 1}
        for evidence in KINDS
        for method in (ALONE, CHAIN)
    ]
    summary.append({"evidence": PROCESS, "method": EXACT, "mean cosine": 0.8, "folds": 1})
    claims = protein._claims(Data([], generated), summary, [], 15, full=full)
    aims = [claim for claim in claims if "at least" in claim.wanted and "share" not in claim.what]
    assert len(aims) == (3 if full else 0)
    assert all("set for the 483 chains of docs/results/protein.md" in claim.what for claim in aims)
    assert sum("above its local predictor" in claim.what for claim in claims) == len(KINDS)


def test_the_weight_of_edges_is_fitted_on_chains_that_neither_learn_nor_are_tested(monkeypatch):
    made, _ = protein_chains(16, length=20, seed=0)
    chains = [chain_of(p) for p in made]
    folds = deal(chains, 4, np.random.default_rng(0))
    sizes = replace(TINY, chains=16, tuning=3)
    fold = Fold(Data(chains, True), folds, 1, 3, sizes, 0)
    kind = linear(fold, WINDOW, 3)
    learned, asked = [], []
    learn, infer = protein.learn, protein.infer

    def learning(train: Any, readings: Any, **settings: Any) -> kb.Model:
        learned.append((train, readings))
        return learn(train, readings, **settings)

    def inferring(model: Any, graph: Any, weight: float) -> Any:
        asked.append((graph, weight))
        return infer(model, graph, weight)

    monkeypatch.setattr(protein, "learn", learning)
    monkeypatch.setattr(protein, "infer", inferring)
    weight = protein.fitted_weights(fold, [kind])[kind.name]
    ((train, readings),) = learned
    used, tuned = {id(chain) for chain in train}, {id(chain) for chain in fold.tuning}
    assert len(tuned) == 3 and not used & tuned and not (used | tuned) & set(map(id, fold.test))
    assert used | tuned == set(map(id, fold.train))
    np.testing.assert_array_equal(readings[kind.name][1], windows_of(fold.rest, 3))
    assert all(graph.n_nodes == 3 * 20 for graph, _ in asked)
    # The weight of the highest score among those tried.
    model = learn(*learned[0])
    truth = directions_of(fold.tuning)
    scores = [cosines(infer(model, *trial).mean(), truth).mean() for trial in asked]
    assert [w for _, w in asked] == list(protein.WEIGHTS) and weight == protein.WEIGHTS[np.argmax(scores)]


def test_windows_hold_the_profiles_around_each_known_residue():
    profile = np.arange(100.0).reshape(5, 20)
    known = np.array([False, True, True, False, True])
    chain = Chain("1aaaA", np.full((5, 3), 0.5), profile, known)
    found = windows_of([chain], 3)
    assert found.shape == (3, 60)
    np.testing.assert_array_equal(found[0], profile[0:3].ravel())
    np.testing.assert_array_equal(found[2], np.concatenate([profile[3], profile[4], np.zeros(20)]))
    told = windows_of([chain, chain], 3, np.arange(1.0, 7.0)[:, None])
    assert told[:3].tolist() == [[0, 1, 2], [1, 2, 0], [0, 3, 0]] and told[3].tolist() == [0, 4, 5]
    graph = graph_of([chain, chain])
    assert graph.n_nodes == 6 and graph.edges.tolist() == [[0, 1], [3, 4]]


def test_kernel_bp_comes_within_two_percent_of_the_exact_answer():
    train, process = protein_chains(50, length=80, seed=0)
    test, _ = protein_chains(20, length=100, seed=1)
    chains, seen = [chain_of(p) for p in train], [chain_of(p, process) for p in test]
    model = protein.learn(chains, {"one": ("posterior", windows_of(chains, 1).astype(float))})
    graph = graph_of(seen).observe("one", windows_of(seen, 1).astype(float))
    truth = directions_of(seen)
    exact = cosines(np.concatenate([chain.exact for chain in seen]), truth).mean()
    assert cosines(model.infer(graph).mean(), truth).mean() >= 0.98 * exact


def test_members_speak_only_about_chains_they_have_not_seen():
    readings = [np.full((2, 1), float(k)) for k in range(7)]

    def train(x: np.ndarray, y: np.ndarray, member: int) -> Any:
        return lambda new: np.isin(new, x).astype(float)

    together, said = cross_fitted(readings, readings, list("abcdefg"), train, 3)
    assert not said.any() and said.shape == (14, 1)
    # Each chain is known to two of three members.
    np.testing.assert_allclose(together(np.array([[4.0]])), 2 / 3)


def test_members_have_not_seen_relatives_of_the_chains_they_speak_about():
    """Chains that come twice: the member that speaks about one does not know the other."""
    readings = [np.full((2, 1), float(k // 2)) for k in range(8)]

    def train(x: np.ndarray, y: np.ndarray, member: int) -> Any:
        return lambda new: np.isin(new, x).astype(float)

    _, said = cross_fitted(readings, readings, list("aabbccdd"), train, 2)
    assert not said.any()


def test_settings_are_chosen_on_whole_families():
    chains = [blank_chain(f"{k:03d}x{letter}") for k in range(1, 60) for letter in "AB"]
    fold = Fold(Data(chains, False), deal(chains, 10, np.random.default_rng(0)), 3, 15, FULL, 0)
    chosen, rest = ({chain.name[:4] for chain in part} for part in (fold.tuning, fold.rest))
    assert len(fold.tuning) == 24 and len(chosen) == 12 and not chosen & rest


def test_the_second_round_reads_what_members_said_of_chains_they_had_not_seen(monkeypatch):
    made, _ = protein_chains(8, length=25, seed=0)
    chains = [chain_of(p) for p in made]
    fold = Fold(Data(chains, True), deal(chains, 4, np.random.default_rng(0)), 1, 3, TINY, 0)
    rounds: list[Any] = []
    spoken = protein_evidence.networks_spoken

    def speaking(readings: Any, *others: Any, **settings: Any) -> Any:
        together, said = spoken(readings, *others, **settings)
        rounds.append((np.concatenate(readings), said))
        return together, said

    monkeypatch.setattr(protein_evidence, "networks_spoken", speaking)
    alone, found = protein_evidence.networks(fold)
    (first, said), (second, heard) = rounds
    states = found.settings["landmarks"]["direction"]
    np.testing.assert_array_equal(first, windows_of(fold.train, 3))
    np.testing.assert_array_equal(second[:, :60], first)
    np.testing.assert_array_equal(second[:, 60:], windows_of(fold.train, 3, np.exp(said) @ states))
    np.testing.assert_array_equal(alone.heard, said)
    np.testing.assert_array_equal(found.heard, heard)
    # Directions of test chains have no part in what is said about them.
    hidden = [
        replace(c, directions=c.directions[::-1]) if f == 1 else c
        for c, f in zip(chains, fold.folds, strict=True)
    ]
    again = protein_evidence.networks(replace(fold, data=Data(hidden, True)))
    for mine, theirs in zip(again, (alone, found), strict=True):
        np.testing.assert_array_equal(mine.seen, theirs.seen)


def test_predictions_made_beforehand_are_evidence():
    rng = np.random.default_rng(0)
    value = rng.standard_normal(600)
    said = value + 0.3 * rng.standard_normal(600)
    model = kb.Model(
        {"x": kb.kernels.Gaussian(), "y": kb.kernels.Linear()},
        {"then": kb.Relation("x", "x"), "said": kb.Relation("x", "y", evidence=ReadyRegressor())},
    )
    model.fit({"then": (value[:-1], value[1:]), "said": (value, said[:, None])})
    graph = kb.Graph.from_edges([], variables=["x"] * 600).observe("said", said[:, None])
    assert np.corrcoef(model.infer(graph).mean(), value)[0, 1] > 0.9
    ready = ReadyClassifier().fit(np.zeros((3, 4)), [0, 2, 2])
    assert ready.predict(np.log([[0.1, 0.6, 0.2, 0.1]])).tolist() == [2]


def test_even_windows_and_few_chains_are_refused(tmp_path):
    with pytest.raises(InputError, match="window: expected an odd number of residues, got 4"):
        protein.run(study(tmp_path / "a"), 4, sizes=TINY)
    write_archive(tmp_path, {"1aaaA": one_chain(120), "2aaaA": one_chain()})
    with pytest.raises(InputError, match=r"chains of more than 100 residues.*expected at least 8"):
        protein.run(study(tmp_path / "b", data=tmp_path), 3, sizes=TINY)
