"""Pictures of beliefs: each function returns a matplotlib ``Figure``, and none needs a display."""

from kernelbp.figures.denoising import denoising, root_mean_square_error
from kernelbp.figures.inpainting import inpainting
from kernelbp.figures.locations import locations
from kernelbp.figures.series import series

__all__ = ["denoising", "inpainting", "locations", "root_mean_square_error", "series"]
