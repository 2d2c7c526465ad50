"""Small models with many kinds of layers, for the suites."""

from typing import Self

import torch
from torch import Tensor, nn
from typing_extensions import override

__all__ = ["ConvAttentionNet", "example_inputs"]


def example_inputs() -> Tensor:
    """Return two images of 3 x 8 x 8, always the same."""
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class ConvAttentionNet(nn.Module):
    """A residual block, batch norm, attention of 4 heads, and linear layers after a flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv1 = nn.Conv2d(8, 12, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 8, 1)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.proj = nn.Linear(8, 8)
        self.fc1 = nn.Linear(8 * 16, 10)
        self.fc2 = nn.Linear(10, 4)

    @override
    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = x + self.conv2(self.norm(self.conv1(x)).relu())
        x = nn.functional.avg_pool2d(x, 2).flatten(2).transpose(1, 2)
        parts = self.qkv(x).unflatten(-1, (3, -1, 2)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(*parts.unbind())
        x = (x + self.proj(heads.transpose(1, 2).flatten(2))).transpose(1, 2).flatten(1)
        result: Tensor = self.fc2(self.fc1(x).relu())
        return result

    @classmethod
    def fresh(cls) -> Self:
        """Return the model with the same weights in every call, in evaluation mode."""
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(0)
            model = cls()
            model.norm.weight.uniform_(0.5, 2)
            model.norm.bias.uniform_(-1, 1)
            mean = model.norm.running_mean
            assert mean is not None
            mean.uniform_(-1, 1)
            # zeros for const_sparsity to keep
            model.conv1.weight[..., 0, 0] = 0
        return model.eval()
