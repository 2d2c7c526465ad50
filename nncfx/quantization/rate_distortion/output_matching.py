"""Adjust norms and biases by least squares to compensate for rounded weights."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.controllers.loops.batch_norm_adaptation import Forward, run_batch

_BIASED: Final = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TINY: Final = 1e-12


def adjustable_parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return the norm weights and the biases that `match_outputs` changes, by name."""
    names = {id(one): name for name, one in model.named_parameters()}
    owned = [one for module in model.modules() for one in _affine(module) if one is not None]
    return {names[id(one)]: one for one in owned}


@torch.no_grad()
def match_outputs(
    model: nn.Module,
    reference: nn.Module,
    batches: Iterable[Any],
    *,
    forward: Forward | None = None,
) -> None:
    """Adjust norms and biases of `model`, in place, to match the outputs of `reference`.

    Each norm gets the scale and shift per channel that bring its outputs closest to those of the
    same norm in `reference`, the model before rounding; the bias of each linear layer or
    convolution is shifted to give the same means. Later norms and layers read matched inputs.
    Modules that a forward calls more than once are not changed. Both models must be in evaluation
    mode; `forward` calls them with a batch. The result is the mean of what the batches ask for.

    Source: Nagel et al. 2019, Data-free quantization through weight equalization and bias
    correction, section 4.2, with the scale as well.
    """
    call = run_batch if forward is None else forward
    names = [name for name, module in model.named_modules() if _affine(module)[1] is not None]
    for number, batch in enumerate(batches, 1):
        wanted: dict[str, list[Tensor]] = {name: [] for name in names}
        with ExitStack() as ends:
            for name in names:
                kept = _keeper(wanted[name])
                module = reference.get_submodule(name)
                ends.enter_context(module.register_forward_hook(kept))
            call(reference, batch)
        with ExitStack() as ends:
            for name in names:
                if len(wanted[name]) == 1:
                    matched = _matcher(wanted[name], 1 / number)
                    ends.enter_context(model.get_submodule(name).register_forward_hook(matched))
            call(model, batch)


def _keeper(kept: list[Tensor]) -> Callable[[nn.Module, object, Tensor], None]:
    def keep(_: nn.Module, __: object, leaving: Tensor) -> None:
        kept.append(leaving.bfloat16())

    return keep


def _matcher(wanted: list[Tensor], share: float) -> Callable[[nn.Module, object, Tensor], Tensor]:
    """Return a hook that moves a module by a `share` of the way to the outputs `wanted`."""

    def match(module: nn.Module, _: object, leaving: Tensor) -> Tensor:
        target = wanted.pop().to(leaving.dtype)
        axis = _axis(module)
        others = [one for one in range(leaving.ndim) if one != axis % leaving.ndim]
        shape = [1] * leaving.ndim
        shape[axis] = -1
        mean, goal = leaving.mean(others), target.mean(others)
        weight, bias = _affine(module)
        best = torch.ones_like(mean)
        if weight is not None:
            centred = leaving - mean.view(shape)
            best = (centred * target).mean(others) / centred.square().mean(others).clamp(_TINY)
        scale, shift = 1 + share * (best - 1), share * (goal - best * mean)
        if weight is not None:
            weight.mul_(scale.to(weight.dtype))
        assert bias is not None  # noqa: S101 (as picked)
        bias.copy_(bias * scale + shift)
        return leaving * scale.view(shape) + shift.view(shape)

    return match


def _axis(module: nn.Module) -> int:
    return -1 if isinstance(module, nn.Linear | nn.LayerNorm) else 1


def _affine(module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Return the weight and the bias that can be adjusted, or None for each that cannot."""
    own = module._parameters  # noqa: SLF001 (as stored, without hooks)
    if type(module) in _BIASED:
        return None, own.get("bias")
    is_norm = isinstance(module, _BatchNorm | nn.GroupNorm)
    is_norm |= isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1
    if is_norm and own.get("weight") is not None and own.get("bias") is not None:
        return own["weight"], own["bias"]
    return None, None
