"""What runs log: metrics in blocks with summaries, parameters, tags."""
