"""Divides validation batches into those that choose and those that judge the choice."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
)

from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.search import JSONValue
from nncfx.tracing.calls.tensors import tensors_in

_FINEST: Final = 1000


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """The data that choose a model, and those that judge it.

    Attributes:
        chooses: Batches on which the search judges levels or candidates.
        judges: Batches on which the winner is judged.
        held_out: Whether `judges` take no part in the choice.
        data: Description of `judges`.
        note: Why they are not held out, as a sentence; "" if they are.
        header: The division in the header of a journal; empty if there is none.
    """

    chooses: Iterable[Any]
    judges: Iterable[Any]
    held_out: bool
    data: str
    note: str
    header: dict[str, JSONValue]


def divided(
    valloader: Iterable[Any], testloader: Iterable[Any] | None, share: float, least: int
) -> Validation:
    """Return the data that choose and those that judge.

    A `testloader` judges, and all of `valloader` chooses. Without one, `valloader` is divided by
    batches: with a share of 1/2, batches 1, 3, 5, ... judge, and 0, 2, 4, ... choose (in general,
    batch i judges if a multiple of 1 / share lies in (i, i + 1]). A list is divided in its order;
    a `DataLoader` over a dataset with indices in the order of the dataset, even if it shuffles;
    anything else in the order of its batches, which must be the same every time.

    Args:
        valloader: All validation batches, iterable repeatedly.
        testloader: Batches that judge. Those of `valloader` itself, or of another loader of its
            whole dataset, are not held out.
        share: Fraction of the batches of `valloader` that judge, in [0, 1).
        least: How many examples each part must have; with fewer, nothing is divided.
    """
    if testloader is not None and not _is_same(valloader, testloader):
        return Validation(
            chooses=valloader,
            judges=testloader,
            held_out=True,
            data="testloader",
            note="",
            header={},
        )
    parts: _Parts | str = "testloader gives the data of valloader"
    if testloader is None:
        parts = _parts(valloader, share) if share > 0 else "held_out is 0"
    if not isinstance(parts, str):
        parts = _large_enough(parts, least)
    if not isinstance(parts, str):
        return Validation(
            chooses=parts.chooses,
            judges=parts.judges,
            held_out=True,
            data="valloader, held out",
            note="",
            header={"held out": share},
        )
    return Validation(
        chooses=valloader,
        judges=valloader,
        held_out=False,
        data="valloader",
        note=f"the model was judged on the data that chose it, since {parts}; its loss is "
        "underestimated. Give more validation batches, or a testloader.",
        header={},
    )


def total_examples(batches: Iterable[Any]) -> int:
    """Return the number of examples in the batches; without loading them if possible."""
    if isinstance(batches, DataLoader) and _has_indices(batches):
        whole: Any = batches.dataset
        return min(len(batches) * (batches.batch_size or 1), len(whole))
    return sum(examples_in(inputs) for inputs, _ in batches)


def _is_same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Return whether both are one object, or iterate over one whole dataset."""
    if one is other:
        return True
    loaders = [loader for loader in (one, other) if isinstance(loader, DataLoader)]
    return (
        len(loaders) == 2  # noqa: PLR2004 (both)
        and loaders[0].dataset is loaders[1].dataset
        and all(map(_has_indices, loaders))
    )


@final
class Part:
    """The batches of a loader that belong to one side of a division.

    Args:
        batches: Yields the same batches in the same order every time.
        share: Fraction of the batches that judge.
        judges: Whether this is the side that judges.
    """

    def __init__(self, batches: Iterable[Any], share: float, *, judges: bool) -> None:
        self._batches, self._share, self._judges = batches, share, judges

    def __iter__(self) -> Iterator[Any]:
        for position, batch in enumerate(self._batches):
            if _judging(position, self._share) == self._judges:
                yield batch


@final
@dataclass(frozen=True, eq=False)
class _Parts:
    chooses: Iterable[Any]
    judges: Iterable[Any]


def _judging(position: int, share: float) -> bool:
    exact = Fraction(share).limit_denominator(_FINEST)
    return math.floor((position + 1) * exact) > math.floor(position * exact)


def _parts(batches: Iterable[Any], share: float) -> "_Parts | str":
    """Return the parts that choose and judge, or why there is no division."""
    if isinstance(batches, Sequence):
        return _Parts(*(list(Part(batches, share, judges=side)) for side in (False, True)))
    if isinstance(batches, DataLoader) and _has_indices(batches):
        return _Parts(*(_subset(batches, share, judges=side) for side in (False, True)))
    if not _is_steady(batches):
        return "valloader gives its batches in another order every time"
    return _Parts(*(Part(batches, share, judges=side) for side in (False, True)))


def _large_enough(parts: _Parts, least: int) -> "_Parts | str":
    """Return `parts`, or why they are too small."""
    counts = [total_examples(part) for part in (parts.chooses, parts.judges)]
    if min(counts) >= least:
        return parts
    return (
        f"its parts would have {counts[0]} and {counts[1]} examples, and each needs {least} "
        "at least"
    )


def _has_indices(loader: "DataLoader[Any]") -> bool:
    """Return whether every example comes once, by its index, in batches of one size."""
    data: Any = loader.dataset
    sampler: Any = loader.sampler
    if isinstance(data, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return False
    if not isinstance(sampler, SequentialSampler | RandomSampler):
        return False
    whole = sampler.data_source is data and len(sampler) == len(data)
    return whole and not getattr(sampler, "replacement", False)


def _subset(loader: "DataLoader[Any]", share: float, *, judges: bool) -> "DataLoader[Any]":
    """Return a loader of the examples of one side, in the order of the dataset."""
    size = loader.batch_size or 1
    data: Any = loader.dataset
    rows = range(len(data))
    indices = [
        index
        for position in range(len(loader))
        if _judging(position, share) == judges
        for index in rows[position * size : (position + 1) * size]
    ]
    return DataLoader(
        Subset(data, indices),
        batch_size=size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _is_steady(batches: Iterable[Any]) -> bool:
    """Return whether the first batch is the same in two passes, for any state of generators."""
    firsts = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            firsts.append(tensors_in(next(iter(batches), None)))
    one, other = firsts
    return len(one) == len(other) and all(map(torch.equal, one, other))
