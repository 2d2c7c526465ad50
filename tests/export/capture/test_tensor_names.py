"""Open axes of outputs have names that people can read, and that say which sizes are equal."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import nncfx
from nncfx.export import export_onnx
from nncfx.runtimes import BuildOptions, runtime_named


class Strided(nn.Module):
    """Half of the pixels twice, and all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.strided = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.plain = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half = self.strided(image)
        return half, torch.relu(half), self.plain(image)


def shapes_of(path: Path) -> list[list[int | str]]:
    """As `onnx` reads them from the file."""
    return [
        [axis.dim_param or axis.dim_value for axis in one.type.tensor_type.shape.dim]
        for one in onnx.load(path).graph.output
    ]


@pytest.mark.parametrize("is_quantized", [True, False])
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_an_axis_is_called_like_the_one_it_equals_or_by_its_place(
    is_quantized: bool, runtime: str, tmp_path: Path
) -> None:
    pytest.importorskip(runtime)
    torch.manual_seed(0)
    model: nn.Module = Strided().eval()
    example = torch.randn(2, 3, 16, 12)
    if is_quantized:
        model = nncfx.quantize(model, [example], target=runtime, weight_bits=7)
    axes = {"image": {2: "height", 3: "width"}}
    file = export_onnx(
        model,
        tmp_path / "m.onnx",
        example,
        runtime,
        dynamic_axes=axes,
        output_names=["a", "b", "c"],
    )
    assert shapes_of(file.path) == [
        ["batch", 4, "a_dim_2", "a_dim_3"],
        ["batch", 4, "a_dim_2", "a_dim_3"],
        ["batch", 2, "height", "width"],
    ]
    with runtime_named(runtime).build(file, BuildOptions(threads=1)) as session:
        for height, width in ((8, 20), (17, 9)):
            image = torch.randn(3, 3, height, width)
            for found, expected in zip(session.run(image), model(image), strict=True):
                # some steps of the outputs, which differ in the last place before rounding
                tolerance = 0.1 if is_quantized else 1e-5
                np.testing.assert_allclose(found, expected.detach().numpy(), atol=tolerance)
