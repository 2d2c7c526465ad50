"""Metrics on labelled data."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from transformers.modeling_outputs import TokenClassifierOutput

from nncfx.compressor.evaluation.metrics import accuracy, finite_metric, metric_value
from nncfx.errors import ArgumentError

IDENTITY = nn.Identity()


def test_accuracy_is_the_fraction_of_right_answers_over_unequal_batches() -> None:
    scores = torch.eye(4)
    loader = [(scores[:3], torch.tensor([0, 1, 0])), (scores[3:], torch.tensor([3]))]
    assert accuracy(IDENTITY, loader) == 3 / 4


def test_inputs_may_be_a_mapping_of_keywords() -> None:
    class Sum(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    batch = {"a": torch.tensor([[1.0, 0.0]]), "b": torch.tensor([[0.0, 3.0]])}
    assert accuracy(Sum(), [(batch, torch.tensor([1]))]) == 1.0


@pytest.mark.parametrize("training", [True, False])
def test_the_model_counts_in_eval_mode_and_keeps_its_own(training: bool) -> None:
    model = nn.Dropout(0.999999).train(training)
    assert accuracy(model, [(torch.eye(8), torch.arange(8))]) == 1.0
    assert model.training is training


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(ArgumentError, match="used up after one pass"):
        accuracy(IDENTITY, iter(()))


def test_a_class_for_every_position_counts_positions_not_examples() -> None:
    scores = torch.zeros(2, 3, 4)  # two sequences, three classes, four positions
    scores[:, 1] = 1
    targets = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    assert accuracy(IDENTITY, [(scores, targets)]) == 5 / 8


@pytest.mark.parametrize(
    ("scores", "targets"),
    [
        (torch.zeros(4, 1), torch.zeros(4, 1)),  # a regressor: would broadcast to 4 x 4
        (torch.zeros(4, 2), torch.zeros(4, 2)),  # one-hot targets
        (torch.zeros(4), torch.zeros(4)),
    ],
)
def test_what_are_no_class_scores_is_refused_with_both_shapes(
    scores: torch.Tensor, targets: torch.Tensor
) -> None:
    with pytest.raises(ArgumentError, match=r"n x classes.*\(4.*Pass a metric of your own"):
        accuracy(IDENTITY, [(scores, targets)])


@pytest.mark.parametrize("positions", [(), (2, 2)])
def test_one_score_for_two_classes_is_refused(positions: tuple[int, ...]) -> None:
    """Its class is 0 by argmax, whatever the model says, so that any model kept the budget."""
    logits = torch.ones(4, 1, *positions)
    with pytest.raises(ArgumentError, match=r"a score for each class.*\(4, 1.*metric=lambda"):
        accuracy(IDENTITY, [(logits, torch.ones(4, *positions))])


def test_targets_that_the_loss_ignores_are_left_out() -> None:
    targets = torch.tensor([0, 1, 0, -100])
    assert accuracy(IDENTITY, [(torch.eye(4), targets)]) == 2 / 3
    positions = torch.zeros(1, 2, 5), torch.tensor([[0, 1, -100, -100, 0]])
    assert accuracy(IDENTITY, [positions]) == 2 / 3
    with pytest.raises(ArgumentError, match="no target that counts, as -100"):
        accuracy(IDENTITY, [(torch.eye(2), torch.tensor([-100, -100]))])


@pytest.mark.parametrize(
    ("targets", "value"),
    [([0, 2], "2"), ([-1, 0], "-1"), ([255, 1], "255"), ([0.0, 0.5], r"0\.5")],
)
def test_a_target_that_is_no_class_is_refused_by_its_value(
    targets: list[float], value: str
) -> None:
    with pytest.raises(ArgumentError, match=f"targets of 0 to 1, .* one is {value}\\."):
        accuracy(IDENTITY, [(torch.eye(2), torch.tensor(targets))])


def test_targets_may_be_bools_or_whole_floats() -> None:
    assert accuracy(IDENTITY, [(torch.eye(2), torch.tensor([False, True]))]) == 1
    assert accuracy(IDENTITY, [(torch.eye(2), torch.tensor([0.0, 0.0]))]) == 1 / 2


def test_scores_that_are_nan_are_no_answers() -> None:
    """Argmax takes NaN for the largest, so that a model of NaN had the share of class 0."""
    scores = torch.tensor([[1.0, 0.0], [math.nan, 0.0]])
    assert math.isnan(accuracy(IDENTITY, [(scores, torch.tensor([0, 0]))]))
    assert accuracy(IDENTITY, [(scores, torch.tensor([0, -100]))]) == 1
    masked = torch.tensor([[-math.inf, 0.0], [math.inf, 0.0]])
    assert accuracy(IDENTITY, [(masked, torch.tensor([1, 0]))]) == 1
    with pytest.raises(ArgumentError, match="'accuracy' of the dense model is nan"):
        finite_metric(accuracy, IDENTITY, [(scores, torch.tensor([0, 0]))], "dense")


def test_logits_of_transformers_are_scores_with_the_classes_of_tokens_last() -> None:
    class Wrapping(nn.Module):
        def forward(self, x: torch.Tensor) -> TokenClassifierOutput:
            return TokenClassifierOutput(logits=x)  # type: ignore[arg-type] # as transformers

    assert accuracy(Wrapping(), [(torch.eye(4), torch.tensor([0, 1, 0, 3]))]) == 3 / 4
    tokens = torch.zeros(3, 3, 3)  # as many tokens as classes
    tokens[..., 1] = 1
    targets = torch.tensor([[1, 1, 0], [1, 0, 0], [-100, 1, 1]])
    assert accuracy(Wrapping(), [(tokens, targets)]) == 5 / 8
    pixels = torch.zeros(2, 3, 4, 4)
    pixels[:, 2] = 1
    assert accuracy(Wrapping(), [(pixels, torch.full((2, 4, 4), 2))]) == 1


def test_an_output_that_is_no_tensor_is_refused() -> None:
    class Wrapping(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": x}

    with pytest.raises(ArgumentError, match="the output is a dict"):
        accuracy(Wrapping(), [(torch.eye(2), torch.arange(2))])


def test_a_metric_may_return_a_tensor_or_an_array_of_one_number() -> None:
    assert metric_value(lambda *_: torch.tensor([[0.25]]), IDENTITY, []) == 0.25
    assert metric_value(lambda *_: np.array([0.25]), IDENTITY, []) == 0.25  # type: ignore[arg-type, return-value]


def test_a_metric_without_a_number_is_refused_by_name() -> None:
    def nothing(*_: object) -> None:
        return None

    with pytest.raises(ArgumentError, match="'nothing' returned None"):
        metric_value(nothing, IDENTITY, [])
    with pytest.raises(ArgumentError, match=r"tensor\(\[1., 1.\]\); it must return one number"):
        metric_value(lambda *_: torch.ones(2), IDENTITY, [])


def test_an_error_of_the_users_metric_keeps_its_cause() -> None:
    def broken(*_: object) -> float:
        raise KeyError("labels")

    with pytest.raises(ArgumentError, match="'broken' cannot judge Identity: KeyError") as caught:
        metric_value(broken, IDENTITY, [])
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_is_no_finite_number_is_refused(value: float) -> None:
    with pytest.raises(ArgumentError, match=f"of the small model is {value}, and no loss"):
        finite_metric(lambda *_: value, IDENTITY, [], "small")


def test_gradients_are_taken_as_before_whatever_a_metric_sets() -> None:
    def careless(model: nn.Module, _: object) -> float:
        torch.set_grad_enabled(False)
        model.requires_grad_(False)
        return 0.5

    model = nn.Linear(2, 2)
    model.bias.requires_grad = False
    assert metric_value(careless, model, []) == 0.5
    assert torch.is_grad_enabled()
    assert (model.weight.requires_grad, model.bias.requires_grad) == (True, False)


def test_a_metric_that_leaves_weights_in_another_type_is_named() -> None:
    def halves(model: nn.Module, _: object) -> float:
        model.half()
        return 0.5

    with pytest.raises(ArgumentError, match=r"'halves' left 'weight' in torch\.float16"):
        metric_value(halves, nn.Linear(2, 2), [])


def test_a_metric_that_changes_weights_is_named_and_one_that_puts_them_back_is_not() -> None:
    def change(model: nn.Module, by: float) -> None:
        with torch.no_grad():
            model.get_parameter("weight").mul_(by)

    def clips(model: nn.Module, _: object) -> float:
        change(model, 0.5)
        return 0.5

    def swaps(model: nn.Module, _: object) -> float:
        change(model, 0.5)
        change(model, 2.0)
        return 0.5

    with pytest.raises(ArgumentError, match="'clips' changed the values of 'weight'"):
        finite_metric(clips, nn.Linear(2, 2), [], "dense")
    assert finite_metric(swaps, nn.Linear(2, 2), [], "dense") == 0.5
