"""Promises of wrapped models in training: several processes, checkpoints, mixed precision."""

import copy
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import programs
from nncfx.errors import HookError
from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import Insertion, PostSite, WeightSite
from small_models import Applied, Function


def scale() -> Function:
    """A hook that trains."""
    return Function(lambda m, tensor: tensor * m.factor, factor=nn.Parameter(torch.tensor(0.5)))


def body() -> Function:
    """A layer and a functional call."""
    return Function(lambda m, x: F.relu(m.layer(x)) + x, layer=nn.Linear(4, 4))


def net(reentrant: bool | None = None, times: int = 1) -> Function:
    """A part that may be recomputed, once or twice, and a head."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            x = m.body(x) if reentrant is None else checkpoint(m.body, x, use_reentrant=reentrant)
        return m.head(x)

    return Function(forward, body=body(), head=nn.Linear(4, 2))


RELU = "Function/Function[body]/relu_0"
X = torch.linspace(-1, 1, 16).view(4, 4)


def hooked(model: nn.Module) -> NNCFNetwork:
    wrapped = wrap(model, X)
    wrapped.nncf.register(
        [
            Insertion(WeightSite("body.layer", "weight"), scale(), 0, "test"),
            Insertion(PostSite(RELU), scale(), 0, "test"),
        ]
    )
    wrapped.nncf.commit()
    return wrapped


def gradients(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(x).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# recomputation warns whenever there are no gradients, as in a trace
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_leaves_the_graph_and_gradients_as_they_are(reentrant: bool) -> None:
    torch.manual_seed(0)
    plain = hooked(net())
    again = hooked(net(reentrant))
    again.load_state_dict(plain.state_dict())
    assert again.nncf.graph == plain.nncf.graph
    x = X.clone().requires_grad_()
    expected, found = gradients(plain, x), gradients(again, x)
    assert len(expected) == 6  # four of the model, two of the hooks
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def inline() -> Applied:
    """Recomputes a function that is no module."""
    return Applied(lambda x: checkpoint(lambda y: F.relu(y) * 2, x, use_reentrant=False))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_hook_that_recomputation_would_forget_is_refused() -> None:
    model = wrap(inline(), X)
    model.nncf.register([Insertion(PostSite("Applied/relu_0"), scale(), 0, "test")])
    model.nncf.commit()
    with pytest.raises(HookError, match="calls again in the backward pass"):
        model(X.clone().requires_grad_())


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_hook_whose_call_recomputation_cannot_number_is_refused() -> None:
    model = hooked(net(reentrant=False, times=2))
    output = model(X.clone().requires_grad_())
    with pytest.raises(HookError, match="without saying which call"):
        output.sum().backward()


def test_autocast_reaches_hooked_operations() -> None:
    torch.manual_seed(0)
    model = hooked(net())
    plain = copy.deepcopy(model)
    plain.nncf.remove("test")
    with torch.no_grad():
        plain.body.layer.weight.mul_(0.5)
    plain.nncf.register([Insertion(PostSite(RELU), scale(), 0, "test")])
    plain.nncf.commit()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = model(X), plain(X)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), expected.float(), rtol=2**-6, atol=2**-6)
    assert gradients(model, X)["_nncf.test.body:layer|weight.factor"].dtype == torch.float32


def test_data_parallel_is_refused() -> None:
    with pytest.raises(RuntimeError, match="DistributedDataParallel"):
        hooked(net())._replicate_for_data_parallel()


def train_distributed(rank: int, folder: str) -> None:
    store, limit = f"file://{folder}/store", timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=limit)
    torch.manual_seed(0)
    model: Any = DistributedDataParallel(hooked(net()))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(X[2 * rank : 2 * rank + 2]).square().mean().backward()
        optimizer.step()
    torch.save(model.module.state_dict(), f"{folder}/{rank}.pt")
    del model  # its reducer uses the group, and may wait for it forever once it is gone
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    processes = mp.start_processes(
        train_distributed, (str(tmp_path),), nprocs=2, join=False, start_method=programs.METHOD
    )
    ends = time.monotonic() + 300
    while not processes.join(timeout=10):
        if time.monotonic() > ends:
            for one in processes.processes:
                one.kill()
            pytest.fail("the two processes did not end in 300 s")
    torch.manual_seed(0)
    alone = hooked(net())
    optimizer = torch.optim.SGD(alone.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        alone(X).square().mean().backward()
        optimizer.step()
    for rank in range(2):
        state = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, value in alone.state_dict().items():
            assert torch.allclose(state[name], value, atol=1e-6), name


def sharded(model: nn.Module, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/one", rank=0, world_size=1)
    try:
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    finally:
        dist.destroy_process_group()


def test_a_sharded_model_refuses_to_be_wrapped(tmp_path: Path) -> None:
    model = net()
    sharded(model, tmp_path)
    with pytest.raises(RuntimeError, match="cannot be wrapped"):
        wrap(model, X)
