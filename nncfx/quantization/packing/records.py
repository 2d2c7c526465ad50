"""Describe packed layers for files, and recreate them in a fresh model."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from nncfx.errors import StorageError
from nncfx.quantization.packing.layers import PackedWeight
from nncfx.quantization.packing.linear_layers import is_turned
from nncfx.quantization.packing.pack_weights import become, packed_layer
from nncfx.quantization.packing.parameters import Record, unfilled
from nncfx.storage.models.integer_tensor import IntegerTensor
from nncfx.storage.models.torch_bits import NAMES


def packed_records(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return a record, as JSON values, of each packed layer without its tensors, by name."""
    return {
        name: {
            "shape": list(layer.shape),
            "codes": NAMES[layer.zero_dtype],
            "bits": layer.bits,
            "dtype": NAMES[layer.dtype],
            "codebook": layer.format.codebook,
            "group": layer.group if layer.is_grouped else None,
        }
        for name, layer in model.named_modules(remove_duplicate=False)
        if isinstance(layer, PackedWeight)
    }


def packed_shapes(model: nn.Module, records: Mapping[str, Record]) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the weights of packed layers in `records` have in `model`, by name.

    Raises:
        StorageError: a record is damaged, or belongs to another model.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, record in records.items():
        outputs, inputs = _shape(name, record)
        turned = is_turned(_layer(model, name))
        found[f"{name}.weight".lstrip(".")] = (inputs, outputs) if turned else (outputs, inputs)
    return found


def packed_again(
    model: nn.Module, records: Mapping[str, Record], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Replace the layers in `records` by packed layers that are not filled yet, in place.

    Layers that share a weight share the codes. `shapes` are the shapes of the file's tensors, by
    name.

    Raises:
        StorageError: a record is damaged, or belongs to another model.
    """
    shared: dict[int, PackedWeight] = {}
    layers = {name: _layer(model, name) for name in records}
    weights = {name: layer._parameters.get("weight") for name, layer in layers.items()}  # noqa: SLF001 (may be missing)
    for name, record in records.items():
        if isinstance(layers[name], PackedWeight):  # a layer with two names
            continue
        outputs, inputs = _shape(name, record)
        weight = weights[name]
        if weight is None or weight.numel() != outputs * inputs:  # before memory is allocated
            raise _other_model(name, model)
        has_zeros = f"{name}.zero_point".lstrip(".") in shapes
        stored = _unfilled(name, record, has_zeros=has_zeros)
        packed = packed_layer(layers[name], stored, is_by_rows=True)
        if packed is None:
            raise _other_model(name, model)
        first = shared.setdefault(id(weight), packed)
        for key in ("codes", "scale", "zero_point"):
            setattr(packed, key, getattr(first, key))
        become(layers[name], packed)


def _unfilled(name: str, record: Record, *, has_zeros: bool) -> IntegerTensor:
    outputs, inputs = _shape(name, record)
    group = record.get("group")
    if not (group is None or (isinstance(group, int) and 0 < group <= inputs)):
        raise _damaged(name)
    by_rows = {**record, "axis": 0 if group is None else None}
    return unfilled(name, (outputs, inputs), by_rows, has_zeros=has_zeros)


def _shape(name: str, record: Record) -> tuple[int, int]:
    shape = record.get("shape") if isinstance(record, Mapping) else None
    if not (
        isinstance(shape, list)
        and len(shape) == 2  # noqa: PLR2004 (outputs, inputs)
        and all(isinstance(one, int) and one > 0 for one in shape)
    ):
        raise _damaged(name)
    return shape[0], shape[1]


def _layer(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise _other_model(name, model) from error


def _damaged(name: str) -> StorageError:
    return StorageError(
        f"The file is damaged: what it says of the packed layer '{name}' is not a record of one. "
        "Save the model again."
    )


def _other_model(name: str, model: nn.Module) -> StorageError:
    return StorageError(
        f"The file has codes for a layer '{name}', and this {type(model).__name__} has no linear "
        "layer or embedding of that size there. Build the model as it was before it was packed."
    )
