"""Save and load models as `.nncfx` files."""

import importlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar, cast, overload

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, StorageError, did_you_mean
from nncfx.storage.codecs.number_formats import WIDTHS
from nncfx.storage.formats.container import (
    Contents,
    Header,
    is_container,
    pack,
    read_header,
    read_tensors,
)
from nncfx.storage.formats.segments import Mode
from nncfx.storage.formats.tensor_file import TensorFile
from nncfx.storage.formats.whole_file import SavedFile, naming, open_file, write_whole
from nncfx.storage.models.checkpoint_file import read_checkpoint, read_description
from nncfx.storage.models.integer_tensor import IntegerTensor, integers_of
from nncfx.storage.models.module_sizes import ModuleSizes
from nncfx.storage.models.stored_model import StoredModel, StoredTensor
from nncfx.storage.models.torch_bits import distinct, from_bits, to_bits
from nncfx.storage.models.whole_models import require_values, require_whole

SUFFIX: Final = ".nncfx"
_OF_OTHERS: Final = {
    ".safetensors": "nncfx.save writes such files",
    ".onnx": "nncfx.export_onnx writes such files",
    ".pt": "torch.save writes such files",
    ".pth": "torch.save writes such files",
}

_RECIPES: Final = "thin_recipes"
_STRUCTURE: Final = "nncfx.structure"
"""The keys of a file's metadata that describe how the model differs from a dense one."""

ModelT = TypeVar("ModelT", bound=nn.Module)


class _Described(Protocol):
    state: Mapping[str, Any]
    sizes: Mapping[str, ModuleSizes]
    structure: dict[str, Any]


class _Structures(Protocol):
    def finished(self, model: nn.Module, *, constant: bool) -> nn.Module: ...
    def describe(self, model: nn.Module, *, integers: bool) -> _Described: ...
    def restored(
        self, model: nn.Module, stored: StoredModel, *, dtype: torch.dtype | None
    ) -> nn.Module: ...


def _structures() -> _Structures:
    """Return the module that handles hooks and recipes, which is in a higher layer."""
    return cast("_Structures", importlib.import_module("nncfx.thinning.files.model_structure"))


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    signed_zeros: bool = False,
    integers: bool = True,
    mode: Mode = "auto",
    metadata: Mapping[str, object] | None = None,
) -> SavedFile:
    """Write `model`, in its current state of compression, to `path` and return the file's size.

    Every tensor of the `state_dict` is written by the codec that makes it smallest, without loss:
    `load` returns the same numbers, bit for bit (for -0.0, see `signed_zeros`). Tied tensors are
    written once. The file also describes the changes of thinning and quantization, so `load` can
    rebuild the model from a fresh dense one. The file appears whole or not at all.

    A quantized weight is written as integers; `load` replaces them by the numbers that they
    represent, so outputs are bitwise the same. Other hooks, such as masks, are applied to the
    weights that are written.

    Args:
        path: The file; an existing file is replaced.
        model: Any model, also wrapped or thinned, on any device but `meta`.
        signed_zeros: True keeps -0.0 distinct from 0.0. Weights masked by multiplication contain
            many -0.0, whose signs can double the file; by default they become 0.0.
        integers: False writes quantized weights as the floats from which training would continue,
            and the parameters of learned grids.
        mode: `small` codes each integer in the context of its neighbours: files are some 10 %
            smaller, and numba (`pip install nncfx[codec]`) reads about 10 to 30 M weights per
            second, but plain Python only 10,000. `fast` reads 100 M and more, and needs only
            numpy. `auto` is `small` if numba is installed, otherwise `fast`.
        metadata: Any JSON values by name; `inspect` and `load` ignore them.

    Raises:
        StorageError: The model is sharded or offloaded, its state holds something other than
            plain dense tensors, a hook other than a quantizer changes activations, or the file
            cannot be written.
        ArgumentError: `model` is not a module, `metadata` has a reserved key, or `path` has the
            suffix of another format.
    """
    writer = _OF_OTHERS.get(Path(str(path)).suffix)
    if writer is not None:
        raise ArgumentError(
            f"'{path}' has the ending of another format, by which other tools would read it: "
            f"{writer}. Name it '{Path(path).stem}{SUFFIX}'."
        )
    data = file_bytes(
        model, signed_zeros=signed_zeros, integers=integers, mode=mode, metadata=metadata
    )
    return write_whole(Path(path), [data])


def file_bytes(
    model: nn.Module,
    *,
    signed_zeros: bool = False,
    integers: bool = True,
    mode: Mode = "auto",
    metadata: Mapping[str, object] | None = None,
) -> bytes:
    """Return the bytes of the file that `save` writes with the same arguments."""
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"save takes a path and then an nn.Module, not a {type(model).__name__}. Write "
            "save(path, model)."
        )
    require_whole(model, "saved", StorageError)
    if metadata and _STRUCTURE in metadata:
        raise ArgumentError(f"The key '{_STRUCTURE}' of metadata is nncfx's own. Use another.")
    above = _structures()
    described = above.describe(above.finished(model, constant=integers), integers=integers)
    structure = dict(described.structure)
    recipes = structure.pop(_RECIPES, None)
    own = {_RECIPES: recipes} if recipes else {}
    tensors, same = distinct(described.state)
    contents = Contents(
        tensors={name: to_bits(one, signed_zeros=signed_zeros) for name, one in tensors.items()},
        same=same,
        sizes=described.sizes,
        metadata=own | dict(metadata or {}) | ({_STRUCTURE: structure} if structure else {}),
    )
    return pack(contents, mode)


def load(
    path: str | os.PathLike[str], model: ModelT, *, dtype: torch.dtype | None = None
) -> ModelT:
    """Load the file at `path` into `model` and return it.

    A compressed model is loaded into a model of the original class and sizes: its modules get the
    sizes in the file and its tensors the shapes, if these are consistent and nothing grows; folded
    batch norms are removed; the model is wrapped, and quantizers are inserted. Parameters and
    buffers stay the same objects and keep their device. A model that is already wrapped with equal
    hooks is only filled.

    If modules became graphs, because their code contained widths, `model` does not change and a
    new model is returned.

    Args:
        path: A file that `save` wrote.
        model: Built from the class that was saved; changed in place, or not at all on an error.
        dtype: Cast floating tensors to this; by default each has the format of the file.

    Raises:
        StorageError: The file is missing, damaged, hostile, or of another model; then the
            message lists missing, unexpected and reshaped tensors.
        ThinningError: The recipes belong to another model.
        TracingError: The model cannot be traced, or its hooks need inputs that the file cannot
            describe; `nncfx.load` takes example_inputs.
    """
    require_values(model, "loaded into", StorageError)
    with naming(path):
        return cast("ModelT", _structures().restored(model, stored_model(path), dtype=dtype))


def stored_model(path: str | os.PathLike[str]) -> StoredModel:
    """Return the model in the file at `path`; its tensors are read on demand.

    Raises:
        StorageError: The file is missing, damaged or hostile.
    """
    with open_file(path) as file:
        header = read_header(file)
    structure = _structure(header.metadata)
    integers = structure.get("integers", {})

    def read() -> dict[str, Tensor]:
        # the sizes have been compared with the model by now
        bound = sum(row.count * WIDTHS[row.dtype] for row in header.rows)
        with open_file(path) as file:
            bits = read_tensors(file, read_header(file), max_bytes=bound)
            tensors = {row.name: from_bits(row.name, one) for row, one in bits}
        return _whole(tensors, header, integers)

    return StoredModel(
        tensors={
            name: StoredTensor(_format(integers, row.name, row.dtype), row.shape)
            for name, row in header.keys.items()
        },
        read=read,
        sizes=header.sizes,
        structure=structure,
    )


def _structure(metadata: Mapping[str, Any]) -> dict[str, Any]:
    structure = metadata.get(_STRUCTURE, {})
    if not isinstance(structure, dict) or not isinstance(structure.get("integers", {}), dict):
        raise StorageError(
            f"The file is damaged: its '{_STRUCTURE}' is not an object. Save it again."
        )
    recipes = metadata.get(_RECIPES)
    return {**structure, _RECIPES: recipes} if recipes else structure


def _format(integers: Mapping[str, Any], name: str, dtype: str) -> str:
    one = integers.get(name)
    found = one.get("dtype") if isinstance(one, dict) else dtype
    if not isinstance(found, str) or found not in WIDTHS:
        raise StorageError(f"The file is damaged: '{name}' is of format {found!r}.")
    return found


def _whole(
    tensors: dict[str, Tensor], header: Header, integers: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return all tensors by every name, as floats."""
    tensors |= {name: one.dequantize() for name, one in integers_of(tensors, integers).items()}
    return tensors | {name: tensors[first] for name, first in header.same.items()}


@overload
def load_state(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    max_bytes: int | None = None,
    integers: Literal[False] = False,
) -> dict[str, Tensor]: ...


@overload
def load_state(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    max_bytes: int | None = None,
    integers: bool,
) -> dict[str, Tensor | IntegerTensor]: ...


def load_state(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    max_bytes: int | None = None,
    integers: bool = False,
) -> Mapping[str, Tensor | IntegerTensor]:
    """Return the tensors of the file at `path` by `state_dict` key, without a model.

    Args:
        path: A file that `save` or `nncfx.save` wrote.
        names: The tensors to read; by default all.
        max_bytes: The most memory that the tensors may take, or each tensor with `names`; by
            default 1 MiB plus 4,096 times the file.
        integers: Whether to return quantized weights as `IntegerTensor`, with scale and zero
            point, instead of floats.

    Raises:
        StorageError: The file is damaged, hostile, lacks one of `names`, or is larger in memory
            than `max_bytes`.
    """
    if not is_container(path):
        checkpoint = Path(path)
        whole = read_checkpoint(checkpoint, read_description(checkpoint), floats=not integers)
        with naming(path):
            _check_names(names or (), whole)
        return whole if names is None else {name: whole[name] for name in names}
    with naming(path), TensorFile(path, max_bytes=max_bytes) as file:
        return _state_of(file, file.names if names is None else names, floats=not integers)


def _state_of(
    file: TensorFile, names: Iterable[str], *, floats: bool
) -> dict[str, Tensor | IntegerTensor]:
    wanted = list(names)
    described = _structure(file.metadata).get("integers", {})
    if wanted == list(file.names):
        stored = {row.name: from_bits(row.name, bits) for row, bits in file.stream()}
    else:
        firsts = dict.fromkeys(file.same.get(name, name) for name in wanted)
        parts = [described[name] for name in firsts if isinstance(described.get(name), dict)]
        further = [one[key] for one in parts for key in ("scale", "zero_point") if key in one]
        if not all(isinstance(one, str) for one in further):
            raise StorageError("The file is damaged: a scale has no name. Write it again.")
        stored = {name: from_bits(name, file.read(name)) for name in (*firsts, *further)}
    whole = integers_of(stored, {k: one for k, one in described.items() if k in stored})
    found: dict[str, Tensor | IntegerTensor] = {**stored}
    found |= {name: one.dequantize() if floats else one for name, one in whole.items()}
    return {name: found[file.same.get(name, name)] for name in wanted}


def _check_names(names: Iterable[str], found: Mapping[str, object]) -> None:
    for name in names:
        if name not in found:
            raise StorageError(f"The file has no tensor '{name}'.{did_you_mean(name, found)}")
