"""Knowledge distillation, which keeps outputs near those of the model before compression."""

from nncfx.lazy import names_of

__getattr__ = names_of(__name__, "config", "controller", "loss", "builder")
