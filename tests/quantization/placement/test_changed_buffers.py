"""A buffer that a forward writes to is no weight, and what multiplies by it says so."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

import nncfx
from nncfx.quantization import Quantizer, plan_quantizers
from nncfx.quantization.placement.changed_buffers import ChangedBuffers, changed_buffers
from nncfx.targets import hardware_named


class MemoryBank(nn.Module):
    """Compares with a queue of features, into which training puts its own (He et al. 2020)."""

    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(8, 8)
        self.register_buffer("queue", torch.randn(8, 16))

    def forward(self, x: Tensor) -> Tensor:
        features = self.encode(x)
        likeness: Tensor = features @ self.queue
        if self.training:
            with torch.no_grad():
                self.queue[:, : len(x)] = 100 * features.T
        return likeness


class Codebook(nn.Module):
    """Gives the nearest of some codes, which training moves (van den Oord et al. 2017)."""

    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("codes", torch.randn(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.encode(x)
        squares = self.codes.square().sum(1)
        nearest = (squares - 2 * x @ self.codes.t()).argmin(1)
        if self.training:
            chosen = F.one_hot(nearest, 16).to(x)
            self.codes.data.lerp_(chosen.T @ x, 0.1)
        decoded: Tensor = self.decode(F.embedding(nearest, self.codes))
        return decoded


CONFIG: dict[str, Any] = {
    "input_info": {"sample_size": [4, 8]},
    "compression": {
        "algorithm": "quantization",
        "initializer": {"range": {"num_init_samples": 0}},
    },
}


@pytest.mark.parametrize("kind", [MemoryBank, Codebook])
@pytest.mark.parametrize("by_config", [False, True])
def test_what_training_writes_arrives(kind: type[nn.Module], by_config: bool) -> None:
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(4, 8)
    name = next(name for name, _ in model.named_buffers())
    if by_config:
        _, model = nncfx.create_compressed_model(model, CONFIG)
    else:
        model = nncfx.quantize(model, [x])
    before = dict(model.named_buffers())[name].clone()
    model.train()(x)
    assert not torch.equal(dict(model.named_buffers())[name], before)


def test_products_with_it_stay_in_float_and_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    model = nncfx.quantize(MemoryBank(), [torch.randn(4, 8)])
    assert "its weight is 'queue', which the forward changes in training" in caplog.text
    assert {str(one.site) for one in model.nncf.hooks} == {
        "MemoryBank/Linear[encode]/linear_0|INPUT0",
        "encode.weight",
    }


def test_distances_and_look_ups_stay_in_float() -> None:
    model = nncfx.wrap(Codebook(), torch.randn(4, 8))
    changed = changed_buffers(model)
    plan = plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"), changed=changed)
    reasons = {one.address: one.reason for one in plan.float_operations}
    problem = "its weight is 'codes', which the forward changes in training"
    assert reasons["Codebook/__matmul___0"] == problem
    assert reasons["Codebook/embedding_0"] == problem
    assert [one.parameter for one in plan.weights] == ["encode.weight", "decode.weight"]


def test_a_buffer_that_helps_to_compute_a_weight_in_training_leaves_it_a_weight() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), spectral_norm(nn.Linear(8, 8))).eval()
    x = torch.randn(4, 4)
    buffers = {name for name, _ in model.named_buffers()}
    quantized = nncfx.quantize(model, [x])
    assert changed_buffers(quantized) == ChangedBuffers(training=frozenset(buffers))
    specs = [one.hook.spec for one in quantized.nncf.hooks if isinstance(one.hook, Quantizer)]
    assert [one.axis for one in specs] == [None, 0, None, 0]


def test_a_buffer_that_evaluation_writes_to_is_never_part_of_a_weight() -> None:
    class Counting(nn.Linear):
        factor: Tensor

        def __init__(self) -> None:
            super().__init__(8, 8)
            self.register_buffer("factor", torch.ones(8, 1))

        def forward(self, x: Tensor) -> Tensor:
            result = F.linear(x, self.weight * self.factor, self.bias)
            self.factor *= 0.5
            return result

    torch.manual_seed(0)
    model = nncfx.wrap(nn.Sequential(nn.Linear(8, 8), Counting()), torch.randn(2, 8))
    changed = changed_buffers(model)
    plan = plan_quantizers(model.nncf.graph, hardware_named("onnxruntime"), changed=changed)
    assert [one.parameter for one in plan.weights] == ["0.weight"]
    (left,) = [one for one in plan.float_operations if one.kind == "linear"]
    assert left.reason == "its weight is '1.factor', which the forward changes"


def test_where_training_cannot_be_tried_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Distributed(MemoryBank):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                torch.distributed.barrier()
            return super().forward(x)

    with caplog.at_level(logging.WARNING):
        model = nncfx.quantize(Distributed().eval(), [torch.randn(4, 8)])
    assert "as weights: 'queue'. Whether training changes them is not known" in caplog.text
    assert "queue" in {str(one.site) for one in model.nncf.hooks}


def test_models_without_such_buffers_run_no_forward_for_it() -> None:
    class Training(nn.BatchNorm1d):
        def forward(self, x: Tensor) -> Tensor:
            assert not self.training
            return super().forward(x)

    model = nn.Sequential(nn.Linear(8, 8), Training(8), nn.Linear(8, 8)).eval()
    wrapped = nncfx.wrap(model, torch.randn(2, 8))
    assert changed_buffers(wrapped) == ChangedBuffers()
