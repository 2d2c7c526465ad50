# %% [markdown]
# # Run an NNCF 2.x script
#
# The JSON config and the training loop stay as they are. [This table](../nncf_loop.md) lists the names that differ.

# %%
import torch
from torch import nn

import nncfx  # in place of: from nncf import NNCFConfig; from nncf.torch import create_compressed_model

torch.manual_seed(0)
torch.set_num_threads(1)
config = nncfx.NNCFConfig.from_dict(
    {
        "input_info": {"sample_size": [1, 16]},
        "compression": [
            {
                "algorithm": "magnitude_sparsity",
                "sparsity_init": 0.1,
                "params": {
                    "schedule": "polynomial", "sparsity_target": 0.7, "sparsity_target_epoch": 4,
                },
            },
            {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 64}}},
        ],
    }
)
x = torch.randn(256, 16)
y = (x[:, :4].sum(1) > 0).long()
loader = list(zip(x.split(32), y.split(32), strict=True))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))

# %%
compression_ctrl, model = nncfx.create_compressed_model(model, config, calibration_batches=loader)
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(5):
    compression_ctrl.scheduler.epoch_step()
    for inputs, labels in loader:
        compression_ctrl.scheduler.step()
        loss = nn.functional.cross_entropy(model(inputs), labels) + compression_ctrl.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(compression_ctrl.statistics())

# %% [markdown]
# ## Checkpoint and export
#
# `nncfx.load` needs no config: the file has it.

# %%
nncfx.save("checkpoint.safetensors", model, compression_ctrl)
controller, again = nncfx.load(
    "checkpoint.safetensors", nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
)
assert torch.equal(again.eval()(x), model.eval()(x))
print(nncfx.export_onnx(model, "model.onnx").size_bytes, "bytes")
