"""Files that describe data and datastores."""
