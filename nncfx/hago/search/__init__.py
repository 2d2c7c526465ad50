"""The search over bits: tuners, costs, sensitivities, and the log."""
