"""Files: the Deep Compression layout and the `.nncfx` container, and the codecs below them."""

from nncfx.storage import deep_compression
from nncfx.storage.inspection import InspectRow, inspect
from nncfx.storage.model_file import SavedFile, load, load_state, save
from nncfx.storage.module_sizes import SIZE_ATTRIBUTES, ModuleSizes, apply_sizes, read_sizes

__all__ = [
    "SIZE_ATTRIBUTES",
    "InspectRow",
    "ModuleSizes",
    "SavedFile",
    "apply_sizes",
    "deep_compression",
    "inspect",
    "load",
    "load_state",
    "read_sizes",
    "save",
]
