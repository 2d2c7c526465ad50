"""What a model saves that loses whole branches."""

import dataclasses
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from nncfx.controllers.base.weights import raw_parameters
from nncfx.controllers.masks.costs import Costs
from nncfx.graph.channels import Channels, Role
from nncfx.schemes import group_masks


@final
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BranchCosts:
    """Costs that include the earlier layers of a branch whose last channels are masked.

    Thinning removes these layers too, since only layers without outputs read them.

    Attributes:
        costs: The costs of masked weights.
        channels: All that thinning may remove.
        model: The model.
    """

    costs: Costs
    channels: Channels
    model: nn.Module

    @property
    def unit(self) -> str:
        """The unit of costs, in words."""
        return self.costs.unit

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of the total cost that `masks` save, with what they leave unread."""
        found, prunable = dict(masks), self.channels.prunable
        weights = raw_parameters(self.model)
        for one in reversed(prunable):  # a reader comes after what it reads
            readers = {each.parameter for each in one.by_role(Role.CONSUMER)}
            if not readers or not all(r in found and not found[r].any() for r in readers):
                continue
            place = found[min(readers)].device
            keep = [torch.full((each.size,), each is not one, device=place) for each in prunable]
            for name, mask in group_masks(self.channels, keep, weights).items():
                found[name] = found[name] & mask if name in found else mask
        return self.costs.saved(found)
