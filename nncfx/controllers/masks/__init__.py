"""Masks on weights, and the costs that they save."""
