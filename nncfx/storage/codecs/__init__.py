"""Codecs of words and symbols, which need only numpy."""
