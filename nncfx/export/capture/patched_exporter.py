"""Patch torch's exporter to keep constants exact and to avoid repeated work.

* Its optimizer removes additions of numbers below 1e-8 and multiplications by numbers near 1, such
  as the `x + 1e-12` that keeps a division or a logarithm finite. Patched, it removes only
  operations whose constant equals the number of the rule in the dtype of the constant.
* Its optimizer tries rules on every node. For a rule whose pattern has several output nodes,
  onnxscript lists all nodes of the graph before it checks whether the current node matches the
  first output.
* Its registry of translations parses the source of five hundred functions in each export, which
  takes half of the time for a small model.
* It looks up all composite operators of torch once for each namespace of operators.
* It runs LSTMs and GRUs step by step to get the shapes of their outputs, although their ONNX
  operators contain the loop. With open axes it captures a loop for each layer and direction and
  runs all steps twice during decomposition, which takes a second for 20 steps and fixes their
  number.
* If an open axis is fixed at the example's size, it captures the model a second time with the axis
  fixed. The strict strategy, which is slow, would repeat it for a program that is not used.
* Distributions, which policies return, validate the values of their parameters; a capture has no
  values.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch._export.utils
from torch import Tensor
from torch.distributions import Distribution
from torch.export import dynamic_shapes
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnxscript.rewriter._basics import MatchResult
    from onnxscript.rewriter._matcher import SimplePatternMatcher
    from onnxscript.rewriter._pattern_ir import Constant
    from torch.onnx._internal.exporter._registration import ONNXRegistry


@contextlib.contextmanager
def patched_exporter() -> Iterator[None]:
    """Patch torch's exporter inside the block."""
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    # torch's own registration of its loops, which `_gru` and `_lstm` replace
    from torch.export import _patches as loops
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    operators = torch._export.utils  # noqa: SLF001 (there is no other way to them)
    materialize = functools.cache(operators._materialize_cpp_cia_ops)  # noqa: SLF001 (as above)
    with (
        _replaced(SimplePatternMatcher, "match", _first_nodes_first(SimplePatternMatcher.match)),
        _replaced(SimplePatternMatcher, "_match_constant", _exactly),
        _replaced(ONNXRegistry, "from_torchlib", _from_torchlib(ONNXRegistry.from_torchlib)),
        _replaced(operators, "_materialize_cpp_cia_ops", materialize),
        _replaced(loops, "gru_while_loop_impl", _gru),
        _replaced(loops, "lstm_while_loop_impl", _lstm),
        _replaced(Distribution, "_validate_args", value=False),
        loops.register_gru_while_loop_decomposition(),
        loops.register_lstm_while_loop_decomposition(),
    ):
        yield


class FixedAxisError(ValueError):
    """Capturing fixes an axis that should stay open."""


@contextlib.contextmanager
def fixing_no_axes() -> Iterator[None]:
    """Let a capture that fixes open axes fail inside the block, where torch would repeat it."""
    refine = dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes

    def refined(message: str, shapes: Any) -> Any:  # noqa: ANN401 (trees)
        found = refine(message, shapes)
        if open_axes(found) < open_axes(shapes):
            raise FixedAxisError(message)
        return found

    with _replaced(dynamic_shapes, refine.__name__, refined):
        yield


def open_axes(shapes: Any) -> int:  # noqa: ANN401 (a tree)
    """Return the number of different open axes in `shapes`."""
    leaves = pytree.tree_leaves(shapes)
    return len({one.__name__ for one in leaves if isinstance(one, torch.export.Dim)})


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:  # noqa: ANN401 (a class or a module)
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _first_nodes_first(slowly: Any) -> Any:  # noqa: ANN401 (of onnxscript, which is imported late)
    """Return a `match` with equal results that lists the graph only if the first node matches."""
    from onnxscript.rewriter._basics import MatchResult

    def match(
        self: "SimplePatternMatcher",
        model: "ir.Model",
        graph: "ir.Graph | ir.Function",
        node: "ir.Node",
        **options: Any,  # noqa: ANN401 (of onnxscript)
    ) -> "MatchResult":
        first = self.pattern.output_nodes[0].op_identifier()
        if first not in (None, node.op_identifier()):
            return MatchResult().fail(f"Expected {first}.")
        found: MatchResult = slowly(self, model, graph, node, **options)
        return found

    return match


def _exactly(self: "SimplePatternMatcher", pattern: "Constant", value: "ir.Value") -> bool:
    """Return whether a constant equals the number of a pattern in the constant's dtype."""
    expected = np.asarray(pattern.value)
    known = value.const_value
    try:
        found = None if known is None else known.numpy()
    except FileNotFoundError:
        found = None
    if found is None or found.shape != expected.shape:
        return bool(self.fail(f"{value.name} is not a constant of shape {expected.shape}."))
    if found.dtype.kind == "f":
        expected = expected.astype(found.dtype)
    if not np.array_equal(found, expected):
        return bool(self.fail(f"{value.name} is {found}, not {pattern.value}."))
    return True


def _from_torchlib(
    slowly: "Callable[[int], ONNXRegistry]",
) -> "classmethod[ONNXRegistry, ..., ONNXRegistry]":
    """Return a `from_torchlib` that reads torchlib once and returns registries that can grow."""

    def quickly(kind: type["ONNXRegistry"], opset_version: int) -> "ONNXRegistry":
        # only operators that torch knows are translated, and libraries can add more at any time
        known = len(torch._C._dispatch_get_all_op_names())  # noqa: SLF001 (there is no other list)
        read = _registry_read(slowly, opset_version, known)
        made = kind()
        made._opset_version = read.opset_version  # noqa: SLF001 (as from_torchlib sets it)
        made.functions = {target: list(found) for target, found in read.functions.items()}
        return made

    return classmethod(quickly)


@functools.lru_cache(maxsize=2)
def _registry_read(
    slowly: "Callable[[int], ONNXRegistry]", opset_version: int, known: int
) -> "ONNXRegistry":
    del known
    return slowly(opset_version)


def _gru(x: Tensor, state: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    return _outputs(x, state, *options), torch.empty_like(state)


def _lstm(x: Tensor, state: Sequence[Tensor], *options: object) -> tuple[Tensor, Tensor, Tensor]:
    hidden, cell = state
    return _outputs(x, hidden, *options), torch.empty_like(hidden), torch.empty_like(cell)


def _outputs(x: Tensor, hidden: Tensor, *options: object) -> Tensor:
    """Return an empty tensor like the outputs of all steps: (time, batch, directions x width).

    Args:
        x: (time, batch, features), or (batch, time, features) if the last option is True.
        hidden: the state, (layers x directions, batch, width).
        options: weights, biases or not, layers, dropout, training, bidirectional, batch first.
    """
    bidirectional, batch_first = options[-2:]
    time, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    outputs = x.new_empty(time, batch, hidden.shape[-1] * (2 if bidirectional else 1))
    return outputs.transpose(0, 1) if batch_first else outputs
