"""Memory of a model in a process of its own."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import RuntimeFailure
from nncfx.export import ExportResult, export_onnx
from nncfx.runtimes import memory_use

MIB = 2**20


def test_a_file_takes_at_least_its_weights(tmp_path: Path) -> None:
    wide = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    inputs = torch.ones(1, 2048)
    use = memory_use(export_onnx(wide, tmp_path / "wide.onnx", inputs), inputs)
    # 2 * 2048^2 weights of 4 bytes are 32 MiB; while loading there may be more than one copy.
    assert 32 * MIB < use.build_bytes < 160 * MIB
    assert use.run_bytes >= 32 * MIB


def test_a_module_takes_its_weights_and_what_it_computes() -> None:
    # 16 MiB of weights, and an output of 32 MiB.
    use = memory_use(nn.Linear(2048, 2048), torch.ones(4096, 2048), "torch")
    assert 16 * MIB <= use.build_bytes < 24 * MIB
    assert 40 * MIB < use.run_bytes < 160 * MIB


def test_inputs_that_are_refused_are_told(exported: ExportResult) -> None:
    with pytest.raises(RuntimeFailure, match=r"cannot be measured: .*has shape"):
        memory_use(exported, torch.ones(1, 4, 8, 8))
