"""Compute norms over remaining channels only, so a masked model matches the thinned model."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.graph.union_find import Ids
from nncfx.tracing.calls.composite_functions import COMPOSITE, composite_apart

LAYER_NORMS: Final = frozenset([F.layer_norm, F.rms_norm])
"""Functions that normalize over the last axes."""
_MEANS: Final = frozenset([torch.mean, torch.Tensor.mean])
AVERAGES: Final = frozenset([*LAYER_NORMS, *_MEANS, F.group_norm, F.batch_norm])
"""Functions whose statistics over channels can be restricted to living channels."""


class LivingChannels(TorchFunctionMode):
    """Restricts the statistics of some calls to remaining channels within the context.

    Dead channels are zero after a norm. Use one instance per forward.

    Args:
        dead: the axis of the input and the dead entries along it, by number of the call among
            calls of `AVERAGES`, from 0.
    """

    def __init__(self, dead: Mapping[int, tuple[int, Ids]]) -> None:
        super().__init__()
        self._dead = dead
        self._calls = 0

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function."""
        kwargs = kwargs or {}
        if func is COMPOSITE:  # run as in a trace, so that calls have the same numbers
            with self:
                return composite_apart(*args, **kwargs)
        if func not in AVERAGES:
            return func(*args, **kwargs)
        self._calls += 1
        found = self._dead.get(self._calls - 1)
        if found is None:
            return func(*args, **kwargs)
        axis, dead = found
        data = args[0]
        alive = np.setdiff1d(np.arange(data.shape[axis]), dead)
        index = torch.from_numpy(alive).to(data.device)
        if func in _MEANS:
            return func(data.index_select(axis, index), *args[1:], **kwargs)
        if func is F.batch_norm:  # of a weight, which has statistics per row
            normal = func(data.index_select(axis, index), *args[1:], **kwargs)
            return torch.zeros_like(data).index_copy(axis, index, normal)
        short = _shortened(args[2:], index)
        named = {key: _shortened([value], index)[0] for key, value in kwargs.items()}
        if "normalized_shape" in named:
            named["normalized_shape"] = (len(alive),)
        first = args[1:2] if func is F.group_norm else ((len(alive),),) * len(args[1:2])
        normal = func(data.index_select(axis, index), *first, *short, **named)
        return torch.zeros_like(data).index_copy(axis, index, normal)


def _shortened(values: Sequence[Any], index: torch.Tensor) -> list[Any]:
    return [v.index_select(0, index) if isinstance(v, torch.Tensor) else v for v in values]
