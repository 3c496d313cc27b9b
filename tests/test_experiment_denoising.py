"""The denoising experiment runs from end to end, is fair to its rivals, and goes on where it was stopped."""

from __future__ import annotations

import csv
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kernelbp as kb
from kernelbp.errors import ConvergenceWarning, InputError
from kernelbp.experiments import Case, Options, Report, Result, Study, denoisers, denoising
from kernelbp.experiments.denoisers import Method, Sample, Training, chosen, measure, search_case
from kernelbp.experiments.report import save

ENTRANTS = {
    ("discrete BP", "paper"),
    ("discrete BP", "best found"),
    ("Gaussian-mixture BP", "paper"),
    ("Gaussian-mixture BP", "best found"),
    ("particle BP", "paper"),
    ("particle BP", "best found"),
    ("Gaussian BP", "paper"),
    ("Gaussian BP", "best found"),
    ("kernel BP", "paper"),
    ("kernel BP", "default"),
    ("kernel BP", "pairs only"),
    ("kernel BP", "counted tables"),
}
PAPERS_IMAGES = Path(__file__).parents[2] / "shared" / "data" / "sunset"


@pytest.fixture(scope="module", autouse=True)
def _short_searches():
    """One trial each: what a search does is tested apart."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RIVALS", "OURS"):
            patch.setattr(denoising, name, tuple(map(_with_one_trial, getattr(denoisers, name))))
        yield


def _with_one_trial(method: Method) -> Method:
    return replace(
        method, stages=[{name: values[:1] for name, values in grid.items()} for grid in method.stages[:1]]
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("sunsets")
    study = Study("denoising", Options(folder), extras={"photos": None})
    report = denoising.run(study, sizes=denoising.TINY)
    save(report, folder)
    return report, folder


def test_every_method_is_in_the_table_with_both_settings(finished):
    _, folder = finished
    with (folder / "error.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {(row["method"], row["settings"]) for row in rows} == ENTRANTS
    for row in rows:
        assert 0 < float(row["4"]) < 80 and 0 < float(row["60"]) < 80


def test_report_has_pictures_page_and_settings_of_all(finished):
    report, folder = finished
    page = (folder / "index.html").read_text(encoding="utf-8")
    for name in ("denoising", "images"):
        for ending in ("png", "svg"):
            assert (folder / f"{name}.{ending}").stat().st_size > 1000
    for method, kind in ENTRANTS:
        assert f"{method}, {kind}" in report.settings
        assert f"{method}, {kind}" in page
    assert len(report.pictures) == 2


def test_claims_say_what_the_tables_say(finished):
    report, _ = finished
    error = {(row["method"], row["settings"]): row for row in report.tables[0].rows}
    ours = error["kernel BP", "default"]["60"]
    rivals = [row["60"] for key, row in error.items() if key[0] != "kernel BP"]
    (claim,) = (c for c in report.claims if c.what.startswith("50 colours and more"))
    assert claim.holds == (ours < min(rivals))
    assert claim.measured.startswith(f"{ours / min(rivals):.2f} ")


def test_errors_are_those_of_the_pictures_kept(finished):
    report, folder = finished
    with np.load(folder / "finished" / "60-colours-kernel-BP-default.case.npz") as held:
        clean, mean = held["clean"], held["mean"]
    np.testing.assert_array_equal(clean, kb.datasets.sunset(60, 12, noise=0.0)[0])
    (row,) = (
        row for row in report.tables[1].rows if (row["method"], row["settings"]) == ("kernel BP", "default")
    )
    assert row["60"] == pytest.approx(np.sqrt(np.mean((clean - mean) ** 2)), rel=1e-5)


def test_resumed_run_does_no_case_again_and_reports_the_same(finished, monkeypatch):
    report, folder = finished
    monkeypatch.setattr(denoisers, "measure", None)
    monkeypatch.setattr(denoising, "measure", None)
    study = Study("denoising", Options(folder, resume=True), extras={"photos": None})
    again = denoising.run(study, sizes=denoising.TINY)
    assert [table.rows for table in again.tables] == [table.rows for table in report.tables]


def test_interrupted_run_keeps_what_was_finished(tmp_path):
    def stop() -> Result:
        raise KeyboardInterrupt

    study = Study("denoising", Options(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        study.finish([Case("first", lambda: Result([{"a": 1}])), Case("second", stop)])
    kept = json.loads((tmp_path / "finished" / "first.case.json").read_text())
    assert kept["rows"] == [{"a": 1}]


def test_a_draw_without_an_answer_is_not_left_out_of_a_mean():
    rows = [{"RMSE mean": 2.0}, {"RMSE mean": 4.0}, {"RMSE mean": None}]
    assert denoising._average(Result(rows), "RMSE mean") is None
    assert denoising._average(Result(rows), "RMSE mean", 2) == 3.0


def test_the_papers_images_and_photographs_are_two_things(tmp_path):
    with pytest.raises(InputError, match="give one of the two"):
        denoising.run(Study("denoising", Options(tmp_path / "out", data=tmp_path)), photos=tmp_path)


def test_missing_image_is_named(tmp_path):
    study = Study("denoising", Options(tmp_path / "out", data=tmp_path), extras={"photos": None})
    with pytest.raises(InputError, match=r"source4\.pgm"):
        denoising.run(study, sizes=denoising.TINY)


@pytest.mark.skipif(not PAPERS_IMAGES.is_dir(), reason="the paper's images are not at ../shared/data/sunset")
def test_drawn_sunsets_are_the_papers_files(tmp_path):
    study = Study("denoising", Options(tmp_path, data=PAPERS_IMAGES))
    for colors in denoising.FULL.colors:
        loaded = denoisers.paper_image(study, colors, 100)
        np.testing.assert_array_equal(loaded, kb.datasets.sunset(colors, 100, noise=0.0)[0])


# ---------------------------------------------------------------------- searching


class _Pretended:
    """A model whose error is as far off as it is told."""

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def infer(self, graph, **asked):
        return _PretendedBeliefs(graph, self.shift + asked.get("damping", 0.0))


class _PretendedBeliefs:
    iterations, converged = 3, True

    def __init__(self, graph, shift: float) -> None:
        self._graph, self._shift = graph, shift

    def mean(self):
        return np.zeros(self._graph.n_nodes) + self._shift

    def mode(self):
        return np.zeros(self._graph.n_nodes) - 10.0


def _pretended(stages) -> Method:
    return Method(
        "pretended",
        lambda training, shift=7.0: _Pretended(shift),
        {"paper": {"damping": 5.0}},
        {},
        stages,
    )


@pytest.fixture
def black() -> tuple[Training, list[Sample]]:
    clean = np.zeros((4, 4))
    noisy = clean + np.arange(16.0).reshape(4, 4)
    return Training.of(clean, noisy), [Sample(clean, noisy)]


def test_search_takes_the_least_error_stage_after_stage(black, tmp_path):
    method = _pretended([{"shift": (3.0, 1.0)}, {"damping": (5.0, 0.5)}])
    study = Study("search", Options(tmp_path))
    (result,) = study.finish([search_case("search", method, *black)]).values()
    paper, best = chosen(result.rows, [method])
    assert (paper.kind, paper.options, paper.tried) == ("paper", {"damping": 5.0}, 1)
    # 7 + 5 is worse than the mode's 10; 1 + 0.5 is better.
    assert (paper.estimate, paper.error) == ("mode", 10.0)
    assert (best.kind, best.options, best.tried) == ("best found", {"shift": 1.0, "damping": 0.5}, 4)
    assert (best.estimate, best.error) == ("mean", 1.5)


def test_fewer_stages_are_searched_when_asked(black, tmp_path):
    method = _pretended([{"shift": (3.0, 1.0)}, {"damping": (5.0, 0.5)}])
    case = search_case("search", method, *black, stages=1)
    _, best = chosen(case.run().rows, [method])
    assert best.options == {"shift": 1.0, "damping": 5.0}


def test_what_a_search_finds_is_no_worse_than_the_papers_settings(black):
    method = _pretended([{"shift": (60.0, 70.0)}])
    method = replace(method, settings={"paper": {"shift": 2.0, "damping": 0.0}})
    paper, best = chosen(search_case("search", method, *black).run().rows, [method])
    assert (best.kind, best.options, best.error) == ("best found", paper.options, 2.0)


def test_an_iteration_that_could_not_be_timed_lets_no_claim_hold(finished):
    report, _ = finished
    rows = [{"iteration s": None}, {"iteration s": 0.002}, {"iteration s": 0.004}]
    assert denoising._average(Result(rows), "iteration s") == 0.002
    assert denoising._average(Result(rows[:1]), "iteration s") is None
    # Inferences of two iterations on 12 x 12 pixels are too short to tell.
    for claim in report.claims:
        assert "could not be told" not in claim.measured or not claim.holds


def test_measured_images_and_counts(black):
    training, samples = black
    (found,) = measure(_pretended([]), {"shift": 2.0, "damping": 1.0}, training, samples)
    assert found.iterations == 3 and found.converged
    assert found.error("mean", samples[0].clean) == 3.0 and found.error("mode", samples[0].clean) == 10.0
    assert found.fit_seconds >= 0 and found.seconds >= 0


def test_discrete_bp_is_tuned_on_training_images():
    clean, noisy = kb.datasets.sunset(10, 20, seed=0)
    training, other = Training.of(clean, noisy), kb.datasets.sunset(10, 20, seed=1)[1]
    asked = {"schedule": "sweep", "damping": 0.7, "max_iterations": 30, "tolerance": 1e-3}
    model = denoisers.RIVALS[0].fit(training)

    def error(tuned, image):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            beliefs = tuned.infer(denoisers.grid_of(image), **asked)
        return np.sqrt(np.mean((beliefs.mean() - clean.ravel()) ** 2))

    tuned = denoisers.TunedDiscrete.on(model, training.images, asked)
    assert error(tuned, noisy) < error(model, noisy) and error(tuned, other) < error(model, other)
    assert tuned.infer(denoisers.grid_of(other), **{**asked, "max_iterations": 1}).iterations == 1
    beliefs = tuned.infer(denoisers.grid_of(other), **asked).beliefs
    assert np.allclose(denoisers.TemperedBeliefs(beliefs, 1.0).mean(), beliefs.mean(), atol=1e-3)
    apart = [np.abs(denoisers.TemperedBeliefs(beliefs, t).mean() - beliefs.mode()).mean() for t in (0.1, 1.0)]
    assert apart[0] < apart[1]


def test_tuning_is_tried_and_kept_where_it_is_better(black):
    training, samples = black
    better = replace(
        _pretended([{"tuned": (False, True)}]), tune=lambda model, images, asked: _Pretended(shift=0.0)
    )
    _, best = chosen(search_case("search", better, training, samples).run().rows, [better])
    assert best.options["tuned"] is True


def test_rivals_are_told_the_true_likelihood_and_kernel_bp_is_not():
    told, learned = denoisers.parts(known=True)[1], denoisers.parts()[1]
    assert learned["read as"].potential is None
    likelihood = told["read as"].potential
    assert likelihood(100.0, 130.0) / likelihood(100.0, 100.0) == pytest.approx(np.exp(-0.5))
