"""`nncfx export` and `nncfx quantize`: convert a model and its weights to a file to deploy."""

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nncfx.cli.console import print_json
from nncfx.cli.sources import OpenedModel, is_task, model_source
from nncfx.errors import ArgumentError
from nncfx.report.format import bytes_text

if TYPE_CHECKING:
    from torch import nn

Source = Annotated[
    str, typer.Argument(help="A config or task file, file.py:function or package.module:function.")
]
Weights = Annotated[Path | None, typer.Option(help="A checkpoint that the model takes.")]
Shapes = Annotated[
    list[str] | None, typer.Option(help="Shape of an input of floats: 1x3x224x224, or NAME=...")
]
Target = Annotated[str, typer.Option(help="The runtime, or a JSON file that describes one.")]
OwnTarget = Annotated[
    str | None,
    typer.Option(help="The runtime, or a JSON file of one; by default that of the quantization."),
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, not text.")]


def export(  # noqa: PLR0913 (each is an option of the command)
    model: Source,
    *,
    weights: Weights = None,
    output: Annotated[Path, typer.Option(help="The ONNX file to write.")] = Path("model.onnx"),
    target: OwnTarget = None,
    input_shape: Shapes = None,
    dynamic_batch: Annotated[bool, typer.Option(help="Whether the batch axis stays open.")] = True,
    opset: Annotated[
        int | None, typer.Option(help="Operator set; by default the target's.")
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """Write a model as an ONNX file for a runtime."""
    from nncfx.export import export_onnx

    if output.suffix != ".onnx":
        raise ArgumentError(
            f"'{output}' does not end in .onnx. Name the file --output model.onnx."
        )
    source = model_source(model, weights, input_shape or ())
    file = export_onnx(
        source.model,
        output,
        source.example_inputs,
        target,
        dynamic_batch=dynamic_batch,
        opset=opset,
    )
    facts = {
        "path": str(file.path),
        "target": file.target,
        "opset": file.opset,
        "inputs": list(file.inputs),
        "outputs": list(file.outputs),
        "size_bytes": file.size_bytes,
    }
    _print(facts, as_json=as_json)


def quantize(  # noqa: PLR0913 (each is an option of the command)
    model: Source,
    *,
    weights: Weights = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Function that returns the batches: file.py:function; by default the config's."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="The file: .nncfx, .safetensors, or .onnx for the target.")
    ] = Path("quantized.nncfx"),
    target: Target = "onnxruntime",
    samples: Annotated[int, typer.Option(min=1, help="Number of examples for calibration.")] = 300,
    weights_only: Annotated[
        bool,
        typer.Option(
            "--weights-only",
            help="Quantize weights alone. The only data needed are inputs of the model: "
            "--input-shape or, for token ids, the first batch of --data.",
        ),
    ] = False,
    bits: Annotated[
        int | None, typer.Option(help="Bits of weights: 8 by default; with --weights-only 4 or 8.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="How much to do for accuracy: fast, default or thorough.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="With --weights-only: round, hqq or gptq (of --data).")
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="With --weights-only: how many neighbours share a scale.")
    ] = None,
    ignored_scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What stays in float: an address, a scope, {function}name or {re}pattern."
        ),
    ] = None,
    input_shape: Shapes = None,
    as_json: AsJSON = False,
) -> None:
    """Quantize a trained model on a few batches, or its weights alone, and write it."""
    if output.suffix not in (".nncfx", ".safetensors", ".onnx"):
        raise ArgumentError(
            f"'{output}' has none of the endings .nncfx, .safetensors and .onnx, which say how it "
            "is written. Name the file --output model.nncfx."
        )
    if weights_only:
        _refuse({"--preset": preset}, "with --weights-only, as nothing is calibrated")
    else:
        _refuse({"--method": method, "--group-size": group_size}, "without --weights-only")
    if data is None and not weights_only and not is_task(model):
        raise _no_data(model)
    batches = None if data is None else _batches(data)
    first = None
    if batches is not None and not input_shape:
        first, batches = _begun(batches)
    source = model_source(model, weights, tuple(input_shape or ()), example_inputs=first)
    if weights_only:
        from nncfx.network import inputs_in
        from nncfx.quantization import quantize_weights

        options = _given(bits=bits, method=method, group_size=group_size)
        made: Any = quantize_weights(
            source.model,
            (inputs_in(batch, source.model) for batch in batches or ()),
            ignored_scopes=ignored_scope or (),
            example_inputs=source.example_inputs,
            **options,
        )
    else:
        from nncfx.quantization import quantize as quantized

        if batches is None:
            batches = _of_task(source, model)
        made = quantized(
            source.model,
            batches,
            target=target,
            samples=samples,
            ignored_scopes=ignored_scope or (),
            **_given(preset=preset, weight_bits=bits),
        )
    exported_for = target if weights_only else None  # quantizers know their target
    facts = {
        "path": str(output),
        "size_bytes": _written(output, made, source, exported_for),
        "weights_by_bits": _weights_by_bits(made),
    }
    _print(facts, as_json=as_json)


def _given(**options: Any) -> dict[str, Any]:  # noqa: ANN401 (of any option)
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: Mapping[str, object], where: str) -> None:
    for name in _given(**options):
        raise ArgumentError(f"{name} has no effect {where}. Leave it out, or change that.")


def _weights_by_bits(made: "nn.Module") -> dict[str, int]:
    """Return the number of weights stored as integers, by their bits."""
    from nncfx.quantization.placement.insertions import plans_of

    counts = Counter(one.spec.bits for plan in plans_of(made) for one in plan.weights)
    return {str(bits): counts[bits] for bits in sorted(counts)}


def _begun(batches: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """Return the inputs of the first batch, to trace the model on, and all batches."""
    iterator = iter(batches)
    batch = next(iterator, None)
    if batch is None:
        raise ArgumentError(
            "--data gave no batch, and the model is traced on the first. Make its function "
            "return at least one."
        )
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2  # noqa: PLR2004 (and labels)
    return batch[0] if is_pair else batch, itertools.chain([batch], iterator)


def _batches(text: str) -> Iterable[Any]:
    from nncfx.tasks.references import call_reference, load_reference

    found = load_reference(text, Path.cwd(), "--data")
    made = call_reference(found, text, "--data") if callable(found) else found
    if isinstance(made, dict) and "train" in made:
        made = made["train"]
    # Python would iterate over the rows of a tensor or an array
    is_one = isinstance(made, str | Mapping) or hasattr(made, "shape")
    if is_one or not isinstance(made, Iterable):
        raise ArgumentError(
            f"--data {text} gave a {type(made).__name__}; it must return batches, such as a "
            "DataLoader or a list: [batch], images.split(32)."
        )
    return made


def _of_task(source: OpenedModel, text: str) -> Iterable[Any]:
    if source.task is None or source.task.config.data is None:
        raise _no_data(text)
    return source.task.data.train


def _no_data(text: str) -> ArgumentError:
    return ArgumentError(
        f"'{text}' names no data, and ranges are found on data. Give --data file.py:function, or "
        "--weights-only, which needs none."
    )


def _written(
    output: Path,
    made: Any,  # noqa: ANN401 (a model)
    source: OpenedModel,
    target: str | None,
) -> int:
    if output.suffix == ".onnx":
        from nncfx.export import export_onnx

        return export_onnx(made, output, source.example_inputs, target).size_bytes
    from nncfx.training import save

    return save(output, made).stat().st_size


def _print(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    more = f", inputs {', '.join(facts['inputs'])}" if "inputs" in facts else ""
    # with 4 bits requested, convolutions have 8
    counts = facts.get("weights_by_bits", {}).items()
    more += "".join(f", weights of {bits} bits: {count}" for bits, count in counts)
    sys.stdout.write(f"{facts['path']}: {bytes_text(facts['size_bytes'])}{more}\n")
