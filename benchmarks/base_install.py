"""Try a wheel in an environment with the base dependencies only: what works, what is named.

Run it by the Python of that environment: `make release` does.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import nncfx
from nncfx.errors import MissingExtraError


def main() -> None:
    """Do the work that needs no extra, and ask for everything that does."""
    optional = ("onnx", "onnxruntime", "botorch", "typer", "jinja2", "transformers", "lightning")
    print("absent:", *(one for one in optional if importlib.util.find_spec(one) is None))
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    x = torch.randn(4, 1, 8, 8)
    config = {
        "compression": {
            "algorithm": "filter_pruning",
            "pruning_init": 0.5,
            "params": {"prune_first_conv": True},
        }
    }
    controller, wrapped = nncfx.create_compressed_model(model, config, x)
    controller.loss()
    nncfx.thin(wrapped)
    small = nncfx.quantize(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), [torch.randn(4, 8)])
    with tempfile.TemporaryDirectory() as folder:
        nncfx.save(Path(folder) / "m.safetensors", small)
        nncfx.storage.save(Path(folder) / "m.nncfx", small)
        nncfx.load(Path(folder) / "m.nncfx", nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    print(
        "works: wrap, train, thin, quantize, save, load", nncfx.benchmark(small, x[0, 0], "torch")
    )
    asked = {
        "export": lambda: nncfx.export_onnx(small, "m.onnx", x[0, 0]),
        "onnxruntime": lambda: nncfx.runtimes.runtime_named("onnxruntime").version(),
        "search": lambda: nncfx.search.find_level(lambda level: 1 - level, 0.5),
        "transformers": lambda: importlib.import_module("nncfx.integrations.transformers"),
        "lightning": lambda: importlib.import_module("nncfx.integrations.lightning"),
    }
    for extra, ask in asked.items():
        try:
            ask()
        except MissingExtraError as error:
            print(f"{extra}: {error}")
        else:
            raise SystemExit(f"{extra} was not asked for")
    done = subprocess.run(
        [sys.executable, "-m", "nncfx", "version"], capture_output=True, text=True, check=False
    )
    print(done.returncode, done.stderr.strip())


if __name__ == "__main__":
    main()
