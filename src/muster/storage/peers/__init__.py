"""Nodes that take blocks of staged data from each other, so that the source is read once."""
