"""Spare torch's exporter what it does again for every node, or for every export.

* Its optimizer tries rules on every node. For a rule whose pattern has several last nodes
  onnxscript lists all nodes of the graph, and only then looks whether the node at hand is the
  first of those.
* Its registry of translations parses the source of five hundred functions, each time: half of
  the time of a small model.
* It looks up all composite operators of torch once for each namespace of operators.
"""

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch._export.utils
from torch.onnx._internal.exporter._registration import ONNXRegistry

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnxscript.rewriter._basics import MatchResult
    from onnxscript.rewriter._matcher import SimplePatternMatcher

__all__ = ["quick_exporter"]


@contextlib.contextmanager
def quick_exporter() -> Iterator[None]:
    """Let torch's exporter write in less time what it writes otherwise."""
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    operators = torch._export.utils  # noqa: SLF001 (there is no other way to them)
    materialize = functools.cache(operators._materialize_cpp_cia_ops)  # noqa: SLF001 (as above)
    with (
        _replaced(SimplePatternMatcher, "match", _first_nodes_first(SimplePatternMatcher.match)),
        _replaced(ONNXRegistry, "from_torchlib", staticmethod(_registry)),
        _replaced(operators, "_materialize_cpp_cia_ops", materialize),
    ):
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:  # noqa: ANN401 (a class or a module)
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _first_nodes_first(slowly: Any) -> Any:  # noqa: ANN401 (of onnxscript, which is imported late)
    """Return a `match` that lists no graph in vain; what matches is the same."""
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


_READ = ONNXRegistry.from_torchlib


def _registry(opset_version: int) -> ONNXRegistry:
    """Return a registry to which translations can be added, without reading torchlib again."""
    # only operators that torch knows are translated, and libraries may bring more at any time
    known = len(torch._C._dispatch_get_all_op_names())  # noqa: SLF001 (there is no other list)
    read = _registry_read(opset_version, known)
    made = ONNXRegistry()
    made._opset_version = read.opset_version  # noqa: SLF001 (as from_torchlib sets it)
    made.functions = {target: list(found) for target, found in read.functions.items()}
    return made


@functools.lru_cache(maxsize=2)
def _registry_read(opset_version: int, known: int) -> ONNXRegistry:
    del known
    return _READ(opset_version=opset_version)
