"""What can go wrong, as types: every error says what was given and what to do about it."""

from __future__ import annotations

__all__ = [
    "ConvergenceWarning",
    "InputError",
    "KernelBPError",
    "ModelFileError",
    "NotFittedError",
    "TooLargeError",
    "UnsupportedError",
]


class KernelBPError(Exception):
    """The root of every error raised on purpose by this library."""


class InputError(KernelBPError, ValueError):
    """An argument cannot be used as given; raised before any work is done."""


class NotFittedError(KernelBPError, AttributeError):
    """A model was asked to infer, save or show its support before `fit`."""


class UnsupportedError(KernelBPError, TypeError):
    """The request makes no sense on this kind of variable; the text names what does."""


class TooLargeError(KernelBPError, MemoryError):
    """The problem does not fit into memory; the text says what would."""


class ModelFileError(KernelBPError, ValueError):
    """A model file is truncated, altered, foreign or larger than allowed."""


class ConvergenceWarning(UserWarning):
    """Inference stopped before its messages settled; the text says what to try."""
