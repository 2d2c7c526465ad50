"""The promises of every export pass, for passes of other packages and for nncfx's own.

Each promise is a function of a `PassSubject` that raises `AssertionError` if it is broken.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from nncfx.export import export_onnx, register_export_pass, unregister_export_pass
from nncfx.export.ir.export_pass import ExportPass
from nncfx.export.ir.graph_properties import GRAPH_PROPERTIES
from nncfx.quantization import quantize
from nncfx.targets import Target
from nncfx.testing.models import ConvAttentionNet, example_inputs

if TYPE_CHECKING:
    import onnx

__all__ = ["PASS_PROMISES", "PassSubject"]


@dataclass(frozen=True, kw_only=True)
class PassSubject:
    """A pass, its position, and a model that it changes.

    Attributes:
        export_pass: The pass.
        before: The pass of nncfx before which it runs.
        model: Returns a model that the pass changes, in evaluation mode.
        inputs: Inputs of the model.
        target: The target of the files.
        tolerance: How much outputs may differ, relative to the largest; 0 requires the same bits.
    """

    export_pass: ExportPass
    before: str
    model: Callable[[], nn.Module] = ConvAttentionNet.fresh
    inputs: Tensor = field(default_factory=example_inputs)
    target: str | Target = "onnxruntime"
    tolerance: float = 0.0

    @cached_property
    def files(self) -> "list[tuple[onnx.ModelProto, onnx.ModelProto]]":
        """Return, for the model in float and quantized, its file without and with the pass."""
        pairs = []
        for model in (self.model(), quantize(self.model(), [self.inputs])):
            without = self._exported(model)
            register_export_pass(self.export_pass, before=self.before)
            try:
                pairs.append((without, self._exported(model)))
            finally:
                unregister_export_pass(self.export_pass.name)
        return pairs

    def _exported(self, model: nn.Module) -> "onnx.ModelProto":
        import onnx

        with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
            path = Path(folder, "m.onnx")
            return onnx.load(export_onnx(model, path, self.inputs, self.target).path)


def it_changes_a_model(subject: PassSubject) -> None:
    """Otherwise the other promises prove nothing."""
    changes = any(_nodes(without) != _nodes(after) for without, after in subject.files)
    assert changes, (
        f"'{subject.export_pass.name}' changed neither the model nor its quantized form"
    )


def values_stay(subject: PassSubject) -> None:
    """Every operation is computed separately, without the runtime's fusions."""
    for without, after in subject.files:
        for one, other in zip(_run(without, subject), _run(after, subject), strict=True):
            limit = subject.tolerance * float(np.abs(one).max())
            np.testing.assert_allclose(other, one, rtol=0, atol=limit)


def inputs_and_outputs_stay(subject: PassSubject) -> None:
    """Names, types and axes."""
    for without, after in subject.files:
        assert list(after.graph.input) == list(without.graph.input), "other inputs"
        assert list(after.graph.output) == list(without.graph.output), "other outputs"


def what_it_ensures_holds(subject: PassSubject) -> None:
    import onnx_ir as ir

    for _, after in subject.files:
        graph = ir.from_proto(after).graph
        for name in subject.export_pass.ensures:
            assert not (faults := GRAPH_PROPERTIES[name](graph)), f"{name}: {faults}"


PASS_PROMISES: Final[tuple[Callable[[PassSubject], None], ...]] = (
    it_changes_a_model,
    values_stay,
    inputs_and_outputs_stay,
    what_it_ensures_holds,
)
"""All promises; each is named after what it promises."""


def _nodes(model: "onnx.ModelProto") -> list[tuple[str, list[str], list[bytes]]]:
    return [
        (one.op_type, list(one.input), [each.SerializeToString() for each in one.attribute])
        for one in model.graph.node
    ]


def _run(model: "onnx.ModelProto", subject: PassSubject) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (name,) = (one.name for one in session.get_inputs())
    with torch.no_grad():
        return list(session.run(None, {name: subject.inputs.numpy()}))
