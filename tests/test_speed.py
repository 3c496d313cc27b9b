"""The benchmark measures what it says at any size; how fast things are is not for tests to say."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from kernelbp.errors import InputError
from kernelbp.figures.speed import speed
from kernelbp.speed import (
    FULL,
    GROUPS,
    QUICK,
    Row,
    Settings,
    Sizes,
    child,
    measure,
    processes,
    save_csv,
    table,
)
from kernelbp.speed.discrete import libraries
from kernelbp.speed.growth import exponent
from kernelbp.speed.peers import Peer, numpy_marginals, our_marginals, problem
from kernelbp.speed.problems import Grid, autoregression
from kernelbp.speed.rows import COLUMNS
from kernelbp.speed.timing import SGEMM_ROWS, Sgemm, interleaved

pytestmark = pytest.mark.filterwarnings("ignore::kernelbp.errors.ConvergenceWarning")

TINY = Sizes(
    seconds=0.0,
    fewest=1,
    grids=((6, (3,)), (8, (2, 4))),
    plain=(6, 3),
    threads=(6, 3),
    updates=12,
    slow_messages=(10, 10),
    pairs=(100, 200),
    pairs_side=6,
    edges=(4, 6),
    learning=100,
    sunset=12,
    discrete=(4, 5, 2),
    peers=None,
    latency=4,
    memory=(4,),
    memory_pairs=100,
    beliefs=6,
)
IN_PROCESS = [group for group in GROUPS if group.name not in ("latency", "memory")]


@pytest.fixture
def rows():
    return [
        Row("an iteration", "sgemm", 1.2, 1.0, most=1.6, group="iteration"),
        Row("two threads", "one", 1.0, 1.5, gain=True, least=1.7, note="by the wall clock", group="threads"),
        Row("learning", "an sgemm", 3.0, 2.0, group="learning"),
        Row("discrete", "a library", None, None, gain=True, least=10, note="not installed", group="peers"),
    ]


@pytest.mark.parametrize("group", IN_PROCESS, ids=lambda group: group.name)
def test_every_group_yields_finite_ratios_at_a_tiny_size(group):
    rows = list(group.rows(Settings(TINY, seed=1, n_jobs=2)))
    assert rows
    for row in rows:
        assert row.group == group.name and row.what and row.against
        if row.ratio is None:
            assert "not installed: pip install" in row.note or "left out" in row.note
        else:
            assert math.isfinite(row.ratio)
            # A power fitted to times this short may come out below zero.
            assert row.what.startswith("exponent") or (row.ratio >= 0 and row.ours >= 0)


def test_processes_are_measured_by_what_they_say(monkeypatch):
    """The tasks run here, not in processes of their own: a grid so small that nothing is compiled."""
    monkeypatch.setattr(
        processes, "_child", lambda task, *arguments, environment=None: child.TASKS[task](*arguments)
    )
    chosen = [group for group in GROUPS if group.name in ("latency", "memory")]
    rows = measure(Settings(TINY), chosen)
    assert {row.group for row in rows} == {"latency", "memory"}
    assert all(row.ratio > 0 for row in rows)
    gigabytes = [row for row in rows if row.unit == "GB"]
    assert len(gigabytes) == 2 and all(0.02 < row.ours < 20 for row in gigabytes)


def test_a_task_runs_in_a_process_of_its_own():
    found = processes._child("infer", "chain", "3", "0")
    assert found["first"] > 0 and found["second"] > 0


def test_names_of_groups_are_distinct_and_every_home_exists():
    names = [group.name for group in GROUPS]
    assert len(set(names)) == len(names)
    assert all(group.title and min(group.seconds) > 0 for group in GROUPS)


def test_full_sizes_are_those_the_targets_name():
    assert FULL.grids == ((100, (16, 32, 64, 128)), (1000, (16, 32, 64, 128)))
    edges = [2 * side * (side - 1) for side in FULL.edges]
    assert edges[0] <= 10_000 and edges[-1] >= 4_000_000
    assert (FULL.pairs[0], FULL.pairs[-1]) == (10_000, 1_000_000)
    assert FULL.peers == (50, 30, 30) and FULL.updates == QUICK.updates == 50
    assert FULL.memory[-1] == 2000 and FULL.memory_pairs == 10_000_000 and FULL.threads[0] == 1000


def test_a_thread_that_is_not_there_is_said(rows):
    (threads,) = next(group for group in GROUPS if group.name == "threads").rows(Settings(TINY, n_jobs=1))
    assert threads.ratio is None and threads.holds is None and threads.note == "only one thread may be used"


def test_a_library_that_is_installed_is_timed_and_compared(monkeypatch):
    """One of our own making, under the name of a module that is always there."""
    peer = Peer("NumPy", "numpy", "pip install numpy", 2, numpy_marginals)
    monkeypatch.setattr("kernelbp.speed.discrete.PEERS", {"NumPy": peer})
    (row,) = libraries(Settings(replace(TINY, peers=(4, 3, 3))))
    assert row.against == "NumPy" and row.ratio > 0 and row.least == 10
    assert row.note.startswith("equal marginals") and row.note.endswith("after 2 iterations")


def test_a_library_with_other_marginals_is_found_out(monkeypatch):
    def wrong(unary, pairwise, shape, iterations):
        found = numpy_marginals(unary, pairwise, shape, iterations)
        return found._replace(marginals=found.marginals[::-1])

    peer = Peer("NumPy", "numpy", "pip install numpy", None, wrong)
    monkeypatch.setattr("kernelbp.speed.discrete.PEERS", {"NumPy": peer})
    (row,) = libraries(Settings(replace(TINY, peers=(4, 3, 3))))
    assert row.note.startswith("MARGINALS DIFFER")


def test_libraries_that_are_not_there_are_named_with_how_to_install_them(monkeypatch):
    peer = Peer("Nobody's", "no_such_module_at_all", "pip install nobody", None, numpy_marginals)
    monkeypatch.setattr("kernelbp.speed.discrete.PEERS", {"Nobody's": peer})
    (row,) = libraries(Settings(TINY))
    assert row.ratio is None and row.note == "not installed: pip install nobody"


def test_ratio_target_and_verdict(rows):
    assert [row.ratio for row in rows] == [1.2, 1.5, 1.5, None]
    assert [row.target for row in rows] == ["at most 1.6", "at least 1.7", "", "at least 10"]
    assert [row.holds for row in rows] == [True, False, None, None]
    between = Row("a", "b", 1.04, 1.0, least=0.95, most=1.05)
    assert between.target == "0.95 to 1.05" and between.holds
    assert not Row("a", "b", 0.9, 1.0, least=0.95, most=1.05).holds


def test_csv_holds_every_row_with_all_digits(rows, tmp_path):
    rows[0] = Row("an iteration", "sgemm", 1 / 3, 0.25, most=1.6, group="iteration")
    save_csv(rows, tmp_path / "speed.csv")
    with (tmp_path / "speed.csv").open(encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == COLUMNS
    assert float(read[0]["ours"]) == 1 / 3 and float(read[0]["ratio"]) == (1 / 3) / 0.25
    assert [line["holds"] for line in read] == ["yes", "no", "", ""]
    assert read[1]["ratio is"] == "reference / ours" and read[2]["ratio is"] == "ours / reference"
    assert read[3]["ours"] == "" and read[3]["note"] == "not installed"


@pytest.mark.parametrize("narrow", [False, True])
def test_table_shows_every_row(rows, narrow):
    from rich.console import Console

    console = Console(width=80 if narrow else 160)
    with console.capture() as capture:
        console.print(table(rows, narrow=narrow))
    text = capture.get()
    for word in (
        "an iteration",
        "sgemm",
        "1.2 s",
        "1.2 x",
        "at most 1.6",
        "yes",
        "no",
        "by the wall clock",
        "not installed",
    ):
        assert word in text


def test_picture_has_a_panel_for_each_group_with_a_ratio(rows, tmp_path):
    figure = speed(rows, {"iteration": "One iteration against sgemm"}, subtitle="some machine")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "One iteration against sgemm",
        "threads",
        "learning",
    ]
    figure.savefig(tmp_path / "speed.png", dpi=50)
    with Image.open(tmp_path / "speed.png") as picture:
        assert picture.format == "PNG" and min(picture.size) > 100


def test_a_picture_of_nothing_is_refused(rows):
    with pytest.raises(InputError, match="rows: no ratio to draw"):
        speed(rows[3:], {})


def test_interleaved_takes_the_least_and_leaves_the_first_out():
    left, right = iter([0.1, 3.0, 2.0, 4.0]), iter([9.0, 5.0, 6.0, 7.0])
    sizes = replace(TINY, fewest=3)
    assert interleaved([lambda: next(left), lambda: next(right)], sizes) == [2.0, 5.0]


def test_the_reference_product_has_the_multiply_adds_of_all_messages():
    counted = []
    product = Sgemm(2 * SGEMM_ROWS + 3, 2, 1)
    original = product._left

    class Counting(np.ndarray):
        def __getitem__(self, key):
            counted.append(key.stop)
            return np.asarray(self)[key]

    product._left = original.view(Counting)
    assert product() >= 0
    assert sum(counted) == 2 * SGEMM_ROWS + 3


def test_exponent_of_a_power_law():
    sizes = np.array([10.0, 100.0, 1000.0])
    assert exponent(sizes, 3 * sizes**0.7) == pytest.approx(0.7)


def test_pairs_are_distinct_and_fill_the_unit_interval():
    first, second = autoregression(5000, 0)
    assert len(np.unique(first)) == 5000 and (first[1:] == second[:-1]).all()
    assert 0 < first.min() < 0.05 and 0.95 < first.max() < 1


def test_tree_weights_of_a_grid_sum_to_a_spanning_tree():
    grid = Grid(7)
    assert grid.weights.sum() / 2 == pytest.approx(7 * 7 - 1)


def test_the_numpy_loop_is_belief_propagation():
    shape, states = (4, 5), 6
    unary, pairwise = problem(shape, states, 0)
    ours = our_marginals(unary, pairwise, shape, 4, dtype=np.float64)
    loop = numpy_marginals(unary, pairwise, shape, 4)
    np.testing.assert_allclose(loop.marginals, ours.marginals, atol=1e-6)
