"""Promises of nncfx.storage.models.whole_models: what is sharded or offloaded is refused."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.testing._internal import two_tensor

import nncfx
from nncfx import schemes
from nncfx.errors import NNCFXError
from nncfx.export import reorder_channels
from nncfx.export.pt2e.export_program import export_program
from nncfx.hago import prepare_graph
from nncfx.lc import DC, LC, RecoveryData
from nncfx.quantization import quantize_weights
from nncfx.storage.models.sharded_models import has_shards

X = torch.linspace(-1, 1, 16).view(2, 8)
SPARSITY = {"compression": {"algorithm": "magnitude_sparsity"}}


class Net(nn.Module):
    """Two layers, one split by rows, the other by columns."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def tensor_parallel(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)  # type: ignore[arg-type]  # its dict is invariant


def fsdp(model: nn.Module) -> nn.Module:
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def old_fsdp(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def offloaded(model: nn.Module) -> nn.Module:
    """Leave of `model` what accelerate 1.15's `disk_offload` does while no forward runs."""
    for one in (model.up, model.down):
        one._hf_hook = SimpleNamespace(offload=True)  # type: ignore[assignment]  # as accelerate
        one.to("meta")
    return model


def offloaded_with_more(model: nn.Module) -> nn.Module:
    """The same, where a second hook was added to each module."""
    offloaded(model)
    for one in (model.up, model.down):
        hooks = (SimpleNamespace(), one._hf_hook)
        one._hf_hook = SimpleNamespace(hooks=hooks)  # type: ignore[assignment]  # as accelerate
    return model


def deepspeed(model: nn.Module) -> nn.Module:
    """Leave of `model` what ZeRO 3 does between forwards."""
    for one in model.parameters():
        one.ds_id = 0  # type: ignore[attr-defined]  # as DeepSpeed
        one.data = torch.empty(0)
    return model


DATA = RecoveryData(train=[(X, X[:, :4])], validate=lambda _: 1.0, criterion=F.mse_loss)
PARTED: dict[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "tensor parallel": (tensor_parallel, r"'up\.weight', a DTensor.*nncfx\.strip.*only to run it"),
    "FSDP 2": (fsdp, r"sharded by FSDP.*nncfx\.strip.*only to run it"),
    "FSDP 1": (old_fsdp, r"sharded by FSDP.*nncfx\.strip.*only to run it"),
    "offloaded": (offloaded, r"'up\.weight' are offloaded.*remove_hook_from_module"),
    "with two hooks": (offloaded_with_more, r"'up\.weight' are offloaded.*remove_hook_from_m"),
    "DeepSpeed": (deepspeed, r"this process holds only a part of 'up\.weight'"),
}
DOORS: dict[str, Callable[[Any, Path], object]] = {
    "wrap": lambda model, _: nncfx.wrap(model, X),
    "create_compressed_model": lambda model, _: nncfx.create_compressed_model(model, SPARSITY, X),
    "thin": lambda model, _: nncfx.thin(model, X),
    "quantize": lambda model, _: nncfx.quantize(model, [X]),
    "quantize inplace": lambda model, _: nncfx.quantize(model, [X], inplace=True),
    "quantize_weights": lambda model, _: quantize_weights(model, [X]),
    "prepare_graph": lambda model, _: prepare_graph(model, X),
    "trace": lambda model, _: nncfx.tracing.trace(model, X),
    "analyze_channels": lambda model, _: nncfx.channels.analyze_channels(model, X),
    "DC": lambda model, _: DC().recover(model, schemes.Prune(), 0.5, DATA),
    "LC": lambda model, _: LC(steps=1, mb_iterations_per_l=1).recover(
        model, schemes.Prune(), 0.5, DATA
    ),
    "export_onnx": lambda model, path: nncfx.export_onnx(model, path, X),
    "export_program": lambda model, _: export_program(model, X),
    "reorder_channels": lambda model, _: reorder_channels(model, X),
    "storage.save": lambda model, path: nncfx.storage.save(path, model),
    "save": lambda model, path: nncfx.save(path, model),
}
RUNNING = {"trace", "analyze_channels", "export_onnx", "export_program"}
"""Doors that read no weight but by running the model."""
OFFLOADED = ("offloaded", "with two hooks")
GATHERED = ("tensor parallel", "FSDP 2")
GATHERING = (
    *("wrap", "create_compressed_model", "thin", "save"),
    *("quantize", "quantize_weights", "reorder_channels"),
)


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore:FSDP is switching to use .NO_SHARD.:UserWarning")
@pytest.mark.parametrize(
    ("kind", "door"),
    [(kind, door) for kind in PARTED for door in DOORS
     if kind not in OFFLOADED or door != "analyze_channels"],
)  # fmt: skip
def test_a_model_that_is_not_whole_is_refused_at_every_door_that_does_not_gather_it(
    kind: str, door: str, tmp_path: Path
) -> None:
    part, message = PARTED[kind]
    if kind in GATHERED and door in GATHERING:
        model = part(Net())
        expected = model(X).detach()
        DOORS[door](model, tmp_path / "file")
        assert torch.allclose(model(X), expected, atol=1e-6)
        assert has_shards(model)
        return
    model = part(Net())
    classes = [type(one) for one in model.modules()]
    with pytest.raises(NNCFXError, match=f"(?s)(Parallel|Net) cannot be .*{message}"):
        DOORS[door](model, tmp_path / "file")
    assert [type(one) for one in model.modules()] == classes
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("door", sorted(DOORS.keys() - RUNNING))
def test_weights_in_a_form_of_another_library_are_refused_wherever_they_are_read(
    door: str, tmp_path: Path
) -> None:
    model = Net()
    coded = two_tensor.TwoTensor(model.up.weight.detach(), model.up.weight.detach())
    model.up.weight = nn.Parameter(coded)
    with pytest.raises(NNCFXError, match=r"cannot be .*'up\.weight' is of the class TwoTensor"):
        DOORS[door](model, tmp_path / "file")
    assert type(model) is Net


@pytest.mark.parametrize(
    "read",
    [
        lambda model: schemes.Prune().compress(model, 0.5),
        lambda model: schemes.Cluster().compress(model, 0.5),
        schemes.footprint_bytes,
        schemes.nonzero_parameters,
    ],
)
def test_schemes_and_counts_refuse_a_form_of_another_library(
    read: Callable[[nn.Module], object],
) -> None:
    model = Net()
    coded = two_tensor.TwoTensor(model.up.weight.detach(), model.up.weight.detach())
    model.up.weight = nn.Parameter(coded)
    with pytest.raises(NNCFXError, match="is of the class TwoTensor of torch, and only that"):
        read(model)


@pytest.mark.parametrize("part", [offloaded, offloaded_with_more])
def test_channels_of_an_offloaded_model_are_those_of_the_whole(
    part: Callable[[nn.Module], nn.Module],
) -> None:
    def groups(model: nn.Module) -> list[str]:
        return [str(one) for one in nncfx.channels.analyze_channels(model, X).group_sets]

    assert groups(part(Net())) == groups(Net()) != []


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore:FSDP is switching to use .NO_SHARD.:UserWarning")
def test_a_model_with_hooks_refuses_the_first_version_of_fsdp() -> None:
    controller, model = nncfx.create_compressed_model(Net(), SPARSITY, X)
    controller.level = 0.5
    expected = model(X)
    with pytest.raises(NNCFXError, match=r"(?s)nncfx\.strip.*trained on, it gives up its zeros"):
        old_fsdp(model)
    assert torch.equal(model(X), expected)


@pytest.mark.parametrize("door", ["strip", "controller", "bake", "commit", "quantize"])
def test_a_model_that_was_offloaded_with_its_hooks_is_refused(door: str) -> None:
    controller, model = nncfx.create_compressed_model(Net(), SPARSITY, X)
    controller.level = 0.5
    doors: dict[str, Callable[[], object]] = {
        "strip": lambda: nncfx.strip(model),
        "controller": controller.strip,
        "bake": lambda: nncfx.network.bake(model),
        "commit": model.nncf.commit,
        "quantize": lambda: nncfx.quantize(model, [X], inplace=True),
    }
    offloaded(model)
    with pytest.raises(NNCFXError, match=r"'up\.weight' are offloaded"):
        doors[door]()


def test_what_fetches_values_in_a_forward_reads_the_place_where_they_go() -> None:
    """As accelerate does: it looks at the attribute on meta, and puts the values in its place."""
    controller, model = nncfx.create_compressed_model(Net(), SPARSITY, X)
    controller.level = 0.5
    expected = model(X)
    held = {name: one.detach().clone() for name, one in model.named_parameters()}
    offloaded(model)
    looked: list[torch.Tensor] = []

    def fetch(name: str, layer: nn.Module) -> None:
        looked.append(layer.weight)  # type: ignore[arg-type]  # a parameter
        for key in ("weight", "bias"):
            layer._parameters[key] = nn.Parameter(held[f"{name}.{key}"])

    for name in ("up", "down"):
        layer = model.get_submodule(name)
        layer.register_forward_pre_hook(lambda one, _, name=name: fetch(name, one))
    assert torch.equal(model(X), expected)
    assert [one.device.type for one in looked] == ["meta", "meta"]


def test_a_whole_model_on_meta_is_wrapped() -> None:
    model = nncfx.wrap(Net().to("meta"), X.to("meta"))
    assert len(model.nncf.graph.addresses) == 3
