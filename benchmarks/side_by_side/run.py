"""Run the same job with nncfx and with each peer, and count the lines that a user writes.

The job: prune a trained ResNet-20 by half, fine-tune it on 19,200 images, quantize it to int8,
write ONNX, time the file. What all are given is `task.py`; counted are the lines between `# tool`
and `# end`, without blank ones, as ruff formats them. A tool that lacks a part has a companion,
or does what it has (nncf 3 and torchao set weights to zero, which makes nothing faster).

    python -m venv peers && peers/bin/pip install -c constraints.txt torch numpy safetensors \
        torch-pruning nncf==3.4.0 nvidia-modelopt torchao onnx onnxruntime onnxscript \
        huggingface_hub requests
    peers/bin/pip install --no-deps torchprofile==0.0.4 torchvision==0.28.0
    python benchmarks/side_by_side/run.py --data ../shared/data --peers peers/bin/python
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
SCRIPTS: Final = ("nncfx", "torch_pruning", "nncf", "modelopt", "torchao")


def lines(script: Path) -> int:
    """Return how many lines of `script` are the tool's."""
    text = script.read_text(encoding="utf-8")
    counted = text.split("# tool\n")[1].split("# end\n")[0]
    return sum(bool(line.strip()) for line in counted.splitlines())


def result(script: Path, python: str, folder: str) -> dict[str, float] | str:
    """Return what `script` reports, or the last line of its error."""
    done = subprocess.run(  # noqa: S603 (a script of ours)
        [python, script], cwd=folder, capture_output=True, text=True, check=False
    )
    output = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode:
        return output[-1]
    found: dict[str, float] = json.loads(output[-1])
    return found


def main() -> None:
    """Print a row for each tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/ and weights/")
    parser.add_argument("--peers", required=True, help="a Python that has the peers installed")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    parser.add_argument("--steps", type=int, default=300, help="of 64 images, to fine-tune")
    options = parser.parse_args()
    os.environ["NNCFX_DATA"] = str(options.data.resolve())
    os.environ["STEPS"] = str(options.steps)
    tools = options.data.resolve().parent / "tools"
    os.environ["PYTHONPATH"] = os.pathsep.join((str(HERE.parents[1]), str(tools)))
    print("| tool | lines | accuracy | ONNX bytes | ms, batch 1, 1 thread |")
    print("|---|---:|---:|---:|---:|")
    for name in options.only:
        script = HERE / f"{name}_.py"
        python = sys.executable if name == "nncfx" else options.peers
        with tempfile.TemporaryDirectory() as folder:
            found = result(script, python, folder)
        if isinstance(found, str):
            print(f"| {name} | {lines(script)} | fails: {found} | | |")
            continue
        print(
            f"| {name} | {lines(script)} | {100 * found['accuracy']:.2f} % | "
            f"{found['bytes']:,} | {found['milliseconds']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
