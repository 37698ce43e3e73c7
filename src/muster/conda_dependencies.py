"""Conda dependencies, under their v1 module name."""

from muster.sdk.environment import CondaDependencies

__all__ = ["CondaDependencies"]
