"""How near `search_space` comes to a known optimum within a limit, against points merely spread.

python benchmarks/space_search.py --seeds 2 --evaluations 24
"""

import argparse
import itertools
import statistics
import time

from rich.console import Console
from rich.progress import track

from nncfx.search import Candidate, Choice, Problem, Range, Space, SpaceSettings, search_space

LOSS = {2: 0.05, 4: 0.008, 8: 0.001, 16: 0.0}
PROBLEM = Problem(
    space=Space(
        [Range("convolutions", 0, 0.95), Range("head", 0, 0.95), Choice("bits", tuple(LOSS))]
    ),
    objectives={"size": "minimize"},
    at_least={"accuracy": 0.9},
)


def network(candidate: Candidate) -> dict[str, float]:
    """Return accuracy and size of a made-up network whose head is harder to prune."""
    a, b = float(candidate["convolutions"]), float(candidate["head"])
    bits = int(candidate["bits"])
    accuracy = 0.93 - 0.05 * a**4 - 0.2 * b**4 - LOSS[bits]
    return {"accuracy": accuracy, "size": ((1 - a) + 2 * (1 - b)) * bits}


def optimum() -> float:
    """Return the least feasible size on a fine grid."""
    levels = [0.95 * i / 400 for i in range(401)]
    every = (
        network({"convolutions": a, "head": b, "bits": bits})
        for a, b in itertools.product(levels, levels)
        for bits in LOSS
    )
    return min(found["size"] for found in every if PROBLEM.is_feasible(found))


def main() -> None:
    """Print the excess over the optimum, and the CPU time of a choice, as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=24)
    options = parser.parse_args()
    best, count = optimum(), options.evaluations
    print("| way | excess, median | worst | feasible at all | CPU s a choice |")
    print("|---|---|---|---|---|")
    for name, initial in (("spread points", count), ("search_space", None)):
        excess, started = [], time.process_time()
        for seed in track(range(options.seeds), description=name, console=Console(stderr=True)):
            settings = SpaceSettings(max_evaluations=count, initial=initial, seed=seed)
            result = search_space(network, PROBLEM, settings=settings)
            if result.feasible:
                excess.append((result.best.outcomes or {})["size"] / best - 1)
        seconds = (time.process_time() - started) / (options.seeds * count)
        print(
            f"| {name} | {statistics.median(excess):.1%} | {max(excess):.1%} "
            f"| {len(excess)} of {options.seeds} | {seconds:.2f} |"
        )


if __name__ == "__main__":
    main()
