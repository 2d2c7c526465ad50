"""Codecs of words and symbols: numpy only."""
