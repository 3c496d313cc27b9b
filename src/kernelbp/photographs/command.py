"""``kernelbp denoise``: from file to file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from kernelbp.photographs.denoising import Denoised
    from kernelbp.photographs.files import Picture
    from kernelbp.photographs.relations import Photographs

__all__ = ["denoise"]

INTERRUPTED = 130
"""What a shell calls a program that was stopped by Ctrl-C."""
PATIENCE = 2.0
"""Seconds after which a progress bar appears."""
SHOWN = 0.995
"""Share of the pixels whose standard deviation a map tells apart; the rest is white."""


def denoise(
    image: Annotated[
        Path, typer.Argument(metavar="IMAGE", help="The noisy picture: PNG, JPEG or TIFF, gray or colour.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="OUT", help="File for the clean picture: .png, .jpg or .tif."),
    ],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise, with black 0 and white 255. Estimated from the picture if not given.",
            show_default=False,
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            metavar="MASK", help="Picture of the same size, white where pixels are missing; they are filled."
        ),
    ] = None,
    uncertainty: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP",
            help="File for a map of how far to trust each pixel: the brighter, the larger its standard deviation.",
        ),
    ] = None,
    learn_from: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Learn what photographs look like from this folder of clean ones."),
    ] = None,
    pair: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="CLEAN NOISY",
            help="Learn what a picture looks like, and the noise, whatever its kind, from one you have both ways.",
        ),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(
            metavar="CLEAN", help="The picture without noise, if you have it: PSNR before and after is shown."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            metavar="",
            help="Stop after 6 iterations, and learn without fitting settings: a little rougher.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise that is added in learning.")] = 0,
) -> None:
    """Take the noise out of a photograph, and fill what is missing.

    Works on pictures of any size with a relation between neighbouring pixels that comes with the library, learned from
    photographs that are free to use. `--learn-from` and `--pair` learn one from yours.

        kernelbp denoise photo.jpg -o clean.png

        kernelbp denoise scan.tif --mask scratches.png --uncertainty map.png -o restored.tif

    Transparency is kept as it is. 16-bit gray pictures stay 16-bit (not as JPEG). The noise should differ
    from pixel to pixel, or in colours from two by two pixels to the next, as JPEG files keep them: blocks and blotches of
    strong JPEG compression are taken for part of the picture.
    """
    from rich.console import Console
    from rich.markup import escape

    from kernelbp.errors import KernelBPError

    console, complaints = Console(), Console(stderr=True)
    try:
        said = _denoise(image, out, sigma, mask, uncertainty, learn_from, pair, clean, quick, seed, console)
    except (KernelBPError, MemoryError) as error:
        complaints.print(
            f"[red]Error:[/] {escape(str(error) or 'not enough memory')}", highlight=False, soft_wrap=True
        )
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        complaints.print("Stopped. Nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    console.print(escape(said), highlight=False, soft_wrap=True)


def _denoise(
    image: Path,
    out: Path,
    sigma: float | None,
    mask: Path | None,
    uncertainty: Path | None,
    learn_from: Path | None,
    pair: tuple[Path, Path] | None,
    clean: Path | None,
    quick: bool,
    seed: int,
    console: Console,
) -> str:
    """Check everything, learn if asked, denoise, write; give the summary."""
    import numpy as np

    from kernelbp.errors import InputError
    from kernelbp.photographs import denoising
    from kernelbp.photographs.files import Picture, check_output, read_mask, read_picture, write_all
    from kernelbp.photographs.relations import check_sigma

    if learn_from is not None and pair is not None:
        raise InputError("--learn-from and --pair: give one of them")
    if pair is not None and sigma is not None:
        raise InputError("--sigma: the noise is learned from --pair, so it must not be given")
    if sigma is not None:
        check_sigma(sigma)
    picture = read_picture(image, "IMAGE")
    read = [image, *(path for path in (mask, clean, *(pair or ())) if path is not None)]
    check_output(out, "--out", read, alpha=picture.alpha is not None)
    if uncertainty is not None:
        check_output(uncertainty, "--uncertainty", read)
        if uncertainty.resolve() == out.resolve():
            raise InputError(f"--uncertainty: {uncertainty} is the name of the clean picture too")
    shape = picture.values.shape
    missing = None if mask is None else read_mask(mask, shape, "--mask")
    truth = None if clean is None else read_picture(clean, "--clean")
    if truth is not None and truth.values.shape != shape:
        raise InputError(
            f"--clean: {clean} is {truth.described}; expected {picture.described}, as the image is"
        )
    noisy = picture.values if missing is None else _with_gaps(picture.values, missing)
    began = time.perf_counter()
    photographs = _learned(learn_from, pair, noisy, sigma, quick, seed, console)
    learned_in = time.perf_counter() - began
    began = time.perf_counter()
    with _bar("denoising", denoising.steps_needed(noisy, photographs), console) as step:
        found = denoising.denoise(noisy, photographs, sigma=sigma, quick=quick, step=step)
    seconds = time.perf_counter() - began
    written = [(out, picture.with_values(found.mean))]
    spread = np.sqrt((found.std**2).mean(axis=2)) if found.std.ndim == 3 else found.std
    if uncertainty is not None:
        # Few pixels stand far out: scaled to the largest of all, a map would be dark.
        brightest = max(float(np.quantile(spread, SHOWN)), np.finfo(np.float64).tiny)
        written.append((uncertainty, Picture(np.minimum(spread * (255.0 / brightest), 255.0))))
    write_all(written)
    lines = [_summary(image, picture, found, sigma is None, quick, seconds)]
    if photographs is not None:
        lines.append(f"learned from {learn_from or ' and '.join(map(str, pair or ()))} in {learned_in:.1f} s")
    if truth is not None:
        known = np.ones(shape[:2], dtype=bool) if missing is None else ~missing
        before, after = (_psnr(values, truth, known) for values in (picture.values, found.mean))
        said = f"PSNR {before:.2f} dB before, {after:.2f} dB after"
        if not known.all():
            said += (
                f", of the pixels that are known; of those filled {_psnr(found.mean, truth, ~known):.2f} dB"
            )
        lines.append(said)
    lines.append(f"the denoised picture is in {out}")
    if uncertainty is not None:
        lines.append(
            f"the standard deviation is in {uncertainty}: black is 0, white {brightest:.1f} gray levels and more"
        )
    return "\n".join(lines)


def _with_gaps(values: NDArray[np.float64], missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    import numpy as np

    return np.where(missing if values.ndim == 2 else missing[..., None], np.nan, values)


def _learned(
    learn_from: Path | None,
    pair: tuple[Path, Path] | None,
    noisy: NDArray[np.float64],
    sigma: float | None,
    quick: bool,
    seed: int,
    console: Console,
) -> Photographs | None:
    """What photographs look like, from what the user has; None for what comes with the library."""
    from kernelbp.errors import InputError
    from kernelbp.photographs import estimate_sigma, learn, learn_pair
    from kernelbp.photographs.files import files_of, read_picture
    from kernelbp.photographs.relations import GRAY_STEP, MOST_PHOTOGRAPHS, side_of

    if learn_from is not None:
        paths = files_of(learn_from, MOST_PHOTOGRAPHS, "--learn-from")
        return learn(
            [read_picture(path, "--learn-from", side_of(len(paths))).values for path in paths],
            sigma=max(estimate_sigma(noisy), GRAY_STEP / 2) if sigma is None else sigma,
            seed=seed,
            calibrate=not quick,
            progress=console.is_terminal,
        )
    if pair is not None:
        both = [read_picture(path, "--pair") for path in pair]
        if both[0].values.shape != both[1].values.shape:
            raise InputError(
                f"--pair: {pair[1]} is {both[1].described}; expected {both[0].described}, as {pair[0]} is"
            )
        return learn_pair(
            *(picture.values for picture in both),
            seed=seed,
            calibrate=not quick,
            progress=console.is_terminal,
        )
    return None


def _summary(
    path: Path, picture: Picture, found: Denoised, estimated: bool, quick: bool, seconds: float
) -> str:
    if found.sigma is None:
        noise = "noise as learned"
    else:
        noise = f"sigma {found.sigma:.1f} ({'estimated' if estimated else 'given'})"
    settled = "converged" if found.converged else "stopped early" if quick else "NOT converged"
    return f"{path}: {picture.described}, {noise}, {found.iterations} iterations, {settled}, {seconds:.1f} s"


def _psnr(values: NDArray[np.float64], truth: Picture, where: NDArray[np.bool_]) -> float:
    """PSNR of some of the pixels; `where` is (rows, columns)."""
    import numpy as np

    error = float(np.mean((values - truth.values)[where] ** 2))
    return float("inf") if error == 0 else float(10 * np.log10(255.0**2 / error))


@contextmanager
def _bar(title: str, total: int, console: Console) -> Iterator[Callable[[], None]]:
    """A progress bar that appears only if it takes longer than two seconds; yields what advances it."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(title, total=total)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    if console.is_terminal:
        timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()  # a bar that is just appearing would stay
        if bar.live.is_started:  # one that never appeared would leave an empty line
            bar.stop()
