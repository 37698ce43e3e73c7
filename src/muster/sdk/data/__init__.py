"""Data in the v1 SDK: datastores, data sets, and where outputs go."""
