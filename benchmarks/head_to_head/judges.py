"""What is read off the networks that the tools end with, whichever made them."""

import copy

import torch
from torch import Tensor, nn

__all__ = ["accuracy", "living_macs", "sparsity"]


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the fraction of `images` (n x 3 x h x w) that `model` gets right."""
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in torch.split(images, 500)])
    return float((found == labels).double().mean())


def sparsity(model: nn.Module) -> float:
    """Return the fraction of zeros in the weights of convolutions and linear layers."""
    weights = [one.weight for one in model.modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def living_macs(model: nn.Module, example: Tensor) -> int:
    """Return the multiply-accumulates for `example`, without channels that can only be zero.

    Masked and thinned networks are counted alike: what is masked is found by an image of ones in
    a copy whose weights are their magnitudes, so that only zeros make a zero. A mean that a norm
    subtracts has no part in it. Convolutions have one group.
    """
    copied = copy.deepcopy(model).double().eval()
    for norm in (one for one in copied.modules() if isinstance(one, nn.BatchNorm2d)):
        norm.reset_running_stats()
    for parameter in copied.parameters():
        parameter.detach().abs_()
    counts: list[int] = []

    def count(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        each = module.get_parameter("weight")[0, 0].numel() * output[0, 0].numel()
        counts.append(_living(inputs[0]) * _living(output) * each)

    for layer in copied.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    with torch.no_grad():
        copied(torch.ones_like(example, dtype=torch.float64))
    return sum(counts)


def _living(activations: Tensor) -> int:
    return int(activations.transpose(0, 1).flatten(1).ne(0).any(1).sum())
