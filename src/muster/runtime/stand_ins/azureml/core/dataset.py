"""`azureml.core.dataset`, inside a run."""

from muster.runtime.inside import Dataset

__all__ = ["Dataset"]
