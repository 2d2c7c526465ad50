"""Compress language models block by block, with little memory."""
