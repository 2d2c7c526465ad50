"""Compare the addresses of operations with those of NNCF 2.19 (legacy tracing), in order.

Both trace the same networks, weights at random: those of torchvision, a U-Net of pytorchcv, and
small ones here. Compared are the operations that both see; printed is what one sees alone.
NNCF 2.19.0 runs on torch 2.13 in an environment of its own, with torch, torchvision, pytorchcv and
nncfx: pip install --no-deps nncf==2.19.0 pandas. On CPU builds of torch give the folder of
torchvision_on_cpu.py with --shim.

python benchmarks/nncf_addresses.py --shim ../shared/tools
"""

import argparse
import difflib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import nn
from torch.nn import functional as F
from typing_extensions import override

import nncfx

Made: TypeAlias = tuple[nn.Module, torch.Tensor]

TORCHVISION: Final = (
    *("alexnet", "vgg11", "vgg16_bn", "resnet18", "resnet50", "densenet121", "mobilenet_v2"),
    *("mobilenet_v3_small", "squeezenet1_0", "squeezenet1_1", "inception_v3"),
    *("shufflenet_v2_x1_0", "googlenet", "mnasnet0_5", "efficientnet_b0", "resnext50_32x4d"),
    *("wide_resnet50_2", "regnet_y_400mf"),
)
SIDE: Final = 96
"""Pixels of an image, which no address depends on."""


class Functional(nn.Module):
    """Calls functions itself: operators, in-place ones, a shared layer, layers in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(3, 3, 3, padding=1)
        self.blocks = nn.ModuleList([nn.Conv2d(3, 3, 1), nn.ReLU(inplace=True)])

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.shared(x)) + self.shared(x)
        y += F.max_pool2d(y, 3, 1, 1)
        for one in self.blocks:
            y = one(y)
        y = torch.cat([y * 0.5, y.sigmoid() - x], 1)
        return F.softmax(F.adaptive_avg_pool2d(y, 1).view(len(y), -1), dim=-1)


class UNet(nn.Module):
    """Two levels, joined by concatenation, as NNCF's example has them."""

    def __init__(self) -> None:
        super().__init__()
        self.down_path = nn.ModuleList([self.block(3, 8), self.block(8, 16)])
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.up_block = self.block(16, 8)
        self.last = nn.Conv2d(8, 4, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        """Return two convolutions with their norms."""
        return nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(outputs)),
            *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(outputs)),
        )

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down_path[0](x)
        second = self.down_path[1](F.max_pool2d(first, 2))
        return self.last(self.up_block(torch.cat([self.up(second), first], 1)))


class Recurrent(nn.Module):
    """An LSTM, then what NNCF sees: it has no recurrent cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(SIDE, 8, batch_first=True)
        self.fc = nn.Linear(8, 5)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, _ = self.lstm(x.mean(1))
        return F.relu(self.fc(result))


def zoo(name: str) -> nn.Module:
    """Return a model of torchvision."""
    package = importlib.import_module("torchvision.models")
    options = {"init_weights": False} if name in {"googlenet", "inception_v3"} else {}
    model: nn.Module = package.get_model(name, **options)
    return model


NETWORKS: Final[Mapping[str, Callable[[], nn.Module]]] = MappingProxyType(
    {
        **{name: partial(zoo, name) for name in TORCHVISION},
        "U-Net": UNet,
        "functional": Functional,
        "LSTM": Recurrent,
    }
)


def addresses_of_nncf(model: nn.Module, inputs: torch.Tensor) -> list[str]:
    """Return what NNCF's legacy tracing calls the operations, without inputs and outputs."""
    tracer: Any = importlib.import_module("nncf.torch.dynamic_graph.graph_tracer")
    handling: Any = importlib.import_module("nncf.torch.dynamic_graph.io_handling")
    info = handling.ExampleInputInfo.from_example_input(inputs)
    forward = tracer.create_dummy_forward_fn(info)
    graph = tracer.GraphTracer(forward).trace_graph(model, as_eval=True)
    found = [str(one.op_exec_context.op_address) for one in graph.get_all_nodes()]
    return [one for one in found if not one.startswith("/nncf_model_")]


def row(name: str) -> tuple[str, int]:
    """Return the row of one network, and how many addresses are equal, in order."""
    model, inputs = NETWORKS[name]().eval(), torch.rand(1, 3, SIDE, SIDE)
    theirs = addresses_of_nncf(model, inputs)
    wrapped: Any = nncfx.wrap(model, inputs)
    ours = wrapped.nncf.graph.addresses
    matched = difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_matching_blocks()
    equal = sum(one.size for one in matched)
    alone = [one for one in ours if one not in set(theirs)]
    missed = [one for one in theirs if one not in set(ours)]
    cells = (name, len(theirs), len(ours), equal, ", ".join(missed), ", ".join(alone))
    return f"| {' | '.join(map(str, cells))} |", equal


def main() -> None:
    """Parse the command line, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", default=tuple(NETWORKS))
    parser.add_argument("--shim", help="folder of torchvision_on_cpu.py")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ["NNCF_TORCH_LEGACY_TRACING"] = "1"
    importlib.import_module("nncf.torch")  # which patches torch; before torchvision
    if chosen.shim:
        sys.path.insert(0, chosen.shim)
        importlib.import_module("torchvision_on_cpu")
    print("| network | NNCF | nncfx | equal, in order | only NNCF | only nncfx |")
    print("|---|---:|---:|---:|---|---|")
    total = 0
    for name in chosen.networks:
        line, equal = row(name)
        total += equal
        print(line, flush=True)
    print(f"\n{total} addresses are equal and in the same order.")


if __name__ == "__main__":
    main()
