"""Choose the channels to remove at a level, by group, by whole branch or by layer."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, final

from torch import Tensor

from nncfx.algorithms.channel_pruning.config import ChannelPruningParams
from nncfx.config import PruningParams
from nncfx.graph.channels import Channels
from nncfx.schemes import (
    Criterion,
    MaskScope,
    Ranking,
    group_scores,
    keep_branches,
    keep_groups,
    norm_scale_scores,
)
from nncfx.schemes.masks.alignment import alignments_of, resolve_alignment
from nncfx.targets import Alignment

Keep: TypeAlias = Callable[[Channels, Sequence[Tensor], float], list[Tensor]]

_CRITERIA: Final[Mapping[str, Criterion]] = {
    "L1": "l1norm",
    "L2": "l2norm",
    "LAMP": "lamp",
    "geometric_median": "geometric_median",
    "max": "max",
    "random": "random",
}


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelChoice:
    """How an algorithm chooses the channels to remove.

    Attributes:
        keep: Function of the channels, one score per group of each prunable set, and a level in
            [0, 1); returns which groups of each set stay.
        is_normalized: Whether scores of a set are divided by their mean, to compare sets.
        ranking: How each layer chooses on its own; None if layers that share channels lose the
            same ones, chosen by `keep`.
        why_whole: Why a set can keep all its groups at a level above 0.
        is_capped: Whether a budget is never exceeded; if not, it is met with the least excess.
        is_of_sets: Whether a level is a fraction of the sets, each removed as a whole, rather
            than of their groups.
    """

    keep: Keep
    is_normalized: bool
    ranking: Ranking | None = None
    why_whole: str = "others matter less or 'align' rounds their widths up"
    is_capped: bool = False
    is_of_sets: bool = False


WHOLE_BRANCHES: Final = ChannelChoice(
    keep=keep_branches,
    is_normalized=False,
    why_whole="whole branches go, and of n of them floor(level * n), those that matter least",
    is_of_sets=True,
)
"""Removes whole residual branches, those of the smallest mean score first."""


def choice_of(params: ChannelPruningParams) -> ChannelChoice:
    """Return how `params` choose among groups of channels.

    Groups are ranked over all sets, with each set's scores divided by their mean (`all_weights`),
    or the same fraction of every set is removed. `floor(level * n)` of n groups are removed, or
    fewer to satisfy `align` (more with `align_down`). No set is emptied.
    """
    alignment = resolve_alignment("onnxruntime" if params.align is None else params.align)
    alignment = dataclasses.replace(alignment, down=params.align_down)
    scope: MaskScope = "global" if params.all_weights else "local"

    keep = functools.partial(_keep, align=alignment, scope=scope)  # can be pickled
    ranking = Ranking(
        side=params.pruning_side,
        criterion=_CRITERIA.get(params.filter_importance, "l2norm"),
        scope=scope,
        normalize=params.all_weights,
        align=alignment,
    )
    return ChannelChoice(
        keep=keep,
        is_normalized=params.all_weights,
        ranking=None if params.constrained else ranking,
        is_capped=params.align != 1 and not params.align_down,
    )


def _keep(
    channels: Channels,
    scores: Sequence[Tensor],
    level: float,
    *,
    align: Alignment,
    scope: MaskScope,
) -> list[Tensor]:
    entries = [one.origin.indices.shape[1] for one in channels.prunable]
    alignments = alignments_of(channels, align)
    return keep_groups(scores, level, align=alignments, scope=scope, entries=entries)


def weight_scores(
    channels: Channels, weights: Mapping[str, Tensor], params: PruningParams, *, normalize: bool
) -> list[Tensor]:
    """Return the scores of the groups from weights; L2 norms if the criterion needs data.

    Raises:
        CompressionError: weights have NaN entries.
    """
    if params.filter_importance == "batch_norm_scale":
        return norm_scale_scores(channels, weights, normalize=normalize)
    criterion = _CRITERIA.get(params.filter_importance, "l2norm")
    return group_scores(channels, weights, criterion, normalize=normalize)
