"""Descriptions of example inputs."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import nncfx
from nncfx.errors import ArgumentError, StorageError
from nncfx.tracing.calls.input_specs import describe_inputs, inputs_from

CPU = torch.device("cpu")


def test_inputs_come_back_with_their_shapes_and_types() -> None:
    inputs = {
        "ids": torch.zeros(1, 4, dtype=torch.int64),
        "rest": (torch.zeros(2, dtype=torch.float16), [None, True, 3]),
    }
    made = inputs_from(json.loads(json.dumps(describe_inputs(inputs))), CPU)
    assert isinstance(made, dict)
    assert made["ids"].shape == (1, 4)
    assert made["ids"].dtype == torch.int64
    half, rest = made["rest"]
    assert (half.dtype, half.shape, rest) == (torch.float16, (2,), [None, True, 3])


class Batch(NamedTuple):
    """Reached by name in a forward."""

    image: torch.Tensor
    mask: torch.Tensor


class Masked(torch.nn.Linear):
    """Takes a named tuple."""

    def forward(self, batch: Batch) -> torch.Tensor:
        return super().forward(batch.image * batch.mask)


def test_named_tuples_are_inputs_of_all_that_takes_inputs(tmp_path: Path) -> None:
    inputs = (Batch(torch.randn(2, 3), torch.ones(3)),)
    model = nncfx.quantize(Masked(3, 4).eval(), [inputs])
    path = nncfx.save(tmp_path / "a.safetensors", model)
    loaded = nncfx.load(path, Masked(3, 4))[1].eval()
    assert torch.equal(loaded(*inputs), model(*inputs))


def test_damaged_names_are_told() -> None:
    description = describe_inputs(Batch(torch.ones(1), torch.ones(1)))
    with pytest.raises(StorageError, match="is damaged"):
        inputs_from({**description, "fields": ["a-b", "c"]}, CPU)


def test_the_same_description_gives_the_same_inputs() -> None:
    description = describe_inputs(torch.zeros(3))
    first, second = (inputs_from(description, CPU) for _ in range(2))
    assert torch.equal(first, second)  # type: ignore[arg-type]


def test_what_cannot_be_described_is_asked_for() -> None:
    with pytest.raises(ArgumentError, match=r"was a object, .* Pass example_inputs"):
        inputs_from(describe_inputs((object(),)), CPU)


@pytest.mark.parametrize(
    "damaged",
    [{}, {"kind": "tensor", "shape": "x", "dtype": "float32"}, {"kind": "value", "value": 3}],
)
def test_a_damaged_description_is_a_storage_error(damaged: dict[str, object]) -> None:
    with pytest.raises(StorageError, match="is damaged"):
        inputs_from(damaged, CPU)
