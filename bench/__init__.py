"""Benchmarks: `python -m bench.NAME [--quick]`, or all of them with `make bench`."""
