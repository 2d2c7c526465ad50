"""Integer tensors in one stream of words, each with its own head and its share of the words.

The stream is what the shares are when joined. Tensors are read in the order they were written in,
since each one begins with what the ones before it have taught.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.compiled import warn_slow
from nncfx.storage.context_coding.layout import IntegerLayout, candidates, in_order, read_layout
from nncfx.storage.context_coding.model import AdaptiveModel

__all__ = ["Coded", "ContextWriter", "TensorDraft", "read_stream"]

Integers: TypeAlias = NDArray[np.signedinteger[Any]]

_WHOLE = 1 << 48
_AHEAD = 3  # words that a reader holds
_SAMPLED = 1 << 14
_CUT = 3  # a ninth is priced to choose a layout


class Coded(NamedTuple):
    """An integer tensor as it lies in a file: its head and its words."""

    head: bytes
    words: bytes


class _State(NamedTuple):
    model: AdaptiveModel
    coder: NDArray[np.int64]
    words: NDArray[np.uint16]

    def copy(self) -> "_State":
        return _State(self.model.copy(), self.coder.copy(), self.words.copy())


class TensorDraft(NamedTuple):
    """A tensor that may be written: its bytes, its head, and what the stream would become."""

    size_bytes: int
    head: bytes
    state: _State


class ContextWriter:
    """Writes integer tensors into one stream."""

    def __init__(self) -> None:
        """Begin a stream."""
        coder = np.array([0, _WHOLE, 0, 0], dtype=np.int64)
        self._state = _State(AdaptiveModel(), coder, np.zeros(0, dtype=np.uint16))
        self._heads: list[bytes] = []
        self._ends: list[int] = []

    def trial(self, values: Integers) -> TensorDraft:
        """Return `values`, in the shape of their tensor, as the next tensor would be written."""
        values = _narrow(values)
        warn_slow(values.size)
        layouts = list(candidates(values))
        if len(layouts) > 1 and values.size >= _SAMPLED:
            layouts = [self._cheaper(values, layouts)]
        return min((self._tried(values, one) for one in layouts), key=lambda one: one.size_bytes)

    def accept(self, trial: TensorDraft) -> None:
        """Write what `trial` has returned since the last tensor was written."""
        self._state = trial.state
        self._heads.append(trial.head)
        self._ends.append(trial.state.words.size)

    def _cheaper(self, values: Integers, layouts: Sequence[IntegerLayout]) -> IntegerLayout:
        """Return the layout in which a part of `values`, cut along both axes, takes fewer bits."""
        rows, columns = (slice(one // _CUT, 1 + 2 * one // _CUT) for one in values.shape[:2])
        part = values[rows, columns]

        def bits(layout: IntegerLayout) -> int:
            model = self._state.model.copy()
            prices = model.code(in_order(part, layout), layout.of(part.shape))
            return int(prices.sum(dtype=np.int64))

        return min(layouts, key=bits)

    def _tried(self, values: Integers, layout: IntegerLayout) -> TensorDraft:
        ordered = in_order(values, layout)
        extremes = int(values.min(initial=0)), int(values.max(initial=0))
        bits = 2 + max(map(int.bit_length, extremes))
        while True:
            state = self._state.copy()
            start = state.words.size
            room = np.zeros(start + 64 + values.size * bits // 16, dtype=np.uint16)
            room[:start] = state.words
            state.model.code(ordered, layout, state.coder, sink=room)
            if not state.coder[3]:
                break
            bits *= 2
        head = layout.packed(values.shape, wide=values.dtype != np.int8)
        end = int(state.coder[2])
        return TensorDraft(len(head) + 2 * (end - start), head, state._replace(words=room[:end]))

    def finish(self) -> list[Coded]:
        """Return the tensors that were written; the last one with what ends the stream."""
        if not self._heads:
            return []
        low, _, place, _ = self._state.coder.tolist()
        words = np.append(self._state.words, np.uint16(0))
        # the span is at least 2**32: one word names a number in it
        last = (low + (1 << 32) - 1) >> 32
        words[place] = last & 0xFFFF
        while last >> 16:
            place -= 1
            last = int(words[place]) + 1
            words[place] = last & 0xFFFF
        ends = [*self._ends[:-1], words.size]
        parts = np.split(words.astype("<u2"), ends[:-1])
        return [Coded(*one) for one in zip(self._heads, map(bytes, parts), strict=True)]


def read_stream(
    tensors: Sequence[tuple[ByteReader, tuple[int, ...]]],
) -> Iterator[tuple[Integers, IntegerLayout]]:
    """Yield the integers of each tensor, 1-D in the order of its layout, and the layout.

    Args:
        tensors: The bytes of each, which begin with its head, and its shape.

    Raises:
        StorageError: The bytes are damaged or cut off.
    """
    warn_slow(sum(math.prod(shape) for _, shape in tensors))
    heads = [read_layout(source, shape) for source, shape in tensors]
    data = bytearray().join(source.take(source.left) for source, _ in tensors)
    if len(data) % 2:
        raise StorageError("The file is damaged: half a word in a context-coded stream.")
    words = np.frombuffer(data, dtype="<u2").astype(np.uint16, copy=False)
    first, second, third = [*words[:_AHEAD].tolist(), 0, 0, 0][:_AHEAD]
    low = first << 32 | second << 16 | third
    coder = np.array([low, _WHOLE, _AHEAD, 0], dtype=np.int64)
    model, left = AdaptiveModel(), len(heads)
    for (layout, wide), (_, shape) in zip(heads, tensors, strict=True):
        values: Integers = np.zeros(math.prod(shape), dtype=np.int32 if wide else np.int8)
        model.code(values, layout, coder, source=words)
        left -= 1
        if coder[3] or (not left and coder[2] != words.size + _AHEAD - 1):
            raise StorageError("The file is damaged: a context-coded stream contradicts itself.")
        yield values, layout


def _narrow(values: Integers) -> Integers:
    fits = int(values.min(initial=0)) >= -128 and int(values.max(initial=0)) < 128  # noqa: PLR2004
    return values.astype(np.int8 if fits else np.int32, copy=False)
