"""Which weights and channels stay: scores, rankings, and masks with exact counts."""
