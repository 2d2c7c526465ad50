"""Whether Hago's integer graphs equal the simulated ones bit for bit, and whether sums overflow.

Thresholds come from one batch, compared are others. "differing": elements of tensors in integers
that differ, of all operations. "output": the largest difference of what the model returns, which
some hardware leaves to float. "overflow": how far the output moves if sums had 32 bits.

    python benchmarks/hago_exactness.py --data ../shared/data [--models ...] [--hardware ...]
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from pretrained import PRETRAINED
from pytorchcv.models.mobilenetv2 import mobilenetv2_wd4
from torch import Tensor, nn

from nncfx import hago
from nncfx.hago.execution.inspection import simulated_outputs
from nncfx.quantization.ranges.observation import tracked
from nncfx.targets import Descriptor, Hardware, hardware_named

_SUMS = Hardware(
    name="int16 sums",
    operations={
        **dict.fromkeys(
            ("conv", "linear", "matmul"), (Descriptor(inputs=("int8",), output="int16"),)
        ),
        **dict.fromkeys(("relu", "clip", "add"), (Descriptor(inputs=("int16",), output="int16"),)),
    },
)
HARDWARE = {
    "int16 sums": _SUMS,
    **{name: hardware_named(name) for name in ("onnxruntime", "tensorrt", "vta", "hago")},
}


class Transformer(nn.Module):
    """Two pre-norm layers of four heads over 16 tokens, by matrix products."""

    def __init__(self, width: int = 64) -> None:
        """Make it with PyTorch's default weights."""
        super().__init__()
        self.embed = nn.Linear(24, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return n x 10 logits of n x 16 x 24."""
        x = self.embed(x)
        n, t, d = x.shape
        for layer in range(2):
            y = self.qkv[layer](self.norms[2 * layer](x)).view(n, t, 3, 4, d // 4)
            q, k, v = y.permute(2, 0, 3, 1, 4).unbind(0)
            weights = (q @ k.transpose(-1, -2) * (d // 4) ** -0.5).softmax(-1)
            x = x + self.out[layer]((weights @ v).permute(0, 2, 1, 3).reshape(n, t, d))
            y = self.up[layer](self.norms[2 * layer + 1](x)).relu()
            x = x + self.down[layer](y)
        return self.head(x.mean(1))


def vgg() -> nn.Module:
    """Return six convolutions in three stages, and two linear layers."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def trained(name: str) -> Callable[[Path], tuple[nn.Module, Tensor]]:
    """Return what loads the trained network of that name and 6 images."""
    return lambda data: (PRETRAINED[name].load(data), PRETRAINED[name].train(data, 6)[0])


def untrained(make: Callable[[], nn.Module], *shape: int) -> tuple[nn.Module, Tensor]:
    """Return a network with random weights and 6 random inputs."""
    torch.manual_seed(0)
    return make(), torch.randn(6, *shape)


MODELS: dict[str, Callable[[Path], tuple[nn.Module, Tensor]]] = {
    "transformer": lambda _: untrained(Transformer, 16, 24),
    "resnet20-A": trained("resnet20-A"),
    "resnet56-A": trained("resnet56-A"),
    "MobileNetV2 0.25": lambda _: untrained(lambda: mobilenetv2_wd4(num_classes=10), 3, 224, 224),
    "VGG-like": lambda _: untrained(vgg, 3, 32, 32),
}


def compared(graph: hago.QuantGraph, hardware: Hardware, kind: str, x: Tensor) -> str:
    """Return a row of the table."""
    batch = [(x[:4], torch.zeros(4))]
    space = hago.search_space(graph, hardware, batch, hago.QuantizeSettings())
    chosen = random.Random(0)
    pick = chosen.choice if kind == "mixed" else lambda each: min(each[0], 8)
    strategy = replace(space.strategy, bits=tuple(map(pick, space.choices)))
    quantizer = hago.create_quantizer(graph, hardware, strategy)
    quantized, simulated = quantizer.quantize(), quantizer.simulate()
    x = x[4:]
    with torch.no_grad():
        found, expected = quantized(x), simulated(x)
    integers = quantized.nodes(x)
    floats = simulated_outputs(graph, quantizer.plan, x)
    names = [graph.nodes[one].name for one in quantizer.plan.outputs]
    names = [one for one in names if one in floats]
    differing = sum(int((integers[one] != floats[one]).sum()) for one in names)
    total = sum(integers[one].numel() for one in names)
    apart = float((found - expected).abs().max())
    return (
        f"{len(names)} | {total:,} | {differing} | {apart:.2g} | {moved(quantizer, expected, x)}"
    )


def moved(quantizer: hago.Quantizer, expected: Tensor, x: Tensor) -> str:
    """Return how far the output is from that with sums of 32 bits, as a share of the largest."""
    wide = {
        kind: tuple(replace(one, output=one.output.replace("int16", "int32")) for one in each)
        for kind, each in quantizer.hardware.operations.items()
    }
    hardware = replace(quantizer.hardware, operations=wide)
    with torch.no_grad():
        found = hago.create_quantizer(quantizer.graph, hardware, quantizer.strategy).simulate()(x)
    return f"{float((found - expected).abs().max() / found.abs().max()):.2g}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--hardware", nargs="+", default=list(HARDWARE), choices=list(HARDWARE))
    options = parser.parse_args()
    print(
        "| model | hardware | bits | tensors | elements | differing | output | overflow |\n"
        "|---|---|---|---:|---:|---:|---:|---:|"
    )
    for name in options.models:
        model, x = MODELS[name](options.data)
        graph = hago.prepare_graph(model.eval(), x[:1])
        cases = [(one, kind) for one in options.hardware for kind in ("8", "mixed")]
        for hardware, kind in tracked(cases, name):
            row = compared(graph, HARDWARE[hardware], kind, x)
            print(f"| {name} | {hardware} | {kind} | {row} |", flush=True)


if __name__ == "__main__":
    main()
