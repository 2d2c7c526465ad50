"""A model is captured as torch's exporter captures it, with equal calls in exportable form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from nncfx.errors import ExportError
from nncfx.export import export_onnx
from nncfx.export.capture.captured_program import captured_program
from nncfx.quantization import QuantizeOptions, quantize
from nncfx.tracing.hooks import spelled_functions
from onnx_files import assert_file_agrees, run_file


class _Einsum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert torch.onnx.is_in_onnx_export()
        return torch.einsum("bij,bjk->bik", x, y)


class _Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_calls_are_exportable() -> None:
    call = ((torch.randn(2, 3, 4), torch.randn(2, 4, 5)), {})
    program = captured_program(_Einsum(), call, {"x": {0: "batch"}, "y": {0: "batch"}})
    assert program is not None
    targets = [str(node.target) for node in program.graph.nodes]
    assert "aten.matmul.default" in targets
    assert "aten.einsum.default" not in targets
    assert not torch.onnx.is_in_onnx_export()


def test_what_cannot_be_captured_is_left_to_torch() -> None:
    assert captured_program(_Branches(), ((torch.randn(2),), {}), None) is None


class _Windows(nn.Module):
    """Two windows of each image, and back, as Swin writes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        windows = x.reshape(-1, 2, 4)
        batch = int(windows.shape[0] / (4 / 2))
        images = windows.view(batch, 2, 2, -1).transpose(1, 2)
        return x + images.reshape(-1, 4, 4)


@pytest.mark.parametrize("examples", [1, 2])
def test_a_batch_that_int_fixes_is_refused(examples: int, tmp_path: Path) -> None:
    message = r"_Windows cannot .* fixes the batch, .* by int\(\) .* dynamic_batch=False"
    inputs = torch.randn(examples, 4, 4)
    with pytest.raises(ExportError, match=message):
        export_onnx(_Windows(), tmp_path / "m.onnx", inputs)
    export_onnx(_Windows(), tmp_path / "m.onnx", inputs, dynamic_batch=False)


class _Lengths(nn.Module):
    """It asks tensors for their length, which Python wants to be a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.reshape(len(x), -1)).relu()


@pytest.mark.parametrize("is_quantized", [False, True])
def test_a_length_leaves_the_batch_open(is_quantized: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)
    options = QuantizeOptions(overflow_fix="enable")
    model = quantize(_Lengths(), [x], options=options) if is_quantized else _Lengths()
    path = export_onnx(model, tmp_path / "m.onnx", x).path
    for examples in (1, 3):
        x = torch.randn(examples, 3, 4)
        # of the int8 model, integers of biases are rounded
        assert_file_agrees(path, model, (x,), atol=1e-4, rtol=1e-3)


class _Fixed(_Lengths):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.reshape(2, 3, 4))


def test_code_that_fixes_the_batch_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, modes = torch.export.export, list[bool]()

    def counted(model: nn.Module, args: Any, **options: Any) -> Any:  # noqa: ANN401 (passed on)
        modes.append(options["strict"])
        return captured(model, args, **options)

    monkeypatch.setattr(torch.export, "export", counted)
    x = torch.randn(2, 3, 4)
    with pytest.raises(ExportError, match=r"fixes the batch of input 'x'"):
        export_onnx(quantize(_Fixed(), [x]), tmp_path / "m.onnx", x)
    assert modes.count(True) == 1


class _Sum(_Lengths):
    """It adds, by an operator, what the next layer reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(len(x), -1)
        return self.layer(x + x.relu())


def test_quantizers_at_operators_stand_in_a_file_whose_batch_is_open(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4)
    model = quantize(_Sum(), [x])
    nodes = onnx.load(export_onnx(model, tmp_path / "m.onnx", x).path).graph.node
    (added,) = (node.output[0] for node in nodes if node.op_type == "Add")
    assert [node.op_type for node in nodes if added in node.input] == ["QuantizeLinear"]


def test_code_that_is_read_past_the_hooks_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spelled_functions, "_operators", tuple)
    x = torch.randn(2, 3, 4)
    model = quantize(_Sum(), [x])
    with pytest.raises(ExportError, match=r"fixes the batch .* dynamic_batch=False"):
        export_onnx(model, tmp_path / "m.onnx", x)


class _Checked(nn.Module):
    """It checks a mask, as transformers' models do while they are compiled."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        torch._check_tensor_all((mask == 1).any(-1))
        return x * mask


def test_a_check_of_values_is_no_part_of_the_file(tmp_path: Path) -> None:
    x, mask = torch.randn(2, 3), torch.ones(2, 3)
    path = export_onnx(_Checked(), tmp_path / "m.onnx", (x, mask)).path
    assert [node.op_type for node in onnx.load(path).graph.node] == ["Mul"]


class _Of(nn.Module):
    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "compute",
    [lambda x: 1.0 - x, lambda x: torch.rsub(x, 1.5, alpha=2), lambda x: x // 1.5],
    ids=["difference", "scaled difference", "quotient"],
)
def test_integers_meet_float_numbers(
    compute: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, tmp_path: Path
) -> None:
    x = torch.tensor([[1, 0, 3], [1, -5, 7]], dtype=dtype)
    path = export_onnx(_Of(compute), tmp_path / "m.onnx", x).path
    (found,) = run_file(path, x)
    assert found.tolist() == compute(x.double()).tolist()


def _for_one(x: torch.Tensor) -> torch.Tensor:
    return 2 * x if x.shape[0] == 1 else x.relu()


def test_a_branch_that_the_only_example_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"branch on the size; for inputs of \(1, 4\) the file"):
        export_onnx(_Of(_for_one), tmp_path / "m.onnx", torch.randn(1, 4))


def _halved(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(x, size=(3, int(x.shape[3] * 0.5)))


def test_another_axis_that_int_fixes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="leave it out of dynamic_axes"):
        export_onnx(
            _Of(_halved),
            tmp_path / "m.onnx",
            torch.randn(2, 3, 6, 8),
            dynamic_axes={"x": {3: "width"}},
        )


def _in_parts(x: torch.Tensor) -> torch.Tensor:
    return x.relu() if x.shape[0] <= 4 else torch.cat([x[:4].relu(), x[4:].relu()])


def _bounded(x: torch.Tensor) -> torch.Tensor:
    assert x.shape[0] <= 4
    return x.relu()


def _noisy(x: torch.Tensor) -> torch.Tensor:
    return _in_parts(x) + torch.rand_like(x)


@pytest.mark.parametrize("compute", [_in_parts, _bounded, _noisy])
def test_conditions_on_sizes_that_change_no_value_are_none(
    compute: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    found = export_onnx(_Of(compute), tmp_path / "m.onnx", torch.randn(4, 3))
    assert found.path.exists()


class _Picking(nn.Module):
    def __init__(self, *, assigns: bool) -> None:
        super().__init__()
        self.linear, self.assigns = nn.Linear(6, 5), assigns

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        rows = torch.arange(len(x))
        if not self.assigns:
            return y[rows, chosen]
        y = y.clone()
        y[rows, chosen] = 7.0
        return y


@pytest.mark.parametrize("assigns", [False, True])
def test_indices_may_be_int32(assigns: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = _Picking(assigns=assigns).eval()
    inputs = torch.randn(3, 6), torch.tensor([4, 0, 2], dtype=torch.int32)
    path = export_onnx(model, tmp_path / "m.onnx", inputs).path
    session = onnxruntime.InferenceSession(path)
    for x, chosen in (inputs, (torch.randn(2, 6), torch.tensor([1, 1], dtype=torch.int32))):
        (found,) = session.run(None, {"x": x.numpy(), "chosen": chosen.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), model(x, chosen))


class _OfConstants(nn.Module):
    """Adds a quantile, whose operation has no form in ONNX, as Gemma 3n takes one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.tensor(0.95, dtype=torch.float64)
        return x + torch.distributions.Normal(0, 1).icdf(share).to(x.dtype)


class _OfChanged(nn.Module):
    """Adds a constant that the forward changes, by another name and not by constants alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.tensor(2.0)
        twice = total * 2
        total.view(1).add_(x.sum())
        return x * total + twice


@pytest.mark.parametrize("model", [_OfConstants(), _OfChanged()])
def test_numbers_of_constants_are_computed_while_exporting(
    model: nn.Module, tmp_path: Path
) -> None:
    x = torch.randn(2, 3)
    file = export_onnx(model, tmp_path / "m.onnx", x)
    torch.testing.assert_close(torch.from_numpy(run_file(file, x)[0]), model(x))
