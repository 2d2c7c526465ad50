"""Files: the Deep Compression layout and the `.nncfx` container, and the codecs below them."""

from nncfx.storage.module_sizes import SIZE_ATTRIBUTES, ModuleSizes, apply_sizes, read_sizes

__all__ = ["SIZE_ATTRIBUTES", "ModuleSizes", "apply_sizes", "read_sizes"]
