"""The weights of a wrapped model with their hooks baked in, computed one at a time."""

from collections.abc import Iterator, Mapping
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.network.network import NNCFNetwork
from nncfx.network.published_state import evaluating
from nncfx.tracing.calls.tensors import own_tensors
from nncfx.tracing.hooks.hooked_reads import hooked_reads
from nncfx.tracing.hooks.sites import WeightSite


@final
class BakedTensors(Mapping[str, Tensor]):
    """Hooked tensors as `strip` would leave them, under each of their names.

    A tensor is recomputed on every access, so no second model is kept in memory.

    Attributes:
        is_single: Whether all modules that share a tensor read the same values. If not, `strip`
            splits the tensor, and this mapping returns what one of the modules reads.
    """

    def __init__(self, model: NNCFNetwork) -> None:
        """Index the hooked tensors of `model` without changing it or reading their values."""
        hooks = {id(one.hook): one.hook for one in model.nncf.hooks}
        modules = dict(nn.Module.named_modules(model, remove_duplicate=False))
        every = dict(model.named_modules(remove_duplicate=False))
        chains: dict[tuple[int, str], list[int]] = {}
        for one in model.nncf.hooks:
            if isinstance(one.site, WeightSite):
                key = (id(every[one.site.module]), one.site.name)
                chains.setdefault(key, []).append(id(one.hook))
        readers: dict[int, dict[tuple[int, ...], list[tuple[str, nn.Module, str]]]] = {}
        for path, module in modules.items():
            for own, held in own_tensors(module).items():
                chain = tuple(dict.fromkeys(chains.get((id(module), own), ())))
                place = (f"{path}.{own}" if path else own, module, own)
                readers.setdefault(id(held), {}).setdefault(chain, []).append(place)
        self.is_single = all(len(each) == 1 for each in readers.values())
        self._places = {
            name: (module, own, [hooks[one] for one in chain])
            for each in readers.values()
            for chain, places in each.items()
            if chain
            for name, module, own in places
        }

    @override
    def __getitem__(self, name: str) -> Tensor:
        module, own, hooks = self._places[name]
        with evaluating(hooks), torch.no_grad(), hooked_reads():
            read: Tensor = getattr(module, own).detach()
        return read

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    @override
    def __len__(self) -> int:
        return len(self._places)
