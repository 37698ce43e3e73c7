"""Workspaces, under their v1 module name."""

from muster.sdk.workspace import Workspace

__all__ = ["Workspace"]
