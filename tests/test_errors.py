"""What all errors share: values that would be taken silently for others are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import ArgumentError
from nncfx.lc import LC
from nncfx.quantization import PlacementOptions, QuantizeOptions, SpecRequest, WeightSettings
from nncfx.runtimes import BuildOptions
from nncfx.schemes import FilterPrune
from nncfx.targets import Alignment

NET, INPUTS = nn.Linear(4, 4), torch.ones(1, 4)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("equalize", QuantizeOptions),
        ("correct_biases", QuantizeOptions),
        ("signed", SpecRequest),
        ("quantize_inputs", PlacementOptions),
        ("half_scales", WeightSettings),
        ("multipliers", LC),
        ("prune_bias", FilterPrune),
        ("down", lambda **no: Alignment(8, **no)),
        ("profile", BuildOptions),
        ("inplace", lambda **no: nncfx.quantize(NET, [INPUTS], **no)),
        ("inplace", lambda **no: nncfx.quantize_weights(NET, example_inputs=INPUTS, **no)),
        ("inplace", lambda **no: nncfx.thin(NET, INPUTS, **no)),
        ("dynamic_batch", lambda **no: nncfx.export_onnx(NET, "x.onnx", INPUTS, **no)),
        ("integers", lambda **no: nncfx.save("x.safetensors", NET, **no)),
    ],
)
def test_strings_count_as_neither_true_nor_false(name: str, made: Callable[..., Any]) -> None:
    message = (
        f"^{name} is 'no', and every string counts as true. Write {name}=True or {name}=False"
    )
    with pytest.raises(ArgumentError, match=message):
        made(**{name: "no"})
