"""`nncfx pack`, `unpack` and `inspect-file`: model files, without torch."""

import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from nncfx.cli.console import column_table, output_console, print_json
from nncfx.errors import ArgumentError
from nncfx.report.format import bytes_text, count_text, ratio_text

Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite without asking.")]


def pack(
    source: Annotated[Path, typer.Argument(help="A safetensors file.")],
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write; by default next to the source, as .nncfx."),
    ] = None,
    *,
    force: Force = False,
    signed_zeros: Annotated[
        bool, typer.Option(help="Keep -0.0 apart from 0.0; without, files are often smaller.")
    ] = True,
) -> None:
    """Write a safetensors file as .nncfx: the same bits in the fewest bytes."""
    from nncfx.storage import pack_safetensors

    check_file(source, ending=".safetensors")
    target = _target(source, output, ".nncfx", force=force)
    with Console(stderr=True).status(f"Packing {source.name}"):
        saved = pack_safetensors(source, target, signed_zeros=signed_zeros)
    _print_sizes(saved.path, saved.size_bytes, source)


def unpack(
    source: Annotated[Path, typer.Argument(help="A .nncfx file.")],
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write; by default next to the source, as .safetensors."),
    ] = None,
    *,
    force: Force = False,
    max_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="Limit of memory for a tensor; by default 4,096 times the file."),
    ] = None,
) -> None:
    """Write a .nncfx file as safetensors, which any tool reads."""
    from nncfx.storage import unpack_safetensors

    check_file(source, ending=".nncfx")
    target = _target(source, output, ".safetensors", force=force)
    with Console(stderr=True).status(f"Unpacking {source.name}"):
        saved = unpack_safetensors(source, target, max_bytes=max_bytes)
    _print_sizes(saved.path, saved.size_bytes, source)


def inspect_file(
    file: Annotated[Path, typer.Argument(help="A .nncfx file.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Show what a .nncfx file stores: each tensor, its codec, size, entropy and checksum."""
    from nncfx.storage import inspect

    check_file(file, ending=".nncfx")
    with Console(stderr=True).status(f"Reading {file.name}"):
        rows = inspect(file)
    if as_json:
        tensors = [dataclasses.asdict(row) for row in rows]
        print_json({"tensors": tensors, "size_bytes": file.stat().st_size})
        return
    numbers = ("Bytes", "Bits", "Entropy", "CRC-32")
    table = column_table(
        *("Tensor", "Shape", "Type", "Codec"), *numbers, numbers=("Shape", *numbers)
    )
    table.columns[0].min_width = 8
    for row in rows:
        table.add_row(
            escape(row.name),  # names of hooks contain brackets
            "x".join(map(str, row.shape)) or "scalar",
            row.dtype,
            row.codec,
            count_text(row.size_bytes),
            f"{row.bits_per_weight:.2f}",
            f"{row.entropy_bits:.2f}",
            f"{row.checksum:08x}",
        )
    output_console().print(table)
    elements = sum(math.prod(row.shape) for row in rows)
    size = file.stat().st_size
    sys.stdout.write(
        f"{len(rows)} tensors, {count_text(elements)} elements, {bytes_text(size)} on disk: "
        f"{ratio_text(4 * elements / size)} smaller than 4 bytes for each element\n"
    )


def check_file(file: Path, *, ending: str | None = None) -> None:
    """Refuse a file that does not exist, or whose extension is of another kind.

    Args:
        file: its path.
        ending: the expected extension, one of `_WAYS`; None accepts any.

    Raises:
        ArgumentError: it is of another kind.
        StorageError: it does not exist.
    """
    from nncfx.storage.formats.whole_file import check_source

    check_source(file)
    if ending and file.suffix != ending and file.suffix in {*_WAYS, *_OTHERS}:
        way = _WAYS[ending].format(file=shlex.quote(str(file)))
        raise ArgumentError(
            f"'{file}' is not a {ending} file, and this command reads no others. {way}"
        )


_WAYS: Final = {
    ".onnx": "Export the model: nncfx export file.py:function --weights {file} --output x.onnx.",
    ".safetensors": "Write the tensors with safetensors.torch.save_file; nncfx inspect shows "
    "those of {file}.",
    ".nncfx": "Make one from a .safetensors file with nncfx pack; nncfx inspect shows {file}.",
    ".json": "Name the folder of a run, or the evidence.json in it.",
}
"""How to create a file of each extension that a command reads."""
_OTHERS: Final = (".pt", ".pth", ".py")
"""Extensions that are rejected if another one is expected; unknown ones are read and judged."""


def _target(source: Path, output: Path | None, suffix: str, *, force: bool) -> Path:
    target = output or source.with_suffix(suffix)
    if target.resolve() == source.resolve():
        raise ArgumentError(f"'{source}' would replace itself. Name another file with --output.")
    if target.suffix != suffix:
        right = shlex.quote(str(target.with_suffix(suffix)))
        raise ArgumentError(
            f"'{target}' does not end in {suffix}, and other commands tell files by their "
            f"endings. Name the file --output {right}."
        )
    if force or not target.exists():
        return target
    if sys.stdin.isatty():
        typer.confirm(f"'{target}' exists already. Overwrite it?", abort=True)
    elif output is None:
        raise ArgumentError(
            f"'{target}' exists already, and may be the only copy of something. Name the file to "
            f"write: --output {target}."
        )
    return target


def _print_sizes(path: Path, size: int, source: Path) -> None:
    before = source.stat().st_size
    ratio = f"{ratio_text(before / size)} smaller than" if size < before else "from"
    sys.stdout.write(f"{path}: {bytes_text(size)}, {ratio} {source} ({bytes_text(before)})\n")
