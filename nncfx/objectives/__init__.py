"""Objectives of a search: footprint, MACs, throughput, latency, with direction and unit."""

from nncfx.objectives.direction import Maximize, Minimize
from nncfx.objectives.objective import Objective
from nncfx.objectives.ready import file_size, footprint, latency, macs, parameters, throughput
from nncfx.objectives.subject import Subject

__all__ = [
    "Maximize",
    "Minimize",
    "Objective",
    "Subject",
    "file_size",
    "footprint",
    "latency",
    "macs",
    "parameters",
    "throughput",
]
