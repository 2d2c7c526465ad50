"""A model at one rate: on its grids, smaller and worse as the rate rises."""

import torch
from torch import nn

from nncfx.quantization.rate_distortion.coded_model import Coder
from nncfx.quantization.rate_distortion.curvature import measure_curvature


class Net(nn.Module):
    """A grouped convolution, a norm, an embedding, and a part that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3, groups=2, bias=False)
        self.norm = nn.BatchNorm1d(16)
        self.words = nn.Embedding(40, 16)
        self.head = nn.Linear(16, 8)
        self.unused = nn.Linear(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(self.words(ids).mT)).relu()
        return self.head(x.mean(2))


def test_parameters_are_on_grids_and_bits_buy_accuracy() -> None:
    torch.manual_seed(0)
    model, ids = Net().eval(), torch.randint(40, (64, 12))
    unused = model.unused.weight.clone()
    coder = Coder(model, measure_curvature(model, [ids]), [ids])
    wanted = model(ids).detach()
    errors, bits = [], []
    for rate in (1e-7, 1e-5, 1e-4):
        rounded = coder.rounded(rate)
        errors.append(
            float((rounded.model(ids) - wanted).detach().square().sum() / wanted.square().sum())
        )
        bits.append(rounded.bits)
        for name in ("conv.weight", "words.weight", "head.weight", "norm.bias"):
            values = rounded.model.get_parameter(name).detach().double().flatten()
            step = torch.unique(values.sort().values.diff())[1]
            # exact: products of short steps and integers are
            assert torch.equal((values / step).round() * step, values), name
        assert torch.equal(rounded.model.unused.weight, unused)
    assert errors == sorted(errors)
    assert bits == sorted(bits, reverse=True)
    assert errors[0] < 1e-3
    assert coder.rounded(1e-4).bits == bits[-1]


def test_matching_lowers_the_error() -> None:
    torch.manual_seed(1)
    model, ids = Net().eval(), torch.randint(40, (64, 12))
    coder = Coder(model, measure_curvature(model, [ids]), [ids])
    wanted = model(ids).detach()
    errors = [
        float((coder.rounded(1e-4, match=match).model(ids) - wanted).detach().square().sum())
        for match in (True, False)
    ]
    assert errors[0] < errors[1]


def test_norms_over_dead_channels_leave_the_living_ones_exact() -> None:
    """A channel that is always nearly zero has a norm weight of thousands, the others of one."""
    torch.manual_seed(2)
    model, ids = Net().eval(), torch.randint(40, (64, 12))
    with torch.no_grad():
        model.conv.weight[0] *= 1e-6
        model.norm.weight[0] = 1e5
    coder = Coder(model, measure_curvature(model, [ids]), [ids])
    found = coder.rounded(1e-9, match=False).model.get_parameter("norm.weight")
    assert (found / model.norm.weight - 1).abs().max() < 2**-8
