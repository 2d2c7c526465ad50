"""Read and write integer tensors in one stream of words, each with a head and a share of words.

A stream has two lanes, each with its own model and coder, so two threads can read it: a halved
tensor has its upper rows in the first lane and its lower rows in the second; any other tensor is
in the first lane. A lane is the concatenation of its shares. Tensors are read in the order in
which they were written, because each starts with the model that the earlier ones have trained.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader, varint
from nncfx.storage.compiled import warn_slow
from nncfx.storage.context_coding.layout import (
    Head,
    IntegerLayout,
    candidates,
    in_order,
    read_layout,
)
from nncfx.storage.context_coding.model import AdaptiveModel

Integers: TypeAlias = NDArray[np.signedinteger[Any]]

_WHOLE = 1 << 48
_AHEAD = 3  # words that a reader reads ahead
_SAMPLED = 1 << 14
_TOGETHER = 1 << 19  # numbers of tensors in memory at a time
_CUT = 3  # a ninth is priced to choose a layout


class Coded(NamedTuple):
    """An integer tensor as stored in a file: its head and its words."""

    head: bytes
    words: bytes


class _Lane(NamedTuple):
    model: AdaptiveModel
    coder: NDArray[np.int64]
    words: NDArray[np.uint16]

    def after(self, values: Integers, layout: IntegerLayout) -> "_Lane":
        """Return this lane after writing `values`, 1-D in the order of `layout`."""
        extremes = int(values.min(initial=0)), int(values.max(initial=0))
        bits = 2 + max(map(int.bit_length, extremes))
        while True:
            model, coder = self.model.copy(), self.coder.copy()
            start = self.words.size
            room = np.zeros(start + 64 + values.size * bits // 16, dtype=np.uint16)
            room[:start] = self.words
            model.code(values, layout, coder, sink=room)
            if not coder[3]:
                return _Lane(model, coder, room[: int(coder[2])])
            bits *= 2

    def finished(self) -> NDArray[np.uint16]:
        """Return the words, including the final word."""
        low, _, place, _ = self.coder.tolist()
        words = np.append(self.words, np.uint16(0))
        # the span is at least 2**32, so one word selects a number in it
        last = (low + (1 << 32) - 1) >> 32
        words[place] = last & 0xFFFF
        while last >> 16:
            place -= 1
            last = int(words[place]) + 1
            words[place] = last & 0xFFFF
        return words


class TensorDraft(NamedTuple):
    """A tensor that can be written: its bytes, its head, and the lanes after writing it."""

    size_bytes: int
    head: bytes
    halved: bool
    lanes: tuple[_Lane, ...]


class _Written(NamedTuple):
    head: bytes
    halved: bool
    ends: tuple[int, ...]
    """The number of words of each lane after the tensor."""


class ContextWriter:
    """Writes integer tensors into one stream."""

    def __init__(self) -> None:
        """Start an empty stream."""
        coder = np.array([0, _WHOLE, 0, 0], dtype=np.int64)
        empty = np.zeros(0, dtype=np.uint16)
        self._lanes = tuple(_Lane(AdaptiveModel(), coder, empty) for _ in range(2))
        self._written: list[_Written] = []

    @property
    def has_halves(self) -> bool:
        """Return whether a tensor was written into both lanes."""
        return any(one.halved for one in self._written)

    def trial(self, values: Integers, *, halved: bool = False) -> TensorDraft:
        """Return a draft of the next tensor, with `values` in the shape of their tensor.

        A tensor of two rows or more can be `halved`, that is, written into both lanes.
        """
        values = _narrow(values)
        warn_slow(values.size)
        layouts = list(candidates(values))
        if len(layouts) > 1 and values.size >= _SAMPLED:
            layouts = [self._cheaper(values, layouts)]
        drafts = (self._tried(values, one, halved=halved and one.rows > 1) for one in layouts)
        return min(drafts, key=lambda one: one.size_bytes)

    def accept(self, trial: TensorDraft) -> None:
        """Write the draft `trial`, which must be based on the last written tensor."""
        self._lanes = trial.lanes
        ends = tuple(lane.words.size for lane in trial.lanes)
        self._written.append(_Written(trial.head, trial.halved, ends))

    def _cheaper(self, values: Integers, layouts: Sequence[IntegerLayout]) -> IntegerLayout:
        """Return the layout in which a central part of `values` takes the fewest bits."""
        rows, columns = (slice(one // _CUT, 1 + 2 * one // _CUT) for one in values.shape[:2])
        part = values[rows, columns]

        def bits(layout: IntegerLayout) -> int:
            model = self._lanes[0].model.copy()
            prices = model.code(in_order(part, layout), layout.of(part.shape))
            return int(prices.sum(dtype=np.int64))

        return min(layouts, key=bits)

    def _tried(self, values: Integers, layout: IntegerLayout, *, halved: bool) -> TensorDraft:
        ordered, lanes = in_order(values, layout), self._lanes
        if halved:
            parts = _halves(ordered, layout)
            lanes = tuple(lane.after(*part) for lane, part in zip(lanes, parts, strict=True))
        else:
            lanes = lanes[0].after(ordered, layout), lanes[1]
        head = layout.packed(values.shape, wide=values.dtype != np.int8, halved=halved)
        before, after = (sum(one.words.size for one in two) for two in (self._lanes, lanes))
        return TensorDraft(len(head) + 2 * (after - before), head, halved, lanes)

    def finish(self) -> list[Coded]:
        """Return the written tensors; the last of each lane includes the final word."""
        if not self._written:
            return []
        shares = [self._shares(k) for k in range(1 + self.has_halves)]
        coded = []
        for i, one in enumerate(self._written):
            parts = [words[i].tobytes() for words in shares[: 1 + one.halved]]
            head = one.head + varint(shares[0][i].size) if one.halved else one.head
            coded.append(Coded(head, b"".join(parts)))
        return coded

    def _shares(self, lane: int) -> list[NDArray[np.uint16]]:
        """Return the words of each tensor in a lane; the last tensor includes the final word."""
        words = self._lanes[lane].finished().astype("<u2")
        last = max(i for i, one in enumerate(self._written) if one.halved or not lane)
        ends = [one.ends[lane] if i < last else words.size for i, one in enumerate(self._written)]
        return np.split(words, ends[:-1])


def read_stream(
    tensors: Sequence[tuple[ByteReader, tuple[int, ...]]],
) -> Iterator[tuple[Integers, IntegerLayout]]:
    """Yield the integers of each tensor, 1-D in the order of its layout, and the layout.

    Args:
        tensors: The bytes of each tensor, which start with its head, and its shape.

    Raises:
        StorageError: The bytes are damaged or truncated.
    """
    warn_slow(sum(math.prod(shape) for _, shape in tensors))
    heads = [read_layout(source, shape) for source, shape in tensors]
    shares = [bytearray(), bytearray()]
    for head, (source, _) in zip(heads, tensors, strict=True):
        if head.halved:
            shares[0] += source.take(2 * source.varint())
        shares[head.halved] += source.take(source.left)
    counts = len(heads), sum(head.halved for head in heads)
    lanes = [_Reader(data, count) for data, count in zip(shares, counts, strict=True)]
    with ThreadPoolExecutor(1) as other:
        for group in _groups(heads, [math.prod(shape) for _, shape in tensors]):
            first, second = [], []
            for values, head in group:
                if head.halved:
                    upper, lower = _halves(values, head.layout)
                    first.append(upper)
                    second.append(lower)
                else:
                    first.append((values, head.layout))
            # once for many tensors, because waking a thread takes as long as a small tensor
            read = other.submit(lanes[1].read, second) if second else None
            lanes[0].read(first)
            if read:
                read.result()
            yield from ((values, head.layout) for values, head in group)


def _groups(heads: Sequence[Head], sizes: Sequence[int]) -> Iterator[list[tuple[Integers, Head]]]:
    """Yield groups of unread tensors of at most `_TOGETHER` numbers, or of a single tensor."""
    group: list[tuple[Integers, Head]] = []
    numbers = 0
    for head, size in zip(heads, sizes, strict=True):
        if group and numbers + size > _TOGETHER:
            yield group
            group, numbers = [], 0
        group.append((np.zeros(size, dtype=np.int32 if head.wide else np.int8), head))
        numbers += size
    if group:
        yield group


class _Reader:
    """Reads `count` tensors from the words of a lane."""

    def __init__(self, data: bytearray, count: int) -> None:
        if len(data) % 2:
            raise StorageError("The file is damaged: half a word in a context-coded stream.")
        _check(count > 0 or not data)
        self._words = np.frombuffer(data, dtype="<u2").astype(np.uint16, copy=False)
        first, second, third = [*self._words[:_AHEAD].tolist(), 0, 0, 0][:_AHEAD]
        low = first << 32 | second << 16 | third
        self._coder = np.array([low, _WHOLE, _AHEAD, 0], dtype=np.int64)
        self._model, self._left = AdaptiveModel(), count

    def read(self, tensors: Iterable[tuple[Integers, IntegerLayout]]) -> None:
        """Read the integers of tensors, 1-D in the order of their layouts."""
        for values, layout in tensors:
            self._model.code(values, layout, self._coder, source=self._words)
            self._left -= 1
            place, fault = self._coder[2:].tolist()
            _check(not fault and (self._left > 0 or place == self._words.size + _AHEAD - 1))


def _check(holds: bool) -> None:
    if not holds:
        raise StorageError("The file is damaged: a context-coded stream contradicts itself.")


def _halves(
    ordered: Integers, layout: IntegerLayout
) -> tuple[tuple[Integers, IntegerLayout], tuple[Integers, IntegerLayout]]:
    """Return the integers, 1-D in the order of `layout`, and the layouts of both halves."""
    upper, lower = layout.halves()
    cut = upper.rows * layout.columns
    return (ordered[:cut], upper), (ordered[cut:], lower)


def _narrow(values: Integers) -> Integers:
    fits = int(values.min(initial=0)) >= -128 and int(values.max(initial=0)) < 128  # noqa: PLR2004
    return values.astype(np.int8 if fits else np.int32, copy=False)
