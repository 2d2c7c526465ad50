"""Measure how much rounding errors of weights change the outputs of a model."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.controllers.loops.batch_norm_adaptation import Forward, run_batch
from nncfx.errors import ArgumentError
from nncfx.quantization.rounding.input_moments import input_moments
from nncfx.tracing.calls.tensors import tensors_in

_LONGEST_ROW: Final = 8192
"""Most inputs of a row; second moments of longer rows take more than a gigabyte."""
_EXAMPLES: Final = 16
"""Examples in a backward pass; each pass gives one sample of the squared gradients."""


@dataclass(frozen=True, eq=False)
class OutputCurvature:
    """An approximation of the Gauss-Newton matrix of a model's outputs.

    The loss is the squared change of the outputs as a share of their squares.

    Attributes:
        diagonal: The diagonal by name of the parameter, with its shape.
        moments: By name of a layer's weight, groups x m x m: the sum of x x^T over all vectors
            that a row of m weights is multiplied by. It is the same for all rows of a group.
    """

    diagonal: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]

    def of_rows(self, name: str) -> Tensor:
        """Return the factor of the moments for each row of a layer's weight, o."""
        diagonal, moments = self.diagonal[name], self.moments[name]
        traces = moments.diagonal(dim1=1, dim2=2).sum(1)
        sums = diagonal.flatten(1).sum(1).view(len(moments), -1)
        return (sums / traces.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)).flatten()


def measure_curvature(
    model: nn.Module, batches: Iterable[Any], *, forward: Forward | None = None
) -> OutputCurvature:
    """Run `model` forward and backward over `batches` and return its curvature.

    The expected squared gradient of a random projection of the outputs is the diagonal of the
    Gauss-Newton matrix; one projection is drawn for every 16 examples. The model must be in
    evaluation mode, on any device; its gradients are cleared. Batches have the form that
    `adapt_batch_norms` takes, and `forward` calls the model with one.

    Raises:
        ArgumentError: there are no batches, or the outputs depend on no parameter.

    Source: Martens and Grosse 2015, Optimizing neural networks with Kronecker-factored
    approximate curvature, section 2; Bekas et al. 2007, An estimator for the diagonal of a matrix.
    """
    call = run_batch if forward is None else forward
    names = {id(one): name for name, one in model.named_parameters()}
    moments: dict[str, Tensor] = {}
    squares = {name: torch.zeros_like(one) for name, one in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    count = 0
    with ExitStack() as ends:
        for module in model.modules():
            if _has_moments(module):
                hook = _MomentsHook(names[id(module.weight)], moments)
                ends.enter_context(module.register_forward_pre_hook(hook))
        for parameter in model.parameters():
            ends.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_()
        for batch in chain.from_iterable(map(split_batch, batches)):
            model.zero_grad(set_to_none=True)
            with torch.enable_grad():
                _projection(call(model, batch), generator).backward()  # type: ignore[no-untyped-call]
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    squares[name] += parameter.grad.float().square()
            count += 1
        model.zero_grad(set_to_none=True)
    if not count:
        raise ArgumentError("batches is empty: pass inputs that the model will see in use.")
    return OutputCurvature({k: v / count for k, v in squares.items()}, moments)


def _projection(outputs: object, generator: torch.Generator) -> Tensor:
    total = None
    for one in tensors_in(outputs):
        if not one.requires_grad:  # such as integers
            continue
        signs = torch.randint(2, one.shape, generator=generator, device="cpu").to(one) * 2 - 1
        power = one.detach().float().square().sum().sqrt().clamp(min=1e-12)
        part = (one * signs).sum() / power
        total = part if total is None else total + part
    if total is None:
        raise ArgumentError(
            "The outputs of the model depend on none of its parameters. Pass forward=lambda "
            "model, batch: ... that returns them with their gradients."
        )
    return total


def split_batch(batch: Any) -> Iterator[Any]:  # noqa: ANN401 (whatever the model takes)
    """Yield parts of 16 examples of a tensor, tuple, list or mapping of tensors."""
    if isinstance(batch, Tensor) and batch.ndim:
        yield from _parts(batch)
    elif isinstance(batch, Mapping) and all(isinstance(one, Tensor) for one in batch.values()):
        parts = [_parts(one) for one in batch.values()]
        for some in zip(*parts, strict=True):
            yield dict(zip(batch, some, strict=True))
    elif isinstance(batch, tuple | list) and batch and all(isinstance(x, Tensor) for x in batch):
        yield from zip(*map(_parts, batch), strict=True)
    else:
        yield batch


def _parts(tensor: Tensor) -> list[Tensor]:
    return [tensor[at : at + _EXAMPLES] for at in range(0, len(tensor), _EXAMPLES)]


def _has_moments(module: nn.Module) -> bool:
    plain = type(module) in {nn.Linear, nn.Conv1d, nn.Conv2d}
    if not plain or not isinstance(module._parameters.get("weight"), Tensor):  # noqa: SLF001 (none in a hook's place)
        return False
    zeros = getattr(module, "padding_mode", "zeros") == "zeros"
    return zeros and module.weight[0].numel() <= _LONGEST_ROW  # type: ignore[index]


class _MomentsHook:
    """Sums the second moments of a layer's inputs."""

    def __init__(self, name: str, sums: dict[str, Tensor]) -> None:
        self.name = name
        self.sums = sums

    @torch.no_grad()
    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        (entering,) = args
        (found,) = input_moments(entering.detach(), module, images=_EXAMPLES)
        self.sums[self.name] = self.sums.get(self.name, 0.0) + found
