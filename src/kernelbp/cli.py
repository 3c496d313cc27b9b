"""The command line: ``kernelbp bench``, ``kernelbp denoise`` and ``kernelbp reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelbp import __version__
from kernelbp.experiments.commands import reproduce
from kernelbp.photographs.command import denoise
from kernelbp.speed.run import GROUPS, Group

__all__ = ["app"]

app = typer.Typer(
    name="kernelbp",
    help="Belief propagation over variables of any kind, with every relation learned from examples.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

app.command()(denoise)
app.add_typer(reproduce, name="reproduce")

NAMES = ", ".join(group.name for group in GROUPS)
DEFAULT_OUT = Path("bench-results")
NARROW = 130
"""Letters of a line under which a table has fewer columns."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelbp {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Belief propagation over variables of any kind, with every relation learned from examples."""


@app.command()
def bench(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            metavar="",
            help="Smaller sizes: under two minutes on two cores, not a quarter of an hour.",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for speed.csv and speed.png; made if need be.")
    ] = DEFAULT_OUT,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Just this group of lines; may be given again. Groups: {NAMES}."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Threads that count as all cores; by default as many as BLAS may use."),
    ] = None,
) -> None:
    """Measure how fast the library is on this machine.

    Every line is a ratio to something fixed that is measured in the same run: the machine's own matrix product,
    plain NumPy, the paper's slower updates, other libraries, or a limit set beforehand. A line holds if its ratio
    is what was aimed for.

    Lines against other libraries need them installed: `pip install ".[peers]"`, in a clone, brings InferLO, and
    `pip install pgmax==0.6.1 "jax<0.8"` PGMax (with TensorFlow and Jupyter, hence not in the extra).

    Times on one thread are of that thread alone. All others are of the wall clock: run on a quiet machine.
    """
    groups = _chosen(only)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder: {error}", param_hint="--out") from error
    _run_bench(groups, quick=quick, out=out, seed=seed, jobs=jobs)


def _chosen(only: list[str] | None) -> tuple[Group, ...]:
    known = {group.name: group for group in GROUPS}
    for name in only or ():
        if name not in known:
            raise typer.BadParameter(f"there is no group {name!r}; there are {NAMES}", param_hint="--only")
    return tuple(group for group in GROUPS if only is None or group.name in only)


def _run_bench(groups: tuple[Group, ...], *, quick: bool, out: Path, seed: int, jobs: int | None) -> None:
    import platform
    import time

    import numpy as np
    from rich.console import Console

    from kernelbp import speed as benchmark
    from kernelbp.figures.speed import speed
    from kernelbp.inference.engine import available_threads
    from kernelbp.speed import FULL, QUICK, Settings, save_csv, table

    console = Console()
    settings = Settings(QUICK if quick else FULL, seed, jobs or available_threads())
    machine = (
        f"kernelbp {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, "
        f"{settings.n_jobs} thread{'s' if settings.n_jobs > 1 else ''}, {'quick' if quick else 'full'} run"
    )
    console.print(machine)
    began = time.perf_counter()
    rows = benchmark.measure(settings, groups, console)
    console.print(table(rows, narrow=console.width < NARROW))
    verdicts = [row.holds for row in rows if row.holds is not None]
    save_csv(rows, out / "speed.csv")
    titles = {group.name: group.title for group in groups}
    if any(row.ratio is not None for row in rows):
        speed(rows, titles, subtitle=machine).savefig(out / "speed.png", dpi=110)
    console.print(
        f"{sum(verdicts)} of {len(verdicts)} targets hold. {time.perf_counter() - began:.0f} s in all. "
        f"Results are in {out}"
    )


if __name__ == "__main__":
    app()
