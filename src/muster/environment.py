"""Environments, under their v1 module name."""

from muster.sdk.conda import CondaDependencies
from muster.sdk.environment import Environment

__all__ = ["CondaDependencies", "Environment"]
