"""A bidirectional GRU is quantized and exported for sequences of any length."""

import torch
from torch import Tensor, nn
from typing_extensions import override

torch.manual_seed(0)
torch.set_num_threads(1)


class Tagger(nn.Module):
    """Names each step of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.gru = nn.GRU(24, 40, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(80, 7)

    @override
    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(words))
        return self.head(states)


model = Tagger().eval()
batches = [torch.randint(50, (8, 15)) for _ in range(4)]

# nncfx
import nncfx
from nncfx.runtimes import BuildOptions, runtime_named

small = nncfx.quantize(model, batches)
open_length = {"words": {1: "length"}}
file = nncfx.export_onnx(small, "gru.onnx", batches[0], dynamic_axes=open_length)
with runtime_named("onnxruntime").build(file, BuildOptions(threads=1)) as session:
    (logits,) = session.run(batches[0][:, :9])
# end
agree = (torch.from_numpy(logits).argmax(-1) == small(batches[0][:, :9]).argmax(-1)).float().mean()
print(f"{file.size_bytes} bytes; {agree:.3f} of the tags agree with torch")
