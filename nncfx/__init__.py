"""Make trained PyTorch models smaller and faster inside an accuracy budget, and prove it."""

from nncfx._version import __version__

__all__ = ["__version__"]
