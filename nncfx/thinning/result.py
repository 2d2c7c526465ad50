"""The result of thinning: the model, what was removed, and the proof."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from typing_extensions import override

from nncfx.thinning.files.recipe import ThinRecipe
from nncfx.thinning.surgery import Sizes


@dataclass(frozen=True, kw_only=True, eq=False)
class ThinResult:
    """A thinned model, what was removed, and the proof.

    Attributes:
        model: a smaller copy in the same mode, of the same class unless `exchanged` says
            otherwise. It carries its recipe and those of earlier thinnings, so `nncfx.save` and
            `nncfx.storage.save` write everything needed to restore it.
        exchanged: modules whose class cannot hold their widths, with their new class.
        removed: name of a group set (the module that creates the channels) to the indices of
            the channels removed from it, ascending.
        fixed: name of a group set to the reason why its dead channels were kept.
        max_error: max |thinned - masked| / max |masked| over the outputs on the example inputs
            and on random ones of their shapes.
        unreached: modules (and standalone parameters) that no example reached, even in training
            mode; channels that they could read were kept.
        sizes: module name to the attributes that changed, with their new values.
        entries: (parameter or buffer, axis) to the indices removed along that axis, ascending.
        parameters: number of parameters before and after.
        channels: number of prunable channel groups before and after.
        recipe: rebuilds the thin model from the original class.
    """

    model: nn.Module
    exchanged: Mapping[str, str]
    removed: Mapping[str, tuple[int, ...]]
    fixed: Mapping[str, str]
    max_error: float
    sizes: Mapping[str, Sizes]
    entries: Mapping[tuple[str, int], tuple[int, ...]]
    parameters: tuple[int, int]
    channels: tuple[int, int]
    recipe: ThinRecipe
    unreached: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Why nothing was saved, and what to do; empty if something was."""
        before, after = self.parameters
        if after < before:
            return ""
        if self.fixed:
            return (
                "Nothing saved: dead channels are kept, for the reasons above. Remove those, or "
                "prune other layers."
            )
        return (
            "Nothing saved: no channel is dead, that is, read by zeros alone. Prune whole "
            "channels first, such as with filter_pruning; single weights that are zero free none. "
            "A model that was thinned before has nothing left to remove."
        )

    @override
    def __str__(self) -> str:
        """Return a summary of a few lines."""
        before, after = self.parameters
        share = 1 - after / before if before else 0.0
        groups, left = self.channels
        lines = [
            f"Channel groups: {groups:,} -> {left:,}, removed at {len(self.removed)} places.",
            f"Parameters: {before:,} -> {after:,} (-{share:.1%}).",
            f"Relative error against the masked model: {self.max_error:.1e}.",
        ]
        lines += [
            f"{repr(name) if name else 'The model'} is now a {kind}."
            for name, kind in self.exchanged.items()
        ]
        lines += [f"Dead but kept at '{name}': {why}." for name, why in self.fixed.items()]
        lines += [f"Not reached by any example: '{name}'." for name in self.unreached]
        return "\n".join([*lines, *filter(None, [self.note])])
