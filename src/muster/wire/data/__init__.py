"""Data: datastores, assets, grants."""
