"""The blocks of a model, and what each is called with."""

import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.tracing import ExampleInputs, as_call

__all__ = ["BlockCall", "advanced", "block_calls", "find_blocks"]

_LOGGER = logging.getLogger(__name__)
_NAMED: Final = 3
_PARAMETER: Final = inspect.Parameter


@dataclass(frozen=True)
class BlockCall:
    """One call of a block.

    Attributes:
        hidden: What the blocks pass on, n x ... x d.
        args: The other arguments by position.
        kwargs: The arguments by name.
    """

    hidden: Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self, block: nn.Module) -> Tensor:
        """Return what `block` passes on."""
        found = block(self.hidden, *self.args, **self.kwargs)
        while isinstance(found, tuple | list):
            found = found[0]
        assert isinstance(found, Tensor)  # noqa: S101 (as when the call was recorded)
        return found

    def named(self, block: nn.Module) -> dict[str, Any]:
        """Return all arguments by the names that the block's forward gives them."""
        signature = inspect.signature(block.forward)
        bound = signature.bind(self.hidden, *self.args, **self.kwargs).arguments
        rest = [
            name
            for name, one in signature.parameters.items()
            if one.kind is _PARAMETER.VAR_KEYWORD and name in bound
        ]
        extra = [bound.pop(name) for name in rest]
        return {name: one for part in (bound, *extra) for name, one in part.items()}


def find_blocks(model: nn.Module, name: str | None = None) -> tuple[str, ...]:
    """Return the names of the blocks that follow one another.

    Args:
        model: It holds them in one `nn.ModuleList`; of several, the one with most parameters,
            and the log names the others.
        name: Of that list, to choose it by hand.

    Raises:
        ArgumentError: there is no such list.
    """
    lists = {
        one: module
        for one, module in model.named_modules()
        if isinstance(module, nn.ModuleList | nn.Sequential)
        and len(module)
        and one
        and (name is None or one == name)
    }
    sizes = {
        one: sum(each.numel() for each in module.parameters())
        for one, module in lists.items()
        if name is not None or len({type(each) for each in module}) == 1
    }
    if not any(sizes.values()):
        raise ArgumentError(
            f"{type(model).__name__} has no nn.ModuleList of blocks"
            + (f" named '{name}'. " if name else ". ")
            + "Write blocks= with its dotted name ('model.layers'), or use quantize_weights.",
        )
    best = max(sizes, key=lambda one: sizes[one])
    _tell_others(model, best, sizes)
    return tuple(f"{best}.{number}" for number in range(len(lists[best])))


def _tell_others(model: nn.Module, best: str, lists: Iterable[str]) -> None:
    """Say which lists of blocks hold matrices beside the one that was taken."""
    others = {best: 0}
    for one in lists:  # what is around comes first
        if one != best and not one.startswith(tuple(f"{seen}." for seen in others)):
            others[one] = _weights(model.get_submodule(one))
    shares = [
        f"'{one}' ({100 * count / _weights(model):.1f} % of the weights)"
        for one, count in others.items()
        if count
    ]
    if shares:
        _LOGGER.warning(
            "%s has several lists of blocks. Taken is '%s', not %s%s. Name one by blocks= in "
            "another call, on what this one returns.",
            *(type(model).__name__, best, ", ".join(shares[:_NAMED])),
            f" and {len(shares) - _NAMED} more" if len(shares) > _NAMED else "",
        )


def _weights(module: nn.Module) -> int:
    """Return how many weights the matrices of a module have."""
    return sum(one.numel() for one in module.parameters() if one.ndim > 1)


class _AllSeen(Exception):  # noqa: N818 (no fault)
    pass


def block_calls(
    model: nn.Module, names: Sequence[str], batches: Iterable[ExampleInputs]
) -> list[list[BlockCall]]:
    """Return what each block is called with, by block and batch; no block runs.

    What enters the first block is true of it alone: the others get it, too, in its place.

    Raises:
        ArgumentError: there are no batches, or the blocks do not pass on a tensor.
    """
    blocks = [model.get_submodule(name) for name in names]
    found: list[list[BlockCall]] = [[] for _ in blocks]
    count = 0
    for batch in batches:
        count += 1
        for in_tuple in (False, True):
            calls = _recorded(model, blocks, batch, in_tuple=in_tuple)
            if len(calls) == len(blocks):
                break
        else:
            raise ArgumentError(
                f"The blocks '{names[0]}' to '{names[-1]}' do not pass one tensor from each to "
                "the next, so they cannot be compressed one after another. Use quantize_weights.",
            )
        for own, call in zip(found, calls, strict=True):
            own.append(call)
    if not count:
        raise ArgumentError(
            "There are no batches to calibrate with. Pass an iterable with at least one.",
        )
    return found


def _recorded(
    model: nn.Module, blocks: Sequence[nn.Module], batch: ExampleInputs, *, in_tuple: bool
) -> list[BlockCall]:
    """Return the calls of the blocks, or fewer where the model stumbles over what they return."""
    calls: list[BlockCall] = []
    args, kwargs = as_call(batch)
    with _standing_in(blocks, calls, in_tuple=in_tuple), torch.no_grad():
        try:
            model(*args, **kwargs)
        except _AllSeen:
            pass
        except Exception:
            # a wrong form of what blocks return shows in any way, but behind the first
            if not calls:
                raise
    return calls


@contextmanager
def _standing_in(
    blocks: Sequence[nn.Module], calls: list[BlockCall], *, in_tuple: bool
) -> Iterator[None]:
    def record(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the model calls its block)
        named = {
            name: None if _is_cache(one) else False if name == "use_cache" else one
            for name, one in kwargs.items()
        }
        given = [None if _is_cache(one) else one for one in args]
        hidden = given.pop(0) if given else named.pop("hidden_states", None)
        if not isinstance(hidden, Tensor) or (calls and hidden.shape != calls[0].hidden.shape):
            raise ArgumentError("a block is called with something else")
        calls.append(BlockCall(hidden.detach(), tuple(given), named))
        if len(calls) == len(blocks):
            raise _AllSeen
        return (hidden,) if in_tuple else hidden

    for block in blocks:
        block.forward = record
    try:
        yield
    finally:
        for block in blocks:
            del block.forward


def _is_cache(value: object) -> bool:
    """Return whether a block that runs twice would append its keys and values to `value` twice.

    Arguments have had several names, `cache` since transformers 5.24; all of them have classes of
    their own for it.
    """
    return hasattr(value, "get_seq_length")


@torch.no_grad()
def advanced(
    block: nn.Module, calls: Sequence[BlockCall], following: Sequence[BlockCall]
) -> list[BlockCall]:
    """Return `following` with what `block` makes of `calls` as their hidden states."""
    return [
        BlockCall(call.run(block), other.args, other.kwargs)
        for call, other in zip(calls, following, strict=True)
    ]
