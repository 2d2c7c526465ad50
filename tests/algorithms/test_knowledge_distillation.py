"""Distillation: its distances, its teacher, and models of many shapes."""

import copy
import math
from functools import partial
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nncfx.algorithms.knowledge_distillation.loss import tempered_cross_entropy
from nncfx.compressor import create_compressed_model
from nncfx.controllers import Controller
from nncfx.errors import ArgumentError, CompressionError
from nncfx.network import NNCFNetwork


def applied(model: nn.Module, inputs: Any, **item: Any) -> tuple[Controller, NNCFNetwork]:  # noqa: ANN401
    config = {"compression": {"algorithm": "knowledge_distillation", "type": "mse"} | item}
    return create_compressed_model(model, config, inputs)


def test_cross_entropy_of_equal_logits_is_the_entropy_times_the_temperature_squared() -> None:
    logits = torch.zeros(3, 4)
    assert float(tempered_cross_entropy(logits, logits, 2.0)) == pytest.approx(4 * math.log(4))


def test_cross_entropy_is_nncfs_formula() -> None:
    student, teacher, t = torch.randn(5, 7), torch.randn(5, 7), 3.0
    soft = torch.softmax(teacher / t, dim=1)
    expected = -(torch.log_softmax(student / t, dim=1) * soft).mean() * 7 * t * t
    torch.testing.assert_close(tempered_cross_entropy(student, teacher, t), expected)


@pytest.mark.parametrize("axis", [1, -1])
def test_pixels_and_tokens_are_examples_each(axis: int) -> None:
    rows = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    flat = tempered_cross_entropy(rows[0], rows[1], 3.0)
    student, teacher = (one.view(2, 3, 5).movedim(-1, axis) for one in rows)
    torch.testing.assert_close(tempered_cross_entropy(student, teacher, 3.0, axis), flat)


def test_a_language_model_learns_from_the_tokens_of_the_dense_one() -> None:
    tokens = torch.randint(0, 9, (2, 5), generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    controller, model = applied(model, tokens, type="softmax", class_axis=-1)
    logits = model.train()(tokens)
    entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
    torch.testing.assert_close(controller.loss(), entropy)


class Tokens(nn.Module):
    """A language model, as transformers spells its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        logits: Tensor = self.head(self.embedding(input_ids))
        return logits if attention_mask is None else logits + 0 * attention_mask.unsqueeze(-1)


@pytest.mark.parametrize("item", [{"type": "mse"}, {"type": "softmax", "class_axis": -1}])
def test_padding_counts_for_nothing(item: dict[str, Any]) -> None:
    torch.manual_seed(0)
    tokens, mask = torch.randint(0, 9, (1, 5)), torch.ones(1, 5, dtype=torch.long)
    controller, model = applied(Tokens(), {"input_ids": tokens, "attention_mask": mask}, **item)
    with torch.no_grad():
        model.head.weight += torch.randn(9, 4)
    model.train()(input_ids=tokens, attention_mask=mask)
    alone = controller.loss()
    padded, mask = F.pad(tokens, (0, 3), value=8), F.pad(mask, (0, 3))
    model(input_ids=padded, attention_mask=mask)
    torch.testing.assert_close(controller.loss(), alone)
    model(input_ids=padded, attention_mask=torch.zeros_like(mask))
    nothing = controller.loss()
    assert nothing == 0
    nothing.backward()  # type: ignore[no-untyped-call]  # torch leaves it open
    assert not model.head.weight.grad.any()


def test_a_squared_error_is_scaled_and_grows_as_the_student_moves_away() -> None:
    model = nn.Linear(3, 2)
    controller, model = applied(model, torch.ones(1, 3), scale=10.0)
    inputs = torch.randn(4, 3)
    model.train()(inputs)
    assert float(controller.compression_loss().detach()) == 0
    with torch.no_grad():
        model.bias += 0.5
    model(inputs)
    assert float(controller.compression_loss().detach()) == pytest.approx(10 * 0.25)


def test_another_teacher_may_teach() -> None:
    torch.manual_seed(0)
    controller, model = applied(nn.Linear(3, 2), torch.ones(1, 3))
    teacher, inputs = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(4, 3)
    controller.learn_from(teacher)
    with torch.no_grad():
        expected = (model.train()(inputs) - teacher(inputs)).square().mean()
    assert float(controller.loss().detach()) == pytest.approx(float(expected))
    # it is a copy, without parameters of its own, and saved with the model
    assert len(list(model.parameters())) == 2
    teacher[0].weight.data.zero_()
    assert float(controller.loss().detach()) == pytest.approx(float(expected))
    kept = [one for name, one in model.state_dict().items() if "teacher" in name]
    assert [tuple(one.shape) for one in kept] == [(8, 3), (8,), (2, 8), (2,)]


class Forces(nn.Module):
    """An energy and its derivative, whose forward turns gradients on itself."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            positions = positions.detach().requires_grad_(True)
            energy = self.energy(positions)
            total = energy.sum()
            (slope,) = torch.autograd.grad(total, positions, create_graph=self.training)
        return energy, -slope


def test_a_teacher_that_turns_gradients_on_gets_none() -> None:
    controller, model = applied(Forces(), torch.ones(1, 3))
    energy, force = model.train()(torch.randn(4, 3))
    # the target stays where it is: the slope of |s - t|^2 / n, with s = t, is 0
    (energy.sum() * 0 + force.sum() * 0 + controller.compression_loss()).backward()
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())


@pytest.mark.parametrize(
    "item",
    [{"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}, {"algorithm": "quantization"}],
)
def test_a_compressed_teacher_teaches_as_it_computes(item: dict[str, Any]) -> None:
    inputs = torch.randn(16, 3)
    teacher = create_compressed_model(
        nn.Linear(3, 2), {"compression": item}, inputs, calibration_batches=[inputs.repeat(16, 1)]
    )[1]
    controller, model = applied(nn.Linear(3, 2), torch.ones(1, 3))
    controller.learn_from(teacher)
    with torch.no_grad():
        expected = (model.train()(inputs) - teacher.eval()(inputs)).square().mean()
    assert float(controller.loss().detach()) == pytest.approx(float(expected))
    assert len(list(model.parameters())) == 2


def test_a_teacher_in_float_takes_what_a_student_gets_in_half_precision() -> None:
    """As under FSDP's mixed precision, which casts weights and inputs of the student alone."""
    controller, model = applied(nn.Linear(3, 2), torch.ones(1, 3))
    inputs = torch.randn(4, 3).bfloat16()
    expected = F.linear(inputs.float(), model.weight, model.bias)
    for one in model.parameters():
        one.data = one.bfloat16()
    outputs = model.train()(inputs)
    distance = (outputs.float() - expected).square().mean()
    torch.testing.assert_close(controller.compression_loss(), distance)


def test_a_teacher_of_other_outputs_is_refused() -> None:
    controller, _ = applied(nn.Linear(3, 2), torch.ones(1, 3))
    with pytest.raises(ArgumentError, match=r"\[\(1, 5\)\], and the model \[\(1, 2\)\]"):
        controller.learn_from(nn.Linear(3, 5))


def test_evaluation_and_no_forward_at_all_give_no_loss() -> None:
    controller, model = applied(nn.Linear(3, 2), torch.ones(1, 3))
    assert float(controller.loss().detach()) == 0
    model.eval()(torch.ones(1, 3))
    assert not controller.loss().requires_grad


@pytest.mark.parametrize("kind", [MethodType, partial])
def test_a_forward_set_on_the_instance_is_distilled_as_that_of_the_class(kind: type) -> None:
    network = nn.Sequential(nn.Linear(3, 2))
    own = nn.Sequential.forward
    network.forward = kind(own, network)  # type: ignore[method-assign]  # as trainers do
    controller, model = applied(network, torch.ones(1, 3))
    with torch.no_grad():
        network[0].bias += 0.5
    model.train()(torch.randn(4, 3))
    assert float(controller.loss().detach()) == pytest.approx(0.25)


def test_a_forward_that_calls_the_model_it_was_set_on_teaches_nothing() -> None:
    network = nn.Sequential(nn.Linear(3, 2))
    own = network.forward
    network.forward = lambda x: own(x) / 2  # type: ignore[method-assign]  # as TRL does
    with pytest.raises(CompressionError, match=r"the model with itself: .* calls '0'"):
        applied(network, torch.ones(1, 3))


def test_a_training_call_without_the_outputs_is_no_distillation() -> None:
    controller, model = applied(nn.Sequential(nn.Linear(3, 2)), torch.ones(1, 3))
    weight = model[0].weight
    model.forward = lambda x: (x @ weight.T).sum()  # as a loss that is fused with the head
    model.train()(torch.ones(1, 3))
    with pytest.raises(CompressionError, match="made none of the outputs"):
        controller.loss()


class Several(nn.Module):
    """Two inputs, one of them in place and one nested; three outputs, one of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, rest: dict[str, Tensor], scale: float) -> dict[str, Tensor]:
        x = x.relu_()
        y = self.fc(x) * scale
        return {"y": y, "index": y.argmax(dim=1), "z": y + rest["a"]}


def test_nested_inputs_and_outputs_reach_the_teacher_as_they_were() -> None:
    example = {"x": torch.randn(2, 4), "rest": {"a": torch.randn(2, 4)}, "scale": 2.0}
    controller, model = applied(Several(), copy.deepcopy(example))
    other = {"x": torch.randn(3, 4), "rest": {"a": torch.randn(3, 4)}, "scale": 2.0}
    model.train()(**other)
    assert float(controller.loss().detach()) == 0
    assert controller.statistics().to_dict()["outputs"] == 2


class Masked(nn.Module):
    """Takes a mask and a number if the caller has them; with labels it returns a loss first."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        scale: float = 1.0,
        labels: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        hidden = self.a(x).relu() * scale
        y = self.b(hidden if mask is None else hidden * mask)
        return (y,) if labels is None else (nn.functional.cross_entropy(y, labels), y)


X, MASK = torch.randn(2, 4), torch.tensor([1.0, 0, 1, 0, 1, 0])
CALLS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "number": {"scale": 3.0},
    "mask": {"mask": MASK},
    "labels": {"labels": torch.tensor([0, 2])},
}


@pytest.mark.parametrize("example", ["nothing", "number", "mask"])
def test_the_teacher_is_called_as_the_student_is(example: str) -> None:
    controller, model = applied(Masked(), ((X,), CALLS[example]))
    model.train()
    for call in (*CALLS.values(), {}):
        model(X, **call)
        assert float(controller.compression_loss().detach()) == 0
    with torch.no_grad():
        model.b.bias += 0.5
    for call in CALLS.values():
        model(X, **call)
        assert float(controller.compression_loss().detach()) == pytest.approx(0.25)


def test_a_model_that_is_not_called_as_a_whole_is_refused() -> None:
    controller, model = applied(Masked(), X)
    model.train().b(model.a(X).relu())
    with pytest.raises(CompressionError, match="Call the wrapped model, not its parts"):
        controller.loss()


def test_each_loss_is_that_of_the_call_before_it() -> None:
    controller, model = applied(Masked(), X)
    with torch.no_grad():
        model.b.bias += 0.5
    losses = []
    for view in (X, -X):
        model.train()(view)
        losses.append(controller.loss())
    (found,) = torch.autograd.grad(sum(losses), [model.b.bias])
    # of the mean of 0.5^2 over three outputs, twice
    torch.testing.assert_close(found, torch.full((3,), 2 * 2 * 0.5 / 3))


def test_a_compiled_model_is_called_as_the_student_is() -> None:
    controller, model = applied(Masked(), X)
    compiled = torch.compile(model.train(), backend="eager", fullgraph=True)
    with torch.no_grad():
        model.b.bias += 0.5
    for scale in (1.0, 3.0):
        compiled(X, MASK, scale)
        assert float(controller.compression_loss().detach()) == pytest.approx(0.25)


def test_the_teacher_is_no_parameter_and_never_trains() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    controller, model = applied(model, torch.ones(2, 3))
    assert [name for name, _ in model.named_parameters()] == [
        "0.weight", "0.bias", "1.weight", "1.bias",
    ]  # fmt: skip
    before = {n: v.clone() for n, v in model.state_dict().items() if "teacher" in n}
    assert before
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    (model.train()(torch.randn(4, 3)).sum() + controller.loss()).backward()
    optimizer.step()
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_logits_of_another_shape_are_refused_for_softmax() -> None:
    controller, model = applied(nn.Conv2d(1, 1, 1), torch.ones(1, 1, 2, 2), type="softmax")
    model.train()(torch.ones(1, 1, 2, 2))
    with pytest.raises(
        CompressionError, match=r"the shape \(1, 1, 2, 2\), and class_axis is None"
    ):
        controller.loss()


def test_a_loss_among_the_traced_outputs_is_not_compared() -> None:
    controller, model = applied(Masked(), ((X,), CALLS["labels"]), type="softmax")
    assert controller.statistics().to_dict()["outputs"] == 1
    model.train()(X, **CALLS["labels"])
    assert float(controller.loss().detach()) > 0
