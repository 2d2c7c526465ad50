"""Recognise modules that compute `x @ weight.T + bias`, or `x @ weight + bias`."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from nncfx.errors import machine_fault
from nncfx.schemes.layers import turned_kinds
from nncfx.tracing.hooks.dynamic_class import original_class


def is_turned(module: nn.Module) -> bool | None:
    """Return whether the columns of a linear layer's matrix are its outputs; else `None`.

    A subclass of `nn.Linear` with its own forward, such as Falcon's, is a linear layer if it
    computes the same as `nn.Linear`.
    """
    kind = type(module)
    if kind in turned_kinds():
        return True
    return False if kind is nn.Linear or _computes_linear(module) else None


def _computes_linear(module: nn.Module) -> bool:
    """Return whether a module of a subclass of `nn.Linear` computes the same as `nn.Linear`.

    This is tested with a small weight, so the module can be on the meta device, or quantized.
    """
    if not isinstance(module, nn.Linear) or original_class(module) is not type(module):
        return False
    own = module._parameters  # noqa: SLF001 (of any module)
    # nn.MultiheadAttention reads the weight of this class and never calls the module
    is_called = not isinstance(module, NonDynamicallyQuantizableLinear)
    has_more = own.keys() != {"weight", "bias"} or module._buffers or module._modules  # noqa: SLF001
    if has_more or not is_called:
        return False
    generator = torch.Generator(device="cpu").manual_seed(0)
    weight, bias, inputs = (
        torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
        for shape in ((5, 3), (5,), (2, 4, 3))
    )
    small = copy.copy(module)
    parts = {
        "weight": nn.Parameter(weight),
        "bias": None if own["bias"] is None else nn.Parameter(bias),
    }
    vars(small).update(_parameters=parts, in_features=3, out_features=5)
    expected = nn.functional.linear(inputs, weight, parts["bias"])
    return all(_returns(small, inputs, expected, training=one) for one in (False, True))


@torch.no_grad()
def _returns(module: nn.Module, inputs: Tensor, expected: Tensor, *, training: bool) -> bool:
    """Return whether the forward, without hooks, returns `expected`."""
    vars(module)["training"] = training
    try:
        with torch.random.fork_rng(devices=[]):
            found = module.forward(inputs.clone())
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        return False
    is_alike = isinstance(found, Tensor) and found.shape == expected.shape
    return is_alike and torch.allclose(found.double(), expected, rtol=1e-9, atol=1e-12)
