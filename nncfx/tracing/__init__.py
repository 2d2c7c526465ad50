"""Wrap a model, trace its operations, hang hooks in it."""

from nncfx.tracing.inputs import ExampleInputs, as_call, run

__all__ = ["ExampleInputs", "as_call", "run"]
