"""Turn masks of single weights into masks of whole channels, which thinning can remove."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from nncfx.controllers.base.weights import aliases
from nncfx.graph import Role
from nncfx.network import NNCFNetwork


def whole_channel_masks(model: NNCFNetwork, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return masks (1 for entries that stay) that remove the channels on which all `masks` agree.

    A channel is removed if every weight that reads it is masked, and all entries of masked weights
    that produce or read it are zero. The other entries of these weights come back. Weights whose
    channels cannot be removed at all keep their masks.
    """
    names = aliases(model)
    zero = {name: (mask == 0).cpu().numpy() for name, mask in masks.items()}
    settled: dict[str, Tensor] = {}
    for group_set in model.nncf.channels.prunable:
        members = [(names.get(m.parameter, (m.parameter,))[0], m) for m in group_set.members]
        masked = [
            (name, m) for name, m in members if name in masks and m.role is not Role.FOLLOWER
        ]
        readers = {name for name, m in members if m.role is Role.CONSUMER}
        if not readers or not readers.issubset(masks):
            continue
        dead = np.ones(group_set.size, dtype=bool)
        for name, m in masked:
            others = tuple(axis for axis in range(zero[name].ndim) if axis != m.axis)
            dead &= np.asarray(zero[name].all(axis=others))[m.indices].all(axis=1)
        for name, m in masked:
            mask = settled.setdefault(name, torch.ones_like(masks[name]))
            gone = torch.from_numpy(m.entries(np.flatnonzero(dead))).to(mask.device)
            mask.index_fill_(m.axis, gone, 0)
    return settled
