"""Masks on weights, and what they save."""
