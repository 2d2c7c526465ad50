"""Time what reordering channels brings, against gathers, constraints and the published code.

Weights are random, every layer loses half of its input channels by L1 norm, on the masks of
`apple-upscale` (`--reference DIR`) where it can make some. `write` exports each model in several
forms, `time` runs them in turns at batch 1 on one thread and prints medians of milliseconds and
what they are to others.

* `masked`: nothing removed.
* `tied`: channels that no layer reads are gone; the constraint that all layers read the same.
* `gather`: each layer gathers what it needs, in the old order.
* `exact`: the same in the new order: slices, and gathers where that cannot be.
* `nncfx`: what `reorder_channels` chooses for the runtime.
* `bound`: `exact` with a slice in place of every gather; wrong, and as fast as slices can be.
* `upscale gather`, `upscale`: the published implementation.

    python benchmarks/unconstrained_latency.py write DIR torch --reference REF
    python benchmarks/unconstrained_latency.py time DIR torch
"""

import argparse
import copy
import importlib
import random
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import torch
from torch import nn
from unconstrained_export import COPIES, Reference, made, mask

from nncfx.export import ReorderResult, export_onnx, reorder_channels
from nncfx.reorder.selection import ChannelSelection
from nncfx.targets import names
from nncfx.thinning import thin

WARM_UP: Final = 3
SUFFIXES: Final = {"torch": ".pt", "onnxruntime": ".onnx", "openvino": ".onnx"}

Run: TypeAlias = Callable[[], object]


def zero_copy(result: ReorderResult) -> nn.Module:
    """Return the model with a slice in place of every gather."""
    bound = copy.deepcopy(result.model)
    for module in bound.modules():
        if isinstance(module, ChannelSelection):
            module.start, module.positions = 0, None
    return bound


def forms(
    name: str, inputs: torch.Tensor, options: argparse.Namespace
) -> Mapping[str, Callable[[], nn.Module]]:
    """Return what makes each form of a model."""
    model = made(name, double=False)
    reference = Reference(options.reference) if options.reference else None
    if reference is None:
        mask(model, inputs, options.level, "input")
    else:
        model.load_state_dict(reference.masked_state(model, options.level))
    found: dict[str, Callable[[], nn.Module]] = {
        "masked": lambda: model,
        "tied": lambda: (
            thin(
                model,
                inputs,
                align=options.runtime if options.runtime in names("alignment") else 1,
            ).model
        ),
        "gather": lambda: reorder_channels(model, inputs, target=None, reorder=False).model,
        "exact": lambda: reorder_channels(model, inputs, target=None).model,
        "nncfx": lambda: reorder_channels(model, inputs, target=options.runtime).model,
        "bound": lambda: zero_copy(reorder_channels(model, inputs, target=None)),
    }
    if reference is not None:
        found["upscale gather"] = lambda: reference.pruned(model, inputs, baseline=True)[0]
        found["upscale"] = lambda: reference.pruned(model, inputs)[0]
    return found


def write(options: argparse.Namespace) -> None:
    """Write each form of each model."""
    inputs = torch.randn(1, 3, options.size, options.size)
    for name in options.models:
        for form, make in forms(name, inputs, options).items():
            if options.forms and form not in options.forms:
                continue
            path = options.folder / f"{name}-{form.replace(' ', '_')}{SUFFIXES[options.runtime]}"
            model = make().eval()
            if options.runtime == "torch":
                with torch.no_grad():
                    torch.jit.trace(model, inputs).save(str(path))
            else:
                export_onnx(model, path, inputs, options.runtime, dynamic_batch=False)
            print(path, flush=True)


def torch_run(path: Path, inputs: torch.Tensor) -> Run:
    """Return what runs a traced model."""
    model = torch.jit.load(str(path)).eval()
    return lambda: model(inputs)


def onnxruntime_run(path: Path, inputs: torch.Tensor) -> Run:
    """Return what runs a file in ONNX Runtime."""
    onnxruntime = importlib.import_module("onnxruntime")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: inputs.numpy()}
    return lambda: session.run(None, feed)


def openvino_run(path: Path, inputs: torch.Tensor) -> Run:
    """Return what runs a file in OpenVINO, in float32."""
    core = importlib.import_module("openvino").Core()
    settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(str(path), "CPU", settings).create_infer_request()
    data = inputs.numpy()
    return lambda: request.infer([data], share_inputs=True)


FILE_RUNS: Final = {"onnxruntime": onnxruntime_run, "openvino": openvino_run}
LOADERS: Final = {"torch": torch_run, **FILE_RUNS}


def timed(options: argparse.Namespace) -> None:
    """Print a row per model."""
    inputs = torch.randn(1, 3, options.size, options.size)
    titles: list[str] = []
    for name in options.models:
        suffix = SUFFIXES[options.runtime]
        paths = sorted(options.folder.glob(f"{name}-*{suffix}"))
        with torch.no_grad():
            runs = {
                path.stem.rpartition("-")[2].replace("_", " "): LOADERS[options.runtime](
                    path, inputs
                )
                for path in paths
            }
            found = interleaved(runs, options.rounds)
        if list(found) != titles:
            titles = list(found)
            print(f"| model | {' | '.join(titles)} |\n{'|---' * (1 + len(titles))}|")
        print(f"| {name} | {' | '.join(f'{one:.2f}' for one in found.values())} |", flush=True)


def interleaved(runs: Mapping[str, Run], rounds: int) -> dict[str, float]:
    """Return the median processor milliseconds of each, run in turns.

    The order is another in every round: what follows a large model finds its caches empty.
    """
    times: dict[str, list[float]] = {key: [] for key in runs}
    order, chance = list(runs.items()), random.Random(0)
    for number in range(rounds + WARM_UP):
        chance.shuffle(order)
        for key, run in order:
            began = time.process_time_ns()
            run()
            if number >= WARM_UP:
                times[key].append((time.process_time_ns() - began) / 1e6)
    return {key: statistics.median(one) for key, one in times.items()}


def main() -> None:
    """Write files, or print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["write", "time"])
    parser.add_argument("folder", type=Path, help="where the exported models stand")
    parser.add_argument("runtime", choices=LOADERS)
    parser.add_argument("--models", nargs="+", default=COPIES)
    parser.add_argument("--forms", nargs="*", default=[], help="of each model; all without")
    parser.add_argument("--level", type=float, default=0.5, help="fraction of channels that go")
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    parser.add_argument("--rounds", type=int, default=50, help="runs of each, in turns")
    parser.add_argument("--reference", metavar="DIR", help="where apple-upscale is installed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    write(options) if options.step == "write" else timed(options)


if __name__ == "__main__":
    main()
