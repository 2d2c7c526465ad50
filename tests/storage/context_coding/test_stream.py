"""Streams of integer tensors: what is written is read, and damage is our error."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.context_coding import kernel, model, stream
from nncfx.storage.context_coding.layout import candidates, in_order
from nncfx.storage.context_coding.stream import ContextWriter, read_stream
from nncfx.storage.context_coding.tables import Tables, tables

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
INTEGERS = hnp.arrays(np.int32, SHAPES, elements=st.integers(-(2**31) + 1, 2**31 - 1))
SMALL = hnp.arrays(np.int8, SHAPES, elements=st.integers(-128, 127))


def written(tensors: Sequence[np.ndarray], halved: Sequence[bool] = ()) -> list[bytes]:
    writer = ContextWriter()
    for k, one in enumerate(tensors):
        writer.accept(writer.trial(one, halved=k < len(halved) and halved[k]))
    return [coded.head + coded.words for coded in writer.finish()]


def read(parts: Sequence[bytes], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    tensors = [(ByteReader(part), shape) for part, shape in zip(parts, shapes, strict=True)]
    again = []
    for (values, layout), shape in zip(read_stream(tensors), shapes, strict=True):
        again.append(np.empty(shape, dtype=values.dtype))
        view = again[-1].swapaxes(0, 1) if layout.swapped else again[-1]
        view[...] = values.reshape(view.shape)
    return again


@given(st.lists(INTEGERS | SMALL, min_size=1, max_size=4), st.lists(st.booleans(), max_size=4))
def test_all_integers_come_back(tensors: list[np.ndarray], halved: list[bool]) -> None:
    again = read(written(tensors, halved), [one.shape for one in tensors])
    for one, other in zip(tensors, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("least", [1, 5, 300])
@pytest.mark.parametrize("spread", [1, 30, 4000])
def test_sparse_tensors_come_back(least: int, spread: int) -> None:
    rng = np.random.default_rng(least)
    values = np.rint(rng.laplace(0, spread, (40, 9, 3, 3))).astype(np.int32)
    values[(np.abs(values) < least) | (rng.random(values.shape) < 0.7)] = 0
    (again,) = read(written([values]), [values.shape])
    np.testing.assert_array_equal(values, again)


def test_halves_are_read_across_groups_and_take_little_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(4)
    shapes = [(90, 70), (8,), (33, 20, 3, 3), (1, 50), (40, 41)]
    tensors = [np.rint(rng.laplace(0, 3, shape)).astype(np.int8) for shape in shapes]
    parts = written(tensors, [True] * 5)
    assert sum(map(len, parts)) < 1.02 * sum(map(len, written(tensors)))
    for together in (1, 7000, 1 << 19):
        monkeypatch.setattr(stream, "_TOGETHER", together)
        for one, other in zip(tensors, read(parts, shapes), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_stream_is_as_large_as_its_prices() -> None:
    rng = np.random.default_rng(0)
    values = np.rint(rng.laplace(0, 3, (120, 90))).astype(np.int8)
    (part,) = written([values])
    prices = [model.AdaptiveModel().code(in_order(values, one), one) for one in candidates(values)]
    least = min(one.sum(dtype=np.int64) for one in prices) / 65536
    assert len(part) == pytest.approx(least / 8, abs=6, rel=2e-4)


@pytest.mark.parametrize("spread", [0.4, 2.0, 30.0])
def test_independent_integers_take_their_entropy(spread: float) -> None:
    values = np.rint(np.random.default_rng(0).laplace(0, spread, (60, 100))).astype(np.int32)
    _, counts = np.unique(values, return_counts=True)
    entropy = float((counts * np.log2(values.size / counts)).sum())
    (part,) = written([values])
    assert 0.98 < 8 * len(part) / entropy < 1.06


def test_rows_and_columns_of_different_size_take_less_than_shuffled() -> None:
    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(0, 1, (90, 1))) * np.exp(rng.normal(0, 1, (1, 120)))
    values = np.rint(rng.laplace(0, 2, (90, 120)) * scale).astype(np.int16)
    shuffled = rng.permutation(values.reshape(-1)).reshape(values.shape)
    (part,), (other,) = written([values]), written([shuffled])
    assert len(part) < 0.94 * len(other)


def test_a_rare_integer_costs_more_than_a_frequent_one() -> None:
    values = np.where(np.random.default_rng(2).random((40, 90)) < 0.05, 7, 0).astype(np.int8)
    layout = next(iter(candidates(values)))
    bits = model.AdaptiveModel().code(in_order(values, layout), layout) / 65536
    assert bits[values.reshape(-1) == 7].mean() > 4
    assert bits[values.reshape(-1) == 0].mean() < 0.2


def test_what_was_learnt_makes_the_next_tensor_smaller() -> None:
    values = np.random.default_rng(3).choice([-5, 0, 9], (30, 30)).astype(np.int32)
    first, second = written([values, values])
    assert len(second) < 0.95 * len(first)


def test_plain_python_writes_and_reads_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    tensors = [
        np.rint(rng.laplace(0, 2, (9, 8, 3, 3))).astype(np.int8),
        np.rint(rng.laplace(0, 900, (30, 10)) * (rng.random((30, 10)) < 0.3)).astype(np.int32),
    ]
    shapes = [one.shape for one in tensors]
    parts = written(tensors, [False, True])
    monkeypatch.setattr(model, "IS_COMPILED", False)
    for name, function in list(vars(kernel).items()):
        monkeypatch.setattr(kernel, name, getattr(function, "py_func", function))
    monkeypatch.setattr(model, "code_tensor", kernel.code_tensor)
    lists = Tables(*(list(map(int, part)) for part in tables()))
    monkeypatch.setattr(model, "tables", lambda: lists)
    assert written(tensors, [False, True]) == parts
    for one, other in zip(tensors, read(parts, shapes), strict=True):
        np.testing.assert_array_equal(one, other)


def damaged(rng: np.random.Generator, part: bytes) -> bytes:
    data = bytearray(part)
    for _ in range(rng.integers(1, 4)):
        kind, at = rng.integers(0, 3), int(rng.integers(0, len(data)))
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del data[at : at + 2]
        else:
            data[at:at] = rng.bytes(2)
    return bytes(data)


@pytest.mark.parametrize("halved", [False, True])
def test_damage_is_our_error_or_other_integers_in_range(halved: bool) -> None:
    rng = np.random.default_rng(2)
    values = np.rint(rng.laplace(0, 20, (20, 30)) * (rng.random((20, 30)) < 0.4)).astype(np.int8)
    (part,) = written([values], [halved])
    refused = 0
    for _ in range(300):
        try:
            (again,) = read([damaged(rng, part)], [values.shape])
        except StorageError:
            refused += 1
        else:
            assert again.size == math.prod(values.shape)
    assert refused > 150


def test_a_stream_cut_short_is_refused() -> None:
    values = np.random.default_rng(3).integers(-90, 90, (50, 40)).astype(np.int8)
    (part,) = written([values])
    with pytest.raises(StorageError, match="contradicts itself"):
        read([part[:-200]], [values.shape])
    with pytest.raises(StorageError, match="half a word"):
        read([part[:-1]], [values.shape])


def test_lanes_that_end_elsewhere_are_refused() -> None:
    values = np.random.default_rng(3).integers(-90, 90, (50, 40)).astype(np.int8)
    (part,) = written([values], [True])
    words = part[2] & 127 | part[3] << 7  # of the upper rows, as varint
    for other in (words - 1, words + 1, 16383):
        varint = bytes([other & 127 | 128, other >> 7])
        with pytest.raises(StorageError, match=r"contradicts itself|truncated"):
            read([part[:2] + varint + part[4:]], [values.shape])


def test_a_few_bytes_do_not_keep_a_reader_busy() -> None:
    with pytest.raises(StorageError, match="contradicts itself"):
        read([b"\0\5" + bytes(range(100, 130))], [(1 << 14, 1 << 10)])


@pytest.mark.parametrize("head", [b"\x20\0", b"\0\x40", b"\4\0\0", b"\2\0\0\0", b"\2\0\1\x40"])
def test_heads_out_of_range_are_refused(head: bytes) -> None:
    with pytest.raises(StorageError, match=r"head of a context-coded|truncated"):
        read([head + bytes(20)], [(4, 4)])


def test_an_integer_beyond_its_width_is_refused() -> None:
    (part,) = written([np.full((8, 8), 1 << 20)])
    with pytest.raises(StorageError, match="contradicts itself"):
        read([bytes([part[0] & ~8]) + part[1:]], [(8, 8)])
