"""Results of the campaign as files: a `.nncfx` file, and a JSON of what it claims.

Run by itself it loads each file of `results/`, measures it on all test images, and compares.

python benchmarks/campaign_results.py --data ../shared/data
"""

import argparse
import copy
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from campaign_runs import Run
from pretrained import PRETRAINED
from torch import Tensor, nn

import nncfx
from nncfx.graph.macs import total_macs
from nncfx.network import NNCFNetwork
from nncfx.schemes import Cluster, Scheme, footprint_bytes
from nncfx.schemes.footprint import nonzero_parameters
from nncfx.storage import absorb_norm_statistics
from nncfx.thinning import save_thinned

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "results"
"""Where results are kept."""
DATA: Final = ROOT.parent / "shared" / "data"
"""Where data and weights are looked for, unless a command says otherwise."""
FEW: Final = 500
"""Test images of the quick check, the first ones."""
SLACK: Final = 3
"""Images that another machine may judge otherwise: its kernels round otherwise."""
AT_ONCE: Final = 25
"""Test images that are computed together: of ResNets, their activations stay in a CPU's caches."""
_HALF: Final = 16


def hits(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return for each of `images` (n x 3 x 32 x 32, normalised) whether `model` names it rightly.

    It computes in float32, on a GPU if there is one.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = False
    layout = torch.channels_last  # half as fast again on CPUs
    model.eval().to(device, memory_format=layout)
    with torch.no_grad():
        answers = [
            model(some.to(device, memory_format=layout)).argmax(1).cpu()
            for some in images.split(AT_ONCE)
        ]
    model.cpu()
    return torch.cat(answers) == labels


def loaded(path: Path, network: str, data: Path) -> nn.Module:
    """Return the network of a result file, in float32."""
    return measured(path, network, data)[0]


def measured(path: Path, network: str, data: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network of a result file in float32, and what it costs beside the dense one."""
    small = nncfx.load(path, PRETRAINED[network].load(data))[1]
    sizes = {"footprint_bytes": footprint_bytes(small), "file_bytes": path.stat().st_size}
    small.float().eval()
    dense_bytes, dense_macs = _dense_costs(network, data)
    macs = _macs(small, network)
    return small, {
        "parameters": nonzero_parameters(small),
        **sizes,
        "footprint_times": round(dense_bytes / sizes["footprint_bytes"], 2),
        "disk_times": round(dense_bytes / sizes["file_bytes"], 2),
        "macs": macs,
        "macs_times": round(dense_macs / macs, 3),
    }


@functools.cache
def _dense_costs(network: str, data: Path) -> tuple[int, int]:
    dense = PRETRAINED[network].load(data)
    return footprint_bytes(dense), _macs(dense, network)


def hits_of_test(model: nn.Module, network: str, data: Path, count: int | None = None) -> Tensor:
    """Return for each test image, or the first `count`, whether `model` names it rightly."""
    return hits(model, *PRETRAINED[network].test(data, count))


@functools.cache
def dense_accuracy(network: str, data: Path) -> float:
    """Return the accuracy of the dense network on all test images, in percent."""
    return percent(hits_of_test(PRETRAINED[network].load(data), network, data))


def percent(right: Tensor) -> float:
    """Return the share of True in percent, as tables write it."""
    return round(100 * right.double().mean().item(), 2)


def faults(claim: dict[str, Any], data: Path, *, few: bool = False) -> list[str]:
    """Return in what the file of a claim differs from it.

    With `few` only the first `FEW` images are looked at.
    """
    network = claim["network"]
    model, found = measured(RESULTS / f"{claim['name']}.nncfx", network, data)
    wrong = [
        f"{key} is {value}, not {claim[key]}"
        for key, value in found.items()
        if value != claim[key]
    ]
    right = hits_of_test(model, network, data, FEW if few else None)
    known = claim["correct_of_first"] if few else claim["correct"]
    if abs(int(right.sum()) - known) > SLACK:
        wrong.append(f"{int(right.sum())} of {len(right)} images are right, not {known}")
    return wrong


def result_name(run: Run, bits: int) -> str:
    """Return the name of a result file."""
    return f"{run.name}-seed{run.seed}-{bits}bit"


def is_written(run: Run) -> bool:
    """Return whether all results of `run`, with these very settings, are there."""
    found = {claim["name"]: claim.get("digest") for claim in claims()}
    return all(found.get(result_name(run, bits)) == run.digest for bits in run.bits)


def _macs(model: nn.Module, network: str) -> int:
    image = torch.zeros((1, 3, 32, 32) if PRETRAINED[network].is_cifar else (1, 1, 28, 28))
    is_wrapped = isinstance(model, NNCFNetwork)
    return total_macs(
        (model if is_wrapped else nncfx.wrap(copy.deepcopy(model), image)).nncf.graph
    )


def write_results(run: Run, model: nn.Module, recipes: list[Any], data: Path) -> Iterator[Path]:
    """Write the files of `run`, which ended with `model`, and yield each as it is there."""
    for bits in run.bits:
        small = copy.deepcopy(model).cpu().eval()
        if bits < _HALF and run.algorithm != "quantization":
            scheme: Scheme = Cluster(bits=bits)
            scheme.compress(small, 0.0)
            # a file in float16 can be trained on, one of codes is the end
            absorb_norm_statistics(small)
        name = result_name(run, bits)
        path = RESULTS / f"{name}.nncfx"
        stored = small if run.algorithm == "quantization" else small.half()
        save_thinned(path, stored, recipes)
        write_claim(
            path,
            run.network,
            data,
            f"python benchmarks/campaign.py run --only {run.name}",
            digest=run.digest,
            run=asdict(run),
        )
        yield path


def write_claim(path: Path, network: str, data: Path, command: str, **origin: object) -> None:
    """Write beside the file at `path` what it claims, and the `command` that made it."""
    model, costs = measured(path, network, data)
    right = hits_of_test(model, network, data)
    claim = {
        "name": path.stem,
        "network": network,
        "accuracy": percent(right),
        "dense_accuracy": dense_accuracy(network, data),
        "correct": int(right.sum()),
        "correct_of_first": int(right[:FEW].sum()),
        "images": len(right),
        **costs,
        **origin,
        "commit": _commit(),
        "command": command,
    }
    path.with_suffix(".json").write_text(json.dumps(claim, indent=2) + "\n")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(  # noqa: S603 (no outside input)
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def claims() -> list[dict[str, Any]]:
    """Return the claims of all results, by name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def main() -> None:
    """Check every result, say what was found, and fail if one is not as it claims."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with data/ and weights/")
    parser.add_argument("--claim", help="write the JSON of this file of results/ first")
    parser.add_argument("--network", choices=sorted(PRETRAINED), help="of that file")
    parser.add_argument("--command", help="that made that file")
    options = parser.parse_args()
    data = options.data
    if options.claim:
        path = RESULTS / f"{options.claim}.nncfx"
        write_claim(path, options.network, data, options.command)
    wrong = {}
    for claim in claims():
        wrong[claim["name"]] = faults(claim, data)
        verdict = "; ".join(wrong[claim["name"]]) or "as claimed"
        print(f"{claim['name']}: {claim['accuracy']:.2f} %, {verdict}", flush=True)
    sys.exit(any(wrong.values()) or not wrong)


if __name__ == "__main__":
    main()
