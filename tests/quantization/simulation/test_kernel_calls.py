"""What a call of torch does is read from its arguments, however they are given."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nncfx.quantization.simulation.kernel_calls import (
    Call,
    clamp_bounds,
    is_choice,
    is_over_channels,
    is_whole_image,
    resizing,
)

IMAGES = torch.ones(1, 2, 4, 6)
INFINITE = float("inf")


def call(func: Any, *args: Any, **kwargs: Any) -> Call:  # noqa: ANN401 (as torch's functions)
    return Call(func, args, kwargs)


@pytest.mark.parametrize("made", [call(F.relu, -IMAGES), call(F.relu, input=-IMAGES)])
def test_a_call_is_made_on_its_tensor_or_another_one(made: Call) -> None:
    assert torch.equal(made.x, -IMAGES)
    assert not made.run().any()
    assert torch.equal(made.on(2 * IMAGES), 2 * IMAGES)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(F.pad, IMAGES, (1, 1)), True),
        (call(F.pad, IMAGES, (1, 1), "constant", 0.0), True),
        (call(F.pad, IMAGES, (1, 1), "constant", 0.5), False),
        (call(F.pad, IMAGES, (1, 1), value=0.5), False),
        (call(F.pad, IMAGES, (1, 1, 1, 1), "reflect"), True),
        (call(F.dropout, IMAGES), False),
        (call(F.dropout, IMAGES, 0.5, False), True),
        (call(F.dropout, IMAGES, training=False), True),
        (call(F.max_pool2d, IMAGES, 2), True),
    ],
)
def test_elements_are_chosen_where_no_others_come_in(made: Call, expected: bool) -> None:
    assert is_choice(made) == expected
    result = made.run()
    assert expected == set(result.unique().tolist()).issubset({0.0, 1.0})


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(torch.mean, IMAGES, 1), True),
        (call(torch.mean, IMAGES, dim=-3), True),
        (call(torch.mean, IMAGES, [1], keepdim=True), True),
        (call(torch.mean, IMAGES, (2, 3)), False),
        (call(torch.mean, IMAGES, (1, 2)), False),
        (call(torch.mean, IMAGES), False),
        (call(F.adaptive_avg_pool2d, IMAGES, 1), False),
    ],
)
def test_a_mean_over_channels_is_over_no_other_axis(made: Call, expected: bool) -> None:
    assert is_over_channels(made) == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(F.relu, IMAGES), (0.0, INFINITE)),
        (call(torch.Tensor.relu_, IMAGES), (0.0, INFINITE)),
        (call(F.relu6, IMAGES), (0.0, 6.0)),
        (call(F.hardtanh, IMAGES), (-1.0, 1.0)),
        (call(F.hardtanh, IMAGES, -2.0, max_val=3.0), (-2.0, 3.0)),
        (call(torch.clamp, IMAGES, 0.5), (0.5, INFINITE)),
        (call(torch.clamp, IMAGES, max=0.5), (-INFINITE, 0.5)),
        (call(torch.clamp, IMAGES, torch.zeros(6)), None),
    ],
)
def test_a_clamp_lets_pass_what_its_function_does(
    made: Call, expected: tuple[float, float] | None
) -> None:
    bounds = clamp_bounds(made)
    assert bounds == expected
    if bounds is not None:
        x = torch.linspace(-9, 9, 99)
        assert torch.equal(made.on(x), x.clamp(*bounds))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call(F.avg_pool2d, IMAGES, (4, 6)), True),
        (call(F.avg_pool2d, IMAGES, kernel_size=(4, 6), padding=0), True),
        (call(F.avg_pool2d, IMAGES, (4, 6), padding=(1, 0)), False),
        (call(F.avg_pool2d, IMAGES, 4), False),
        (call(F.avg_pool2d, IMAGES[..., :4], 4), True),
    ],
)
def test_a_window_is_the_image_if_it_has_its_size_and_nothing_around(
    made: Call, expected: bool
) -> None:
    assert is_whole_image(made) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"scale_factor": 2.0, "mode": "bilinear"}, ((2.0, 2.0), False)),
        ({"scale_factor": (2.0, 1.5), "mode": "bilinear"}, ((2.0, 1.5), False)),
        ({"size": (6, 9), "mode": "bilinear", "align_corners": True}, ((1.5, 1.5), True)),
        # 2.3 times 4 is 9 rows, and 6 columns become 13; of sizes, only these count
        (
            {"scale_factor": 2.3, "mode": "bilinear", "recompute_scale_factor": True},
            ((9 / 4, 13 / 6), False),
        ),
        ({"scale_factor": 2.3, "mode": "bilinear"}, ((2.3, 2.3), False)),
        ({"scale_factor": 0.5, "mode": "bilinear", "antialias": True}, None),
        ({"scale_factor": 2.0}, None),
    ],
)
def test_resizing_is_by_what_was_asked_for(
    given: dict[str, Any], expected: tuple[tuple[float, float], bool] | None
) -> None:
    made = call(F.interpolate, IMAGES, **given)
    assert resizing(made, made.run()) == expected


def test_images_of_other_floats_are_not_resized_as_float32() -> None:
    images: Tensor = IMAGES.double()
    made = call(F.interpolate, images, scale_factor=2.0, mode="bilinear")
    assert resizing(made, made.run()) is None
