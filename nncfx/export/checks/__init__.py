"""Check how runtimes will compute an exported file."""
