"""The targets of an export."""

import pytest

from nncfx import export
from nncfx.errors import ArgumentError
from nncfx.targets.targets import TARGETS, target_named


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ArgumentError, match=r"no export target 'onnx_runtime'.*'onnxruntime'\?"):
        target_named("onnx_runtime")


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_target_reads_the_operator_set_that_it_is_given(name: str) -> None:
    target = target_named(name)
    assert target.name == name
    assert target.opset <= target.newest_opset


def test_the_public_names_are_sorted() -> None:
    assert sorted(export.__all__, key=lambda name: (not name.isupper(), name)) == export.__all__
