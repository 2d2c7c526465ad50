"""How a session is built."""

from pathlib import Path

import pytest

from nncfx.errors import ArgumentError
from nncfx.runtimes import BuildOptions


def test_no_threads_at_all_are_refused() -> None:
    with pytest.raises(ArgumentError, match="threads is 0; a session needs at least 1"):
        BuildOptions(threads=0)


def test_a_cache_may_be_named_by_a_text() -> None:
    assert BuildOptions(cache="folder").cache == Path("folder")  # type: ignore[arg-type]  # on purpose
