"""Write the golden checkpoints of version 1; run once, with the code of that version.

The files are read in every test run and must never be written again.
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

import nncfx

HERE = Path(__file__).parent
INPUTS = torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6)


class Net(nn.Module):
    """A convolution, a batch norm, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(self.conv(x)).relu().mean((2, 3)))


def main() -> None:
    config = {
        "compression": [
            {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5},
            {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}},
        ]
    }
    controller, trained = nncfx.create_compressed_model(Net().eval(), config, INPUTS)
    nncfx.save(HERE / "training_1.safetensors", trained, controller)
    quantized = nncfx.quantize(Net().eval(), [INPUTS])
    nncfx.save(HERE / "quantized_1.safetensors", quantized)
    folded = nncfx.quantize(Net().eval(), [INPUTS], target="vta")
    nncfx.save(HERE / "folded_1.safetensors", folded)
    models = {"training_1": trained, "quantized_1": quantized, "folded_1": folded}
    outputs = {name: one.eval()(INPUTS).tolist() for name, one in models.items()}
    (HERE / "outputs_1.json").write_text(json.dumps(outputs) + "\n")


if __name__ == "__main__":
    main()
