"""Read folders of safetensors shards tensor by tensor, and write them block by block."""

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nncfx.errors import StorageError
from nncfx.storage.checksum import crc32
from nncfx.storage.formats.whole_file import open_file, read_object, write_whole, writing
from nncfx.untrusted import read_json

_LOGGER = logging.getLogger(__name__)
_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
_SETTINGS: Final = "nncfx"
"""The key in a shard's metadata that holds the settings it was made with."""
_FLOATS: Final = frozenset({"F64", "F32", "F16", "BF16"})
IN_FLOAT: Final = (
    "Pass the folder of the model in float: load it with transformers, such as by a "
    "quantization_config with dequantize=True, and save_pretrained it."
)
"""What to do if a folder holds a quantized model."""

_PART: Final = 1 << 20
"""Bytes that are in memory at a time while a checksum is computed."""


@final
class Shards:
    """The tensors of a folder of safetensors files, which are read on demand."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Read the index of `folder`, or the names in its one file.

        Raises:
            StorageError: both are missing, or they are damaged.
        """
        self.folder = Path(folder)
        self._files: dict[str, Path] = dict(self._found())

    def _found(self) -> Iterator[tuple[str, Path]]:
        index = self.folder / _INDEX
        if not index.exists():
            single = self.folder / _SINGLE
            if not single.exists():
                raise StorageError(
                    f"'{self.folder}' has neither {_INDEX} nor {_SINGLE}. Pass the folder of a "
                    "model that save_pretrained wrote."
                )
            with _opened(single) as file:
                yield from ((name, single) for name in file.keys())  # noqa: SIM118 (no mapping)
            return
        places = read_object(index, "index").get("weight_map")
        if not isinstance(places, dict):
            raise StorageError(f"'{index}' has no 'weight_map'. Copy it again.")
        for name, file_name in places.items():
            if Path(str(file_name)).name != file_name:
                raise StorageError(f"'{index}' names the file '{file_name}' outside its folder.")
            yield name, self.folder / file_name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors."""
        return tuple(self._files)

    @property
    def settings(self) -> dict[str, Any] | None:
        """The settings with which `ShardWriter` made the folder; None for other folders."""
        first = next(iter(self._files.values()), None)
        return None if first is None else _settings(first)

    def checksum(self) -> str:
        """Return the checksum of the config and of all shards.

        Raises:
            StorageError: a file cannot be read.
        """
        found = 0
        for path in (self.folder / "config.json", *sorted(set(self._files.values()))):
            with open_file(path) as file:
                while part := file.read(_PART):
                    found = crc32(part, found)
        return f"{found:08x}"

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Check that names, shapes and dtypes fit the state of a model without weights.

        Its parameters on "meta" must be in the files under one of their names.

        Raises:
            StorageError: a tensor is missing, has another shape, or holds codes.
        """
        held = {name: one for name, one in tensors.items() if name in self._files}
        for name, one in held.items():
            with _opened(self._files[name]) as file:
                part = file.get_slice(name)
                found, dtype = part.get_shape(), part.get_dtype()
            if one.is_floating_point() and dtype not in _FLOATS:
                raise StorageError(
                    f"'{name}' holds codes of the type {dtype} in '{self._files[name]}', and "
                    f"would be taken for weights. {IN_FLOAT}"
                )
            if found != list(one.shape):
                raise StorageError(
                    f"'{name}' is {found} in '{self._files[name]}', and {list(one.shape)} by "
                    f"'{self.folder}/config.json'. Copy both again."
                )
        known = {id(one) for one in held.values()}
        for name, one in tensors.items():
            if one.is_meta and id(one) not in known:
                raise StorageError(
                    f"'{self.folder}' has no tensor '{name}'. If transformers reads the folder, "
                    "whose tensors then have other names than in memory, load the model and use "
                    "quantize_blocks, or structure_pruning and thin. Else copy it again."
                )

    def read(self, name: str) -> Tensor:
        """Return the tensor `name`.

        Raises:
            StorageError: it is missing, or its file is damaged.
        """
        if name not in self._files:
            raise StorageError(f"'{self.folder}' has no tensor '{name}'. Copy the model again.")
        with _opened(self._files[name]) as file:
            try:
                tensor: Tensor = file.get_tensor(name)
            except SafetensorError as error:
                raise StorageError(
                    f"'{self._files[name]}' is damaged ({error}). Copy it again."
                ) from error
            # a copy has torch's alignment, which changes the last bits of products
            return tensor.clone()


def _opened(path: Path) -> Any:  # noqa: ANN401 (safetensors has no types)
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise StorageError(f"'{path}' cannot be read ({error}). Copy it again.") from error


def _settings(shard: Path) -> dict[str, Any] | None:
    """Return the settings that a shard was made with, or None if it has none."""
    with _opened(shard) as file:
        text = (file.metadata() or {}).get(_SETTINGS, "")
    try:
        found = read_json(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@final
class ShardWriter:
    """Writes a folder of shards, one for each part of a model, and resumes interrupted runs.

    Each shard is written whole or not at all. It holds the settings it was made with and a
    checksum of the original model, so a run that was killed continues after its last shard.
    """

    def __init__(
        self, folder: str | os.PathLike[str], source: Shards, settings: Mapping[str, Any]
    ) -> None:
        """Create `folder` if necessary, for the result of applying `settings` to `source`.

        Raises:
            StorageError: `folder` cannot be created, or holds other weights, which programs might
                read.
        """
        self.folder = Path(folder)
        self._source = source
        if self.folder.resolve() == source.folder.resolve():
            raise StorageError(f"'{folder}' holds the model itself. Write into an empty folder.")
        own = {**settings, "source": source.checksum()}
        self._settings: dict[str, Any] = json.loads(json.dumps(own))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"'{folder}' cannot be created ({error}). Name another one."
            ) from error
        for path in sorted(self.folder.glob("*.safetensors")):
            self._check(path)

    def _check(self, path: Path) -> None:
        own, other = self._settings, _settings(path)
        if other is None:
            raise StorageError(
                f"'{path}' belongs to another model, and programs might read it. Write into an "
                "empty folder."
            )
        unlike = [
            f"{key} was {other.get(key)} and is {own.get(key)}"
            for key in sorted(own.keys() | other.keys())
            if own.get(key) != other.get(key)
        ]
        if unlike:
            raise StorageError(
                f"'{path}' was made by other settings: {', '.join(unlike)} (source and batches: "
                "their checksums). Go on with the same, or write into an empty folder."
            )

    def _path(self, part: str) -> Path:
        return self.folder / f"model-{part}.safetensors"

    def has(self, part: str) -> bool:
        """Return whether the shard of `part` exists."""
        return self._path(part).exists()

    def read(self, part: str) -> dict[str, Tensor]:
        """Return the tensors of the shard of `part`, which must exist."""
        with _opened(self._path(part)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)

    def write(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        """Write the shard of `part`.

        Raises:
            StorageError: it cannot be written.
        """
        whole = {name: one.detach().cpu().contiguous() for name, one in tensors.items()}
        metadata = {"format": "pt", _SETTINGS: json.dumps(self._settings)}
        with writing(self._path(part)) as draft:
            save_file(whole, draft, metadata=metadata)
        _LOGGER.info("'%s' is written.", self._path(part))

    def finish(self, config: Mapping[str, Any]) -> None:
        """Write the index and the config, and copy the other files of the source except weights.

        `config` is merged into the model's own.

        Raises:
            StorageError: a file cannot be read or written.
        """
        source = self._source.folder
        places: dict[str, str] = {}
        total = 0
        for path in sorted(self.folder.glob("model-*.safetensors")):
            with _opened(path) as file:
                places |= dict.fromkeys(file.keys(), path.name)
            total += path.stat().st_size
        own = read_object(source / "config.json", "config")
        for path in source.iterdir():
            if path.is_file() and path.suffix in {".json", ".txt", ".model", ".jinja"}:
                shutil.copyfile(path, self.folder / path.name)
        index = {"metadata": {"total_size": total}, "weight_map": places}
        for name, content in ((_INDEX, index), ("config.json", own | dict(config))):
            write_whole(self.folder / name, [json.dumps(content, indent=2).encode()])
