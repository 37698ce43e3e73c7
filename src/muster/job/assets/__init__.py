"""Files that describe data and where it lies."""
