"""Models as `.nncfx` files: the torch edge of the container."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.storage.codebook import as_words
from nncfx.storage.container import (
    Contents,
    Header,
    TensorRow,
    pack,
    read_header,
    read_tensors,
)
from nncfx.storage.module_sizes import apply_sizes, read_sizes
from nncfx.storage.number_formats import WIDTHS, BitTensor

__all__ = ["InspectRow", "SavedFile", "inspect", "load", "load_state", "save"]

ModelT = TypeVar("ModelT", bound=nn.Module)

_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    """A file that was written: where, and its size on disk in bytes."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class InspectRow:
    """One tensor of a file, measured.

    Attributes:
        name: Its `state_dict` key.
        shape: Its dimensions.
        dtype: Its number format, by safetensors name.
        codec: How it is stored, `index+values`.
        size_bytes: Its bytes in the file.
        bits_per_weight: Those bytes in bits per element; 0.0 for an empty tensor.
        entropy_bits: The order-0 entropy of its values in bits per element: no code that
            treats elements as independent is smaller, tables not counted.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    codec: str
    size_bytes: int
    bits_per_weight: float
    entropy_bits: float


def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    signed_zeros: bool = True,
    metadata: Mapping[str, object] | None = None,
) -> SavedFile:
    """Write the parameters and buffers of `model` to `path` and return the file's size.

    Every tensor of the `state_dict` is written under the codec that makes it smallest, without
    loss: `load` gives the same bits. Tied tensors are written once. The sizes of thinned modules
    are written beside them. The file appears whole or not at all.

    Args:
        path: The file; one that exists is replaced.
        model: Any model, also thinned, on any device but `meta`.
        signed_zeros: False writes -0.0 as 0.0. Weights that were masked by multiplication are
            full of -0.0, which a lossless file has to tell apart from 0.0.
        metadata: Anything JSON has, by name; `inspect` and `load` leave it alone.

    Raises:
        StorageError: The state holds something that is no plain dense tensor.
    """
    contents = _contents(model, signed_zeros=signed_zeros, metadata=metadata or {})
    data = pack(contents)
    target = Path(path)
    _write(target, data)
    return SavedFile(path=target, size_bytes=len(data))


def _write(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _contents(
    model: nn.Module,
    *,
    signed_zeros: bool,
    metadata: Mapping[str, object],
) -> Contents:
    tensors: dict[str, BitTensor] = {}
    same: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    for name, value in model.state_dict().items():
        tensor = _plain(name, value)
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        first = seen.setdefault(place, name) if tensor.numel() else name
        if first == name:
            tensors[name] = _bits(tensor, signed_zeros=signed_zeros)
        else:
            same[name] = first
    return Contents(tensors=tensors, same=same, sizes=read_sizes(model), metadata=metadata)


def _plain(name: str, value: object) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or isinstance(value, nn.UninitializedParameter):
        raise StorageError(
            f"{name!r} in the state_dict is a {type(value).__name__}; a file holds tensors only. "
            f"Keep it as a buffer, or in the metadata.",
        )
    if value.layout != torch.strided or value.is_meta or value.dtype not in _NAMES:
        raise StorageError(
            f"Tensor {name!r} ({value.dtype}, {value.layout}, on {value.device}) cannot be "
            f"stored; a file holds dense tensors with values, of {', '.join(_NAMES.values())}.",
        )
    return value.detach()


def _bits(tensor: torch.Tensor, *, signed_zeros: bool) -> BitTensor:
    flat = tensor.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if not signed_zeros and flat.is_floating_point():
        flat = torch.where(flat == 0, torch.zeros_like(flat), flat)
    name = _NAMES[tensor.dtype]
    words = flat.view(torch.uint8).numpy().view(f"<u{WIDTHS[name]}")
    return BitTensor(dtype=name, shape=tuple(tensor.shape), words=words)


def _tensor(name: str, bits: BitTensor) -> torch.Tensor:
    raw = np.ascontiguousarray(bits.words).view(np.uint8)
    if bits.dtype == "BOOL" and raw.size and int(raw.max()) > 1:
        raise StorageError(f"Tensor {name!r} is damaged: a bool is neither 0 nor 1.")
    if not raw.size:
        return torch.empty(bits.shape, dtype=_DTYPES[bits.dtype])
    return torch.from_numpy(raw.copy()).view(_DTYPES[bits.dtype]).reshape(bits.shape)


def load(
    path: str | os.PathLike[str],
    model: ModelT,
    *,
    dtype: torch.dtype | None = None,
) -> ModelT:
    """Fill `model` with the tensors of the file at `path` and return it.

    A file of a thinned model goes into a model of the original class and sizes: its modules are
    set to the sizes in the file and its tensors to the shapes, if these fit together and nothing
    grows. Parameters and buffers stay the same objects and keep their device.

    Args:
        path: A file that `save` wrote.
        model: Built from the class that was saved; changed in place, or not at all on an error.
        dtype: Cast floating tensors to this; by default each has the format of the file.

    Raises:
        StorageError: The file is damaged or hostile, or is of another model; the message lists
            missing, unexpected and reshaped tensors.
    """
    state = model.state_dict(keep_vars=True)
    if any(isinstance(value, torch.Tensor) and value.is_meta for value in state.values()):
        raise StorageError("The model is on 'meta'; call model.to_empty(device='cpu') first.")
    with Path(path).open("rb") as file:
        header = read_header(file)
        _check_keys(header, state)
        bound = sum(row.count * WIDTHS[row.dtype] for row in header.rows)
        tensors = {
            row.name: _tensor(row.name, bits)
            for row, bits in read_tensors(file, header, max_bytes=bound)
        }
    tensors |= {name: tensors[first] for name, first in header.same.items()}
    if dtype is not None:
        tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}
    apply_sizes(model, header.sizes, {name: tuple(v.shape) for name, v in tensors.items()})
    for name, value in tensors.items():
        if state[name].dtype != value.dtype:
            state[name].grad = None
            state[name].data = torch.empty_like(state[name], dtype=value.dtype)
    model.load_state_dict(tensors)
    return model


def _check_keys(header: Header, state: Mapping[str, object]) -> None:
    keys = header.keys
    missing = sorted(set(state) - set(keys))
    unexpected = sorted(set(keys) - set(state))
    both = [(name, row, state[name]) for name, row in keys.items() if name in state]
    reshaped = [
        f"{name} (file {row.dtype} {row.shape}, model {value.dtype} {tuple(value.shape)})"
        for name, row, value in both
        if isinstance(value, torch.Tensor) and not _fits(row, value)
    ]
    faults = {"missing in the file": missing, "unexpected": unexpected, "reshaped": reshaped}
    if any(faults.values()):
        listed = "; ".join(
            f"{fault}: {', '.join(names[:5])}{f' and {len(names) - 5} more' * (len(names) > 5)}"  # noqa: PLR2004 (five are enough)
            for fault, names in faults.items()
            if names
        )
        raise StorageError(
            f"The file is of another model than the {type(state).__name__}: {listed}. "
            f"Build the model as it was before it was compressed.",
        )


def _fits(row: TensorRow, value: torch.Tensor) -> bool:
    mine = _DTYPES[row.dtype]
    kinds = mine.is_floating_point == value.is_floating_point()
    kinds = kinds and mine.is_complex == value.is_complex()
    shrinks = len(row.shape) == value.dim() and all(
        new <= old for new, old in zip(row.shape, value.shape, strict=True)
    )
    return kinds and shrinks


def load_state(
    path: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
) -> dict[str, torch.Tensor]:
    """Return the tensors of the file at `path` by `state_dict` key, without a model.

    Args:
        path: A file that `save` wrote.
        max_bytes: The most memory the tensors may take; by default 1 MiB and 4,096 times the
            file.

    Raises:
        StorageError: The file is damaged, hostile, or larger in memory than `max_bytes`.
    """
    with Path(path).open("rb") as file:
        header = read_header(file)
        tensors = {
            row.name: _tensor(row.name, bits)
            for row, bits in read_tensors(file, header, max_bytes=max_bytes)
        }
    return tensors | {name: tensors[first] for name, first in header.same.items()}


def inspect(
    path: str | os.PathLike[str],
    *,
    max_bytes: int | None = None,
) -> list[InspectRow]:
    """Return one measured row per stored tensor of the file at `path`, in file order.

    Tied tensors are stored, and listed, once.

    Args:
        path: A file that `save` wrote.
        max_bytes: As for `load_state`.

    Raises:
        StorageError: The file is damaged, hostile, or larger in memory than `max_bytes`.
    """
    with Path(path).open("rb") as file:
        tensors = read_tensors(file, read_header(file), max_bytes=max_bytes)
        return [_inspect_row(row, bits) for row, bits in tensors]


def _inspect_row(row: TensorRow, bits: BitTensor) -> InspectRow:
    _, counts = np.unique(as_words(bits.words), return_counts=True)
    shares = counts / max(1, row.count)
    return InspectRow(
        name=row.name,
        shape=row.shape,
        dtype=row.dtype,
        codec=row.codec,
        size_bytes=row.size_bytes,
        bits_per_weight=8 * row.size_bytes / max(1, row.count),
        entropy_bits=float(-(shares * np.log2(shares)).sum()) + 0.0,
    )
