"""Pictures in files: read with every check, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelbp.errors import InputError, TooLargeError
from kernelbp.photographs.noise import WHITE

if TYPE_CHECKING:
    import PIL.Image

__all__ = ["Picture", "check_output", "files_of", "read_mask", "read_picture", "write_all"]

Image = NDArray[np.float64]

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF", ".tiff": "TIFF"}
"""What is written, by the ending of the name."""
SAVING: dict[str, dict[str, Any]] = {
    "PNG": {},
    "JPEG": {"quality": 95, "subsampling": 0},
    "TIFF": {"compression": "tiff_adobe_deflate"},
}
DEEP_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")
"""Pillow's names for gray pictures of more than 8 bits."""
DEEPEST = 65535
MISSING_FROM = 128
"""Mask pixels this bright or brighter are missing ones."""


@dataclass(frozen=True)
class Picture:
    """A picture as read from a file.

    Attributes
    ----------
    values : (rows, columns) or (rows, columns, 3), black 0 to white 255
    alpha : (rows, columns) transparency as it was, or None
    white : the number that stands for white in the file: 255, or up to 65535 in gray pictures of 16 bits
    profile : the file's colour profile, or None
    deep : whether it is a gray picture of 16 bits
    """

    values: Image
    alpha: NDArray[np.uint8] | None = None
    white: int = 255
    profile: bytes | None = None
    deep: bool = False

    @property
    def described(self) -> str:
        """Width x height and what sort of picture."""
        rows, columns = self.values.shape[:2]
        sort = "colour" if self.values.ndim == 3 else "16-bit gray" if self.deep else "gray"
        return f"{columns} x {rows} {sort}"

    def with_values(self, values: Image) -> Picture:
        """Another picture of the same sort."""
        return replace(self, values=values)


def read_picture(path: Path, name: str, side: int | None = None) -> Picture:
    """Read a picture: gray or colour, with or without transparency, of 8 bits or (gray only) 16.

    Parameters
    ----------
    path : of a file that Pillow can read: PNG, JPEG, TIFF and others
    name : of the argument, for errors
    side : of a larger picture only the middle of so many rows and columns is given; all of it if None

    Raises
    ------
    InputError
        If there is no such file, or no picture in it, or several.
    TooLargeError
        If it has more pixels than Pillow deems safe (``PIL.Image.MAX_IMAGE_PIXELS``).
    """
    image = _opened(path, name)
    # A profile of inks says nothing about the red, green and blue that are made of them.
    profile = None if image.mode == "CMYK" else image.info.get("icc_profile")
    if image.mode in DEEP_MODES:
        numbers = np.asarray(image)
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < 0 or highest > DEEPEST:
            raise InputError(f"{name}: {path} has values from {lowest} to {highest}; expected 0 to {DEEPEST}")
        # Cameras write 10, 12 or 14 bits into 16: white is the largest number of the bits in use.
        white = max(255, (1 << highest.bit_length()) - 1)
        middle = np.asarray(_middle(image, side)).astype(np.float64)
        return Picture(middle * (WHITE / white), white=white, profile=profile, deep=True)
    if image.mode in ("F", "LAB", "HSV"):
        raise InputError(
            f"{name}: {path} holds {image.mode} values; expected gray (8 or 16 bits) or colour (8 bits a channel)"
        )
    see_through = "A" in image.getbands() or "transparency" in image.info
    gray = image.mode in ("1", "L", "LA")
    image = _middle(image, side).convert(
        ("LA" if see_through else "L") if gray else ("RGBA" if see_through else "RGB")
    )
    values = np.asarray(image)
    alpha = values[..., -1].copy() if see_through else None
    if see_through:
        values = values[..., 0] if gray else values[..., :3]
    return Picture(values.astype(np.float64), alpha, profile=profile)


def read_mask(path: Path, shape: tuple[int, ...], name: str) -> NDArray[np.bool_]:
    """Read which pixels are missing: the white ones of a black and white picture.

    Raises
    ------
    InputError
        If it is not of the given (rows, columns), or in colour, or has gray pixels but no white one.
    """
    mask = read_picture(path, name).values
    if mask.ndim == 3:
        if (mask != mask[..., :1]).any():
            raise InputError(
                f"{name}: {path} is in colour; expected black, and white where pixels are missing"
            )
        mask = mask[..., 0]
    if mask.shape != tuple(shape[:2]):
        raise InputError(
            f"{name}: {path} has {mask.shape[1]} x {mask.shape[0]} pixels; expected {shape[1]} x {shape[0]}, as the image has"
        )
    missing = mask >= MISSING_FROM
    if mask.any() and not missing.any():
        raise InputError(
            f"{name}: the brightest pixel of {path} is {mask.max():g} of 255; expected black, and white where pixels are missing"
        )
    return missing


def files_of(folder: Path, most: int, name: str) -> list[Path]:
    """Give the pictures of a folder; of more than `most`, as many spread evenly over their names.

    Files whose names do not end as pictures' do are passed over.
    """
    if not folder.is_dir():
        raise InputError(
            f"{name}: {folder} is {'not a folder' if folder.exists() else 'not there'}; expected a folder of photographs"
        )
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in FORMATS and path.is_file())
    except OSError as error:
        raise InputError(f"{name}: {folder} cannot be read: {error.strerror}") from error
    if not paths:
        raise InputError(
            f"{name}: {folder} holds no photographs; expected files ending in {', '.join(FORMATS)}"
        )
    chosen = np.unique(np.linspace(0, len(paths) - 1, min(len(paths), most)).astype(int))
    return [paths[index] for index in chosen]


def check_output(path: Path, name: str, inputs: Sequence[Path], *, alpha: bool = False) -> None:
    """Refuse, before any work, a file that could not be written, or that would take the place of an input."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{name}: {path} should end in {', '.join(FORMATS)}, which says what is written")
    if alpha and FORMATS[path.suffix.lower()] == "JPEG":
        raise InputError(
            f"{name}: the image is transparent in parts, which JPEG cannot hold; write PNG or TIFF"
        )
    if path.is_dir():
        raise InputError(f"{name}: {path} is a folder; expected the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"{name}: there is no folder {path.parent} to write to")
    if any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise InputError(f"{name}: {path} is one of the pictures read; expected another name")
    trial = _beside(path)
    try:
        trial.touch()
    except OSError as error:
        raise InputError(f"{name}: cannot write in {path.parent}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            trial.unlink()


def write_all(pictures: Sequence[tuple[Path, Picture]]) -> None:
    """Write pictures, each whole or not at all: under other names first, put in place when all are done."""
    waiting: list[tuple[Path, Path]] = []
    try:
        for path, picture in pictures:
            waiting.append((_beside(path), path))
            _write(waiting[-1][0], FORMATS[path.suffix.lower()], picture)
        for made, path in waiting:
            os.replace(made, path)
    except OSError as error:
        raise InputError(f"{waiting[-1][1]}: cannot be written: {error.strerror or error}") from error
    finally:
        for made, _ in waiting:
            with suppress(OSError):
                made.unlink()


def _write(path: Path, kind: str, picture: Picture) -> None:
    import PIL.Image

    deep = picture.deep and kind != "JPEG"
    scale, dtype = (picture.white / WHITE, np.uint16) if deep else (1.0, np.uint8)
    numbers = np.rint(np.clip(picture.values, 0.0, WHITE) * scale).astype(dtype)
    if picture.alpha is not None:
        numbers = np.dstack([numbers, picture.alpha])
    options = dict(SAVING[kind])
    if picture.profile is not None:
        options["icc_profile"] = picture.profile
    PIL.Image.fromarray(numbers).save(path, format=kind, **options)


def _beside(path: Path) -> Path:
    """A name in the same folder that nobody has."""
    return path.with_name(f".{path.stem[:80]}.{secrets.token_hex(8)}.part")


def _middle(image: PIL.Image.Image, side: int | None) -> PIL.Image.Image:
    """The middle of an image, of at most so many rows and columns."""
    if side is None or max(image.size) <= side:
        return image
    left, top = (max(length - side, 0) // 2 for length in image.size)
    return image.crop((left, top, min(left + side, image.width), min(top + side, image.height)))


def _opened(path: Path, name: str) -> PIL.Image.Image:
    """A picture with all its pixels read, turned the right way up."""
    import PIL.Image
    import PIL.ImageOps

    if path.is_dir():
        raise InputError(f"{name}: {path} is a folder; expected a picture")
    if not path.is_file():
        raise InputError(
            f"{name}: there is no file {path}" if not path.exists() else f"{name}: {path} is no file"
        )
    try:
        if not path.stat().st_size:
            raise InputError(f"{name}: {path} is empty; expected a picture (PNG, JPEG or TIFF)")
        with _bombs_refused(), PIL.Image.open(path) as image:
            # Some telephones put a second, smaller picture after the first in a JPEG file.
            frames = 1 if image.format in ("JPEG", "MPO") else getattr(image, "n_frames", 1)
            if frames > 1:
                raise InputError(f"{name}: {path} holds {frames} pictures; expected one")
            image.load()
            turned = PIL.ImageOps.exif_transpose(image)
            turned.info = dict(image.info)
            return turned
    except InputError:
        raise
    except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError, MemoryError) as error:
        raise TooLargeError(
            f"{name}: {path} is too large: more than {PIL.Image.MAX_IMAGE_PIXELS or 0:,} pixels, or than memory holds. "
            "Make it smaller, or cut it into parts"
        ) from error
    except PIL.UnidentifiedImageError as error:
        raise InputError(
            f"{name}: {path} is not a picture that can be read; expected PNG, JPEG or TIFF"
        ) from error
    except PermissionError as error:
        raise InputError(f"{name}: {path} cannot be read: {error.strerror}") from error
    except Exception as error:  # decoders of damaged files raise almost anything
        raise InputError(f"{name}: {path} is damaged or not a picture that can be read ({error})") from error


@contextmanager
def _bombs_refused() -> Iterator[None]:
    """Pillow only warns of pictures up to twice the size it deems safe."""
    import PIL.Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
        yield
