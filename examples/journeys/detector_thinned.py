"""A detector of YOLO's kind is pruned, trained on, thinned and exported at any image size."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

torch.manual_seed(0)
torch.set_num_threads(1)


class Conv(nn.Sequential):
    """A convolution, a batch norm and a SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(inplace=True),
        )


class C2f(nn.Module):
    """Bottlenecks on one half of the channels, whose results are all kept."""

    def __init__(self, inputs: int, outputs: int, count: int, *, add: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.first = Conv(inputs, 2 * half)
        self.blocks = nn.ModuleList(
            nn.Sequential(Conv(half, half, 3), Conv(half, half, 3)) for _ in range(count)
        )
        self.last = Conv((2 + count) * half, outputs)
        self.add = add

    @override
    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            new = block(parts[-1])
            parts.append(parts[-1] + new if self.add else new)
        return self.last(torch.cat(parts, 1))


class SPPF(nn.Module):
    """Pooling at three sizes, one after another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = Conv(width, width // 2), Conv(2 * width, width)

    @override
    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """Backbone, a neck that goes up and down, and two heads with distributions of distances."""

    def __init__(self, classes: int = 4, bins: int = 8) -> None:
        super().__init__()
        self.classes, self.bins = classes, bins
        self.stem = nn.Sequential(Conv(3, 16, 3, 2), Conv(16, 32, 3, 2), C2f(32, 32, 1))
        self.middle = nn.Sequential(Conv(32, 64, 3, 2), C2f(64, 64, 2))
        self.deep = nn.Sequential(Conv(64, 128, 3, 2), C2f(128, 128, 1), SPPF(128))
        self.up = C2f(192, 64, 1, add=False)
        self.down = Conv(64, 64, 3, 2)
        self.out = C2f(192, 128, 1, add=False)
        self.boxes = nn.ModuleList(
            nn.Sequential(Conv(width, 32, 3), nn.Conv2d(32, 4 * bins, 1)) for width in (64, 128)
        )
        self.scores = nn.ModuleList(
            nn.Sequential(Conv(width, 32, 3), nn.Conv2d(32, classes, 1)) for width in (64, 128)
        )

    @override
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        middle = self.middle(self.stem(image))
        deep = self.deep(middle)
        fine = self.up(torch.cat([F.interpolate(deep, scale_factor=2), middle], 1))
        coarse = self.out(torch.cat([self.down(fine), deep], 1))
        levels = (fine, coarse)
        boxes = [one(x).flatten(2) for one, x in zip(self.boxes, levels, strict=True)]
        scores = [one(x).flatten(2) for one, x in zip(self.scores, levels, strict=True)]
        spread = torch.cat(boxes, 2)
        parts = spread.view(spread.shape[0], 4, self.bins, -1).softmax(2)
        places = torch.arange(self.bins, dtype=parts.dtype, device=parts.device)
        return (parts * places[:, None]).sum(2), torch.cat(scores, 2).sigmoid()


def loss_of(outputs: tuple[Tensor, Tensor]) -> Tensor:
    """Return a loss that pulls everything somewhere."""
    return (outputs[0] - 2).abs().mean() + outputs[1].square().mean()


model = Detector()
batches = [torch.rand(4, 3, 64, 64) for _ in range(6)]

# nncfx
import nncfx

pruning = {"algorithm": "filter_pruning", "pruning_init": 0.4, "params": {"schedule": "baseline"}}
controller, model = nncfx.create_compressed_model(model, {"compression": pruning}, batches[0])
# end
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for images in batches:
    optimizer.zero_grad()
    loss_of(model(images)).backward()
    optimizer.step()
# nncfx
result = nncfx.thin(model.eval())
sizes = {"image": {2: "height", 3: "width"}}
file = nncfx.export_onnx(result.model, "detector.onnx", batches[0], dynamic_axes=sizes)
print(nncfx.benchmark(file, batches[0][:1], threads=1, seconds=0.2))
# end
print(f"{result.parameters[0]} parameters -> {result.parameters[1]}, {file.size_bytes} bytes")
