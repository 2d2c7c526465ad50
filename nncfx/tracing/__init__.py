"""Wrap a model, trace its operations, hang hooks in it."""

from nncfx.tracing.channel_trace import analyze_channels
from nncfx.tracing.inputs import ExampleInputs, as_call, run
from nncfx.tracing.network import InsertionHandle, NNCFInterface, NNCFNetwork, inputs_for
from nncfx.tracing.no_trace import no_nncf_trace
from nncfx.tracing.sites import Insertion, PostSite, PreSite, Priority, Site, WeightSite
from nncfx.tracing.strip import bake, is_strippable, strip
from nncfx.tracing.tracer import trace
from nncfx.tracing.watching import Observer, TracedCall
from nncfx.tracing.wrapping import unwrap, wrap

__all__ = [
    "ExampleInputs",
    "Insertion",
    "InsertionHandle",
    "NNCFInterface",
    "NNCFNetwork",
    "Observer",
    "PostSite",
    "PreSite",
    "Priority",
    "Site",
    "TracedCall",
    "WeightSite",
    "analyze_channels",
    "as_call",
    "bake",
    "inputs_for",
    "is_strippable",
    "no_nncf_trace",
    "run",
    "strip",
    "trace",
    "unwrap",
    "wrap",
]
