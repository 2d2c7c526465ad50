"""Read and write Deep Compression's `.net` layout, byte for byte.

A file has no names and no shapes; the caller gives them. It holds, little-endian, one uint32 per
layer, its number of entries; then per layer the codebook (2**bits float32, the first 0.0), the
bias (float32), the codes (`bits` wide, low bits of a byte first) and the gaps (4 bits, low
nibble first). Entries are the non-zero weights in C order and the fillers between them.

Source: Han et al., Deep Compression (2016), and the published AlexNet and SqueezeNet files.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nncfx.errors import StorageError, did_you_mean
from nncfx.storage.codecs.byte_reader import ByteReader
from nncfx.storage.codecs.sparse_index import positions_of_gaps, to_gaps

__all__ = ["Entries", "Layer", "decode", "encode"]

LayerSpec: TypeAlias = tuple[str, Sequence[int], int]
Floats: TypeAlias = NDArray[np.float32]
Codes: TypeAlias = NDArray[np.uint8]

LONGEST_GAP = 15


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a layer as stored in the file: one code in [0, 2**bits) and one gap each."""

    codes: Codes
    gaps: Codes


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a `.net` file.

    Attributes:
        weight: float32, of the shape given to `decode`.
        bias: float32, one per output channel, `weight.shape[0]`.
        codebook: float32, 2**bits values; the first is 0.0, reserved for fillers.
        entries: The entries that `decode` read. Several codes can have the same value, so only
            these entries reproduce the file; with None, `encode` chooses the lowest code.
    """

    weight: Floats
    bias: Floats
    codebook: Floats
    entries: Entries | None = None


def decode(data: bytes, layers: Sequence[LayerSpec]) -> dict[str, Layer]:
    """Return the layers of the `.net` file `data` by name.

    Allocates at most 40 bytes per weight of the shapes in `layers`.

    Args:
        data: The whole file.
        layers: (name, shape of the weight, bits of a code: 4 or 8) in the order of the file.
            Deep Compression has 8 bits for convolutions and 4 for fully connected layers.

    Raises:
        StorageError: The file is truncated, has bytes left over, or does not fit `layers`.
    """
    _check_layers(layers)
    source = ByteReader(data)
    counts = np.frombuffer(source.take(4 * len(layers)), dtype="<u4").tolist()
    decoded = {}
    for count, (name, shape, bits) in zip(counts, layers, strict=True):
        try:
            decoded[name] = _decode_layer(source, count, tuple(shape), bits)
        except StorageError as error:
            raise StorageError(
                f"Layer {name!r} (shape {tuple(shape)}, {bits} bits, {count} entries): {error} "
                f"Check the order, shapes and bits of the layers."
            ) from error
    source.finish()
    return decoded


def _check_layers(layers: Sequence[LayerSpec]) -> None:
    names = [name for name, _, _ in layers]
    if len(set(names)) != len(names):
        raise StorageError("Two layers have the same name; each needs its own.")
    for name, shape, bits in layers:
        if bits not in {4, 8}:
            raise StorageError(f"Layer {name!r} has {bits}-bit codes; the layout has 4 or 8.")
        if not shape or any(size < 0 for size in shape):
            raise StorageError(
                f"Layer {name!r} has the shape {tuple(shape)}, which no weight has."
            )


def _decode_layer(source: ByteReader, count: int, shape: tuple[int, ...], bits: int) -> Layer:
    size = math.prod(shape)
    if count > size:
        raise StorageError(f"{count} entries are more than the {size} weights there are.")
    codebook = _floats(source, 1 << bits)
    bias = _floats(source, shape[0])
    _check_reserved(codebook)
    codes = _unpack(source, count, bits)
    gaps = _unpack(source, count, 4)
    weight = _scatter(Entries(codes, gaps), codebook, size)
    return Layer(weight.reshape(shape), bias, codebook, Entries(codes, gaps))


def _check_reserved(codebook: Floats) -> None:
    if codebook[:1].view("<u4").any():
        raise StorageError(f"The first codebook value is {codebook[0]}; it is reserved for 0.0.")


def _floats(source: ByteReader, count: int) -> Floats:
    return np.frombuffer(source.take(4 * count), dtype="<f4").copy()


def _unpack(source: ByteReader, count: int, bits: int) -> Codes:
    raw = np.frombuffer(source.take((count * bits + 7) // 8), dtype=np.uint8)
    if bits == 8:  # noqa: PLR2004 (whole bytes)
        return raw.copy()
    nibbles = np.stack([raw & 0xF, raw >> 4], axis=1).reshape(-1)
    if nibbles[count:].any():
        raise StorageError("The unused half of the last byte is not zero.")
    return nibbles[:count]


def _pack(symbols: Codes, bits: int) -> bytes:
    if bits == 8:  # noqa: PLR2004 (whole bytes)
        return symbols.tobytes()
    pairs = np.append(symbols, np.zeros(symbols.size % 2, dtype=np.uint8)).reshape(-1, 2)
    return (pairs[:, 0] | pairs[:, 1] << 4).tobytes()


def _scatter(entries: Entries, codebook: Floats, size: int) -> Floats:
    weight = np.zeros(size, dtype=np.float32)
    weight[positions_of_gaps(entries.gaps, size)] = codebook[entries.codes]
    return weight


def encode(decoded: Mapping[str, Layer], layers: Sequence[LayerSpec]) -> bytes:
    """Return the `.net` file of `decoded`; the output of `decode` is reproduced byte for byte.

    Args:
        decoded: Layers by name. Without `entries`, every non-zero weight must be in the
            codebook; zeros, also -0.0, are left out.
        layers: As for `decode`.

    Raises:
        StorageError: A layer is missing or left over, its shape differs from that in `layers`, a
            weight is not in its codebook, or its entries contradict its weight.
    """
    _check_layers(layers)
    names = [name for name, _, _ in layers]
    for name in names:
        if name not in decoded:
            raise StorageError(f"No layer {name!r} is given.{did_you_mean(name, decoded)}")
    left_over = sorted(set(decoded) - set(names))
    if left_over:
        raise StorageError(f"{left_over} are given but not among the layers of the file.")
    entries = []
    for name, shape, bits in layers:
        try:
            entries.append(_entries(decoded[name], tuple(shape), bits))
        except StorageError as error:
            raise StorageError(f"Layer {name!r}: {error}") from error
    header = np.array([entry.gaps.size for entry in entries], dtype="<u4").tobytes()
    bodies = (
        part
        for (name, _, bits), entry in zip(layers, entries, strict=True)
        for part in _body(decoded[name], entry, bits)
    )
    return b"".join([header, *bodies])


def _body(layer: Layer, entries: Entries, bits: int) -> Iterator[bytes]:
    yield np.asarray(layer.codebook, dtype="<f4").tobytes()
    yield np.asarray(layer.bias, dtype="<f4").tobytes()
    yield _pack(entries.codes, bits)
    yield _pack(entries.gaps, 4)


def _entries(layer: Layer, shape: tuple[int, ...], bits: int) -> Entries:
    wanted = {"weight": shape, "bias": shape[:1], "codebook": (1 << bits,)}
    parts: dict[str, NDArray[Any]] = {
        "weight": layer.weight,
        "bias": layer.bias,
        "codebook": layer.codebook,
    }
    for part, size in wanted.items():
        if parts[part].shape != size or parts[part].dtype != np.float32:
            raise StorageError(
                f"its {part} is {parts[part].dtype} of shape {parts[part].shape} "
                f"and not float32 of shape {size}."
            )
    _check_reserved(np.ascontiguousarray(layer.codebook))
    flat = np.ascontiguousarray(layer.weight).reshape(-1)
    if layer.entries is None:
        return _new_entries(flat, layer.codebook)
    _check_entries(layer.entries, bits)
    again = _scatter(layer.entries, layer.codebook, flat.size)
    if not np.array_equal(again.view("<u4"), flat.view("<u4")):
        raise StorageError(
            "its entries do not give its weight; after a change of weight or codebook, "
            "build a new Layer(weight, bias, codebook)."
        )
    return layer.entries


def _check_entries(entries: Entries, bits: int) -> None:
    codes, gaps = entries.codes, entries.gaps
    bytes_ = codes.dtype == np.uint8 and gaps.dtype == np.uint8 and codes.ndim == 1
    if not bytes_ or codes.shape != gaps.shape:
        raise StorageError("its codes and gaps are not two rows of bytes of the same length.")
    if codes.size and (int(codes.max()) >> bits or int(gaps.max()) > LONGEST_GAP):
        raise StorageError(f"a code exceeds {bits} bits, or a gap {LONGEST_GAP}.")


def _new_entries(flat: Floats, codebook: Floats) -> Entries:
    positions = np.flatnonzero(flat)
    gaps, filler = to_gaps(positions, LONGEST_GAP)
    words, book = flat[positions].view("<u4"), np.ascontiguousarray(codebook).view("<u4")
    # The stable sort and the search from the left choose the lowest code among equal values.
    order = np.argsort(book, kind="stable")
    found = np.minimum(np.searchsorted(book[order], words), book.size - 1)
    chosen = order[found]
    strange = positions[book[chosen] != words]
    if strange.size:
        raise StorageError(
            f"the weight at flat position {int(strange[0])} is {flat[strange[0]]!s}, which is "
            f"not in its codebook ({strange.size} such weights). Cluster the weights first."
        )
    codes = np.zeros(gaps.size, dtype=np.uint8)
    codes[~filler] = chosen
    return Entries(codes, gaps.astype(np.uint8))
