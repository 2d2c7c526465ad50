"""How a session is built."""

import pytest

from nncfx.errors import ArgumentError
from nncfx.runtimes import BuildOptions


def test_no_threads_at_all_are_refused() -> None:
    with pytest.raises(ArgumentError, match="threads is 0; a session needs at least 1"):
        BuildOptions(threads=0)
