"""How far each tensor of a quantized model is, in integers, from the simulation in torch.

The file's QuantizeLinear nodes become outputs, and what ONNX Runtime's integer kernels return
there is compared with the integers of the torch quantizer that has the same scale, zero point and
size. "kernel": the simulation reads the runtime's tensors before each operation, so that what
differs is that kernel's own. "whole": it runs by itself, and what differs adds up; how fast
depends on the network more than on the runtime, and two runtimes in float drift apart likewise.

Models of pytorchcv have random weights (batch norms settled on random images, as in
quantized_latency.py); those of the shared data are trained.

    python benchmarks/integer_agreement.py --data ../shared/data [--models ...] [--tensors]
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from pretrained import PRETRAINED
from quantized_latency import MODELS, SHAPE, settled
from torch import Tensor

import nncfx
from nncfx.quantization import Quantizer
from nncfx.quantization.observation import quantizers_of
from nncfx.runtimes import EXACT_BYTE_SUMS
from nncfx.tracing import NNCFNetwork, Site, WeightSite

Integers = npt.NDArray[np.int64]
Key = tuple[float, int]


@dataclass(frozen=True)
class Agreement:
    """A quantized tensor, and how far the runtime is from the simulation.

    Attributes:
        elements: How many it has.
        differing: How many differ.
        steps: The largest difference, in quantization steps.
        far: How many differ by more than one step.
    """

    elements: int
    differing: int
    steps: int
    far: int


def agreements(
    model: NNCFNetwork, file: Path, x: Tensor, *, by_kernel: bool
) -> dict[Site, Agreement]:
    """Return how the runtime's tensors agree with those of `model`, which `file` was made of.

    Args:
        model: Quantized.
        file: Its export.
        x: The input.
        by_kernel: Let each operation of the model read what the runtime's kernels returned.
    """
    executed = executed_integers(file, x)
    found: dict[Site, Agreement] = {}

    def compared(site: Site, hook: Quantizer, output: Tensor) -> Tensor | None:
        scale, zero = float(hook.scale), int(hook.zero_point)
        integers = np.rint(output.double().numpy() / scale).astype(np.int64) + zero
        candidates = [
            one.reshape(integers.shape)
            for one in executed.get((scale, zero), ())
            if one.size == integers.size
        ]
        if not candidates:
            return None  # the file moves the quantizer elsewhere: behind a pooling, for instance
        nearest = min(candidates, key=lambda one: np.count_nonzero(one - integers))
        apart = np.abs(nearest - integers)
        found[site] = Agreement(
            elements=apart.size,
            differing=int(np.count_nonzero(apart)),
            steps=int(apart.max()),
            far=int(np.count_nonzero(apart > 1)),
        )
        values = torch.from_numpy(nearest - zero) * hook.scale
        return values.to(output.dtype) if by_kernel else None

    handles = [
        hook.register_forward_hook(lambda hook, _, output, site=site: compared(site, hook, output))
        for site, hook in quantizers_of(model).items()
        if not isinstance(site, WeightSite)
    ]
    try:
        with torch.no_grad():
            model.eval()(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


def executed_integers(file: Path, x: Tensor) -> dict[Key, list[Integers]]:
    """Return the integers of all tensors that ONNX Runtime quantizes, by their grid."""
    model = onnx.load(file)
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    kept = [one for one in model.graph.node if one.op_type == "QuantizeLinear"]
    for one in kept:
        kind = onnx.helper.np_dtype_to_tensor_dtype(constants[one.input[2]].dtype)
        model.graph.output.append(onnx.helper.make_tensor_value_info(one.output[0], kind, None))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*EXACT_BYTE_SUMS)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [one.output[0] for one in kept]
    results = session.run(names, {session.get_inputs()[0].name: x.numpy()})
    found: dict[Key, list[Integers]] = {}
    for node, integers in zip(kept, results, strict=True):
        key = float(constants[node.input[1]]), int(constants[node.input[2]])
        found.setdefault(key, []).append(integers.astype(np.int64))
    return found


def subject(name: str, data: Path) -> tuple[NNCFNetwork, Tensor]:
    """Return a quantized model and one batch for it."""
    if name in PRETRAINED:
        source = PRETRAINED[name]
        images = source.train(data, 64)[0]
        return nncfx.quantize(source.load(data), images.split(32)), images[:8]
    torch.manual_seed(1)
    return nncfx.quantize(settled(name), [torch.randn(8, *SHAPE[1:])]), torch.randn(SHAPE)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    names = [*MODELS, *PRETRAINED]
    parser.add_argument("--models", nargs="+", default=names, choices=names)
    parser.add_argument("--tensors", action="store_true", help="list those beyond one step")
    chosen = parser.parse_args()
    print(
        "| model | tensors | kernel: differing | most steps "
        "| whole: differing | by more than one step | most steps |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    for name in chosen.models:
        model, x = subject(name, chosen.data)
        with tempfile.TemporaryDirectory() as folder:
            file = nncfx.export_onnx(model, Path(folder) / "int8.onnx", x).path
            both = [agreements(model, file, x, by_kernel=one) for one in (True, False)]
        kernel, whole = (list(found.values()) for found in both)
        elements = sum(one.elements for one in kernel)
        cells = [
            f"{sum(one.differing for one in kernel) / elements:.4%}",
            f"{max(one.steps for one in kernel)}",
            f"{sum(one.differing for one in whole) / elements:.2%}",
            f"{sum(one.far for one in whole) / elements:.3%}",
            f"{max(one.steps for one in whole)}",
        ]
        print(f"| {name} | {len(kernel)} | {' | '.join(cells)} |", flush=True)
        for site, one in both[0].items() if chosen.tensors else ():
            if one.steps > 1:
                print(f"  {site}: {one.differing} of {one.elements}, {one.steps} steps")


if __name__ == "__main__":
    main()
