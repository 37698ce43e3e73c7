"""MLflow's client in a rank whose script chooses a store of its own, or names Azure ML's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.agent.run import runtime_copy

_OWN = {
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:1/rank/0",
    "MLFLOW_RUN_ID": "mine",
    "MLFLOW_TRACKING_TOKEN": "secret",
}
_SERVICE = """
import os
def set_tracking_uri(uri): os.environ["MLFLOW_TRACKING_URI"] = uri
def get_tracking_uri(): return os.environ["MLFLOW_TRACKING_URI"]
"""
_FLUENT = """
import os
def start_run(run_id=None):
    global current
    current = run_id or os.environ.pop("MLFLOW_RUN_ID", None)
    return current, os.environ.get("MLFLOW_TRACKING_TOKEN")
def active_run(): return current
def end_run(): globals().update(current=None)
def _get_or_start_run(): return (current,) if current else start_run()
def log_metric(): return _get_or_start_run()[0]
current = None
"""
_CLIENT = """
class TrackingServiceClient:
    def _log_url(self, run_id): print("View run", run_id)
"""
_TORCH = """
def _get_default_serialization_format(export_model): return "pt2"
def save(export_model=False): return _get_default_serialization_format(export_model)
"""
_SKLEARN = """
def _get_default_serialization_format(): return "skops"
def save(): return _get_default_serialization_format()
"""
_START = (
    "import mlflow.tracking._tracking_service.utils as service, mlflow.tracking._tracking_service.client as client; "
    "import mlflow.tracking.fluent as fluent, os; "
)


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A package with the modules of MLflow's client that matter, each with what it does with the variables."""
    runtime_copy.install(tmp_path / "node")
    service = tmp_path / "packages" / "mlflow" / "tracking" / "_tracking_service"
    service.mkdir(parents=True)
    (service / "utils.py").write_text(_SERVICE)
    (service / "client.py").write_text(_CLIENT)
    (service.parent / "fluent.py").write_text(_FLUENT)
    (tmp_path / "packages" / "mlflow" / "pytorch.py").write_text(_TORCH)
    (tmp_path / "packages" / "mlflow" / "sklearn.py").write_text(_SKLEARN)
    return tmp_path


def said(client: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = f"{client / 'node'}:{client / 'packages'}"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "MUSTER_HOOKS": "mlflow", **_OWN}
    command = [sys.executable, "-c", _START + code]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)


def test_the_first_run_is_musters(client: Path) -> None:
    done = said(client, "print(fluent.start_run())")
    assert (done.stdout, done.stderr) == ("('mine', 'secret')\n", "")
    done = said(client, "service.set_tracking_uri(service.get_tracking_uri()); print(fluent.start_run())")
    assert (done.stdout, done.stderr) == ("('mine', 'secret')\n", "")


def test_what_is_logged_while_no_run_is_active_belongs_to_musters_run(client: Path) -> None:
    ended = "fluent.start_run(); fluent.end_run(); "
    assert said(client, ended + "print(fluent.log_metric(), fluent.log_metric())").stdout == "mine mine\n"
    # One that the script starts itself after the first is its own.
    assert said(client, ended + "print(fluent.start_run())").stdout == "(None, 'secret')\n"
    elsewhere = "service.set_tracking_uri('sqlite:///mlflow.db'); "
    assert said(client, elsewhere + "print(fluent.log_metric())").stdout == "None\n"


@pytest.mark.parametrize(
    "choice",
    [
        "service.set_tracking_uri('sqlite:///mlflow.db')",
        "os.environ['MLFLOW_TRACKING_URI'] = 'sqlite:///mlflow.db'",
    ],
)
def test_a_store_that_the_script_chose_gets_runs_of_its_own(client: Path, choice: str) -> None:
    done = said(client, f"{choice}; print(fluent.start_run()); print(fluent.start_run('asked'))")
    assert done.stdout == "(None, None)\n('asked', None)\n"
    assert done.stderr.count("keeps this script's runs at sqlite:///mlflow.db") == 1
    # A link to the script's own store leads somewhere.
    assert said(client, f"{choice}; client.TrackingServiceClient()._log_url('x')").stdout == "View run x\n"


def test_no_links_to_the_ranks_own_address_are_printed(client: Path) -> None:
    assert said(client, "client.TrackingServiceClient()._log_url('x')").stdout == ""


def test_the_address_of_azure_ml_stands_for_the_workspaces(client: Path) -> None:
    done = said(
        client, "service.set_tracking_uri('azureml://x/y'); print(fluent.start_run(), service.get_tracking_uri())"
    )
    assert done.stdout == "('mine', 'secret') http://127.0.0.1:1/rank/0\n"
    assert "stands for this workspace's" in done.stderr


def test_models_keep_the_format_that_needs_nothing_else(client: Path) -> None:
    code = "import mlflow.pytorch as torch, mlflow.sklearn as sklearn; "
    done = said(client, code + "print(torch.save(), torch.save(export_model=True), sklearn.save())")
    assert done.stdout == "pickle pt2 cloudpickle\n"
