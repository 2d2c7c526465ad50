"""Results of the campaign as files: a `.nncfx` file, and a JSON of what it claims.

`verify` loads a file and measures it on all test images; nothing of the campaign is needed.
"""

import copy
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from campaign_runs import Run
from pretrained import PRETRAINED, cifar10_test
from torch import Tensor, nn

import nncfx
from nncfx.graph.macs import total_macs
from nncfx.schemes import Cluster, Scheme, footprint_bytes
from nncfx.schemes.footprint import nonzero_parameters
from nncfx.thinning import load_thinned, save_thinned

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "results"
"""Where results are kept."""
DATA: Final = ROOT.parent / "shared" / "data"
"""Where data and weights are looked for, unless a command says otherwise."""
_HALF: Final = 16


def hits(model: nn.Module, images: Tensor, labels: Tensor) -> int:
    """Return how many `images` (n x 3 x 32 x 32, normalised) `model` names rightly, in float32."""
    model.eval()
    parts = zip(images.split(500), labels.split(500), strict=True)
    with torch.no_grad():
        return sum(int((model(some).argmax(1) == right).sum()) for some, right in parts)


def loaded(path: Path, network: str, data: Path) -> nn.Module:
    """Return the network of a result file, in float32."""
    return load_thinned(path, PRETRAINED[network].load(data)).float().eval()


def measured(path: Path, network: str, data: Path) -> dict[str, Any]:
    """Return what the file at `path` holds and how right it is, beside the dense network."""
    dense, small = PRETRAINED[network].load(data), loaded(path, network, data)
    pixels, labels = cifar10_test(data)
    images = PRETRAINED[network].images(pixels)
    right = hits(small, images, labels)
    sizes = {"footprint_bytes": footprint_bytes(load_thinned(path, dense))}
    sizes["file_bytes"] = path.stat().st_size
    dense_bytes = footprint_bytes(dense)
    macs, dense_macs = _macs(small, images[:1]), _macs(dense, images[:1])
    return {
        "accuracy": _percent(right, labels),
        "dense_accuracy": _percent(hits(dense, images, labels), labels),
        "images": len(labels),
        "parameters": nonzero_parameters(small),
        **sizes,
        "footprint_times": round(dense_bytes / sizes["footprint_bytes"], 2),
        "disk_times": round(dense_bytes / sizes["file_bytes"], 2),
        "macs": macs,
        "macs_times": round(dense_macs / macs, 3),
    }


def _percent(right: int, labels: Tensor) -> float:
    return round(100 * right / len(labels), 2)


def _macs(model: nn.Module, image: Tensor) -> int:
    return total_macs(nncfx.wrap(copy.deepcopy(model), image).nncf.graph)


def write_results(run: Run, model: nn.Module, recipes: list[Any], data: Path) -> Iterator[Path]:
    """Write the files of `run`, which ended with `model`, and yield each as it is there."""
    for bits in run.bits:
        small = copy.deepcopy(model).cpu().eval()
        if bits < _HALF:
            scheme: Scheme = Cluster(bits=bits)
            scheme.compress(small, 0.0)
        name = f"{run.name}-seed{run.seed}-{bits}bit"
        path = RESULTS / f"{name}.nncfx"
        save_thinned(path, small.half(), recipes, signed_zeros=False)
        claim = {
            "name": name,
            "network": run.network,
            "run": asdict(run),
            "digest": run.digest,
            **measured(path, run.network, data),
            "commit": _commit(),
            "command": f"python benchmarks/campaign.py run --only {run.name}",
        }
        path.with_suffix(".json").write_text(json.dumps(claim, indent=2) + "\n")
        yield path


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(  # noqa: S603 (no outside input)
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def claims() -> list[dict[str, Any]]:
    """Return the claims of all results, by name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
