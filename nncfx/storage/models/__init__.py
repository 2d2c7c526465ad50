"""Read and write models as files: the part of storage that uses torch."""
