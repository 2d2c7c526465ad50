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


@pytest.mark.parametrize("is_named", [True, False])
def test_an_input_that_is_returned_keeps_its_name(is_named: bool, tmp_path: Path) -> None:
    """As models of audio and language return the mask that they are given."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> object:
            y = self.layer(x) * mask
            return {"y": y, "mask": mask} if is_named else (y, mask, mask)

    model = Masked()
    x, mask = torch.randn(2, 4), torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    file = export_onnx(model, tmp_path / "m.onnx", (x, mask), dynamic_axes={"mask": {0: "batch"}})
    assert file.inputs == ("x", "mask")
    assert file.outputs[:2] == (("y", "mask_output") if is_named else ("output_0", "output_1"))
    with runtime_named("onnxruntime").build(file.path, BuildOptions(threads=1)) as session:
        y, *others = session.run({"x": x, "mask": mask})
    with torch.no_grad():
        np.testing.assert_allclose(y, model.layer(x) * mask, atol=1e-6)
    assert all(np.array_equal(one, mask) for one in others)
