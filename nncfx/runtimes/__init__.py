"""Run a model on the real runtime, and time it honestly."""

from nncfx.runtimes.accuracy import SessionModule, metric_through
from nncfx.runtimes.affinity import pinned
from nncfx.runtimes.benchmark import (
    admissible_plan,
    benchmark,
    sweep_batches,
    time_path,
    time_sessions,
)
from nncfx.runtimes.energy import Energy, EnergyCounter, energy_counters, energy_per_call
from nncfx.runtimes.executed_kernels import IntegerKernels, integer_kernels
from nncfx.runtimes.latency_table import (
    LatencyTable,
    ModuleSample,
    fitted_table,
    predicted_latency,
)
from nncfx.runtimes.measured_table import Variant, measured_table, read_table
from nncfx.runtimes.memory import MemoryUse, memory_use
from nncfx.runtimes.named_inputs import InputSpec
from nncfx.runtimes.operator_form import write_operator_form
from nncfx.runtimes.processor import EXACT_BYTE_SUMS, byte_products, exact_byte_sums
from nncfx.runtimes.profile import (
    UNATTRIBUTED,
    LayerTime,
    Profile,
    compare_profiles,
    profile_layers,
)
from nncfx.runtimes.registry import RUNTIMES, runtime_named
from nncfx.runtimes.runtime import BuildOptions, Runtime, Session
from nncfx.runtimes.timing import Timing, TimingPlan, call_words, compare, measure
from nncfx.runtimes.verdict import Verdict, verdict

__all__ = [
    "EXACT_BYTE_SUMS",
    "RUNTIMES",
    "UNATTRIBUTED",
    "BuildOptions",
    "Energy",
    "EnergyCounter",
    "InputSpec",
    "IntegerKernels",
    "LatencyTable",
    "LayerTime",
    "MemoryUse",
    "ModuleSample",
    "Profile",
    "Runtime",
    "Session",
    "SessionModule",
    "Timing",
    "TimingPlan",
    "Variant",
    "Verdict",
    "admissible_plan",
    "benchmark",
    "byte_products",
    "call_words",
    "compare",
    "compare_profiles",
    "energy_counters",
    "energy_per_call",
    "exact_byte_sums",
    "fitted_table",
    "integer_kernels",
    "measure",
    "measured_table",
    "memory_use",
    "metric_through",
    "pinned",
    "predicted_latency",
    "profile_layers",
    "read_table",
    "runtime_named",
    "sweep_batches",
    "time_path",
    "time_sessions",
    "verdict",
    "write_operator_form",
]
