"""Photographs with measured depth, from folders in the forms of Make3D, 7-Scenes and Middlebury, and from scikit-image.

All give `DepthScene`s: an image, and the logarithm (base 10) of depth on a grid of patches, NaN where it is unknown.
Files are not trusted: sizes are checked before anything is decoded, and nothing in a file is run.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.datasets._mat5 import read_tables
from kernelbp.errors import InputError
from kernelbp.extras import extra_library
from kernelbp.values import is_whole

__all__ = [
    "DepthScene",
    "depth_folder_form",
    "load_7scenes",
    "load_make3d",
    "load_middlebury",
    "stereo_scene",
]

Matrix = NDArray[np.float64]
Single = NDArray[np.float32]

MAKE3D_SHAPE = (107, 86)
"""Patches of a Make3D image: the paper's."""
SEVEN_SCENES_SHAPE = (48, 64)
MIDDLEBURY_SHAPE = (37, 42)
STEREO_SHAPE = (50, 74)
"""Patches of about ten pixels each."""
FARTHEST = 80.0
"""Metres at which Make3D's laser gives up: what is farther reads as this."""
NEAREST = 0.1
"""Metres below which a reading is no depth."""
MILLIMETRES = 1000.0
UNKNOWN_7SCENES = 65535
FRAME = re.compile(r"frame-(\d{1,9})\.depth\.png")
PIXELS = 10
"""Images are kept at this many pixels a patch, which is what features are computed at."""
MOST_PIXELS = 50_000_000
MOST_BYTES = 100_000_000
"""Of a file, and of what a compressed part of one unpacks to."""
MOST_CELLS = 4_000_000
"""Of a grid of depths in a .mat file."""


@dataclass(frozen=True, eq=False)
class DepthScene:
    """A photograph with depth.

    Attributes
    ----------
    name : of its file or folder
    image : (height, width, 3) red, green, blue from 0 to 1
    depth : (rows, columns) of patches: log10 of depth, NaN where unknown
    group : scenes of one group show the same thing, and are never trained and tested on together
    time : number of the frame, where scenes are frames of a film

    Examples
    --------
    >>> import numpy as np
    >>> scene = DepthScene("wall", np.zeros((60, 80, 3), np.float32), np.log10(np.full((6, 8), 2.5)), "wall")
    >>> scene.depth.shape, float(10 ** scene.depth[0, 0])
    ((6, 8), 2.5)
    """

    name: str
    image: Single
    depth: Matrix
    group: str
    time: int | None = None


def load_make3d(
    folder: str | os.PathLike[str], *, shape: tuple[int, int] = MAKE3D_SHAPE
) -> Iterator[DepthScene]:
    """Read the pairs ``img-NAME.jpg`` and ``depth_sph_corr-NAME.mat`` of a folder, in the order of their names.

    Depth is ``Position3DGrid[:, :, 3]``, metres, cut off at 80. The laser's grid (55 x 305) is brought to the
    grid of patches: rows are interpolated in log depth, columns are the nearest. Images without depth are left out.

    Parameters
    ----------
    folder : path
    shape : (rows, columns) of patches

    Raises
    ------
    InputError
        If there is no such pair, or a file is not of its form.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from scipy.io import savemat
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (86, 107)).save(Path(folder) / "img-wall.jpg")
    ...     savemat(Path(folder) / "depth_sph_corr-wall.mat", {"Position3DGrid": np.full((55, 305, 4), 10.0)})
    ...     (scene,) = load_make3d(folder)
    >>> scene.depth.shape, float(scene.depth[0, 0])
    ((107, 86), 1.0)
    """
    root = _folder(folder)
    pairs = [
        (image, depth)
        for image in sorted(root.glob("img-*.jpg"))
        if (depth := root / f"depth_sph_corr-{image.stem.removeprefix('img-')}.mat").is_file()
    ]
    if not pairs:
        raise InputError(
            f"{root}: expected pairs img-NAME.jpg and depth_sph_corr-NAME.mat (Make3D), found none"
        )
    return (
        DepthScene(image.stem, _image(image, shape), _make3d_depth(depth, shape), image.stem)
        for image, depth in pairs
    )


def load_7scenes(
    folder: str | os.PathLike[str], *, shape: tuple[int, int] = SEVEN_SCENES_SHAPE, every: int = 1
) -> Iterator[DepthScene]:
    """Read ``frame-N.color.jpg`` (or png) and ``frame-N.depth.png`` of a folder, in the order of time.

    Depth is in millimetres, 16 bits; 0 and 65535 mean unknown. A patch has the median depth of its pixels, if
    more than half of them are known.

    Parameters
    ----------
    folder : path
    shape : (rows, columns) of patches
    every : take only one frame of this many

    Raises
    ------
    InputError
        If there is no such pair, or a file is not of its form.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for k in range(4):
    ...         Image.new("RGB", (64, 48)).save(Path(folder) / f"frame-{k:06d}.color.jpg")
    ...         away = np.full((48, 64), 1000 * (k + 1), dtype=np.uint16)
    ...         Image.fromarray(away).save(Path(folder) / f"frame-{k:06d}.depth.png")
    ...     scenes = list(load_7scenes(folder, shape=(6, 8), every=3))
    >>> [(scene.time, float(10 ** scene.depth[0, 0])) for scene in scenes]
    [(0, 1.0), (3, 4.0)]
    """
    if not is_whole(every) or every < 1:
        raise InputError(f"every: expected a whole number of at least 1, got {every!r}")
    root = _folder(folder)
    numbered = [(FRAME.fullmatch(path.name), path) for path in root.glob("frame-*.depth.png")]
    frames = sorted((int(match[1]), path) for match, path in numbered if match)
    pairs = []
    for time, depth in frames[::every]:
        stem = depth.name.removesuffix(".depth.png")
        images = [path for ending in ("jpg", "png") if (path := root / f"{stem}.color.{ending}").is_file()]
        if images:
            pairs.append((stem, images[0], depth, time))
    if not pairs:
        raise InputError(
            f"{root}: expected frame-N.color.jpg and frame-N.depth.png (7-Scenes), found no such pair"
        )
    return (
        DepthScene(
            stem, _image(image, shape), np.log10(_seven_scenes_depth(depth, shape) / MILLIMETRES), stem, time
        )
        for stem, image, depth, time in pairs
    )


def load_middlebury(
    folder: str | os.PathLike[str], *, shape: tuple[int, int] = MIDDLEBURY_SHAPE
) -> Iterator[DepthScene]:
    """Read ``SCENE/view1.png`` with ``SCENE/disp1.png``, and view5 with disp5, for every scene of a folder.

    Depth goes as one over disparity, by a factor that differs between scenes: log10 depth is given relative to the
    median of its image. A disparity of 0 is unknown. The two views of a scene are one group.

    Parameters
    ----------
    folder : path
    shape : (rows, columns) of patches

    Raises
    ------
    InputError
        If there is no such pair, or a file is not of its form.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scene = Path(folder) / "Wall"
    ...     scene.mkdir()
    ...     Image.new("RGB", (64, 48)).save(scene / "view1.png")
    ...     Image.fromarray(np.full((48, 64), 30, dtype=np.uint8)).save(scene / "disp1.png")
    ...     (found,) = load_middlebury(folder, shape=(6, 8))
    >>> found.name, found.group, float(found.depth.max())
    ('Wall view1', 'Wall', 0.0)
    """
    root = _folder(folder)
    pairs = [
        (image, depth)
        for image in sorted(root.glob("*/view[15].png"))
        if (depth := image.with_name(image.name.replace("view", "disp"))).is_file()
    ]
    if not pairs:
        raise InputError(f"{root}: expected SCENE/view1.png with SCENE/disp1.png (Middlebury), found none")
    return (
        DepthScene(
            f"{image.parent.name} {image.stem}",
            _image(image, shape),
            _disparity_depth(depth, shape),
            image.parent.name,
        )
        for image, depth in pairs
    )


def stereo_scene(*, shape: tuple[int, int] = STEREO_SHAPE) -> DepthScene:
    """The photograph of a motorcycle that scikit-image brings along, with the depth its stereo partner gave.

    Log10 depth is relative to the image's median. Nothing is downloaded.

    Raises
    ------
    InputError
        If scikit-image is not installed, or came without it.

    Examples
    --------
    >>> scene = stereo_scene(shape=(20, 30))
    >>> scene.image.shape, scene.depth.shape
    ((500, 741, 3), (20, 30))
    """
    bundled = extra_library("skimage.data", "images", "data: the stereo pair (there is no folder given)")
    home = Path(bundled.__file__).parent
    # Where they are not part of the installed package, scikit-image would fetch them.
    for name in ("motorcycle_left.png", "motorcycle_right.png", "motorcycle_disp.npz"):
        if not (home / name).is_file():
            raise InputError(f"data: this scikit-image came without {name}; give a folder of data instead")
    left, _, disparity = bundled.stereo_motorcycle()
    known = np.where(np.isfinite(disparity) & (disparity > 0), disparity, np.nan).astype(np.float64)
    image = np.asarray(left, dtype=np.float32)[..., :3] / np.float32(255)
    return DepthScene("motorcycle", image, _relative_depth(_medians(known, shape)), "motorcycle")


def depth_folder_form(folder: str | os.PathLike[str]) -> str:
    """What form a folder has: "Make3D", "7-Scenes" or "Middlebury", by the names of its files.

    Raises
    ------
    InputError
        If it has none of them.
    """
    root = _folder(folder)
    for form, pattern in (
        ("Make3D", "depth_sph_corr-*.mat"),
        ("7-Scenes", "frame-*.depth.png"),
        ("Middlebury", "*/disp[15].png"),
    ):
        if any(root.glob(pattern)):
            return form
    raise InputError(
        f"{root}: expected a folder of Make3D (img-*.jpg, depth_sph_corr-*.mat), 7-Scenes (frame-*.color.jpg, "
        "frame-*.depth.png) or Middlebury (SCENE/view1.png, SCENE/disp1.png)"
    )


# ---------------------------------------------------------------------- depth on patches


def _make3d_depth(path: Path, shape: tuple[int, int]) -> Matrix:
    metres = _position_grid(path)
    logs = np.log10(np.where(metres > NEAREST, np.minimum(metres, FARTHEST), np.nan))
    height, width = logs.shape
    at = np.clip((np.arange(shape[0]) + 0.5) * height / shape[0] - 0.5, 0, height - 1)
    low = np.floor(at).astype(np.intp)
    part = (at - low)[:, None]
    columns = ((np.arange(shape[1]) + 0.5) * width / shape[1]).astype(np.intp)
    above, below = logs[low][:, columns], logs[np.minimum(low + 1, height - 1)][:, columns]
    # A weight of nothing must not carry a NaN.
    return np.where(part > 0, above + part * (below - above), above)


def _seven_scenes_depth(path: Path, shape: tuple[int, int]) -> Matrix:
    raw = _numbers(path, ("I;16", "I;16B", "I"), "a depth image of 16 bits")
    return _medians(np.where((raw > 0) & (raw < UNKNOWN_7SCENES), raw, np.nan), shape)


def _disparity_depth(path: Path, shape: tuple[int, int]) -> Matrix:
    raw = _numbers(path, ("L",), "a gray image of disparities")
    return _relative_depth(_medians(np.where(raw > 0, raw, np.nan), shape))


def _relative_depth(disparity: Matrix) -> Matrix:
    """Log10 of one over disparity, less its median."""
    logs = -np.log10(disparity)
    known = np.isfinite(logs)
    return logs - np.median(logs[known]) if known.any() else logs


def _medians(values: Matrix, shape: tuple[int, int]) -> Matrix:
    """The median of every patch of known pixels; NaN where half of them or more are unknown."""
    size = [max(-(-have // want), 1) for have, want in zip(values.shape, shape, strict=True)]
    at = [
        np.minimum(np.arange(want * step) * have // (want * step), have - 1)
        for have, want, step in zip(values.shape, shape, size, strict=True)
    ]
    blocks = (
        values[np.ix_(*at)].reshape(shape[0], size[0], shape[1], size[1]).swapaxes(1, 2).reshape(*shape, -1)
    )
    sorted_values = np.sort(blocks, axis=2)  # NaN last
    counts = np.isfinite(blocks).sum(axis=2)
    middle = np.take_along_axis(sorted_values, np.maximum(counts - 1, 0)[..., None] // 2, axis=2)[..., 0]
    return np.where(2 * counts > blocks.shape[2], middle, np.nan)


# ---------------------------------------------------------------------- files


def _folder(folder: str | os.PathLike[str]) -> Path:
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"folder: no such folder {root}")
    return root


def _opened(path: Path) -> Any:
    """An image whose header was read and found sane; no pixel is decoded yet."""
    from PIL import Image

    if not path.is_file():
        raise InputError(f"{path}: no such file; expected an image")
    try:
        image = Image.open(path, formats=("JPEG", "PNG"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: expected a JPEG or PNG image ({error})") from error
    if image.width * image.height > MOST_PIXELS:
        raise InputError(f"{path}: {image.width} x {image.height} pixels; expected at most {MOST_PIXELS:,}")
    return image


def _decoded(image: Any, path: Path) -> Any:
    try:
        image.load()
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error) as error:
        raise InputError(f"{path}: the image is damaged or cut short ({error})") from error
    return image


def _image(path: Path, shape: tuple[int, int]) -> Single:
    """Red, green and blue from 0 to 1; no larger than the patches need."""
    from PIL import Image

    image = _opened(path)
    wanted = (shape[1] * PIXELS, shape[0] * PIXELS)
    if image.format == "JPEG":
        image.draft("RGB", wanted)  # decodes at a half, a quarter or an eighth where that is enough
    image = _decoded(image, path).convert("RGB")
    if image.width > wanted[0] and image.height > wanted[1]:
        image = image.resize(wanted, Image.Resampling.BOX)
    return np.asarray(image, dtype=np.float32) / np.float32(255)


def _numbers(path: Path, modes: tuple[str, ...], expected: str) -> Matrix:
    image = _opened(path)
    if image.mode not in modes:
        raise InputError(f"{path}: expected {expected}, got a PNG or JPEG of mode {image.mode}")
    return np.asarray(_decoded(image, path), dtype=np.float64)


def _position_grid(path: Path) -> Matrix:
    """Depth in metres, (height, width), from a MATLAB 5 file."""
    grid = read_tables(path, ("Position3DGrid",), most_bytes=MOST_BYTES, axes=3)["Position3DGrid"]
    if grid.shape[2] < 4 or not 0 < grid.shape[0] * grid.shape[1] <= MOST_CELLS:
        raise InputError(f"{path}: expected Position3DGrid of shape (rows, columns, 4), got {grid.shape}")
    return np.asarray(grid[:, :, 3], dtype=np.float64)
