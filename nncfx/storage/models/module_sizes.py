"""Read the sizes that modules keep in attributes, and set them together with their tensors.

A thinned model is the original class with fewer channels: its tensors are smaller, and so are
the integers (`out_channels`, `num_features` ...) that its modules keep. Those of torch.nn's types
are known here and checked against the tensors; modules of the user keep other integers
(`num_heads`, `all_head_size` ...), any of which can have decreased.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

from nncfx.errors import StorageError, did_you_mean
from nncfx.storage.models.narrow_attention import narrow_attention

Shape: TypeAlias = tuple[int, ...]
ModuleSizes: TypeAlias = dict[str, int | Shape]
_Dims: TypeAlias = Callable[[ModuleSizes, str], Shape | None]

_LARGEST_SIZE = 2**31 - 1


class _Kind(NamedTuple):
    attributes: tuple[str, ...]
    leading: _Dims  # sizes, tensor name -> leading dimensions of that tensor, None if free


def _of(sizes: ModuleSizes, name: str) -> int:
    value = sizes[name]
    return value if isinstance(value, int) else math.prod(value)


def _linear(sizes: ModuleSizes, tensor: str) -> Shape | None:
    out = _of(sizes, "out_features")
    return {"weight": (out, _of(sizes, "in_features")), "bias": (out,)}.get(tensor)


def _bilinear(sizes: ModuleSizes, tensor: str) -> Shape | None:
    out = _of(sizes, "out_features")
    weight = (out, _of(sizes, "in1_features"), _of(sizes, "in2_features"))
    return {"weight": weight, "bias": (out,)}.get(tensor)


def _split(sizes: ModuleSizes, name: str) -> int:
    whole, groups = _of(sizes, name), _of(sizes, "groups")
    if groups < 1 or whole % groups:
        raise StorageError(f"{name}={whole} does not divide into groups={groups}.")
    return whole // groups


def _conv(sizes: ModuleSizes, tensor: str) -> Shape | None:
    out = _of(sizes, "out_channels")
    _split(sizes, "out_channels")
    return {"weight": (out, _split(sizes, "in_channels")), "bias": (out,)}.get(tensor)


def _transposed(sizes: ModuleSizes, tensor: str) -> Shape | None:
    _split(sizes, "in_channels")
    weight = (_of(sizes, "in_channels"), _split(sizes, "out_channels"))
    return {"weight": weight, "bias": (_of(sizes, "out_channels"),)}.get(tensor)


def _per_channel(attribute: str) -> _Dims:
    def leading(sizes: ModuleSizes, tensor: str) -> Shape | None:
        names = ("weight", "bias", "running_mean", "running_var")
        return (_of(sizes, attribute),) if tensor in names else None

    return leading


def _normalized(sizes: ModuleSizes, tensor: str) -> Shape | None:
    shape = sizes["normalized_shape"]
    shape = (shape,) if isinstance(shape, int) else shape
    return shape if tensor in {"weight", "bias"} else None


def _embedding(sizes: ModuleSizes, tensor: str) -> Shape | None:
    rows_columns = (_of(sizes, "num_embeddings"), _of(sizes, "embedding_dim"))
    return rows_columns if tensor == "weight" else None


def _attention(sizes: ModuleSizes, tensor: str) -> Shape | None:
    # after heads are removed, the others together are narrower than the input
    embed, heads = _of(sizes, "embed_dim"), _of(sizes, "num_heads") * _of(sizes, "head_dim")
    return {
        "in_proj_weight": (3 * heads, embed),
        "in_proj_bias": (3 * heads,),
        "q_proj_weight": (heads, embed),
        "k_proj_weight": (heads, _of(sizes, "kdim")),
        "v_proj_weight": (heads, _of(sizes, "vdim")),
    }.get(tensor)


def _recurrent(gates: int) -> _Dims:
    def leading(sizes: ModuleSizes, tensor: str) -> Shape | None:
        hidden = _of(sizes, "hidden_size")
        state = (_of(sizes, "proj_size") if "proj_size" in sizes else 0) or hidden
        if tensor.startswith("weight_hh"):
            return (gates * hidden, state)
        if tensor.startswith("weight_hr"):
            return (state, hidden)
        if tensor in {"weight_ih", "weight_ih_l0", "weight_ih_l0_reverse"}:
            return (gates * hidden, _of(sizes, "input_size"))
        if tensor.startswith("weight_ih"):
            return (gates * hidden, state)  # of each direction of the layer below
        return (gates * hidden,)

    return leading


_CONV = ("in_channels", "out_channels", "groups")
_RNN = ("input_size", "hidden_size", "proj_size")
_CELL = ("input_size", "hidden_size")

_KINDS: dict[type[nn.Module], _Kind] = {
    nn.Linear: _Kind(("in_features", "out_features"), _linear),
    nn.Bilinear: _Kind(("in1_features", "in2_features", "out_features"), _bilinear),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _Kind(_CONV, _conv)),
    **dict.fromkeys(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _Kind(_CONV, _transposed)
    ),
    **dict.fromkeys(
        (
            *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
            *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        ),
        _Kind(("num_features",), _per_channel("num_features")),
    ),
    nn.GroupNorm: _Kind(("num_groups", "num_channels"), _per_channel("num_channels")),
    nn.PReLU: _Kind(("num_parameters",), _per_channel("num_parameters")),
    nn.ChannelShuffle: _Kind(("groups",), lambda _sizes, _tensor: None),
    nn.LayerNorm: _Kind(("normalized_shape",), _normalized),
    nn.RMSNorm: _Kind(("normalized_shape",), _normalized),
    nn.Embedding: _Kind(("num_embeddings", "embedding_dim"), _embedding),
    nn.EmbeddingBag: _Kind(("num_embeddings", "embedding_dim"), _embedding),
    nn.MultiheadAttention: _Kind(
        ("embed_dim", "num_heads", "head_dim", "kdim", "vdim"), _attention
    ),
    nn.LSTM: _Kind(_RNN, _recurrent(4)),
    nn.GRU: _Kind(_RNN, _recurrent(3)),
    nn.RNN: _Kind(_RNN, _recurrent(1)),
    nn.LSTMCell: _Kind(_CELL, _recurrent(4)),
    nn.GRUCell: _Kind(_CELL, _recurrent(3)),
    nn.RNNCell: _Kind(_CELL, _recurrent(1)),
}

SIZE_ATTRIBUTES: Mapping[type[nn.Module], tuple[str, ...]] = {
    kind: entry.attributes for kind, entry in _KINDS.items()
}
"""Size attributes per torch.nn type; a subclass (also a wrapped one) has those of its base."""


def _kind_of(module: nn.Module) -> _Kind | None:
    found = (_KINDS[base] for base in type(module).__mro__ if base in _KINDS)
    return next(found, None)


def _read(module: nn.Module, kind: _Kind) -> ModuleSizes:
    values = {name: getattr(module, name) for name in kind.attributes}
    return {
        name: int(value) if isinstance(value, int) else tuple(int(v) for v in value)
        for name, value in values.items()
    }


def _further(module: nn.Module) -> dict[str, int]:
    """Return the integers of a module that can decrease, other than the sizes of its kind."""
    kind = _kind_of(module)
    known = () if kind is None else kind.attributes
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) is int and 0 < value <= _LARGEST_SIZE and name not in known  # no seed
    }


def read_sizes(model: nn.Module) -> dict[str, ModuleSizes]:
    """Return the size attributes of every module, keyed by module name.

    These are the attributes of its torch.nn type, and any other positive integers that it keeps.
    The root module has the name "". A module that occurs twice is listed once, under its first
    name. Modules without sizes are not listed, nor are parametrizations, which a fresh model may
    lack. `normalized_shape` is a tuple; every other value is an int.

    >>> read_sizes(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    {'0': {'in_features': 4, 'out_features': 3}}
    """
    found = {}
    for name, module in model.named_modules():
        if "parametrizations" in name.split("."):
            continue
        kind = _kind_of(module)
        found[name] = {**({} if kind is None else _read(module, kind)), **_further(module)}
    return {name: sizes for name, sizes in found.items() if sizes}


def apply_sizes(
    model: nn.Module,
    sizes: Mapping[str, Mapping[str, object]],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Set the sizes of the modules of `model` and reallocate its tensors to `shapes`, in place.

    Parameters and buffers stay the same objects (an optimiser's references and ties hold), but
    tensors whose shape changes get fresh, uninitialised memory and lose their gradient. Tensors
    not in `shapes` and modules not in `sizes` stay as they are. Everything is checked before
    anything changes. A size never grows, because thinning only shrinks; an integer that belongs to
    no torch.nn type and is larger in `sizes`, such as a counter, is ignored. An
    `nn.MultiheadAttention` with heads removed becomes a `NarrowAttention`.

    Args:
        model: A model of the class on which `read_sizes` was called, of any larger size.
        sizes: Module name to attribute to value, as `read_sizes` returns it (lists, as read from
            JSON, count as tuples); each module with all its attributes.
        shapes: `state_dict` key to shape.

    Raises:
        StorageError: A module, an attribute or a tensor does not exist, a value is not a size, a
            tensor would grow or change its rank, or a shape contradicts the sizes.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    new = {name: _checked(name, given, modules) for name, given in sizes.items()}
    # a module in two places is listed under its first name
    by_module = {id(modules[name]): values for name, values in new.items()}
    state = model.state_dict(keep_vars=True)
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    for key in shapes:
        if key not in tensors:
            raise StorageError(
                f"The model has no tensor {key!r}.{did_you_mean(key, tensors)} "
                f"{_how_to_build(key)}"
            )
    for key, tensor in tensors.items():
        old = tuple(tensor.shape)
        _check_shape(key, (old, tuple(shapes.get(key, old))), modules, by_module)
    for name, values in new.items():
        for attribute, value in values.items():
            setattr(modules[name], attribute, value)
    for key, shape in shapes.items():
        _reallocate(tensors[key], tuple(shape))
    for name in new:
        narrow_attention(modules[name])


def _how_to_build(name: str) -> str:
    path, is_wrapped, _ = name.partition("._checkpoint_wrapped_module")
    if is_wrapped:  # torch removes this part from keys of states, but not from names of modules
        return (
            f"'{path}' was in torch's checkpoint_wrapper when the model was saved: let what "
            "builds the model wrap it, too."
        )
    return "Build the model from the class that was saved."


def _checked(name: str, given: object, modules: Mapping[str, nn.Module]) -> ModuleSizes:
    if name not in modules:
        raise StorageError(
            f"The model has no module {name!r}, whose sizes are given."
            f"{did_you_mean(name, modules)} {_how_to_build(name)}"
        )
    if not isinstance(given, Mapping):
        raise StorageError(
            f"The sizes of module {name!r} are {given!r:.60}, not attributes with values."
        )
    kind = _kind_of(modules[name])
    attributes = () if kind is None else kind.attributes
    further = {key for key in given if key not in attributes}
    strange = {key for key in further if isinstance(getattr(modules[name], key, 0), bool)}
    if strange or set(attributes) - set(given):
        raise StorageError(
            f"Module {name!r} is a {type(modules[name]).__name__} with the sizes "
            f"{sorted(attributes)}, but {sorted(given)} are given: the model is of another class."
        )
    checked = {attribute: _size(name, attribute, given[attribute]) for attribute in attributes}
    present = {attribute: getattr(modules[name], attribute) for attribute in attributes}
    for attribute, value in checked.items():
        if isinstance(value, int) != isinstance(present[attribute], int):
            raise StorageError(f"{attribute} of module {name!r} cannot be {value!r}.")
    present = _further(modules[name])
    for attribute in further & present.keys():
        value = _size(name, attribute, given[attribute])
        if isinstance(value, int) and 0 < value < present[attribute]:
            checked[attribute] = value
    return checked


def _size(name: str, attribute: str, value: object) -> int | Shape:
    if isinstance(value, list | tuple):
        parts = tuple(_size(name, attribute, part) for part in value)
        return tuple(part for part in parts if isinstance(part, int))
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_SIZE:
        raise StorageError(
            f"{attribute} of module {name!r} is {value!r}; "
            f"a size is an integer in [0, {_LARGEST_SIZE}]."
        )
    return value


def _check_shape(
    key: str,
    shapes: tuple[Shape, Shape],
    modules: Mapping[str, nn.Module],
    new: Mapping[int, ModuleSizes],
) -> None:
    old, shape = shapes
    grows = len(old) != len(shape) or any(a < b for a, b in zip(old, shape, strict=True))
    if grows:
        raise StorageError(
            f"Tensor {key!r} has shape {shape} and the model's own has {old}; a compressed "
            f"tensor has the same rank and is nowhere larger. Build the model with its sizes."
        )
    owner, _, tensor = key.rpartition(".")
    kind = _kind_of(modules[owner]) if owner in modules else None
    if kind is None:
        return
    present = _read(modules[owner], kind)
    wanted = new.get(id(modules[owner]), present)
    if shape == old and wanted == present:
        return
    try:
        leading, before = kind.leading(wanted, tensor), kind.leading(present, tensor)
    except StorageError as error:
        raise StorageError(f"Sizes of module {owner!r} contradict each other: {error}") from error
    if leading is None or before is None:
        return
    # A dimension can be a multiple of its size, such as the input of a bidirectional layer.
    scaled = (n * (o // b if b else 1) for n, b, o in zip(leading, before, old, strict=False))
    expected = (*scaled, *old[len(leading) :])
    if shape != expected:
        raise StorageError(
            f"Tensor {key!r} has shape {shape}, but the sizes {wanted} of its module want "
            f"{expected}."
        )


def _reallocate(tensor: torch.Tensor, shape: Shape) -> None:
    if tuple(tensor.shape) != shape:
        tensor.grad = None
        tensor.data = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
