"""Find the linear layers of a block, group them by input, and measure its second moments."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from nncfx.errors import shortened
from nncfx.graph import NNCFGraph
from nncfx.operators import LINEAR_LAYERS
from nncfx.quantization.blocks.block_calls import BlockCall
from nncfx.quantization.preparation.layer_chains import Layer, find_layers
from nncfx.schemes.wide_floats import wide
from nncfx.tracing import trace

_LOGGER = logging.getLogger(__name__)
_TOLD: Final = 0.01
"""If a larger share of a block's weights is left out, the log has a warning."""


@dataclass(frozen=True)
class LayerGroup:
    """Layers that read the same tensor, such as q, k and v.

    Attributes:
        layers: The layers in the order in which they run.
    """

    layers: tuple[Layer, ...]

    @property
    def width(self) -> int:
        """Number of inputs of each layer."""
        return int(self.layers[0].rows.shape[1])


@dataclass(frozen=True)
class BlockLayers:
    """A traced block.

    Attributes:
        graph: Graph of one call.
        groups: Groups of linear layers in the order in which they run.
    """

    graph: NNCFGraph
    groups: tuple[LayerGroup, ...]

    def waves(self, *, only_energies: bool = False) -> Iterator[tuple[LayerGroup, ...]]:
        """Yield the groups in order, consecutive groups that do not depend on each other together.

        The number of groups yielded together, such as those of experts, is limited: their moments
        in float32 (diagonals if `only_energies`) take at most half of the memory of the block.
        """
        held = sum(one.rows.nbytes for group in self.groups for one in group.layers)
        room = held // 2 // 4  # of float32
        wave: list[LayerGroup] = []
        members, taken = 0, 0
        for number, (group, above) in enumerate(zip(self.groups, self._above(), strict=True)):
            entries = group.width if only_energies else group.width**2
            if wave and (above & members or taken + entries > room):
                yield tuple(wave)
                wave, members, taken = [], 0, 0
            wave.append(group)
            members |= 1 << number
            taken += entries
        if wave:
            yield tuple(wave)

    def _above(self) -> list[int]:
        """Return for each group a bit mask of the groups it depends on, directly or not."""
        own = {
            layer.operation.address: 1 << number
            for number, group in enumerate(self.groups)
            for layer in group.layers
        }
        found = [0] * len(self.groups)
        carried: dict[str, int] = {}
        for operation in self.graph.operations:
            read = 0
            for edge in self.graph.incoming(operation.address):
                read |= carried.get(edge.source, 0)
            bit = own.get(operation.address, 0)
            if bit:
                found[bit.bit_length() - 1] |= read
            carried[operation.address] = read | bit
        return found


def find_block_layers(
    block: nn.Module, call: BlockCall, takes: Callable[[nn.Module], bool] = lambda _: True
) -> BlockLayers:
    """Return the linear layers of `block` that `takes` accepts, grouped by their input in `call`.

    Layers that run more than once, and parameters that are not a module's own weight, are left
    out.
    """
    graph = trace(block, call.named(block))
    layers = [
        one
        for one in find_layers(block, graph, LINEAR_LAYERS).values()
        if next(one.module.children(), None) is None
        and one.rows.ndim == 2  # noqa: PLR2004 (a matrix)
        and takes(one.module)
    ]
    read: dict[int, list[Layer]] = {}
    keep = []  # keeps tensors alive, so ids are unique

    def note(layer: Layer) -> Any:  # noqa: ANN401 (a hook)
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor) and args[0].shape[-1] == layer.rows.shape[1]:
                keep.append(args[0])
                read.setdefault(id(args[0]), []).append(layer)

        return hook

    with ExitStack() as stack, torch.no_grad():
        for one in layers:
            stack.enter_context(one.module.register_forward_pre_hook(note(one)))
        call.run(block)
    return BlockLayers(graph, tuple(LayerGroup(tuple(same)) for same in read.values()))


def warn_left(block: nn.Module, taken: Iterable[Tensor], how: str, hint: str = "") -> None:
    """Log which matrices of a block were not `taken`, and their share; `how` says what they do.

    `hint` is added if there are stacks of matrices among them, as of experts.
    """
    done = {id(one) for one in taken}
    matrices = {name: one for name, one in block.named_parameters() if one.ndim > 1}
    left = [name for name, one in matrices.items() if id(one) not in done]
    if left:
        total = sum(one.numel() for one in matrices.values())
        share = sum(matrices[name].numel() for name in left) / total
        _LOGGER.log(
            logging.WARNING if share > _TOLD else logging.INFO,
            "%d matrices of %s, %.1f %% of its weights, %s: %s. Only linear layers that run "
            "once per forward are taken.%s",
            *(len(left), type(block).__name__),
            100 * share,
            *(how, shortened(list(map(repr, left)))),
            hint * any(matrices[name].ndim > 2 for name in left),  # noqa: PLR2004 (matrices)
        )


def warn_unread(block: nn.Module, names: Sequence[str], how: str) -> None:
    """Warn of layers of a block that read nothing or zeros; `how` says how they are compressed."""
    if names:
        _LOGGER.warning(
            "%d layers of %s read nothing but zeros, or nothing, like experts that no token "
            "chooses, and are %s: %s. Calibrate with more varied data.",
            *(len(names), type(block).__name__, how, shortened(list(map(repr, names)))),
        )


@final
class _Moments:
    """The mean of x x^T, i x i, or of its diagonal, i."""

    def __init__(self, *, only_energies: bool) -> None:
        self._only_energies = only_energies
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, rows: Tensor) -> None:
        """Add r x i."""
        width = rows.shape[1]
        if self._sum is None:
            self._sum = rows.new_zeros((width,) if self._only_energies else (width, width))
        if self._only_energies:
            self._sum += rows.square().sum(0)
        else:
            self._sum.addmm_(rows.T, rows)
        self._count += len(rows)

    def mean(self) -> Tensor:
        """Return the mean; rows must have been added."""
        assert self._sum is not None  # noqa: S101 (the layer ran when its block was traced)
        return self._sum / max(self._count, 1)


class _AllRead(Exception):  # noqa: N818 (no fault)
    """Ends a forward of the block early."""


@torch.no_grad()
def group_moments(
    block: nn.Module,
    groups: Sequence[LayerGroup],
    calls: Sequence[BlockCall],
    counted: Sequence[Tensor | None] | None = None,
    *,
    only_energies: bool = False,
) -> list[Tensor]:
    """Return the mean of x x^T over the inputs of each group, i x i in float32; 0 without rows.

    Args:
        block: Runs on all calls, up to the last of the groups.
        groups: Groups of its layers.
        calls: Calls of the block.
        counted: For each call, which rows of the hidden states count, n x ...; all by default.
        only_energies: Only compute the diagonals, i.
    """
    gathered = [_Moments(only_energies=only_energies) for _ in groups]
    left: set[int] = set()
    mask: list[Tensor | None] = [None]

    def adding(number: int) -> Any:  # noqa: ANN401 (a hook)
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            entering = wide(args[0])
            is_counted = mask[0]
            if is_counted is not None and is_counted.shape == entering.shape[:-1]:
                entering = entering[is_counted]
            gathered[number].add(entering.reshape(-1, entering.shape[-1]))
            left.discard(number)
            if not left:
                raise _AllRead

        return hook

    with ExitStack() as stack:
        for number, one in enumerate(groups):
            first = one.layers[0].module
            stack.enter_context(first.register_forward_pre_hook(adding(number)))
        for number, call in enumerate(calls):
            mask[0] = None if counted is None else counted[number]
            left.update(range(len(groups)))
            with suppress(_AllRead):
                call.run(block)
    return [one.mean() for one in gathered]
