# %% [markdown]
# # Quantize a CNN to int8 for ONNX Runtime
#
# You train a small network on scikit-learn's digits, quantize it to int8 in one call and export it to ONNX. Then you
# compare it with the float network: accuracy, bytes, time.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn

import nncfx

torch.manual_seed(0)
torch.set_num_threads(1)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels))
train, test = order[:1400], order[1400:]
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(6):
    for batch in train[torch.randperm(len(train))].split(64):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()

# %% [markdown]
# ## Quantize and export
#
# A few hundred images say which ranges activations have. The file holds integers where ONNX Runtime computes in
# integers; the batch is open.

# %%
quantized = nncfx.quantize(model, images[train].split(64), samples=300)
example = images[:64]
in_float = nncfx.export_onnx(model, "float.onnx", example)
in_int8 = nncfx.export_onnx(quantized, "int8.onnx", example)
print(f"{in_float.size_bytes} bytes in float, {in_int8.size_bytes} in int8")

# %% [markdown]
# ## Is it as good?
#
# `Session.run` of a runtime takes tensors and gives arrays.

# %%
from nncfx.runtimes import BuildOptions, runtime_named


def accuracy(file) -> float:
    with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
        (logits,) = session.run(images[test])
    return float((logits.argmax(1) == labels[test].numpy()).mean())


before, after = accuracy(in_float), accuracy(in_int8)
print(f"accuracy {before:.3f} in float, {after:.3f} in int8")
assert after > before - 0.02

# %% [markdown]
# ## Is it faster?
#
# Measured in turns, so that a busy machine disturbs both alike.

# %%
from nncfx.runtimes import TimingPlan, time_sessions

sessions = {
    name: runtime_named("onnxruntime").build(file, BuildOptions(threads=1))
    for name, file in (("float", in_float), ("int8", in_int8))
}
timings = time_sessions(sessions, example, plan=TimingPlan(seconds=0.2))
for name, timing in timings.items():
    print(f"{name}: {timing.median_ms:.3f} ms, interval {timing.interval_ms}")
