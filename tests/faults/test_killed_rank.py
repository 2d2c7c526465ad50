"""A rank is killed: the others end soon with an error, and training goes on to the same bits."""

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from programs import Program, Told

RANK = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import nncfx

rank, ranks, folder = int(sys.argv[1]), 2, Path(sys.argv[2])
when, run = sys.argv[3:]
wait = timedelta(seconds=30)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meet-{run}", rank=rank, world_size=ranks, timeout=wait
)

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
for one in (model[0], model[2], model):
    fully_shard(one, mesh=init_device_mesh("cpu", (ranks,)))
x = torch.randn(8, 8)
saved = folder / "checkpoint"
if saved.exists():
    controller, model = nncfx.load(saved, model)
else:
    params = {"sparsity_target": 0.5, "sparsity_target_epoch": 3}
    item = {"algorithm": "magnitude_sparsity", "params": params}
    controller, model = nncfx.create_compressed_model(model, {"compression": item}, x)
optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.1), 0.1, foreach=False)
for epoch in range(controller.scheduler.current_epoch + 1, 4):
    controller.scheduler.epoch_step()
    controller.scheduler.step()
    if (rank, epoch, when) == (1, 2, "in a step"):
        model[2].register_forward_hook(die)
    if (rank, epoch, when) == (1, 2, "in a save"):
        safetensors.torch.save = die
    optimizer.zero_grad()
    model(x.chunk(ranks)[rank]).square().mean().backward()
    optimizer.step()
    nncfx.save(saved, model, controller, shards=True)
    print("saved", epoch, flush=True)
os._exit(0)  # torch may abort where it shuts gloo's threads down (its pull request 179291)
"""


def run(folder: Path, when: str, name: str, codes: list[int]) -> list[Told]:
    """Run all ranks, which end with these exit codes, and return what each wrote."""
    folder.mkdir(exist_ok=True)
    script = folder / "rank.py"
    script.write_text(RANK)
    with ExitStack() as started:
        ranks = [
            started.enter_context(Program(folder, script, str(rank), folder, when, name))
            for rank in range(2)
        ]
        return [rank.ended(code) for rank, code in zip(ranks, codes, strict=True)]


def state(folder: Path) -> dict[str, torch.Tensor]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return nncfx.load(folder / "checkpoint", model)[1].state_dict()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder, "never", "all", [0, 0])
    return state(folder)


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("when", ["in a step", "in a save"])
def test_the_others_end_and_the_last_checkpoint_goes_on_to_the_same_bits(
    when: str, undisturbed: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    survivor, _ = run(tmp_path, when, "killed", [1, -9])
    assert survivor.stdout.split("\n") == ["saved 0", "saved 1", ""]
    assert "Connection closed by peer" in survivor.stderr or "Connection reset" in survivor.stderr
    run(tmp_path, "never", "again", [0, 0])
    found = state(tmp_path)
    assert found.keys() == undisturbed.keys()
    for name, one in undisturbed.items():
        assert torch.equal(found[name], one), name
