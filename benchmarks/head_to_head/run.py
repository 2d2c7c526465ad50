"""Train with nncfx and with its peers on the same batches, and compare what they end with.

What all are given is `task.py`; a result is one line of a file. Stopped at any moment and begun
anew, it goes on behind the last result.

    python -m venv peers && peers/bin/pip install -c constraints.txt torch nncf==2.19.0 \
        torch-pruning==1.6.1 regex rich typing_extensions
    python benchmarks/head_to_head/run.py --data ../shared/data --peers peers/bin/python
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from task import ROWS

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE.parents[1] / "docs" / "data" / "head_to_head.jsonl"
Result = dict[str, Any]


def read(path: Path) -> list[Result]:
    """Return the results in the file; a last line that a kill has cut is none."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}\n")]


def found(results: list[Result], row: str, tool: str, seed: int) -> Result | None:
    """Return the result of `tool` in `row`, by today's settings."""
    wanted = {"seed": seed, **ROWS[row].settings(tool)}
    return next((one for one in results if {key: one[key] for key in wanted} == wanted), None)


def append(path: Path, result: Result) -> None:
    """Write a line behind the whole ones."""
    whole = [json.dumps(one) for one in (*read(path), result)]
    beside = path.with_suffix(".new")
    beside.write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")
    beside.replace(path)


def run(python: str, row: str, tool: str, seed: int) -> Result:
    """Return what the script of `tool` ends with.

    Raises:
        RuntimeError: it fails; the text ends with its own.
    """
    command = [python, "-W", "ignore", str(HERE / f"{tool}_.py"), row, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{tool} fails in '{row}':\n{done.stderr}")
    ended: Result = json.loads(done.stdout.splitlines()[-1])
    return ended


def table(results: list[Result], seeds: list[int]) -> Iterator[str]:
    """Yield the lines of a Markdown table; a row is of the seeds of which both tools are there."""
    yield "| | seeds | tool | reached | accuracy, % | nncfx is ahead by |"
    yield "|---|---:|---|---:|---:|---:|"
    for name, row in ROWS.items():
        tools = ("nncfx", row.peer)
        both = [[found(results, name, tool, seed) for tool in tools] for seed in seeds]
        pairs = [[one for one in pair if one is not None] for pair in both if None not in pair]
        if not pairs:
            continue
        ahead = [100 * (ours["accuracy"] - theirs["accuracy"]) for ours, theirs in pairs]
        for tool, those in zip(tools, zip(*pairs, strict=True), strict=True):
            first = f"{name} | {len(pairs)}" if tool == "nncfx" else " | "
            last = _spread(ahead, "+.2f") if tool == "nncfx" else ""
            reached = _spread([100 * one[row.measure] for one in those], ".2f")
            accuracy = _spread([100 * one["accuracy"] for one in those], ".2f")
            yield f"| {first} | {tool} | {reached} % {row.measure} | {accuracy} | {last} |"


def _spread(values: list[float], form: str) -> str:
    deviation = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):{form}}{deviation}"


def main() -> None:
    """Run what is not there yet, one seed of each row after another, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--peers", required=True, help="a Python that has the peers installed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a line for each result")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    os.environ["NNCFX_DATA"] = str(options.data.resolve())
    os.environ["PYTHONPATH"] = str(HERE.parents[1])
    for seed in options.seeds:
        for row in options.rows:
            for tool in ("nncfx", ROWS[row].peer):
                if found(read(options.results), row, tool, seed) is None:
                    python = sys.executable if tool == "nncfx" else options.peers
                    result = run(python, row, tool, seed)
                    append(options.results, {"seed": seed, **ROWS[row].settings(tool), **result})
                    print(row, tool, seed, result, file=sys.stderr, flush=True)
    print("\n".join(table(read(options.results), options.seeds)))


if __name__ == "__main__":
    main()
