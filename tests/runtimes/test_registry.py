"""Runtimes are found by name."""

import pytest

from nncfx import runtimes
from nncfx.errors import ArgumentError
from nncfx.runtimes import RUNTIMES, runtime_named


def test_each_runtime_is_found_under_its_own_name() -> None:
    assert {name: runtime_named(name).name for name in RUNTIMES} == {
        name: name for name in RUNTIMES
    }


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ArgumentError, match=r"no runtime 'onnx_runtime'.* 'onnxruntime'\?"):
        runtime_named("onnx_runtime")


def test_the_public_names_are_sorted_constants_first() -> None:
    key = lambda name: (not name.isupper(), not name[0].isupper(), name)  # noqa: E731 (read once)
    assert sorted(runtimes.__all__, key=key) == runtimes.__all__
