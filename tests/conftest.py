"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples at every run and on every machine, however slow: a failure can always be repeated.
settings.register_profile("kernelbp", derandomize=True, deadline=None)
settings.load_profile("kernelbp")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the project; skips the test where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real data at ../shared/data from the project's root, which is absent")
    return SHARED_DATA
