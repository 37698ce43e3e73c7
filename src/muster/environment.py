"""Environments, under their v1 module name."""

from muster.sdk.environment import CondaDependencies, Environment

__all__ = ["CondaDependencies", "Environment"]
