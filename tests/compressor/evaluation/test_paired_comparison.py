"""Two models on the same batches."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.compressor.evaluation.metrics import accuracy
from nncfx.compressor.evaluation.paired_comparison import loss_of, reads_data


class Scores(nn.Module):
    """Gives inputs as scores, those of some rows turned round."""

    def __init__(self, wrong: set[int]) -> None:
        super().__init__()
        self.wrong = wrong

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        turned = torch.tensor([int(row) in self.wrong for row in rows])
        return torch.nn.functional.one_hot(turned.long(), 2).float()


class Shuffled:
    """Forty rows in another order in every pass; the right class is always 0."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(40).split(8):
            yield rows, torch.zeros(len(rows), dtype=torch.long)


DENSE, MODEL = Scores({1, 2}), Scores({2, 3, 4, 5})


def test_accuracy_is_compared_image_by_image_in_any_order() -> None:
    found = loss_of(MODEL, DENSE, accuracy, Shuffled())
    assert found is not None
    assert found.mean == pytest.approx(2 / 40)
    # three lost, one gained: Bonett and Price's formula
    p, q = 4 / 42, 2 / 42
    assert found.standard_error == pytest.approx(math.sqrt((p + q - (p - q) ** 2) / 42))
    assert found.units == 40


def test_positions_of_one_example_are_one_unit() -> None:
    class Positions(nn.Module):
        def __init__(self, right: int) -> None:
            super().__init__()
            self.right = right

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = torch.zeros(len(x), 2, 10)
            scores[:, 1, self.right :] = 1
            return scores

    batch = torch.zeros(6, 3), torch.zeros(6, 10, dtype=torch.long)
    found = loss_of(Positions(7), Positions(9), accuracy, [batch])
    assert found is not None
    assert (found.units, found.mean) == (6, pytest.approx(0.2))


def test_another_metric_is_compared_batch_by_batch() -> None:
    def right(model: nn.Module, loader: Iterable[Any]) -> float:
        batches = list(loader)
        found = [(model(x).argmax(1) == y).float().mean() for x, y in batches]
        return float(torch.stack(found).mean())

    rows = torch.arange(40)
    batches = [(part, torch.zeros_like(part)) for part in rows.split([10, 10, 20])]
    found = loss_of(MODEL, DENSE, right, batches)
    assert found is not None
    assert (found.units, found.mean) == (3, pytest.approx(2 / 40))


def test_a_metric_that_takes_no_single_batch_has_no_error() -> None:
    def whole(_: nn.Module, loader: Iterable[Any]) -> float:
        if len(list(loader)) < 2:
            raise ValueError("needs both classes")
        return 0.5

    assert loss_of(MODEL, DENSE, whole, [(torch.arange(4), torch.zeros(4).long())] * 2) is None


def test_a_metric_that_judges_by_data_of_its_own_is_found_out() -> None:
    assert not reads_data(lambda *_: 0.25, MODEL, 0.25)
    assert reads_data(accuracy, MODEL, 0.25)
    assert reads_data(lambda _, loader: sum(1 for _ in loader) / 4, MODEL, 0.25)
