"""Data in the v1 SDK: datastores, datasets and outputs."""
