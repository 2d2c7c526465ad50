"""Second moments, factored, and the columns that make up for one another."""

import torch
from torch import Tensor

from nncfx.quantization.rounding.curvature import curvature, reconstruction_errors, replace_columns


def moments(inputs: int, examples: int = 400) -> Tensor:
    generator = torch.Generator().manual_seed(inputs)
    mixing = torch.randn(inputs, inputs, generator=generator)
    data = torch.randn(examples, inputs, generator=generator) @ mixing
    return data.T @ data / examples


def test_the_factor_is_that_of_the_inverse_of_the_damped_moments_in_order_of_energy() -> None:
    given = moments(20)
    known = curvature(given)
    energy = given.diagonal()[known.order]
    assert (energy[:-1] >= energy[1:]).all()
    damped = given[known.order][:, known.order].double() + torch.diag(known.damping)
    torch.testing.assert_close(known.damping, given.diagonal().mean().double().expand(20) / 100)
    assert torch.equal(known.factor, known.factor.triu())
    inverse = known.factor.T @ known.factor
    torch.testing.assert_close(inverse @ damped, torch.eye(20, dtype=torch.float64))


def test_columns_that_stay_as_they_are_lose_nothing() -> None:
    weight = torch.randn(6, 150, generator=torch.Generator().manual_seed(0))
    known = curvature(moments(150))
    kept, lost = replace_columns(weight, known, lambda _, __: lambda _, values: values)
    assert torch.equal(kept.float(), weight)
    assert torch.equal(lost, torch.zeros_like(lost))


def test_one_column_set_to_zero_is_made_up_for_by_least_squares_and_the_loss_is_told() -> None:
    """The other columns solve the damped normal equations; 150 columns are more than a block."""
    weight = torch.randn(6, 150, generator=torch.Generator().manual_seed(1))
    given = moments(150)
    known = curvature(given)
    gone, rest = int(known.order[0]), known.order[1:]
    found, lost = replace_columns(
        weight, known, lambda _, __: lambda column, values: values * (column > 0)
    )
    back = known.order.argsort()
    damped = given.double() + torch.diag(known.damping[back])
    change = torch.linalg.solve(damped[rest][:, rest], damped[rest, gone])
    expected = weight.double()
    expected[:, rest] += expected[:, gone, None] * change
    expected[:, gone] = 0
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(lost, reconstruction_errors(weight.double(), found, given.double()))


def test_the_factor_of_many_inputs_is_found_by_halves() -> None:
    """More inputs than are solved at once, and no power of two times that."""
    given = moments(301, 900)
    known = curvature(given)
    damped = given[known.order][:, known.order].double() + torch.diag(known.damping)
    assert torch.equal(known.factor, known.factor.triu())
    product = known.factor.T @ known.factor @ damped
    # moments of condition 1e5 at most
    torch.testing.assert_close(product, torch.eye(301, dtype=torch.float64), rtol=0, atol=1e-9)
