"""`nncfx diff`: shows the differences between two files of the same kind."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nncfx.cli.console import column_table, output_console, print_json
from nncfx.cli.files import check_file
from nncfx.errors import ArgumentError


def diff(
    first: Annotated[Path, typer.Argument(help="A checkpoint, .nncfx, .onnx or JSON file.")],
    second: Annotated[Path, typer.Argument(help="Another file, of the same kind.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Show differences: tensors, operators and bytes, or keys of configs and results."""
    for file in (first, second):
        check_file(file)
    kinds = [_kind(first), _kind(second)]
    if kinds[0] != kinds[1]:
        raise ArgumentError(
            f"'{first}' is {kinds[0]} and '{second}' is {kinds[1]}, which cannot be compared. "
            "Give two files of one kind."
        )
    before, after = _facts(first, kinds[0]), _facts(second, kinds[0])
    rows = [
        {"name": name, "before": before.get(name), "after": after.get(name)}
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]
    if kinds[0] == "tensors":
        rows = list(_with_distance(rows, first, second))
    if as_json:
        print_json({"differences": rows})
        return
    _show(rows, first, second)


def _kind(file: Path) -> str:
    kinds = {".onnx": "an ONNX model", ".json": "JSON"}
    return kinds.get(file.suffix, "tensors")


def _facts(file: Path, kind: str) -> Mapping[str, Any]:
    if kind == "an ONNX model":
        from nncfx.export import summarize_onnx

        found = summarize_onnx(file)
        return {
            **{f"{name} nodes": count for name, count in found.operators.items()},
            **{f"{name} bytes": size for name, size in found.weight_bytes.items()},
            **{f"input {name}": shape for name, shape in found.inputs.items()},
            **{f"output {name}": shape for name, shape in found.outputs.items()},
            "bytes on disk": found.size_bytes,
            "opset": found.opset,
        }
    if kind == "JSON":
        from nncfx.storage.formats.whole_file import read_object

        return dict(_flat(read_object(file, "file"), ""))
    return {
        name: f"{'x'.join(map(str, one.shape)) or 'scalar'} {str(one.dtype)[6:]} {_digest(one)}"
        for name, one in _tensors(file).items()
    }


def _tensors(file: Path) -> Mapping[str, Any]:
    from nncfx.storage import unpack_safetensors
    from nncfx.storage.formats.container import is_container
    from nncfx.tasks.weights import state_in

    if not is_container(file):
        return state_in(file)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = unpack_safetensors(file, Path(folder) / "model.safetensors")
        return {name: one.clone() for name, one in state_in(unpacked.path).items()}


def _digest(tensor: Any) -> str:  # noqa: ANN401 (torch is imported late)
    import zlib

    import torch

    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{zlib.crc32(data):08x}"


def _with_distance(
    rows: list[dict[str, Any]], first: Path, second: Path
) -> Iterator[dict[str, Any]]:
    """Yield the rows with the largest difference of tensors with equal shapes.

    Quantized tensors are compared by the values that their integers represent.
    """
    before, after = _decoded(first), _decoded(second)
    for row in rows:
        one, other = before.get(row["name"]), after.get(row["name"])
        distance = None
        if one is None or other is None or not _are_alike(one, other):
            yield row
            continue
        if one.numel() and not one.is_complex():
            distance = float((one.double() - other.double()).abs().max())
        yield {**row, "max_difference": distance}


def _decoded(file: Path) -> Mapping[str, Any]:
    from nncfx.storage import load_state
    from nncfx.tasks.weights import is_ours, state_in

    return load_state(file) if is_ours(file) else state_in(file)


def _are_alike(one: Any, other: Any) -> bool:  # noqa: ANN401 (torch is imported late)
    are_floats = one.is_floating_point() and other.is_floating_point()
    return bool(one.shape == other.shape and (are_floats or one.dtype == other.dtype))


def _flat(value: object, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _flat(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield from _flat(one, f"{path}[{number}]")
    else:
        yield path, value


def _show(rows: list[dict[str, Any]], first: Path, second: Path) -> None:
    if not rows:
        sys.stdout.write(f"{first} and {second} hold the same\n")
        return
    table = column_table("Name", str(first), str(second))
    has_distance = any(row.get("max_difference") is not None for row in rows)
    if has_distance:
        table.add_column("Largest difference", justify="right")
    for row in rows:
        cells = [escape(_cell(row[key])) for key in ("name", "before", "after")]
        if has_distance:
            distance = row.get("max_difference")
            cells.append("" if distance is None else f"{distance:.3g}")
        table.add_row(*cells)
    output_console().print(table)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
