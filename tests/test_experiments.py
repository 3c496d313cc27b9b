"""What all experiments share: cases that are kept, runs that go on, reports as files."""

from __future__ import annotations

import csv
import inspect
import json
from importlib import import_module
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from kernelbp.cli import app
from kernelbp.errors import InputError
from kernelbp.experiments import Case, Claim, Options, Picture, Report, Result, Study, Table
from kernelbp.experiments.report import save, show


def squares(done: list[int], *, fail_at: int | None = None) -> list[Case]:
    def run(n: int) -> Result:
        if n == fail_at:
            raise KeyboardInterrupt
        done.append(n)
        return Result([{"n": n, "square": np.float64(n * n), "bad": np.nan}], {"row": np.arange(n)})

    return [Case(f"square of {n}", lambda n=n: run(n)) for n in range(1, 5)]


def test_what_was_finished_is_not_run_again(tmp_path):
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        Study("squares", Options(tmp_path)).finish(squares(done, fail_at=3))
    assert done == [1, 2]
    found = Study("squares", Options(tmp_path, resume=True)).finish(squares(done))
    assert done == [1, 2, 3, 4]
    fresh = Study("squares", Options(tmp_path / "other")).finish(squares([]))
    for name, result in fresh.items():
        assert list(found[name].rows) == list(result.rows)
        assert np.array_equal(found[name].arrays["row"], result.arrays["row"])
    assert found["square of 2"].rows[0] == {"n": 2, "square": 4.0, "bad": None}


def test_a_run_without_resume_begins_anew_and_leaves_other_files_alone(tmp_path):
    done: list[int] = []
    Study("squares", Options(tmp_path)).finish(squares(done))
    mine = tmp_path / "finished" / "notes.txt"
    mine.write_text("mine")
    Study("squares", Options(tmp_path)).finish(squares(done))
    assert done == [1, 2, 3, 4] * 2 and mine.read_text() == "mine"


@pytest.mark.parametrize("damage", ["json", "npz", "foreign"])
def test_a_damaged_case_is_run_again(tmp_path, damage):
    done: list[int] = []
    Study("squares", Options(tmp_path)).finish(squares(done))
    kept = tmp_path / "finished" / f"square-of-2.case.{'npz' if damage == 'npz' else 'json'}"
    kept.write_text("[1, 2]" if damage == "foreign" else kept.read_bytes()[:20].decode("latin1"))
    Study("squares", Options(tmp_path, resume=True)).finish(squares(done))
    assert done == [1, 2, 3, 4, 2]


@pytest.mark.parametrize(
    ("options", "extras", "told"),
    [({"seed": 1}, {}, "seed 0"), ({"quick": True}, {}, "quick False"), ({}, {"window": 3}, "window 15")],
)
def test_a_run_of_other_settings_is_not_gone_on_with(tmp_path, options, extras, told):
    Study("squares", Options(tmp_path), extras={"window": 15}).finish(squares([]))
    with pytest.raises(InputError, match=rf"resume: the run kept in .* had {told}.*give another --out"):
        Study("squares", Options(tmp_path, resume=True, **options), extras={"window": 15, **extras})


def test_what_is_finished_is_not_thrown_away_for_a_run_of_other_settings(tmp_path):
    done: list[int] = []
    Study("squares", Options(tmp_path)).finish(squares(done))
    with pytest.raises(
        InputError, match=r"out: the run kept in .* had seed 0, this one has 1; give another --out"
    ):
        Study("squares", Options(tmp_path, seed=1))
    Study("squares", Options(tmp_path, resume=True)).finish(squares(done))
    assert done == [1, 2, 3, 4]
    # The same settings without --resume: anew.
    Study("squares", Options(tmp_path)).finish(squares(done))
    assert done == [1, 2, 3, 4, 1, 2, 3, 4]


def test_other_files_of_data_are_other_settings(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.txt").write_text("one")
    options = Options(tmp_path / "out", data=data, resume=True)
    Study("squares", options).finish(squares([]))
    Study("squares", options)
    (data / "b.txt").write_text("two")
    with pytest.raises(InputError, match=r"resume: the run kept in .* had files "):
        Study("squares", options)


def test_results_in_the_folder_of_the_data_are_no_data(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    options = Options(tmp_path / "results", data=tmp_path, resume=True)
    done: list[int] = []
    for _ in range(2):
        Study("squares", options).finish(squares(done))
    assert done == [1, 2, 3, 4]


def test_finished_parts_of_nobody_knows_what_are_not_gone_on_with(tmp_path):
    Study("squares", Options(tmp_path)).finish(squares([]))
    (tmp_path / "finished" / "run.json").unlink()
    with pytest.raises(InputError, match="had experiment 'unreadable'"):
        Study("squares", Options(tmp_path, resume=True))


def test_cases_need_names_of_their_own(tmp_path):
    with pytest.raises(InputError, match="kept in the same file"):
        Study("x", Options(tmp_path)).finish([Case("a b", Result), Case("a-b", Result)])


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out: cannot make the folder"):
        Study("x", Options(tmp_path / "file"))


def test_seeds_and_numbers_give_random_numbers_of_their_own(tmp_path):
    draws = [
        Study("x", Options(tmp_path, seed=seed)).rng(which).random() for seed in (0, 1) for which in (0, 1)
    ]
    assert len(set(draws)) == 4
    assert draws[0] == Study("x", Options(tmp_path)).rng(0).random()


def small_report() -> Report:
    figure = matplotlib.figure.Figure(figsize=(2, 2))
    figure.subplots().plot([0, 1])
    return Report(
        "Squares & <roots>",
        "What was done.",
        [Table("squares", "Squares", [{"n": 1, "square": 1.0}, {"n": 2, "square": None}], "by hand")],
        [Picture("curve", figure, "A line")],
        [Claim("it grows", "2", "> 1", True), Claim("it falls", "2", "< 1", False)],
        {"seed": 0},
    )


def test_a_report_is_tables_pictures_and_one_page(tmp_path):
    page = save(small_report(), tmp_path).read_text()
    with (tmp_path / "squares.csv").open() as file:
        assert list(csv.reader(file)) == [["n", "square"], ["1", "1.0"], ["2", ""]]
    assert (tmp_path / "curve.png").stat().st_size > 500
    assert "<svg" in (tmp_path / "curve.svg").read_text()
    assert "Squares &amp; &lt;roots&gt;" in page and "<roots>" not in page
    for part in ("data:image/png;base64,", "does not hold", "by hand", "numpy", "seed"):
        assert part in page


def test_a_report_on_the_terminal_says_what_holds(capsys):
    show(small_report(), Console(width=100))
    shown = capsys.readouterr().out
    assert "it grows: 2 (wanted > 1) holds" in shown and "it falls: 2 (wanted < 1) does not hold" in shown


# ---------------------------------------------------------------------- the command


def test_a_table_whose_words_would_be_broken_is_named_instead(capsys):
    table = Table("curves", "Recall", [{f"at {k}": 0.12345 for k in range(1, 21)}])
    show(Report("", "", [table]), Console(width=100))
    assert "Recall: 1 rows, in curves.csv" in capsys.readouterr().out
    show(Report("", "", [table]), Console(width=300))
    assert "0.1235" in capsys.readouterr().out


def test_each_experiment_explains_itself():
    names = ("denoising", "approximation", "depth", "protein", "papers")
    listed = CliRunner().invoke(app, ["reproduce", "--help"]).output
    for name in names:
        assert name in listed
        shown = CliRunner().invoke(app, ["reproduce", name, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        for option in ("--quick", "--seed", "--out", "--data", "--resume"):
            assert option in shown.output


@pytest.mark.parametrize(
    ("name", "more", "given"),
    [
        ("denoising", [], {"photos": None}),
        ("denoising", ["--photos", "."], {"photos": Path()}),
        ("approximation", [], {}),
        ("depth", ["--data", "."], {}),
        ("protein", ["--window", "9"], {"window": 9}),
        ("papers", ["--dimensions", "50"], {"dimensions": 50}),
    ],
)
def test_a_command_asks_its_experiment_for_what_was_said(tmp_path, monkeypatch, name, more, given):
    module = import_module(f"kernelbp.experiments.{name}")
    asked = inspect.signature(module.run)
    calls = []

    def pretended(*arguments, **named):
        calls.append(asked.bind(*arguments, **named).arguments)
        return small_report()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "run", pretended)
    shown = CliRunner().invoke(app, ["reproduce", name, "--seed", "3", "--out", "out", *more])
    assert shown.exit_code == 0, shown.output
    assert calls[0].pop("study").options.seed == 3
    assert calls == [given]


def test_a_quick_run_does_not_stand_in_the_way_of_the_whole_one(tmp_path, monkeypatch):
    from kernelbp.experiments import papers

    folders = []

    def pretended(study, **_):
        folders.append(str(study.options.out))
        study.finish(squares([]))
        return small_report()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(papers, "run", pretended)
    for more in (["--quick"], []):
        shown = CliRunner().invoke(app, ["reproduce", "papers", *more])
        assert shown.exit_code == 0, shown.output
    assert folders == [str(Path("results", "papers-quick")), str(Path("results", "papers"))]


def test_an_interrupted_command_says_how_to_go_on(tmp_path, monkeypatch):
    from kernelbp.experiments import papers

    def stopped(study, **_):
        study.finish(squares([], fail_at=2))

    monkeypatch.setattr(papers, "run", stopped)
    shown = CliRunner().invoke(app, ["reproduce", "papers", "--out", str(tmp_path)])
    assert shown.exit_code == 130 and "--resume goes on" in shown.output
    assert json.loads((tmp_path / "finished" / "square-of-1.case.json").read_text())["rows"][0]["n"] == 1


def test_a_command_on_foreign_data_ends_with_one_sentence(tmp_path):
    (tmp_path / "data").mkdir()
    shown = CliRunner().invoke(
        app, ["reproduce", "depth", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    )
    assert shown.exit_code == 2 and "Error:" in shown.output and "Traceback" not in shown.output


def test_square_brackets_are_shown_as_they_are(tmp_path, monkeypatch, capsys):
    from kernelbp.experiments import papers

    def refused(study, **_):
        raise InputError('data: needs more: pip install "kernelbp[images]"')

    monkeypatch.setattr(papers, "run", refused)
    shown = CliRunner().invoke(app, ["reproduce", "papers", "--out", str(tmp_path)])
    assert shown.exit_code == 2 and "kernelbp[images]" in shown.stderr
    table = Table("one", "All of [a, b]", [{"loss [nats]": 1}], "as in [song11]")
    show(Report("", "", [table], claims=[Claim("of [both]", "1", "[any]", True)]), Console(width=100))
    printed = capsys.readouterr().out
    for text in ("[a, b]", "[nats]", "[song11]", "[both]", "[any]"):
        assert text in printed
