"""Checks of an exported file against what runtimes compute."""
