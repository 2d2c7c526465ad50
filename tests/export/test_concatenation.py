"""What reads a concatenation of integers reads integers, past splits and shuffles."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import nncfx
from nncfx.export import export_onnx, qdq_violations
from nncfx.runtimes import integer_kernels
from onnx_files import run_file


class Shuffled(nn.Module):
    """Two units of ShuffleNet V2: half of the channels pass by, then all are interleaved."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.units = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for unit in self.units:
            passing, read = x.chunk(2, 1)
            x = torch.cat((passing, torch.relu(unit(read))), 1)
            shape = x.shape
            x = x.view(shape[0], 2, 4, *shape[2:]).transpose(1, 2).reshape(shape)
        return torch.relu(self.head(x)).mean((2, 3))


def test_every_convolution_behind_a_concatenation_runs_in_integers(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    model = nncfx.quantize(Shuffled(), [x])
    path = export_onnx(model, tmp_path / "m.onnx", x).path
    assert qdq_violations(path) == ()
    kernels = integer_kernels(path, x)
    assert len(kernels.integer) == 4
    assert kernels.float == ()
    assert kernels.operators["QLinearConcat"] == 2
    (found,) = run_file(path, x)
    # means of 64 positions: a tie here and there is less than a step of the output
    expected = model(x).detach().numpy()
    assert np.abs(found - expected).max() <= np.abs(expected).max() / 255 * 1.001
