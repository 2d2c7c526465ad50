"""The input of thinning: the modules of a masked model, its weights, and a reference."""

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn

from nncfx.controllers.masks.masking import MaskHook
from nncfx.network import NNCFNetwork, strip, unwrap
from nncfx.network.baked_tensors import BakedTensors
from nncfx.network.published_state import evaluating
from nncfx.network.strip import check_strippable
from nncfx.storage.models.module_walk import all_tensors
from nncfx.tracing import WeightSite
from nncfx.tracing.hooks.installation import unhooked


@dataclass(frozen=True, eq=False)
class ThinningSubject:
    """A masked model, without a second set of weights.

    Attributes:
        plain: its modules without hooks, which share its tensors, unmasked.
        reference: a model that computes as the masked model: a wrapped one, or `plain` itself.
        baked: the tensors that hooks change, after their hooks, by name; computed on access.
    """

    plain: nn.Module
    reference: nn.Module
    baked: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters and buffers by name, without masks."""
        return all_tensors(self.plain)

    @property
    def masked(self) -> Mapping[str, torch.Tensor]:
        """The parameters and buffers by name, with masks; each is computed on access."""
        # nothing is written to them
        maps = [cast("MutableMapping[str, Any]", one) for one in (self.baked, self.tensors)]
        return ChainMap(*maps)

    def copy(self) -> nn.Module:
        """Return the masked model as a plain one, with its own weights where it has masks."""
        model = self.reference
        return strip(model) if isinstance(model, NNCFNetwork) else model

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """While active, the hooks of `reference` behave as in evaluation mode."""
        model = self.reference
        hooks = model.nncf.hooks if isinstance(model, NNCFNetwork) else ()
        with evaluating([one.hook for one in hooks]):
            yield


def subject_of(model: nn.Module) -> ThinningSubject:
    """Return the subject of thinning for `model`.

    Masks are applied to one weight at a time. A wrapped model is copied with `strip` if it has
    other hooks on weights, or if its modules read a shared weight differently.

    Raises:
        TracingError: a hook cannot be baked in.
    """
    if not isinstance(model, NNCFNetwork):
        return ThinningSubject(model, model)
    check_strippable(model)
    baked = BakedTensors(model)
    others = [
        one
        for one in model.nncf.hooks
        if isinstance(one.site, WeightSite) and not isinstance(one.hook, MaskHook | nn.Identity)
    ]
    if others or not baked.is_single:
        plain = strip(model)
        return ThinningSubject(plain, plain)
    return ThinningSubject(unwrap(unhooked(model)), model, baked)
