"""Scoring, inside the processes that hold a model. Standard library, beside what the user's own environment has."""
