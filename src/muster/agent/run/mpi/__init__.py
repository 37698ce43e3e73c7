"""Ranks that a real mpirun starts: what it finds on the node, and the wrappers of ranks."""
