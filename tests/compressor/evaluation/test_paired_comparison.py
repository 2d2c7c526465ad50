"""Two models on the same batches."""

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.compressor.evaluation.metrics import Metric, accuracy
from nncfx.compressor.evaluation.paired_comparison import loss_of, reads_data
from nncfx.search import Difference, paired_difference
from small_models import Function


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
    found = loss_of(MODEL, DENSE, accuracy, Shuffled(), loss=2 / 40)
    assert found.mean == pytest.approx(2 / 40)
    # three lost, one gained: Bonett and Price's formula
    p, q = 4 / 42, 2 / 42
    assert found.standard_error == pytest.approx(math.sqrt((p + q - (p - q) ** 2) / 42))
    assert found.units == 40


def test_a_batch_of_no_examples_says_nothing() -> None:
    rows = torch.arange(8)
    batches = [
        (one, torch.zeros(len(one), dtype=torch.long)) for one in (rows[:4], rows[:0], rows)
    ]
    found = loss_of(MODEL, DENSE, accuracy, batches, loss=3 / 12)
    assert found.units == 12


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
    found = loss_of(Positions(7), Positions(9), accuracy, [batch], loss=0.2)
    assert (found.units, found.mean) == (6, pytest.approx(0.2))


def test_targets_that_the_loss_ignores_have_no_part_in_the_difference() -> None:
    def answers(classes: list[list[int]]) -> Function:
        return Function(
            lambda m, rows: nn.functional.one_hot(m.classes[rows], 2).movedim(-1, 1).float(),
            classes=torch.tensor(classes),
        )

    dense = answers([[0, 0, 0], [0, 0, 0], [0, 0, 0]])
    model = answers([[1, 0, 1], [0, 0, 1], [1, 1, 1]])
    targets = torch.tensor([[0, 0, -100], [0, 0, 0], [-100, -100, -100]])
    batch = torch.arange(3), targets
    # five targets count, and the model loses one of two and one of three
    loss = accuracy(dense, [batch]) - accuracy(model, [batch])
    assert loss == pytest.approx(2 / 5)
    found = loss_of(model, dense, accuracy, [batch], loss=loss)
    by_hand = paired_difference([1 / 2, 1 / 3], weights=[2, 3], of_shares=True)
    assert (found.mean, by_hand.mean) == (loss, pytest.approx(loss))
    assert (found.units, found.standard_error) == (2, pytest.approx(by_hand.standard_error))


def wrong(model: nn.Module, loader: Iterable[Any]) -> list[float]:
    return [float(model(x).argmax(1).ne(y).sum()) for x, y in loader]


def count(model: nn.Module, loader: Iterable[Any]) -> float:
    return -sum(wrong(model, loader))


def mean_of_batches(model: nn.Module, loader: Iterable[Any]) -> float:
    found = wrong(model, loader)
    return -sum(found) / len(found)


def root(model: nn.Module, loader: Iterable[Any]) -> float:
    batches = list(loader)
    return -math.sqrt(sum(wrong(model, batches)) / sum(len(x) for x, _ in batches))


def norm(model: nn.Module, loader: Iterable[Any]) -> float:
    return -math.sqrt(sum(wrong(model, loader)))


def in_parts(*sizes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rows = torch.arange(sum(sizes))
    return [(part, torch.zeros_like(part)) for part in rows.split(sizes)]


WORSE = Scores({1, 2, 11, 12, 13, 21, 25, 26, 27, 28})
ONE_EACH = Scores({1, 11, 25, 39})


def lost(metric: Metric, batches: list[Any]) -> tuple[float, Difference | None]:
    """Return what the metric of WORSE is below that of ONE_EACH, and how surely."""
    loss = metric(ONE_EACH, batches) - metric(WORSE, batches)
    return loss, loss_of(WORSE, ONE_EACH, metric, batches, loss=loss)


def test_the_error_of_a_mean_over_batches_is_that_of_the_mean() -> None:
    """One, two, four and minus one more are wrong in the four batches."""
    _, found = lost(mean_of_batches, in_parts(10, 10, 10, 10))
    assert (found.units, found.mean) == (4, pytest.approx(1.5))
    # deviations -0.5, 0.5, 2.5, -2.5: a variance of 13 / 3, and a fourth of it for the mean
    assert found.standard_error == pytest.approx(math.sqrt(13 / 3 / 4))


@pytest.mark.parametrize("sizes", [(10, 10, 10, 10), (11, 10, 9, 10)])
def test_the_error_of_a_sum_over_batches_is_that_of_the_sum(sizes: tuple[int, ...]) -> None:
    """It was told of the mean of the batches: a loss of 74 lay between 1.8 and 2.8, and surely."""
    loss, found = lost(count, in_parts(*sizes))
    assert (loss, found.mean) == (6, pytest.approx(6))
    each = [
        more - less
        for more, less in zip(
            wrong(WORSE, in_parts(*sizes)), wrong(ONE_EACH, in_parts(*sizes)), strict=True
        )
    ]
    # a sum of four has four times their variance
    assert found.standard_error == pytest.approx(2 * statistics.stdev(each))


def test_an_interval_holds_the_loss_of_a_metric_that_is_no_mean_of_batches() -> None:
    """Random groups around the whole: the variance is sum (d_i - loss)^2 / (n (n - 1))."""
    batches = in_parts(10, 10, 10, 10)
    loss, found = lost(root, batches)
    each = [root(ONE_EACH, [batch]) - root(WORSE, [batch]) for batch in batches]
    assert found.mean == pytest.approx(loss)
    assert statistics.mean(each) != pytest.approx(loss, rel=0.01)
    square = sum((one - loss) ** 2 for one in each) / (4 * 3)
    assert found.standard_error == pytest.approx(math.sqrt(square))


def test_a_metric_that_grows_with_the_data_and_is_no_sum_has_no_error() -> None:
    assert lost(norm, in_parts(10, 10, 10, 10))[1] is None


def test_a_metric_that_takes_no_single_batch_has_no_error() -> None:
    def whole(_: nn.Module, loader: Iterable[Any]) -> float:
        if len(list(loader)) < 2:
            raise ValueError("needs both classes")
        return 0.5

    assert loss_of(MODEL, DENSE, whole, in_parts(4, 4), loss=0.0) is None


def test_a_metric_that_judges_by_data_of_its_own_is_found_out() -> None:
    assert not reads_data(lambda *_: 0.25, MODEL, 0.25)
    assert reads_data(accuracy, MODEL, 0.25)
    assert reads_data(lambda _, loader: sum(1 for _ in loader) / 4, MODEL, 0.25)
