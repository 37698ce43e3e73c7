"""Answers with the number of characters."""


def init():
    """Nothing to load."""


def run(data):
    """The answer."""
    return len(data)
