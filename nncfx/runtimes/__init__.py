"""Runs a model on the actual runtime, and times it fairly."""

from nncfx.runtimes.backends.qoperator_format import write_operator_form
from nncfx.runtimes.backends.unshare_weights import unshare_weights
from nncfx.runtimes.causal_lm import CausalLM, most_likely
from nncfx.runtimes.inspect.accuracy import SessionModule, metric_through
from nncfx.runtimes.inspect.energy import Energy, EnergyCounter, energy_counters, energy_per_call
from nncfx.runtimes.inspect.executed_kernels import IntegerKernels, integer_kernels
from nncfx.runtimes.inspect.memory import MemoryUse, memory_use
from nncfx.runtimes.inspect.profile import (
    UNATTRIBUTED,
    LayerTime,
    Profile,
    compare_profiles,
    profile_layers,
)
from nncfx.runtimes.predict.latency_table import (
    LatencyTable,
    ModuleSample,
    fitted_table,
    predicted_latency,
)
from nncfx.runtimes.predict.measured_table import Variant, measured_table, read_table
from nncfx.runtimes.processor import EXACT_BYTE_SUMS, byte_products, exact_byte_sums
from nncfx.runtimes.protocol.named_inputs import InputSpec
from nncfx.runtimes.protocol.runtime import BuildOptions, Runtime, Session
from nncfx.runtimes.registry import RUNTIMES, runtime_named
from nncfx.runtimes.timing.affinity import pinned
from nncfx.runtimes.timing.benchmark import (
    admissible_plan,
    benchmark,
    sweep_batches,
    time_path,
    time_sessions,
)
from nncfx.runtimes.timing.timing import Timing, TimingPlan, call_words, compare, measure
from nncfx.runtimes.timing.verdict import Verdict, verdict

__all__ = [
    "EXACT_BYTE_SUMS",
    "RUNTIMES",
    "UNATTRIBUTED",
    "BuildOptions",
    "CausalLM",
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
    "most_likely",
    "pinned",
    "predicted_latency",
    "profile_layers",
    "read_table",
    "runtime_named",
    "sweep_batches",
    "time_path",
    "time_sessions",
    "unshare_weights",
    "verdict",
    "write_operator_form",
]
