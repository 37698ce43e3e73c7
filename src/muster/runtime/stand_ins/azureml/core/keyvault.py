"""`azureml.core.keyvault`, inside a run."""

from muster.runtime.workspace import Keyvault

__all__ = ["Keyvault"]
