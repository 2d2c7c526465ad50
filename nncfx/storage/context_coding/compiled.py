"""Functions that numba compiles where it is installed."""

from nncfx.storage.codecs.compiled import IS_COMPILED, compiled

__all__ = ["IS_COMPILED", "compiled"]
