"""Depth: features, loaders of foreign files, and the whole experiment at a tiny size."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.io
from PIL import Image
from scipy.ndimage import gaussian_filter

from kernelbp import rivals
from kernelbp.datasets import (
    DEPTH_FEATURES,
    depth_features,
    load_7scenes,
    load_make3d,
    load_middlebury,
    stereo_scene,
)
from kernelbp.datasets.depths import depth_folder_form
from kernelbp.errors import InputError
from kernelbp.experiments import (
    depth,
    depth_evidence,
    depth_model,
    depth_paper,
    depth_report,
    depth_rivals,
    depth_sequence,
)
from kernelbp.experiments.depth_evidence import Evidence, Said, Weighing
from kernelbp.experiments.depth_lookalikes import find_look_alikes
from kernelbp.experiments.depth_model import Again
from kernelbp.experiments.depth_predictors import Local, combined
from kernelbp.experiments.depth_problem import Lesson, Problem
from kernelbp.experiments.depth_scenes import (
    TINY,
    Fold,
    Scene,
    bands_of,
    earlier_folds,
    earlier_questions,
    error_of,
    every_row_known,
    few_images,
    judged,
)
from kernelbp.experiments.depth_sequence import Clip, Motion, Ties, find_ties, shrinking
from kernelbp.experiments.report import save
from kernelbp.experiments.study import Options, Result, Study
from kernelbp.figures.depth import depth_bars

SIZES = replace(TINY, per_row=False)
"""The preset's many rows have a test of their own, on few."""


# ---------------------------------------------------------------------- features


def test_features_are_as_many_as_the_papers():
    image = np.random.default_rng(0).random((64, 48, 3))
    found = depth_features(image, (8, 6))
    assert found.shape == (8, 6, 273) and DEPTH_FEATURES == 273
    assert np.isfinite(found).all()


def test_features_follow_the_image_sideways():
    """A mirrored image has mirrored features: brightness at the patch itself, to rounding."""
    image = np.random.default_rng(1).random((60, 80, 3))
    plain, mirrored = depth_features(image, (6, 8)), depth_features(image[:, ::-1], (6, 8))
    np.testing.assert_allclose(plain[2:4, 2:6, 0], mirrored[2:4, ::-1, 0][:, 2:6], atol=0.05)


def test_texture_has_more_energy_than_a_plain_wall():
    image = np.full((60, 60, 3), 0.5)
    image[30:] += 0.4 * (np.indices((30, 60)).sum(axis=0) // 2 % 2)[..., None] - 0.2
    found = depth_features(image, (6, 6))
    assert (found[5, :, 3:7].max(axis=1) > found[0, :, 3:7].max(axis=1) + 0.5).all()


def test_an_edge_is_seen_by_the_filter_across_it():
    image = np.zeros((60, 60, 3))
    image[:, 30:] = 1.0
    found = depth_features(image, (6, 6))[3, 3, 7:13]
    assert int(np.argmax(found)) == 0 and int(np.argmin(found)) == 3


@pytest.mark.parametrize(
    ("image", "shape", "text"),
    [
        (np.zeros((5, 5)), (2, 2), "image: expected finite"),
        (np.full((5, 5, 3), np.nan), (2, 2), "image: expected finite"),
        (np.zeros((5, 5, 3)), (0, 2), "shape: expected"),
    ],
)
def test_features_refuse_what_is_no_image(image, shape, text):
    with pytest.raises(InputError, match=text):
        depth_features(image, shape)


# ---------------------------------------------------------------------- loaders


def write_make3d(folder: Path, name: str, metres: np.ndarray) -> None:
    grid = np.zeros((*metres.shape, 4))
    grid[..., 3] = metres
    scipy.io.savemat(folder / f"depth_sph_corr-{name}.mat", {"Position3DGrid": grid}, do_compression=True)
    Image.fromarray(np.full((40, 30, 3), 200, dtype=np.uint8)).save(folder / f"img-{name}.jpg")


def test_make3d_depth_is_the_logarithm_cut_off_at_80(tmp_path):
    metres = np.full((4, 6), 10.0)
    metres[:, 3:] = 200.0
    write_make3d(tmp_path, "a", metres)
    (scene,) = load_make3d(tmp_path, shape=(8, 6))
    np.testing.assert_allclose(scene.depth[:, :3], 1.0)
    np.testing.assert_allclose(scene.depth[:, 3:], np.log10(80.0))
    assert scene.image.shape == (40, 30, 3) and scene.image.max() <= 1.0


def test_make3d_leaves_out_images_without_depth(tmp_path):
    write_make3d(tmp_path, "a", np.full((4, 6), 10.0))
    Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(tmp_path / "img-b.jpg")
    assert [scene.name for scene in load_make3d(tmp_path)] == ["img-a"]


def test_7scenes_knows_what_is_unknown(tmp_path):
    raw = np.full((20, 20), 1000, dtype=np.uint16)
    raw[:10, :10], raw[10:, :10], raw[10:, 10:] = 0, 65535, 2000
    Image.fromarray(raw).save(tmp_path / "frame-000000.depth.png")
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(tmp_path / "frame-000000.color.jpg")
    (scene,) = load_7scenes(tmp_path, shape=(2, 2))
    np.testing.assert_allclose(scene.depth, [[np.nan, 0.0], [np.nan, np.log10(2.0)]])


def test_middlebury_is_relative_to_its_median(tmp_path):
    (tmp_path / "Art").mkdir()
    disparity = np.full((20, 30), 50, dtype=np.uint8)
    disparity[:, 20:], disparity[:10, :10] = 100, 0
    Image.fromarray(disparity).save(tmp_path / "Art" / "disp1.png")
    Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8)).save(tmp_path / "Art" / "view1.png")
    (scene,) = load_middlebury(tmp_path, shape=(2, 3))
    assert np.isnan(scene.depth[0, 0]) and scene.group == "Art"
    # Twice the disparity is half the depth.
    np.testing.assert_allclose(scene.depth[1, 0] - scene.depth[1, 2], np.log10(2.0))


def test_the_stereo_pair_needs_no_download():
    scene = stereo_scene(shape=(10, 14))
    assert scene.depth.shape == (10, 14) and np.isfinite(scene.depth).mean() > 0.8
    assert abs(np.nanmedian(scene.depth)) < 0.1


@pytest.mark.parametrize("loader", [load_make3d, load_7scenes, load_middlebury])
def test_an_empty_or_missing_folder_is_refused(loader, tmp_path):
    with pytest.raises(InputError, match="expected"):
        loader(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        loader(tmp_path / "nowhere")


def test_a_foreign_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="every: expected a whole number of at least 1, got 0"):
        load_7scenes(tmp_path, every=0)
    with pytest.raises(InputError, match=r"Make3D .* 7-Scenes .* Middlebury"):
        depth_folder_form(tmp_path)


@pytest.mark.parametrize("damage", ["text", "cut", "no grid", "wrong shape", "objects"])
def test_a_damaged_mat_file_is_refused(tmp_path, damage):
    write_make3d(tmp_path, "a", np.full((4, 6), 10.0))
    path = tmp_path / "depth_sph_corr-a.mat"
    if damage == "text":
        path.write_text("no matrix")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        content = {
            "no grid": {"other": np.zeros(3)},
            "wrong shape": {"Position3DGrid": np.zeros((4, 6))},
            "objects": {"Position3DGrid": np.full((4, 6, 4), "x", dtype=object)},
        }[damage]
        scipy.io.savemat(path, content)
    with pytest.raises(InputError, match="Position3DGrid"):
        list(load_make3d(tmp_path))


def test_damaged_and_foreign_images_are_refused(tmp_path):
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(tmp_path / "frame-0.color.jpg")
    Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(tmp_path / "frame-0.depth.png")
    with pytest.raises(InputError, match=r"a depth image of 16 bits, got .* RGB"):
        list(load_7scenes(tmp_path, shape=(2, 2)))
    Image.fromarray(np.full((200, 200), 7, dtype=np.uint16)).save(tmp_path / "frame-0.depth.png")
    content = (tmp_path / "frame-0.depth.png").read_bytes()
    (tmp_path / "frame-0.depth.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="damaged or cut short"):
        list(load_7scenes(tmp_path, shape=(2, 2)))
    (tmp_path / "frame-0.color.jpg").write_text("<html>")
    with pytest.raises(InputError, match="expected a JPEG or PNG"):
        list(load_7scenes(tmp_path, shape=(2, 2)))


def test_a_huge_image_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelbp.datasets.depths.MOST_PIXELS", 100)
    write_make3d(tmp_path, "a", np.full((4, 6), 10.0))
    with pytest.raises(InputError, match="pixels; expected at most"):
        list(load_make3d(tmp_path))


def test_real_folders_have_depths_of_their_kind(shared_data):
    root = shared_data / "depth"
    scene = next(load_make3d(root / "make3d"))
    assert scene.depth.shape == (107, 86) and 0.3 < np.nanmin(scene.depth) < np.nanmax(
        scene.depth
    ) <= np.log10(80.0)
    scene = next(load_7scenes(root / "7scenes"))
    assert scene.depth.shape == (48, 64) and -0.2 < np.nanmin(scene.depth) < np.nanmax(scene.depth) < 0.7
    scene = next(load_middlebury(root / "middlebury"))
    assert np.isfinite(scene.depth).mean() > 0.9
    assert [depth_folder_form(root / name) for name in ("make3d", "7scenes", "middlebury")] == [
        "Make3D",
        "7-Scenes",
        "Middlebury",
    ]


# ---------------------------------------------------------------------- the experiment


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, object]:
    folder = tmp_path_factory.mktemp("depth")
    report = depth.run(Study("depth", Options(folder)), SIZES)
    save(report, folder)
    return folder, report


def test_every_method_stands_in_the_table(finished):
    folder, report = finished
    methods = {row["method"] for row in report.tables[0].rows}
    assert {
        "kernel BP",
        "ridge alone",
        "boosting alone",
        "MLP alone",
        "all three alone",
        "look-alikes alone",
        "ridge and look-alikes alone",
        "all three and look-alikes alone",
        "kernel BP, no look-alikes",
        "median of each row",
    } <= methods
    for rival in ("discrete", "particle", "Gaussian-mixture"):
        assert {f"{rival} BP, paper's settings", f"{rival} BP, best found"} <= methods
    assert all(0 < row["MAE log10"] < 1 for row in report.tables[0].rows)
    for name in (
        "depth.csv",
        "depth_images.csv",
        "depth_power.csv",
        "depth_maps.png",
        "depth_bars.svg",
        "index.html",
    ):
        assert (folder / name).stat().st_size > 0
    with (folder / "depth.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(report.tables[0].rows)


def test_one_setting_is_chosen_for_each_evidence(finished):
    rows = finished[1].tables[2].rows
    for kind in (*depth.ESTIMATORS, depth_evidence.TOGETHER):
        mine = [row for row in rows if row["evidence"] == kind]
        (chosen,) = [row for row in mine if row["chosen"]]
        assert chosen["MAE"] == min(row["MAE"] for row in mine)
        found = depth_evidence.best_of(Result(rows), kind)
        assert found == Weighing(
            chosen["power"], chosen["look-alikes count"], chosen["likelihood"], chosen["relations"]
        )
        assert depth_evidence.best_of(Result(rows), kind, alike=False).count is None


def test_a_finished_run_is_resumed_without_work(finished, monkeypatch):
    folder, report = finished

    def refuse(*given, **named):
        raise AssertionError("worked again")

    for name in ("predict", "find_look_alikes", "tune", "infer", "compare"):
        monkeypatch.setattr(depth, name, refuse)
    again = depth.run(Study("depth", Options(folder, resume=True)), SIZES)
    assert [dict(row) for row in again.tables[0].rows] == [dict(row) for row in report.tables[0].rows]


def scene_of(depths: np.ndarray, name: str) -> Scene:
    features = np.repeat(depths[..., None], DEPTH_FEATURES, axis=2).astype(np.float32)
    return Scene(name, np.zeros((4, 4, 3), dtype=np.uint8), depths, name, lambda: features)


def smooth_scenes(number: int) -> list[Scene]:
    """Depth that falls row by row, with a step at a place that differs between scenes."""
    scenes = []
    for k in range(number):
        depths = np.linspace(1.0, 0.2, 6)[:, None] + 0.3 * (np.arange(9) > 2 + k % 4)
        scenes.append(scene_of(depths, f"scene {k}"))
    return scenes


def said_by(words: list[np.ndarray], scenes: list[Scene], off: tuple[float, ...] = (0.0,)) -> Said:
    """One predictor's words, pooled with nothing, and look-alikes that are off by so much."""
    word = dict(enumerate(words))
    alike = {i: scene.depth[..., None] + np.array(off) for i, scene in enumerate(scenes)}
    return Said({"one": word}, {"one": word}, alike)


def test_the_papers_preset_reads_depth_off_features_that_tell_it():
    scenes = smooth_scenes(5)
    result = depth_paper.as_in_the_paper(scenes, Fold("last", (0, 1, 2, 3), (4,)))
    medians = np.median(np.concatenate([s.depth for s in scenes[:4]], axis=1), axis=1)[:, None]
    assert result.rows[0]["MAE"] < 0.6 * np.abs(scenes[4].depth - medians).mean()


def test_the_graph_repairs_a_predictor_that_is_wrong_at_single_patches():
    scenes = smooth_scenes(5)
    rng = np.random.default_rng(0)
    words = [s.depth + 0.4 * (rng.random(s.depth.shape) < 0.2) for s in scenes]
    bands = np.arange(6) // 2
    fold = Fold("last", (0, 1, 2, 3), (4,))
    lesson = Lesson(Problem(scenes, fold, said_by(words, scenes), Ties({}), bands, SIZES), fold.train)
    (clip,) = lesson.clips(fold.test)
    graph = lesson.graphs(clip)("one", Weighing(1.0, None, "Laplace"))
    found = lesson.answers(lesson.model().infer(graph), graph, clip)[4]
    assert np.abs(found - scenes[4].depth).mean() < 0.7 * np.abs(words[4] - scenes[4].depth).mean()


@pytest.mark.parametrize("kind", ["ridge", "MLP"])
def test_a_median_is_read_where_the_mean_is_misled(kind, tmp_path):
    """A fifth of the depths lie far above, whatever the features say: a mean is drawn to them, a median is not."""
    rng = np.random.default_rng(2)
    scenes = [
        replace(scene_of(np.zeros((12, 12)), f"scene {k}"), depth=0.1 * rng.random((12, 12)) + far)
        for k, far in enumerate((rng.random((4, 12, 12)) < 0.2) * 2.0)
    ]
    study = Study("depth", Options(tmp_path))
    sizes = replace(SIZES, patches=600, epochs=20)
    median, mean = (Local(kind, form, scenes, sizes, study)(scenes[0]) for form in ("median", "mean"))
    assert np.abs(median - 0.06).mean() < 0.05
    assert np.abs(mean - 0.06).mean() > 0.2


def test_predictors_are_combined_by_how_they_fare_on_training_images():
    scenes = smooth_scenes(4)
    rng = np.random.default_rng(3)
    off = {i: 0.1 * rng.random(s.depth.shape) for i, s in enumerate(scenes)}
    words = {
        "high": {i: s.depth + off[i] for i, s in enumerate(scenes)},
        "low": {i: s.depth - off[i] for i, s in enumerate(scenes)},
        "wrong": {i: s.depth + 1.0 for i, s in enumerate(scenes)},
    }
    together = combined(scenes, Fold("last", (0, 1, 2), (3,)), words)
    np.testing.assert_allclose(together[3], scenes[3].depth)


def test_look_alikes_are_patches_of_other_images():
    """Noise that is the same in two images ties their patches, wherever else a patch of its own image would be nearer."""
    rng = np.random.default_rng(4)
    scenes = []
    for k in range(6):
        noise = np.random.default_rng(k % 3).standard_normal((5, 8, DEPTH_FEATURES)).astype(np.float32)
        depth_map = rng.random((5, 8))
        scenes.append(Scene(f"{k}", np.zeros((4, 4, 3), np.uint8), depth_map, f"{k}", lambda f=noise: f))
    scenes[1].depth[2, 3] = np.nan
    found = find_look_alikes(scenes, Fold("last", (0, 1, 2, 3), (4, 5)))
    assert sorted(found.arrays) == sorted([*"012345", *(f"near {k}" for k in range(6))])
    # A patch of the same noise is no distance away.
    assert all((found.arrays[f"near {k}"] >= 0).all() for k in range(6))
    nearest = {name: found.arrays[name][..., 0] for name in "012345"}
    np.testing.assert_allclose(nearest["5"], scenes[2].depth, rtol=1e-6)
    np.testing.assert_allclose(nearest["0"], scenes[3].depth, rtol=1e-6)
    known = np.isfinite(scenes[1].depth)
    np.testing.assert_allclose(nearest["4"][known], scenes[1].depth[known], rtol=1e-6)
    assert all(np.isfinite(depths).all() for depths in found.arrays.values())
    (row,) = [row for row in found.rows if row["image"] == "5"]
    expected = np.abs(np.median(found.arrays["5"], axis=2) - scenes[5].depth).mean()
    assert row["MAE"] == pytest.approx(expected)


def test_evidence_is_laplaces_with_the_scale_of_errors_on_known_scenes():
    scenes = smooth_scenes(3)
    words = [scene.depth + off for scene, off in zip(scenes, (0.1, -0.3, 0.25), strict=True)]
    evidence = Evidence(said_by(words, scenes), scenes, (0, 1))
    assert evidence.points[[0, -1]] == pytest.approx([0.2, 1.3])
    expected = -np.abs(evidence.points - words[2].reshape(-1, 1)) / 0.2
    np.testing.assert_allclose(evidence.of(2)("one", Weighing(1.0, None, "Laplace")), expected)
    middle = evidence.of(2, part=2)("one", Weighing(0.5, None, "Laplace")).reshape(6, 4, -1)
    np.testing.assert_allclose(middle, 0.5 * expected.reshape(6, 9, -1)[:, 2:6])


def test_look_alikes_together_count_as_one_voice():
    scenes = smooth_scenes(3)
    words = [scene.depth + 0.1 for scene in scenes]
    heard = Evidence(said_by(words, scenes, (-0.2, 0.2)), scenes, (0, 1))
    pooled = heard.of(2)("one", Weighing(1.0, 0.0, "Laplace"))
    points, truth = heard.points, scenes[2].depth.reshape(-1, 1)
    both = -(np.abs(points - truth + 0.2) + np.abs(points - truth - 0.2)) / 2 / 0.2
    np.testing.assert_allclose(heard.of(2)("one", Weighing(1.0, 3.0, "Laplace")), pooled + 3.0 * both)


def test_counted_evidence_knows_where_a_word_is_off():
    """A predictor that says 0.3 too much at small depths, and the truth at large ones, is believed accordingly."""
    rng = np.random.default_rng(5)
    depths = [np.where(rng.random((12, 20)) < 0.5, 0.2, 1.2) for _ in range(3)]
    scenes = [scene_of(one, f"{k}") for k, one in enumerate(depths)]
    words = [one + 0.3 * (one < 0.5) for one in depths]
    evidence = Evidence(said_by(words, scenes), scenes, (0, 1))
    logs = evidence.of(2)("one", Weighing(1.0, None, "as counted"))
    assert logs.shape == (240, depth_evidence.POINTS)
    at = evidence.points[logs.argmax(axis=1)].reshape(12, 20)
    # The word 0.5 is only ever said of what is at 0.2.
    assert np.abs(at - depths[2]).max() < 0.1
    laplace = evidence.of(2)("one", Weighing(1.0, None, "Laplace"))
    assert np.abs(evidence.points[laplace.argmax(axis=1)] - words[2].ravel()).max() < 0.02


def test_settings_are_chosen_on_what_comes_after_where_the_test_comes_later():
    scenes = smooth_scenes(8)
    ordered = Fold("last", (0, 1, 2, 3, 4, 5), (6, 7), test_is_later=True)
    earlier = earlier_folds(scenes, ordered)
    assert [(one.train, one.test) for one in earlier] == [((0, 1), (2, 3)), ((0, 1, 2, 3), (4, 5))]
    assert all(one.test_is_later for one in earlier) and len({one.name for one in earlier}) == 2
    # One frame cannot be predicted from others.
    assert [one.train for one in earlier_folds(scenes, replace(ordered, train=(0, 1, 2)))] == [(0, 1)]
    every = replace(ordered, test_is_later=False)
    assert earlier_folds(scenes, every) == [] == earlier_questions(scenes, every)
    assert [images for _, images in judged(scenes, every, 9)] == [(0, 1), (2, 3), (4, 5)]
    assert [len(images) for _, images in judged(scenes, every, 1)] == [1, 1, 1]


def test_settings_for_a_film_are_chosen_on_its_training_frames_forwards_and_backwards():
    scenes = [replace(scene, time=10 * i) for i, scene in enumerate(smooth_scenes(8))]
    fold = Fold("last", (0, 1, 2, 3, 4, 5), (6, 7), test_is_later=True)
    asked = earlier_questions(scenes, fold)
    seen = [
        ([film[i].name for i in one.train], [film[i].name for i in one.test], one.test_is_later)
        for film, one in asked
    ]
    names = [scene.name for scene in scenes]
    assert seen == [
        (names[:2], names[2:4], True),
        (names[:4], names[4:6], True),
        (names[5:3:-1], names[3:1:-1], True),
        (names[5:1:-1], names[1::-1], True),
    ]
    assert len({one.name for _, one in asked}) == 4
    backwards = asked[-1][0]
    assert np.diff([scene.time for scene in backwards]).tolist() == [10] * 7
    assert backwards[0].features is scenes[-1].features  # not computed anew


def test_scenes_seen_from_anywhere_keep_their_differences_and_lose_their_depths():
    rng = np.random.default_rng(0)
    first = depth_model.grained(rng.normal(0.5, 0.02, 500))
    second = depth_model.grained(first + rng.normal(0.0, 0.05, 500))
    points = np.linspace(0.0, 1.0, 5)
    far = (np.array([0.99]), np.array([0.01]))  # nowhere else would it be in range
    moved = depth_model.from_anywhere({"beside": (first, second), "far": far}, points)
    one, other = moved["beside"]
    assert one[:500].tolist() == first.tolist() and other[:500].tolist() == second.tolist()
    assert len(one) == len(other) > 7 * 500
    assert min(one.min(), other.min()) >= 0.0 and max(one.max(), other.max()) <= 1.0
    np.testing.assert_allclose((other - one).std(), (second - first).std(), rtol=0.05)
    assert one.std() > 5 * first.std()
    np.testing.assert_allclose(one, depth_model.grained(one))
    assert moved["far"] == far
    again = depth_model.from_anywhere({"beside": (first, second)}, points)["beside"]
    np.testing.assert_array_equal(again, (one, other))


def test_a_scene_nearer_than_any_trained_on_is_better_smoothed_by_relations_from_anywhere():
    train = smooth_scenes(3)
    nearer = [replace(scene, depth=scene.depth - 0.4) for scene in train[:1]]
    scenes, rng = [*train, *nearer], np.random.default_rng(0)
    low, high = np.min([s.depth for s in scenes]), np.max([s.depth for s in scenes])
    words = [scene.depth + rng.normal(0, 0.1, scene.depth.shape) for scene in scenes]
    problem = Problem(
        scenes, Fold("nearer", (0, 1, 2), (3,)), said_by(words, scenes), Ties({}), np.zeros(6, np.intp), SIZES
    )
    lesson = Lesson(problem, (0, 1, 2))
    lesson.evidence.points = np.linspace(low, high, depth_evidence.POINTS)
    (clip,) = lesson.clips((3,))
    errors = {}
    for relations in depth_evidence.RELATIONS:
        graph = lesson.graphs(clip)("one", Weighing(0.3, None, "Laplace", relations))
        errors[relations] = lesson.error(lesson.model(relations).infer(graph), graph, clip)
        assert lesson.model(relations) is lesson.model(relations)
    assert errors["from anywhere"] < 0.5 * errors["as seen"]


def test_slow_rivals_get_images_evenly_through_a_fold():
    folds = [Fold("a", (), tuple(range(10, 21))), Fold("b", (), (30, 31))]
    assert [fold.test for fold in few_images(folds, 3)] == [(10, 15, 20)]
    assert [fold.test for fold in few_images(folds, 12)] == [tuple(range(10, 21)), (30,)]


def test_an_answer_that_is_missing_is_no_answer():
    scene = scene_of(np.array([[0.5, np.nan], [0.7, 0.9]]), "one")
    assert error_of(np.array([[0.6, np.nan], [0.7, 0.7]]), scene) == pytest.approx(0.1)
    assert error_of(np.array([[np.nan, 0.5], [0.7, 0.9]]), scene) == np.inf


def test_an_answer_of_ours_that_is_missing_lets_no_claim_hold(finished):
    rows = [dict(row) for row in finished[1].tables[1].rows]
    for row in rows:
        if row["method"] == "kernel BP":
            row["MAE"] = None
    made = depth_report.claims(depth_report.summary(rows), rows)
    assert not any(claim.holds for claim in made if "below" in claim.what)


def test_a_method_without_an_answer_stays_out_of_the_picture_of_errors(finished):
    rows = [dict(row) for row in finished[1].tables[1].rows]
    missing = next(row for row in rows if "particle" in str(row["method"]))
    missing["MAE"] = None
    table = depth_report.summary(rows)
    assert next(row for row in table if row["method"] == missing["method"])["MAE log10"] is None
    errors, _ = depth_bars(table).axes
    assert not any(str(missing["method"]) in label.get_text() for label in errors.get_yticklabels())


def test_there_are_fewer_bands_where_rows_without_depth_would_tear_them_apart():
    """A gap at the edge of two bands leaves no pair between them; without any pair there is nothing to do."""
    depths = np.random.default_rng(0).random((12, 4))
    depths[5:7] = np.nan
    scenes = [scene_of(depths, f"{k}") for k in range(4)]
    folds = [Fold("last", (0, 1, 2), (3,))]
    assert set(depth.bands_with_pairs(scenes, folds, replace(SIZES, bands=4)).tolist()) == {0, 1, 2}
    assert set(depth.bands_with_pairs(scenes, folds, replace(SIZES, bands=3)).tolist()) == {0, 1, 2}
    alone = [scene_of(np.where(np.eye(12, 4, dtype=bool), 1.0, np.nan), f"{k}") for k in range(4)]
    with pytest.raises(InputError, match="no training image has two known depths"):
        depth.bands_with_pairs(alone, folds, SIZES)
    # Of a film the first frames must do by themselves, too: these have no pair across the edge of two halves.
    gap = np.where((np.arange(12) == 5)[:, None], np.nan, depths)
    gap[6] = 0.5
    whole = np.random.default_rng(1).random((12, 4))
    frames = [scene_of(gap if k < 2 else whole, f"{k}") for k in range(8)]
    later = Fold("last", tuple(range(6)), (6, 7), test_is_later=True)
    assert set(depth.bands_with_pairs(frames, [later], replace(SIZES, bands=2)).tolist()) == {0}
    assert set(
        depth.bands_with_pairs(frames[2:], [Fold("last", (0, 1, 2), (3,))], replace(SIZES, bands=2)).tolist()
    ) == {0, 1}


def test_rows_without_depth_belong_to_the_next_band_that_has():
    depths = np.zeros((12, 4))
    depths[:3] = np.nan
    scene = Scene("a", np.zeros((2, 2, 3), np.uint8), depths, "a", lambda: np.zeros((12, 4, 273), np.float32))
    assert bands_of([scene], 3).tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert not every_row_known([scene])
    depths = np.zeros((12, 4))
    assert bands_of([replace(scene, depth=depths)], 3).tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert every_row_known([scene, replace(scene, depth=depths)])


def test_the_best_weighing_may_be_asked_of_one_power():
    rows = [
        {
            "evidence": "one",
            "power": p,
            "look-alikes count": c,
            "likelihood": "Laplace",
            "relations": r,
            "MAE": error,
        }
        for p, c, r, error in (
            (1.0, None, "as seen", 0.3),
            (1.0, 0.0, "as seen", 0.2),
            (0.3, 1.0, "as seen", 0.1),
            (0.1, 1.0, "as seen", None),
            (1.0, 1.0, "from anywhere", 0.15),
        )
    ]
    best = depth_evidence.best_of
    assert best(Result(rows), "one") == Weighing(0.3, 1.0, "Laplace")
    assert best(Result(rows), "one", power=1.0) == Weighing(1.0, 1.0, "Laplace", "from anywhere")
    assert best(Result(rows), "one", power=1.0, relations="as seen") == Weighing(1.0, 0.0, "Laplace")
    assert best(Result(rows), "one", alike=False) == Weighing(1.0, None, "Laplace")
    assert str(Weighing(1.0, None, "Laplace")) == "power 1, look-alikes not heard, likelihood Laplace"
    assert str(Weighing(1.0, 0.0, "Laplace", "from anywhere")).endswith(", relations from anywhere")
    with pytest.raises(InputError, match="expected one of Laplace, as counted"):
        Weighing(1.0, None, "Gauss")
    with pytest.raises(InputError, match="expected one of as seen, from anywhere, got 'nowhere'"):
        Weighing(1.0, None, "Laplace", "nowhere")


def test_predictors_are_averaged_with_the_median_of_look_alikes():
    """Where those err the other way, the weighted mean is right; look-alikes that are far off get no weight."""
    scenes, fold = smooth_scenes(4), Fold("last", (0, 1, 2), (3,))
    words = {"one": {i: scene.depth + 0.1 for i, scene in enumerate(scenes)}}
    for off, expected in ((-0.1, 0.0), (2.0, 0.1)):
        alike = {i: scene.depth[..., None] + off + np.array([-0.5, 0, 0.5]) for i, scene in enumerate(scenes)}
        said = Said.of(scenes, fold, words, alike)
        np.testing.assert_allclose(said.alone["one"][3], words["one"][3])
        for kind in ("one", depth_evidence.TOGETHER):
            np.testing.assert_allclose(said.pooled[kind][3], scenes[3].depth + expected, atol=1e-12)


def test_rows_of_a_band_share_relations():
    bands = np.array([0, 0, 1])
    graph = depth_model.grid_of(bands, (3, 2))
    named = [
        (int(a), int(b), graph.relations[k])
        for (a, b), k in zip(graph.edges, graph.edge_relation, strict=True)
    ]
    assert (0, 2, "below 0") in named and (2, 4, "below 0 1") in named and (4, 5, "beside 1") in named
    assert list(graph.nodes_of("depth 0")) == [0, 1, 2, 3]


def test_too_few_images_are_refused(tmp_path):
    write_make3d(tmp_path, "a", np.full((4, 6), 10.0))
    with pytest.raises(InputError, match="expected at least 4"):
        depth.run(Study("depth", Options(tmp_path / "out", tmp_path)), SIZES)


# ---------------------------------------------------------------------- frames of a film


def film(frames: int, rows: int = 6, columns: int = 12) -> list[Scene]:
    """A camera that moves one column a frame along a wall whose depth and looks differ from place to place."""
    rng = np.random.default_rng(7)
    width, pixels = columns + frames, 6
    wall = np.linspace(1.0, 0.4, rows)[:, None] + 0.3 * rng.random(width).cumsum() / np.sqrt(width)
    looks = rng.standard_normal((rows, width, DEPTH_FEATURES)).astype(np.float32)
    paint = gaussian_filter(rng.random((rows * pixels, width * pixels, 3)), (3, 3, 0))
    paint = np.round(255 * (paint - paint.min()) / np.ptp(paint)).astype(np.uint8)
    return [
        Scene(
            f"frame {k}",
            paint[:, k * pixels : (k + columns) * pixels].copy(),
            wall[:, k : k + columns].copy(),
            f"frame {k}",
            lambda k=k: looks[:, k : k + columns],
        )
        for k in range(frames)
    ]


def test_a_patch_is_tied_to_where_it_was_in_the_frame_before():
    scenes = film(6)
    found = find_ties(scenes, Fold("last", (0, 1, 2, 3), (4, 5), test_is_later=True))
    # What stands in one column stood one further to the right; the last column is new.
    source = np.arange(6 * 12).reshape(6, 12) + 1
    source[:, -1] = -1
    ties = Ties.of(found)
    assert sorted(ties.before) == [1, 2, 3, 4, 5]
    for motion in ties.before.values():
        np.testing.assert_array_equal(motion.source, source)
        assert abs(motion.shrunk) < 0.002


@pytest.mark.parametrize("sideways", [(0.0, 0.0), (0.0, 8.0), (5.0, -5.0)])
@pytest.mark.parametrize("shrunk", [0.0, 0.02, -0.01])
def test_what_shrinks_is_told_from_what_is_slanted(sideways, shrunk):
    height, width = 48, 64
    place = np.mgrid[:height, :width] - np.array([(height - 1) / 2, (width - 1) / 2])[:, None, None]
    # A plane whose nearer side moves more, and a tenth of all that moves otherwise.
    nearness = 1 + place[1] / width + place[0] / height
    motion = np.array(sideways)[:, None, None] * nearness + (10**shrunk - 1) * place
    motion[:, ::10] += 2.0
    # Where it moves by eight or seven pixels of 64, the mean stretch counts for little.
    assert shrinking(motion) == pytest.approx(shrunk, abs=0.003)


def test_how_much_a_film_recedes_is_learned_and_foreseen(monkeypatch):
    monkeypatch.setattr(depth_sequence, "LEAST_TIES", 20)
    rng = np.random.default_rng(3)
    wall, bands = rng.random((6, 12)), np.zeros(6, dtype=np.intp)
    steps = {1: 5, 2: -2, 3: 8, 4: 3}
    grown = np.cumsum([0, *steps.values()]) * depth_sequence.STEP
    scenes = [replace(scene, depth=wall + by) for scene, by in zip(film(5), grown, strict=True)]
    # Depths grow by half of what things shrink.
    here = np.arange(72).reshape(6, 12)
    ties = Ties({i: Motion(here, 2 * k * depth_sequence.STEP) for i, k in steps.items()})
    again = ties.taught(bands, scenes, (0, 1, 2))
    assert again.steps == steps
    assert sorted(again.pairs) == [(0, 0, 3), (0, 0, 8)]
    for (_, _, by), (first, second) in again.pairs.items():
        assert np.abs(first - second - by * depth_sequence.STEP).max() < 0.0101
    (link,) = ties.links(Clip((3,), before=2), 1, again)
    assert link.steps == 8
    # Where next to nothing moves in training, noise cannot say more than that what looks smaller is farther.
    for noise in (1e-4, -1e-4):
        still = Ties({1: Motion(here, noise), 2: Motion(here, noise), 3: Motion(here, 0.02)})
        assert still.taught(bands, scenes, (0, 1, 2)).steps[3] == (5 if noise > 0 else 0)


def test_frames_of_other_sizes_are_compared_at_one():
    scenes = film(2)
    smaller = np.array(Image.fromarray(scenes[0].image).resize((60, 30)))
    motion = depth_sequence.motion_of(scenes[1].image, smaller, (6, 12))
    np.testing.assert_array_equal(motion.source[:, :-1], np.arange(72).reshape(6, 12)[:, 1:])


def test_frames_with_others_missing_between_them_do_not_follow_each_other():
    scenes = [replace(scene, time=8 * k) for k, scene in enumerate(film(8)) if k not in (3, 4)]
    found = find_ties(scenes, Fold("last", (0, 1, 2, 3), (4, 5), test_is_later=True))
    ties = Ties.of(found)
    assert sorted(ties.before) == [1, 2, 4, 5]
    assert ties.clips((3, 4, 5), (0, 1, 2)) == [Clip((3, 4, 5))]


def test_frames_are_in_the_order_of_their_numbers(tmp_path):
    for number in (9, 10, 100):
        raw = np.full((20, 20), 1000 + number, dtype=np.uint16)
        Image.fromarray(raw).save(tmp_path / f"frame-{number}.depth.png")
        Image.fromarray(np.zeros((20, 20, 3), dtype=np.uint8)).save(tmp_path / f"frame-{number}.color.jpg")
    (tmp_path / "frame-best.depth.png").write_text("no number")
    assert [scene.time for scene in load_7scenes(tmp_path, shape=(2, 2))] == [9, 10, 100]


def test_frames_that_follow_each_other_are_one_clip_after_the_known_one():
    ties = Ties({i: Motion(np.zeros((2, 2), dtype=np.intp)) for i in range(1, 9)})
    known = (0, 1, 2, 3)
    assert ties.clips((4, 5, 6), known) == [Clip((4, 5, 6), before=3)]
    assert Clip((4, 5), before=3).frames == (3, 4, 5) and Clip((4, 5)).frames == (4, 5)
    # The frame before 6 was not taken, and so is not known.
    assert ties.clips((4, 6, 7), known) == [Clip((4,), before=3), Clip((6, 7))]
    assert ties.clips((4, 5), known, tied=False) == [Clip((4,)), Clip((5,))]
    assert Ties({}).clips((4, 5), known) == [Clip((4,)), Clip((5,))]


def test_relations_between_frames_need_enough_pairs(monkeypatch):
    scenes, bands = film(5), np.array([0, 0, 0, 1, 1, 1])
    same = np.arange(72).reshape(6, 12)
    up = same.copy()
    up[3] = same[2]  # one row of the lower band is tied to the upper
    ties = Ties(dict.fromkeys(range(1, 5), Motion(up)))
    scenes[2].depth[0, 0] = np.nan
    monkeypatch.setattr(depth_sequence, "LEAST_TIES", 50)
    found = ties.taught(bands, scenes, (0, 1, 2)).pairs
    assert {ends: len(pair[0]) for ends, pair in found.items()} == {(0, 0, 0): 71}
    monkeypatch.setattr(depth_sequence, "LEAST_TIES", 20)
    found = ties.taught(bands, scenes, (0, 1, 2)).pairs
    assert {ends: len(pair[0]) for ends, pair in found.items()} == {
        (0, 0, 0): 71,
        (1, 0, 0): 24,
        (1, 1, 0): 48,
    }
    assert ties.taught(bands, scenes, (0, 2, 4)).pairs == {}  # no two of them follow each other


def test_ties_are_edges_to_the_frame_before_and_end_at_the_edge_of_a_strip():
    bands, columns = np.array([0, 1]), 8
    source = np.tile(np.arange(columns), (2, 1)) + columns * np.arange(2)[:, None] + 2
    source[:, -2:] -= 2  # would lie outside
    ties = Ties({4: Motion(source)})
    pair = (np.zeros(2), np.ones(2))
    again = Again({(0, 0, 0): pair, (1, 1, 0): pair, (1, 1, 2): pair}, {4: 0})
    clip = Clip((4,), before=3)
    graph = depth_model.grid_of(bands, (2, 8), ties.links(clip, 1, again), again)
    assert graph.n_nodes == 32 and graph.shape is None
    names = np.array(graph.relations)[graph.edge_relation]
    tied = {tuple(edge) for edge in graph.edges[np.char.startswith(names, "again 1")].tolist()}
    assert tied == {(24 + k, 8 + k + 2) for k in range(6)} | {(30, 14), (31, 15)}
    # Half of the columns, 2 to 5: patches tied to columns 6 and 7 are left untied.
    (link,) = ties.links(clip, 2, again)
    np.testing.assert_array_equal(link.nodes.reshape(2, 4), [[2, 3, -1, -1], [6, 7, -1, -1]])
    graph = depth_model.grid_of(bands, (2, 4), [link], Again({(0, 0, 0): pair}))
    names = np.array(graph.relations)[graph.edge_relation]
    np.testing.assert_array_equal(graph.edges[names == "again 0 0, +0"], [[8, 2], [9, 3]])
    assert not np.char.startswith(names, "again 1").any()


def test_a_known_frame_speaks_to_frames_whose_evidence_says_nothing(monkeypatch):
    monkeypatch.setattr(depth_sequence, "LEAST_TIES", 20)
    scenes, bands = film(8), np.arange(6) // 2
    fold = Fold("last", (0, 1, 2, 3, 4, 5), (6, 7), test_is_later=True)
    ties = Ties.of(find_ties(scenes, fold))
    rng = np.random.default_rng(0)
    words = [scene.depth + rng.choice([-0.5, 0.5], scene.depth.shape) for scene in scenes]
    problem = Problem(scenes, fold, said_by(words, scenes), ties, bands, SIZES)
    earlier = [replace(problem, fold=one) for one in earlier_folds(scenes, fold)]
    assert [images for _, images in replace(problem, earlier=earlier).jobs(1)] == [(2, 3), (4, 5)]
    lesson = Lesson(problem, fold.train)
    model = lesson.model()
    means = {}
    for tied in (True, False):
        found = {}
        for clip in lesson.clips(fold.test, tied=tied):
            graph = lesson.graphs(clip)("one", Weighing(0.3, None, "Laplace"))
            beliefs = depth_model.quietly(model.infer, graph)
            found |= lesson.answers(beliefs, graph, clip)
            errors = {i: error_of(one, scenes[i]) for i, one in found.items() if i in clip.images}
            assert lesson.error(beliefs, graph, clip) == pytest.approx(sum(errors.values()))
        assert sorted(found) == [6, 7] and found[6].shape == (6, 12)
        means[tied] = np.mean([error_of(one, scenes[i]) for i, one in found.items()])
    assert means[True] < 0.5 * means[False]


def test_words_are_worth_more_where_look_alikes_are_near():
    scenes = smooth_scenes(3)
    near = {i: np.where(np.arange(9) < 5, 1.0, 2.0) * np.ones((6, 1)) for i in range(3)}
    words = [scene.depth + np.where(near[i] < 1.5, 0.05, 0.4) for i, scene in enumerate(scenes)]
    said = replace(said_by(words, scenes), near=near)
    evidence = Evidence(said, scenes, (0, 1))
    scale = np.where(near[2] < 1.5, 0.05, 0.4).reshape(-1, 1)
    expected = -np.abs(evidence.points - words[2].reshape(-1, 1)) / scale
    np.testing.assert_allclose(evidence.of(2)("one", Weighing(1.0, 0.0, "Laplace")), expected)
    # Words that are not averaged with look-alikes know nothing of them.
    alone = -np.abs(evidence.points - words[2].reshape(-1, 1)) / np.abs(words[0] - scenes[0].depth).mean()
    np.testing.assert_allclose(evidence.of(2)("one", Weighing(1.0, None, "Laplace")), alone)
    counted = evidence.of(2)("one", Weighing(1.0, 0.0, "as counted"))
    at = evidence.points[counted.argmax(axis=1)].reshape(6, 9)
    assert np.abs(at - scenes[2].depth)[:, :5].mean() < 0.05


def test_no_class_of_nearness_is_without_patches():
    scenes = smooth_scenes(3)
    rng = np.random.default_rng(1)
    # Half of the patches were seen before, exactly; the others are far.
    near = {i: np.where(rng.random((6, 9)) < 0.5, 0.0, 1 + rng.random((6, 9))) for i in range(3)}
    near[2][0, 0] = 0.3
    said = replace(said_by([s.depth + 0.1 for s in scenes], scenes), near=near)
    for likelihood in depth_evidence.LIKELIHOODS:
        logs = Evidence(said, scenes, (0, 1)).of(2)("one", Weighing(1.0, 1.0, likelihood))
        assert np.isfinite(logs).all()


def test_a_known_depth_is_evidence_of_itself():
    scenes = smooth_scenes(3)
    evidence = Evidence(said_by([s.depth for s in scenes], scenes), scenes, (0, 1))
    logs = evidence.of_known(np.array([[0.5, np.nan]]))
    assert evidence.points[logs[0].argmax()] == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(logs[1], 0.0)


def test_the_experiment_on_a_film_ties_its_frames(tmp_path, monkeypatch):
    """Frames as 7-Scenes has them, of a camera that moves along a wall."""
    monkeypatch.setattr(depth_sequence, "LEAST_TIES", 20)  # there are few patches
    rng = np.random.default_rng(3)
    folder = tmp_path / "film"
    folder.mkdir()
    wall = rng.random((12, 20, 3))
    depths = np.linspace(4000, 1000, 12)[:, None] * (1 + 0.5 * rng.random(20))
    for k in range(6):
        seen = np.kron(wall[:, k : k + 14], np.ones((10, 10, 1)))
        Image.fromarray((255 * seen).astype(np.uint8)).save(folder / f"frame-{k:06d}.color.jpg")
        raw = np.kron(depths[:, k : k + 14], np.ones((10, 10))).astype(np.uint16)
        Image.fromarray(raw).save(folder / f"frame-{k:06d}.depth.png")
    tuned, tune = [], depth.tune
    monkeypatch.setattr(depth, "tune", lambda problem: tuned.append(problem) or tune(problem))
    report = depth.run(Study("depth", Options(tmp_path / "out", folder)), SIZES)
    (problem,) = tuned
    forwards, backwards = [((0, 1), (2,)), ((0, 1, 2), (3,))], [((2, 3), (4,)), ((2, 3, 4), (5,))]
    assert [(one.fold.train, one.fold.test) for one in problem.earlier] == [*forwards, *backwards]
    table = {(row["method"], row["evidence"]): row for row in report.tables[0].rows}
    alone, tied = table["kernel BP, each frame by itself", "ridge"], table["kernel BP", "ridge"]
    assert alone["images"] == tied["images"] == 1 and alone["MAE log10"] != tied["MAE log10"]
    assert np.isfinite([row["MAE log10"] for row in table.values()]).all()
    settings = {
        row["method"]: row["settings"] for row in report.tables[1].rows if "best found" in row["method"]
    }
    assert all(text.endswith(("frames tied", "frames not tied")) for text in settings.values())
    assert len(settings) == 3
    assert "tied to" in " ".join(report.settings)


def test_answers_are_of_the_relations_chosen():
    train, rng = smooth_scenes(3), np.random.default_rng(0)
    scenes = [*train, replace(train[0], depth=train[0].depth - 0.2)]
    said = said_by([scene.depth + rng.normal(0, 0.1, scene.depth.shape) for scene in scenes], scenes)
    kind, fold = depth_evidence.TOGETHER, Fold("nearer", (0, 1, 2), (3,))
    said = replace(said, alone={kind: said.alone["one"]}, pooled={kind: said.pooled["one"]})
    problem = Problem(scenes, fold, said, Ties({}), np.zeros(6, np.intp), SIZES)
    lesson, errors = Lesson(problem, fold.train), {}
    (clip,) = lesson.clips((3,))
    for relations in depth_evidence.RELATIONS:
        row = {"evidence": kind, "power": 1.0, "look-alikes count": None, "likelihood": "Laplace"}
        rows = [{**row, "relations": r, "MAE": float(r != relations)} for r in depth_evidence.RELATIONS]
        found = [r["MAE"] for r in depth.infer(problem, Result(rows)).rows if r["method"] == "kernel BP"]
        graph = lesson.graphs(clip)(kind, Weighing(1.0, None, "Laplace", relations))
        errors[relations] = lesson.error(lesson.model(relations).infer(graph), graph, clip)
        assert found == [pytest.approx(errors[relations])]
    assert len(set(errors.values())) == 2


def test_an_image_without_known_depth_where_it_is_judged_has_no_error():
    scenes = smooth_scenes(5)
    said = said_by([scene.depth + 0.1 for scene in scenes], scenes)
    hidden = np.where((np.arange(9) >= 2) & (np.arange(9) < 7), np.nan, scenes[4].depth)
    scenes[4] = replace(scenes[4], depth=hidden)
    fold = Fold("last", (0, 1, 2), (3, 4))
    lesson = Lesson(Problem(scenes, fold, said, Ties({}), np.arange(6) // 2, SIZES), fold.train)
    model = lesson.model()
    for image, known in ((3, True), (4, False)):
        (clip,) = lesson.clips([image])
        graph = lesson.graphs(clip, 2)("one", Weighing(1.0, None, "Laplace"))
        assert (lesson.error(model.infer(graph), graph, clip, 2) > 0) == known


class Learned:
    """A model that knows nothing but which relations it has learned."""

    def __init__(self, *parts, **settings) -> None: ...

    def fit(self, relations):
        self.relations = relations
        return self

    def infer(self, graph, **asked):
        return self.relations


class Imagined:
    """A lesson that knows how large the error of each way to weigh the evidence is, tied or not."""

    ties_frames = True

    def __init__(self, errors) -> None:
        self.errors, self.seen, self.parts_seen = errors, [], set()

    def model(self, relations):
        return Learned().fit(relations)

    def parts(self, *, tied):
        return {}, {}

    def pairs(self, relations, *, tied):
        return relations

    def clips(self, images, *, tied=True):
        return [Clip(tuple(images), 0)] if tied else [Clip((i,)) for i in images]

    def graphs(self, clip, part):
        return lambda kind, weighing: (weighing, clip.before is not None)

    def error(self, beliefs, graph, clip, part):
        assert beliefs == graph[0].relations
        self.seen.append(graph)
        self.parts_seen.add(part)
        return len(clip.images) * self.errors(*graph)


@pytest.mark.parametrize("gain", [0.1, -0.1])
def test_a_rival_tries_all_evidence_and_then_to_tie_frames(gain, monkeypatch):
    best = Weighing(0.3, 0.3, "Laplace", "from anywhere")
    lesson = Imagined(lambda weighing, tied: 1.0 - (weighing == best) - gain * tied)
    fold = Fold("one", (0,), (1, 2), test_is_later=True)
    problem = SimpleNamespace(sizes=SIZES, fold=fold, jobs=lambda most: [(lesson, (1, 2))])
    rows = [
        {
            "evidence": depth_evidence.TOGETHER,
            "power": p,
            "look-alikes count": c,
            "likelihood": "as counted",
            "relations": r,
            "MAE": e,
        }
        for p, c, r, e in (
            (0.3, 0.3, "from anywhere", 0.1),
            (1.0, 1.0, "as seen", 0.2),
            (1.0, 1.0, "from anywhere", 0.15),
        )
    ]
    monkeypatch.setattr(rivals, "DiscreteModel", Learned)
    options = {**depth_rivals.PAPER["discrete"], "max_iterations": 3, "tolerance": 0.0}
    _, found, tied = depth_rivals._searched(problem, Result(rows), "discrete", options, 0)
    assert found == best and tied == (gain > 0)
    tried = {weighing for weighing, between in lesson.seen if not between}
    everything = {
        Weighing(p, 0.3, form, "from anywhere") for p in (1.0, 0.3) for form in depth_evidence.LIKELIHOODS
    }
    assert tried == everything | {Weighing(1.0, 1.0, "as counted")}
    assert {weighing for weighing, between in lesson.seen if between} == {best}
    assert lesson.parts_seen == {1}


@pytest.mark.parametrize(("film", "parts"), [(True, (1, 2)), (False, (2, 8))])
def test_rivals_are_searched_for_where_ours_is_tuned_and_slow_ones_on_less(film, parts, monkeypatch):
    row = {"evidence": depth_evidence.TOGETHER, "power": 1.0, "look-alikes count": 1.0, "MAE": 0.1}
    tuned = Result([{**row, "likelihood": "as counted", "relations": "as seen"}])
    fold = Fold("one", (0,), (1, 2, 3, 4, 5), test_is_later=film)
    seen = {}
    for rival, made in (("discrete", "DiscreteModel"), ("particle", "ParticleModel")):
        monkeypatch.setattr(rivals, made, Learned)
        lesson = Imagined(lambda weighing, tied: 1.0)
        clips, asked = lesson.clips, set()
        lesson.clips = lambda images, *, c=clips, a=asked, tied=True: (
            a.add(tuple(images)) or c(images, tied=tied)
        )
        problem = SimpleNamespace(sizes=SIZES, fold=fold, jobs=lambda most, one=lesson: [(one, fold.test)])
        options = {**depth_rivals.PAPER[rival], "max_iterations": 3, "tolerance": 0.0}
        depth_rivals._searched(problem, tuned, rival, options, 0)
        seen[rival] = (lesson.parts_seen, asked)
    assert seen["discrete"] == ({parts[0]}, {fold.test})
    assert seen["particle"] == ({parts[1]}, {(2, 3, 4) if film else fold.test})


@pytest.mark.parametrize(("film", "part"), [(True, 1), (False, 2)])
def test_settings_for_a_film_are_chosen_on_whole_frames(film, part):
    best = Weighing(0.3, 1.0, "as counted")
    lesson = Imagined(lambda weighing, tied: 1.0 - (weighing == best))
    problem = SimpleNamespace(
        sizes=SIZES,
        fold=Fold("one", (0,), (1, 2), test_is_later=film),
        said=SimpleNamespace(alone={"one": {}}),
        jobs=lambda most: [(lesson, (1, 2))],
    )
    tuned = depth.tune(problem)
    assert lesson.parts_seen == {part}
    assert depth_evidence.best_of(tuned, "one") == best
    assert len(tuned.rows) == len(depth_evidence.FILM_CHOICES if film else depth_evidence.CHOICES)


def test_tied_frames_are_inferred_together_by_mixtures_the_first_of_them(monkeypatch):
    monkeypatch.setattr(depth_sequence, "LEAST_TIES", 20)
    scenes, bands = film(8), np.arange(6) // 3
    fold = Fold("last", (0, 1, 2, 3, 4, 5), (6, 7), test_is_later=True)
    ties = Ties.of(find_ties(scenes, fold))
    said = said_by([scene.depth for scene in scenes], scenes)
    said = replace(
        said,
        alone={depth_evidence.TOGETHER: said.alone["one"]},
        pooled={depth_evidence.TOGETHER: said.pooled["one"]},
    )
    problem = Problem(
        scenes, fold, said, ties, bands, replace(SIZES, mixture_frames=1, iterations=1, particle_iterations=1)
    )
    row = {
        "evidence": depth_evidence.TOGETHER,
        "power": 1.0,
        "look-alikes count": 0.0,
        "likelihood": "Laplace",
        "relations": "as seen",
        "MAE": 0.1,
    }
    monkeypatch.setattr(
        depth_rivals,
        "_searched",
        lambda problem, tuned, rival, settings, seed: (settings, Weighing(1.0, 0.0, "Laplace"), True),
    )
    for rival, images in (("Gaussian-mixture", 1), ("particle", 2), ("discrete", 2)):
        found = depth_rivals.compare(problem, Result([row]), rival, "best found", (7,))
        assert [r["image"] for r in found.rows] == ["frame 6", "frame 7"][:images]
        assert all(r["settings"].endswith("frames tied") for r in found.rows)
