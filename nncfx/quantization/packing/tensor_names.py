"""Find the names of a model's tensors in files of transformers.

transformers renames some tensors when it loads them, and stacks experts, which files hold one by
one.
"""

import math
from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.quantization.preparation.separate_experts import SeparateExperts, stacked_experts

_LAST: Final = "down_proj"
_STACKS: Final = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "up_proj": ("up_proj",),
    _LAST: (_LAST,),
}
"""The stacked matrices of experts in memory, and the matrices in files that they consist of."""

_LABEL: Final = (12, 12)
"""The shape of a label; it is smaller in the result if transformers splits the tensor."""


def file_names(model: nn.Module, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return the names in files of the tensors that a model has after `separate_experts`.

    transformers itself converts labelled tensors to those of a file. Tensors that it writes
    stacked or split are left out. The model can be on any device, and its experts can be separate
    already; `names` are by default those of its state.
    """
    labels: dict[str, Tensor] = {}
    places: list[str] = []

    def label(name: str, names: list[str], *shape: int) -> None:
        numbers = torch.arange(len(places), len(places) + len(names), device="cpu")
        labels[name] = numbers.view(*shape, 1, 1).expand(*shape, *_LABEL)
        places.extend(names)

    for name, (count, held) in _experts(model).items():
        for own, parts in _STACKS.items():
            if own in held:
                single = [f"{name}.{e}.{part}.weight" for e in range(count) for part in parts]
                label(f"{name}.{own}", single, count, len(parts))
    known = labels.keys() | set(places)
    for name in model.state_dict() if names is None else names:
        if name not in known:
            label(name, [name])
    return {
        places[int(place.flatten()[0])]: name
        for name, place in _as_in_files(model, labels).items()
        if place.numel() == math.prod(_LABEL)
    }


def _experts(model: nn.Module) -> dict[str, tuple[int, set[str]]]:
    """Return, by name of their module, the number of experts and the names of their stacks."""
    found = {
        name: (len(getattr(one, _LAST)), {own for own in _STACKS if hasattr(one, own)})
        for name, one in stacked_experts(model).items()
    }
    for name, one in model.named_modules():
        if isinstance(one, SeparateExperts):
            found[name] = one.count, {"gate_up_proj" if one.has_gate else "up_proj", _LAST}
    return found


def _as_in_files(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that `save_pretrained` would write."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before version 5 files held what is in memory
        return tensors
    written: Callable[..., dict[str, Tensor]] = revert_weight_conversion
    try:
        return written(model, tensors)
    except Exception:  # noqa: BLE001 (a conversion that depends on shapes: names stay, and are checked)
        return {}
