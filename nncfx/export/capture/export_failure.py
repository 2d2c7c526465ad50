"""Turn a failure of torch's exporter into a readable error."""

import linecache
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from torch import fx, nn

from nncfx.errors import ExportError, HookError, is_installed

_OPERATION: Final = (
    re.compile(r"OpOverload\(op='([\w.:]+)'"),
    re.compile(r"target=torch\.ops\.([\w.]+)"),
)
_FIXES: Final = {
    "transformers.grouped_mm_fallback": "Compute experts with products that ONNX has: "
    "model.set_experts_implementation('batched_mm'), before it is quantized."
}
"""Advice by operation, instead of the general one."""
_OF_CONSTANTS: Final = (
    "fake tensor in the exported program constant's list",
    "'Tensor' object has no attribute 'constant'",
)
"""Messages of torch.export about tensors that a forward creates without its knowledge."""
_SOURCE_LINE: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)(?:\n {4}(\S[^\n]*))?')
_OWN: Final = str(Path(__file__).parents[2])
_MACHINERY: Final = frozenset(
    {"nncfx", "onnx_ir", "onnxscript", "torch", *sys.stdlib_module_names}
)
"""Packages whose lines do not belong to the model."""
_AT: Final = " at "
_SHOWN: Final = 4
_COLOUR: Final = re.compile(r"\x1b?\[\d+m")


def as_export_error(error: BaseException, module: nn.Module) -> ExportError:
    """Return an `ExportError` that names the operation, the line of the model and the remedy.

    Args:
        error: the error that torch's exporter raised.
        module: the model that it exported.
    """
    model = type(module).__name__
    chain = list(_chain(error))
    texts = [_COLOUR.sub("", str(link)) for link in chain]
    if isinstance(chain[-1], HookError):  # it names its place and advice
        return ExportError(f"{model} cannot be exported: {texts[-1]}")
    named = (pattern.search(text) for pattern in _OPERATION for text in texts)
    operation = next((found.group(1) for found in named if found), "")
    where = _source_line([*texts, *_nodes_read(chain)]) or _raising_line(chain[-1])
    reason = _first_line(texts[-1])
    # who uses a package cannot change its code
    parts = _parts_instead(module) if is_installed(where.removeprefix(_AT)) else ""
    if operation and "Unsupported attribute type" in reason and "Symbolic" in reason:
        return ExportError(
            f"{model} cannot be exported with an open batch: operation '{operation}'{where} takes "
            "a number that depends on its size, such as the groups of a convolution, and a file "
            "holds that number as a constant. Pass dynamic_batch=False."
        )
    if operation:
        fix = parts or "Write it with other operations, or compute it outside of the model."
        return ExportError(
            f"{model} cannot be exported: operation '{operation}'{where} has no ONNX form "
            f"({reason}). {_FIXES.get(operation, fix)}"
        )
    if any(type(link).__name__.startswith("GuardOnDataDependent") for link in chain):
        fix = parts or "Use torch.where, or torch.cond, instead of the branch."
        if "`assert " in where:
            fix = "Remove the assertion, or run Python with -O, which leaves assertions out."
        return ExportError(
            f"{model} cannot be exported: its forward branches on the values of a tensor{where} "
            f"({reason}). {fix}"
        )
    if makes_constants(chain[-1]):
        return ExportError(
            f"{model} cannot be exported{where}: its forward makes tensors that torch.export "
            "takes for constants, as torch.autograd.grad and torch.func do, and derivatives have "
            "no ONNX form. Export the part whose output is differentiated by itself."
        )
    return ExportError(
        f"{model} cannot be exported{where}: {type(chain[-1]).__name__}: {reason.rstrip('.')}. "
        f"{parts or 'Change that part of its forward.'} Where an open axis is at fault, call "
        "nncfx.export_onnx without it in dynamic_axes, or with dynamic_batch=False."
    )


def _parts_instead(model: nn.Module) -> str:
    """Return the advice to export parts of `model` where code of an installed package fails."""
    fix = "The line is of an installed package: export the parts of the model that do not run it"
    parts = [name for name, one in model.named_children() if any(True for _ in one.parameters())]
    if not parts:
        return f"{fix}."
    return (
        f"{fix}, each by itself and with the inputs that it gets there, such as "
        f"model.{parts[0]} of {', '.join(parts[:_SHOWN])}."
    )


def makes_constants(error: BaseException | None) -> bool:
    """Return whether torch.export failed on tensors that it mistakes for constants."""
    return any(one in str(error) for one in _OF_CONSTANTS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _source_line(texts: list[str]) -> str:
    matches = [match for text in texts for match in _SOURCE_LINE.finditer(text)]
    # the frames of a hook surround the model's own line
    found = [match for match in matches if not match.group(1).startswith(_OWN)]
    if not found:
        return ""
    return _told(*found[-1].groups())


def _nodes_read(chain: Iterable[BaseException]) -> Iterator[str]:
    """Yield the places where the model makes failed calls, which torch's message leaves out."""
    for link in chain:
        for frame, _ in traceback.walk_tb(link.__traceback__):
            node = frame.f_locals.get("node")
            if isinstance(node, fx.Node):
                yield str(node.meta.get("stack_trace", ""))


def _raising_line(error: BaseException) -> str:
    """Return the line of the model that raised `error`, for errors that name no line."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = [(one, str(one.f_globals.get("__name__")), line) for one, line in frames]
    found = [
        (one, line) for one, name, line in modules if name.partition(".")[0] not in _MACHINERY
    ]
    if not found:
        return ""
    frame, line = found[-1]
    path, function = frame.f_code.co_filename, frame.f_code.co_name
    return _told(path, line, function, linecache.getline(path, line).strip())


def _told(path: str, line: int | str, function: str, code: str) -> str:
    return f"{_AT}{path}:{line} in {function}" + (f", `{code}`" if code else "")


def _first_line(text: str) -> str:
    """Return the first line of `text`, and each next line while a line ends with a colon."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next((at for at, line in enumerate(lines) if not line.endswith(":")), len(lines))
    return " ".join(lines[: told + 1]).removesuffix(":") or "no reason given"
