"""Real clusters and scripted servers that tests and benchmarks run against."""
