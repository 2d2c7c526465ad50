"""Find the method that a module runs if its instance has a forward of its own."""

from types import MethodType

from torch import nn


def forward_method(module: nn.Module) -> str | None:
    """Return the name of the method of its class that `module` runs as its forward.

    None if its instance has a forward that is none of its methods.
    """
    own = module.__dict__.get("forward")
    if own is None:
        return "forward"
    name: str = getattr(own, "__name__", "")
    is_method = isinstance(own, MethodType) and own.__self__ is module
    return name if is_method and getattr(type(module), name, None) is own.__func__ else None
