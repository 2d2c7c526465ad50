"""A graph by hand: input, convolution, relu, addition of both, output."""

import pytest

from nncfx.graph import Edge, NNCFGraph, Operation, TensorInfo

IMAGE = TensorInfo((1, 3, 8, 8), "float32")
WEIGHT = TensorInfo((4, 3, 3, 3), "float32")
MAP = TensorInfo((1, 4, 6, 6), "float32")


@pytest.fixture
def graph() -> NNCFGraph:
    conv = Operation(
        address="Net/Conv2d[conv]/conv2d_0",
        function="conv2d",
        call_number=0,
        index=0,
        module="conv",
        module_type="Conv2d",
        inputs=(IMAGE, WEIGHT),
        outputs=(MAP,),
        parameters={1: "conv.weight"},
    )
    relu = Operation("Net/relu_0", "relu", 0, 1, "", "Net", (MAP,), (MAP,))
    add = Operation("Net/__add___0", "__add__", 0, 2, "", "Net", (MAP, MAP), (MAP,))
    return NNCFGraph(
        operations=(conv, relu, add),
        edges=(
            Edge("/nncf_model_input_0", 0, conv.address, 0, IMAGE),
            Edge(conv.address, 0, relu.address, 0, MAP),
            Edge(relu.address, 0, add.address, 0, MAP),
            Edge(relu.address, 0, add.address, 1, MAP),
            Edge(add.address, 0, "/nncf_model_output_0", 0, MAP),
        ),
        inputs=(IMAGE,),
        outputs=(MAP,),
    )
