"""How small a `.nncfx` file of trained bfloat16 weights is, and how fast it is read.

    python benchmarks/bfloat16_files.py --data ../shared/data [--copies 5] [--rounds 40]

The weights of VGG-19-BN, several times over, are packed without loss and read again and again, by
as many threads as there are cores. The bits are compared once. Nothing else should run.
"""

import argparse
import io
import os
import statistics
import time
from pathlib import Path

import torch
from pretrained import PRETRAINED

from nncfx.storage.codecs.number_formats import BitTensor
from nncfx.storage.compiled import prepare
from nncfx.storage.formats.container import Contents, pack, read_header, read_tensors
from nncfx.storage.models.torch_bits import to_bits


def weights(data: Path, copies: int) -> dict[str, BitTensor]:
    """Return the weights of VGG-19-BN in bfloat16, `copies` times."""
    state = PRETRAINED["vgg19_bn"].load(data).state_dict()
    matrices = {name: w.to(torch.bfloat16) for name, w in state.items() if w.ndim > 1}
    return {
        f"{copy}.{name}": to_bits(tensor, signed_zeros=True)
        for copy in range(copies)
        for name, tensor in matrices.items()
    }


def read(packed: bytes) -> dict[str, BitTensor]:
    """Return the tensors of a file."""
    file = io.BytesIO(packed)
    return {row.name: tensor for row, tensor in read_tensors(file, read_header(file))}


def main() -> None:
    """Print size and speed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with weights/")
    parser.add_argument("--copies", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    tensors = weights(options.data, options.copies)
    count = sum(one.words.size for one in tensors.values())
    prepare(count)
    packed = pack(Contents(tensors=tensors))
    if any((tensors[name].words != one.words).any() for name, one in read(packed).items()):
        raise SystemExit("What was read is not what was packed.")
    clock, processor = [], []
    for _ in range(options.rounds):
        began = time.perf_counter(), time.process_time()
        read(packed)
        clock.append(time.perf_counter() - began[0])
        processor.append(time.process_time() - began[1])
    print(
        f"{count / 1e6:.1f} M weights in {len(packed):,} bytes ({len(packed) / (2 * count):.4f}); "
        f"{os.cpu_count()} cores, {options.rounds} times: best "
        f"{count / min(clock) / 1e6:.0f} M weights/s, median "
        f"{count / statistics.median(clock) / 1e6:.0f}; of the processor "
        f"{count / statistics.median(processor) / 1e6:.0f}"
    )


if __name__ == "__main__":
    main()
