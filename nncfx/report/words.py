"""Words of the report with explanations."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MACs": "Multiply-accumulates of one forward of one example.",
        "Footprint": "Bytes of the parameters that are not zero, in their number format.",
        "Non-zero": "Parameter elements that are not zero.",
        "Latency": "Time of one call: the median of many, the two models in turns.",
        "Throughput": "Examples a second at the batch and the threads that are named.",
        "Level": "Strength of the compression, from 0 (dense) to 1: the share that goes.",
        "Threshold": "The lowest metric that a level may have: the dense one less the margin.",
        "s_acc": "The highest level that still reaches the threshold; where the first stage ends.",
        "Bracket": "Between the highest level found inside the budget and the lowest outside: "
        "the crossing lies there.",
        "Direct": "Compressed without training afterwards.",
        "Pareto front": "Trials of which no other is both better and smaller.",
        "Sensitivity": "How far the outputs move, as a share of their norm, if this layer alone "
        "is compressed.",
        "Codebook": "The few values that the weights of a layer share; files hold their numbers.",
        "Kept": "Output channels that are left, of those of the dense layer.",
        "Validation": "Data that the search looked at to choose; they flatter what was chosen.",
        "Test": "Data that chose nothing.",
        ".nncfx": "An entropy-coded file; nncfx.load reads it.",
        "Thinned": "Dead channels are removed, so that tensors are smaller.",
        "Masked": "Pruned weights are zero, and tensors have their sizes.",
    }
)
"""The meaning of each word, in a sentence."""


def explained(word: str) -> str:
    """Return the meaning of `word`, ignoring case; "" if it is not in `WORDS`.

    >>> explained("macs")
    'Multiply-accumulates of one forward of one example.'
    """
    known = {name.lower(): text for name, text in WORDS.items()}
    return known.get(word.lower(), "")
