"""How far each tensor of a quantized model is, in integers, from the simulation in torch.

The file's QuantizeLinear nodes become outputs, and what ONNX Runtime's integer kernels return
there is compared with the integers of the torch quantizer that has the same scale, zero point and
size. "local": the simulation reads the runtime's tensors before each operation, so that what
differs is that operation's own: this is what a step at most is promised of, for every quantized
tensor. "whole": it runs by itself, and what differs adds up. Both in float32, as it always
simulates, and in integers (`nncfx.quantization.integer_arithmetic`); what is left there comes from
operations in float, whose last bits decide at ties: "off a tie" is how far, in steps, the farthest
of the locally differing elements was from the middle of two integers.

Models of pytorchcv have random weights (batch norms settled on random images, as in
quantized_latency.py; any other is named by its module, "densenet.densenet121"), and so have the
small transformers; those of the shared data and all-MiniLM-L6-v2 (with --minilm) are trained.
"timm:swin_tiny_patch4_window7_224" is a model of a zoo as in quantized_coverage.py, which also
compares what a file returns whose quantized tensors are no outputs: a runtime may fuse these.

    python benchmarks/integer_agreement.py --data ../shared/data [--models ...] [--tensors]
        [--minilm FOLDER]
"""

import argparse
import importlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import quantized_coverage
import torch
from minilm_quantization import Embedder, sentences, tokens
from onnx import numpy_helper
from pretrained import PRETRAINED
from quantized_latency import MODELS, SHAPE, settled
from thin_coverage import subjects
from torch import Tensor
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

import nncfx
from nncfx.network import NNCFNetwork
from nncfx.quantization import Quantizer, integer_arithmetic
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.runtimes import exact_byte_sums
from nncfx.tracing import Site, WeightSite, run

Integers = npt.NDArray[np.int64]
Inputs = tuple[Tensor, ...]
Key = tuple[float, int]


@dataclass(frozen=True)
class Agreement:
    """A quantized tensor, and how far the runtime is from the simulation.

    Attributes:
        elements: How many it has.
        differing: How many differ.
        steps: The largest difference, in quantization steps.
        far: How many differ by more than one step.
        off_tie: The largest distance of a differing element, before it is rounded, from the
            middle of two integers, in steps.
    """

    elements: int
    differing: int
    steps: int
    far: int
    off_tie: float


def agreements(
    model: NNCFNetwork, executed: Mapping[Key, list[Integers]], inputs: Inputs, *, is_local: bool
) -> dict[Site, Agreement]:
    """Return how the runtime's tensors agree with those of `model`.

    Args:
        model: Quantized.
        executed: The runtime's integers of its export, for `inputs`.
        inputs: As the model takes them.
        is_local: Let each operation of the model read what the runtime's kernels returned.
    """
    found: dict[Site, Agreement] = {}

    def compared(site: Site, hook: Quantizer, x: Tensor, output: Tensor) -> None:
        scale, zero = float(hook.scale), int(hook.zero_point)
        integers = np.rint(output.double().numpy() / scale).astype(np.int64) + zero
        candidates = [
            laid_out(one, integers.shape)
            for one in executed.get((scale, zero), ())
            if one.size == integers.size
        ]
        if not candidates:
            return  # the file moves the quantizer elsewhere: behind a pooling, for instance
        nearest = min(candidates, key=lambda one: np.count_nonzero(one - integers))
        apart = np.abs(nearest - integers)
        exact = x.double().numpy() / scale
        off = np.abs(np.abs(exact - np.floor(exact)) - 0.5)
        found[site] = Agreement(
            elements=apart.size,
            differing=int(np.count_nonzero(apart)),
            steps=int(apart.max()),
            far=int(np.count_nonzero(apart > 1)),
            off_tie=float(off[apart > 0].max(initial=0.0)),
        )
        if is_local:
            # the same tensor, of which integer arithmetic knows that it holds integers
            output.data.copy_(torch.from_numpy(nearest - zero) * hook.scale)

    handles = [
        hook.register_forward_hook(
            lambda hook, inputs, output, site=site: compared(site, hook, inputs[0], output)
        )
        for site, hook in activation_quantizers(model).items()
    ]
    try:
        with torch.no_grad():
            run(model.eval(), inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def activation_quantizers(model: NNCFNetwork) -> dict[Site, Quantizer]:
    """Return the quantizers with one scale that stand at activations, by site.

    A weight that the forward computes is quantized where it is read, with one scale per channel.
    """
    return {
        site: hook
        for site, hook in quantizers_of(model).items()
        if not isinstance(site, WeightSite) and hook.step.numel() == 1
    }


def laid_out(tensor: Integers, shape: tuple[int, ...]) -> Integers:
    """Return `tensor` in a shape of as many elements; blocks of 2 x 2 pixels become pixels."""
    if tensor.ndim == len(shape) == len(SHAPE) and tensor.shape[1] == 4 * shape[1]:
        images, channels, height, width = shape
        blocks = tensor.reshape(images, 2, 2, channels, height // 2, width // 2)
        return blocks.transpose(0, 3, 4, 1, 5, 2).reshape(shape)
    return tensor.reshape(shape)


def executed_integers(file: Path, inputs: Inputs) -> dict[Key, list[Integers]]:
    """Return the integers of all tensors that ONNX Runtime quantizes, by their grid."""
    model = onnx.load(file)
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    kept = [
        one
        for one in model.graph.node
        # weights that stay in float pass one with a scale for each channel
        if one.op_type == "QuantizeLinear" and constants[one.input[1]].size == 1
    ]
    for one in kept:
        kind = onnx.helper.np_dtype_to_tensor_dtype(constants[one.input[2]].dtype)
        model.graph.output.append(onnx.helper.make_tensor_value_info(one.output[0], kind, None))
    options = onnxruntime.SessionOptions()
    for entry in exact_byte_sums().items():
        options.add_session_config_entry(*entry)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [one.output[0] for one in kept]
    fed = zip(session.get_inputs(), inputs, strict=True)
    results = session.run(names, {one.name: value.numpy() for one, value in fed})
    found: dict[Key, list[Integers]] = {}
    for node, integers in zip(kept, results, strict=True):
        key = constants[node.input[1]].item(), constants[node.input[2]].item()
        found.setdefault(key, []).append(integers.astype(np.int64))
    return found


def vit() -> tuple[NNCFNetwork, Inputs]:
    """Return a quantized vision transformer of four layers with random weights."""
    sizes = {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = ViTConfig(intermediate_size=192, image_size=64, patch_size=16, **sizes)
    batches = [torch.randn(4, 3, 64, 64) for _ in range(5)]
    return nncfx.quantize(ViTForImageClassification(config).eval(), batches[1:]), (batches[0],)


def distilbert() -> tuple[NNCFNetwork, Inputs]:
    """Return a quantized language model of four layers with random weights."""
    config = DistilBertConfig(dim=96, n_layers=4, n_heads=4, hidden_dim=192, vocab_size=1000)
    batches = [torch.randint(1000, (4, 32)) for _ in range(5)]
    model = DistilBertForSequenceClassification(config).eval()
    return nncfx.quantize(model, batches[1:]), (batches[0],)


TRANSFORMERS = {"vit": vit, "distilbert": distilbert}


def subject(name: str, data: Path, minilm: Path | None = None) -> tuple[NNCFNetwork, Inputs]:
    """Return a quantized model and one batch for it."""
    torch.manual_seed(1)
    if name == "minilm":
        folder = Path() if minilm is None else minilm
        batches = tokens(folder, sentences(data, "test", 36), 4)
        return nncfx.quantize(Embedder(folder), batches[1:]), batches[0]
    if name in TRANSFORMERS:
        return TRANSFORMERS[name]()
    if name in PRETRAINED:
        source = PRETRAINED[name]
        images = source.train(data, 64)[0]
        return nncfx.quantize(source.load(data), images.split(32)), (images[:8],)
    if ":" in name:
        zoo, _, wanted = name.partition(":")
        (found,) = [one for one in subjects(zoo) if one.name == wanted]
        model, images = quantized_coverage.settled(found, None)
        return nncfx.quantize(model, [images]), (images,)
    if name not in MODELS:
        module, _, function = name.partition(".")
        MODELS[name] = getattr(importlib.import_module(f"pytorchcv.models.{module}"), function)
    return nncfx.quantize(settled(name), [torch.randn(8, *SHAPE[1:])]), (torch.randn(SHAPE),)


def measured(model: NNCFNetwork, inputs: Inputs) -> dict[str, dict[Site, Agreement]]:
    """Return how the model and its file agree, in four ways."""
    with tempfile.TemporaryDirectory() as folder:
        file = nncfx.export_onnx(model, Path(folder) / "int8.onnx", inputs).path
        executed = executed_integers(file, inputs)
    found = {
        "local": agreements(model, executed, inputs, is_local=True),
        "whole": agreements(model, executed, inputs, is_local=False),
    }
    with integer_arithmetic(model):
        found["local, integers"] = agreements(model, executed, inputs, is_local=True)
        found["whole, integers"] = agreements(model, executed, inputs, is_local=False)
    return found


def row(name: str, all_of: int, found: Mapping[str, Mapping[Site, Agreement]]) -> str:
    """Return a line of the table of one model, of as many quantized activations."""
    cells = [name, f"{len(found['local'])} of {all_of}"]
    for way, by_site in found.items():
        tensors = list(by_site.values())
        elements = sum(one.elements for one in tensors)
        differing = sum(one.differing for one in tensors)
        cells += [f"{differing / elements:.2g}" if differing else "0"]
        cells += [f"{max(one.steps for one in tensors)}"]
        if way == "local, integers":
            cells += [f"{max(one.off_tie for one in tensors):.1g}" if differing else ""]
        elif way != "local":
            cells += [f"{sum(one.far for one in tensors) / elements:.2g}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2")
    names = [*PRETRAINED, *MODELS, *TRANSFORMERS]
    parser.add_argument(
        "--models",
        nargs="+",
        default=names,
        metavar="NAME",
        help=f"{names}, minilm, pytorchcv, zoo:model",
    )
    parser.add_argument("--tensors", action="store_true", help="list those that differ")
    chosen = parser.parse_args()
    print(
        "| model | tensors | local: differing | most steps | whole: differing | most steps "
        "| by more than one | local, integers: differing | most steps | off a tie "
        "| whole, integers: differing | most steps | by more than one |"
        f"\n|---{'|---:' * 12}|"
    )
    for name in chosen.models:
        model, inputs = subject(name, chosen.data, chosen.minilm)
        found = measured(model, inputs)
        print(row(name, len(activation_quantizers(model)), found), flush=True)
        for site, one in found["whole, integers"].items() if chosen.tensors else ():
            if one.differing:
                print(f"  {site}: {one.differing} of {one.elements}, {one.steps} steps")


if __name__ == "__main__":
    main()
