"""Benchmarks that need a GPU; run by hand on a machine with one: `python -m bench.gpu`."""
