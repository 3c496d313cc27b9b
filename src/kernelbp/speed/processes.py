"""Whole processes: how long until something is there, and how much memory it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter

import kernelbp
from kernelbp.speed.rows import Row
from kernelbp.speed.settings import Settings

__all__ = ["latency", "memory"]

MOST_IMPORT = 0.5
CHAIN = 10
SUPPORT = 32
MOST_GIGABYTES: Mapping[int, float] = {2000: 12.0}
"""Allowed for grids, by side."""
MOST_LEARNING = 2.0
"""Gigabytes allowed for ten million pairs."""
TEN_MILLION = 10_000_000


def latency(settings: Settings) -> Iterator[Row]:
    """Import and first inferences in fresh processes, by the wall clock; compiled code kept nowhere, then kept."""
    for what, code in (
        ("a process that imports kernelbp, from start to end", "import kernelbp"),
        ("the same, with Model and Graph used", "import kernelbp; kernelbp.Model, kernelbp.Graph"),
    ):
        imported = min(_run_seconds([sys.executable, "-c", code]) for _ in range(settings.sizes.fewest))
        yield Row(what, "the limit set for it", imported, MOST_IMPORT, most=1.0)
    side, seed = str(settings.sizes.latency), str(settings.seed)
    with tempfile.TemporaryDirectory() as cache:
        environment = {"NUMBA_CACHE_DIR": cache}
        chain = _child("infer", "chain", str(CHAIN), seed, environment=environment)
        first = _child("infer", "grid", side, seed, environment=environment)
        second = _child("infer", "grid", side, seed, environment=environment)
    grid, again = f"grid {side} x {side}", "the same again in that process"
    yield Row(f"first inference of a process, chain of {CHAIN}", again, chain["first"], chain["second"])
    yield Row(f"first inference, {grid}, nothing compiled yet", again, first["first"], first["second"])
    yield Row(f"first inference, {grid}, compiled code kept", again, second["first"], second["second"])
    yield Row(
        f"first inference, {grid}, second process ever",
        "first process ever, which compiles",
        second["first"],
        first["first"],
        gain=True,
    )


def memory(settings: Settings) -> Iterator[Row]:
    """Peak resident memory of processes that infer grids, or learn from many pairs, with all they load."""
    seed = str(settings.seed)
    for side in settings.sizes.memory:
        found = _child("inference-memory", str(side), str(SUPPORT), seed)
        what = f"memory, inference, grid {side} x {side}, {SUPPORT} support points"
        yield Row(what, "its messages and evidence alone", found["peak"], found["held"], unit="GB")
        if side in MOST_GIGABYTES:
            limit = MOST_GIGABYTES[side]
            yield Row(what, "the limit set for it", found["peak"], limit, unit="GB", most=1.0)
    pairs = settings.sizes.memory_pairs
    if pairs is not None:
        found = _child("learning-memory", str(pairs), seed)
        what = f"memory, learning from {pairs:,} distinct pairs"
        note = f"{found['before']:.2f} GB before learning begins"
        yield Row(what, "the pairs alone", found["peak"], found["held"], unit="GB", note=note)
        if pairs == TEN_MILLION:
            against = "the limit set for it"
            yield Row(what, against, found["peak"], MOST_LEARNING, unit="GB", most=1.0)


def _child(*arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a task of `kernelbp.speed.child`."""
    command = [sys.executable, "-m", "kernelbp.speed.child", *arguments]
    answer = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, env=_environment() | dict(environment or {})
    )
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def _run_seconds(command: list[str]) -> float:
    began = perf_counter()
    subprocess.run(command, check=True, env=_environment())
    return perf_counter() - began


def _environment() -> dict[str, str]:
    """With this very library first in line."""
    here = str(Path(kernelbp.__file__).resolve().parents[1])
    earlier = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": here if earlier is None else os.pathsep.join([here, earlier])}
