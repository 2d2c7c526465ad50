"""Evaluation of models on data: metrics, splits, comparisons, and judgements."""
