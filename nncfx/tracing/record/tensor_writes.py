"""Find the buffers and parameters that a forward changes, which are state, not constants."""

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

import torch
from torch import nn

from nncfx.storage.models.module_walk import all_tensors
from nncfx.tracing.calls.function_names import spelling
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.record.function_mode import TracedCall, watch_shapes
from nncfx.tracing.record.parameter_writes import changes_its_first, memory_of

_Held: TypeAlias = tuple[int, int, int]
"""Identity of a tensor and of its memory, and torch's count of changes."""

_NOTHING: Final[_Held] = (0, 0, 0)


def written_tensors(
    model: nn.Module, example_inputs: ExampleInputs, names: Collection[str], *, train: bool
) -> frozenset[str]:
    """Return the `names` of tensors that one forward writes to or replaces.

    Runs a forward as `watch_shapes` does; all values are restored afterwards. Writes in branches
    that the inputs do not reach are not found.

    Args:
        model: any module.
        example_inputs: as for `trace`.
        names: dotted names of dense buffers and parameters of `model`.
        train: run it in training mode, else in evaluation mode.

    Raises:
        TracingError: the model rejects the inputs in that mode.

    >>> class Bank(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("seen", torch.zeros(4, 2))
    ...     def forward(self, x):
    ...         result = x @ self.seen.T
    ...         if self.training:
    ...             self.seen.data[0] = x[0]
    ...         return result
    >>> for train in (True, False):
    ...     print(set(written_tensors(Bank(), torch.ones(1, 2), ["seen"], train=train)))
    {'seen'}
    set()
    """
    watches: list[_Writes] = []

    def observers() -> list[_Writes]:
        watches.append(_Writes(model, names))
        return watches[-1:]

    watch_shapes(model, example_inputs, observers, train=train)
    return frozenset(watches[-1].written)


class _Writes:
    """Records which tensors change, by name and memory, even if torch does not count it."""

    def __init__(self, model: nn.Module, names: Collection[str]) -> None:
        self.written: set[str] = set()
        self._model = model
        self._names = names
        # kept alive, so no other tensor gets their ids
        self._tensors = self._now()
        self._before = {name: _held(one) for name, one in self._tensors.items()}
        self._stored: dict[int, list[str]] = {}
        for name, (_, memory, _) in self._before.items():
            self._stored.setdefault(memory, []).append(name)

    def _now(self) -> Mapping[str, torch.Tensor]:
        tensors = all_tensors(self._model)
        return {name: one for name, one in tensors.items() if name in self._names}

    def on_input(self, tensor: torch.Tensor) -> None:
        """Do nothing, because inputs change no tensors."""

    def on_call(self, call: TracedCall) -> None:
        """Record in-place changes, which torch does not count if made through `data`."""
        if not (changes_its_first(spelling(call.func), call.kwargs) or "out" in call.kwargs):
            return  # x.to(x.dtype) returns x too
        for tensor in call.produced or call.operands[:1]:
            if any(tensor is one for one in call.operands) and tensor.layout == torch.strided:
                self.written.update(self._stored.get(memory_of(tensor), ()))

    def on_output(self, tensor: torch.Tensor) -> None:
        """Record which names hold other or changed tensors after the forward.

        A missing parameter was removed with its layer, not written to.
        """
        del tensor
        now = {name: _held(one) for name, one in self._now().items()}
        self.written |= {
            name
            for name, one in self._before.items()
            if now.get(name, _NOTHING) != one
            and (name in now or not isinstance(self._tensors[name], nn.Parameter))
        }


def _held(tensor: torch.Tensor) -> _Held:
    changes = 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 (no public count)
    return id(tensor), memory_of(tensor), changes
