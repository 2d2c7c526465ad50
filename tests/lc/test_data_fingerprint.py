"""Other data is told from the same data, however the same data is loaded."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)

from nncfx.lc.data_fingerprint import data_fingerprint

X = torch.arange(400.0).reshape(100, 4)
Y = torch.arange(100) % 3


class Images(Dataset[tuple[torch.Tensor, int]]):
    """A data set of files, say, that may augment by any of the three generators."""

    def __init__(self, offset: float = 0.0, *, augments: str = "") -> None:
        self.offset, self.augments = offset, augments
        self.own = torch.Generator()

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = {
            "": 0.0,
            "torch": float(torch.rand(())),
            "numpy": np.random.rand(),  # noqa: NPY002 (as transforms do)
            "python": random.random(),  # noqa: S311 (as transforms do)
            "own": float(torch.rand((), generator=self.own)),
        }[self.augments]
        return X[index] + self.offset + noise, int(Y[index])


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(X)


def batches(size: int, x: torch.Tensor = X, y: torch.Tensor = Y) -> list[object]:
    return list(zip(x.split(size), y.split(size), strict=True))


@pytest.mark.parametrize("augments", ["", "torch", "numpy", "python"])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_same_data_has_the_same_content_though_shuffled_and_augmented(
    augments: str, workers: int
) -> None:
    loaders = [
        DataLoader(Images(augments=augments), 10, shuffle=True, num_workers=workers)
        for _ in range(2)
    ]
    one, other = map(data_fingerprint, loaders)
    assert one == other
    assert one["samples"] == 100
    assert one["batches"] == 10
    assert "content" in one


def test_what_a_generator_of_its_own_draws_is_not_compared() -> None:
    assert "content" not in data_fingerprint(DataLoader(Images(augments="own"), 10))


@pytest.mark.parametrize("augments", ["", "torch", "numpy", "python"])
def test_other_images_have_other_content(augments: str) -> None:
    one = data_fingerprint(DataLoader(Images(augments=augments), 10))
    other = data_fingerprint(DataLoader(Images(0.5, augments=augments), 10))
    assert one["content"] != other["content"]


def test_lists_and_tensor_datasets_are_read_whole() -> None:
    changed = Y.clone()
    changed[57] += 1
    for make in (
        lambda y: batches(10, y=y),
        lambda y: DataLoader(TensorDataset(X, y), 10, shuffle=True),
    ):
        assert data_fingerprint(make(Y)) == data_fingerprint(make(Y.clone()))
        assert data_fingerprint(make(Y))["content"] != data_fingerprint(make(changed))["content"]


def test_the_size_of_minibatches_is_a_fact_of_its_own() -> None:
    whole = data_fingerprint(batches(10))
    halves = data_fingerprint(batches(5))
    loader = data_fingerprint(DataLoader(TensorDataset(X, Y), 5))
    assert (whole.pop("batches"), halves.pop("batches"), loader.pop("batches")) == (10, 20, 20)
    assert whole == halves == loader


def test_parts_of_one_data_set_differ() -> None:
    data = TensorDataset(X, Y)
    left, right = random_split(data, [50, 50])
    parts: list[DataLoader[object]] = [
        DataLoader(left, 10),
        DataLoader(right, 10),
        DataLoader(data, 10, sampler=SubsetRandomSampler(range(50))),
        DataLoader(data, 10, sampler=SubsetRandomSampler(range(50, 100))),
        DataLoader(Subset(Images(), range(50)), 10),
        DataLoader(Images(), 10, sampler=SubsetRandomSampler(range(50, 100))),
        DataLoader(data, 10),
    ]
    assert len({str(data_fingerprint(one)["content"]) for one in parts}) == len(parts)


def test_keyword_inputs_and_texts_count() -> None:
    one = [({"ids": torch.zeros(2, 3), "text": "a"}, torch.zeros(2))]
    other = [({"ids": torch.zeros(2, 3), "text": "b"}, torch.zeros(2))]
    swapped = [({"text": "a", "ids": torch.zeros(2, 3)}, torch.zeros(2))]
    assert data_fingerprint(one) == data_fingerprint(swapped) != data_fingerprint(other)


def test_bfloat16_and_empty_tensors_have_a_fingerprint() -> None:
    assert data_fingerprint([(X.bfloat16(), Y)]) != data_fingerprint([(X.half(), Y)])
    assert data_fingerprint([(X[:0], Y[:0])])["samples"] == 0


def test_streams_and_iterators_are_left_alone() -> None:
    stream = iter([(X, Y)])
    assert data_fingerprint(stream) == {}
    assert len(list(stream)) == 1
    assert data_fingerprint(DataLoader(Stream(), 10)) == {"data": "Stream"}


def test_generators_are_left_as_they_were() -> None:
    def states() -> list[object]:
        return [
            torch.get_rng_state().tolist(),
            random.getstate(),
            np.random.get_state()[1].tolist(),  # type: ignore[index]  # noqa: NPY002
        ]

    before = states()
    for loader in (
        DataLoader(Images(augments="torch"), 10, shuffle=True),
        DataLoader(Images(augments="numpy"), 10, shuffle=True),
        batches(10),
    ):
        data_fingerprint(loader)
    assert states() == before


def test_what_cannot_be_read_has_no_content() -> None:
    class Broken(Images):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            raise ValueError(index)

    assert "content" not in data_fingerprint(DataLoader(Broken(), 10))
