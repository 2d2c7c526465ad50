"""Train a quantized model through low-rank updates that are merged into its weights."""

import math
from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError, GraphError
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.placement.scope_check import check_scopes
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.tracing import Insertion, Priority, Site, WeightSite

_ALGORITHM = "low_rank_updates"


@final
class _Update(nn.Module):
    """Adds the product of two low-rank matrices to a weight, before its quantizer."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        rows, columns = weight.shape[0], weight[0].numel()
        # initialised as nn.Linear; `up` is zero, so the first step changes `up` only
        bound = 1 / math.sqrt(columns)
        self.down = nn.Parameter(weight.new_empty(rank, columns).uniform_(-bound, bound))
        self.up = nn.Parameter(weight.new_zeros(rows, rank))
        self.scale = scale

    @override
    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down).view_as(weight)


@final
class LowRankUpdates:
    """Trainable low-rank updates of the quantized matrices of a model.

    A weight W is read as the quantized W + scale * up @ down, with straight-through gradients.
    The sum is rounded during training, so `absorb` can add the updates to the weights without a
    further rounding error. All other parameters except learned grids are frozen until then. Zeros
    are updated like other weights, including those of pruned weights: rounding makes zeros too.
    """

    def __init__(
        self,
        model: NNCFNetwork,
        rank: int = 8,
        *,
        scale: float = 2.0,
        scopes: Sequence[str] | None = None,
    ) -> None:
        """Insert the updates; they change nothing until they are trained.

        Args:
            model: With quantizers on weights, as `quantize_weights` and `quantize` return it.
            rank: Rank of each update, which adds rank * (r + c) numbers for r rows and c columns.
            scale: Factor of the product (LoRA's alpha / rank).
            scopes: Operations whose weights are updated: addresses, scopes, `{function}<name>`
                or `{re}` patterns; all quantized matrices and convolutions by default.

        Raises:
            ArgumentError: `rank` is not positive, or the model has updates already.
            GraphError: a scope matches nothing, or no weight there has a quantizer.

        Source: Hu et al. 2022, LoRA, section 4.1.
        """
        if rank < 1:
            raise ArgumentError(f"rank is {rank}; an update has at least rank 1. Write 8.")
        if any(one.algorithm == _ALGORITHM for one in model.nncf.hooks):
            raise ArgumentError(
                "The model has low-rank updates already. Train those, or absorb them first."
            )
        self._model = model
        self._weights = _weights(model, scopes)
        self._updates = {
            sites: _Update(weight, rank, scale) for sites, weight in self._weights.items()
        }
        model.nncf.register(
            Insertion(site, update, Priority.DEFAULT, _ALGORITHM)
            for sites, update in self._updates.items()
            for site in sites
        )
        model.nncf.commit()
        trained = {id(one) for one in self.parameters()}
        self._frozen = [
            one for one in model.parameters() if one.requires_grad and id(one) not in trained
        ]
        for one in self._frozen:
            one.requires_grad = False

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters to train: those of the updates and of learned grids."""
        for update in self._updates.values():
            yield from update.parameters()
        for hook in dict.fromkeys(quantizers_of(self._model).values()):
            yield from hook.parameters()

    @torch.no_grad()
    def absorb(self) -> NNCFNetwork:
        """Add the updates to the weights, remove them and return the model.

        Its outputs do not change, and the frozen parameters become trainable again.
        """
        for sites, update in self._updates.items():
            self._weights[sites].copy_(update(self._weights[sites]))
        self._model.nncf.remove(_ALGORITHM)
        for one in self._frozen:
            one.requires_grad = True
        self._updates = {}
        return self._model


def _weights(
    model: NNCFNetwork, scopes: Sequence[str] | None
) -> dict[tuple[Site, ...], nn.Parameter]:
    """Return the quantized matrices and filters that operations in `scopes` read, by site."""
    graph = model.nncf.graph
    check_scopes(graph, scopes or (), "scopes")
    wanted = graph.operations if scopes is None else graph.select(scopes)
    read = {WeightSite.of(name) for one in wanted for name in one.parameters.values()}
    stored = dict(model.named_parameters(remove_duplicate=False))
    by_hook: dict[Quantizer, list[Site]] = {}
    for site, hook in quantizers_of(model).items():
        if isinstance(site, WeightSite) and str(site) in stored:
            by_hook.setdefault(hook, []).append(site)
    found = {
        tuple(sites): stored[str(sites[0])]
        for sites in by_hook.values()
        if stored[str(sites[0])].ndim > 1 and not read.isdisjoint(sites)
    }
    if not found:
        raise GraphError(
            "No matrix there has a quantizer, so there is nothing to train for. Quantize the "
            "model first: nncfx.quantization.quantize_weights(model, batches, bits=4)."
        )
    return found
