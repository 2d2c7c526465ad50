"""How good a model is on data: metrics, splits, comparisons, and who judges."""
