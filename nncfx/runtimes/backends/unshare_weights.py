"""Gives every layer of an ONNX file its own integer weights: `unshare_weights`."""

from pathlib import Path
from typing import Final

from nncfx.errors import StorageError, error_text, needing

_CONVERTED: Final = (0, 2)
"""Indices of the inputs of a `DequantizeLinear` that are converted: integers and zero point."""

SHARED_WEIGHTS: Final = "Attempt to replace the existing tensor"
"""ONNX Runtime's error when it converts a weight a second time, for another layer.

To be exact without VNNI it converts int8 weights to uint8 and gives both copies the same name
(1.31, `Avx2WeightS8ToU8Transformer`), so it rejects a file in which layers share a weight, like
those of ALBERT.
"""


def unshare_weights(source: Path, destination: Path) -> None:
    """Write the file `source` so that no two layers share a `DequantizeLinear` or its inputs.

    Args:
        source: an ONNX file.
        destination: the path of the copy, with weights inside or, beyond a gigabyte, next to it.

    Raises:
        MissingExtraError: onnx is not installed.
        StorageError: the source is not an ONNX file.
    """
    with needing("onnx", "export", "a file whose layers share weights"):
        import onnx

    try:
        model = onnx.load(source)
    except Exception as error:
        raise StorageError(
            f"'{source}' is not an ONNX model: {error_text(error)}. Check the path."
        ) from error
    graph = model.graph
    stored = {one.name: one for one in graph.initializer}
    for node in list(graph.node):
        converted = [place for place in _CONVERTED if place < len(node.input)]
        if node.op_type != "DequantizeLinear" or any(
            node.input[place] not in stored for place in converted
        ):
            continue
        readers = [
            (reader, port)
            for reader in graph.node
            for port, name in enumerate(reader.input)
            if name == node.output[0]
        ]
        for number, (reader, port) in enumerate(readers[1:], start=1):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{node.name}_{number}"
            copy.output[0] = reader.input[port] = f"{node.output[0]}_{number}"
            for place in converted:
                own = graph.initializer.add()
                own.CopyFrom(stored[node.input[place]])
                own.name = copy.input[place] = f"{node.input[place]}_{number}"
            # before its reader
            graph.node.insert(next(i for i, one in enumerate(graph.node) if one is node), copy)
    is_large = model.ByteSize() > 2**30
    onnx.save(model, destination, save_as_external_data=is_large)
