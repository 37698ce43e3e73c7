"""Scoring, inside the processes that hold a model. Needs the standard library and the user's own environment only."""
