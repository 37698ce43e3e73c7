"""Datastores, data assets, grants, code, encryption and retention."""
