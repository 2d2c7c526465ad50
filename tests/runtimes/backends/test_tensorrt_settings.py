"""Settings of a TensorRT build: read from text, or refused with the fix."""

import pytest

from nncfx.errors import RuntimeFailure
from nncfx.runtimes import InputSpec
from nncfx.runtimes.backends.tensorrt_settings import tensorrt_settings

IMAGES = InputSpec("x", (None, 3, 8, 8), "float32")
TEXTS = InputSpec("ids", (None, None), "int64")


def test_shapes_are_read_for_several_inputs() -> None:
    found = tensorrt_settings([("minShapes", "x:1x3x8x8,ids:1x4")], "tensorrt")
    assert found.shapes == {"minShapes": {"x": (1, 3, 8, 8), "ids": (1, 4)}}


def test_an_open_batch_takes_1_to_32_unless_told() -> None:
    low, usual, high = tensorrt_settings([], "tensorrt").shapes_of(IMAGES)
    assert (low, usual, high) == ((1, 3, 8, 8), (8, 3, 8, 8), (32, 3, 8, 8))


def test_shapes_that_are_not_given_take_the_nearest() -> None:
    found = tensorrt_settings([("optShapes", "ids:2x5"), ("maxShapes", "ids:4x9")], "tensorrt")
    assert found.shapes_of(TEXTS) == ((2, 5), (2, 5), (4, 9))


@pytest.mark.parametrize("text", ["8.9", "SM89", "sm89", "89"])
def test_a_compute_capability_may_be_spelt_as_people_spell_it(text: str) -> None:
    found = tensorrt_settings([("computeCapability", text)], "tensorrt_rtx")
    assert found.compute_capability == "SM89"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("optShape", "x:1"), r"no tensorrt_rtx setting 'optShape'. Did you mean 'optShapes'\?"),
        (("optShapes", "x=1x3"), "does not name inputs and their sizes. Write 'x:8x3x224x224'"),
        (("computeCapability", "Ada"), "computeCapability is 'Ada'; write it as '8.9'"),
        (("builderOptimizationLevel", "6"), "is '6'; it is a whole number, 0 to 5"),
        (("builderOptimizationLevel", "-1"), "is '-1'; it is a whole number"),
        (("int8", "some"), "no value of int8 'some'. Known are paired, all, any"),
        (("timingCacheFile", "t.cache"), "TensorRT for RTX times nothing"),
    ],
)
def test_a_setting_that_is_none_is_refused(setting: tuple[str, str], message: str) -> None:
    with pytest.raises(RuntimeFailure, match=message):
        tensorrt_settings([setting], "tensorrt_rtx")


def test_shapes_out_of_order_are_refused() -> None:
    found = tensorrt_settings([("minShapes", "ids:4x4"), ("optShapes", "ids:2x8")], "tensorrt")
    with pytest.raises(RuntimeFailure, match=r"not in order: min \(4, 4\), opt \(2, 8\)"):
        found.shapes_of(TEXTS)


def test_shapes_that_are_not_the_models_are_refused() -> None:
    found = tensorrt_settings([("optShapes", "x:2x4x8x8")], "tensorrt")
    with pytest.raises(RuntimeFailure, match=r"cannot have shape \(2, 4, 8, 8\)"):
        found.shapes_of(IMAGES)


def test_shapes_of_an_input_that_is_not_there_are_refused() -> None:
    found = tensorrt_settings([("optShapes", "image:2x4")], "tensorrt")
    with pytest.raises(RuntimeFailure, match=r"names input 'image'.*Did you mean 'images'\?"):
        found.check_names(["images"])


def test_an_open_axis_besides_the_batch_must_be_told() -> None:
    with pytest.raises(RuntimeFailure, match="open axes besides the batch"):
        tensorrt_settings([], "tensorrt").shapes_of(TEXTS)
