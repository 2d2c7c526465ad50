"""The search over several dimensions."""
