"""Fingerprints of data sets, so that no run silently continues with other data."""

import contextlib
import dataclasses
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

from nncfx.errors import machine_fault

_DRAWN: Final = 32
_PART: Final = 1024
_Facts = dict[str, int | str]


def data_fingerprint(loader: Iterable[Any]) -> _Facts:
    """Return facts about the data of `loader` that are equal for equal data.

    "samples" is the number of samples, if known; "batches" the number of minibatches. "content" is
    a digest: of all samples for lists and `TensorDataset`s, regardless of minibatches; of 32
    samples for other data sets; of the first minibatch for other loaders. It is missing if the
    loader's own generator draws different content every time. Order does not count, since loaders
    shuffle. The state of torch's, NumPy's and Python's generators is preserved.
    """
    facts = _of_samples(loader)
    with contextlib.suppress(TypeError, NotImplementedError):  # streams have no length
        facts["batches"] = len(loader)  # type: ignore[arg-type]  # what has none is passed over
    return facts


def _of_samples(loader: Iterable[Any]) -> _Facts:
    if isinstance(loader, DataLoader):
        return _of_dataset(loader)
    if isinstance(loader, Sequence):
        digest, samples = _digest(loader)
        return {"samples": samples, "content": digest}
    if isinstance(loader, Iterator):  # reading from it would consume it
        return {}
    return _content(lambda: [next(iter(loader))])


def _of_dataset(loader: DataLoader[Any]) -> _Facts:
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        return {"data": type(dataset).__qualname__}
    if isinstance(loader.sampler, SubsetRandomSampler):
        chosen: Sequence[int] = sorted(loader.sampler.indices)
    else:
        chosen = range(len(dataset))
    facts: _Facts = {"samples": len(chosen)}
    if isinstance(dataset, TensorDataset) and chosen:
        parts = (list(chosen[at : at + _PART]) for at in range(0, len(chosen), _PART))
        return facts | {"content": _digest(dataset[part] for part in parts)[0]}
    places = np.linspace(0, len(chosen) - 1, min(_DRAWN, len(chosen))).round().astype(int)
    indices = [int(chosen[place]) for place in places]
    return facts | _content(lambda: _samples(loader, loader.dataset, indices))


def _samples(loader: DataLoader[Any], dataset: Dataset[Any], indices: list[int]) -> list[Any]:
    if not loader.num_workers:
        return [dataset[index] for index in indices]
    # data sets open files in their workers, which must not be open when workers are forked
    own: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        sampler=indices,
        num_workers=1,
        collate_fn=_as_it_is,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(0),
    )
    return list(own)


def _as_it_is(sample: Any) -> Any:  # noqa: ANN401 (a sample is anything)
    return sample


def _content(draw: Callable[[], list[Any]]) -> _Facts:
    """Return the digest of the result of `draw`, if it is the same twice."""
    digests = []
    for _ in range(2):
        with _seeded_everywhere():
            try:
                digests.append(_digest(draw())[0])
            except Exception as error:
                if machine_fault(error) is not None:
                    raise
                return {}  # iterating over it later raises a complete error
    return {"content": digests[0]} if digests[0] == digests[1] else {}


@contextlib.contextmanager
def _seeded_everywhere() -> Iterator[None]:
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (used by transforms)
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002 (used by transforms)
            torch.manual_seed(0)
            yield
    finally:
        random.setstate(state)
        np.random.set_state(legacy)  # noqa: NPY002 (used by transforms)


def _digest(batches: Iterable[Any]) -> tuple[str, int]:
    """Return a digest of the samples in `batches`, and their number; leaf positions count."""
    hashes: dict[str, Any] = {}
    samples = 0
    for batch in batches:
        lengths = []
        for leaf in _leaves(batch, ""):
            if leaf.place not in hashes:
                hashes[leaf.place] = hashlib.sha256(f"{leaf.place} {leaf.kind}\n".encode())
            hashes[leaf.place].update(leaf.content)
            lengths.append(leaf.length)
        samples += max(lengths, default=1)
    whole = hashlib.sha256()
    for place in sorted(hashes):
        whole.update(hashes[place].digest())
    return whole.hexdigest()[:16], samples


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Leaf:
    """A tensor, array or other value of a minibatch; `length` is its size along axis 0."""

    place: str
    kind: str
    content: bytes | memoryview
    length: int


def _leaves(value: object, place: str) -> Iterator[_Leaf]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], f"{place}.{key}")
    elif isinstance(value, tuple | list):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{place}.{number}")
    elif isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        yield _leaf(place, f"{value.dtype}", value.shape, flat.numpy().data)
    else:
        array = np.asarray(value)  # numbers, texts, images
        content = type(value).__qualname__.encode() if array.dtype == object else array.tobytes()
        yield _leaf(place, f"{array.dtype}", array.shape, content)


def _leaf(place: str, dtype: str, shape: Sequence[int], content: bytes | memoryview) -> _Leaf:
    length = shape[0] if shape else 1
    return _Leaf(place=place, kind=f"{dtype} {tuple(shape[1:])}", content=content, length=length)
