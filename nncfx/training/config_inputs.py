"""Builds example inputs from a config's `input_info`."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import nn

from nncfx.config import InputInfo
from nncfx.errors import ArgumentError
from nncfx.tracing import ExampleInputs

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "bool": torch.bool,
    "double": torch.float64,
    "float": torch.float32,
    "half": torch.float16,
    "int": torch.int32,
    "long": torch.int64,
}


def example_inputs_of(infos: Sequence[InputInfo], model: nn.Module) -> ExampleInputs:
    """Return example inputs as described by `infos`, on the device of `model`.

    Inputs with a `keyword` are passed by name; if there are any, those before them get the names
    of the forward's arguments in order. A "random" filler draws from [0, 1) with a fixed seed;
    integers and bools are drawn as 0 or 1.

    Raises:
        ArgumentError: `infos` is empty, or there are more inputs without a keyword than the
            forward has arguments.
    """
    if not infos:
        raise ArgumentError(
            "There are no example inputs, without which the model cannot be traced. Pass "
            "example_inputs, or write 'input_info' into the config."
        )
    first = next(model.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    tensors = [_filled(info, device) for info in infos]
    if all(info.keyword is None for info in infos):
        return tuple(tensors)
    names = list(inspect.signature(model.forward).parameters)
    if len(infos) > len(names) and any(info.keyword is None for info in infos[len(names) :]):
        raise ArgumentError(
            f"input_info describes {len(infos)} inputs, but the model's forward takes {names}. "
            "Leave the surplus out, or give each its 'keyword'."
        )
    return {
        info.keyword or names[position]: tensor
        for position, (info, tensor) in enumerate(zip(infos, tensors, strict=True))
    }


def _filled(info: InputInfo, device: torch.device) -> torch.Tensor:
    dtype = _DTYPES[info.type]
    if info.filler == "random":
        generator = torch.Generator().manual_seed(0)
        values = torch.rand(info.sample_size, generator=generator, device="cpu")
        whole = values if dtype.is_floating_point else values.round()
        return whole.to(device, dtype)
    value = 0 if info.filler == "zeros" else 1
    return torch.full(info.sample_size, value, dtype=dtype, device=device)
