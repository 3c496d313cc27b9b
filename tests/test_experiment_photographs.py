"""The denoising experiment on photographs: learned on some, tested on others, with every method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kernelbp.errors import InputError
from kernelbp.experiments import Options, Study, denoisers, photographs
from kernelbp.experiments.report import save


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
    assert "photographs.png" in {path.name for path in out.iterdir()} and page.is_file()


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
