"""Wrap a model, trace its operations, hang hooks in it."""

from nncfx.tracing.inputs import ExampleInputs, as_call, run
from nncfx.tracing.tracer import Observer, TracedCall, trace

__all__ = ["ExampleInputs", "Observer", "TracedCall", "as_call", "run", "trace"]
