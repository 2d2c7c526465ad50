"""Hooks that make norms over masked channels compute what the thinned model does.

A layer norm over channels of which some are masked differs from the norm of those that stay,
because the zeros count in its mean and variance. A hook before the norm replaces the zeros by
values for which the mean and variance of all entries equal those of the remaining ones. For
exactly one dead entry there is no such value, so no channel is masked alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Average, Channels
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, PreSite, Priority

_CENTRED: Final = frozenset({"group_norm", "layer_norm"})
_FILLED: Final = _CENTRED | {"mean", "rms_norm"}
_PRIORITY: Final = Priority.QUANTIZATION - 1
"""After all masks, so that `strip` bakes these into weights; before quantizers of activations."""


@final
class NormHook(nn.Module):
    """Fills dead entries of a norm's input so that its statistics are those of the living ones.

    If no entry is dead, the input passes unchanged, bit for bit.

    Attributes:
        function: "layer_norm", "group_norm" (of one group), "rms_norm" or "mean".
        axis: Axis of the channels in the norm's input; not negative.
        alive: `n` bools for `n` entries along the axis, True for living entries.
        spread: `n` numbers: the values of dead entries, in standard deviations from the mean; 0
            for living entries.
    """

    alive: Tensor
    spread: Tensor

    def __init__(self, function: str, axis: int, alive: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.function, self.axis = function, axis
        self.register_buffer("alive", alive)
        self.register_buffer("spread", spread)

    def set(self, alive: Tensor) -> None:
        """Set the living entries; `alive` has one bool per entry."""
        with torch.no_grad():
            self.alive.copy_(alive)
            self.spread.zero_()
            if self.function in _CENTRED:
                dead = ~self.alive
                self.spread[dead] = _standardised(int(dead.sum())).to(self.spread)

    @override
    def forward(self, x: Tensor) -> Tensor:
        if x.is_nested:  # torch's encoder nests padded sequences in evaluation
            return torch.nested.as_nested_tensor([self(one[None])[0] for one in x.unbind()])
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        # the square root has no gradient at 0, the variance of a constant
        smallest = torch.finfo(wide.dtype).tiny
        shape = [-1] + [1] * (x.dim() - self.axis - 1)
        alive, spread = self.alive.view(shape), self.spread.view(shape).to(wide.dtype)
        over = list(range(self.axis, x.dim())) if self.function == "group_norm" else [self.axis]
        share = self.alive.to(wide.dtype).mean()

        def mean(values: Tensor) -> Tensor:
            return (values * alive).mean(over, keepdim=True) / share

        if self.function == "rms_norm":
            filled = mean(wide.square()).clamp_min(smallest).sqrt()
        elif self.function == "mean":
            filled = mean(wide)
        else:
            centre = mean(wide)
            deviation = mean((wide - centre).square()).clamp_min(smallest).sqrt()
            filled = centre + spread * deviation
        return torch.where(alive, wide, filled).to(x.dtype)


def _standardised(count: int) -> Tensor:
    """Return `count` numbers of mean 0 and mean square 1; a single 0 if `count` is 1."""
    if count == 1:
        return torch.zeros(1, dtype=torch.float64, device="cpu")
    values = torch.ones(count, dtype=torch.float64, device="cpu")
    values[1::2] = -1
    if count % 2:
        values[-3:] = values.new_tensor([0.5, 0.5, -1.0]) * 2**0.5
    return values


@final
class LivingNorms:
    """The hooks before norms, for which only remaining channels count.

    Attributes:
        hooks: The hooks by the address of the norm.
    """

    def __init__(self, hooks: Mapping[str, NormHook]) -> None:
        self.hooks = hooks

    @classmethod
    def of(cls, insertions: Iterable[Insertion]) -> "LivingNorms":
        """Return the norm hooks among `insertions`."""
        return cls(
            {
                one.site.address: one.hook
                for one in insertions
                if isinstance(one.hook, NormHook) and isinstance(one.site, PreSite)
            }
        )

    @staticmethod
    def plan(channels: Channels, model: NNCFNetwork, algorithm: str) -> list[Insertion]:
        """Return a hook before each norm that averages over prunable channels."""
        axes = {a.place: a.axis for one in channels.prunable for a in one.averages}
        if not axes:
            return []
        weight = next(one for one in model.parameters() if one.is_floating_point())
        insertions = []
        for place, axis in axes.items():
            operation = model.nncf.graph.find(place)
            entering = operation.inputs[0]
            assert entering is not None  # noqa: S101 (a norm has an input)
            size = entering.shape[axis]
            hook = NormHook(
                operation.function,
                axis,
                torch.ones(size, dtype=torch.bool, device=weight.device),
                torch.zeros(size, dtype=weight.dtype, device=weight.device),
            )
            insertions.append(Insertion(PreSite(place, 0), hook, _PRIORITY, algorithm))
        return insertions

    def set(self, channels: Channels, alive: Mapping[str, Tensor]) -> None:
        """Set the living groups; `alive` has bools by the name of the set."""
        living = {place: torch.ones_like(hook.alive) for place, hook in self.hooks.items()}
        for one in channels.prunable:
            for average in one.averages:
                gone = average.indices[~alive[one.name].cpu().numpy()]
                living[average.place][torch.from_numpy(gone.reshape(-1))] = False
        for place, hook in self.hooks.items():
            hook.set(living[place])

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Let all entries live within the context, and restore them on exit."""
        before = {place: hook.alive.clone() for place, hook in self.hooks.items()}
        for hook in self.hooks.values():
            hook.set(torch.ones_like(hook.alive))
        try:
            yield
        finally:
            for place, alive in before.items():
                self.hooks[place].set(alive)


def has_living_norms(model: nn.Module) -> bool:
    """Return whether a wrapped `model` has hooks for norms over remaining channels."""
    return isinstance(model, NNCFNetwork) and any(
        isinstance(one.hook, NormHook) for one in model.nncf.hooks
    )


def with_hooks_only(channels: Channels, graph: NNCFGraph) -> Channels:
    """Return `channels` with sets fixed if an operation without a hook averages over them."""
    return channels.keeping(_unfilled(one.averages, graph) for one in channels)


def _unfilled(averages: Iterable[Average], graph: NNCFGraph) -> str | None:
    known = set(graph.addresses)
    for one in averages:
        if one.place not in known or graph.find(one.place).function not in _FILLED:
            return (
                f"'{one.place}' averages over its channels, and no hook can be placed before it; "
                "nncfx.thin(living_norms=True) removes them in one shot"
            )
    return None


def without_loners(channels: Channels, keep: Sequence[Tensor], graph: NNCFGraph) -> list[Tensor]:
    """Return `keep`, but keep whole sets that would leave a norm with a single dead entry."""
    return [
        torch.ones_like(kept) if _is_loner(one.averages, kept, graph) else kept
        for one, kept in zip(channels.prunable, keep, strict=True)
    ]


def _is_loner(averages: Iterable[Average], kept: Tensor, graph: NNCFGraph) -> bool:
    gone = np.flatnonzero(~kept.cpu().numpy())
    return any(
        one.indices[gone].size == 1 and graph.find(one.place).function in _CENTRED
        for one in averages
    )
