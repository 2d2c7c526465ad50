"""Fair timing: warm-up, interleaving, intervals, verdicts."""
