"""`azureml.core.run`, inside a run."""

from muster.runtime.run import OfflineRun as _OfflineRun
from muster.runtime.run import Run

get_run = Run.get_context

__all__ = ["Run", "_OfflineRun", "get_run"]
