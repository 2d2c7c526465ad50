"""Which part of what a loader gives the model takes."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from transformers import BatchEncoding
from transformers.utils import ModelOutput

import nncfx
from nncfx.controllers.loops.batch_norm_adaptation import adapt_batch_norms
from nncfx.errors import ArgumentError
from nncfx.network import inputs_in
from nncfx.tracing.calls.devices import on_device

ONE, TWO, LABELS = torch.rand(3, 4), torch.rand(3, 4), torch.tensor([0, 1, 0])


class Pair(nn.Module):
    """Needs two inputs, as a network that compares two images."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, one: Tensor, two: Tensor) -> Tensor:
        return self.norm(self.layer(one)) - self.norm(self.layer(two))


class Towers(nn.Module):
    """Needs neither of its two inputs, as CLIP has them."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, image: Tensor | None = None, text: Tensor | None = None) -> list[Tensor]:
        pairs = ((self.image, image), (self.text, text))
        return [tower(given) for tower, given in pairs if given is not None]


class Captions(Pair):
    """Takes its second input where it is given."""

    def forward(self, one: Tensor, two: Tensor | None = None) -> Tensor:
        return super().forward(one, one if two is None else two)


@pytest.mark.parametrize(
    ("model", "batch", "is_told"),
    [
        (Captions(), (ONE, TWO), True),
        (Captions(), (ONE, LABELS), False),
        (Captions(), {"one": ONE, "two": TWO}, False),
        (nn.Sequential(nn.Linear(4, 4)), (ONE, TWO), False),
    ],
)
def test_an_optional_input_that_quantize_takes_for_labels_is_told(
    model: nn.Module, batch: object, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    nncfx.quantize(model, [batch])
    assert ("'two' of Captions keeps its default" in caplog.text) == is_told
    assert ("give mappings: {'one': ..., 'two': ...}" in caplog.text) == is_told


def test_labels_behind_the_inputs_are_left_out() -> None:
    assert inputs_in((ONE, LABELS), nn.Linear(4, 2)) is not LABELS
    assert torch.equal(inputs_in((ONE, LABELS), nn.Linear(4, 2)), ONE)
    found = inputs_in([ONE, TWO, LABELS], Pair())
    assert len(found) == 2
    assert torch.equal(found[1], TWO)


def test_inputs_that_are_a_structure_stay_one() -> None:
    assert set(inputs_in(({"x": ONE, "y": TWO}, LABELS), Pair())) == {"x", "y"}
    assert len(inputs_in(((ONE, TWO), LABELS), Pair())) == 2


def test_inputs_behind_a_tensor_may_be_structures() -> None:
    """As the indices and offsets of a recommender's tables of embeddings are."""
    found = inputs_in((ONE, (TWO, LABELS), LABELS), Pair())
    assert len(found) == 2
    assert found[1][1] is LABELS


class Windows(nn.Module):
    """Takes one mapping, as networks that forecast series do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, windows: dict[str, Tensor]) -> Tensor:
        return self.layer(windows["past"])


def test_a_mapping_whose_names_are_no_keywords_is_the_one_input() -> None:
    batch = {"past": ONE, "mask": TWO}
    for given in (batch, (batch,), [batch, LABELS]):
        (found,) = inputs_in(given, Windows())
        assert found.keys() == batch.keys()
    model = Windows()
    small = nncfx.quantize(model, [batch])
    assert (small(batch) - model(batch)).norm() < 0.02 * model(batch).norm()
    assert inputs_in({"one": ONE, "labels": LABELS}, Pair()).keys() == {"one", "labels"}


class Images(nn.Module):
    """Takes a list, and targets that inference has none of, as detectors of torchvision do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, images: list[Tensor], targets: Tensor | None = None) -> Tensor:
        del targets
        return sum(self.layer(one) for one in images)


def test_a_list_that_is_the_one_input_stays_one() -> None:
    (found,) = inputs_in(([ONE, TWO, ONE], LABELS), Images())
    assert len(found) == 3
    model = nncfx.wrap(Images(), ([ONE, TWO],))
    (found,) = inputs_in(([TWO, ONE], LABELS), model)
    assert torch.equal(found[0], TWO)
    nncfx.quantize(model, [([TWO, ONE], LABELS)])


@pytest.mark.parametrize("count", [1, 2])
def test_an_annotation_says_that_a_list_is_one_input(count: int) -> None:
    images = [ONE, TWO][:count]
    for batch in ((images, LABELS), (images,), (tuple(images), [LABELS]), ((images,), LABELS)):
        (found,) = inputs_in(batch, Images())
        assert isinstance(found, tuple | list)
        assert len(found) == count
    nncfx.quantize(Images(), [(images, LABELS)])
    (one,) = inputs_in(([ONE], LABELS), Captions())
    assert one is ONE


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_list_of_tensors_is_a_batch_where_the_model_takes_one(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    images = [ONE, TWO, ONE][:count]
    wrapped = nncfx.wrap(Unannotated(), ([ONE],))
    training = nncfx.wrap(Images(), ([ONE], LABELS))
    for model in (Images(), nncfx.wrap(Images(), ([ONE],)), wrapped, training):
        for batch in (images, tuple(images)):
            (found,) = inputs_in(batch, model)
            assert len(found) == count
    model = nncfx.quantize(Images(), [images, images])
    assert len(model.nncf.example_inputs[0]) == count
    assert "not used" not in caplog.text
    assert inputs_in([ONE, LABELS], Captions()) is ONE


class Unannotated(Images):
    """Does not say that it takes a list, as RetinaNet of torchvision does not."""

    def forward(self, images, targets=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        del targets
        return self.layer(torch.stack(images))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_list_is_one_input_where_the_forward_refuses_its_tensors(count: int) -> None:
    images = [ONE, TWO, ONE][:count]
    for batch in ((images, LABELS), (images,), (tuple(images), [LABELS]), ((images,), LABELS)):
        model = nncfx.quantize(Unannotated(), [batch, batch])
        assert len(model.nncf.example_inputs[0]) == count


def test_an_annotation_that_is_no_type_is_passed_over() -> None:
    class Described(nn.Linear):
        def forward(self, x: "rows of features") -> Tensor:  # type: ignore[valid-type]  # noqa: F722
            return super().forward(x)

    (one,) = inputs_in(([ONE], LABELS), Described(4, 4))
    assert one is ONE


def test_keywords_that_a_forward_hands_on_are_keywords() -> None:
    class Open(Windows):
        def forward(self, **inputs: Tensor) -> Tensor:
            return super().forward(inputs)

    assert inputs_in({"past": ONE}, Open()).keys() == {"past"}


def test_a_model_takes_as_many_inputs_as_it_was_wrapped_with() -> None:
    model = nncfx.wrap(Towers(), (ONE, TWO))
    assert len(inputs_in((ONE, TWO, LABELS), model)) == 2
    quantizers = nncfx.quantize(model, [(ONE, TWO)]).nncf.hooks
    assert {"image.weight", "text.weight"} <= {str(one.site) for one in quantizers}


@dataclass
class Output(ModelOutput):
    """What a model of transformers hands on."""

    one: Tensor | None = None
    two: Tensor | None = None


@dataclass
class Both:
    """What a loader collates."""

    one: Tensor
    two: Tensor
    name: str = "images"


class OfOne(Pair):
    """Takes both inputs in one object."""

    def forward(self, both: Both) -> Tensor:
        return super().forward(both.one, both.two)


@pytest.mark.parametrize("made", [Both, Output, lambda **named: BatchEncoding(named)])
@pytest.mark.parametrize("batch_of", [lambda one: one, lambda one: (one, LABELS)])
def test_an_object_of_inputs_is_taken_as_a_forward_takes_it(
    made: Callable[..., object], batch_of: Callable[[object], object]
) -> None:
    batch = batch_of(made(one=ONE, two=TWO))
    model = nncfx.quantize(OfOne().eval(), [batch])
    assert "layer.weight" in {str(one.site) for one in model.nncf.hooks}
    [given] = inputs_in(batch, OfOne())
    assert type(given) is type(made(one=ONE, two=TWO))
    assert on_device(torch.device("meta"), given).two.is_meta
    assert not given.two.is_meta


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match="A batch is or begins with a str; it must be a tensor"
    ):
        inputs_in(("images", LABELS), Pair())
    with pytest.raises(
        ArgumentError, match="A batch is or begins with a str; it must be a tensor"
    ):
        inputs_in("images", Pair())


def test_batch_norms_adapt_to_the_data_of_a_model_of_two_inputs() -> None:
    model = Pair()
    assert adapt_batch_norms(model, [(ONE, TWO, LABELS)], samples=3) == 3
    assert not torch.equal(model.norm.running_mean, torch.zeros(4))
