"""``kernelbp reproduce NAME``: the paper's experiments from the command line."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["reproduce"]

reproduce = typer.Typer(
    help="Rerun the paper's experiments: tables, pictures and one HTML page each.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

WIDE = 160
"""Letters of a line where the output is not a terminal."""
INTERRUPTED = 130
"""What a shell calls a program that was stopped by Ctrl-C."""

Quick = Annotated[
    bool, typer.Option("--quick", metavar="", help="Smaller sizes, fewer repetitions: minutes.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Out = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="Folder for CSV, PNG, SVG and index.html; if not given, results/ and the name of the experiment, with -quick after a quick run.",
        show_default=False,
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", metavar="", help="Go on from what an interrupted run has finished.")
]


@reproduce.command()
def denoising(
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Folder of the paper's images (PGM); else they are generated."
        ),
    ] = None,
    photos: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Denoise photographs instead: a folder with train/ and test/, or one whose first half, by name, is learned from.",
        ),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Figure 1: sunsets of 10 to 250 colours, discrete, Gaussian-mixture, particle and kernel BP."""
    _carry_out("denoising", data, quick, seed, out, resume, {"photos": photos})


@reproduce.command()
def approximation(
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="Folder of the paper's images (PGM); else they are generated."
        ),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Appendix 3: error and runtime of constant, linear and full updates, and ranks of the features."""
    _carry_out("approximation", data, quick, seed, out, resume, {})


@reproduce.command()
def depth(
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder in the form of Make3D, 7-Scenes or Middlebury; else the stereo pair of scikit-image.",
        ),
    ] = None,
    quick: Quick = False,
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Figure 2: depth of every patch of an image from its colours and textures."""
    _carry_out("depth", data, quick, seed, out, resume, {})


@reproduce.command()
def protein(
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Folder with proteins.npz, or of PDB/mmCIF files with profiles; else generated.",
        ),
    ] = None,
    window: Annotated[
        int,
        typer.Option(
            min=1, help="How many residues' profiles, around each residue, are its evidence; an odd number."
        ),
    ] = 15,
    quick: Quick = False,
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Figure 3: directions along protein backbones from sequence profiles."""
    _carry_out("protein", data, quick, seed, out, resume, {"window": window})


@reproduce.command()
def papers(
    data: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="A .mat file, or a folder with one or with edges.txt, texts.txt and labels.txt; else generated.",
        ),
    ] = None,
    dimensions: Annotated[
        int, typer.Option(min=1, help="Numbers that a set of labels is projected to (the paper's d).")
    ] = 100,
    quick: Quick = False,
    seed: Seed = 0,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Appendix 4: label sets of papers in a citation network."""
    _carry_out("papers", data, quick, seed, out, resume, {"dimensions": dimensions})


def _carry_out(
    name: str,
    data: Path | None,
    quick: bool,
    seed: int,
    out: Path | None,
    resume: bool,
    extras: dict[str, Any],
) -> None:
    from rich.console import Console
    from rich.markup import escape

    from kernelbp.errors import KernelBPError
    from kernelbp.experiments.report import save, show
    from kernelbp.experiments.study import Options, Study

    # Into a file or a pipe lines may be long; a table cut to 80 letters is hard to read.
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    complaints = Console(stderr=True)
    # A first look does not stand in the way of the whole run.
    folder = out or Path("results") / (f"{name}-quick" if quick else name)
    try:
        study = Study(name, Options(folder, data, quick, seed, resume), console, extras)
        report = import_module(f"kernelbp.experiments.{name}").run(study, **extras)
        page = save(report, folder)
    except (KernelBPError, OSError, MemoryError) as error:
        said = str(error) or "not enough memory; what was finished is kept"
        complaints.print(f"[red]Error:[/] {escape(said)}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        complaints.print(
            f"Stopped. What was finished is kept in {escape(str(folder))}: the same command with --resume goes on.",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    show(report, console)
    console.print(
        escape(f"Tables, pictures and the page {page} are in {folder}"), highlight=False, soft_wrap=True
    )
