"""The search for bits: tuners, costs, sensitivities, and the log."""
