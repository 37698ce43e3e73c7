"""Packed data: tar shards with an index, read by `muster.training.data` and written by `muster data pack`."""
