"""The two keepers of a container: one on the node, one inside."""
