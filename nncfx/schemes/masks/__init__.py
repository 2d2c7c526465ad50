"""Which weights and channels to keep: scores, rankings, and masks with exact counts."""
