"""The traced graph of a model: plain data, no torch."""

from nncfx.graph.macs import macs, total_macs
from nncfx.graph.nncf_graph import NNCFGraph, input_address, output_address
from nncfx.graph.operations import Edge, Operation, TensorInfo

__all__ = [
    "Edge",
    "NNCFGraph",
    "Operation",
    "TensorInfo",
    "input_address",
    "macs",
    "output_address",
    "total_macs",
]
