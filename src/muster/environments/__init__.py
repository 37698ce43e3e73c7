"""Environments of ranks, virtual environments and images: from a job's description to what is ready on a node."""
