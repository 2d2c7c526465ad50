"""Random access: one tensor at a time, checked, and without torch."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bit_tensors import bits_of
from nncfx.errors import StorageError
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.container import Contents, pack
from nncfx.storage.formats.tensor_file import TensorFile


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    large = rng.normal(size=(50, 60)).astype(np.float32)
    return {
        "first": np.arange(5, dtype=np.float32),
        "large": large,
        "sparse": np.where(np.abs(large) > 1.5, large, np.float32(0)),
        "last": np.array(7, dtype=np.int64),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors = {name: bits_of(value) for name, value in arrays().items()}
    contents = Contents(tensors=tensors, same={"tied": "large"}, metadata={"note": [1, 2]})
    (tmp_path / "a.nncfx").write_bytes(pack(contents))
    return tmp_path / "a.nncfx"


@pytest.fixture
def file(path: Path) -> Iterator[TensorFile]:
    with TensorFile(path) as opened:
        yield opened


def test_every_tensor_is_read_in_any_order(file: TensorFile) -> None:
    wanted = arrays()
    for name in ("last", "large", "first", "sparse", "large"):
        np.testing.assert_array_equal(file.read(name).array(), wanted[name])


def test_a_tied_tensor_is_read_under_its_other_name(file: TensorFile) -> None:
    np.testing.assert_array_equal(file.read("tied").array(), arrays()["large"])


def test_names_rows_and_metadata_are_known_without_reading(file: TensorFile) -> None:
    assert file.names == ("first", "large", "sparse", "last", "tied")
    assert [row.shape for row in file.rows] == [(5,), (50, 60), (50, 60), ()]
    assert file.metadata == {"note": [1, 2]}


def test_streaming_gives_all_stored_tensors(file: TensorFile) -> None:
    found = {row.name: tensor.array() for row, tensor in file.stream()}
    assert found.keys() == arrays().keys()
    np.testing.assert_array_equal(found["sparse"], arrays()["sparse"])


def test_an_unknown_name_gets_the_nearest(file: TensorFile) -> None:
    with pytest.raises(StorageError, match=r"no tensor 'lage'\. Did you mean 'large'"):
        file.read("lage")


def test_damage_elsewhere_does_not_matter_and_damage_here_is_told(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # in the segment of the last two tensors
    path.write_bytes(bytes(data))
    with TensorFile(path) as file:
        np.testing.assert_array_equal(file.read("large").array(), arrays()["large"])
        for name in ("sparse", "last"):
            with pytest.raises(StorageError, match="checksum of a segment"):
                file.read(name)


def test_damage_leaves_the_with_statement_as_our_error(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StorageError, match="checksum of a segment"), TensorFile(path) as file:
        file.read("last")


def test_a_missing_file_and_an_empty_one_are_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be read .* Check the path"):
        TensorFile(tmp_path / "none.nncfx")
    (tmp_path / "empty.nncfx").touch()
    with pytest.raises(StorageError, match="does not begin with its signature"):
        TensorFile(tmp_path / "empty.nncfx")


def test_a_tensor_larger_than_allowed_is_refused(path: Path) -> None:
    with TensorFile(path, max_bytes=1000) as file:
        file.read("first")
        with pytest.raises(StorageError, match="pass max_bytes=12000"):
            file.read("large")


def test_numpy_lacks_some_formats() -> None:
    tensor = BitTensor(dtype="BF16", shape=(1,), words=np.zeros(1, dtype=np.uint16))
    with pytest.raises(StorageError, match="numpy has no BF16"):
        tensor.array()


def test_one_tensor_takes_a_third_of_it_beside_itself(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    # the bound has 40 MiB beside: a third of so large a tensor is more
    values = np.round(rng.laplace(size=12_000_000)).astype(np.float32)
    values *= np.abs(values) > 2
    data = pack(Contents(tensors={"other": bits_of(np.ones(9, np.float32)), "w": bits_of(values)}))
    (tmp_path / "a.nncfx").write_bytes(data)
    with TensorFile(tmp_path / "a.nncfx") as file:
        tracemalloc.start()
        try:
            read = file.read("w")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 1.3 * values.nbytes + len(data)
    np.testing.assert_array_equal(read.words, values.view(np.uint32))


def test_reading_and_packing_import_no_torch() -> None:
    code = (
        "import sys, nncfx.storage as s; s.TensorFile, s.pack_safetensors, s.inspect;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
