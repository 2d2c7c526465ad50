"""Removes the dead channels of a masked model, and compares: `Work`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from torch import nn

from nncfx.errors import ThinningError
from nncfx.graph.channels import Channels
from nncfx.storage.models.module_walk import all_modules, all_tensors
from nncfx.storage.models.narrow_attention import NarrowAttention
from nncfx.targets import Alignment
from nncfx.thinning.divergence import first_divergence, operations_before_failure
from nncfx.thinning.files.recipe import ThinRecipe, carry, recipes_of
from nncfx.thinning.removal import Removal, removed, removed_in_place, shapes_removed
from nncfx.thinning.result import ThinResult
from nncfx.thinning.selection import Selection, has_dead_entries, select_removable
from nncfx.thinning.subject import ThinningSubject
from nncfx.thinning.surgery import sized_on_the_way
from nncfx.thinning.verification import (
    ConstantOutputs,
    NothingProven,
    Proof,
    check_training,
    proofs,
    verify,
    worst_error,
)
from nncfx.tracing import ExampleInputs
from nncfx.tracing.record.unreached_modules import branches_on_training

_GRAPH: Final = "GraphModule: widths in the code of {} have changed"


@dataclass(frozen=True, eq=False)
class Work:
    """A masked model, and how to thin it."""

    subject: ThinningSubject
    inputs: Sequence[ExampleInputs]
    alignment: Alignment
    tolerance: float | None

    def result(self, channels: Channels, *, explain: bool = False) -> ThinResult:
        """Return the model without the dead channels of `channels`.

        Raises:
            ThinningError: it fails or differs; with `explain`, the message names the operation.
        """
        selection = self._selected(channels)
        removal = removed(self.subject.plain, channels, selection, self.subject.baked)
        try:
            error = self._proven(removal, is_constant=selection.is_cut or not removal.entries)
        except NothingProven:
            raise
        except ThinningError as fault:
            if explain:
                raise self._explained(fault, removal) from fault
            raise
        return self._told(channels, selection, removal, error, _count(self.subject.plain))

    def attempted(self, channels: Channels) -> ThinResult | None:
        """Return the result; None if the thinned model fails or differs.

        Raises:
            ThinningError: the inputs prove nothing.
        """
        try:
            return self.result(channels)
        except NothingProven:
            raise
        except ThinningError:
            return None

    def result_in_place(
        self, model: nn.Module, channels: Channels, otherwise: Callable[[], Channels] | None = None
    ) -> ThinResult:
        """Remove the dead channels of `channels` from `model` itself.

        Args:
            model: the model of the subject.
            channels: its groups.
            otherwise: returns other groups if `model` fails a shape-only run without these.

        Raises:
            ThinningError: it fails in training mode, or nothing is proven, and it is unchanged; or
                its values differ, and it is changed.
        """
        selection = self._selected(channels)
        plain = self.subject.plain
        trial = shapes_removed(plain, channels, selection)
        with sized_on_the_way(trial.model, trial.sizes):
            counts = (operations_before_failure(trial.model, one) for one in self.inputs)
            if any(one is not None for one in counts) and otherwise is not None:
                return self.result_in_place(model, otherwise())
            if trial.entries and branches_on_training(plain):
                check_training(plain, trial.model, self.inputs)
        proof = self._proof(trial, is_constant=selection.is_cut or not trial.entries)
        before = _count(plain)
        removal = removed_in_place(model, channels, selection, self.subject.baked)
        with sized_on_the_way(model, removal.sizes):
            try:
                error = worst_error(proof, model, self.tolerance)
            except ThinningError as fault:
                raise ThinningError(
                    f"{fault} It was thinned in place and is changed now: load its weights "
                    "again, and leave out inplace=True to learn which operation is at fault."
                ) from fault
        return self._told(channels, selection, removal, error, before)

    def may_gain(self, channels: Channels) -> bool:
        """Return whether dead channels are kept because of widths in the code."""
        places = {place for each in channels.literals.values() for place in each}
        return any(
            has_dead_entries(one, self.subject.masked)
            for one in channels
            if one.fixed is not None and one.fixed_at in places
        )

    def _selected(self, channels: Channels) -> Selection:
        return select_removable(channels, self.subject.masked, self.alignment)

    def _proof(self, trial: Removal, *, is_constant: bool) -> list[Proof]:
        """Return the outputs of the masked model on inputs, for comparison after it is changed.

        Raises:
            NothingProven: the outputs prove nothing.
        """
        found: list[Proof] = []
        first, *further = self.inputs
        with self.subject.at_rest():
            try:
                found.extend(proofs(self.subject.reference, first, trial.dead, further))
            except ConstantOutputs:
                if not is_constant:
                    raise
        return found

    def _proven(self, removal: Removal, *, is_constant: bool) -> float:
        """Return the largest relative error of a smaller model.

        Outputs may be the same for all inputs if `is_constant`: some layer is cut off, or nothing
        was removed.

        Raises:
            ThinningError: it fails or differs, or nothing is proven.
        """
        first, *further = self.inputs
        with sized_on_the_way(removal.model, removal.sizes), self.subject.at_rest():
            try:
                error = verify(
                    self.subject.reference,
                    removal.model,
                    first,
                    self.tolerance,
                    removal.dead,
                    further_inputs=further,
                )
            except ConstantOutputs as same:
                if not is_constant:
                    raise
                error = same.error
            if removal.entries and branches_on_training(self.subject.plain):
                check_training(self.subject.plain, removal.model, self.inputs)
        return error

    def _explained(self, fault: ThinningError, removal: Removal) -> ThinningError:
        masked = self.subject.copy()
        address = first_divergence(masked, removal, self.inputs, self.tolerance)
        return ThinningError(
            f"{fault} The first operation at fault is '{address}'. The model is as it was; "
            "its code may hold a width, or its channels meet in a way that is not seen."
        )

    def _told(
        self,
        channels: Channels,
        selection: Selection,
        removal: Removal,
        error: float,
        parameters: int,
    ) -> ThinResult:
        """Return the result of a removal from a model that had `parameters` parameters."""
        total = sum(group_set.size for group_set in channels.prunable)
        distinct = {id(one): one for one in removal.entries.values()}
        tuples = {key: tuple(one.tolist()) for key, one in distinct.items()}
        taken = {key: tuples[id(one)] for key, one in removal.entries.items()}
        plain = self.subject.plain
        kind = type(plain)
        recipe = ThinRecipe(
            model_class=f"{kind.__module__}.{kind.__qualname__}",
            removed=taken,
            sizes=removal.sizes,
            forms=removal.forms,
        )
        carry(removal.model, (*recipes_of(plain), recipe))
        return ThinResult(
            model=removal.model,
            exchanged={
                name: NarrowAttention.__qualname__
                for name, module in all_modules(removal.model)
                if type(module) is NarrowAttention
            }
            | {
                name: _GRAPH.format(type(plain.get_submodule(name)).__name__)
                for name in removal.forms
            },
            removed={
                name: tuple(channels.find(name).origin.entries(groups).tolist())
                for name, groups in selection.groups.items()
            },
            fixed=dict(selection.kept),
            max_error=error,
            unreached=channels.unreached,
            sizes=removal.sizes,
            entries=taken,
            parameters=(parameters, _count(removal.model)),
            channels=(total, total - sum(len(groups) for groups in selection.groups.values())),
            recipe=recipe,
        )


def _count(model: nn.Module) -> int:
    parameters = {id(one): one for one in all_tensors(model, "_parameters").values()}
    return sum(one.numel() for one in parameters.values())
