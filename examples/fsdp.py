"""Prune a model in training while FSDP2 shards it; thin it in the end, and shard the rest again.

    torchrun --nproc-per-node 2 examples/fsdp.py

On processors with gloo, on accelerators with nccl. Prints from the first process.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import nncfx

EPOCHS, STEPS = 6, 20
CONFIG = {
    "compression": {
        "algorithm": "filter_pruning",
        "params": {"pruning_target": 0.5, "pruning_steps": 4, "prune_first_conv": True},
    }
}


def network() -> nn.Sequential:
    """Return a small convolutional network."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 2),
    )


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Return images of noise, brighter on the left (0) or on the right (1)."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (32,), generator=generator)
    x = 0.5 * torch.randn(32, 1, 8, 8, generator=generator)
    slope = torch.linspace(-1, 1, 8)
    return x + (2 * y - 1).view(-1, 1, 1, 1) * F.relu(slope), y


def shard(model: nn.Module) -> nn.Module:
    """Shard each layer with weights, and then the rest."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    for layer in model.children():
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main() -> None:
    """Train, prune, save, thin."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = (
        torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else "cpu"
    )
    rank, ranks = dist.get_rank(), dist.get_world_size()
    example = batch(0)[0][:1].to(device)

    controller, model = nncfx.create_compressed_model(network().to(device), CONFIG, example)
    shard(model)
    optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.1), 0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        controller.scheduler.epoch_step()
        loss = torch.zeros(())
        for step in range(STEPS):
            controller.scheduler.step()
            x, y = (one.to(device) for one in batch(ranks * (STEPS * epoch + step) + rank))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) + controller.loss()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: level {controller.level:.2f}, loss {float(loss.detach()):.3f}")

    path = Path(tempfile.gettempdir()) / "nncfx-fsdp.safetensors"
    nncfx.save(path, model, controller)  # all processes call it, the first writes
    thinned = nncfx.thin(model, example)
    small = shard(thinned.model)
    x, y = (one.to(device) for one in batch(10**6))
    right = float((small.eval()(x).argmax(1) == y).float().mean())
    if rank == 0:
        removed = sum(map(len, thinned.removed.values()))
        print(f"thinned: {removed} channels removed, accuracy {right:.2f}; checkpoint in {path}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
