"""Copies between this machine, datastores and other addresses, by the engine that nodes use."""
