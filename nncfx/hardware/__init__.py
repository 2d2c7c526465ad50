"""Descriptions of what a target computes in integers: data and JSON, without torch."""

__all__: list[str] = []
