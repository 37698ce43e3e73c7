"""Datastores, under their v1 module name."""

from muster.sdk.data.datastore import Datastore

__all__ = ["Datastore"]
