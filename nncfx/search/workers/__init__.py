"""Trials side by side: workers on this machine or on a Ray cluster, and who drives them."""
