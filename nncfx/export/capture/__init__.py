"""Capture a model as an exported program, working around limits of torch's exporter."""
