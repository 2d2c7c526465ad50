"""Divide a model into blocks that are trained one at a time, and capture their data."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.network import NNCFNetwork
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.preservation import preserved

_MOST_LAYERS: Final = 4
"""Most layers in a module that is one block; a bottleneck with its projection has four."""
_MOST_IN_SEQUENCE: Final = 2
"""Most layers in a block of `nn.Sequential` children, such as depthwise and pointwise."""


@dataclass(frozen=True, eq=False)
class Block:
    """A sequence of modules, each called on the output of the previous one.

    Attributes:
        name: Dotted name of the first module.
        modules: The modules in the order of their calls.
        layers: Dotted names of the layers inside.
        follows: The block whose output is the input of this block, if there is one.
        example_bytes: Bytes of one example of input and output together.
    """

    name: str
    modules: tuple[nn.Module, ...]
    layers: tuple[str, ...]
    follows: "Block | None" = None
    example_bytes: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Run the block on `x`, with its hooks."""
        for module in self.modules:
            x = module(x)
        return x


@dataclass
class _Calls:
    """The number of calls of a module, and input and output of a call with one tensor."""

    count: int = 0
    entering: Tensor | None = None
    leaving: Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is called once, maps one tensor to one, and keeps the number of examples."""
        if self.count != 1 or self.entering is None or self.leaving is None:
            return False
        shapes = self.entering.shape, self.leaving.shape
        return all(shapes) and shapes[0][0] == shapes[1][0] > 0


def find_blocks(
    model: NNCFNetwork, layers: Collection[str], example: ExampleInputs
) -> list[Block]:
    """Return blocks that contain the `layers`, in the order of their calls.

    A block is a module with a few of the layers, as large as possible, that is called once and
    maps one tensor to one tensor, or a few consecutive children of an `nn.Sequential`. Some layers
    may be in no block. The model runs once on `example`, in evaluation mode.
    """
    modules = dict(model.named_modules())
    calls, order = _seen_calls(model, modules, example)
    search = _Search(modules, {name for name, one in calls.items() if one.is_plain}, layers)
    search.divide("")
    ends: dict[int, Block] = {}
    found: list[Block] = []
    rank = {name: number for number, name in enumerate(order)}
    for names in sorted(search.found, key=lambda one: rank[one[0]]):
        first, last = calls[names[0]].entering, calls[names[-1]].leaving
        assert first is not None  # noqa: S101 (plain)
        assert last is not None  # noqa: S101 (plain)
        sizes = (one.numel() * one.element_size() // len(one) for one in (first, last))
        block = Block(
            names[0],
            tuple(modules[name] for name in names),
            tuple(one for name in names for one in search.layers_in(name)),
            ends.get(id(first)),
            sum(sizes),
        )
        ends[id(last)] = block
        found.append(block)
    return found


def _seen_calls(
    model: NNCFNetwork, modules: Mapping[str, nn.Module], example: ExampleInputs
) -> tuple[dict[str, _Calls], list[str]]:
    calls = {name: _Calls() for name in modules}
    order: list[str] = []

    def note(name: str, _: nn.Module, args: Any, kwargs: Any, result: Any) -> None:  # noqa: ANN401 (any call)
        one = calls[name]
        one.count += 1
        order.append(name)
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            one.entering = args[0]
            one.leaving = result if isinstance(result, Tensor) else None

    with ExitStack() as stack, torch.no_grad(), preserved(model):
        for name, module in modules.items():
            noting = partial(note, name)
            stack.enter_context(module.register_forward_hook(noting, with_kwargs=True))
        run(model, example)
    return calls, order


@dataclass
class _Search:
    """Divides modules until they are small enough; `found` has the module names of each block."""

    modules: Mapping[str, nn.Module]
    plain: Collection[str]
    layers: Collection[str]
    found: list[tuple[str, ...]] = field(default_factory=list)

    def layers_in(self, name: str) -> list[str]:
        """Return the layers in the module `name`, or the module itself if it is a layer."""
        return [
            one for one in self.layers if not name or one == name or one.startswith(f"{name}.")
        ]

    def divide(self, name: str) -> None:
        """Find the blocks in the module `name`."""
        count = len(self.layers_in(name))
        if not count:
            return
        if name in self.plain and count <= _MOST_LAYERS and name:
            self.found.append((name,))
            return
        module = self.modules[name]
        children = [f"{name}.{key}".lstrip(".") for key, _ in module.named_children()]
        if not isinstance(module, nn.Sequential):
            for child in children:
                self.divide(child)
            return
        for row in self._rows(children):
            if row[0] in self.plain:
                self.found.append(tuple(row))
            else:
                self.divide(row[0])

    def _rows(self, children: Sequence[str]) -> Iterator[list[str]]:
        """Yield consecutive children that form a block, and other children one at a time."""
        row: list[str] = []
        held = 0
        for child in children:
            count = len(self.layers_in(child))
            fits = child in self.plain and count <= _MOST_IN_SEQUENCE
            if row and (not fits or held + count > _MOST_IN_SEQUENCE):
                yield row
                row, held = [], 0
            if fits and (row or count):
                row.append(child)
                held += count
            elif count:
                yield [child]
        if row:
            yield row


class _EnoughError(Exception):
    """Ends a forward once the data is captured."""


def captured(
    model: NNCFNetwork, block: Block, batches: Iterable[ExampleInputs]
) -> tuple[Tensor, Tensor]:
    """Return input and output of a block for all batches; forwards end after the block."""
    entering: list[Tensor] = []
    leaving: list[Tensor] = []

    def enters(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        entering.append(args[0].detach())

    def leaves(_: nn.Module, args: Any, result: Tensor) -> None:  # noqa: ANN401 (not used)
        del args
        leaving.append(result.detach())
        raise _EnoughError

    with (
        torch.no_grad(),
        preserved(model),
        block.modules[0].register_forward_pre_hook(enters),
        block.modules[-1].register_forward_hook(leaves),
    ):
        for batch in batches:
            with suppress(_EnoughError):
                run(model, batch)
    return torch.cat(entering), torch.cat(leaving)
