"""Noisy pictures come out cleaner, in the sort of file they went in; what cannot be done is refused before any work."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import PIL.Image
import pytest
from rich.console import Console
from scipy.stats import norm
from typer.testing import CliRunner

from kernelbp.cli import app
from kernelbp.datasets import grid_pairs
from kernelbp.errors import InputError, ModelFileError
from kernelbp.photographs import (
    Photographs,
    command,
    denoise,
    denoising,
    estimate_sigma,
    files,
    learn,
    learn_pair,
    noise,
    ready,
    relations,
)

WIDE = {"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"}


def run(*arguments):
    found = CliRunner().invoke(app, ["denoise", *map(str, arguments)], env=WIDE)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, re.sub(r"[\s│]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", found.output))


def scene(rows=64, columns=72):
    """A bright disc with a shadow before a slope: edges and smooth parts, nothing photographs were learned from."""
    y, x = np.mgrid[:rows, :columns]
    picture = 60.0 + 80.0 * x / columns
    picture[np.hypot(y - 0.4 * rows, x - 0.5 * columns) < 0.25 * rows] = 210.0
    picture[y > 0.8 * rows] *= 0.5
    return picture


def colour_scene(rows=48, columns=56):
    gray = scene(rows, columns)
    return np.stack([gray, 0.8 * gray, 255.0 - gray], axis=-1)


def with_noise(picture, sigma, seed=0):
    return picture + sigma * np.random.default_rng(seed).standard_normal(picture.shape)


def psnr(found, truth):
    return 10 * np.log10(255.0**2 / np.mean((found - truth) ** 2))


def save(path, values, mode=None):
    image = PIL.Image.fromarray(np.rint(np.clip(values, 0, 255)).astype(np.uint8))
    (image if mode is None else image.convert(mode)).save(path)
    return path


def load(path):
    with PIL.Image.open(path) as image:
        return np.asarray(image), image.mode


@pytest.fixture
def small(tmp_path):
    """A small noisy picture in a file."""
    return save(tmp_path / "noisy.png", with_noise(scene(20, 24), 20.0))


# ---------------------------------------------------------------------- how good it is


@pytest.mark.parametrize(("sigma", "gain"), [(10.0, 5.0), (30.0, 8.0), (50.0, 8.0)])
def test_the_ready_relation_takes_noise_out(sigma, gain):
    clean = scene()
    noisy = with_noise(clean, sigma)
    found = denoise(noisy, sigma=sigma)
    assert found.converged and found.sigma == sigma
    assert psnr(found.mean, clean) > psnr(noisy, clean) + gain
    assert found.mean.min() >= 0 and found.mean.max() <= 255


def test_standard_deviations_cover_the_error():
    clean = scene()
    found = denoise(with_noise(clean, 25.0, seed=1), sigma=25.0)
    inside = np.abs(found.mean - clean) <= 2 * found.std + 1.0
    assert inside.mean() > 0.9
    edges = np.hypot(*np.gradient(clean)) > 20
    assert found.std[edges].mean() > 1.3 * found.std[~edges].mean()


def test_colours_help_each_other():
    gray = scene(48, 56)
    clean = np.stack([gray, 0.9 * gray + 10, 0.75 * gray + 20], axis=-1)
    noisy = with_noise(clean, 25.0)
    found = denoise(noisy, sigma=25.0)
    alone = np.stack([denoise(noisy[..., k], sigma=25.0).mean for k in range(3)], axis=-1)
    assert found.mean.shape == found.std.shape == clean.shape
    assert psnr(found.mean, clean) > psnr(alone, clean) + 1
    assert psnr(found.mean, clean) > psnr(noisy, clean) + 8


@pytest.mark.parametrize("colour", [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)])
def test_strong_colours_stay_strong(colour):
    clean = np.full((24, 24, 3), 128.0)
    clean[6:18, 6:18] = colour
    found = denoise(with_noise(clean, 15.0), sigma=15.0)
    assert np.abs(found.mean[9:15, 9:15].mean(axis=(0, 1)) - colour).max() < 15


def test_missing_pixels_are_filled():
    clean = scene()
    noisy = with_noise(clean, 10.0)
    holes = np.zeros(clean.shape, dtype=bool)
    holes[10:60:10], holes[:, 20:24] = True, True
    found = denoise(np.where(holes, np.nan, noisy), sigma=10.0)
    assert np.isfinite(found.mean).all()
    assert np.sqrt(np.mean((found.mean - clean)[holes] ** 2)) < 0.5 * np.std(clean)
    assert found.std[holes].mean() > 1.5 * found.std[~holes].mean()
    again = denoise(np.where(holes, 255.0, noisy), sigma=10.0, missing=holes)
    np.testing.assert_array_equal(again.mean, found.mean)


def test_blocks_fit_together(monkeypatch):
    noisy = with_noise(scene(), 20.0)
    whole = denoise(noisy, sigma=20.0)
    monkeypatch.setattr(denoising, "BLOCK", 24)
    done = []
    parts = denoise(noisy, sigma=20.0, step=lambda: done.append(1))
    assert len(done) == denoising.steps_needed(noisy) == 9
    assert np.abs(parts.mean - whole.mean).max() < 2.0
    assert np.sqrt(np.mean((parts.mean - whole.mean) ** 2)) < 0.2


def test_blocks_cover_a_picture_once(monkeypatch):
    monkeypatch.setattr(denoising, "BLOCK", 50)
    count = np.zeros((230, 101), dtype=int)
    for kept, wider in denoising._blocks(np.zeros(count.shape, dtype=bool)):
        count[kept] += 1
        assert all(w.start <= k.start and w.stop >= k.stop for k, w in zip(kept, wider, strict=True))
    assert (count == 1).all()


def test_colours_at_half_the_resolution_are_cleaned_there(monkeypatch):
    """As JPEG files keep them: each colour of a noisy picture is that of two by two pixels."""
    clean = colour_scene(96, 101)
    buffer = io.BytesIO()
    noisy = np.clip(with_noise(clean, 25.0), 0, 255).astype(np.uint8)
    PIL.Image.fromarray(noisy).save(buffer, "JPEG", quality=92)
    read = np.asarray(PIL.Image.open(buffer), dtype=float)
    found = denoise(read)
    assert [halved for _, halved in denoising._planes(read, ready())] == [False, True, True]
    assert found.mean.shape == clean.shape == found.std.shape
    assert denoising.steps_needed(read) == 3
    monkeypatch.setattr(denoising, "COARSE", 0.0)
    pixel_by_pixel = denoise(read)
    assert psnr(found.mean, clean) > psnr(pixel_by_pixel.mean, clean) + 0.3 > psnr(read, clean) + 3.0


def test_noise_of_single_pixels_and_small_pictures_are_cleaned_as_they_are():
    for picture in (with_noise(colour_scene(), 20.0), colour_scene(), with_noise(colour_scene(6, 7), 20.0)):
        assert not any(halved for _, halved in denoising._planes(picture, ready()))


def test_halves_are_means_of_what_is_known():
    plane = np.array([[1.0, 3.0, np.nan], [5.0, np.nan, np.nan], [2.0, 4.0, 8.0]])
    np.testing.assert_array_equal(denoising._halved(plane), [[3.0, np.nan], [3.0, 8.0]])
    slope = np.add.outer(np.arange(8.0), 2 * np.arange(9.0))
    np.testing.assert_allclose(
        denoising._doubled(denoising._halved(slope), (8, 9))[1:-1, 1:-2], slope[1:-1, 1:-2]
    )


def test_photographs_that_are_mostly_unknown_are_learned_from():
    picture = with_noise(scene(200, 200), 1.0)
    picture[:140] = picture[:, :140] = np.nan
    assert learn([picture], sigma=20.0).gray.calibrations


def test_gray_in_three_channels_is_gray():
    noisy = with_noise(scene(30, 30), 20.0)
    gray, colour = denoise(noisy, sigma=20.0), denoise(np.dstack([noisy] * 3), sigma=20.0)
    np.testing.assert_array_equal(colour.mean, np.dstack([gray.mean] * 3))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (2, 2, 3)])
def test_the_smallest_pictures(shape):
    found = denoise(np.full(shape, 100.0), sigma=10.0)
    assert found.mean.shape == shape and np.isfinite(found.std).all()


# ---------------------------------------------------------------------- noise


@pytest.mark.parametrize("sigma", [5.0, 20.0, 50.0])
def test_noise_is_estimated(sigma):
    clean = scene(200, 220)
    assert estimate_sigma(with_noise(clean, sigma)) == pytest.approx(sigma, rel=0.06)
    clipped = np.clip(np.rint(with_noise(clean, min(sigma, 30.0))), 0, 255)
    assert estimate_sigma(clipped) == pytest.approx(min(sigma, 30.0), rel=0.08)
    gaps = np.where(np.random.default_rng(0).random(clean.shape) < 0.02, np.nan, with_noise(clean, sigma))
    assert estimate_sigma(gaps) == pytest.approx(sigma, rel=0.06)


def test_a_likelihood_is_that_of_clipped_noise():
    pixels = np.array([0.0, 3.0, 128.0, 250.0, 255.0])
    read_as = noise.likelihood(12.0, clipped=True)
    at_white = read_as(pixels, np.full(5, 255.0))
    np.testing.assert_allclose(at_white, norm.sf(255.0, loc=pixels, scale=12.0), atol=1e-12)
    np.testing.assert_allclose(
        read_as(pixels, np.zeros(5)), norm.cdf(0.0, loc=pixels, scale=12.0), atol=1e-12
    )
    inside = read_as(pixels, np.full(5, 200.0))
    density = norm.pdf(200.0, loc=pixels, scale=12.0)
    np.testing.assert_allclose(inside / inside.max(), density / density.max(), atol=1e-12)
    np.testing.assert_allclose(
        noise.likelihood(12.0, clipped=False)(np.array(250.0), np.array(255.0)), np.exp(-0.5 * (5 / 12) ** 2)
    )


def test_channels_are_orthogonal_and_come_back():
    products = relations.OPPONENT @ relations.OPPONENT.T
    np.testing.assert_allclose(products, np.diag([1 / 3, 1.0, 1.0]), atol=1e-12)
    picture = colour_scene(6, 7)
    planes = relations.split(picture)
    mean, std = relations.join(planes, [np.full((6, 7), share) for share in relations.NOISE_SHARE])
    np.testing.assert_allclose(mean, picture, atol=1e-9)
    np.testing.assert_allclose(std, 1.0)  # white noise stays white


# ---------------------------------------------------------------------- learning


def test_what_is_ready_is_what_the_script_makes():
    pytest.importorskip("skimage")
    from kernelbp.photographs.make_ready import LEVELS, make_ready

    shipped, made = ready(), make_ready(calibrate=False)
    for ours, fresh in ((shipped.gray, made.gray), (shipped.colour, made.colour)):
        assert ours.clipped == fresh.clipped and set(LEVELS) <= set(ours.calibrations)
        np.testing.assert_allclose(ours.model.support("pixel"), fresh.model.support("pixel"))
        for name in ("below", "beside"):
            stored, learned = (c.model._need_fitted().relations[name] for c in (ours, fresh))
            np.testing.assert_allclose(stored.joint, learned.joint, rtol=1e-6, atol=1e-12)
    assert max(path.stat().st_size for path in relations.READY.iterdir()) < 300_000


def test_learning_from_like_pictures_helps(tmp_path):
    stripes = np.where(np.add.outer(np.arange(60), 2 * np.arange(60)) // 12 % 2, 180.0, 90.0)
    learned = learn([stripes[:, ::-1]], sigma=40.0, calibrate=False)
    noisy = with_noise(stripes, 40.0)
    found, usual = denoise(noisy, learned, sigma=40.0), denoise(noisy, sigma=40.0)
    assert psnr(found.mean, stripes) > psnr(usual.mean, stripes) + 2
    learned.save(tmp_path / "stripes")
    again = denoise(noisy, Photographs.load(tmp_path / "stripes"), sigma=40.0)
    np.testing.assert_array_equal(again.mean, found.mean)
    with pytest.raises(InputError, match="it is in colour, and what was learned from is gray"):
        denoise(colour_scene(), learned)


def test_settings_are_fitted_at_the_noise_asked_for(monkeypatch):
    monkeypatch.setattr(relations, "MOST_CROPS", 2)
    learned = learn([scene(16, 16)], sigma=20.0, seed=3)
    assert set(learned.gray.calibrations) == {20.0}
    assert learned.gray.at(25.0).settings_["calibration"] == {
        **learned.gray.model.settings_["calibration"],
        **vars(learned.gray.calibrations[20.0]),
    }


def test_a_pair_teaches_noise_of_any_kind():
    clean = scene(60, 60)

    def struck(seed):
        """A fifth of the pixels replaced by whatever."""
        rng = np.random.default_rng(seed)
        return np.where(rng.random(clean.shape) < 0.2, rng.uniform(0, 255, clean.shape), clean)

    learned = learn_pair(clean, struck(0), calibrate=False)
    noisy = struck(1)
    found, usual = denoise(noisy, learned), denoise(noisy, sigma=float(np.std(noisy - clean)))
    assert found.sigma is None
    assert psnr(found.mean, clean) > psnr(usual.mean, clean) + 3
    with pytest.raises(InputError, match="sigma: the noise was learned"):
        denoise(noisy, learned, sigma=20.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: denoise(np.zeros((4, 4, 2)), sigma=1.0), r"image: expected shape \(rows, columns\) or"),
        (lambda: denoise(np.zeros((0, 4)), sigma=1.0), "image: expected shape"),
        (lambda: denoise(np.array([["a"]]), sigma=1.0), "image: expected an array of numbers"),
        (lambda: denoise(np.full((4, 4), np.inf), sigma=1.0), "image: expected finite numbers"),
        (lambda: denoise(np.full((4, 4), np.nan), sigma=1.0), "image: every pixel is missing"),
        (lambda: denoise(np.zeros((4, 4)), sigma=0.0), "sigma: expected a finite number above 0, got 0"),
        (lambda: denoise(np.zeros((3, 3))), "sigma: a picture of 3 x 3 pixels.* too small"),
        (lambda: denoise(np.zeros((4, 4)), sigma=1.0, missing=np.zeros((2, 4), bool)), "missing: expected"),
        (lambda: learn([], sigma=1.0), "photographs: expected at least one"),
        (lambda: learn([np.zeros((1, 1))], sigma=1.0), "photographs: expected at least 2 x 2"),
        (lambda: learn_pair(np.zeros((4, 4)), np.zeros((4, 5))), "noisy: expected a picture of 4 x 4 pixels"),
    ],
)
def test_what_cannot_be_used_is_refused(call, text):
    with pytest.raises(InputError, match=text):
        call()


def test_a_folder_without_anything_learned_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="holds nothing learned from photographs"):
        Photographs.load(tmp_path)


# ---------------------------------------------------------------------- the command


def test_help_tells_a_newcomer_what_to_type():
    code, text = run("--help")
    assert code == 0 and "kernelbp denoise photo.jpg -o clean.png" in text
    for option in (
        "--sigma",
        "--mask",
        "--uncertainty",
        "--learn-from",
        "--pair",
        "--clean",
        "--quick",
        "--seed",
    ):
        assert option in text
    assert "Take the noise out of a photograph" in CliRunner().invoke(app, ["--help"], env=WIDE).output


def test_a_picture_its_map_and_a_summary(tmp_path):
    clean = scene(40, 48)
    noisy = save(tmp_path / "noisy.png", with_noise(clean, 25.0))
    save(tmp_path / "clean.png", clean)
    out, spread = tmp_path / "out.png", tmp_path / "map.png"
    code, text = run(
        noisy, "-o", out, "--sigma", 25, "--clean", tmp_path / "clean.png", "--uncertainty", spread
    )
    assert code == 0, text
    assert "48 x 40 gray, sigma 25.0 (given)" in text and "converged" in text
    before, after = map(float, re.search(r"PSNR ([\d.]+) dB before, ([\d.]+) dB after", text).groups())
    assert after > before + 6
    assert psnr(load(out)[0], np.rint(clean)) == pytest.approx(after, abs=0.05)
    assert load(spread)[0].max() == 255 and load(spread)[1] == "L"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "clean.png",
        "map.png",
        "noisy.png",
        "out.png",
    ]


def test_the_noise_is_estimated_and_shown(small, tmp_path):
    code, text = run(small, "-o", tmp_path / "out.png", "--quick")
    assert code == 0 and re.search(r"sigma \d+\.\d \(estimated\), 6 iterations, stopped early", text)


@pytest.mark.parametrize(
    ("mode", "name", "out", "kept"),
    [
        ("L", "a.png", "b.png", "L"),
        ("L", "a.jpg", "b.tif", "L"),
        ("1", "a.png", "b.png", "L"),
        ("LA", "a.png", "b.png", "LA"),
        ("P", "a.png", "b.png", "RGB"),
        ("RGB", "a.tiff", "b.jpeg", "RGB"),
        ("RGB", "a.jpg", "b.PNG", "RGB"),
        ("RGBA", "a.png", "b.png", "RGBA"),
        ("CMYK", "a.tif", "b.png", "RGB"),
    ],
)
def test_files_of_all_sorts(tmp_path, mode, name, out, kept):
    image = PIL.Image.fromarray(colour_scene(12, 14).astype(np.uint8)).convert(mode)
    if "A" in mode:
        image.putalpha(PIL.Image.fromarray(np.arange(168, dtype=np.uint8).reshape(12, 14)))
    image.save(tmp_path / name)
    code, text = run(tmp_path / name, "-o", tmp_path / out, "--sigma", 5, "--quick")
    assert code == 0, text
    values, found = load(tmp_path / out)
    assert found == kept and values.shape[:2] == (12, 14)
    if "A" in mode:
        np.testing.assert_array_equal(values[..., -1], np.arange(168).reshape(12, 14))


@pytest.mark.parametrize(("name", "white"), [("a.png", 65535), ("a.tif", 4095)])
def test_sixteen_bits_stay_sixteen(tmp_path, name, white):
    clean = scene(24, 24) * white / 255
    clean[0, 0] = white
    noisy = np.clip(with_noise(clean, 0.06 * white), 0, white).astype(np.uint16)
    PIL.Image.fromarray(noisy).save(tmp_path / name)
    code, text = run(tmp_path / name, "-o", tmp_path / f"out{name[1:]}", "--sigma", 15, "--quick")
    assert code == 0 and "24 x 24 16-bit gray" in text
    values, mode = load(tmp_path / f"out{name[1:]}")
    assert mode == "I;16" and len(np.unique(values)) > 300
    assert np.std(values - clean) < 0.6 * np.std(noisy - clean)
    assert run(tmp_path / name, "-o", tmp_path / "out.jpg", "--sigma", 15, "--quick")[0] == 0
    assert load(tmp_path / "out.jpg")[1] == "L"


def test_dark_pictures_of_sixteen_bits_stay_sixteen(tmp_path):
    noisy = np.clip(with_noise(0.5 * scene(20, 20), 8.0), 0, 200)
    for name in ("a.png", "a.tif"):
        PIL.Image.fromarray(noisy.astype(np.uint16)).save(tmp_path / name)
        out = tmp_path / f"out{name[1:]}"
        code, text = run(tmp_path / name, "-o", out, "--sigma", 8, "--quick")
        assert code == 0 and "20 x 20 16-bit gray" in text
        values, mode = load(out)
        assert mode == "I;16" and np.abs(values - noisy).mean() < 16


def test_a_mask_is_white_where_pixels_are_missing(tmp_path):
    clean = scene(32, 32)
    holes = np.zeros((32, 32))
    holes[10:13] = 255
    save(tmp_path / "holes.png", holes, "RGB")
    noisy = save(tmp_path / "noisy.png", np.where(holes > 0, 0.0, with_noise(clean, 5.0)))
    code, text = run(noisy, "-o", tmp_path / "out.png", "--mask", tmp_path / "holes.png", "--sigma", 5)
    assert code == 0, text
    assert np.abs(load(tmp_path / "out.png")[0][10:13].astype(float) - clean[10:13]).mean() < 20


@pytest.mark.parametrize("colour", [False, True])
def test_psnr_counts_missing_pixels_by_themselves(tmp_path, colour):
    clean = np.rint(colour_scene(24, 24) if colour else scene(24, 24))
    holes = np.zeros((24, 24), dtype=bool)
    holes[4:8] = True
    noisy = np.rint(np.clip(with_noise(clean, 10.0), 0, 255))
    noisy[holes] = 0.0
    paths = {
        name: save(tmp_path / f"{name}.png", values)
        for name, values in (("clean", clean), ("noisy", noisy), ("holes", 255.0 * holes))
    }
    out = tmp_path / "out.png"
    code, text = run(
        *(paths["noisy"], "-o", out, "--mask", paths["holes"], "--clean", paths["clean"]),
        *("--sigma", 10, "--quick"),
    )
    assert code == 0, text
    said = re.search(r"PSNR ([\d.]+) dB before, ([\d.]+) dB after, .* filled ([\d.]+) dB", text)
    before, after, filled = map(float, said.groups())
    found = load(out)[0].astype(float)
    assert before == pytest.approx(psnr(noisy[~holes], clean[~holes]), abs=0.01)
    assert after == pytest.approx(psnr(found[~holes], clean[~holes]), abs=0.05)
    assert filled == pytest.approx(psnr(found[holes], clean[holes]), abs=0.05)


@pytest.mark.parametrize("shape", [(9, 30), (30, 9), (31, 22)])
def test_the_middle_of_a_picture_is_that_of_the_whole(tmp_path, shape):
    pictures = {
        "gray": scene(*shape).astype(np.uint8),
        "colour": colour_scene(*shape).astype(np.uint8),
        "deep": (10.0 * scene(*shape)).astype(np.uint16),
    }
    pictures["deep"][0, 0] = 4000  # tells how many bits are in use, and is not in the middle
    for name, values in pictures.items():
        PIL.Image.fromarray(values).save(tmp_path / f"{name}.png")
        whole = files.read_picture(tmp_path / f"{name}.png", "IMAGE")
        middle = files.read_picture(tmp_path / f"{name}.png", "IMAGE", 12)
        assert middle.values.shape[:2] == (min(shape[0], 12), min(shape[1], 12))
        np.testing.assert_array_equal(middle.values, relations._middle(whole.values, 12))
        assert middle.white == whole.white


def test_a_profile_of_inks_is_not_kept_for_lights(tmp_path):
    for mode, kept in (("CMYK", None), ("RGB", b"profile")):
        PIL.Image.new(mode, (9, 9)).save(tmp_path / "a.tif", icc_profile=b"profile")
        assert files.read_picture(tmp_path / "a.tif", "IMAGE").profile == kept


def test_photographs_turned_by_their_camera_are_turned_back(tmp_path):
    image = PIL.Image.fromarray(scene(12, 20).astype(np.uint8))
    tags = PIL.Image.Exif()
    tags[0x0112] = 6  # to be turned a quarter
    image.save(tmp_path / "a.jpg", exif=tags)
    assert run(tmp_path / "a.jpg", "-o", tmp_path / "b.jpg", "--sigma", 5, "--quick")[0] == 0
    values, _ = load(tmp_path / "b.jpg")
    assert values.shape == (20, 12)


def test_learning_from_a_folder_and_from_a_pair(small, tmp_path):
    folder = tmp_path / "photographs"
    folder.mkdir()
    for index in range(2):
        save(folder / f"{index}.png", np.roll(scene(30, 30), 7 * index, axis=1))
    (folder / "notes.txt").write_text("not a picture")
    code, text = run(small, "-o", tmp_path / "a.png", "--learn-from", folder, "--sigma", 20, "--quick")
    assert code == 0 and f"learned from {folder} in" in text, text
    clean = save(tmp_path / "clean.png", scene(20, 24))
    code, text = run(small, "-o", tmp_path / "b.png", "--pair", clean, small, "--quick")
    assert code == 0 and "noise as learned" in text, text


def test_a_folder_of_large_pictures_is_read_by_their_middles(tmp_path, monkeypatch):
    for index in range(4):
        save(tmp_path / f"{index}.png", colour_scene(90, 70 + index))
    shapes = []
    monkeypatch.setattr(relations, "MOST_PIXELS", 4 * 32 * 32)
    monkeypatch.setattr(
        "kernelbp.photographs.learn", lambda pictures, **options: shapes.extend(map(np.shape, pictures))
    )
    command._learned(tmp_path, None, scene(), 10.0, True, 0, Console())
    assert shapes == [(32, 32, 3)] * 4


def test_of_many_large_photographs_the_middles_are_learned_from(monkeypatch):
    pictures = [scene(40, 44), scene(44, 40)[::-1]]
    monkeypatch.setattr(relations, "MOST_PIXELS", 2 * 16 * 16)
    some = learn(pictures, sigma=10.0, calibrate=False)
    cut = learn([relations._middle(picture, 16) for picture in pictures], sigma=10.0, calibrate=False)
    np.testing.assert_array_equal(some.gray.model.support("pixel"), cut.gray.model.support("pixel"))
    monkeypatch.undo()
    all_of_them = learn(pictures, sigma=10.0, calibrate=False)
    assert len(all_of_them.gray.model.support("pixel")) > len(cut.gray.model.support("pixel"))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("most", [1, 7, 40, 10_000])
def test_some_neighbours_are_evenly_from_all(axis, most):
    rng = np.random.default_rng(0)
    planes = [rng.normal(size=shape) for shape in ((5, 7), (2, 2), (9, 3), (2, 3))]
    ends = zip(*(grid_pairs(plane, axis=axis) for plane in planes), strict=True)
    first, second = (np.concatenate(end) for end in ends)
    step = -(-len(first) // most)
    found = relations.some_neighbours(planes, most, axis=axis)
    np.testing.assert_array_equal(found, (first[::step], second[::step]))
    assert len(found[0]) <= most


def spoil(tmp_path):
    """Files that are no pictures."""
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("this is no picture")
    whole = save(tmp_path / "whole.png", scene(40, 40)).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    save(tmp_path / "wide.png", scene(20, 30))
    save(tmp_path / "red.png", np.dstack([np.full((20, 24), 255.0), *np.zeros((2, 20, 24))]))
    save(tmp_path / "all.png", np.full((20, 24), 255.0))
    save(tmp_path / "faint.png", np.eye(20, 24))
    save(tmp_path / "clear.png", scene(20, 24), "RGBA")
    frames = [PIL.Image.new("L", (9, 9), shade) for shade in (0, 90)]
    frames[0].save(tmp_path / "two.tif", save_all=True, append_images=frames[1:])
    PIL.Image.fromarray(scene(9, 9).astype(np.float32)).save(tmp_path / "float.tif")
    (tmp_path / "folder").mkdir()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing.png", "-o", "o.png"], "IMAGE: there is no file"),
        (["folder", "-o", "o.png"], "is a folder; expected a picture"),
        (["empty.png", "-o", "o.png"], "is empty; expected a picture"),
        (["text.png", "-o", "o.png"], "is not a picture that can be read"),
        (["half.png", "-o", "o.png"], "is damaged"),
        (["two.tif", "-o", "o.png"], "holds 2 pictures; expected one"),
        (["float.tif", "-o", "o.png"], "holds F values; expected gray"),
        (["noisy.png", "-o", "o.bmp"], "should end in .png, .jpg"),
        (["noisy.png", "-o", "none/o.png"], "there is no folder"),
        (["noisy.png", "-o", "folder"], "should end in"),
        (["noisy.png", "-o", "noisy.png"], "is one of the pictures read"),
        (["clear.png", "-o", "o.jpg"], "which JPEG cannot hold"),
        (["noisy.png", "-o", "o.png", "--uncertainty", "o.png"], "the name of the clean picture too"),
        (
            ["noisy.png", "-o", "o.png", "--uncertainty", "folder/../o.png"],
            "the name of the clean picture too",
        ),
        (["noisy.png", "-o", "o.png", "--sigma", "0"], "sigma: expected a finite number above 0, got 0"),
        (["noisy.png", "-o", "o.png", "--sigma", "nan"], "sigma: expected a finite number above 0, got nan"),
        (["noisy.png", "-o", "o.png", "--mask", "wide.png"], "has 30 x 20 pixels; expected 24 x 20"),
        (["noisy.png", "-o", "o.png", "--mask", "red.png"], "is in colour; expected black, and white"),
        (["noisy.png", "-o", "o.png", "--mask", "faint.png"], "the brightest pixel of faint.png is 1 of 255"),
        (["noisy.png", "-o", "o.png", "--mask", "all.png"], "every pixel is missing"),
        (["noisy.png", "-o", "o.png", "--clean", "wide.png"], "is 30 x 20 gray; expected 24 x 20 gray"),
        (["noisy.png", "-o", "o.png", "--learn-from", "folder"], "holds no photographs"),
        (["noisy.png", "-o", "o.png", "--learn-from", "text.png"], "is not a folder"),
        (["noisy.png", "-o", "o.png", "--pair", "noisy.png", "wide.png"], "--pair: wide.png is"),
        (
            ["noisy.png", "-o", "o.png", "--pair", "all.png", "noisy.png", "--sigma", "3"],
            "--sigma: the noise",
        ),
        (
            ["noisy.png", "-o", "o.png", "--pair", "all.png", "noisy.png", "--learn-from", "folder"],
            "--learn-from and --pair: give one of them",
        ),
    ],
)
def test_errors_say_what_is_wrong(small, tmp_path, monkeypatch, arguments, text):
    spoil(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    monkeypatch.chdir(tmp_path)
    code, said = run(*arguments)
    assert code == 2 and "Error:" in said and text in said, said
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_pictures_too_large_are_refused(small, tmp_path, monkeypatch):
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 300)  # the picture has 480
    code, said = run(small, "-o", tmp_path / "out.png")
    assert code == 2 and "is too large: more than 300 pixels" in said and "Make it smaller" in said


def test_an_output_appears_whole_or_not_at_all(small, tmp_path, monkeypatch):
    out, spread = tmp_path / "out.png", tmp_path / "map.png"
    out.write_text("an earlier picture")
    written = []

    def fail_at_the_second(path, kind, picture):
        path.write_text("half")
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write", fail_at_the_second)
    code, said = run(small, "-o", out, "--uncertainty", spread, "--sigma", 20, "--quick")
    assert code == 2 and "cannot be written: No space left on device" in said
    assert out.read_text() == "an earlier picture"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noisy.png", "out.png"]


def test_a_bar_appears_only_where_it_takes_long(monkeypatch):
    def shown(patience, seconds):
        text = io.StringIO()
        monkeypatch.setattr(command, "PATIENCE", patience)
        with command._bar("denoising", 2, Console(file=text, force_terminal=True)) as step:
            time.sleep(seconds)
            step()
        return text.getvalue()

    assert shown(60.0, 0.0) == ""
    piped = io.StringIO()
    with command._bar("denoising", 1, Console(file=piped, force_terminal=False)) as step:
        step()
    assert piped.getvalue() == ""
    assert "denoising" in shown(0.0, 0.3)


def test_stopping_leaves_nothing_behind(small, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(denoising, "denoise", stop)
    code, said = run(small, "-o", tmp_path / "out.png")
    assert code == 130 and "Nothing was written" in said
    assert [path.name for path in tmp_path.iterdir()] == ["noisy.png"]
