"""Export a model to ONNX through torch's exporter."""

import contextlib
import inspect
import io
import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.errors import ArgumentError, ExportError, MissingExtraError
from nncfx.export.capture.captured_program import captured_program, check_other_sizes
from nncfx.export.capture.dynamic_batch import (
    Call,
    as_lists,
    axes_by_argument,
    batch_size,
    batched_call,
    named_options,
    opened,
)
from nncfx.export.capture.export_failure import as_export_error
from nncfx.export.capture.exportable_calls import ExportableCalls
from nncfx.export.capture.patched_exporter import patched_exporter
from nncfx.export.capture.preparation import (
    check_writable,
    inferring,
    plain,
    run_once,
    warn_idle_quantizers,
)
from nncfx.export.capture.program_checks import check_captured, quantizer_inputs
from nncfx.export.capture.tensor_names import (
    name_inputs,
    name_open_axes,
    name_outputs,
    names_of_outputs,
    rename,
)
from nncfx.export.capture.writable_outputs import writable_outputs
from nncfx.export.checks.qdq_check import warn_float_operations
from nncfx.export.checks.saturation_check import warn_overflow
from nncfx.export.checks.sparsity_check import warn_unused_pattern
from nncfx.export.export_result import ExportResult
from nncfx.export.extension_passes import with_added
from nncfx.export.ir.defaults import leave_out_defaults
from nncfx.export.ir.export_pass import Draft, run_passes
from nncfx.export.ir.fake_quantize import translations
from nncfx.export.ir.node_modules import name_nodes
from nncfx.export.ir.onnx_writer import write_onnx
from nncfx.export.pipeline import PASSES
from nncfx.narration import Narrator, narrated
from nncfx.network import inputs_for
from nncfx.quantization.grid.operator_shapes import know_shapes
from nncfx.quantization.placement.insertions import planned_target
from nncfx.storage.formats.whole_file import check_destination, writing_files
from nncfx.targets import TARGET_KEY, Target, target_named
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.inputs import own_tensors
from nncfx.tracing.calls.module_check import require_module

if TYPE_CHECKING:
    import onnx_ir as ir

_CHATTY: Final = ("onnx_ir", "onnxscript", "torch")
_ALONE: Final = threading.RLock()


@tells_arguments()
def export_onnx(  # noqa: PLR0913 (the front door: one word per setting, each with a default)
    model: nn.Module,
    path: str | os.PathLike[str],
    example_inputs: ExampleInputs | None = None,
    target: str | Target | None = None,
    *,
    dynamic_batch: bool = True,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    opset: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> ExportResult:
    """Write `model` as an ONNX file and return a description of the file.

    The model is exported for inference: in eval mode, with batch norms folded into their
    convolutions. A wrapped model is stripped first; hooks at activations, which a plain module
    cannot hold, are exported as the operations that they compute. The model itself does not
    change. Outputs that are not tensors, and state that the forward changes, cannot be written;
    the log names them.

    Where the model calls torch's `fake_quantize_*` operations, as quantizers do, the file holds
    integers: weights are stored as int8, activations pass a `QuantizeLinear` and a
    `DequantizeLinear` placed so that `target` fuses them into integer kernels.

    The export warns, with remedies, if integer sums would overflow on this CPU (x86 without VNNI,
    weights of 8 bits), unless `quantize` has warned already. It also warns of layers with integer
    weights that the target computes in float anyway.

    The file is checked before it gets its name, so no half-written or rejected file ever appears
    at `path`. Weights of more than 256 MiB go into a second file (`path` + `.data`). Nodes are
    named after the modules that they compute.

    Args:
        model: any `nn.Module`, wrapped by nncfx or not.
        path: the file to write; an existing file is replaced.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs; a
            wrapped model has its own.
        target: the runtime that will read the file: `"onnxruntime"`, `"openvino"`, `"tensorrt"`;
            `"onnxruntime-avx2"` for ONNX Runtime on x86 without VNNI; the path of a JSON file
            that describes another target, or a `Target`. By default the target for which the
            model is quantized, or `"onnxruntime"` if it is not.
        dynamic_batch: leave axis 0 open in every input where it is as long as in the first;
            False fixes all shapes, which exports faster and may help a runtime optimize.
        dynamic_axes: further open axes, as in torch: a mapping from arguments of the forward to
            axes to names, such as `{"input_ids": {1: "length"}}`; if an argument holds several
            tensors, it applies to each. An open axis of an output gets the name of the input
            axis that it equals, otherwise a name like `output_dim_2`.
        opset: the ONNX operator set; the target's by default.
        input_names: names of the graph's inputs, in the order of the forward's arguments, with
            nested inputs flattened; by default the names of the arguments.
        output_names: names of the graph's outputs, in order; by default their keys.

    Raises:
        ArgumentError: `model` is not a module or is on meta; the target is unknown or does not
            read the operator set; example inputs are missing or of the wrong kind, or lack the
            dynamic axes; or names are not unique or not as many as the inputs or outputs.
        TracingError: the model is TorchScript.
        ExportError: the model is sharded or offloaded, does not run on `example_inputs`, uses an
            operation that has no ONNX form, or fixes an axis that should stay open.
        StorageError: `path` is a folder, or the file cannot be written.
        MissingExtraError: onnx or onnxscript is not installed.
    """
    runtime = export_target(model, target)
    wanted = _opset_for(runtime, opset)
    check_destination(path)  # before anything is traced
    # a tensor given twice, as to both arms of a siamese network, would become one input
    call = own_tensors(as_call(inputs_for(model, example_inputs)))
    _require_packages()
    with narrated("export") as narrator:
        model = plain(model, call)
        check_writable(model)
        warn_idle_quantizers(model)
        with inferring(model) as first:  # weights that its first run writes are in the file
            # the file holds weights that parametrizations compute as constants
            with (
                writable_outputs(model, numbers=False),
                parametrize.cached(),
                named_options(model, call),
            ):
                narrator.now(f"capturing {type(model).__name__}")
                with quantizer_inputs(model) as shapes, first:
                    outputs = names_of_outputs(run_once(model, call))
                own = _by_name(model, call)
                call, axes = _open_axes(
                    model, own, dynamic_axes or {}, dynamic_batch=dynamic_batch
                )
                program = _capture(model, (call, own), axes, wanted, narrator)
                if dynamic_batch:
                    _check_open(program.model.graph, model, batch_size(call))
                _check_axes(program.model.graph, model, dynamic_axes or {})
                if program.exported_program is not None:
                    check_other_sizes(program.exported_program, model, call, own)
                    check_captured(program.exported_program, shapes)
            graph = program.model.graph
            name_outputs(graph, outputs)
            rename(graph, input_names, output_names)
            narrator.now(f"giving operators the form for {runtime.name}")
            modules = _lower(program.model, model, runtime)
            size_bytes = _write(program.model, Path(path))
    return ExportResult(
        path=Path(path),
        target=runtime.name,
        opset=wanted,
        inputs=tuple(str(value.name) for value in graph.inputs),
        outputs=tuple(str(value.name) for value in graph.outputs),
        modules=modules,
        size_bytes=size_bytes,
    )


def _lower(written: "ir.Model", model: nn.Module, target: Target) -> Mapping[str, str]:
    """Run the passes on `written`; return the modules of `model` by node and value.

    Raises:
        ExportError: a quantizer cannot be written: its scale is not a constant, or its integers
            need a type that the model's operator set lacks.
    """
    run_passes(Draft(written, target), with_added(PASSES))
    written.metadata_props[TARGET_KEY] = target.name
    modules = name_nodes(written, model)
    name_open_axes(written.graph)
    warn_overflow(written.graph, target, model)
    warn_float_operations(written.graph, target)
    warn_unused_pattern(written.graph, target)
    leave_out_defaults(written)
    return modules


def _opset_for(target: Target, opset: int | None) -> int:
    assert target.opset and target.newest_opset  # noqa: PT018, S101 (asked for by name)
    if opset is None:
        return target.opset
    # The oldest opset that the exporter writes is 18.
    if not 18 <= opset <= target.newest_opset:  # noqa: PLR2004 (named above)
        raise ArgumentError(
            f"opset {opset} cannot be written for '{target.name}'; "
            f"it lies in 18 to {target.newest_opset}. Leave it out for {target.opset}."
        )
    return opset


def _require_packages() -> None:
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        raise MissingExtraError(error.name or "onnx", "export", "exporting to ONNX") from error
    del onnx, onnxscript


def export_target(model: nn.Module, target: str | Target | None) -> Target:
    """Return the named target or, without a name, the target for which `model` is quantized.

    Raises:
        ArgumentError: `model` is not a module, or the target is unknown.
        TracingError: `model` is TorchScript.
    """
    require_module(model, "export_onnx")
    planned = planned_target(model) if target is None else None
    if planned is not None and planned.opset is not None:
        return planned
    return target_named("onnxruntime" if target is None else target, "opset")


def _by_name(model: nn.Module, call: Call) -> Call:
    """Return `call` with its inputs as keywords if the last positional input is a mapping.

    torch.onnx.export would take such a mapping for the keyword arguments themselves.
    """
    args, kwargs = call
    if not (args and isinstance(args[-1], Mapping)):
        return call
    return (), {**inspect.signature(model.forward).bind(*args).arguments, **kwargs}


def _open_axes(
    model: nn.Module, call: Call, wanted: Mapping[str, Mapping[int, str]], *, dynamic_batch: bool
) -> tuple[Call, dict[str, Any] | None]:
    """Return the call to export and, by argument, the axes that stay open."""
    if not (dynamic_batch or wanted):
        return call, None
    batch: Call = pytree.tree_map(lambda _: None, call)
    if dynamic_batch:
        call, batch = batched_call(call)
    axes = opened(axes_by_argument(model, batch), axes_by_argument(model, call), wanted)
    return call, as_lists(axes)


def _capture(
    model: nn.Module,
    calls: tuple[Call, Call],
    axes: dict[str, Any] | None,
    opset: int,
    narrator: Narrator,
) -> torch.onnx.ONNXProgram:
    from nncfx.export.ir.exact_translations import exact_translations

    call, own = calls
    try:
        know_shapes()
        # the state of torch's exporter is global, so only one export runs at a time
        with _ALONE, patched_exporter(), contextlib.ExitStack() as stack:
            with _quiet():
                captured = captured_program(model, call, axes, own)
            # a captured program holds its calls already; otherwise the exporter runs the model
            if captured is None:
                stack.enter_context(ExportableCalls())
            narrator.now("translating to ONNX operators")
            stack.enter_context(_quiet())
            program = torch.onnx.export(
                captured or model,
                call[0],
                kwargs=call[1],
                dynamic_shapes=axes,
                opset_version=opset,
                dynamo=True,
                verbose=False,
                custom_translation_table={**translations(), **exact_translations()},
            )
    except ExportError:
        raise
    except Exception as error:
        raise as_export_error(error, model) from error
    if program is None:
        raise ExportError(f"torch.onnx.export returned nothing for {type(model).__name__}.")
    name_inputs(program.model.graph)
    return program


def _check_open(graph: "ir.Graph", model: nn.Module, size: int) -> None:
    """Refuse a graph whose batch torch silently fixed at the example's `size`."""
    for value in graph.inputs:
        if value.shape and value.shape[0] == size:
            fixes = "Take the size from the input's shape, or pass dynamic_batch=False."
            for other in graph.inputs:  # a state of layers x batch x features
                sizes = list(other.shape or ())
                if size in sizes[1:] and sizes[0] != size:
                    axes = f"{{'{other.name}': {{{sizes.index(size)}: 'batch'}}}}"
                    fixes += f" Where '{other.name}' has the batch too: dynamic_axes={axes}."
            raise ExportError(
                f"{type(model).__name__} cannot be exported with an open batch: its forward fixes "
                f"the batch of input '{value.name}', by a constant shape or by a branch on the "
                f"size. {fixes}"
            )


def _check_axes(
    graph: "ir.Graph", model: nn.Module, wanted: Mapping[str, Mapping[int, str]]
) -> None:
    """Refuse a graph in which torch fixed one of the axes in `wanted` at the example's size."""
    for value in graph.inputs:
        for axis in wanted.get(_argument(str(value.name), wanted), {}):
            if value.shape and isinstance(value.shape[axis], int):
                raise ExportError(
                    f"{type(model).__name__} cannot be exported with axis {axis} of "
                    f"'{value.name}' open: its forward fixes it at {value.shape[axis]}. Take the "
                    "size from the input's shape, or leave the axis out of dynamic_axes."
                )


def _argument(name: str, wanted: Mapping[str, object]) -> str:
    """Return the argument in `wanted` that holds input `name`, which torch may call `arg_0_1`."""
    holding = (one for one in wanted if re.fullmatch(rf"{re.escape(one)}(_\d+)+", name))
    return name if name in wanted else next(holding, "")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output, warnings and log messages of the exporter; failures still raise errors."""
    known = logging.root.manager.loggerDict
    names = [name for name in known if name.split(".")[0] in _CHATTY]
    loggers = [one for name in names if not (one := logging.getLogger(name)).disabled]
    above = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in above]
    for logger in loggers:
        logger.disabled = True  # setting a level would clear the cache of every logger
    for logger in above:
        logger.setLevel(logging.CRITICAL)  # for loggers created later
    nowhere = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger in loggers:
            logger.disabled = False
        for logger, level in zip(above, levels, strict=True):
            logger.setLevel(level)


def _write(model: "ir.Model", destination: Path) -> int:
    """Write and check the file in a temporary folder, move it into place, return its bytes."""
    # Weights are moved first, so a file at `destination` never points to missing weights.
    with writing_files(destination) as folder:
        write_onnx(model, folder / destination.name)
        return sum(file.stat().st_size for file in folder.iterdir())
