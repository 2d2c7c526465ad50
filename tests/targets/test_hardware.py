"""Hardware descriptions: valid by construction, and through JSON."""

import hashlib
import json
import pickle

import pytest

from nncfx.errors import ArgumentError
from nncfx.targets import Descriptor, Hardware, hardware_named, names

INT8 = Descriptor(inputs=("uint8", "int8"), output="uint8")
FLOAT = Descriptor(inputs=("float32",), output="float32")


@pytest.mark.parametrize("name", names("kernels"))
def test_a_description_survives_json_and_pickle(name: str) -> None:
    hardware = hardware_named(name)
    assert Hardware.from_json(hardware.to_json()) == hardware
    assert pickle.loads(pickle.dumps(hardware)) == hardware  # noqa: S301 (our own)


def test_the_text_of_a_description_from_before_saturating_sums_is_what_it_was() -> None:
    # logs of Hago's searches hold a digest of it, and refuse to go on with another
    digest = hashlib.sha256(hardware_named("onnxruntime").to_json().encode()).hexdigest()
    assert digest[:16] == "ded8503d7b20ffc9"


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'onnxruntime'"):
        hardware_named("onnxruntim")


def test_a_misspelt_kind_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'linear'"):
        Hardware(name="x", operations={"linaer": (INT8,)})


def test_a_misspelt_kind_in_a_chain_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'rellu'"):
        Hardware(name="x", operations={}, fused=(("conv", "relu|rellu"),))


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"description 'int7'\. Did you mean 'int8'"):
        Descriptor(inputs=("int7",), output="int8")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "not JSON"),
        ("{}", r"\$.name is missing.*\$.operations is missing"),
        (json.dumps({"name": "x", "operations": {"conv": [{"inputs": []}]}}), "operations.conv"),
        (
            json.dumps({"name": "x", "operations": {}, "size": 3}),
            r"\$.size is not a field of Hardware",
        ),
        (json.dumps({"name": "x", "operations": {}, "alignment": 0}), "alignment"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(text: str, place: str) -> None:
    with pytest.raises(ArgumentError, match=place):
        Hardware.from_json(text)


def test_the_last_input_dtype_holds_for_further_inputs() -> None:
    assert [INT8.input(i) for i in range(4)] == ["uint8", "int8", "int8", "int8"]


def test_the_preferred_descriptor_is_the_first_with_narrow_inputs() -> None:
    wide = Descriptor(inputs=("int32",), output="int32")
    hardware = Hardware(name="x", operations={"add": (FLOAT, wide, INT8)})
    assert hardware.quantized("add") == INT8
    assert hardware.quantized("mul") is None


def test_integer_and_float_descriptors_are_told_apart() -> None:
    mixed = Descriptor(inputs=("int8",), output="float32")
    assert INT8.is_integer and not INT8.is_float  # noqa: PT018 (one promise)
    assert FLOAT.is_float and not FLOAT.is_integer  # noqa: PT018 (one promise)
    assert not mixed.is_float and not mixed.is_integer  # noqa: PT018 (one promise)


@pytest.mark.parametrize(
    ("chain", "is_fused"),
    [
        (["conv"], False),
        (["conv", "batch_norm"], True),
        (["conv", "batch_norm", "relu"], True),
        (["conv", "batch_norm", "relu", "add"], False),
        (["relu", "conv"], False),
        (["add", "clip"], True),
    ],
)
def test_a_chain_is_fused_if_a_pattern_begins_with_it(chain: list[str], is_fused: bool) -> None:
    assert hardware_named("onnxruntime").is_fused(chain) is is_fused


def test_every_predefined_target_names_a_kernel_for_convolutions() -> None:
    for name in names("kernels"):
        descriptor = hardware_named(name).quantized("conv")
        assert descriptor is not None
        assert descriptor.is_integer or "float8" in descriptor.output
