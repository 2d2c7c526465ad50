# %% [markdown]
# # Prune a segmentation network
#
# A small U-Net finds bright discs. You prune filters while it trains, then remove them without changing the outputs,
# through skip connections and up-sampling.

# %%
import torch
from torch import nn

import nncfx

torch.manual_seed(0)
torch.set_num_threads(1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.last = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skip = self.down(image)
        return self.last(torch.cat([skip, self.up(self.deep(skip))], 1))


def discs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    centre, radius = 8 + 16 * torch.rand(count, 2, 1, 1), 3 + 4 * torch.rand(count, 1, 1)
    mask = ((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2 < radius**2).float()[:, None]
    return mask + 0.7 * torch.randn_like(mask), mask


# %% [markdown]
# ## Train with a schedule of pruning
#
# The config is NNCF's: half of the filters go, in two steps. `align: 1` allows any width.

# %%
config = {
    "compression": {
        "algorithm": "filter_pruning",
        "pruning_init": 0.25,
        "params": {"pruning_target": 0.5, "pruning_steps": 2, "align": 1},
    }
}
image, mask = discs(16)
controller, model = nncfx.create_compressed_model(UNet(), config, image)
optimizer = torch.optim.Adam(model.parameters(), 5e-3)
for _ in range(4):
    controller.scheduler.epoch_step()
    for _ in range(30):
        controller.scheduler.step()
        image, mask = discs(16)
        loss = nn.functional.binary_cross_entropy_with_logits(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(controller.statistics())

# %% [markdown]
# ## Take out what is dead
#
# `thin` checks itself: the small network has to agree with the masked one. `fixed` says what stays, and why.

# %%
model.eval()
result = nncfx.thin(model)
print(result.parameters, f"largest difference {result.max_error:.1e}")
print(result.model.deep[0], result.model.up)
image, mask = discs(64)
with torch.no_grad():
    found = result.model(image) > 0
overlap = (found & (mask > 0)).sum() / (found | (mask > 0)).sum()
print(f"intersection over union {overlap:.3f}")
assert overlap > 0.5
assert result.parameters[1] < 0.7 * result.parameters[0]

# %% [markdown]
# ## Deploy

# %%
file = nncfx.export_onnx(result.model, "unet.onnx", image[:1], dynamic_axes={"image": {2: "height", 3: "width"}})
print(nncfx.benchmark(file, image[:1], threads=1, seconds=0.2))
