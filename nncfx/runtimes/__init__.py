"""Run a model on the real runtime, and time it honestly."""

from nncfx.runtimes.benchmark import benchmark, time_path, time_sessions
from nncfx.runtimes.named_inputs import InputSpec
from nncfx.runtimes.profile import (
    UNATTRIBUTED,
    LayerTime,
    Profile,
    compare_profiles,
    profile_layers,
)
from nncfx.runtimes.registry import RUNTIMES, runtime_named
from nncfx.runtimes.runtime import BuildOptions, Runtime, Session
from nncfx.runtimes.timing import Timing, TimingPlan, compare, measure
from nncfx.runtimes.verdict import Verdict, verdict

__all__ = [
    "RUNTIMES",
    "UNATTRIBUTED",
    "BuildOptions",
    "InputSpec",
    "LayerTime",
    "Profile",
    "Runtime",
    "Session",
    "Timing",
    "TimingPlan",
    "Verdict",
    "benchmark",
    "compare",
    "compare_profiles",
    "measure",
    "profile_layers",
    "runtime_named",
    "time_path",
    "time_sessions",
    "verdict",
]
