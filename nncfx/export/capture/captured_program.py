"""Capture a model as a program for torch's ONNX exporter, and check it at other sizes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx, nn
from torch._ops import HigherOrderOperator
from torch.onnx._internal.exporter import _dynamic_shapes as dynamic_shapes
from torch.onnx._internal.exporter._capture_strategies import (
    TorchExportNonStrictStrategy,
    TorchExportStrictStrategy,
)
from torch.onnx._internal.exporter._flags import set_onnx_exporting_flag
from torch.utils import _pytree as pytree

from nncfx.errors import ExportError
from nncfx.export.capture.decomposition import QuicklyDecomposed
from nncfx.export.capture.dynamic_batch import Call
from nncfx.export.capture.export_failure import makes_constants
from nncfx.export.capture.exportable_calls import ATTENTION_AXES, ExportableCalls
from nncfx.export.capture.inplace_operations import is_inplace
from nncfx.export.capture.patched_exporter import FixedAxisError, fixing_no_axes, open_axes
from nncfx.export.capture.preparation import run_once
from nncfx.network import NNCFNetwork
from nncfx.tracing.calls.inputs import own_tensors
from nncfx.tracing.calls.preservation import preserved
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.hooks.activation_hooks import OtherCallsError

_ATEN: Final = torch.ops.aten
_CHECKED: Final = frozenset({_ATEN._is_all_true.default, _ATEN._is_any_true.default})  # noqa: SLF001 (torch's names)
_ASSERTING: Final = frozenset({_ATEN._assert_scalar.default, _ATEN._assert_async.msg})  # noqa: SLF001 (torch's names)
_REPLACED: Final = frozenset(
    {
        *(_ATEN.einsum.default, _ATEN.embedding_bag.padding_idx, _ATEN.cross_entropy_loss.default),
        *(_ATEN.cumprod.default, _ATEN.logcumsumexp.default, _ATEN.cdist.default),
        *(_ATEN.hypot.default, _ATEN.adaptive_max_pool1d.default),
        *(_ATEN.adaptive_max_pool2d.default, _ATEN.adaptive_max_pool3d.default),
    }
)
_INDEXING: Final = frozenset(
    {_ATEN.index.Tensor, _ATEN.index_put.default, _ATEN.index_put_.default}
)
_PROMOTING: Final = frozenset({_ATEN.rsub.Scalar, _ATEN.floor_divide.default})
"""Operations of which torch's exporter cannot promote an integer tensor for a float number."""
_HARMLESS: Final = frozenset({_ATEN.detach_.default})
"""In-place operations that change no values."""
_OTHER_BRANCH: Final = (
    "{model} cannot be exported with open axes: there its forward takes another branch than "
    "when it was traced, as between a batch of one and of several, and hooks would be missing. "
    "Pass dynamic_batch=False, or fewer dynamic_axes; or trace that branch, too, before it is "
    "quantized: nncfx.wrap(model, example_inputs, further_inputs=[...])."
)
_ROUNDING: Final = 1e-5
"""Tolerance, relative to the largest value of an output."""
_SMALLEST: Final = 1e-30
"""Replaces a largest value of 0 as a divisor."""


def captured_program(
    model: nn.Module, call: Call, axes: dict[str, Any] | None, own: Call | None = None
) -> torch.export.ExportedProgram | None:
    """Return `model` as a program that is decomposed quickly; None if torch must try other ways.

    `ExportableCalls` is active only during capture, and only if a call needs another form: torch
    enters a mode about a hundred times for each operation that it captures or decomposes. A
    wrapped model does not see that it is exported (`torch.onnx.is_in_onnx_export` is False),
    because its hooks are attached to the calls that it makes outside of an export.

    Args:
        model: the model, in the mode in which it is exported.
        call: the inputs.
        axes: by argument of the forward, the axes that stay open.
        own: the inputs as given, if `call` holds more examples.

    Raises:
        HookError: the model makes other calls than when it was traced.
        ExportError: it makes other calls because axes are open.
    """
    opened, _ = dynamic_shapes.convert_str_to_export_dim(axes)
    is_told = not any(isinstance(module, NNCFNetwork) for module in model.modules())

    def captured(strategy: Callable[..., Any]) -> torch.export.ExportedProgram | None:
        capture = set_onnx_exporting_flag(strategy) if is_told else strategy
        result = capture(model, call[0], call[1], dynamic_shapes=opened)
        if isinstance(result.exception, OtherCallsError):
            closed = capture(model, *(own or call), dynamic_shapes=None)
            raise _other_calls(model, result.exception, closed.exception)
        program = result.exported_program
        if _is_fixed_axis(result.exception):
            return None
        if program is None or any(map(_has_other_form, program.graph.nodes)):
            with ExportableCalls():
                result = capture(model, call[0], call[1], dynamic_shapes=opened)
            if makes_constants(result.exception):
                raise result.exception  # torch's other strategies could crash the process
            program = result.exported_program
        return program  # type: ignore[no-any-return]  # torch

    program = captured(TorchExportNonStrictStrategy(verbose=False))
    if program is not None and _fixes_batch(program, call, opened):
        program = _reading_code(captured, program, call, opened)
    if program is None:
        return None
    _remove_assertions(program)
    _compute_numbers(program)
    _widen_indices(program)
    _promote(program.graph)
    return QuicklyDecomposed.of(program)


def _reading_code(
    captured: Callable[..., torch.export.ExportedProgram | None],
    program: torch.export.ExportedProgram,
    call: Call,
    opened: Any,  # noqa: ANN401 (a tree)
) -> torch.export.ExportedProgram:
    """Return a program by the strict strategy if only that keeps the axes in `opened` open.

    len() returns a plain int; only the strict strategy, which reads the code, keeps the axis.
    """
    with fixing_no_axes():
        strict = captured(TorchExportStrictStrategy(verbose=False))
    if strict is None or _fixes_batch(strict, call, opened):
        return program
    # the strict strategy may skip hooks, so use its program only if it has all quantizers
    return strict if _quantizers(strict) == _quantizers(program) else program


def _is_fixed_axis(error: BaseException | None) -> bool:
    """Return whether torch failed because `fixing_no_axes` kept it from fixing an open axis."""
    return isinstance(error and error.__context__, FixedAxisError)


def _other_calls(
    model: nn.Module, found: Exception, closed: Exception | None
) -> OtherCallsError | ExportError:
    """Return the error for other calls with open axes; `closed` is the error without open axes."""
    if isinstance(closed, OtherCallsError):
        return closed
    error = ExportError(_OTHER_BRANCH.format(model=type(model).__name__))
    error.__cause__ = found
    return error


def _remove_assertions(program: torch.export.ExportedProgram) -> None:
    """Remove assertions about values, which a file cannot hold."""
    graph = program.graph
    values = [node for node in graph.nodes if node.target in _CHECKED]
    if not values:
        return
    reached = dict.fromkeys(values)
    for node in graph.nodes:  # in the order of execution
        if any(one in reached for one in node.all_input_nodes):
            reached[node] = None
    for node in reversed(reached):
        if node.target in _ASSERTING or not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()


def _compute_numbers(program: torch.export.ExportedProgram) -> None:
    """Replace scalars computed only from constants by numbers; ONNX may lack the operators."""
    graph, known = program.graph, dict[fx.Node, Any]()
    constants = program.graph_signature.inputs_to_lifted_tensor_constants
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if is_inplace(node) and node.target not in _HARMLESS and node.args[0] in known:
            return  # its other names would change as well
        if node.name in constants:
            known[node] = program.constants[constants[node.name]]
        elif inputs and known.keys() >= set(inputs) and not _is_quantizer(node):
            args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    for node, value in reversed(known.items()):
        if node.name in constants or not isinstance(value, torch.Tensor) or value.ndim:
            continue
        with graph.inserting_before(node):
            full = graph.call_function(
                _ATEN.full.default, ((), value.item()), {"dtype": value.dtype}
            )
        full.meta = node.meta
        node.replace_all_uses_with(full)
        graph.erase_node(node)
    program.graph_module.recompile()


def _widen_indices(program: torch.export.ExportedProgram) -> None:
    """Cast int32 indices to int64, the only type that ONNX accepts."""
    graph = program.graph
    nodes = [one for one in graph.nodes if one.target in _INDEXING]
    for node in nodes:
        indices = list(node.args[1])
        for place, index in enumerate(indices):
            if index is not None and index.meta["val"].dtype is torch.int32:
                indices[place] = _cast(index, torch.int64, node)
        node.update_arg(1, indices)
    if nodes:
        program.graph_module.recompile()


def _promote(graph: fx.Graph) -> None:
    """Cast integers of `_PROMOTING` operations, such as `1.0 - mask`, to their results' dtype."""
    for node in [one for one in graph.nodes if one.target in _PROMOTING]:
        dtype = node.meta["val"].dtype
        for one in node.all_input_nodes:
            if one.meta["val"].dtype is not dtype:
                node.replace_input_with(one, _cast(one, dtype, node))


def _cast(value: fx.Node, dtype: torch.dtype, reader: fx.Node) -> fx.Node:
    """Return a new node before `reader` that casts `value` to `dtype`."""
    with reader.graph.inserting_before(reader):
        cast = reader.graph.call_function(_ATEN.to.dtype, (value, dtype))
    cast.meta = {**reader.meta, "val": value.meta["val"].to(dtype)}
    return cast


def _fixes_batch(program: torch.export.ExportedProgram, call: Call, opened: Any) -> bool:  # noqa: ANN401 (a tree)
    """Return whether an axis that `opened` leaves open is fixed in `program`."""
    symbols = {
        one.node.expr
        for sizes, _ in _inputs(program, call)
        for one in sizes
        if isinstance(one, torch.SymInt)
    }
    return len(symbols) < open_axes(opened)


def _quantizers(program: torch.export.ExportedProgram) -> int:
    return sum(map(_is_quantizer, program.graph.nodes))


def _is_quantizer(node: fx.Node) -> bool:
    return "fake_quantize" in str(node.target)


def _has_other_form(node: fx.Node) -> bool:
    """Return whether `ExportableCalls` may replace `node`."""
    if node.op == "call_module" or isinstance(node.target, HigherOrderOperator):
        return True
    if node.target is torch.ops.aten.scaled_dot_product_attention.default:
        return any(one.meta["val"].ndim != ATTENTION_AXES for one in node.all_input_nodes[:3])
    return node.target in _REPLACED


def check_other_sizes(
    program: torch.export.ExportedProgram, model: nn.Module, call: Call, own: Call
) -> None:
    """Refuse a program whose outputs differ from those of `model` at other sizes of open axes.

    torch captures the branch that the example takes, and the numbers that `int()` returns for its
    sizes, and records the conditions under which these are right; a file cannot hold conditions.
    The program is compared with the model only where the conditions do not hold.

    Args:
        program: the program captured on `call`.
        model: the model, in the mode in which it was captured.
        call: the inputs of the capture.
        own: the user's inputs, which may hold one example where `call` holds two.

    Raises:
        ExportError: outputs differ on `own` or on inputs of twice the size.
    """
    for other in (own, _doubled(program, call)):
        if _holds(program, other):
            continue
        # calling the module would check the sizes first, which a file does not
        run = program.module(check_guards=False).forward
        try:
            found = _difference(model, run, other)
        except ExportError:
            continue  # the model does not accept these sizes
        # values that are rounded to a grid or random differ at any size
        if found > _ROUNDING and found > 10 * _difference(model, run, call):
            shapes = ", ".join(str(tuple(one.shape)) for one in tensors_in(other))
            raise ExportError(
                f"{type(model).__name__} cannot be exported with open axes: its forward fixes the "
                "batch, or another axis, at the size of the example, by int() of a quotient or by "
                f"a branch on the size; for inputs of {shapes} the file would compute something "
                "else. Take the size from the input's shape, with // in place of int(a / b), or "
                "pass dynamic_batch=False (of another axis: leave it out of dynamic_axes)."
            )


def _inputs(
    program: torch.export.ExportedProgram, call: Call
) -> Iterator[tuple[Sequence[int | torch.SymInt], torch.Tensor]]:
    """Yield, for each tensor of `call`, its shape in `program` and the tensor."""
    leaves = pytree.tree_leaves(call)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, leaf in zip(nodes[len(nodes) - len(leaves) :], leaves, strict=True):
        if isinstance(leaf, torch.Tensor):
            yield node.meta["val"].shape, leaf


def _holds(program: torch.export.ExportedProgram, call: Call) -> bool:
    """Return whether torch's assumptions hold for the sizes of `call`."""
    import sympy

    values = {
        one.node: sympy.Integer(size)
        for sizes, tensor in _inputs(program, call)
        for one, size in zip(sizes, tensor.shape, strict=True)
        if isinstance(one, torch.SymInt)
    }
    by_name = {node.expr: size for node, size in values.items()}
    limits = program.range_constraints
    if any(size not in limits[one] for one, size in by_name.items() if one in limits):
        return False
    return not any(
        one.expr.xreplace(by_name) == sympy.false
        for env in {node.shape_env for node in values}
        for several in env.deferred_runtime_asserts.values()
        for one in several
    )


def _doubled(program: torch.export.ExportedProgram, call: Call) -> Call:
    """Return `call` with each open axis twice as long."""
    shapes = (sizes for sizes, _ in _inputs(program, call))

    def longer(tensor: torch.Tensor) -> torch.Tensor:
        for axis, size in enumerate(next(shapes)):
            if isinstance(size, torch.SymInt):
                tensor = torch.cat([tensor, tensor], axis)
        return tensor

    twice: Call = pytree.tree_map_only(torch.Tensor, longer, call)
    return twice


def _difference(model: nn.Module, program: Callable[..., Any], call: Call) -> float:
    """Return the largest difference between outputs of `program` and `model`.

    Differences are relative to the largest value of an output. Both draw the same random numbers.

    Raises:
        ExportError: the model does not run on `call`.
    """
    wanted = tensors_in(run_once(model, call))
    args, kwargs = own_tensors(call)
    try:
        with preserved(model):
            found = tensors_in(program(*args, **kwargs))
    except Exception:  # noqa: BLE001 (a size that the program has fixed does not fit its inputs)
        return float("inf")
    pairs = list(zip(wanted, found, strict=True))
    if any(one.numel() != other.numel() for one, other in pairs):
        return float("inf")
    flat = [[one.double().flatten().nan_to_num() for one in pair] for pair in pairs]
    return max(
        float((one - other).abs().max() / one.abs().max().clamp(min=_SMALLEST))
        for one, other in flat
        if len(one)
    )
