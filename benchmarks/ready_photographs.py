"""How good `kernelbp denoise` is without learning anything: PSNR on a folder of clean photographs, by noise level.

Run ``python benchmarks/ready_photographs.py FOLDER``. Nothing of the folder is learned from, and no setting chosen on it.
Noise is drawn as in ``benchmarks/denoising.py``. "As in a file": readings rounded and cut off at black and white, and sigma
estimated from them instead of given. "As in a JPEG file": stored with quality 92, which keeps colours at half the resolution, and
read again; "pixel by pixel" is the same with colours cleaned at the full resolution all the same.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from kernelbp.experiments.photographs import psnr
from kernelbp.photographs import denoise, denoising
from kernelbp.photographs.files import files_of, read_picture

SIGMAS = (10.0, 20.0, 30.0, 50.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="PSNR of denoising with the relation that comes with the library."
    )
    parser.add_argument("folder", type=Path, help="folder of clean photographs")
    parser.add_argument("--sigmas", type=float, nargs="+", default=SIGMAS, help="noise levels")
    parser.add_argument("--most", type=int, default=100, help="most photographs taken")
    options = parser.parse_args()
    photographs = [
        read_picture(path, "folder").values for path in files_of(options.folder, options.most, "folder")
    ]
    table = Table(title=f"PSNR in dB, mean over {len(photographs)} photographs of {options.folder}")
    for name in (
        "sigma",
        "noisy",
        "denoised",
        "as in a file",
        "sigma found",
        "as in a JPEG file",
        "pixel by pixel",
        "iterations",
        "RMSE / std",
        "seconds each",
    ):
        table.add_column(name, justify="right")
    for sigma in options.sigmas:
        rows = np.array([measure(clean, sigma, 100 + index) for index, clean in enumerate(photographs)])
        mean = rows.mean(axis=0)
        table.add_row(
            f"{sigma:g}",
            *(f"{value:.2f}" for value in mean[:6]),
            f"{rows[:, 6].min():.0f}-{rows[:, 6].max():.0f}",
            *(f"{value:.2f}" for value in mean[7:]),
        )
    Console(width=120).print(table)


def measure(clean: np.ndarray, sigma: float, seed: int) -> tuple[float, ...]:
    """PSNR before and after, as in a file, sigma found, as in a JPEG file (two ways), iterations, how honest, seconds."""
    noisy = clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)
    began = time.perf_counter()
    found = denoise(noisy, sigma=sigma)
    seconds = time.perf_counter() - began
    if not found.converged:
        raise SystemExit(f"not converged at sigma {sigma:g}")
    readings = np.rint(np.clip(noisy, 0, 255))
    stored = denoise(readings)
    buffer = io.BytesIO()
    Image.fromarray(readings.astype(np.uint8)).save(buffer, "JPEG", quality=92)
    compressed = np.asarray(Image.open(buffer), dtype=np.float64)
    halved = denoise(compressed)
    kept, denoising.COARSE = denoising.COARSE, 0.0
    pixel_by_pixel = denoise(compressed)
    denoising.COARSE = kept
    error = float(np.sqrt(np.mean((found.mean - clean) ** 2)))
    return (
        psnr(noisy, clean),
        psnr(found.mean, clean),
        psnr(stored.mean, clean),
        float(stored.sigma or 0.0),
        psnr(halved.mean, clean),
        psnr(pixel_by_pixel.mean, clean),
        float(found.iterations),
        error / float(np.sqrt(np.mean(found.std**2))),
        seconds,
    )


if __name__ == "__main__":
    main()
