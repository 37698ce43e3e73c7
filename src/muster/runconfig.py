"""Run and distribution settings, under their v1 module name."""

from muster.sdk.runconfig import (
    DockerConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
    TensorflowConfiguration,
)

__all__ = [
    "DockerConfiguration",
    "MpiConfiguration",
    "PyTorchConfiguration",
    "RunConfiguration",
    "TensorflowConfiguration",
]
