"""Prune weights of blocks without training, based on layer inputs: Wanda and SparseGPT."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, require_known
from nncfx.quantization.blocks.block_calls import BlockCall, find_blocks
from nncfx.quantization.blocks.block_engine import run_blocks
from nncfx.quantization.blocks.block_layers import (
    find_block_layers,
    group_moments,
    warn_left,
    warn_unread,
)
from nncfx.quantization.rounding.curvature import Choice, Curvature, curvature, replace_columns
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import own_model

Pattern = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class PruningSettings:
    """How the linear layers of blocks are pruned.

    Attributes:
        level: Share of the weights that become zero, in [0, 1).
        pattern: (n, m): n of each m neighbours in a row become zero, as in (2, 4); it replaces
            `level`, which is n / m then.
        method: "sparsegpt", in which the remaining weights compensate the pruned ones, or "wanda".

    Raises:
        ArgumentError: a value is out of range, or not exactly one of `level` and `pattern` is
            given.
    """

    level: float | None = None
    pattern: Pattern | None = None
    method: Literal["sparsegpt", "wanda"] = "sparsegpt"

    def __post_init__(self) -> None:
        if (self.level is None) == (self.pattern is None):
            raise ArgumentError("Give either level= (a share) or pattern= (such as (2, 4)).")
        if self.level is not None and not 0 <= self.level < 1:
            raise ArgumentError(
                f"level is {self.level}; it is the share of weights set to zero and lies in "
                "[0, 1). Write 0.5 for half."
            )
        if self.pattern is not None and not 0 < self.pattern[0] < self.pattern[1]:
            raise ArgumentError(
                f"pattern is {self.pattern}; 1 to m - 1 of m neighbours are set to zero. Write "
                "(2, 4)."
            )
        require_known("method", self.method, PRUNINGS)


def smallest(scores: Tensor, settings: PruningSettings) -> Tensor:
    """Return a mask of the smallest scores of each row, r x c; the first win ties.

    Args:
        scores: r x c.
        settings: The level applies to each row by itself, rounded down.
    """
    rows, pattern = scores, settings.pattern
    if pattern is not None:
        if scores.shape[1] % pattern[1]:
            raise ArgumentError(
                f"Rows of {scores.shape[1]} weights are not a multiple of {pattern[1]}, which "
                f"the pattern {pattern} needs. Give a level instead."
            )
        rows, count = scores.reshape(-1, pattern[1]), pattern[0]
    else:
        assert settings.level is not None  # noqa: S101 (checked when made)
        count = int(settings.level * scores.shape[1])
    order = rows.argsort(dim=1, stable=True)[:, :count]
    gone = torch.zeros_like(rows, dtype=torch.bool).scatter_(1, order, value=True)
    return gone.view_as(scores)


@torch.no_grad()
def wanda(weight: Tensor, known: Curvature, settings: PruningSettings) -> Tensor:
    """Return `weight` with zeros where magnitude times norm of the input is smallest.

    Source: Sun et al. 2024, Wanda, equation 1.
    """
    scores = weight.abs() * known.moments.diagonal().clamp(min=0).sqrt()
    return weight.masked_fill(smallest(scores, settings), 0.0)


@torch.no_grad()
def sparsegpt(weight: Tensor, known: Curvature, settings: PruningSettings) -> Tensor:
    """Return `weight` with zeros where they cost least; the other weights compensate them.

    With a pattern, columns keep their order, since neighbours belong together. The number of zeros
    in each block of 128 columns is determined in advance, over the whole row; their places are
    chosen once the columns before are pruned.

    Source: Frantar and Alistarh 2023, SparseGPT, algorithm 1, with the cost of equation 3.
    """
    costs = weight[:, known.order].double().square() / known.factor.square().sum(0)
    planned = smallest(costs, settings)
    divisors = known.factor.diagonal().unsqueeze(1)

    def begin(start: int, rest: Tensor) -> Choice:
        block = slice(start, start + len(rest))
        scores = (rest / divisors[block]).square().T
        if settings.pattern is not None:
            gone = smallest(scores, settings).T
        else:
            ranks = scores.argsort(dim=1, stable=True).argsort(dim=1)
            gone = (ranks < planned[:, block].sum(1, keepdim=True)).T

        def choice(column: int, values: Tensor) -> Tensor:
            return values.masked_fill(gone[column - start], 0.0)

        return choice

    return replace_columns(weight, known, begin)[0].to(weight.dtype)


PRUNINGS: Final[dict[str, Callable[[Tensor, Curvature, PruningSettings], Tensor]]] = {
    "sparsegpt": sparsegpt,
    "wanda": wanda,
}


def prune_blocks(
    model: nn.Module,
    batches: Iterable[ExampleInputs],
    settings: PruningSettings,
    *,
    blocks: str | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Return a copy of a model with sparse linear layers in its blocks, pruned one by one.

    Each block is pruned on the outputs of the pruned blocks before it, as in `quantize_blocks`.

    Args:
        model: Plain; its blocks follow one another in one `nn.ModuleList`.
        batches: Inputs of the model.
        settings: Sparsity and method.
        blocks: The name of the list of blocks, if there are several candidates.
        inplace: Prune and return `model` itself.

    Raises:
        ArgumentError: there are no blocks or batches, or the pattern does not divide the rows.
        CompressionError: the input of a layer is not finite.
    """
    own = own_model(model, inplace=inplace)

    def work(
        name: str, block: nn.Module, calls: Sequence[BlockCall], counted: Sequence[Tensor | None]
    ) -> None:
        del name
        found = find_block_layers(block, calls[0])
        taken = [one.weight for group in found.groups for one in group.layers]
        warn_left(block, taken, "stay dense")
        unread: list[str] = []
        for wave in found.waves():
            all_moments = group_moments(block, wave, calls, counted)
            for group, moments in zip(wave, all_moments, strict=True):
                if not moments.any():
                    unread += [one.name for one in group.layers]
                    moments.fill_diagonal_(1.0)  # equal inputs: prune by magnitude
                known = curvature(moments, by_energy=settings.pattern is None)
                for layer in group.layers:
                    weight = layer.rows.to(known.factor.device).float().contiguous()
                    layer.take(PRUNINGS[settings.method](weight, known, settings))
        warn_unread(block, unread, "pruned by magnitude")

    run_blocks(own, find_blocks(own, blocks), batches, work)
    return own
