"""Models as `.nncfx` files: the torch edge of the container."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from nncfx.errors import ArgumentError, StorageError
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
from nncfx.storage.tensor_file import TensorFile
from nncfx.storage.torch_bits import DTYPES, from_bits, plain_tensor, to_bits
from nncfx.storage.whole_file import SavedFile, open_file, write_whole

__all__ = ["RECIPES", "load", "load_state", "save"]

RECIPES = "thin_recipes"
"""The key of a file's metadata under which `nncfx.thinning.save_thinned` keeps its recipes."""

_LISTED = 5
_HOOK = re.compile(r"(^|\.)_nncf\.")
"""What is in the keys of a wrapped model's hooks, and in no key of a model."""

_CARRIED = re.compile(r"(^|\.)_nncf\.[^.]*\._extra_state$")
"""The keys of what a wrapped model carries for the controllers of its hooks."""

ModelT = TypeVar("ModelT", bound=nn.Module)


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
        StorageError: The state holds something that is no plain dense tensor, or the file cannot
            be written.
        ArgumentError: `model` is no module.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"save takes a path and then the nn.Module, which is a {type(model).__name__} here. "
            "Write save(path, model).",
        )
    contents = _contents(model, signed_zeros=signed_zeros, metadata=metadata or {})
    return write_whole(Path(path), [pack(contents)])


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
        tensor = plain_tensor(name, value)
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        first = seen.setdefault(place, name) if tensor.numel() else name
        if first == name:
            tensors[name] = to_bits(tensor, signed_zeros=signed_zeros)
        else:
            same[name] = first
    return Contents(tensors=tensors, same=same, sizes=read_sizes(model), metadata=metadata)


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
        StorageError: The file is not there, damaged or hostile, or of another model; then the
            message lists missing, unexpected and reshaped tensors.
    """
    state = model.state_dict(keep_vars=True)
    if any(isinstance(value, torch.Tensor) and value.is_meta for value in state.values()):
        raise StorageError("The model is on 'meta'; call model.to_empty(device='cpu') first.")
    with open_file(path) as file:
        header = read_header(file)
        if header.metadata.get(RECIPES):
            raise StorageError(
                f"{path} holds a thin model of which modules became graphs, for their code held "
                f"widths that {type(model).__name__} has still. Read it by "
                "nncfx.thinning.load_thinned(path, model).",
            )
        _check_keys(header, state, type(model).__name__)
        bound = sum(row.count * WIDTHS[row.dtype] for row in header.rows)
        tensors = {
            row.name: from_bits(row.name, bits)
            for row, bits in read_tensors(file, header, max_bytes=bound)
        }
    tensors |= {name: tensors[first] for name, first in header.same.items() if name in state}
    if dtype is not None:
        tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}
    shapes = {
        name: tuple(value.shape)
        for name, value in tensors.items()
        if name in state and not _CARRIED.search(name)
    }
    apply_sizes(model, header.sizes, shapes)
    for name, value in tensors.items():
        if name in state and state[name].dtype != value.dtype:
            state[name].grad = None
            state[name].data = torch.empty_like(state[name], dtype=value.dtype)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise StorageError(f"{type(model).__name__} refuses its own state: {error}") from error
    return model


def _check_keys(header: Header, state: Mapping[str, object], name_of_model: str) -> None:
    keys = header.keys
    # how far a schedule had come: of any length, and not in files of earlier releases
    carried = {name for name in {*state, *keys} if _CARRIED.search(name)}
    missing = sorted(set(state) - set(keys) - carried)
    # a hook that stands at several sites was once saved under a name for each
    further = {
        name for name, first in header.same.items() if first in state and _HOOK.search(name)
    }
    unexpected = sorted(set(keys) - set(state) - further)
    both = [(name, row, state[name]) for name, row in keys.items() if name in state]
    reshaped = [
        f"{name} (file {row.dtype} {row.shape}, model {_described(value)})"
        for name, row, value in both
        if not (name in carried or (isinstance(value, torch.Tensor) and _fits(row, value)))
    ]
    faults = {"missing in the file": missing, "unexpected": unexpected, "reshaped": reshaped}
    if any(faults.values()):
        listed = "; ".join(
            f"{fault}: {', '.join(names[:_LISTED])}{' ...' * (len(names) > _LISTED)}"
            f" ({len(names)})"
            for fault, names in faults.items()
            if names
        )
        raise StorageError(
            f"The file is of another model than this {name_of_model}: {listed}. "
            f"Build the model as it was before it was compressed.",
        )


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return type(value).__name__


def _fits(row: TensorRow, value: torch.Tensor) -> bool:
    mine = DTYPES[row.dtype]
    kinds = mine.is_floating_point == value.is_floating_point()
    kinds = kinds and mine.is_complex == value.is_complex()
    shrinks = len(row.shape) == value.dim() and all(
        new <= old for new, old in zip(row.shape, value.shape, strict=True)
    )
    return kinds and shrinks


def load_state(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    max_bytes: int | None = None,
) -> dict[str, torch.Tensor]:
    """Return the tensors of the file at `path` by `state_dict` key, without a model.

    Args:
        path: A file that `save` wrote.
        names: Only these; the others are not read.
        max_bytes: The most memory the tensors may take, with `names` each; by default 1 MiB and
            4,096 times the file.

    Raises:
        StorageError: The file is damaged, hostile, lacks one of `names`, or is larger in memory
            than `max_bytes`.
    """
    with TensorFile(path, max_bytes=max_bytes) as file:
        if names is not None:
            return {name: from_bits(name, file.read(name)) for name in names}
        tensors = {row.name: from_bits(row.name, bits) for row, bits in file.stream()}
        return tensors | {name: tensors[first] for name, first in file.same.items()}
