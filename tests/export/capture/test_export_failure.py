"""A failure of torch's exporter becomes one paragraph: what, where, why, and the fix."""

import re
import sysconfig
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from language_models import language_model
from nncfx.errors import ExportError, HookError
from nncfx.export import export_onnx
from nncfx.export.capture.export_failure import as_export_error
from nncfx.tracing.calls import call_numbers

FIX = (
    ". Change that part of its forward. Where an open axis is at fault, call nncfx.export_onnx "
    "without it in dynamic_axes, or with dynamic_batch=False."
)


class Net(nn.Module):
    """Has a part with weights and one without."""

    def __init__(self) -> None:
        super().__init__()
        self.resize, self.backbone, self.head = nn.Upsample(), nn.Linear(2, 2), nn.Linear(2, 2)


def chained(*texts: str) -> RuntimeError:
    error: RuntimeError | None = None
    for text in reversed(texts):
        outer = RuntimeError(text)
        outer.__cause__ = error
        error = outer
    assert error is not None
    return error


def test_the_operation_is_found_anywhere_in_the_chain() -> None:
    error = chained(
        "outer", "No ONNX function found for <OpOverload(op='aten.foo', overload='x')>"
    )
    assert "operation 'aten.foo' has no ONNX form" in str(as_export_error(error, Net()))


def test_the_line_of_the_model_is_given() -> None:
    error = chained('it failed\n  File "/a/net.py", line 12, in forward\n    x = x.foo()\n')
    text = str(as_export_error(error, Net()))
    assert text == (
        "Net cannot be exported at /a/net.py:12 in forward, `x = x.foo()`: RuntimeError: it failed"
        + FIX
    )


def test_it_is_not_a_line_of_the_hooks_around_the_model_s_own() -> None:
    text = str(
        as_export_error(
            chained(
                'it failed\n  File "/a/net.py", line 12, in forward\n    x = x.foo()\n'
                f'  File "{call_numbers.__file__}", line 84, in f\n    return g()\n'
            ),
            Net(),
        )
    )
    assert "at /a/net.py:12 in forward" in text
    assert "call_numbers" not in text


def test_a_failure_without_a_text_is_still_a_sentence() -> None:
    text = str(as_export_error(ValueError(), Net()))
    assert text == "Net cannot be exported: ValueError: no reason given" + FIX


def test_colours_of_the_terminal_are_taken_out() -> None:
    text = str(as_export_error(ValueError("\x1b[96mThis is step 1/3\x1b[0m"), Net()))
    assert text == "Net cannot be exported: ValueError: This is step 1/3" + FIX


class Modulated(nn.Module):
    """Convolves each image with weights of its own, in as many groups as there are images."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        count, channels, height, width = x.shape
        weight = (self.weight * style[:, None, :, None, None]).flatten(0, 1)
        rows = x.reshape(1, count * channels, height, width)
        return functional.conv2d(rows, weight, groups=count).unflatten(1, (count, -1))


def test_groups_that_depend_on_the_batch_want_a_fixed_one(tmp_path: Path) -> None:
    inputs = (torch.randn(2, 3, 8, 8), torch.randn(2, 3))
    with pytest.raises(ExportError, match="Pass dynamic_batch=False"):
        export_onnx(Modulated(), tmp_path / "m.onnx", inputs)
    export_onnx(Modulated(), tmp_path / "m.onnx", inputs, dynamic_batch=False)


def test_a_reason_does_not_end_where_a_colon_announces_it() -> None:
    error = chained("outer", "Found the following conflicts:\n\n- axis 1 is static\nand more")
    text = str(as_export_error(error, Net()))
    assert "Found the following conflicts: - axis 1 is static. Change" in text
    assert "no reason given" in str(as_export_error(chained("outer", ""), Net()))


def test_an_error_of_hooks_stands_as_it_is() -> None:
    error = chained("outer")
    error.__cause__ = HookError("There is a hook at x.T. Remove it.")
    assert str(as_export_error(error, Net())) == (
        "Net cannot be exported: There is a hook at x.T. Remove it."
    )


@pytest.mark.parametrize(
    "cause",
    [
        "it failed",
        "No ONNX function found for <OpOverload(op='aten.foo', overload='x')>",
        "GuardOnDataDependentError",
    ],
)
def test_who_cannot_change_the_code_is_told_of_the_parts(cause: str) -> None:
    class GuardOnDataDependentError(RuntimeError):
        """Named as torch names it."""

    kind = GuardOnDataDependentError if cause.startswith("Guard") else RuntimeError
    file = Path(sysconfig.get_path("purelib")) / "torchvision" / "ops" / "boxes.py"
    error = kind(f'{cause}\n  File "{file}", line 103, in nms\n    if boxes.numel() == 0:\n')
    text = str(as_export_error(error, Net()))
    assert (
        "The line is of an installed package: export the parts of the model that do not run it, "
        "each by itself and with the inputs that it gets there, such as model.backbone of "
        "backbone, head."
    ) in text
    assert "torch.where" not in text
    assert "Change that part" not in text


def test_experts_that_onnx_cannot_compute_are_told_of(tmp_path: Path) -> None:
    model = language_model("qwen3_moe", num_hidden_layers=1, use_cache=False)
    tokens = torch.ones(1, 4).long()
    with pytest.raises(ExportError, match=r"model\.set_experts_implementation\('batched_mm'\)"):
        export_onnx(model, tmp_path / "m.onnx", tokens)
    model.set_experts_implementation("batched_mm")
    export_onnx(model, tmp_path / "m.onnx", tokens)


class Energy(nn.Module):
    """Forces are the derivative of an energy, which the forward takes."""

    def __init__(self, *, is_functional: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.is_functional = is_functional

    def forward(self, x: Tensor) -> Tensor:
        if self.is_functional:
            return vmap(grad(lambda one: self.net(one).squeeze(-1)))(x)
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad(self.net(x).sum(), x)[0]


@pytest.mark.parametrize("is_functional", [True, False])
def test_derivatives_in_a_forward_are_told(tmp_path: Path, *, is_functional: bool) -> None:
    model = Energy(is_functional=is_functional).eval()
    with pytest.raises(ExportError, match=r"derivatives have no ONNX form\. Export the part"):
        export_onnx(model, tmp_path / "m.onnx", torch.randn(2, 3))


class Cleared(nn.Module):
    """Clears places that it takes from a tensor one by one, as UDOP does."""

    def forward(self, x: Tensor) -> Tensor:
        kept = torch.ones_like(x[0])
        rows = tuple(x.long()[:, 0])
        kept[rows,] = 0
        return x * kept


def test_the_line_of_the_model_is_given_where_the_error_names_none(tmp_path: Path) -> None:
    told = rf"at {re.escape(__file__)}:\d+ in forward, `kept\[rows,\] = 0`: RuntimeError: The ten"
    with pytest.raises(ExportError, match=told):
        export_onnx(Cleared(), tmp_path / "m.onnx", torch.ones(2, 3))


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Asserting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        assert x.isfinite().all()
        return -x


@pytest.mark.parametrize(
    ("model", "fix"),
    [
        (Branching(), r"`return x if x\.sum\(\) > 0 else -x` .* Use torch\.where, or torch\.cond"),
        (Asserting(), r"`assert x\.isfinite\(\)\.all\(\)` .* Remove the assertion, or run Python"),
    ],
)
def test_what_reads_a_value_is_told_with_its_fix(
    model: nn.Module, fix: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=f"branches on the values of a tensor .*{fix}"):
        export_onnx(model, tmp_path / "reading.onnx", torch.ones(2, 3))
