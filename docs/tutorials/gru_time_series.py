# %% [markdown]
# # Prune and quantize a GRU
#
# A recurrent network predicts a noisy wave. You prune its units, remove them, and quantize the weights to 8 bits. The
# exported file takes sequences of any length.

# %%
import torch
from torch import nn

import nncfx

torch.manual_seed(0)
torch.set_num_threads(1)


class Forecast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(series)[0])


def waves(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    phase, pace = 6.3 * torch.rand(count, 1), 0.3 + 0.3 * torch.rand(count, 1)
    wave = torch.sin(phase + pace * torch.arange(33))[..., None]
    return wave[:, :-1] + 0.05 * torch.randn(count, 32, 1), wave[:, 1:]


# %% [markdown]
# ## Prune units while it trains

# %%
config = {
    "compression": {
        "algorithm": "structure_pruning",
        "pruning_init": 0.4,
        "params": {"schedule": "baseline", "align": 1},
    }
}
series, ahead = waves(32)
controller, model = nncfx.create_compressed_model(Forecast(), config, series)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(150):
    series, ahead = waves(32)
    loss = (model(series) - ahead).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
thin = nncfx.thin(model.eval()).model
print(thin.gru, f"mean squared error {loss.item():.4f}")

# %% [markdown]
# ## Quantize the weights, export with an open length

# %%
small = nncfx.quantization.quantize_weights(thin, example_inputs=series)
file = nncfx.export_onnx(small, "gru.onnx", series, dynamic_axes={"series": {1: "length"}})
print(file.size_bytes, "bytes")

from nncfx.runtimes import BuildOptions, runtime_named

series, ahead = waves(8)
with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
    (short,) = session.run(series[:, :20])
    (whole,) = session.run(series)
error = float((torch.from_numpy(whole) - ahead).square().mean())
print(short.shape, whole.shape, f"mean squared error in ONNX Runtime {error:.4f}")
assert error < 0.1
