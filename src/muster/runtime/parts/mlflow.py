"""Changes to MLflow's client in a rank that widely used scripts need.

- `./model` is accepted as the name of a model or folder, as it is for a local folder: the client's code for sending
  files over HTTP refuses such a path.
- A script that chooses its own store (a folder, a database, another server) gets runs there: the run that
  `MLFLOW_RUN_ID` names is Muster's, and another store does not know it.
- Values logged while no run is active belong to Muster's run, also after a run has ended (autologging ends the run that
  it started): the client forgets `MLFLOW_RUN_ID` after its first use, and would create a new run.
- The address of an Azure ML workspace stands for the one that the rank already has.
- No links to a run's page are printed: the rank's address ends with the attempt, and has no pages.
- `log_model(model, "model")` keeps models of scikit-learn and PyTorch in the format of MLflow before 3.14, also where
  the client's default has become one that needs `skops` or an `input_example`.
"""

import os
import sys
from _frozen_importlib_external import PathFinder
from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Optional

_ADDRESS, _RUN, _TOKEN = "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_TOKEN"
_OWN = {name: os.environ.get(name) for name in (_ADDRESS, _RUN, _TOKEN)}


class _Finder:
    """Changes these modules when they are imported."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        change = _CHANGES.get(name)
        if change is None:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: "ModuleType") -> None:
                execute(module)
                change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _widen_paths(module: "ModuleType") -> None:
    verify = getattr(module, "verify_artifact_path", None)
    if verify is None:
        return

    def verify_artifact_path(artifact_path: "Optional[str]") -> "Any":
        plain = artifact_path
        while plain and plain.startswith("./") and plain.strip("./"):
            plain = plain[2:]
        return verify(plain)

    module.verify_artifact_path = verify_artifact_path  # type: ignore[attr-defined]


def _stay_in_the_workspace(module: "ModuleType") -> None:
    choose = getattr(module, "set_tracking_uri", None)
    if choose is None:
        return

    @wraps(choose)
    def set_tracking_uri(uri: "Any") -> "Any":
        if str(uri).startswith("azureml://") and _OWN[_ADDRESS]:
            _say("the tracking address of Azure ML stands for this workspace's")
            uri = _OWN[_ADDRESS]
        return choose(uri)

    module.set_tracking_uri = set_tracking_uri  # type: ignore[attr-defined]


def _start_runs_elsewhere(module: "ModuleType") -> None:
    start = getattr(module, "start_run", None)
    if start is None:
        return
    _log_to_the_own_run(module)

    @wraps(start)
    def start_run(*args: "Any", **kwargs: "Any") -> "Any":
        address = _address()
        if _OWN[_RUN] and address not in (None, _OWN[_ADDRESS]) and os.environ.get(_RUN) == _OWN[_RUN]:
            _say("MLflow keeps this script's runs at {}, as the script says, and not with Muster's run".format(address))
            for name in (_RUN, _TOKEN):
                if os.environ.get(name) == _OWN[name]:
                    os.environ.pop(name, None)
        return start(*args, **kwargs)

    module.start_run = start_run  # type: ignore[attr-defined]


def _log_to_the_own_run(module: "ModuleType") -> None:
    find = getattr(module, "_get_or_start_run", None)
    active = getattr(module, "active_run", None)
    if find is None or active is None:
        return

    @wraps(find)
    def _get_or_start_run(*args: "Any", **kwargs: "Any") -> "Any":
        own = _OWN[_RUN]
        if own and _address() in (None, _OWN[_ADDRESS]) and active() is None:
            os.environ.setdefault(_RUN, own)
        return find(*args, **kwargs)

    module._get_or_start_run = _get_or_start_run  # type: ignore[attr-defined]


def _print_no_links(module: "ModuleType") -> None:
    client = getattr(module, "TrackingServiceClient", None)
    log = getattr(client, "_log_url", None)
    if client is None or log is None:
        return

    @wraps(log)
    def _log_url(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        return None if _address() == _OWN[_ADDRESS] else log(self, *args, **kwargs)

    client._log_url = _log_url


def _keep_formats(module: "ModuleType") -> None:
    choose = getattr(module, "_get_default_serialization_format", None)
    if choose is None:
        return

    @wraps(choose)
    def _get_default_serialization_format(export_model: bool = False) -> "Any":
        # A script that exports its model asks for the new format.
        return choose(export_model) if export_model else _FORMATS[module.__name__]

    module._get_default_serialization_format = _get_default_serialization_format  # type: ignore[attr-defined]


def _address() -> "Optional[str]":
    """The address that the client logs to; None if it cannot be found out."""
    ask = getattr(sys.modules.get("mlflow.tracking._tracking_service.utils"), "get_tracking_uri", None)
    return None if ask is None else str(ask())


def _say(text: str) -> None:
    # Without standard error, print would use standard output.
    if sys.stderr is not None:
        print("muster: " + text, file=sys.stderr)


_FORMATS = {"mlflow.pytorch": "pickle", "mlflow.sklearn": "cloudpickle"}
_CHANGES = {
    **dict.fromkeys(_FORMATS, _keep_formats),
    "mlflow.store.artifact.artifact_repo": _widen_paths,
    "mlflow.tracking._tracking_service.client": _print_no_links,
    "mlflow.tracking._tracking_service.utils": _stay_in_the_workspace,
    "mlflow.tracking.fluent": _start_runs_elsewhere,
}


def install() -> None:
    """Watch for these imports; it costs every other import one lookup."""
    sys.meta_path.insert(0, _Finder())
