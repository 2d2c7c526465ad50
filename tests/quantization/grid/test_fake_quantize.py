"""Fake quantization: torch's values bitwise, NNCF's formulas, and gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from nncfx.quantization import QuantizerSpec, fake_quantize, qparams_from_range, range_of
from nncfx.quantization.grid.fake_quantize import to_integers

SPECS = (
    QuantizerSpec(),
    QuantizerSpec(signed=False),
    QuantizerSpec(bits=4, narrow=True),
    QuantizerSpec(mode="asymmetric", signed=False),
    QuantizerSpec(mode="asymmetric", bits=3),
    QuantizerSpec(bits=16),
    QuantizerSpec(half_range=True),
)


def numbers(seed: int = 0, shape: tuple[int, ...] = (5, 6, 7)) -> Tensor:
    x = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    # what is on a tie, on the grid's end, and far beyond
    x.view(-1)[:6] = torch.tensor([0.0, -0.0, 0.5, -0.5, 1e9, -1e9])
    return x


def grid(spec: QuantizerSpec, *shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    low = -torch.rand(shape, generator=generator) * 2
    high = torch.rand(shape, generator=generator) * 3
    return qparams_from_range(low, high, spec)


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_values_and_gradients_are_those_of_torch_bitwise(
    spec: QuantizerSpec, axis: int | None
) -> None:
    spec = spec.replace(axis=axis)
    scale, zero = grid(spec, *([] if axis is None else [(5, 6, 7)[axis]]))
    x, y = numbers().requires_grad_(), numbers().requires_grad_()
    whole, ends = zero.to(torch.int32), (spec.quant_min, spec.quant_max)
    if axis is None:
        expected = torch.fake_quantize_per_tensor_affine(x, scale, whole, *ends)
    else:
        expected = torch.fake_quantize_per_channel_affine(x, scale, whole, axis % 3, *ends)
    found = fake_quantize(y, scale, zero, spec)
    expected.backward(numbers(3))
    found.backward(numbers(3))
    assert torch.equal(found, expected)
    assert torch.equal(torch.signbit(found), torch.signbit(expected))
    assert x.grad is not None
    assert y.grad is not None
    assert torch.equal(x.grad, y.grad)


def nncf_symmetric(x: np.ndarray, scale: float, low: int, high: int) -> np.ndarray:
    """NNCF 2.19: the range is `scale * level_low / level_high` to `scale`."""
    input_low, input_range = scale * low / high, scale - scale * low / high
    steps = (high - low) / input_range
    clipped = np.clip(x, input_low, input_low + input_range)
    zero_point = np.round(-input_low * steps)
    return (np.round((clipped - input_low) * steps - zero_point + zero_point) - zero_point) / steps


def nncf_asymmetric(x: np.ndarray, low: float, width: float, levels: int) -> np.ndarray:
    """NNCF 2.19: the range is widened until 0 is on the grid, then cut into `levels - 1`."""
    high, steps = low + width, levels - 1
    zero = round(-low / width * steps)
    by_high, by_low = high * zero / (zero - steps), low * (zero - steps) / zero
    low, high = (by_high, high) if high - by_high > by_low - low else (low, by_low)
    step = (high - low) / steps
    return np.round((np.clip(x, low, high) - low) / step) * step + low


@given(scale=st.floats(0.01, 100), bits=st.integers(2, 10), signed=st.booleans())
@settings(max_examples=50, deadline=None)
def test_symmetric_values_are_nncfs(scale: float, bits: int, signed: bool) -> None:
    spec = QuantizerSpec(bits=bits, signed=signed)
    x = torch.linspace(-2 * scale, 2 * scale, 500, dtype=torch.float64)
    peak = torch.tensor(scale, dtype=torch.float64)
    found = fake_quantize(x, *qparams_from_range(-peak * signed, peak, spec), spec)
    expected = nncf_symmetric(x.numpy(), scale, spec.quant_min, spec.quant_max)
    # ties may fall to either side in floating point
    step = scale / spec.quant_max
    wrong = np.abs(found.numpy() - expected) > 1e-6 * scale
    ties = np.abs(np.abs(x.numpy() / step) % 1 - 0.5) < 1e-6
    assert not (wrong & ~ties).any()


@given(low=st.floats(-10, -0.1), high=st.floats(0.1, 10), bits=st.integers(2, 10))
@settings(max_examples=50, deadline=None)
def test_asymmetric_values_are_nncfs(low: float, high: float, bits: int) -> None:
    spec = QuantizerSpec(bits=bits, mode="asymmetric", signed=False)
    # where 0 rounds to an end, NNCF's grid does not hold it, and no runtime's could follow
    assume(0 < round(-low / (high - low) * (2**bits - 1)) < 2**bits - 1)
    x = torch.linspace(1.5 * low, 1.5 * high, 500, dtype=torch.float64)
    ends = (torch.tensor(one, dtype=torch.float64) for one in (low, high))
    scale, zero = qparams_from_range(*ends, spec)
    found = fake_quantize(x, scale, zero, spec).numpy()
    expected = nncf_asymmetric(x.numpy(), low, high - low, 2**bits)
    wrong = np.abs(found - expected) > 1e-6 * (high - low)
    ties = np.abs(np.abs(x.numpy() / float(scale)) % 1 - 0.5) < 1e-6
    assert not (wrong & ~ties).any()


def test_nncfs_published_symmetric_case() -> None:
    one = torch.tensor(1.0)
    grid_of_one = qparams_from_range(-one, one, QuantizerSpec())
    found = fake_quantize(torch.tensor([-3.0, 0.3]), *grid_of_one, QuantizerSpec())
    assert found.tolist() == pytest.approx([-1.00787, 0.29921], abs=1e-5)


def test_nncfs_published_asymmetric_case() -> None:
    spec = QuantizerSpec(mode="asymmetric", signed=False)
    scale, zero = qparams_from_range(torch.tensor(-0.3), torch.tensor(1.0), spec)
    low, high = range_of(scale, zero, spec)
    assert (int(zero), float(low), float(high - low)) == (
        59,
        pytest.approx(-0.3010204, abs=1e-6),
        pytest.approx(1.3010204, abs=1e-6),
    )


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_quantizing_twice_is_quantizing_once(spec: QuantizerSpec) -> None:
    scale, zero = grid(spec)
    once = fake_quantize(numbers(), scale, zero, spec)
    assert torch.equal(fake_quantize(once, scale, zero, spec), once)


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_the_ends_of_the_range_and_zero_are_on_the_grid(spec: QuantizerSpec) -> None:
    low, high = torch.tensor(-1.3), torch.tensor(2.9)
    scale, zero = qparams_from_range(low, high, spec)
    least, most = range_of(scale, zero, spec)
    assert float(most) >= float(high) - 1e-6
    if spec.signed or spec.mode == "asymmetric":
        assert float(least) <= float(low) + 1e-6
    assert float(fake_quantize(torch.zeros(()), scale, zero, spec)) == 0


@given(st.integers(2, 16), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_inside_the_range_the_error_is_at_most_half_a_step(bits: int, peak: float) -> None:
    spec = QuantizerSpec(bits=bits)
    ends = torch.tensor(peak, dtype=torch.float64)
    scale, zero = qparams_from_range(-ends, ends, spec)
    x = torch.linspace(-peak, peak, 301, dtype=torch.float64)
    assert float((fake_quantize(x, scale, zero, spec) - x).abs().max()) <= float(scale) * 0.5001


@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
def test_power_of_two_scales_are_powers_of_two_and_cover_the_range(mode: str) -> None:
    spec = QuantizerSpec(mode=mode, power_of_two=True)  # type: ignore[arg-type]  # parametrized
    scale, zero = qparams_from_range(torch.tensor(-0.7), torch.tensor(1.9), spec)
    low, high = range_of(scale, zero, spec)
    assert float(torch.log2(scale)) % 1 == 0
    assert float(low) <= -0.7
    assert float(high) >= 1.9


def test_a_group_has_a_scale_of_its_own() -> None:
    x = torch.tensor([[1.0, 2.0, 10.0, 20.0], [0.1, 0.2, 3.0, 4.0]])
    spec = QuantizerSpec(bits=4, group=2)
    peaks = x.reshape(-1, 2).abs().amax(1)
    found = fake_quantize(x, *qparams_from_range(-peaks, peaks, spec), spec)
    rows = [
        fake_quantize(
            row,
            *qparams_from_range(-row.max(), row.max(), spec.replace(group=None)),
            spec.replace(group=None),
        )
        for row in x.reshape(-1, 2)
    ]
    assert torch.equal(found, torch.stack(rows).reshape(2, 4))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("float8_e4m3", [448.0, 1.125, 0.0]), ("float8_e5m2", [57344.0, 1.0, 0.0])],
)
def test_float8_rounds_to_the_format_and_saturates(mode: str, expected: list[float]) -> None:
    spec = QuantizerSpec(mode=mode)  # type: ignore[arg-type]  # parametrized
    x = torch.tensor([1e9, 1.1, 0.0])
    found = fake_quantize(x, torch.ones(()), torch.zeros(()), spec)
    assert found.tolist() == expected


def test_nan_stays_nan() -> None:
    found = fake_quantize(torch.tensor([torch.nan]), *grid(QuantizerSpec()), QuantizerSpec())
    assert bool(found.isnan().all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    found = fake_quantize(numbers().to(dtype), *grid(QuantizerSpec()), QuantizerSpec())
    assert found.dtype == dtype


@pytest.mark.parametrize("axis", [None, 1])
def test_gradients_to_scale_and_zero_are_those_of_the_papers(axis: int | None) -> None:
    spec = QuantizerSpec(mode="asymmetric", bits=4, axis=axis)
    scale, zero = grid(spec, *([] if axis is None else [6]))
    scale, zero = scale.clone().requires_grad_(), zero.clone().requires_grad_()
    x, grad = numbers(4).double(), numbers(5).double()
    fake_quantize(x, scale, zero, spec, gradient_scale=0.5).backward(grad)
    shape = () if axis is None else (1, 6, 1)
    s, z = (one.detach().double().reshape(shape) for one in (scale, zero))
    levels = torch.round(x / s) + z
    inside = (levels >= -8) & (levels <= 7)
    # LSQ, equation 3; LSQ+, equations 3 and 4
    to_scale = torch.where(inside, torch.round(x / s) - x / s, levels.clamp(-8, 7) - z)
    to_zero = torch.where(inside, 0.0, -s.expand_as(x))
    axes = (0, 1, 2) if axis is None else (0, 2)
    assert scale.grad is not None
    assert zero.grad is not None
    expected = (grad * to_scale).sum(axes) * 0.5
    # numbers of 1e9 lie in the sums
    assert torch.allclose(scale.grad.double(), expected, rtol=1e-4, atol=1e-3)
    assert torch.allclose(zero.grad.double(), (grad * to_zero).sum(axes) * 0.5, rtol=1e-4)


def straight_through(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> Tensor:
    """Return the same values by plain autograd: rounding counts as the identity."""
    steps = x / scale
    whole = steps + (steps.round() - steps).detach()
    return ((whole + zero).clamp(low, high) - zero) * scale


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("axis", [None, 1])
def test_gradients_of_gradients_are_those_of_plain_autograd(
    axis: int | None, learned: bool
) -> None:
    """Gradient penalties and meta-learning take them."""
    spec = QuantizerSpec(mode="asymmetric", bits=4, axis=axis)
    x = numbers(4).clamp(-9, 9).double()
    scale, zero = (one.double() for one in grid(spec, *([] if axis is None else [6])))
    shape = () if axis is None else (1, 6, 1)

    def second(rounded: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Tensor]:
        of = [one.clone().requires_grad_(learned or one is x) for one in (x, scale, zero)]
        needed = [one for one in of if one.requires_grad]
        value = (rounded(of[0], of[1], of[2]) ** 3).sum()
        first = torch.autograd.grad(value, needed, create_graph=True)
        penalty = torch.stack([one.square().sum() for one in first]).sum()
        return [*first, *torch.autograd.grad(penalty, needed)]

    found = second(lambda x, s, z: fake_quantize(x, s, z, spec))
    expected = second(
        lambda x, s, z: straight_through(x, s.reshape(shape), z.reshape(shape), -8, 7)
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("axis", [None, 1])
def test_torchs_function_transforms_give_the_same_values_and_gradients(axis: int | None) -> None:
    """Of each example by itself, with all parameters of a model given: vmap(grad(...))."""
    spec = QuantizerSpec(mode="asymmetric", bits=4, axis=axis)
    x = numbers(4).clamp(-9, 9).double()
    scale, zero = (one.double() for one in grid(spec, *([] if axis is None else [6])))

    def value(x: Tensor, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        rounded = fake_quantize(x, s, z, spec, gradient_scale=0.5)
        return rounded.pow(2).sum(), rounded

    def one_by_one(x: Tensor) -> tuple[list[Tensor], Tensor]:
        of = [one.clone().requires_grad_() for one in (x, scale, zero)]
        loss, rounded = value(*of)
        return list(torch.autograd.grad(loss, of)), rounded.detach()

    examples = torch.stack([x, -x, 2 * x])
    gradients = torch.func.grad(value, argnums=(0, 1, 2), has_aux=True)
    found, rounded = torch.func.vmap(gradients, in_dims=(0, None, None))(examples, scale, zero)
    for i, example in enumerate(examples):
        expected, values = one_by_one(example)
        assert torch.equal(rounded[i], values)
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one[i], other, rtol=1e-9)


def test_a_sparse_gradient_of_a_table_is_the_dense_one() -> None:
    spec, tokens = QuantizerSpec(), torch.tensor([1, 1, 3])

    def gradient(*, sparse: bool) -> Tensor:
        table = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
        rounded = fake_quantize(table, *grid(spec), spec)
        found = torch.nn.functional.embedding(tokens, rounded, sparse=sparse)
        (of_table,) = torch.autograd.grad(found.square().sum(), [table])
        return of_table

    assert torch.equal(gradient(sparse=True), gradient(sparse=False))


def test_derivatives_are_carried_forward_inside_the_range_alone() -> None:
    x = torch.tensor([0.3, -0.2, 900.0])
    spec = QuantizerSpec()
    _, tangent = torch.func.jvp(
        lambda one: fake_quantize(one, *grid(spec), spec), (x,), (torch.full_like(x, 2.0),)
    )
    assert tangent.tolist() == pytest.approx([2.0, 2.0, 0.0])


def test_an_exported_program_calls_torchs_own_operators() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            one = fake_quantize(x, *grid(QuantizerSpec()), QuantizerSpec())
            spec = QuantizerSpec(axis=1)
            return fake_quantize(one, *grid(spec, 6), spec)

    program = torch.export.export(Net(), (numbers(),))
    called = [str(node.target) for node in program.graph.nodes if "fake" in str(node.target)]
    assert called == [
        "aten.fake_quantize_per_tensor_affine.tensor_qparams",
        "aten.fake_quantize_per_channel_affine.default",
    ]
    assert torch.equal(program.module()(numbers()), Net()(numbers()))


@pytest.mark.parametrize(("low", "high"), [(1.0, 2.0), (-2.0, -1.0)])
def test_a_range_beside_zero_is_widened_to_hold_it(low: float, high: float) -> None:
    """Zero is on every grid, so a range of one sign reaches from 0 to its far end."""
    spec = QuantizerSpec(mode="asymmetric", signed=False)
    found = range_of(*qparams_from_range(torch.tensor(low), torch.tensor(high), spec), spec)
    assert found == (pytest.approx(min(low, 0.0)), pytest.approx(max(high, 0.0)))


def test_an_unsigned_symmetric_grid_of_negative_numbers_holds_zero() -> None:
    spec = QuantizerSpec(signed=False)
    scale, zero = qparams_from_range(torch.tensor(-2.0), torch.tensor(-1.0), spec)
    assert float(scale) > 0
    assert float(zero) == 0


@pytest.mark.parametrize("mode", ["float8_e4m3", "float8_e5m2"])
def test_the_range_of_a_float8_grid_ends_at_its_largest_finite_number(mode: str) -> None:
    spec = QuantizerSpec(mode=mode)
    largest = torch.finfo(getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(mode, mode))).max
    found = range_of(torch.tensor(0.5), torch.tensor(0.0), spec)
    assert [float(end) for end in found] == [-0.5 * largest, 0.5 * largest]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's
def test_compiled_gradients_pass_inside_the_range_and_nowhere_else() -> None:
    """The compiled mask includes both ends of the grid, as the eager one does."""
    spec = QuantizerSpec(bits=4)  # levels -8 to 7
    scale, zero = torch.tensor(0.5), torch.tensor(0.0)
    levels = torch.tensor([-9.0, -8.0, -7.0, 0.0, 6.0, 7.0, 8.0])
    x = (levels * scale).requires_grad_()

    def rounded(values: Tensor) -> Tensor:
        return fake_quantize(values, scale, zero, spec)

    torch.compile(rounded, fullgraph=True, backend="aot_eager")(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]


def test_two_channels_have_a_gradient_of_their_scale_each() -> None:
    """Inside the range it is `round(x/s) - x/s`, beyond it the end of the grid."""
    spec = QuantizerSpec(bits=4, axis=0)
    x = torch.tensor([[0.3], [9.0]])
    scale = torch.tensor([1.0, 1.0], requires_grad=True)
    fake_quantize(x, scale, torch.zeros(2), spec).sum().backward()
    assert scale.grad is not None
    assert scale.grad.tolist() == pytest.approx([-0.3, 7.0])


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_a_range_of_nothing_but_zero_has_a_grid_that_holds_zero(spec: QuantizerSpec) -> None:
    nothing = torch.tensor(0.0)
    scale, zero = qparams_from_range(nothing, nothing, spec)
    assert 0 < float(scale) < 1e-20
    assert spec.quant_min <= float(zero) <= spec.quant_max
    assert float(fake_quantize(nothing, scale, zero, spec)) == 0.0


def test_float8_is_a_format_of_multiples_of_the_scale() -> None:
    """By hand, e4m3: 2.6 lies between 2.5 and 2.75, and 448 is the largest; the scale is 0.5."""
    spec = QuantizerSpec(mode="float8_e4m3")
    x = torch.tensor([1.3, -1.3, 1000.0, -1000.0], requires_grad=True)
    scale, zero = torch.tensor(0.5), torch.tensor(0.0)
    found = fake_quantize(x, scale, zero, spec)
    found.sum().backward()
    assert found.tolist() == [1.25, -1.25, 224.0, -224.0]
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 0.0, 0.0]
    multiples = to_integers(x.detach(), scale, zero, spec)
    assert multiples.tolist() == pytest.approx([2.6, -2.6, 448.0, -448.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_integers_are_those_of_the_grid_by_hand(dtype: torch.dtype) -> None:
    """Steps of 0.5 from -4 to 3 around 1; ties go to the even one of two steps."""
    spec = QuantizerSpec(mode="asymmetric", bits=3)
    x = torch.tensor([0.0, 0.25, 0.75, -0.5, 9.0, -9.0], dtype=dtype)
    found = to_integers(x, torch.tensor(0.5), torch.tensor(1.0), spec)
    assert found.tolist() == [1, 1, 3, 0, 3, -4]
