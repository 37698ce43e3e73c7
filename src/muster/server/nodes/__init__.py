"""Clusters, their nodes, and the agents on them."""
