"""The next step, with concrete names in it. Nothing where nothing is known. Pure."""
