"""Compare what a wrap costs in this checkout and in an earlier one, both in this process.

Two processes differ by 20 to 30 % on the same code, by where their memory lies; in one process,
medians of 11 turns differed by up to 5 % (a copy of this checkout against itself, eight networks).
Only wrapping is compared so: other steps register operators with torch, which takes each name
once.

    git worktree add ../before c2b2089
    python benchmarks/wrap_before_and_after.py ../before
"""

import argparse
import copy
import gc
import importlib
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from before_and_after import PYTORCHCV, TRANSFORMERS
from trace_transformers import make_transformers
from trace_zoos import make_pytorchcv

Wrap = Callable[[torch.nn.Module, Any], torch.nn.Module]


def wrap_of(folder: Path) -> Wrap:
    """Return the `wrap` of the checkout in `folder`, imported anew."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "nncfx"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder.resolve()))
    package = importlib.import_module("nncfx.network")
    del sys.path[0]
    found: Wrap = package.wrap
    return found


def seconds(wrap: Wrap, model: torch.nn.Module, inputs: Any) -> float:  # noqa: ANN401
    """Return the CPU seconds in which `wrap` wraps a copy of `model`."""
    copied = copy.deepcopy(model)
    gc.collect()
    began = time.thread_time()
    wrap(copied, inputs)
    return time.thread_time() - began


def compare(name: str, wraps: Sequence[Wrap], turns: int) -> float:
    """Print and return the median ratio of a network, the second of `wraps` over the first."""
    torch.manual_seed(0)
    model, inputs = make_transformers(name) if name in TRANSFORMERS else make_pytorchcv(name)
    model.eval()
    found = []
    for turn in range(turns + 2):
        order = (0, 1) if turn % 2 else (1, 0)
        both = {one: seconds(wraps[one], model, inputs) for one in order}
        if turn > 1:  # torch and Python fill caches in the first ones
            found.append((both[0], both[1]))
    ratios = sorted(after / before for before, after in found)
    median = statistics.median(ratios)
    before = 1000 * statistics.median(one for one, _ in found)
    quarter = len(ratios) // 4
    spread = f"{ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}"
    print(f"| {name} | {before:.1f} | {median:.3f} | {spread} |", flush=True)
    return median


def main() -> None:
    """Compare two checkouts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, help="the earlier checkout")
    parser.add_argument("--networks", nargs="+", default=[*PYTORCHCV.split(), *TRANSFORMERS])
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    wraps = [wrap_of(one) for one in (options.before, Path(__file__).parent.parent)]
    print("| network | before, ms | after over before | middle half |")
    print("|---|---:|---:|---:|")
    found = [compare(name, wraps, options.turns) for name in options.networks]
    print(f"wrap: median {statistics.median(found):.3f} over {len(found)} networks")


if __name__ == "__main__":
    main()
