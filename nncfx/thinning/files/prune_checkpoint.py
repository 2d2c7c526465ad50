"""Prunes the structure of a checkpoint shard by shard, with one layer of the model in memory."""

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError
from nncfx.graph.channel_entries import entries_of
from nncfx.graph.channels import Channels, GroupSet
from nncfx.lazy import LazyMapping
from nncfx.quantization.checkpoints.checkpoint_folder import Shards, ShardWriter
from nncfx.quantization.checkpoints.quantize_checkpoint import empty_model
from nncfx.schemes import Criterion, group_scores, keep_groups
from nncfx.schemes.masks.exact_masks import removed_groups
from nncfx.schemes.masks.ranking import largest
from nncfx.storage.models.module_walk import all_tensors
from nncfx.thinning.surgery import Cut

_LOGGER = logging.getLogger(__name__)
_WORDS: Final = 8
"""Length of the token sequence for tracing the model."""

_NEURONS: Final = "intermediate_size"
_HEADS: Final = "num_attention_heads"
_KEYS: Final = "num_key_value_heads"


def prune_checkpoint(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    level: float,
    *,
    criterion: Criterion = "l2norm",
    align: int = 1,
) -> Path:
    """Remove neurons and heads from a transformers checkpoint; transformers reads the result.

    Channels are found without weights; groups are scored, and tensors cut, as they are read. Each
    layer loses the same fraction of its neurons and of its heads (with their keys and values),
    those with the smallest scores, since a config has one number for all layers. More heads are
    kept if the config does not allow that number: a Llama's must divide its width. Nothing is
    compared, since that would need both models. `quantize_checkpoint` accepts the result. A killed
    run continues after the last complete shard on disk.

    Args:
        source: A folder with config.json and safetensors, as written by `save_pretrained`.
        target: A folder without weights; shards with the same settings from the same model are
            continued.
        level: Fraction of the groups of each set to remove, in [0, 1); at least one is kept.
        criterion: How a group's weights are scored, as for `group_scores`.
        align: Numbers of kept neurons are a multiple of this, if any are removed.

    Returns:
        `target`.

    Raises:
        ArgumentError: `level` or `criterion` is invalid, no channels can be removed, or the config
            has no field for the widths of a layer that loses channels.
        StorageError: a file cannot be read or written, or `target` has other weights.
        CompressionError: a score is NaN.
    """
    own, shards = Path(source), Shards(source)
    model = empty_model(own)
    shards.check(model.state_dict(keep_vars=True))
    channels = analyze_channels(
        model, {"input_ids": torch.ones(1, _WORDS, dtype=torch.long, device="cpu")}
    )
    if not channels.prunable:
        raise ArgumentError(
            f"A {type(model).__name__} has no neurons or heads that can be removed, and would be "
            "copied as it is. Use quantize_checkpoint, or take another model."
        )
    config: Any = model.config
    kinds = [_field(one, config) for one in channels.prunable]
    weights = _Read({name: partial(shards.read, name) for name in shards.names})
    scores = group_scores(channels, weights, criterion, normalize=False)
    keep = [
        keep_groups([score], level, scope="local", align=align if kind == _NEURONS else 1)[0]
        for score, kind in zip(scores, kinds, strict=True)
    ]
    if _KEYS in kinds:
        heads = [at for at, kind in enumerate(kinds) if kind == _KEYS]
        count = _heads_allowed(own, config, int(keep[heads[0]].sum()))
        for at in heads:
            keep[at] = largest(scores[at], count)
    changes = {
        kind: int(mask.sum()) for kind, mask in zip(kinds, keep, strict=True) if not mask.all()
    }
    if _KEYS in changes:
        changes |= _head_changes(config, changes[_KEYS])
    cut = Cut(entries_of(channels, removed_groups(channels, keep)))
    _check(own, cut, changes, shards, channels)
    told = {"pruned": level, "criterion": str(criterion), "align": align}
    writer = ShardWriter(target, shards, told)
    parts: dict[str, list[str]] = {}
    for name in shards.names:
        parts.setdefault(_part(name), []).append(name)
    for part, names in parts.items():
        if not writer.has(part):
            writer.write(part, {name: _kept(cut, name, weights[name]) for name in names})
    writer.finish(changes)
    return Path(target)


@final
class _Read(LazyMapping[Callable[[], Tensor], Tensor]):
    """The tensors of shards, each read on every access."""

    @override
    def _made(self, source: Callable[[], Tensor]) -> Tensor:
        return source()


def _field(group_set: GroupSet, config: Any) -> str:  # noqa: ANN401 (of transformers)
    """Return the config field that holds the number of groups of a set.

    Raises:
        ArgumentError: there is no such field.
    """
    for field in (_NEURONS, _KEYS):
        if getattr(config, field, None) == group_set.size:
            return field
    raise ArgumentError(
        f"The {group_set.size} groups of channels at '{group_set.name}' have no number in the "
        f"config of a {type(config).__name__} ({_NEURONS}, {_KEYS}), so transformers could not "
        "read the pruned model. Load it, and use structure_pruning and nncfx.thin."
    )


def _head_changes(config: Any, keys: int) -> dict[str, int]:  # noqa: ANN401 (of transformers)
    """Return the config changes for `keys` key-value heads."""
    heads = getattr(config, _HEADS)
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return {_KEYS: keys, _HEADS: keys * heads // getattr(config, _KEYS), "head_dim": width}


def _heads_allowed(source: Path, config: Any, keys: int) -> int:  # noqa: ANN401 (of transformers)
    """Return the least number of key-value heads, from `keys` on, that `config` allows.

    transformers checks a config when reading it, not when an attribute is set. Models without
    `head_dim` would get wider heads and keep the number of weights.
    """
    most = int(getattr(config, _KEYS))
    found = most
    for count in range(keys, most):
        changes = _head_changes(config, count)
        try:
            type(config).from_dict({**config.to_dict(), **changes})
        except Exception:  # noqa: BLE001, S112 (each config class raises its own errors)
            continue
        if _size(source, changes) < _size(source, {}):
            found = count
        break
    if found > keys:
        _LOGGER.warning(
            "%d of %d heads of keys and values stay, not %d: a %s has no place for that number.",
            *(found, most, keys, type(config).__name__),
        )
    return found


def _size(source: Path, changes: Mapping[str, int]) -> int:
    return sum(one.numel() for one in empty_model(source, **changes).parameters())


def _check(
    source: Path, cut: Cut, changes: Mapping[str, int], shards: Shards, channels: Channels
) -> None:
    """Check that a model of the changed config has the tensors that will be written.

    Raises:
        ArgumentError: its tensors differ.
    """
    before, after = (all_tensors(empty_model(source, **one)) for one in ({}, changes))
    for name in set(shards.names) & before.keys():
        shape = list(before[name].shape)
        found = cut.shape(name, shape) if name in cut.names else shape
        if name not in after or list(after[name].shape) != found:
            raise ArgumentError(
                f"'{name}' would have the shape {found}, and the config has no place for that: "
                f"layers of {len(channels.prunable)} sets lose different numbers of channels. "
                "Load the model, and use structure_pruning and nncfx.thin."
            )


def _kept(cut: Cut, name: str, tensor: Tensor) -> Tensor:
    return cut.kept(name, tensor) if name in cut.names else tensor


def _part(name: str) -> str:
    """Return the shard of a tensor: that of its block, by number, or that of the rest."""
    numbers = [one for one in name.split(".") if one.isdigit()]
    return f"block-{int(numbers[0]):05}" if numbers else "rest"
