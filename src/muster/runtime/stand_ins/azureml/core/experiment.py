"""`azureml.core.experiment`, inside a run."""

from muster.runtime.inside import Experiment

__all__ = ["Experiment"]
