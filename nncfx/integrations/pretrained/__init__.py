"""Compressed models of transformers, saved and loaded as folders."""

from nncfx.integrations.pretrained.folder import from_pretrained, save_pretrained

__all__ = ["from_pretrained", "save_pretrained"]
