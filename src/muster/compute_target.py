"""The exception of compute targets, under its v1 module name."""

from muster.sdk.compute import ComputeTarget, ComputeTargetException

__all__ = ["ComputeTarget", "ComputeTargetException"]
