"""How well a latency table predicts pruned variants of ResNet-50 (bar: rank 0.95, median 10 %).

python benchmarks/runtime_predictor.py --measured 12 --predicted 50 --folder /tmp/variants

Every variant keeps a random share of the channels of each space. The variants that are predicted
are timed by the CPU time of one thread, each in turns with the dense model, so that other work on
the machine falls out.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from pytorchcv.models.resnet import resnet50
from rich.progress import track
from torch import nn

from nncfx.export import export_onnx
from nncfx.graph import NNCFGraph
from nncfx.runtimes import (
    BuildOptions,
    TimingPlan,
    Variant,
    compare,
    measured_table,
    runtime_named,
    verdict,
)
from nncfx.schemes import zero_groups
from nncfx.thinning import prunable_channels, thin
from nncfx.tracing import trace


def main() -> None:
    """Make the variants, measure a table on some, predict the others, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measured", type=int, default=12, help="variants that make the table")
    parser.add_argument("--predicted", type=int, default=50)
    parser.add_argument("--runs", type=int, default=15, help="profiled runs of each")
    parser.add_argument("--seconds", type=float, default=1.0, help="to time each run for")
    parser.add_argument("--folder", type=Path, required=True, help="variants are kept here")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    inputs = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    maker = VariantMaker(inputs, chosen.folder)
    total = chosen.measured + chosen.predicted
    variants = [maker.variant(seed) for seed in track(range(total), "Pruning")]
    known, unknown = variants[: chosen.measured], variants[chosen.measured :]
    dense = maker.dense_path
    table = measured_table(known, inputs, seconds=chosen.seconds, runs=chosen.runs)
    (chosen.folder / "table.json").write_text(table.to_json(), encoding="utf-8")
    started = time.process_time()
    predicted = np.array([table.predict_ms(variant.graph) for variant in unknown])
    spent = (time.process_time() - started) / len(unknown)
    measured = np.array(
        [run_ms(dense, one.path, inputs, chosen.seconds) for one in track(unknown, "Checking")]
    )
    error = np.abs(predicted / measured - 1)
    print("| variants | measured ms | rank correlation | median error | 90 % | ms a prediction |")
    print("|---:|---|---:|---:|---:|---:|")
    print(
        f"| {len(unknown)} | {measured.min():.1f} to {measured.max():.1f} "
        f"| {rank_correlation(predicted, measured):.3f} | {np.median(error):.1%} "
        f"| {np.quantile(error, 0.9):.1%} | {1000 * spent:.1f} |"
    )


class VariantMaker:
    """Makes pruned ResNet-50s: thinned as modules, and as files with the dense file's graph.

    Latency does not depend on the values of weights: a variant's file is the dense file with
    weights of the thinned shapes, which saves the export of each.
    """

    def __init__(self, inputs: torch.Tensor, folder: Path) -> None:
        """Analyse and export the dense model once."""
        self.inputs, self.folder = inputs, folder
        torch.manual_seed(0)
        self.model = resnet50().eval()
        self.channels = prunable_channels(self.model, inputs)
        self.dense_path = folder / "dense.onnx"
        result = export_onnx(self.model, self.dense_path, inputs, dynamic_batch=False)
        self.modules = dict(result.modules)

    def variant(self, seed: int) -> Variant:
        """Return the variant of this number; one that is kept already is read."""
        path = self.folder / f"{seed}.onnx"
        kept = self.folder / f"{seed}.graph.json"
        if not path.exists():
            model = self._thinned(seed)
            kept.write_text(trace(model, self.inputs).to_json(), encoding="utf-8")
            self._write(model, path)
        graph = NNCFGraph.from_json(kept.read_text(encoding="utf-8"))
        return Variant(graph=graph, path=path, modules=self.modules)

    def _thinned(self, seed: int) -> nn.Module:
        torch.manual_seed(0)
        model = resnet50().eval()
        generator = torch.Generator().manual_seed(seed)
        overall = 0.35 + 0.6 * float(torch.rand(1, generator=generator))
        keep = []
        for group_set in self.channels.prunable:
            share = overall + 0.3 * (float(torch.rand(1, generator=generator)) - 0.5)
            width = int(8 * np.clip(round(share * group_set.size / 8), 1, group_set.size // 8))
            keep.append(torch.arange(group_set.size) < width)
        weights = dict(model.named_parameters(remove_duplicate=False))
        zero_groups(self.channels, keep, weights)
        return thin(model, self.inputs, channels=self.channels).model

    def _write(self, model: nn.Module, path: Path) -> None:
        """Write the dense file with weights of the shapes of `model`."""
        shapes = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                shapes[f"{name}.weight"] = tuple(module.weight.shape)
                shapes[f"{name}.bias"] = (module.weight.shape[0],)
        document = onnx.load(self.dense_path)
        generator = np.random.default_rng(0)
        products = [node for node in document.graph.node if node.op_type in ("Conv", "Gemm")]
        names = {}
        for node in products:
            for value, kind in zip(node.input[1:], ("weight", "bias"), strict=False):
                names[value] = f"{self.modules[node.name]}.{kind}"
        for tensor in document.graph.initializer:
            if tensor.name in names:
                values = generator.normal(0, 0.01, shapes[names[tensor.name]]).astype(np.float32)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        del document.graph.value_info[:]
        onnx.save(document, path)


def run_ms(dense: Path, path: Path, inputs: torch.Tensor, seconds: float) -> float:
    """Return the CPU milliseconds of a run, by its ratio to the dense model in turns."""
    runtime, options = runtime_named("onnxruntime"), BuildOptions(threads=1)
    with runtime.build(dense, options) as first, runtime.build(path, options) as second:
        calls = {"dense": first.bind(inputs), "variant": second.bind(inputs)}
        plan = TimingPlan(seconds=seconds, warm_up_seconds=0.3)
        timings = compare(calls, plan=plan, clock=time.process_time)
    reference = dense.with_suffix(".ms.json")
    if not reference.exists():
        reference.write_text(json.dumps(timings["dense"].median_ms), encoding="utf-8")
    dense_ms = float(json.loads(reference.read_text(encoding="utf-8")))
    return dense_ms / verdict(timings["dense"], timings["variant"]).speed_up


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's correlation of two samples without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(ranks)[0, 1])


if __name__ == "__main__":
    main()
