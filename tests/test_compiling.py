"""Compiled functions: kept where they can be, and made anew where they cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from kernelbp.compiling import jit

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from numba.core import caching

class NoPlace(caching._CacheLocator):
    @classmethod
    def from_function(cls, *arguments):
        return None

caching.CacheImpl._locator_classes = [NoPlace]
from kernelbp.inference import lanes
print("compiled")
"""


def test_a_function_without_a_file_is_compiled_all_the_same():
    made: dict[str, object] = {}
    exec("def twice(x):\n    return 2 * x", made)
    assert jit(made["twice"])(21) == 42  # type: ignore[arg-type]


def test_where_nothing_can_be_kept_the_library_still_loads():
    source = Path(__file__).parents[1] / "src"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(source)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "compiled", done.stderr


def test_divisions_follow_numpy():
    @jit
    def divide(values):
        return values / np.zeros(1)

    assert np.isinf(divide(np.ones(1))).all()


def test_model_and_graph_are_there_before_the_heavy_parts_of_scipy_are():
    code = (
        "import sys, kernelbp; kernelbp.Model, kernelbp.Graph; heavy = ('scipy.sparse', 'scipy.linalg', 'scipy.spatial', "
        "'numba', 'sklearn', 'networkx'); assert not [name for name in heavy if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
