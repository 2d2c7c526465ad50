"""OpenVINO: what holds without it; the rest is in the conformance suite."""

import sys

import pytest

from nncfx.errors import MissingExtraError
from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named


def test_a_missing_package_names_the_extra(
    exported: ExportResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"'openvino' is not .*'nncfx\[openvino\]'"):
        runtime_named("openvino").build(exported, BuildOptions())
