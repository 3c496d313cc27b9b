"""Examples run from beginning to end, as a reader would run them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.filterwarnings("ignore::kernelbp.errors.ConvergenceWarning")

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    """Import an example from its file."""
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The sunset demo in a small version: the folder it ran in and what it printed."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("demo")
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        load("denoise_sunset").main(["--size", "30", "--colors", "10"])
    return folder, printed.getvalue()


def test_sunset_demo_tells_errors_verdict_and_times(demo):
    _, printed = demo
    error = re.compile(r"RMSE of the (noisy image|belief mode|belief mean)\D+(\d+\.\d+)")
    errors = {name: float(number) for name, number in error.findall(printed)}
    assert set(errors) == {"noisy image", "belief mode", "belief mean"}
    assert errors["noisy image"] == pytest.approx(30.0, abs=2.0)
    assert re.search(r"iterations\D+\d+", printed)
    assert re.search(r"converged\W+(yes|no)", printed)
    assert re.search(r"learning\W+[\d.]+ s", printed) and re.search(r"inference\W+[\d.]+ s", printed)


def test_sunset_demo_shows_its_progress(demo):
    _, printed = demo
    assert "largest change" in printed and "4/4" in printed


def test_sunset_demo_writes_a_picture_and_says_where(demo):
    folder, printed = demo
    assert [path.name for path in folder.iterdir()] == ["sunset.png"]
    assert "sunset.png" in printed
    with Image.open(folder / "sunset.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000 and picture.height > 600
        pixels = np.asarray(picture.convert("L"), dtype=float)
    # Four images above, three densities below: none of them blank.
    upper, lower = pixels[: len(pixels) // 2], pixels[len(pixels) // 2 :]
    for half, panels in ((upper, 4), (lower, 3)):
        for panel in np.array_split(half, panels, axis=1):
            assert panel.std() > 10


def test_sunset_demo_makes_the_folder_it_is_asked_to_write_to(tmp_path, capsys):
    out = tmp_path / "new" / "picture.png"
    load("denoise_sunset").main(["--size", "12", "--colors", "4", "--out", str(out)])
    assert out.stat().st_size > 10_000
    assert "picture.png" in capsys.readouterr().out
