"""Examples run from beginning to end, as a reader would run them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import kernelbp as kb
from kernelbp import figures
from kernelbp.errors import InputError

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


# What each quick run must print, besides writing its picture; "images" needs scikit-image.
GALLERY = {
    "inpaint_photograph": ("inpainting.png", ("belief mean", "truth in the 90% interval", "converged")),
    "smooth_bimodal_series": ("bimodal.png", ("Gaussian", "exact", "log-density")),
    "locate_sensors": (
        "sensors.png",
        ("RMSE of multidimensional scaling", "RMSE of the belief mean", "converged"),
    ),
}


@pytest.mark.parametrize("name", GALLERY)
def test_gallery_page_runs_tells_and_draws(name, tmp_path, monkeypatch, capsys):
    if name == "inpaint_photograph":
        pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    picture, told = GALLERY[name]
    assert load(name).main(["--quick"]) == Path(picture)
    printed = capsys.readouterr().out
    assert ("largest change" in printed or "exact in one pass" in printed) and picture in printed
    for words in told:
        assert words in printed
    assert [path.name for path in tmp_path.iterdir()] == [picture]
    with Image.open(picture) as opened:
        opened.load()
        assert opened.format == "PNG" and opened.width > 1000 and opened.height > 600
        pixels = np.asarray(opened.convert("L"), dtype=float)
    for corner in (pixels[:400, :600], pixels[:400, -600:], pixels[-300:, :600], pixels[-300:, -600:]):
        assert corner.std() > 5


@pytest.mark.parametrize("name", GALLERY)
def test_gallery_page_writes_where_it_is_told(name):
    options = load(name).parse(["--out", "elsewhere/picture.png", "--seed", "3"])
    assert options.out == Path("elsewhere/picture.png") and options.seed == 3 and not options.quick


def test_inpainting_page_names_what_to_install_without_scikit_image(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(SystemExit, match=r"kernelbp\[images\]"):
        load("inpaint_photograph").photograph("camera", 4)


def test_sensors_page_beats_scaling_of_path_lengths(tmp_path, capsys):
    load("locate_sensors").main(["--quick", "--out", str(tmp_path / "sensors.png")])
    errors = dict(
        re.findall(
            r"RMSE of (multidimensional scaling|the belief mean)\D+(\d+\.\d+)", capsys.readouterr().out
        )
    )
    assert float(errors["the belief mean"]) < float(errors["multidimensional scaling"])


def test_series_page_beats_the_gaussian_and_nears_the_exact_answer(tmp_path, capsys):
    load("smooth_bimodal_series").main(["--quick", "--out", str(tmp_path / "series.png")])
    scores = dict(re.findall(r"(belief|Gaussian|exact)[^\n]*?(-?\d+\.\d+)", capsys.readouterr().out))
    assert float(scores["Gaussian"]) < float(scores["belief"]) <= float(scores["exact"]) + 0.3


@pytest.fixture(scope="module")
def numbers():
    """Beliefs of a chain of four numbers, the first of them known."""
    state = np.random.default_rng(0).standard_normal(60).cumsum()
    model = kb.Model({"state": kb.kernels.Gaussian()}, {"then": kb.Relation("state", "state")})
    graph = kb.Graph.chain(4, variable="state", relation="then").fix([0], state[:1])
    return model.fit({"then": (state[:-1], state[1:])}).infer(graph)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"damaged": np.zeros((3, 2))}, r"damaged: expected the shape of clean, \(2, 2\), got \(3, 2\)"),
        ({"detail": (0, 1)}, "detail: expected \\(slice of rows, slice of columns\\)"),
        ({"detail": (slice(5, 9), slice(0, 2))}, "detail: .* hold a pixel of the 2 x 2 image"),
    ],
)
def test_inpainting_picture_refuses_what_does_not_fit(numbers, given, complaint):
    fine = {"damaged": np.zeros((2, 2)), "detail": (slice(0, 1), slice(0, 2))}
    with pytest.raises(InputError, match=complaint):
        figures.inpainting(np.zeros((2, 2)), beliefs=numbers, **(fine | given))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"readings": np.zeros(3)}, r"readings: expected as many as truth, \(4,\), got \(3,\)"),
        ({"shown": slice(3, 4)}, "shown: expected at least two of the 4 times"),
        ({"moment": 3, "shown": slice(0, 3)}, r"moment: 3 is not among the times shown, 0 \.\.\. 2"),
    ],
)
def test_series_picture_refuses_what_does_not_fit(numbers, given, complaint):
    fine = {"readings": np.zeros(4), "moment": 1}
    with pytest.raises(InputError, match=complaint):
        figures.series(np.zeros(4), numbers, **(fine | given))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"places": np.zeros((4, 3))},
            r"places: expected finite numbers of shape \(nodes, 2\), got shape \(4, 3\)",
        ),
        ({"nodes": {}}, "nodes: expected a mapping from description to node, 1 to 4 of them"),
        ({"nodes": {"one": 4}}, r"nodes\['one'\]: expected a node in 0 \.\.\. 3, got 4"),
        ({}, "beliefs: expected places of two numbers, got numbers"),
    ],
)
def test_locations_picture_refuses_what_does_not_fit(numbers, given, complaint):
    fine = {"places": np.zeros((4, 2)), "edges": [], "anchors": [], "nodes": {"one": 1}}
    with pytest.raises(InputError, match=complaint):
        figures.locations(beliefs=numbers, **(fine | given))
