"""Prevent PEFT from merging adapters into packed layers."""

from typing import Any, Final, NoReturn

from torch import nn

from nncfx.errors import ArgumentError
from nncfx.quantization.packing.layers import PackedWeight
from nncfx.quantization.packing.parameters import packed_parameters

_MERGE: Final = "merge"


def let_merge(model: nn.Module, *, is_packed: bool) -> None:
    """Make `merge` of adapters around packed layers raise, or restore it if not `is_packed`.

    PEFT adds to `base_layer.weight`, which is decoded on each access, so the sum would be lost.
    """
    for module in model.modules():
        base = getattr(module, "base_layer", None)
        if not (isinstance(base, nn.Module) and callable(getattr(module, _MERGE, None))):
            continue
        vars(module).pop(_MERGE, None)
        if is_packed and (isinstance(base, PackedWeight) or any(packed_parameters(base))):
            vars(module)[_MERGE] = _refuse


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:  # noqa: ANN401 (as the method's)
    del args, kwargs
    raise ArgumentError(
        "The layer of this adapter holds codes, to which nothing can be added: the adapter "
        "would be lost. Merge it before quantize_weights(..., pack=True), or keep it next to "
        "the codes."
    )
