"""Read a folder that `quantize_checkpoint` wrote tensor by tensor."""

import os
from typing import Final, final

from torch import Tensor

from nncfx.errors import StorageError
from nncfx.quantization.checkpoints.checkpoint_folder import Shards
from nncfx.quantization.packing.layouts import LAYOUTS, Layout
from nncfx.storage.formats.whole_file import read_object
from nncfx.storage.models.integer_tensor import IntegerTensor

_LAYOUT: Final = "compressed-tensors"
_MARK: Final = "weight_scale"
"""A part that each quantized matrix has."""


@final
class QuantizedFolder:
    """The tensors of a quantized checkpoint by their names in the float checkpoint."""

    def __init__(self, folder: str | os.PathLike[str], source: Shards) -> None:
        """Find the quantized matrices of `folder`.

        Raises:
            StorageError: `folder` is not such a checkpoint, or was not made from `source`.
        """
        self._shards = Shards(folder)
        self._layout = self._checked(source)
        self._parts: dict[str, list[str]] = {}
        modules: dict[str, list[str]] = {}
        for name in self._shards.names:
            module, _, part = name.rpartition(".")
            modules.setdefault(module, []).append(part)
        for module, parts in modules.items():
            if _MARK in parts:
                self._parts[f"{module}.weight"] = [part for part in parts if part != "bias"]
        if not self._parts:
            raise StorageError(
                f"'{folder}' has no quantized matrix. Pass one that quantize_checkpoint wrote."
            )

    def _checked(self, source: Shards) -> Layout:
        folder, settings = self._shards.folder, self._shards.settings
        config = read_object(folder / "config.json", "The config").get("quantization_config")
        method = config.get("quant_method") if isinstance(config, dict) else None
        if method != _LAYOUT or settings is None:
            raise StorageError(
                f"'{folder}' is not a checkpoint that quantize_checkpoint wrote with "
                f"layout='{_LAYOUT}'. Pass one."
            )
        if settings.get("source") != source.checksum():
            raise StorageError(
                f"'{folder}' was not made from '{source.folder}': checksums differ. Pass the "
                "folder that was quantized."
            )
        return LAYOUTS[_LAYOUT]

    @property
    def quantized(self) -> tuple[str, ...]:
        """The names of the quantized matrices."""
        return tuple(self._parts)

    def read(self, name: str, original: Tensor) -> Tensor | IntegerTensor:
        """Return the tensor `name`, which is `original` in the float checkpoint.

        Raises:
            StorageError: it is missing, or its file is damaged.
        """
        if name in self._parts:
            return self.read_integers(name, original)
        return self._shards.read(name)

    def read_integers(self, name: str, original: Tensor) -> IntegerTensor:
        """Return a matrix in `quantized`; see `read`."""
        module = name.removesuffix(".weight")
        parts = {part: self._shards.read(f"{module}.{part}") for part in self._parts[name]}
        outputs, inputs = original.shape
        return self._layout.read(parts, (outputs, inputs), original.dtype)
