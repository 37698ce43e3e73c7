"""`azureml.core.environment`, inside a run."""

from muster.runtime.inside import Environment

__all__ = ["Environment"]
