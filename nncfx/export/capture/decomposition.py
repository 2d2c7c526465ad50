"""Decompose an exported program by running only the operations that change.

torch's own decomposition runs every operation of a program twice more on fake tensors, through
functionalization. In most networks nearly all operations stay as they are, and their results are
known from the capture, so they are copied and only the others run.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _special_op_to_preserve_cia, apply_runtime_assertion_pass
from torch._guards import TracingContext, tracing
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.exported_program import (
    _override_composite_implicit_decomp,
    _split_decomp_table_to_cia_and_python_decomp,
)
from torch.export.graph_signature import ExportGraphSignature, OutputKind, TensorArgument
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import (
    get_proxy_mode,
    has_proxy_slot,
    make_fx,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree
from typing_extensions import override

from nncfx.export.capture.inplace_operations import replace_inplace_operations

_Table: TypeAlias = dict[Any, Callable[..., Any]]


class QuicklyDecomposed(ExportedProgram):
    """A program that decomposes as in torch, only faster; names of sizes may differ.

    Programs that change their state, contain other programs or change views are left to torch.
    """

    @classmethod
    def of(cls, program: ExportedProgram) -> ExportedProgram:
        """Return `program` itself, with its class changed to this one."""
        program.__class__ = cls
        return program

    @override
    def run_decompositions(
        self, decomp_table: _Table | None = None, decompose_custom_triton_ops: bool = False
    ) -> ExportedProgram:
        if decomp_table is not None and _is_plain(self) and replace_inplace_operations(self.graph):
            quickly = _decomposed(self, decomp_table)
            if quickly is not None:
                return quickly
        slowly: ExportedProgram = super().run_decompositions(
            decomp_table, decompose_custom_triton_ops
        )
        return slowly


def _is_plain(program: ExportedProgram) -> bool:
    signature = program.graph_signature
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    # an output that is an input or a number would need an extra node
    outputs = program.graph.output_node().args[0]
    return (
        len({one.meta["val"].fake_mode for one in inputs if _is_fake(one.meta.get("val"))}) == 1
        and all(_is_fake(node.meta.get("val")) for node in inputs)
        and all(isinstance(one, fx.Node) and one.op == "call_function" for one in outputs)
        and all(one.kind is OutputKind.USER_OUTPUT for one in signature.output_specs)
        and all(isinstance(one.arg, TensorArgument) for one in signature.output_specs)
        and _is_flat(program.graph)
    )


def _is_fake(value: object) -> bool:
    return isinstance(value, FakeTensor)


def _is_flat(graph: fx.Graph) -> bool:
    """Return whether `graph` only calls operators and functions on Python numbers."""
    return all(
        node.op in ("placeholder", "output")
        or (node.op == "call_function" and not isinstance(node.target, HigherOrderOperator))
        for node in graph.nodes
    )


def _decomposed(program: ExportedProgram, table: _Table) -> ExportedProgram | None:
    """Return the decomposed program; None if it has calls that torch's own would not have."""
    implicit: _Table
    explicit: Any
    implicit, explicit = _split_decomp_table_to_cia_and_python_decomp(dict(table))
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    values = [node.meta["val"] for node in inputs]
    mode = values[0].fake_mode
    interpreter = _Interpreter(program.graph_module, implicit, explicit)
    with (
        mode,
        tracing(TracingContext(mode)),
        torch.no_grad(),
        _override_composite_implicit_decomp(implicit),
        enable_python_dispatcher(),
        traceback.preserve_node_meta(),
    ):
        module = make_fx(interpreter.results, decomposition_table=explicit)(*values)
    graph = module.graph
    # some decompositions work in place, as does that of a mean over channels-last images
    if not (_is_flat(graph) and replace_inplace_operations(graph)):
        return None
    _name_inputs(graph, [node.name for node in inputs])
    graph.eliminate_dead_code()
    # moves the reading of input sizes to the start, once each
    apply_runtime_assertion_pass(module, SimpleNamespace())
    module.meta.update(program.graph_module.meta)
    return ExportedProgram(
        root=module,
        graph=graph,
        graph_signature=_signature(program.graph_signature, graph),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
    )


class _Interpreter(fx.Interpreter):
    """Runs a graph under a proxy mode, except operators that stay as they are."""

    def __init__(self, module: fx.GraphModule, implicit: _Table, explicit: _Table) -> None:
        super().__init__(module)
        self._implicit = implicit
        self._explicit = explicit
        self._node: fx.Node | None = None

    def results(self, *values: object) -> object:
        """Return the outputs of the graph for `values`, one value per placeholder."""
        return self.run(*values, enable_io_processing=False)

    @override
    def run_node(self, n: fx.Node) -> Any:
        self._node = n
        return super().run_node(n)

    @override
    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mode: Any = get_proxy_mode()
        assert self._node is not None  # noqa: S101 (this runs a node)
        known: Any = self._node.meta.get("val")
        tracer = mode.tracer
        if not (_is_fake(known) and self._stays(target)) or has_proxy_slot(known, tracer):
            return super().call_function(target, args, kwargs)
        inputs = pytree.tree_map(tracer.unwrap_proxy, (args, kwargs))
        name = tracer.graph._target_to_str(target.overloadpacket.__name__)  # noqa: SLF001 (as make_fx)
        proxy = tracer.create_proxy("call_function", target, *inputs, name=name)
        return track_tensor_tree(known, proxy, constant=None, tracer=tracer)

    def _stays(self, target: object) -> bool:
        if not isinstance(target, OpOverload) or target in self._explicit:
            return False
        if target in self._implicit:
            return self._implicit[target] is _special_op_to_preserve_cia
        return not target._can_decompose()  # noqa: SLF001 (no public way)


def _name_inputs(graph: fx.Graph, names: Sequence[str]) -> None:
    """Give the inputs of `graph` their original `names`."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    taken = set(names)
    for node in graph.nodes:
        if node.op != "placeholder" and node.name in taken:
            node._rename(node.name)  # noqa: SLF001 (makes the name unique)
    for node, name in zip(inputs, names, strict=True):
        # set directly, because the graph would not keep names of Python builtins, such as `input`
        node.name = node.target = name


def _signature(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    outputs: Any = graph.output_node().args[0]
    specs = [
        replace(one, arg=TensorArgument(name=node.name))
        for one, node in zip(signature.output_specs, outputs, strict=True)
    ]
    return ExportGraphSignature(input_specs=list(signature.input_specs), output_specs=specs)
