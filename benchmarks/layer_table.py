"""Channels and time of every layer before and after pruning, as in Condensa's Table 3.

Filters and neurons go globally by their L2 norm, to widths that suit ONNX Runtime; the model is
thinned, both are exported, and ONNX Runtime's profile tells the time of each layer, one thread,
both files in turns. AlexNet has weights at random, of which no time depends.

    python benchmarks/layer_table.py --data ../shared/data --network VGG-19-BN --level 0.5
    python benchmarks/layer_table.py --network AlexNet
"""

import argparse
import copy
import logging
from pathlib import Path

import torch
from model_files import NETWORKS
from pytorchcv.models.alexnet import alexnet
from torch import Tensor, nn

from nncfx.report import compare_layers
from nncfx.schemes import StructurePrune
from nncfx.thinning import prunable_channels, thin


def network(options: argparse.Namespace) -> tuple[nn.Module, Tensor]:
    """Return the network that is asked for, and an image."""
    if options.network in NETWORKS:
        return NETWORKS[options.network].load(options.data), torch.randn(1, 3, 32, 32)
    return alexnet().eval(), torch.randn(1, 3, 224, 224)


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", default="AlexNet", choices=[*NETWORKS, "AlexNet"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--level", type=float, default=0.5, help="fraction of the groups that go")
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    dense, image = network(options)
    channels = prunable_channels(dense, image)
    pruned = copy.deepcopy(dense)
    StructurePrune(align=16).bind(channels).compress(pruned, options.level)
    thinned = thin(pruned, image, channels=channels).model
    print(compare_layers(dense, thinned, image, runs=options.runs).to_markdown())


if __name__ == "__main__":
    main()
