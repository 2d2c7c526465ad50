"""Both kinds of files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

import nncfx


@pytest.fixture(params=[nncfx.save, nncfx.storage.save], ids=["safetensors", "nncfx"])
def save(request: pytest.FixtureRequest) -> Callable[[Path, nn.Module], object]:
    """Return what writes a finished model."""
    written: Callable[[Path, nn.Module], object] = request.param
    return written
