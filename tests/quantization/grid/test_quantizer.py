"""The hook that quantizes: constant, learned, frozen."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nncfx.errors import ArgumentError
from nncfx.quantization import Quantizer, QuantizerSpec

SYMMETRIC = QuantizerSpec()
ASYMMETRIC = QuantizerSpec(mode="asymmetric", signed=False)


def numbers() -> Tensor:
    return torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))


def ready(spec: QuantizerSpec, *shape: int) -> Quantizer:
    quantizer = Quantizer(spec, shape)
    quantizer.set_range(-torch.ones(shape), 2 * torch.ones(shape))
    return quantizer


@pytest.mark.parametrize("spec", [SYMMETRIC, ASYMMETRIC, QuantizerSpec(axis=1)], ids=repr)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_learning_begins_where_the_grid_stands(spec: QuantizerSpec, logarithmic: bool) -> None:
    quantizer = ready(spec, *([5] if spec.axis == 1 else []))
    before = quantizer(numbers())
    quantizer.learn(logarithmic=logarithmic)
    assert quantizer.is_learned
    assert torch.allclose(quantizer(numbers()), before, atol=1e-6)


def test_an_optimizer_moves_a_learned_grid_towards_less_error() -> None:
    quantizer = ready(QuantizerSpec(bits=3))
    quantizer.set_range(torch.tensor(-9.0), torch.tensor(9.0))
    quantizer.learn()
    optimizer = torch.optim.Adam(quantizer.parameters(), lr=0.1)
    losses = []
    for _ in range(80):
        loss = (quantizer(numbers()) - numbers()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 4


def test_a_batch_of_no_examples_passes() -> None:
    quantizer = ready(SYMMETRIC)
    quantizer.learn()
    assert quantizer(numbers()[:0]).shape == (0, 5, 6)


def test_freezing_keeps_the_grid_and_leaves_no_parameter() -> None:
    quantizer = ready(ASYMMETRIC)
    quantizer.learn()
    with torch.no_grad():
        quantizer.get_parameter("high").mul_(0.7)
    before = quantizer(numbers())
    quantizer.freeze()
    assert quantizer.was_learned
    assert not list(quantizer.parameters())
    assert torch.allclose(quantizer(numbers()), before, atol=1e-6)


def test_setting_a_range_reaches_the_parameters_an_optimizer_holds() -> None:
    quantizer = ready(SYMMETRIC)
    quantizer.learn()
    peak = quantizer.get_parameter("peak")
    quantizer.set_range(torch.tensor(-5.0), torch.tensor(5.0))
    assert quantizer.get_parameter("peak") is peak
    assert float(peak.detach()) == pytest.approx(5.0)


def test_a_float8_grid_is_not_learned() -> None:
    with pytest.raises(ArgumentError, match="float8_e5m2"):
        Quantizer(QuantizerSpec(mode="float8_e5m2")).learn()


def test_an_inactive_quantizer_returns_the_very_tensor() -> None:
    quantizer = ready(SYMMETRIC)
    quantizer.is_active = False
    x = numbers()
    assert quantizer(x) is x


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's
@pytest.mark.parametrize("spec", [SYMMETRIC, ASYMMETRIC], ids=repr)
def test_compiled_whole_it_gives_the_same_values(spec: QuantizerSpec) -> None:
    quantizer = ready(spec)
    quantizer.learn()
    compiled = torch.compile(quantizer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(numbers()), quantizer(numbers()))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("spec", [SYMMETRIC, ASYMMETRIC], ids=repr)
def test_computed_again_in_the_backward_pass_it_gives_the_same_gradients(
    spec: QuantizerSpec, reentrant: bool
) -> None:
    found = []
    for again in (False, True):
        quantizer = ready(spec)
        quantizer.learn()
        x = numbers().requires_grad_()
        y = checkpoint(quantizer, x, use_reentrant=reentrant) if again else quantizer(x)
        y.square().sum().backward()
        found.append([one.grad for one in (x, *quantizer.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Dynamo's and Inductor's own
def test_compiled_training_gives_the_same_gradients_with_channels_last() -> None:
    eager = ready(ASYMMETRIC)
    eager.learn()
    quantizer = copy.deepcopy(eager)
    compiled = torch.compile(quantizer)
    images = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    one = images.to(memory_format=torch.channels_last).requires_grad_()
    other = images.clone().requires_grad_()
    # the gradient of a matrix product by a transposed tensor is not laid out as the tensor is
    (compiled(one).transpose(2, 3) @ images).square().sum().backward()
    (eager(other).transpose(2, 3) @ images).square().sum().backward()
    assert torch.allclose(one.grad, other.grad)
    for name, parameter in eager.named_parameters():
        assert torch.allclose(quantizer.get_parameter(name).grad, parameter.grad, rtol=1e-4), name


def test_an_in_place_operation_may_follow_in_training() -> None:
    quantizer = ready(SYMMETRIC)
    quantizer.learn()
    quantizer(numbers().requires_grad_()).relu_().sum().backward()
    assert quantizer.get_parameter("peak").grad is not None


def test_it_copies_and_pickles() -> None:
    quantizer = ready(ASYMMETRIC)
    quantizer.learn()
    for again in (copy.deepcopy(quantizer), pickle.loads(pickle.dumps(quantizer))):  # noqa: S301
        assert torch.equal(again(numbers()), quantizer(numbers()))


def test_lsq_divides_the_gradient_by_the_root_of_elements_and_levels() -> None:
    quantizer = ready(QuantizerSpec(bits=4))
    quantizer.learn()
    x = numbers()
    quantizer(x).sum().backward()
    grad = float(quantizer.get_parameter("peak").grad)  # type: ignore[arg-type]  # there is one
    scale = float(quantizer.scale.detach())
    levels = torch.round(x / scale)
    inside = (levels >= -8) & (levels <= 7)
    plain = torch.where(inside, levels - x / scale, levels.clamp(-8, 7)).sum()
    # the scale is a seventh of the peak; 30 elements are one example's
    assert grad == pytest.approx(float(plain) / 7 / (30 * 7) ** 0.5, rel=1e-4)


def test_it_says_what_it_does() -> None:
    assert repr(Quantizer(QuantizerSpec(bits=4, axis=0))) == (
        "Quantizer(int4, 4 bits, symmetric, axis 0)"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("learned", [False, True])
def test_a_cast_to_16_bits_leaves_the_grid_where_it_was(
    dtype: torch.dtype, *, learned: bool
) -> None:
    quantizer = Quantizer(QuantizerSpec(), (3,))
    quantizer.set_range(-torch.tensor([0.1, 1 / 3, 70001.0]), torch.tensor([0.1, 1 / 3, 70001.0]))
    if learned:
        quantizer.learn()
    before = quantizer.scale.clone()
    model = nn.Sequential(quantizer, nn.Linear(2, 2)).to(dtype)
    assert torch.equal(quantizer.scale, before)
    assert model[1].weight.dtype == dtype
    assert quantizer(torch.ones(1, 3, dtype=dtype)).dtype == dtype
    assert model.double()[0].scale.dtype == torch.float64


def test_an_infinite_number_has_the_gradient_of_one_beyond_the_grid() -> None:
    gradients = []
    for beyond in (torch.inf, 1e6):
        quantizer = ready(SYMMETRIC)
        quantizer.learn()
        quantizer(torch.tensor([0.3, beyond, -beyond, 0.77])).sum().backward()
        gradients.append([one.grad for one in quantizer.parameters()])
    assert gradients[0] == gradients[1]
