"""Find the blocks of a model, and record their calls."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, NNCFXError, machine_fault, shortened
from nncfx.quantization.ranges.observation import failed_batch, no_batches
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.inputs import own_tensors

_LOGGER = logging.getLogger(__name__)
_PARAMETER: Final = inspect.Parameter


@dataclass(frozen=True)
class BlockCall:
    """One call of a block.

    Attributes:
        hidden: The hidden states that blocks pass on, n x ... x d.
        args: The other arguments by position.
        kwargs: The arguments by name.
    """

    hidden: Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def result(self, forward: Callable[..., Any]) -> Any:  # noqa: ANN401 (of any form)
        """Return the result of a block's forward, called with copies of all tensors.

        A block may update a state in place, like RWKV, which would change its next run.
        """
        args, kwargs = own_tensors(((self.hidden, *self.args), self.kwargs))
        return forward(*args, **kwargs)

    def run(self, block: nn.Module) -> Tensor:
        """Return the hidden states that `block` passes on."""
        found = self.result(block)
        while isinstance(found, tuple | list):
            found = found[0]
        assert isinstance(found, Tensor)  # noqa: S101 (as when the call was recorded)
        return found

    def named(self, block: nn.Module) -> dict[str, Any]:
        """Return all arguments by their names in the block's forward."""
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
    """Return the names of the consecutive blocks in an `nn.ModuleList`.

    The list is that with the given `name`, or the one with most parameters; a warning names
    others.

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
        if name is not None or _repeats(module)
    }
    if not any(sizes.values()):
        raise ArgumentError(
            f"{type(model).__name__} has no nn.ModuleList of blocks"
            + (f" named '{name}'. " if name else ". ")
            + "Write blocks= with its dotted name ('model.layers'), or use quantize_weights."
        )
    best = max(sizes, key=lambda one: sizes[one])
    _tell_others(model, best, sizes)
    return tuple(f"{best}.{number}" for number in range(len(lists[best])))


def _repeats(modules: nn.ModuleList | nn.Sequential) -> bool:
    """Return whether these can be blocks: of one class, or in a list with repeated classes."""
    classes = {type(one) for one in modules}
    return len(classes) == 1 or (
        isinstance(modules, nn.ModuleList) and len(classes) < len(modules)
    )


def _tell_others(model: nn.Module, best: str, lists: Iterable[str]) -> None:
    """Warn of lists of blocks with matrices other than `best`."""
    others = {best: 0}
    for one in lists:  # outer modules come first
        if one != best and not one.startswith(tuple(f"{seen}." for seen in others)):
            others[one] = _weights(model.get_submodule(one))
    shares = [
        f"'{one}' ({100 * count / _weights(model):.1f} % of the weights)"
        for one, count in others.items()
        if count
    ]
    if shares:
        _LOGGER.warning(
            "%s has several lists of blocks. '%s' is used, not %s. Name another with blocks= in "
            "a second call, on what this one returns.",
            *(type(model).__name__, best, shortened(shares)),
        )


def _weights(module: nn.Module) -> int:
    """Return the number of weights in the matrices of a module."""
    return sum(one.numel() for one in module.parameters() if one.ndim > 1)


class _AllSeen(Exception):  # noqa: N818 (no fault)
    pass


class _Unlike(Exception):  # noqa: N818 (its text is a part of the error)
    """Raised if modules are not called like blocks."""


def block_calls(
    model: nn.Module, names: Sequence[str], batches: Iterable[ExampleInputs]
) -> list[list[BlockCall]]:
    """Return the calls of each block, by block and batch; only the first block runs.

    The hidden states are correct only for the first block. The others are called with the same
    hidden states, together with the other results of the first block.

    Raises:
        ArgumentError: there are no batches, the model fails on one, or the blocks do not pass on
            a tensor.
    """
    blocks = [model.get_submodule(name) for name in names]
    found: list[list[BlockCall]] = [[] for _ in blocks]
    count = 0
    for batch in batches:
        for own, call in zip(found, _recorded(model, blocks, names, batch, count), strict=True):
            own.append(call)
        count += 1
    if not count:
        raise no_batches()
    return found


def _recorded(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    names: Sequence[str],
    batch: ExampleInputs,
    index: int,
) -> list[BlockCall]:
    """Return one call of each block, on the batch with this index."""
    calls: list[BlockCall] = []
    args, kwargs = as_call(batch)
    reason: Exception | None = None
    with _standing_in(blocks, calls), torch.no_grad():
        try:
            model(*args, **kwargs)
        except _AllSeen:
            pass
        except Exception as error:
            # if it fails before or in the first block, the model cannot run on this batch
            if not calls and not isinstance(error, _Unlike):
                if isinstance(error, NNCFXError) or machine_fault(error) is not None:
                    raise
                raise failed_batch(model, batch, index, error) from error
            reason = error
    if len(calls) < len(blocks):
        raise ArgumentError(
            f"The blocks '{names[0]}' to '{names[-1]}' do not pass one tensor from each to the "
            f"next, so they cannot be compressed one after another ({len(calls)} of {len(blocks)} "
            f"were called{f'; {reason}' if reason else ''}). Write blocks= with the name of "
            "another list, or use quantize_weights."
        ) from reason
    return calls


@contextmanager
def _standing_in(blocks: Sequence[nn.Module], calls: list[BlockCall]) -> Iterator[None]:
    """Replace the forwards of blocks to record calls; results have the form of the first's."""
    returned: list[Any] = []
    first = blocks[0].forward

    def recording(number: int) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the model calls its block)
            call = _block_call(args, kwargs)
            _check_next(call, number, calls)
            if not calls:
                returned.append(call.result(first))
            calls.append(call)
            if len(calls) == len(blocks):
                raise _AllSeen
            return _passing_on(call.hidden, returned[0])

        return record

    for number, block in enumerate(blocks):
        block.forward = recording(number)
    try:
        yield
    finally:
        for block in blocks:
            vars(block).pop("forward", None)  # a block can occur twice


def _check_next(call: BlockCall, number: int, calls: Sequence[BlockCall]) -> None:
    if calls and call.hidden.shape != calls[0].hidden.shape:
        raise _Unlike("their inputs differ in shape")
    if number != len(calls):
        raise _Unlike("they run in another order")


def _block_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> BlockCall:
    """Return the call of a block without its cache."""
    named = {
        name: None if _is_cache(one) else False if name == "use_cache" else one
        for name, one in kwargs.items()
    }
    given = [None if _is_cache(one) else one for one in args]
    hidden = given.pop(0) if given else named.pop("hidden_states", None)
    if not isinstance(hidden, Tensor):
        raise _Unlike("their first input is not a tensor")
    return BlockCall(hidden.detach(), tuple(given), named)


def _passing_on(hidden: Tensor, returned: Any) -> Any:  # noqa: ANN401 (of any form)
    """Return the result of a block with its first tensor replaced by `hidden`."""
    if isinstance(returned, tuple | list) and returned:
        parts = [_passing_on(hidden, returned[0]), *returned[1:]]
        return parts if isinstance(returned, list) else tuple(parts)
    return hidden


def _is_cache(value: object) -> bool:
    """Return whether `value` is a cache, to which a second run would append keys and values again.

    Caches are recognised by a method, because their argument has had several names (`cache` since
    transformers 5.24) and classes.
    """
    return hasattr(value, "get_seq_length")


@torch.no_grad()
def advanced(
    block: nn.Module, calls: Sequence[BlockCall], following: Sequence[BlockCall]
) -> list[BlockCall]:
    """Return `following` with the results of `block` on `calls` as hidden states."""
    return [
        BlockCall(call.run(block), other.args, other.kwargs)
        for call, other in zip(calls, following, strict=True)
    ]
