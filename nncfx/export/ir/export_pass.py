"""What a pass of the export is: a step that changes the graph for a target, and its reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

    from nncfx.export.ir.integer_weights import IntegerWeight

PASSES_KEY: Final = "nncfx.passes"
"""The metadata of a node that names the passes that made or changed it, in their order."""


@dataclass
class Draft:
    """A model on its way to the file.

    Attributes:
        model: The graph in the making.
        target: For which it is made.
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
        name: As nodes that it made or changed remember it.
        reason: Why it stands where it does, or what it is for.
        run: Changes the draft in place.
        applies: Whether a target wants it.
        always: Whether it runs on models without quantizers as well.
        requires: Properties of the graph (`GRAPH_PROPERTIES`) that a pass before it ensures.
        ensures: Properties that hold from here on; tests look after each pass.
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
    """Run those of `passes` that apply to the draft and its target, in their order.

    Every node keeps the names of the passes that made or changed it. After each pass it is given
    to `then`.
    """
    quantized = any(map(is_fake_quantize, draft.graph.all_nodes()))
    for one in passes:
        if not one.applies(draft.target) or not (quantized or one.always):
            continue
        # held, as an attribute made meanwhile could have the place in memory of one that is gone
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
    """Return what a pass may change of a node; none of it changes in place."""
    return [node.op_type, *node.inputs, *node.attributes.values()]


def _identities(parts: list[object]) -> tuple[int, ...]:
    return tuple(map(id, parts))
