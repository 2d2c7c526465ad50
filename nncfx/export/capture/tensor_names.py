"""Name the inputs and outputs of an exported graph, and the open axes of its outputs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

from nncfx.errors import ArgumentError

if TYPE_CHECKING:
    import onnx_ir as ir


def names_of_outputs(output: object) -> list[str]:
    """Return a name for each tensor of a model's output: its keys, or `output`, `output_1`."""
    leaves = [
        (keys, leaf)
        for keys, leaf in pytree.tree_flatten_with_path(output)[0]
        if isinstance(leaf, torch.Tensor)
    ]
    names = ["_".join(_key_text(key) for key in keys) for keys, _ in leaves]
    return [
        name if name and not name[0].isdigit() else "_".join(filter(None, ("output", name)))
        for name in names
    ]


def _key_text(key: object) -> str:
    if isinstance(key, pytree.MappingKey):
        return str(key.key)
    if isinstance(key, pytree.GetAttrKey):
        return key.name
    if isinstance(key, pytree.SequenceKey):
        return str(key.idx)
    return str(key)


def name_inputs(graph: "ir.Graph") -> None:
    """Give inputs that the model returns their names again, which torch gives to the outputs.

    Such an output is a copy of the input, whose name then ends in "_orig".
    """
    for value in graph.outputs:
        node, name = value.producer(), value.name
        source = node.inputs[0] if node is not None and node.op_type == "Identity" else None
        if source is not None and source.is_graph_input() and source.name == f"{name}_orig":
            value.name, source.name = f"{name}_output", name


def name_outputs(graph: "ir.Graph", names: list[str]) -> None:
    """Give outputs their `names`, except outputs that are inputs or would share a name."""
    taken = {value.name for value in graph.inputs}
    if len(names) != len(graph.outputs):
        return
    for value, name in zip(graph.outputs, names, strict=True):
        if not value.is_graph_input() and name not in taken:
            value.name = name
            taken.add(name)


def rename(graph: "ir.Graph", inputs: Sequence[str] | None, outputs: Sequence[str] | None) -> None:
    """Give inputs and outputs the requested names."""
    named = {"input_names": (inputs, graph.inputs), "output_names": (outputs, graph.outputs)}
    for argument, (names, values) in named.items():
        if names is None:
            continue
        known = ", ".join(str(one.name) for one in values)
        if len(names) != len(values):
            raise ArgumentError(
                f"{argument} has {len(names)} names, and the graph has {len(values)}: {known}."
            )
        for value, name in zip(values, names, strict=True):
            value.name = name
    every = [str(one.name) for one in (*graph.inputs, *graph.outputs)]
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice and not (inputs is None and outputs is None):
        raise ArgumentError(
            f"input_names and output_names give '{twice[0]}' twice; a name stands for one tensor."
        )


def name_open_axes(graph: "ir.Graph") -> None:
    """Name each open axis of an output like the input axis that it equals, or `output_dim_2`.

    torch names it by its formula, such as `2*(((h - 1)//4)) + 2`. Equal formulas share one name.
    """
    import onnx_ir as ir

    shapes = [one.shape or () for one in graph.inputs]
    names = {
        axis.value: axis.value for shape in shapes for axis in shape if not isinstance(axis, int)
    }
    for one in graph.outputs:
        shape: list[int | str | None] = []
        for index, axis in enumerate(one.shape or ()):
            own = f"{one.name}_dim_{index}"
            shape.append(
                axis if isinstance(axis, int) else names.setdefault(axis.value or own, own)
            )
        if shape:
            one.shape = ir.Shape(shape)
