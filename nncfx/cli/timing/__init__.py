"""The measurements, baselines and output of `nncfx benchmark`."""
