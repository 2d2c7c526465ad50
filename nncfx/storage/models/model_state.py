"""Select the part of a model's state that a file holds."""

from typing import Any, Final

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

_EXTRA: Final = "_extra_state"
"""The last part of the key of a module's extra state (`get_extra_state`)."""


def model_state(model: nn.Module, *, keep_vars: bool = False) -> dict[str, Any]:
    """Return the `state_dict` of `model`, without values that its class adds for its own loader.

    A class that overrides `state_dict` can add values that belong to no module, such as its
    settings; if it adds its weight by name, a parametrized weight appears twice. Extra state of
    modules always stays. With `keep_vars`, the result holds parameters and buffers themselves
    instead of detached tensors.
    """
    state = model.state_dict(keep_vars=keep_vars)
    computed = {
        f"{address}.{name}".lstrip(".")
        for address, module in model.named_modules(remove_duplicate=False)
        if is_parametrized(module)
        for name in module.parametrizations
    }
    return {
        name: value
        for name, value in state.items()
        if name.rpartition(".")[2] == _EXTRA
        or (isinstance(value, Tensor) and name not in computed)
    }
