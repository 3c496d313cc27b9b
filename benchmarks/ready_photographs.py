"""How good `kernelbp denoise` is without learning anything: PSNR on a folder of clean photographs, by noise level.

Run ``python benchmarks/ready_photographs.py FOLDER``. Nothing of the folder is learned from, and no setting chosen on it.
Noise is drawn as in ``benchmarks/denoising.py``. "As in a file": readings rounded and cut off at black and white, and sigma
estimated from them instead of given.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from kernelbp.experiments.photographs import psnr
from kernelbp.photographs import denoise
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
            *(f"{value:.2f}" for value in mean[:4]),
            f"{rows[:, 4].min():.0f}-{rows[:, 4].max():.0f}",
            *(f"{value:.2f}" for value in mean[5:]),
        )
    Console(width=120).print(table)


def measure(clean: np.ndarray, sigma: float, seed: int) -> tuple[float, ...]:
    """PSNR before and after, after with readings as in a file, sigma found, iterations, how honest, seconds."""
    noisy = clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)
    began = time.perf_counter()
    found = denoise(noisy, sigma=sigma)
    seconds = time.perf_counter() - began
    if not found.converged:
        raise SystemExit(f"not converged at sigma {sigma:g}")
    stored = denoise(np.rint(np.clip(noisy, 0, 255)))
    error = float(np.sqrt(np.mean((found.mean - clean) ** 2)))
    return (
        psnr(noisy, clean),
        psnr(found.mean, clean),
        psnr(stored.mean, clean),
        float(stored.sigma or 0.0),
        float(found.iterations),
        error / float(np.sqrt(np.mean(found.std**2))),
        seconds,
    )


if __name__ == "__main__":
    main()
