# %% [markdown]
# # Fit a model into a file-size budget
#
# A network has to fit into 6 kB of a microcontroller's flash. `nncfx.storage.compress` searches for the best file of that
# size. It rounds each weight by weighing the error in the outputs against the bits that it saves, without training.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn

import nncfx
from nncfx.storage import Bytes, compress

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )


model = network()
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(8):
    for batch in torch.randperm(1400).split(64):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()


def accuracy(one: nn.Module) -> float:
    with torch.no_grad():
        return float((one(images[1400:]).argmax(1) == labels[1400:]).float().mean())


# %% [markdown]
# ## Ask for a size

# %%
found = compress(model, images[:512].split(64), budget=Bytes(6_000))
saved = nncfx.storage.save("digits.nncfx", found.model)
dense = sum(p.numel() * 4 for p in model.parameters())
print(f"{dense} bytes in float, {saved.size_bytes} in the file")
assert saved.size_bytes <= 6_000

# %% [markdown]
# ## What the device gets
#
# The number that counts is that of the file, read back.

# %%
_, again = nncfx.load("digits.nncfx", network)
print(f"accuracy {accuracy(model):.3f} before, {accuracy(again):.3f} from the file")
assert accuracy(again) > accuracy(model) - 0.03
