"""Data-driven rounding of weights: GPTQ, AdaRound and block reconstruction."""
