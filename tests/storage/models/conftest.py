"""A group of one process, for models in shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import distributed as dist


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/one", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
