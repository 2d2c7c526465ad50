"""Widths of groups that stay."""

import torch

from nncfx.schemes import keep_groups
from nncfx.targets import TARGETS


def test_a_target_is_asked_for_by_its_name() -> None:
    scores = [torch.rand(64, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    alignment = TARGETS["onnxruntime"].alignment
    assert alignment is not None
    by_name = keep_groups(scores, 0.4, align="onnxruntime")
    for one in (alignment, TARGETS["onnxruntime"], [alignment] * 2):
        for mask, expected in zip(keep_groups(scores, 0.4, align=one), by_name, strict=True):
            assert torch.equal(mask, expected)
