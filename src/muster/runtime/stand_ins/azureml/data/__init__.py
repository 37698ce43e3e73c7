"""`azureml.data`, inside a run."""

from muster.runtime.inside import InputDataset

FileDataset = TabularDataset = InputDataset

__all__ = ["FileDataset", "TabularDataset"]
