"""`nncfx config`: check a config, begin one, print its schema."""

import json
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from nncfx.errors import ArgumentError

__all__ = ["configs"]

configs = typer.Typer(
    help="Check, begin and describe configs.", no_args_is_help=True, pretty_exceptions_enable=False
)

_CODE: Final = '''"""What {config} names: replace each function by yours."""

import torch
from torch import nn
from torch.nn import functional as F


def model():
    """Return the trained model."""
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2),
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
    labels = (images[:, :, :4].mean((1, 2, 3)) > images[:, :, 4:].mean((1, 2, 3))).long()
    batches = list(zip(images.split(64), labels.split(64), strict=True))
    return {{"train": batches[:8], "validation": batches[8:]}}
'''
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
    """Say what is wrong in a config, all at once, or that nothing is; no model is made."""
    from nncfx.config import NNCFConfig
    from nncfx.tasks import read_task

    if task or config.suffix == ".py":
        found: NNCFConfig = read_task(config).config
    else:
        found = NNCFConfig.from_json(config)
        if "model" in found.user_keys and "data" in found.user_keys:
            found = read_task(config).config
    if as_json:
        sys.stdout.write(json.dumps(found.to_dict(), indent=1) + "\n")
        return
    own = f" Your own keys: {', '.join(found.user_keys)}." if found.user_keys else ""
    sys.stdout.write(f"{config}: no fault.{own}\n")


@configs.command()
def init(
    config: Annotated[Path, typer.Argument(help="The file to write.")] = Path("task.json"),
    *,
    search: Annotated[
        bool, typer.Option(help="Whether the level is searched, or algorithms are trained.")
    ] = True,
) -> None:
    """Write a config that runs as it is, with the code that it names beside it."""
    from nncfx.storage.formats.whole_file import write_text

    code = config.with_suffix(".py")
    if config.suffix != ".json":
        raise ArgumentError(f"'{config}' is to hold JSON. Name it {config.with_suffix('.json')}.")
    for file in (config, code):
        if file.exists():
            raise ArgumentError(f"'{file}' is there already. Name another file, or delete it.")
    document = {
        "model": f"{code.name}:model",
        "data": f"{code.name}:data",
        **(
            {"train": {"criterion": "cross_entropy"}, "search": _SEARCH}
            if search
            else {
                "train": {"criterion": "cross_entropy", "epochs": 3, "lr": 0.01},
                "compression": _COMPRESSION,
            }
        ),
        "export": {"file": "model.onnx", "target": "onnxruntime", "quantize": search},
    }
    write_text(code, _CODE.format(config=config.name))
    write_text(config, json.dumps(document, indent=2) + "\n")
    sys.stdout.write(f"{config} and {code} written; now: nncfx compress {config} --dry-run\n")


@configs.command()
def schema() -> None:
    """Print the JSON Schema of a task, for editors."""
    from nncfx.tasks import TaskConfig

    sys.stdout.write(json.dumps(TaskConfig.schema(), indent=1) + "\n")
