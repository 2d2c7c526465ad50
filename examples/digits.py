"""Train a small CNN on scikit-learn's digits, then make it faster and smaller, and prove it.

Killed at any moment, it goes on where it stopped; delete demo-out/ to begin anew.
"""

import logging
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.lc import LC
from nncfx.objectives import Maximize, Minimize, footprint, throughput
from nncfx.schemes import Cluster, Compose, FilterPrune, Prune, Quantize

OUT = Path("demo-out")
logging.basicConfig(level=logging.INFO)  # shows progress where there is no terminal


class Residual(nn.Module):  # noqa: D101
    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o)
        self.shortcut = nn.Conv2d(i, o, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        x, skip = F.relu(self.bn1(self.conv1(x))), self.shortcut(x)
        return F.relu(self.bn2(self.conv2(x)) + skip)


torch.set_num_threads(min(2, torch.get_num_threads()))  # the network is too small for more
torch.manual_seed(0)
digits = load_digits()
order = torch.randperm(len(digits.target))
x = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
batches = list(zip(x.split(64), torch.tensor(digits.target)[order].split(64), strict=True))
data = {"trainloader": batches[:15], "valloader": batches[15:22], "testloader": batches[22:]}
blocks = Residual(1, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2)
model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
for inputs, labels in data["trainloader"] * 15:
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()
    optimizer.step()

# What follows is nncfx: first fewer channels for speed, then fewer and shared weights for size.
lc = LC(steps=8, lr=0.05, lr_end=0.0025, mb_iterations_per_l=30, mu_init=0.01, mu_multiplier=2)
setup = data | {"optimizer": lc, "criterion": F.cross_entropy, "eps": 0.02, "threads": 1}
faster = nncfx.Compressor(
    model=model, title="Digits", scheme=Compose([FilterPrune(align=4), Quantize("float16")]),
    objective=Maximize(throughput), margin=0.015, folder=OUT / "throughput", **setup,
).run()  # fmt: skip
smaller = nncfx.Compressor(
    after=faster, scheme=Compose([Prune(), Cluster(bits=5), Quantize("float16")]),
    objective=Minimize(footprint), margin=0.01, folder=OUT / "footprint", **setup,
).run().save(OUT / "digits.nncfx")  # fmt: skip
nncfx.report.write_report(OUT / "report.html", smaller.evidence)
print(smaller, f"The report: {OUT / 'report.html'}", sep="\n")
