"""Define and run export passes, steps that change the graph for a target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

    from nncfx.export.ir.integer_weights import IntegerWeight

PASSES_KEY: Final = "nncfx.passes"
"""The metadata key that names the passes that created or changed a node, in order."""


@dataclass
class Draft:
    """A model that passes transform before it is written.

    Attributes:
        model: The model, which passes change in place.
        target: The target of the export.
        weights: The quantized weights that no pass has written yet.
    """

    model: "ir.Model"
    target: Target
    weights: "list[IntegerWeight]" = field(default_factory=list)

    @property
    def graph(self) -> "ir.Graph":
        """The graph of the model."""
        return self.model.graph


@dataclass(frozen=True, kw_only=True)
class ExportPass:
    """A step of the export.

    Attributes:
        name: Its name in the record of passes of each node that it created or changed.
        reason: Its purpose, or the reason for its place in the order.
        run: Changes the draft in place.
        applies: Returns whether a target needs it.
        always: Whether it also runs on models without quantizers.
        requires: Properties of the graph (`GRAPH_PROPERTIES`) that an earlier pass ensures.
        ensures: Properties that hold from here on; tests check them after each pass.
    """

    name: str
    reason: str
    run: Callable[[Draft], None]
    applies: Callable[[Target], bool] = lambda _: True
    always: bool = False
    requires: tuple[str, ...] = ()
    ensures: tuple[str, ...] = ()


def run_passes(
    draft: Draft, passes: Sequence[ExportPass], then: Callable[[ExportPass], None] = lambda _: None
) -> None:
    """Run those of `passes` that apply to the draft and its target, in order.

    Every node records the names of the passes that created or changed it. `then` is called with
    each pass after its run.
    """
    quantized = any(map(is_fake_quantize, draft.graph.all_nodes()))
    for one in passes:
        if not one.applies(draft.target) or not (quantized or one.always):
            continue
        # keep the parts alive, so that no new attribute can reuse the id of a deleted one
        held = [(node, _parts(node)) for node in draft.graph.all_nodes()]
        before = {node: _identities(parts) for node, parts in held}
        one.run(draft)
        for node in draft.graph.all_nodes():
            if before.get(node) != _identities(_parts(node)):
                # a new node may have copied the metadata of a neighbour, with its passes
                known = node.metadata_props.get(PASSES_KEY) if node in before else None
                node.metadata_props[PASSES_KEY] = f"{known},{one.name}" if known else one.name
        then(one)


def _parts(node: "ir.Node") -> list[object]:
    """Return the parts of a node that a pass can replace; none of them changes in place."""
    return [node.op_type, *node.inputs, *node.attributes.values()]


def _identities(parts: list[object]) -> tuple[int, ...]:
    return tuple(map(id, parts))
