"""`azureml.core.datastore`, inside a run."""

from muster.runtime.inside import Datastore

__all__ = ["Datastore"]
