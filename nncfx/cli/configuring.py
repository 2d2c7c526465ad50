"""`nncfx config`: checks a config, creates one, prints its schema."""

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from nncfx.cli.console import print_json
from nncfx.errors import ArgumentError

configs = typer.Typer(
    help="Check, begin and describe configs.", no_args_is_help=True, pretty_exceptions_enable=False
)

_CODE: Final = '''"""{told}"""

import torch
from torch import nn
from torch.nn import functional as F


def model():
    """Return the trained model."""
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 2),
    )
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
    for images, labels in data()["train"] * 10:
        optimizer.zero_grad()
        F.cross_entropy(made(images), labels).backward()
        optimizer.step()
    return made


def data():
    """Return loaders, or lists, of batches (inputs, targets)."""
    images = torch.randn(1024, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    above, below = (half.mean((1, 2, 3)) for half in images.split(4, dim=2))
    labels = (above > below).long()
    batches = list(zip(images.split(64), labels.split(64), strict=True))
    return {{"train": batches[:8], "validation": batches[8:]}}
'''
_LINE: Final = 72
_SEARCH: Final = {
    "objective": "macs",
    "schemes": [{"name": "FilterPrune"}, {"name": "Quantize", "dtype": "float16"}],
    "optimizer": {"algorithm": "DCFineTuned", "epochs": 2, "lr": 0.01},
    "eps": 0.02,
    "max_evaluations": 4,
    "runtime": "torch",
}
_COMPRESSION: Final = [
    {
        "algorithm": "filter_pruning",
        "params": {"schedule": "exponential", "pruning_target": 0.4, "pruning_steps": 2},
    },
    {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 64}}},
]


@configs.command()
def check(
    config: Annotated[Path, typer.Argument(help="A JSON config or a Python task file.")],
    *,
    task: Annotated[
        bool, typer.Option(help="Whether it must have what 'nncfx compress' needs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the config, all keys.")] = False,
) -> None:
    """Check a config and report every mistake; no model is built."""
    from nncfx.config import NNCFConfig, config_error
    from nncfx.config.main import read_config_file
    from nncfx.tasks import read_task
    from nncfx.tasks.config import scheme_faults_in

    task = task or config.suffix == ".py" or _has_code(read_config_file(config))
    found = read_task(config).config if task else NNCFConfig.from_json(config)
    if faults := list(scheme_faults_in(found)):
        raise config_error(faults, f"The config '{config}'")
    if as_json:
        print_json(found.to_dict())
        return
    own = f" Your own keys: {', '.join(found.user_keys)}." if found.user_keys else ""
    sys.stdout.write(f"{config}: no fault.{own}\n")


def _has_code(config: object) -> bool:
    """Return whether a config names code for its model or its data, for 'nncfx compress'.

    NNCF's own samples also have a 'model': the name of a network, such as 'resnet50'.
    """
    if not isinstance(config, Mapping):
        return False
    named = (config.get(key) for key in ("model", "data"))
    factories = [one.get("factory") if isinstance(one, Mapping) else one for one in named]
    return {"model", "data"} <= config.keys() or any(
        isinstance(one, str) and ":" in one for one in factories
    )


@configs.command()
def init(
    config: Annotated[Path, typer.Argument(help="What to write: .json or .py.")] = Path(
        "task.json"
    ),
    *,
    search: Annotated[bool, typer.Option(help="Search for a level, or train algorithms.")] = True,
) -> None:
    """Write an example task that runs: JSON with its code beside it, or Python."""
    from nncfx.storage.formats.whole_file import write_text

    code = config.with_suffix(".py")
    if config.suffix not in {".json", ".py"}:
        raise ArgumentError(f"'{config}' is neither .json nor .py. Name it task.json or task.py.")
    files = [config] if config == code else [config, code]
    for file in files:
        if file.exists():
            raise ArgumentError(f"'{file}' exists already. Name another file, or delete it.")
    sections: dict[str, Any] = {
        "train": {"criterion": "cross_entropy"}
        if search
        else {"criterion": "cross_entropy", "epochs": 3, "lr": 0.01},
        **({"search": _SEARCH} if search else {"compression": _COMPRESSION}),
        "export": {"file": "model.onnx", "target": "onnxruntime", "quantize": search},
    }
    if config == code:
        told = "A task: replace each function with yours."
        listed = (f"{name} = {_source(one)}" for name, one in sections.items())
        text = "\n\n".join([_CODE.format(told=told), *listed]) + "\n"
    else:
        text = _CODE.format(told=f"What {config.name} names: replace each function with yours.")
        named = {"model": f"{code.name}:model", "data": f"{code.name}:data"}
        write_text(config, json.dumps(named | sections, indent=2) + "\n")
    write_text(code, text)
    written = " and ".join(map(str, files))
    sys.stdout.write(
        f"{written} written; now: nncfx compress {shlex.quote(str(config))} --dry-run\n"
    )


def _source(value: object, indent: str = "") -> str:
    """Return the formatted Python source of `value`."""
    if not isinstance(value, dict | list):
        return json.dumps(value) if isinstance(value, str) else repr(value)
    inner = f"{indent}    "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_source(one, inner)}" for key, one in value.items()]
    else:
        parts = [_source(one, inner) for one in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    line = f"{left}{', '.join(parts)}{right}"
    if len(indent + line) <= _LINE and "\n" not in line:
        return line
    return "\n".join([left, *(f"{inner}{part}," for part in parts), f"{indent}{right}"])


@configs.command()
def schema() -> None:
    """Print the JSON Schema of a task, for editors."""
    from nncfx.tasks import TaskConfig

    print_json(TaskConfig.schema())
