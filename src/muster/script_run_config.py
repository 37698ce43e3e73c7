"""`ScriptRunConfig`, under its v1 module name."""

from muster.sdk.script_run_config import ScriptRunConfig

__all__ = ["ScriptRunConfig"]
