"""The image of an attempt, brought to its node."""
