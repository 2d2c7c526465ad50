"""Trace the operations of a model, and insert hooks into it."""

from nncfx.renamed import attribute
from nncfx.tracing.calls.inputs import ExampleInputs, as_call, run
from nncfx.tracing.calls.no_trace import no_nncf_trace
from nncfx.tracing.hooks.sites import Insertion, PostSite, PreSite, Priority, Site, WeightSite
from nncfx.tracing.record.function_mode import Observer, TracedCall
from nncfx.tracing.record.tracer import trace

__all__ = [
    "ExampleInputs",
    "Insertion",
    "Observer",
    "PostSite",
    "PreSite",
    "Priority",
    "Site",
    "TracedCall",
    "WeightSite",
    "as_call",
    "no_nncf_trace",
    "run",
    "trace",
]


def __getattr__(name: str) -> object:
    return attribute(__name__, name)
