"""Promises of nncfx.tracing.calls.preservation."""

import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import TracingError
from nncfx.tracing import Insertion, PostSite, Priority, trace
from nncfx.tracing.calls.preservation import drop_kept, preserved


def test_buffers_come_back_by_value_and_by_identity() -> None:
    norm = nn.BatchNorm1d(2)
    mean, count = norm.running_mean, norm.num_batches_tracked
    with preserved(norm, train=True):
        norm(torch.randn(4, 2))
        norm.num_batches_tracked = torch.tensor(9)
    assert norm.running_mean is mean
    assert torch.equal(mean, torch.zeros(2))
    assert norm.num_batches_tracked is count
    assert count == 0


def test_a_buffer_that_did_not_change_is_not_written() -> None:
    norm = nn.BatchNorm1d(2).eval()
    version = norm.running_mean._version
    with preserved(norm):
        norm(torch.randn(4, 2))
    assert norm.running_mean._version == version


def test_all_is_restored_when_the_forward_fails() -> None:
    drop = nn.Sequential(nn.Dropout(), nn.Linear(1, 1))
    random = torch.get_rng_state()
    with pytest.raises(RuntimeError), preserved(drop, train=False):
        drop(torch.rand(3))
    assert drop[0].training
    assert torch.equal(torch.get_rng_state(), random)


def test_a_sparse_buffer_stays_what_it_is() -> None:
    """OpenAI's Whisper marks the heads that align words with sound in one."""
    model = nn.Linear(2, 2)
    model.register_buffer("heads", torch.eye(2).to_sparse(), persistent=False)
    heads = model.heads
    with preserved(model):
        model(torch.zeros(1, 2))
    assert model.heads is heads


class _Biased(nn.Module):
    """Keeps what it computes of its parameter while it evaluates, as timm's attentions do."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(2))
        self.layer = nn.Linear(2, 2)
        self.kept: dict[str, torch.Tensor] = {}

    def train(self, mode: bool = True) -> "_Biased":
        self.kept = {}
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            return self.layer(x) + 2 * self.bias
        if not self.kept:
            self.kept["cpu"] = 2 * self.bias
        return self.layer(x) + self.kept["cpu"]


def _evaluated() -> _Biased:
    model = _Biased().eval()
    with torch.no_grad():
        model(torch.zeros(1, 2))
    return model


def test_a_trace_sees_the_weights_of_what_an_evaluation_kept() -> None:
    model = _evaluated()
    kept = model.kept["cpu"]
    graph = trace(model, torch.zeros(1, 2))
    assert "bias" in {name for one in graph.operations for name in one.parameters.values()}
    assert model.kept["cpu"] is kept
    assert not model.training


class _Renaming(nn.Module):
    """Its first forward says what it has set up in as many attributes as before, of no value."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.known = None, [1]
        self.last = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "before"):
            del self.before
            self.after = None
            self.known.append(2)
            self.last.register_forward_hook(lambda *_: None)
        return self.last(x)


def test_attributes_and_hooks_that_a_forward_adds_are_gone() -> None:
    model = _Renaming().eval()
    trace(model, torch.zeros(1, 2))
    assert not hasattr(model, "after")
    assert model.known == [1]
    assert not model.last._forward_hooks


def test_a_dropout_that_is_on_in_evaluation_stays_on() -> None:
    model = nn.Sequential(_evaluated(), nn.Dropout().train())
    drop_kept(model)
    assert model[0].kept == {}
    assert [one.training for one in model] == [False, True]


def test_hooks_keep_their_modes_when_caches_are_dropped() -> None:
    model = nncfx.wrap(nn.Sequential(_evaluated()).eval(), torch.ones(1, 2))
    hook = nn.Dropout().eval()
    address = model.nncf.graph.addresses[-1]
    with model.nncf.register(Insertion(PostSite(address), hook, Priority.STATISTICS, "test")):
        model.nncf.commit()
        drop_kept(model)
        assert not hook.training


class _Weighted(_Biased):
    """Keeps the matrix that it multiplies with while it evaluates."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training or not self.kept:
            self.kept["cpu"] = self.layer.weight
        return nn.functional.linear(x, self.kept["cpu"])


def _quantized(model: nn.Module, x: torch.Tensor) -> nn.Module:
    return nncfx.quantize(model, [x])


def _masked(model: nn.Module, x: torch.Tensor) -> nn.Module:
    item = {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}
    return nncfx.create_compressed_model(model, {"compression": item}, x)[1]


@pytest.mark.parametrize("compressed", [_quantized, _masked])
def test_a_model_that_has_evaluated_computes_with_compressed_weights(
    compressed: Callable[[nn.Module, torch.Tensor], nn.Module],
) -> None:
    model, x = _Weighted().eval(), torch.ones(1, 2)
    with torch.no_grad():
        dense = model(x)
        small = compressed(model, x)
        seen = small(x)
        assert not seen.equal(dense)
        assert seen.equal(small.train().eval()(x))


@pytest.mark.parametrize("name", ["model.safetensors", "model.nncfx"])
def test_a_model_that_has_evaluated_computes_with_the_weights_of_a_file(
    tmp_path: Path, name: str
) -> None:
    x, model = torch.ones(1, 2), _evaluated()
    trained = _Biased().eval()
    trained.bias.data = torch.tensor([3.0, 4.0])
    (nncfx.storage.save if name.endswith("nncfx") else nncfx.save)(tmp_path / name, trained)
    _, loaded = nncfx.load(tmp_path / name, model)
    assert torch.equal(loaded(x), trained(x))


def test_so_does_one_whose_training_goes_on(tmp_path: Path) -> None:
    x = torch.ones(1, 2)
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    controller, trained = nncfx.create_compressed_model(_Biased().eval(), config, x)
    trained.bias.data = torch.tensor([3.0, 4.0])
    nncfx.save(tmp_path / "training.safetensors", trained, controller)
    _, loaded = nncfx.load(tmp_path / "training.safetensors", _evaluated())
    assert torch.equal(loaded.eval()(x), trained.eval()(x))


class _Folding(nn.Module):
    """Two convolutions that each forward multiplies into the weight of one, as those of SPAN."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(16, 32, 1)
        self.narrow = nn.Conv2d(32, 16, 3, bias=False)
        self.folded = nn.Conv2d(16, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.wide.weight.data.permute(1, 0, 2, 3)
        self.folded.weight.data = nn.functional.conv2d(self.narrow.weight.data, inner)
        return self.folded(x)


@pytest.mark.parametrize("look", [nncfx.wrap, nncfx.thinning.prunable_channels])
def test_weights_whose_data_a_forward_sets_are_put_back(look: Callable[..., object]) -> None:
    model = _Folding()
    weights = {name: one.clone() for name, one in model.named_parameters()}
    places = [one.data_ptr() for one in model.parameters()]
    look(model, torch.randn(1, 16, 8, 8))
    assert [one.data_ptr() for one in model.parameters()] == places
    for name, one in model.named_parameters():
        assert torch.equal(one, weights[name]), name


class _Fusing(nn.Module):
    """Evaluation makes one layer of two branches; training drops it."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.last = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
        self.fused: nn.Linear | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor
        if self.training:
            self.fused = None
            y = self.last((self.wide(x) + self.narrow(x)).relu())
            return y
        if self.fused is None:
            self.fused = nn.Linear(3, 4)
            self.fused.weight.data = self.wide.weight.data + self.narrow.weight.data
            self.fused.bias.data = self.wide.bias.data + self.narrow.bias.data
        y = self.last(self.fused(x).relu())
        return y


def test_a_trace_of_training_leaves_the_layer_that_evaluation_made() -> None:
    model, x = _Fusing().eval(), torch.randn(5, 3)
    model(x)
    fused = model.fused
    trace(model, x, train=True)
    assert model.fused is fused is not None


def test_a_model_that_fuses_its_branches_is_thinned() -> None:
    config = {"algorithm": "structure_pruning", "pruning_init": 0.5, "params": {"align": 1}}
    _, model = nncfx.create_compressed_model(
        _Fusing().eval(), {"compression": config}, torch.randn(5, 3)
    )
    assert nncfx.thin(model).model.last.in_features == 2


@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("width", [2, 3])  # the model refuses inputs of the second
def test_a_trace_leaves_garbage_collection_as_it_was(width: int, *, is_enabled: bool) -> None:
    seen = []
    model = nn.Sequential(nn.Linear(2, 2))
    model.register_forward_pre_hook(lambda *_: seen.append(gc.isenabled()))
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        with suppress(TracingError):
            nncfx.wrap(model, torch.zeros(1, width))
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
    assert seen
    assert not any(seen)
