"""Curves of metrics, on a terminal and as image files."""
