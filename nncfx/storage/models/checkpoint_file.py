"""Checkpoints of `nncfx.save`: safetensors files with a JSON text in their metadata."""

import base64
import functools
import json
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from nncfx._version import __version__
from nncfx.errors import StorageError
from nncfx.storage.codecs.number_formats import WIDTHS
from nncfx.storage.models.integer_tensor import (
    IntegerTensor,
    integers_of,
    pack_integers,
    unpack_integers,
)
from nncfx.storage.models.stored_model import StoredModel, StoredTensor
from nncfx.untrusted import inflate, read_json

FORMAT: Final = "nncfx.checkpoint"
VERSION: Final = 3
KEY: Final = "nncfx"
"""The key of the JSON text in the file's metadata."""

_TABLES: Final = frozenset({"packed", "sizes", "structure"})
"""JSON tables that grow with the model, stored as a zlib stream in base64, a tenth as long."""
_LARGEST: Final = 100_000_000
"""The most bytes of JSON that are read; safetensors allows as many for a whole header."""

_FEW: Final = 128
"""Bytes; the entry of a packed tensor takes about as many."""
_READABLE: Final = (1, 2, 3)
"""Version 1 has only floats and no thinned models, version 2 no stream of tables."""


def pack_tensors(tensors: dict[str, Tensor], integers: Mapping[str, Any]) -> dict[str, Any]:
    """Pack several integers of few bits into a byte, in place; return their descriptions by name.

    Zero points of the same bits are packed as well if that saves more than its description takes.
    """
    packed = {}
    for weight, one in integers.items():
        for name in (weight, one.get("zero_point")):
            values = tensors.get(name)
            bytes_ = None if values is None else pack_integers(values, one["bits"])
            if values is None or bytes_ is None:
                continue
            signed = values.dtype == torch.int8
            entry = {"shape": list(values.shape), "signed": signed}
            if name != weight:
                again = unpack_integers(bytes_, one["bits"], tuple(values.shape), signed=signed)
                if len(bytes_) < _FEW or not torch.equal(
                    again, values
                ):  # zero points beyond the grid
                    continue
                entry["bits"] = one["bits"]
            packed[name], tensors[name] = entry, bytes_
    return packed


def as_metadata(description: Mapping[str, Any]) -> dict[str, str]:
    """Return `description` as the metadata of a file.

    It is a single text, because safetensors writes several texts in an order that varies from run
    to run.

    Raises:
        StorageError: it is longer than a reader accepts.
    """
    short = {key: value for key, value in description.items() if key not in _TABLES}
    tables = json.dumps({key: description[key] for key in sorted(_TABLES)}, separators=(",", ":"))
    if len(tables) > _LARGEST:
        raise StorageError(
            f"What the file says of modules and quantizers takes {len(tables)} bytes; at most "
            f"{_LARGEST} are read. Save the parts of the model in files of their own."
        )
    stream = zlib.compress(tables.encode(), 9)
    return {KEY: json.dumps(short | {"tables": base64.b64encode(stream).decode()})}


def read_description(path: Path) -> dict[str, Any]:
    """Return the JSON object of the file at `path`.

    Raises:
        StorageError: it is not a safetensors file, not a checkpoint, or of a later version.
    """
    try:
        with path.open("rb"):  # safetensors would report an unreadable file as absent
            pass
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        found = read_json(metadata[KEY]) if KEY in metadata else None
        if isinstance(found, dict) and found.get("format") == FORMAT:
            _check_version(found, path)
            if "tables" in found:
                found |= _tables(found.pop("tables"))
    except StorageError:
        raise
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        kinds = "it does not begin with the signature of a .nncfx file, and as safetensors: "
        kinds = kinds if isinstance(error, safetensors.SafetensorError) else ""
        training = ""
        if zipfile.is_zipfile(path):
            training = (
                " It may be the state of a training (resumable_epochs, Training), which its own "
                "script continues: start that again."
            )
        raise StorageError(
            f"'{path}' cannot be read as a checkpoint: {kinds}{error}. Give a file that "
            f"nncfx.save or nncfx.storage.save wrote.{training}"
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StorageError(
            f"'{path}' is a safetensors file, but not a checkpoint of nncfx: its metadata says "
            "no config. Load it with safetensors and model.load_state_dict."
        )
    return check_description(found, path)


def _tables(text: object) -> dict[str, Any]:
    stream = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    tables = read_json(inflate(stream, _LARGEST))
    if not isinstance(tables, dict) or tables.keys() != _TABLES:
        raise ValueError("its tables are invalid")
    return tables


def _check_version(found: Mapping[str, Any], path: Path) -> object:
    """Return the version, which determines how to read the rest."""
    version = found.get("version")
    if version not in _READABLE:
        raise StorageError(
            f"'{path}' has version {version!r}; this nncfx {__version__} reads version "
            f"{VERSION} and those before. Update nncfx."
        )
    return version


def check_description(
    found: dict[str, Any], path: Path, needed: Collection[str] = ()
) -> dict[str, Any]:
    """Return `found`, the description of the checkpoint at `path`, if this version can read it.

    Raises:
        StorageError: it is of a later version, or lacks an entry, possibly one of `needed`.
    """
    version = _check_version(found, path)
    wanted = {"config", "controller", "shared", *needed}
    wanted |= {"example_inputs"} if version == 1 else {"packed", "sizes", "structure"}
    missing = sorted(wanted - set(found))
    if missing:
        raise StorageError(f"'{path}' is damaged: its metadata lacks {missing}. Write it again.")
    for name in wanted - {"config", "controller", "shards"}:
        tables = [found[name]]
        if name == "sizes" and isinstance(found[name], dict):
            tables += found[name].values()
        if not all(isinstance(one, dict) for one in tables):
            raise StorageError(
                f"'{path}' is damaged: its {name} are not an object. Write it again."
            )
    return found


def stored_checkpoint(path: Path, description: Mapping[str, Any]) -> StoredModel:
    """Return the model in the file at `path`; its tensors are read on demand.

    Raises:
        StorageError: the file is damaged.
    """
    structure = dict(description.get("structure", {}))
    if description["version"] == 1:
        structure["quantizers"] = description.get("quantizers", [])
    structure["example_inputs"] = description.get("example_inputs", {})
    try:
        tensors = _formats(path, description, structure.get("integers", {}))
    except (AttributeError, OSError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise StorageError(f"'{path}' is damaged: {error!r}. Write it again.") from error

    sizes = description.get("sizes", {})
    read = functools.partial(read_floats, path, description)
    return StoredModel(tensors=tensors, read=read, sizes=sizes, structure=structure)


def read_floats(
    path: Path, description: Mapping[str, Any], *, borrowed: Collection[str] = ()
) -> dict[str, Tensor]:
    """Return the tensors of a file by every name, as floats; see `read_checkpoint`."""
    found = read_checkpoint(path, description, floats=True, borrowed=borrowed)
    return {name: one for name, one in found.items() if isinstance(one, Tensor)}


def _formats(
    path: Path, description: Mapping[str, Any], integers: Mapping[str, Any]
) -> dict[str, StoredTensor]:
    formats, packed = {}, description.get("packed", {})
    with safetensors.safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (no mapping)
            part = file.get_slice(name)
            shape, dtype = part.get_shape(), part.get_dtype()
            shape = packed.get(name, {"shape": shape})["shape"]
            if name in integers:
                dtype = integers[name]["dtype"]
            if dtype not in WIDTHS:
                raise KeyError(f"the format {dtype!r} of '{name}'")
            formats[name] = StoredTensor(str(dtype), tuple(map(_size, shape)))
    return formats | {name: formats[of] for name, of in description["shared"].items()}


def _size(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r} is not a size")
    return value


def read_checkpoint(
    path: Path, description: Mapping[str, Any], *, floats: bool, borrowed: Collection[str] = ()
) -> dict[str, Tensor | IntegerTensor]:
    """Return the tensors of a file by every name; quantized weights as integers, or as `floats`.

    Tensors named in `borrowed` stay in the mapped file, and must be copied right away.

    Raises:
        StorageError: the file is damaged.
    """
    try:
        # copied to torch's memory: at unaligned addresses of a file, kernels sum in another order
        shared = description["shared"].items()
        lent = set(borrowed) - {of for name, of in shared if name not in borrowed}
        found = load_file(path).items()
        tensors = {name: one if name in lent else one.clone() for name, one in found}
        integers = description.get("structure", {}).get("integers", {})
        for name, one in description.get("packed", {}).items():
            shape = tuple(map(_size, one["shape"]))
            bits = int(one["bits"] if "bits" in one else integers[name]["bits"])
            signed = bool(one["signed"])
            tensors[name] = unpack_integers(tensors[name], bits, shape, signed=signed)
        made = integers_of(tensors, integers)
        whole: dict[str, Tensor | IntegerTensor] = {**tensors, **made}
        if floats:
            whole |= {name: one.dequantize() for name, one in made.items()}
        return whole | {name: whole[of] for name, of in shared}
    except (
        *(OSError, KeyError, TypeError, ValueError, OverflowError),
        safetensors.SafetensorError,
    ) as error:
        raise StorageError(f"'{path}' is damaged: {error}. Write it again.") from error
