"""The forward of a module as a graph in which sizes can change."""
