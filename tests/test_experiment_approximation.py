"""The experiment on approximate updates runs from end to end and measures what it says."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import InputError
from kernelbp.experiments import Options, Report, Study, approximation, denoisers
from kernelbp.experiments.report import save
from kernelbp.learning.conditionals import Conditional
from kernelbp.speed.updates import in_part

TINY = approximation.TINY


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("updates")
    report = approximation.run(Study("approximation", Options(folder)), sizes=TINY)
    save(report, folder)
    return report, folder


def test_every_image_and_precision_is_in_the_table(finished):
    _, folder = finished
    with (folder / "updates.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {(int(row["colours"]), float(row["eps"])) for row in rows}
    assert found == {(colors, epsilon) for colors in TINY.colors for epsilon in TINY.epsilons}
    pairs = 2 * 2 * TINY.side * (TINY.side - 1) + TINY.side**2
    for row in rows:
        # Pairs kept apart: both ends of every pair of neighbours, and a reading of every pixel.
        assert int(row["linear values"]) == pairs
        assert int(row["constant values"]) == int(row["tensor rank"])
        assert 0 < float(row["RMSE constant"]) < 80


def test_ranks_grow_as_precision_does(finished):
    report, _ = finished
    ranks = {(row["colours"], row["eps"]): (row["rank"], row["tensor rank"]) for row in report.tables[0].rows}
    for colors in TINY.colors:
        coarse, fine = (ranks[colors, epsilon] for epsilon in TINY.epsilons)
        assert coarse[0] <= fine[0] and coarse[1] <= fine[1]


def test_constant_equals_linear_where_every_value_is_a_support_point(finished):
    report, _ = finished
    few = [row for row in report.tables[0].rows if row["colours"] == 4]
    for row in few:
        assert row["tensor rank"] == 4
        assert row["RMSE constant"] == pytest.approx(row["RMSE linear"], rel=1e-6)


def test_full_update_stands_beside_both(finished):
    report, folder = finished
    updates = [row["update"] for row in report.tables[1].rows]
    assert updates == ["constant"] * 2 + ["linear"] * 2 + ["full"]
    assert all(row["s"] > 0 for row in report.tables[1].rows)
    for name in ("approximation", "full"):
        assert (folder / f"{name}.png").is_file() and (folder / f"{name}.svg").is_file()
    assert len(report.claims) == len(TINY.epsilons) + 2


def test_resumed_run_measures_nothing_again(finished, monkeypatch):
    report, folder = finished

    def refused(*_: object) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr(approximation, "_compare", refused)
    monkeypatch.setattr(approximation, "_full", refused)
    again = approximation.run(Study("approximation", Options(folder, resume=True)), sizes=TINY)
    assert [table.rows for table in again.tables] == [table.rows for table in report.tables]


def test_image_comes_from_the_files_only_at_their_sizes(tmp_path):
    study = Study("approximation", Options(tmp_path / "out", data=tmp_path))
    # 50 x 50 pixels do not fall on pixels of a 300 x 300 file.
    np.testing.assert_array_equal(
        denoisers.paper_image(study, 100, 50), kb.datasets.sunset(100, 50, noise=0.0)[0]
    )
    with pytest.raises(InputError, match=r"source100\.pgm"):
        denoisers.paper_image(study, 100, 100)


def test_seconds_of_some_messages_are_scaled_to_all():
    operator = Conditional(np.full((3, 3), 1 / 3, dtype=np.float32))
    few, many = (in_part(3, operator, 3, 4, total) for total in (None, 24_000))
    assert few.values == many.values == 3
    assert few.note.endswith("4 of 24 messages timed") and many.note.endswith("4 of 24,000 messages timed")
    assert in_part(3, operator, 3, 24).note == ""
