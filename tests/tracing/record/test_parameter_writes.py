"""A forward that only looks leaves parameters as they were, however they are written to."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.network import unwrap
from nncfx.tracing import trace


class Written(nn.Module):
    """Sets its parameters in the first forward of training, as ActNorm does."""

    def __init__(self, write: Callable[[nn.Module, Tensor], object]) -> None:
        super().__init__()
        self.write = write
        self.shift = nn.Parameter(torch.zeros(16, 1, 1))
        self.register_buffer("is_set", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.is_set:
            with torch.no_grad():
                self.write(self, x.mean((0, 2, 3), keepdim=True)[0])
            self.is_set.fill_(True)
        return x + self.shift


WRITES: dict[str, Callable[[Written, Tensor], object]] = {
    "data": lambda layer, mean: layer.shift.data.copy_(-mean),
    "in place": lambda layer, mean: layer.shift.sub_(mean),
    "operator": lambda layer, mean: layer.shift.__isub__(mean),
    "element": lambda layer, mean: layer.shift.__setitem__(0, mean[0]),
    "view": lambda layer, mean: layer.shift[2:4].copy_(mean[2:4]),
    "out": lambda layer, mean: torch.neg(mean, out=layer.shift),
    "all at once": lambda layer, mean: torch._foreach_sub_([layer.shift], [mean]),
    "replaced": lambda layer, mean: setattr(layer, "shift", nn.Parameter(-mean)),
    "written, then set": lambda layer, mean: setattr(layer.shift.add_(1), "data", -mean),
    "vectorized": lambda layer, mean: layer.shift.copy_(
        torch.vmap(lambda one: one.clone().mul_(-1))(mean)
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_trace_in_training_mode_leaves_parameters_as_they_were(
    write: Callable[[nn.Module, Tensor], object],
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), Written(write), nn.ReLU()).eval()
    held, before = model[1].shift, copy.deepcopy(model.state_dict())
    data = held.data_ptr()
    trace(model, torch.randn(2, 3, 8, 8), train=True)
    assert model[1].shift is held
    assert held.data_ptr() == data
    after = model.state_dict()
    assert all(torch.equal(after[name], one) for name, one in before.items())


def test_looking_at_channels_does_not_set_up_a_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), Written(WRITES["data"]), nn.ReLU(), nn.Conv2d(16, 4, 3)
    ).eval()
    before = copy.deepcopy(model.state_dict())
    assert nncfx.wrap(model, torch.randn(2, 3, 8, 8)).nncf.channels
    after = unwrap(model).state_dict()
    assert all(torch.equal(after[name], one) for name, one in before.items())
