"""HeadPrune: prunes whole attention heads."""

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from torch import nn
from typing_extensions import override

from nncfx.errors import CompressionError
from nncfx.graph.channels import GroupSet, Role
from nncfx.schemes.structured import Kinds, RowPrune

_MATRIX = 2


@dataclass(frozen=True)
class HeadPrune(RowPrune):
    """Prunes attention heads found by the channel analysis; only when bound.

    A head is a group of several rows of the matrices that produce it (queries, keys, values) and
    of several columns of the matrices that read it. Query heads that share a key are removed
    together with it. `level` is the fraction of all heads.

    Source: Michel et al. (2019), Are Sixteen Heads Really Better than One?, section 2.
    """

    kinds: ClassVar[Kinds] = ()
    producer_kinds: ClassVar[Kinds] = (nn.Module,)

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        if self.channels is None:
            _raise_unbound()
        super().compress(model, level)

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        if self.channels is None:
            _raise_unbound()
        return super().parameters(model)

    @override
    def _is_chosen(self, model: nn.Module, group_set: GroupSet) -> bool:
        members = [member for member in group_set.members if not member.is_buffer]
        axes = {m.parameter: model.get_parameter(m.parameter).ndim for m in members}
        weights = [member for member in members if axes[member.parameter] > 1]
        return {Role.PRODUCER, Role.CONSUMER} <= {member.role for member in weights} and all(
            member.indices.shape[1] > 1 and axes[member.parameter] == _MATRIX for member in weights
        )


def _raise_unbound() -> NoReturn:
    raise CompressionError(
        "HeadPrune is not bound, and the weights alone do not say which of their rows are a head. "
        "Bind it: HeadPrune().bind(nncfx.channels.analyze_channels(model, example_inputs))."
    )
