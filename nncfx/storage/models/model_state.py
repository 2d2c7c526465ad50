"""What a file holds of the state of a model."""

from typing import Any, Final

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

_EXTRA: Final = "_extra_state"
"""The last part of the key of what a module's `get_extra_state` returns."""


def model_state(model: nn.Module, *, keep_vars: bool = False) -> dict[str, Any]:
    """Return the `state_dict` of `model`, without what its class notes there for its own loader.

    A class that overrides `state_dict` may add values of no module, such as the settings that it
    was built with; one that writes its weight there by its name writes a parametrized weight a
    second time. Extra state of modules stays, whatever it is. With `keep_vars`, parameters and
    buffers themselves are in it, not detached.
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
