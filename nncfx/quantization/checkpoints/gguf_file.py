"""Write a quantized checkpoint as a GGUF file for llama.cpp and programs built on it.

Metadata (architecture, tokenizer), names of tensors and the order of their rows are taken from a
float file that llama.cpp's own converter wrote.
"""

import contextlib
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nncfx.errors import StorageError, error_text, needing
from nncfx.narration import narrated
from nncfx.quantization.checkpoints.checkpoint_folder import Shards
from nncfx.quantization.checkpoints.gguf_blocks import BLOCK, block_type
from nncfx.quantization.checkpoints.quantized_folder import QuantizedFolder
from nncfx.storage.formats.whole_file import SavedFile, check_source, writing
from nncfx.storage.models.integer_tensor import IntegerTensor

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter, ReaderField, ReaderTensor

_TABLES: Final = frozenset({"token_embd.weight", "output.weight"})
"""GGUF's names of the embedding and the head."""

_EXPERT: Final = re.compile(r"^(.+)\.(\d+)\.(\w+\.weight)$")
_FLOATS: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_WRITTEN: Final = frozenset(
    {"general.architecture", "general.file_type", "general.quantization_version"}
)
"""Fields that are not copied, because the new file has its own values."""

Numbers = NDArray[Any]


def write_gguf(
    path: str | os.PathLike[str],
    quantized: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str],
    like: str | os.PathLike[str],
    rest: Literal["int8"] | None = None,
) -> SavedFile:
    """Write a checkpoint that `quantize_checkpoint` made as one GGUF file.

    Codes do not change: int8 becomes Q8_0, int4 Q4_0, uint4 Q4_1, mxfp4 MXFP4. The first three
    have scales in float16, which are exact if those of the folder fit (`half_scales=True`, or a
    model in bfloat16). Q4_1 stores the smallest weight of a block, rounded to float16, instead of
    a zero point. One tensor is in memory at a time.

    Args:
        path: Path of the new file.
        quantized: The folder that `quantize_checkpoint` wrote.
        source: The folder of the original model.
        like: A float file of the same model, by llama.cpp's `convert_hf_to_gguf.py`. Tensors that
            were not quantized are copied from it, and the order of rows is taken from it.
        rest: How to store float embeddings and heads: "int8" for Q8_0, rounded by gguf; None for
            the format in `like`.

    Raises:
        MissingExtraError: gguf is not installed.
        ArgumentError: a matrix cannot be divided into blocks of 32 weights, or GGUF lacks the
            format.
        StorageError: a file cannot be read or written, or `like` belongs to another model.
    """
    with needing("gguf", "gguf", "llama.cpp's format"):
        import gguf
    reader = _reader(Path(like))
    shards = Shards(source)
    conversion = _Conversion(reader, shards, QuantizedFolder(quantized, shards), rest)
    with (
        writing(path) as draft,
        narrated("GGUF") as narrator,
        contextlib.closing(gguf.GGUFWriter(draft, conversion.architecture)) as writer,
    ):
        _copy_fields(reader, writer)
        writer.add_file_type(gguf.LlamaFileType[conversion.block.file_type])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        for one in reader.tensors:
            kind = gguf.GGMLQuantizationType[conversion.kind(one)]
            shape, dtype = one.data.shape, one.data.dtype
            if kind != one.tensor_type:
                sizes = tuple(int(size) for size in reversed(one.shape))
                shape, dtype = gguf.quant_shape_to_byte_shape(sizes, kind), np.dtype(np.uint8)
            size = int(np.prod(shape)) * dtype.itemsize
            writer.add_tensor_info(one.name, shape, dtype, size, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for number, one in enumerate(reader.tensors, 1):
            narrator.step(f"{one.name} ({number} of {len(reader.tensors)})")
            writer.write_tensor_data(conversion.data(one))
    return SavedFile(path=Path(path), size_bytes=Path(path).stat().st_size)


def _reader(path: Path) -> "GGUFReader":
    import gguf

    check_source(path)
    try:
        reader = gguf.GGUFReader(path)
    except Exception as error:  # numpy raises its own if a length is wrong
        raise StorageError(
            f"'{path}' is not a GGUF file, or is damaged ({error_text(error)}). Convert it again."
        ) from error
    if reader.get_field("split.count") is not None:
        raise StorageError(
            f"'{path}' is one of several parts. Join them: llama-gguf-split --merge."
        )
    return reader


def _copy_fields(reader: "GGUFReader", writer: "GGUFWriter") -> None:
    """Copy the metadata of a file."""
    for name, field in reader.fields.items():
        if name not in _WRITTEN and not name.startswith("GGUF."):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, _contents(field), field.types[0], inner)


@final
class _Conversion:
    """Converts the tensors of a float file.

    Attributes:
        architecture: Name of the architecture in the file.
        block: Block type of the quantized tensors.
    """

    def __init__(
        self,
        reader: "GGUFReader",
        source: Shards,
        folder: QuantizedFolder,
        rest: Literal["int8"] | None,
    ) -> None:
        self._source, self._folder, self._rest = source, folder, rest
        self.architecture = str(_told(reader, "general.architecture"))
        self._places = self._placed(reader)
        self._check_that_all_have_a_place()
        first = folder.quantized[0]
        self.block = block_type(folder.read_integers(first, source.read(first)))

    def _placed(self, reader: "GGUFReader") -> dict[str, list[str]]:
        """Return the names in the folders by those in the file; experts in their order."""
        import gguf

        architectures = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}
        if self.architecture not in architectures:
            raise StorageError(f"gguf does not know '{self.architecture}'. Update it.")
        count = int(_told(reader, f"{self.architecture}.block_count"))
        known = gguf.get_tensor_name_map(architectures[self.architecture], count)
        held = {one.name for one in reader.tensors}
        found: dict[str, dict[int, str]] = defaultdict(dict)
        for name in self._source.names:
            keys = {name: 0}
            if expert := _EXPERT.match(name):  # the file may stack experts
                keys[f"{expert[1]}.{expert[3]}"] = int(expert[2])
            for key, place in keys.items():
                called = known.get_name(key, try_suffixes=(".weight", ".bias"))
                if called in held:
                    found[called][place] = name
                    break
        return {name: [places[n] for n in sorted(places)] for name, places in found.items()}

    def _check_that_all_have_a_place(self) -> None:
        placed = {name for names in self._places.values() for name in names}
        for name in self._source.names:
            if name in placed:
                continue
            original = self._source.read(name)
            own = self._folder.read(name, original)
            if isinstance(own, IntegerTensor) or not torch.equal(own, original):
                raise _unlike(name)

    def _is_quantized(self, tensor: "ReaderTensor") -> bool:
        return not set(self._folder.quantized).isdisjoint(self._places.get(tensor.name, ()))

    def _is_rounded(self, tensor: "ReaderTensor") -> bool:
        """Return whether `tensor` is a float embedding or head that `rest` rounds."""
        return (
            self._rest is not None
            and tensor.name in _TABLES
            and not self._is_quantized(tensor)
            and tensor.tensor_type.name in _FLOATS
            and tensor.shape[0] % BLOCK == 0
        )

    def kind(self, tensor: "ReaderTensor") -> str:
        """Return the type of a tensor in the new file."""
        if self._is_quantized(tensor):
            return self.block.name
        return "Q8_0" if self._is_rounded(tensor) else tensor.tensor_type.name

    def data(self, tensor: "ReaderTensor") -> Numbers:
        """Return the new data of a tensor, in the type `kind`."""
        import gguf

        names = self._places.get(tensor.name, [])
        found: Numbers = tensor.data
        if len(names) > 1:
            if len(names) != len(found):
                raise _unlike(names[-1])
            parts = zip(names, found, strict=True)
            found = np.stack([self._part(name, tensor, one) for name, one in parts])
        elif names:
            found = self._part(names[0], tensor, found)
        if self._is_rounded(tensor):
            kinds = gguf.GGMLQuantizationType
            numbers = gguf.dequantize(found, tensor.tensor_type)
            found = gguf.quantize(numbers, kinds.Q8_0)
        return found

    def _part(self, name: str, tensor: "ReaderTensor", known: Numbers) -> Numbers:
        """Return the tensor `name` with its rows in the order of `known`."""
        original = self._source.read(name)
        own = self._folder.read(name, original)
        if isinstance(own, Tensor) and torch.equal(own, original):
            return known
        dtype = _FLOATS.get(tensor.tensor_type.name)
        if dtype is None:
            raise StorageError(
                f"'{tensor.name}' is {tensor.tensor_type.name} in the file given as 'like'. "
                "Convert the model with --outtype f16, bf16 or f32."
            )
        order = _row_order(_numbers(original, dtype), known)
        if order is None:
            raise _unlike(name)
        rows = self.block.rows(own) if isinstance(own, IntegerTensor) else _numbers(own, dtype)
        return rows[order]


def _told(reader: "GGUFReader", name: str) -> Any:  # noqa: ANN401 (text or a number)
    field = reader.get_field(name)
    if field is None:
        raise StorageError(
            f"The file given as 'like' does not have '{name}'. Convert the model again."
        )
    return _contents(field)


def _contents(field: "ReaderField") -> Any:  # noqa: ANN401 (as above)
    try:
        return field.contents()
    except UnicodeDecodeError as error:
        raise StorageError(
            f"The file given as 'like' holds a text under '{field.name}' that is not UTF-8 "
            f"({error}). Convert the model again."
        ) from error


def _numbers(tensor: Tensor, dtype: torch.dtype) -> Numbers:
    """Return a tensor as gguf reads it, with bfloat16 as bytes."""
    cast = tensor.to(dtype)
    found: Numbers = (cast.view(torch.uint8) if dtype == torch.bfloat16 else cast).numpy()
    return found


def _row_order(own: Numbers, known: Numbers) -> Numbers | None:
    """Return the indices of the rows of `known` in `own`; None if a row is missing.

    Only rows of a matrix can be in another order. Equal rows are interchangeable, because they are
    rounded alike.
    """
    if own.shape != known.shape:
        return None
    if np.array_equal(own, known):
        return np.arange(len(own))
    places: dict[bytes, list[int]] = defaultdict(list)
    for number, row in enumerate(own if own.ndim > 1 else ()):
        places[row.tobytes()].append(number)
    order = [places[row.tobytes()].pop() if places.get(row.tobytes()) else None for row in known]
    return None if None in order else np.array(order)


def _unlike(name: str) -> StorageError:
    return StorageError(
        f"The file given as 'like' does not hold '{name}' of the source, row by row. Convert the "
        "very folder that was quantized; where llama.cpp splits or turns that tensor, there is "
        "no way."
    )
