"""Use faster CPU kernels for a forward without gradients.

torch pools contiguous (channels-first) images without vector instructions, and does not use its
vector kernel for depthwise convolutions whose left padding exceeds a register.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.graph import Operation
from nncfx.network import NNCFNetwork
from nncfx.operators import functions_of

_MOST_PADDING: Final = 4
"""Most columns of left padding that oneDNN's kernels for AVX2 support (6 for AVX-512).

Source: measured in torch 2.13, with ONEDNN_MAX_CPU_ISA=AVX2 and without: beyond it, padding first
halves the time, and takes a third of it with 31 taps."""
_FEW_CHANNELS: Final = 6
"""With fewer channels, vectors over channels are mostly empty."""
_CONVOLUTION: Final = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_CONVOLUTIONS: Final = functions_of("conv")


def quick_kernels(model: nn.Module) -> AbstractContextManager[object]:
    """Return a context for forwards of `model`; a null context if there is nothing to gain."""
    operations = model.nncf.graph.operations if isinstance(model, NNCFNetwork) else ()
    return _QuickKernels() if any(map(_gains, operations)) else nullcontext()


def _gains(operation: Operation) -> bool:
    if operation.function in _CONVOLUTIONS:
        weight = operation.inputs[1]
        return weight is not None and weight.shape[1] == 1 and weight.shape[-1] > 2 * _MOST_PADDING
    return operation.function == "max_pool2d"


@final
class _QuickKernels(TorchFunctionMode):
    """Replaces functions of torch: maxima are equal bitwise, sums are in another order."""

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function."""
        if func in _QUICK:
            return _QUICK[func](func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _channels_last(
    pool: Callable[..., Any],
    input: Tensor,  # noqa: A002 (as torch names it)
    *args: Any,  # noqa: ANN401 (as torch takes them)
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 (a tensor, or two)
    is_slow = input.ndim == 4 and input.shape[1] >= _FEW_CHANNELS and input.is_contiguous()  # noqa: PLR2004 (n c h w)
    if not (is_slow and input.is_cpu and input.dtype == torch.float32):
        return pool(input, *args, **kwargs)
    found = pool(input.contiguous(memory_format=torch.channels_last), *args, **kwargs)
    return found.contiguous() if isinstance(found, Tensor) else found


def _padded(
    convolve: Callable[..., Tensor],
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> Tensor:
    call = dict(zip(_CONVOLUTION, args, strict=False)) | kwargs
    x, axes, padding = call["input"], call["weight"].ndim - 2, call.get("padding", 0)
    is_depthwise = x.ndim == axes + 2 and 1 < call.get("groups", 1) == x.shape[1]
    if is_depthwise and x.is_cpu and not isinstance(padding, str):
        sides = (padding,) if isinstance(padding, int) else tuple(padding)
        *others, last = sides if len(sides) == axes else sides * axes
        if last > _MOST_PADDING:
            call |= {"input": F.pad(x, (last, last)), "padding": (*others, 0)}
    return convolve(**call)


_QUICK: Final[Mapping[Callable[..., Any], Callable[..., Any]]] = MappingProxyType(
    {
        F.max_pool2d: _channels_last,
        torch.max_pool2d: _channels_last,
        **{getattr(torch, function): _padded for function in _CONVOLUTIONS},
    }
)
