"""`azureml.core.model`, inside a run."""

from muster.runtime.inside import Model

__all__ = ["Model"]
