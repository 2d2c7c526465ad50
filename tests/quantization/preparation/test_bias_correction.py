"""The mean shift of quantization, taken back."""

import copy

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.preparation.bias_correction import (
    channel_means,
    correct_biases,
    noting_means,
)
from nncfx.quantization.preparation.layer_chains import find_layers
from nncfx.tracing import Insertion, PreSite, Priority, WeightSite


def quantized(model: nn.Module, inputs: Tensor, bits: int = 3) -> NNCFNetwork:
    """Return `model` wrapped, with weights and layer inputs rounded coarsely."""
    wrapped = nncfx.wrap(model.eval(), inputs)
    insertions = []
    for address, layer in find_layers(wrapped, wrapped.nncf.graph).items():
        weight = Quantizer(QuantizerSpec(bits=bits))
        weight.set_range(layer.weight.amin(), layer.weight.amax())
        entering = Quantizer(QuantizerSpec(bits=6, mode="asymmetric", signed=False))
        entering.set_range(torch.tensor(-3.0), torch.tensor(3.0))
        for site, hook in (
            (WeightSite(layer.name, "weight"), weight),
            (PreSite(address, 0), entering),
        ):
            insertions.append(Insertion(site, hook, Priority.QUANTIZATION, "test"))
    wrapped.nncf.register(insertions)
    wrapped.nncf.commit()
    return wrapped


def images(count: int = 48) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )


def test_means_noted_before_give_the_same_biases_and_half_the_runs() -> None:
    inputs, runs = images(), []
    biases = []
    for is_noted in (False, True):
        model = convolutional()
        means = None
        if is_noted:
            plain = nncfx.wrap(copy.deepcopy(model).eval(), inputs)
            with noting_means(plain) as means, torch.no_grad():
                for batch in inputs.split(16):
                    plain(batch)
        wrapped = quantized(model, inputs)
        wrapped.register_forward_pre_hook(lambda *_: runs.append(None))
        correct_biases(wrapped, inputs.split(16), float_means=means)
        biases.append([one for name, one in wrapped.named_parameters() if "bias" in name])
        assert len(runs) == (9 if is_noted else 6)
    assert len(biases[0]) == 3
    assert all(torch.equal(one, other) for one, other in zip(*biases, strict=True))
    assert not torch.equal(biases[0][0], convolutional()[0].bias)


def test_a_massive_token_does_not_move_the_bias_of_the_others() -> None:
    torch.manual_seed(0)
    model, tokens = nn.Sequential(nn.Linear(6, 5)), torch.rand(4, 9, 6)
    tokens[:, 0] *= 1000  # of which the quantizer leaves 3
    exact = model(tokens)[:, 1:].mean((0, 1))
    wrapped = quantized(model, tokens)
    assert not torch.allclose(wrapped(tokens)[:, 1:].mean((0, 1)), exact, atol=1e-3)
    correct_biases(wrapped, tokens.split(2))
    torch.testing.assert_close(wrapped(tokens)[:, 1:].mean((0, 1)), exact, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("size", "share"), [(48, 0.05), (16, 0.1)])
def test_the_mean_of_every_output_is_nearly_what_it_was_in_float(size: int, share: float) -> None:
    model, inputs = convolutional(), images()
    exact = model(inputs).mean(0)
    wrapped = quantized(model, inputs)
    shifted = (wrapped(inputs).mean(0) - exact).abs().max()
    correct_biases(wrapped, inputs.split(size))
    remaining = (wrapped(inputs).mean(0) - exact).abs().max()
    assert remaining < shifted * share


def test_of_one_layer_the_means_agree_to_rounding() -> None:
    inputs = torch.rand(64, 5)
    model = nn.Linear(5, 3)
    exact = model(inputs).mean(0)
    wrapped = quantized(model, inputs)
    correct_biases(wrapped, [inputs])
    torch.testing.assert_close(wrapped(inputs).mean(0), exact)


def test_it_returns_by_layer_the_largest_shift_of_its_bias() -> None:
    wrapped = quantized(convolutional(), images())
    before = {name: value.clone() for name, value in wrapped.named_parameters()}
    found = correct_biases(wrapped, [images()])
    assert list(found) == ["0", "2", "6"]
    after = dict(wrapped.named_parameters())
    for name, shift in found.items():
        change = (after[f"{name}.bias"] - before[f"{name}.bias"]).abs().max()
        assert change.item() == pytest.approx(shift, rel=1e-4)
        assert torch.equal(after[f"{name}.weight"], before[f"{name}.weight"])


def test_a_model_without_quantizers_is_not_changed() -> None:
    wrapped = nncfx.wrap(convolutional().eval(), images())
    before = copy.deepcopy(wrapped.state_dict())
    assert set(correct_biases(wrapped, [images()]).values()) == {0.0}
    assert all(torch.equal(value, before[name]) for name, value in wrapped.state_dict().items())


def test_a_layer_without_bias_is_left_alone() -> None:
    wrapped = quantized(nn.Linear(5, 3, bias=False), torch.rand(8, 5))
    assert correct_biases(wrapped, [torch.rand(8, 5)]) == {}


def test_afterwards_the_quantizers_are_on_and_no_probe_is_left() -> None:
    wrapped = quantized(convolutional(), images())
    hooks = wrapped.nncf.hooks
    correct_biases(wrapped, [images()])
    assert wrapped.nncf.hooks == hooks
    assert all(one.hook.is_active for one in hooks)


def test_no_batches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="no batches to calibrate with"):
        correct_biases(quantized(convolutional(), images()), [])


def test_a_layer_without_bias_is_corrected_by_its_batch_norm() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()).eval()
    inputs = images()
    exact = model[1](model[0](inputs)).mean((0, 2, 3))
    wrapped = quantized(model, inputs)
    assert list(correct_biases(wrapped, [inputs])) == ["1"]
    found = model[1](model[0](inputs))
    torch.testing.assert_close(found.mean((0, 2, 3)), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 4, 5, 6), 1), ((3, 4, 5), -2), ((3, 2, 5, 4), -1), ((7, 4), 1)]
)
def test_means_are_per_channel(shape: tuple[int, ...], axis: int) -> None:
    output = torch.rand(shape)
    others = [one for one in range(output.ndim) if one != axis % output.ndim]
    torch.testing.assert_close(channel_means(output, axis), output.mean(others))


class Residual(nn.Module):
    """Branches, each added to what enters it."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.branches = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for branch in self.branches:
            x = x + branch(x.relu())
        return x


def test_of_a_residual_branch_the_means_of_the_sum_are_put_back() -> None:
    torch.manual_seed(0)
    model, inputs = Residual(), images()
    wrapped = quantized(copy.deepcopy(model), inputs)
    correct_biases(wrapped, [inputs])
    exact, rounded = (one(inputs).mean((0, 2, 3)) for one in (model, wrapped))
    torch.testing.assert_close(rounded, exact, atol=1e-4, rtol=1e-4)


class Experts(nn.Module):
    """Each token goes to the layer that its first number says."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        chosen = (x[:, 0] > 0).long()
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            tokens = (chosen == number).nonzero(as_tuple=True)[0]
            y = y.index_add(0, tokens, expert(x[tokens]))
        return y


def test_a_batch_without_tokens_for_an_expert_does_not_move_its_bias() -> None:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    one, other = x[x[:, 0] > 0], x[x[:, 0] <= 0]
    models = [quantized(Experts(), x) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    shifts = [
        correct_biases(model, batches)
        for model, batches in zip(models, ([x], [one, other, one[:0]]), strict=True)
    ]
    assert 0 < shifts[0]["experts.0"] == pytest.approx(shifts[1]["experts.0"])
    assert torch.isfinite(models[1](x)).all()


def test_a_batch_with_other_tokens_than_in_float_does_not_count() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 8)
    model = nn.Sequential(nn.Linear(8, 8))
    plain = nncfx.wrap(copy.deepcopy(model).eval(), x)
    with noting_means(plain) as means, torch.no_grad():
        plain(x)
    assert correct_biases(quantized(model, x), [x[:5]], float_means=means) == {"0": 0}
