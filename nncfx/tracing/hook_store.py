"""Where hooks live: beside the model's own children, under one prefix in the `state_dict`."""

from collections.abc import Iterator
from typing import Any, Final

from torch import nn

__all__ = ["STORE", "HookStore", "load_store"]

STORE: Final = "_nncf"
"""The instance attribute, and the prefix of hook parameters in the `state_dict`."""


class _Group(nn.Module):
    """The hooks of one algorithm, by site."""


class HookStore(nn.Module):
    """All committed hooks: `<algorithm>.<site>` names each, never a position."""

    def put(self, algorithm: str, site: str, hook: nn.Module) -> None:
        """Add `hook`; a second one of one algorithm at one site is named `<site>#1`, and so on."""
        groups = dict(self.named_children())
        if algorithm not in groups:
            groups[algorithm] = _Group()
            self.add_module(algorithm, groups[algorithm])
        group = groups[algorithm]
        taken = sum(name.partition("#")[0] == site for name in _children(group))
        group.add_module(f"{site}#{taken}" if taken else site, hook)

    def clear(self) -> None:
        """Forget all hooks."""
        for name in list(_children(self)):
            delattr(self, name)

    @property
    def is_empty(self) -> bool:
        """Whether there is no hook."""
        return not _children(self)

    def described(
        self, prefix: str, memo: set[nn.Module], *, remove_duplicate: bool
    ) -> Iterator[tuple[str, nn.Module]]:
        """Yield the hooks' `named_modules` below `prefix`; nothing if there are no hooks."""
        if not self.is_empty:
            below = f"{prefix}.{STORE}" if prefix else STORE
            yield from self.named_modules(memo, below, remove_duplicate)


def _children(module: nn.Module) -> dict[str, nn.Module | None]:
    # named_children names a hook once that stands at two sites
    return module._modules  # noqa: SLF001 (no public way)


def load_store(  # noqa: PLR0913, PLR0917 (the arguments of nn.Module._load_from_state_dict)
    module: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    metadata: dict[str, Any],
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Load `module` and what is below it, as `load_state_dict` does for a model's children."""
    module._load_from_state_dict(  # noqa: SLF001 (torch loads children so)
        state_dict, prefix, metadata, True, missing_keys, unexpected_keys, error_msgs
    )
    for name, child in list(_children(module).items()):
        if child is not None:
            below = f"{prefix}{name}."
            own = {key: value for key, value in state_dict.items() if key.startswith(below)}
            load_store(child, own, below, metadata, missing_keys, unexpected_keys, error_msgs)
