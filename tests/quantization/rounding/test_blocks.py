"""Parts of a model that are learned one at a time."""

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.quantization.rounding.blocks import captured, find_blocks
from small_models import Function


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x).relu())


def layers_of(model: nn.Module) -> list[str]:
    kinds = nn.Conv2d | nn.Linear | nn.Bilinear
    return [name for name, one in model.named_modules() if isinstance(one, kinds)]


def divided(model: nn.Module, x: Tensor) -> list[tuple[str, tuple[str, ...]]]:
    wrapped = nncfx.wrap(model.eval(), x)
    return [(one.name, one.layers) for one in find_blocks(wrapped, layers_of(model), x)]


def test_a_residual_branch_is_a_block_and_so_are_two_layers_in_a_row() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), Branch(), Branch(), Branch()),
        *(nn.AvgPool2d(6), nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5)),
        *(nn.ReLU(), nn.Linear(5, 4)),
    )
    assert divided(model, torch.randn(2, 3, 8, 8)) == [
        ("0", ("0",)),
        ("3", ("3.first", "3.second")),
        ("4", ("4.first", "4.second")),
        ("5", ("5.first", "5.second")),
        ("8", ("8", "10")),
        ("12", ("12",)),
    ]


def test_what_is_called_twice_or_with_two_tensors_is_in_no_block() -> None:
    model = Function(
        lambda m, x: m.mix(y := m.fc(m.fc(x)), y), fc=nn.Linear(8, 8), mix=nn.Bilinear(8, 8, 4)
    )
    assert divided(model, torch.randn(2, 8)) == []


def unreached() -> nn.Module:
    """Shows those of its examples to `expert` that lie far out."""
    return Function(lambda m, x: m.expert(x[x[:, 0] > 100]).sum(0) + x, expert=nn.Linear(8, 8))


def test_a_layer_that_the_example_does_not_reach_is_in_no_block() -> None:
    assert divided(unreached(), torch.randn(2, 8)) == []


def test_blocks_compute_what_the_model_does_between_them() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 8, 5, 5)
    model = nn.Sequential(*(Branch() for _ in range(3))).eval()
    wrapped = nncfx.wrap(model, x)
    blocks = find_blocks(wrapped, layers_of(model), x)
    assert [one.follows for one in blocks] == [None, *blocks[:2]]
    assert blocks[0].example_bytes == 2 * 8 * 25 * 4
    entering, leaving = captured(wrapped, blocks[1], x.split(2))
    with torch.no_grad():
        torch.testing.assert_close(entering, model[0](x))
        torch.testing.assert_close(leaving, model[1](model[0](x)))
        torch.testing.assert_close(blocks[1](entering), leaving)


@pytest.mark.parametrize("training", [True, False])
def test_looking_at_a_block_leaves_the_model_as_it_is(*, training: bool) -> None:
    x = torch.randn(4, 8, 5, 5)
    model = nn.Sequential(Branch(), nn.BatchNorm2d(8), Branch(), Branch()).train(training)
    wrapped = nncfx.wrap(model, x)
    mean = model[1].running_mean.clone()
    captured(wrapped, find_blocks(wrapped, layers_of(model), x)[1], [x])
    assert wrapped.training is training
    assert torch.equal(model[1].running_mean, mean)
    assert not any(one._forward_hooks for one in model.modules())
