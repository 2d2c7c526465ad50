"""Execution providers of ONNX Runtime: by short name, with options, never quietly another one."""

import pytest
import torch

from nncfx.errors import MissingExtraError, RuntimeFailure
from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named
from nncfx.runtimes.backends.onnx_runtime_provider import check_started, chosen_provider

ALL = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"]
PLAIN = ["CPUExecutionProvider"]


def options(*settings: tuple[str, str], threads: int | None = None) -> BuildOptions:
    return BuildOptions(settings=settings, threads=threads)


def test_without_a_setting_the_cpu_computes() -> None:
    assert chosen_provider(options(), PLAIN).with_fallback() == [("CPUExecutionProvider", {})]


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("cuda", "CUDAExecutionProvider"),
        ("tensorrt", "TensorrtExecutionProvider"),
        ("openvino", "OpenVINOExecutionProvider"),
        ("CUDAExecutionProvider", "CUDAExecutionProvider"),
    ],
)
def test_a_provider_goes_by_its_short_name_or_its_own(short: str, name: str) -> None:
    asked = chosen_provider(options(("provider", short)), [*ALL, *PLAIN]).with_fallback()
    assert asked == [(name, {}), ("CPUExecutionProvider", {})]


def test_its_options_are_its_own_and_the_rest_is_the_sessions() -> None:
    chosen = chosen_provider(
        options(
            ("provider", "tensorrt"),
            ("provider.trt_fp16_enable", "1"),
            ("session.disable_cpu_ep_fallback", "1"),
        ),
        ALL,
    )
    assert chosen.options == (("trt_fp16_enable", "1"),)
    assert chosen.session_entries == (("session.disable_cpu_ep_fallback", "1"),)


def test_openvino_is_told_the_threads() -> None:
    chosen = chosen_provider(options(("provider", "openvino"), threads=3), ALL)
    assert chosen.options == (("num_of_threads", "3"),)


@pytest.mark.parametrize(
    ("short", "extra"),
    [
        ("cuda", "onnxruntime-gpu"),
        ("tensorrt", "onnxruntime-gpu"),
        ("openvino", "onnxruntime-openvino"),
    ],
)
def test_a_provider_of_another_build_names_the_extra(short: str, extra: str) -> None:
    with pytest.raises(MissingExtraError, match=rf"nncfx\[{extra}\]"):
        chosen_provider(options(("provider", short)), PLAIN)


def test_an_unknown_provider_is_refused_with_the_nearest() -> None:
    with pytest.raises(RuntimeFailure, match=r"provider 'cudda' here.*Did you mean 'cuda'"):
        chosen_provider(options(("provider", "cudda")), PLAIN)


def test_an_option_without_a_provider_is_refused() -> None:
    with pytest.raises(RuntimeFailure, match="CPU provider has no option 'device_id'"):
        chosen_provider(options(("provider.device_id", "1")), PLAIN)


def test_a_setting_that_can_be_no_entry_of_a_session_is_refused() -> None:
    with pytest.raises(RuntimeFailure, match=r"no setting 'prowider'.*Did you mean 'provider'"):
        chosen_provider(options(("prowider", "cuda")), PLAIN)
    entry = ("session.intra_op.allow_spinning", "0")
    assert chosen_provider(options(entry), PLAIN).session_entries == (entry,)


def test_a_provider_that_did_not_start_is_told() -> None:
    chosen = chosen_provider(options(("provider", "cuda")), ALL)
    with pytest.raises(RuntimeFailure, match="could not start CUDAExecutionProvider"):
        check_started(chosen, PLAIN)


def test_the_cpu_may_be_named(exported: ExportResult, inputs: torch.Tensor) -> None:
    runtime = runtime_named("onnxruntime")
    with runtime.build(exported, options(("provider", "cpu"), threads=1)) as session:
        assert session.in_one_thread
        assert len(session.run(inputs)) == 1
