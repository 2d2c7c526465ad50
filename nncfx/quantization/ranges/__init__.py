"""Find ranges of quantizers from statistics of data."""
