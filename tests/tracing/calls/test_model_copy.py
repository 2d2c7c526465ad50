"""Promises of nncfx.tracing.calls.model_copy."""

from torch import nn

from nncfx.tracing.calls.model_copy import copy_of


def test_a_copied_parameter_keeps_what_was_set_on_it() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.width = 4.0  # type: ignore[attr-defined]
    made = copy_of(layer)
    assert made.weight is not layer.weight
    assert made.weight.width == 4.0  # type: ignore[attr-defined]
