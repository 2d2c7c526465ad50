"""Score groups of channels by a model's activations on data."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from nncfx.controllers.loops.batch_norm_adaptation import examples_in, run_batch
from nncfx.errors import CompressionError
from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.schemes import mean_magnitude, mean_rank, nonzero_share
from nncfx.schemes.layers import turned_kinds
from nncfx.schemes.masks.exact_masks import comparable
from nncfx.storage.models.sharded_models import several_processes
from nncfx.tracing.calls.preservation import preserved

_MEASURES: Final[Mapping[str, Callable[[Tensor, int], Tensor]]] = {
    "APoZ": nonzero_share,
    "HRank": mean_rank,
    "mean_activation": mean_magnitude,
}


class _Mean:
    """The mean of a measure over examples, by channel."""

    def __init__(self, measure: Callable[[Tensor, int], Tensor], axis: int) -> None:
        self._measure, self._axis = measure, axis
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, activation: Tensor) -> None:
        """Add an input or output of the layer."""
        values = self._measure(activation, self._axis) * len(activation)
        self._sum = values if self._sum is None else self._sum + values
        self._count += len(activation)

    def add_other_processes(self) -> None:
        """Add the sums of all other processes."""
        if several_processes() and self._sum is not None:
            count = torch.tensor(float(self._count), dtype=torch.float32, device=self._sum.device)
            torch.distributed.all_reduce(self._sum)
            torch.distributed.all_reduce(count)
            self._count = int(count)

    @property
    def value(self) -> Tensor | None:
        """The mean; None if the layer was not called."""
        return None if self._sum is None else self._sum / self._count


def channel_activity(
    model: nn.Module, channels: Channels, batches: Iterable[Any], importance: str, samples: int
) -> dict[str, Tensor]:
    """Return one score per group by the name of each prunable set, on the CPU.

    Scores are measured on the input of the first convolution or linear layer that reads the
    channels, so after norms and activation functions. The rank is measured on the input of a
    convolution, or on the output of one if no convolution reads the channels. The model runs in
    evaluation mode; its state is restored.

    Args:
        model: called with each batch as by `adapt_batch_norms`.
        channels: the model's channels.
        batches: read until `samples` examples have been seen, or to the end.
        importance: "APoZ" (the share of entries that are not zero), "HRank" or "mean_activation".
        samples: at least 1; rounded up to whole batches.

    Raises:
        ArgumentError: a batch has an unknown form.
        CompressionError: no layer can be used to observe a set, or a score is NaN.
    """
    measure, seen = _MEASURES[importance], 0
    found: dict[str, tuple[Member, _Mean]] = {}
    with ExitStack() as hooks, torch.no_grad(), preserved(model):
        for group_set in channels.prunable:
            member, module = _shown(model, group_set, importance)
            mean = _Mean(measure, 1 if isinstance(module, _ConvNd) else -1)
            found[group_set.name] = (member, mean)
            hooks.enter_context(_listening(module, mean, before=member.role is Role.CONSUMER))
        for batch in batches:
            run_batch(model, batch)
            seen += examples_in(batch)
            if seen >= samples:
                break
        for _, mean in found.values():
            mean.add_other_processes()
    return {one.name: _scores(one, *found[one.name]) for one in channels.prunable}


def _listening(module: nn.Module, mean: _Mean, *, before: bool) -> RemovableHandle:
    if before:
        return module.register_forward_pre_hook(
            # the only input may be passed by name
            lambda _, args, named: mean.add(args[0] if args else named["input"]),
            with_kwargs=True,
        )
    return module.register_forward_hook(lambda *call: mean.add(call[-1]))


def _scores(group_set: GroupSet, member: Member, mean: _Mean) -> Tensor:
    values = mean.value
    if values is None:
        raise CompressionError(
            f"'{member.parameter}', which shows the channels of '{group_set.name}', was not used "
            "on the data. Pass batches in calibration_batches, or leave the layer out with "
            "ignored_scopes."
        )
    scores = values.cpu()[torch.from_numpy(member.indices.copy())].mean(dim=1)
    return comparable(group_set, scores, normalize=False)


def _shown(model: nn.Module, group_set: GroupSet, importance: str) -> tuple[Member, nn.Module]:
    """Return a member and its module, where the channels of a set can be observed."""
    kinds: Any = _ConvNd if importance == "HRank" else (_ConvNd, nn.Linear, *turned_kinds())
    for member in _ends(group_set):
        owner, _, name = member.parameter.rpartition(".")
        module = model.get_submodule(owner)
        if name == "weight" and isinstance(module, kinds):
            return member, module
    kind = "convolution" if importance == "HRank" else "convolution or linear layer"
    raise CompressionError(
        f"No {kind} reads or gives the channels of '{group_set.name}', so {importance} has "
        "nothing to look at. Leave them out with ignored_scopes, or use 'L2'."
    )


def _ends(group_set: GroupSet) -> Iterator[Member]:
    for role in (Role.CONSUMER, Role.PRODUCER):
        yield from group_set.by_role(role)
