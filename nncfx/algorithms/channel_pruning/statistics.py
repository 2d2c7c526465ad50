"""The statistics of channel pruning."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Final, final

from typing_extensions import override

from nncfx.controllers.base.statistics import Statistics, table
from nncfx.errors import shortened

_MANY: Final = 8


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class PrunedChannels:
    """The number of remaining groups of one set.

    Attributes:
        name: The module that produces the channels first; if channels are not constrained, the
            weight of the layer that chooses.
        before: Number of all groups.
        after: Number of remaining groups, at least 1.
    """

    name: str
    before: int
    after: int


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelPruningStatistics(Statistics):
    """Statistics of an algorithm that prunes channels.

    Attributes:
        target_level: The level that was set, of groups, multiply-accumulates or parameters.
        level: Fraction of the prunable channel groups that is masked.
        macs_level: Fraction of the whole model's multiply-accumulates that thinning would save.
        parameter_level: Fraction of the whole model's parameters that is masked; of branches, with
            their earlier layers, which thinning removes too.
        channels: One entry per prunable set, in order of execution.
        spared: Why the other sets keep all their channels, by name.
        why_whole: Why a set of `channels` can keep all of them.
    """

    target_level: float
    level: float
    macs_level: float
    parameter_level: float
    channels: tuple[PrunedChannels, ...]
    spared: Mapping[str, str]
    why_whole: str

    @override
    def to_str(self) -> str:
        header = ["channel groups of", "before", "after", "pruned"]
        rows: list[list[object]] = [
            [one.name, one.before, one.after, 1 - one.after / one.before] for one in self.channels
        ]
        before, after = (
            sum(getattr(one, k) for one in self.channels) for k in ("before", "after")
        )
        rows.append(["all prunable groups", before, after, self.level])
        rows.append(["level asked for", "", "", self.target_level])
        rows.append(["multiply-accumulates", "", "", self.macs_level])
        rows.append(["parameters", "", "", self.parameter_level])
        return "\n".join([table(header, rows), *self._whole()])

    def _whole(self) -> Iterator[str]:
        """Yield why some sets keep all their channels."""
        whole = [one.name for one in self.channels if one.after == one.before]
        if whole and self.target_level:
            yield f"Not pruned, as {self.why_whole}: {shortened(whole, _MANY)}."
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.spared.items():
            by_reason.setdefault(reason, []).append(name)
        for reason, names in itertools.islice(by_reason.items(), _MANY):
            yield f"Whole: {shortened(names, _MANY)}: {reason}."
        if len(by_reason) > _MANY:
            yield f"And {len(by_reason) - _MANY} more reasons, in 'spared'."
