"""`azureml.core.workspace`, inside a run."""

from muster.runtime.inside import Workspace

__all__ = ["Workspace"]
