"""`nncfx inspect`: shows the contents of a model, a checkpoint, an ONNX or a `.nncfx` file."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from nncfx.cli.console import column_table, output_console, print_json
from nncfx.cli.files import check_file, inspect_file
from nncfx.cli.sources import OpenedModel, is_code, model_source
from nncfx.errors import ArgumentError
from nncfx.report.format import bytes_text, count_text, prefix_text

if TYPE_CHECKING:
    from nncfx.network import NNCFNetwork
    from nncfx.tracing import Insertion


def inspect(
    what: Annotated[
        str,
        typer.Argument(
            help="A config or task file, file.py:function, a checkpoint (.safetensors, .pt), an "
            ".onnx or a .nncfx file."
        ),
    ],
    *,
    config: Annotated[
        Path | None, typer.Option(help="A config: which operations its algorithms work on.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights for the model.")] = None,
    input_shape: Annotated[
        list[str] | None, typer.Option(help="Shape of an input: 1x3x224x224, or NAME=...")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
) -> None:
    """Show the contents: operations, what a config matches, channel groups, bytes."""
    if is_code(what):
        facts = _of_model(model_source(what, weights, input_shape or ()), config)
        print_json(facts) if as_json else _show_model(facts)
        return
    if config or weights or input_shape:
        raise ArgumentError(
            f"--config, --weights and --input-shape are for a model, and '{what}' is a file. Name "
            "what makes the model: file.py:function."
        )
    file = Path(what)
    check_file(file)
    if file.suffix == ".onnx":
        from nncfx.export import summarize_onnx

        found = dataclasses.asdict(summarize_onnx(file))
        print_json(found) if as_json else _show_onnx(found)
    elif file.suffix == ".nncfx":
        inspect_file(file, as_json=as_json)
    else:
        rows = list(_tensors(file))
        found = {"tensors": rows, "size_bytes": file.stat().st_size}
        print_json(found) if as_json else _show_tensors(rows, found["size_bytes"])


def _of_model(source: OpenedModel, config: Path | None) -> dict[str, Any]:
    from nncfx.compressor.evaluation.examples import one_example
    from nncfx.graph.macs import operation_macs
    from nncfx.network import NNCFNetwork, unwrap, wrap

    model, standing = source.model, []
    if isinstance(model, NNCFNetwork):  # its weights came with quantizers, or with masks
        standing = list(model.nncf.hooks)
        model = unwrap(model)
    name = type(model).__name__
    network = wrap(model, one_example(source.example_inputs))
    sizes = {key: one.numel() * one.element_size() for key, one in network.named_parameters()}
    matched = _matched(source, config, network, standing)
    groups = network.nncf.channels
    return {
        "model": name,
        "parameters": sum(one.numel() for one in network.parameters()),
        "bytes": sum(sizes.values()),
        "operations": [
            {
                "address": one.address,
                "output": [list(out.shape) for out in one.outputs],
                "macs": operation_macs(one),
                "parameter_bytes": sum(sizes.get(name, 0) for name in one.parameters.values()),
                "algorithms": matched.get(one.address, []),
            }
            for one in network.nncf.graph.operations
        ],
        "channel_groups": [
            {"name": one.name, "groups": one.size, "fixed": one.fixed or ""} for one in groups
        ],
    }


def _matched(
    source: OpenedModel,
    config: Path | None,
    network: "NNCFNetwork",
    standing: Sequence["Insertion"],
) -> Mapping[str, Sequence[str]]:
    """Return the algorithms that have hooks at each address, or would insert them."""
    from nncfx.config import NNCFConfig
    from nncfx.controllers import builder_for
    from nncfx.tracing import WeightSite
    from nncfx.training.config_scopes import configs_in_scope

    found = NNCFConfig.from_json(config) if config else source.task and source.task.config.base
    graph = network.nncf.graph
    readers = {
        WeightSite.of(name): one.address
        for one in graph.operations
        for name in one.parameters.values()
    }
    matched: dict[str, list[str]] = {}
    configs = configs_in_scope(found, graph) if found else ()
    planned = [one for algorithm in configs for one in builder_for(algorithm).plan(network)]
    for one in (*standing, *planned):
        site = one.site
        address = readers.get(site, "") if isinstance(site, WeightSite) else site.address
        names = matched.setdefault(address, [])
        if one.algorithm not in names:
            names.append(one.algorithm)
    return matched


def _tensors(file: Path) -> Iterator[dict[str, Any]]:
    from nncfx.tasks.weights import state_in

    for name, one in state_in(file).items():
        yield {
            "name": name,
            "shape": list(one.shape),
            "dtype": str(one.dtype).removeprefix("torch."),
            "bytes": one.numel() * one.element_size(),
            "zeros": float((one == 0).sum()) / one.numel() if one.numel() else 0.0,
        }


def _show_model(facts: Mapping[str, Any]) -> None:
    numbers = ("MACs", "Bytes")
    table = column_table("Operation", "Output", *numbers, "Algorithms", numbers=numbers)
    for one in facts["operations"]:
        table.add_row(
            escape(one["address"]),
            ", ".join("x".join(map(str, shape)) or "scalar" for shape in one["output"]),
            prefix_text(one["macs"]) if one["macs"] else "",
            bytes_text(one["parameter_bytes"]) if one["parameter_bytes"] else "",
            ", ".join(one["algorithms"]),
        )
    console = output_console()
    console.print(table)
    table = column_table("Channels made by", "Groups", "Cannot go, because", numbers=("Groups",))
    for one in facts["channel_groups"]:
        table.add_row(escape(one["name"]), str(one["groups"]), escape(one["fixed"]))
    console.print(table)
    total = sum(one["macs"] for one in facts["operations"])
    sys.stdout.write(
        f"{facts['model']}: {count_text(facts['parameters'])} parameters, "
        f"{bytes_text(facts['bytes'])}, {prefix_text(total)} MACs\n"
    )


def _show_onnx(found: Mapping[str, Any]) -> None:
    table = column_table("Operator", "Nodes", numbers=("Nodes",))
    for name, count in found["operators"].items():
        table.add_row(name, str(count))
    console = output_console()
    console.print(table)
    table = column_table("Weights", "Bytes", numbers=("Bytes",))
    for name, size in found["weight_bytes"].items():
        table.add_row(name, bytes_text(size))
    console.print(table)
    for word in ("inputs", "outputs"):
        text = "; ".join(f"{name} {shape}" for name, shape in found[word].items())
        sys.stdout.write(f"{word}: {text}\n")
    sys.stdout.write(f"opset {found['opset']}, {bytes_text(found['size_bytes'])} on disk\n")


def _show_tensors(rows: Sequence[Mapping[str, Any]], size: int) -> None:
    numbers = ("Shape", "Bytes", "Zeros")
    table = column_table("Tensor", "Type", *numbers, numbers=numbers)
    for one in rows:
        table.add_row(
            escape(one["name"]),
            one["dtype"],
            "x".join(map(str, one["shape"])) or "scalar",
            count_text(one["bytes"]),
            f"{one['zeros']:.1%}",
        )
    output_console().print(table)
    total = sum(one["bytes"] for one in rows)
    sys.stdout.write(f"{len(rows)} tensors, {bytes_text(total)}; {bytes_text(size)} on disk\n")
