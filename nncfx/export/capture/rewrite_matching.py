"""Keep torch's exporter from reading the whole graph for each of its nodes.

Its optimizer tries rules on every node. For a rule whose pattern has several last nodes onnxscript
lists all nodes of the graph, and only then looks whether the node at hand is the first of those.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnxscript.rewriter._basics import MatchResult
    from onnxscript.rewriter._matcher import SimplePatternMatcher

__all__ = ["matching_first_nodes_first"]


@contextlib.contextmanager
def matching_first_nodes_first() -> Iterator[None]:
    """Match rules of onnxscript with no graph listed in vain; what matches is the same."""
    from onnxscript.rewriter._basics import MatchResult
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    slowly = SimplePatternMatcher.match

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
        return slowly(self, model, graph, node, **options)

    patched: Any = SimplePatternMatcher
    patched.match = match
    try:
        yield
    finally:
        patched.match = slowly
