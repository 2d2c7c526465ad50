"""Write the parts of a graph as JSON text and read them back."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from nncfx.errors import GraphError, error_text
from nncfx.graph.operations import (
    INPUT_FUNCTION,
    OUTPUT_FUNCTION,
    STRIDED,
    Edge,
    Operation,
    TensorInfo,
)
from nncfx.untrusted import read_json

Parts: TypeAlias = tuple[
    tuple[Operation, ...], tuple[Edge, ...], tuple[TensorInfo, ...], tuple[TensorInfo, ...]
]
"""Operations, edges, inputs, outputs."""

_VERSION: Final = 1


def encode(parts: Parts) -> str:
    """Return `parts` as JSON text; equal parts give equal text."""
    operations, edges, inputs, outputs = parts
    document = {
        "nncfx_graph": _VERSION,
        "operations": [_operation(one) for one in operations],
        "edges": [
            [one.source, one.source_port, one.target, one.target_port, _tensor(one.tensor)]
            for one in edges
        ],
        "inputs": [_tensor(one) for one in inputs],
        "outputs": [_tensor(one) for one in outputs],
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def decode(text: str) -> Parts:
    """Return the parts that `encode` wrote.

    Raises:
        GraphError: `text` is not JSON, not a graph, or of another version.
    """
    try:
        document: Any = read_json(text)
        version = document["nncfx_graph"]
        if version == _VERSION:
            parts = (
                tuple(_read_operation(one) for one in document["operations"]),
                tuple(_read_edge(one) for one in document["edges"]),
                tuple(_read_tensor(one) for one in document["inputs"]),
                tuple(_read_tensor(one) for one in document["outputs"]),
            )
            _check(parts)
            return parts
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise GraphError(
            f"This is not a graph in JSON: {error_text(error)}. Write graphs with "
            "NNCFGraph.to_json."
        ) from error
    raise GraphError(
        f"This graph is of version {version}; this nncfx reads version {_VERSION}. "
        "Trace the model again."
    )


def _check(parts: Parts) -> None:
    """Check that addresses are unique and that edges join existing ports."""
    operations, edges, inputs, outputs = parts
    ports = {one.address: (len(one.inputs), len(one.outputs)) for one in operations}
    if len(ports) < len(operations):
        raise ValueError("two operations have one address")
    ports |= {f"/{INPUT_FUNCTION}_{n}": (0, 1) for n in range(len(inputs))}
    ports |= {f"/{OUTPUT_FUNCTION}_{n}": (1, 0) for n in range(len(outputs))}
    for edge in edges:
        if not (
            0 <= edge.source_port < ports[edge.source][1]
            and 0 <= edge.target_port < ports[edge.target][0]
        ):
            raise ValueError(f"there are no such ports: {edge}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r:.40} is not a number of 0 or more")
    return value


def _tensor(info: TensorInfo | None) -> list[object] | None:
    if info is None:
        return None
    layout = [] if info.layout == STRIDED else [info.layout]
    return [list(info.shape), info.dtype, *layout]


def _read_tensor(value: Sequence[Any]) -> TensorInfo:
    shape, dtype, *layout = value
    return TensorInfo(tuple(_whole(extent) for extent in shape), *map(_text, (dtype, *layout)))


def _read_edge(value: Sequence[Any]) -> Edge:
    source, source_port, target, target_port, tensor = value
    ports = (_whole(source_port), _whole(target_port))
    return Edge(_text(source), ports[0], _text(target), ports[1], _read_tensor(tensor))


def _operation(one: Operation) -> dict[str, object]:
    return {
        "scope": one.scope,
        "function": one.function,
        "call_number": one.call_number,
        "module": one.module,
        "module_type": one.module_type,
        "inputs": [_tensor(info) for info in one.inputs],
        "outputs": [_tensor(info) for info in one.outputs],
        "parameters": {str(port): name for port, name in one.parameters.items()},
        "index": one.index,
        "address": one.address,
        **({"equation": one.equation} if one.equation else {}),
        **({"fill": str(one.fill)} if one.fill else {}),
        **({"is_statement": True} if one.is_statement else {}),
    }


def _read_operation(value: Mapping[str, Any]) -> Operation:
    inputs = (None if info is None else _read_tensor(info) for info in value["inputs"])
    return Operation(
        address=_text(value["address"]),
        function=_text(value["function"]),
        call_number=_whole(value["call_number"]),
        index=_whole(value["index"]),
        module=_text(value["module"]),
        module_type=_text(value["module_type"]),
        inputs=tuple(inputs),
        outputs=tuple(_read_tensor(info) for info in value["outputs"]),
        parameters={int(port): _text(name) for port, name in value["parameters"].items()},
        equation=_text(value.get("equation", "")),
        fill=float(_text(value.get("fill", "0"))),
        is_statement=value.get("is_statement") is True,
    )
