"""Convert torch tensors to bits and back, and check that a file can hold them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.storage.codecs.number_formats import WIDTHS, BitTensor
from nncfx.storage.models.sharded_models import local

DTYPES = {
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
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def plain_tensor(name: str, value: object) -> torch.Tensor:
    """Return `value`, called `name` in its state, detached.

    Raises:
        StorageError: It is not a dense tensor with values of a known format.
    """
    if not isinstance(value, torch.Tensor) or isinstance(value, nn.UninitializedParameter):
        raise StorageError(
            f"{name!r} in the state_dict is a {type(value).__name__}; a file holds tensors only. "
            f"Keep it as a buffer, or in the metadata."
        )
    if value.layout != torch.strided or value.is_meta or value.dtype not in NAMES:
        raise StorageError(
            f"Tensor {name!r} ({value.dtype}, {value.layout}, on {value.device}) cannot be "
            f"stored; a file holds dense tensors with values, of {', '.join(NAMES.values())}. "
            "Cast it, or register it with persistent=False and let the model create it again."
        )
    return value.detach()


def distinct(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors of a state, tied ones once, and for each further name of one its first.

    Raises:
        StorageError: The state holds something else than dense tensors of known formats.
    """
    tensors: dict[str, torch.Tensor] = {}
    same: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for name, held in state.items():
        value = plain_tensor(name, held)
        view = (local(value).data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if value.numel() and first.setdefault(view, name) != name:
            same[name] = first[view]
        else:
            tensors[name] = value
    return tensors, same


def to_bits(tensor: torch.Tensor, *, signed_zeros: bool) -> BitTensor:
    """Return the bits of `tensor`, on any device; without `signed_zeros`, -0.0 becomes 0.0."""
    flat = tensor.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if not signed_zeros and flat.is_floating_point():
        flat = torch.where(flat == 0, torch.zeros_like(flat), flat)
    name = NAMES[tensor.dtype]
    words = flat.view(torch.uint8).numpy().view(f"<u{WIDTHS[name]}")
    return BitTensor(dtype=name, shape=tuple(tensor.shape), words=words)


def from_bits(name: str, bits: BitTensor) -> torch.Tensor:
    """Return a fresh tensor of `bits`, called `name`, on the CPU.

    Raises:
        StorageError: A bool is neither 0 nor 1.
    """
    raw = np.ascontiguousarray(bits.words).view(np.uint8)
    if bits.dtype == "BOOL" and raw.size and int(raw.max()) > 1:
        raise StorageError(f"Tensor {name!r} is damaged: a bool is neither 0 nor 1.")
    if not raw.size:
        return torch.empty(bits.shape, dtype=DTYPES[bits.dtype], device="cpu")
    whole = torch.tensor(raw, device="cpu")  # in torch's memory, at aligned addresses
    return whole.view(DTYPES[bits.dtype]).reshape(bits.shape)
