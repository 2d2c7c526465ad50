"""What `nncfx benchmark` measures, compares with, and prints."""
