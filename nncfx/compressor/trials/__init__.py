"""The trials of a run: candidates, how they are made and timed, and which comes next."""
