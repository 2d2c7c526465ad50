"""The container: what goes in comes out, and damage is always our error."""

import io
import json
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bit_tensors import bits_of
from nncfx.errors import StorageError
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor
from nncfx.storage.formats.container import Contents, pack, read_header, read_tensors
from nncfx.storage.formats.segments import TensorRow, read_segment

PREFIX = struct.Struct("<8sIIII")


def unpacked(data: bytes, max_bytes: int | None = None) -> dict[str, BitTensor]:
    file = io.BytesIO(data)
    tensors = read_tensors(file, read_header(file), max_bytes=max_bytes)
    return {row.name: bits for row, bits in tensors}


def example() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    sparse = rng.normal(size=(20, 30)).astype(np.float32)
    clustered = np.round(sparse * 4) * (np.abs(sparse) > 1)
    return {
        "codes": clustered.astype(np.float32) + np.float32(0),
        "planes": (sparse * (np.abs(sparse) > 1.2)).astype(np.float16),
        "raw": sparse[0],
        "count": np.array(7, dtype=np.int64),
        "empty": np.zeros((0, 3), dtype=np.float64),
    }


def small_file() -> bytes:
    return pack(Contents(tensors={name: bits_of(value) for name, value in example().items()}))


def reheaded(data: bytes, **changes: object) -> bytes:
    """Return the file with parts of its JSON header replaced and all checksums made right."""
    _, _, stored, _, _ = PREFIX.unpack(data[: PREFIX.size])
    header = json.loads(zlib.decompress(data[PREFIX.size : PREFIX.size + stored]))
    return headed(json.dumps(header | changes).encode(), data[PREFIX.size + stored :])


def headed(text: bytes, payload: bytes) -> bytes:
    packed = zlib.compress(text)
    prefix = PREFIX.pack(b"\x89NNCFX\r\n", 1, len(packed), len(text), zlib.crc32(packed))
    return prefix + packed + payload


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        hnp.arrays(
            st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.uint8]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9),
        ),
        max_size=5,
    )
)
@hypothesis.example({"smallest": np.full((4, 8), 1e-45, np.float32)})
def test_tensors_come_back_bit_for_bit(tensors: dict[str, np.ndarray]) -> None:
    data = pack(Contents(tensors={name: bits_of(value) for name, value in tensors.items()}))
    found = unpacked(data)
    assert list(found) == list(tensors)
    for name, value in tensors.items():
        assert found[name].shape == value.shape
        assert found[name].words.tobytes() == value.tobytes()


def test_aliases_sizes_and_metadata_come_back() -> None:
    contents = Contents(
        tensors={"a": bits_of(np.ones(3, dtype=np.float32))},
        same={"b": "a"},
        sizes={"layer": {"in_features": 3}},
        metadata={"note": [1, None, "x"]},
    )
    header = read_header(io.BytesIO(pack(contents)))
    assert header.same == {"b": "a"}
    assert header.keys["b"] is header.keys["a"]
    assert header.sizes == {"layer": {"in_features": 3}}
    assert header.metadata == {"note": [1, None, "x"]}


def test_many_small_tensors_share_checksums() -> None:
    tensors = {f"t{i}": bits_of(np.full(3, i, dtype=np.float32)) for i in range(500)}
    header = read_header(io.BytesIO(pack(Contents(tensors=tensors))))
    assert len(header.segments) <= 3


def test_every_truncation_is_refused() -> None:
    data = small_file()
    for size in range(len(data)):
        with pytest.raises(StorageError):
            unpacked(data[:size])


def test_every_flipped_bit_is_refused() -> None:
    data = small_file()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageError):
            unpacked(bytes(damaged))


def test_left_over_bytes_are_refused() -> None:
    with pytest.raises(StorageError, match="left over"):
        unpacked(small_file() + b"\0")


def payload_flips(seed: int) -> Iterator[bytes]:
    """Yield files with flipped bits whose checksums are right: what a hostile writer can do."""
    data = small_file()
    _, _, stored, _, _ = PREFIX.unpack(data[: PREFIX.size])
    start = PREFIX.size + stored
    header = json.loads(zlib.decompress(data[PREFIX.size : start]))
    rng = np.random.default_rng(seed)
    for _ in range(400):
        payload = bytearray(data[start:])
        for place in rng.integers(0, len(payload), rng.integers(1, 4)):
            payload[place] ^= 1 << int(rng.integers(8))
        text = json.dumps(header | {"segments": [[5, zlib.crc32(payload)]]}).encode()
        yield headed(text, bytes(payload))


@pytest.mark.parametrize("seed", range(5))
def test_hostile_streams_under_right_checksums_give_our_error_or_tensors(seed: int) -> None:
    for data in payload_flips(seed):
        try:
            found = unpacked(data)
        except StorageError:
            continue
        assert [bits.shape for bits in found.values()] == [v.shape for v in example().values()]


ROW = ["a", "F32", "F32", [2], "dense+raw", 8]
CRC = zlib.crc32(bytes(8))


@pytest.mark.parametrize(
    "changes",
    [
        {"tensors": [["a", "F32", "F32", [2], "dense+raw"]]},
        {"tensors": [[1, *ROW[1:]]]},
        {"tensors": [["a", "F33", *ROW[2:]]]},
        {"tensors": [["a", ["F32"], *ROW[2:]]]},
        {"tensors": [["a", "F32", "I8", *ROW[3:]]]},
        {"tensors": [["a", "F32", "F32", [2.0], *ROW[4:]]]},
        {"tensors": [["a", "F32", "F32", [-2, -1], *ROW[4:]]]},
        {"tensors": [["a", "F32", "F32", [2**40, 2**40], *ROW[4:]]]},
        {"tensors": [["a", "F32", "F32", [2**40, 2**40, 0], *ROW[4:]]]},
        {"tensors": [["a", "F32", "F32", [1] * 65, *ROW[4:]]]},
        {"tensors": [["a", "F32", "F32", [3], *ROW[4:]]]},
        {"tensors": [["a", "F32", "F32", [1], *ROW[4:]]]},
        {"tensors": [[*ROW[:4], "dense+zip", 8]]},
        {"tensors": [[*ROW[:5], 7]]},
        {"tensors": [[*ROW[:5], -8]]},
        {"tensors": [[*ROW[:5], True]]},
        {"tensors": [ROW, [*ROW[:5], 0]], "segments": [[2, CRC]]},
        {"tensors": {}},
        {"segments": []},
        {"segments": [[2, CRC]]},
        {"segments": [[0, 0], [1, CRC]]},
        {"segments": [[1, CRC + 1]]},
        {"segments": [[1]]},
        {"segments": [1]},
        {"same": {"a": "a"}},
        {"same": {"b": "c"}},
        {"same": {"b": ["a"]}},
        {"sizes": {"a": 3}},
        {"metadata": []},
        {"more": {}},
    ],
)
def test_a_header_that_lies_is_refused(changes: dict[str, object]) -> None:
    good = headed(
        json.dumps(
            {"tensors": [ROW], "segments": [[1, CRC]], "same": {}, "sizes": {}, "metadata": {}}
        ).encode(),
        bytes(8),
    )
    assert unpacked(good)["a"].words.tolist() == [0, 0]
    with pytest.raises(StorageError):
        unpacked(reheaded(good, **changes))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"tensors":' + b"9" * 5000 + b"}", b"1e999"],
)
def test_a_header_that_is_no_json_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(StorageError):
        unpacked(headed(text, b""))


def test_a_header_that_inflates_beyond_its_length_is_refused() -> None:
    packed = zlib.compress(bytes(10**7))
    prefix = PREFIX.pack(b"\x89NNCFX\r\n", 1, len(packed), 100, zlib.crc32(packed))
    with pytest.raises(StorageError, match="does not inflate to 100 bytes"):
        unpacked(prefix + packed)


def test_a_newer_version_is_refused_by_number() -> None:
    data = bytearray(small_file())
    data[8] = 5
    with pytest.raises(StorageError, match="version 5 and this reader knows 4"):
        unpacked(bytes(data))


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(StorageError, match="signature"):
        unpacked(b"PK\x03\x04" + bytes(100))


def test_a_few_bytes_that_claim_gigabytes_are_refused_before_decoding() -> None:
    zeros = pack(Contents(tensors={"z": bits_of(np.zeros(10, dtype=np.uint8))}))
    _, _, stored, _, _ = PREFIX.unpack(zeros[: PREFIX.size])
    row = json.loads(zlib.decompress(zeros[PREFIX.size : PREFIX.size + stored]))["tensors"][0]
    row[3] = [2**34]
    with pytest.raises(StorageError, match=r"pass max_bytes=17179869184"):
        unpacked(reheaded(zeros, tensors=[row]))


def test_a_tensor_larger_than_memory_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nncfx.storage.formats.segments._read_alone", full)
    with pytest.raises(StorageError, match=r"'z' takes 80 bytes, more than there is memory"):
        unpacked(pack(Contents(tensors={"z": bits_of(np.zeros(10))})))


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_still_reads(version: int) -> None:
    golden = Path(__file__).parents[1] / "golden"
    found = unpacked((golden / f"version_{version}.nncfx").read_bytes())
    wanted = json.loads((golden / f"version_{version}.json").read_text())
    assert {
        name: [b.dtype, list(b.shape), b.words.tolist()] for name, b in found.items()
    } == wanted


def test_every_format_has_a_width_that_numpy_has() -> None:
    assert set(WIDTHS.values()) == {1, 2, 4, 8}


def test_large_segments_are_read_in_threads_and_come_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    sizes = (1 << 19, 3, 1 << 19, 1 << 19, 5, 1 << 20)
    values = {f"t{k}": rng.integers(-3, 4, size).astype(np.int8) for k, size in enumerate(sizes)}
    data = pack(Contents(tensors={name: bits_of(one) for name, one in values.items()}), "fast")
    readers = []

    def noted(part: bytes, rows: Sequence[TensorRow]) -> Iterator[tuple[TensorRow, BitTensor]]:
        readers.append(threading.current_thread())
        return read_segment(part, rows)

    monkeypatch.setattr("nncfx.storage.formats.container.read_segment", noted)
    found = unpacked(data)
    assert list(found) == list(values)
    for name, one in values.items():
        np.testing.assert_array_equal(found[name].words.view(np.int8), one)
    assert sum(one is not threading.main_thread() for one in readers) == 4
    readers.clear()
    unpacked(pack(Contents(tensors={"t": bits_of(values["t0"])}), "fast"))
    assert readers == [threading.main_thread()]  # alone, it need not be waited for
    with pytest.raises(StorageError, match="checksum"):
        unpacked(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
