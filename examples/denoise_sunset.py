"""Denoise an image with relations learned from another look at it.

The image is the sunset of the kernel belief propagation paper: a sun of gray rings over a black sea. Two
things are learned from examples, and nothing else is told: how neighbouring pixels go together, and how a
pixel's gray level relates to its noisy reading. No formula for the noise, no list of gray levels.

Run it with ``make demo``, or directly: ``python examples/denoise_sunset.py --colors 25 --out sunset.png``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import kernelbp as kb
from kernelbp import figures


def main(arguments: Sequence[str] | None = None) -> Path:
    """Learn, denoise, tell how well it went, draw a picture; give the picture's path."""
    options = parse(arguments)
    console = Console()

    # 1. Examples. A clean sunset and a noisy copy of it: this is all the model ever learns from.
    clean, noisy = kb.datasets.sunset(options.colors, options.size, options.noise, seed=options.seed)

    # 2. A model names its variables, each with a kernel that says how two values compare, and the relations
    #    between them. A Gaussian kernel sets its own bandwidth from the data.
    model = kb.Model(
        variables={"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        relations={
            "beside": kb.Relation("pixel", "pixel", symmetric=True),
            "read as": kb.Relation("pixel", "reading"),
        },
    )

    # 3. Learning takes pairs of values: all neighbours in the clean image, and every pixel with its reading.
    began = time.perf_counter()
    model.fit(
        {"beside": kb.datasets.grid_pairs(clean), "read as": (clean.ravel(), noisy.ravel())},
        progress=True,
    )
    learning_seconds = time.perf_counter() - began

    # 4. The problem: a fresh noisy copy, with noise the model has not seen. One node for every pixel, tied to
    #    its neighbours, and one reading for each.
    _, fresh = kb.datasets.sunset(options.colors, options.size, options.noise, seed=options.seed + 1)
    graph = kb.Graph.grid(fresh.shape, variable="pixel", relation="beside")
    graph = graph.observe("read as", fresh.ravel())

    # 5. Inference: messages travel over the grid until they settle.
    began = time.perf_counter()
    beliefs = model.infer(graph, progress=True)
    inference_seconds = time.perf_counter() - began

    # 6. Every pixel now has a belief, a whole distribution over gray levels. Its mean or its mode (the most
    #    probable level) is a denoised image; its standard deviation says where not to trust it.
    console.print(
        report(clean, fresh, beliefs, learning_seconds=learning_seconds, inference_seconds=inference_seconds)
    )

    # 7. One picture of it all, with the whole belief of three pixels.
    side = options.size
    figure = figures.denoising(
        clean,
        fresh,
        beliefs,
        pixels={
            "in the flat sky": (side * 8 // 100, side * 10 // 100),
            "inside a ring of the sun": (side * 30 // 100, side * 64 // 100),
            "at the edge of the horizon": (side // 2 - 1, side * 26 // 100),
        },
        title=(
            f"A sunset of {options.colors} gray levels with noise of standard deviation {options.noise:g}, "
            "denoised by kernel belief propagation.\n"
            "Both relations, pixel to neighbour and pixel to reading, were learned from examples: "
            "the clean image and another noisy copy of it."
        ),
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)
    console.print(f"The picture is in [bold]{options.out}[/bold]", soft_wrap=True)
    return options.out


def report(
    clean: np.ndarray,
    noisy: np.ndarray,
    beliefs: kb.Beliefs,
    *,
    learning_seconds: float,
    inference_seconds: float,
) -> Table:
    """A table of how far from the truth each image is, and what it took."""
    table = Table(title="Denoising a sunset", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    rmse = figures.root_mean_square_error
    table.add_row("RMSE of the noisy image", f"{rmse(noisy, clean):.2f}")
    table.add_row("RMSE of the belief mode", f"{rmse(beliefs.mode(), clean):.2f}")
    table.add_row("RMSE of the belief mean", f"{rmse(beliefs.mean(), clean):.2f}")
    table.add_section()
    table.add_row("iterations", str(beliefs.iterations))
    table.add_row("converged", "yes" if beliefs.converged else "no")
    table.add_row("learning", f"{learning_seconds:.2f} s")
    table.add_row("inference", f"{inference_seconds:.2f} s")
    table.caption = "the first inference on a machine compiles"
    return table


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Denoise the paper's sunset by kernel belief propagation.")
    parser.add_argument("--colors", type=int, default=100, help="gray levels of the sunset (default: 100)")
    parser.add_argument("--size", type=int, default=100, help="rows and columns (default: 100)")
    parser.add_argument(
        "--noise", type=float, default=30.0, help="standard deviation of the noise (default: 30)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which noise (default: 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("sunset.png"), help="where the picture goes (default: sunset.png)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
