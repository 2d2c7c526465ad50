"""Language models compressed block by block: what one block needs is in memory, and no more."""
