"""Pictures show what they are given, on a common scale, and refuse what does not fit together."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import kernelbp as kb
from kernelbp import figures
from kernelbp.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::kernelbp.errors.ConvergenceWarning")

SIDE = 12
PIXELS = {"in the sky": (0, 0), "at the horizon": (5, 3)}


@pytest.fixture(scope="module")
def images():
    return kb.datasets.sunset(colors=4, size=SIDE)


@pytest.fixture(scope="module")
def beliefs(images):
    """Beliefs from the readings alone: no neighbours, so nothing has to converge."""
    clean, noisy = images
    model = kb.Model(
        {"pixel": kb.kernels.Gaussian(), "reading": kb.kernels.Gaussian()},
        {"read as": kb.Relation("pixel", "reading")},
    ).fit({"read as": (clean.ravel(), noisy.ravel())})
    graph = kb.Graph.from_edges([], variables=["pixel"] * clean.size)
    return model.infer(graph.observe("read as", noisy.ravel()))


@pytest.fixture(scope="module")
def figure(images, beliefs):
    return figures.denoising(*images, beliefs, PIXELS, title="A title for strangers")


def image_panels(figure):
    return [axes for axes in figure.axes if axes.get_images()]


def density_panel(figure, letter):
    return next(axes for axes in figure.axes if axes.get_title().startswith(f"{letter}: "))


def test_images_are_clean_noisy_mean_and_standard_deviation(figure, images, beliefs):
    shown = [np.asarray(axes.get_images()[0].get_array()) for axes in image_panels(figure)]
    expected = [*images, beliefs.mean().reshape(SIDE, SIDE), beliefs.std().reshape(SIDE, SIDE)]
    assert len(shown) == 4
    for drawn, wanted in zip(shown, expected, strict=True):
        np.testing.assert_allclose(drawn, wanted)


def test_gray_images_share_one_scale_from_black_to_white(figure):
    for axes in image_panels(figure)[:3]:
        drawn = axes.get_images()[0]
        assert drawn.get_clim() == (0.0, 255.0) and drawn.get_cmap().name == "gray"


def test_titles_give_the_error_of_each_image(figure, images, beliefs):
    clean, noisy = images
    titles = [axes.get_title() for axes in image_panels(figure)]
    assert f"RMSE {np.sqrt(np.mean((noisy - clean) ** 2)):.1f}" in titles[1]
    assert f"RMSE {np.sqrt(np.mean((beliefs.mean() - clean.ravel()) ** 2)):.1f}" in titles[2]


def test_density_panels_show_the_belief_the_truth_and_the_reading(figure, images, beliefs):
    clean, noisy = images
    for letter, (name, (row, column)) in zip("AB", PIXELS.items(), strict=True):
        axes = density_panel(figure, letter)
        assert axes.get_title() == f"{letter}: {name}"
        lines = {line.get_label(): line for line in axes.get_lines()}
        points, density = lines["belief density"].get_data()
        np.testing.assert_allclose(density, beliefs.density(points)[row * SIDE + column])
        assert np.unique(lines["true gray level"].get_xdata()) == clean[row, column]
        assert lines["noisy reading"].get_xdata() == [noisy[row, column]]
        low, high = axes.get_xlim()
        assert low < noisy[row, column] < high


def test_marks_sit_on_their_pixels_in_the_colour_of_their_density(figure):
    for axes in image_panels(figure):
        for mark, letter, (row, column) in zip(axes.get_lines(), "AB", PIXELS.values(), strict=True):
            assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (column, row)
            curve = density_panel(figure, letter).get_lines()[0]
            assert mark.get_markeredgecolor() == curve.get_color()


def test_no_two_texts_of_a_picture_overlap(figure):
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # lays the picture out
    renderer = canvas.get_renderer()
    texts = [axes.title for axes in figure.axes] + [axes.xaxis.label for axes in figure.axes]
    texts += [sub._suptitle for sub in figure.subfigs if sub._suptitle is not None]
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    assert len(boxes) >= 9
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


def test_a_picture_is_made_without_a_display_and_leaves_no_global_figure(images, beliefs):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    file = io.BytesIO()
    figures.denoising(*images, beliefs, PIXELS).savefig(file, format="png")
    with Image.open(file) as picture:
        assert picture.format == "PNG" and min(picture.size) > 400
    assert plt.get_fignums() == before


def test_beliefs_of_one_variable_may_be_given(images, beliefs):
    assert figures.denoising(*images, beliefs["pixel"], PIXELS).axes


def test_root_mean_square_error_is_the_norm_over_the_root_of_the_size():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 5, 4))
    expected = np.linalg.norm(left - right) / np.sqrt(20)
    assert figures.root_mean_square_error(left, right) == pytest.approx(expected)
    assert figures.root_mean_square_error(left.ravel(), right) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"clean": np.zeros(SIDE * SIDE)},
            r"clean: expected a 2-D array of gray levels, got 1-D of shape \(144,\)",
        ),
        (
            {"clean": np.zeros((0, 3))},
            r"clean: expected a 2-D array of gray levels, got 2-D of shape \(0, 3\)",
        ),
        (
            {"noisy": np.zeros((SIDE, SIDE + 1))},
            r"noisy: expected the shape of clean, \(12, 12\), got \(12, 13\)",
        ),
        ({"noisy": np.full((SIDE, SIDE), np.nan)}, "noisy: expected finite real numbers"),
        (
            {"clean": np.zeros((5, 4)), "noisy": np.zeros((5, 4)), "pixels": {"here": (0, 0)}},
            "beliefs: 144 nodes for an image of 5 x 4 pixels; expected 20",
        ),
        ({"beliefs": np.zeros(144)}, "beliefs: expected what infer returns, got ndarray"),
        ({"pixels": {}}, "pixels: expected 1 to 6 of them, got 0"),
        ({"pixels": {str(i): (0, i) for i in range(7)}}, "pixels: expected 1 to 6 of them, got 7"),
        ({"pixels": [(0, 0)]}, r"pixels: expected a mapping from description to \(row, column\), got list"),
        ({"pixels": {"here": (0, SIDE)}}, r"pixels\['here'\]: \(0, 12\) lies outside the image of 12 x 12"),
        ({"pixels": {"here": (-1, 0)}}, r"pixels\['here'\]: \(-1, 0\) lies outside"),
        ({"pixels": {"here": (0.5, 0)}}, r"pixels\['here'\]: expected \(row, column\), got \(0.5, 0\)"),
        ({"pixels": {"here": (1, 2, 3)}}, r"pixels\['here'\]: expected \(row, column\), got \(1, 2, 3\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(images, beliefs, change, text):
    given = {"clean": images[0], "noisy": images[1], "beliefs": beliefs, "pixels": PIXELS} | change
    with pytest.raises(InputError, match=text):
        figures.denoising(**given)


def test_beliefs_of_several_variables_are_refused(images):
    rng = np.random.default_rng(0)
    values = rng.standard_normal(50)
    model = kb.Model(
        {"a": kb.kernels.Gaussian(1.0), "b": kb.kernels.Gaussian(1.0)}, {"r": kb.Relation("a", "b")}
    ).fit({"r": (values, values + rng.standard_normal(50))})
    both = model.infer(kb.Graph.from_edges([(0, 1, "r")], variables=["a", "b"]))
    with pytest.raises(InputError, match=r"several variables; choose one, such as beliefs\['a'\]"):
        figures.denoising(*images, both, PIXELS)


def test_errors_of_images_of_different_sizes_are_refused():
    with pytest.raises(InputError, match="estimate: 3 values for the 2 of truth"):
        figures.root_mean_square_error([1.0, 2.0, 3.0], [1.0, 2.0])
