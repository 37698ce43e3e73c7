"""Conda dependencies, under their v1 module name."""

from muster.sdk.conda import CondaDependencies

__all__ = ["CondaDependencies"]
