"""Make the relation that comes with the library: ``python -m kernelbp.photographs.make_ready``.

It is learned from photographs that scikit-image carries in its package, all free to use: the astronaut (NASA, public
domain), the camera (CC0, Lav Varshney), Chelsea the cat (CC0, Stefan van der Walt), the coffee cup (CC0,
Rachel Michetti), the rocket (SpaceX, public domain) and the coins (Brooklyn Museum, no known copyright
restrictions). What is stored is how often neighbouring values go together, from which no picture can be had back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from kernelbp.extras import extra_library
from kernelbp.photographs.relations import READY, Photographs, learn

__all__ = ["make_ready"]

NAMES = ("astronaut", "camera", "chelsea", "coffee", "rocket", "coins")
TIMES_SMALLER = 3
"""The photographs are large and soft; made smaller they have as much detail as others (of 1, 2, 3 and 4 times, 3 did best
on photographs that were not learned from)."""
LEVELS = (5.0, 10.0, 20.0, 30.0, 50.0)
"""Noise for which settings are fitted."""


def make_ready(*, calibrate: bool = True, progress: bool = False) -> Photographs:
    """Learn from the photographs of scikit-image; the same each time."""
    return learn(
        [bundled(name) for name in NAMES], sigma=LEVELS, seed=0, calibrate=calibrate, progress=progress
    )


def bundled(name: str, times_smaller: int = TIMES_SMALLER) -> NDArray[np.float64]:
    """A photograph in scikit-image's package, made smaller by taking means of squares of pixels."""
    data = extra_library("skimage.data", "images", "learning anew from the bundled photographs")
    photo = np.asarray(getattr(data, name)(), dtype=np.float64)
    rows, columns = (length // times_smaller for length in photo.shape[:2])
    cut = photo[: rows * times_smaller, : columns * times_smaller]
    squares = cut.reshape(rows, times_smaller, columns, times_smaller, *photo.shape[2:])
    return np.asarray(squares.mean(axis=(1, 3)))


def main(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = READY,
    keep_settings: Annotated[
        bool,
        typer.Option(
            "--keep-settings",
            help="Keep the settings of inference that stand in the folder: seconds instead of minutes, for a new file format.",
        ),
    ] = False,
) -> None:
    """Learn the relation that comes with the library from scikit-image's photographs, and write it."""
    made = make_ready(calibrate=not keep_settings, progress=True)
    if keep_settings:
        made = made.with_settings_of(out)
    made.save(out)
    for channel in (made.gray, made.colour):
        assert channel is not None
        typer.echo(repr(channel.model.settings_["variables"]["pixel"]))
        for sigma, calibration in channel.calibrations.items():
            typer.echo(f"sigma {sigma:g}: {calibration}")
    sizes = {path.name: path.stat().st_size for path in sorted(out.iterdir()) if path.is_file()}
    typer.echo(f"bytes: {sizes}")


if __name__ == "__main__":
    typer.run(main)
