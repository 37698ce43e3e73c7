"""`ScriptRunConfig`, under its v1 module name."""

from muster.sdk.runconfig import ScriptRunConfig

__all__ = ["ScriptRunConfig"]
