"""Nodes that Slurm lends and that stay between runs."""
