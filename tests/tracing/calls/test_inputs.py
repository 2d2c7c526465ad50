"""Inputs by order, by name, and both together, mean the same everywhere."""

from pathlib import Path

import torch
from torch import Tensor, nn

import nncfx
from nncfx.tracing import as_call, run
from onnx_files import run_file


class Masked(nn.Module):
    """Takes one input by order, and one by name alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)) * mask)


BOTH = ((torch.ones(3, 4),), {"mask": torch.full((3, 4), 2.0)})


def test_a_tuple_and_a_mapping_are_order_and_names() -> None:
    assert as_call(BOTH) == BOTH
    # two positional inputs stay what they are, the second a tuple or a mapping
    pair = (torch.ones(1), (torch.ones(1), torch.ones(1)))
    assert as_call(pair) == (pair, {})
    behind = (torch.ones(1), {"mask": torch.ones(1)})
    assert as_call(behind) == (behind, {})


def test_both_together_are_traced_exported_saved_and_timed(tmp_path: Path) -> None:
    model = Masked().eval()
    expected = model(*BOTH[0], **BOTH[1])
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", BOTH)
    assert file.inputs == ("x", "mask")
    assert torch.allclose(torch.as_tensor(run_file(file, BOTH)[0]), expected, atol=1e-6)
    assert nncfx.trace(model, BOTH).addresses[-1] == "Masked/Linear[last]/linear_0"
    nncfx.save(tmp_path / "m.safetensors", nncfx.wrap(model, BOTH))
    read = nncfx.load(tmp_path / "m.safetensors", Masked())[1]
    assert torch.equal(read.eval()(*BOTH[0], **BOTH[1]), expected)


class Scaling(nn.Module):
    """Writes to its input, as networks for super-resolution scale their images."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x *= 255
        return self.layer(x)


def test_inputs_that_a_forward_writes_to_stay_as_they_are(tmp_path: Path) -> None:
    inputs, model = torch.rand(2, 4), Scaling()
    before, expected = inputs.clone(), model(inputs.clone())
    small = nncfx.quantize(model, [inputs])
    assert torch.equal(inputs, before)
    torch.testing.assert_close(small(inputs.clone()), expected, rtol=0.1, atol=1.0)
    nncfx.export_onnx(small, tmp_path / "small.onnx", inputs)
    assert torch.equal(inputs, before)
    assert torch.equal(run(model, inputs), expected)
    assert torch.equal(inputs, before)
