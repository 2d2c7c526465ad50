"""A sharded model is whole while it is gathered, and as before behind that."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

import nncfx
from nncfx.network import NNCFNetwork
from nncfx.storage.models.sharded_models import gathered, has_shards, like_shards, whole
from programs import run

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "sharded_training.py"
X = torch.linspace(-1, 1, 16).view(2, 8)
SPARSITY = {"compression": {"algorithm": "magnitude_sparsity"}}

pytestmark = pytest.mark.usefixtures("group")


def sharded() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    mesh = init_device_mesh("cpu", (1,))
    for one in (model[0], model[2], model):
        fully_shard(one, mesh=mesh)
    return model


def test_a_plain_model_is_left_alone() -> None:
    model = nn.Linear(2, 2)
    weight = model.weight
    with gathered(model) as values:
        assert not values
        assert model.weight is weight
    assert not has_shards(model)


def test_in_the_body_a_model_is_plain_and_behind_it_sharded_with_what_was_written() -> None:
    model = sharded()
    expected = model(X).detach()
    parts = dict(model.named_parameters())
    with gathered(model) as values:
        assert len(values) == 4
        assert not has_shards(model)
        assert type(model[0]) is nn.Linear
        twin = copy.deepcopy(model)  # which FSDP2 refuses
        with torch.no_grad():
            model[2].bias += 1
    assert isinstance(model, FSDPModule)
    assert isinstance(model[0], FSDPModule)
    assert all(one is parts[name] for name, one in model.named_parameters())
    assert torch.equal(twin(X), expected)
    assert torch.allclose(model(X), expected + 1)
    model(X).sum().backward()
    assert isinstance(model[0].weight.grad, DTensor)


def test_an_error_in_the_body_leaves_the_model_sharded() -> None:
    model = sharded()
    with pytest.raises(ValueError, match="no"), gathered(model):
        raise ValueError("no")
    assert isinstance(model, FSDPModule)
    assert has_shards(model)


def test_whole_and_divided_again_a_tensor_is_the_same() -> None:
    weight = sharded()[0].weight
    values = whole(weight)
    assert not isinstance(values, DTensor)
    again = like_shards(values.detach(), weight)
    assert isinstance(again, DTensor)
    assert torch.equal(again.to_local(), weight.to_local())
    plain = torch.ones(2)
    assert whole(plain) is plain
    assert like_shards(plain, plain) is plain


def test_wrapped_after_it_was_sharded_a_model_is_both() -> None:
    model = sharded()
    controller, network = nncfx.create_compressed_model(model, SPARSITY, X)
    assert isinstance(network, NNCFNetwork)
    assert isinstance(network, FSDPModule)
    controller.level = 0.5
    out = network(X)
    assert torch.allclose(nncfx.strip(network)(X), out)
    plain = nncfx.unwrap(network)
    assert plain is model
    assert isinstance(plain, FSDPModule)


def test_each_hook_on_a_weight_runs_once_in_a_step() -> None:
    network = nncfx.create_compressed_model(sharded(), SPARSITY, X)[1]
    calls: Counter[str] = Counter()
    for one in network.nncf.hooks:
        one.hook.register_forward_hook(lambda *_, site=str(one.site): calls.update([site]))
    network(X).sum().backward()
    assert len(calls) == 2
    assert set(calls.values()) == {1}


@pytest.mark.parametrize(
    "item",
    [
        {"algorithm": "entropy_constraint"},
        {"algorithm": "neuron_pruning", "params": {"align": 1, "group_lasso": 0.01}},
    ],
    ids=lambda item: item["algorithm"],
)
def test_a_loss_of_weights_is_that_of_the_plain_model(item: dict[str, Any]) -> None:
    plain, parted = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), sharded()
    plain.load_state_dict({name: whole(one) for name, one in parted.state_dict().items()})
    losses, statistics = [], []
    for model in (plain, parted):
        controller, _ = nncfx.create_compressed_model(model, {"compression": item}, X)
        controller.scheduler.epoch_step()
        losses.append(controller.loss())
        losses[-1].backward()
        statistics.append(controller.statistics().to_dict())
    assert losses[0] > 0
    torch.testing.assert_close(losses[1], losses[0])
    assert statistics[0] == statistics[1]
    for one, other in zip(plain.parameters(), parted.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(whole(other.grad), one.grad)


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize(
    "task",
    [
        ["equal", "--ways", "before", "after", "--algorithms", "rb_sparsity", "lc"],
        ["checkpoint", "--algorithms", "filter_pruning", "quantization"],
    ],
    ids=["equal", "checkpoint"],
)
def test_two_processes_do_what_one_does(task: list[str], tmp_path: Path) -> None:
    run(tmp_path, SCRIPT, *task, "--ranks", "2")


def test_torchs_checkpoints_hold_the_optimizer_of_what_hooks_learn(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        config = {"compression": {"algorithm": "rb_sparsity"}}
        controller, model = nncfx.create_compressed_model(sharded(), config, X)
        return model, torch.optim.AdamW(controller.parameter_groups(lr=0.1))

    def stepped(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        torch.manual_seed(1)  # rb draws
        optimizer.zero_grad()
        model(X).square().sum().backward()
        optimizer.step()
        return [whole(one.detach()) for one in model.parameters()]

    def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    one, other = made(), made()
    stepped(*one)
    dcp.save(state(*one), checkpoint_id=tmp_path / "step")
    stepped(*other)  # makes the states that are read in place
    stepped(*other)
    read = state(*other)
    dcp.load(read, checkpoint_id=tmp_path / "step")
    other[0].load_state_dict(read["model"])
    other[1].load_state_dict(read["optimizer"])
    for mine, its in zip(stepped(*other), stepped(*one), strict=True):
        torch.testing.assert_close(mine, its, atol=0, rtol=0)
