"""Export a model to a `torch.export` program with PyTorch's own quantized operators."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn

from nncfx.errors import ExportError
from nncfx.export.capture.export_failure import as_export_error
from nncfx.export.capture.preparation import inferring, plain, run_once, warn_idle_quantizers
from nncfx.export.capture.writable_outputs import writable_outputs
from nncfx.export.checks.saturation_check import warn_program_overflow
from nncfx.export.ir.fake_quantize import Grid
from nncfx.export.ir.number_types import signed_grid, unsigned_grid, weight_grid
from nncfx.export.passes.folded_norms import rescaled
from nncfx.export.pt2e.forms import dequantize_where_read
from nncfx.operators import functions_of
from nncfx.schemes.wide_floats import NARROW, wide
from nncfx.storage.models.norm_statistics import norm_affine
from nncfx.targets import TARGETS
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.inputs import own_tensors

_X86: Final = TARGETS["onnxruntime"]
_BATCH_NORM: Final = torch.ops.aten.batch_norm.default
_LAYERS: Final = frozenset(
    getattr(torch.ops.aten, function).default for function in functions_of("conv", "linear")
)
_BIAS: Final = 2


def export_program(
    model: nn.Module, example_inputs: ExampleInputs, *, signed: bool = False
) -> torch.export.ExportedProgram:
    """Return `model` as a `torch.export` program that Inductor compiles to integer kernels.

    Where the model calls torch's `fake_quantize_*` operations, weights are int8 constants with
    batch norms folded into their scales, and activations pass
    `quantized_decomposed.quantize_per_tensor` and `dequantize_per_tensor`, the form that PyTorch's
    own PT2E quantization produces. On x86 without VNNI, layers whose sums would overflow in
    Inductor trigger a warning. Shapes are fixed to those of `example_inputs`. The model does not
    change.

    Compile it with frozen weights, which Inductor's integer kernels need::

        with torch.no_grad(), torch._inductor.config.patch(freezing=True):
            compiled = torch.compile(export_program(model, x).module())

    Args:
        model: any `nn.Module`, wrapped by nncfx or not.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        signed: whether 8-bit activations are int8, as ExecuTorch's XNNPACK needs, instead of
            uint8; their values are the same.

    Raises:
        ExportError: the model is sharded or offloaded, does not run on `example_inputs`, or
            `torch.export` cannot follow its forward.
    """
    # Registers the operators of quantized_decomposed.
    import torch.ao.quantization.fx._decomposed

    args, kwargs = own_tensors(as_call(example_inputs))  # a tensor given twice becomes two inputs
    model = plain(model, example_inputs)
    warn_idle_quantizers(model)
    with inferring(model) as first, writable_outputs(model):
        with first:
            run_once(model, (args, kwargs))
        try:
            module = torch.export.export(model, args, kwargs).module()
            _quantize(module, signed_grid if signed else unsigned_grid)
            warn_program_overflow(module)
            program = torch.export.export(module, args, kwargs)
        except ExportError:
            raise
        except Exception as error:
            raise as_export_error(error, model) from error
        state = program.state_dict  # it shares memory with the model, whose weights are restored
        for name, weight in state.items():
            if first.writes.is_held(weight):
                state[name] = nn.Parameter(weight.detach().clone(), weight.requires_grad)
        return program


def _quantize(module: fx.GraphModule, activation: Callable[[Grid], Grid]) -> None:
    constants = _Constants(module)
    narrow = _narrow_type(module)
    quantized: dict[tuple[Any, ...], fx.Node] = {}
    for node in list(module.graph.nodes):
        if node.target not in _FURTHER:
            continue
        grid = _grid(node, constants)
        values = constants.value(node.args[0])
        if values is None:
            _quantize_activation(node, activation(grid), quantized)
        else:
            _store_weight(node, values, grid, constants)
    module.graph.eliminate_dead_code()
    dequantize_where_read(module.graph)
    if narrow is not None:
        _narrow_again(module.graph, narrow)
    module.delete_all_unused_submodules()
    module.recompile()


def _narrow_type(module: fx.GraphModule) -> torch.dtype | None:
    """Return the 16-bit type in which a program computes between its quantizers; None for float32.

    Raises:
        ExportError: the program computes in several types.
    """
    found = {node.meta["val"].dtype for node in module.graph.nodes if node.target in _FURTHER} or {
        torch.float32
    }
    if len(found) > 1:
        raise ExportError(
            f"The model quantizes tensors of {', '.join(sorted(map(str, found)))}; a program has "
            "one type between its integers. Export model.float()."
        )
    (dtype,) = found
    return dtype if dtype in NARROW else None


def _narrow_again(graph: fx.Graph, dtype: torch.dtype) -> None:
    """Cast dequantized values from float32 to the type in which the layers compute."""
    operators = torch.ops.quantized_decomposed
    wide_ones = (operators.dequantize_per_tensor.default, operators.dequantize_per_channel.default)
    for node in list(graph.nodes):
        if node.target in wide_ones:
            with graph.inserting_after(node):
                read = graph.call_function(torch.ops.aten.to.dtype, (node, dtype))
            node.replace_all_uses_with(read)
            read.args = (node, dtype)  # its own argument was replaced as well


class _Constants:
    """The values in a graph that depend on no input."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module
        self._count = 0
        self._known: dict[fx.Node, Any] = {}

    def value(self, node: Any) -> Any:  # noqa: ANN401 (an argument of any kind)
        """Return the value of `node`; None if it depends on an input."""
        if not isinstance(node, fx.Node):
            return node
        if node not in self._known:
            # nodes have several readers: without a cache, each residual sum would double the work
            self._known[node] = self._computed(node)
        return self._known[node]

    def _computed(self, node: fx.Node) -> Any:  # noqa: ANN401 (a tensor or what makes one)
        if node.op == "get_attr":
            return torch.fx.graph_module._get_attr(self._module, str(node.target))  # noqa: SLF001 (reads a dotted name)
        if node.op != "call_function" or not callable(node.target):
            return None
        is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if is_random or any(self.value(one) is None for one in node.all_input_nodes):
            return None
        return node.target(
            *fx.map_arg(node.args, self.value), **fx.map_arg(node.kwargs, self.value)
        )

    def add(self, tensor: torch.Tensor) -> fx.Node:
        """Return a node that reads `tensor`, which the module keeps."""
        name = f"_quantized_{self._count}"
        self._count += 1
        self._module.register_buffer(name, tensor)
        return self._module.graph.get_attr(name)


_ATEN: Final = torch.ops.aten
_FURTHER: Final[Mapping[Any, int]] = {
    _ATEN.fake_quantize_per_tensor_affine.default: 0,
    _ATEN.fake_quantize_per_tensor_affine.tensor_qparams: 0,
    _ATEN.fake_quantize_per_channel_affine.default: 1,
}
"""How many arguments (an axis, or none) each fake-quantize has between grid and limits."""


def _grid(node: fx.Node, constants: _Constants) -> Grid:
    scale, zero_point = (constants.value(one) for one in node.args[1:3])
    if scale is None or zero_point is None:
        raise ExportError(
            f"The quantizer '{node.name}' computes its scale or zero point from the input; a "
            "program holds constants only. Freeze the range before exporting."
        )
    given: Any = node.args
    *axis, low, high = given[3 : 5 + _FURTHER[node.target]]
    return Grid(
        scale=wide(torch.as_tensor(scale, device="cpu").detach()).numpy().astype(np.float32),
        zero_point=torch.as_tensor(zero_point, device="cpu").numpy().astype(np.int64),
        axis=axis[0] if axis else None,
        low=low,
        high=high,
    )


def _quantize_activation(node: fx.Node, grid: Grid, known: dict[tuple[Any, ...], fx.Node]) -> None:
    """Replace `node` by a quantization, shared by equal nodes, and a dequantization per reader."""
    if grid.axis is not None:
        return
    operators = torch.ops.quantized_decomposed
    dtype = torch.uint8 if grid.low >= 0 else torch.int8
    arguments = (float(grid.scale), int(grid.zero_point), grid.low, grid.high, dtype)
    graph = node.graph
    source = node.args[0]
    if (source, arguments) not in known:
        with graph.inserting_before(node):
            known[source, arguments] = graph.call_function(
                operators.quantize_per_tensor.default, (source, *arguments)
            )
    for reader in list(node.users):
        with graph.inserting_before(reader):
            read = graph.call_function(
                operators.dequantize_per_tensor.default, (known[source, arguments], *arguments)
            )
        reader.replace_input_with(node, read)
    graph.erase_node(node)


def _store_weight(node: fx.Node, values: torch.Tensor, grid: Grid, constants: _Constants) -> None:
    integers = grid.integers(wide(values.detach()).numpy())
    wanted = weight_grid(grid, _X86)
    integers = integers + (wanted.low - grid.low)
    for layer in list(node.users):
        norm = _batch_norm_behind(layer, node, wanted)
        stored, scales = (
            (integers, wanted)
            if norm is None
            else (_fold(norm, layer, integers, wanted, constants))
        )
        if scales.axis is None:
            channels = (integers.shape[0],)
            scales = replace(
                scales,
                axis=0,
                scale=np.broadcast_to(scales.scale, channels).copy(),
                zero_point=np.broadcast_to(scales.zero_point, channels).copy(),
            )
        # a layer reads its matrix with outputs first; Inductor has no pattern for columns
        turned = stored.ndim == 2 and scales.axis == 1  # noqa: PLR2004 (a matrix)
        if turned:
            stored, scales = stored.T.copy(), replace(scales, axis=0)
        with node.graph.inserting_before(layer):
            read = node.graph.call_function(
                torch.ops.quantized_decomposed.dequantize_per_channel.default,
                (
                    constants.add(torch.from_numpy(stored.astype(np.int8))),
                    constants.add(torch.from_numpy(scales.scale)),
                    constants.add(torch.from_numpy(scales.zero_point)),
                    scales.axis,
                    scales.low,
                    scales.high,
                    torch.int8,
                ),
            )
            if turned:
                read = node.graph.call_function(torch.ops.aten.t.default, (read,))
        layer.replace_input_with(node, read)


def _batch_norm_behind(layer: fx.Node, weight: fx.Node, grid: Grid) -> fx.Node | None:
    readers = list(layer.users)
    if layer.target not in _LAYERS or layer.args[1] is not weight or len(readers) != 1:
        return None
    is_norm = readers[0].target is _BATCH_NORM and grid.axis in (None, 0)
    return readers[0] if is_norm else None


def _fold(
    norm: fx.Node,
    layer: fx.Node,
    integers: npt.NDArray[np.int64],
    grid: Grid,
    constants: _Constants,
) -> tuple[npt.NDArray[np.int64], Grid]:
    gamma, beta, mean, variance = (constants.value(one) for one in norm.args[1:5])
    dtype = mean.dtype if mean.dtype in NARROW else torch.float32
    bias = constants.value(layer.args[_BIAS]) if len(layer.args) > _BIAS else None
    mean = mean if bias is None else mean.double() - bias.detach().double()
    epsilon: Any = norm.args[7]
    factor, shift = norm_affine((mean, variance), epsilon, gamma, beta)
    with layer.graph.inserting_before(layer):
        folded = constants.add(shift.to(dtype))
    layer.args = (*layer.args[:_BIAS], folded, *layer.args[_BIAS + 1 :])
    norm.replace_all_uses_with(layer)
    layer.graph.erase_node(norm)
    return rescaled(integers, grid, factor.numpy(), 0)
