"""Calls of torch functions, and functions that interpret their arguments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

RELUS: Final = frozenset({F.relu, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_})


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a torch function."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def run(self) -> Any:  # noqa: ANN401 (what the function returns)
        """Return the result of the call."""
        return self.func(*self.args, **self.kwargs)

    def named(self, *names: str) -> dict[str, Any]:
        """Return the arguments by name; `names` are those of positional arguments."""
        return dict(zip(names, self.args, strict=False)) | dict(self.kwargs)

    @property
    def x(self) -> Any:  # noqa: ANN401 (mostly a tensor)
        """The first argument."""
        return self.args[0] if self.args else self.kwargs["input"]

    def on(self, x: Tensor) -> Any:  # noqa: ANN401 (what the function returns)
        """Return the result of the call with `x` as its first argument."""
        if self.args:
            return self.func(x, *self.args[1:], **self.kwargs)
        return self.func(**dict(self.kwargs) | {"input": x})


def is_choice(call: Call) -> bool:
    """Return whether a call returns only elements of its input, 0 or minus infinity."""
    if call.func is F.pad:
        # minus infinity is for maximum poolings, which do not return it
        return call.named("input", "pad", "mode", "value").get("value") in (None, 0, -torch.inf)
    if call.func is F.dropout:
        return not call.named("input", "p", "training").get("training", True)
    return True


def is_over_channels(call: Call) -> bool:
    """Return whether a mean is over the channels only."""
    if call.func is F.adaptive_avg_pool2d:
        return False
    return call.named("input", "dim").get("dim") in (1, -3, (1,), (-3,), [1], [-3])


def clamp_bounds(call: Call) -> tuple[float, float] | None:
    """Return the lower and upper bound of a clamp; None if they are not constant."""
    if call.func in RELUS:
        return 0.0, torch.inf
    if call.func is F.relu6:
        return 0.0, 6.0
    is_tanh = call.func is F.hardtanh
    low, high = ("min_val", "max_val") if is_tanh else ("min", "max")
    given = {low: -1.0, high: 1.0} if is_tanh else {}
    given |= call.named("input", low, high)
    bounds = given.get(low), given.get(high)
    if any(isinstance(one, Tensor) for one in bounds):
        return None
    return (
        -torch.inf if bounds[0] is None else bounds[0],
        torch.inf if bounds[1] is None else bounds[1],
    )


def is_whole_image(call: Call) -> bool:
    """Return whether the window of an average pooling is the whole image, without padding."""
    named = call.named("input", "kernel_size", "stride", "padding")
    kernel, padding = (_pair(named.get(name, 0)) for name in ("kernel_size", "padding"))
    return padding == (0, 0) and kernel == tuple(call.x.shape[2:])


def resizing(call: Call, result: Tensor) -> tuple[tuple[float, float], bool] | None:
    """Return the factors of height and width, and whether corners are aligned.

    The result is None unless the resizing is bilinear.
    """
    named = call.named("input", "size", "scale_factor", "mode", "align_corners")
    is_bilinear = named.get("mode") == "bilinear" and not named.get("antialias")
    if not is_bilinear or result.dtype != torch.float32:
        return None
    factor = None if named.get("recompute_scale_factor") else named.get("scale_factor")
    if factor is None:
        sizes = zip(result.shape[2:], call.x.shape[2:], strict=True)
        factor = tuple(after / before for after, before in sizes)
    height, width = _pair(factor)
    return (float(height), float(width)), bool(named.get("align_corners"))


def _pair(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 (a number or two)
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)
