"""The sunset against the paper's files and integer arithmetic, the pairs of a grid against brute force."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernelbp.datasets import SUNSET_COLORS, grid_pairs, load_sunset, sunset
from kernelbp.errors import InputError

# ----------------------------------------------------------------------------------------------- the sunset


@pytest.fixture(scope="session")
def sunset_files(shared_data: Path) -> Path:
    return shared_data / "sunset"


def file_pixels(folder: Path, colors: int) -> np.ndarray:
    """The file's pixels by NumPy's own text reader: independent of the loader under test."""
    return np.loadtxt(folder / f"source{colors}.pgm", skiprows=3).reshape(300, 300)


@pytest.mark.parametrize("colors", SUNSET_COLORS)
def test_sunset_equals_the_papers_files_pixel_for_pixel(sunset_files, colors):
    truth = file_pixels(sunset_files, colors)
    whole, _ = sunset(colors, size=300, noise=0)
    hundred, _ = sunset(colors, size=100, noise=0)
    np.testing.assert_array_equal(whole, truth)
    np.testing.assert_array_equal(hundred, truth[1::3, 1::3])


@pytest.mark.parametrize("colors", SUNSET_COLORS)
def test_loaded_sunset_equals_the_papers_files(sunset_files, colors):
    truth = file_pixels(sunset_files, colors)
    np.testing.assert_array_equal(load_sunset(sunset_files, colors, 300), truth)
    np.testing.assert_array_equal(load_sunset(sunset_files, colors), truth[1::3, 1::3])


@pytest.mark.parametrize("size", [300, 100, 60, 20, 12])
def test_sunset_and_file_agree_at_every_size_a_file_has(sunset_files, size):
    clean, _ = sunset(100, size)
    np.testing.assert_array_equal(clean, load_sunset(sunset_files, 100, size))


def drawn_in_integers(colors: int) -> np.ndarray:
    """The 300 x 300 picture in exact integer arithmetic, pixel by pixel."""
    image = np.zeros((300, 300))
    for row in range(150):
        for column in range(300):
            squared = (row - 150) ** 2 + (column - 150) ** 2
            ring = min(colors - 1, math.isqrt(squared * (colors - 1) ** 2 // 150**2))
            image[row, column] = 255 * ring // (colors - 1)
    return image


@pytest.mark.parametrize("colors", [2, 3, *SUNSET_COLORS, 256])
def test_sunset_equals_integer_arithmetic(colors):
    truth = drawn_in_integers(colors)
    np.testing.assert_array_equal(sunset(colors, 300)[0], truth)
    np.testing.assert_array_equal(sunset(colors, 100)[0], truth[1::3, 1::3])


@pytest.mark.parametrize("colors", SUNSET_COLORS)
def test_sunset_has_its_levels_a_white_sky_and_a_black_sea(colors):
    clean, _ = sunset(colors, size=300)
    assert clean.dtype == np.float64
    np.testing.assert_array_equal(np.unique(clean), np.floor(np.linspace(0, 255, colors) + 1e-9))
    assert (clean[150:] == 0).all()
    row, column = np.indices((150, 300))
    outside = np.hypot(row - 150, column - 150) >= 150
    assert (clean[:150][outside] == 255).all()
    assert (clean[:150][~outside] < 255).all()


@given(size=st.integers(10, 700), colors=st.integers(2, 256))
def test_sunset_of_any_size_darkens_towards_the_middle_of_its_horizon(size, colors):
    clean, _ = sunset(colors, size, noise=0)
    assert clean.shape == (size, size)
    assert (clean[size // 2 :] == 0).all()
    assert clean[0, 0] == 255 and clean[0, -1] == 255
    # At most one ring and one pixel from the very middle.
    just_above = clean[size // 2 - 1, size // 2]
    assert just_above <= 255 * min(1.0, 2 * 1.5 / size + 1 / (colors - 1))
    assert (np.diff(clean[: size // 2], axis=0) <= 0).all()


def test_moved_sun_is_black_at_its_center_and_white_from_its_rim():
    clean, _ = sunset(50, size=300, center=(0.25, 0.75), radius=0.1)
    assert clean[75, 225] == 0
    assert clean[75, 225 - 29] < 255 and clean[75, 225 - 30] == 255
    assert clean[75 - 29, 225] < 255 and clean[75 - 30, 225] == 255
    assert (clean[150:] == 0).all()
    row, column = np.indices((300, 300))
    assert (clean[:150][np.hypot(row - 75, column - 225)[:150] >= 30] == 255).all()


def test_the_papers_center_and_radius_are_the_defaults():
    np.testing.assert_array_equal(sunset(75, center=(0.5, 0.5), radius=0.5), sunset(75))


def test_noise_is_gaussian_unclipped_and_repeats_with_its_seed():
    clean, noisy = sunset(size=400, noise=30.0, seed=3)
    difference = noisy - clean
    # Four standard errors of the mean and of the standard deviation of 160,000 normal deviates.
    assert abs(difference.mean()) < 4 * 30 / 400
    assert abs(difference.std() - 30) < 4 * 30 / (400 * math.sqrt(2))
    assert noisy.min() < 0 and noisy.max() > 255
    np.testing.assert_array_equal(sunset(size=400, seed=3)[1], noisy)
    np.testing.assert_array_equal(sunset(size=400, seed=np.random.default_rng(3))[1], noisy)
    assert not np.array_equal(sunset(size=400, seed=4)[1], noisy)
    assert not np.array_equal(sunset(seed=None)[1], sunset(seed=None)[1])
    np.testing.assert_array_equal(*sunset(noise=0))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"colors": 1}, "colors: expected an integer from 2 to 256, got 1"),
        ({"colors": 257}, "colors: expected an integer from 2 to 256, got 257"),
        ({"colors": 10.0}, "colors: expected an integer from 2 to 256, got 10.0"),
        ({"size": 9}, "size: expected an integer of at least 10, got 9"),
        ({"size": (100, 100)}, "size: expected an integer of at least 10, got (100, 100)"),
        ({"noise": -1}, "noise: expected a finite number of at least 0, got -1"),
        ({"noise": math.nan}, "noise: expected a finite number of at least 0, got nan"),
        ({"noise": math.inf}, "noise: expected a finite number of at least 0, got inf"),
        ({"noise": "30"}, "noise: expected a finite number of at least 0, got '30'"),
        ({"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        (
            {"seed": "a"},
            "seed: expected an integer of at least 0, a numpy.random.Generator or None, got 'a'",
        ),
        ({"center": 0.5}, "center: expected two fractions (row, column), got 0.5"),
        ({"center": (0.5,)}, "center: expected two fractions (row, column), got (0.5,)"),
        ({"center": (1.5, 0.5)}, "center (row): expected a number from 0 to 1, got 1.5"),
        ({"center": (0.5, math.nan)}, "center (column): expected a number from 0 to 1, got nan"),
        ({"radius": 0}, "radius: expected a number from 0.01 to 10, got 0"),
    ],
)
def test_sunset_says_what_is_wrong_with_an_argument(arguments, text):
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        sunset(**arguments)


# -------------------------------------------------------------------------------------------- the PGM loader


def write(folder: Path, content: str | bytes, colors: int = 10) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    (folder / f"source{colors}.pgm").write_bytes(data)


def as_pgm(pixels: np.ndarray, header: str = "P2\n300 300\n255\n") -> str:
    return header + "\n".join("\t".join(str(int(value)) for value in row) for row in pixels) + "\n"


@pytest.mark.parametrize(
    "header",
    ["P2\n300 300\n255\n", "P2 300 300 255 ", "P2\r\n# drawn by hand: P5 1 1\r\n300 300 # pixels\r\n255\r\n"],
    ids=["lines", "one line", "comments"],
)
def test_a_written_image_is_read_back(tmp_path, header):
    pixels = np.random.default_rng(0).integers(0, 256, (300, 300))
    write(tmp_path, as_pgm(pixels, header))
    image = load_sunset(tmp_path, 10, 300)
    assert image.dtype == np.float64
    np.testing.assert_array_equal(image, pixels)
    np.testing.assert_array_equal(load_sunset(str(tmp_path), 10, 100), pixels[1::3, 1::3])


def with_pixel(word: str) -> str:
    words = ["0"] * 90_000
    words[301] = word
    return "P2 300 300 255 " + " ".join(words)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "not a plain PGM image: expected it to begin with 'P2', found ''"),
        (b"\x89PNG\r\n\x1a\n", r"not a plain PGM image: expected it to begin with 'P2', found '\\x89PNG'"),
        ("P5 300 300 255 ", "not a plain PGM image: expected it to begin with 'P2', found 'P5'"),
        ("P2 300", "truncated in its header; expected 'P2', width, height and maximum"),
        ("P2 400 300 255 0", "the header's width is '400'; expected 300"),
        ("P2 300 -300 255 0", "the header's height is '-300'; expected 300"),
        ("P2 300 300 65535 0", "the header's maximum is '65535'; expected 255"),
        ("P2 " + "9" * 5000 + " 300 255 0", "the header's width is '999999999999'...; expected 300"),
        ("P2 300 300 255 " + "0 " * 89_999, "truncated: 89999 of 90000 pixels"),
        ("P2 300 300 255 " + "0 " * 90_001, "90001 pixels; expected 90000, as the header says"),
        (with_pixel("256"), "the pixel at row 1, column 1 is '256'; expected an integer from 0 to 255"),
        (with_pixel("-1"), "the pixel at row 1, column 1 is '-1'; expected an integer from 0 to 255"),
        (with_pixel("nan"), "the pixel at row 1, column 1 is 'nan'; expected an integer from 0 to 255"),
        (with_pixel("7" * 5000), "the pixel at row 1, column 1 is '777777777777'...; expected an integer"),
        ("P2 300 300 255 " + "0 " * 300_000, "larger than 454096 bytes; too large for a PGM image"),
    ],
    ids=lambda value: None if isinstance(value, bytes) or len(value) > 100 else value,
)
def test_loader_refuses_what_is_not_such_an_image(tmp_path, content, text):
    write(tmp_path, content)
    with pytest.raises(InputError, match=re.escape(text)) as caught:
        load_sunset(tmp_path, 10)
    assert str(tmp_path / "source10.pgm") in str(caught.value)


@given(content=st.binary(max_size=200))
def test_loader_raises_nothing_else_on_any_bytes(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("bytes")
    write(folder, b"P2 300 300 255 " + content)
    with pytest.raises(InputError):
        load_sunset(folder, 10)


def test_loader_names_a_missing_folder_and_a_missing_file(tmp_path):
    with pytest.raises(
        InputError, match=r"^folder: expected a folder with the paper's images, got '.*absent'"
    ):
        load_sunset(tmp_path / "absent", 10)
    with pytest.raises(
        InputError, match=r"source10\.pgm: no such file; expected a plain PGM image of 300 x 300"
    ):
        load_sunset(tmp_path, 10)
    with pytest.raises(InputError, match=r"^folder: expected a path, got int$"):
        load_sunset(3, 10)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes, which this system has not")
def test_loader_does_not_wait_on_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "source10.pgm")
    with pytest.raises(InputError, match="no such file"):
        load_sunset(tmp_path, 10)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"colors": 0}, "colors: expected an integer from 2 to 256, got 0"),
        ({"colors": "../10"}, "colors: expected an integer from 2 to 256, got '../10'"),
        ({"size": 301}, "size: expected an integer from 10 to 300, got 301"),
        ({"size": 150}, "size: expected one of 300, 100, 60, 20, 12 for an image from a file, got 150"),
    ],
)
def test_loader_says_what_is_wrong_with_an_argument(tmp_path, arguments, text):
    with pytest.raises(InputError, match=f"^{re.escape(text)}$"):
        load_sunset(tmp_path, **arguments)


# ----------------------------------------------------------------------------------------- pairs of a grid


def pairs_by_brute_force(image: np.ndarray, axes: tuple[int, ...]) -> list[tuple[float, float]]:
    """Every two cells of which one is one step further along one axis, by looking at all cells."""
    pairs = []
    for axis in axes:
        for here in np.ndindex(image.shape):
            there = tuple(index + (position == axis) for position, index in enumerate(here))
            if there[axis] < image.shape[axis]:
                ends = (float(image[here]), float(image[there]))
                if not any(map(math.isnan, ends)):
                    pairs.append(ends)
    return pairs


images = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=5),
    elements=st.one_of(st.just(math.nan), st.integers(0, 20).map(float)),
)


@given(image=images, data=st.data())
def test_grid_pairs_equal_brute_force(image, data):
    axis = data.draw(st.none() | st.integers(-image.ndim, image.ndim - 1))
    axes = tuple(range(image.ndim)) if axis is None else (axis % image.ndim,)
    truth = pairs_by_brute_force(image, axes)
    if not truth:
        with pytest.raises(InputError, match="no two neighbours"):
            grid_pairs(image, axis=axis)
        return
    first, second = grid_pairs(image, axis=axis)
    assert first.dtype == second.dtype == np.float64
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == truth


def test_grid_pairs_count_every_edge_of_the_grid_once():
    clean, _ = sunset(10, 100)
    first, second = grid_pairs(clean)
    assert first.shape == second.shape == (2 * 100 * 99,)
    numbered = np.arange(100 * 100).reshape(100, 100)
    edges = set(zip(*(ends.astype(int).tolist() for ends in grid_pairs(numbered)), strict=True))
    assert len(edges) == 2 * 100 * 99
    assert {after - before for before, after in edges} == {1, 100}


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_grid_pairs_take_any_real_type_and_leave_it_alone(dtype):
    image = np.array([[0, 1], [1, 0]], dtype=dtype)
    first, second = grid_pairs(image)
    np.testing.assert_array_equal(first, [0, 1, 0, 1])
    np.testing.assert_array_equal(second, [1, 0, 1, 0])
    first[:] = 7
    np.testing.assert_array_equal(image, np.array([[0, 1], [1, 0]], dtype=dtype))


@pytest.mark.parametrize(
    ("image", "axis", "text"),
    [
        ([1.0, 2.0], None, "image: expected a 2-D or 3-D array, got 1-D of shape (2,)"),
        (np.zeros((2, 2, 2, 2)), None, "image: expected a 2-D or 3-D array, got 4-D of shape (2, 2, 2, 2)"),
        ([["a", "b"]], None, "image: expected a 2-D or 3-D array of real numbers, got dtype <U1"),
        ([[1j, 2]], None, "image: expected a 2-D or 3-D array of real numbers, got dtype complex128"),
        ([[1, 2], [3]], None, "image: expected a 2-D or 3-D array of numbers, got rows that differ in shape"),
        (
            [[1.0, math.inf]],
            None,
            "image: 1 of 2 values are infinite; expected finite numbers, or NaN where unknown",
        ),
        (np.zeros((0, 3)), None, "image: no two neighbours have known values in the array of shape (0, 3)"),
        ([[1.0, math.nan]], None, "(1 of 2 pixels are NaN); expected at least one pair"),
        (
            [[1.0, 2.0]],
            0,
            "image: no two neighbours along axis 0 have known values in the array of shape (1, 2)",
        ),
        ([[1, 2]], 2, "axis: expected an integer from -2 to 1 for a 2-D image, or None for all, got 2"),
        (
            [[1, 2]],
            "row",
            "axis: expected an integer from -2 to 1 for a 2-D image, or None for all, got 'row'",
        ),
    ],
)
def test_grid_pairs_say_what_is_wrong(image, axis, text):
    with pytest.raises(InputError, match=re.escape(text)):
        grid_pairs(image, axis=axis)
