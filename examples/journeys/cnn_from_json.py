"""A RegNet is pruned and quantized by an NNCF JSON in a training that may be killed.

Killed at any moment and started again, it goes on from its last checkpoint to the same bits. Lines
between `# nncfx` and `# end` are what the task costs; the rest is anybody's model and data.
"""

import json
from pathlib import Path

import torch
from pytorchcv.models.regnet import regnetx002
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
Path("nncf.json").write_text(
    json.dumps(
        {
            "input_info": {"sample_size": [1, 3, 64, 64]},
            "compression": [
                {
                    "algorithm": "filter_pruning",
                    "pruning_init": 0.1,
                    "params": {"pruning_target": 0.3, "pruning_steps": 2},
                },
                {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 32}}},
            ],
        }
    )
)
model = regnetx002(in_size=(64, 64), num_classes=4)
images = torch.rand(64, 3, 64, 64)
labels = torch.arange(64) % 4


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images and labels of a step."""
    chosen = (torch.arange(8) + 8 * step) % 64
    return images[chosen], labels[chosen]


# nncfx
import nncfx
from nncfx.training import Recipe, Training

config = nncfx.NNCFConfig.from_json("nncf.json")
samples = images.split(8)
controller, model = nncfx.create_compressed_model(model, config, calibration_batches=samples)
recipe = Recipe(steps=16, lr=0.01, steps_per_epoch=4, precision="float32")
training = Training(
    controller, batch, nn.functional.cross_entropy, recipe, "training.ckpt", checkpoint_seconds=0
)
training.run(on_progress=print)
small = nncfx.thin(model.eval()).model
file = nncfx.export_onnx(small, "cnn.onnx", images[:1])
# end
print(f"{sum(one.numel() for one in small.parameters())} parameters, {file.size_bytes} bytes")
