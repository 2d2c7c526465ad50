"""Promises of nncfx.tracing.calls.devices."""

import torch
from torch import nn

from nncfx.tracing.calls.devices import device_of, on_device


def test_every_structure_of_inputs_is_moved() -> None:
    one = torch.ones(1)
    moved = on_device(torch.device("meta"), {"a": [one, (one, 3)], "b": "text"})
    first, (second, number) = moved["a"]
    assert first.is_meta
    assert second.is_meta
    assert (number, moved["b"]) == (3, "text")


def test_a_model_is_where_its_first_parameter_is() -> None:
    assert device_of(nn.Linear(2, 2, device="meta")) == torch.device("meta")
    assert device_of(nn.ReLU()) == torch.device("cpu")
