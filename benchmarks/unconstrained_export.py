"""Reorder published architectures whose layers each keep their own channels.

Weights are random (seed 0), batch norms scattered, and every convolution loses half of its input
channels by L1 norm. Tables in Markdown:

* `copies`: channels that gathers copy, without and with reordering, against the published
  implementation on its own masks (`--reference DIR`; get it with
  `pip install --no-deps --target DIR apple-upscale`).
* `exact`: the relative error in float64 against the masked model, input and output side.

`unconstrained_latency.py` times the same models. Needs torchvision; on a CPU build of torch with
`PYTHONPATH=../shared/tools`.

    python benchmarks/unconstrained_export.py copies --reference DIR
"""

import argparse
import copy
import importlib
import sys
import warnings
from collections.abc import Mapping
from typing import Any, Final

import torch
from thin_coverage import scattered
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.errors import machine_fault
from nncfx.export import ReorderResult, reorder_channels
from nncfx.reorder.selection import ChannelSelection
from nncfx.schemes import Ranking, unconstrained_masks
from nncfx.tracing import trace

SEEDED: Final = 0
COPIES: Final = "efficientnet_v2_s densenet121 resnet18 mobilenet_v2 squeezenet1_1".split()  # noqa: SIM905 (a word list)
EXACT: Final = """alexnet vgg11 vgg11_bn resnet18 resnet50 wide_resnet50_2 resnext50_32x4d
densenet121 squeezenet1_0 squeezenet1_1 googlenet inception_v3 mobilenet_v2 mobilenet_v3_small
mobilenet_v3_large mnasnet0_5 shufflenet_v2_x0_5 shufflenet_v2_x1_0 efficientnet_b0
efficientnet_v2_s regnet_x_400mf regnet_y_400mf convnext_tiny vit_b_16 swin_t swin_v2_t
maxvit_t""".split()  # noqa: SIM905 (a word list)

SIZES: Final = {"vit_b_16": 224, "maxvit_t": 224, "inception_v3": 160}
"""The sizes of images that models insist on."""


def made(name: str, *, double: bool) -> nn.Module:
    """Return a model of torchvision with random weights."""
    importlib.import_module("torchvision_on_cpu")
    models = importlib.import_module("torchvision.models")
    torch.manual_seed(SEEDED)
    model: nn.Module = getattr(models, name)(weights=None)
    for parameter in model.parameters():
        if not parameter.any():  # a head of zeros would hide every difference
            nn.init.normal_(parameter, std=0.02)
    return scattered(model.double() if double else model).eval()


def mask(model: nn.Module, inputs: torch.Tensor, level: float, side: str) -> nn.Module:
    """Zero what layers do not keep, in place: `level` of their channels, by L1 norm."""
    channels = analyze_channels(model, inputs, living_norms=side == "input")
    weights = dict(model.named_parameters())
    ranking = Ranking(side="input" if side == "input" else "output")
    masks = unconstrained_masks(channels, weights, level, ranking, graph=trace(model, inputs))
    with torch.no_grad():
        for name, one in masks.items():
            weights[name].mul_(one)
    return model


class Reference:
    """The published implementation, on a processor without CUDA."""

    def __init__(self, directory: str) -> None:
        sys.path.insert(0, directory)
        self._masking = importlib.import_module("upscale.masking.mask")
        self._importance = importlib.import_module("upscale.masking.importance")
        self._manager = importlib.import_module("upscale.pruning.manager")
        torch.Tensor.cuda = lambda tensor, *_, **__: tensor  # type: ignore[method-assign]  # its masking asks for CUDA

    def masked_state(self, model: nn.Module, level: float) -> Mapping[str, torch.Tensor]:
        """Return the state of a copy of `model` with its masks: inputs, unconstrained, L1."""
        model = copy.deepcopy(model)
        self._masking.mask_model(model, amount=level, heuristic=self._importance.Magnitude(p=1))
        return {name: one.detach().clone() for name, one in model.state_dict().items()}

    def pruned(self, model: nn.Module, inputs: torch.Tensor, **how: bool) -> tuple[nn.Module, Any]:
        """Return its small copy of `model`, and what each layer reads there."""
        model = copy.deepcopy(model)
        baseline = how.get("baseline", False)
        manager = self._manager.PruningManager(model)
        manager.compute([inputs], reorder_producer=not baseline, reorder_consumer=not baseline)
        reads = dict(manager.spec.tensor_to_input_activation_indices)
        manager.prune(is_not_ane=True, baseline=baseline)
        return model, reads


def copied_by(reads: Mapping[int, Any], *, baseline: bool) -> int:
    """Return how many channels the published implementation copies."""
    return sum(len(one) for one in reads.values() if baseline or not isinstance(one, range))


def subjects(options: argparse.Namespace, names: list[str]) -> list[str]:
    """Return the models asked for."""
    return options.only or names


def report_copies(options: argparse.Namespace) -> None:
    """Print the channels copied."""
    reference = Reference(options.reference) if options.reference else None
    print("| model | masks | gathered | reordered | no-op slices | upscale gathered | upscale |")
    print("|---|---|---|---|---|---|---|")
    for name in subjects(options, COPIES):
        inputs = torch.randn(1, 3, options.size, options.size)
        model, theirs = made(name, double=False), ("", "")
        if reference is None:
            mask(model, inputs, options.level, "input")
        else:
            model.load_state_dict(reference.masked_state(model, options.level))
            _, gathered = reference.pruned(model, inputs, baseline=True)
            _, reads = reference.pruned(model, inputs)
            theirs = (
                str(copied_by(gathered, baseline=True)),
                str(copied_by(reads, baseline=False)),
            )
        plain = reorder_channels(model, inputs, target=None, reorder=False)
        ours = reorder_channels(model, inputs, target=None)
        print(
            f"| {name} | {'nncfx' if reference is None else 'upscale'} | {plain.copied} "
            f"| {ours.copied} | {no_ops(ours)} | {theirs[0]} | {theirs[1]} |",
            flush=True,
        )


def no_ops(result: ReorderResult) -> int:
    """Return how many slices take all there is."""
    placed = {
        name.rpartition(".")[0]
        for name, module in result.model.named_modules()
        if isinstance(module, ChannelSelection)
    }
    return sum(one.kind == "all" and name in placed for name, one in result.reads.items())


def report_exact(options: argparse.Namespace) -> None:
    """Print errors."""
    print("| model | side | layers: slice, gather, all | parameters kept | error |")
    print("|---|---|---|---|---|")
    for name in subjects(options, EXACT):
        for side in ("input", "output"):
            size = SIZES.get(name, options.size)
            inputs = torch.randn(1, 3, size, size, dtype=torch.float64)
            try:
                model = mask(made(name, double=True), inputs, options.level, side)
                result = reorder_channels(model, inputs, target=None)
                before, after = result.thinned.parameters[0], parameters(result.model)
                kinds = [result.count("slice"), result.count("gather"), result.count("all")]
                print(
                    f"| {name} | {side} | {', '.join(map(str, kinds))} | {after / before:.0%} "
                    f"| {result.max_error:.1e} |",
                    flush=True,
                )
            except Exception as error:
                if machine_fault(error) is not None:
                    raise  # says nothing of the model
                text = " ".join(str(error).split())[:200]
                print(f"| {name} | {side} | FAIL | {type(error).__name__}: {text} | |", flush=True)


def parameters(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(one.numel() for one in model.parameters())


def main() -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tables = {"copies": report_copies, "exact": report_exact}
    parser.add_argument("table", choices=tables)
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    parser.add_argument("--level", type=float, default=0.5, help="fraction of channels that go")
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--reference", metavar="DIR", help="where apple-upscale is installed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tables[options.table](options)


if __name__ == "__main__":
    main()
