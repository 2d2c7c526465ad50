"""Write the files of 0.1.0.dev that name the tensor of a shared hook once for each of its sites.

Run in a checkout of commit 23f3aa4: `python make_several_names.py FOLDER`.
"""

import sys

import torch
from torch import nn

import nncfx


class Readers(nn.Module):
    """Query, key and value read one tensor, as in attention."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.query(x) @ self.key(x).mT, -1) @ self.value(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    quantized = nncfx.quantize(Readers(), [torch.randn(8, 3, 4)])
    nncfx.save(f"{sys.argv[1]}/several_names.safetensors", quantized)
    nncfx.storage.save(f"{sys.argv[1]}/several_names.nncfx", quantized)
