"""Probes in a wrapped model, and its quantizers switched off."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ArgumentError, CompressionError, HookError
from nncfx.network import NNCFNetwork
from nncfx.quantization import (
    Quantizer,
    QuantizerSpec,
    correct_biases,
    equalize_layers,
    round_weights,
    smooth_layers,
)
from nncfx.quantization.ranges.observation import (
    in_float,
    in_float_first,
    probing,
    quantizers_of,
    run_batches,
)
from nncfx.tracing import Insertion, PostSite, PreSite, Priority, no_nncf_trace

ADDRESS = "Sequential/Linear[0]/linear_0"
INPUTS = torch.linspace(-1, 1, 6).view(2, 3)


def quantized() -> tuple[NNCFNetwork, Quantizer]:
    """Return a model whose only layer reads coarsely rounded inputs."""
    model = nncfx.wrap(nn.Sequential(nn.Linear(3, 2)), INPUTS)
    quantizer = Quantizer(QuantizerSpec(bits=2))
    quantizer.set_range(torch.tensor(-1.0), torch.tensor(1.0))
    model.nncf.register(
        [Insertion(PreSite(ADDRESS, 0), quantizer, Priority.QUANTIZATION, "quantization")]
    )
    model.nncf.commit()
    return model, quantizer


def test_a_probe_sees_an_input_as_the_operation_reads_it() -> None:
    model, quantizer = quantized()
    seen: list[Tensor] = []
    with probing(model, {PreSite(ADDRESS, 0): seen.append}):
        model(INPUTS)
    assert torch.equal(seen[0], quantizer(INPUTS))
    assert not torch.equal(seen[0], INPUTS)


def test_what_a_probe_returns_is_used_instead() -> None:
    model, _ = quantized()
    with probing(model, {PostSite(ADDRESS): torch.zeros_like}):
        assert not model(INPUTS).any()
    assert model(INPUTS).any()


def test_in_float_quantizers_pass_what_they_get_and_those_that_were_off_stay_off() -> None:
    _, quantizer = quantized()
    off = Quantizer(QuantizerSpec())
    off.is_active = False
    with in_float([quantizer, off]):
        assert torch.equal(quantizer(INPUTS), INPUTS)
    assert quantizer.is_active
    assert not off.is_active


def test_each_batch_comes_in_float_and_then_quantized() -> None:
    model, quantizer = quantized()
    states = [quantizer.is_active for _ in in_float_first(model, [INPUTS, INPUTS])]
    assert states == [False, True, False, True]


def test_quantizers_are_found_by_site() -> None:
    model, quantizer = quantized()
    assert quantizers_of(model) == {PreSite(ADDRESS, 0): quantizer}


def test_batches_run_in_evaluation_mode_and_the_mode_is_put_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3)).train()
    before = model[0].running_mean.clone()
    assert run_batches(model, [INPUTS, INPUTS]) == 2
    assert model.training
    assert torch.equal(model[0].running_mean, before)


def test_no_batches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="a generator that was read before is empty"):
        run_batches(nn.Linear(3, 2), iter(()))


def test_a_batch_that_does_not_fit_is_named_with_its_shape_and_the_models_reason() -> None:
    with pytest.raises(ArgumentError) as caught:
        run_batches(nn.Linear(3, 2), [torch.ones(4, 3), torch.ones(4, 5)])
    message = str(caught.value)
    assert message.startswith("Linear fails on batch 1 (counted from 0), which is float32[4, 5]: ")
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 3x2)" in message
    assert message.endswith("look at what your loader yields there.")


def test_what_a_probe_refuses_is_told_as_it_is() -> None:
    def refuse(_: torch.Tensor) -> None:
        raise CompressionError("no such activation")

    model, _ = quantized()
    with (
        probing(model, {PreSite(ADDRESS, 0): refuse}),
        pytest.raises(CompressionError, match="no such activation"),
    ):
        run_batches(model, [INPUTS])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda model, x: round_weights(model, [x]), "Rounding by 'gptq' changes nothing"),
        (lambda model, x: correct_biases(model, [x]), "Correcting biases changes nothing"),
        (equalize_layers, "Equalizing changes nothing"),
        (lambda model, x: smooth_layers(model, [x], x), "Smoothing changes nothing"),
    ],
)
def test_a_change_that_finds_nothing_says_so(
    change: Callable[[NNCFNetwork, Tensor], object], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = nncfx.wrap(nn.Sequential(nn.Tanh()), INPUTS)
    assert not change(model, INPUTS)
    assert f"{what}: the model has no " in caplog.text


def test_a_rounding_of_a_presets_own_choice_tells_what_can_be_fixed_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = torch.ones(2, 3)
    nncfx.quantize(nn.Sequential(nn.Embedding(4, 3), nn.Tanh()), [x.long()], weight_bits=4)
    assert "changes nothing" not in caplog.text
    weight_norm = nn.utils.parametrizations.weight_norm
    nncfx.quantize(nn.Sequential(weight_norm(nn.Linear(3, 4))), [x], weight_bits=4)
    assert "Rounding by 'gptq' changes nothing" in caplog.text
    assert "Leave it out" not in caplog.text
    assert "parametrize.remove_parametrizations(module, 'weight') makes it" in caplog.text


def test_what_a_model_keeps_of_calibration_is_gone_behind_it() -> None:
    """A grid of positions is quantized; one kept from calibration would be in float."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Conv2d(4, 8, 1)
            self.grid: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.grid is None:
                self.grid = torch.linspace(0, 1, x.shape[-1]).expand(len(x), 1, *x.shape[2:])
            return self.layer(torch.cat([x, self.grid], 1))

    x = torch.randn(2, 3, 8, 8)
    quantized = nncfx.quantize(Positions().eval(), [x])
    assert quantized.grid is None


class Slope(nn.Module):
    """Returns the derivative of what a layer computes, as potentials and scores do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            found = torch.tanh(self.layer(x)).sum()
            return torch.autograd.grad(found, x)[0]


def test_a_forward_that_differentiates_is_calibrated() -> None:
    torch.manual_seed(0)
    model = Slope()
    found = nncfx.quantize(model, [INPUTS])(INPUTS)
    assert torch.allclose(found, model(INPUTS), atol=0.02)


def test_probes_below_torchs_function_transforms_are_refused_with_the_fix() -> None:
    class Jacobian(Slope):
        def forward(self, x: Tensor) -> Tensor:
            return torch.func.vmap(torch.func.jacrev(self.layer))(x)

    class LeftOut(Slope):
        def forward(self, x: Tensor) -> Tensor:
            with no_nncf_trace():
                slopes = torch.func.vmap(torch.func.jacrev(self.layer))(x)
            return self.layer(x) + slopes.sum(2)

    with pytest.raises(HookError, match=r"function of torch\.func.*by .*no_nncf_trace"):
        nncfx.quantize(Jacobian(), [INPUTS])
    model = LeftOut()
    found = nncfx.quantize(model, [INPUTS])(INPUTS)
    assert torch.allclose(found, model(INPUTS), atol=0.02)
