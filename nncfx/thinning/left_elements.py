"""Finds the elements of tensors in a forward that a thin model keeps: `LeftElements`."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from typing_extensions import override

from nncfx.channels.source import Source
from nncfx.channels.state import ChannelState
from nncfx.channels.trace import ChannelObserver
from nncfx.graph.union_find import Ids
from nncfx.tracing import ExampleInputs, PostSite, PreSite, Site, TracedCall, trace


class LeftElements:
    """Determines which elements of a tensor are left when channels are removed."""

    def __init__(self, state: ChannelState, entries: Mapping[tuple[str, int], Ids]) -> None:
        """Store the channels of a trace, and the entries removed along each axis of parameters."""
        state.settle()
        self._ledger, self._entries = state.ledger, entries
        gone = [
            self._ledger.carried(*key, 1 + taken.max(initial=0))[taken]
            for key, taken in entries.items()
        ]
        ids = np.unique(np.concatenate(gone)) if gone else np.empty(0, dtype=np.int64)
        self._dead = self._ledger.find(ids)

    def of(self, grid: torch.Tensor, source: Source | None) -> npt.NDArray[np.bool_]:
        """Return which elements are left, in the shape of the tensor.

        Args:
            grid: the ids of its channels.
            source: the parameter that it is computed from; None for an activation.
        """
        if source is None:
            ids = self._ledger.find(grid.numpy())
            return np.isin(ids, self._dead, invert=True)  # ~ does not return an array
        left = np.ones(source.shape, dtype=np.bool_)
        for axis in range(left.ndim):
            gone = self._entries.get((source.parameter, axis))
            if gone is not None:
                left[(slice(None),) * axis + (gone,)] = False
        return np.asarray(left.reshape(-1)[source.elements.numpy()])


class _SiteObserver(ChannelObserver):
    """Records the channels of the tensors at some sites."""

    def __init__(self, sites: Collection[Site]) -> None:
        super().__init__(living=True)
        self.sites = sites
        self.seen: dict[Site, tuple[torch.Tensor, Source | None]] = {}

    @override
    def on_call(self, call: TracedCall) -> None:
        """Follow channels, and record those at the sites."""
        super().on_call(call)
        for kind, tensors in ((PreSite, call.operands), (PostSite, call.produced)):
            for port, tensor in enumerate(tensors):
                site = kind(call.address, port)
                if site in self.sites:
                    self.seen[site] = (self.state.ids(tensor), self.state.source(tensor))


def gone_at(
    sites: Collection[Site],
    model: nn.Module,
    inputs: Sequence[ExampleInputs],
    entries: Mapping[tuple[str, int], Sequence[int]],
) -> dict[Site, tuple[tuple[int, ...], dict[int, Sequence[int]]]]:
    """Return the shape of the tensor at each site, and the removed indices of each axis.

    Sites that no input reaches are omitted.

    Args:
        sites: before or after operations.
        model: before removal; without hooks.
        inputs: as the forward takes them.
        entries: (parameter, axis) to the indices removed along that axis.
    """
    taken = {key: np.asarray(one, dtype=np.int64) for key, one in entries.items()}
    found: dict[Site, tuple[tuple[int, ...], dict[int, Sequence[int]]]] = {}
    for one in inputs:
        if found.keys() >= set(sites):
            break
        observer = _SiteObserver(sites)
        trace(model, one, observers=[observer])
        elements = LeftElements(observer.state, taken)
        for site, known in observer.seen.items():
            left = elements.of(*known)
            others = [tuple(j for j in range(left.ndim) if j != i) for i in range(left.ndim)]
            gone = {i: np.flatnonzero(~left.any(axis=each)) for i, each in enumerate(others)}
            found[site] = left.shape, {i: each.tolist() for i, each in gone.items() if len(each)}
    return found
