"""What is measured in a process of its own: ``python -m kernelbp.speed.child TASK [NUMBER ...]`` prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["peak_gigabytes"]


def infer_twice(kind: str, side: str, seed: str) -> dict[str, float]:
    """Seconds of the first inference of a process (with all it has to load), and of the second."""
    from kernelbp.graph import Graph
    from kernelbp.speed.problems import noisy_grid, series_model

    model = series_model(1000, 32, int(seed))
    if kind == "chain":
        graph = Graph.chain(int(side), variable="pixel", relation="beside").observe(
            "read as", [0.5] * int(side)
        )
    else:
        graph = noisy_grid(int(side), int(seed))
    spent = []
    for _ in range(2):
        began = time.perf_counter()
        model.infer(graph, max_iterations=10, tolerance=0.0)
        spent.append(time.perf_counter() - began)
    return {"first": spent[0], "second": spent[1]}


def inference_memory(side: str, support: str, seed: str) -> dict[str, float]:
    """Gigabytes of a process that infers two iterations of a grid, and of its messages and evidence alone."""
    from kernelbp.speed.problems import noisy_grid, series_model

    model = series_model(10_000, int(support), int(seed))
    graph = noisy_grid(int(side), int(seed))
    state = model.infer(graph, max_iterations=2, tolerance=0.0)._source.state
    held = state.messages.values.nbytes + state.evidence.values.nbytes
    return {"peak": peak_gigabytes(), "held": held / 1e9}


def learning_memory(pairs: str, seed: str) -> dict[str, float]:
    """Gigabytes of a process that learns from so many distinct pairs, and of the pairs themselves."""
    from kernelbp.kernels import Gaussian
    from kernelbp.model import Model, Relation
    from kernelbp.speed.problems import BANDWIDTH, autoregression

    first, second = autoregression(int(pairs), int(seed))
    before = peak_gigabytes()
    model = Model({"state": Gaussian(BANDWIDTH)}, {"then": Relation("state", "state", symmetric=True)})
    model.fit({"then": (first, second)})
    return {"peak": peak_gigabytes(), "before": before, "held": (first.nbytes + second.nbytes) / 1e9}


def peak_gigabytes() -> float:
    """The most resident memory this process has had, in 10^9 bytes.

    Linux counts the memory of the parent into ``ru_maxrss`` of a child it starts, so its own count for
    the program now running is preferred where there is one.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024 / 1e9
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak * 1024 / 1e9


TASKS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "infer": infer_twice,
    "inference-memory": inference_memory,
    "learning-memory": learning_memory,
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
