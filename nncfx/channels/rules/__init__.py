"""What torch functions do with channels: one module for each family of rules."""
