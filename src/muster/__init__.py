"""Muster trains deep-learning models on many processes and many machines.

Names are imported when they are first used, so `import muster` costs nearly nothing. Valid in Python 3.8 and without
dependencies: a copy of this file is on the path of every rank.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, List

if sys.platform == "win32":
    from muster.systems import refusal

    # A command ends with the sentence alone; whoever imports gets an error to catch.
    _is_command = "muster" in sys.argv[0].replace("\\", "/").rpartition("/")[2]
    raise (SystemExit if _is_command else ImportError)(refusal(sys.platform))

if os.environ.get("MUSTER_RUN_ID"):
    # The copy on a rank's path holds only the in-run part; an installed Muster adds the rest.
    import pkgutil

    __path__ = pkgutil.extend_path(__path__, __name__)

_HOME = {
    "__version__": "muster.version",
    "AmlCompute": "muster.compute",
    "ComputeTarget": "muster.compute",
    "Dataset": "muster.dataset",
    "Datastore": "muster.datastore",
    "Environment": "muster.environment",
    "Experiment": "muster.experiment",
    "FileServer": "muster.sdk.fileserver",
    "Model": "muster.model",
    "MusterError": "muster.errors",
    "Run": "muster.run",
    "RunConfiguration": "muster.runconfig",
    "RunFailed": "muster.errors",
    "ScriptRunConfig": "muster.script_run_config",
    "Workspace": "muster.workspace",
    "as_completed": "muster.sdk.run",
}

__all__ = [
    "AmlCompute",
    "ComputeTarget",
    "Dataset",
    "Datastore",
    "Environment",
    "Experiment",
    "FileServer",
    "Model",
    "MusterError",
    "Run",
    "RunConfiguration",
    "RunFailed",
    "ScriptRunConfig",
    "Workspace",
    "__version__",
    "as_completed",
]

if TYPE_CHECKING:
    from muster.compute import AmlCompute, ComputeTarget
    from muster.dataset import Dataset
    from muster.datastore import Datastore
    from muster.environment import Environment
    from muster.errors import MusterError, RunFailed
    from muster.experiment import Experiment
    from muster.model import Model
    from muster.run import Run
    from muster.runconfig import RunConfiguration
    from muster.script_run_config import ScriptRunConfig
    from muster.sdk.fileserver import FileServer
    from muster.sdk.run import as_completed
    from muster.version import VERSION as __version__
    from muster.workspace import Workspace


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError("module 'muster' has no attribute {!r}".format(name))
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        raise ImportError(
            "muster.{} needs all of Muster, and this Python ({}) lacks the module {!r}: only the in-run part "
            "(`from muster import Run`) is here. Install it: `pip install muster-ml` (Python 3.11 or newer).".format(
                name, "{}, {}.{}".format(sys.executable, *sys.version_info[:2]), error.name
            )
        ) from error
    value = getattr(module, "VERSION" if name == "__version__" else name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
