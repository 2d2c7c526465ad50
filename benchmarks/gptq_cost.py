"""GPTQ of one matrix, in nanoseconds a weight: by torch and by the compiled loop, in turns.

Random weights and correlated inputs; medians of processor times. The compiled loop runs before the
clock does, so that its compilation is not counted:

    OMP_NUM_THREADS=1 python benchmarks/gptq_cost.py [--outputs 768 3072] [--inputs 768]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from nncfx.quantization.blocks.weight_formats import fitted_grid, format_spec
from nncfx.quantization.rounding import gptq
from nncfx.quantization.rounding.curvature import curvature


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", type=int, nargs="+", default=[768, 3072])
    parser.add_argument("--inputs", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=9)
    return parser.parse_args()


def subjects(outputs: int, inputs: int) -> dict[str, Callable[[], object]]:
    """Return the calls that are timed, by label."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator)
    mixing = torch.randn(inputs, inputs, generator=generator)
    data = torch.randn(4 * inputs, inputs, generator=generator) @ mixing
    moments = data.T @ data / len(data)
    spec = format_spec("uint4", 128, inputs)
    grid = fitted_grid(weight, spec, moments.diagonal())
    known = curvature(moments)

    def rounded(*, compiled: bool) -> object:
        kept, gptq.IS_COMPILED = gptq.IS_COMPILED, compiled
        try:
            return gptq.round_matrix(weight, known, *grid, spec)
        finally:
            gptq.IS_COMPILED = kept

    return {
        "inverse": lambda: curvature(moments),
        "rounding, torch": lambda: rounded(compiled=False),
        "rounding, compiled loop": lambda: rounded(compiled=True),
    }


def main() -> None:
    """Print a table."""
    options = arguments()
    torch.set_num_threads(1)
    print("| outputs x inputs | what | ns a weight |\n|---|---|---:|")
    for outputs in options.outputs:
        calls = subjects(outputs, options.inputs)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(options.rounds + 1):
            for name, call in calls.items():
                begin = time.process_time()
                call()
                if turn:
                    times[name].append(time.process_time() - begin)
        for name, each in times.items():
            cost = statistics.median(each) / (outputs * options.inputs) * 1e9
            print(f"| {outputs} x {options.inputs} | {name} | {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
