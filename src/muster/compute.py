"""Compute targets, under their v1 module name."""

from muster.sdk.compute import AmlCompute, ComputeTarget

__all__ = ["AmlCompute", "ComputeTarget"]
