"""A fake device: its tensors are in memory, but like a GPU's cannot be mixed with the CPU's.

Code that forgets to move a tensor thus fails on any machine, not only with a GPU::

    with other_device() as device:
        quantize(model.to(device), [images.to(device)])
"""

import contextlib
import unittest.mock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

__all__ = ["checked_device", "other_device"]

Function: TypeAlias = Callable[..., object]

# a type known to torch, for which torch does not require a package
_DEVICE: Final = torch.device("lazy", 0)
_ATEN: Final = torch.ops.aten
_DATA: Final[Any] = Tensor.data
_COPIES: Final = {_ATEN.copy_.default, _ATEN._to_copy.default}  # noqa: SLF001 (as torch calls it)
# tensors on a GPU can be indexed by tensors on the CPU
_INDEXED: Final = {
    _ATEN.index.Tensor,
    _ATEN.index_put.default,
    _ATEN.index_put_.default,
    _ATEN._index_put_impl_.default,
}


class _Elsewhere(Tensor):
    """A tensor that claims to be on the device, around one in memory."""

    _inner: Tensor
    # dispatch operations only, not the functions composed of them
    __torch_function__: Any = torch._C._disabled_torch_function_impl  # noqa: SLF001 (no other name)

    @staticmethod
    def of(inner: Tensor) -> "_Elsewhere":
        made: Any = Tensor._make_wrapper_subclass(  # noqa: SLF001 (its name)
            _Elsewhere,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=_DEVICE,
        )
        made._inner = inner  # noqa: SLF001 (its own class)
        found: _Elsewhere = made
        return found

    @override
    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it as no method
        cls,
        func: Function,
        _: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return _computed(func, args, kwargs or {})

    def _set_data(self, value: Tensor) -> None:
        _DATA.__set__(self, value)
        if isinstance(value, _Elsewhere):
            self._inner = value._inner  # noqa: SLF001 (its own class)

    data = property(Tensor.detach, _set_data)

    @override
    def data_ptr(self) -> int:
        return self._inner.data_ptr()

    @override
    def untyped_storage(self) -> torch.UntypedStorage:
        return self._inner.untyped_storage()

    @override
    def tolist(self) -> Any:
        return self._inner.tolist()


class _Placing(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it so
    """Handles calls without tensors of the device, which may create one.

    Attributes:
        has_float64: Whether the device of all blocks supports this dtype.
    """

    has_float64: ClassVar[bool] = True

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


@contextlib.contextmanager
def other_device(*, float64: bool = True) -> Iterator[torch.device]:
    """Yield a device to which tensors and modules can be moved, inside the block.

    It computes as the CPU does, up to rounding, and raises torch's RuntimeError if tensors of both
    are mixed. Autocast has no effect on it; files and exporters need the tensors moved back.
    Without `float64` the device lacks this dtype, like Apple's GPUs.
    """
    lifted = torch._C._only_lift_cpu_tensors()  # noqa: SLF001 (as torch's FakeTensorMode does)
    plain = torch.autocast, torch.is_autocast_enabled
    with (
        unittest.mock.patch.object(_Placing, "has_float64", float64),
        unittest.mock.patch.object(torch, "autocast", _but_there(plain[0], nullcontext())),
        unittest.mock.patch.object(torch, "is_autocast_enabled", _but_there(plain[1], False)),
        _Placing(),  # type: ignore[no-untyped-call]  # torch leaves it so
    ):
        torch._C._set_only_lift_cpu_tensors(True)  # noqa: SLF001 (as above)
        try:
            yield _DEVICE
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)  # noqa: SLF001 (as above)


@contextlib.contextmanager
def checked_device(*, float64: bool = True) -> Iterator[torch.device]:
    """Yield such a device; raise AssertionError, as promises do, if tensors of both are mixed."""
    try:
        with other_device(float64=float64) as device:
            yield device
    except (RuntimeError, TypeError) as error:
        raise AssertionError(str(error)) from error


def _but_there(function: Function, instead: AbstractContextManager[None] | bool) -> Function:
    """Return `function` for devices of this type, except for the one of this module."""

    def called(*args: object, **kwargs: object) -> object:
        kind = args[0] if args else kwargs.get("device_type")
        return instead if kind == _DEVICE.type else function(*args, **kwargs)

    return called


def _computed(func: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Call an operation on the tensors in memory; wrap results on the device."""
    tensors = list(_tensors((args, list(kwargs.values()))))
    is_there = any(isinstance(one, _Elsewhere) for one in tensors)
    _check_meeting(func, args, tensors)
    device: Any = kwargs.get("device")
    if func is _ATEN.copy_.default:
        is_there = isinstance(args[0], _Elsewhere)
    elif device is not None:
        is_there = torch.device(device).type == _DEVICE.type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    known = {id(_in_memory(one)): one for one in tensors}

    def placed(value: object) -> object:
        if id(value) in known:  # an in-place result is returned itself
            return known[id(value)]
        if isinstance(value, list | tuple):
            return type(value)(map(placed, value))
        if not (is_there and isinstance(value, Tensor)):
            return value
        if value.dtype is torch.float64 and not _Placing.has_float64:
            raise TypeError(f"{_DEVICE} has no float64. Use float32. (in {func})")
        return _Elsewhere.of(value)

    inner_kwargs = {name: _in_memory(one) for name, one in kwargs.items()}
    return placed(func(*map(_in_memory, args), **inner_kwargs))


def _check_meeting(func: Function, args: Sequence[object], tensors: Sequence[Tensor]) -> None:
    is_there = any(isinstance(one, _Elsewhere) for one in tensors)
    # scalars can be mixed, as with a GPU's
    is_here = any(one.ndim and not isinstance(one, _Elsewhere) for one in tensors)
    may_mix = func in _COPIES or (func in _INDEXED and isinstance(args[0], _Elsewhere))
    if is_there and is_here and not may_mix:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{_DEVICE} and cpu! (in {func})"
        )


def _tensors(values: Sequence[object]) -> Iterator[Tensor]:
    # by hand, as ATen's arguments are tensors and lists of them: pytree takes twice the time
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _in_memory(value: object) -> object:
    if isinstance(value, list | tuple):
        return type(value)(map(_in_memory, value))
    return value._inner if isinstance(value, _Elsewhere) else value  # noqa: SLF001 (its own class)
