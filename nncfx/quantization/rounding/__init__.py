"""Data-driven rounding of weights: GPTQ and block reconstruction."""
