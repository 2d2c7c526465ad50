"""The wrapped model, with its graph, its hooks and its channels."""

from nncfx.network.batches import inputs_in, warn_unused_inputs
from nncfx.network.network import InsertionHandle, NNCFInterface, NNCFNetwork, inputs_for
from nncfx.network.published_state import is_bakeable
from nncfx.network.strip import bake, is_strippable, strip
from nncfx.network.wrapping import unwrap, wrap

__all__ = [
    "InsertionHandle",
    "NNCFInterface",
    "NNCFNetwork",
    "bake",
    "inputs_for",
    "inputs_in",
    "is_bakeable",
    "is_strippable",
    "strip",
    "unwrap",
    "warn_unused_inputs",
    "wrap",
]
