"""Plan where quantizers go in a model."""
