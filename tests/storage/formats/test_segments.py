"""Segments: modes of codecs, and tensors that share a stream."""

import io
from pathlib import Path

import numpy as np
import pytest

from bit_tensors import bits_of
from nncfx.errors import ArgumentError, StorageError
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats import segments
from nncfx.storage.formats.container import Contents, pack, read_header, read_tensors
from nncfx.storage.formats.tensor_file import TensorFile


def integers(seed: int, shape: tuple[int, ...]) -> BitTensor:
    values = np.rint(np.random.default_rng(seed).laplace(0, 2, shape)).astype(np.int8)
    return bits_of(values)


def floats(seed: int, count: int) -> BitTensor:
    return bits_of(np.random.default_rng(seed).normal(size=count).astype("<f4"))


def mixed() -> dict[str, BitTensor]:
    return {
        "a.weight": integers(0, (20, 30)),
        "a.bias": floats(1, 40),
        "b.weight": integers(2, (16, 4, 3, 3)),
        "b.bias": floats(3, 3),
        "c.weight": integers(4, (900, 700)),
        "d.weight": integers(5, (40, 30)),
    }


def test_modes_choose_codecs_and_every_tensor_comes_back() -> None:
    for mode, version in (("small", 4), ("fast", 2)):
        file = io.BytesIO(pack(Contents(tensors=mixed()), mode))  # type: ignore[arg-type]
        header = read_header(file)
        assert file.getvalue()[8] == version
        assert {row.in_stream for row in header.rows if "weight" in row.name} == {mode == "small"}
        for row, tensor in read_tensors(file, header):
            np.testing.assert_array_equal(tensor.words, mixed()[row.name].words)


def test_auto_is_small_only_where_the_coder_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    for compiled, version in ((True, 3), (False, 2)):
        monkeypatch.setattr(segments, "IS_COMPILED", compiled)
        assert pack(Contents(tensors={"a": integers(0, (40, 40))}))[8] == version


def test_only_what_two_threads_read_needs_version_4() -> None:
    for shape, version in (((40, 30), 3), ((400, 300), 4)):
        file = io.BytesIO(pack(Contents(tensors={"a": integers(0, shape)}), "small"))
        header = read_header(file)
        assert file.getvalue()[8] == version
        ((_, found),) = read_tensors(file, header)
        np.testing.assert_array_equal(found.words, integers(0, shape).words)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"no mode 'tiny'\. Known are auto, fast, small"):
        pack(Contents(tensors=mixed()), "tiny")  # type: ignore[arg-type]


def test_tensors_of_a_stream_are_read_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "a.nncfx"
    path.write_bytes(pack(Contents(tensors=mixed()), "small"))
    with TensorFile(path) as file:
        for name in [*reversed(file.names), *file.names, "a.weight", "a.weight"]:
            np.testing.assert_array_equal(file.read(name).words, mixed()[name].words)


def test_small_tensors_of_a_stream_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.nncfx"
    many = {f"{number}": integers(number, (20, 20)) for number in range(30)}
    path.write_bytes(pack(Contents(tensors=many), "small"))
    streams: list[int] = []
    read_stream = segments.read_stream

    def counted(tensors: list[object]) -> object:
        streams.append(len(tensors))
        return read_stream(tensors)  # type: ignore[arg-type]

    monkeypatch.setattr(segments, "read_stream", counted)
    with TensorFile(path) as file:
        for name in file.names:
            file.read(name)
    assert streams == [30]


def test_a_codec_of_version_3_in_a_file_of_version_2_is_refused() -> None:
    data = bytearray(pack(Contents(tensors=mixed()), "small"))
    data[8] = 2
    with pytest.raises(StorageError, match="'tensors' in its header"):
        read_header(io.BytesIO(bytes(data)))


def test_what_contexts_cannot_make_smaller_takes_another_codec() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5000).astype("u1")
    tensor = BitTensor(dtype="U8", shape=(50, 100), words=noise)
    file = io.BytesIO(pack(Contents(tensors={"noise": tensor}), "small"))
    assert read_header(file).rows[0].size_bytes <= 5010


def test_large_tensors_beside_a_stream_end_segments() -> None:
    tensors = {"a": integers(0, (40, 40))}
    tensors |= {f"{k}": floats(k, 1 << 18) for k in range(6)}
    file = io.BytesIO(pack(Contents(tensors=tensors), "small"))
    assert [count for count, _, _ in read_header(file).segments] == [3, 1, 1, 1, 1]
