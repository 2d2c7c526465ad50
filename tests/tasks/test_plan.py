"""A plan is what would happen: the hooks of the builders, sizes by counting."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nncfx.tasks import plan_task, read_task

Write = Callable[..., Path]
CONV = (9 * 8 * 36, 8 * 9 * 8 * 16, 16)
"""MACs of the two convolutions and of the linear layer, by hand."""


def test_the_plan_of_algorithms_names_sites_and_priorities(write: Write, tmp_path: Path) -> None:
    compression = [
        {"algorithm": "quantization"},
        {"algorithm": "magnitude_sparsity", "params": {"sparsity_target": 0.5}},
    ]
    before = set(tmp_path.iterdir())
    plan = plan_task(read_task(write(compression=compression)))
    priorities = {(one.algorithm, one.priority) for one in plan.hooks}
    assert priorities == {("magnitude_sparsity", 3), ("quantization", 11)}
    assert "2.weight" in {one.site for one in plan.hooks if one.algorithm == "magnitude_sparsity"}
    dense, last = plan.predictions
    assert dense.macs == last.macs == sum(CONV)
    assert last.file_bytes < 0.6 * dense.file_bytes
    assert {one.name for one in tmp_path.iterdir()} - {one.name for one in before} <= {
        "net.py", "task.json", "__pycache__",
    }  # fmt: skip


def test_the_plan_of_a_search_counts_what_levels_leave(
    write: Write, search: dict[str, Any]
) -> None:
    plan = plan_task(read_task(write(search=search)))
    at = {one.at: one for one in plan.predictions}
    assert at["dense"].macs == sum(CONV)
    # half of both layers' channels: a half of the first and the last, a quarter of the second
    assert at["level 0.5"].macs == CONV[0] // 2 + CONV[1] // 4 + CONV[2] // 2
    assert "at most 2 stages of 2 trials" in plan.stages[0]
