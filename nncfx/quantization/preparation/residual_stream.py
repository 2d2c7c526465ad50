"""Find the residual stream of a transformer, the layers that write it and those that read it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, final

from torch import nn

from nncfx.errors import GraphError
from nncfx.graph import NNCFGraph, Operation
from nncfx.operators import LINEAR_LAYERS, operation_kind, operator_of
from nncfx.quantization.preparation.layer_chains import Layer, find_layers, readers

_EMBEDDING: Final = "embedding"
_SQUARES: Final = frozenset(["pow", "__pow__", "square"])
_ATTENTION: Final = "scaled_dot_product_attention"
_VALUES: Final = 2
"""The port of the values of attention."""

_State = Literal["stream", "weighted", "squares", "invariant"]


@dataclass
class ResidualStream:
    """What must change when the stream is rotated.

    Attributes:
        width: Width of the stream, d.
        embeddings: Names of the parameters, v x d, that begin the stream.
        writers: Linear layers whose result is added to the stream.
        readers: Linear layers that read the stream, each with the name of the weight, d, of the
            norm before it, or None.
    """

    width: int
    embeddings: list[str] = field(default_factory=list)
    writers: list[Layer] = field(default_factory=list)
    readers: list[tuple[Layer, str | None]] = field(default_factory=list)

    @property
    def norms(self) -> list[str]:
        """The names of the weights of norms."""
        return sorted({one for _, one in self.readers if one is not None})


AttentionPair = tuple[Layer, Layer, int]
"""The layer that computes values, the layer that reads attention's result, and a head's width."""


def residual_stream(model: nn.Module, graph: NNCFGraph) -> ResidualStream:
    """Return the stream that begins at the embeddings.

    Raises:
        GraphError: an operation other than an RMS norm, sum or linear layer reads or changes the
            stream, or the model returns it.
    """
    return _Walk(model, graph).run()


@final
class _Walk:
    """Follows the stream through the operations in execution order."""

    def __init__(self, model: nn.Module, graph: NNCFGraph) -> None:
        self._graph = graph
        self._layers = find_layers(model, graph, LINEAR_LAYERS)
        self._states: dict[str, _State] = {}
        self._weights: dict[str, str] = {}
        self._found = ResidualStream(0)

    def run(self) -> ResidualStream:
        for operation in self._graph.operations:
            self._follow(operation)
        if not self._found.readers:
            raise GraphError(
                "No linear layer reads a residual stream that an embedding begins, so there is "
                "nothing to rotate. Pass a language model with its head."
            )
        return self._found

    def _follow(self, operation: Operation) -> None:
        address, function = operation.address, operation.function
        if function == _EMBEDDING:
            self._begin(operation)
            return
        sources = {one.target_port: one.source for one in self._graph.incoming(address)}
        states = {port: self._states.get(source) for port, source in sources.items()}
        if not any(states.values()):
            return
        if address in self._layers:
            self._read(operation, sources, states)
            return
        state = self._behind(operation, sources, states)
        if state is None:
            raise self._refusal(operation)
        self._states[address] = state
        if state == "weighted" and address not in self._weights:
            self._weights[address] = next(
                self._weights[one] for one in sources.values() if one in self._weights
            )
        if state in {"stream", "weighted"} and None in list(readers(self._graph, address)):
            raise GraphError(
                f"The model returns what '{address}' makes of its residual stream, which would be "
                "rotated. Rotate the model with its head."
            )

    def _begin(self, operation: Operation) -> None:
        width = operation.outputs[0].shape[-1]
        if self._found.width not in {0, width}:
            raise GraphError(
                f"'{operation.address}' has {width} channels, and the embedding before it "
                f"{self._found.width}. One residual stream of one width can be rotated."
            )
        self._found.width = width
        self._found.embeddings.append(operation.parameters[1])
        self._states[operation.address] = "stream"

    def _read(
        self, operation: Operation, sources: Mapping[int, str], states: Mapping[int, _State | None]
    ) -> None:
        layer = self._layers[operation.address]
        state = states.get(layer.port)
        if state not in {"stream", "weighted"}:
            raise self._refusal(operation)
        self._found.readers.append((layer, self._weights.get(sources[layer.port])))

    def _behind(  # noqa: PLR0911 (one for each kind of operation)
        self, operation: Operation, sources: Mapping[int, str], states: Mapping[int, _State | None]
    ) -> _State | None:
        """Return the state of the result of `operation`; None if it may not commute."""
        function, kinds = operation.function, set(states.values())
        parameters = list(operation.parameters.values())
        is_kept = operation.outputs[0].shape[-1:] == (self._found.width,)
        if kinds == {"invariant"}:
            return "invariant" if not is_kept else None
        if _passes(operation) and len(kinds) == 1 and is_kept:
            return next(iter(kinds))
        if function in _SQUARES and kinds == {"stream"}:
            return "squares"
        if function == "mean" and kinds == {"squares"}:
            return "invariant" if operation.outputs[0].shape[-1] == 1 else None
        if function == "rms_norm" and kinds == {"stream"}:
            return self._weigh(operation, parameters[0]) if parameters else "stream"
        if operation_kind(function) == "mul" and "stream" in kinds:
            return self._product(operation, states)
        if (
            operation_kind(function) == "add"
            and "stream" in kinds
            and not parameters
            and len(states) > 1
        ):
            return self._added(sources, states)
        return None

    def _product(self, operation: Operation, states: Mapping[int, _State | None]) -> _State | None:
        """Return the state of a product with a norm's weight, or with one number per row."""
        parameters, kinds = list(operation.parameters.values()), set(states.values())
        if kinds == {"stream"} and len(parameters) == len(states) == 1:
            return self._weigh(operation, parameters[0])
        widths = sorted(one.shape[-1] for one in operation.inputs if one is not None and one.shape)
        is_scaled = widths in ([self._found.width], [1, self._found.width])
        return "stream" if kinds <= {"stream", "invariant"} and is_scaled else None

    def _weigh(self, operation: Operation, name: str) -> _State | None:
        shapes = [one.shape for one in operation.inputs if one is not None]
        if (self._found.width,) not in [tuple(one) for one in shapes]:
            return None
        self._weights[operation.address] = name
        return "weighted"

    def _added(
        self, sources: Mapping[int, str], states: Mapping[int, _State | None]
    ) -> _State | None:
        for port, source in sources.items():
            if states[port] == "stream":
                continue
            writer = self._layers.get(_behind(self._graph, source, _commutes) or "")
            if states[port] is not None or writer is None:
                return None
            self._found.writers.append(writer)
        return "stream"

    def _refusal(self, operation: Operation) -> GraphError:
        hint = "it is not an RMS norm, a sum or a linear layer with a weight of its own"
        if operation.function == "layer_norm":
            hint = "it subtracts the mean, which a rotation changes"
        return GraphError(
            f"The residual stream cannot be rotated: '{operation.address}' "
            f"({operation.function}) reads it, and {hint}. Quantize the model without rotation."
        )


def _moves(operation: Operation) -> bool:
    """Return whether `operation` only moves or joins elements of its inputs."""
    return operator_of(operation.function).work in {"movement", "join"}


def _passes(operation: Operation) -> bool:
    """Return whether `operation` keeps the last axis if its length does not change.

    Indices that permute that axis pass, too, but outputs of the rotated model are checked later.
    """
    operator = operator_of(operation.function)
    return operator.work == "movement" and operator.kind != "transpose"


def _commutes(operation: Operation) -> bool:
    """Return whether `operation` commutes with a rotation."""
    is_scaled = operation_kind(operation.function) == "mul" and len(operation.inputs) == 1
    return _passes(operation) or (is_scaled and not operation.parameters)


def _behind(graph: NNCFGraph, address: str, passing: Callable[[Operation], bool]) -> str | None:
    """Return the operation upstream of `address` whose result only goes there, through views."""
    while (operation := graph.get(address)) and len(_reading(graph, address)) == 1:
        if not passing(operation):
            return address
        edges = graph.incoming(address)
        if len(edges) != 1:
            return None
        address = edges[0].source
    return None


def _reading(graph: NNCFGraph, address: str) -> list[Operation | None]:
    """Return the readers of `address`, without slices that nothing reads, which a cache keeps."""
    return [
        one
        for one in readers(graph, address)
        if one is None or one.function != "__getitem__" or graph.outgoing(one.address)
    ]


def attention_pairs(model: nn.Module, graph: NNCFGraph) -> list[AttentionPair]:
    """Return the layers around each attention whose values can be rotated head by head.

    A pair is a layer that computes only the values (not queries and keys as well) that
    `scaled_dot_product_attention` reads, and the only layer that reads the result.
    """
    layers = find_layers(model, graph, LINEAR_LAYERS)
    found = []
    for operation in graph.operations:
        if operation.function != _ATTENTION:
            continue
        values = operation.inputs[_VALUES]
        edges = graph.incoming(operation.address)
        entering = [one.source for one in edges if one.target_port == _VALUES]
        makers = [layers.get(_behind(graph, one, _moves) or "") for one in entering]
        reader = _reader(graph, operation.address)
        if values is None or len(makers) != 1 or makers[0] is None or reader not in layers:
            continue
        width, made, reads = values.shape[-1], makers[0], layers[reader]
        heads = operation.outputs[0].shape[-3] * width
        if len(made.rows) == values.shape[-3] * width and reads.rows.shape[1] == heads:
            found.append((made, reads, width))
    return found


def _reader(graph: NNCFGraph, address: str) -> str:
    """Return the only reader of `address`, skipping views; '' if there is none."""
    while True:
        following = list(readers(graph, address))
        if len(following) != 1 or following[0] is None:
            return ""
        address = following[0].address
        if not _moves(following[0]):
            return address
