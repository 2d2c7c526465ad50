"""Rounding of weights by what their layers compute: GPTQ and AdaRound."""
