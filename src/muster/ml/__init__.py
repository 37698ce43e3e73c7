"""Azure ML's v2 Python, on Muster: `command()`, `Input`, `Output`, `MLClient`, `load_job`, `load_component`.

A v2 script runs after `azure.ai.ml` is replaced by `muster.ml` in its imports, or through `python -m muster.azureml`.
"""

from muster.ml.client import MLClient
from muster.ml.command import Command, MpiDistribution, PyTorchDistribution, TensorFlowDistribution, command
from muster.ml.entities import AmlTokenConfiguration, ManagedIdentityConfiguration, UserIdentityConfiguration
from muster.ml.files import (
    load_batch_deployment,
    load_batch_endpoint,
    load_component,
    load_compute,
    load_data,
    load_datastore,
    load_environment,
    load_job,
    load_model,
    load_online_deployment,
    load_online_endpoint,
)
from muster.ml.values import Input, Output

__all__ = [
    "AmlTokenConfiguration",
    "Command",
    "Input",
    "MLClient",
    "ManagedIdentityConfiguration",
    "MpiDistribution",
    "Output",
    "PyTorchDistribution",
    "TensorFlowDistribution",
    "UserIdentityConfiguration",
    "command",
    "load_batch_deployment",
    "load_batch_endpoint",
    "load_component",
    "load_compute",
    "load_data",
    "load_datastore",
    "load_environment",
    "load_job",
    "load_model",
    "load_online_deployment",
    "load_online_endpoint",
]
