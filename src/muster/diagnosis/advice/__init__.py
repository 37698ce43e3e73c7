"""The next step, with names in it. Nothing where nothing is known. Pure."""
