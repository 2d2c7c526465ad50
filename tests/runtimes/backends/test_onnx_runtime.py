"""ONNX Runtime: refusals in one paragraph, and the settings that it is given."""

import json
import sys
from pathlib import Path

import onnxruntime
import pytest
import torch

from nncfx.errors import MissingExtraError, RuntimeFailure
from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, TimingPlan, time_sessions
from nncfx.runtimes.backends.onnx_runtime import OnnxRuntime


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match=r"There is no file '.*nowhere.onnx'"):
        OnnxRuntime().build(tmp_path / "nowhere.onnx", BuildOptions())


def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(RuntimeFailure, match=r"ONNX Runtime [\d.]+ refuses '.*m.onnx'") as caught:
        OnnxRuntime().build(path, BuildOptions(profile=True))
    assert "\n" not in str(caught.value)


def test_a_missing_package_names_the_extra(
    exported: ExportResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"'onnxruntime' is not .*'nncfx\[onnxruntime\]'"):
        OnnxRuntime().build(exported, BuildOptions())


def test_a_profile_lists_every_run(exported: ExportResult, inputs: torch.Tensor) -> None:
    with OnnxRuntime().build(exported, BuildOptions(threads=1, profile=True)) as session:
        for _ in range(3):
            session.run(inputs)
        events = json.loads(session.finish_profile())
    assert [event["name"] for event in events].count("model_run") == 3


def test_a_session_without_profile_says_how_to_get_one(exported: ExportResult) -> None:
    with (
        OnnxRuntime().build(exported, BuildOptions()) as session,
        pytest.raises(RuntimeFailure, match=r"BuildOptions\(profile=True\)"),
    ):
        session.finish_profile()


def test_inputs_tell_name_shape_and_type(exported: ExportResult) -> None:
    with OnnxRuntime().build(exported, BuildOptions()) as session:
        (spec,) = session.inputs
    assert (spec.name, spec.shape, spec.dtype) == ("input", (None, 3, 8, 8), "float32")


WITHOUT_VNNI = {"architecture": "x86_64", "avx2": True}
WITH_VNNI = {"architecture": "x86_64", "avx512_vnni": True}
ARM = {"architecture": "aarch64", "neon": True}


@pytest.mark.parametrize(
    ("known", "settings", "expected"),
    [
        (WITHOUT_VNNI, (), ("1", "exact by the slower kernels (no VNNI known)")),
        (WITH_VNNI, (), (None, "plain kernels, which are exact here")),
        (ARM, (), (None, "plain kernels, which are exact here")),
        (WITHOUT_VNNI, (("session.x64quantprecision", "0"),), ("0", "as asked: 0")),
        (WITH_VNNI, (("session.x64quantprecision", "1"),), ("1", "as asked: 1")),
    ],
)
def test_exact_products_of_bytes_are_asked_for_only_where_sums_saturate(
    exported: ExportResult,
    inputs: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    known: dict[str, object],
    settings: tuple[tuple[str, str], ...],
    expected: tuple[str | None, str],
) -> None:
    """With VNNI the entry costs more than half of the speed, and without it nothing is right."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    given: dict[str, str] = {}
    kept = onnxruntime.SessionOptions.add_session_config_entry

    def noted(self: object, key: str, value: str) -> None:
        given[key] = value
        kept(self, key, value)

    monkeypatch.setattr(onnxruntime.SessionOptions, "add_session_config_entry", noted)
    with OnnxRuntime().build(exported, BuildOptions(settings=settings)) as session:
        timing = time_sessions({"one": session}, inputs, plan=TimingPlan(seconds=0.0))["one"]
    entry, told = expected
    assert given.get("session.x64quantprecision") == entry
    assert timing.byte_products == told
