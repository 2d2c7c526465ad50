"""The traced graph of a model as plain data, without torch."""

from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.graph.macs import mac_rule, macs, operation_macs, total_macs
from nncfx.graph.nncf_graph import NNCFGraph, input_address, output_address
from nncfx.graph.operations import Edge, Operation, TensorInfo

__all__ = [
    "Channels",
    "Edge",
    "GroupSet",
    "Member",
    "NNCFGraph",
    "Operation",
    "Role",
    "TensorInfo",
    "input_address",
    "mac_rule",
    "macs",
    "operation_macs",
    "output_address",
    "total_macs",
]
