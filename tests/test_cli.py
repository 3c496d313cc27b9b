"""The command line says what it does, does it, and refuses before any work what it cannot do."""

from __future__ import annotations

import csv
import re

import pytest
from PIL import Image
from typer.testing import CliRunner

import kernelbp
from kernelbp.cli import app
from kernelbp.speed import GROUPS, Row

WIDE = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}


def run(*arguments):
    found = CliRunner().invoke(app, list(arguments), env=WIDE)
    return found.exit_code, re.sub(r"[\s│]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", found.output))


@pytest.fixture
def one_row(monkeypatch):
    """A benchmark that takes no time."""
    seen = {}

    def measure(settings, groups, console):
        seen.update(settings=settings, groups=[group.name for group in groups])
        return [Row("an iteration", "sgemm", 1.2, 1.0, most=1.6, group=groups[0].name)]

    monkeypatch.setattr("kernelbp.speed.measure", measure)
    return seen


def test_help_names_the_commands():
    code, text = run("--help")
    assert code == 0 and "bench" in text and "Measure how fast the library is on this machine" in text
    assert run()[1].count("bench") >= 1


def test_help_of_bench_names_every_option_and_group():
    code, text = run("bench", "--help")
    assert code == 0
    for word in ("--quick", "--out", "--only", "--seed", "--jobs", 'pip install ".[peers]"'):
        assert word in text
    for group in GROUPS:
        assert group.name in text


def test_version():
    assert run("--version") == (0, f"kernelbp {kernelbp.__version__} ")


def test_bench_writes_table_and_picture(one_row, tmp_path):
    out = tmp_path / "new" / "folder"
    code, text = run("bench", "--quick", "--out", str(out), "--seed", "3", "--jobs", "2", "--only", "threads")
    assert code == 0, text
    assert "1 of 1 targets hold" in text and "an iteration" in text
    assert one_row["groups"] == ["threads"]
    assert (one_row["settings"].seed, one_row["settings"].n_jobs) == (3, 2)
    with (out / "speed.csv").open(encoding="utf-8") as file:
        assert [line["what"] for line in csv.DictReader(file)] == ["an iteration"]
    with Image.open(out / "speed.png") as picture:
        assert picture.format == "PNG"


def test_groups_are_run_in_their_own_order(one_row, tmp_path):
    assert run("bench", "--out", str(tmp_path), "--only", "edges", "--only", "plain")[0] == 0
    assert one_row["groups"] == ["plain", "edges"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--only", "speed"], "there is no group 'speed'; there are iteration, plain,"),
        (["--seed", "-1"], "Invalid value for '--seed'"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_what_cannot_be_done_is_refused(one_row, tmp_path, arguments, text):
    code, said = run("bench", "--out", str(tmp_path), *arguments)
    assert code == 2 and text in said and not one_row


def test_a_file_in_place_of_the_folder_is_refused(one_row, tmp_path):
    (tmp_path / "file").write_text("")
    code, said = run("bench", "--out", str(tmp_path / "file"))
    assert code == 2 and "is a file" in said and not one_row
    code, said = run("bench", "--out", str(tmp_path / "file" / "below"))
    assert code == 2 and "cannot make the folder" in said and not one_row


def test_a_run_without_any_ratio_still_writes_its_table(monkeypatch, tmp_path):
    row = Row("discrete", "a library", None, None, note="not installed", group="peers")
    monkeypatch.setattr("kernelbp.speed.measure", lambda *arguments: [row])
    code, said = run("bench", "--out", str(tmp_path), "--only", "peers")
    assert code == 0 and (tmp_path / "speed.csv").is_file() and not (tmp_path / "speed.png").exists()
    assert "not installed" in said
