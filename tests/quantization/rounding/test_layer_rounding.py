"""Weights of a quantized model, rounded by what its layers read."""

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.preparation.layer_chains import find_layers
from nncfx.quantization.rounding import layer_rounding
from nncfx.quantization.rounding.block_reconstruction import RoundingSettings
from nncfx.quantization.rounding.curvature import curvature
from nncfx.quantization.rounding.gptq import round_matrix
from nncfx.quantization.rounding.input_moments import input_moments
from nncfx.quantization.rounding.layer_rounding import ROUNDINGS, Rounding, round_weights
from nncfx.quantization.weight_only import quantize_weights
from nncfx.tracing import Insertion, Priority, WeightSite


def with_weight_quantizers(model: nn.Module, inputs: Tensor, bits: int = 3) -> NNCFNetwork:
    wrapped = nncfx.wrap(model.eval(), inputs)
    insertions = []
    for layer in find_layers(wrapped, wrapped.nncf.graph).values():
        quantizer = Quantizer(QuantizerSpec(bits=bits, axis=0), (len(layer.weight),))
        rows = layer.weight.detach().flatten(1)
        quantizer.set_range(rows.amin(1), rows.amax(1))
        site = WeightSite(layer.name, "weight")
        insertions.append(Insertion(site, quantizer, Priority.QUANTIZATION, "test"))
    wrapped.nncf.register(insertions)
    wrapped.nncf.commit()
    return wrapped


def images(count: int = 24) -> Tensor:
    """Return images whose neighbouring pixels are alike."""
    noise = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return noise.cumsum(-1).cumsum(-2) / 4


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()),
        *(nn.AvgPool2d(3), nn.Flatten(), nn.Linear(32, 5)),
    )


@pytest.mark.parametrize("method", ROUNDINGS)
def test_the_model_comes_nearer_to_what_it_was(method: Rounding) -> None:
    inputs = images()
    exact = network().eval()(inputs)
    model = with_weight_quantizers(network(), inputs)
    nearest = (model(inputs) - exact).square().mean()
    few = RoundingSettings(steps=100)
    shares = round_weights(model, [inputs[:12], inputs[12:]], method=method, settings=few)
    assert (model(inputs) - exact).square().mean() < nearest / 2
    assert list(shares) == ["0", "2", "6"]
    assert all(0 < share <= 1 for share in shares.values())


@pytest.mark.parametrize("method", ROUNDINGS)
def test_afterwards_the_quantizers_leave_the_weights_as_they_are(method: Rounding) -> None:
    model = with_weight_quantizers(network(), images())
    round_weights(model, [images()], method=method, settings=RoundingSettings(steps=20))
    stored = dict(model.named_parameters())
    for name in ("0", "2", "6"):
        assert torch.equal(model.nncf.weight(f"{name}.weight"), stored[f"{name}.weight"])


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(6, 4), (5, 3, 6)),
        (nn.Conv2d(3, 4, (3, 2), stride=2, padding=(1, 0)), (5, 3, 8, 8)),
        (nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding="same"), (5, 4, 8, 8)),
        (nn.Conv2d(4, 4, 3, groups=4, padding=1, padding_mode="circular"), (5, 4, 8, 8)),
        (nn.Conv1d(3, 4, 3, stride=2, padding=1), (5, 3, 8)),
    ],
)
def test_moments_tell_the_error_of_any_change_of_the_weight(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(shape).double()
    model = nncfx.wrap(nn.Sequential(module).double(), inputs)
    (layer,) = find_layers(model, model.nncf.graph).values()
    change = torch.randn_like(layer.weight.detach())
    before = model(inputs)
    (moments,) = input_moments(inputs, layer.module)
    layer.weight.data += change
    rows = change.flatten(1).view(len(moments), -1, moments.shape[-1])
    told = torch.einsum("gom, gmk, gok ->", rows, moments, rows)
    torch.testing.assert_close(told, (model(inputs) - before).square().sum().detach())


@pytest.mark.parametrize("group", [None, 4])
def test_errors_of_a_wide_layer_are_made_up_for_within_parts_of_its_inputs(
    group: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_rounding, "_WIDEST", 9)  # 20 inputs: 7 + 7 + 6, or 8 + 8 + 4
    torch.manual_seed(0)
    inputs, layer = torch.randn(64, 20).cumsum(1), nn.Linear(20, 6)
    weight = layer.weight.detach().clone()
    model = quantize_weights(nn.Sequential(layer), example_inputs=inputs, group_size=group)
    (hook,) = [one.hook for one in model.nncf.hooks if isinstance(one.hook, Quantizer)]
    round_weights(model, [inputs])
    width = 7 if group is None else 8
    for start in range(0, 20, width):
        part = slice(start, start + width)
        seen, scale, zero = inputs[:, part], hook.scale, hook.zero_point
        if group is not None:
            groups = slice(start // group, (start + width) // group)
            scale, zero = (one.view(6, 5)[:, groups].reshape(-1) for one in (scale, zero))
        known = curvature(seen.T @ seen)
        expected = round_matrix(weight[:, part].contiguous(), known, scale, zero, hook.spec)
        assert torch.equal(model.get_parameter("0.weight")[:, part], expected.values)


def test_filters_of_groups_are_rounded_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, exact = images(), network().eval()
    model = with_weight_quantizers(network(), inputs)
    nearest = (model(inputs) - exact(inputs)).square().mean()
    monkeypatch.setattr(layer_rounding, "_WIDEST", 5)  # of 27, 9 and 32 inputs
    round_weights(model, [inputs])
    assert (model(inputs) - exact(inputs)).square().mean() < nearest


def test_a_weight_with_another_hook_stays() -> None:
    model = with_weight_quantizers(network(), images())
    mask = Insertion(WeightSite("0", "weight"), nn.Identity(), Priority.PRUNING, "mask")
    model.nncf.register([mask])
    model.nncf.commit()
    before = model.nncf.weight("0.weight").clone()
    assert list(round_weights(model, [images()])) == ["2", "6"]
    assert torch.equal(model.nncf.weight("0.weight"), before)


def test_a_shared_weight_stays() -> None:
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = one.weight
    model = with_weight_quantizers(nn.Sequential(one, nn.ReLU(), two), torch.randn(3, 4))
    assert round_weights(model, [torch.randn(3, 4)]) == {}


def test_an_unknown_method_is_refused_with_the_nearest_name() -> None:
    model = with_weight_quantizers(network(), images())
    with pytest.raises(ArgumentError, match=r"no rounding 'gtpq'\. Did you mean 'gptq'"):
        round_weights(model, [images()], method="gtpq")


def test_no_batches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="no batches to calibrate with"):
        round_weights(with_weight_quantizers(network(), images()), [])
