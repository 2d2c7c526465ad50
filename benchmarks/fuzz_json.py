"""Feed the readers of JSON with documents of strangers: nothing but errors of nncfx may come out.

Documents that are right are changed: a value becomes another of another type or size, goes, stands
twice or deeper, or the text itself is damaged. What a reader accepts is used.

    python benchmarks/fuzz_json.py --seconds 600              # of the processor, for each reader
    python benchmarks/fuzz_json.py --only graph recipe --seconds 60
"""

import argparse
import collections
import copy
import json
import logging
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

import nncfx
from nncfx import hago
from nncfx.cli.timing.baseline import changes, read_baseline
from nncfx.errors import NNCFXError
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.machine import machine_facts
from nncfx.graph import NNCFGraph
from nncfx.hago.search.log import read_log
from nncfx.runtimes.predict.latency_table import LatencyTable, ModuleSample
from nncfx.search import Measurement, Study
from nncfx.targets import TARGETS, Hardware, Target, hardware_named
from nncfx.tasks import read_task, run_status
from nncfx.thinning.files.recipe import ThinRecipe, rebuild

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
from evidence import EVIDENCE

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**70), 10**30, 0.5, 1e308, -0.0),
    *("", "a", "float32", "\x00", "nn", "__class__", "../x", "{re}(a+)+$", "9" * 50),
    *([], {}, [[]], [0], [-1], [1 << 40], {"a": 1}, {"kind": "tensor"}, [None, "x", 1.5]),
)
RAW = ("NaN", "Infinity", "1e999", "[" * 3000, "9" * 5000, "\x00", '"\\ud800"', "{" * 50)
IMAGE = torch.ones(1, 3, 8, 8)
CONFIG = {
    "input_info": {"sample_size": [1, 3, 8, 8]},
    "compression": [
        {
            "algorithm": "filter_pruning",
            "pruning_init": 0.1,
            "ignored_scopes": ["{re}Linear.*"],
            "params": {"schedule": "exponential", "pruning_target": 0.4},
        },
        {"algorithm": "quantization", "weights": {"bits": 8}, "activations": {"bits": 8}},
        {"algorithm": "magnitude_sparsity", "sparsity_init": 0.2, "params": {"power": 3}},
    ],
}

TASK = {
    **CONFIG,
    "model": {"factory": "net.py:net", "arguments": {"width": 8}},
    "data": "net.py:loaders",
    "train": {"epochs": 3, "lr": 0.1, "warmup": 0.1, "precision": "float32"},
    "export": {"file": "net.onnx", "target": "tensorrt", "quantize": True},
}
PROGRESS = {"step": 3, "steps": 10, "level": 0.5, "seconds_left": 1.5}
BASELINE = {
    "machine": machine_facts(),
    "series": [
        {
            "runtime": "onnxruntime",
            "batch": 1,
            "threads": None,
            "models": [{"path": "a.onnx", "median_ms": 2.0, "interval_ms": [1.5, 2.5]}],
        }
    ],
}


@dataclass(frozen=True)
class Reader:
    """What reads a document, and one that is right."""

    right: str
    read: Callable[[str], object]


def net() -> nn.Module:
    """Return a small convolutional network, always the same."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()


def readers(folder: Path) -> dict[str, Reader]:
    """Return all readers by name; `folder` is for their files."""
    dense = net()
    with torch.no_grad():
        dense[3].weight[:, 4:] = 0
    thin = nncfx.thin(dense, torch.randn(2, 3, 8, 8))
    samples = {"Linear": (ModuleSample((8.0, 4.0), 0.1), ModuleSample((16.0, 4.0), 0.2))}
    table = LatencyTable(machine={"runtime": "x"}, samples=samples, scale=1.0)
    return {
        "graph": Reader(nncfx.wrap(net(), IMAGE).nncf.graph.to_json(), _use_graph),
        "recipe": Reader(
            thin.recipe.to_json(), lambda text: rebuild(net(), ThinRecipe.from_json(text))
        ),
        "hardware": Reader(hardware_named("onnxruntime").to_json(), Hardware.from_json),
        "latency table": Reader(table.to_json(), LatencyTable.from_json),
        "config": Reader(json.dumps(CONFIG), lambda text: _use_config(folder / "c.json", text)),
        "evidence": Reader(EVIDENCE.to_json(), Evidence.from_json),
        "checkpoint": _checkpoint(folder),
        "journal": _journal(folder),
        "status": _status(folder),
        "progress": _progress(folder),
        "hago log": _log(folder),
        "target": Reader(TARGETS["onnxruntime"].to_json(), Target.from_json),
        "task": Reader(json.dumps(TASK), lambda text: _use_task(folder / "task.json", text)),
        "baseline": _baseline(folder),
    }


def _use_task(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace")
    read_task(path)


def _use_graph(text: str) -> None:
    graph = NNCFGraph.from_json(text)
    graph.to_networkx()
    NNCFGraph.from_json(graph.to_json())
    for one in graph.operations:
        graph.incoming(one.address)


def _use_config(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="replace")
    nncfx.create_compressed_model(net(), nncfx.NNCFConfig.from_json(path), IMAGE)


def _checkpoint(folder: Path) -> Reader:
    compression = {"algorithm": "magnitude_sparsity", "sparsity_init": 0.3}
    config = nncfx.NNCFConfig.from_dict({"compression": compression})
    controller, model = nncfx.create_compressed_model(net(), config, IMAGE)
    path = nncfx.save(folder / "checkpoint", model, controller)
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, framework="pt") as file:
        right = file.metadata()["nncfx"]

    def read(text: str) -> None:
        text = text.encode("utf-8", "replace").decode()
        safetensors.torch.save_file(tensors, folder / "bad", metadata={"nncfx": text})
        nncfx.load(folder / "bad", net())

    return Reader(right, read)


def _journal(folder: Path) -> Reader:
    path, bad = folder / "study.jsonl", folder / "bad.jsonl"
    with Study(path, {"a": 1}) as study:
        for level in (0.0, 0.5):
            study.run("accuracy", level, lambda level: Measurement(metric=0.9, objective=level))

    def read(text: str) -> None:
        bad.write_text(text, encoding="utf-8", errors="replace")
        with Study(bad, {"a": 1}):
            pass

    return Reader(path.read_text(), read)


def _status(folder: Path) -> Reader:
    run = folder / "run"
    run.mkdir()

    def read(text: str) -> None:
        (run / "journal.jsonl").write_text(text, encoding="utf-8", errors="replace")
        run_status(run).to_json()

    return Reader(_journal(folder).right, read)


def _progress(folder: Path) -> Reader:
    run = folder / "training"
    run.mkdir()

    def read(text: str) -> None:
        (run / "training.json").write_text(text, encoding="utf-8", errors="replace")
        run_status(run).to_json()

    return Reader(json.dumps(PROGRESS), read)


def _baseline(folder: Path) -> Reader:
    path = folder / "baseline.json"

    def read(text: str) -> None:
        path.write_text(text, encoding="utf-8", errors="replace")
        changes([], read_baseline(path), 0.1)

    return Reader(json.dumps(BASELINE), read)


def _log(folder: Path) -> Reader:
    path, bad = folder / "hago.jsonl", folder / "bad.log"
    model, images = net(), torch.randn(8, 3, 8, 8)
    hago.search_quantize_strategy(
        hago.prepare_graph(model, IMAGE),
        hardware_named("onnxruntime"),
        [(images, model(images).argmax(1))],
        log=path,
        tuner="random",
        settings=hago.QuantizeSettings(most_trials=2),
    )

    def read(text: str) -> None:
        bad.write_text(text, encoding="utf-8", errors="replace")
        read_log(bad)

    return Reader(path.read_text(), read)


def _places(value: object) -> list[tuple[Any, Any]]:
    """Return (container, key) of everything in a document."""
    found: list[tuple[Any, Any]] = []
    stack = [value] if isinstance(value, dict | list) else []
    while stack:
        one: Any = stack.pop()
        keys: Any = list(one) if isinstance(one, dict) else range(len(one))
        found += [(one, key) for key in keys]
        stack += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return found


def changed(right: str, draw: random.Random) -> str:
    """Return `right`, or one of its lines, damaged."""
    lines = right.splitlines() if "}\n{" in right else [right]
    n = draw.randrange(len(lines))
    document = json.loads(lines[n])
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = _places(document)
        if places:
            _damage(*draw.choice(places), draw, places)
    text = json.dumps(document)
    if draw.randrange(7) == 0:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(RAW) + text[at + draw.randrange(3) :]
    lines[n] = text
    return "\n".join(lines) + "\n" * (draw.randrange(10) > 0)


def _damage(owner: Any, key: Any, draw: random.Random, places: list[tuple[Any, Any]]) -> None:  # noqa: ANN401
    match draw.randrange(6):
        case 0 if isinstance(owner, dict):
            del owner[key]
        case 1:
            owner[key] = [owner[key]]
        case 2:
            owner[key] = copy.deepcopy(draw.choice(places)[0])
        case 3 if isinstance(owner, list):
            owner.insert(draw.randrange(len(owner) + 1), copy.deepcopy(owner[key]))
        case _:
            owner[key] = copy.deepcopy(draw.choice(ODD))


def fuzz(name: str, reader: Reader, seconds: float, seed: int) -> collections.Counter[str]:
    """Feed `reader` for so many seconds of the processor; return the outcomes."""
    draw = random.Random(seed)
    outcomes: collections.Counter[str] = collections.Counter()
    end = time.process_time() + seconds
    while time.process_time() < end:
        text = changed(reader.right, draw)
        try:
            reader.read(text)
            outcomes["read"] += 1
        except NNCFXError:
            outcomes["refused"] += 1
        except Exception as error:  # noqa: BLE001 (what is looked for)
            outcomes["foreign"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
            if key not in outcomes:
                print(f"{name}: {key}: {error!s:.200}\n  {text[:300]!r}", flush=True)
            outcomes[key] += 1
    return outcomes


def main() -> None:
    """Fuzz the readers one after another and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        for name, reader in readers(Path(folder)).items():
            if not options.only or name in options.only:
                found = fuzz(name, reader, options.seconds, options.seed)
                print(f"{name}: {dict(found)}", flush=True)


if __name__ == "__main__":
    main()
