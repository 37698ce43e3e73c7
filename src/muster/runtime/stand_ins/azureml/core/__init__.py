"""What a script inside a run imports from `azureml.core`: the run, its data, and the models that it registers."""

from muster.runtime.inside import Dataset, Datastore, Environment, Experiment, Model, Workspace
from muster.runtime.run import Run
from muster.runtime.workspace import Keyvault

VERSION = "1.60.0"
"""Of the SDK whose names these are."""
__version__ = VERSION

__all__ = ["VERSION", "Dataset", "Datastore", "Environment", "Experiment", "Keyvault", "Model", "Run", "Workspace"]
