"""How an engine is loaded and run, against stand-ins that know only TensorRT's own names.

There is no GPU here: each stand-in is made from the class of the real bindings, so that a name
that TensorRT does not have is an error, and "GPU memory" is ordinary memory.
"""

import ctypes
import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, create_autospec

import numpy as np
import pytest
import torch

from nncfx.errors import RuntimeFailure
from nncfx.export import ExportResult
from nncfx.runtimes import BuildOptions, runtime_named
from nncfx.runtimes.backends.tensorrt_runtime import TensorRtSession

bindings: Any = pytest.importorskip(
    "tensorrt_rtx_bindings", reason="tensorrt-rtx-cu13-bindings is not installed"
)


class Gpu:
    """What was done with the stand-ins; its engine answers 7.0 at every output."""

    def __init__(self) -> None:
        self.context = create_autospec(bindings.IExecutionContext, instance=True)
        self.engine = create_autospec(bindings.ICudaEngine, instance=True)
        self.runtime = create_autospec(bindings.Runtime, instance=True)
        self.inspector = create_autospec(bindings.EngineInspector, instance=True)
        self.runtime.deserialize_cuda_engine.return_value = self.engine
        self.engine.create_execution_context.return_value = self.context
        self.engine.create_engine_inspector.return_value = self.inspector
        self.inspector.get_engine_information.return_value = json.dumps({"Layers": []})
        self.addresses: dict[str, int] = {}
        self.batch = 0
        self.synchronized = 0
        self.context.set_input_shape.side_effect = self._shaped
        self.context.get_tensor_shape.side_effect = lambda _: (self.batch, 5)
        self.context.set_tensor_address.side_effect = self.addresses.__setitem__
        self.context.execute_async_v3.side_effect = self._executed

    def stream(self) -> SimpleNamespace:
        return SimpleNamespace(cuda_stream=3, synchronize=self._waited)

    def _shaped(self, _name: str, shape: tuple[int, ...]) -> bool:
        self.batch = shape[0]
        return self.batch <= 32

    def _executed(self, stream: int) -> bool:
        assert stream == 3
        (output,) = (place for name, place in self.addresses.items() if name != "input")
        memory = (ctypes.c_float * (self.batch * 5)).from_address(output)
        memory[:] = [7.0] * (self.batch * 5)
        return True

    def _waited(self) -> None:
        self.synchronized += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", found.stream)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    monkeypatch.setattr(torch, "empty", lambda *a, device, dtype: empty(*a, dtype=dtype))  # noqa: ARG005 (torch.empty's name)
    monkeypatch.setattr(bindings, "Runtime", MagicMock(return_value=found.runtime))
    return found


@pytest.fixture
def session(exported: ExportResult) -> TensorRtSession:
    options = BuildOptions(settings=(("computeCapability", "8.9"),))
    return runtime_named("tensorrt_rtx").build(exported, options)


def test_a_bound_call_executes_and_waits(session: TensorRtSession, gpu: Gpu) -> None:
    call = session.bind(torch.ones(2, 3, 8, 8))
    assert (gpu.context.execute_async_v3.call_count, gpu.synchronized) == (0, 0)
    (output,) = session.as_arrays(call())
    np.testing.assert_array_equal(output, np.full((2, 5), 7.0, np.float32))
    assert (gpu.context.execute_async_v3.call_count, gpu.synchronized) == (1, 1)


def test_the_engine_that_was_built_is_the_one_that_is_loaded(
    session: TensorRtSession, gpu: Gpu
) -> None:
    session.bind(torch.ones(2, 3, 8, 8))
    gpu.runtime.deserialize_cuda_engine.assert_called_once_with(session.serialized)
    assert "input" in gpu.addresses


def test_a_batch_outside_of_the_profile_is_refused(session: TensorRtSession, gpu: Gpu) -> None:
    assert gpu.batch == 0
    with pytest.raises(RuntimeFailure, match=r"\(33, 3, 8, 8\), outside of the shapes"):
        session.bind(torch.ones(33, 3, 8, 8))


def test_a_failing_execution_is_told(session: TensorRtSession, gpu: Gpu) -> None:
    call = session.bind(torch.ones(2, 3, 8, 8))
    gpu.context.execute_async_v3.side_effect = lambda _: False
    with pytest.raises(RuntimeFailure, match="tensorrt_rtx failed on"):
        call()


def test_an_engine_that_does_not_load_is_told(session: TensorRtSession, gpu: Gpu) -> None:
    gpu.runtime.deserialize_cuda_engine.return_value = None
    with pytest.raises(RuntimeFailure, match="does not load its engine"):
        session.bind(torch.ones(2, 3, 8, 8))


def test_the_inspector_tells_the_layers_as_json(session: TensorRtSession, gpu: Gpu) -> None:
    assert json.loads(session.inspect()) == {"Layers": []}
    gpu.inspector.get_engine_information.assert_called_once_with(
        bindings.LayerInformationFormat.JSON
    )


def test_its_time_is_never_cpu_time(session: TensorRtSession) -> None:
    assert not session.in_one_thread
