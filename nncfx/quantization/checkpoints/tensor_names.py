"""Under which names the files of transformers hold the tensors of a model.

Some are renamed when they are read, and experts, which files hold one by one, are stacked.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nncfx.quantization.blocks.separate_experts import stacked_experts

__all__ = ["file_names"]


def file_names(model: nn.Module) -> dict[str, str]:
    """Return what files call the tensors of a model once `separate_experts` has gone over it.

    transformers itself is asked: it turns tensors that tell their place into those of a file.
    Stacks that it writes as stacks are left out.

    Args:
        model: Of transformers, on any device, with stacked experts.
    """
    labels: dict[str, Tensor] = {}
    places: list[str] = []

    def label(name: str, names: list[str], shape: tuple[int, ...]) -> None:
        labels[name] = torch.arange(len(places), len(places) + len(names)).view(shape)
        places.extend(names)

    for name, experts in stacked_experts(model).items():
        count = len(experts.get_parameter("down_proj"))
        for own, parts in (
            ("gate_up_proj", ("gate_proj", "up_proj")),
            ("up_proj", ("up_proj",)),
            ("down_proj", ("down_proj",)),
        ):
            if hasattr(experts, own):
                single = [f"{name}.{e}.{part}.weight" for e in range(count) for part in parts]
                label(f"{name}.{own}", single, (count, len(parts), 1))
    for name in model.state_dict():
        if name not in labels:
            label(name, [name], (1,))
    return {
        places[int(place)]: name
        for name, place in _as_in_files(model, labels).items()
        if place.numel() == 1
    }


def _as_in_files(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as `save_pretrained` would write them."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before version 5 files held what is in memory
        return tensors
    written: Callable[..., dict[str, Tensor]] = revert_weight_conversion
    return written(model, tensors)
