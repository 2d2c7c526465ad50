"""Read and write files: the Deep Compression layout, the `.nncfx` container, and their codecs.

Only the parts that handle models need torch; they are imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nncfx.storage import deep_compression
from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.formats.inspection import InspectRow, inspect
from nncfx.storage.formats.safetensors_file import pack_safetensors, unpack_safetensors
from nncfx.storage.formats.tensor_file import TensorFile
from nncfx.storage.formats.whole_file import SavedFile

if TYPE_CHECKING:
    from nncfx.storage.models.integer_tensor import IntegerTensor
    from nncfx.storage.models.model_file import load, load_state, save
    from nncfx.storage.models.module_sizes import (
        SIZE_ATTRIBUTES,
        ModuleSizes,
        apply_sizes,
        read_sizes,
    )
    from nncfx.storage.models.norm_statistics import absorb_norm_statistics

__all__ = [
    "SIZE_ATTRIBUTES",
    "BitTensor",
    "Bytes",
    "CompressedModel",
    "InspectRow",
    "IntegerTensor",
    "ModuleSizes",
    "Points",
    "RatePoint",
    "SavedFile",
    "TensorFile",
    "absorb_norm_statistics",
    "apply_sizes",
    "compress",
    "deep_compression",
    "inspect",
    "load",
    "load_state",
    "pack_safetensors",
    "read_sizes",
    "save",
    "unpack_safetensors",
]

_HOMES = {
    "absorb_norm_statistics": "storage.models.norm_statistics",
    "IntegerTensor": "storage.models.integer_tensor",
    **dict.fromkeys(("load", "load_state", "save"), "storage.models.model_file"),
    **dict.fromkeys(
        ("SIZE_ATTRIBUTES", "ModuleSizes", "apply_sizes", "read_sizes"),
        "storage.models.module_sizes",
    ),
    # these use layers and data, and live in a higher layer
    **dict.fromkeys(
        ("CompressedModel", "RatePoint", "compress"), "quantization.rate_distortion.compress"
    ),
    **dict.fromkeys(("Bytes", "Points"), "quantization.budgets"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever has that name)
    """Import names that need torch on first access (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"nncfx.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'nncfx.storage' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
