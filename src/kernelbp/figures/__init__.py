"""Pictures of beliefs: each function returns a matplotlib ``Figure``, and none needs a display."""

from kernelbp.figures.denoising import denoising, root_mean_square_error

__all__ = ["denoising", "root_mean_square_error"]
