"""Hold weights of any shape (experts, convolutions) as codes that are decoded on each access."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self, TypeAlias, cast, final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from typing_extensions import override

from nncfx.errors import StorageError
from nncfx.quantization.packing.codes import CodeFormat
from nncfx.storage.models.integer_tensor import IntegerTensor
from nncfx.storage.models.torch_bits import DTYPES, NAMES

Record: TypeAlias = Any
"""A record of codes in a file; it can be anything until it is checked."""

_WITH_ZERO: Final = 3
_NONE: Final = torch.empty(0, device="cpu")
_CHUNK: Final = 3 * 2**17
"""Numbers that are decoded at once; in float32 they fit into a core's L2 cache."""


@final
class PackedParameter(nn.Module):
    """A torch parametrization that stores codes, a scale and possibly a zero point.

    They are `original0` to `original2`: bytes, r x c for r groups or indices of axis 0, or half as
    many rows if two codes share a byte; and the scale and the zero point, as in `IntegerTensor`.

    Attributes:
        shape: Shape of the weight.
        codes_dtype: Dtype of the codes before they are stored as bytes.
        format: How one number is coded.
    """

    def __init__(self, stored: IntegerTensor) -> None:
        """Pack the quantized weight `stored`."""
        super().__init__()
        self.shape, self.codes_dtype = stored.values.shape, stored.values.dtype
        self.format = CodeFormat.of(stored)
        # keep only what is independent of size; the module holds the tensors
        self._grid = replace(stored, values=_NONE, scale=_NONE, zero_point=_NONE)
        length = stored.group or self.shape.numel() // self.shape[0]
        self._rows = self.shape.numel() // length
        self._split = -(-self._rows // 2)
        self._is_by_rows = not stored.columns and stored.axis in {None, 0}
        zero = stored.zero_point
        narrow = zero.to(torch.uint8)
        zero = narrow if torch.equal(narrow.to(zero.dtype), zero) else zero.to(torch.int16)
        codes = self.format.pack(stored.values.reshape(self._rows, length), self._split)
        # as bytes, so that casts of the model do not change float8 codes
        parts = (codes.view(torch.uint8), stored.scale, zero)
        self._parts: tuple[Tensor, ...] = parts if bool(zero.any()) else parts[:-1]

    @override
    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        moved = fn(torch.empty(0, dtype=self._grid.dtype, device="cpu"))
        self._grid = replace(self._grid, dtype=moved.dtype)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # of torch
        return self

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors that the module stores instead of `weight`."""
        del weight
        parts, self._parts = self._parts, ()
        return parts

    @override
    def forward(self, *parts: Tensor) -> Tensor:
        if self._is_by_rows and not torch.compiler.is_compiling():
            return self._decoded(*parts)
        return self.integers(*parts).dequantize()

    def integers(self, codes: Tensor, scale: Tensor, zero: Tensor | None = None) -> IntegerTensor:
        """Return the quantized weight from the tensors of the module."""
        codes = codes if self.format.is_packed else codes.view(self.codes_dtype)
        values = self.format.unpack(codes, self._rows).reshape(self.shape)
        zero = torch.zeros_like(scale, dtype=torch.int32) if zero is None else zero.int()
        return replace(self._grid, values=values, scale=scale, zero_point=zero)

    def _decoded(self, codes: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        """Return the weight, decoded in parts that fit into the cache."""
        codes = codes if self.format.is_packed else codes.view(self.codes_dtype)
        found = scale.new_empty(self._rows, codes.shape[1], dtype=self._grid.dtype)
        wide = torch.promote_types(found.dtype, torch.float32)
        scales = scale.to(wide).reshape(-1, 1).expand(self._rows, 1)
        shifts = None
        if self.format.is_integer and not (zero is None and not self.format.lowest):
            shifts = (0 if zero is None else zero.to(wide).reshape(-1, 1)) - scales.new_full(
                (self._rows, 1), self.format.lowest
            )
        step = max(1, _CHUNK // codes.shape[1])
        for start in range(0, len(codes), step):
            for high in (False, True) if self.format.is_packed else (False,):
                first = start + (self._split if high else 0)
                rows = slice(first, min(first + step, first + len(codes) - start, self._rows))
                part = codes[start : start + rows.stop - rows.start]
                numbers = found[rows] if found.dtype == wide else found[rows].to(wide)
                self.format.numbers(part, numbers, high=high)
                if shifts is not None:
                    numbers.sub_(shifts[rows])
                numbers.mul_(scales[rows])
                if found.dtype != wide:
                    found[rows] = numbers
        return found.view(self.shape)

    def described(self) -> dict[str, Any]:
        """Return the weight's properties, besides the tensors of the module, as JSON values."""
        return self._grid.described() | {
            "shape": list(self.shape),
            "codes": NAMES[self.codes_dtype],
        }


class _Place(NamedTuple):
    """A packed weight in a model."""

    module: nn.Module
    attribute: str
    packed: PackedParameter
    parts: tuple[Tensor, ...]


def pack_parameter(model: nn.Module, name: str, stored: IntegerTensor) -> bool:
    """Replace the parameter with that dotted `name` by codes; return whether it was possible.

    It is not possible in a module with other parametrizations.
    """
    owner, _, attribute = name.rpartition(".")
    module = model.get_submodule(owner)
    taken = {one for one, _ in _own_packed(module)}
    if parametrize.is_parametrized(module) and set(_lists(module)) != taken:
        return False
    module.get_parameter(attribute).requires_grad_(False)
    parametrize.register_parametrization(
        module, attribute, PackedParameter(stored), unsafe=True
    )  # unsafe: codes have another type than the weight
    type(module).__reduce_ex__ = _reduced  # type: ignore[assignment]  # torch's refuses
    return True


def _reduced(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    """Return what pickle makes a module with weights of codes again from."""
    del protocol
    codes = {one: place.packed.integers(*place.parts) for one, place in _own_packed(module)}
    modules = {name: one for name, one in module._modules.items() if name != "parametrizations"}  # noqa: SLF001 (no public way)
    return _made_again, (type(module).__bases__[0], vars(module) | {"_modules": modules}, codes)


def _made_again(
    kind: type[nn.Module], state: dict[str, Any], codes: Mapping[str, IntegerTensor]
) -> nn.Module:
    module = kind.__new__(kind)
    module.__setstate__(state)  # type: ignore[no-untyped-call]  # of torch
    for attribute, stored in codes.items():
        placeholder = stored.values.new_empty(0, dtype=stored.dtype)
        module.register_parameter(attribute, nn.Parameter(placeholder, requires_grad=False))
        pack_parameter(module, attribute, stored)
    return module


def _own_packed(module: nn.Module) -> list[tuple[str, _Place]]:
    return [(name, place) for name, place in packed_parameters(module) if "." not in name]


def packed_parameters(model: nn.Module) -> Iterator[tuple[str, _Place]]:
    """Yield each packed weight with its dotted name."""
    for name, module in model.named_modules():
        if not parametrize.is_parametrized(module):
            continue
        for attribute, held in _lists(module).items():
            packed = held[0]
            if isinstance(packed, PackedParameter):
                parts = tuple(held.parameters(recurse=False))
                yield f"{name}.{attribute}".lstrip("."), _Place(module, attribute, packed, parts)


def _lists(module: nn.Module) -> Mapping[str, parametrize.ParametrizationList]:
    return cast("Mapping[str, parametrize.ParametrizationList]", module.parametrizations)


def unpack_parameters(model: nn.Module) -> dict[str, IntegerTensor]:
    """Replace codes by float weights; return the quantized weights by name."""
    places = dict(packed_parameters(model))
    found = {name: one.packed.integers(*one.parts) for name, one in places.items()}
    for name, (module, attribute, _, _) in places.items():
        if "parametrizations" in module._modules:  # noqa: SLF001 (no public way)
            # torch's own function would change the class, which copies of a model share
            del module._modules["parametrizations"]  # noqa: SLF001 (as above)
            module.__class__ = type(module).__bases__[0]
        weight = nn.Parameter(found[name].dequantize(), requires_grad=False)
        module.register_parameter(attribute, weight)
    return found


def parameter_records(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return a record, as JSON values, of each packed weight without its tensors, by name."""
    return {
        name: place.packed.described() | {"has_zeros": len(place.parts) == _WITH_ZERO}
        for name, place in packed_parameters(model)
    }


def weight_shapes(records: Mapping[str, Record]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights whose codes are in `records`, by name.

    Raises:
        StorageError: a record is damaged.
    """
    found = {}
    for name, record in records.items():
        shape = record.get("shape") if isinstance(record, Mapping) else None
        if not (isinstance(shape, list) and all(isinstance(one, int) for one in shape)):
            raise StorageError(
                f"The file is damaged: what it says of the codes of '{name}' is not a record. "
                "Save the model again."
            )
        found[name] = tuple(shape)
    return found


def parameters_again(model: nn.Module, records: Mapping[str, Record]) -> nn.Module:
    """Replace the weights in `records` by codes that are not filled yet; return `model`.

    Raises:
        StorageError: a record is damaged, or belongs to another model.
    """
    stored = dict(model.named_parameters(remove_duplicate=False))
    for name, shape in weight_shapes(records).items():
        weight = stored.get(name)
        if weight is None or tuple(weight.shape) != shape:
            raise StorageError(
                f"The file has codes for a weight '{name}' of shape {shape}, and this "
                f"{type(model).__name__} has none. Build the model as it was before it was packed."
            )
        one = records[name]
        stored_as = unfilled(name, shape, one, has_zeros=bool(one.get("has_zeros")))
        pack_parameter(model, name, stored_as)
    return model


def unfilled(
    name: str, shape: tuple[int, ...], record: Mapping[str, Any], *, has_zeros: bool
) -> IntegerTensor:
    """Return a weight as `record` describes it with codes and scales of 0, and zero points of 1.

    Raises:
        StorageError: the record is damaged.
    """
    axis, group = record.get("axis"), record.get("group")
    if isinstance(axis, int) and -len(shape) <= axis < len(shape):
        scales: tuple[int, ...] = (shape[axis],)
    elif isinstance(group, int) and 0 < group <= math.prod(shape):
        scales = (math.prod(shape) // group,)
    else:
        scales = ()
    if record.get("codes") not in NAMES.values():
        raise StorageError(
            f"The file is damaged: weight '{name}' has codes of type {record.get('codes')!r}, "
            "which is unknown. Save the model again."
        )
    values = torch.zeros(shape, dtype=DTYPES[record["codes"]], device="cpu")
    scale = torch.zeros(scales, dtype=torch.float32, device="cpu")
    zero = torch.ones_like(scale) if has_zeros else None
    return IntegerTensor.from_parts(values, scale, zero, record)
