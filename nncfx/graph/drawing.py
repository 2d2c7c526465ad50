"""Draw the graph as DOT text, for Graphviz and other programs that read DOT."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence

from nncfx.errors import GraphError
from nncfx.graph.operations import Edge, Operation, TensorInfo


def dot(
    operations: Sequence[Operation], edges: Sequence[Edge], ends: Sequence[tuple[str, TensorInfo]]
) -> str:
    """Return a directed graph in the DOT language, top to bottom.

    Operations are boxes labelled with function and scope; `ends` (the model's inputs and outputs
    by address) are ellipses. Edges are labelled with the shape of the tensor, and with the ports
    unless both are 0.
    """
    lines = (*_ends(ends), *_boxes(operations), *_arrows(edges))
    body = "\n".join(f"  {line}" for line in lines)
    return f"digraph {{\n  node [shape=box];\n{body}\n}}\n"


def svg(text: str) -> str:
    """Return the SVG picture of a graph in the DOT language.

    Raises:
        GraphError: Graphviz (the program, not a Python package) is not installed.
    """
    program = shutil.which("dot")
    if program is None:
        raise GraphError(
            "The graph cannot be drawn as SVG, because the program 'dot' of Graphviz is not on "
            "the PATH. Install it (apt install graphviz), or draw 'graph.to_dot()' elsewhere."
        )
    done = subprocess.run(  # noqa: S603 (the program just found, and no shell)
        [program, "-Tsvg"], input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def _ends(ends: Sequence[tuple[str, TensorInfo]]) -> Iterator[str]:
    for address, info in ends:
        label = _quoted(f"{address.removeprefix('/')}\n{_shape(info)}")
        yield f"{_quoted(address)} [shape=ellipse, label={label}];"


def _boxes(operations: Sequence[Operation]) -> Iterator[str]:
    for one in operations:
        label = _quoted(f"{one.function}\n{one.scope}")
        yield f"{_quoted(one.address)} [label={label}];"


def _arrows(edges: Sequence[Edge]) -> Iterator[str]:
    for edge in edges:
        ports = (edge.source_port, edge.target_port)
        label = _shape(edge.tensor) + (f"\n{ports[0]} to {ports[1]}" if any(ports) else "")
        yield f"{_quoted(edge.source)} -> {_quoted(edge.target)} [label={_quoted(label)}];"


def _shape(info: TensorInfo) -> str:
    return " x ".join(str(extent) for extent in info.shape) or "scalar"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
