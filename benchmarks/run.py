"""Run benchmarks: tables on the terminal, CSV files and one picture in a folder.

``make accuracy``, or ``python benchmarks/run.py --quick --out bench-results``. All on one thread.
Times are processor time, next to their ratio to one float32 matrix product measured in the same run. The paper's
experiments, with the rivals beside us, are ``kernelbp reproduce``; speed is ``kernelbp bench``.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import cycles
import denoising
import links
import numpy as np
import paper_preset
import picture
import products
import scaling
import sequences
from common import SGEMM_SIZE, Results, Settings, sgemm_seconds
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from threadpoolctl import threadpool_limits

BENCHMARKS = {
    "paper_preset": paper_preset.run,
    "denoising": denoising.run,
    "by_hand": denoising.by_hand,
    "scaling": scaling.run,
    "cycles": cycles.run,
    "links": links.run,
    "products": products.run,
    "sequences": sequences.run,
}
BY_DEFAULT = ("paper_preset", "denoising", "scaling", "cycles")
"""The others take up to half an hour each, and most of what they measure needs data that is not part of the project."""
PICTURED = ("paper_preset", "scaling")
"""How the names of tables begin that have a panel in the picture."""
REPOSITORY = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run those chosen, print, save."""
    options = parse(arguments)
    console = Console()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    results: dict[str, Results] = {}
    with threadpool_limits(1):
        unit = sgemm_seconds()
        console.print(
            f"Python {platform.python_version()}, NumPy {np.__version__}, one thread, seconds of processor time. "
            f"One sgemm of {SGEMM_SIZE} x {SGEMM_SIZE}: {1e3 * unit:.1f} ms, {2e-9 * SGEMM_SIZE**3 / unit:.0f} Gflop/s."
        )
        with Progress(console=console, transient=True) as progress:
            settings = Settings(options.quick, options.images, progress)
            for name in options.only or BY_DEFAULT:
                for found in BENCHMARKS[name](settings):
                    progress.console.print(found.table())
                    found.save(options.out)
                    results[found.name] = found
    claims = [claim for found in results.values() for claim in found.claims]
    if claims:
        table = Table(title="Claims", title_justify="left")
        for column in ("claim", "measured", "wanted", "holds"):
            table.add_column(column)
        for claim in claims:
            table.add_row(
                claim.what, claim.measured, claim.wanted, "[green]yes" if claim.holds else "[red]no"
            )
        console.print(table)
        rows = [(claim.what, claim.measured, claim.wanted, claim.holds) for claim in claims]
        Results("claims", "", ("claim", "measured", "wanted", "holds"), rows).save(options.out)
    drawn = any(name.startswith(PICTURED) for name in results)
    if drawn:
        picture.draw(results).savefig(options.out / "benchmarks.png", dpi=110)
    console.print(
        f"{time.perf_counter() - began:.0f} s in all. Tables {'and picture ' if drawn else ''}are in {options.out}"
    )


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure accuracy and speed.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, about three minutes")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), help="just these")
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="folder for results (default: bench-results)"
    )
    parser.add_argument(
        "--images",
        type=Path,
        default=REPOSITORY.parent / "shared" / "data" / "sunset",
        help="folder with the paper's source*.pgm; without them the same images are drawn",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
