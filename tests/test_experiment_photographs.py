"""The denoising experiment on photographs: learned on some, tested on others, with every method."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from kernelbp.errors import InputError
from kernelbp.experiments import Options, Study, denoisers, photographs
from kernelbp.experiments.report import save
from kernelbp.model import Model


def _with_one_trial(method: denoisers.Method) -> denoisers.Method:
    return replace(
        method, stages=[{name: values[:1] for name, values in grid.items()} for grid in method.stages[:1]]
    )


def _write_photographs(folder: Path, count: int, side: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        ramp = np.add.outer(np.arange(side), (1 + index) * np.arange(side)) * 3.0 % 256
        Image.fromarray(ramp.astype(np.uint8)).save(folder / f"{index}.png")


def test_photographs_from_end_to_end(tmp_path, monkeypatch):
    # One trial each, and nothing compiled ahead: what a search does and what it takes is tested with the sunsets.
    for name in ("RIVALS", "OURS"):
        monkeypatch.setattr(photographs, name, tuple(map(_with_one_trial, getattr(denoisers, name))))
    monkeypatch.setattr(denoisers, "compile_all", lambda: None)
    _write_photographs(tmp_path / "photos" / "train", 3)
    _write_photographs(tmp_path / "photos" / "test", 2)
    out = tmp_path / "out"
    study = Study("denoising", Options(out), extras={"photos": str(tmp_path / "photos")})
    report = photographs.run(study, tmp_path / "photos", photographs.TINY)
    page = save(report, out)
    rows = {(row["method"], row["settings"]): row for row in report.tables[0].rows}
    for rival in denoisers.RIVALS:
        assert {(rival.name, "paper"), (rival.name, "best found")} <= set(rows)
    assert {("noisy", None), ("kernel BP", "default"), (photographs.DIRECTIONAL, "default")} <= set(rows)
    noisy = rows["noisy", None]
    # Noise of sigma 30 on its own: 20 log10(255 / 30) = 18.6 dB, a little more where clipped.
    assert 17 < noisy["PSNR whole"] < 21
    for (method, _), row in rows.items():
        assert (row["PSNR whole"] is None) == (method in photographs.ON_CROPS)
    assert rows["total variation", "best on training photographs"]["PSNR whole"] > 5
    rivals = {rival.name for rival in denoisers.RIVALS} | {photographs.VARIATION, photographs.MEANS}
    claimed = [claim.what for claim in report.claims if claim.what.startswith("kernel BP, default: ")]
    assert {what.split("that of ")[1].removesuffix(", both settings") for what in claimed} == rivals
    assert "512 x 512" in report.lead and "512 x 512" in report.settings["used of each photograph"]
    assert report.settings["settings searched on"] == "the middle 12 x 12 of one training photograph"
    assert "by the clock" in report.tables[0].note and "processor" not in report.tables[0].title
    assert "photographs.png" in {path.name for path in out.iterdir()} and page.is_file()


@dataclass(frozen=True)
class _Recorded:
    """A model that notes down the seeds it is given."""

    model: Model
    seeds: list[int]

    def infer(self, graph, *, seed, **options):
        self.seeds.append(seed)
        return self.model.infer(graph, **options)


@pytest.mark.parametrize(("seed", "first"), [(0, 0), (2, 2 * denoisers.SEEDS_APART)])
def test_one_training_photograph_is_searched_on_and_samplers_take_the_seed(
    tmp_path, monkeypatch, seed, first
):
    seeds: list[int] = []

    def fit(training, **options):
        pairs = {"beside": training.pairs, "read as": training.readings}
        return _Recorded(Model(*denoisers.parts(), **options).fit(pairs), seeds)

    sampling = denoisers.Method("sampling BP", fit, {"paper": {"max_iterations": 1}}, seeded=True)
    exact = denoisers.RIVALS[-1]
    monkeypatch.setattr(photographs, "RIVALS", (sampling,))
    monkeypatch.setattr(photographs, "OURS", ())
    monkeypatch.setattr(photographs, "_directional", lambda *given: _with_one_trial(exact))
    monkeypatch.setattr(photographs, "_report", lambda study, sizes, counts, *found: (counts, *found))
    monkeypatch.setattr(denoisers, "compile_all", lambda: None)
    _write_photographs(tmp_path / "train", 1)
    _write_photographs(tmp_path / "test", 1)
    study = Study("denoising", Options(tmp_path / "out", seed=seed))
    sizes = replace(photographs.TINY, searched=2, calibrated=3)
    counts, entrants, _ = photographs.run(study, tmp_path, sizes)
    assert counts == photographs.Counts(train=1, test=1, searched=1, calibrated=1)
    assert all(np.isfinite(entrant.error) for entrant in entrants)
    # One photograph in the search; its middle and the whole of another in the test.
    assert seeds == [first, first, first + 1]


@pytest.mark.parametrize(
    ("train", "most", "indices"),
    [(1, 2, [0]), (2, 2, [1, 0]), (3, 2, [1, 2]), (20, 1, [1]), (100, 2, [1, 51])],
)
def test_settings_are_searched_on_as_many_photographs_as_there_are(train, most, indices):
    assert photographs._searched(train, most) == indices


def test_no_more_crops_are_taken_than_stated(tmp_path):
    study = Study("denoising", Options(tmp_path))
    for sizes in (photographs.FULL, photographs.QUICK, photographs.TINY):
        for count in (1, 2, 3, 5, 20, 27, 100):
            crops = photographs._crops(study, [np.zeros((2, 2))] * count, sizes)
            assert len(crops) == min(count, sizes.calibrated)


def test_a_filter_is_timed_by_the_clock():
    sample = denoisers.Sample(np.zeros((2, 2)), np.ones((2, 2)))

    def slow(noisy, strength):
        time.sleep(0.05)
        return noisy

    (row,) = photographs._filter(slow, (1.0,), [sample], [sample], []).rows
    assert row["s"] >= 0.05


def test_every_rival_is_claimed_against_whether_or_not_it_holds():
    found = {
        ("kernel BP, default", "crop"): 24.0,
        ("kernel BP, default", "whole"): 27.0,
        (f"{photographs.DIRECTIONAL}, default", "crop"): 24.0,
        (f"{photographs.DIRECTIONAL}, default", "whole"): 27.0,
        ("discrete BP, paper", "crop"): 20.0,
        ("discrete BP, best found", "crop"): 24.5,
        ("discrete BP, paper", "whole"): 23.0,
        ("discrete BP, best found", "whole"): 26.5,
        ("particle BP, paper", "crop"): 22.0,
        (photographs.VARIATION, "crop"): 23.0,
        (photographs.VARIATION, "whole"): 26.0,
        (photographs.MEANS, "crop"): 25.0,
        (photographs.MEANS, "whole"): 28.0,
    }
    entrants = {
        name: SimpleNamespace(method=SimpleNamespace(name=name.rsplit(", ", 1)[0]))
        for name, _ in found
        if name not in photographs.STRENGTHS
    }
    claims = photographs._claims(entrants, lambda name, part, column: found.get((name, part)))
    ours = [claim for claim in claims if claim.what.startswith("kernel BP, default")]
    assert len(claims) == 2 * len(ours)
    assert {claim.what.split("that of ")[1]: claim.holds for claim in ours} == {
        "discrete BP, both settings": False,
        "particle BP": True,
        "total variation": True,
        "non-local means": False,
    }
    assert ours[0].measured == "middles 24.00 dB against 24.50; whole 27.00 dB against 26.50"
    del found["kernel BP, default", "whole"]
    claims = photographs._claims(entrants, lambda name, part, column: found.get((name, part)))
    (variation,) = (c for c in claims if c.what == "kernel BP, default: PSNR above that of total variation")
    assert not variation.holds and "whole no answer against 26.00" in variation.measured


def test_of_large_photographs_only_the_middle_is_held(tmp_path):
    large = np.zeros((1200, 1400, 3), dtype=np.uint8)
    large[344:856, 444:956] = (255, 0, 0)
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        Image.fromarray(large).save(tmp_path / part / "large.png")
    tracemalloc.start()
    try:
        (train,), (test,) = photographs._load(tmp_path, photographs.TINY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert train.shape == test.shape == (512, 512)
    np.testing.assert_allclose(train, 255 * photographs.LUMA[0])
    assert peak < 0.8 * large.size * 8


def test_directions_are_learned_from_a_part_of_many_pairs(monkeypatch):
    learned = {}

    class Noted:
        def __init__(self, *parts, **options):
            pass

        def fit(self, pairs, graphs=()):
            learned.update(pairs)

    monkeypatch.setattr(photographs, "Model", Noted)
    photos = [np.arange(400.0).reshape(20, 20), np.zeros((20, 20))]
    training = denoisers.Training.of(photos[0], photos[0])
    photographs._directional(photos, replace(photographs.TINY, directed=100)).fit(training)
    for name, apart in (("below", 20.0), ("beside", 1.0)):
        first, second = learned[name]
        assert 90 <= len(first) <= 100
        assert set(second - first) == {0.0, apart}


def test_readings_are_a_part_of_many(tmp_path):
    study = Study("denoising", Options(tmp_path))
    clean, noisy = photographs._readings(
        study, [np.zeros((30, 30))] * 3, replace(photographs.TINY, pairs=100)
    )
    assert len(clean) == len(noisy) == 100


def test_one_folder_of_photographs_is_split(tmp_path):
    _write_photographs(tmp_path, 5)
    train, test = photographs._load(tmp_path, photographs.TINY)
    assert (len(train), len(test)) == (3, 2)


@pytest.mark.parametrize(
    ("count", "side", "text"),
    [(0, 20, "holds no photographs"), (1, 20, "one photograph"), (4, 8, "at least 12 x 12")],
)
def test_unfit_folders_are_refused(tmp_path, count, side, text):
    _write_photographs(tmp_path, count, side)
    with pytest.raises(InputError, match=text):
        photographs._load(tmp_path, photographs.TINY)
