"""Group lasso, a loss that shrinks whole channel groups before they are removed.

Source: Wen et al. 2016, "Learning structured sparsity in deep neural networks", section 3; over
all layers that share a channel, as Fang et al. 2023, "DepGraph: towards any structural pruning",
group-level pruning.
"""

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.controllers import CompressionLoss
from nncfx.controllers.base.weights import raw_parameters
from nncfx.graph.channels import Channels
from nncfx.schemes.masks.exact_masks import group_slices
from nncfx.storage.models.sharded_models import whole

_LEAST: Final = 1e-12
"""Added to squared norms, because the square root has no gradient at 0."""


@final
class GroupLasso(CompressionLoss):
    """A weight times the sum of the norms of all prunable channel groups.

    The norm of a group covers all its stored entries, before masks: the rows and biases that
    produce the channel, the norms that follow it, the columns that read it.

    Attributes:
        model: The model whose raw parameters are measured.
        weight: Factor of the sum of norms.
        is_over: Returns whether pruning is complete; the loss is then 0.
    """

    def __init__(
        self, model: nn.Module, channels: Channels, weight: float, is_over: Callable[[], bool]
    ) -> None:
        self.model = model
        self.weight = weight
        self.is_over = is_over
        self._sets = [
            [one for one in group_set.members if not (one.is_buffer or one.is_divided)]
            for group_set in channels.prunable
        ]

    @override
    def __call__(self) -> Tensor:
        """Return `weight * sum over groups of ||group||_2`, with a gradient to all of them."""
        parameters = raw_parameters(self.model)
        total = whole(next(iter(parameters.values())).new_zeros(()))
        if self.is_over():
            return total
        for members in self._sets:
            slices = (group_slices(one, whole(parameters[one.parameter])) for one in members)
            squares = [one.square().sum(dim=1) for one in slices]
            total = total + torch.stack(squares).sum(dim=0).add(_LEAST).sqrt().sum()
        return self.weight * total
