"""Loads the model for a command: from a task, or from a Python object with a checkpoint."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from nncfx.errors import ArgumentError

if TYPE_CHECKING:
    from torch import nn

    from nncfx.tasks import Task
    from nncfx.tracing import ExampleInputs

_MOST_BYTES: Final = 2**34
"""The most memory for inputs that are created from their shapes."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedModel:
    """A model with its inputs.

    Attributes:
        model: In evaluation mode.
        example_inputs: The inputs for tracing.
        task: The task that it comes from; None if code was named.
    """

    model: "nn.Module"
    example_inputs: "ExampleInputs"
    task: "Task | None"


def is_task(text: str) -> bool:
    """Return whether `text` names a config or a task file, which can contain more settings."""
    return Path(text).suffix in (".json", ".py")


def is_code(text: str) -> bool:
    """Return whether `text` names a task or a Python object, not a file of weights."""
    return is_task(text) or ":" in text


def model_source(
    text: str,
    weights: Path | None = None,
    shapes: Sequence[str] = (),
    *,
    example_inputs: "ExampleInputs | None" = None,
) -> OpenedModel:
    """Return the model named by `text`.

    Args:
        text: A config, a task file, or `file.py:function` or `package.module:function`.
        weights: A file with weights for the model, instead of its own.
        shapes: Of inputs, in the format of `parse_shapes`; filled with random numbers.
        example_inputs: The inputs for tracing, if already known.

    Raises:
        ArgumentError: code is named without shapes, or an ONNX file is given.
        ConfigError: the named object cannot be created.
        StorageError: the weights do not fit.
    """
    from nncfx.tasks import Task, TaskConfig, read_task
    from nncfx.tasks.weights import load_weights

    if Path(text).suffix == ".onnx":
        raise ArgumentError(
            f"'{text}' is an ONNX file, and nncfx changes only PyTorch models. Name the model: "
            "file.py:function."
        )
    if is_task(text):
        task = read_task(text)
        model, inputs = task.model(), example_inputs
        if inputs is None and not shapes:
            inputs = task.example_inputs
        found: Task | None = task
    else:
        config = TaskConfig.from_dict({"model": text, "export": {}})
        model, inputs, found = Task(config=config, path=Path.cwd() / "cli").model(), None, None
        inputs = example_inputs
    if weights is not None:
        model = load_weights(model, weights).eval()
    if inputs is None:
        inputs = _random(shapes, text)
    return OpenedModel(model=model, example_inputs=inputs, task=found)


def _random(texts: Sequence[str], source: str) -> Any:  # noqa: ANN401 (inputs of any form)
    import torch

    from nncfx.cli.timing.options import parse_shapes

    if not texts:
        raise ArgumentError(
            f"'{source}' does not say what the model takes. Give --input-shape 1x3x224x224, or "
            "--input-shape NAME=1x3x224x224 for each input, of floats. For token ids name a "
            'config with the model and its data: {"model": ..., "data": ..., "export": {}}.'
        )
    shapes = parse_shapes(texts)
    if (asked := 4 * sum(map(math.prod, shapes.values()))) > _MOST_BYTES:
        raise ArgumentError(
            f"--input-shape asks for inputs of {asked:,} bytes; at most {_MOST_BYTES:,} are made. "
            "Give the shape of one example."
        )
    generator = torch.Generator().manual_seed(0)
    made = {
        name: torch.randn(shape, generator=generator, device="cpu")
        for name, shape in shapes.items()
    }
    if "" in made and len(made) > 1:
        raise ArgumentError("Several inputs need their names: --input-shape NAME=1x3x224x224.")
    return made.get("", made)
