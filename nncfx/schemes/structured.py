"""Structured pruning: removes whole filters, neurons, or channel groups."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from typing_extensions import override

from nncfx.errors import CompressionError, require_truths
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.schemes import operators
from nncfx.schemes.layers import (
    Layer,
    layer_parameters,
    matching_modules,
    outputs_first,
    parameter_names,
    select_layers,
    turned_kinds,
)
from nncfx.schemes.masks import exact_masks
from nncfx.schemes.masks.criteria import Criterion, resolve_criterion
from nncfx.schemes.masks.kept_groups import keep_groups
from nncfx.schemes.scheme import Scheme

Kinds: TypeAlias = tuple[type[nn.Module], ...]
"""Types of modules."""

_LISTED: Final = 3  # fixed sets in a message; a transformer has dozens


@dataclass(frozen=True)
class RowPrune(Scheme):
    """Base class of filter, neuron and structure pruning, which differ in the layers they prune.

    Unbound, a scheme is Condensa's: all its layers (subclasses included) share one threshold for
    rows, the `floor((1 - level) * rows)`-th largest score; rows equal to it are kept; biases of
    removed rows are zeroed. Thinning can seldom remove such rows, since a later norm or a skip
    connection can make them non-zero again, and a whole layer may become zero.

    Bound to `channels`, the scheme removes whole channel groups: groups are ranked by the score of
    their producers over the mean of their set; producer rows, biases, norm weights and biases and
    consumer columns become zero, so thinning removes them exactly. No set is emptied. `level` is
    then the fraction of the groups of the sets that the scheme prunes.

    Attributes:
        kinds: The layers whose rows an unbound scheme prunes.
        producer_kinds: The modules that can produce the channels of a set that a bound scheme
            prunes.
        criteria: Reduces the weights of a row to its score.
        align: Kept counts are multiples of it. Bound, counts of sets that lose groups are rounded
            up, so the level is never exceeded; unbound, counts of each layer are rounded down, as
            in Condensa, so more may be removed. None: any count.
        prune_bias: Whether to prune biases with their rows (unbound only; bound, always).
        normalize: Whether to divide scores by the mean of their set (bound only).
        channels: The channel analysis; set it with `bind`.
        ignored: Dotted names of modules to leave alone, or `{re}` patterns. Bound, a set is left
            alone if one of its producers is.

    Source: Condensa (Joseph et al. 2020), Table 1.
    """

    kinds: ClassVar[Kinds]
    producer_kinds: ClassVar[Kinds]
    criteria: Criterion = "l2norm"
    align: int | None = None
    prune_bias: bool = True
    normalize: bool = True
    channels: Channels | None = None
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_truths(self)
        resolve_criterion(self.criteria)
        exact_masks.check_at_least("align", 1 if self.align is None else self.align, 1)

    @property
    @override
    def is_structured(self) -> bool:
        return True

    @override
    def bind(self, channels: Channels) -> "RowPrune":
        """Return the scheme that prunes whole channel groups of `channels`."""
        return replace(self, channels=channels)

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        if self.channels is None:
            self._compress_rows(model, level)
        else:
            self._compress_groups(model, self._sets(model, self.channels), level)

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        if self.channels is None:
            layers = self._layers(model)
            return parameter_names(model, layer_parameters(layers, biases=self.prune_bias))
        raw = _raw_parameters(model)
        members = [m for g in self._sets(model, self.channels) for m in g.members]
        touched = [exact_masks.named(raw, m.parameter) for m in members if not m.is_buffer]
        return parameter_names(model, touched)

    def _layers(self, model: nn.Module) -> list[Layer]:
        return select_layers(model, _with_turned(self.kinds), ignored=self.ignored)

    def _compress_rows(self, model: nn.Module, level: float) -> None:
        layers = self._layers(model)
        if not layers:
            raise CompressionError(
                f"{type(self).__name__} finds no layer that it could prune; it looks at "
                f"{', '.join(kind.__name__ for kind in self.kinds)}. Choose another scheme."
            )
        if exact_masks.check_level(level) == 0:
            return
        scores = torch.cat([self._scores(layer) for layer in layers])
        limit = operators.threshold(scores, operators.level_to_density(level))
        with torch.no_grad():
            for layer in layers:
                self._zero_rows(layer, limit)

    def _scores(self, layer: Layer) -> Tensor:
        rows = outputs_first(layer.module, layer.weight.detach()).flatten(1)
        return resolve_criterion(self.criteria)(rows)

    def _zero_rows(self, layer: Layer, limit: float) -> None:
        weight = outputs_first(layer.module, layer.weight)
        if self.align is not None and weight.shape[0] < self.align:
            raise CompressionError(
                f"'{layer.name}' has {weight.shape[0]} rows, fewer than align, which is "
                f"{self.align}. Lower align, or ignore the layer: ignored=('{layer.name}',)."
            )
        keep = operators.row_mask(weight, limit, self.criteria, self.align)
        weight.masked_fill_(~keep.view(-1, *[1] * (weight.ndim - 1)), 0)
        if self.prune_bias and layer.bias is not None:
            layer.bias.masked_fill_(~keep, 0)

    def _sets(self, model: nn.Module, channels: Channels) -> tuple[GroupSet, ...]:
        """Return the prunable sets that the scheme prunes."""
        ignored = matching_modules(model, self.ignored)
        chosen = tuple(
            group_set
            for group_set in channels.prunable
            if self._is_chosen(model, group_set) and ignored.isdisjoint(_producers(group_set))
        )
        if chosen:
            return chosen
        reasons = [f"{name}: {reason}" for name, reason in channels.fixed.items()]
        more = f"; and {len(reasons) - _LISTED} more" if len(reasons) > _LISTED else ""
        raise CompressionError(
            f"{type(self).__name__} finds no channels that it could prune. "
            f"Fixed are {'; '.join(reasons[:_LISTED]) or 'none'}{more}. Choose a scheme for "
            "other layers (FilterPrune: convolutions, NeuronPrune: linear layers, StructurePrune: "
            "all), or Prune()."
        )

    def _is_chosen(self, model: nn.Module, group_set: GroupSet) -> bool:
        """Return whether a bound scheme prunes the groups of `group_set`, if they are prunable."""
        modules = [model.get_submodule(name) for name in _producers(group_set)]
        return all(isinstance(module, _with_turned(self.producer_kinds)) for module in modules)

    def _compress_groups(self, model: nn.Module, sets: tuple[GroupSet, ...], level: float) -> None:
        if exact_masks.check_level(level) == 0:
            return
        channels, weights = Channels(sets), _raw_parameters(model)
        scores = exact_masks.group_scores(
            channels, weights, self.criteria, normalize=self.normalize
        )
        keep = keep_groups(scores, level, align=self.align or 1)
        exact_masks.zero_groups(channels, keep, weights)


@dataclass(frozen=True)
class FilterPrune(RowPrune):
    """Prunes filters of convolutions: unbound of `nn.Conv2d`, bound of any convolution."""

    kinds: ClassVar[Kinds] = (nn.Conv2d,)
    producer_kinds: ClassVar[Kinds] = (_ConvNd,)


@dataclass(frozen=True)
class NeuronPrune(RowPrune):
    """Prunes neurons of linear layers, GPT-2's too: rows, or columns where these are outputs."""

    kinds: ClassVar[Kinds] = (nn.Linear,)
    producer_kinds: ClassVar[Kinds] = (nn.Linear,)


@dataclass(frozen=True)
class StructurePrune(RowPrune):
    """Prunes filters and neurons with one threshold for both; bound, channels of any kind.

    Unbound, scores are not normalised, so large filters are kept rather than small rows.
    """

    kinds: ClassVar[Kinds] = (nn.Linear, nn.Conv2d)
    producer_kinds: ClassVar[Kinds] = (nn.Module,)


def _with_turned(kinds: Kinds) -> Kinds:
    return (*kinds, *turned_kinds()) if nn.Linear in kinds else kinds


def _producers(group_set: GroupSet) -> set[str]:
    """Return the dotted names of the modules that produce the channels of `group_set`."""
    return {m.parameter.rpartition(".")[0] for m in group_set.by_role(Role.PRODUCER)}


def _raw_parameters(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters(remove_duplicate=False))
