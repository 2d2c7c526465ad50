"""The algorithms that zero whole channels, and the controller that they share."""

from nncfx.lazy import names_of

__getattr__ = names_of(
    __name__,
    "config",
    "branch_pruning",
    "filter_pruning",
    "head_pruning",
    "neuron_pruning",
    "structure_pruning",
)
