"""`export_onnx` writes what the model infers, leaves the model alone and says what went wrong."""

import copy
import dataclasses
import logging
import os
import pickle
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

import nncfx
import nncfx.network
from nncfx.errors import ArgumentError, ExportError, MissingExtraError, StorageError
from nncfx.export import ExportResult, export_onnx
from nncfx.quantization import integer_arithmetic
from onnx_files import run_file
from small_models import Function

# float32: a unit roundoff of 6e-8 times a dot product of 72 terms, twice in a row.
RELATIVE = 1e-5


class Difference(nn.Module):
    """Two inputs of one shape."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - 2 * b


class TwoInputs(nn.Module):
    """Named inputs, a constant size, a mapping as output."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 3)
        self.right = nn.Linear(2, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        total = self.left(a) + self.right(b)
        return {"logits": total, "score": total.sum(1)}


class TakesAMapping(nn.Module):
    """A scale, then a mapping of tensors as the last positional input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = TwoInputs()

    def forward(self, scale: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self.inner(**batch)["logits"]
        return scale * logits


class BranchOnValues(nn.Module):
    """What the exporter cannot follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x


class NoOnnxForm(nn.Module):
    """An operation that ONNX has not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x).real


class FixedBatch(nn.Module):
    """A batch of two, whatever comes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 4) * 2


class Halved(nn.Module):
    """A hook that halves."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 0.5


def session_of(result: ExportResult) -> Any:  # noqa: ANN401 (onnxruntime has no types)
    return onnxruntime.InferenceSession(result.path, providers=["CPUExecutionProvider"])


def assert_agree(outputs: list[np.ndarray], expected: list[torch.Tensor]) -> None:
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected, strict=True):
        scale = wanted.abs().max().item()
        np.testing.assert_allclose(output, wanted.detach().numpy(), atol=RELATIVE * scale)


def test_onnx_runtime_computes_what_the_model_infers(
    small_model: nn.Module, small_inputs: torch.Tensor, small_result: ExportResult
) -> None:
    expected = small_model.eval()(small_inputs)
    assert_agree(session_of(small_result).run(None, {"x": small_inputs.numpy()}), [expected])


def test_the_onnx_reference_computes_what_the_model_infers(
    small_model: nn.Module, small_inputs: torch.Tensor, small_result: ExportResult
) -> None:
    evaluator = ReferenceEvaluator(str(small_result.path))
    expected = small_model.eval()(small_inputs)
    assert_agree(evaluator.run(None, {"x": small_inputs.numpy()}), [expected])


def test_the_batch_is_open_although_the_example_holds_one(
    small_model: nn.Module, small_result: ExportResult
) -> None:
    inputs = torch.randn(5, 3, 8, 8)
    expected = small_model.eval()(inputs)
    assert_agree(session_of(small_result).run(None, {"x": inputs.numpy()}), [expected])


def test_batch_norms_are_folded_into_their_convolutions(small_result: ExportResult) -> None:
    kinds = [node.op_type for node in onnx.load(small_result.path).graph.node]
    assert "BatchNormalization" not in kinds
    assert kinds.count("Conv") == 2


def test_the_result_stands_for_its_path_and_knows_its_size(small_result: ExportResult) -> None:
    assert Path(small_result) == small_result.path
    assert small_result.size_bytes == small_result.path.stat().st_size
    assert (small_result.inputs, small_result.outputs) == (("x",), ("output",))


def test_the_file_tells_nothing_of_the_machine_that_wrote_it(small_result: ExportResult) -> None:
    data = small_result.path.read_bytes()
    assert os.fsencode(Path(__file__).parent) not in data
    assert b"site-packages" not in data


def test_exporting_twice_gives_the_same_bytes(
    small_model: nn.Module, small_inputs: torch.Tensor, small_result: ExportResult, tmp_path: Path
) -> None:
    again = export_onnx(small_model, tmp_path / "again.onnx", small_inputs)
    assert again.path.read_bytes() == small_result.path.read_bytes()


def test_a_model_whose_export_fails_gets_its_mode_back(tmp_path: Path) -> None:
    model = NoOnnxForm().train()
    with pytest.raises(ExportError):
        export_onnx(model, tmp_path / "m.onnx", torch.randn(2, 3, 3))
    assert model.training


def test_keyword_inputs_and_mapped_outputs_keep_their_names(tmp_path: Path) -> None:
    model = TwoInputs().eval()
    inputs = {"a": torch.randn(2, 4), "b": torch.randn(2, 2)}
    result = export_onnx(model, tmp_path / "m.onnx", inputs)
    assert (result.inputs, result.outputs) == (("a", "b"), ("logits", "score"))
    more = {"a": torch.randn(7, 4), "b": torch.randn(7, 2)}
    outputs = session_of(result).run(None, {name: x.numpy() for name, x in more.items()})
    assert_agree(outputs, list(model(**more).values()))


@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_a_mapping_at_the_end_is_one_input_and_not_keywords(
    tmp_path: Path, *, dynamic_batch: bool
) -> None:
    model = TakesAMapping().eval()
    scale, batch = torch.randn(2, 3), {"a": torch.randn(2, 4), "b": torch.randn(2, 2)}
    inputs = (scale, batch)
    result = export_onnx(model, tmp_path / "m.onnx", inputs, dynamic_batch=dynamic_batch)
    fed = dict(zip(result.inputs, (scale, *batch.values()), strict=True))
    outputs = session_of(result).run(None, {name: x.numpy() for name, x in fed.items()})
    assert_agree(outputs, [model(*inputs)])


def test_fixed_shapes_are_written_when_the_batch_is_not_to_stay_open(tmp_path: Path) -> None:
    inputs = torch.randn(2, 4)
    result = export_onnx(FixedBatch(), tmp_path / "m.onnx", inputs, dynamic_batch=False)
    assert session_of(result).get_inputs()[0].shape == [2, 4]


class Upsampling(nn.Module):
    """A network for images of any size, which also reads a size from a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, image: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.relu(self.first(image))) * scale
        return nn.functional.interpolate(y, size=image.shape[2:], mode="bilinear")


@pytest.mark.parametrize("dynamic_batch", [True, False])
@pytest.mark.parametrize("is_quantized", [True, False])
def test_axes_that_are_asked_for_stay_open(
    dynamic_batch: bool, is_quantized: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model: nn.Module = Upsampling().eval()
    example = torch.randn(2, 3, 16, 16), torch.ones(1)
    if is_quantized:
        model = nncfx.quantize(model, [(example, 0)], target="onnxruntime_avx2")
    file = export_onnx(
        model,
        tmp_path / "x.onnx",
        example,
        "onnxruntime_avx2",
        dynamic_batch=dynamic_batch,
        dynamic_axes={"image": {2: "height", -1: "width"}},
    )
    session = session_of(file)
    batch = "batch" if dynamic_batch else 2
    assert session.get_inputs()[0].shape == [batch, 3, "height", "width"]
    image = torch.randn(2, 3, 32, 24)
    (got,) = session.run(None, {"image": image.numpy(), "scale": example[1].numpy()})
    with integer_arithmetic(model) if is_quantized else nullcontext():
        torch.testing.assert_close(torch.from_numpy(got), model(image, example[1]))


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("dynamic_axes", {"imag": {2: "height"}}, "'imag', which is not.* Did you mean 'image'"),
        ("dynamic_axes", {"image": {4: "depth"}}, r"axis 4 of 'image', .* \(2, 3, 16, 16\)"),
        ("dynamic_axes", {"scale": {0: "more"}}, "axis 0 of 'scale', .* at least 2 long"),
        ("input_names", ["x"], "input_names has 1 names, and the graph has 2: image, scale"),
        ("input_names", ["x", "x"], "give 'x' twice"),
        ("output_names", ["scale"], "give 'scale' twice"),
    ],
)
def test_axes_and_names_that_do_not_fit_are_refused(
    kind: str, value: object, said: str, tmp_path: Path
) -> None:
    example = torch.randn(2, 3, 16, 16), torch.ones(1)
    with pytest.raises(ArgumentError, match=said):
        export_onnx(Upsampling(), tmp_path / "x.onnx", example, **{kind: value})
    assert not list(tmp_path.iterdir())


class Pairs(nn.Module):
    """An argument that holds tensors."""

    def forward(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        return torch.cat([left * right for left, right in pairs], 1)


def test_names_and_axes_of_tensors_in_a_list(tmp_path: Path) -> None:
    pairs = [(torch.randn(2, 5), torch.randn(2, 5)) for _ in range(2)]
    names = ["a.left", "a.right", "b.left", "b.right"]
    file = export_onnx(
        Pairs(),
        tmp_path / "x.onnx",
        (pairs,),
        dynamic_axes={"pairs": {1: "width"}},
        input_names=names,
        output_names=["products"],
    )
    assert file.inputs == tuple(names)
    assert file.outputs == ("products",)
    session = session_of(file)
    assert [one.shape for one in session.get_inputs()] == [["batch", "width"]] * 4
    rows = np.arange(12, dtype=np.float32).reshape(4, 1, 3)
    (got,) = session.run(None, dict(zip(names, rows, strict=True)))
    assert got.tolist() == [[0, 4, 10, 54, 70, 88]]


def test_an_axis_that_the_model_fixes_is_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
    with pytest.raises(ExportError, match="cannot be exported"):
        export_onnx(
            model, tmp_path / "x.onnx", torch.randn(2, 3, 8, 8), dynamic_axes={"input": {2: "h"}}
        )


@pytest.mark.parametrize(
    ("site", "operations"),
    [
        (nncfx.tracing.WeightSite.of("0.weight"), ["Gemm", "Relu"]),
        (nncfx.tracing.PostSite("Sequential/ReLU[1]/relu_0"), ["Gemm", "Relu", "Mul"]),
    ],
)
def test_hooks_are_exported_as_what_they_compute_those_of_weights_baked_in(
    site: nncfx.tracing.Site, operations: list[str], tmp_path: Path
) -> None:
    inputs = torch.randn(2, 4)
    model = nncfx.network.wrap(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), inputs)
    model.nncf.register([nncfx.tracing.Insertion(site, Halved(), 0, "halving")])
    model.nncf.commit()
    result = export_onnx(model, tmp_path / "m.onnx", inputs)
    assert_agree(session_of(result).run(None, {"input": inputs.numpy()}), [model(inputs)])
    assert [node.op_type for node in onnx.load(result.path).graph.node] == operations
    assert result.modules["1/Relu"] == "1"


def test_stages_alone_are_logged_and_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        export_onnx(nn.Linear(4, 3), tmp_path / "m.onnx", torch.randn(2, 4))
    assert capfd.readouterr() == ("", "")
    assert [one.getMessage() for one in caplog.records] == [
        "export: capturing Linear",
        "export: translating to ONNX operators",
        "export: giving operators the form for onnxruntime",
    ]


def test_an_operation_without_onnx_form_is_named_with_its_line(tmp_path: Path) -> None:
    line = rf"{re.escape(__file__)}:\d+ in forward, `return torch\.linalg\.eigvals"
    said = rf"NoOnnxForm .* operation 'aten\.linalg_eig' at {line}.* has no ONNX form"
    with pytest.raises(ExportError, match=said):
        export_onnx(NoOnnxForm(), tmp_path / "m.onnx", torch.randn(2, 3, 3))
    assert list(tmp_path.iterdir()) == []


def test_a_branch_on_values_is_named_with_its_line(tmp_path: Path) -> None:
    here = re.escape(__file__)
    with pytest.raises(ExportError, match=rf"branches on .* at {here}:\d+ in forward, `if x.sum"):
        export_onnx(BranchOnValues(), tmp_path / "m.onnx", torch.randn(2, 4))


def test_a_batch_that_the_model_fixes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"FixedBatch .* fixes the batch of input 'x'.*False"):
        export_onnx(FixedBatch(), tmp_path / "m.onnx", torch.randn(2, 4))


def test_inputs_on_which_the_model_does_not_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Linear does not run on the example inputs"):
        export_onnx(nn.Linear(4, 3), tmp_path / "m.onnx", torch.randn(2, 5))
    with pytest.raises(ArgumentError, match="cannot be exported: 'weight' is on meta"):
        export_onnx(nn.Linear(4, 3, device="meta"), tmp_path / "m.onnx", torch.randn(2, 4))


def test_what_was_written_can_be_pickled_and_copied(tmp_path: Path) -> None:
    result = export_onnx(nn.Linear(4, 3), tmp_path / "m.onnx", torch.randn(2, 4))
    assert copy.deepcopy(result) == result == pickle.loads(pickle.dumps(result))  # noqa: S301 (own)
    assert dataclasses.asdict(result)["modules"] == result.modules


def test_an_output_that_is_a_constant_is_written(tmp_path: Path) -> None:
    """As the temperature of CLIP."""
    model = Function(
        lambda m, x: {"scores": m.layer(x), "scale": m.temperature.exp()},
        layer=nn.Linear(4, 3),
        temperature=nn.Parameter(torch.tensor(0.5)),
    ).eval()
    inputs = torch.randn(2, 4)
    found = export_onnx(model, tmp_path / "m.onnx", inputs)
    assert found.outputs == ("scores", "scale")
    _, scale = run_file(found, inputs)
    torch.testing.assert_close(torch.from_numpy(scale), torch.tensor(0.5).exp())


class Folding(nn.Module):
    """Two branches that each forward in eval mode folds into one weight, as those of SPAN."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.folded = (nn.Conv2d(3, 3, 1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.folded.weight.data = self.wide.weight + self.narrow.weight
        return self.folded(x)


def test_a_forward_that_sets_a_weight_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"Folding sets the data of 'folded\.weight'"):
        export_onnx(Folding(), tmp_path / "m.onnx", torch.randn(1, 3, 4, 4))


def test_an_lstm_that_projects_its_state_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 8, proj_size=2))
    message = r"'1' is an LSTM with proj_size=2, and ONNX's LSTM has no projection .* proj_size=0"
    with pytest.raises(ExportError, match=message):
        export_onnx(model, tmp_path / "m.onnx", torch.ones(3, 1, 4))
    assert not list(tmp_path.iterdir())


def test_a_folder_in_place_of_the_file_is_refused_before_anything_is_traced(
    tmp_path: Path,
) -> None:
    with pytest.raises(StorageError, match="' is a folder"):
        export_onnx(nn.Linear(2, 2), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opset", [17, 24])
def test_an_operator_set_that_the_target_does_not_read_is_refused(
    tmp_path: Path, opset: int
) -> None:
    with pytest.raises(ArgumentError, match=f"opset {opset} cannot be written for 'onnxruntime'"):
        export_onnx(nn.Linear(4, 3), tmp_path / "m.onnx", torch.randn(2, 4), opset=opset)


def test_the_operator_set_asked_for_is_written(tmp_path: Path) -> None:
    result = export_onnx(nn.Linear(4, 3), tmp_path / "m.onnx", torch.randn(2, 4), opset=18)
    assert result.opset == 18
    assert onnx.load(result.path).opset_import[0].version == 18


def test_weights_in_a_file_of_their_own_are_found_from_where_the_model_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a small limit stands in for a large model
    limit = "nncfx.export.ir.onnx_writer._ONE_FILE"
    monkeypatch.setattr(limit, 1000)
    model, inputs = nn.Linear(64, 64).eval(), torch.randn(2, 64)
    result = export_onnx(model, tmp_path / "m.onnx", inputs)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert result.size_bytes > 64 * 64 * 4
    assert_agree(session_of(result).run(None, {"input": inputs.numpy()}), [model(inputs)])


def test_a_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"'onnxscript' .* 'nncfx\[export\]'"):
        export_onnx(nn.Linear(4, 3), tmp_path / "m.onnx", torch.randn(2, 4))


def test_a_model_quantized_for_a_target_is_exported_for_it(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(8, 4)
    quantized = nncfx.quantize(model, [x], target="tensorrt")
    nncfx.save(tmp_path / "model.safetensors", quantized)
    _, loaded = nncfx.load(tmp_path / "model.safetensors", copy.deepcopy(model))
    asked = export_onnx(quantized, tmp_path / "asked.onnx", x, "tensorrt")
    for number, one in enumerate((quantized, loaded)):
        file = export_onnx(one, tmp_path / f"{number}.onnx", x)
        assert file.target == "tensorrt"
        assert file.path.read_bytes() == asked.path.read_bytes()
    recorded = {one.key: one.value for one in onnx.load(asked.path).metadata_props}
    assert recorded["nncfx.target"] == "tensorrt"
    assert export_onnx(quantized, tmp_path / "other.onnx", x, "onnxruntime").target != "tensorrt"
    assert export_onnx(model, tmp_path / "float.onnx", x).target == "onnxruntime"


class Streaming(nn.Module):
    """A recurrent layer with its state beside the input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 5, batch_first=True)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found: tuple[torch.Tensor, torch.Tensor] = self.layer(x, state)
        return found


def test_the_batch_of_a_state_is_named_where_it_is_another_axis(tmp_path: Path) -> None:
    inputs = (torch.randn(3, 6, 4), torch.zeros(1, 3, 5))
    with pytest.raises(ExportError, match=r"dynamic_axes=\{'state': \{1: 'batch'\}\}"):
        export_onnx(Streaming().eval(), tmp_path / "m.onnx", inputs)
    axes = {"state": {1: "batch"}}
    file = export_onnx(Streaming().eval(), tmp_path / "m.onnx", inputs, dynamic_axes=axes)
    assert file.inputs == ("x", "state")


@pytest.mark.parametrize("is_quantized", [True, False])
def test_a_weight_that_a_parametrization_computes_is_a_constant(
    is_quantized: bool, tmp_path: Path
) -> None:
    """The exponential of a matrix, which keeps this one orthogonal, has no ONNX form."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(orthogonal(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 4))
    example = torch.randn(16, 8)
    if is_quantized:
        model = nncfx.quantize(model.eval(), [(example, 0)], target="onnxruntime_avx2")
    file = export_onnx(model.eval(), tmp_path / "x.onnx", example)
    (got,) = session_of(file).run(None, {"input": example.numpy()})
    with integer_arithmetic(model) if is_quantized else nullcontext():
        torch.testing.assert_close(torch.from_numpy(got), model(example))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dynamic_batch", [True, False])
def test_a_tensor_given_twice_is_two_inputs(
    batch: int, dynamic_batch: bool, tmp_path: Path
) -> None:
    """As people give an example to both arms of a siamese network."""
    a, b = torch.randn(2, batch, 4)
    file = export_onnx(Difference(), tmp_path / "m.onnx", (a, a), dynamic_batch=dynamic_batch)
    (got,) = session_of(file).run(None, {"a": a.numpy(), "b": b.numpy()})
    assert got.tolist() == (a - 2 * b).tolist()
