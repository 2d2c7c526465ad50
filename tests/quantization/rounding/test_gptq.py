"""Rounding by columns, with compensation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nncfx.errors import CompressionError
from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.rounding.curvature import curvature, reconstruction_errors
from nncfx.quantization.rounding.gptq import round_matrix

PER_ROW = QuantizerSpec(bits=4, axis=0, narrow=True)
BY_GROUPS = QuantizerSpec(bits=4, mode="asymmetric", signed=False, group=4)
PER_TENSOR = QuantizerSpec(bits=3)


def parameters(weight: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    rows = weight if spec.group is None else weight.reshape(-1, spec.group)
    if spec.group is None and spec.axis is None:
        return qparams_from_range(weight.amin(), weight.amax(), spec)
    return qparams_from_range(rows.amin(1), rows.amax(1), spec)


def gptq(
    weight: Tensor, moments: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec
) -> Tensor:
    return round_matrix(weight, curvature(moments), scale, zero_point, spec).values


def case(seed: int, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Return a weight and the moments of correlated inputs."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(50, 6, generator=generator) @ torch.randn(6, inputs, generator=generator)
    data = mixed + 0.3 * torch.randn(50, inputs, generator=generator)
    return torch.randn(outputs, inputs, generator=generator), data.T @ data / len(data)


def one_column_at_a_time(weight: Tensor, moments: Tensor, spec: QuantizerSpec) -> Tensor:
    """Solve OBQ as it is written: after each column, invert what is left of the moments."""
    scale, zero_point = parameters(weight, spec)
    rest, damped = weight.double().clone(), moments.double()
    damped = damped + 0.01 * damped.diagonal().mean() * torch.eye(len(damped))
    left = moments.diagonal().argsort(descending=True, stable=True).tolist()
    while left:
        inverse = torch.linalg.inv(damped[left][:, left])
        column = left[0]
        value = fake_quantize(rest.float(), scale, zero_point, spec)[:, column].double()
        error = (rest[:, column] - value) / inverse[0, 0]
        rest[:, left] -= error.unsqueeze(1) * inverse[0]
        rest[:, column] = value
        left.pop(0)
    return rest


@pytest.mark.parametrize("spec", [PER_ROW, BY_GROUPS, PER_TENSOR])
def test_it_is_optimal_brain_quantization_row_by_row_never_worse_than_nearest(
    spec: QuantizerSpec,
) -> None:
    weight, moments = case(0, 9, 16)
    scale, zero_point = parameters(weight, spec)
    nearest = fake_quantize(weight, scale, zero_point, spec)
    slow = one_column_at_a_time(weight, moments, spec)
    candidates = [reconstruction_errors(weight, one, moments) for one in (slow, nearest)]
    found = gptq(weight, moments, scale, zero_point, spec)
    torch.testing.assert_close(
        reconstruction_errors(weight, found, moments), torch.minimum(*candidates)
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([PER_ROW, BY_GROUPS, PER_TENSOR]))
def test_no_row_is_worse_than_rounded_to_nearest(seed: int, spec: QuantizerSpec) -> None:
    weight, moments = case(seed, 5, 12)
    scale, zero_point = parameters(weight, spec)
    found = gptq(weight, moments, scale, zero_point, spec)
    nearest = fake_quantize(weight, scale, zero_point, spec)
    ours = reconstruction_errors(weight, found, moments)
    assert (ours <= reconstruction_errors(weight, nearest, moments)).all()


@pytest.mark.parametrize("spec", [PER_ROW, BY_GROUPS, PER_TENSOR])
def test_what_was_pruned_stays_zero(spec: QuantizerSpec) -> None:
    weight, moments = case(1, 64, 200)
    weight[weight.abs() < 0.7] = 0
    scale, zero_point = parameters(weight, spec)
    found = gptq(weight, moments, scale, zero_point, spec)
    assert not found[weight == 0].any()
    nearest = fake_quantize(weight, scale, zero_point, spec)
    ours = reconstruction_errors(weight, found, moments)
    assert ours.mean() < 0.8 * reconstruction_errors(weight, nearest, moments).mean()


def test_correlated_inputs_at_four_bits_lose_less_than_half_as_much() -> None:
    weight, moments = case(1, 64, 200)  # more columns than a block has
    scale, zero_point = parameters(weight, PER_ROW)
    found = gptq(weight, moments, scale, zero_point, PER_ROW)
    nearest = fake_quantize(weight, scale, zero_point, PER_ROW)
    errors = [reconstruction_errors(weight, one, moments).mean() for one in (found, nearest)]
    assert errors[0] < errors[1] / 2


def test_uncorrelated_inputs_leave_rounding_to_nearest() -> None:
    weight, _ = case(2, 5, 12)
    scale, zero_point = parameters(weight, PER_ROW)
    found = gptq(weight, torch.eye(12), scale, zero_point, PER_ROW)
    assert torch.equal(found, fake_quantize(weight, scale, zero_point, PER_ROW))


@pytest.mark.parametrize("spec", [PER_ROW, BY_GROUPS])
def test_the_result_is_on_the_grid_to_the_last_bit(spec: QuantizerSpec) -> None:
    weight, moments = case(3, 5, 12)
    scale, zero_point = parameters(weight, spec)
    found = gptq(weight, moments, scale, zero_point, spec)
    assert torch.equal(fake_quantize(found, scale, zero_point, spec), found)


@pytest.mark.parametrize("dead", [slice(2, 5), slice(None)])
def test_inputs_that_are_always_zero_do_no_harm(dead: slice) -> None:
    weight, moments = case(4, 5, 12)
    moments[dead], moments[:, dead] = 0, 0
    scale, zero_point = parameters(weight, PER_ROW)
    assert gptq(weight, moments, scale, zero_point, PER_ROW).isfinite().all()


def test_moments_of_fewer_examples_than_inputs_are_damped_until_they_have_an_inverse() -> None:
    weight, _ = case(5, 5, 12)
    one = torch.ones(12, 12)
    scale, zero_point = parameters(weight, PER_ROW)
    assert gptq(weight, one, scale, zero_point, PER_ROW).isfinite().all()


def test_moments_that_are_not_finite_are_refused() -> None:
    weight, moments = case(6, 5, 12)
    moments[0, 0] = torch.nan
    scale, zero_point = parameters(weight, PER_ROW)
    with pytest.raises(CompressionError, match="not finite"):
        gptq(weight, moments, scale, zero_point, PER_ROW)
