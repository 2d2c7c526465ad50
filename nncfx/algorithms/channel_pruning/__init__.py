"""The algorithms that zero whole channels, and their shared controller."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "kinds")
