"""Registered models, under their v1 module name."""

from muster.sdk.model import Model

__all__ = ["Model"]
