"""From a model to an exported program: what torch's exporter needs, and what it would lose."""
