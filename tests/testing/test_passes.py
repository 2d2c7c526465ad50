"""The suite for passes of the export: nncfx's own keep its promises, and each promise bites."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from nncfx.export import PASSES, Draft, ExportPass
from nncfx.export.ir.graph_edits import add_constant
from nncfx.targets import target_named
from nncfx.testing import PASS_PROMISES, PassSubject
from nncfx.testing.passes import (
    inputs_and_outputs_stay,
    it_changes_a_model,
    values_stay,
    what_it_ensures_holds,
)


class Joined(nn.Module):
    """A clamped result joined with negative numbers, and one read in integers and in float."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)
        self.joint = nn.Conv2d(16, 16, 1)
        self.read, self.refine = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.first(x).relu(), self.second(x)], 1)
        x = self.joint(x)
        features = self.read(x.mean((2, 3)))
        return features.exp() + self.refine(features)


def joined() -> nn.Module:
    torch.manual_seed(0)
    return Joined().eval()


def copy_of(name: str) -> ExportPass:
    (one,) = (one for one in PASSES if one.name == name)
    return replace(one, name=f"{name}_again", applies=lambda _: True)


WITHOUT = replace(
    target_named("onnxruntime"), name="plain", workarounds=(), space_to_depth_stem=False
)
OWN = {
    name: PassSubject(
        export_pass=copy_of(name), before=before, model=joined, target=WITHOUT, tolerance=1e-6
    )
    for name, before in (
        ("clamp_by_quantizers", "quantize_silu"),
        ("add_fusion_barriers", "remove_unused"),
    )
}


@pytest.mark.parametrize("promise", PASS_PROMISES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", OWN)
def test_passes_of_nncfx_keep_the_promise(
    name: str, promise: Callable[[PassSubject], None]
) -> None:
    promise(OWN[name])


def does_nothing(draft: Draft) -> None:
    del draft


def doubles(draft: Draft) -> None:
    graph = draft.graph
    (output,) = graph.outputs
    last = output.producer()
    assert last is not None
    source = last.inputs[0]
    assert source is not None
    two = add_constant(graph, "two", np.float32(2))
    node = ir.node("Mul", [source, two])
    graph.insert_before(last, node)
    last.replace_input_with(0, node.outputs[0])


def renames(draft: Draft) -> None:
    draft.graph.inputs[0].name = "other"


def narrows(draft: Draft) -> None:
    last = draft.graph.outputs[0].producer()
    assert last is not None
    source = last.inputs[0]
    assert source is not None
    narrow = ir.node("Cast", [source], {"to": int(ir.DataType.FLOAT16)})
    wide = ir.node("Cast", [narrow.outputs[0]], {"to": int(ir.DataType.FLOAT)})
    narrow.outputs[0].type = ir.TensorType(ir.DataType.FLOAT16)
    draft.graph.insert_before(last, [narrow, wide])
    last.replace_input_with(0, wide.outputs[0])


@pytest.mark.parametrize(
    ("promise", "run"),
    [
        (it_changes_a_model, does_nothing),
        (values_stay, doubles),
        (inputs_and_outputs_stay, renames),
        (what_it_ensures_holds, narrows),
    ],
)
def test_a_pass_that_breaks_the_promise_is_found(
    promise: Callable[[PassSubject], None], run: Callable[[Draft], None]
) -> None:
    one = ExportPass(
        name="broken",
        reason="to be found",
        run=run,
        always=True,
        ensures=("quantized in float32",),
    )
    subject = PassSubject(
        export_pass=one,
        before="remove_unused",
        model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.Softmax(1)).eval(),
    )
    with pytest.raises(AssertionError):
        promise(subject)
